//! The shell of one key: the core's cell under its lock, with the sessions it speaks of, the
//! callers in line and the openings under way.
//!
//! Told by: leases, openings, checks, the keeper.  Under the lock the core decides and what it
//! decided is gathered; carried out it is afterwards (`steps.rs`). Nothing foreign is called under
//! the lock: no connector, no waker, no other lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use smallvec::SmallVec;
use tokio::sync::oneshot;
use warmline_core::exchange::Trouble;
use warmline_core::key::Key;
use warmline_core::pool::{
    Cell, CellPolicy, Counts, Effect, Event, Generation, Loss, Refusal, Turn, WaiterId, Want, Why,
};
use warmline_core::tick::Tick;

use super::busy::Busy;
use super::ground::{Ground, Table};
use super::lease::Handed;
use super::rooms::Room;
use super::steps::{Step, Steps};
use super::waiting::Waiting;
use super::{Connector, Purpose};
use crate::clock::Home;
use crate::sync::Mutex;

/// All that is known of one key.
pub(crate) struct CellOf<C: Connector> {
    pub(super) ground: Arc<Ground<C>>,
    key: Arc<Key>,
    purpose: Purpose,
    setup: Arc<C::Setup>,
    number: u64,
    doubt: Arc<AtomicU64>,
    pub(super) inside: Mutex<Inside<C>>,
}

/// What the lock of a cell guards.
pub(super) struct Inside<C: Connector> {
    pub(super) core: Cell,
    pub(super) slots: SmallVec<[Slot<C>; 1]>,
    /// None while the cell rests.
    busy: Option<Box<Busy<C>>>,
    pub(super) closing: u32,
    /// Round and round: no two in one line are four billion apart, and there may be very many cells.
    next_waiter: u32,
    doubt_seen: u64,
}

/// What a caller in line gets in the end.
pub(super) type Answer<C> = Result<Handed<C>, Unserved>;

/// Why a caller in line got no session.
pub(super) enum Unserved {
    /// This went wrong.
    Trouble(Arc<Trouble>),
    /// What it waited for ended without a word. It may ask again, and carries it out itself then.
    AskAgain,
}

/// An open session.
pub(super) struct Slot<C: Connector> {
    pub(super) generation: Generation,
    pub(super) session: Arc<C::Session>,
    pub(super) room: Option<Room>,
}

/// An opening under way.
pub(super) struct Flight {
    pub(super) generation: Generation,
    pub(super) stage: Stage,
    /// Where it is carried out.
    pub(super) home: Option<Home>,
    /// Dropping it stops the opening.
    _stop: oneshot::Sender<()>,
}

/// How far an opening is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// It waits for room; nothing went out.
    Room,
    /// It is on its way.
    Wire,
}

/// What is seen of a session from outside.
pub(crate) struct Seen<C: Connector> {
    /// Its number.
    pub(crate) generation: Generation,
    /// The session itself.
    pub(crate) session: Arc<C::Session>,
    /// When it was opened.
    pub(crate) opened: Tick,
    /// When it was last used.
    pub(crate) used: Tick,
    /// When the server will forget it.
    pub(crate) expires: Option<Tick>,
    /// How many send on it.
    pub(crate) leases: u32,
    /// Whether callers may still come to it.
    pub(crate) is_usable: bool,
}

/// What became of a question for a session.
pub(super) enum Asked<C: Connector> {
    Lease(Handed<C>),
    Wait(Waiting<C>),
    Refused(Refusal),
}

impl<C: Connector> CellOf<C> {
    pub(super) fn new(
        ground: &Arc<Ground<C>>,
        table: &Table<C>,
        key: Arc<Key>,
        purpose: Purpose,
        (policy, setup): (CellPolicy, Arc<C::Setup>),
    ) -> Arc<Self> {
        let number = ground.number_of_a_cell();
        let doubt = table.doubt_of(&key);
        Arc::new(Self {
            ground: Arc::clone(ground),
            key,
            purpose,
            setup,
            number,
            inside: Mutex::new(Inside {
                core: Cell::new(policy, number, ground.tick()),
                slots: SmallVec::new(),
                busy: None,
                closing: 0,
                next_waiter: 0,
                doubt_seen: doubt.load(Ordering::Relaxed),
            }),
            doubt,
        })
    }

