//! Listeners of users: notifications and server requests of a call, or outside calls.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use warmline_core::exchange::{Notification, ServerRequest, ServerRequestReply};
use warmline_upstream::{ReplyFuture, UnsolicitedListener};

/// Receives the notifications of a server and replies to its requests.
pub trait Listener: Send + Sync {
    /// A notification: progress, a log line, a changed list. It must return quickly.
    fn on_notification(&self, notification: Notification) {
        drop(notification);
    }

    /// A request of the server: elicitation, sampling, roots. The call goes on when the reply is
    /// there; meanwhile only the call's total limit runs.
    fn on_request(
        &self,
        request: ServerRequest,
    ) -> Pin<Box<dyn Future<Output = ServerRequestReply> + Send + '_>> {
        drop(request);
        Box::pin(std::future::ready(ServerRequestReply::Declined))
    }
}

/// A user's listener as the sessions know it.
pub(crate) struct ListenerAdapter<L>(Arc<L>);

impl<L> ListenerAdapter<L> {
    pub(crate) fn new(listener: L) -> Self {
        Self(Arc::new(listener))
    }
}

impl<L> std::fmt::Debug for ListenerAdapter<L> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ListenerAdapter").finish_non_exhaustive()
    }
}

impl<L: Listener> warmline_upstream::Listener for ListenerAdapter<L> {
    fn on_notification(&self, notification: Notification) {
        self.0.on_notification(notification);
    }

    fn on_request(&self, request: ServerRequest) -> ReplyFuture<'_> {
        self.0.on_request(request)
    }
}

impl<L: Listener + 'static> UnsolicitedListener for ListenerAdapter<L> {
    fn on_notification(&self, method: &str, params: &[u8]) {
        let params = Bytes::copy_from_slice(params);
        self.0.on_notification(match method {
            "notifications/message" => Notification::Log(params),
            _ => Notification::Other(method.to_owned(), params),
        });
    }

    fn on_request(&self, request: ServerRequest) -> Option<ReplyFuture<'static>> {
        let listener = Arc::clone(&self.0);
        Some(Box::pin(async move { listener.on_request(request).await }))
    }
}
