//! The doors of the pool: what callers, runs and the engine ask of it.

use std::sync::Arc;
use std::time::Duration;

use warmline_core::exchange::Trouble;
use warmline_core::key::{CredentialId, Key, Owner, Revision, RunId, Scope};
use warmline_core::policy::{BreakerPolicy, Ceilings};
use warmline_core::pool::breaker::{Blame, Stance};
use warmline_core::pool::limits::Limit;
use warmline_core::pool::{Event, Proof, Refusal, Turn};
use warmline_core::tick::Tick;

use super::cell::{Asked, CellOf, Unserved};
use super::ground::{Ground, Table};
use super::lease::{Handed, Lease};
use super::rooms::{InLine, Room, Space};
use super::shelves::{Met, OnShelf};
use super::tally::{Census, Seldom, Stats};
use super::waiting::Until;
use super::{
    CellPolicy, Changes, Connector, Ends, How, Opener, Passing, Purpose, Sharing, SpareKey, Want,
    What, Why, wording,
};
use crate::clock::{self, Instant};

/// Sessions in a row that were dead when they were handed out, or whose opening ended without a
/// word, before a caller hears of it.
const IN_VAIN_IN_A_ROW: u32 = 3;

/// A spare that rested this long is checked before the one call it is taken for.
const CHECK_SPARES_AFTER: Duration = Duration::from_secs(60);

/// All sessions of an engine. Cheap to clone.
pub(crate) struct Pool<C: Connector> {
    pub(super) ground: Arc<Ground<C>>,
    pub(super) table: Arc<Table<C>>,
}

impl<C: Connector> Clone for Pool<C> {
    fn clone(&self) -> Self {
        Self {
            ground: Arc::clone(&self.ground),
            table: Arc::clone(&self.table),
        }
    }
}

impl<C: Connector> Pool<C> {
    /// A pool that holds nothing yet.
    pub(crate) fn new(connector: Arc<C>, ceilings: Ceilings) -> Self {
        let table = Arc::new(Table::new());
        let ground = Ground::new(connector, ceilings, Arc::downgrade(&table));
        Self { ground, table }
    }

    /// This moment, as the pool counts it: what [`Seen`] tells is measured by it.
    pub(crate) fn tick(&self) -> Tick {
        self.ground.tick()
    }

    /// The cell of a key, made if there is none. Takes no lock.
    pub(crate) fn cell(
        &self,
        key: &Key,
        policy: impl FnOnce() -> CellPolicy,
        setup: impl FnOnce() -> C::Setup,
    ) -> Arc<CellOf<C>> {
        let held = self.table.held.pin();
        if let Some(cell) = held.get(key) {
            return Arc::clone(cell);
        }
        self.insert(Arc::new(key.clone()), policy(), Arc::new(setup()))
    }

    /// Whether anything is held for a key.
    pub(crate) fn holds(&self, key: &Key) -> bool {
        let held = self.table.held.pin();
        held.get(key).is_some_and(|cell| {
            let (counts, ..) = cell.counts();
            counts.sessions() > 0
        })
    }

    /// All keys that take callers.
    pub(crate) fn cells(&self) -> Vec<Arc<CellOf<C>>> {
        self.table.held.pin().values().cloned().collect()
    }

    /// The right to send on a session of a key.
    ///
    /// May be dropped at any time: a caller who leaves gives up its place, and nothing else.
    pub(crate) async fn lease(
        &self,
        cell: &Arc<CellOf<C>>,
        want: Want,
        until: impl Into<Until>,
    ) -> Result<Lease<C>, Trouble> {
        let until = until.into();
        self.lease_in_turn(cell, want, Turn::Last, until).await
    }

    /// The same in this turn. Whoever had a lease on a session that was dead has the first: it stands
    /// before those who came later, and no line is too full for it.
    pub(crate) async fn lease_in_turn(
        &self,
        cell: &Arc<CellOf<C>>,
        want: Want,
        turn: Turn,
        until: Until,
    ) -> Result<Lease<C>, Trouble> {
        if let Some(trouble) = self.ground.turned_away(cell.server()) {
            return self.refused(cell, trouble, Duration::ZERO);
        }
        // The way of nearly every call: it is there, and nobody waits.
        match cell.ask(want, turn) {
            Asked::Lease(handed) if handed.is_usable() => {
                Ok(self.leased(cell, handed, How::Hit, Duration::ZERO))
            },
            other @ (Asked::Lease(_) | Asked::Wait(_) | Asked::Refused(_)) => {
                self.lease_later(cell, (want, turn), until, other).await
            },
        }
    }

