//! The state of an engine at one moment: sessions, runs, servers and metrics. Taking a snapshot also
//! sets the gauges that are counted on demand.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use warmline_core::pool::breaker::{Blame, BreakerState};
use warmline_core::pool_key::Transport;
use warmline_core::time::Tick;

use super::Engine;
use crate::identity::{Fingerprint, ShortId};
use crate::metrics::{
    BreakerScope, RunStatus, ServerCondition, ServerMetrics, ServerStatus, SessionState,
    SessionStatus, Snapshot,
};
use crate::run_state::RunState;
use crate::server_state::ServerState;
use warmline_platform::clock;
use warmline_pool::SpareCounts;

pub(crate) fn engine_snapshot(engine: &Engine) -> Snapshot {
    let shared = &engine.context;
    let wall = clock::wall_seconds();
    // Sessions are timed by the pool's clock, runs by the engine's.
    let (now, pool_now) = (engine.tick(), engine.pool.tick());
    let mut sessions = Vec::new();
    let before = |now: Tick, tick: Tick| wall.saturating_sub(now.duration_since(tick).as_secs());
    let mut tallies: HashMap<Arc<str>, ServerTally> = HashMap::new();
    for entry in engine.pool.entries() {
        let key = &entry.key;
        let tally = tallies.entry(Arc::clone(&key.target.server)).or_default();
        let (counts, closing, _) = entry.counts();
        tally.opening += u64::from(counts.opening);
        tally.closing += u64::from(counts.retiring + closing);
        tally.waiting += u64::from(counts.waiting);
        for seen in entry.sessions() {
            let from_now = |tick: Tick| wall + tick.duration_since(pool_now).as_secs();
            let (state, count) = match seen.leases {
                0 => (SessionState::Idle, &mut tally.idle),
                _ => (SessionState::Active, &mut tally.active),
            };
            *count += 1;
            let line = SessionStatus {
                server: Arc::clone(&key.target.server),
                session: seen.session.session_id().map(ShortId::from_session_id),
                identity: Fingerprint::from_owner(key.owner),
                run: key.run().map(Fingerprint::from),
                key: entry.number,
                generation: seen.generation.number(),
                state,
                transport: key.target.transport.as_str(),
                opened_at: before(pool_now, seen.opened_at),
                used_at: before(pool_now, seen.last_used),
                expires_at: seen.expires_at.map(from_now),
                calls: seen.leases,
            };
            tally.children += u64::from(key.target.transport == Transport::Stdio);
            sessions.push(line);
        }
    }
    let standing = server_statuses(engine, tallies);
    let (numbers, ceilings) = (&shared.metrics.engine, engine.context.limits);
    let keys = engine.pool.key_count();
    numbers.keys.set(u64::try_from(keys).unwrap_or(u64::MAX));
    numbers.sessions_limit.set(u64::from(ceilings.sessions));
    numbers.children_limit.set(u64::from(ceilings.processes));
    let mut snapshot = shared.metrics.snapshot();
    snapshot.server_statuses = standing;
    snapshot.sessions = sessions;
    let at = |tick: Tick| before(now, tick);
    let runs = engine.live_runs();
    snapshot.runs = runs.iter().map(|live| run_status(live, at)).collect();
    snapshot
}

/// The status of each declared server, with spares and breakers. Sets its gauges too.
fn server_statuses(
    engine: &Engine,
    mut tallies: HashMap<Arc<str>, ServerTally>,
) -> Vec<ServerStatus> {
    for shelf in engine.pool.spares().counts() {
        let tally = tallies.entry(Arc::clone(&shelf.server)).or_default();
        tally.add_spares(&shelf);
    }
    for (server, scope, state, pause) in engine.pool.blocking_breakers() {
        let tally = tallies.entry(server).or_default();
        tally.add_breaker(scope, state, pause);
    }
    let mut standing = Vec::new();
    for entry in engine.servers.load().values() {
        let tally = tallies.remove(&entry.name).unwrap_or_default();
        tally.update_metrics(&entry.metrics);
        standing.push(tally.build_server_status(entry));
    }
    standing.sort_by(|one, other| one.server.cmp(&other.server));
    standing
}

