//! What the pool does without being asked by a call: sweeping, ending, draining.
//!
//! Asked by: the keeper, by runs that end, and by whoever closes the engine.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::oneshot;
use warmline_core::key::{DeclaredId, Scope};
use warmline_core::pool::{Event, Generation, Why};

use super::cell::{CellOf, Seen};
use super::ground::Phase;
use super::steps::Step;
use super::{Connector, Pool, SpareKey, What};
use crate::clock::{self, Instant};

/// So many cells are swept in one go; then others get a turn.
const IN_ONE_GO: usize = 512;
/// What is still in use is cut this long before everything has to be closed, so that closing it
/// has time too.
const TO_CLOSE: Duration = Duration::from_secs(5);

/// A session of a live run that rested, and is to be asked whether it lives.
pub(crate) struct KeepAlive<C: Connector> {
    cell: Arc<CellOf<C>>,
    generation: Generation,
    session: Arc<C::Session>,
}

impl<C: Connector> KeepAlive<C> {
    /// For a session that somebody doubts.
    pub(crate) fn of(cell: &Arc<CellOf<C>>, seen: Seen<C>) -> Self {
        Self {
            cell: Arc::clone(cell),
            generation: seen.generation,
            session: seen.session,
        }
    }

    /// Whose session it is.
    pub(crate) fn server(&self) -> Arc<str> {
        Arc::clone(&self.cell.key().place().server)
    }

    /// Asks, and tells the cell.
    pub(crate) async fn run(self) {
        let (cell, generation) = (&self.cell, self.generation);
        let began = clock::now();
        let health = cell.connector().check(&self.session, cell.setup()).await;
        cell.tell(Event::KeptAlive { generation, health });
        let took = clock::now().saturating_duration_since(began);
        cell.happened(What::Checked {
            generation,
            health,
            took,
        });
    }
}

/// So long an opening may still take when its cell has ended: one that is nearly open is ended in
/// order, because the server may have given it a session already.
const NEARLY_OPEN: Duration = Duration::from_secs(2);

impl<C: Connector> Pool<C> {
    /// One round of the keeper: ends what is too old, forgets empty keys, refills spares, and
    /// says what is to be kept alive.
    pub(crate) async fn sweep(&self) -> Vec<KeepAlive<C>> {
        let forget_after = self.ground.evict_after;
        let mut due = Vec::new();
        for (at, cell) in self.cells().into_iter().enumerate() {
            if at % IN_ONE_GO == IN_ONE_GO - 1 {
                give_way().await;
            }
            cell.sweep(forget_after, &mut due);
        }
        self.ground.shelves.sweep(&self.ground);
        self.ground.breakers.sweep();
        due
    }

    /// Ends a key: no new leases, whoever waits is told, what rests is closed in the background,
    /// what is in use when it was settled.
    pub(crate) fn end(&self, cell: &Arc<CellOf<C>>, why: Why) {
        self.table.let_go(cell);
        cell.tell(Event::Ended(why));
        cell.happened(What::KeyEnded);
    }

    /// Ends one session of a key, as an operator wants it: the key goes on with another.
    pub(crate) fn end_session(&self, cell: &Arc<CellOf<C>>, generation: Generation) {
        let why = Why::ByOperator;
        cell.tell(Event::Gone { generation, why });
    }

    /// Ends the keys that are opened so and belong to no run, with the spares for them.
    pub(crate) fn end_shared_of(&self, is_meant: impl Fn(&C::Setup) -> bool, why: Why) {
        for cell in self.cells() {
            if cell.key().run().is_none() && is_meant(cell.setup()) {
                self.end(&cell, why);
            }
        }
        let shelves = &self.ground.shelves;
        let meant = shelves.opened_so(is_meant);
        shelves.clear_of(&self.ground, why, |key| meant.contains(key));
    }

    /// The same for what is shared by those who say this of themselves, whatever the server.
    pub(crate) fn end_shared_by(&self, declared: DeclaredId, why: Why) {
        for cell in self.cells() {
            if cell.key().scope() == Scope::Shared(declared) {
                self.end(&cell, why);
            }
        }
        let shelves = &self.ground.shelves;
        shelves.clear_of(&self.ground, why, |key| key.declared == declared);
    }

    /// Another number of spares may be wanted for what is opened so: those that are too many end
    /// now, and those that are missing are opened.
    pub(crate) fn decide_spares(&self, is_meant: impl Fn(&C::Setup) -> bool) {
        self.ground.shelves.decide(&self.ground, is_meant);
    }

