//! Opens, restores, checks, records and closes sessions for the pool.
//!
//! A stored session is resumed with nothing on the wire; a new one is stored before a caller gets it;
//! what a process took with it is reported as a loss.

mod client_state;
mod health_check;
mod notification_target;
pub(crate) mod pool_events;
mod pooled_session;
mod record;
mod restore;
mod session_setup;

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::Semaphore;
use warmline_core::error::code::Reason;
use warmline_core::exchange::Diagnostic;
use warmline_core::policy::BreakerPolicy;
use warmline_core::pool::{EndReason, HealthCheckResult};
use warmline_core::pool_key::{ClientProfileId, KeyOwner, PoolKey, Transport};

use crate::context::EngineContext;
use crate::credentials::Credential;
use crate::events::Event;
use crate::metrics::AcquireOutcome;
use crate::server_state::{
    DiscoveryGoal, KeyedClientProfile, ServerAccess, ServerLocation, ServerState, profile_of,
};
pub(crate) use client_state::{
    ClientState, ClientStateAction, PendingSubscription, RequestingClient, RestoreRequest,
    updated_resource_uri,
};
use notification_target::NotificationTarget;
use pool_events::{record_open, record_refusal, session_ref};
use pooled_session::LiveSessionIds;
pub(crate) use pooled_session::{DiscoveredSession, PooledSession};
pub(crate) use record::{is_server_record_key, record_of_facts};
pub(crate) use session_setup::{CallCountGuard, SessionSetup};
use warmline_platform::clock;
use warmline_pool::{
    AcquireKind, CleanupToken, ConnectedSession, Connector, Lease, OpenRequest, PoolEntry,
    PoolEvent, PoolEventKind,
};
use warmline_upstream::{EraSelection, KnownEras, Session, TransportConfig, UnsolicitedListener};

const CLOSE_TIMEOUT: Duration = Duration::from_secs(6);
/// Programs that are started at the same time. More of them would slow each other down until none is
/// ready in time.
const MAX_CONCURRENT_STARTS: usize = 32;
/// A start counts for no longer than this: a program that hangs must not hold up others.
const MAX_START_TIME: Duration = Duration::from_secs(5);

/// Where the pool keeps the sessions of one key.
pub(crate) type SessionEntry = PoolEntry<SessionFactory>;
pub(crate) type SessionLease = Lease<SessionFactory>;

#[derive(Debug)]
pub(crate) struct SessionFactory {
    context: Arc<EngineContext>,
    start_permits: Semaphore,
    live_ids: LiveSessionIds,
}

impl SessionFactory {
    pub(crate) fn new(context: Arc<EngineContext>) -> Self {
        Self {
            context,
            start_permits: Semaphore::new(MAX_CONCURRENT_STARTS),
            live_ids: LiveSessionIds::default(),
        }
    }

    /// Makes the first contact with a server: opens a session in the era that serves the caller
    /// best.
    pub(crate) async fn discover_server(
        &self,
        server: &Arc<ServerState>,
        access: &ServerAccess,
        profile: &KeyedClientProfile,
        (goal, eras): (DiscoveryGoal, EraSelection),
        token: CleanupToken,
    ) -> Result<DiscoveredSession, Diagnostic> {
        let receiver = NotificationTarget::unbound(server);
        let credential = access.credential.as_ref();
        let era = match goal {
            DiscoveryGoal::Era(era) => Some(era),
            DiscoveryGoal::Stateful | DiscoveryGoal::Any => None,
        };
        let listener = Arc::<NotificationTarget>::clone(&receiver);
        let mut target = server.upstream_target(&access.location, credential, era, Some(listener));
        target.lifetime_token = Some(Arc::new(token));
        let upstream = &self.context.upstream;
        let contact = || {
            // On the heap: opening is rare, and its future is large.
            let contact = Box::pin(upstream.first_contact(&target, &profile.profile, eras));
            self.open_within_limits(server, &target.transport, contact)
        };
        let met = retry_with_fresh_credential(credential, contact).await?;
        let place = (&**server, &*access.location);
        Ok(DiscoveredSession {
            session: self.adopt_session(place, (met.session, Some(receiver)), None)?,
            other_era_facts: met.other_facts,
            unused_session: met.other_session,
        })
    }

