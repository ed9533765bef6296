//! Failed authentications per address.
//!
//! Bounded, and forgotten after a minute. While there are none, a request reads one number.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::RwLock;
use warmline_platform::clock::{self, Instant};

const WINDOW: Duration = Duration::from_mins(1);
const MAX_ADDRESSES: usize = 10_000;

pub(super) struct AuthFailureCounts {
    started_at: Instant,
    /// When the last window ends, in milliseconds since the start; 0 before the first failure.
    all_expired_at: AtomicU64,
    by_address: RwLock<HashMap<IpAddr, AuthFailureWindow>>,
}

struct AuthFailureWindow {
    started_at: Instant,
    failures: u32,
}

impl Default for AuthFailureCounts {
    fn default() -> Self {
        Self {
            started_at: clock::now(),
            all_expired_at: AtomicU64::new(0),
            by_address: RwLock::default(),
        }
    }
}

impl AuthFailureCounts {
    pub(super) fn exceeds(&self, from: IpAddr, limit: u32) -> bool {
        let all_expired_at = self.all_expired_at.load(Ordering::Relaxed);
        if all_expired_at == 0 || self.millis_since_start(clock::now()) >= all_expired_at {
            return false;
        }
        let by_address = self.by_address.read();
        let window = by_address.get(&from).filter(|window| !window.is_expired());
        window.is_some_and(|window| window.failures >= limit)
    }

    fn millis_since_start(&self, at: Instant) -> u64 {
        let age = at.saturating_duration_since(self.started_at);
        u64::try_from(age.as_millis()).unwrap_or(u64::MAX)
    }

    pub(super) fn record(&self, from: IpAddr) {
        let now = clock::now();
        let mut by_address = self.by_address.write();
        if by_address.len() >= MAX_ADDRESSES {
            by_address.retain(|_, window| !window.is_expired());
        }
        // So many addresses at once do not guess the token of one caller.
        if by_address.len() >= MAX_ADDRESSES {
            by_address.clear();
        }
        let new = || AuthFailureWindow {
            started_at: now,
            failures: 0,
        };
        let window = by_address.entry(from).or_insert_with(new);
        if window.is_expired() {
            *window = new();
        }
        window.failures = window.failures.saturating_add(1);
        let all_expired_at = self.millis_since_start(now + WINDOW);
        self.all_expired_at.store(all_expired_at, Ordering::Relaxed);
    }
}

impl AuthFailureWindow {
    fn is_expired(&self) -> bool {
        self.started_at.elapsed() >= WINDOW
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

    #[tokio::test(start_paused = true)]
    async fn failures_are_forgotten_after_a_minute() {
        let counts = AuthFailureCounts::default();
        let exceeds = |from| counts.exceeds(from, 2);
        counts.record(ADDRESS);
        assert!(!exceeds(ADDRESS));
        counts.record(ADDRESS);
        assert!(exceeds(ADDRESS));
        assert!(!exceeds(IpAddr::from([192, 0, 2, 2])));
        tokio::time::advance(WINDOW).await;
        assert!(!exceeds(ADDRESS));
    }

    #[tokio::test]
    async fn remembered_addresses_are_bounded() {
        let counts = AuthFailureCounts::default();
        for number in 0..30_000_u32 {
            counts.record(IpAddr::from(number.to_be_bytes()));
        }
        assert!(counts.by_address.read().len() <= MAX_ADDRESSES);
    }
}
