//! The end of a run: carried out once, whoever asks for it, wherever it is dropped.
//!
//! Asked by: handles of a run, the keeper when one rests too long, and whoever closes the engine.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

use warmline_core::pool::Why;
use warmline_core::run::EndAsked;

use super::RunShared;
use crate::clock;
use crate::engine::Engine;
use crate::events::RunEnd;

/// Ends a run if it rested too long.
pub(crate) fn end_if_idle(engine: &Arc<Engine>, run: Arc<RunShared>, limit: Duration) {
    let places = &engine.run_places;
    let asked = run.ask_end(places, |life| life.end_if_idle(engine.tick(), limit));
    if let Some(EndAsked::Yours { .. }) = asked {
        let why = (RunEnd::IdleTooLong, Why::RunEnded);
        let owed = OwedEnd::new(Arc::clone(engine), run, why);
        drop(clock::spawn("run-idle", owed.carry_out(Duration::ZERO)));
    }
}

/// Carries out an end that was handed to the keeper.
pub(crate) async fn end_left_over(engine: Arc<Engine>, (run, why): LeftOver) {
    let owed = OwedEnd::new(engine, run, why);
    owed.carry_out(Duration::ZERO).await;
}

/// Ends a run without a grace. It is asked for when this returns: from then on no call is let in,
/// and whoever names the run begins another. What has to be done is done in the background.
pub(crate) fn end_in_background(engine: &Arc<Engine>, run: &Arc<RunShared>, ended: RunEnd) {
    let asked = run.ask_end(&engine.run_places, |life| Some(life.end()));
    if let Some(EndAsked::Yours { .. }) = asked {
        let why = (ended, Why::RunEnded);
        let owed = OwedEnd::new(Arc::clone(engine), Arc::clone(run), why);
        clock::spawn_if_running("run-end", owed.carry_out(Duration::ZERO));
    }
}

/// A run of an engine that is closed: with a store that outlives the process its sessions are
/// left to their records.
pub(crate) async fn end_closed(engine: Arc<Engine>, run: Arc<RunShared>, grace: Duration) {
    end(engine, run, (RunEnd::Closed, Why::Drained), grace).await;
}

/// Carries the end of a run out, or waits for whoever does.
///
/// # Cancel safety
/// Dropping it does not stop the end: what has to be done runs in a task of its own.
pub(super) async fn end(
    engine: Arc<Engine>,
    run: Arc<RunShared>,
    why: (RunEnd, Why),
    grace: Duration,
) {
    let asked = run.ask_end(&engine.run_places, |life| Some(life.end()));
    if let Some(EndAsked::Yours { .. }) = asked {
        let owed = OwedEnd::new(engine, Arc::clone(&run), why);
        drop(clock::spawn("run-end", owed.carry_out(grace)));
    }
    run.over.wait().await;
}

/// An end that nobody could carry out: the run, and why it ends.
pub(crate) type LeftOver = (Arc<RunShared>, (RunEnd, Why));

/// The end that is owed to a run. Where nothing runs that could carry it out, or what runs ends on
/// the way, the keeper gets it.
pub(super) struct OwedEnd {
    engine: Arc<Engine>,
    /// None once it was carried out.
    left: Option<LeftOver>,
    has_begun: bool,
}

impl OwedEnd {
    pub(super) fn new(engine: Arc<Engine>, run: Arc<RunShared>, why: (RunEnd, Why)) -> Self {
        let left = Some((run, why));
        Self {
            engine,
            left,
            has_begun: false,
        }
    }

    pub(super) async fn carry_out(mut self, grace: Duration) {
        self.has_begun = true;
        if let Some((run, why)) = self.left.clone() {
            carry_out_end(&self.engine, run, why, grace).await;
        }
        self.left = None;
    }
}

impl Drop for OwedEnd {
    fn drop(&mut self) {
        let Some((run, why)) = self.left.take() else {
            return;
        };
        // What panicked once would do so again.
        if self.has_begun && std::thread::panicking() {
            return;
        }
        if run.life().calls() == 0 && run.own_cells().is_empty() && run.after.is_none() {
            let _over = TellOver(Arc::clone(&run));
            conclude(&self.engine, &run, why.0, 0);
        } else {
            self.engine.keeper.hand_over((run, why));
        }
    }
}

async fn carry_out_end(
    engine: &Arc<Engine>,
    run: Arc<RunShared>,
    (ended, why): (RunEnd, Why),
    grace: Duration,
) {
    // Even a task that dies on the way leaves nobody waiting.
    let over = TellOver(Arc::clone(&run));
    if run.life().leases() > 0 {
        // No call can be let in any more: a lease without one is over.
        engine.leases.let_go_of(|caller| {
            let of = caller.run.as_ref();
            of.is_some_and(|of| Arc::ptr_eq(of, &run))
        });
    }
    if !grace.is_zero() && run.life().calls() > 0 {
        let quiet = async {
            let told = run.quiet.notified();
            let mut told = std::pin::pin!(told);
            told.as_mut().enable();
            if run.life().calls() > 0 {
                told.await;
            }
        };
        // Who is not done by then is cut: its call ends `unknown`.
        clock::timeout(grace, quiet).await.ok();
    }
    run.cut.cut();
    fence(Ordering::SeqCst);
    engine.pool().end_met_for(run.id);
    let cells = run.own_cells();
    let sessions = u32::try_from(cells.len()).unwrap_or(u32::MAX);
    let ended = match cells.iter().any(|cell| engine.connector().keeps(cell, why)) {
        true => RunEnd::Detached,
        false => ended,
    };
    let by = clock::after(engine.ceilings().drain);
    engine.pool().end_all_of(&cells, why, by).await;
    for cell in &cells {
        cell.setup().entry.forget_lists_of(run.id);
        if why == Why::RunEnded {
            clock::timeout_at(by, engine.connector().forget_loss(cell))
                .await
                .ok();
        }
    }
    // Whoever takes the name next waits for this run alone.
    clock::timeout_at(by, run.has_its_id()).await.ok();
    conclude(engine, &run, ended, sessions);
    drop(over);
}

/// Everything of a run is closed.
fn conclude(engine: &Engine, run: &Arc<RunShared>, ended: RunEnd, sessions: u32) {
    run.routes.clear();
    run.life.lock().closed();
    // Only now: until everything is closed, the name leads to another key.
    engine.forget_run(run);
    engine.run_ended(run, ended, sessions);
}

struct TellOver(Arc<RunShared>);

impl Drop for TellOver {
    fn drop(&mut self) {
        self.0.over.cut();
    }
}