    /// What is known of the eras of a server, for a client of this profile.
    pub(crate) fn known_eras(
        &self,
        server: &ServerState,
        access: &ServerAccess,
        profile: &KeyedClientProfile,
    ) -> Option<KnownEras> {
        let target =
            server.upstream_target(&access.location, access.credential.as_ref(), None, None);
        self.context.upstream.known_eras(&target, &profile.profile)
    }

    /// Opens a session in the era of the setup.
    async fn open_new(
        &self,
        order: &OpenRequest<Self>,
    ) -> Result<(Session, Option<Arc<NotificationTarget>>), Diagnostic> {
        let setup = &order.setup;
        // A spare serves no key yet.
        let is_spare = order.key.is_none();
        let unbound = is_spare.then(|| NotificationTarget::unbound(&setup.server));
        let receiver: Arc<dyn UnsolicitedListener> = match &unbound {
            Some(target) => Arc::<NotificationTarget>::clone(target),
            None => Arc::<SessionSetup>::clone(setup),
        };
        let mut target = setup.upstream_target(Some(setup.server_profile.era), receiver);
        target.lifetime_token = Some(Arc::new(order.cleanup_token.clone()));
        let upstream = &self.context.upstream;
        let open = || {
            let open = Box::pin(upstream.open(&target, &setup.client_profile.profile));
            self.open_within_limits(&setup.server, &target.transport, open)
        };
        let opened = retry_with_fresh_credential(setup.credential.as_ref(), open).await;
        let opened = match (opened, &order.replaces) {
            // The server holds a single session, and it is ours: close it and try once more.
            (Err(diagnostic), Some(old)) if diagnostic.reason == Reason::SingleSession => {
                clock::timeout(CLOSE_TIMEOUT, old.close()).await.ok();
                open().await
            },
            (opened, _) => opened,
        };
        Ok((opened?, unbound))
    }

    /// Opens within the operator's time limit. A program first waits for its turn to start: that of
    /// its server, which has a share of all turns, then that of all.
    async fn open_within_limits<T>(
        &self,
        server: &ServerState,
        transport: &TransportConfig,
        open: impl Future<Output = Result<T, Diagnostic>>,
    ) -> Result<T, Diagnostic> {
        let permits = match transport {
            TransportConfig::Stdio(_) => {
                let share = server.start_permits.acquire().await.ok();
                Some((share, self.start_permits.acquire().await.ok()))
            },
            TransportConfig::Http(_) => None,
        };
        let mut open = pin!(with_open_limit(server, open));
        let Some(permits) = permits else {
            return open.await;
        };
        match clock::timeout(MAX_START_TIME, open.as_mut()).await {
            Ok(opened) => opened,
            Err(clock::Elapsed) => {
                drop(permits);
                open.await
            },
        }
    }

    /// Checks that the session has the profile that its key promises.
    async fn verify_profile(setup: &SessionSetup, session: Session) -> Result<Session, Diagnostic> {
        if profile_of(session.facts()) == setup.server_profile {
            return Ok(session);
        }
        // Under this key, callers might share a session that is not theirs.
        clock::timeout(CLOSE_TIMEOUT, session.close()).await.ok();
        setup.server.forget_discoveries();
        let what = format!(
            "`{}` has changed since the first contact",
            setup.server.name
        );
        Err(Diagnostic::new(Reason::Version, what))
    }

    /// Checks whether a server responds, without touching its sessions.
    pub(crate) async fn check_reachable(
        &self,
        server: &Arc<ServerState>,
        location: &ServerLocation,
    ) -> Result<(), Diagnostic> {
        let target = server.upstream_target(location, None, None, None);
        let limit = server.settings.load().policy.health_check_timeout;
        if server.settings.load().policy.explicit_health_rpc {
            self.context.upstream.check_responding(&target, limit).await
        } else {
            self.context.upstream.check_reachable(&target, limit).await
        }
    }
}

impl Connector for SessionFactory {
    type Session = PooledSession;
    type Setup = SessionSetup;

    async fn restore(&self, order: &OpenRequest<Self>) -> Option<ConnectedSession<PooledSession>> {
        self.restore_session(order).await
    }

