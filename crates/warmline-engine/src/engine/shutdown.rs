//! The end of a run, carried out once, whoever asks for it, wherever it is dropped; and the end of an
//! engine: calls finish or are cancelled, sessions are closed, children end. A second close may shorten
//! it.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

use futures_util::future::{join, join_all};
use warmline_core::pool::EndReason;
use warmline_core::run::RunLifecycle;

use super::Engine;
use crate::context::{CLOSED, DRAINING};
use crate::events::RunEnd;
use crate::run_state::RunState;
use crate::server_state::ServerState;
use warmline_platform::clock::{self, Instant};

/// The time reserved for closing sessions after the last calls.
const CLOSE_RESERVE: Duration = Duration::from_secs(6);

impl Engine {
    /// Lets calls finish: those of runs in their grace, others within the drain time.
    pub(crate) async fn close(self: &Arc<Self>) {
        self.context.phase.fetch_max(DRAINING, Ordering::AcqRel);
        self.cancel_orphaned_reads();
        let by = clock::after(self.context.limits.drain);
        let made = self.registry.all();
        self.drain_calls(by).await;
        self.finish_close(made, by).await;
    }

    /// Cancels list reads that no caller is waiting for.
    pub(crate) fn cancel_orphaned_reads(&self) {
        for entry in self.registry.all() {
            entry.tool_lists.cancel_orphaned_reads();
            entry.other_lists.cancel_orphaned_reads();
        }
    }

    /// Cancels all calls and closes everything within this time.
    pub(crate) async fn close_within(self: &Arc<Self>, within: Duration) {
        self.context.phase.fetch_max(DRAINING, Ordering::AcqRel);
        let by = clock::after(within);
        let made = self.registry.all();
        let runs = self.live_runs();
        self.cancel_calls();
        for run in &runs {
            run.cancel.set();
        }
        self.leases.release(None);
        let ends = self.end_runs(runs, Duration::ZERO);
        let closing = join(ends, self.pool.drain(by));
        clock::timeout_at(by, closing).await.ok();
        self.finish_close(made, by).await;
    }

    /// Ends everything: runs first, so that their calls get the grace, then what is left.
    async fn drain_calls(self: &Arc<Self>, by: Instant) {
        let grace = self.context.limits.grace;
        let runs = self.live_runs();
        clock::timeout_at(by, self.end_runs(runs, grace)).await.ok();
        // No call is admitted any more: an idle lease is over.
        self.leases.release(None);
        let mut drain = pin!(self.pool.drain(by));
        let cut_at = by.checked_sub(CLOSE_RESERVE).unwrap_or(by);
        if clock::timeout_at(cut_at, &mut drain).await.is_err() {
            // Calls in flight end now, so that there is time to close.
            self.cancel_calls();
            drain.await;
        }
        self.cancel_calls();
    }

    /// Ends live runs, and those whose end was left to maintenance.
    async fn end_runs(self: &Arc<Self>, live: Vec<Arc<RunState>>, grace: Duration) {
        // With a store that outlives the process, sessions are left to their records.
        let why = (RunEnd::Closed, EndReason::Drained);
        let live = live
            .into_iter()
            .map(|live| end_run(Arc::clone(self), live, why, grace));
        let left = self.maintenance.pending_ends.take_all();
        let left = left
            .into_iter()
            .map(|left| end_pending(Arc::clone(self), left));
        join(join_all(live), join_all(left)).await;
    }

    fn cancel_calls(&self) {
        for cut in &self.cancel_signals {
            cut.set();
        }
    }

    /// Waits for lookups and children, and closes the HTTP targets.
    async fn finish_close(&self, made: Vec<Arc<ServerState>>, by: Instant) {
        self.context.phase.store(CLOSED, Ordering::Release);
        self.maintenance.stop();
        // Among them programs that print tokens.
        let asked = join_all(made.iter().flat_map(|entry| entry.stop_lookups()));
        clock::timeout_at(by, asked).await.ok();
        // Children of abandoned openings belong to no pooled session.
        let children = &self.context.upstream.child_tracker;
        clock::timeout_at(by, children.wait_until_empty())
            .await
            .ok();
        self.context.upstream.endpoints.close();
    }
}

pub(super) fn end_if_idle(engine: &Arc<Engine>, run: &Arc<RunState>, limit: Duration) {
    let end = |life: &mut RunLifecycle| life.begin_end_if_idle(engine.tick(), limit);
    if let Some(end) = begin_end(engine, run, (RunEnd::IdleTooLong, EndReason::RunEnded), end) {
        drop(clock::spawn("run-idle", end.run(Duration::ZERO)));
    }
}

pub(super) async fn end_pending(engine: Arc<Engine>, pending: PendingRunEnd) {
    RunEndTask::new(engine, pending).run(Duration::ZERO).await;
}

