//! Shelves: where spares lie until somebody comes.
//!
//! Asked by: openings, before they open anything.  Filled by: tasks of their own, by first
//! contacts, and by calls that were given up while their session was opened. How many lie there
//! is decided in core; here a spare meets its session, and all shelves their common limit.

use std::sync::Arc;
use std::time::Duration;

use warmline_core::exchange::Trouble;
use warmline_core::key::{Key, Owner, Scope, Transport};
use warmline_core::pool::spares::{Need, Shelf, SpareId, SpareKey};
use warmline_core::pool::{Origin, Why};
use warmline_core::tick::Tick;

use super::ground::{Errand, Ground};
use super::places::{Place, Places};
use super::tally::Seldom;
use super::{Connector, Generation, Happened, Order, Purpose, What};
use crate::clock;
use crate::sync::Mutex;

/// Sessions from first contacts that lie on shelves where no spares are wanted, in all.
const FIRST_CONTACTS: u32 = 64;
/// So long a spare may still take when everything is closed.
const NEARLY_OPEN: Duration = Duration::from_secs(2);

/// All shelves.
pub(super) struct Shelves<C: Connector> {
    all: papaya::HashMap<SpareKey, Arc<Rack<C>>>,
    spares: Arc<Places>,
    first_contacts: Arc<Places>,
}

/// One shelf with what lies on it.
struct Rack<C: Connector> {
    inside: Mutex<Inside<C>>,
}

struct Inside<C: Connector> {
    shelf: Shelf,
    sessions: Vec<Spare<C>>,
    /// How spares are opened: as whoever came last would.
    setup: Arc<C::Setup>,
    /// It is not in the table any more: nothing is laid on it, nobody would find it.
    gone: bool,
}

struct Spare<C: Connector> {
    id: SpareId,
    session: Arc<C::Session>,
    setup: Arc<C::Setup>,
    /// How long its opening took, if a first contact opened it for whoever made it.
    met: Option<Duration>,
    _place: Place,
}

