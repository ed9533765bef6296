//! A connector that opens nothing: it counts, takes its time, and fails on request.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use warmline_core::era::Era;
use warmline_core::error::code::Reason;
use warmline_core::exchange::Diagnostic;
use warmline_core::policy::EngineLimits;
use warmline_core::pool_key::{
    ClientProfileId, ConfigRevision, CredentialId, Digest, Identity, KeyOwner, KeyScope, PoolKey,
    RunId, TargetKey, Transport,
};

use super::super::*;
use super::counters::PoolCount;
use crate::clock::{self, Instant};
use crate::lock::Mutex;
use warmline_core::pool::{
    HealthCheckResult, LeaseOutcome, QueuePosition, SessionOrigin, StabilityCriterion,
};

/// What a server does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manner {
    pub(crate) open_takes: Duration,
    pub(crate) open_fails: Option<Reason>,
    pub(crate) close_takes: Duration,
    pub(crate) check_takes: Duration,
    pub(crate) health: HealthCheckResult,
    pub(crate) spares: u32,
    pub(crate) max_sessions: Option<u32>,
    pub(crate) holds_room: bool,
    pub(crate) panics: bool,
    pub(crate) panics_moving_in: bool,
}

impl Default for Manner {
    fn default() -> Self {
        Self {
            open_takes: Duration::from_millis(20),
            open_fails: None,
            close_takes: Duration::from_millis(5),
            check_takes: Duration::from_millis(2),
            health: HealthCheckResult::Alive,
            spares: 0,
            max_sessions: None,
            holds_room: true,
            panics: false,
            panics_moving_in: false,
        }
    }
}

/// What the servers saw.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) opens: u32,
    pub(crate) checks: u32,
    pub(crate) live: BTreeSet<u32>,
    pub(crate) most_live: usize,
    pub(crate) closed: Vec<(u32, EndReason)>,
    pub(crate) replaced: Vec<u32>,
    pub(crate) news: Vec<String>,
    /// What the pool reported.
    pub(crate) opened: u32,
    pub(crate) ended: u32,
    pub(crate) evicted: u32,
    pub(crate) misses: u32,
    pub(crate) waits: u32,
}

#[derive(Debug)]
pub(crate) struct FakeSession {
    pub(crate) id: u32,
    pub(crate) dead: AtomicBool,
}

impl FakeSession {
    pub(crate) fn die(&self) {
        self.dead.store(true, Ordering::Relaxed);
    }
}

#[derive(Debug, Default)]
pub(crate) struct Fake {
    pub(crate) ledger: Mutex<Ledger>,
    manners: Mutex<BTreeMap<String, Manner>>,
}

#[derive(Debug)]
pub(crate) struct Setup {
    pub(crate) server: String,
}

impl Fake {
    fn manner(&self, setup: &Setup) -> Manner {
        let manners = self.manners.lock();
        manners.get(&setup.server).copied().unwrap_or_default()
    }

    pub(crate) fn ledger(&self) -> Ledger {
        self.ledger.lock().clone()
    }
}

impl Connector for Fake {
    type Session = FakeSession;
    type Setup = Setup;

    async fn open(&self, order: &OpenRequest<Self>) -> Result<Arc<FakeSession>, Diagnostic> {
        let manner = self.manner(&order.setup);
        let id = {
            let mut ledger = self.ledger.lock();
            ledger.opens += 1;
            let replaced = order.replaces.as_ref().map(|old| old.id);
            ledger.replaced.extend(replaced);
            ledger.opens
        };
        clock::sleep(manner.open_takes).await;
        assert!(!manner.panics, "this server makes openings panic");
        if let Some(reason) = manner.open_fails {
            return Err(Diagnostic::new(reason, "it does not want to"));
        }
        let mut ledger = self.ledger.lock();
        ledger.live.insert(id);
        ledger.most_live = ledger.most_live.max(ledger.live.len());
        Ok(Arc::new(FakeSession {
            id,
            dead: AtomicBool::new(false),
        }))
    }