    async fn open(&self, order: &OpenRequest<Self>) -> Result<Arc<PooledSession>, Diagnostic> {
        let opened = self.open_new(order).await;
        if let Err(diagnostic) = &opened
            && invalidates_discovery(diagnostic)
        {
            order.setup.server.forget_discoveries();
        }
        let (session, receiver) = opened?;
        let setup = &order.setup;
        let session = Self::verify_profile(setup, session).await?;
        let place = (&*setup.server, &*setup.location);
        let session = self.adopt_session(place, (session, receiver), order.replaces.as_ref())?;
        // A session without a key may serve anybody.
        let owner = order.key.as_ref();
        let owner = owner.map_or(KeyOwner::AnyIdentity, |key| key.owner);
        let by = (setup.credential_id(), setup.client_profile.id);
        setup
            .server
            .update_handshakes(owner, by, session.shared_facts());
        Ok(session)
    }

    async fn prepare_for_key(
        &self,
        order: &OpenRequest<Self>,
        session: Arc<PooledSession>,
    ) -> ConnectedSession<PooledSession> {
        let setup = &order.setup;
        session
            .generation
            .store(order.generation.number(), Ordering::Relaxed);
        setup.reset_for_new_session(order.key.as_ref());
        client_state::restore_client_state(setup, &session).await;
        if order.replaces.is_some() {
            setup.server.forget_handshakes();
        }
        if let Some(target) = &session.notification_target {
            target.bind_setup(setup);
        }
        if let Some(key) = &order.key {
            self.assign_session_id(setup, key, &session);
        }
        let mut opened = self.save_record(order, session).await;
        opened.details.unreported_loss |= setup.had_session_before.swap(false, Ordering::Relaxed);
        opened
    }

    fn session_joined(&self, session: &Arc<PooledSession>, setup: &Arc<SessionSetup>) {
        client_state::send_missed_state(setup, session);
    }

    async fn check(
        &self,
        session: &Arc<PooledSession>,
        setup: &Arc<SessionSetup>,
    ) -> HealthCheckResult {
        setup.ensure_fresh_credential().await;
        health_check::check_session(setup, session).await
    }

    async fn close(
        &self,
        session: Arc<PooledSession>,
        setup: &Arc<SessionSetup>,
        key: Option<&PoolKey>,
        why: EndReason,
    ) {
        if self.is_left_to_record(setup, key, why) {
            session.flush_cancels().await;
            self.release_session_id(setup, &session);
            self.flush_record(setup).await;
            return;
        }
        // Before the close: afterwards nothing tells who ended the child.
        if let Some(report) = session.child() {
            self.record_child_exit(setup, key, &report);
        }
        // A server that forgot the session is not asked to delete it: a heal costs no request more
        // than it must.
        let is_over = (why == EndReason::Gone && session.facts().transport == Transport::Http)
            || self.shares_session_id(setup, &session);
        if !is_over {
            let close = async {
                setup.ensure_fresh_credential().await;
                session.try_close().await
            };
            let closed = clock::timeout(CLOSE_TIMEOUT, close).await;
            self.report_unfinished_close(setup, key, &session, closed.ok());
        }
        if let Some(report) = session.child() {
            let killed = u64::from(report.orphans_killed);
            setup.server.metrics.orphans_killed.add(killed);
        }
        self.release_session_id(setup, &session);
        self.clear_record(setup, key, &session, why).await;
    }

    fn is_usable(&self, session: &PooledSession) -> bool {
        session.upstream.retired_reason().is_none()
    }

