//! The listener of one attempt. It records whether output reached the caller, and passes resource
//! updates only to clients that subscribed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use warmline_core::exchange::{Notification, ServerRequest};
use warmline_core::pool_key::{Digest, Identity};

use super::CallRequest;
use crate::session_factory::{SessionSetup, updated_resource_uri};
use warmline_upstream::{CallerId, CapacityFuture, Listener, ReplyFuture};

pub(super) struct AttemptListener<'a> {
    listener: &'a dyn Listener,
    has_listener: bool,
    setup: &'a SessionSetup,
    identity: Identity,
    is_listen_call: bool,
    has_streamed: AtomicBool,
}

impl<'a> AttemptListener<'a> {
    pub(super) fn new(
        request: &'a CallRequest,
        identity: Identity,
        setup: &'a SessionSetup,
    ) -> Self {
        let listener = request.listener.as_deref();
        Self {
            listener: listener.unwrap_or(&()),
            has_listener: listener.is_some(),
            setup,
            identity,
            is_listen_call: request.method == "subscriptions/listen",
            has_streamed: AtomicBool::new(false),
        }
    }

    pub(super) fn has_streamed(&self) -> bool {
        self.has_streamed.load(Ordering::Relaxed)
    }

    fn is_for_caller(&self, notification: &Notification) -> bool {
        let Notification::Other(method, params) = notification else {
            return true;
        };
        let client = self.listener.client_session();
        self.is_listen_call
            || updated_resource_uri(method, params)
                .is_none_or(|uri| self.setup.is_recipient(client, self.identity, &uri))
    }
}

impl Listener for AttemptListener<'_> {
    fn on_notification(&self, notification: Notification) {
        if self.has_listener && self.is_for_caller(&notification) {
            self.has_streamed.store(true, Ordering::Relaxed);
            self.listener.on_notification(notification);
        }
    }

    fn on_request(&self, request: ServerRequest) -> ReplyFuture<'_> {
        if self.has_listener {
            self.has_streamed.store(true, Ordering::Relaxed);
        }
        self.listener.on_request(request)
    }

    fn is_answering_unsolicited(&self) -> bool {
        self.listener.is_answering_unsolicited()
    }

    fn client_session(&self) -> Option<Digest> {
        self.listener.client_session()
    }

    fn caller(&self) -> Option<CallerId> {
        self.listener.caller()
    }

    fn reserve_reply(&self, bytes: usize) -> Option<CapacityFuture<'_>> {
        self.listener.reserve_reply(bytes)
    }

    fn catch_up(&self) -> Option<CapacityFuture<'_>> {
        self.listener.catch_up()
    }

    fn on_notifications_dropped(&self, count: u64) {
        self.listener.on_notifications_dropped(count);
    }

    // A stream without events is no output yet.
    fn on_stream_started(&self) {
        self.listener.on_stream_started();
    }

    fn on_http_status(&self, status: u16) {
        self.listener.on_http_status(status);
    }

    fn cancel_params(&self) -> Option<Bytes> {
        self.listener.cancel_params()
    }

    fn on_stream_paused(&self, come_back_after: Duration) {
        self.listener.on_stream_paused(come_back_after);
    }
}