/// Ends a run in the background, without a grace. From now on no call is admitted, and its name begins
/// another run.
pub(crate) fn end_in_background(engine: &Arc<Engine>, run: &Arc<RunState>, ended: RunEnd) {
    if let Some(end) = begin_end(
        engine,
        run,
        (ended, EndReason::RunEnded),
        RunLifecycle::begin_end,
    ) {
        clock::spawn_if_running("run-end", end.run(Duration::ZERO));
    }
}

/// Ends a run, or waits for its end.
///
/// # Cancel safety
/// Dropping it does not stop the end, which runs in a task of its own.
pub(crate) async fn end_run(
    engine: Arc<Engine>,
    run: Arc<RunState>,
    why: (RunEnd, EndReason),
    grace: Duration,
) {
    if let Some(end) = begin_end(&engine, &run, why, RunLifecycle::begin_end) {
        drop(clock::spawn("run-end", end.run(grace)));
    }
    run.closed.wait().await;
}

/// The end of a run, unless it ends already.
fn begin_end(
    engine: &Arc<Engine>,
    run: &Arc<RunState>,
    why: (RunEnd, EndReason),
    end: impl FnOnce(&mut RunLifecycle) -> bool,
) -> Option<RunEndTask> {
    let task = || RunEndTask::new(Arc::clone(engine), (Arc::clone(run), why));
    run.request_end(&engine.run_quota, end).then(task)
}

/// An end that nobody could carry out: the run, and why it ends.
pub(super) type PendingRunEnd = (Arc<RunState>, (RunEnd, EndReason));

/// The end that is owed to a run. Where nothing runs that could carry it out, or what runs ends on
/// the way, the keeper gets it.
struct RunEndTask {
    engine: Arc<Engine>,
    pending: Option<PendingRunEnd>,
    has_started: bool,
}

impl RunEndTask {
    fn new(engine: Arc<Engine>, pending: PendingRunEnd) -> Self {
        Self {
            engine,
            pending: Some(pending),
            has_started: false,
        }
    }

    async fn run(mut self, grace: Duration) {
        self.has_started = true;
        if let Some((run, why)) = self.pending.clone() {
            execute_end(&self.engine, run, why, grace).await;
        }
        self.pending = None;
    }
}

impl Drop for RunEndTask {
    fn drop(&mut self) {
        let Some((run, why)) = self.pending.take() else {
            return;
        };
        // What panicked once would do so again.
        if self.has_started && std::thread::panicking() {
            return;
        }
        if run.life().calls == 0 && run.own_entries().is_empty() && run.previous_closed.is_none() {
            let _over = RunClosedGuard(Arc::clone(&run));
            finish_run(&self.engine, &run, why.0, 0);
        } else {
            self.engine.maintenance.hand_over_run_end((run, why));
        }
    }
}

async fn execute_end(
    engine: &Arc<Engine>,
    run: Arc<RunState>,
    (ended, why): (RunEnd, EndReason),
    grace: Duration,
) {
    // Even a task that dies on the way leaves nobody waiting.
    let over = RunClosedGuard(Arc::clone(&run));
    if run.life().leases > 0 {
        // No call can be let in any more: a lease without one is over.
        engine.leases.release(Some(&run));
    }
    if !grace.is_zero() && run.life().calls > 0 {
        let quiet = run.wait_for_calls();
        // Who is not done by then is cut: its call ends `unknown`.
        clock::timeout(grace, quiet).await.ok();
    }
    run.cancel.set();
    fence(Ordering::SeqCst);
    engine.pool.spares().end_first_contacts_of_run(run.id);
    let cells = run.own_entries();
    let sessions = u32::try_from(cells.len()).unwrap_or(u32::MAX);
    let ended = match cells
        .iter()
        .any(|entry| engine.session_factory.is_kept_in_record(entry, why))
    {
        true => RunEnd::Detached,
        false => ended,
    };
    let by = clock::after(engine.context.limits.drain);
    engine.pool.end_entries(&cells, why, by).await;
    for entry in &cells {
        entry.setup.server.forget_run_lists(run.id);
        if why == EndReason::RunEnded {
            clock::timeout_at(by, engine.session_factory.clear_loss_record(entry))
                .await
                .ok();
        }
    }
    // Whoever takes the name next waits for this run alone.
    clock::timeout_at(by, run.wait_for_previous()).await.ok();
    finish_run(engine, &run, ended, sessions);
    drop(over);
}

fn finish_run(engine: &Engine, run: &Arc<RunState>, ended: RunEnd, sessions: u32) {
    run.mark_ended();
    // Only now: until everything is closed, the name leads to another key.
    engine.forget_run(run);
    engine.record_run_end(run, ended, sessions);
}

struct RunClosedGuard(Arc<RunState>);

impl Drop for RunClosedGuard {
    fn drop(&mut self) {
        self.0.closed.set();
    }
}
