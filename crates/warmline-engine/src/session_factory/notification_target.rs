//! Where a session delivers what it says outside any call: to the list cache of its server, and to
//! the subscribers of the key that it serves.

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock, Weak};

use warmline_core::exchange::{ServerRequest, ServerRequestKind};
use warmline_core::pool::Generation;

use super::client_state::updated_resource_uri;
use super::{SessionFactory, SessionSetup};
use crate::notifications::dedup::ListChangeSource;
use crate::notifications::{Subscriber, merged_roots};
use crate::server_state::ServerState;
use warmline_pool::SessionSnapshot;
use warmline_upstream::{
    CallerId, CapacityFuture, ReplyFuture, SourceSession, UnsolicitedListener, is_broadcast_method,
};

/// The receiver of a session that was opened before its key was known. A session that is opened for a
/// key delivers to its [`SessionSetup`], so that it costs no memory of its own (A107).
#[derive(Debug)]
pub(crate) struct NotificationTarget {
    server: Arc<ServerState>,
    /// The key that the session serves; unset while it serves none.
    setup: OnceLock<Weak<SessionSetup>>,
}

impl NotificationTarget {
    pub(super) fn unbound(server: &Arc<ServerState>) -> Arc<Self> {
        Arc::new(Self {
            server: Arc::clone(server),
            setup: OnceLock::new(),
        })
    }

    pub(super) fn bind_setup(&self, setup: &Arc<SessionSetup>) {
        // A session serves one key in its life.
        self.setup.set(Arc::downgrade(setup)).ok();
    }

    fn setup(&self) -> Option<Arc<SessionSetup>> {
        self.setup.get().and_then(Weak::upgrade)
    }
}

impl UnsolicitedListener for NotificationTarget {
    fn on_notification(&self, method: &str, params: &[u8]) {
        drop(self.on_broadcast(method, params, SourceSession::default()));
    }

    fn on_broadcast(&self, method: &str, params: &[u8], by: SourceSession) -> Vec<CallerId> {
        match self.setup() {
            Some(setup) => setup.on_broadcast(method, params, by),
            None => {
                self.server.invalidate_changed_list(method);
                self.server.subscribers.note_list_change(method);
                Vec::new()
            },
        }
    }

    fn has_receivers_besides(&self, caller: CallerId) -> bool {
        let setup = self.setup();
        setup.is_some_and(|setup| setup.has_receivers_besides(caller))
    }

    fn catch_up(&self) -> Option<CapacityFuture<'_>> {
        self.setup()?.wait_for_subscribers()
    }

    fn on_request(&self, request: ServerRequest) -> Option<ReplyFuture<'static>> {
        self.setup()?.on_request(request)
    }

    fn on_request_of_caller(
        &self,
        caller: CallerId,
        request: ServerRequest,
    ) -> Option<ReplyFuture<'static>> {
        self.setup()?.on_request_of_caller(caller, request)
    }

    fn on_ambiguous_request(&self, kind: ServerRequestKind) {
        self.server.record_refused_request(kind);
    }
}

impl UnsolicitedListener for SessionSetup {
    fn on_notification(&self, method: &str, params: &[u8]) {
        drop(self.on_broadcast(method, params, SourceSession::default()));
    }

    fn on_broadcast(&self, method: &str, params: &[u8], by: SourceSession) -> Vec<CallerId> {
        self.server.invalidate_changed_list(method);
        if self.is_shared_by_identities() && !is_broadcast_method(method) {
            self.server.metrics.notifications_withheld.increment();
            return Vec::new();
        }
        let received = self.notify_subscribers(method, params, ListChangeSource::Session(by));
        let callers = received.iter().filter_map(|one| one.sink.caller());
        callers.collect()
    }

    fn has_receivers_besides(&self, caller: CallerId) -> bool {
        let subscribers = self.subscribers();
        subscribers.is_some_and(|all| all.any(|one| one.sink.has_receivers_besides(caller)))
    }

