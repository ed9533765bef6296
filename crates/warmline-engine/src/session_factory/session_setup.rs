//! What all sessions of one pool key share: everything that opens another one, and what is known of
//! the state in them.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use warmline_core::era::Era;
use warmline_core::message::params::Params;
use warmline_core::pool::{EntryPolicy, Sharing};
use warmline_core::pool_key::{CredentialId, Digest, Identity, OwnerKind, ScopeKind, Transport};
use warmline_core::session_plan::{self, PlanRequest, PooledPlan, ServerProfile, SessionPlan};

use super::client_state::{ClientState, PendingSubscription, RequestingClient, RestoreRequest};
use super::pooled_session::PooledSession;
use super::record::RecordState;
use crate::credentials::{CallerIdentity, Credential};
use crate::notifications::Subscribers;
use crate::server_state::{
    KeyedClientProfile, NO_CREDENTIAL, ServerAccess, ServerLocation, ServerState,
};
use warmline_platform::lock::Mutex;
use warmline_store::Records;
use warmline_upstream::UnsolicitedListener;

/// What opens the sessions of one key.
#[derive(Debug)]
pub(crate) struct SessionSetup {
    pub(crate) server: Arc<ServerState>,
    pub(crate) location: Arc<ServerLocation>,
    pub(crate) credential: Option<Arc<Credential>>,
    pub(crate) client_profile: Arc<KeyedClientProfile>,
    pub(crate) server_profile: ServerProfile,
    /// The request that created the key, and the plan then; none without a key.
    planned: Option<(PlanRequest, PooledPlan)>,
    /// None where no record is written.
    pub(super) record_state: Option<Box<RecordState>>,
    pub(super) stateful: AtomicBool,
    /// State was lost and nobody learned of it yet: the record says so.
    pub(super) unreported_loss: AtomicBool,
    /// The calls that its sessions had: each may have changed what they list.
    call_count: AtomicU32,
    /// Somebody comes back to a session that existed before.
    pub(super) had_session_before: AtomicBool,
    /// Most keys never have any.
    subscription_state: OnceLock<Box<SubscriptionState>>,
}

/// What a key has only if a client subscribed on it.
#[derive(Debug, Default)]
pub(crate) struct SubscriptionState {
    pub(super) client_state: Mutex<ClientState>,
    /// What was sent to the session that joins, until it has joined.
    pub(super) last_sent: Mutex<Option<(Weak<PooledSession>, ClientState)>>,
    /// Who receives what its sessions say outside any call.
    pub(crate) subscribers: Arc<Subscribers>,
    /// The session whose stream serves all of them.
    pub(super) stream_session: Mutex<Weak<PooledSession>>,
    /// The last replacement that they were notified of; it may be an older one.
    pub(super) last_replacement: AtomicU32,
}

/// Counts a tool call when it is dropped: the call is over, or nobody waits for it.
pub(crate) struct CallCountGuard<'a>(pub(crate) &'a SessionSetup);

impl Drop for CallCountGuard<'_> {
    fn drop(&mut self) {
        self.0.call_count.fetch_add(1, Ordering::AcqRel);
    }
}

impl SessionSetup {
    pub(crate) fn new(
        server: Arc<ServerState>,
        access: &ServerAccess,
        client_profile: Arc<KeyedClientProfile>,
        server_profile: ServerProfile,
        records: Option<Arc<Records>>,
    ) -> Self {
        Self {
            server,
            location: Arc::clone(&access.location),
            credential: access.credential.clone(),
            client_profile,
            server_profile,
            planned: None,
            record_state: records.map(RecordState::new),
            stateful: AtomicBool::new(false),
            unreported_loss: AtomicBool::new(false),
            call_count: AtomicU32::new(0),
            had_session_before: AtomicBool::new(false),
            subscription_state: OnceLock::new(),
        }
    }

    /// The same for a key that somebody comes back to: its state is lost if its session is gone.
    pub(crate) fn with_previous_session(self) -> Self {
        self.had_session_before
            .store(self.server_profile.has_sessions, Ordering::Relaxed);
        self
    }

    /// The same with the plan of its key. Where a key has several sessions, each belongs to its
    /// holder alone, and none is recorded: another process would resume a session that is in use.
    pub(crate) fn with_holding(mut self, request: PlanRequest, plan: PooledPlan) -> Self {
        if plan.sharing == Sharing::OnePerCaller {
            self.record_state = None;
        }
        self.planned = Some((request, plan));
        self
    }