    /// Its key.
    pub(crate) fn key(&self) -> &Key {
        &self.key
    }

    /// How its sessions are opened.
    pub(crate) fn setup(&self) -> &Arc<C::Setup> {
        &self.setup
    }

    /// Another policy counts from now on. It applies in place.
    pub(crate) fn reconfigure(self: &Arc<Self>, policy: CellPolicy) {
        self.tell(Event::Reconfigured(policy));
    }

    /// Its open sessions.
    pub(crate) fn sessions(&self) -> Vec<Seen<C>> {
        let inside = self.inside.lock();
        let seen = |slot: &Slot<C>| {
            let of = |one: &&warmline_core::pool::Session| one.generation() == slot.generation;
            let core = inside.core.sessions().iter().find(of)?;
            Some(Seen {
                generation: slot.generation,
                session: Arc::clone(&slot.session),
                opened: core.opened(),
                used: core.used(),
                expires: core.expires(),
                leases: core.state().senders(),
                is_usable: core.state().is_usable(),
            })
        };
        inside.slots.iter().filter_map(seen).collect()
    }

    pub(super) fn shared_key(&self) -> &Arc<Key> {
        &self.key
    }

    /// The key as others are told of it; none for a single call, which belongs to nothing.
    pub(super) fn held_key(&self) -> Option<&Key> {
        match self.purpose {
            Purpose::Held => Some(&self.key),
            Purpose::Call | Purpose::Spare => None,
        }
    }

    pub(super) fn any_key(&self) -> &Key {
        &self.key
    }

    pub(super) fn server(&self) -> &str {
        &self.key.place().server
    }

    pub(super) fn purpose(&self) -> Purpose {
        self.purpose
    }

