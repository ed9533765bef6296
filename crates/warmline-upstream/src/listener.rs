//! Receives what a server sends during a call, and answers its requests.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use tokio::sync::oneshot;
use warmline_core::exchange::{
    Diagnostic, Notification, ServerRequest, ServerRequestKind, ServerRequestReply,
};
use warmline_core::message::envelope::Message;
use warmline_core::message::params::absent_params;
use warmline_core::message::splice;
use warmline_core::pool_key::Digest;

use super::attribution::CallerId;

/// The reply to a server request.
pub type ReplyFuture<'a> = Pin<Box<dyn Future<Output = ServerRequestReply> + Send + 'a>>;

/// Resolves when there is room for a reply, or for more notifications.
pub type CapacityFuture<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// Smaller replies need no reservation: there are no more of them than calls.
pub(crate) const LARGE_REPLY_BYTES: usize = 64 << 10;

/// Receives what a server sends while a call runs, and answers its requests.
///
/// `()` ignores everything and declines all requests.
pub trait Listener: Send + Sync {
    /// Progress, a log line, or another notification.
    fn on_notification(&self, notification: Notification) {
        drop(notification);
    }

    /// A request of the server. Until the reply is there only the call's total deadline runs, because
    /// people take their time.
    fn on_request(&self, request: ServerRequest) -> ReplyFuture<'_> {
        drop(request);
        Box::pin(std::future::ready(ServerRequestReply::Declined))
    }

    /// The caller. A server request that may belong to calls of several callers is refused. None:
    /// nobody listens.
    fn caller(&self) -> Option<CallerId> {
        Some(CallerId::from_ref(self))
    }

    /// Whether the caller is answering a request that no call waits for and that may belong to this
    /// one: then only the call's total deadline runs.
    fn is_answering_unsolicited(&self) -> bool {
        false
    }

    /// The name of the client session that it is for. Clients that share a session are counted
    /// separately: what one cancels another may still want. None: it is for all of its identity.
    fn client_session(&self) -> Option<Digest> {
        None
    }

    /// Reserves room for a large reply that is about to be read or delivered, until the listener is
    /// dropped. Reading waits for the result, if any. It replaces an earlier reservation; 0 releases
    /// it.
    fn reserve_reply(&self, bytes: usize) -> Option<CapacityFuture<'_>> {
        let _ = bytes;
        None
    }

    /// Resolves when the receiver has caught up; until then nothing more is read for it. None while
    /// it keeps up.
    fn catch_up(&self) -> Option<CapacityFuture<'_>> {
        None
    }

    /// So many notifications on a shared stream were dropped, because the receiver did not keep up.
    fn on_notifications_dropped(&self, count: u64) {
        let _ = count;
    }

    /// The server answers with a stream of events. Called before its first event, and again if the
    /// call is sent again.
    fn on_stream_started(&self) {}

    /// The server answers with another HTTP status than 200. Called before the body is read.
    fn on_http_status(&self, status: u16) {
        let _ = status;
    }

    /// The raw parameters of the caller's own cancel, which goes to the server with the request's id
    /// there. None: the caller sent none.
    fn cancel_params(&self) -> Option<Bytes> {
        None
    }

    /// The server closed the stream in the middle of the call, to be resumed after this pause. The
    /// call goes on by itself.
    fn on_stream_paused(&self, pause: Duration) {
        let _ = pause;
    }
}

/// Identifies the session that sent something, while the session lives. The default is no session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceSession(usize);

impl SourceSession {
    /// The id of a session, unique while the session lives.
    pub fn from_ref<T: ?Sized>(session: &T) -> Self {
        Self(std::ptr::from_ref(session).cast::<()>().addr())
    }
}

impl Listener for () {
    fn caller(&self) -> Option<CallerId> {
        None
    }
}

const MAX_OPEN_REQUESTS: usize = 32;

#[derive(Default)]
pub(crate) struct OpenServerRequests<'a> {
    requests: Vec<OpenServerRequest<'a>>,
    /// Replies on their way to the server; each sends a diagnostic if it does not arrive.
    deliveries: Vec<oneshot::Receiver<Diagnostic>>,
}

pub(crate) enum ServerRequestOutcome {
    /// This goes back to the server.
    Answered(Bytes, ServerRequestKind, ServerRequestReply),
    /// The server did not take the reply.
    Undelivered(Diagnostic),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerRequestChannel {
    /// On the stream of the call itself: the server is done with it when that call ends.
    CallStream,
    /// Elsewhere: it may belong to another call, and the server waits for its reply.
    OtherStream,
}

#[derive(Debug)]
pub(crate) struct IncomingRequest {
    pub(crate) id: Bytes,
    pub(crate) request: ServerRequest,
    pub(crate) channel: ServerRequestChannel,
}

impl IncomingRequest {
    pub(crate) fn from_message(message: &Message) -> Self {
        let params = message.params().unwrap_or_else(absent_params);
        Self {
            id: Bytes::copy_from_slice(message.raw_id().unwrap_or(b"null")),
            request: ServerRequest::new(message.method().unwrap_or_default(), params),
            channel: ServerRequestChannel::OtherStream,
        }
    }

    /// Whether the server only asks if we are there.
    pub(crate) fn is_ping(&self) -> bool {
        self.request.method == "ping"
    }

