//! Metrics: what happened how often and how long it took, by server and never by identity.
//!
//! Asked by: [`Snapshot`], for people and for the gateway's metrics page.  Told by: the engine,
//! at the places where things happen; a call adds a few atomic additions.
//!
//! A server's numbers are looked up once, when the server becomes known, and held by whoever
//! counts ([`Metrics::server`]): there is no lock and no map on the path of a call. All labels are
//! [closed sets](ClosedSet). M-numbers are those of the acceptance cases.

mod call;
mod closed_set;
mod labels;
mod names;
mod numbers;
mod own_time;
mod server_line;
mod snapshot;
mod spread;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use call::CallUnderWay;
pub(crate) use closed_set::closed_set;
pub use closed_set::{ClosedSet, Explained};
pub use labels::{
    Acquired, BreakerScope, BreakerState, CallFate, CallOutcome, CheckResult, ChildEnd, HealCause,
    HealResult, MethodWord, OpenResult, RefreshResult, Refusal, SessionState, StoreOperation,
    StoreResult,
};
pub use names::{Kind, METRICS, Metric};
pub use numbers::{CountBy, CountByTwo, Counter, LastTime, Level, LevelBy};
pub(crate) use own_time::OwnTime;
pub use server_line::{ServerFailure, ServerLine, ServerState};
pub use snapshot::{Number, RunLine, ServerNumbers, SessionLine, Snapshot, Value};
pub use spread::{Spread, SpreadRead, Unit};

use crate::sync::Mutex;
use warmline_core::code::{Code, Reason};
use warmline_core::delivery::Delivery;
use warmline_core::pool::Why;
use warmline_core::protocol::gone::Dialect;

/// All numbers of one engine.
#[derive(Debug, Default)]
pub struct Metrics {
    servers: Mutex<BTreeMap<Arc<str>, Shown>>,
    /// What belongs to no server.
    pub engine: EngineMetrics,
}

/// The numbers of a server, and why they are shown.
#[derive(Debug)]
struct Shown {
    numbers: Arc<ServerMetrics>,
    is_declared: bool,
    /// How many use a server of that name that is declared nowhere.
    passing: usize,
}

impl Metrics {
    /// The numbers of a server, made when it is first named. Hold on to them: this takes a lock.
    pub fn server(&self, name: &str) -> Arc<ServerMetrics> {
        self.shown(name, |shown| shown.is_declared = true)
    }

    /// The same for a server that is declared nowhere: shown until it has [passed](Self::passed).
    pub(crate) fn passing(&self, name: &str) -> Arc<ServerMetrics> {
        self.shown(name, |shown| shown.passing += 1)
    }

    fn shown(&self, name: &str, note: impl FnOnce(&mut Shown)) -> Arc<ServerMetrics> {
        let mut servers = self.servers.lock();
        if let Some(known) = servers.get_mut(name) {
            note(known);
            return Arc::clone(&known.numbers);
        }
        let name: Arc<str> = name.into();
        let numbers = Arc::new(ServerMetrics::new(Arc::clone(&name)));
        let mut made = Shown {
            numbers: Arc::clone(&numbers),
            is_declared: false,
            passing: 0,
        };
        note(&mut made);
        servers.insert(name, made);
        numbers
    }

    /// Shows a server's numbers no more: it was taken out. Whoever holds them may go on counting.
    pub fn forget(&self, name: &str) {
        self.hidden(name, |shown| shown.is_declared = false);
    }

    /// One of those who used a server that is declared nowhere is done with it.
    pub(crate) fn passed(&self, name: &str) {
        self.hidden(name, |shown| {
            shown.passing = shown.passing.saturating_sub(1);
        });
    }

    fn hidden(&self, name: &str, note: impl FnOnce(&mut Shown)) {
        let mut servers = self.servers.lock();
        let Some(shown) = servers.get_mut(name) else {
            return;
        };
        note(shown);
        if !shown.is_declared && shown.passing == 0 {
            servers.remove(name);
        }
    }

    /// What all numbers are now. The lists of sessions and runs are empty: the engine fills them.
    pub fn snapshot(&self) -> Snapshot {
        let servers = self.servers.lock();
        let numbers = servers.values().map(|shown| Arc::clone(&shown.numbers));
        let servers: Vec<Arc<ServerMetrics>> = numbers.collect();
        Snapshot::of(&self.engine, &servers)
    }
}

/// Numbers that belong to no server.
#[derive(Debug)]
pub struct EngineMetrics {
    /// M14: runs that are live.
    pub runs: Level,
    /// M14: sessions that a run had when it ended.
    pub sessions_per_run: Spread,
    /// M9: keys the pool knows.
    pub keys: Level,
    /// M9: keys that were empty for long and forgotten.
    pub keys_evicted: Counter,
    /// HTTP sessions that there may be.
    pub sessions_limit: Level,
    /// Child processes that there may be.
    pub children_limit: Level,
    /// Promises of ours that were broken. Must stay 0.
    pub broken_promises: Counter,
    /// Levels that were asked to go below zero. Must stay 0.
    pub drift: Counter,
}

impl Default for EngineMetrics {
    fn default() -> Self {
        Self {
            runs: Level::default(),
            sessions_per_run: Spread::of(Unit::Number),
            keys: Level::default(),
            keys_evicted: Counter::default(),
            sessions_limit: Level::default(),
            children_limit: Level::default(),
            broken_promises: Counter::default(),
            drift: Counter::default(),
        }
    }
}

