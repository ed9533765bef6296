//! The end of an engine: calls are let end or cut, sessions are closed, children are gone.
//!
//! Asked by: whoever closes the engine. It may be asked again while it is under way, by somebody
//! who has less time.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::{join, join_all};

use super::{CLOSED, DRAINING, Engine};
use crate::clock::{self, Instant};
use crate::entry::Entry;
use crate::run::{self, RunShared};

/// What is left for closing when the time of the last calls is over.
const TO_CLOSE: Duration = Duration::from_secs(6);

impl Engine {
    /// Lets calls end: those of runs in their grace, others for as long as there is time.
    pub(crate) async fn close(self: &Arc<Self>) {
        self.phase.fetch_max(DRAINING, Ordering::AcqRel);
        self.end_unwanted();
        let by = clock::after(self.ceilings().drain);
        let made = self.made.all();
        self.let_end(by).await;
        self.is_closed(made, by).await;
    }

    /// Ends looks of our own: lists that are read, and that nobody waits for.
    pub(crate) fn end_unwanted(&self) {
        for entry in self.made.all() {
            entry.tools.end_unwanted();
            entry.listed.end_unwanted();
        }
    }

    /// Lets no call go on, and closes what there is within this time.
    pub(crate) async fn close_now(self: &Arc<Self>, within: Duration) {
        self.phase.fetch_max(DRAINING, Ordering::AcqRel);
        let by = clock::after(within);
        let made = self.made.all();
        let runs = self.live_runs();
        self.cut_calls();
        for run in &runs {
            run.cut_calls();
        }
        self.leases.let_go_of(|_| true);
        let ends = self.end_runs(runs, Duration::ZERO);
        let closing = join(ends, self.pool().drain(by));
        clock::timeout_at(by, closing).await.ok();
        self.is_closed(made, by).await;
    }

    /// Children that are being ended now, and those that are later, have a moment for each step.
    pub(crate) fn hurry(&self) {
        self.shared.upstream.children.hurry();
    }

    /// Ends everything: runs first, so that their calls get the grace, then what is left.
    async fn let_end(self: &Arc<Self>, by: Instant) {
        let grace = self.ceilings().grace;
        let runs = self.live_runs();
        clock::timeout_at(by, self.end_runs(runs, grace)).await.ok();
        // No call can be let in any more: a lease without one is over.
        self.leases.let_go_of(|_| true);
        let mut drain = pin!(self.pool().drain(by));
        let cut_at = by.checked_sub(TO_CLOSE).unwrap_or(by);
        if clock::timeout_at(cut_at, &mut drain).await.is_err() {
            // Whoever is still under way ends now, so that there is time to close.
            self.cut_calls();
            drain.await;
        }
        self.cut_calls();
    }

    /// Ends runs that live, and those whose end was left to the keeper.
    async fn end_runs(self: &Arc<Self>, live: Vec<Arc<RunShared>>, grace: Duration) {
        let live = live
            .into_iter()
            .map(|live| run::end_closed(Arc::clone(self), live, grace));
        let left = self.keeper.left_over();
        let left = left
            .into_iter()
            .map(|left| run::end_left_over(Arc::clone(self), left));
        join(join_all(live), join_all(left)).await;
    }

    /// Ends calls outside of runs that are still under way.
    fn cut_calls(&self) {
        for cut in &self.cuts {
            cut.cut();
        }
    }

    /// Nothing is let in any more; whatever still ends has until then, and what is still asked for
    /// any of these servers.
    async fn is_closed(&self, made: Vec<Arc<Entry>>, by: Instant) {
        self.phase.store(CLOSED, Ordering::Release);
        self.keeper.stop();
        // Programs that print tokens among them: nobody waits for those any more.
        let asked = join_all(made.iter().flat_map(|entry| entry.stop_asking()));
        clock::timeout_at(by, asked).await.ok();
        // Those of openings that were given up belong to no session that the pool knows.
        let children = &self.shared.upstream.children;
        clock::timeout_at(by, children.gone()).await.ok();
        self.shared.upstream.ways.close();
    }
}
