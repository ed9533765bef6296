//! The cancel sweep: a future dropped at every one of its await points.
//!
//! A new future is made for each point, polled that often, and dropped: once right after the
//! poll, once when it was woken for the next. The second finds what takes a wake-up with it to the
//! grave. It goes on until the future completes by itself.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! use warmline_testkit::sweep;
//!
//! let work = || async { tokio::task::yield_now().await; 7 };
//! let swept = sweep::sweep_future(work, async |_point| { /* take the census */ }).await;
//! assert_eq!(swept.output, Some(7));
//! assert_eq!(swept.points, 2);
//! # });
//! ```

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::Notify;

use crate::ledger::real_time_sleep;

/// How far a sweep came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SweepResult<T> {
    /// How many points there were: the future was dropped at each of them, in both ways.
    pub points: usize,
    /// What it came to when it was left alone; none if it had too many points.
    pub output: Option<T>,
}

/// One place where the future was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CancelPoint {
    /// After so many polls.
    pub polls: usize,
    /// When, after the last of them.
    pub timing: DropTiming,
}

/// When a future is dropped after its last poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropTiming {
    /// At once.
    AfterPoll,
    /// When it was woken, and would be polled again.
    OnWake,
}

/// How a task is ended from outside of its future.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskTermination {
    /// By aborting it.
    Abort,
    /// By a panic beside the future, which unwinds through it.
    Panic,
}

/// Drops the future at each of its points; `after` is run after each drop.
pub async fn sweep_future<T, F: Future<Output = T>>(
    make: impl FnMut() -> F,
    after: impl AsyncFnMut(CancelPoint),
) -> SweepResult<T> {
    sweep_future_up_to(MAX_POINTS, make, after).await
}

/// The same, for futures with very many points: stops after `most`.
pub async fn sweep_future_up_to<T, F: Future<Output = T>>(
    most: usize,
    mut make: impl FnMut() -> F,
    mut after: impl AsyncFnMut(CancelPoint),
) -> SweepResult<T> {
    for polls in 0..most {
        for when in [DropTiming::AfterPoll, DropTiming::OnWake] {
            if polls == 0 && when == DropTiming::OnWake {
                continue;
            }
            let point = CancelPoint {
                polls,
                timing: when,
            };
            if let Some(output) = drop_at(point, make()).await {
                return SweepResult {
                    points: polls,
                    output: Some(output),
                };
            }
            after(point).await;
        }
    }
    SweepResult {
        points: most,
        output: None,
    }
}

/// Ends a task that runs the future at each of its points, in this way; `after` follows each.
pub async fn sweep_task<T, F>(
    way: TaskTermination,
    mut make: impl FnMut() -> F,
    mut after: impl AsyncFnMut(usize),
) -> SweepResult<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    for polls in 0..MAX_POINTS {
        if let Some(output) = end_task_at(way, polls, make()).await {
            return SweepResult {
                points: polls,
                output: Some(output),
            };
        }
        after(polls).await;
    }
    SweepResult {
        points: MAX_POINTS,
        output: None,
    }
}

/// Ends a task that runs the future after so many polls, in this way; gives its output if it
/// completed before.
pub async fn end_task_at<T, F>(way: TaskTermination, polls: usize, future: F) -> Option<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let reached = Arc::new(Notify::new());
    let bell = Arc::clone(&reached);
    let task = tokio::spawn(async move {
        let mut future = pin!(future);
        let mut polled = 0;
        poll_fn(|context| {
            if polled < polls {
                polled += 1;
                if let Poll::Ready(output) = future.as_mut().poll(context) {
                    return Poll::Ready(output);
                }
            }
            if polled == polls {
                match way {
                    TaskTermination::Abort => bell.notify_one(),
                    // Without the words of a panic, which would look like a failed test.
                    TaskTermination::Panic => std::panic::resume_unwind(Box::new("swept")),
                }
            }
            Poll::Pending
        })
        .await
    });
    let abort = task.abort_handle();
    let mut task = pin!(task);
    let mut deadlines = pin!(real_time_sleep(WAKE_TIMEOUT));
    tokio::select! {
        biased;
        ended = &mut task => return ended.ok(),
        () = reached.notified() => {},
        () = &mut deadlines => {},
    }
    abort.abort();
    task.await.ok()
}

/// Polls the future up to this point and drops it; gives its output if it completed before.
pub async fn drop_at<T>(point: CancelPoint, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    // A future that is never woken again is dropped in the end.
    let mut deadlines = pin!(real_time_sleep(WAKE_TIMEOUT));
    let mut polled = 0;
    poll_fn(|context| {
        if polled == point.polls {
            return Poll::Ready(None);
        }
        polled += 1;
        if let Poll::Ready(output) = future.as_mut().poll(context) {
            return Poll::Ready(Some(output));
        }
        if polled == point.polls && point.timing == DropTiming::AfterPoll {
            return Poll::Ready(None);
        }
        deadlines.as_mut().poll(context).map(|()| None)
    })
    .await
}

const MAX_POINTS: usize = 10_000;
const WAKE_TIMEOUT: Duration = Duration::from_secs(20);
