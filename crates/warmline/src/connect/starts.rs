//! Starts: programs take turns to be started.
//!
//! Asked by: first contacts and openings, before the time of the start begins to count.

use tokio::sync::{Semaphore, SemaphorePermit};

use crate::upstream::Reach;

/// So many programs are started at the same time, of all servers together. Started all at once, they
/// would slow each other down until none of them is ready in its time.
const AT_ONCE: usize = 32;

/// Where programs wait for their turn.
#[derive(Debug)]
pub(super) struct Starts(Semaphore);

impl Default for Starts {
    fn default() -> Self {
        Self(Semaphore::new(AT_ONCE))
    }
}

impl Starts {
    /// The turn to be started, held until the program is ready. What runs elsewhere needs none.
    pub(super) async fn turn(&self, reach: &Reach) -> Option<SemaphorePermit<'_>> {
        match reach {
            Reach::Stdio(_) => self.0.acquire().await.ok(),
            Reach::Http(_) => None,
        }
    }
}