    /// The policy of its pool entry under the settings in force, and whether calls now go to another
    /// key, or to none. None without a key.
    pub(crate) fn current_policy(&self, max_waiters: u32) -> Option<(EntryPolicy, bool)> {
        let (request, began) = self.planned?;
        let (profile, settings) = (self.server_profile, self.server.settings.load());
        let policy = &settings.policy;
        let (plan, is_superseded) = match session_plan::plan_session(profile, policy, request) {
            SessionPlan::Pooled(now) if (now.owner, now.scope) == (began.owner, began.scope) => {
                (now, false)
            },
            SessionPlan::Pooled(_) | SessionPlan::PerCall => (began, true),
        };
        let policy = session_plan::entry_policy(profile, plan, policy, max_waiters);
        Some((policy, is_superseded))
    }

    fn plan(&self) -> Option<PooledPlan> {
        self.planned.map(|(_, plan)| plan)
    }

    pub(crate) fn sharing(&self) -> Option<Sharing> {
        self.plan().map(|plan| plan.sharing)
    }

    pub(crate) fn is_shared_by_identities(&self) -> bool {
        self.plan()
            .is_some_and(|plan| plan.owner == OwnerKind::AnyIdentity)
    }

    pub(super) fn is_shared_by_runs(&self) -> bool {
        self.plan()
            .is_some_and(|plan| plan.scope == ScopeKind::Shared)
    }

    pub(super) fn credential_id(&self) -> CredentialId {
        let credential = self.credential.as_ref();
        credential.map_or(NO_CREDENTIAL, |credential| credential.id())
    }

    pub(crate) fn is_process(&self) -> bool {
        self.server_profile.transport == Transport::Stdio
    }

    /// Whether its session answered a call that was not idempotent.
    pub(crate) fn is_stateful(&self) -> bool {
        self.stateful.load(Ordering::Relaxed)
    }

    /// Whether the server can keep state in a session.
    pub(crate) fn keeps_state(&self) -> bool {
        self.server_profile.has_sessions || self.is_process()
    }

    /// A call that was not idempotent was answered: from now on there is state to lose. The record
    /// follows in the background, never on the path of the call.
    ///
    /// False where the server keeps no state in a session.
    pub(crate) fn note_state_left(self: &Arc<Self>, session: &PooledSession) -> bool {
        if !self.keeps_state() {
            return false;
        }
        session.stateful.store(true, Ordering::Relaxed);
        if !self.stateful.swap(true, Ordering::Relaxed) {
            self.schedule_record_renewal();
        }
        true
    }

    pub(crate) fn has_state_to_lose(&self) -> bool {
        self.keeps_state() && self.is_stateful()
    }

    /// Whether state was lost and nobody learned of it yet.
    pub(crate) fn has_unreported_loss(&self) -> bool {
        self.unreported_loss.load(Ordering::Relaxed)
    }

    pub(crate) fn call_count(&self) -> u32 {
        self.call_count.load(Ordering::Acquire)
    }

    pub(crate) fn client_state(&self) -> ClientState {
        self.with_client_state(ClientState::clone)
            .unwrap_or_default()
    }

    pub(crate) fn has_client_state(&self) -> bool {
        self.with_client_state(|state| !state.is_empty()) == Some(true)
    }

    pub(crate) fn with_client_state<T>(&self, read: impl FnOnce(&ClientState) -> T) -> Option<T> {
        let state = self.existing_subscription_state()?;
        Some(read(&state.client_state.lock()))
    }

    /// Records a request that changes client state: the next session has to get it again. The record
    /// follows in the background.
    pub(crate) fn record_client_state(
        self: &Arc<Self>,
        client: RequestingClient,
        method: &str,
        params: &Params,
    ) {
        let state = self.subscription_state();
        state
            .client_state
            .lock()
            .apply_request(client, method, params);
        self.client_state_changed(state);
    }

    pub(super) fn client_state_changed(self: &Arc<Self>, state: &SubscriptionState) {
        state.subscribers.wake_all();
        self.schedule_record_renewal();
    }

    /// The key of a client: its client session. None if it stands for all.
    pub(super) fn client_key(&self, client: Option<Digest>, who: Identity) -> Option<Digest> {
        client.or_else(|| self.is_shared_by_identities().then_some(who.0))
    }

    pub(crate) fn requesting_client(
        &self,
        client: Option<Digest>,
        who: &CallerIdentity,
    ) -> RequestingClient {
        match self.client_key(client, who.id) {
            Some(_) if client.is_none() && !who.name.is_reusable() => RequestingClient::OneCall,
            Some(name) => RequestingClient::Client(name, who.id),
            None => RequestingClient::AllClients,
        }
    }

