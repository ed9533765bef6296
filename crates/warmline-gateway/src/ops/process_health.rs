//! Health of the process: a heartbeat once a second, jumps of the wall clock, and its resources.

use std::sync::Weak;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use warmline_engine::metrics::Counter;
use warmline_platform::clock::{self, Instant};

const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(1);
/// Without a heartbeat for this long, the runtime is stuck.
const DEAD_AFTER: Duration = Duration::from_secs(5);
/// The wall clock is read in whole seconds: a smaller difference is no jump.
const MIN_CLOCK_JUMP: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(crate) struct ProcessHealth {
    started_at: Instant,
    pub(crate) started_at_seconds: u64,
    /// Milliseconds from the start to the last heartbeat.
    last_heartbeat: AtomicU64,
    lag: AtomicU64,
    pub(crate) clock_jumps: Counter,
}

impl Default for ProcessHealth {
    fn default() -> Self {
        Self {
            started_at: clock::now(),
            started_at_seconds: clock::wall_seconds(),
            last_heartbeat: AtomicU64::new(0),
            lag: AtomicU64::new(0),
            clock_jumps: Counter::default(),
        }
    }
}

impl ProcessHealth {
    pub(crate) fn is_alive(&self) -> bool {
        let beat = Duration::from_millis(self.last_heartbeat.load(Ordering::Relaxed));
        self.age().saturating_sub(beat) < DEAD_AFTER
    }

    pub(crate) fn lag(&self) -> Duration {
        Duration::from_micros(self.lag.load(Ordering::Relaxed))
    }

    fn age(&self) -> Duration {
        clock::now().saturating_duration_since(self.started_at)
    }

    fn record_heartbeat(&self, lag: Duration) {
        let now = u64::try_from(self.age().as_millis()).unwrap_or(u64::MAX);
        self.last_heartbeat.store(now, Ordering::Relaxed);
        let lag = u64::try_from(lag.as_micros()).unwrap_or(u64::MAX);
        self.lag.store(lag, Ordering::Relaxed);
    }

    fn compare_clocks(&self, before: ClockReading, now: ClockReading) {
        if let Some(seconds) = now.jumped_since(before) {
            self.clock_jumps.increment();
            tracing::warn!(seconds, "the wall clock jumped");
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct ClockReading {
    monotonic: Instant,
    wall: u64,
}

impl ClockReading {
    fn now() -> Self {
        Self {
            monotonic: clock::now(),
            wall: clock::wall_seconds(),
        }
    }

    fn jumped_since(self, before: Self) -> Option<i64> {
        let passed = self.monotonic.saturating_duration_since(before.monotonic);
        let expected = before.wall.saturating_add(passed.as_secs());
        let jumped = Duration::from_secs(self.wall.abs_diff(expected)) > MIN_CLOCK_JUMP;
        jumped.then(|| {
            let by = i64::try_from(self.wall.abs_diff(expected)).unwrap_or(i64::MAX);
            if self.wall < expected { -by } else { by }
        })
    }
}

pub(crate) async fn run_heartbeat(health: Weak<ProcessHealth>) {
    let mut before = ClockReading::now();
    loop {
        let due = clock::after(HEARTBEAT_INTERVAL);
        clock::sleep_until(due).await;
        let Some(health) = health.upgrade() else {
            return;
        };
        let now = ClockReading::now();
        health.record_heartbeat(now.monotonic.saturating_duration_since(due));
        health.compare_clocks(before, now);
        before = now;
    }
}

/// Resident memory, in bytes, where the system reports it.
pub(super) fn resident_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let mut lines = status.lines();
    let line = lines.find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes << 10)
}

pub(super) fn open_descriptors() -> Option<u64> {
    let open = std::fs::read_dir("/proc/self/fd").ok()?.count();
    // The folder itself is open meanwhile.
    u64::try_from(open.saturating_sub(1)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    /// reliability O6: a stuck runtime is not alive.
    #[tokio::test(start_paused = true)]
    async fn missing_heartbeats_are_noticed_after_five_seconds() {
        let health = Arc::new(ProcessHealth::default());
        let beating = clock::spawn("beat", run_heartbeat(Arc::downgrade(&health)));
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(health.is_alive());
        beating.abort();
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert!(health.is_alive());
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert!(!health.is_alive());
    }

    /// reliability O22: a wall clock that was set, or that went on while the machine slept, is
    /// counted; a small correction and a late heartbeat are not.
    #[test]
    fn a_wall_clock_that_jumps_is_counted() {
        let health = ProcessHealth::default();
        let begun = clock::now();
        let at = |millis: u64, wall: u64| ClockReading {
            monotonic: begun + Duration::from_millis(millis),
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
            let before = health.clock_jumps.count();
            health.compare_clocks(at(0, 0), at(passed, wall));
            assert_eq!(
                at(passed, wall).jumped_since(at(0, 0)),
                jumped,
                "{passed} {wall}"
            );
            assert_eq!(
                health.clock_jumps.count() - before,
                u64::from(jumped.is_some())
            );
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn resources_of_the_process_are_known() {
        assert!(resident_memory().is_some_and(|bytes| bytes > 1 << 20));
        assert!(open_descriptors().is_some_and(|open| open > 0));
    }
}
