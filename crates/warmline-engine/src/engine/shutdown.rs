//! The end of an engine: calls finish or are cancelled, sessions are closed, children end. A second
//! close may shorten it.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::{join, join_all};
use warmline_core::pool::EndReason;

use super::{Engine, end_pending, end_run};
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
        let by = clock::after(self.limits().drain);
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
        let closing = join(ends, self.pool().drain(by));
        clock::timeout_at(by, closing).await.ok();
        self.finish_close(made, by).await;
    }

    /// Gives each step of ending a child only a moment.
    pub(crate) fn hurry_children(&self) {
        self.context.upstream.child_tracker.shorten_timeouts();
    }

    /// Ends everything: runs first, so that their calls get the grace, then what is left.
    async fn drain_calls(self: &Arc<Self>, by: Instant) {
        let grace = self.limits().grace;
        let runs = self.live_runs();
        clock::timeout_at(by, self.end_runs(runs, grace)).await.ok();
        // No call is admitted any more: an idle lease is over.
        self.leases.release(None);
        let mut drain = pin!(self.pool().drain(by));
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
        let left = self.maintenance.take_pending_run_ends();
        let left = left
            .into_iter()
            .map(|left| end_pending(Arc::clone(self), left));
        join(join_all(live), join_all(left)).await;
    }

    /// Cancels calls outside runs.
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
