//! Answers on their way to a server.
//!
//! Each is a short task of its own, so that whoever reads the server's words never waits for the
//! server to take ours. A few are posted at once, some wait behind them, and a server that asks
//! on and on without listening loses the rest. What a server does not take is posted again a few
//! times: its id says what it answers, so that a second one does no harm. They end with their
//! session.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::task::JoinSet;
use warmline_core::code::Reason;
use warmline_core::exchange::Trouble;

use super::answer;
use super::letterhead::Letterhead;
use crate::clock;
use crate::sync::Mutex;

/// So many are posted at the same time.
const AT_ONCE: usize = 8;
/// So many may be under way or waiting.
const IN_ALL: usize = 1024;

/// The pauses before an answer is posted again.
const PAUSES: [Duration; 4] = [
    Duration::from_millis(250),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
];
/// A server that wants more time than this is not waited for: somebody waits for the call.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

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
    /// Sends one, in the background. Whoever wants to know hears why it could not be brought to the
    /// server.
    pub(crate) fn send(&self, answer: Posting) -> oneshot::Receiver<Trouble> {
        let (failed, undelivered) = oneshot::channel();
        let mut under_way = self.under_way.lock();
        // What is refused because its call was dropped may come after the runtime.
        if under_way.is_over || clock::Home::here().is_none() {
            return undelivered;
        }
        let under_way = &mut under_way.answers;
        while under_way.try_join_next().is_some() {}
        let server = Arc::clone(answer.head.way.server());
        if under_way.len() >= IN_ALL {
            tracing::warn!(%server, "answer dropped: the server does not take those before it");
            let what = format!("`{server}` does not take the answers before it");
            failed.send(Trouble::new(Reason::LocalResources, what)).ok();
            return undelivered;
        }
        let turns = Arc::clone(&self.turns);
        clock::spawn_in("answer a question", under_way, async move {
            let turn = turns.acquire_owned().await;
            if let Err(trouble) = answer.deliver().await {
                tracing::warn!(%server, %trouble, "answer not delivered");
                failed.send(trouble).ok();
            }
            drop(turn);
        });
        undelivered
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

/// An answer that is to be posted.
pub(crate) struct Posting {
    pub(crate) head: Letterhead,
    /// The headers of the call that it belongs to.
    pub(crate) own: Vec<(HeaderName, HeaderValue)>,
    pub(crate) body: Bytes,
}

impl Posting {
    /// Posts it until it is taken, or there were enough tries. Who is asked may take longer than a
    /// token lasts: another one is asked for once.
    async fn deliver(self) -> Result<(), Trouble> {
        let (mut pauses, mut may_renew) = (PAUSES.into_iter(), true);
        loop {
            let shown = self.head.epoch();
            let posted = answer::post_once(&self.head, &self.own, self.body.clone()).await;
            let Err(not_taken) = posted else {
                return Ok(());
            };
            if not_taken.lost.trouble.reason == Reason::Unauthorized
                && std::mem::take(&mut may_renew)
                && self.head.renewed(shown).await
            {
                continue;
            }
            let trouble = not_taken.lost.trouble;
            let pause = pauses.next().filter(|_| not_taken.may_be_taken);
            let Some(pause) = pause else {
                return Err(trouble);
            };
            let wanted = trouble.retry_after.unwrap_or_default();
            clock::sleep(pause.max(wanted).min(LONGEST_PAUSE)).await;
        }
    }
}
