//! The state of one run: its life, its calls, its session table, and the losses it has not learned of;
//! and the number of live runs that each identity may have, because a name must not be a fork bomb.

pub(crate) mod session_table;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwapOption;
use papaya::{Compute, Operation};
use session_table::SessionTable;
use tokio::sync::Notify;
use warmline_core::error::code::Reason;
use warmline_core::exchange::Diagnostic;
use warmline_core::pool_key::{Identity, RunId};
use warmline_core::run::{RunLifecycle, RunPhase};
use warmline_core::time::Tick;

use crate::context::EngineContext;
use crate::credentials::CallerIdentity;
use crate::session_factory::SessionEntry;
use warmline_platform::lock::Mutex;

pub(crate) struct RunState {
    /// The id that its sessions belong to.
    pub(crate) id: RunId,
    /// The id of its name alone: two runs of one name, one of them closing, share it.
    pub(crate) name_id: RunId,
    /// Whether it counts in the quota of its identity. Written while `life` is locked.
    has_quota: AtomicBool,
    pub(crate) origin: RunOrigin,
    pub(crate) name: Arc<str>,
    pub(crate) identity: Arc<CallerIdentity>,
    pub(crate) began_at: Tick,
    life: Mutex<RunLifecycle>,
    /// Notified when the last call of an ending run is over.
    calls_done: Notify,
    pub(crate) cancel: CancelSignal,
    pub(crate) session_table: SessionTable,
    /// The names of servers where the run lost state that it has not learned of: the next call to a server
    /// of that name reports it. Nearly always empty, and read without a lock.
    pending_losses: ArcSwapOption<Vec<Arc<str>>>,
    /// Set when everything of the run is closed.
    pub(crate) closed: Arc<CancelSignal>,
    /// The same of the run that had this id before: nothing is opened until then.
    pub(crate) previous_closed: Option<Arc<CancelSignal>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunOrigin {
    /// No run had its name before.
    New,
    /// An earlier process may have known it by its name.
    Named,
    /// A client comes back to it, and found it over.
    Rejoined,
}

#[derive(Default)]
pub(crate) struct CancelSignal {
    is_set: AtomicBool,
    notify: Notify,
}

impl CancelSignal {
    pub(crate) fn set(&self) {
        self.is_set.store(true, Ordering::SeqCst);
        self.notify.notify_waiters();
    }

    pub(crate) fn is_set(&self) -> bool {
        self.is_set.load(Ordering::SeqCst)
    }

    pub(crate) async fn wait(&self) {
        wait_unless(&self.notify, || self.is_set.load(Ordering::Acquire)).await;
    }

    /// Awaits a future; none if the flag is set first.
    pub(crate) async fn run_until_set<F: Future>(&self, future: F) -> Option<F::Output> {
        tokio::select! {
            biased;
            output = future => Some(output),
            () = self.wait() => None,
        }
    }
}

/// Waits for a notification, unless a condition holds that is set before the notification.
async fn wait_unless(notify: &Notify, holds: impl FnOnce() -> bool) {
    let mut notified = std::pin::pin!(notify.notified());
    notified.as_mut().enable();
    if !holds() {
        notified.await;
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunUse {
    Call,
    /// A session that is held without a call.
    Session,
}

pub(crate) struct RunGuard {
    context: Arc<EngineContext>,
    run: Arc<RunState>,
    purpose: RunUse,
}

impl Drop for RunGuard {
    fn drop(&mut self) {
        let mut life = self.run.life.lock();
        let now = self.context.tick();
        let was_last_call = match self.purpose {
            RunUse::Call => life.finish_call(now),
            RunUse::Session => {
                life.release_lease(now);
                false
            },
        };
        drop(life);
        if was_last_call {
            self.run.calls_done.notify_waiters();
        }
    }
}

impl RunState {
    pub(crate) fn new(
        (name_id, id, previous_closed): (RunId, RunId, Option<Arc<CancelSignal>>),
        name: Arc<str>,
        identity: Arc<CallerIdentity>,
        (has_quota, origin): (bool, RunOrigin),
        now: Tick,
    ) -> Arc<Self> {
        Arc::new(Self {
            id,
            name_id,
            has_quota: AtomicBool::new(has_quota),
            origin,
            name,
            identity,
            began_at: now,
            life: Mutex::new(RunLifecycle::new(now)),
            calls_done: Notify::new(),
            cancel: CancelSignal::default(),
            session_table: SessionTable::default(),
            pending_losses: ArcSwapOption::empty(),
            closed: Arc::default(),
            previous_closed,
        })
    }

    /// Admits a use of the run, unless it is over.
    pub(crate) fn admit(
        self: &Arc<Self>,
        context: &Arc<EngineContext>,
        purpose: RunUse,
    ) -> Result<RunGuard, Diagnostic> {
        let mut life = self.life.lock();
        let is_admitted = match purpose {
            RunUse::Call => life.admit_call(context.tick()),
            RunUse::Session => life.add_lease(),
        };
        if !is_admitted {
            return Err(ended_diagnostic(&self.name));
        }
        Ok(RunGuard {
            context: Arc::clone(context),
            run: Arc::clone(self),
            purpose,
        })
    }

    /// Waits until nothing is left of the run that had the same id before.
    pub(crate) async fn wait_for_previous(&self) {
        if let Some(previous) = &self.previous_closed {
            previous.wait().await;
        }
    }

    /// No session serves the run any more.
    pub(crate) fn mark_ended(&self) {
        self.session_table.clear();
        self.life.lock().mark_ended();
    }

    pub(crate) async fn wait_for_calls(&self) {
        wait_unless(&self.calls_done, || self.life().calls == 0).await;
    }

    pub(crate) fn life(&self) -> RunLifecycle {
        *self.life.lock()
    }

    pub(crate) fn is_live(&self) -> bool {
        matches!(self.life().phase, RunPhase::Live)
    }

    /// The pool entries that belong to this run alone, each once.
    pub(crate) fn own_entries(&self) -> Vec<Arc<SessionEntry>> {
        let is_own = |entry: &SessionEntry| entry.key.run() == Some(self.id);
        let mut entries = self
            .session_table
            .entries_where(|row| is_own(&row.pool_entry));
        entries.sort_by_key(|entry| entry.number);
        entries.dedup_by_key(|entry| entry.number);
        entries
    }
}

impl fmt::Debug for RunState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run")
            .field("name", &self.name)
            .field("identity", &self.identity.id)
            .field("life", &self.life())
            .finish_non_exhaustive()
    }
}

pub(crate) fn ended_diagnostic(name: &str) -> Diagnostic {
    Diagnostic::new(Reason::RunEnded, format!("run `{name}` has ended"))
}

/// The live runs of each identity. Counted without a lock and without visiting the runs: a caller that
/// names many makes nobody else wait.
#[derive(Default)]
pub(crate) struct RunQuota {
    counts: papaya::HashMap<Identity, u32>,
}

impl RunQuota {
    /// Counts one more run; false if there are as many as allowed.
    pub(crate) fn try_acquire(&self, identity: Identity, most: u32) -> bool {
        let counts = self.counts.pin();
        let counted = counts.compute(identity, |known| {
            match known.map_or(0, |(_, count)| *count) {
                count if count >= most => Operation::Abort(()),
                count => Operation::Insert(count + 1),
            }
        });
        !matches!(counted, Compute::Aborted(()))
    }