    /// A session for one call, taken from the shelf or opened, and closed when it was settled.
    pub(crate) async fn once(
        &self,
        shelf: &SpareKey,
        setup: &Arc<C::Setup>,
        owner: Owner,
        until: impl Into<Until>,
    ) -> Result<Lease<C>, Trouble> {
        let scope = Scope::Shared(shelf.declared);
        let key = Arc::new(Key::of(shelf.place.clone(), owner, shelf.credential, scope));
        let proof = Proof::over(shelf.place.transport);
        let made_of = (CellPolicy { proof, ..ONCE }, Arc::clone(setup));
        let cell = CellOf::new(&self.ground, &self.table, key, Purpose::Call, made_of);
        self.table
            .leaving
            .pin()
            .insert(cell.number(), Arc::clone(&cell));
        // However this ends: nobody else gets that session, and it is closed after its call.
        let _ending = Ending(Arc::clone(&cell));
        self.lease(&cell, Want::Exclusive, until).await
    }

    /// Whether an opening may be tried outside the pool. Whoever gets it tells how it ended.
    pub(crate) fn pass(
        &self,
        server: &Arc<str>,
        revision: Revision,
        owner: Owner,
        credential: CredentialId,
        policy: BreakerPolicy,
    ) -> Result<(Passing, Changes), Trouble> {
        let opener = Opener {
            server: Arc::clone(server),
            revision,
            owner,
            credential,
        };
        self.ground.breakers.pass(opener, policy)
    }

    /// Room for what a first contact opens, waited for in line until then.
    pub(crate) async fn room_to_meet(
        &self,
        key: &Arc<Key>,
        most: Option<u32>,
        by: Instant,
    ) -> Result<Option<Room>, Trouble> {
        let since = clock::now();
        match self.ground.rooms.claim(key, most) {
            Space::NotNeeded => Ok(None),
            Space::Room(room) => Ok(Some(room)),
            Space::InLine(mut line) => {
                let make_room = |full: &Limit| self.ground.make_room(key, full);
                let came = clock::timeout_at(by, InLine::room(&mut line, make_room)).await;
                let waited = clock::now().saturating_duration_since(since);
                let server = &key.place().server;
                let room = came.map_err(|_| {
                    let full = self.ground.rooms.full(key, most);
                    wording::no_room(server, waited, full.as_ref())
                })?;
                room.map(Some).ok_or_else(|| wording::closed(server))
            },
        }
    }

    /// So many sessions of a server may be open from now on: who waits for room hears of it.
    pub(crate) fn decide_room(&self, server: &str, most: Option<u32>) {
        self.ground.rooms.decide(server, most);
    }

    /// Room for what a first contact opens beside its first session, if there is any at this moment.
    pub(crate) fn room_beside(&self, key: &Arc<Key>, most: Option<u32>) -> Option<Room> {
        match self.ground.rooms.claim(key, most) {
            Space::Room(room) => Some(room),
            Space::NotNeeded | Space::InLine(_) => None,
        }
    }

    /// Lays the session of a first contact on the shelf for whoever asks next.
    pub(crate) fn shelve(
        &self,
        shelf: &SpareKey,
        setup: &Arc<C::Setup>,
        session: Arc<C::Session>,
        mut met: Met,
    ) {
        if !self.ground.connector.holds_room(&session) {
            met.room = None;
        }
        let (ground, opened) = (&self.ground, (session, Arc::clone(setup)));
        ground.shelves.put_first(ground, shelf, opened, met);
    }

    /// Ends what first contacts opened for a run that is over.
    pub(crate) fn end_met_for(&self, run: RunId) {
        self.ground.shelves.end_met_for(&self.ground, run);
    }

    /// Ends what a first contact laid on a shelf for a run that has another session.
    pub(crate) fn end_met_on(&self, shelf: &SpareKey, run: RunId) {
        self.ground.shelves.end_met_on(&self.ground, shelf, run);
    }

    /// What lies on the shelves.
    pub(crate) fn on_shelves(&self) -> Vec<OnShelf> {
        self.ground.shelves.count()
    }

    /// A server lost sessions: what was not heard of since is checked before its next use.
    pub(crate) fn loss_seen(&self, server: &str, revision: Revision) {
        self.table.doubt(server, revision, self.ground.tick());
    }

    /// What there is and what happened so far, by the counters.
    pub(crate) fn stats(&self) -> Stats {
        self.ground.tally.stats(self.table.held.len())
    }

    /// Every breaker that does not pass: whose server it is, whom it stops, and what it does.
    pub(crate) fn blocking(&self) -> Vec<(Arc<str>, Blame, Stance)> {
        self.ground.breakers.blocking()
    }

    /// How long openings to each server pause for everybody.
    pub(crate) fn pauses(&self) -> Vec<(Arc<str>, Duration)> {
        self.ground.breakers.pauses()
    }

