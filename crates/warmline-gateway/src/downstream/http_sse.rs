//! The 2024-11-05 transport: one stream of events for everything, and an endpoint where the client
//! posts its messages. The end of the stream ends the client session.

use std::future::ready;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures_util::future::BoxFuture;
use futures_util::{StreamExt as _, stream};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Response};
use papaya::HashMap;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, mpsc};
use warmline_core::era::Era;
use warmline_core::message::envelope::{Message, MessageKind};
use warmline_core::pool_key::Digest;
use warmline_platform::clock;
use warmline_store::keyring::random_bytes;

use super::message::{ClientTransport, InboundMessage, MessageHead, is_missing_id};
use super::sink::ClientSink;
use super::{OwnedContext, RequestContext, reject_content_type};
use crate::auth::Peer;
use crate::response::call_error::ErrorDetail;
use crate::response::rejection::RequestRejection;
use crate::response::stream::{
    AcceptedFormats, EVENT_END, KEEP_ALIVE_COMMENT, KEEP_ALIVE_INTERVAL, event_stream_response,
    write_event,
};
use crate::response::{self, ResponseBody};
use crate::{downstream, shutdown};

/// Requests of one client in flight; more are rejected.
const MAX_IN_FLIGHT: u32 = 256;
/// Messages queued for a client that reads slowly; calls that have more wait.
const MAX_QUEUED_MESSAGES: usize = 16;

/// The sessions that have a stream, by a name that cannot be guessed. Each holds a connection,
/// which bounds their number.
#[derive(Default)]
pub(crate) struct HttpSseSessions(HashMap<String, Arc<HttpSseSession>>);

impl HttpSseSessions {
    /// The session that a message is posted to, if the sender opened it.
    fn find(
        &self,
        context: &RequestContext<'_>,
        query: Option<&str>,
    ) -> Option<Arc<HttpSseSession>> {
        let name = query?
            .split('&')
            .find_map(|part| part.strip_prefix("session="))?;
        let sessions = self.0.pin();
        let session = sessions.get(name)?;
        session.belongs_to(context).then(|| Arc::clone(session))
    }
}

struct HttpSseSession {
    /// Who opened it; none without authentication.
    owner: Option<Digest>,
    peer: Peer,
    run: Option<String>,
    server: Option<String>,
    /// Where its messages are posted.
    path: String,
    sink: ClientSink,
    permits: Arc<Semaphore>,
    stage: Mutex<HttpSseStage>,
}

/// How far the handshake has come.
enum HttpSseStage {
    New,
    Initializing,
    /// With this legacy client session.
    Open(HeaderValue),
    Closed,
}

impl HttpSseStage {
    fn session(&self) -> Option<&HeaderValue> {
        match self {
            Self::Open(session) => Some(session),
            Self::New | Self::Initializing | Self::Closed => None,
        }
    }
}

impl HttpSseSession {
    fn belongs_to(&self, context: &RequestContext<'_>) -> bool {
        self.owner == context.identity
            && self.run.as_deref() == context.target.run
            && self.server.as_deref() == context.target.server
    }

    /// The context of a message of this client, in the legacy session of its stream.
    fn message_context(
        &self,
        context: &RequestContext<'_>,
        session: Option<HeaderValue>,
    ) -> OwnedContext {
        OwnedContext {
            transport: ClientTransport::HttpSse,
            peer: self.peer,
            path: self.path.clone(),
            session,
            ..context.to_owned()
        }
    }

    /// The legacy session that a request belongs to; `None` for requests that need none.
    ///
    /// # Errors
    /// The request does not fit the stage of the handshake.
    fn admit_message(
        &self,
        inbound: &InboundMessage,
    ) -> Result<Option<HeaderValue>, RequestRejection> {
        if inbound.era(None) == Some(Era::Modern) {
            return Err(RequestRejection::legacy_only());
        }
        let mut stage = self.stage.lock();
        match (inbound.method(), &*stage) {
            (Some("initialize"), HttpSseStage::New) => {
                *stage = HttpSseStage::Initializing;
                Ok(None)
            },
            (Some("initialize"), _) => Err(RequestRejection::invalid(
                "Invalid Request: this stream already has a session",
            )),
            (_, HttpSseStage::Open(session)) => Ok(Some(session.clone())),
            (Some("ping"), _) => Ok(None),
            _ => Err(RequestRejection::invalid(
                "Invalid Request: a session begins with initialize",
            )),
        }
    }

