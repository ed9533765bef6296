//! Answers on their way to a server.
//!
//! Each is a short task of its own, so that whoever reads the server's words never waits for the
//! server to take ours. A few are posted at once, some wait behind them, and a server that asks
//! on and on without listening loses the rest. They end with their session.

use std::future::Future;
use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use warmline_core::exchange::Trouble;

use crate::clock;
use crate::sync::Mutex;

/// So many are posted at the same time.
const AT_ONCE: usize = 8;
/// So many may be under way or waiting.
const IN_ALL: usize = 1024;

/// The answers of one session.
#[derive(Debug)]
pub(crate) struct Answers {
    turns: Arc<Semaphore>,
    under_way: Mutex<JoinSet<()>>,
}

impl Default for Answers {
    fn default() -> Self {
        Self {
            turns: Arc::new(Semaphore::new(AT_ONCE)),
            under_way: Mutex::default(),
        }
    }
}

impl Answers {
    /// Sends one, in the background.
    pub(crate) fn send<F>(&self, server: Arc<str>, post: F)
    where
        F: Future<Output = Result<(), Trouble>> + Send + 'static,
    {
        let mut under_way = self.under_way.lock();
        while under_way.try_join_next().is_some() {}
        if under_way.len() >= IN_ALL {
            tracing::warn!(%server, "answer dropped: the server does not take those before it");
            return;
        }
        let turns = Arc::clone(&self.turns);
        clock::spawn_in("answer a question", &mut under_way, async move {
            let turn = turns.acquire_owned().await;
            if let Err(trouble) = post.await {
                tracing::warn!(%server, %trouble, "answer not delivered");
            }
            drop(turn);
        });
    }

    /// Ends all of them.
    pub(crate) fn end(&self) {
        self.under_way.lock().abort_all();
    }
}
