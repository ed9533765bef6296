//! Openings: each a task of its own, so that a caller who leaves costs nobody anything.
//!
//! Begun by: cells.  In this order: room, what an earlier process left, a spare, and only then
//! the wire, if the breaker lets it pass. However the task ends, its permit tells the cell.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use warmline_core::exchange::Trouble;
use warmline_core::pool::limits::Limit;
use warmline_core::pool::spares::SpareKey;
use warmline_core::pool::{Arrival, Event, Generation, Origin, Why};

use super::breakers::Opener;
use super::cell::{CellOf, Slot, Stage};
use super::ground::Errand;
use super::hand::Hand;
use super::inheriting::{Inherited, Kept};
use super::places::Trace;
use super::rooms::{InLine, Room, Space};
use super::tally::Seldom;
use super::{Connector, Heals, Opened, Order, Purpose, What, shelves, wording};
use crate::clock::{self, Instant};

/// So long a replacement waits for the room of the session that it replaces, before it gets in
/// line with all others: a little longer than a closing takes.
const OLD_CLOSES_WITHIN: Duration = Duration::from_secs(7);

/// The permission of one opening to become a session.
///
/// Exactly one of three things happens to it: it is filled, it fails, or it was stopped and says
/// nothing. A task that panics half-way drops it, and then it fails; with a task whose runtime ends
/// it is dropped too, and who still waits asks again.
struct Permit<C: Connector> {
    cell: Arc<CellOf<C>>,
    generation: Generation,
    /// The lost session that this one takes the place of.
    replaces: Option<Generation>,
    open: bool,
    began: Instant,
    _errand: Errand<C>,
}

/// Why an opening came to nothing.
enum Unopened {
    /// It was stopped: the cell knows.
    Stopped,
    /// It failed.
    Failed(Trouble),
}

/// A session with all that is known of it.
struct Arrived<C: Connector> {
    opened: Opened<C::Session>,
    origin: Origin,
    rested: Duration,
    /// How long its opening took, if a first contact opened it: it is no spare then.
    met: Option<Duration>,
    room: Option<Room>,
}

impl<C: Connector> CellOf<C> {
    /// Begins an opening. A tripped breaker is told at once, without a task.
    pub(super) fn open(
        self: &Arc<Self>,
        generation: Generation,
        kept: Option<Kept<C>>,
        stopped: oneshot::Receiver<()>,
    ) {
        let permit = Permit {
            cell: Arc::clone(self),
            generation,
            replaces: kept.as_ref().map(|kept| kept.generation),
            open: true,
            began: clock::now(),
            _errand: self.ground.errand(),
        };
        let opener = Opener::of(self.any_key());
        let shelf = self.shelf();
        if let Some((pause, last)) = self.ground.breakers.pause(&opener)
            && !self.ground.shelves.has_spare(&shelf)
        {
            return permit.fail(wording::breaker_open(self.server(), pause, last.as_ref()));
        }
        let wanted = self.connector().spares(self.setup());
        clock::spawn_if_running("open", permit.open(shelf.clone(), kept, stopped));
        // After it, so that nobody waits behind a spare.
        let (ground, setup) = (&self.ground, self.setup());
        ground.shelves.used(ground, &shelf, setup, wanted);
    }

    /// Nobody carries out this opening any more. Whoever waits asks again, and opens where it is.
    pub(super) fn desert(self: &Arc<Self>, generation: Generation) {
        self.enter(|inside, now, steps| {
            if inside.land(generation) {
                inside.take_in(self, Event::Deserted { generation }, now, steps);
            }
        });
    }

    fn shelf(&self) -> SpareKey {
        let declared = self.connector().declared(self.setup());
        SpareKey::of(self.any_key(), declared)
    }
}

