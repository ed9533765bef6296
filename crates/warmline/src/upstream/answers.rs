//! Answers on their way to a server.
//!
//! Each is a short task of its own, so that whoever reads the server's words never waits for the
//! server to take ours. A few are posted at once, some wait behind them, and a server that asks
//! on and on without listening loses the rest. They end with their session.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use warmline_core::exchange::Trouble;

use crate::clock;
use crate::sync::Mutex;

/// So many are posted at the same time.
const AT_ONCE: usize = 8;
/// So many may be under way or waiting.
const IN_ALL: usize = 1024;

/// So many cancels are waited for when their session ends, and so long.
const CANCELS: u16 = 1024;
const HEARD_WITHIN: Duration = Duration::from_secs(1);

/// The answers of one session, and the cancels of its calls.
#[derive(Debug)]
pub(crate) struct Answers {
    turns: Arc<Semaphore>,
    /// Each cancel on its way has one of these.
    cancels: Arc<Semaphore>,
    under_way: Mutex<UnderWay>,
}

#[derive(Debug, Default)]
struct UnderWay {
    answers: JoinSet<()>,
    /// Whether the session is over: nothing more is said in it.
    is_over: bool,
}

impl Default for Answers {
    fn default() -> Self {
        Self {
            turns: Arc::new(Semaphore::new(AT_ONCE)),
            cancels: Arc::new(Semaphore::new(usize::from(CANCELS))),
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
        // What is refused because its call was dropped may come after the runtime.
        if under_way.is_over || clock::Home::here().is_none() {
            return;
        }
        let under_way = &mut under_way.answers;
        while under_way.try_join_next().is_some() {}
        if under_way.len() >= IN_ALL {
            tracing::warn!(%server, "answer dropped: the server does not take those before it");
            return;
        }
        let turns = Arc::clone(&self.turns);
        clock::spawn_in("answer a question", under_way, async move {
            let turn = turns.acquire_owned().await;
            if let Err(trouble) = post.await {
                tracing::warn!(%server, %trouble, "answer not delivered");
            }
            drop(turn);
        });
    }

    /// To be held by a cancel while it is on its way; none where there are too many.
    pub(crate) fn cancel(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.cancels).try_acquire_owned().ok()
    }

    /// Waits until the server has heard all cancels, within a second: what is said of a call after
    /// the end of its session is said to nobody.
    pub(crate) async fn cancels_heard(&self) {
        let all = self.cancels.acquire_many(CANCELS.into());
        drop(clock::timeout(HEARD_WITHIN, all).await);
    }

    /// Ends all of them.
    pub(crate) fn end(&self) {
        let mut under_way = self.under_way.lock();
        under_way.is_over = true;
        under_way.answers.abort_all();
    }
}