/// The status of a live run; `at` converts to wall-clock seconds.
fn run_status(live: &RunState, at: impl Fn(Tick) -> u64) -> RunStatus {
    let life = live.life();
    RunStatus {
        run: Fingerprint::from(live.id),
        identity: Fingerprint::from(live.identity.id),
        began_at: at(live.began_at),
        used_at: at(life.last_used),
        sessions: u32::try_from(live.own_entries().len()).unwrap_or(u32::MAX),
        calls: life.calls,
    }
}

#[derive(Default)]
struct ServerTally {
    opening: u64,
    idle: u64,
    active: u64,
    closing: u64,
    spare: u64,
    children: u64,
    waiting: u64,
    /// Breakers of the server, and of identities: open and half open.
    server_breakers: [u64; 2],
    identity_breakers: [u64; 2],
    /// How long openings pause for everybody.
    pause: Option<Duration>,
}

impl ServerTally {
    fn add_spares(&mut self, shelf: &SpareCounts) {
        self.opening += u64::from(shelf.opening);
        self.spare += u64::from(shelf.idle);
        if shelf.transport == Transport::Stdio {
            self.children += u64::from(shelf.idle);
        }
    }

    fn add_breaker(&mut self, scope: Blame, state: BreakerState, pause: Option<Duration>) {
        let [open, half_open] = match scope {
            Blame::Identity => &mut self.identity_breakers,
            Blame::Server | Blame::Nobody => {
                self.pause = self.pause.max(pause);
                &mut self.server_breakers
            },
        };
        match state {
            BreakerState::Open => *open += 1,
            BreakerState::HalfOpen => *half_open += 1,
            BreakerState::Closed => {},
        }
    }

    fn update_metrics(&self, metrics: &ServerMetrics) {
        metrics.sessions.set(SessionState::Opening, self.opening);
        metrics.sessions.set(SessionState::Idle, self.idle);
        metrics.sessions.set(SessionState::Active, self.active);
        metrics.sessions.set(SessionState::Closing, self.closing);
        metrics.sessions.set(SessionState::Spare, self.spare);
        metrics.children.set(self.children);
        metrics.waiters.set(self.waiting);
        // A pause of half a second is not none.
        let pause = self.pause.map_or(0, |pause| millis(pause).div_ceil(1000));
        metrics.breaker_pause.set(pause);
        for (scope, [tripped, probing]) in [
            (BreakerScope::Server, self.server_breakers),
            (BreakerScope::Identity, self.identity_breakers),
        ] {
            metrics.breakers.set(scope, BreakerState::Open, tripped);
            metrics.breakers.set(scope, BreakerState::HalfOpen, probing);
        }
    }

    fn build_server_status(&self, entry: &ServerState) -> ServerStatus {
        let legs = entry.known_server_profiles();
        let mut eras: Vec<&'static str> = legs.iter().map(|leg| leg.era.as_str()).collect();
        eras.sort_unstable();
        eras.dedup();
        let last_failure = entry.last_failure();
        let is_untried = legs.is_empty() && last_failure.is_none();
        ServerStatus {
            server: Arc::clone(&entry.name),
            state: if entry.check_enabled().is_err() {
                ServerCondition::Off
            } else if self.server_breakers != [0; 2] {
                ServerCondition::BreakerOpen
            } else if !entry.is_healthy() {
                ServerCondition::Degraded
            } else if is_untried && entry.discovery_flights.is_busy() {
                ServerCondition::Trying
            } else if is_untried {
                ServerCondition::Untried
            } else {
                ServerCondition::Ok
            },
            required: entry.settings.load().policy.required,
            transport: legs.first().map(|leg| leg.transport.as_str()),
            eras,
            keeps_session: legs.iter().map(|leg| leg.has_sessions).max(),
            sessions: self.idle + self.active,
            spares: self.spare,
            children: self.children,
            calls: entry.metrics.calls_under_way(),
            waiters: self.waiting,
            identities_paused: self.identity_breakers.iter().sum(),
            retry_in_ms: self.pause.map(millis),
            last_failure,
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