    pub(crate) fn refused_reply(&self) -> ReplyPayload {
        refused_reply(self.request.kind)
    }
}

struct OpenServerRequest<'a> {
    id: Bytes,
    kind: ServerRequestKind,
    channel: ServerRequestChannel,
    reply: ReplyFuture<'a>,
}

impl<'a> OpenServerRequests<'a> {
    /// Asks the listener. Requests over the limit are declined without asking.
    pub(crate) fn ask(&mut self, incoming: IncomingRequest, listener: &'a dyn Listener) {
        let kind = incoming.request.kind;
        let reply = if self.requests.len() < MAX_OPEN_REQUESTS {
            listener.on_request(incoming.request)
        } else {
            ().on_request(incoming.request)
        };
        self.requests.push(OpenServerRequest {
            id: incoming.id,
            kind,
            channel: incoming.channel,
            reply,
        });
    }

    pub(crate) fn cancel(&mut self, id: &[u8]) {
        self.requests.retain(|asked| asked.id != id);
    }

    /// The server replied to the call, so it is done with what it asked on the call's stream.
    pub(crate) fn call_replied(&mut self) {
        self.requests
            .retain(|asked| asked.channel == ServerRequestChannel::OtherStream);
    }

    /// Drops the requests, and returns those without a reply.
    pub(crate) fn take_unanswered(&mut self) -> impl Iterator<Item = (Bytes, ServerRequestKind)> {
        let left = std::mem::take(&mut self.requests).into_iter();
        left.map(|asked| (asked.id, asked.kind))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    pub(crate) fn track_delivery(&mut self, undelivered: oneshot::Receiver<Diagnostic>) {
        self.deliveries.push(undelivered);
    }

    /// The next reply, or one that was not delivered; pending while there is none.
    ///
    /// # Cancel safety
    /// Dropping it loses nothing.
    pub(crate) async fn next_outcome(&mut self) -> ServerRequestOutcome {
        poll_fn(|cx| {
            for place in 0..self.requests.len() {
                let Some(asked) = self.requests.get_mut(place) else {
                    break;
                };
                if let Poll::Ready(answer) = asked.reply.as_mut().poll(cx) {
                    let OpenServerRequest { id, kind, .. } = self.requests.swap_remove(place);
                    return Poll::Ready(ServerRequestOutcome::Answered(id, kind, answer));
                }
            }
            let mut failed = None;
            self.deliveries
                .retain_mut(|sent| match Pin::new(sent).poll(cx) {
                    Poll::Ready(outcome) => {
                        failed = failed.take().or(outcome.ok());
                        false
                    },
                    Poll::Pending => true,
                });
            if let Some(diagnostic) = failed {
                return Poll::Ready(ServerRequestOutcome::Undelivered(diagnostic));
            }
            Poll::Pending
        })
        .await
    }
}

/// Headers of one request alone.
pub(crate) type ExtraHeaders = [(HeaderName, HeaderValue)];

/// Sends replies to server requests.
pub(crate) trait ReplySink: Sync {
    /// Sends a reply in the background, with the headers of its call. The receiver gets the diagnostic
    /// of the call if the server does not take it.
    fn send_reply(
        &self,
        id: &[u8],
        payload: ReplyPayload,
        own: &ExtraHeaders,
    ) -> oneshot::Receiver<Diagnostic>;

    /// Asks the session's listener what came for a call without a listener.
    fn ask_unsolicited(&self, request: IncomingRequest) {
        drop(self.send_reply(&request.id, request.refused_reply(), &[]));
    }
}

pub(crate) enum ReplyPayload {
    Result(Bytes),
    Error(i64, &'static str),
    RawError(Bytes),
}

impl ReplyPayload {
    pub(crate) fn into_message(self, id: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Self::Result(raw) => splice::write_result(&mut out, id, &raw),
            Self::Error(code, message) => splice::write_error(&mut out, id, code, message),
            Self::RawError(raw) => splice::write_raw_error(&mut out, id, &raw),
        }
        out
    }
}

pub(crate) fn ping_reply() -> ReplyPayload {
    ReplyPayload::Result(Bytes::from_static(b"{}"))
}

pub(crate) const NO_RESPONDER_TEXT: &str = "nobody is there to answer this";

pub(crate) fn refused_reply(kind: ServerRequestKind) -> ReplyPayload {
    match kind {
        ServerRequestKind::Elicitation => {
            ReplyPayload::Result(Bytes::from_static(br#"{"action":"cancel"}"#))
        },
        ServerRequestKind::Sampling | ServerRequestKind::Roots | ServerRequestKind::Other => {
            ReplyPayload::Error(-32601, NO_RESPONDER_TEXT)
        },
    }
}

/// A person may decline; a missing feature is "method not found".
pub(crate) fn reply_payload(kind: ServerRequestKind, answer: ServerRequestReply) -> ReplyPayload {
    match (answer, kind) {
        (ServerRequestReply::Result(raw), _) => ReplyPayload::Result(raw),
        (ServerRequestReply::Error(raw), _) => ReplyPayload::RawError(raw),
        (ServerRequestReply::Declined, ServerRequestKind::Elicitation) => {
            ReplyPayload::Result(Bytes::from_static(br#"{"action":"decline"}"#))
        },
        (
            ServerRequestReply::Declined,
            ServerRequestKind::Sampling | ServerRequestKind::Roots | ServerRequestKind::Other,
        ) => ReplyPayload::Error(-32601, "this client does not support that request"),
    }
}
