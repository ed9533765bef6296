//! A value that is fetched once for any number of callers, kept, and fetched again only when a caller
//! needs a newer one.
//!
//! Fetches run in their own task with a time limit, so that a caller that gives up takes nothing from
//! the others. All callers that wait learn of a failure; it is not kept, and the next caller fetches
//! again.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use tokio::task::JoinHandle;
use warmline_core::error::code::Reason;
use warmline_core::exchange::Diagnostic;

use crate::single_flight::SingleFlight;
use warmline_platform::clock::{self, Instant};
use warmline_platform::lock::Mutex;

/// A value, and the fetch under way.
#[derive(Debug)]
pub(crate) struct RefreshableValue<T> {
    /// What is fetched, for people: "the credential of `github`".
    subject: String,
    reason: Reason,
    timeout: Duration,
    current: ArcSwapOption<VersionedValue<T>>,
    fetches: SingleFlight<(), FetchResult<T>>,
    /// No fetch ahead of time begins before then: the last fetch failed. `current` changes under this
    /// lock, so that its numbers only grow.
    paused_until: Mutex<Option<Instant>>,
}

/// A value and its number.
#[derive(Debug)]
pub(crate) struct VersionedValue<T> {
    pub(crate) value: T,
    /// The first has number 1.
    pub(crate) epoch: u64,
    /// The number of the first equal value in a row.
    pub(crate) unchanged_since: u64,
}

type FetchResult<T> = Result<Arc<VersionedValue<T>>, Diagnostic>;

impl<T: PartialEq + Send + Sync + 'static> RefreshableValue<T> {
    pub(crate) fn new(whom: String, reason: Reason, within: Duration) -> Arc<Self> {
        Arc::new(Self {
            subject: whom,
            reason,
            timeout: within,
            current: ArcSwapOption::empty(),
            fetches: SingleFlight::default(),
            paused_until: Mutex::default(),
        })
    }

    /// The current value.
    pub(crate) fn current(&self) -> Option<Arc<VersionedValue<T>>> {
        self.current.load_full()
    }

    /// Reads the current value without cloning it.
    pub(crate) fn with_current<R>(&self, look: impl FnOnce(&VersionedValue<T>) -> R) -> Option<R> {
        self.current.load().as_deref().map(look)
    }

    /// The number of the current value; 0 before the first.
    pub(crate) fn epoch(&self) -> u64 {
        self.with_current(|held| held.epoch).unwrap_or(0)
    }

    /// Sets a value that was read without a fetch. An equal value changes nothing.
    pub(crate) fn set_if_changed(&self, value: T) {
        if self.with_current(|held| held.value == value) != Some(true) {
            let _lock = self.paused_until.lock();
            self.store_next(value);
        }
    }

    /// A newer value than number `seen`: the current one, one that is being fetched, or one fetched
    /// now.
    pub(crate) async fn get_newer_than<F>(
        self: &Arc<Self>,
        seen: u64,
        ask: impl FnOnce() -> F,
    ) -> FetchResult<T>
    where
        F: Future<Output = Result<T, Diagnostic>> + Send + 'static,
    {
        if let Some(held) = self.newer_than(seen) {
            return Ok(held);
        }
        let fetch = || Arc::clone(self).fetch(seen, ask());
        let fetched = self.fetches.join_or_start("asking", (), fetch).await;
        fetched.unwrap_or_else(|| Err(self.diagnostic("broke off")))
    }

    /// Fetches ahead of time, unless a fetch is under way. Nobody waits for it.
    pub(crate) fn refresh_ahead<F>(self: &Arc<Self>, seen: u64, ask: impl FnOnce() -> F)
    where
        F: Future<Output = Result<T, Diagnostic>> + Send + 'static,
    {
        let paused_until = *self.paused_until.lock();
        if self.epoch() <= seen && paused_until.is_none_or(|until| clock::now() >= until) {
            let fetch = || Some(Arc::clone(self).fetch(seen, ask()));
            drop(self.fetches.join("asking", &(), fetch));
        }
    }

    /// Stops the fetch under way. Its task can be waited for.
    pub(crate) fn stop(&self) -> Option<JoinHandle<()>> {
        let stopped = Err(self.diagnostic("broke off"));
        self.fetches.stop(&(), stopped)
    }

    fn newer_than(&self, seen: u64) -> Option<Arc<VersionedValue<T>>> {
        self.current().filter(|held| held.epoch > seen)
    }

    async fn fetch(
        self: Arc<Self>,
        seen: u64,
        ask: impl Future<Output = Result<T, Diagnostic>> + Send,
    ) -> FetchResult<T> {
        // Another fetch may have ended since the caller looked.
        if let Some(held) = self.newer_than(seen) {
            return Ok(held);
        }
        let answer = clock::timeout(self.timeout, ask).await;
        let answer = answer.unwrap_or_else(|clock::Elapsed| {
            Err(self.diagnostic(&format!("gave no answer in {:?}", self.timeout)))
        });
        let mut paused_until = self.paused_until.lock();
        *paused_until = answer.is_err().then(|| clock::after(FAILED_FETCH_PAUSE));
        answer.map(|value| self.store_next(value))
    }

    /// Called under the lock of `paused_until`.
    fn store_next(&self, value: T) -> Arc<VersionedValue<T>> {
        let last = self.current.load();
        let epoch = last.as_ref().map_or(0, |last| last.epoch) + 1;
        let since = match last.as_ref() {
            Some(last) if last.value == value => last.unchanged_since,
            Some(_) | None => epoch,
        };
        let held = Arc::new(VersionedValue {
            value,
            epoch,
            unchanged_since: since,
        });
        self.current.store(Some(Arc::clone(&held)));
        held
    }

    fn diagnostic(&self, what: &str) -> Diagnostic {
        Diagnostic::new(self.reason, format!("{} {what}", self.subject))
    }
}

/// The pause after a failed fetch ahead of time.
const FAILED_FETCH_PAUSE: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests;
