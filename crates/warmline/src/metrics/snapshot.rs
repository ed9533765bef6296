//! Snapshots: what all numbers were at one moment, and which sessions and runs there were.
//!
//! Asked by: people (`warm.snapshot()`), status pages, tests.  Told by: [`super::Metrics`] for the
//! numbers, the engine for the lists. Identities, runs and session ids stand here as fingerprints:
//! nothing in a snapshot opens anything.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use super::numbers::{CountBy, CountByTwo, Counter, Level, LevelBy};
use super::spread::{Spread, SpreadRead};
use super::{BreakerScope, ClosedSet, EngineMetrics, ServerLine, ServerMetrics, SessionState};
use crate::events::{Fingerprint, ShortId};

/// A store that failed within this time is degraded: records are renewed once a minute, so that one
/// that still fails says so again.
const LATELY: Duration = Duration::from_secs(150);

/// What there was at one moment.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Snapshot {
    /// Numbers that belong to no server.
    pub engine: Vec<Number>,
    /// Numbers of each server, by name.
    pub servers: Vec<ServerNumbers>,
    /// Each declared server as it stands, by name.
    pub standing: Vec<ServerLine>,
    /// Open sessions.
    pub sessions: Vec<SessionLine>,
    /// Live runs.
    pub runs: Vec<RunLine>,
}

/// The numbers of one server.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct ServerNumbers {
    /// The server's name.
    pub server: Arc<str>,
    /// Its numbers. A counter with labels stands here only for labels it was counted under.
    pub numbers: Vec<Number>,
}

/// One number with its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Number {
    /// The name of the metric.
    pub name: &'static str,
    /// The words it is counted under, in the order of the metric's labels.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub words: Vec<&'static str>,
    /// What it is.
    pub value: Value,
}

/// What a number is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum Value {
    /// A count or a level.
    Count(u64),
    /// How values are spread.
    Spread(SpreadRead),
}

/// One open session.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct SessionLine {
    /// The server's name.
    pub server: Arc<str>,
    /// The server's id for it, as a short digest; none where there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<ShortId>,
    /// Whose it is; none for everybody's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identity: Option<Fingerprint>,
    /// The run it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<Fingerprint>,
    /// The number of its key, in this process.
    pub key: u64,
    /// Which session of its key it is.
    pub generation: u32,
    /// What it is doing.
    pub state: SessionState,
    /// How its bytes travel.
    pub transport: &'static str,
    /// When it was opened, in seconds since 1970.
    pub opened_at: u64,
    /// When it was last used, in seconds since 1970.
    pub used_at: u64,
    /// When it expires, in seconds since 1970, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<u64>,
    /// Calls under way on it.
    pub calls: u32,
}

impl SessionLine {
    /// A session that is idle and never was used; what is known of it is filled in by its fields.
    pub fn new(server: Arc<str>, generation: u32, transport: &'static str, opened_at: u64) -> Self {
        Self {
            server,
            session: None,
            identity: None,
            run: None,
            key: 0,
            generation,
            state: SessionState::Idle,
            transport,
            opened_at,
            used_at: opened_at,
            expires_at: None,
            calls: 0,
        }
    }
}

/// One live run.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct RunLine {
    /// The run.
    pub run: Fingerprint,
    /// Whose it is.
    pub identity: Fingerprint,
    /// When it began, in seconds since 1970.
    pub began_at: u64,
    /// When it was last used, in seconds since 1970.
    pub used_at: u64,
    /// Sessions it has.
    pub sessions: u32,
    /// Calls under way in it.
    pub calls: u32,
}

impl RunLine {
    /// A run that was not used yet.
    pub const fn new(run: Fingerprint, identity: Fingerprint, began_at: u64) -> Self {
        Self {
            run,
            identity,
            began_at,
            used_at: began_at,
            sessions: 0,
            calls: 0,
        }
    }
}

impl Snapshot {
    pub(super) fn of(engine: &EngineMetrics, servers: &[Arc<ServerMetrics>]) -> Self {
        Self {
            engine: engine_numbers(engine),
            servers: servers
                .iter()
                .map(|metrics| ServerNumbers {
                    server: Arc::clone(metrics.server()),
                    numbers: server_numbers(metrics),
                })
                .collect(),
            ..Self::default()
        }
    }

    /// The numbers of a server.
    pub fn server(&self, name: &str) -> Option<&ServerNumbers> {
        self.servers.iter().find(|numbers| &*numbers.server == name)
    }

    /// A count or level of the engine; 0 if it was never counted.
    pub fn count(&self, name: &str, words: &[&str]) -> u64 {
        find(&self.engine, name, words)
    }
}

impl ServerNumbers {
    /// A count or level; 0 if it was never counted.
    pub fn count(&self, name: &str, words: &[&str]) -> u64 {
        find(&self.numbers, name, words)
    }
}

fn find(numbers: &[Number], name: &str, words: &[&str]) -> u64 {
    let found = numbers
        .iter()
        .find(|number| number.name == name && number.words == words);
    match found.map(|number| &number.value) {
        Some(Value::Count(count)) => *count,
        Some(Value::Spread(spread)) => spread.count,
        None => 0,
    }
}

