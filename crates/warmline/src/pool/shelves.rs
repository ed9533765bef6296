//! Shelves: where spares lie until somebody comes.
//!
//! Asked by: openings, before they open anything.  Filled by: tasks of their own, by first
//! contacts, and by calls that were given up while their session was opened. How many lie there
//! is decided in core; here a spare meets its session, and all shelves their common limit.
//!
//! A spare is counted apart. What a first contact opened is not: it is the session of whoever made
//! it, and keeps its room until that one comes.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

use warmline_core::key::{Key, RunId, Transport};
use warmline_core::pool::limits::Limit;
use warmline_core::pool::spares::{Shelf, SpareId, SpareKey};
use warmline_core::pool::{Origin, Why};
use warmline_core::tick::Tick;

use super::ground::Ground;
use super::places::{Place, Places};
use super::refilling::refill;
use super::rooms::Room;
use super::tally::Seldom;
use super::{Connector, Happened, What};
use crate::clock;
use crate::sync::Mutex;

/// So long whoever made a first contact has to come for its session where others wait for its room.
const COMES_WITHIN: Duration = Duration::from_millis(100);

/// Sessions from first contacts that lie on shelves where no spares are wanted, in all.
const FIRST_CONTACTS: u32 = 64;

/// All shelves.
pub(super) struct Shelves<C: Connector> {
    all: papaya::HashMap<SpareKey, Arc<Rack<C>>>,
    pub(super) spares: Arc<Places>,
    first_contacts: Arc<Places>,
}

/// One shelf with what lies on it.
pub(super) struct Rack<C: Connector> {
    pub(super) inside: Mutex<Inside<C>>,
}

pub(super) struct Inside<C: Connector> {
    pub(super) shelf: Shelf,
    sessions: Vec<(SpareId, Spare<C>)>,
    /// How spares are opened: as whoever came last would.
    pub(super) setup: Arc<C::Setup>,
    /// It is not in the table any more: nothing is laid on it, nobody would find it.
    gone: bool,
}

pub(super) struct Spare<C: Connector> {
    pub(super) session: Arc<C::Session>,
    pub(super) setup: Arc<C::Setup>,
    /// What is known of the first contact that opened it for whoever made it.
    pub(super) met: Option<Met>,
    pub(super) _place: Option<Place>,
}

/// What is known of a session that a first contact opened.
#[derive(Default)]
pub(crate) struct Met {
    /// How long its opening took.
    pub(crate) took: Duration,
    /// The run that it was opened for: it goes with that.
    pub(crate) run: Option<RunId>,
    /// Its room; none where its server holds nothing for it.
    pub(crate) room: Option<Room>,
}

/// A spare that was taken.
pub(super) struct Taken<C: Connector> {
    pub(super) session: Arc<C::Session>,
    /// How long it lay there.
    pub(super) rested: Duration,
    /// What is known of the first contact that opened it for whoever made it.
    pub(super) met: Option<Met>,
}

impl<C: Connector> Shelves<C> {
    pub(super) fn new(max_spares: u32) -> Self {
        Self {
            all: papaya::HashMap::new(),
            spares: Places::new(max_spares),
            first_contacts: Places::new(FIRST_CONTACTS),
        }
    }

    /// Somebody opens a session with this credential, and so many spares are wanted.
    pub(super) fn used(
        &self,
        ground: &Arc<Ground<C>>,
        key: &SpareKey,
        setup: &Arc<C::Setup>,
        wanted: u32,
    ) {
        if wanted == 0 && self.rack(key).is_none() {
            return;
        }
        let rack = self.rack_for(key, setup, ground.tick());
        {
            let mut inside = rack.inside.lock();
            inside.shelf.used(wanted, ground.tick());
            inside.setup = Arc::clone(setup);
        }
        refill(ground, key, &rack);
    }

