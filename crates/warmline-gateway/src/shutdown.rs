//! Shutdown: the notice before a drain, and the responses that a stop waits for.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
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
    announced: AtomicBool,
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

    pub(crate) fn is_announced(&self) -> bool {
        self.announced.load(Ordering::Relaxed)
    }
}

/// Responses whose calls are over and whose clients have yet to read all of them.
#[derive(Debug, Default)]
pub(crate) struct UnfinishedResponses {
    count: AtomicU64,
    /// Once calls are cut, what their clients are sent is no response to wait for.
    calls_cut: AtomicBool,
}

impl UnfinishedResponses {
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    pub(crate) fn mark_calls_cut(&self) {
        self.calls_cut.store(true, Ordering::Relaxed);
    }

    pub(crate) fn are_calls_cut(&self) -> bool {
        self.calls_cut.load(Ordering::Relaxed)
    }
}

#[derive(Debug)]
pub(crate) struct UnfinishedResponseGuard<'a> {
    responses: &'a UnfinishedResponses,
    is_counted: bool,
}

impl<'a> UnfinishedResponseGuard<'a> {
    pub(crate) const fn new(responses: &'a UnfinishedResponses) -> Self {
        Self {
            responses,
            is_counted: false,
        }
    }

    pub(crate) fn set_unfinished(&mut self, is_unfinished: bool) {
        if is_unfinished == self.is_counted {
            return;
        }
        self.is_counted = is_unfinished;
        match is_unfinished {
            true => self.responses.count.fetch_add(1, Ordering::Relaxed),
            false => self.responses.count.fetch_sub(1, Ordering::Relaxed),
        };
    }
}

impl Drop for UnfinishedResponseGuard<'_> {
    fn drop(&mut self) {
        self.set_unfinished(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_drain_waits_for_a_watcher_alone() {
        let notice = DrainNotice::default();
        assert!(!notice.is_announced());
        assert_eq!(notice.announce(), Duration::ZERO, "no probe");
        assert!(notice.is_announced());
        notice.record_probe();
        assert_eq!(notice.announce(), NOTICE_PERIOD);
        clock::sleep(PROBE_WINDOW).await;
        assert_eq!(notice.announce(), Duration::ZERO, "no recent probe");
    }
}
