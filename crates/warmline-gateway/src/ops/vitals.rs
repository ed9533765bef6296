//! How the process itself does: whether its loop turns, and how far it is from the wall.
//!
//! Asked by: [`ops`](super), when somebody looks.  Told by: a beat of its own, once a second.

use std::sync::Weak;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use warmline::clock::{self, Instant};
use warmline::metrics::Counter;

/// So often the heart beats.
const EVERY: Duration = Duration::from_secs(1);
/// A heart that did not beat for so long does not.
const DEAD_AFTER: Duration = Duration::from_secs(5);

/// The wall clock tells whole seconds; what differs by more than this between two beats was a jump.
const JUMP: Duration = Duration::from_secs(2);

/// The heart of a gateway.
#[derive(Debug)]
pub(crate) struct Vitals {
    begun: Instant,
    /// When it began, in seconds since 1970.
    pub(crate) since: u64,
    /// When it last beat, in milliseconds since it began.
    beat: AtomicU64,
    /// How late that was, in microseconds.
    lag: AtomicU64,
    /// How often the wall clock jumped.
    pub(crate) jumps: Counter,
}

impl Default for Vitals {
    fn default() -> Self {
        Self {
            begun: clock::now(),
            since: clock::wall_seconds(),
            beat: AtomicU64::new(0),
            lag: AtomicU64::new(0),
            jumps: Counter::default(),
        }
    }
}

impl Vitals {
    /// Whether the loop turns.
    pub(crate) fn are_good(&self) -> bool {
        let beat = Duration::from_millis(self.beat.load(Ordering::Relaxed));
        self.age().saturating_sub(beat) < DEAD_AFTER
    }

    /// How late the last beat was.
    pub(crate) fn lag(&self) -> Duration {
        Duration::from_micros(self.lag.load(Ordering::Relaxed))
    }

    fn age(&self) -> Duration {
        clock::now().saturating_duration_since(self.begun)
    }

    fn beat(&self, lag: Duration) {
        let now = u64::try_from(self.age().as_millis()).unwrap_or(u64::MAX);
        self.beat.store(now, Ordering::Relaxed);
        let lag = u64::try_from(lag.as_micros()).unwrap_or(u64::MAX);
        self.lag.store(lag, Ordering::Relaxed);
    }

    /// The clocks were read again.
    fn looked(&self, before: Clocks, now: Clocks) {
        if let Some(seconds) = now.jumped_since(before) {
            self.jumps.one_more();
            tracing::warn!(seconds, "the wall clock jumped");
        }
    }
}

/// What both clocks say at one moment.
#[derive(Clone, Copy, Debug)]
struct Clocks {
    steady: Instant,
    /// In seconds since 1970.
    wall: u64,
}

impl Clocks {
    fn now() -> Self {
        Self {
            steady: clock::now(),
            wall: clock::wall_seconds(),
        }
    }

    /// By how many seconds the wall clock went further than time itself; none if it went along.
    fn jumped_since(self, before: Self) -> Option<i64> {
        let passed = self.steady.saturating_duration_since(before.steady);
        let due = before.wall.saturating_add(passed.as_secs());
        let jumped = Duration::from_secs(self.wall.abs_diff(due)) > JUMP;
        jumped.then(|| {
            let by = i64::try_from(self.wall.abs_diff(due)).unwrap_or(i64::MAX);
            if self.wall < due { -by } else { by }
        })
    }
}

/// Beats until nobody is left to hear it.
pub(crate) async fn beat<T: Send + Sync>(whose: Weak<T>, vitals: fn(&T) -> &Vitals) {
    let mut before = Clocks::now();
    loop {
        let due = clock::after(EVERY);
        clock::sleep_until(due).await;
        let Some(whose) = whose.upgrade() else { return };
        let now = Clocks::now();
        let vitals = vitals(&whose);
        vitals.beat(now.steady.saturating_duration_since(due));
        vitals.looked(before, now);
        before = now;
    }
}

/// What the system says of the process; nothing where it says nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Process {
    pub(crate) memory: Option<u64>,
    pub(crate) descriptors: Option<u64>,
    pub(crate) descriptors_limit: Option<u64>,
}

impl Process {
    /// What it says now. Reads files: not for the loop.
    pub(crate) fn now() -> Self {
        Self {
            memory: memory(),
            descriptors: descriptors(),
            descriptors_limit: rustix::process::getrlimit(rustix::process::Resource::Nofile)
                .current,
        }
    }
}

/// The resident memory, in bytes.
fn memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes << 10)
}

fn descriptors() -> Option<u64> {
    let open = std::fs::read_dir("/proc/self/fd").ok()?.count();
    // The folder itself is open while it is read.
    u64::try_from(open.saturating_sub(1)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    /// reliability O6: a loop that does not turn is not alive.
    #[tokio::test(start_paused = true)]
    async fn a_heart_that_stops_is_noticed_after_five_seconds() {
        let vitals = Arc::new(Vitals::default());
        let beating = clock::spawn("beat", beat(Arc::downgrade(&vitals), |vitals| vitals));
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(vitals.are_good());
        beating.abort();
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert!(vitals.are_good());
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert!(!vitals.are_good());
    }

    /// reliability O22: a wall clock that is set, or that went on while the machine slept, is
    /// counted; one that is corrected a little, and a beat that is late, is not.
    #[test]
    fn a_wall_clock_that_jumps_is_counted() {
        let vitals = Vitals::default();
        let begun = clock::now();
        let at = |millis: u64, wall: u64| Clocks {
            steady: begun + Duration::from_millis(millis),
            wall: 1_000_000 + wall,
        };
        for (passed, wall, jumped) in [
            (1000, 1, None),
            (1999, 2, None),
            (1000, 0, None),
            (30_000, 30, None),
            (1000, 3, None),
            (1000, 4, Some(3)),
            (1000, 3601, Some(3600)),
            (9000, 1, Some(-8)),
        ] {
            let before = vitals.jumps.count();
            vitals.looked(at(0, 0), at(passed, wall));
            assert_eq!(
                at(passed, wall).jumped_since(at(0, 0)),
                jumped,
                "{passed} {wall}"
            );
            assert_eq!(vitals.jumps.count() - before, u64::from(jumped.is_some()));
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_system_says_how_large_the_process_is() {
        let process = Process::now();
        assert!(process.memory.is_some_and(|bytes| bytes > 1 << 20));
        assert!(process.descriptors.is_some_and(|open| open > 0));
    }
}