impl<C: Connector> Permit<C> {
    async fn open(
        self,
        shelf: SpareKey,
        kept: Option<Kept<C>>,
        mut stopped: oneshot::Receiver<()>,
    ) {
        let opened = tokio::select! {
            biased;
            // Dropped by the cell: nobody waits any more, or there is no time left.
            _ = &mut stopped => Err(Unopened::Stopped),
            opened = self.bring(&shelf, kept) => opened,
        };
        match opened {
            Ok(arrived) => self.fill(&shelf, arrived),
            Err(Unopened::Stopped) => self.forgo(),
            Err(Unopened::Failed(trouble)) => self.fail(trouble),
        }
    }

    /// Brings a session, from wherever it can be had.
    async fn bring(&self, shelf: &SpareKey, kept: Option<Kept<C>>) -> Result<Arrived<C>, Unopened> {
        let mut hand = Hand::empty(&self.cell, shelf);
        let mut replaces = None;
        let mut inherited = None;
        if let Some(kept) = kept {
            replaces = Some(kept.session);
            inherited = kept.room;
        }
        match inherited {
            Some(inherited) => self.inherit_room(&mut hand, inherited).await?,
            None => self.find_room(&mut hand).await?,
        }
        if !self.set_out() {
            return Err(Unopened::Stopped);
        }
        let (trace, traces) = Trace::new();
        hand.traces = Some(traces);
        let order = self.order(replaces, trace);
        let mut arrived = self.session(&order, &mut hand).await?;
        let connector = self.cell.connector();
        if connector.holds_room(&arrived.opened.session) {
            arrived.room = hand.room.take();
        }
        Ok(arrived)
    }

    /// Room for one session: that of a first contact which opened one for us, else waited for in
    /// line.
    async fn find_room(&self, hand: &mut Hand<'_, C>) -> Result<(), Unopened> {
        let cell = &self.cell;
        let most = cell.connector().max_sessions(cell.setup());
        if let Some(met) = cell.ground.shelves.take_met(&cell.ground, hand.shelf) {
            hand.hold(met);
            let room = hand.room.as_mut();
            if room.is_some_and(|room| room.becomes(cell.shared_key(), most)) {
                return Ok(());
            }
            // Its caller has no room left; who waits longest gets what this one gives back.
            hand.let_go();
        }
        self.wait_for_room(hand, most).await
    }

    /// Room for a session that takes the place of a lost one: what is free, else the room of the
    /// lost one as soon as nothing is left of that.
    async fn inherit_room(
        &self,
        hand: &mut Hand<'_, C>,
        mut inherited: Inherited,
    ) -> Result<(), Unopened> {
        let cell = &self.cell;
        let most = cell.connector().max_sessions(cell.setup());
        if let Ok(room) = inherited.try_recv() {
            hand.room = Some(room);
            return Ok(());
        }
        match cell.ground.rooms.claim(cell.shared_key(), most) {
            Space::NotNeeded => return Ok(()),
            Space::Room(room) => {
                hand.room = Some(room);
                return Ok(());
            },
            // Nobody else is asked to make room: it comes by itself.
            Space::InLine(line) => drop(line),
        }
        if let Ok(Ok(room)) = clock::timeout_at(clock::after(OLD_CLOSES_WITHIN), inherited).await {
            hand.room = Some(room);
            return Ok(());
        }
        self.wait_for_room(hand, most).await
    }

    async fn wait_for_room(
        &self,
        hand: &mut Hand<'_, C>,
        most: Option<u32>,
    ) -> Result<(), Unopened> {
        let cell = &self.cell;
        hand.room = match cell.ground.rooms.claim(cell.shared_key(), most) {
            Space::NotNeeded => None,
            Space::Room(room) => Some(room),
            Space::InLine(mut line) => {
                let make_room = |full: &Limit| cell.ground.make_room(cell.any_key(), full);
                let room = InLine::room(&mut line, make_room).await;
                Some(room.ok_or(Unopened::Stopped)?)
            },
        };
        Ok(())
    }

    /// From here on it is on its way; false if it was stopped before.
    fn set_out(&self) -> bool {
        self.cell.enter(|inside, _, _| {
            let mut flights = inside.busy().flights.iter_mut();
            match flights.find(|flight| flight.generation == self.generation) {
                Some(flight) => {
                    flight.stage = Stage::Wire;
                    true
                },
                None => false,
            }
        })
    }

