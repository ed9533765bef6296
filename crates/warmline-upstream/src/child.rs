//! Child processes of stdio servers: how they are found, started, watched and ended.
//!
//! An engine counts its children until nothing is left of them, and shortens their timeouts when it
//! must end soon: a process must not leave its children behind.

pub mod find_program;
pub mod process;
pub(crate) mod stderr;
pub mod warden;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use warmline_platform::clock;

/// The time between two steps of ending a child, when it is urgent.
const URGENT_STEP_TIMEOUT: Duration = Duration::from_millis(300);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct TrackerState {
    alive: usize,
    is_urgent: bool,
}

/// The children of one engine.
#[derive(Debug, Default)]
pub struct ChildTracker(watch::Sender<TrackerState>);

impl ChildTracker {
    /// Counts a child until the result is dropped.
    pub(crate) fn track(self: &Arc<Self>) -> TrackedChild {
        self.0.send_modify(|counted| counted.alive += 1);
        TrackedChild(Arc::clone(self))
    }

    /// From now on ending a child has only a moment for each step.
    pub fn shorten_timeouts(&self) {
        self.0.send_modify(|counted| counted.is_urgent = true);
    }

    pub async fn wait_until_empty(&self) {
        let mut counted = self.0.subscribe();
        drop(counted.wait_for(|counted| counted.alive == 0).await);
    }
}

#[derive(Debug)]
pub(crate) struct TrackedChild(Arc<ChildTracker>);

impl TrackedChild {
    /// Resolves after `limit`, or after a moment if it is urgent.
    pub(crate) fn step_timeout(&self, limit: Duration) -> impl Future<Output = ()> + use<> {
        let mut counted = self.0.0.subscribe();
        let hurried = async move {
            drop(counted.wait_for(|counted| counted.is_urgent).await);
            clock::sleep(URGENT_STEP_TIMEOUT).await;
        };
        async move {
            clock::timeout(limit, hurried).await.ok();
        }
    }
}

impl Drop for TrackedChild {
    fn drop(&mut self) {
        self.0.0.send_modify(|counted| counted.alive -= 1);
    }
}
