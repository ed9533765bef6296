//! The path of a client's request to servers and back, in both eras.
//!
//! [`ClientRequest`] is a request that may go to any server behind its endpoint, [`ServerCall`] the
//! same request addressed to one of them. [`CallSink`] receives what the server sends meanwhile. What
//! differs between the eras is in [`Client`] and [`CallEra`].

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response};
use warmline_core::era::Era;
use warmline_core::exchange::{Notification, ServerRequest};
use warmline_core::message::params::Params;
use warmline_core::message::splice::{self, Edit};
use warmline_core::pool_key::Digest;
use warmline_core::protocol::headers::PARAM_PREFIX;
use warmline_core::protocol::meta;
use warmline_engine::relay::{RelayCall as _, RelayHandle as _};
use warmline_engine::{CallBuilder, Error, ServerHandle};
use warmline_upstream::{CallerId, CapacityFuture, Listener, ReplyFuture};

use super::legacy::client_session::{ClientSession, InFlightGuard, log_level};
use super::legacy::route::ServerRoute;
use super::legacy::server_requests;
use super::message::ClientTransport;
use super::modern::server_call::{ModernCall, ModernCaller};
use super::modern::tasks;
use super::{RequestContext, aggregate};
use crate::downstream::{message, strip_run};
use crate::limits::usage::CallReplyBudget;
use crate::response::call_error::{self, ErrorDetail};
use crate::response::event_queue::EventQueue;
use crate::response::rejection::RequestRejection;
use crate::response::replay_store::ReplayStreamKind;
use crate::response::stream::{
    AcceptedFormats, CallFuture, FinalResponse, ResponseMode, ResponseStream,
};
use crate::response::{self, ResponseBody};

/// A request of a client, before it is known which server answers it.
pub(crate) struct ClientRequest {
    /// The client's own id, raw.
    pub(crate) id: Bytes,
    pub(crate) method: Cow<'static, str>,
    pub(crate) params: Params,
    /// What goes to the client before the answer.
    pub(crate) queue: Arc<EventQueue>,
    pub(crate) client: Client,
}

/// Who sent a request.
pub(crate) enum Client {
    Legacy {
        session: Arc<ClientSession>,
        /// `None` where another future holds it.
        in_flight: Option<InFlightGuard>,
    },
    Modern(ModernCaller),
}

impl Client {
    pub(crate) const fn era(&self) -> Era {
        match self {
            Self::Legacy { .. } => Era::Legacy,
            Self::Modern(_) => Era::Modern,
        }
    }
}

impl ClientRequest {
    /// The same request for one of several servers that are asked at once.
    pub(crate) fn fork(&self) -> Self {
        Self {
            id: self.id.clone(),
            method: self.method.clone(),
            params: self.params.clone(),
            queue: Arc::clone(&self.queue),
            client: match &self.client {
                Client::Legacy { session, .. } => Client::Legacy {
                    session: Arc::clone(session),
                    in_flight: None,
                },
                Client::Modern(caller) => Client::Modern(caller.clone()),
            },
        }
    }

    pub(super) async fn into_call(
        self,
        context: &RequestContext<'_>,
    ) -> Result<CallFuture, RequestRejection> {
        if context.target.server.is_none() {
            return Box::pin(aggregate::requests::prepare_call(context, self)).await;
        }
        if self.method.starts_with("tasks/")
            && let Client::Legacy { session, .. } = &self.client
            && Box::pin(session.hides_tasks(context, &self.params)).await
        {
            return Err(RequestRejection::method_not_found(
                &self.method,
                Era::Legacy,
            ));
        }
        self.address(context)?.start(context)
    }

    /// Addresses the request to the server of `context`.
    pub(crate) fn address(
        self,
        context: &RequestContext<'_>,
    ) -> Result<ServerCall, RequestRejection> {
        let mut params = self.params;
        let sink = CallSink::new(context, &self.client, &self.queue, &params);
        let era = match self.client {
            Client::Legacy { session, in_flight } => CallEra::Legacy {
                route: session.route(context, Some(&params))?,
                log_level: match &*self.method {
                    "logging/setLevel" => log_level(params.raw()),
                    _ => None,
                },
                session,
                in_flight,
            },
            Client::Modern(caller) => {
                let (call, upstream) = ModernCall::new(context, caller, &self.method, params)?;
                params = upstream;
                CallEra::Modern(call)
            },
        };
        Ok(ServerCall {
            id: self.id,
            method: self.method,
            params,
            sink: Arc::new(sink),
            detail: context.subject.error_detail(),
            era,
        })
    }
}

pub(crate) struct ServerCall {
    id: Bytes,
    method: Cow<'static, str>,
    pub(crate) params: Params,
    sink: Arc<CallSink>,
    detail: ErrorDetail,
    era: CallEra,
}

