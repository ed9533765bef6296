//! Server requests, which a legacy client answers in a later message, and what belongs to no call.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use warmline_core::exchange::{ServerRequest, ServerRequestKind, ServerRequestReply};
use warmline_core::message::envelope::{Message, MessageKind};
use warmline_core::message::params::is_absent_params;
use warmline_core::message::splice;
use warmline_core::pool_key::Digest;
use warmline_upstream::{CallerId, CapacityFuture, ReplyFuture, UnsolicitedListener};

use super::client_session::ClientSession;
use crate::downstream::request::notification_message;
use crate::response::event_queue::EventQueue;

const MAX_PENDING: usize = 64;

/// The server requests that a client has not answered yet; `None` once the client session is over, so that
/// no answer comes.
#[derive(Debug)]
pub(crate) struct PendingServerRequests(Mutex<Option<Vec<PendingServerRequest>>>);

impl Default for PendingServerRequests {
    fn default() -> Self {
        Self(Mutex::new(Some(Vec::new())))
    }
}

#[derive(Debug)]
struct PendingServerRequest {
    number: u64,
    /// Whether it belongs to no known call: then any call of the client may wait for it.
    is_unattributed: bool,
    reply: oneshot::Sender<ServerRequestReply>,
}

impl PendingServerRequests {
    /// `None` where too many are open.
    fn insert(
        &self,
        number: u64,
        is_unattributed: bool,
    ) -> Option<oneshot::Receiver<ServerRequestReply>> {
        let mut pending = self.0.lock();
        let pending = pending.as_mut().filter(|it| it.len() < MAX_PENDING)?;
        let (reply, replied) = oneshot::channel();
        pending.push(PendingServerRequest {
            number,
            is_unattributed,
            reply,
        });
        Some(replied)
    }

    /// The client session is over: every waiting call gets no answer.
    pub(super) fn close_all(&self) {
        let left = self.0.lock().take();
        drop(left);
    }

    fn remove(&self, number: u64) -> Option<oneshot::Sender<ServerRequestReply>> {
        let mut pending = self.0.lock();
        let pending = pending.as_mut()?;
        let index = pending.iter().position(|it| it.number == number)?;
        Some(pending.swap_remove(index).reply)
    }

    /// Whether a request is open that any call may wait for.
    pub(crate) fn has_unattributed(&self) -> bool {
        let pending = self.0.lock();
        let mut pending = pending.iter().flatten();
        pending.any(|it| it.is_unattributed)
    }

    /// The client answered. An answer to no open request is ignored.
    pub(super) fn resolve(&self, message: &Message) {
        let number = message.raw_id().map(serde_json::from_slice::<u64>);
        let Some(Ok(number)) = number else {
            return;
        };
        let Some(asked) = self.remove(number) else {
            return;
        };
        let answer = match message.kind() {
            MessageKind::Result => message.result().map(ServerRequestReply::Result),
            MessageKind::Error => message.error().map(ServerRequestReply::Error),
            MessageKind::Request | MessageKind::Notification => None,
        };
        // The call may be over by now.
        asked
            .send(answer.unwrap_or(ServerRequestReply::Declined))
            .ok();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.lock().as_ref().is_none_or(Vec::is_empty)
    }
}

/// Sends a server request on this queue, if there is one and the client can answer.
pub(crate) fn send_server_request(
    client: &Arc<ClientSession>,
    question: &ServerRequest,
    is_unattributed: bool,
    queue: Option<&Arc<EventQueue>>,
) -> ReplyFuture<'static> {
    let kind = question.kind;
    let queue = queue.filter(|_| client.can_answer(kind));
    let sent = queue.and_then(|queue| {
        let number = client.new_number();
        let answered = client.server_requests.insert(number, is_unattributed)?;
        let open = ServerRequestGuard {
            client: Arc::clone(client),
            queue: Arc::clone(queue),
            number,
        };
        // Otherwise the client has left and cannot come back.
        let message = request_message(number, &question.method, &question.params);
        queue.push_required(message).then_some((answered, open))
    });
    // The request stays open when its stream closes: a legacy client may resume the stream, or answer
    // without one. It ends with the answer, a cancel, the client session, or the call's own limit.
    Box::pin(async move {
        let Some((answered, open)) = sent else {
            return default_reply(kind);
        };
        let answer = answered.await.unwrap_or_else(|_| default_reply(kind));
        drop(open);
        answer
    })
}

/// The reply where the client has left or cannot answer: no person decided anything.
fn default_reply(kind: ServerRequestKind) -> ServerRequestReply {
    match kind {
        ServerRequestKind::Elicitation => {
            ServerRequestReply::Result(Bytes::from_static(br#"{"action":"cancel"}"#))
        },
        ServerRequestKind::Sampling | ServerRequestKind::Roots | ServerRequestKind::Other => {
            ServerRequestReply::Declined
        },
    }
}

struct ServerRequestGuard {
    client: Arc<ClientSession>,
    queue: Arc<EventQueue>,
    number: u64,
}

impl Drop for ServerRequestGuard {
    fn drop(&mut self) {
        if self.client.server_requests.remove(self.number).is_some() {
            let params = format!("{{\"requestId\":{}}}", self.number);
            let notice = notification_message("notifications/cancelled", params.as_bytes());
            self.queue.push_droppable(notice);
        }
    }
}

/// Receives what belongs to no call, for the GET stream of a client.
#[derive(Debug)]
pub(crate) struct GetStreamSink {
    pub(in crate::downstream) client: Arc<ClientSession>,
    pub(super) queue: Arc<EventQueue>,
}

impl UnsolicitedListener for GetStreamSink {
    fn client_session(&self) -> Option<Digest> {
        self.client.session_key()
    }

    fn on_notification(&self, method: &str, params: &[u8]) {
        if method == "notifications/message" && !self.client.wants_log(params) {
            return;
        }
        self.queue
            .push_droppable(notification_message(method, params));
    }

    fn caller(&self) -> Option<CallerId> {
        Some(CallerId::from_ref(&*self.client))
    }

    fn list_request_count(&self, method: &str) -> Option<u32> {
        self.client.list_requests.count_for_notification(method)
    }

    fn catch_up(&self) -> Option<CapacityFuture<'_>> {
        self.queue.bounded_backpressure()
    }

    fn on_request(&self, question: ServerRequest) -> Option<ReplyFuture<'static>> {
        let can = self.client.can_answer(question.kind);
        can.then(|| send_server_request(&self.client, &question, true, Some(&self.queue)))
    }
}

fn request_message(id: u64, method: &str, params: &[u8]) -> Bytes {
    let mut out = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"#).into_bytes();
    splice::write_string(&mut out, method);
    if !is_absent_params(params) {
        out.extend_from_slice(br#","params":"#);
        out.extend_from_slice(params);
    }
    out.push(b'}');
    out.into()
}
