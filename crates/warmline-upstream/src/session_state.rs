//! What each driver keeps of a session and its calls: deadlines, request ids, and whether the session
//! is retired.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use warmline_core::error::code::Reason;
use warmline_core::exchange::Deadlines;

use warmline_platform::clock::{self, Instant};

#[derive(Clone, Copy, Debug)]
pub(crate) struct CallTimer {
    deadlines: Deadlines,
    idle_deadline: Instant,
    pub(crate) total_deadline: Instant,
}

impl CallTimer {
    pub(crate) fn start(deadlines: Deadlines) -> Self {
        Self {
            deadlines,
            idle_deadline: clock::after(deadlines.idle),
            total_deadline: clock::after(deadlines.total),
        }
    }

    pub(crate) fn reset_idle(&mut self) {
        self.idle_deadline = clock::after(self.deadlines.idle);
    }

    pub(crate) fn next_deadline(&self) -> Instant {
        self.idle_deadline.min(self.total_deadline)
    }
}

/// The request ids of one session. They are not reused even after a restart that resumes the session:
/// each process counts up from a random start.
#[derive(Debug)]
pub(crate) struct RequestIdGenerator(AtomicU64);

impl RequestIdGenerator {
    pub(crate) fn new() -> Self {
        // Far below 2^53, where JSON numbers stop being exact.
        Self(AtomicU64::new(fastrand::u64(1..1 << 48)))
    }

    pub(crate) fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

/// Why a session may not be used any more. Set once, by the exchange that saw the reason: one whose
/// state is in doubt is not used again. One byte, because there are very many sessions.
#[derive(Debug, Default)]
pub(crate) struct Retirement(AtomicU8);

impl Retirement {
    /// No new call may use the session. The first reason stays.
    pub(crate) fn set(&self, reason: Reason) {
        let place = Reason::ALL.iter().position(|known| *known == reason);
        let mark = u8::try_from(place.unwrap_or(0) + 1).unwrap_or(u8::MAX);
        // A lost race means that another exchange set it.
        let (relaxed, first) = (Ordering::Relaxed, 0);
        self.0.compare_exchange(first, mark, relaxed, relaxed).ok();
    }

    /// None while the session may be used.
    pub(crate) fn get(&self) -> Option<Reason> {
        let mark = usize::from(self.0.load(Ordering::Relaxed));
        Reason::ALL.get(mark.checked_sub(1)?).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_limit_of_any_size_is_a_limit() {
        let endless = Deadlines {
            idle: std::time::Duration::MAX,
            total: std::time::Duration::MAX,
        };
        let mut limits = CallTimer::start(endless);
        limits.reset_idle();
        assert!(limits.next_deadline() > clock::now());
    }

    #[test]
    fn ids_are_never_reused_and_stay_exact_in_json() {
        let ids = RequestIdGenerator::new();
        let first = ids.next();
        assert_eq!(ids.next(), first + 1);
        assert!(first < 1 << 53);
    }
}