/// What differs between the eras in a call to a server.
enum CallEra {
    Legacy {
        session: Arc<ClientSession>,
        route: Arc<ServerRoute>,
        in_flight: Option<InFlightGuard>,
        log_level: Option<u8>,
    },
    Modern(ModernCall),
}

impl ServerCall {
    pub(crate) fn server(&self) -> &ServerHandle {
        match &self.era {
            CallEra::Legacy { route, .. } => &route.server,
            CallEra::Modern(call) => &call.server,
        }
    }

    /// The call as the engine takes it. Its method and parameters are used up.
    pub(crate) fn build(&mut self, context: &RequestContext<'_>) -> CallBuilder<Bytes> {
        let head = context.head;
        let trace = message::trace_headers(head.headers, &self.params);
        let params = strip_run(std::mem::take(&mut self.params));
        let method = std::mem::take(&mut self.method);
        let call = self.server().request_raw(method, params).headers(trace);
        match (&self.era, head.transport) {
            (CallEra::Legacy { .. }, _) => call,
            (CallEra::Modern(_), ClientTransport::Http) => {
                call.relayed_with_headers(param_headers(head.headers))
            },
            (CallEra::Modern(_), ClientTransport::HttpSse | ClientTransport::Stdio) => {
                call.relayed()
            },
        }
    }

    /// Sends the request to its server, if the rules allow it.
    pub(crate) fn start(
        mut self,
        context: &RequestContext<'_>,
    ) -> Result<CallFuture, RequestRejection> {
        let server = self.server().name();
        let admission = context.admit(server, &self.method, &self.params)?;
        if context.is_aggregate {
            self.sink.queue.add_source_server(server);
        }
        let sink = Arc::<CallSink>::clone(&self.sink);
        let call = self.build(context).shared_listener(sink);
        Ok(Box::pin(async move {
            let outcome = admission.finish(self.server(), call.send_unboxed().await);
            self.finish(outcome).await
        }))
    }

    pub(crate) async fn finish(self, outcome: Result<Bytes, Error>) -> FinalResponse {
        match self.era {
            CallEra::Legacy {
                session,
                in_flight,
                log_level,
                ..
            } => {
                drop(in_flight);
                if let (Some(level), Ok(_)) = (log_level, &outcome) {
                    session.set_log_level(level);
                }
                outcome_response(&self.id, outcome, self.detail)
            },
            CallEra::Modern(call) => {
                let status = self.sink.http_status.load(Ordering::Relaxed);
                call.finish(&self.id, outcome, (status, self.detail)).await
            },
        }
    }
}

/// The headers that repeat arguments, as the client wrote them.
fn param_headers(headers: &HeaderMap) -> impl Iterator<Item = (HeaderName, HeaderValue)> + '_ {
    let all = headers.iter();
    all.filter(|(name, _)| name.as_str().starts_with(PARAM_PREFIX))
        .map(|(name, value)| (name.clone(), value.clone()))
}

pub(crate) fn outcome_response(
    id: &[u8],
    outcome: Result<Bytes, Error>,
    detail: ErrorDetail,
) -> FinalResponse {
    FinalResponse::ok(match outcome {
        Ok(result) => response::response_message(Some(id), "result", &result),
        Err(error) => call_error::call_error_message(id, &error, detail),
    })
}

/// Drives a call until its response begins. A stream of a legacy session is kept for replay.
pub(crate) async fn respond(
    context: &RequestContext<'_>,
    session: Option<&ClientSession>,
    call: CallFuture,
    queue: Arc<EventQueue>,
    mode: ResponseMode,
) -> Response<ResponseBody> {
    let (permit, counters) = (context.take_permit(), &context.shared.counters);
    let stream = ResponseStream::for_call(call, Arc::clone(&queue), mode, permit, counters);
    let response = stream.respond(|stream| {
        if let (Some(session), Some(stream_id)) = (session, mode.stream_id) {
            session.retain_stream(context, stream_id, &queue, ReplayStreamKind::Call);
        }
        context.with_revocation(stream)
    });
    match (response.await, session) {
        (Some(response), _) => response,
        // The client ended its session during the call: the same answer as to any later request.
        (None, Some(session)) if context.shared.clients.is_ended(session.session_key()) => {
            RequestRejection::unknown_session().to_response(None, context.subject.error_detail())
        },
        (None, _) => response::accepted(),
    }
}

