//! Places: a number of things of which there may be so many and no more.
//!
//! Asked by: the shelves, before anything is laid on one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

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
