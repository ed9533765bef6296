//! What an engine looks like at one moment: its sessions, runs, servers and numbers.
//!
//! Asked by: [`Engine::snapshot`].  Nothing here changes anything but the levels that are counted
//! when somebody looks.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use warmline_core::key::Transport;
use warmline_core::pool::breaker::{Blame, Stance};
use warmline_core::tick::Tick;

use crate::clock;
use crate::engine::Engine;
use crate::entry::Entry;
use crate::events::Fingerprint;
use crate::metrics::{
    BreakerState, RunLine, ServerLine, ServerMetrics, ServerState, SessionLine, SessionState,
    Snapshot,
};
use crate::pool::OnShelf;
use crate::run::RunShared;

/// What is open, counted and known at this moment.
pub(crate) fn snapshot(engine: &Engine) -> Snapshot {
    let shared = engine.shared();
    let wall = clock::wall_seconds();
    // Sessions are timed by the pool's clock, runs by the engine's.
    let (now, pool_now) = (engine.tick(), engine.pool().tick());
    let mut sessions = Vec::new();
    let before = |now: Tick, tick: Tick| wall.saturating_sub(now.since(tick).as_secs());
    let mut tallies: HashMap<Arc<str>, Tally> = HashMap::new();
    for cell in engine.pool().cells() {
        let key = cell.key();
        let tally = tallies.entry(Arc::clone(&key.place().server)).or_default();
        let (counts, closing, _) = cell.counts();
        tally.opening += u64::from(counts.opening);
        tally.closing += u64::from(counts.retiring + closing);
        tally.waiting += u64::from(counts.waiting);
        for seen in cell.sessions() {
            let mut line = SessionLine::new(
                Arc::clone(&key.place().server),
                seen.generation.number(),
                key.place().transport.word(),
                before(pool_now, seen.opened),
            );
            line.identity = Fingerprint::of_owner(key.owner());
            line.run = key.run().map(Fingerprint::from);
            line.key = cell.number();
            line.used_at = before(pool_now, seen.used);
            line.expires_at = seen
                .expires
                .map(|tick| wall + tick.since(pool_now).as_secs());
            line.calls = seen.leases;
            line.state = if seen.leases > 0 {
                SessionState::Active
            } else {
                SessionState::Idle
            };
            tally.add(&line, key.place().transport);
            line.session = seen.session.session_id().map(crate::events::ShortId::of);
            sessions.push(line);
        }
    }
    let standing = standing(engine, tallies);
    let present = engine.pool().stats().present;
    let (numbers, ceilings) = (&shared.metrics.engine, engine.ceilings());
    numbers.keys.set(u64::from(present.keys));
    numbers.sessions_limit.set(u64::from(ceilings.sessions));
    numbers.children_limit.set(u64::from(ceilings.processes));
    let mut snapshot = shared.metrics.snapshot();
    snapshot.standing = standing;
    snapshot.sessions = sessions;
    let at = |tick: Tick| before(now, tick);
    let runs = engine.live_runs();
    snapshot.runs = runs.iter().map(|live| run_line(live, at)).collect();
    snapshot
}

/// Each declared server as it stands, with what is opened ahead and what pauses. The levels of its
/// metrics follow.
fn standing(engine: &Engine, mut tallies: HashMap<Arc<str>, Tally>) -> Vec<ServerLine> {
    for shelf in engine.pool().on_shelves() {
        let tally = tallies.entry(Arc::clone(&shelf.server)).or_default();
        tally.add_spares(&shelf);
    }
    for (server, whom, stance) in engine.pool().blocking() {
        tallies.entry(server).or_default().blocks(whom, stance);
    }
    for (server, pause) in engine.pool().pauses() {
        let tally = tallies.entry(server).or_default();
        tally.pause = tally.pause.max(Some(pause));
    }
    let mut standing = Vec::new();
    for entry in engine.entries().values() {
        let tally = tallies.remove(&entry.name).unwrap_or_default();
        tally.show(&entry.metrics);
        standing.push(tally.line(entry));
    }
    standing.sort_by(|one, other| one.server.cmp(&other.server));
    standing
}