/// Receives what a server sends during one call of a client.
pub(crate) struct CallSink {
    queue: Arc<EventQueue>,
    /// The client's own progress token, raw.
    progress_token: Option<Bytes>,
    reply_budget: CallReplyBudget,
    /// The session of a legacy client; `None` for a modern one.
    session: Option<Arc<ClientSession>>,
    accepts: AcceptedFormats,
    /// Says how the client cancelled the call. Each call of a batch has its own.
    cancel_queue: Option<Arc<EventQueue>>,
    /// Whether a modern client wants log lines.
    wants_logs: bool,
    /// The HTTP status of the server's answer; 0 where it is 200 or unknown.
    http_status: AtomicU16,
}

impl CallSink {
    pub(crate) fn new(
        context: &RequestContext<'_>,
        client: &Client,
        queue: &Arc<EventQueue>,
        params: &Params,
    ) -> Self {
        let token = params.meta_member(meta::PROGRESS_TOKEN);
        let (session, cancel_queue) = match client {
            Client::Legacy { session, in_flight } => {
                let cancel_queue = in_flight.as_ref().map(|call| Arc::clone(&call.queue));
                (Some(Arc::clone(session)), cancel_queue)
            },
            Client::Modern(_) => (None, Some(Arc::clone(queue))),
        };
        Self {
            queue: Arc::clone(queue),
            progress_token: token.map(|token| params.raw().slice_ref(token)),
            reply_budget: CallReplyBudget::new(context.reply_budget()),
            session,
            accepts: context.head.accepts,
            cancel_queue,
            wants_logs: params.meta_member(meta::LOG_LEVEL).is_some(),
            http_status: AtomicU16::new(0),
        }
    }

    fn progress_message(&self, params: &[u8]) -> Option<Bytes> {
        let token = self.progress_token.as_ref()?;
        let mut out = Vec::with_capacity(params.len() + token.len());
        splice::edit_object(params, &[Edit::Set("progressToken", token)], &mut out).ok()?;
        Some(notification_message("notifications/progress", &out))
    }

    fn wants_log(&self, params: &[u8]) -> bool {
        match &self.session {
            Some(session) => session.wants_log(params),
            // A client that did not ask for lines gets none, whatever the server sends.
            None => self.wants_logs,
        }
    }
}

impl Listener for CallSink {
    fn on_notification(&self, news: Notification) {
        let message = match news {
            Notification::Progress(params) => self.progress_message(&params),
            Notification::Log(params) => self
                .wants_log(&params)
                .then(|| notification_message("notifications/message", &params)),
            // Only a listen carries these, under an id that its client knows.
            Notification::Other(method, _)
                if method == tasks::NOTIFICATION && self.session.is_none() =>
            {
                None
            },
            Notification::Other(method, params) => Some(notification_message(&method, &params)),
        };
        if let Some(message) = message {
            self.queue.push_droppable(message);
        }
    }

    fn on_request(&self, question: ServerRequest) -> ReplyFuture<'_> {
        let Some(session) = &self.session else {
            return ().on_request(question);
        };
        // A client that reads no stream here is asked on its GET stream.
        let queue = match self.accepts {
            AcceptedFormats::Json => session.get_stream_queue(),
            AcceptedFormats::Both | AcceptedFormats::Events => Some(Arc::clone(&self.queue)),
        };
        server_requests::send_server_request(session, &question, false, queue.as_ref())
    }

    fn caller(&self) -> Option<CallerId> {
        Some(match &self.session {
            Some(session) => CallerId::from_ref(&**session),
            None => CallerId::from_ref(self),
        })
    }

    fn is_answering_unsolicited(&self) -> bool {
        let session = self.session.as_ref();
        session.is_some_and(|session| session.server_requests.has_unattributed())
    }

    fn client_session(&self) -> Option<Digest> {
        self.session.as_ref()?.session_key()
    }

    fn reserve_reply(&self, bytes: usize) -> Option<CapacityFuture<'_>> {
        self.reply_budget.reserve(bytes)
    }

    fn catch_up(&self) -> Option<CapacityFuture<'_>> {
        self.queue.backpressure()
    }

    fn on_notifications_dropped(&self, notices: u64) {
        self.queue.count_dropped(notices);
    }

    fn on_stream_started(&self) {
        self.queue.mark_streaming();
    }

    fn on_stream_paused(&self, come_back_after: Duration) {
        // Only a stream with event ids can be left, and modern streams have none.
        self.queue.request_pause(come_back_after);
    }

    fn on_http_status(&self, status: u16) {
        self.http_status.store(status, Ordering::Relaxed);
    }

    fn cancel_params(&self) -> Option<Bytes> {
        self.cancel_queue.as_ref()?.cancel_params()
    }
}

pub(crate) fn notification_message(method: &str, params: &[u8]) -> Bytes {
    let mut out = Vec::with_capacity(64 + params.len());
    splice::write_notification(&mut out, method, Some(params));
    out.into()
}