fn engine_numbers(metrics: &EngineMetrics) -> Vec<Number> {
    let mut list = List::default();
    list.level("runs", &metrics.runs);
    list.spread("run_sessions", &metrics.sessions_per_run);
    list.level("keys", &metrics.keys);
    list.counter("keys_evicted_total", &metrics.keys_evicted);
    list.level("sessions_limit", &metrics.sessions_limit);
    list.level("children_limit", &metrics.children_limit);
    list.counter("invariant_failed_total", &metrics.broken_promises);
    list.counter("drift_total", &metrics.drift);
    list.0
}

fn server_numbers(metrics: &ServerMetrics) -> Vec<Number> {
    let mut list = List::default();
    session_numbers(&mut list, metrics);
    call_numbers(&mut list, metrics);
    rest_of_numbers(&mut list, metrics);
    list.0
}

fn session_numbers(list: &mut List, metrics: &ServerMetrics) {
    list.by("acquires_total", &metrics.acquires);
    list.levels("sessions", &[], &metrics.sessions);
    list.by("opens_total", &metrics.opens);
    list.spread("open_seconds", &metrics.open_time);
    list.by_two("reinits_total", &metrics.heals);
    list.by("session_gone_total", &metrics.gone);
    list.spread("session_gone_age_seconds", &metrics.gone_age);
    list.by("checks_total", &metrics.checks);
    list.spread("check_seconds", &metrics.check_time);
    list.by("closes_total", &metrics.closes);
    let scopes = [
        (BreakerScope::Server, &metrics.server_breakers),
        (BreakerScope::Identity, &metrics.identity_breakers),
    ];
    for (scope, levels) in scopes {
        list.levels("breaker_state", &[scope.word()], levels);
    }
    list.by_two("breaker_changes_total", &metrics.breaker_changes);
    list.level("cooldown_seconds", &metrics.pause);
    list.counter("orphans_possible_total", &metrics.orphans_possible);
    list.counter("isolation_violation_total", &metrics.isolation_violations);
}

fn call_numbers(list: &mut List, metrics: &ServerMetrics) {
    list.level("waiters", &metrics.waiters);
    list.spread("wait_seconds", &metrics.wait_time);
    list.counter("wait_timeouts_total", &metrics.wait_timeouts);
    list.by("refused_total", &metrics.refusals);
    // Ends are read before begins: a call in between must not make the difference negative.
    let ended = metrics.fates.total();
    let under_way = metrics.calls_begun.count().saturating_sub(ended);
    list.push("calls_under_way", Vec::new(), Value::Count(under_way));
    list.by("calls_total", &metrics.fates);
    list.by_two("call_outcomes_total", &metrics.calls);
    list.by_two("call_failures_total", &metrics.failures);
    list.spread("call_seconds", &metrics.call_time);
    list.spread("overhead_seconds", &metrics.own_time);
    list.counter("attempts_total", &metrics.attempts);
    list.by("resends_total", &metrics.resends);
    list.counter("questions_refused_total", &metrics.questions_refused);
    list.counter("notices_withheld_total", &metrics.notices_withheld);
    list.spread("lease_seconds", &metrics.lease_time);
    list.counter("leases_over_warn_total", &metrics.long_leases);
}

fn rest_of_numbers(list: &mut List, metrics: &ServerMetrics) {
    list.level("children", &metrics.children);
    list.counter("child_starts_total", &metrics.child_starts);
    list.counter("child_restarts_total", &metrics.child_restarts);
    list.by("child_exits_total", &metrics.child_ends);
    list.counter("orphans_killed_total", &metrics.orphans_killed);
    list.by_two("store_operations_total", &metrics.store);
    list.spread("store_seconds", &metrics.store_time);
    let is_degraded = metrics.store_failed.was_within(LATELY);
    let degraded = Value::Count(u64::from(is_degraded));
    list.push("store_degraded", Vec::new(), degraded);
    list.by("credential_refreshes_total", &metrics.refreshes);
}

/// Numbers as they are read, one after the other.
#[derive(Default)]
struct List(Vec<Number>);

impl List {
    fn push(&mut self, name: &'static str, words: Vec<&'static str>, value: Value) {
        self.0.push(Number { name, words, value });
    }

    fn counter(&mut self, name: &'static str, counter: &Counter) {
        self.push(name, Vec::new(), Value::Count(counter.count()));
    }

    fn level(&mut self, name: &'static str, level: &Level) {
        self.push(name, Vec::new(), Value::Count(level.level()));
    }

    fn spread(&mut self, name: &'static str, spread: &Spread) {
        self.push(name, Vec::new(), Value::Spread(spread.read()));
    }

    fn by<W: ClosedSet>(&mut self, name: &'static str, counters: &CountBy<W>) {
        for word in W::ALL {
            let count = counters.count(*word);
            if count > 0 {
                self.push(name, vec![word.word()], Value::Count(count));
            }
        }
    }

    fn by_two<V: ClosedSet, W: ClosedSet>(
        &mut self,
        name: &'static str,
        counters: &CountByTwo<V, W>,
    ) {
        for first in V::ALL {
            for second in W::ALL {
                let count = counters.count(*first, *second);
                if count > 0 {
                    let words = vec![first.word(), second.word()];
                    self.push(name, words, Value::Count(count));
                }
            }
        }
    }

    fn levels<W: ClosedSet>(
        &mut self,
        name: &'static str,
        before: &[&'static str],
        levels: &LevelBy<W>,
    ) {
        for word in W::ALL {
            let words = before.iter().copied().chain([word.word()]).collect();
            self.push(name, words, Value::Count(levels.level(*word)));
        }
    }
}