    /// Another number of spares may be wanted for those that are opened so.
    pub(super) fn decide(&self, ground: &Arc<Ground<C>>, is_meant: impl Fn(&C::Setup) -> bool) {
        for key in self.opened_so(is_meant) {
            let Some(rack) = self.rack(&key) else {
                continue;
            };
            let setup = Arc::clone(&rack.inside.lock().setup);
            let wanted = ground.connector.spares(&setup);
            rack.inside.lock().shelf.decide(wanted);
            refill(ground, &key, &rack);
        }
    }

    /// Takes a spare.
    pub(super) fn take(&self, ground: &Arc<Ground<C>>, key: &SpareKey) -> Option<Taken<C>> {
        let rack = self.rack(key)?;
        loop {
            let taken = {
                let mut inside = rack.inside.lock();
                let taken = inside.shelf.take(ground.tick());
                taken.and_then(|(id, rested)| Some((inside.lift(id)?, rested)))
            };
            let (spare, rested) = taken?;
            ground.tally.spares(-1);
            if ground.connector.is_usable(&spare.session) {
                refill(ground, key, &rack);
                return Some(Taken::of(spare, rested));
            }
            close(ground, key, spare, Why::Gone);
        }
    }

    /// Takes the session of a first contact, with its room.
    pub(super) fn take_met(&self, ground: &Arc<Ground<C>>, key: &SpareKey) -> Option<Taken<C>> {
        let rack = self.rack(key)?;
        loop {
            let (spare, rested) = rack
                .inside
                .lock()
                .lift_met(Spare::has_room, ground.tick())?;
            ground.tally.spares(-1);
            if ground.connector.is_usable(&spare.session) {
                // While it lay there it stood in the place of a spare.
                refill(ground, key, &rack);
                return Some(Taken::of(spare, rested));
            }
            close(ground, key, spare, Why::Gone);
        }
    }

    /// Gives up a session of a first contact that nobody has come for yet, if that makes room for
    /// the claimant.
    pub(super) fn make_room(&self, ground: &Arc<Ground<C>>, claimant: &Key, full: &Limit) {
        fence(Ordering::SeqCst);
        let helps = |spare: &Spare<C>| spare.room().is_some_and(|room| room.helps(claimant, full));
        self.give_up(ground, Why::Evicted, Many::One, helps);
    }

    /// Ends what first contacts opened for a run that is over.
    pub(super) fn end_met_for(&self, ground: &Arc<Ground<C>>, run: RunId) {
        self.give_up(ground, Why::RunEnded, Many::All, |spare| spare.is_of(run));
    }

    /// Ends what a first contact laid on this shelf for a run that does not need it.
    pub(super) fn end_met_on(&self, ground: &Arc<Ground<C>>, key: &SpareKey, run: RunId) {
        let Some(rack) = self.rack(key) else { return };
        let lift = || {
            let mut inside = rack.inside.lock();
            inside.lift_met(|spare| spare.is_of(run), ground.tick())
        };
        while let Some((spare, _)) = lift() {
            ground.tally.spares(-1);
            close(ground, key, spare, Why::Evicted);
        }
    }

    fn give_up(
        &self,
        ground: &Arc<Ground<C>>,
        why: Why,
        many: Many,
        is_meant: impl Fn(&Spare<C>) -> bool,
    ) {
        // Nearly always there is none, and then no shelf is looked at.
        if self.first_contacts.are_free() {
            return;
        }
        let all = self.all.pin();
        for (key, rack) in &all {
            loop {
                let lifted = rack.inside.lock().lift_met(&is_meant, ground.tick());
                let Some((spare, _)) = lifted else { break };
                ground.tally.spares(-1);
                close(ground, key, spare, why);
                if many == Many::One {
                    return;
                }
            }
        }
    }

    pub(super) fn has_spare(&self, key: &SpareKey) -> bool {
        self.rack(key)
            .is_some_and(|rack| rack.inside.lock().shelf.resting() > 0)
    }