    /// Closes what lies on one shelf.
    pub(crate) fn clear_shelf(&self, shelf: &SpareKey, why: Why) {
        let shelves = &self.ground.shelves;
        shelves.clear_of(&self.ground, why, |key| key == shelf);
    }

    /// Ends keys side by side, and waits until nothing is left of them; what is in use then is
    /// cut.
    pub(crate) async fn end_all_of(&self, cells: &[Arc<CellOf<C>>], why: Why, by: Instant) {
        for cell in cells {
            self.end(cell, why);
        }
        let cut_at = before(by);
        let nearly_open = clock::after(NEARLY_OPEN).min(cut_at);
        let mut ends: Vec<_> = cells.iter().filter_map(|cell| cell.watch()).collect();
        for (end, cut) in [
            (nearly_open, Some(Cut::Openings)),
            (cut_at, Some(Cut::All)),
            (by, None),
        ] {
            let mut left = Vec::new();
            for mut watched in ends {
                if clock::timeout_at(end, &mut watched).await.is_err() {
                    left.push(watched);
                }
            }
            if left.is_empty() {
                return;
            }
            ends = left;
            if let Some(cut) = cut {
                for cell in cells {
                    cell.cut(cut);
                }
            }
        }
    }

    /// Lets nothing new in, ends everything, and waits until nothing is left or the time is over.
    pub(crate) async fn drain(&self, by: Instant) {
        let ground = &self.ground;
        ground.enter(Phase::Draining);
        ground.shelves.clear(ground, Why::Drained);
        for cell in self.cells() {
            self.end(&cell, Why::Drained);
        }
        let nearly_open = clock::after(NEARLY_OPEN).min(before(by));
        for (end, cut) in [(nearly_open, Cut::Openings), (before(by), Cut::All)] {
            if self.rests(end).await {
                break;
            }
            for cell in self.table.everyone() {
                // A cell that came after the drain began has not ended yet.
                self.end(&cell, Why::Drained);
                cell.cut(cut);
            }
        }
        self.rests(by).await;
        ground.enter(Phase::Closed);
        let census = self.census();
        if census.mistakes > 0 {
            tracing::error!(
                mistakes = census.mistakes,
                "the pool was told what makes no sense"
            );
        }
    }

    /// Waits until nothing is left, at the latest until then.
    async fn rests(&self, by: Instant) -> bool {
        loop {
            // Before the look, so that nothing is missed in between.
            let rested = self.ground.rested.notified();
            for cell in self.cells() {
                self.end(&cell, Why::Drained);
            }
            if self.table.leaving.is_empty() && self.ground.errands() == 0 {
                return true;
            }
            if clock::timeout_at(by, rested).await.is_err() {
                return false;
            }
        }
    }
}

/// What is cut when the time of an ended cell is over.
#[derive(Clone, Copy)]
enum Cut {
    /// Openings that nobody waits for.
    Openings,
    /// Whatever is left.
    All,
}

impl<C: Connector> CellOf<C> {
    fn cut(self: &Arc<Self>, cut: Cut) {
        let (counts, ..) = self.counts();
        let is_due = match cut {
            Cut::Openings => counts.opening > 0 && counts.leases == 0,
            Cut::All => true,
        };
        if is_due {
            self.tell(Event::Cut);
        }
    }

    fn sweep(self: &Arc<Self>, forget_after: Duration, due: &mut Vec<KeepAlive<C>>) {
        let event = Event::Swept { forget_after };
        self.enter(|inside, now, steps| {
            inside.take_in(self, event, now, steps);
            steps.all.retain(|step| {
                let Step::KeepAlive(generation, session) = step else {
                    return true;
                };
                due.push(KeepAlive {
                    cell: Arc::clone(self),
                    generation: *generation,
                    session: Arc::clone(session),
                });
                false
            });
        });
    }

    /// Rings when nothing is left; none if that is so already.
    fn watch(self: &Arc<Self>) -> Option<oneshot::Receiver<()>> {
        self.enter(|inside, _, _| {
            if inside.is_over() {
                return None;
            }
            let (watcher, watched) = oneshot::channel();
            inside.busy().watchers.push(watcher);
            Some(watched)
        })
    }
}

/// When to cut what is in use, so that it can be closed in time.
fn before(by: Instant) -> Instant {
    let now = clock::now();
    let left = by.saturating_duration_since(now);
    now + left.saturating_sub(TO_CLOSE.min(left / 4))
}

/// Lets others have a turn.
async fn give_way() {
    let mut gave_way = false;
    poll_fn(|context| {
        if std::mem::replace(&mut gave_way, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