    /// `initialize` was answered, with a session unless it failed. Returns the session if the client has
    /// left.
    fn finish_initialize(&self, session: Option<HeaderValue>) -> Option<HeaderValue> {
        let mut stage = self.stage.lock();
        match (&*stage, session) {
            (HttpSseStage::Closed, session) => return session,
            (_, Some(session)) => *stage = HttpSseStage::Open(session),
            (_, None) => *stage = HttpSseStage::New,
        }
        None
    }
}

async fn end_legacy_session(mut context: OwnedContext, session: HeaderValue) {
    context.headers = HeaderMap::new();
    context.session = Some(session);
    drop(downstream::handle_without_body(&context.context(), &Method::DELETE).await);
}

pub(crate) fn reject_stream_request(head: &Parts) -> Option<Response<ResponseBody>> {
    if head.method != Method::GET {
        return Some(response::method_not_allowed("GET"));
    }
    let can_read = MessageHead::http(head).accepts != AcceptedFormats::Json;
    (!can_read).then(|| RequestRejection::no_format().to_response(None, ErrorDetail::Limited))
}

pub(crate) fn reject_message_post(head: &Parts) -> Option<Response<ResponseBody>> {
    if head.method != Method::POST {
        return Some(response::method_not_allowed("POST"));
    }
    reject_content_type(&head.headers)
}

/// Opens a stream. Its first event names the endpoint for messages. Only the identity that opened
/// the stream may post there.
pub(crate) fn open_stream(context: &RequestContext<'_>) -> Response<ResponseBody> {
    let name = Digest::new(random_bytes()).to_hex();
    let (out, messages) = mpsc::channel(MAX_QUEUED_MESSAGES);
    let path = context.head.path;
    let path = format!("{}messages", path.strip_suffix("sse").unwrap_or(path));
    let first = format!("event: endpoint\ndata: {path}?session={name}\n\n");
    let session = Arc::new(HttpSseSession {
        owner: context.identity,
        peer: context.peer,
        run: context.target.run.map(str::to_owned),
        server: context.target.server.map(str::to_owned),
        path,
        sink: ClientSink {
            messages: out,
            reply_budget: Some(context.reply_budget()),
        },
        permits: Arc::new(Semaphore::new(MAX_IN_FLIGHT as usize)),
        stage: Mutex::new(HttpSseStage::New),
    });
    let sessions = &context.shared.sse_sessions;
    sessions.0.pin().insert(name.clone(), Arc::clone(&session));
    let mut stopping = context.shared.stopping.clone();
    let permits = Arc::clone(&session.permits);
    let drained = async move {
        shutdown::wait_for_stop(&mut stopping).await;
        // Calls in flight end; no others begin.
        drop(permits.acquire_many(MAX_IN_FLIGHT).await);
    };
    let access_revoked = context.access_revoked(Vec::new());
    let stream = HttpSseStream {
        name,
        opened_by: session.message_context(context, None),
        session,
        messages,
        drained: Box::pin(drained),
    };
    let messages = stream::unfold(stream, HttpSseStream::next_message);
    let events = messages.flat_map(|message| stream::iter(event_chunks(message)).filter_map(ready));
    let first = stream::once(ready(Bytes::from(first)));
    let events = first.chain(events).take_until(access_revoked);
    event_stream_response(ResponseBody::Stream(Box::pin(events)))
}

/// The stream of a client. Dropping it ends the client session.
struct HttpSseStream {
    name: String,
    /// Here alone: the table of sessions must not keep the gateway alive.
    opened_by: OwnedContext,
    session: Arc<HttpSseSession>,
    messages: mpsc::Receiver<Bytes>,
    /// Resolves when the gateway stops and no request is in flight.
    drained: BoxFuture<'static, ()>,
}

impl HttpSseStream {
    /// The next message; an inner `None` for a comment that shows that the stream is alive.
    async fn next_message(mut self) -> Option<(Option<Bytes>, Self)> {
        let message = tokio::select! {
            biased;
            message = self.messages.recv() => Some(message?),
            () = &mut self.drained => return None,
            () = clock::sleep(KEEP_ALIVE_INTERVAL) => None,
        };
        Some((message, self))
    }
}

