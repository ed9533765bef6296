//! That we are about to go down, told to whoever sends us requests before nobody is taken any more.
//!
//! Told by: [`Gateway::leave`](crate::Gateway::leave).  Asked by: the page `/readyz`, which says no
//! from then on, and the door, whose answers close their connections, so that clients come back
//! where a balancer sends them (reliability O1). Where nobody asks whether we are ready, nobody
//! would notice, and nobody is waited for.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use warmline::clock::{self, Instant};

/// So long connections are still taken after `/readyz` says no.
const NOTICE: Duration = Duration::from_secs(3);
/// Who did not ask for so long does not watch us.
const WATCHES_FOR: Duration = Duration::from_secs(60);

/// Whether we are about to go, and whether anybody looks.
#[derive(Debug, Default)]
pub(crate) struct Departure {
    begun: AtomicBool,
    asked_at: Mutex<Option<Instant>>,
}

impl Departure {
    /// Somebody asks whether we are ready.
    pub(super) fn asked(&self) {
        *self.asked_at.lock() = Some(clock::now());
    }

    /// From now on we are not. So long whoever watches has to notice.
    pub(crate) fn begin(&self) -> Duration {
        self.begun.store(true, Ordering::Relaxed);
        let asked_at = *self.asked_at.lock();
        let is_watched = asked_at.is_some_and(|at| at.elapsed() < WATCHES_FOR);
        if is_watched { NOTICE } else { Duration::ZERO }
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_who_looks_is_given_time_to_notice() {
        let departure = Departure::default();
        assert!(!departure.has_begun());
        assert_eq!(departure.begin(), Duration::ZERO, "nobody looks");
        assert!(departure.has_begun());
        departure.asked();
        assert_eq!(departure.begin(), NOTICE);
        clock::sleep(WATCHES_FOR).await;
        assert_eq!(departure.begin(), Duration::ZERO, "nobody looks any more");
    }
}
