//! Time and tasks. All waiting goes through here, so that a paused runtime moves all of it, and every
//! task has a name in traces.

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

/// The moment that long from now. A duration may be too large for an [`Instant`].
pub fn after(duration: Duration) -> Instant {
    now()
        .checked_add(duration)
        .unwrap_or_else(|| now() + MAX_WAIT)
}

const MAX_WAIT: Duration = Duration::from_secs(30 * 365 * 24 * 60 * 60);

/// Waits for a duration.
pub async fn sleep(duration: Duration) {
    tokio::time::sleep(duration).await;
}

/// Lets other tasks and timers run.
pub async fn yield_now() {
    tokio::task::yield_now().await;
}

/// Waits until a moment; the owner pins it and can reset it.
pub fn sleep_until(deadline: Instant) -> tokio::time::Sleep {
    tokio::time::sleep_until(deadline)
}

/// A deadline passed.
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

/// Starts a task. Traces show its name.
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

/// Starts a task that ends with its set.
pub fn spawn_in<F>(name: &'static str, set: &mut JoinSet<()>, future: F)
where
    F: Future<Output = ()> + Send + 'static,
{
    tracing::trace!(task = name, "task began");
    set.spawn(future);
}

/// Starts a task if there is still a runtime: for destructors, which may run after its end.
pub fn spawn_if_running<F>(name: &'static str, future: F)
where
    F: Future<Output = ()> + Send + 'static,
{
    if tokio::runtime::Handle::try_current().is_ok() {
        drop(spawn(name, future));
    }
}

/// Which runtime this code runs in, if it runs in one.
pub fn current_runtime_id() -> Option<tokio::runtime::Id> {
    let handle = tokio::runtime::Handle::try_current();
    handle.ok().map(|handle| handle.id())
}

/// A runtime that runs nothing for so long is driven by nobody.
const STALL_TIMEOUT: Duration = Duration::from_secs(3);

/// A runtime, for work that must run there.
#[derive(Clone, Debug)]
pub struct RuntimeHandle(tokio::runtime::Handle);

impl RuntimeHandle {
    /// The runtime that this code runs in, if it runs in one.
    pub fn current() -> Option<Self> {
        tokio::runtime::Handle::try_current().ok().map(Self)
    }

    /// Whether this code runs in it.
    pub fn is_current(&self) -> bool {
        current_runtime_id() == Some(self.0.id())
    }

    /// Resolves once it runs nothing any more: it has ended, or nobody drives it. A runtime of one thread
    /// stops between two `block_on`.
    pub async fn wait_until_stalled(&self) {
        loop {
            let (sign, seen) = oneshot::channel();
            self.spawn("sign of life", async { sign.send(()).unwrap_or_default() });
            let Ok(Ok(())) = timeout(STALL_TIMEOUT, seen).await else {
                return;
            };
            sleep(STALL_TIMEOUT).await;
        }
    }

    /// Starts a task there. After its end the work is dropped.
    pub fn spawn<F>(&self, name: &'static str, future: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        tracing::trace!(task = name, "task began");
        drop(self.0.spawn(future));
    }
}

/// Ends once nothing is carried out any more in that runtime; never, where there is none.
pub async fn wait_until_runtime_stalls(home: Option<RuntimeHandle>) {
    match home {
        Some(home) => home.wait_until_stalled().await,
        None => std::future::pending().await,
    }
}

/// Runs something that blocks (a file, a lookup) on its own thread.
pub fn spawn_blocking<F, T>(name: &'static str, work: F) -> JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    tracing::trace!(task = name, "blocking work began");
    tokio::task::spawn_blocking(work)
}

/// The wall clock, which may jump: for comparison with files, never for waiting.
#[expect(clippy::disallowed_methods, reason = "this is the clock")]
pub fn wall_time() -> std::time::SystemTime {
    std::time::SystemTime::now()
}

/// Unix seconds by the wall clock, which may jump: for storing and showing, never for waiting. Zero
/// before the epoch.
#[expect(clippy::disallowed_methods, reason = "this is the clock")]
pub fn wall_seconds() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}