    pub(crate) fn release(&self, identity: Identity) {
        let counts = self.counts.pin();
        counts.compute(identity, |known| match known {
            Some((_, &count)) if count > 1 => Operation::Insert(count - 1),
            Some(_) => Operation::Remove,
            None => Operation::Abort(()),
        });
    }
}

/// The error of a caller that has too many runs to begin another.
pub(crate) fn quota_exceeded(most: u32) -> Diagnostic {
    let what = match most {
        1 => "a run of this identity is live, and no more may be".to_owned(),
        _ => format!("{most} runs of this identity are live, and no more may be"),
    };
    // Without a time to retry after: a run lives as long as it is used.
    Diagnostic::new(Reason::Overloaded, what)
        .with_hint("end runs that are over, or raise `limits.runs_per_identity`")
}

impl RunState {
    /// Checks that the run may open sessions. A run that began above the limit is counted as soon as
    /// another has ended.
    pub(crate) fn check_quota(&self, quota: &RunQuota, most: u32) -> Result<(), Diagnostic> {
        let life = self.life.lock();
        // The admission of calls reports a run that has ended.
        if self.has_quota.load(Ordering::Relaxed) || life.phase != RunPhase::Live {
            return Ok(());
        }
        if !quota.try_acquire(self.identity.id, most) {
            return Err(quota_exceeded(most));
        }
        self.has_quota.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Begins the end of the run, which lets another begin; false if it does not begin now.
    pub(crate) fn request_end(
        &self,
        quota: &RunQuota,
        end: impl FnOnce(&mut RunLifecycle) -> bool,
    ) -> bool {
        let mut life = self.life.lock();
        let has_begun = end(&mut life);
        if has_begun && self.has_quota.swap(false, Ordering::Relaxed) {
            quota.release(self.identity.id);
        }
        has_begun
    }
}

#[cfg(test)]
mod tests {
    use warmline_core::pool_key::Digest;

    use super::*;

    #[test]
    fn an_identity_gets_so_many_and_what_it_gives_back() {
        let [alice, bob] = [1, 2].map(|who| Identity(Digest::new([who; 16])));
        let quota = RunQuota::default();
        assert!(!quota.try_acquire(alice, 0));
        assert_eq!(
            [1, 2, 3].map(|_| quota.try_acquire(alice, 2)),
            [true, true, false]
        );
        assert!(quota.try_acquire(bob, 2));
        quota.release(alice);
        assert_eq!([1, 2].map(|_| quota.try_acquire(alice, 2)), [true, false]);
        for who in [alice, alice, bob, bob] {
            quota.release(who);
        }
        assert!(quota.counts.pin().is_empty());
    }
}
