//! A connector that opens nothing: it counts, takes its time, and fails on request.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use warmline_core::code::Reason;
use warmline_core::era::Era;
use warmline_core::exchange::Trouble;
use warmline_core::key::{
    CredentialId, DeclaredId, Digest, Identity, Key, Owner, Place, Revision, RunId, Scope,
    Transport,
};
use warmline_core::policy::Ceilings;

use super::super::tally::Census;
use super::super::*;
use crate::clock::{self, Instant};
use crate::sync::Mutex;
use warmline_core::pool::{Health, Outcome, Proof};

/// What a server does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manner {
    pub(crate) open_takes: Duration,
    pub(crate) open_fails: Option<Reason>,
    pub(crate) close_takes: Duration,
    pub(crate) check_takes: Duration,
    pub(crate) health: Health,
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
            health: Health::Alive,
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
    pub(crate) closed: Vec<(u32, Why)>,
    pub(crate) replaced: Vec<u32>,
    pub(crate) news: Vec<String>,
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

    async fn open(&self, order: &Order<Self>) -> Result<Arc<FakeSession>, Trouble> {
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
            return Err(Trouble::new(reason, "it does not want to"));
        }
        let mut ledger = self.ledger.lock();
        ledger.live.insert(id);
        ledger.most_live = ledger.most_live.max(ledger.live.len());
        Ok(Arc::new(FakeSession {
            id,
            dead: AtomicBool::new(false),
        }))
    }

    async fn move_in(&self, order: &Order<Self>, session: Arc<FakeSession>) -> Opened<FakeSession> {
        let manner = self.manner(&order.setup);
        assert!(!manner.panics_moving_in, "its record makes openings panic");
        Opened::of(session)
    }

    async fn check(&self, _: &Arc<FakeSession>, setup: &Arc<Setup>) -> Health {
        self.ledger.lock().checks += 1;
        let manner = self.manner(setup);
        clock::sleep(manner.check_takes).await;
        manner.health
    }

    async fn close(
        &self,
        session: Arc<FakeSession>,
        setup: &Arc<Setup>,
        _: Option<&Key>,
        why: Why,
    ) {
        clock::sleep(self.manner(setup).close_takes).await;
        let mut ledger = self.ledger.lock();
        assert!(ledger.live.remove(&session.id), "closed twice");
        ledger.closed.push((session.id, why));
    }

    fn is_usable(&self, session: &FakeSession) -> bool {
        !session.dead.load(Ordering::Relaxed)
    }

    fn happened(&self, _: &Setup, happened: &Happened<'_>) {
        let mut ledger = self.ledger.lock();
        ledger.news.push(format!("{:?}", happened.what));
    }

    fn declared(&self, _: &Setup) -> DeclaredId {
        DeclaredId(Digest::new([3; 16]))
    }

    fn spares(&self, setup: &Setup) -> u32 {
        self.manner(setup).spares
    }

    fn max_sessions(&self, setup: &Setup) -> Option<u32> {
        self.manner(setup).max_sessions
    }

    fn holds_room(&self, _: &FakeSession) -> bool {
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
        Self::with(Ceilings::default())
    }

    pub(crate) fn with(ceilings: Ceilings) -> Self {
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
    pub(crate) fn run(&self, server: &str, run: u8) -> Arc<CellOf<Fake>> {
        let scope = Scope::Run(RunId(Digest::new([run; 16])));
        let policy = CellPolicy {
            ends: Ends::WithRun,
            ..SHARED
        };
        self.cell(&key(server, run, scope, Transport::Http), policy)
    }

    /// The cell of an identity whose calls go side by side.
    pub(crate) fn shared(&self, server: &str, who: u8) -> Arc<CellOf<Fake>> {
        self.cell(&key(server, who, SCOPE, Transport::Http), SHARED)
    }

    /// The cell of an identity with one call on each of its sessions.
    pub(crate) fn one_each(&self, server: &str, who: u8, max: u32) -> Arc<CellOf<Fake>> {
        let sharing = Sharing::OneEach;
        let policy = CellPolicy {
            sharing,
            max,
            ..SHARED
        };
        self.cell(&key(server, who, SCOPE, Transport::Http), policy)
    }

    pub(crate) fn cell(&self, key: &Key, policy: CellPolicy) -> Arc<CellOf<Fake>> {
        let server = key.place().server.to_string();
        self.pool.cell(key, || policy, || Setup { server })
    }

    pub(crate) fn shelf(&self, server: &str) -> (SpareKey, Arc<Setup>) {
        let key = key(server, 0, SCOPE, Transport::Http);
        let setup = Arc::new(Setup {
            server: server.to_owned(),
        });
        (SpareKey::of(&key, self.fake.declared(&setup)), setup)
    }

    pub(crate) async fn lease(&self, cell: &Arc<CellOf<Fake>>) -> Result<Lease<Fake>, Trouble> {
        self.pool.lease(cell, Want::Shared, soon()).await
    }

    /// A lease as a task of its own.
    pub(crate) fn ask(
        &self,
        cell: &Arc<CellOf<Fake>>,
    ) -> tokio::task::JoinHandle<Result<Lease<Fake>, Trouble>> {
        let (pool, cell) = (self.pool.clone(), Arc::clone(cell));
        clock::spawn("ask", async move {
            pool.lease(&cell, Want::Shared, soon()).await
        })
    }

    pub(crate) async fn once(&self, server: &str) -> Result<Lease<Fake>, Trouble> {
        let (shelf, setup) = self.shelf(server);
        self.pool.once(&shelf, &setup, owner(0), soon()).await
    }

    /// Waits until the pool has nothing to do, and checks that counters and recount agree.
    #[track_caller]
    pub(crate) fn settle(&self) -> impl Future<Output = Census> {
        let caller = std::panic::Location::caller();
        async move {
            // An hour on the paused clock: every task that can end has ended.
            let until = clock::after(Duration::from_secs(3_600));
            let mut pause = Duration::from_millis(1);
            while self.pool.census().errands > 0 && clock::now() < until {
                clock::sleep(pause).await;
                pause *= 2;
            }
            let census = self.pool.census();
            assert_eq!(
                census.errands, 0,
                "{caller}: something never ends: {census:?}"
            );
            assert_eq!(census.present, self.pool.stats().present, "{caller}");
            assert_eq!(census.mistakes, 0, "{caller}");
            let held = census.present.counts.sessions() + census.present.spares;
            let live = self.fake.ledger().live.len();
            assert_eq!(held as usize, live, "{caller}: {census:?}");
            census
        }
    }
}

pub(crate) const SCOPE: Scope = Scope::Shared(DeclaredId(Digest::new([3; 16])));

pub(crate) const SHARED: CellPolicy = CellPolicy {
    sharing: Sharing::SideBySide,
    max: 1,
    max_age: None,
    max_idle: None,
    check_after: Duration::from_secs(60),
    keep_alive: None,
    waiters: 1_024,
    proof: Proof::Serving,
    ends: Ends::ByLimits,
};

pub(crate) const FINE: Outcome = Outcome::Fine { left_state: false };
pub(crate) const LEFT_STATE: Outcome = Outcome::Fine { left_state: true };

pub(crate) fn soon() -> Instant {
    clock::after(Duration::from_secs(30))
}

pub(crate) fn owner(who: u8) -> Owner {
    Owner::Identity(Identity(Digest::new([who; 16])))
}

pub(crate) fn key(server: &str, who: u8, scope: Scope, transport: Transport) -> Key {
    let place = Place {
        server: Arc::from(server),
        revision: Revision(Digest::new([1; 16])),
        era: Era::Legacy,
        transport,
    };
    Key::of(place, owner(who), CredentialId(Digest::new([2; 16])), scope)
}
