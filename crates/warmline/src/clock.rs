//! The clock: the only door to time and to spawning.
//!
//! Everything that waits goes through here, so that a paused runtime moves all of it, and every
//! task has a name under which it can be counted. For the crates of this workspace, not for users.

use std::future::Future;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};
pub use tokio::time::Instant;

/// This moment.
#[expect(clippy::disallowed_methods, reason = "this is the clock")]
pub fn now() -> Instant {
    Instant::now()
}

/// The moment that long from now. Limits may be as large as anybody likes; a moment may not.
pub fn after(duration: Duration) -> Instant {
    now().checked_add(duration).unwrap_or_else(|| now() + FAR)
}

/// Nobody waits longer than this.
const FAR: Duration = Duration::from_secs(30 * 365 * 24 * 60 * 60);

/// Waits for a while.
pub async fn sleep(duration: Duration) {
    tokio::time::sleep(duration).await;
}

/// Lets others have their turn, the timers included.
pub async fn yield_now() {
    tokio::task::yield_now().await;
}

/// A wait that can be moved, to be pinned by its owner.
pub fn sleep_until(deadline: Instant) -> tokio::time::Sleep {
    tokio::time::sleep_until(deadline)
}

/// The time for it was over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elapsed;

/// Runs a future for at most that long.
pub async fn timeout<F: Future>(limit: Duration, future: F) -> Result<F::Output, Elapsed> {
    tokio::time::timeout(limit, future)
        .await
        .map_err(|_| Elapsed)
}

/// Runs a future until that moment at the latest.
pub async fn timeout_at<F: Future>(by: Instant, future: F) -> Result<F::Output, Elapsed> {
    tokio::time::timeout_at(by, future)
        .await
        .map_err(|_| Elapsed)
}

/// Starts a task. The name says who it is in a trace.
#[expect(
    clippy::disallowed_methods,
    reason = "this is the only place that spawns"
)]
pub fn spawn<F>(name: &'static str, future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    tracing::trace!(task = name, "task began");
    tokio::spawn(future)
}

/// Starts a task of a set, which ends with the set.
pub fn spawn_in<F>(name: &'static str, set: &mut JoinSet<()>, future: F)
where
    F: Future<Output = ()> + Send + 'static,
{
    tracing::trace!(task = name, "task began");
    set.spawn(future);
}

/// Starts a task if there still is a runtime to run it: for destructors, which may run after it.
pub fn spawn_if_running<F>(name: &'static str, future: F)
where
    F: Future<Output = ()> + Send + 'static,
{
    if tokio::runtime::Handle::try_current().is_ok() {
        drop(spawn(name, future));
    }
}

/// Which runtime this code runs in, if it runs in one.
pub(crate) fn here() -> Option<tokio::runtime::Id> {
    let handle = tokio::runtime::Handle::try_current();
    handle.ok().map(|handle| handle.id())
}

/// A runtime that carries nothing out for so long is driven by nobody.
const SIGN_OF_LIFE: Duration = Duration::from_secs(3);

/// The runtime that something lives in, for those who want it done there and are elsewhere.
#[derive(Clone, Debug)]
pub(crate) struct Home(tokio::runtime::Handle);

impl Home {
    /// The runtime that this code runs in, if it runs in one.
    pub(crate) fn here() -> Option<Self> {
        tokio::runtime::Handle::try_current().ok().map(Self)
    }

    /// Whether this code runs in it.
    pub(crate) fn is_here(&self) -> bool {
        here() == Some(self.0.id())
    }

    /// Ends once nothing is carried out there any more: it is over, or nobody drives it. A runtime
    /// of one thread rests between two `block_on`.
    pub(crate) async fn rests(&self) {
        loop {
            let (sign, seen) = oneshot::channel();
            self.spawn("sign of life", async { sign.send(()).unwrap_or_default() });
            let Ok(Ok(())) = timeout(SIGN_OF_LIFE, seen).await else {
                return;
            };
            sleep(SIGN_OF_LIFE).await;
        }
    }

    /// Starts a task there. If it is no more, the work is dropped.
    pub(crate) fn spawn<F>(&self, name: &'static str, future: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        tracing::trace!(task = name, "task began");
        drop(self.0.spawn(future));
    }
}

/// Ends once nothing is carried out any more in that runtime; never, where there is none.
pub(crate) async fn rests(home: Option<Home>) {
    match home {
        Some(home) => home.rests().await,
        None => std::future::pending().await,
    }
}

/// Runs something that blocks (a file, a lookup) on a thread made for it.
pub fn spawn_blocking<F, T>(name: &'static str, work: F) -> JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    tracing::trace!(task = name, "blocking work began");
    tokio::task::spawn_blocking(work)
}

/// The wall clock, which may jump by any amount: to be compared with what files look like, never for
/// waiting.
#[expect(clippy::disallowed_methods, reason = "this is the clock")]
pub fn wall_time() -> std::time::SystemTime {
    std::time::SystemTime::now()
}

/// Seconds of the Unix epoch by the wall clock, which may jump by any amount: for what is stored
/// and shown, never for waiting. Nothing before the epoch.
#[expect(clippy::disallowed_methods, reason = "this is the clock")]
pub fn wall_seconds() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}