/// All numbers of one server.
#[derive(Debug)]
pub struct ServerMetrics {
    server: Arc<str>,
    /// M1: how calls came by their sessions.
    pub acquires: CountBy<Acquired>,
    /// M2: sessions by what they are doing, spares apart.
    pub sessions: LevelBy<SessionState>,
    /// M3: openings by how they ended.
    pub opens: CountBy<OpenResult>,
    /// M3: how long openings took.
    pub open_time: Spread,
    /// M4: healings by what showed the loss, and how they ended.
    pub heals: CountByTwo<HealCause, HealResult>,
    /// M4: the forms in which the server said that a session is gone.
    pub gone: CountBy<Dialect>,
    /// M4: the age at which the server dropped sessions.
    pub gone_age: Spread,
    /// M5: checks by what they found.
    pub checks: CountBy<CheckResult>,
    /// M5: how long checks took.
    pub check_time: Spread,
    /// M6: closed sessions by why.
    pub closes: CountBy<Why>,
    /// M7: the server's breaker.
    pub server_breakers: LevelBy<BreakerState>,
    /// M7: breakers of single identities and their credentials that are not passing.
    pub identity_breakers: LevelBy<BreakerState>,
    /// M7: changes of breakers by scope and the state they went to.
    pub breaker_changes: CountByTwo<BreakerScope, BreakerState>,
    /// Seconds until an opening is tried again where they pause for everybody, else 0.
    pub pause: Level,
    /// M8: callers in line.
    pub waiters: Level,
    /// M8: how long callers stood in line.
    pub wait_time: Spread,
    /// M8: callers whose time was over while they stood in line.
    pub wait_timeouts: Counter,
    /// Calls that were turned away before they were sent.
    pub refusals: CountBy<Refusal>,
    /// Calls that began.
    pub calls_begun: Counter,
    /// M10: calls by method and how they ended.
    pub calls: CountByTwo<MethodWord, CallOutcome>,
    /// M10: how long calls took, attempts and waiting included.
    pub call_time: Spread,
    /// How long our own code ran for a call, all waiting apart.
    pub own_time: Spread,
    /// Calls by what is known of them. Their sum is the number of calls.
    pub fates: CountBy<CallFate>,
    /// Calls that ended with an error, by what is known of them and its code.
    pub failures: CountByTwo<Delivery, Code>,
    /// Attempts: requests that were handed to a session.
    pub attempts: Counter,
    /// Attempts after the first of their call, by why.
    pub resends: CountBy<Reason>,
    /// Questions that could be of calls of several callers, and were refused.
    pub questions_refused: Counter,
    /// Notices that could be of another identity's call, and were told to nobody.
    pub notices_withheld: Counter,
    /// How long leases were held.
    pub lease_time: Spread,
    /// Leases held longer than anybody should.
    pub long_leases: Counter,
    /// M11: children that live.
    pub children: Level,
    /// M11: children that were started.
    pub child_starts: Counter,
    /// M11: children that took the place of one that ended by itself.
    pub child_restarts: Counter,
    /// M11: children that ended, by how.
    pub child_ends: CountBy<ChildEnd>,
    /// Processes that outlived the child that started them, and were killed.
    pub orphans_killed: Counter,
    /// M12: what was asked of the store, and what it did.
    pub store: CountByTwo<StoreOperation, StoreResult>,
    /// M12: how long the store took.
    pub store_time: Spread,
    /// When the store last failed, or took too long.
    pub store_failed: LastTime,
    /// M13: what came of asking for a credential again.
    pub refreshes: CountBy<RefreshResult>,
    /// Handshakes that were sent and never answered: each may have left a session at the server.
    pub orphans_possible: Counter,
    /// Calls that met a session of another identity. Must stay 0.
    pub isolation_violations: Counter,
}

impl ServerMetrics {
    fn new(server: Arc<str>) -> Self {
        Self {
            server,
            acquires: CountBy::default(),
            sessions: LevelBy::default(),
            opens: CountBy::default(),
            open_time: Spread::of_time(),
            heals: CountByTwo::default(),
            gone: CountBy::default(),
            gone_age: Spread::of_time(),
            checks: CountBy::default(),
            check_time: Spread::of_time(),
            closes: CountBy::default(),
            server_breakers: LevelBy::default(),
            identity_breakers: LevelBy::default(),
            breaker_changes: CountByTwo::default(),
            pause: Level::default(),
            waiters: Level::default(),
            wait_time: Spread::of_time(),
            wait_timeouts: Counter::default(),
            refusals: CountBy::default(),
            calls_begun: Counter::default(),
            calls: CountByTwo::default(),
            call_time: Spread::of_time(),
            own_time: Spread::of(Unit::ShortTime),
            fates: CountBy::default(),
            failures: CountByTwo::default(),
            attempts: Counter::default(),
            resends: CountBy::default(),
            questions_refused: Counter::default(),
            notices_withheld: Counter::default(),
            lease_time: Spread::of_time(),
            long_leases: Counter::default(),
            children: Level::default(),
            child_starts: Counter::default(),
            child_restarts: Counter::default(),
            child_ends: CountBy::default(),
            orphans_killed: Counter::default(),
            store: CountByTwo::default(),
            store_time: Spread::of_time(),
            store_failed: LastTime::default(),
            refreshes: CountBy::default(),
            orphans_possible: Counter::default(),
            isolation_violations: Counter::default(),
        }
    }

    /// A breaker went from one state to another; one that is passing is not counted as being in
    /// any. Says whether the level it left held it.
    pub fn breaker_moved(&self, scope: BreakerScope, from: BreakerState, to: BreakerState) -> bool {
        self.breaker_changes.one_more(scope, to);
        let noted = |state: BreakerState| (state != BreakerState::Passing).then_some(state);
        let levels = match scope {
            BreakerScope::Server => &self.server_breakers,
            BreakerScope::Identity => &self.identity_breakers,
        };
        levels.moved(noted(from), noted(to))
    }

    /// The server's name.
    pub fn server(&self) -> &Arc<str> {
        &self.server
    }
}
