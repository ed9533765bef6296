//! Strangers: addresses from which requests came that nobody was let in with.
//!
//! Asked by: [`limits`](super::limits), before what a request shows is looked at closely. Bounded,
//! and forgotten after a minute; while there are none it costs a look at one number.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::RwLock;
use warmline::clock::{self, Instant};

/// Addresses from which requests came that nobody was let in with.
pub(super) struct Strangers {
    begun: Instant,
    /// How many there are, so that most requests need no lock.
    known: AtomicUsize,
    /// When all of them are over, in milliseconds since the beginning.
    over_at: AtomicU64,
    by_address: RwLock<HashMap<IpAddr, Seen>>,
}

struct Seen {
    since: Instant,
    times: u32,
}

const MINUTE: Duration = Duration::from_mins(1);
/// So many addresses are remembered.
const MAX_ADDRESSES: usize = 10_000;

impl Default for Strangers {
    fn default() -> Self {
        Self {
            begun: clock::now(),
            known: AtomicUsize::new(0),
            over_at: AtomicU64::new(0),
            by_address: RwLock::default(),
        }
    }
}

impl Strangers {
    pub(super) fn are_many(&self, from: IpAddr, most: u32) -> bool {
        if self.known.load(Ordering::Relaxed) == 0 {
            return false;
        }
        if self.millis(Duration::ZERO) >= self.over_at.load(Ordering::Relaxed) {
            self.sweep();
        }
        let by_address = self.by_address.read();
        by_address
            .get(&from)
            .is_some_and(|seen| !seen.is_over() && seen.times >= most)
    }

    /// Forgets those that are over.
    fn sweep(&self) {
        let mut by_address = self.by_address.write();
        by_address.retain(|_, seen| !seen.is_over());
        self.known.store(by_address.len(), Ordering::Relaxed);
    }

    /// What the clock will show after this time.
    fn millis(&self, after: Duration) -> u64 {
        let age = clock::now().saturating_duration_since(self.begun) + after;
        u64::try_from(age.as_millis()).unwrap_or(u64::MAX)
    }

    pub(super) fn note(&self, from: IpAddr) {
        let mut by_address = self.by_address.write();
        if by_address.len() >= MAX_ADDRESSES {
            by_address.retain(|_, seen| !seen.is_over());
        }
        // So many at once is no guessing at tokens of one of them.
        if by_address.len() >= MAX_ADDRESSES {
            by_address.clear();
        }
        let seen = by_address.entry(from).or_insert_with(Seen::now);
        if seen.is_over() {
            *seen = Seen::now();
        }
        seen.times = seen.times.saturating_add(1);
        self.known.store(by_address.len(), Ordering::Relaxed);
        self.over_at.store(self.millis(MINUTE), Ordering::Relaxed);
    }
}

impl Seen {
    fn now() -> Self {
        Self {
            since: clock::now(),
            times: 0,
        }
    }

    fn is_over(&self) -> bool {
        clock::now().saturating_duration_since(self.since) >= MINUTE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

    #[tokio::test(start_paused = true)]
    async fn strangers_are_forgotten_after_a_minute() {
        let strangers = Strangers::default();
        let are_many = |from| strangers.are_many(from, 2);
        strangers.note(HERE);
        assert!(!are_many(HERE));
        strangers.note(HERE);
        assert!(are_many(HERE));
        assert!(!are_many(IpAddr::from([192, 0, 2, 2])));
        tokio::time::advance(MINUTE).await;
        assert!(!are_many(HERE));
        let known = strangers.known.load(Ordering::Relaxed);
        assert_eq!(known, 0, "nobody takes a lock for those who are over");
    }

    #[tokio::test]
    async fn addresses_that_are_remembered_have_an_end() {
        let strangers = Strangers::default();
        for number in 0..30_000_u32 {
            strangers.note(IpAddr::from(number.to_be_bytes()));
        }
        assert!(strangers.by_address.read().len() <= MAX_ADDRESSES);
    }
}