    fn report(&self, setup: &SessionSetup, event: &PoolEvent<'_>) {
        let server = &setup.server;
        match event.kind {
            PoolEventKind::Leased { kind, waited, .. } => {
                server.metrics.acquires.increment(kind.into());
                if matches!(kind, AcquireKind::Waited) {
                    server.metrics.wait_time.record_time(waited);
                }
            },
            PoolEventKind::LeaseRefused { diagnostic, waited } => {
                record_refusal(server, diagnostic, Some(waited));
            },
            PoolEventKind::Opened { origin, took } => record_open(setup, origin, took),
            PoolEventKind::Joined {
                generation,
                origin,
                took,
                heal,
            } => {
                // From now on subscribers find the session.
                setup.wake_subscribers();
                self.report_joined(&session_ref(event, Some(generation)), origin, took, heal);
            },
            PoolEventKind::SpareOpened { took } => self.emit(Event::SpareOpened {
                server: Arc::clone(&server.name),
                took,
            }),
            PoolEventKind::OpenFailed {
                diagnostic, took, ..
            } => self.record_open_failure(server, session_ref(event, None), diagnostic, took),
            PoolEventKind::Lost { generation, reason } => {
                // A client that only listens would not notice.
                setup.wake_subscribers();
                self.record_loss(setup, session_ref(event, Some(generation)), reason);
            },
            PoolEventKind::Checked {
                generation,
                health,
                took,
            } => {
                let session = session_ref(event, Some(generation));
                self.record_check(server, session, health, took);
            },
            PoolEventKind::Closed { generation, reason } => {
                let session = session_ref(event, generation);
                self.record_close(setup, event.key, session, reason);
            },
            PoolEventKind::BreakerChanged { scope, transition } => {
                self.record_breaker_change(server, event.owner, scope, transition);
            },
            PoolEventKind::KeyEnded => setup.wake_subscribers(),
            PoolEventKind::KeyEvicted => {
                setup.wake_subscribers();
                self.context.metrics.engine.keys_evicted.increment();
            },
        }
    }

    fn client_profile_id(&self, setup: &SessionSetup) -> ClientProfileId {
        setup.client_profile.sharing_id
    }

    fn wanted_spares(&self, setup: &SessionSetup) -> u32 {
        if setup.server_profile.has_sessions && !setup.server.is_withdrawn() {
            setup.server.settings.load().policy.spares
        } else {
            0
        }
    }

    fn max_sessions(&self, setup: &SessionSetup) -> Option<u32> {
        setup.server.settings.load().policy.max_sessions
    }

    fn breaker_policy(&self, setup: &SessionSetup) -> BreakerPolicy {
        setup.server.settings.load().policy.breaker
    }

    fn needs_permit(&self, session: &PooledSession) -> bool {
        session.facts().keeps_session
    }
}

impl From<AcquireKind> for AcquireOutcome {
    fn from(kind: AcquireKind) -> Self {
        match kind {
            AcquireKind::Hit => Self::Hit,
            AcquireKind::Miss => Self::Miss,
            AcquireKind::Waited => Self::Wait,
            AcquireKind::SingleCall => Self::Ephemeral,
        }
    }
}

/// Whether a failed opening shows that the server has changed.
fn invalidates_discovery(diagnostic: &Diagnostic) -> bool {
    let reasons = [
        Reason::Version,
        Reason::Handshake,
        Reason::NotMcp,
        Reason::Rejected,
        Reason::NotFound,
    ];
    reasons.contains(&diagnostic.reason)
}

/// Applies the operator's time limit for opening, if there is one.
async fn with_open_limit<T>(
    server: &ServerState,
    open: impl Future<Output = Result<T, Diagnostic>>,
) -> Result<T, Diagnostic> {
    let Some(limit) = server.settings.load().policy.create else {
        return open.await;
    };
    clock::timeout(limit, open).await.unwrap_or_else(|_| {
        let seconds = limit.as_secs_f64();
        let what = format!(
            "`{}` did not open a session within {seconds} s",
            server.name
        );
        Err(Diagnostic::new(Reason::TimeoutUnsent, what)
            .with_hint("raise `create_timeout` for this server"))
    })
}

/// Tries once more with a fresh credential if the server refused the current one.
async fn retry_with_fresh_credential<T, F>(
    credential: Option<&Arc<Credential>>,
    open: impl Fn() -> F,
) -> Result<T, Diagnostic>
where
    F: Future<Output = Result<T, Diagnostic>>,
{
    let epoch = credential.map(|credential| credential.epoch());
    let opened = match (open().await, credential, epoch) {
        (Err(diagnostic), Some(credential), Some(epoch))
            if diagnostic.reason == Reason::Unauthorized && credential.can_refresh() =>
        {
            match credential.refresh(epoch).await {
                Ok(_) => open().await,
                Err(_) => Err(diagnostic),
            }
        },
        (opened, _, _) => opened,
    };
    opened.map_err(|diagnostic| Credential::name_source_in(credential, diagnostic))
}