    /// Lays down a session that was opened for a call and used by nobody. False where no spare is
    /// wanted.
    pub(super) fn put(
        &self,
        ground: &Arc<Ground<C>>,
        key: &SpareKey,
        setup: &Arc<C::Setup>,
        session: &Arc<C::Session>,
    ) -> bool {
        if !ground.is_open() {
            return false;
        }
        let (Some(rack), Some(place)) = (self.rack(key), self.spares.take()) else {
            return false;
        };
        let spare = Spare {
            session: Arc::clone(session),
            setup: Arc::clone(setup),
            met: None,
            _place: Some(place),
        };
        rack.lay(ground, Shelf::put, spare).is_none()
    }

    /// Lays down the session of a first contact, for whoever made it. Closes it where one lies
    /// there already.
    pub(super) fn put_first(
        &self,
        ground: &Arc<Ground<C>>,
        key: &SpareKey,
        (session, setup): (Arc<C::Session>, Arc<C::Setup>),
        met: Met,
    ) {
        opened(ground, key, &setup, met.took);
        let place = if ground.is_open() {
            self.first_contacts.take()
        } else {
            None
        };
        let has_place = place.is_some();
        let spare = Spare {
            session,
            setup,
            met: Some(met),
            _place: place,
        };
        if !has_place {
            return close(ground, key, spare, Why::Evicted);
        }
        let rack = self.rack_for(key, &spare.setup, ground.tick());
        let laid = Arc::clone(&spare.session);
        if let Some(spare) = rack.lay(ground, Shelf::put_first, spare) {
            return close(ground, key, spare, Why::Evicted);
        }
        // Either whoever waits for room sees what was laid down, or we see who waits.
        fence(Ordering::SeqCst);
        if rack.inside.lock().is_needed(&laid) {
            offer(ground, key.clone(), rack, laid);
        }
    }

    /// Closes what is old, opens what is missing, forgets what is empty.
    pub(super) fn sweep(&self, ground: &Arc<Ground<C>>) {
        let racks: Vec<(SpareKey, Arc<Rack<C>>)> = {
            let all = self.all.pin();
            all.iter()
                .map(|(key, rack)| (key.clone(), Arc::clone(rack)))
                .collect()
        };
        for (key, rack) in racks {
            refill(ground, &key, &rack);
            if rack.retire(ground.tick()) {
                self.strike_out(&key, &rack);
            }
        }
    }

    /// Closes all of them, and wants none any more.
    pub(super) fn clear(&self, ground: &Arc<Ground<C>>, why: Why) {
        self.clear_where(ground, why, |_| true);
    }

    /// The shelves whose spares are opened so.
    pub(super) fn opened_so(&self, is_meant: impl Fn(&C::Setup) -> bool) -> Vec<SpareKey> {
        let all = self.all.pin();
        let so = all
            .iter()
            .filter(|(_, rack)| is_meant(&rack.inside.lock().setup));
        so.map(|(key, _)| key.clone()).collect()
    }

    /// Closes what lies on the shelves that are meant, and forgets how it was opened. What is still
    /// being opened for them is closed when it comes.
    pub(super) fn clear_of(
        &self,
        ground: &Arc<Ground<C>>,
        why: Why,
        is_meant: impl Fn(&SpareKey) -> bool,
    ) {
        let all = self.all.pin();
        for (_, rack) in all.iter().filter(|(key, _)| is_meant(key)) {
            rack.inside.lock().gone = true;
        }
        self.clear_where(ground, why, &is_meant);
        all.retain(|key, rack| !(is_meant(key) && rack.inside.lock().gone));
    }

    fn clear_where(&self, ground: &Arc<Ground<C>>, why: Why, is_meant: impl Fn(&SpareKey) -> bool) {
        let all = self.all.pin();
        for (key, rack) in all.iter().filter(|(key, _)| is_meant(key)) {
            let spares: Vec<Spare<C>> = {
                let mut inside = rack.inside.lock();
                let cleared = inside.shelf.clear();
                cleared
                    .into_iter()
                    .filter_map(|id| inside.lift(id))
                    .collect()
            };
            for spare in spares {
                ground.tally.spares(-1);
                close(ground, key, spare, why);
            }
        }
    }