    async fn prepare_for_key(
        &self,
        order: &OpenRequest<Self>,
        session: Arc<FakeSession>,
    ) -> ConnectedSession<FakeSession> {
        let manner = self.manner(&order.setup);
        assert!(!manner.panics_moving_in, "its record makes openings panic");
        ConnectedSession::new(session)
    }

    async fn check(&self, _: &Arc<FakeSession>, setup: &Arc<Setup>) -> HealthCheckResult {
        self.ledger.lock().checks += 1;
        let manner = self.manner(setup);
        clock::sleep(manner.check_takes).await;
        manner.health
    }

    async fn close(
        &self,
        session: Arc<FakeSession>,
        setup: &Arc<Setup>,
        _: Option<&PoolKey>,
        why: EndReason,
    ) {
        clock::sleep(self.manner(setup).close_takes).await;
        let mut ledger = self.ledger.lock();
        assert!(ledger.live.remove(&session.id), "closed twice");
        ledger.closed.push((session.id, why));
    }

    fn is_usable(&self, session: &FakeSession) -> bool {
        !session.dead.load(Ordering::Relaxed)
    }

    fn report(&self, _: &Setup, happened: &PoolEvent<'_>) {
        let mut ledger = self.ledger.lock();
        ledger.news.push(format!("{:?}", happened.kind));
        if let PoolEventKind::Opened { origin, .. } = happened.kind {
            ledger.opened += u32::from(origin != SessionOrigin::Spare);
        }
        if let PoolEventKind::Leased { kind, .. } = happened.kind {
            ledger.misses += u32::from(kind == AcquireKind::Miss);
            ledger.waits += u32::from(kind == AcquireKind::Waited);
        }
        ledger.ended += u32::from(matches!(happened.kind, PoolEventKind::Closed { .. }));
        ledger.evicted += u32::from(matches!(happened.kind, PoolEventKind::KeyEvicted));
    }

    fn client_profile_id(&self, _: &Setup) -> ClientProfileId {
        ClientProfileId(Digest::new([3; 16]))
    }

    fn wanted_spares(&self, setup: &Setup) -> u32 {
        self.manner(setup).spares
    }

    fn max_sessions(&self, setup: &Setup) -> Option<u32> {
        self.manner(setup).max_sessions
    }

    fn needs_permit(&self, _: &FakeSession) -> bool {
        self.manners.lock().values().all(|manner| manner.holds_room)
    }
}