fn event_chunks(message: Option<Bytes>) -> [Option<Bytes>; 3] {
    let Some(message) = message else {
        return [Some(KEEP_ALIVE_COMMENT), None, None];
    };
    let mut out = BytesMut::new();
    match write_event(&mut out, None, 0, message) {
        Some(large) => [Some(out.freeze()), Some(large), Some(EVENT_END)],
        None => [Some(out.freeze()), None, None],
    }
}

/// Takes a message. Its answer goes down the stream.
pub(crate) async fn handle_post(
    context: &RequestContext<'_>,
    query: Option<&str>,
    body: Bytes,
) -> Response<ResponseBody> {
    let Some(session) = context.shared.sse_sessions.find(context, query) else {
        let rejection = RequestRejection::unknown_session();
        return rejection.to_response(None, context.subject.error_detail());
    };
    let inbound = InboundMessage::parse(body);
    let kind = inbound.message().map(Message::kind);
    if !inbound.is_batch() && inbound.message().is_none_or(is_missing_id) {
        // It belongs to no request, so the response says what is wrong.
        return downstream::handle_message(context, inbound).await.1;
    }
    if kind.is_none_or(|kind| kind == MessageKind::Request) {
        return spawn_request(context, &session, inbound);
    }
    handle_notification(context, &session, inbound).await;
    response::accepted()
}

/// A message without an answer is handled before the next one is read.
async fn handle_notification(
    context: &RequestContext<'_>,
    session: &Arc<HttpSseSession>,
    inbound: InboundMessage,
) {
    let legacy_session = session.stage.lock().session().cloned();
    if legacy_session.is_none() {
        return;
    }
    if inbound.era(None) == Some(Era::Modern) {
        return;
    }
    let own = session.message_context(context, legacy_session);
    if inbound.method() == Some("notifications/initialized") {
        spawn_get_stream(own.clone(), session);
    }
    let own = own.context();
    let (_, response) = downstream::handle_message(&own, inbound).await;
    own.log_rejection(&response);
}

/// Sends what belongs to no call, as long as the stream is read.
fn spawn_get_stream(context: OwnedContext, session: &Arc<HttpSseSession>) {
    let session = Arc::clone(session);
    drop(clock::spawn("sse-get-stream", async move {
        let context = context.context();
        tokio::select! {
            () = session.sink.send_get_stream(&context) => {},
            () = session.sink.messages.closed() => {},
        }
    }));
}

/// A request or a batch, answered on the stream.
fn spawn_request(
    context: &RequestContext<'_>,
    session: &Arc<HttpSseSession>,
    inbound: InboundMessage,
) -> Response<ResponseBody> {
    let Ok(in_flight) = Arc::clone(&session.permits).try_acquire_owned() else {
        return response::overloaded();
    };
    let (legacy_session, rejection) = match session.admit_message(&inbound) {
        Ok(legacy_session) => (legacy_session, None),
        Err(rejection) => (None, Some(rejection)),
    };
    let own = session.message_context(context, legacy_session);
    let session = Arc::clone(session);
    // The request keeps its permit until it is answered on the stream.
    let permit = context.take_permit();
    drop(clock::spawn("sse-call", async move {
        let is_initialize = rejection.is_none() && inbound.method() == Some("initialize");
        let (response, opened) = ClientSink::answer(&own.context(), inbound, rejection).await;
        if is_initialize && let Some(unread) = session.finish_initialize(opened) {
            end_legacy_session(own, unread).await;
        }
        session.sink.send_response(response).await;
        drop((in_flight, permit));
    }));
    response::accepted()
}

impl Drop for HttpSseStream {
    fn drop(&mut self) {
        let opened_by = &self.opened_by;
        opened_by.shared.sse_sessions.0.pin().remove(&self.name);
        let stage = std::mem::replace(&mut *self.session.stage.lock(), HttpSseStage::Closed);
        if let Some(legacy_session) = stage.session()
            && tokio::runtime::Handle::try_current().is_ok()
        {
            let ending = end_legacy_session(opened_by.clone(), legacy_session.clone());
            drop(clock::spawn("sse-end", ending));
        }
    }
}
