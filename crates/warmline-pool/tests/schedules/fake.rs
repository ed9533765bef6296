//! A connector that opens nothing, takes some turns for everything, and fails as chance will have
//! it. It notices what no pool may do: a session used by two, after its end, or ended twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use shuttle::rand::{Rng, thread_rng};
use warmline_core::era::Era;
use warmline_core::error::code::Reason;
use warmline_core::exchange::Diagnostic;
use warmline_core::pool::{
    EndCondition, EndReason, EntryPolicy, HealthCheckResult, SessionOrigin, Sharing,
    StabilityCriterion,
};
use warmline_core::pool_key::{
    ClientProfileId, ConfigRevision, CredentialId, Digest, Identity, KeyOwner, KeyScope, PoolKey,
    RunId, TargetKey, Transport,
};

use crate::pool_files::{ConnectedSession, Connector, OpenRequest, PoolEvent, PoolEventKind};

#[derive(Debug, Default)]
pub(crate) struct Session {
    dead: AtomicBool,
    closed: AtomicBool,
    /// Its server does not have it any more.
    forgotten: AtomicBool,
    is_process: bool,
    used: AtomicU32,
    /// Callers on it right now.
    pub(crate) callers: AtomicU32,
}

impl Session {
    /// Somebody uses it; the first to do so is told.
    pub(crate) fn enter(&self) -> bool {
        self.callers.fetch_add(1, Ordering::Relaxed);
        self.used.fetch_add(1, Ordering::Relaxed) == 0
    }

    pub(crate) fn leave(&self) {
        self.callers.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Whether it was there until now, and is not any more.
    fn is_forgotten_now(&self) -> bool {
        !self.forgotten.swap(true, Ordering::Relaxed)
    }

    pub(crate) fn die(&self) {
        self.dead.store(true, Ordering::Relaxed);
    }
}

/// How often things go wrong, and how many sessions may be open.
#[derive(Debug)]
pub(crate) struct Fake {
    pub(crate) trouble: f64,
    pub(crate) spares: u32,
    pub(crate) live: AtomicU32,
    pub(crate) most_live: AtomicU32,
    /// Sessions that the pool reported as opened and as closed.
    pub(crate) opened: AtomicU32,
    pub(crate) ended: AtomicU32,
}

impl Fake {
    pub(crate) fn new(trouble: f64, spares: u32) -> Arc<Self> {
        Arc::new(Self {
            trouble,
            spares,
            live: AtomicU32::new(0),
            most_live: AtomicU32::new(0),
            opened: AtomicU32::new(0),
            ended: AtomicU32::new(0),
        })
    }

    /// A session that was opened outside the pool.
    pub(crate) fn contact(&self) -> Arc<Session> {
        self.opened();
        Arc::default()
    }

    /// A server says that a session is gone: then it has it no more. A process is there until it
    /// was ended.
    pub(crate) fn gone(&self, session: &Session) {
        if !session.is_process && session.is_forgotten_now() {
            self.live.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn opened(&self) {
        let live = self.live.fetch_add(1, Ordering::Relaxed) + 1;
        self.most_live.fetch_max(live, Ordering::Relaxed);
    }

    fn goes_wrong(&self) -> bool {
        thread_rng().gen_bool(self.trouble)
    }
}

/// Lets others run for a few turns.
pub(crate) async fn turns(most: u32) {
    for _ in 0..thread_rng().gen_range(0..=most) {
        shuttle::future::yield_now().await;
    }
}

impl Connector for Fake {
    type Session = Session;
    type Setup = ();

    async fn open(&self, order: &OpenRequest<Self>) -> Result<Arc<Session>, Diagnostic> {
        turns(4).await;
        if self.goes_wrong() {
            return Err(Diagnostic::new(Reason::ConnectRefused, "by chance"));
        }
        self.opened();
        let transport = order.key.as_ref().map(|key| key.target.transport);
        Ok(Arc::new(Session {
            is_process: transport == Some(Transport::Stdio),
            ..Session::default()
        }))
    }

    async fn prepare_for_key(
        &self,
        _: &OpenRequest<Self>,
        session: Arc<Session>,
    ) -> ConnectedSession<Session> {
        turns(1).await;
        ConnectedSession::new(session)
    }

    async fn check(&self, session: &Arc<Session>, _: &Arc<()>) -> HealthCheckResult {
        turns(2).await;
        if !self.goes_wrong() {
            return HealthCheckResult::Alive;
        }
        let found = [
            HealthCheckResult::Gone,
            HealthCheckResult::TimedOut,
            HealthCheckResult::Unreachable,
        ];
        let found = found[thread_rng().gen_range(0..found.len())];
        if found == HealthCheckResult::Gone {
            self.gone(session);
        }
        found
    }

    async fn close(&self, session: Arc<Session>, _: &Arc<()>, _: Option<&PoolKey>, why: EndReason) {
        turns(3).await;
        let twice = session.closed.swap(true, Ordering::Relaxed);
        assert!(!twice, "ended twice");
        let cut = matches!(why, EndReason::RunEnded | EndReason::Drained);
        let callers = session.callers.load(Ordering::Relaxed);
        assert!(cut || callers == 0, "ended under {callers} callers: {why}");
        if session.is_forgotten_now() {
            self.live.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn is_usable(&self, session: &Session) -> bool {
        !session.dead.load(Ordering::Relaxed)
    }

    fn report(&self, (): &(), event: &PoolEvent<'_>) {
        if let PoolEventKind::Opened { origin, .. } = event.kind {
            let is_new = origin != SessionOrigin::Spare;
            self.opened.fetch_add(u32::from(is_new), Ordering::Relaxed);
        }
        let is_end = matches!(event.kind, PoolEventKind::Closed { .. });
        self.ended.fetch_add(u32::from(is_end), Ordering::Relaxed);
    }

    fn client_profile_id(&self, (): &()) -> ClientProfileId {
        ClientProfileId(Digest::new([3; 16]))
    }

    fn wanted_spares(&self, (): &()) -> u32 {
        self.spares
    }
}

pub(crate) fn key(number: u8, ends: EndCondition) -> PoolKey {
    key_at(Transport::Http, number, ends)
}

pub(crate) fn key_at(transport: Transport, number: u8, ends: EndCondition) -> PoolKey {
    let place = TargetKey {
        server: Arc::from("server"),
        revision: ConfigRevision(Digest::new([1; 16])),
        era: Era::Legacy,
        transport,
    };
    let digest = Digest::new([number; 16]);
    let scope = match ends {
        EndCondition::WithRunEnd => KeyScope::Run(RunId(digest)),
        EndCondition::AtLimits => KeyScope::Shared(ClientProfileId(Digest::new([3; 16]))),
    };
    let owner = KeyOwner::Identity(Identity(digest));
    PoolKey::new(place, owner, CredentialId(Digest::new([2; 16])), scope)
}

pub(crate) fn policy(sharing: Sharing, ends: EndCondition, max: u32) -> EntryPolicy {
    let secs = std::time::Duration::from_secs;
    EntryPolicy {
        sharing,
        max_sessions: max,
        max_age: Some(secs(600)),
        max_idle: Some(secs(300)),
        check_after: secs(60),
        keep_alive: Some(secs(120)),
        max_waiters: 16,
        stability: StabilityCriterion::FirstReply,
        end_condition: ends,
    }
}
