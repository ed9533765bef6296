//! One asking for any number of callers: what was found out is held, and asked for again only
//! when somebody needs something newer.
//!
//! Asked by: [`Credential`](super::Credential) for tokens, [`Lookup`](crate::resolve::Lookup) for
//! where a server is.
//!
//! Who waits: nobody but those who need the answer. The asking runs in a task of its own, bounded
//!   in time, so that a caller who gives up takes nothing from the others.
//! What a failure does: it is told to everybody who waits for it, and forgotten. The next caller
//!   asks again.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use warmline_core::code::Reason;
use warmline_core::exchange::Trouble;

use crate::clock::{self, Instant};
use crate::sync::Mutex;

/// What is held of an answer, and the asking under way.
#[derive(Debug)]
pub(crate) struct Asking<T> {
    /// Who is asked, for people: "the credential of `github`".
    whom: String,
    reason: Reason,
    within: Duration,
    held: ArcSwapOption<Held<T>>,
    /// Changes of `held` are made under this lock, so that its numbers only grow.
    round: Mutex<Round<T>>,
}

/// An answer and its place in the line of answers.
#[derive(Debug)]
pub(crate) struct Held<T> {
    pub(crate) value: T,
    /// The number of this answer; the first is 1.
    pub(crate) epoch: u64,
    /// The number of the first answer that said the same.
    pub(crate) since: u64,
}

type Told<T> = Option<Result<Arc<Held<T>>, Trouble>>;

#[derive(Debug)]
struct Round<T> {
    under_way: Option<watch::Receiver<Told<T>>>,
    task: Option<JoinHandle<()>>,
    /// The last asking was stopped, and none was begun since.
    is_stopped: bool,
    /// Nobody is asked ahead of time before this moment: the last asking failed.
    quiet_until: Option<Instant>,
}

impl<T> Round<T> {
    /// The asking under way. One whose task was lost with its runtime, or panicked, answers nobody
    /// any more.
    fn under_way(&self) -> Option<watch::Receiver<Told<T>>> {
        let told = self.under_way.as_ref();
        told.filter(|told| told.has_changed().is_ok()).cloned()
    }
}

impl<T: PartialEq + Send + Sync + 'static> Asking<T> {
    pub(crate) fn new(whom: String, reason: Reason, within: Duration) -> Arc<Self> {
        Arc::new(Self {
            whom,
            reason,
            within,
            held: ArcSwapOption::empty(),
            round: Mutex::new(Round {
                under_way: None,
                task: None,
                is_stopped: false,
                quiet_until: None,
            }),
        })
    }

    /// What is held now.
    pub(crate) fn held(&self) -> Option<Arc<Held<T>>> {
        self.held.load_full()
    }

    /// Looks at what is held now, without taking hold of it.
    pub(crate) fn with_held<R>(&self, look: impl FnOnce(&Held<T>) -> R) -> Option<R> {
        self.held.load().as_deref().map(look)
    }

    /// The number of what is held; 0 before the first.
    pub(crate) fn epoch(&self) -> u64 {
        self.with_held(|held| held.epoch).unwrap_or(0)
    }

    /// Takes in what was found without asking. The same again changes nothing.
    pub(crate) fn put(&self, value: T) {
        if self.with_held(|held| held.value == value) != Some(true) {
            let _round = self.round.lock();
            self.take(value);
        }
    }

    /// What is newer than answer number `seen`: held already, on its way, or asked for now.
    ///
    /// An asking dies with the runtime of whoever began it. Then the first of those who waited for
    /// it and are still there asks, unless it was stopped.
    pub(crate) async fn newer_than<F>(
        self: &Arc<Self>,
        seen: u64,
        ask: impl FnOnce() -> F,
    ) -> Result<Arc<Held<T>>, Trouble>
    where
        F: Future<Output = Result<T, Trouble>> + Send + 'static,
    {
        let mut ask = Some(ask);
        loop {
            let mut told = {
                let mut round = self.round.lock();
                if let Some(held) = self.held().filter(|held| held.epoch > seen) {
                    return Ok(held);
                }
                match round.under_way() {
                    Some(told) => told,
                    None => match ask.take() {
                        Some(ask) => self.begin(&mut round, ask()),
                        None => return Err(self.trouble("broke off")),
                    },
                }
            };
            let heard = told.wait_for(Option::is_some).await;
            if let Some(answer) = heard.ok().and_then(|told| told.clone()) {
                return answer;
            }
            if self.round.lock().is_stopped {
                return Err(self.trouble("broke off"));
            }
        }
    }

    /// Asks ahead of time, if nobody does already. Nobody waits for it.
    pub(crate) fn ask_ahead<F>(self: &Arc<Self>, seen: u64, ask: impl FnOnce() -> F)
    where
        F: Future<Output = Result<T, Trouble>> + Send + 'static,
    {
        let mut round = self.round.lock();
        let quiet = round.quiet_until.is_some_and(|until| clock::now() < until);
        if !quiet && self.epoch() <= seen && round.under_way().is_none() {
            drop(self.begin(&mut round, ask()));
        }
    }

    /// Ends the asking under way, because nobody will need its answer, and gives what can be
    /// waited for until nothing of it is left.
    pub(crate) fn stop(&self) -> Option<JoinHandle<()>> {
        let mut round = self.round.lock();
        round.is_stopped = true;
        round.task.take().inspect(JoinHandle::abort)
    }

    fn begin(
        self: &Arc<Self>,
        round: &mut Round<T>,
        ask: impl Future<Output = Result<T, Trouble>> + Send + 'static,
    ) -> watch::Receiver<Told<T>> {
        let (tell, told) = watch::channel(None);
        round.under_way = Some(told.clone());
        let task = clock::spawn("asking", Arc::clone(self).carry_out(ask, tell));
        round.task = Some(task);
        round.is_stopped = false;
        told
    }

    async fn carry_out(
        self: Arc<Self>,
        ask: impl Future<Output = Result<T, Trouble>> + Send,
        tell: watch::Sender<Told<T>>,
    ) {
        let answer = match clock::timeout(self.within, ask).await {
            Ok(answer) => answer,
            Err(clock::Elapsed) => {
                Err(self.trouble(&format!("gave no answer in {:?}", self.within)))
            },
        };
        let answer = {
            let mut round = self.round.lock();
            round.under_way = None;
            round.task = None;
            round.quiet_until = answer.is_err().then(|| clock::after(QUIET));
            answer.map(|value| self.take(value))
        };
        tell.send_replace(Some(answer));
    }

    /// Under the lock of the round.
    fn take(&self, value: T) -> Arc<Held<T>> {
        let last = self.held.load();
        let epoch = last.as_ref().map_or(0, |last| last.epoch) + 1;
        let since = match last.as_ref() {
            Some(last) if last.value == value => last.since,
            Some(_) | None => epoch,
        };
        let held = Arc::new(Held {
            value,
            epoch,
            since,
        });
        self.held.store(Some(Arc::clone(&held)));
        held
    }

    fn trouble(&self, what: &str) -> Trouble {
        Trouble::new(self.reason, format!("{} {what}", self.whom))
    }
}

/// After a renewal ahead of time failed, the next one is not tried before this long.
const QUIET: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests;
