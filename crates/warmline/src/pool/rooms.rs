//! Rooms: space for one session each, as values with a destructor.
//!
//! Asked by: openings, before anything goes out.  A room is held as long as its session, until the
//! server was told that it is over; dropping it gives it to whoever waited longest.
//!
//! The totals stand under one short lock that only openings and closings touch. A call on a held
//! session never comes here.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{Notify, oneshot};
use warmline_core::key::Key;
use warmline_core::policy::Ceilings;
use warmline_core::pool::limits::{Called, Claim, Claimed, Kind, Limit, Limits, Ticket, Was};

use crate::sync::Mutex;

/// All rooms of an engine.
pub(super) struct Rooms {
    book: Mutex<Book>,
    waiting: AtomicUsize,
}

struct Book {
    limits: Limits,
    bells: BTreeMap<Ticket, Bell>,
}

/// Rings for one who waits.
struct Bell {
    key: Arc<Key>,
    ring: oneshot::Sender<Room>,
    /// Told when it stands at another limit.
    moved: Arc<Notify>,
}

/// Room for one session. Dropping it gives the room back, whatever became of the session.
#[must_use = "dropping a room gives it back"]
pub(crate) struct Room {
    rooms: Arc<Rooms>,
    key: Arc<Key>,
    was: Was,
}

/// What an opening got.
pub(super) enum Space {
    /// Its server holds nothing per session.
    NotNeeded,
    /// Room.
    Room(Room),
    /// A place in line.
    InLine(InLine),
}

/// A place in line for room. Dropping it leaves the line.
pub(super) struct InLine {
    rooms: Arc<Rooms>,
    ticket: Ticket,
    /// The limit that is full.
    full: Limit,
    bell: oneshot::Receiver<Room>,
    moved: Arc<Notify>,
}

impl Rooms {
    pub(super) fn new(ceilings: Ceilings) -> Arc<Self> {
        Arc::new(Self {
            book: Mutex::new(Book {
                limits: Limits::new(ceilings),
                bells: BTreeMap::new(),
            }),
            waiting: AtomicUsize::new(0),
        })
    }

    pub(super) fn claim(self: &Arc<Self>, key: &Arc<Key>, server_max: Option<u32>) -> Space {
        let Some(claim) = Claim::of(key, server_max) else {
            return Space::NotNeeded;
        };
        let mut book = self.book.lock();
        match book.limits.claim(claim) {
            Claimed::Granted => Space::Room(Room {
                rooms: Arc::clone(self),
                key: Arc::clone(key),
                was: Was::Taken,
            }),
            Claimed::InLine(ticket, full) => {
                let (ring, bell) = oneshot::channel();
                let (key, moved) = (Arc::clone(key), Arc::<Notify>::default());
                let told = Arc::clone(&moved);
                book.bells.insert(ticket, Bell { key, ring, moved });
                self.waiting.store(book.limits.waiting(), Ordering::Relaxed);
                Space::InLine(InLine {
                    rooms: Arc::clone(self),
                    ticket,
                    full,
                    bell,
                    moved: told,
                })
            },
        }
    }

    /// Whether closing a session of this key would help somebody who waits.
    pub(super) fn are_needed(&self, key: &Key) -> bool {
        // Nearly always nobody waits, and then no lock is touched.
        if self.waiting.load(Ordering::Relaxed) == 0 {
            return false;
        }
        Claim::of(key, None).is_some_and(|claim| self.book.lock().limits.is_needed(&claim))
    }

    /// The limit that leaves no room for a session of this key now, and how much it allows.
    pub(super) fn full(&self, key: &Key, server_max: Option<u32>) -> Option<(Limit, u32)> {
        let claim = Claim::of(key, server_max)?;
        self.book.lock().limits.full(&claim)
    }

    /// How many are taken, sessions and processes.
    pub(super) fn taken(&self) -> (u32, u32) {
        let book = self.book.lock();
        let taken = |kind| book.limits.taken(kind);
        (taken(Kind::Session), taken(Kind::Process))
    }