    pub(super) fn connector(&self) -> &Arc<C> {
        &self.ground.connector
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    pub(super) fn policy(&self) -> CellPolicy {
        *self.inside.lock().core.policy()
    }

    pub(super) fn is_held(&self) -> bool {
        self.purpose == Purpose::Held
    }

    /// Whether it takes callers.
    pub(crate) fn is_live(&self) -> bool {
        self.inside.lock().core.is_live()
    }

    /// Why it ended, if it did.
    pub(crate) fn ended_by(&self) -> Option<Why> {
        self.inside.lock().core.ended_by()
    }

    /// The session that could make room, and since when it was unused.
    pub(super) fn could_go(&self) -> Option<(Generation, Tick)> {
        let inside = self.inside.lock();
        let (generation, used) = inside.core.could_go()?;
        let slot = inside
            .slots
            .iter()
            .find(|slot| slot.generation == generation)?;
        slot.room.as_ref().map(|_| (generation, used))
    }

    /// Tells the core, and does what it says.
    pub(super) fn tell(self: &Arc<Self>, event: Event) {
        self.enter(|inside, now, steps| inside.take_in(self, event, now, steps));
    }

    /// A caller wants a session.
    pub(super) fn ask(self: &Arc<Self>, want: Want, turn: Turn) -> Asked<C> {
        self.enter(|inside, now, steps| {
            inside.look_at_doubt(self, now, steps);
            let waiter = inside.next_waiter();
            let under_way = inside.flights().len();
            inside.take_in(self, Event::Asked { waiter, want, turn }, now, steps);
            match steps.take_mine() {
                Some(Step::Mine(handed)) => Asked::Lease(handed),
                Some(Step::NotMine(refusal)) => Asked::Refused(refusal),
                Some(_) | None => {
                    let (answer, heard) = oneshot::channel();
                    inside.busy().line.insert(waiter, answer);
                    // Those who came later wait for the same opening.
                    let opens = inside.flights().len() > under_way;
                    Asked::Wait(Waiting::new(self, waiter, heard, opens))
                },
            }
        })
    }

    /// Whoever holds this session alone sends on it.
    pub(super) fn join(self: &Arc<Self>, generation: Generation) -> Option<Handed<C>> {
        self.enter(|inside, now, steps| {
            let waiter = inside.next_waiter();
            inside.take_in(self, Event::Joined { waiter, generation }, now, steps);
            let Step::Mine(handed) = steps.take_mine()? else {
                return None;
            };
            Some(handed)
        })
    }

    /// What was lost last, told or not.
    pub(crate) fn loss(&self) -> Option<Loss> {
        self.inside.lock().core.loss()
    }

    /// A caller is told of a loss; false if somebody else was told before.
    pub(super) fn told(self: &Arc<Self>, Loss { number, .. }: Loss) -> bool {
        self.enter(|inside, now, steps| {
            // Another may be a later one, which is not told by this: better twice than never.
            let is_news = inside.core.untold().is_some();
            inside.take_in(self, Event::Told { number }, now, steps);
            is_news
        })
    }

    /// Acts under the lock; what is to be done is done after it.
    pub(super) fn enter<T>(
        self: &Arc<Self>,
        act: impl FnOnce(&mut Inside<C>, Tick, &mut Steps<C>) -> T,
    ) -> T {
        let now = self.ground.tick();
        let mut steps = Steps::default();
        let (done, before, after) = {
            let mut inside = self.inside.lock();
            let before = inside.core.counts();
            let done = act(&mut inside, now, &mut steps);
            inside.note_the_end(&mut steps);
            inside.note_rest();
            (done, before, inside.core.counts())
        };
        self.ground.tally.changed(self.number, &before, &after);
        if !steps.all.is_empty() {
            self.carry_out(steps);
        }
        if after.idle > before.idle && self.ground.rooms.are_needed(&self.key) {
            self.offer_room();
        }
        done
    }

    /// Somebody waits for room that a session of this key takes up.
    fn offer_room(self: &Arc<Self>) {
        if let Some((generation, _)) = self.could_go() {
            self.tell(Event::RoomNeeded { generation });
        }
    }

    pub(crate) fn counts(&self) -> (Counts, u32, u32) {
        let inside = self.inside.lock();
        (
            inside.core.recount(),
            inside.closing,
            inside.core.mistakes(),
        )
    }
}

impl<C: Connector> Inside<C> {
    /// Tells the core, and gathers what it says.
    pub(super) fn take_in(
        &mut self,
        cell: &Arc<CellOf<C>>,
        event: Event,
        now: Tick,
        steps: &mut Steps<C>,
    ) {
        for effect in self.core.on(event, now) {
            if let Effect::Unwanted { generation } = effect {
                self.withdraw(cell, generation, now, steps);
            } else if let Some(step) = self.step(cell, effect) {
                steps.all.push(step);
            }
        }
    }

    fn next_waiter(&mut self) -> WaiterId {
        let waiter = WaiterId(self.next_waiter.into());
        self.next_waiter = self.next_waiter.wrapping_add(1);
        waiter
    }

    /// What an effect means with the sessions and callers of this cell put in.
    fn step(&mut self, cell: &Arc<CellOf<C>>, effect: Effect) -> Option<Step<C>> {
        match effect {
            Effect::Lease {
                waiter,
                generation,
                loss,
            } => {
                let session = &self.slot(generation)?.session;
                let handed = Handed::new(cell, session, generation, loss);
                Some(match self.out_of_line(waiter) {
                    Some(answer) => Step::Hand(answer, handed),
                    None => Step::Mine(handed),
                })
            },
            Effect::Refuse { waiter, refusal } => Some(match self.out_of_line(waiter) {
                Some(answer) => Step::Refuse(answer, refusal),
                None => Step::NotMine(refusal),
            }),
            Effect::Open { generation } => Some(self.take_off(generation)),
            // Said before: see `take_in`.
            Effect::Unwanted { .. } => None,
            Effect::Abandon { generation } => {
                self.land(generation);
                None
            },
            Effect::Renumber { from, to } => {
                self.slot(from)?.generation = to;
                None
            },
            Effect::Check { generation } => {
                let session = Arc::clone(&self.slot(generation)?.session);
                Some(Step::Check(generation, session))
            },
            Effect::KeepAlive { generation } => {
                let session = Arc::clone(&self.slot(generation)?.session);
                Some(Step::KeepAlive(generation, session))
            },
            Effect::Proven { .. } => Some(Step::Proven),
            Effect::InVain { opened, .. } => Some(Step::InVain(opened)),
            Effect::Lost { generation, why } => {
                self.keep(cell, generation, why);
                Some(Step::Lost(generation, why))
            },
            Effect::Close { generation, why } => {
                let at = self
                    .slots
                    .iter()
                    .position(|slot| slot.generation == generation)?;
                self.closing += 1;
                let heir = self.busy.as_mut().and_then(|busy| busy.heir_of(generation));
                Some(Step::Close(self.slots.remove(at), why, heir))
            },
            Effect::Forget => Some(Step::Forget),
        }
    }