/// A live run as people see it; `at` tells a moment of the engine by the wall's clock.
fn run_line(live: &RunShared, at: impl Fn(Tick) -> u64) -> RunLine {
    let life = live.life();
    let mut line = RunLine::new(
        Fingerprint::from(live.id),
        Fingerprint::from(live.who.id),
        at(live.began),
    );
    line.used_at = at(life.used());
    line.calls = life.calls();
    line.sessions = u32::try_from(live.own_cells().len()).unwrap_or(u32::MAX);
    line
}

/// The sessions of one server, by what they are doing.
#[derive(Default)]
struct Tally {
    opening: u64,
    idle: u64,
    active: u64,
    closing: u64,
    spare: u64,
    children: u64,
    waiting: u64,
    /// Breakers of the server, and of single identities there: tripped, and probing.
    server_breakers: [u64; 2],
    identity_breakers: [u64; 2],
    /// How long openings pause for everybody.
    pause: Option<Duration>,
}

impl Tally {
    fn add(&mut self, line: &SessionLine, transport: Transport) {
        if line.calls > 0 {
            self.active += 1;
        } else {
            self.idle += 1;
        }
        if transport == Transport::Stdio {
            self.children += 1;
        }
    }

    fn add_spares(&mut self, shelf: &OnShelf) {
        self.opening += u64::from(shelf.opening);
        self.spare += u64::from(shelf.resting);
        if shelf.transport == Transport::Stdio {
            self.children += u64::from(shelf.resting);
        }
    }

    fn blocks(&mut self, whom: Blame, stance: Stance) {
        let [tripped, probing] = match whom {
            Blame::Identity => &mut self.identity_breakers,
            Blame::Server | Blame::Nobody => &mut self.server_breakers,
        };
        match stance {
            Stance::Tripped => *tripped += 1,
            Stance::Probing => *probing += 1,
            Stance::Passing => {},
        }
    }

    fn show(&self, metrics: &ServerMetrics) {
        metrics.sessions.set(SessionState::Opening, self.opening);
        metrics.sessions.set(SessionState::Idle, self.idle);
        metrics.sessions.set(SessionState::Active, self.active);
        metrics.sessions.set(SessionState::Closing, self.closing);
        metrics.sessions.set(SessionState::Spare, self.spare);
        metrics.children.set(self.children);
        metrics.waiters.set(self.waiting);
        // A pause of half a second is not none.
        let pause = self.pause.map_or(0, |pause| millis(pause).div_ceil(1000));
        metrics.pause.set(pause);
        for (levels, [tripped, probing]) in [
            (&metrics.server_breakers, self.server_breakers),
            (&metrics.identity_breakers, self.identity_breakers),
        ] {
            levels.set(BreakerState::Tripped, tripped);
            levels.set(BreakerState::Probing, probing);
        }
    }

    /// The server as it stands.
    fn line(&self, entry: &Entry) -> ServerLine {
        let legs = entry.known_legs();
        let mut eras: Vec<&'static str> = legs.iter().map(|leg| leg.era.word()).collect();
        eras.sort_unstable();
        eras.dedup();
        let last_failure = entry.last_failure();
        let is_untried = legs.is_empty() && last_failure.is_none();
        let metrics = &entry.metrics;
        let ended = metrics.fates.total();
        ServerLine {
            server: Arc::clone(&entry.name),
            state: if entry.check_enabled().is_err() {
                ServerState::Off
            } else if self.server_breakers != [0; 2] {
                ServerState::BreakerOpen
            } else if !entry.does_well() {
                ServerState::Degraded
            } else if is_untried && entry.contacting.is_anything_under_way() {
                ServerState::Trying
            } else if is_untried {
                ServerState::Untried
            } else {
                ServerState::Ok
            },
            required: entry.policy().required,
            transport: legs.first().map(|leg| leg.transport.word()),
            eras,
            keeps_session: legs.iter().map(|leg| leg.keeps_session).max(),
            sessions: self.idle + self.active,
            spares: self.spare,
            children: self.children,
            calls: metrics.calls_begun.count().saturating_sub(ended),
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