    /// What there is, counted anew: what the counters are held to.
    pub(crate) fn census(&self) -> Census {
        let mut census = Census::default();
        for cell in self.table.everyone() {
            let (counts, closing, mistakes) = cell.counts();
            census.count(counts, closing, mistakes);
        }
        for shelf in self.on_shelves() {
            census.present.spares += shelf.resting;
            census.present.spares_opening += shelf.opening;
        }
        census.present.keys = u32::try_from(self.table.held.len()).unwrap_or(u32::MAX);
        (census.rooms, census.processes) = self.ground.rooms.taken();
        census.errands = u32::try_from(self.ground.errands()).unwrap_or(u32::MAX);
        census
    }

    fn insert(&self, key: Arc<Key>, policy: CellPolicy, setup: Arc<C::Setup>) -> Arc<CellOf<C>> {
        let made_of = (policy, setup);
        let new = CellOf::new(
            &self.ground,
            &self.table,
            Arc::clone(&key),
            Purpose::Held,
            made_of,
        );
        let held = self.table.held.pin();
        Arc::clone(held.get_or_insert(key, new))
    }

    /// Waits, and asks again as long as what comes is dead.
    async fn lease_later(
        &self,
        cell: &Arc<CellOf<C>>,
        (want, turn): (Want, Turn),
        until: Until,
        first: Asked<C>,
    ) -> Result<Lease<C>, Trouble> {
        let since = clock::now();
        let waited = || clock::now().saturating_duration_since(since);
        let (mut cell, mut asked) = (Arc::clone(cell), first);
        let mut in_vain = wording::dead_on_arrival(cell.server());
        for _ in 0..IN_VAIN_IN_A_ROW {
            let (answer, how) = match asked {
                Asked::Lease(handed) => (Ok(handed), How::Hit),
                Asked::Wait(mut waiting) => {
                    cell.happened(What::Waiting);
                    (waiting.turn(since, until).await, waiting.how)
                },
                // It was empty for long and forgotten while somebody still had it in hand.
                Asked::Refused(Refusal::Ended(Why::Evicted)) if cell.is_held() => {
                    let again = (Arc::clone(cell.shared_key()), cell.policy());
                    cell = self.insert(again.0, again.1, Arc::clone(cell.setup()));
                    asked = cell.ask(want, turn);
                    continue;
                },
                Asked::Refused(refusal) => {
                    let why = cell.trouble_of(refusal, None);
                    (Err(Unserved::Trouble(why)), How::Hit)
                },
            };
            match answer {
                Ok(handed) if handed.is_usable() => {
                    return Ok(self.leased(&cell, handed, how, waited()));
                },
                // It goes back as gone, and this caller is the next again.
                Ok(handed) => {
                    drop(handed);
                    asked = cell.ask(want, Turn::First);
                },
                // All who were in line ask again, in the order in which they were.
                Err(Unserved::AskAgain) => {
                    in_vain = wording::no_word(cell.server());
                    asked = cell.ask(want, turn);
                },
                Err(Unserved::Trouble(trouble)) => {
                    let trouble = Arc::unwrap_or_clone(trouble);
                    return self.refused(&cell, trouble, waited());
                },
            }
        }
        self.refused(&cell, in_vain, waited())
    }

    fn leased(&self, cell: &CellOf<C>, handed: Handed<C>, how: How, waited: Duration) -> Lease<C> {
        let how = match cell.purpose() {
            Purpose::Held => how,
            Purpose::Call | Purpose::Spare => How::Once,
        };
        self.ground.tally.leased(cell.number(), how);
        cell.happened(What::Leased { how, waited });
        Lease::new(handed, how)
    }

    fn refused(
        &self,
        cell: &CellOf<C>,
        trouble: Trouble,
        waited: Duration,
    ) -> Result<Lease<C>, Trouble> {
        self.ground.tally.seldom(Seldom::Refused);
        cell.happened(What::Refused {
            trouble: &trouble,
            waited,
        });
        Err(trouble)
    }
}

/// The policy of a session that serves one call; what it has to show follows from its transport.
const ONCE: CellPolicy = CellPolicy {
    sharing: Sharing::OneEach,
    max: 1,
    max_age: None,
    max_idle: None,
    check_after: CHECK_SPARES_AFTER,
    keep_alive: None,
    waiters: 1,
    proof: Proof::Serving,
    ends: Ends::ByLimits,
};

/// Ends the cell of a single call, however the call goes on.
struct Ending<C: Connector>(Arc<CellOf<C>>);

impl<C: Connector> Drop for Ending<C> {
    fn drop(&mut self) {
        self.0.tell(Event::Ended(Why::RunEnded));
    }
}
