//! `GET`: opens the GET stream of a client session, or resumes a stream that broke.
//!
//! The GET stream carries what belongs to no call. The server is subscribed only while it is read.

use std::sync::Arc;

use http::header::HeaderValue;
use http::{Response, StatusCode};
use warmline_core::protocol::headers::LAST_EVENT_ID;
use warmline_engine::relay::RelayHandle as _;
use warmline_engine::{ServerHandle, Subscription};
use warmline_platform::clock::{self, Instant};

use super::check_version;
use super::client_session::ClientSession;
use super::server_requests::GetStreamSink;
use crate::downstream::RequestContext;
use crate::downstream::aggregate::merged_get_stream::MergedGetStream;
use crate::response::event_queue::EventQueue;
use crate::response::rejection::{RequestRejection, RpcCode};
use crate::response::replay_store::ReplayStreamKind;
use crate::response::stream::{
    AcceptedFormats, DisconnectPolicy, PrimingEvent, ResponseMode, ResponseStream, parse_event_id,
};
use crate::response::{self, ResponseBody};

#[derive(Debug)]
pub(super) struct GetStreamState {
    stream_id: u64,
    /// The reader that holds it: one that was replaced may end later.
    claim_id: u64,
    sink: Arc<GetStreamSink>,
    /// The run that the request named, and the subscription to its server, if the server can be
    /// subscribed. A subscription to all servers is its reader's own.
    subscription: Option<(Option<Box<str>>, Option<Subscription>)>,
}

pub(crate) async fn handle_get(
    context: &RequestContext<'_>,
) -> Result<Response<ResponseBody>, RequestRejection> {
    check_version(context.head)?;
    if context.head.accepts == AcceptedFormats::Json {
        let what = "Not Acceptable: a stream is text/event-stream";
        return Err(RequestRejection::not_acceptable(what));
    }
    let session = ClientSession::from_request(context)?;
    if session.ticket.is_none() {
        // Without a session id, no later message would belong to this stream.
        return Ok(response::method_not_allowed("POST"));
    }
    let last = context.head.headers.get(LAST_EVENT_ID);
    match last.filter(|_| !context.head.is_single_stream()) {
        Some(last) => resume_stream(context, &session, last),
        None => open_get_stream(context, &session),
    }
}

fn resume_stream(
    context: &RequestContext<'_>,
    session: &Arc<ClientSession>,
    last: &HeaderValue,
) -> Result<Response<ResponseBody>, RequestRejection> {
    let position = last.to_str().ok().and_then(parse_event_id);
    let retained = position.and_then(|(stream, number)| {
        let (queue, kind) = context
            .shared
            .clients
            .replay
            .find((session.session_key()?, stream))?;
        let can_replay = queue.can_replay_after(number);
        can_replay.then_some((queue, kind, stream, number))
    });
    let Some((queue, kind, stream, number)) = retained else {
        let what = "Bad Request: this event is no longer available";
        return Err(RequestRejection::invalid(what).with_audit_reason("event-unknown"));
    };
    match kind {
        ReplayStreamKind::Call => {
            let priming = match session.priming(context) {
                PrimingEvent::Pending | PrimingEvent::Sent => PrimingEvent::Sent,
                PrimingEvent::Disabled => PrimingEvent::Disabled,
            };
            let flow = ResponseStream::after_event(number, queue, get_stream_mode(stream, priming));
            Ok(context.with_revocation(flow).into_response())
        },
        ReplayStreamKind::GetStream => {
            // A stream that is still read was missed from now on.
            let away = queue.idle_since().unwrap_or_else(clock::now);
            // A rejected client must not take the stream from its reader.
            let claim = session.claim_get_stream(stream, &queue)?;
            let mode = get_stream_mode(stream, PrimingEvent::Disabled);
            let flow = ResponseStream::after_event(number, queue, mode);
            attach_get_stream(context, session, claim, Some(away), flow)
        },
    }
}

/// Opens the GET stream. A client session has one.
fn open_get_stream(
    context: &RequestContext<'_>,
    session: &Arc<ClientSession>,
) -> Result<Response<ResponseBody>, RequestRejection> {
    let stream = session.new_number();
    let queue = context.new_queue();
    let claim = session.claim_get_stream(stream, &queue)?;
    session.retain_stream(context, stream, &queue, ReplayStreamKind::GetStream);
    if !session.can_resume(context) {
        queue.drop_read_events();
    }
    let mode = get_stream_mode(stream, session.priming(context));
    let flow = ResponseStream::after_event(0, queue, mode);
    attach_get_stream(context, session, claim, None, flow)
}

