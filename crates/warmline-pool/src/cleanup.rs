//! Cleanup tokens: when nothing is left of an opening that failed, such as a process that ends.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::clock;

/// Longer than a process takes to be ended, whatever it does.
const CLEANUP_TIMEOUT: Duration = Duration::from_secs(10);

/// Held by everything that an opening starts, until it is gone.
#[derive(Clone, Debug)]
pub struct CleanupToken {
    /// Only its end matters.
    _sender: Arc<oneshot::Sender<()>>,
}

/// Resolves when the last token is dropped.
#[derive(Debug)]
pub struct CleanupWatch(oneshot::Receiver<()>);

/// A resource that an opening needs. Dropped before the opening succeeded, it is released when
/// nothing is left of the opening.
pub struct HeldUntilCleanup<T: Send + 'static> {
    held: Option<(T, CleanupWatch)>,
}

impl CleanupToken {
    /// A token, and what waits for its last clone.
    pub fn new() -> (Self, CleanupWatch) {
        let (sender, receiver) = oneshot::channel();
        let _sender = Arc::new(sender);
        (Self { _sender }, CleanupWatch(receiver))
    }
}

impl<T: Send + 'static> HeldUntilCleanup<T> {
    /// Holds a value until its opening succeeds or is cleaned up.
    pub fn new(value: T, watch: CleanupWatch) -> Self {
        Self {
            held: Some((value, watch)),
        }
    }

    /// The value, once the opening succeeded.
    pub fn into_inner(mut self) -> Option<T> {
        self.held.take().map(|(value, _)| value)
    }
}

impl<T: Send + 'static> Drop for HeldUntilCleanup<T> {
    fn drop(&mut self) {
        let Some((value, mut watch)) = self.held.take() else {
            return;
        };
        if watch.0.try_recv() == Err(oneshot::error::TryRecvError::Closed) {
            return drop(value);
        }
        clock::spawn_if_running("cleanup", async move {
            let by = clock::after(CLEANUP_TIMEOUT);
            clock::timeout_at(by, watch.0).await.ok();
            drop(value);
        });
    }
}