    /// Another limit of a server counts from now on.
    pub(super) fn decide(self: &Arc<Self>, server: &str, most: Option<u32>) {
        self.change(|limits| limits.decide(server, most));
    }

    /// Changes the limits, and rings for those who got room by that.
    fn change(self: &Arc<Self>, change: impl FnOnce(&mut Limits) -> Called) {
        let rung: Vec<Bell> = {
            let mut book = self.book.lock();
            let called = change(&mut book.limits);
            self.waiting.store(book.limits.waiting(), Ordering::Relaxed);
            for ticket in book.limits.moved() {
                if let Some(bell) = book.bells.get(&ticket) {
                    bell.moved.notify_one();
                }
            }
            let bells = called.iter().filter_map(|ticket| book.bells.remove(ticket));
            bells.collect()
        };
        for Bell { key, ring, .. } in rung {
            let rooms = Arc::clone(self);
            let was = Was::Taken;
            // Whoever left in this moment gives it back: it falls out of the channel.
            drop(ring.send(Room { rooms, key, was }));
        }
    }
}

impl Room {
    /// It will be given back as soon as its session is closed.
    pub(super) fn promise(&mut self) {
        if self.was == Was::Taken
            && let Some(claim) = Claim::of(&self.key, None)
        {
            self.was = Was::Promised;
            self.rooms.book.lock().limits.promise(&claim);
        }
    }

    /// Room that was taken for nobody becomes that of a key's session; false where the owner of the
    /// key has no room left.
    pub(super) fn becomes(&mut self, key: &Arc<Key>, server_max: Option<u32>) -> bool {
        let Some(claim) = Claim::of(key, server_max) else {
            return false;
        };
        let taken_over = self.rooms.book.lock().limits.take_over(&claim);
        if taken_over {
            self.key = Arc::clone(key);
        }
        taken_over
    }

    /// Whether giving it back would help somebody who waits.
    pub(super) fn is_needed(&self) -> bool {
        self.rooms.are_needed(&self.key)
    }

    /// Whether giving it back makes room in a limit that stops this claimant.
    pub(super) fn helps(&self, claimant: &Key, full: &Limit) -> bool {
        Claim::of(claimant, None).is_some_and(|claim| claim.gains_by(full, &self.key))
    }

    /// Whether limits were lowered so far that this room should not be.
    pub(super) fn is_too_much(&self, server_max: Option<u32>) -> bool {
        Claim::of(&self.key, server_max)
            .is_some_and(|claim| self.rooms.book.lock().limits.is_over(&claim))
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        if let Some(claim) = Claim::of(&self.key, None) {
            let was = self.was;
            self.rooms.change(|limits| limits.release(&claim, was));
        }
    }
}

impl InLine {
    /// Waits for the room, and has some made in each limit that stops it, one after the other. None
    /// only if everything is being torn down.
    pub(super) async fn room(&mut self, make_room: impl Fn(&Limit)) -> Option<Room> {
        loop {
            make_room(&self.full);
            tokio::select! {
                biased;
                room = &mut self.bell => return room.ok(),
                () = self.moved.notified() => {},
            }
            match self.stands_at() {
                Some(full) => self.full = full,
                None => return (&mut self.bell).await.ok(),
            }
        }
    }

    fn stands_at(&self) -> Option<Limit> {
        let book = self.rooms.book.lock();
        book.limits.stands_at(self.ticket).cloned()
    }
}

impl Drop for InLine {
    fn drop(&mut self) {
        let bell = {
            let mut book = self.rooms.book.lock();
            book.limits.leave(self.ticket);
            self.rooms
                .waiting
                .store(book.limits.waiting(), Ordering::Relaxed);
            book.bells.remove(&self.ticket)
        };
        drop(bell);
        // A room that came in the meantime falls out of the channel, and goes back.
    }
}
