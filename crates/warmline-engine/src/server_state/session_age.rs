//! The age at which a server drops its sessions, as it says or as it was seen, so that a session is
//! replaced a little before.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use warmline_core::pool::observed_lifetimes::ObservedLifetimes;
use warmline_core::time::Tick;

use super::ServerState;
use warmline_platform::lock::Mutex;

#[derive(Debug, Default)]
pub(super) struct SessionAges {
    lifetimes: Mutex<ObservedLifetimes>,
    /// The age in nanoseconds from which a live session contradicts the observation; zero if there is none.
    outlived_from: AtomicU64,
}

impl SessionAges {
    fn update_lifetimes(&self, learn: impl FnOnce(&mut ObservedLifetimes)) {
        let mut seen = self.lifetimes.lock();
        learn(&mut seen);
        let from = seen.survival_threshold().map_or(0, |from| from.as_nanos());
        let from = u64::try_from(from).unwrap_or(u64::MAX);
        self.outlived_from.store(from, Ordering::Relaxed);
    }
}

impl ServerState {
    /// The server dropped a session of this age.
    pub(crate) fn note_session_lost(&self, age: Duration, now: Tick) {
        self.metrics.session_gone_age.record_time(age);
        self.session_ages
            .update_lifetimes(|seen| seen.record_end(age, now));
    }

    /// A session answered. Its age matters only where a lifetime was observed.
    pub(super) fn note_session_alive(&self, age: impl FnOnce() -> Duration) {
        let from = self.session_ages.outlived_from.load(Ordering::Relaxed);
        if from > 0 {
            let age = age();
            if age >= Duration::from_nanos(from) {
                self.session_ages
                    .update_lifetimes(|seen| seen.record_survival(age));
            }
        }
    }

    /// When to replace a new session: a little before the lifetime that the server states, or that
    /// its last sessions had, if all ended at about the same age.
    pub(crate) fn renewal_after(&self, stated: Option<Duration>, now: Tick) -> Option<Duration> {
        let seen = self.session_ages.lifetimes.lock().expected_lifetime(now);
        let ends = match (stated, seen) {
            (Some(stated), Some(seen)) => stated.min(seen),
            (one, other) => one.or(other)?,
        };
        Some(ends - ends / 10)
    }
}
