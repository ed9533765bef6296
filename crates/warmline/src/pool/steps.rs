//! Steps: what the core decided, with sessions and callers put in, carried out after the lock.
//!
//! There is no decision here: every effect is one branch.

use std::sync::Arc;

use smallvec::SmallVec;
use tokio::sync::oneshot;
use warmline_core::exchange::Trouble;
use warmline_core::pool::{Event, Generation, Health, Refusal, Why};
use warmline_core::tick::Tick;

use super::cell::{Answer, CellOf, Slot, Unserved};
use super::ground::Errand;
use super::inheriting::{Heir, Kept};
use super::lease::Handed;
use super::tally::Seldom;
use super::{Connector, What, wording};
use crate::clock;

/// One thing to do.
pub(super) enum Step<C: Connector> {
    /// A lease for the caller who asks right now.
    Mine(Handed<C>),
    /// None for the caller who asks right now.
    NotMine(Refusal),
    Hand(oneshot::Sender<Answer<C>>, Handed<C>),
    Refuse(oneshot::Sender<Answer<C>>, Refusal),
    Open(Generation, Option<Kept<C>>, oneshot::Receiver<()>),
    Check(Generation, Arc<C::Session>),
    KeepAlive(Generation, Arc<C::Session>),
    Proven,
    /// A session that was opened then was opened in vain.
    InVain(Tick),
    Lost(Generation, Why),
    Close(Slot<C>, Why, Option<Heir>),
    Release(Kept<C>),
    Forget,
    Over(Vec<oneshot::Sender<()>>),
}

/// Things to do, in this order.
pub(super) struct Steps<C: Connector> {
    pub(super) all: SmallVec<[Step<C>; 2]>,
    /// Why an opening failed, for those who are told.
    pub(super) trouble: Option<Arc<Trouble>>,
}

impl<C: Connector> Default for Steps<C> {
    fn default() -> Self {
        Self {
            all: SmallVec::new(),
            trouble: None,
        }
    }
}

impl<C: Connector> Steps<C> {
    /// What there is for the caller who asks right now, if it need not wait.
    pub(super) fn take_mine(&mut self) -> Option<Step<C>> {
        let mine = |step: &Step<C>| matches!(step, Step::Mine(_) | Step::NotMine(_));
        let at = self.all.iter().position(mine)?;
        Some(self.all.remove(at))
    }
}

impl<C: Connector> CellOf<C> {
    pub(super) fn carry_out(self: &Arc<Self>, steps: Steps<C>) {
        let trouble = steps.trouble;
        for step in steps.all {
            match step {
                // Whoever is not there any more gives it back: it falls out of the channel.
                Step::Hand(answer, handed) => drop(answer.send(Ok(handed))),
                Step::Refuse(answer, Refusal::Deserted) => {
                    drop(answer.send(Err(Unserved::AskAgain)));
                },
                Step::Refuse(answer, refusal) => {
                    let why = self.trouble_of(refusal, trouble.as_ref());
                    drop(answer.send(Err(Unserved::Trouble(why))));
                },
                Step::Open(generation, kept, stopped) => self.open(generation, kept, stopped),
                Step::Check(generation, session) => self.check(generation, session),
                Step::Proven => self.ground.proven(self.setup(), self.any_key()),
                Step::InVain(opened) => {
                    self.ground.in_vain(self.setup(), self.any_key(), opened);
                },
                Step::Lost(generation, why) => self.happened(What::Lost { generation, why }),
                Step::Close(slot, why, heir) => self.close(slot, why, heir),
                Step::Release(kept) => drop(kept),
                Step::Forget => self.forget(),
                Step::Over(watchers) => self.over(watchers),
                // Taken out before by whoever asked, or swept.
                Step::Mine(handed) => drop(handed),
                Step::NotMine(_) | Step::KeepAlive(..) => {},
            }
        }
    }

