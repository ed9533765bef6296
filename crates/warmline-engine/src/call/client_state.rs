//! Log levels and subscriptions of clients that share a session: what a request changes for all.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future;
use serde_json::json;
use warmline_core::exchange::{Diagnostic, Request};
use warmline_core::message::params::Params;
use warmline_core::pool::{LeaseOutcome, Sharing};

use super::builder::CallRequest;
use super::lists::newest_session;
use super::route::Route;
use super::server_handle::CallerContext;
use super::{AttemptOutcome, CallState, execute};
use crate::server_state::ServerState;
use crate::session_factory::{
    ClientState, ClientStateAction, PendingSubscription, PooledSession, RequestingClient,
    RestoreRequest, SessionEntry, SessionFactory, SessionLease,
};
use warmline_platform::clock;
use warmline_pool::SessionSnapshot;

pub(super) struct PendingSubscribeGuard {
    caller: CallerContext,
    server: Arc<ServerState>,
    pool_entry: Arc<SessionEntry>,
    subscription: PendingSubscription,
}

impl Drop for PendingSubscribeGuard {
    fn drop(&mut self) {
        let setup = &self.pool_entry.setup;
        let unwanted = setup.finish_pending_subscription(&self.subscription);
        spawn_cleanup(&self.caller, &self.server, &self.pool_entry, unwanted);
    }
}

impl CallState<'_> {
    /// One attempt of a request that changes what clients want of a session.
    pub(super) async fn attempt_client_state_change(
        &mut self,
        route: &Route,
        lease: SessionLease,
        mut request: Request,
    ) -> AttemptOutcome {
        if let Err(diagnostic) = self.register_pending_subscribe(route) {
            lease.settle(LeaseOutcome::Unused);
            return AttemptOutcome::Done(Err(self.unsent_error(diagnostic)));
        }
        let setup = route.setup();
        let (method, params) = (&self.request.method, &self.request.params);
        let client = self.requesting_client(route);
        let action = setup.with_client_state(|state| state.action_for(client, method, params));
        match action.unwrap_or(ClientStateAction::Forward) {
            ClientStateAction::Forward => {},
            ClientStateAction::ForwardWithLevel(level) => {
                if let Ok(params) = Params::from_serialize(&json!({ "level": level })) {
                    request.params = params;
                }
            },
            // Another client asked for the same before.
            ClientStateAction::AnswerLocally => {
                lease.settle(LeaseOutcome::Unused);
                self.record_client_state(route);
                let response = self.respond(route, Bytes::from_static(b"{}"), false);
                return AttemptOutcome::Done(Ok(response));
            },
        }
        let has_siblings =
            setup.sharing() == Some(Sharing::OnePerCaller) && self.exclusive.is_none();
        let before = has_siblings.then(|| setup.client_state());
        let outcome = self.attempt(route, lease, request).await;
        if let (AttemptOutcome::Done(_), Some(before)) = (&outcome, before) {
            self.sync_sibling_sessions(route, before);
        }
        outcome
    }

    fn requesting_client(&self, route: &Route) -> RequestingClient {
        if self.request.is_internal_unsubscribe {
            return RequestingClient::Internal;
        }
        let listener = self.request.listener.as_ref();
        let client = listener.and_then(|listener| listener.client_session());
        route
            .setup()
            .requesting_client(client, &self.caller.identity)
    }

    pub(super) fn record_client_state(&self, route: &Route) {
        let (method, params) = (&self.request.method, &self.request.params);
        route
            .setup()
            .record_client_state(self.requesting_client(route), method, params);
    }

    /// Registers the subscription that the request asks for until the call ends.
    ///
    /// # Errors
    /// `overloaded`, where the client has too many.
    fn register_pending_subscribe(&mut self, route: &Route) -> Result<(), Diagnostic> {
        let Route::Pooled(entry) = route else {
            return Ok(());
        };
        let pending = self.pending_subscribe.as_ref();
        if pending.is_some_and(|pending| Arc::ptr_eq(&pending.pool_entry, entry)) {
            return Ok(());
        }
        let (method, params) = (&self.request.method, &self.request.params);
        let (setup, client) = (route.setup(), self.requesting_client(route));
        let unwanted = setup.reserve_quota(client, method, params)?;
        spawn_cleanup(self.caller, self.server, entry, unwanted);
        let subscription = setup.add_pending_subscription(client, method, params);
        self.pending_subscribe = subscription.map(|subscription| {
            Box::new(PendingSubscribeGuard {
                caller: self.caller.clone(),
                server: Arc::clone(self.server),
                pool_entry: Arc::clone(entry),
                subscription,
            })
        });
        Ok(())
    }

    /// Whether another session replaced the one that replied, and does not know what the request
    /// changed. Later sessions are restored from the recorded state.
    pub(super) fn must_repeat_on_new_session(
        &self,
        route: &Route,
        answered: &Arc<PooledSession>,
    ) -> bool {
        let Some(entry) = route.pool_entry() else {
            return false;
        };
        let is_single = route.setup().sharing() != Some(Sharing::OnePerCaller);
        self.exclusive.is_none()
            && is_single
            && newest_session(entry).is_some_and(|newest| !Arc::ptr_eq(&newest.session, answered))
    }

    /// Sends what changed since then to the other sessions of the key, in the background, also to
    /// those in use.
    fn sync_sibling_sessions(&self, route: &Route, before: ClientState) {
        let Route::Pooled(entry) = route else { return };
        let is_other = |seen: &SessionSnapshot<SessionFactory>| {
            seen.is_usable && Some(seen.generation.number()) != self.generation
        };
        let others = entry.sessions().into_iter().filter(is_other);
        let others: Vec<Arc<PooledSession>> = others.map(|seen| seen.session).collect();
        if others.is_empty() {
            return;
        }
        let setup = Arc::clone(route.setup());
        clock::spawn_if_running("sync siblings", async move {
            let syncs = others
                .into_iter()
                .map(|session| setup.sync_session(session, &before));
            future::join_all(syncs).await;
        });
    }
}

fn spawn_cleanup(
    caller: &CallerContext,
    server: &Arc<ServerState>,
    entry: &Arc<SessionEntry>,
    unwanted: Vec<RestoreRequest>,
) {
    if !unwanted.is_empty() {
        let (caller, server) = (caller.clone(), Arc::clone(server));
        let cleanup = send_cleanup_requests(caller, server, Arc::clone(entry), unwanted);
        clock::spawn_if_running("unsubscribe", cleanup);
    }
}

/// Unsubscribes on the session of a key. If the session is shared, the end of the caller's run does
/// not stop it.
pub(crate) async fn send_cleanup_requests(
    mut caller: CallerContext,
    server: Arc<ServerState>,
    entry: Arc<SessionEntry>,
    unwanted: Vec<RestoreRequest>,
) {
    if entry.key.run().is_none() {
        caller.run = None;
    }
    for (method, params) in unwanted {
        // A new session would not have the subscription.
        if entry.sessions().is_empty() {
            return;
        }
        let mut request = CallRequest::new(Cow::Borrowed(method), params);
        request.is_internal_unsubscribe = true;
        if let Err(error) = Box::pin(execute(&caller, &server, None, request)).await {
            tracing::debug!(server = %server.name, method, %error, "cannot unsubscribe");
        }
    }
}