/// `away` is since when nobody has read the stream.
fn attach_get_stream(
    context: &RequestContext<'_>,
    session: &Arc<ClientSession>,
    claim: GetStreamClaim,
    away: Option<Instant>,
    flow: ResponseStream,
) -> Result<Response<ResponseBody>, RequestRejection> {
    if *context.shared.stopping.borrow() {
        claim.sink.queue.finish(None);
    }
    let flow = flow.with_close_signal(context.access_revoked(Vec::new()));
    if context.target.server.is_none() {
        let sink = (Arc::clone(&claim.sink), away);
        let subscription = MergedGetStream::spawn(context, sink);
        return Ok(flow.with_guard((subscription, claim)).into_response());
    }
    let run = context.named_run(None)?;
    let route = session.route(context, None)?;
    let run = run.as_deref().or(session.run());
    claim.subscribe(run, &route.server, away);
    Ok(flow.with_guard(claim).into_response())
}

const fn get_stream_mode(stream: u64, priming: PrimingEvent) -> ResponseMode {
    ResponseMode {
        accepts: AcceptedFormats::Events,
        on_disconnect: DisconnectPolicy::Continue,
        stream_id: Some(stream),
        priming,
    }
}

impl ClientSession {
    /// Claims the GET stream, if it is free or is this stream already.
    fn claim_get_stream(
        self: &Arc<Self>,
        stream: u64,
        queue: &Arc<EventQueue>,
    ) -> Result<GetStreamClaim, RequestRejection> {
        let mut open = self.get_stream.lock();
        if open.as_ref().is_some_and(|at| at.stream_id != stream) {
            let what = "Conflict: a session has only one GET stream";
            let rejection = RequestRejection::new(StatusCode::CONFLICT, RpcCode::Invalid, what);
            return Err(rejection.with_audit_reason("stream-taken"));
        }
        let claim_id = self.new_number();
        let sink = Arc::new(GetStreamSink {
            client: Arc::clone(self),
            queue: Arc::clone(queue),
        });
        *open = Some(GetStreamState {
            stream_id: stream,
            claim_id,
            sink: Arc::clone(&sink),
            subscription: None,
        });
        Ok(GetStreamClaim { sink, claim_id })
    }

    pub(crate) fn get_stream_queue(&self) -> Option<Arc<EventQueue>> {
        let open = self.get_stream.lock();
        open.as_ref().map(|at| Arc::clone(&at.sink.queue))
    }

    /// A run that was over has begun again: subscribes the GET stream to its server as before.
    pub(super) fn resubscribe_get_stream(&self, run: Option<&str>, server: &ServerHandle) {
        self.run_restarted.notify_one();
        let mut open = self.get_stream.lock();
        if let Some(at) = open.as_mut()
            && let Some((subscribed_run, subscription)) = &mut at.subscription
            && subscribed_run.as_deref() == run
        {
            *subscription = server.subscribe_shared(Arc::<GetStreamSink>::clone(&at.sink), None);
        }
    }
}

/// The right to read the GET stream of a session; dropping it frees the stream.
#[derive(Debug)]
struct GetStreamClaim {
    sink: Arc<GetStreamSink>,
    claim_id: u64,
}

impl GetStreamClaim {
    /// Sends what the server says outside calls in that run to the stream.
    fn subscribe(&self, run: Option<&str>, server: &ServerHandle, away: Option<Instant>) {
        let mut open = self.sink.client.get_stream.lock();
        if let Some(at) = open.as_mut()
            && at.claim_id == self.claim_id
        {
            let subscription =
                server.subscribe_shared(Arc::<GetStreamSink>::clone(&self.sink), away);
            at.subscription = Some((run.map(Box::from), subscription));
        }
    }
}

impl Drop for GetStreamClaim {
    fn drop(&mut self) {
        self.sink.queue.mark_idle();
        let mut open = self.sink.client.get_stream.lock();
        // A reader that resumed the stream meanwhile keeps it.
        let left = open.take_if(|at| at.claim_id == self.claim_id);
        drop(open);
        drop(left);
    }
}
