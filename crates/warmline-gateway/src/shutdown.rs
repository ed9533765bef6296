//! Shutdown: the notice before a drain.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use warmline_platform::clock::{self, Instant};

/// How long connections are still accepted after `/readyz` says no.
const NOTICE_PERIOD: Duration = Duration::from_secs(3);
/// Without a probe for this long, nobody watches `/readyz`.
const PROBE_WINDOW: Duration = Duration::from_secs(60);

/// Waits until no new work is accepted. A dropped sender means the same.
pub(crate) async fn wait_for_stop(stopping: &mut watch::Receiver<bool>) {
    stopping.wait_for(|stop| *stop).await.map(drop).ok();
}

/// The announcement of a drain. From then on `/readyz` says no and each response closes its
/// connection, so that a balancer sends clients elsewhere (reliability O1).
#[derive(Debug, Default)]
pub(crate) struct DrainNotice {
    pub(crate) announced: AtomicBool,
    last_probe: Mutex<Option<Instant>>,
}

impl DrainNotice {
    pub(crate) fn record_probe(&self) {
        *self.last_probe.lock() = Some(clock::now());
    }

    /// Announces the drain, and returns how long to wait for the watcher to notice.
    pub(crate) fn announce(&self) -> Duration {
        self.announced.store(true, Ordering::Relaxed);
        let probed_at = *self.last_probe.lock();
        match probed_at.is_some_and(|at| at.elapsed() < PROBE_WINDOW) {
            true => NOTICE_PERIOD,
            false => Duration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_drain_waits_for_a_watcher_alone() {
        let notice = DrainNotice::default();
        assert!(!notice.announced.load(Ordering::Relaxed));
        assert_eq!(notice.announce(), Duration::ZERO, "no probe");
        assert!(notice.announced.load(Ordering::Relaxed));
        notice.record_probe();
        assert_eq!(notice.announce(), NOTICE_PERIOD);
        clock::sleep(PROBE_WINDOW).await;
        assert_eq!(notice.announce(), Duration::ZERO, "no recent probe");
    }
}