    /// Every shelf: where its spares lead, how many lie there and how many are being opened,
    /// counted anew.
    pub(super) fn count(&self) -> Vec<OnShelf> {
        let all = self.all.pin();
        let count = |(key, rack): (&SpareKey, &Arc<Rack<C>>)| {
            let shelf = &rack.inside.lock().shelf;
            OnShelf {
                server: Arc::clone(&key.place.server),
                transport: key.place.transport,
                resting: shelf.resting(),
                opening: shelf.opening(),
            }
        };
        all.iter().map(count).collect()
    }

    fn rack(&self, key: &SpareKey) -> Option<Arc<Rack<C>>> {
        self.all.pin().get(key).cloned()
    }

    /// The rack of a shelf, made if there is none.
    fn rack_for(&self, key: &SpareKey, setup: &Arc<C::Setup>, now: Tick) -> Arc<Rack<C>> {
        let new = || {
            Arc::new(Rack {
                inside: Mutex::new(Inside {
                    shelf: Shelf::new(key.place.transport, now),
                    sessions: Vec::new(),
                    setup: Arc::clone(setup),
                    gone: false,
                }),
            })
        };
        loop {
            let rack = Arc::clone(self.all.pin().get_or_insert_with(key.clone(), new));
            if !rack.inside.lock().gone {
                return rack;
            }
            self.strike_out(key, &rack);
        }
    }

    fn strike_out(&self, key: &SpareKey, rack: &Arc<Rack<C>>) {
        let all = self.all.pin();
        all.remove_if(key, |_, there| Arc::ptr_eq(there, rack)).ok();
    }
}

/// What there is of one kind of spares.
#[derive(Clone, Debug)]
pub(crate) struct OnShelf {
    /// Where they lead.
    pub(crate) server: Arc<str>,
    /// In which way.
    pub(crate) transport: Transport,
    /// How many lie there.
    pub(crate) resting: u32,
    /// How many are being opened.
    pub(crate) opening: u32,
}

/// How many are meant.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Many {
    One,
    All,
}

impl<C: Connector> Spare<C> {
    fn room(&self) -> Option<&Room> {
        self.met.as_ref()?.room.as_ref()
    }

    fn has_room(&self) -> bool {
        self.room().is_some()
    }

    /// Whether it was opened for that run.
    fn is_of(&self, run: RunId) -> bool {
        self.met.as_ref().and_then(|met| met.run) == Some(run)
    }

    /// Whether it is this session, and somebody waits for its room.
    fn is_needed_of(&self, session: &Arc<C::Session>) -> bool {
        Arc::ptr_eq(&self.session, session) && self.room().is_some_and(Room::is_needed)
    }
}

impl<C: Connector> Taken<C> {
    fn of(spare: Spare<C>, rested: Duration) -> Self {
        let Spare { session, met, .. } = spare;
        Self {
            session,
            rested,
            met,
        }
    }
}

impl<C: Connector> Rack<C> {
    /// Lays a session down; gives it back where it is not wanted.
    pub(super) fn lay(
        &self,
        ground: &Arc<Ground<C>>,
        put: impl FnOnce(&mut Shelf, Tick) -> Option<SpareId>,
        spare: Spare<C>,
    ) -> Option<Spare<C>> {
        {
            let mut inside = self.inside.lock();
            let id = put(&mut inside.shelf, ground.tick());
            let Some(id) = id.filter(|_| !inside.gone) else {
                return Some(spare);
            };
            inside.sessions.push((id, spare));
        }
        ground.tally.spares(1);
        // Either the drain sees what was laid down, or we see the drain.
        if !ground.is_open() {
            ground.shelves.clear(ground, Why::Drained);
        }
        None
    }

    /// Takes itself out of use, if it is empty and will stay so.
    fn retire(&self, now: Tick) -> bool {
        let mut inside = self.inside.lock();
        inside.gone |= inside.shelf.is_forgettable(now);
        inside.gone
    }
}

