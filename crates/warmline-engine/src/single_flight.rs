//! Single flight: any number of callers, one piece of work, one result for all; and values that are
//! fetched so, kept, and fetched again only when a caller needs a newer one.
//!
//! The work runs in its own task, so a caller that gives up takes nothing from the others. Results of
//! work are not kept: a caller that comes after the result starts again. All callers that wait learn of
//! a failed fetch; it is not kept, and the next caller fetches again.

use std::collections::HashMap;
use std::future::Future;
use std::hash::Hash;
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use warmline_core::error::code::Reason;
use warmline_core::exchange::Diagnostic;

use warmline_platform::clock::{self, Instant, RuntimeHandle};
use warmline_platform::lock::Mutex;

#[derive(Debug)]
pub(crate) struct SingleFlight<K, T>(Arc<Mutex<FlightMap<K, T>>>);

type FlightMap<K, T> = HashMap<K, InFlightWork<T>>;

#[derive(Debug)]
struct InFlightWork<T> {
    /// Each caller that waits has a receiver.
    result_sender: Arc<watch::Sender<Option<T>>>,
    /// None for the moment before it is started.
    task: Option<JoinHandle<()>>,
    home: Option<RuntimeHandle>,
}

pub(crate) struct JoinedFlight<T> {
    result: watch::Receiver<Option<T>>,
    id: FlightId<T>,
    /// The runtime that it runs on, unless it is the caller's.
    foreign_home: Option<RuntimeHandle>,
}

/// Identifies work without keeping it alive.
type FlightId<T> = Weak<watch::Sender<Option<T>>>;

impl<K, T> Default for SingleFlight<K, T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<K, T> SingleFlight<K, T>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    T: Clone + Send + Sync + 'static,
{
    pub(crate) fn is_busy(&self) -> bool {
        !self.0.lock().is_empty()
    }

    /// Cancels work that no caller waits for. A caller that joins at this moment starts it again.
    pub(crate) fn cancel_orphaned(&self) {
        let unwanted: Vec<_> = {
            let under_way = self.0.lock();
            let flights = under_way.values();
            let unwanted = flights.filter(|flight| flight.result_sender.receiver_count() == 0);
            let tasks = unwanted.filter_map(|flight| flight.task.as_ref());
            tasks.map(JoinHandle::abort_handle).collect()
        };
        for task in unwanted {
            task.abort();
        }
    }

    /// Stops the work for a key; all callers that wait get this result. Its task can be waited for.
    pub(crate) fn stop(&self, key: &K, result: T) -> Option<JoinHandle<()>> {
        let flight = self.0.lock().remove(key)?;
        flight.task.as_ref().inspect(|task| task.abort());
        flight.result_sender.send_replace(Some(result));
        flight.task
    }

    /// The result of the work for a key: of the work under way, or of `work`.
    ///
    /// Work dies with the runtime that it started on, and stalls while nobody drives that runtime. Then
    /// the first caller that still waits starts its own. None if that died too.
    pub(crate) async fn join_or_start<F>(
        &self,
        name: &'static str,
        key: K,
        work: impl FnOnce() -> F,
    ) -> Option<T>
    where
        F: Future<Output = T> + Send + 'static,
    {
        let mut work = Some(work);
        loop {
            let mut joined = self.join(name, &key, || work.take().map(|work| work()))?;
            tokio::select! {
                biased;
                told = joined.result.wait_for(Option::is_some) => {
                    if let Ok(told) = told {
                        return told.clone();
                    }
                },
                () = clock::wait_until_runtime_stalls(joined.foreign_home) => {
                    remove_flight(&self.0, &key, &joined.id);
                },
            }
        }
    }

    /// Joins the work for a key, or starts it; none if there is neither.
    pub(crate) fn join<F>(
        &self,
        name: &'static str,
        key: &K,
        work: impl FnOnce() -> Option<F>,
    ) -> Option<JoinedFlight<T>>
    where
        F: Future<Output = T> + Send + 'static,
    {
        let mut under_way = self.0.lock();
        if let Some(flight) = under_way.get(key) {
            return Some(JoinedFlight {
                result: flight.result_sender.subscribe(),
                id: Arc::downgrade(&flight.result_sender),
                foreign_home: flight.home.clone().filter(|home| !home.is_current()),
            });
        }
        let (sender, result) = watch::channel(None);
        let result_sender = Arc::new(sender);
        let id = Arc::downgrade(&result_sender);
        let work = work()?;
        let flight = InFlightWork {
            result_sender: Arc::clone(&result_sender),
            task: None,
            home: RuntimeHandle::current(),
        };
        under_way.insert(key.clone(), flight);
        // A runtime that is shutting down drops the work at once, and that takes the lock.
        drop(under_way);
        let task = self.spawn_work(name, key.clone(), work, Arc::clone(&result_sender));
        match self.0.lock().get_mut(key) {
            Some(flight) if Arc::ptr_eq(&flight.result_sender, &result_sender) => {
                flight.task = Some(task);
            },
            // It has ended, or was stopped.
            _ => task.abort(),
        }
        Some(JoinedFlight {
            result,
            id,
            foreign_home: None,
        })
    }

    fn spawn_work<F>(
        &self,
        name: &'static str,
        key: K,
        work: F,
        tell: Arc<watch::Sender<Option<T>>>,
    ) -> JoinHandle<()>
    where
        F: Future<Output = T> + Send + 'static,
    {
        let done = FlightGuard {
            flights: Arc::clone(&self.0),
            key,
            id: Arc::downgrade(&tell),
        };
        clock::spawn(name, async move {
            let output = work.await;
            // Before the result: a caller that comes from now on starts again.
            drop(done);
            tell.send_replace(Some(output));
        })
    }
}

/// Removes work when it ends, however that happens.
struct FlightGuard<K: Eq + Hash, T> {
    flights: Arc<Mutex<FlightMap<K, T>>>,
    key: K,
    id: FlightId<T>,
}

impl<K: Eq + Hash, T> Drop for FlightGuard<K, T> {
    fn drop(&mut self) {
        remove_flight(&self.flights, &self.key, &self.id);
    }
}

/// Removes this work, but not work that was started again for the same key.
fn remove_flight<K: Eq + Hash, T>(flights: &Mutex<FlightMap<K, T>>, key: &K, mark: &FlightId<T>) {
    let mut under_way = flights.lock();
    let is_it = |flight: &InFlightWork<T>| mark.as_ptr() == Arc::as_ptr(&flight.result_sender);
    if under_way.get(key).is_some_and(is_it) {
        under_way.remove(key);
    }
}

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
