//! The ground that all cells stand on: whom they ask, what they are counted in, where they are
//! found.
//!
//! Cells know the ground, and the ground knows no cell: the table of cells stands apart
//! ([`Table`]), so that dropping the last handle of a pool drops all of it.

use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::{Notify, Semaphore};
use warmline_core::exchange::Trouble;
use warmline_core::key::{Key, Revision};
use warmline_core::policy::Ceilings;
use warmline_core::pool::limits::{Claim, Limit};
use warmline_core::pool::{Event, Generation};
use warmline_core::tick::Tick;

use super::breakers::{Breakers, Changes, Opener};
use super::cell::CellOf;
use super::rooms::Rooms;
use super::shelves::Shelves;
use super::tally::Tally;
use super::wire::Gates;
use super::{Connector, Happened, What, wording};
use crate::clock::{self, Instant};
use crate::sync::Mutex;

/// So many sessions are closed at the same time: each may need a connection.
const CLOSINGS: usize = 256;
/// So many candidates for making room are remembered from one look at all cells.
const CANDIDATES: usize = 64;

/// What all cells share.
pub(super) struct Ground<C: Connector> {
    pub(super) connector: Arc<C>,
    pub(super) tally: Tally,
    pub(super) rooms: Arc<Rooms>,
    pub(super) breakers: Arc<Breakers>,
    pub(super) gates: Gates,
    pub(super) shelves: Shelves<C>,
    pub(super) table: Weak<Table<C>>,
    /// Closings wait for one another here.
    pub(super) closings: Semaphore,
    /// Something came to its end: a task, or a cell.
    pub(super) rested: Notify,
    /// Nothing new is taken from now on.
    goes_down: Notify,
    errands: AtomicUsize,
    phase: AtomicU8,
    started: Instant,
    next_cell: AtomicU64,
    /// How long an empty key is remembered.
    pub(super) evict_after: Duration,
}

/// How far the pool is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Open,
    Draining,
    Closed,
}

/// All cells.
pub(super) struct Table<C: Connector> {
    /// Those that take callers.
    pub(super) held: papaya::HashMap<Arc<Key>, Arc<CellOf<C>>>,
    /// Those that ended, or serve one call, until nothing is left of them.
    pub(super) leaving: papaya::HashMap<u64, Arc<CellOf<C>>>,
    /// When a server was last known to have lost sessions.
    doubts: papaya::HashMap<(Arc<str>, Revision), Arc<AtomicU64>>,
    /// Who could make room, the longest unused first. A hint: each is looked at again.
    candidates: Mutex<Vec<Candidate<C>>>,
}

type Candidate<C> = (Tick, Generation, Weak<CellOf<C>>);

impl<C: Connector> Ground<C> {
    pub(super) fn new(connector: Arc<C>, ceilings: Ceilings, table: Weak<Table<C>>) -> Arc<Self> {
        let started = clock::now();
        Arc::new(Self {
            connector,
            tally: Tally::default(),
            rooms: Rooms::new(ceilings),
            breakers: Breakers::new(started),
            gates: Gates::new(),
            shelves: Shelves::new(ceilings.max_spares),
            table,
            closings: Semaphore::new(CLOSINGS),
            rested: Notify::new(),
            goes_down: Notify::new(),
            errands: AtomicUsize::new(0),
            phase: AtomicU8::new(Phase::Open as u8),
            started,
            next_cell: AtomicU64::new(0),
            evict_after: ceilings.evict_after,
        })
    }

    /// This moment, as the core sees it.
    pub(super) fn tick(&self) -> Tick {
        Tick::at(clock::now().saturating_duration_since(self.started))
    }