impl<C: Connector> Inside<C> {
    pub(super) fn lift(&mut self, id: SpareId) -> Option<Spare<C>> {
        let at = self.sessions.iter().position(|(lies, _)| *lies == id)?;
        Some(self.sessions.swap_remove(at).1)
    }

    /// Whether that session lies here, and somebody waits for its room.
    fn is_needed(&self, session: &Arc<C::Session>) -> bool {
        let mut spares = self.sessions.iter();
        spares.any(|(_, spare)| spare.is_needed_of(session))
    }

    /// Takes a session of a first contact off the shelf, if one of this kind lies there.
    fn lift_met(
        &mut self,
        is_meant: impl Fn(&Spare<C>) -> bool,
        now: Tick,
    ) -> Option<(Spare<C>, Duration)> {
        let is_meant = |(_, spare): &&(SpareId, Spare<C>)| spare.met.is_some() && is_meant(spare);
        let id = self.sessions.iter().find(is_meant)?.0;
        let rested = self.shelf.take_this(id, now)?;
        Some((self.lift(id)?, rested))
    }
}

/// Somebody waits for the room of what a first contact opened. Whoever made the contact comes for it
/// at once; where that one has left, nobody does, and the room goes to who waits.
fn offer<C: Connector>(
    ground: &Arc<Ground<C>>,
    key: SpareKey,
    rack: Arc<Rack<C>>,
    session: Arc<C::Session>,
) {
    let errand = ground.errand();
    clock::spawn_if_running("offer", async move {
        let ground = &errand.0;
        let coming = clock::timeout_at(clock::after(COMES_WITHIN), ground.going_down());
        if coming.await.is_ok() {
            return;
        }
        let is_it = |spare: &Spare<C>| spare.is_needed_of(&session);
        let lifted = rack.inside.lock().lift_met(is_it, ground.tick());
        if let Some((spare, _)) = lifted {
            ground.tally.spares(-1);
            close(ground, &key, spare, Why::Evicted);
        }
    });
}

pub(super) fn close<C: Connector>(
    ground: &Arc<Ground<C>>,
    key: &SpareKey,
    spare: Spare<C>,
    why: Why,
) {
    let Spare {
        session,
        setup,
        met,
        ..
    } = spare;
    let room = met.and_then(|met| met.room);
    close_session(ground, key, (session, setup), room, why);
}

/// Ends a session that belongs to no key, in the background. Its room goes back when the server
/// was told.
pub(super) fn close_session<C: Connector>(
    ground: &Arc<Ground<C>>,
    key: &SpareKey,
    (session, setup): (Arc<C::Session>, Arc<C::Setup>),
    mut room: Option<Room>,
    why: Why,
) {
    ground.tally.seldom(Seldom::Closed);
    if why == Why::Evicted
        && let Some(room) = &mut room
    {
        room.promise();
    }
    let (errand, key) = (ground.errand(), key.clone());
    clock::spawn_if_running("close", async move {
        let ground = &errand.0;
        let slot = ground.closings.acquire().await.ok();
        ground.connector.close(session, &setup, None, why).await;
        drop((slot, room));
        let generation = None;
        happened(ground, &key, &setup, What::Closed { generation, why });
    });
}

/// Counts a session that was opened on the wire and belongs to no key yet.
pub(super) fn opened<C: Connector>(
    ground: &Ground<C>,
    key: &SpareKey,
    setup: &C::Setup,
    took: Duration,
) {
    ground.tally.seldom(Seldom::Opened);
    let origin = Origin::Fresh;
    happened(ground, key, setup, What::Opened { origin, took });
}

/// Tells what happened to a session that belongs to no key.
pub(super) fn happened<C: Connector>(
    ground: &Ground<C>,
    key: &SpareKey,
    setup: &C::Setup,
    what: What<'_>,
) {
    let happened = Happened {
        place: &key.place,
        owner: None,
        key: None,
        what,
    };
    ground.connector.happened(setup, &happened);
}