/// A pool with fake servers behind it.
pub(crate) struct World {
    pub(crate) fake: Arc<Fake>,
    pub(crate) pool: Pool<Fake>,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(EngineLimits::default())
    }

    pub(crate) fn with(ceilings: EngineLimits) -> Self {
        let fake = Arc::new(Fake::default());
        let pool = Pool::new(Arc::clone(&fake), ceilings);
        Self { fake, pool }
    }

    /// How a server behaves from now on.
    pub(crate) fn server(&self, name: &str, change: impl FnOnce(&mut Manner)) {
        let mut manners = self.fake.manners.lock();
        change(manners.entry(name.to_owned()).or_default());
    }

    /// The cell of a run.
    pub(crate) fn run(&self, server: &str, run: u8) -> Arc<PoolEntry<Fake>> {
        let scope = KeyScope::Run(RunId(Digest::new([run; 16])));
        let policy = EntryPolicy {
            end_condition: EndCondition::WithRunEnd,
            ..SHARED
        };
        self.cell(&key(server, run, scope, Transport::Http), policy)
    }

    /// The cell of an identity whose calls go side by side.
    pub(crate) fn shared(&self, server: &str, who: u8) -> Arc<PoolEntry<Fake>> {
        self.cell(&key(server, who, SCOPE, Transport::Http), SHARED)
    }

    /// The cell of an identity with one call on each of its sessions.
    pub(crate) fn one_each(&self, server: &str, who: u8, max: u32) -> Arc<PoolEntry<Fake>> {
        let sharing = Sharing::OnePerCaller;
        let policy = EntryPolicy {
            sharing,
            max_sessions: max,
            ..SHARED
        };
        self.cell(&key(server, who, SCOPE, Transport::Http), policy)
    }

    pub(crate) fn cell(&self, key: &PoolKey, policy: EntryPolicy) -> Arc<PoolEntry<Fake>> {
        let server = key.target.server.to_string();
        self.pool.entry(key, || policy, || Setup { server })
    }

    pub(crate) fn shelf(&self, server: &str) -> (SpareKey, Arc<Setup>) {
        let key = key(server, 0, SCOPE, Transport::Http);
        let setup = Arc::new(Setup {
            server: server.to_owned(),
        });
        (
            SpareKey::for_key(&key, self.fake.client_profile_id(&setup)),
            setup,
        )
    }

    pub(crate) async fn lease(
        &self,
        entry: &Arc<PoolEntry<Fake>>,
    ) -> Result<Lease<Fake>, Diagnostic> {
        self.pool
            .lease(entry, LeaseMode::Shared, QueuePosition::Back, soon())
            .await
    }

    /// A lease as a task of its own.
    pub(crate) fn ask(
        &self,
        entry: &Arc<PoolEntry<Fake>>,
    ) -> tokio::task::JoinHandle<Result<Lease<Fake>, Diagnostic>> {
        let (pool, entry) = (self.pool.clone(), Arc::clone(entry));
        clock::spawn("ask", async move {
            pool.lease(&entry, LeaseMode::Shared, QueuePosition::Back, soon())
                .await
        })
    }

    pub(crate) async fn once(&self, server: &str) -> Result<Lease<Fake>, Diagnostic> {
        let (shelf, setup) = self.shelf(server);
        self.pool
            .lease_for_single_call(&shelf, &setup, owner(0), soon())
            .await
    }

    /// Waits until the pool has nothing to do, and checks that what it reported agrees with what
    /// there is.
    #[track_caller]
    pub(crate) fn settle(&self) -> impl Future<Output = PoolCount> {
        let caller = std::panic::Location::caller();
        async move {
            // An hour on the paused clock: every task that can end has ended.
            let until = clock::after(Duration::from_secs(3_600));
            let mut pause = Duration::from_millis(1);
            while self.pool.count().running_tasks > 0 && clock::now() < until {
                clock::sleep(pause).await;
                pause *= 2;
            }
            let census = self.pool.count();
            assert_eq!(
                census.running_tasks, 0,
                "{caller}: something never ends: {census:?}"
            );
            assert_eq!(census.invalid_events, 0, "{caller}");
            let held = census.gauges.counts.sessions() + census.gauges.spares;
            let ledger = self.fake.ledger();
            assert_eq!(held as usize, ledger.live.len(), "{caller}: {census:?}");
            assert_eq!(ledger.opened - ledger.ended, held, "{caller}: {census:?}");
            census
        }
    }
}

pub(crate) const SCOPE: KeyScope = KeyScope::Shared(ClientProfileId(Digest::new([3; 16])));

pub(crate) const SHARED: EntryPolicy = EntryPolicy {
    sharing: Sharing::SideBySide,
    max_sessions: 1,
    max_age: None,
    max_idle: None,
    check_after: Duration::from_secs(60),
    keep_alive: None,
    max_waiters: 1_024,
    stability: StabilityCriterion::FirstReply,
    end_condition: EndCondition::AtLimits,
};

pub(crate) const FINE: LeaseOutcome = LeaseOutcome::Answered { stateful: false };
pub(crate) const LEFT_STATE: LeaseOutcome = LeaseOutcome::Answered { stateful: true };

pub(crate) fn soon() -> Instant {
    clock::after(Duration::from_secs(30))
}

pub(crate) fn owner(who: u8) -> KeyOwner {
    KeyOwner::Identity(Identity(Digest::new([who; 16])))
}

pub(crate) fn key(server: &str, who: u8, scope: KeyScope, transport: Transport) -> PoolKey {
    let place = TargetKey {
        server: Arc::from(server),
        revision: ConfigRevision(Digest::new([1; 16])),
        era: Era::Legacy,
        transport,
    };
    PoolKey::new(place, owner(who), CredentialId(Digest::new([2; 16])), scope)
}