    async fn session(
        &self,
        order: &Order<C>,
        hand: &mut Hand<'_, C>,
    ) -> Result<Arrived<C>, Unopened> {
        let cell = &self.cell;
        let connector = cell.connector();
        let held = order.purpose == Purpose::Held;
        if held && let Some(opened) = connector.restore(order).await {
            if hand.session.is_some() {
                hand.let_go();
                let most = connector.max_sessions(cell.setup());
                self.wait_for_room(hand, most).await?;
            }
            return Ok(Arrived::new(opened, Origin::Restored, Duration::ZERO));
        }
        if hand.session.is_none()
            && let Some(spare) = cell.ground.shelves.take(&cell.ground, hand.shelf)
        {
            hand.hold(spare);
        }
        let session = match &hand.session {
            Some(spare) => Arc::clone(spare),
            None => {
                let fresh = cell.ground.open(order, cell.any_key()).await;
                let fresh = fresh.map_err(Unopened::Failed)?;
                hand.origin = Origin::Fresh;
                hand.session = Some(Arc::clone(&fresh));
                fresh
            },
        };
        let ours = Arc::clone(&session);
        let opened = if held {
            connector.move_in(order, session).await
        } else {
            Opened::of(session)
        };
        hand.session = None;
        // Who lost to another process has a session of another age, which counts from now.
        let is_ours = Arc::ptr_eq(&opened.session, &ours);
        let rested = if is_ours { hand.rested } else { Duration::ZERO };
        Ok(Arrived {
            met: hand.met,
            ..Arrived::new(opened, hand.origin, rested)
        })
    }

    fn order(&self, replaces: Option<Arc<C::Session>>, trace: Trace) -> Order<C> {
        Order {
            setup: Arc::clone(self.cell.setup()),
            key: self.cell.held_key().cloned(),
            generation: self.generation,
            purpose: self.cell.purpose(),
            replaces,
            trace,
        }
    }

    /// The opening becomes a session, if it still is wanted and still has room.
    fn fill(self, shelf: &SpareKey, arrived: Arrived<C>) {
        let cell = Arc::clone(&self.cell);
        let ground = &cell.ground;
        let took = self.count(&arrived);
        // A call that was given up while its session was opened leaves a spare behind.
        let setup = cell.setup();
        if cell.purpose() == Purpose::Call
            && !cell.is_live()
            && arrived.origin == Origin::Fresh
            && ground
                .shelves
                .put(ground, shelf, setup, &arrived.opened.session)
        {
            self.forgo_told();
            return shelves::happened(ground, shelf, setup, What::SpareOpened { took });
        }
        let most = cell.connector().max_sessions(setup);
        let too_much = |room: &Room| room.is_too_much(most);
        if arrived.room.as_ref().is_some_and(too_much) {
            // Limits were lowered while it was opened.
            let full = ground.rooms.full(cell.any_key(), most);
            let trouble = wording::no_room(cell.server(), took, full.as_ref());
            self.end_unheld(arrived);
            return self.fail(trouble);
        }
        self.join(arrived, took);
    }

    /// Counts what was opened, resumed or taken, once, and says how long it took. What a first
    /// contact opened was counted when it was met.
    fn count(&self, arrived: &Arrived<C>) -> Duration {
        let took = clock::now().saturating_duration_since(self.began);
        let origin = arrived.origin;
        if origin != Origin::Spare {
            self.cell.ground.tally.seldom(Seldom::Opened);
        }
        if arrived.met.is_none() {
            self.cell.happened(What::Opened { origin, took });
        }
        took
    }