    /// What a refused caller reads.
    pub(super) fn trouble_of(
        &self,
        refusal: Refusal,
        of_opening: Option<&Arc<Trouble>>,
    ) -> Arc<Trouble> {
        match (refusal, of_opening) {
            (Refusal::OpenFailed, Some(trouble)) => Arc::clone(trouble),
            (Refusal::OpenFailed, None) | (Refusal::Deserted, _) => {
                Arc::new(wording::no_word(self.server()))
            },
            (Refusal::LineFull, _) => {
                Arc::new(wording::line_full(self.server(), self.policy().waiters))
            },
            (Refusal::Ended(why), _) => Arc::new(wording::ended(self.server(), why)),
        }
    }

    /// Tells what happened to this key.
    pub(super) fn happened(&self, what: What<'_>) {
        let (setup, key) = (self.setup(), self.any_key());
        self.ground.happened(setup, key, self.held_key(), what);
    }

    fn check(self: &Arc<Self>, generation: Generation, session: Arc<C::Session>) {
        let mut check = Check {
            cell: Arc::clone(self),
            generation,
            found: Health::Unreachable,
            _errand: self.ground.errand(),
        };
        clock::spawn_if_running("check", async move {
            let began = clock::now();
            let cell = Arc::clone(&check.cell);
            check.found = cell.connector().check(&session, cell.setup()).await;
            cell.happened(What::Checked {
                generation,
                health: check.found,
                took: clock::now().saturating_duration_since(began),
            });
        });
    }

    /// Ends a session in the background. Its room goes back when the server was told, or to the
    /// session that takes its place.
    fn close(self: &Arc<Self>, slot: Slot<C>, why: Why, heir: Option<Heir>) {
        let Slot {
            generation,
            session,
            mut room,
        } = slot;
        if why == Why::Evicted
            && let Some(room) = &mut room
        {
            room.promise();
        }
        self.ground.tally.closing(1);
        self.ground.tally.seldom(Seldom::Closed);
        let closing = Closing {
            cell: Arc::clone(self),
            generation,
            why,
            room,
            heir,
            _errand: self.ground.errand(),
        };
        clock::spawn_if_running("close", async move {
            let cell = &closing.cell;
            // Closing many takes turns; the semaphore is never closed.
            let slot = cell.ground.closings.acquire().await.ok();
            let (connector, setup) = (cell.connector(), cell.setup());
            connector.close(session, setup, cell.held_key(), why).await;
            drop(slot);
        });
    }

    fn forget(self: &Arc<Self>) {
        if let Some(table) = self.ground.table.upgrade() {
            table.strike_out(self);
        }
        self.ground.tally.seldom(Seldom::Forgotten);
        self.happened(What::KeyForgotten);
    }

    fn over(&self, watchers: Vec<oneshot::Sender<()>>) {
        if let Some(table) = self.ground.table.upgrade() {
            table.leaving.pin().remove(&self.number());
        }
        for watcher in watchers {
            watcher.send(()).ok();
        }
        self.ground.rested.notify_waiters();
    }
}

/// A check under way. However its task ends, the cell is told.
struct Check<C: Connector> {
    cell: Arc<CellOf<C>>,
    generation: Generation,
    found: Health,
    _errand: Errand<C>,
}

impl<C: Connector> Drop for Check<C> {
    fn drop(&mut self) {
        self.cell.tell(Event::Checked {
            generation: self.generation,
            health: self.found,
        });
    }
}

/// A closing under way. However its task ends, also with its runtime, the session is none of ours
/// any more: that is told, the room goes back, and the cell knows.
struct Closing<C: Connector> {
    cell: Arc<CellOf<C>>,
    generation: Generation,
    why: Why,
    room: Option<super::rooms::Room>,
    heir: Option<Heir>,
    _errand: Errand<C>,
}

impl<C: Connector> Drop for Closing<C> {
    fn drop(&mut self) {
        let (generation, why) = (Some(self.generation), self.why);
        self.cell.happened(What::Closed { generation, why });
        match (self.room.take(), self.heir.take()) {
            // Who gave up meanwhile lets it fall, and it goes back.
            (Some(room), Some(heir)) => drop(heir.send(room)),
            (room, _) => drop(room),
        }
        self.cell.ground.tally.closing(-1);
        self.cell
            .enter(|inside, _, _| inside.closing = inside.closing.saturating_sub(1));
    }
}