    /// An opening begins.
    fn take_off(&mut self, generation: Generation) -> Step<C> {
        let (stop, stopped) = oneshot::channel();
        self.busy().flights.push(Flight {
            generation,
            stage: Stage::Room,
            home: Home::here(),
            _stop: stop,
        });
        Step::Open(generation, self.busy().kept.take(), stopped)
    }

    /// Nobody waits for this opening any more. It need not begin; what began goes on.
    fn withdraw(
        &mut self,
        cell: &Arc<CellOf<C>>,
        generation: Generation,
        now: Tick,
        steps: &mut Steps<C>,
    ) {
        let waits =
            |flight: &Flight| flight.generation == generation && flight.stage == Stage::Room;
        if self.flights().iter().any(waits) {
            self.land(generation);
            self.take_in(cell, Event::Withdrawn { generation }, now, steps);
        }
    }

    /// An opening is over; false if it was stopped before.
    pub(super) fn land(&mut self, generation: Generation) -> bool {
        let Some(busy) = &mut self.busy else {
            return false;
        };
        let before = busy.flights.len();
        busy.flights
            .retain(|flight| flight.generation != generation);
        before > busy.flights.len()
    }

    /// The server lost sessions since this cell last looked.
    fn look_at_doubt(&mut self, cell: &Arc<CellOf<C>>, now: Tick, steps: &mut Steps<C>) {
        let doubt = cell.doubt.load(Ordering::Relaxed);
        if doubt > self.doubt_seen {
            self.doubt_seen = doubt;
            let since = Tick::at(Duration::from_nanos(doubt));
            self.take_in(cell, Event::Doubted { since }, now, steps);
        }
    }

    /// Notes when nothing is left of a cell that ended.
    pub(super) fn note_the_end(&mut self, steps: &mut Steps<C>) {
        if self.core.is_live() {
            return;
        }
        if let Some(kept) = self.busy.as_mut().and_then(|busy| busy.kept.take()) {
            steps.all.push(Step::Release(kept));
        }
        if self.is_over() {
            let busy = self.busy.as_mut();
            let watchers = busy.map(|busy| std::mem::take(&mut busy.watchers));
            steps.all.push(Step::Over(watchers.unwrap_or_default()));
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.core.is_over() && self.closing == 0 && self.flights().is_empty()
    }

    /// What is under way, to be added to.
    pub(super) fn busy(&mut self) -> &mut Busy<C> {
        self.busy.get_or_insert_default()
    }

    /// The openings under way.
    pub(super) fn flights(&self) -> &[Flight] {
        self.busy.as_ref().map_or(&[], |busy| &busy.flights)
    }

    /// Takes a caller out of the line, if it stands there.
    pub(super) fn out_of_line(&mut self, waiter: WaiterId) -> Option<oneshot::Sender<Answer<C>>> {
        self.busy.as_mut()?.line.remove(&waiter)
    }

    /// Gives back what only a busy cell needs.
    fn note_rest(&mut self) {
        if self.busy.as_ref().is_some_and(|busy| busy.is_over()) {
            self.busy = None;
        }
    }

    pub(super) fn slot(&mut self, generation: Generation) -> Option<&mut Slot<C>> {
        self.slots
            .iter_mut()
            .find(|slot| slot.generation == generation)
    }
}