    /// The session joins its cell, which gives it to whoever waits.
    fn join(mut self, arrived: Arrived<C>, took: Duration) {
        let cell = Arc::clone(&self.cell);
        self.open = false;
        let (origin, took) = match arrived.met {
            Some(met) => (Origin::Fresh, met),
            None => (arrived.origin, took),
        };
        let generation = self.generation;
        let opened = arrived.opened;
        let arrival = Arrival {
            origin: arrived.origin,
            number: opened.generation,
            expires_in: opened.expires_in,
            renew_in: opened.renew_in,
            rested: arrived.rested,
            lost_state: opened.lost_state,
            left_state: opened.left_state,
        };
        let number = opened.generation.unwrap_or(generation);
        let session = Arc::clone(&opened.session);
        let slot = Slot {
            generation,
            session: opened.session,
            room: arrived.room,
        };
        let loss = cell.enter(|inside, now, steps| {
            inside.land(generation);
            inside.slots.push(slot);
            // Asked before whoever waits gets the session, and is told.
            let loss = inside.core.untold();
            let event = Event::Opened {
                generation,
                arrival,
            };
            inside.take_in(&cell, event, now, steps);
            loss
        });
        if cell.purpose() == Purpose::Held {
            cell.connector().joined(&session, cell.setup());
        }
        // Whoever resumes a session heals nothing: that was done before its record was written.
        let told_by_record = arrival.lost_state && arrived.origin != Origin::Restored;
        let recorded = Generation::of(number.number() - 1).filter(|_| told_by_record);
        let from = self.replaces.or(loss.map(|loss| loss.generation));
        cell.happened(What::Joined {
            generation: number,
            origin,
            took,
            heals: from.or(recorded).map(|from| Heals {
                from,
                state_lost: loss.is_some() || arrival.lost_state,
            }),
        });
    }

    fn fail(mut self, trouble: Trouble) {
        let took = clock::now().saturating_duration_since(self.began);
        self.cell.ground.tally.seldom(Seldom::OpenFailed);
        self.cell.happened(What::OpenFailed {
            trouble: &trouble,
            took,
        });
        self.tell_failed(trouble);
    }

    /// It was stopped, and the cell knows.
    fn forgo(mut self) {
        self.open = false;
        // Whatever stopped it took the flight away.
        let generation = self.generation;
        let still_there = self.cell.enter(|inside, _, _| {
            inside
                .flights()
                .iter()
                .any(|one| one.generation == generation)
        });
        if still_there {
            self.tell_failed(wording::no_word(self.cell.server()));
        }
    }

    /// It came to something, but not to a session of this cell.
    fn forgo_told(mut self) {
        self.open = false;
        let generation = self.generation;
        self.cell.enter(|inside, now, steps| {
            inside.land(generation);
            inside.take_in(&self.cell, Event::Withdrawn { generation }, now, steps);
        });
    }

    /// Its runtime ended under it. Whoever still waits does so in another one, and opens there.
    fn tell_deserted(&mut self) {
        self.open = false;
        self.cell.desert(self.generation);
    }

    fn tell_failed(&mut self, trouble: Trouble) {
        self.open = false;
        let generation = self.generation;
        self.cell.enter(|inside, now, steps| {
            if inside.land(generation) {
                steps.trouble = Some(Arc::new(trouble));
                inside.take_in(&self.cell, Event::OpenFailed { generation }, now, steps);
            }
        });
    }

    /// Ends a session that no cell ever held.
    fn end_unheld(&self, arrived: Arrived<C>) {
        let slot = Slot {
            generation: self.generation,
            session: arrived.opened.session,
            room: arrived.room,
        };
        self.cell.enter(|inside, _, steps| {
            inside.closing += 1;
            let step = super::steps::Step::Close(slot, Why::Evicted, None);
            steps.all.push(step);
        });
    }
}

impl<C: Connector> Drop for Permit<C> {
    fn drop(&mut self) {
        match self.open {
            true if std::thread::panicking() => {
                self.tell_failed(wording::no_word(self.cell.server()));
            },
            true => self.tell_deserted(),
            false => {},
        }
    }
}

impl<C: Connector> Arrived<C> {
    fn new(opened: Opened<C::Session>, origin: Origin, rested: Duration) -> Self {
        Self {
            opened,
            origin,
            rested,
            met: None,
            room: None,
        }
    }
}
