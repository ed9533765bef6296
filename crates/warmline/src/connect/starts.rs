//! Starts: programs take turns to be started.
//!
//! Asked by: first contacts and openings, before the time of the start begins to count.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use tokio::sync::Semaphore;

use crate::clock;
use crate::entry::Entry;
use crate::upstream::Reach;

/// So many programs are started at the same time, of all servers together. Started all at once, they
/// would slow each other down until none of them is ready in its time.
const AT_ONCE: usize = 32;

/// So long a start counts among them. One that takes longer waits for something, and hardly slows
/// others down: programs that hang must not hold up those that would not.
const COUNTS: Duration = Duration::from_secs(5);

/// Where programs wait for their turn.
#[derive(Debug)]
pub(super) struct Starts(Semaphore);

impl Default for Starts {
    fn default() -> Self {
        Self(Semaphore::new(AT_ONCE))
    }
}

impl Starts {
    /// Starts a program when it is its turn: its server's, which has a share of all turns, and then
    /// that of all. What runs elsewhere needs none.
    pub(super) async fn in_turn<F: Future>(
        &self,
        entry: &Entry,
        reach: &Reach,
        start: F,
    ) -> F::Output {
        let turn = match reach {
            Reach::Stdio(_) => {
                let share = entry.starts.acquire().await.ok();
                Some((share, self.0.acquire().await.ok()))
            },
            Reach::Http(_) => None,
        };
        let mut start = pin!(start);
        match turn {
            None => start.await,
            Some(turn) => match clock::timeout(COUNTS, start.as_mut()).await {
                Ok(started) => started,
                Err(clock::Elapsed) => {
                    drop(turn);
                    start.await
                },
            },
        }
    }
}