    fn catch_up(&self) -> Option<CapacityFuture<'_>> {
        self.wait_for_subscribers()
    }

    fn on_request(&self, request: ServerRequest) -> Option<ReplyFuture<'static>> {
        let subscribers = self.subscribers()?;
        let reply = match subscribers.all().as_slice() {
            [] => return None,
            // Where identities share a session, the only subscriber need not be the only caller.
            _ if self.is_shared_by_identities() => None,
            [only] => return subscribers.forward_request(only, request),
            // Nobody can tell whose request it is.
            several => {
                let server = Arc::clone(&self.server);
                merged_roots(&subscribers, several, &request, move || {
                    server.record_refused_request(ServerRequestKind::Roots);
                })
            },
        };
        if reply.is_none() {
            self.server.record_refused_request(request.kind);
        }
        reply
    }

    fn on_request_of_caller(
        &self,
        caller: CallerId,
        request: ServerRequest,
    ) -> Option<ReplyFuture<'static>> {
        let subscribers = self.subscribers()?;
        let all = subscribers.all();
        let of_caller = all.iter().find(|one| one.sink.caller() == Some(caller))?;
        subscribers.forward_request(of_caller, request)
    }

    fn on_ambiguous_request(&self, kind: ServerRequestKind) {
        self.server.record_refused_request(kind);
    }
}

impl SessionSetup {
    /// Waits for subscribers that are behind; none if nobody is.
    fn wait_for_subscribers(&self) -> Option<CapacityFuture<'static>> {
        let all = self.subscribers()?.all();
        if all.iter().all(|one| one.sink.catch_up().is_none()) {
            return None;
        }
        Some(Box::pin(async move {
            // Each limits its own wait, and all of them wait at the same time.
            for one in all {
                if let Some(behind) = one.sink.catch_up() {
                    behind.await;
                }
            }
        }))
    }

    /// Delivers a notification to the subscribers of this key, which it returns. A list change also
    /// goes to those for whom one of them receives list changes.
    pub(crate) fn notify_subscribers(
        &self,
        method: &str,
        params: &[u8],
        by: ListChangeSource,
    ) -> Vec<Arc<Subscriber>> {
        let of_server = &self.server.subscribers;
        // First: a subscriber that comes from now on looks it up.
        of_server.note_list_change(method);
        let mut receivers = self.subscribers().map_or_else(Vec::new, |all| all.all());
        if let Some(uri) = updated_resource_uri(method, params) {
            receivers
                .retain(|one| self.is_recipient(one.sink.client_session(), one.identity, &uri));
        }
        for one in &receivers {
            one.deliver_if_new(method, params, by);
        }
        if method.ends_with("/list_changed") {
            for listener in receivers.iter().filter(|one| one.is_list_listener()) {
                let notice = (method, params);
                of_server.notify_without_stream(listener.identity, &receivers, notice, by);
            }
        }
        receivers
    }

    /// Selects the session whose stream serves all subscribers of this key: always the same one
    /// while it is usable, so that a session beside it causes no second stream and no repeated
    /// notifications.
    pub(crate) fn select_stream_session(
        &self,
        mut sessions: Vec<SessionSnapshot<SessionFactory>>,
    ) -> Option<SessionSnapshot<SessionFactory>> {
        let mut selected = self.subscription_state().stream_session.lock();
        let is_selected = |seen: &SessionSnapshot<SessionFactory>| {
            let is_it = Arc::as_ptr(&seen.session) == selected.as_ptr();
            is_it && seen.is_usable && seen.session.retired_reason().is_none()
        };
        // Else the newest: it will serve longest.
        sessions.sort_by_key(|seen| (is_selected(seen), seen.generation));
        let seen = sessions.pop()?;
        *selected = Arc::downgrade(&seen.session);
        Some(seen)
    }

    /// Whether this session replaced another, and the subscribers were not notified of that yet.
    pub(crate) fn is_new_replacement(&self, newest: Generation) -> bool {
        let newest = newest.number();
        let last = &self.subscription_state().last_replacement;
        last.swap(newest, Ordering::Relaxed) != newest
    }
}
