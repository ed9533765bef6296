//! Places: a number of things of which there may be so many and no more, and when one is given back.
//!
//! Asked by: the shelves, before anything is laid on one; openings that come to nothing, before
//! they give back what they had taken.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::clock;

/// So long a place is kept for what an opening left behind: longer than a process takes to be
/// ended, whatever it does.
const ENDS_WITHIN: Duration = Duration::from_secs(10);

/// A number of places that is never passed.
pub(super) struct Places {
    most: u32,
    taken: AtomicU32,
}

/// One of them, given back when dropped.
pub(super) struct Place(Arc<Places>);

impl Places {
    pub(super) fn new(most: u32) -> Arc<Self> {
        Arc::new(Self {
            most,
            taken: AtomicU32::new(0),
        })
    }

    /// Whether none is taken.
    pub(super) fn are_free(&self) -> bool {
        self.taken.load(Ordering::SeqCst) == 0
    }

    pub(super) fn take(self: &Arc<Self>) -> Option<Place> {
        let more = |taken: u32| (taken < self.most).then(|| taken + 1);
        self.taken
            .fetch_update(Ordering::SeqCst, Ordering::Acquire, more)
            .ok()
            .map(|_| Place(Arc::clone(self)))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::AcqRel);
    }
}

/// What an opening leaves behind keeps this until it is gone: a process that was started, and ends.
#[derive(Clone, Debug)]
pub(crate) struct Trace {
    /// Only its end says anything.
    _kept: Arc<oneshot::Sender<()>>,
}

/// Tells when nothing is left that keeps a trace.
#[derive(Debug)]
pub(crate) struct Traces(oneshot::Receiver<()>);

/// Something that has to be there before an opening begins, and is given back when nothing is left
/// of it: dropped before the opening came to something, it waits for that.
pub(crate) struct UntilGone<T: Send + 'static> {
    kept: Option<T>,
    traces: Option<Traces>,
}

impl Trace {
    pub(crate) fn new() -> (Self, Traces) {
        let (trace, traces) = oneshot::channel();
        let _kept = Arc::new(trace);
        (Self { _kept }, Traces(traces))
    }
}

impl Traces {
    fn are_gone(&mut self) -> bool {
        self.0.try_recv() == Err(oneshot::error::TryRecvError::Closed)
    }

    /// Waits until nothing is left, or for as long as anything can take.
    pub(crate) async fn gone(self) {
        let by = clock::after(ENDS_WITHIN);
        clock::timeout_at(by, self.0).await.ok();
    }
}

impl<T: Send + 'static> UntilGone<T> {
    pub(crate) fn new(kept: T, traces: Traces) -> Self {
        Self {
            kept: Some(kept),
            traces: Some(traces),
        }
    }

    /// The opening came to something, which has it from now on.
    pub(crate) fn take(mut self) -> Option<T> {
        self.kept.take()
    }
}

impl<T: Send + 'static> Drop for UntilGone<T> {
    fn drop(&mut self) {
        let (Some(kept), Some(mut traces)) = (self.kept.take(), self.traces.take()) else {
            return;
        };
        if traces.are_gone() {
            return drop(kept);
        }
        clock::spawn_if_running("end of an opening", async move {
            traces.gone().await;
            drop(kept);
        });
    }
}
