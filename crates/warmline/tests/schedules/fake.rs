//! A connector that opens nothing, takes some turns for everything, and fails as chance will have
//! it. It notices what no pool may do: a session used by two, after its end, or ended twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use shuttle::rand::{Rng, thread_rng};
use warmline_core::code::Reason;
use warmline_core::era::Era;
use warmline_core::exchange::Trouble;
use warmline_core::key::{
    CredentialId, DeclaredId, Digest, Identity, Key, Owner, Place, Revision, RunId, Scope,
    Transport,
};
use warmline_core::pool::{CellPolicy, Ends, Health, Proof, Sharing, Why};

use crate::pool::{Connector, Happened, Opened, Order};

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
}

impl Fake {
    pub(crate) fn new(trouble: f64, spares: u32) -> Arc<Self> {
        Arc::new(Self {
            trouble,
            spares,
            live: AtomicU32::new(0),
            most_live: AtomicU32::new(0),
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

    async fn open(&self, order: &Order<Self>) -> Result<Arc<Session>, Trouble> {
        turns(4).await;
        if self.goes_wrong() {
            return Err(Trouble::new(Reason::ConnectRefused, "by chance"));
        }
        self.opened();
        let transport = order.key.as_ref().map(|key| key.place().transport);
        Ok(Arc::new(Session {
            is_process: transport == Some(Transport::Stdio),
            ..Session::default()
        }))
    }

    async fn move_in(&self, _: &Order<Self>, session: Arc<Session>) -> Opened<Session> {
        turns(1).await;
        Opened::of(session)
    }

    async fn check(&self, session: &Arc<Session>, _: &Arc<()>) -> Health {
        turns(2).await;
        if !self.goes_wrong() {
            return Health::Alive;
        }
        let found = [Health::Gone, Health::Silent, Health::Unreachable];
        let found = found[thread_rng().gen_range(0..found.len())];
        if found == Health::Gone {
            self.gone(session);
        }
        found
    }

    async fn close(&self, session: Arc<Session>, _: &Arc<()>, _: Option<&Key>, why: Why) {
        turns(3).await;
        let twice = session.closed.swap(true, Ordering::Relaxed);
        assert!(!twice, "ended twice");
        let cut = matches!(why, Why::RunEnded | Why::Drained);
        let callers = session.callers.load(Ordering::Relaxed);
        assert!(cut || callers == 0, "ended under {callers} callers: {why}");
        if session.is_forgotten_now() {
            self.live.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn is_usable(&self, session: &Session) -> bool {
        !session.dead.load(Ordering::Relaxed)
    }

    fn happened(&self, (): &(), _: &Happened<'_>) {}

    fn declared(&self, (): &()) -> DeclaredId {
        DeclaredId(Digest::new([3; 16]))
    }

    fn spares(&self, (): &()) -> u32 {
        self.spares
    }
}

pub(crate) fn key(number: u8, ends: Ends) -> Key {
    key_at(Transport::Http, number, ends)
}

pub(crate) fn key_at(transport: Transport, number: u8, ends: Ends) -> Key {
    let place = Place {
        server: Arc::from("server"),
        revision: Revision(Digest::new([1; 16])),
        era: Era::Legacy,
        transport,
    };
    let digest = Digest::new([number; 16]);
    let scope = match ends {
        Ends::WithRun => Scope::Run(RunId(digest)),
        Ends::ByLimits => Scope::Shared(DeclaredId(Digest::new([3; 16]))),
    };
    let owner = Owner::Identity(Identity(digest));
    Key::of(place, owner, CredentialId(Digest::new([2; 16])), scope)
}

pub(crate) fn policy(sharing: Sharing, ends: Ends, max: u32) -> CellPolicy {
    let secs = std::time::Duration::from_secs;
    CellPolicy {
        sharing,
        max,
        max_age: Some(secs(600)),
        max_idle: Some(secs(300)),
        check_after: secs(60),
        keep_alive: Some(secs(120)),
        waiters: 16,
        proof: Proof::Serving,
        ends,
    }
}