/// A spare that was taken.
pub(super) struct Taken<C: Connector> {
    pub(super) session: Arc<C::Session>,
    /// How long it lay there.
    pub(super) rested: Duration,
    /// How long its opening took, if a first contact opened it for whoever made it.
    pub(super) met: Option<Duration>,
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
                let Spare { session, met, .. } = spare;
                refill(ground, key, &rack);
                return Some(Taken {
                    session,
                    rested,
                    met,
                });
            }
            close(ground, key, spare, Why::Gone);
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
        let left = (Arc::clone(session), Arc::clone(setup));
        rack.lay(ground, Shelf::put, (left, None, place)).is_none()
    }

    /// Lays down the session of a first contact, for whoever made it. Closes it where one lies
    /// there already.
    pub(super) fn put_first(
        &self,
        ground: &Arc<Ground<C>>,
        key: &SpareKey,
        (session, setup): Left<C>,
        took: Duration,
    ) {
        opened(ground, key, &setup, took);
        let place = if ground.is_open() {
            self.first_contacts.take()
        } else {
            None
        };
        let left = match place {
            Some(place) => {
                let rack = self.rack_for(key, &setup, ground.tick());
                let spare = ((session, setup), Some(took), place);
                rack.lay(ground, Shelf::put_first, spare)
            },
            None => Some((session, setup)),
        };
        if let Some((session, setup)) = left {
            close_session(ground, key, session, setup, Why::Evicted);
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

    /// Closes what lies on the shelves of a server, and forgets how it was opened.
    pub(super) fn clear_of(&self, ground: &Arc<Ground<C>>, server: &str, why: Why) {
        self.clear_where(ground, why, |key| &*key.place.server == server);
        let all = self.all.pin();
        all.retain(|key, _| &*key.place.server != server);
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

/// A session that lies on no shelf, and how it was opened.
pub(super) type Left<C> = (Arc<<C as Connector>::Session>, Arc<<C as Connector>::Setup>);

impl<C: Connector> Rack<C> {
    /// Lays a session down; gives it back where it is not wanted.
    fn lay(
        &self,
        ground: &Arc<Ground<C>>,
        put: impl FnOnce(&mut Shelf, Tick) -> Option<SpareId>,
        ((session, setup), met, place): (Left<C>, Option<Duration>, Place),
    ) -> Option<Left<C>> {
        {
            let mut inside = self.inside.lock();
            let id = put(&mut inside.shelf, ground.tick());
            let Some(id) = id.filter(|_| !inside.gone) else {
                return Some((session, setup));
            };
            inside.sessions.push(Spare {
                id,
                session,
                setup,
                met,
                _place: place,
            });
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
    fn lift(&mut self, id: SpareId) -> Option<Spare<C>> {
        let at = self.sessions.iter().position(|spare| spare.id == id)?;
        Some(self.sessions.swap_remove(at))
    }
}

/// A spare that is being opened. However its task ends, the shelf is told.
struct Refill<C: Connector> {
    ground: Arc<Ground<C>>,
    rack: Arc<Rack<C>>,
    open: bool,
    _errand: Errand<C>,
}

impl<C: Connector> Refill<C> {
    async fn open(mut self, key: SpareKey, setup: Arc<C::Setup>, place: Place) {
        let began = clock::now();
        let ground = Arc::clone(&self.ground);
        let came = tokio::select! {
            biased;
            came = self.session(&key, &setup) => came,
            () = given_up(&ground) => return,
        };
        let took = clock::now().saturating_duration_since(began);
        match came {
            Ok(session) => {
                self.open = false;
                ground.tally.spares_opening(-1);
                opened(&ground, &key, &setup, took);
                let spare = ((session, Arc::clone(&setup)), None, place);
                match self.rack.lay(&ground, Shelf::opened, spare) {
                    Some((session, setup)) => {
                        close_session(&ground, &key, session, setup, Why::Evicted);
                    },
                    None => happened(&ground, &key, &setup, What::SpareOpened { took }),
                }
            },
            Err(trouble) => {
                ground.tally.seldom(Seldom::OpenFailed);
                let trouble = &trouble;
                let what = What::OpenFailed { trouble, took };
                happened(&ground, &key, &setup, what);
            },
        }
    }

    async fn session(
        &self,
        key: &SpareKey,
        setup: &Arc<C::Setup>,
    ) -> Result<Arc<C::Session>, Trouble> {
        // A spare belongs to nobody yet: failures of a credential are remembered apart.
        let scope = Scope::Shared(key.declared);
        let nobody = Key::of(key.place.clone(), Owner::Everybody, key.credential, scope);
        let order = Order {
            setup: Arc::clone(setup),
            key: None,
            generation: Generation::FIRST,
            purpose: Purpose::Spare,
            replaces: None,
        };
        self.ground.open(&order, &nobody).await
    }
}

/// Waits until nobody will take a spare any more. One that is nearly open is still opened, so that
/// it can be ended in order: the server may have given it a session already.
async fn given_up<C: Connector>(ground: &Ground<C>) {
    ground.going_down().await;
    let never = std::future::pending::<()>();
    clock::timeout_at(clock::after(NEARLY_OPEN), never)
        .await
        .ok();
}

impl<C: Connector> Drop for Refill<C> {
    fn drop(&mut self) {
        if self.open {
            self.ground.tally.spares_opening(-1);
            self.rack.inside.lock().shelf.gave_up();
        }
    }
}

/// Closes what is old, and opens what is missing.
fn refill<C: Connector>(ground: &Arc<Ground<C>>, key: &SpareKey, rack: &Arc<Rack<C>>) {
    let (Need { close: old, open }, setup) = {
        let mut inside = rack.inside.lock();
        let need = inside.shelf.look(ground.tick());
        (need, Arc::clone(&inside.setup))
    };
    for id in old {
        let spare = rack.inside.lock().lift(id);
        if let Some(spare) = spare {
            ground.tally.spares(-1);
            close(ground, key, spare, Why::Aged);
        }
    }
    for _ in 0..open {
        ground.tally.spares_opening(1);
        let refill = Refill {
            ground: Arc::clone(ground),
            rack: Arc::clone(rack),
            open: true,
            _errand: ground.errand(),
        };
        let place = if ground.is_open() {
            ground.shelves.spares.take()
        } else {
            None
        };
        let Some(place) = place else { continue };
        let (key, setup) = (key.clone(), Arc::clone(&setup));
        clock::spawn_if_running("spare", refill.open(key, setup, place));
    }
}

fn close<C: Connector>(ground: &Arc<Ground<C>>, key: &SpareKey, spare: Spare<C>, why: Why) {
    let Spare { session, setup, .. } = spare;
    close_session(ground, key, session, setup, why);
}

/// Ends a session that belongs to no key, in the background.
fn close_session<C: Connector>(
    ground: &Arc<Ground<C>>,
    key: &SpareKey,
    session: Arc<C::Session>,
    setup: Arc<C::Setup>,
    why: Why,
) {
    ground.tally.seldom(Seldom::Closed);
    let (errand, key) = (ground.errand(), key.clone());
    clock::spawn_if_running("close", async move {
        let ground = &errand.0;
        let slot = ground.closings.acquire().await.ok();
        ground.connector.close(session, &setup, None, why).await;
        drop(slot);
        let generation = None;
        happened(ground, &key, &setup, What::Closed { generation, why });
    });
}

/// Counts a session that was opened on the wire and belongs to no key yet.
fn opened<C: Connector>(ground: &Ground<C>, key: &SpareKey, setup: &C::Setup, took: Duration) {
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
