//! The ages at which a server ends its sessions, and when a new one is better replaced.
//!
//! Asked by: openings.  Told by: calls that meet a dropped session, and calls that are answered: that
//! costs one atomic read where nothing was learnt, as nearly everywhere.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use warmline_core::pool::lifetimes::Lifetimes;
use warmline_core::tick::Tick;

use super::Entry;
use crate::sync::Mutex;

/// What was seen of the ages of a server's sessions.
#[derive(Debug, Default)]
pub(super) struct Ages {
    seen: Mutex<Lifetimes>,
    /// The age, in nanoseconds, of a session that lives against what was learnt; zero if nothing was.
    outlived_from: AtomicU64,
}

impl Ages {
    fn learn(&self, learn: impl FnOnce(&mut Lifetimes)) {
        let mut seen = self.seen.lock();
        learn(&mut seen);
        let from = seen.outlived_from().map_or(0, |from| from.as_nanos());
        let from = u64::try_from(from).unwrap_or(u64::MAX);
        self.outlived_from.store(from, Ordering::Relaxed);
    }
}

impl Entry {
    /// The server dropped a session of this age.
    pub(crate) fn note_dropped(&self, age: Duration, now: Tick) {
        self.metrics.gone_age.took(age);
        self.ages.learn(|seen| seen.ended(age, now));
    }

    /// A session answered. How old it is matters only where an age was learnt.
    pub(crate) fn note_lives(&self, age: impl FnOnce() -> Duration) {
        let from = self.ages.outlived_from.load(Ordering::Relaxed);
        if from > 0 {
            let age = age();
            if age >= Duration::from_nanos(from) {
                self.ages.learn(|seen| seen.lived(age));
            }
        }
    }

    /// When a new session is better replaced: a little before the server ends it, as it says
    /// itself, or as its last sessions were seen to end, all at about the same age.
    pub(crate) fn renew_in(&self, stated: Option<Duration>, now: Tick) -> Option<Duration> {
        let seen = self.ages.seen.lock().rule(now);
        let ends = match (stated, seen) {
            (Some(stated), Some(seen)) => stated.min(seen),
            (one, other) => one.or(other)?,
        };
        Some(ends - ends / 10)
    }
}
