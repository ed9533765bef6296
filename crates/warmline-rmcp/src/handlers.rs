//! Notifications and requests of a server, in a call or outside, on their way to the client.
//!
//! Notifications that the client does not take in time are dropped, because they must not delay the
//! call; answers and server requests are not.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use rmcp::model::{NumberOrString, RequestId};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use warmline_core::exchange::{Notification, ServerRequest, ServerRequestReply};
use warmline_upstream::{CallerId, Listener, ReplyFuture, UnsolicitedListener};

use crate::convert::{self, MessageToClient};

type ReplySenders = HashMap<RequestId, oneshot::Sender<ServerRequestReply>>;

/// Server requests that wait for the client's reply.
#[derive(Debug, Default)]
pub(crate) struct PendingServerRequests {
    pending: Mutex<ReplySenders>,
    last_id: AtomicI64,
}

impl PendingServerRequests {
    /// Passes a reply on, unless its server request was cancelled.
    pub(crate) fn resolve(&self, id: &RequestId, answer: ServerRequestReply) {
        if let Some(waiting) = self.remove(id) {
            waiting.send(answer).ok();
        }
    }

    fn register(&self) -> (RequestId, oneshot::Receiver<ServerRequestReply>) {
        let id = NumberOrString::Number(self.last_id.fetch_add(1, Ordering::Relaxed) + 1);
        let (reply, receiver) = oneshot::channel();
        self.lock().insert(id.clone(), reply);
        (id, receiver)
    }

    fn remove(&self, id: &RequestId) -> Option<oneshot::Sender<ServerRequestReply>> {
        self.lock().remove(id)
    }

    fn lock(&self) -> MutexGuard<'_, ReplySenders> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends messages to the client.
#[derive(Clone, Debug)]
pub(crate) struct ClientChannel {
    pub(crate) sender: mpsc::Sender<MessageToClient>,
    pub(crate) server_requests: Arc<PendingServerRequests>,
}

impl ClientChannel {
    fn try_send(&self, message: Option<MessageToClient>) {
        if let Some(message) = message
            && self.sender.try_send(message).is_err()
        {
            tracing::debug!("notification dropped, the client did not take it");
        }
    }

    /// One id for calls and subscriptions, so that the client gets each notification once.
    fn recipient_id(&self) -> CallerId {
        CallerId::from_ref(&*self.server_requests)
    }

    async fn send_server_request(&self, question: ServerRequest) -> ServerRequestReply {
        let (id, reply) = self.server_requests.register();
        let pending = ServerRequestGuard { channel: self, id };
        let ServerRequest { method, params, .. } = question;
        let Some(message) = convert::method_message(Some(&pending.id), &method, &params) else {
            return ServerRequestReply::Declined;
        };
        if self.sender.send(message).await.is_err() {
            return ServerRequestReply::Declined;
        }
        reply.await.unwrap_or(ServerRequestReply::Declined)
    }
}

/// Receives what belongs to no call.
#[derive(Debug)]
pub(crate) struct UnsolicitedHandler(pub(crate) ClientChannel);

impl UnsolicitedListener for UnsolicitedHandler {
    fn on_notification(&self, method: &str, params: &[u8]) {
        self.0
            .try_send(convert::notification_message(method, params));
    }

    fn caller(&self) -> Option<CallerId> {
        Some(self.0.recipient_id())
    }

    fn on_request(&self, question: ServerRequest) -> Option<ReplyFuture<'static>> {
        let client = self.0.clone();
        Some(Box::pin(async move {
            client.send_server_request(question).await
        }))
    }
}

/// Receives what belongs to one call.
#[derive(Debug)]
pub(crate) struct CallHandler {
    pub(crate) channel: ClientChannel,
    /// The progress token of the client's request, as raw JSON.
    pub(crate) progress_token: Option<Bytes>,
}

impl Listener for CallHandler {
    fn on_notification(&self, news: Notification) {
        let message = match news {
            Notification::Progress(params) => self.progress_notification(&params),
            Notification::Log(params) => {
                convert::notification_message("notifications/message", &params)
            },
            Notification::Other(method, params) => convert::notification_message(&method, &params),
        };
        self.channel.try_send(message);
    }

    fn on_request(&self, question: ServerRequest) -> ReplyFuture<'_> {
        Box::pin(self.channel.send_server_request(question))
    }

    fn caller(&self) -> Option<CallerId> {
        Some(self.channel.recipient_id())
    }
}

impl CallHandler {
    /// Progress under the client's own token; none without one.
    fn progress_notification(&self, params: &[u8]) -> Option<MessageToClient> {
        let token: Value = serde_json::from_slice(self.progress_token.as_ref()?).ok()?;
        let mut params: Value = serde_json::from_slice(params).ok()?;
        *params.get_mut("progressToken")? = token;
        convert::notification_message("notifications/progress", params.to_string().as_bytes())
    }
}

/// A server request that the client has. Dropped before the reply, it sends a cancellation.
struct ServerRequestGuard<'a> {
    channel: &'a ClientChannel,
    id: RequestId,
}

impl Drop for ServerRequestGuard<'_> {
    fn drop(&mut self) {
        if self.channel.server_requests.remove(&self.id).is_none() {
            return;
        }
        let params = json!({ "requestId": self.id }).to_string();
        if let Some(withdrawn) =
            convert::notification_message("notifications/cancelled", params.as_bytes())
        {
            self.channel.sender.try_send(withdrawn).ok();
        }
    }
}