    pub(super) fn number_of_a_cell(&self) -> u64 {
        self.next_cell.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn enter(&self, phase: Phase) {
        self.phase.fetch_max(phase as u8, Ordering::SeqCst);
        self.goes_down.notify_waiters();
    }

    /// Waits until nothing new is taken any more.
    pub(super) async fn going_down(&self) {
        let mut told = std::pin::pin!(self.goes_down.notified());
        // Before the look, so that nothing is missed in between.
        told.as_mut().enable();
        if self.is_open() {
            told.await;
        }
    }

    /// Whether anything new is taken.
    pub(super) fn is_open(&self) -> bool {
        self.phase.load(Ordering::SeqCst) == Phase::Open as u8
    }

    /// Why nothing new is taken, if so.
    pub(super) fn turned_away(&self, server: &str) -> Option<Trouble> {
        match self.phase.load(Ordering::SeqCst) {
            open if open == Phase::Open as u8 => None,
            draining if draining == Phase::Draining as u8 => Some(wording::draining(server)),
            _ => Some(wording::closed(server)),
        }
    }

    /// Begins something that a task does; it ends when the value is dropped.
    pub(super) fn errand(self: &Arc<Self>) -> Errand<C> {
        self.errands.fetch_add(1, Ordering::SeqCst);
        Errand(Arc::clone(self))
    }

    pub(super) fn errands(&self) -> usize {
        self.errands.load(Ordering::SeqCst)
    }

    /// Tells that breakers changed.
    pub(super) fn breakers_changed(&self, setup: &C::Setup, key: &Key, changes: Changes) {
        for (scope, change) in changes {
            self.happened(setup, key, None, What::Breaker { scope, change });
        }
    }

    /// Tells what happened.
    pub(super) fn happened(
        &self,
        setup: &C::Setup,
        key: &Key,
        held_by: Option<&Key>,
        what: What<'_>,
    ) {
        self.connector.happened(
            setup,
            &Happened {
                place: key.place(),
                owner: Some(key.owner()),
                key: held_by,
                what,
            },
        );
    }

    /// It was worth it to open a session of this key.
    pub(super) fn proven(&self, setup: &C::Setup, key: &Key) {
        let changes = self.breakers.proven(&Opener::of(key));
        self.breakers_changed(setup, key, changes);
    }

    /// A session of this key that was opened then was opened in vain.
    pub(super) fn in_vain(&self, setup: &C::Setup, key: &Key, opened: Tick) {
        let policy = self.connector.breaker(setup);
        let changes = self.breakers.in_vain(&Opener::of(key), opened, &policy);
        self.breakers_changed(setup, key, changes);
    }

    /// Closes the session elsewhere that was unused longest, if one can go and it would help.
    pub(super) fn make_room(self: &Arc<Self>, claimant: &Key, full: &Limit) {
        let Some(table) = self.table.upgrade() else {
            return;
        };
        // Each look may find one that was just taken into use; then the next is asked.
        for _ in 0..CANDIDATES {
            let Some((used, generation, cell)) = table.longest_unused(claimant, full) else {
                return self.shelves.make_room(self, claimant, full);
            };
            let Some(cell) = cell.upgrade() else { continue };
            if cell.could_go() == Some((generation, used)) {
                return cell.tell(Event::RoomNeeded { generation });
            }
        }
    }
}

/// Something that a task does for the pool.
pub(super) struct Errand<C: Connector>(pub(super) Arc<Ground<C>>);

impl<C: Connector> Drop for Errand<C> {
    fn drop(&mut self) {
        self.0.errands.fetch_sub(1, Ordering::SeqCst);
        self.0.rested.notify_waiters();
    }
}

impl<C: Connector> Table<C> {
    pub(super) fn new() -> Self {
        Self {
            held: papaya::HashMap::new(),
            leaving: papaya::HashMap::new(),
            doubts: papaya::HashMap::new(),
            candidates: Mutex::new(Vec::new()),
        }
    }

    /// When the server of a key was last known to have lost sessions, for ever up to date.
    pub(super) fn doubt_of(&self, key: &Key) -> Arc<AtomicU64> {
        let place = key.place();
        let of = (Arc::clone(&place.server), place.revision);
        let doubts = self.doubts.pin();
        Arc::clone(doubts.get_or_insert_with(of, Arc::default))
    }

    /// The server lost sessions.
    pub(super) fn doubt(&self, server: &str, revision: Revision, now: Tick) {
        let doubts = self.doubts.pin();
        if let Some(doubt) = doubts.get(&(Arc::from(server), revision)) {
            let nanos = u64::try_from(now.since_start().as_nanos()).unwrap_or(u64::MAX);
            doubt.fetch_max(nanos, Ordering::Relaxed);
        }
    }

    /// Moves a cell from those that take callers to those that leave.
    pub(super) fn let_go(&self, cell: &Arc<CellOf<C>>) {
        self.leaving.pin().insert(cell.number(), Arc::clone(cell));
        self.strike_out(cell);
    }

    /// Takes a cell out of the table, unless another stands there for its key by now.
    pub(super) fn strike_out(&self, cell: &Arc<CellOf<C>>) {
        let held = self.held.pin();
        held.remove_if(cell.shared_key(), |_, held| Arc::ptr_eq(held, cell))
            .ok();
    }

    /// All cells there are, those that leave included.
    pub(super) fn everyone(&self) -> Vec<Arc<CellOf<C>>> {
        let (held, leaving) = (self.held.pin(), self.leaving.pin());
        held.values().chain(leaving.values()).cloned().collect()
    }

    /// Of the sessions whose end would help the claimant, the one that was unused longest.
    ///
    /// A look at all cells finds many; the others are remembered for those who come next.
    fn longest_unused(&self, claimant: &Key, full: &Limit) -> Option<Candidate<C>> {
        let helps = |cell: &CellOf<C>| {
            Claim::of(claimant, None).is_some_and(|claim| claim.gains_by(full, cell.any_key()))
        };
        let remembered = matches!(full, Limit::All(_));
        if remembered {
            let mut candidates = std::mem::take(&mut *self.candidates.lock());
            let helpful =
                |(_, _, cell): &Candidate<C>| cell.upgrade().is_some_and(|cell| helps(&cell));
            if let Some(at) = candidates.iter().position(helpful) {
                let first = candidates.remove(at);
                *self.candidates.lock() = candidates;
                return Some(first);
            }
        }
        let mut found: Vec<Candidate<C>> = Vec::new();
        for cell in self.held.pin().values().filter(|cell| helps(cell)) {
            if let Some((generation, used)) = cell.could_go() {
                found.push((used, generation, Arc::downgrade(cell)));
            }
        }
        found.sort_unstable_by_key(|(used, ..)| *used);
        let mut found = found.into_iter().take(CANDIDATES);
        let first = found.next();
        if remembered {
            *self.candidates.lock() = found.collect();
        }
        first
    }
}