    /// Notes a subscribe request until
    /// [`finish_pending_subscription`](Self::finish_pending_subscription).
    pub(crate) fn add_pending_subscription(
        &self,
        requester: RequestingClient,
        method: &str,
        params: &Params,
    ) -> Option<PendingSubscription> {
        let RequestingClient::Client(client, who) = requester else {
            return None;
        };
        if method != "resources/subscribe" {
            return None;
        }
        let pending = PendingSubscription {
            client,
            identity: who,
            uri: params.uri()?.into_owned(),
        };
        let mut state = self.subscription_state().client_state.lock();
        state.pending.push(pending.clone());
        Some(pending)
    }

    /// A subscribe request is over. Returns what to send if another client unsubscribed meanwhile and
    /// no client wants the resource now.
    pub(crate) fn finish_pending_subscription(
        self: &Arc<Self>,
        what: &PendingSubscription,
    ) -> Vec<RestoreRequest> {
        let state = self.subscription_state();
        let unwanted = state.client_state.lock().finish_pending(what);
        if !unwanted.is_empty() {
            self.client_state_changed(state);
        }
        unwanted
    }

    /// Whether a client of this key receives the update of a resource: those that subscribed do. An
    /// update that no client asked for goes to all, but to none where identities share a session.
    pub(crate) fn is_recipient(
        &self,
        client: Option<Digest>,
        who: Identity,
        updated: &str,
    ) -> bool {
        let Some(client) = self.client_key(client, who) else {
            return true;
        };
        let wants = self.with_client_state(|state| state.is_interested(client, updated));
        wants
            .flatten()
            .unwrap_or_else(|| !self.is_shared_by_identities())
    }

    pub(super) fn set_last_sent(&self, line: &Arc<PooledSession>, wanted: ClientState) {
        *self.subscription_state().last_sent.lock() = Some((Arc::downgrade(line), wanted));
    }

    /// What a session was sent when it joined, if that is still known.
    pub(super) fn take_last_sent(&self, line: &Arc<PooledSession>) -> Option<ClientState> {
        let is_it =
            |(whom, _): &mut (Weak<PooledSession>, ClientState)| whom.as_ptr() == Arc::as_ptr(line);
        let mut last = self.existing_subscription_state()?.last_sent.lock();
        let told = last.take_if(is_it);
        told.map(|(_, wanted)| wanted)
    }

    /// A client is gone. Returns what to send to the session that was told what it wanted.
    pub(crate) fn remove_client(self: &Arc<Self>, client: Digest) -> Vec<RestoreRequest> {
        let Some(state) = self.existing_subscription_state() else {
            return Vec::new();
        };
        let Some(unwanted) = state.client_state.lock().remove_client(client) else {
            return Vec::new();
        };
        self.client_state_changed(state);
        unwanted
    }

    /// Whether somebody comes back to a session of it, or wants what only a session tells.
    pub(crate) fn needs_session(&self) -> bool {
        self.had_session_before.load(Ordering::Relaxed) || self.has_client_state()
    }

    /// Its subscribers, if it ever had any.
    pub(crate) fn subscribers(&self) -> Option<Arc<Subscribers>> {
        Some(Arc::clone(&self.existing_subscription_state()?.subscribers))
    }

    pub(super) fn wake_subscribers(&self) {
        if let Some(subscribers) = self.subscribers() {
            subscribers.wake_all();
        }
    }

    pub(crate) fn subscription_state(&self) -> &SubscriptionState {
        self.subscription_state.get_or_init(Box::default)
    }

    pub(super) fn existing_subscription_state(&self) -> Option<&SubscriptionState> {
        self.subscription_state.get().map(|state| &**state)
    }

    pub(super) fn upstream_target(
        &self,
        era: Option<Era>,
        receiver: Arc<dyn UnsolicitedListener>,
    ) -> warmline_upstream::ServerTarget {
        let credential = self.credential.as_ref();
        self.server
            .upstream_target(&self.location, credential, era, Some(receiver))
    }

    /// Renews the credential for requests of our own: a session may rest for longer than its token
    /// is valid.
    pub(super) async fn ensure_fresh_credential(&self) {
        if let Some(credential) = &self.credential
            && let Err(diagnostic) = credential.ensure_ready().await
        {
            tracing::debug!(server = %self.server.name, trouble = %diagnostic, "no fresh credential");
        }
    }
}
