//! A session as the pool holds it, and which ids live.
//!
//! Asked by: openings and first contacts, for every session that a server gave, and by records, for
//! those that are taken up again.
//!
//! An id is all that tells one session of a server from another. A server that gives the same one
//! twice, because it is broken or wants to know what others say, would put two callers into one
//! conversation; the second one is not used. Only the key that has an id may come by it again: by
//! its record, or where a healed session got the id of the lost one.

use std::collections::HashMap;
use std::collections::hash_map::Entry as Place;
use std::hash::{BuildHasher, RandomState};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use warmline_core::code::Reason;
use warmline_core::exchange::Trouble;
use warmline_core::key::Key;
use warmline_core::tick::Tick;

use super::{Connect, Setup};
use crate::attend::Told;
use crate::entry::{Entry, Found};
use crate::sync::Mutex;
use crate::upstream::{Facts, Session};

/// A session as the pool holds it.
#[derive(Debug)]
pub(crate) struct Line {
    session: Session,
    /// Its number within its key, once it has one: its record is told apart by it.
    pub(super) generation: AtomicU32,
    born: Tick,
    /// Where it tells what belongs to no call, if it was opened before its key was known.
    pub(super) told: Option<Arc<Told>>,
    /// Whether somebody saw the server forget it.
    seen_gone: AtomicBool,
    /// Whether it answered a call that was not repeatable.
    left_state: AtomicBool,
}

/// What a first contact came to.
pub(crate) struct FirstContact {
    pub(crate) line: Arc<Line>,
    /// What is known of the other leg, where it was tried.
    pub(crate) other: Option<Arc<Facts>>,
    /// A session on the other leg that nobody will use.
    pub(crate) beside: Option<Session>,
}

/// The ids that live, by a keyed hash of server and id: a session has to cost little.
#[derive(Debug, Default)]
pub(super) struct LiveIds {
    hashing: RandomState,
    ids: Mutex<HashMap<Hash, Living>>,
}

/// A hash in two halves: so an id takes up twelve bytes of the table, and not sixteen.
type Hash = [u32; 2];

/// What is known of an id that lives.
#[derive(Debug)]
struct Living {
    /// Whose it is, shortened; that of nobody yet for a spare.
    whose: Whose,
    /// How many sessions of ours have it: one, or lost ones beside their replacement.
    lines: u8,
}

/// A key, shortened.
type Whose = [u8; 3];

/// The key of what belongs to none yet.
const NOBODY: Whose = [0; 3];

/// By what right a session has its id.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Right {
    /// The server gave it now.
    Given,
    /// The server gave it to the session that takes the place of the one that had it.
    Replaces,
    /// A record of this key says so.
    Recorded(Whose),
}

impl Line {
    fn new(session: Session, told: Option<Arc<Told>>, born: Tick) -> Arc<Self> {
        Arc::new(Self {
            session,
            told,
            generation: AtomicU32::new(0),
            born,
            seen_gone: AtomicBool::new(false),
            left_state: AtomicBool::new(false),
        })
    }

    /// From now on there is something to lose with it.
    pub(crate) fn leaves_state(&self) {
        self.left_state.store(true, Ordering::Relaxed);
    }

    /// Whether there is something to lose with it. What its key knows of that is of the session
    /// that the key has now.
    pub(crate) fn has_left_state(&self) -> bool {
        self.left_state.load(Ordering::Relaxed)
    }

    /// Whether this is the first word that the server forgot it: one loss is one, however many
    /// calls meet it.
    pub(crate) fn is_first_seen_gone(&self) -> bool {
        !self.seen_gone.swap(true, Ordering::Relaxed)
    }

    /// How long ago it was opened or taken up, by the engine's clock.
    pub(crate) fn age(&self, now: Tick) -> Duration {
        now.since(self.born)
    }
}

impl Deref for Line {
    type Target = Session;

    fn deref(&self) -> &Session {
        &self.session
    }
}

impl LiveIds {
    /// Remembers the id of a session; false if another has it.
    fn remember(&self, hash: Option<Hash>, right: Right) -> bool {
        let Some(hash) = hash else { return true };
        let whose = match right {
            Right::Recorded(whose) => whose,
            Right::Given | Right::Replaces => NOBODY,
        };
        match self.ids.lock().entry(hash) {
            Place::Vacant(place) => {
                place.insert(Living { whose, lines: 1 });
                true
            },
            Place::Occupied(mut there) => {
                let living = there.get_mut();
                let may = match right {
                    Right::Given => false,
                    Right::Replaces => true,
                    Right::Recorded(whose) => living.whose == whose,
                };
                living.lines = living.lines.saturating_add(u8::from(may));
                may
            },
        }
    }

    /// A session moved in with a key.
    fn belongs_to(&self, hash: Option<Hash>, whose: Whose) {
        let mut ids = self.ids.lock();
        if let Some(living) = hash.and_then(|hash| ids.get_mut(&hash)) {
            living.whose = whose;
        }
    }

    fn forget(&self, hash: Option<Hash>) {
        let mut ids = self.ids.lock();
        let Some(hash) = hash else { return };
        if let Some(living) = ids.get_mut(&hash) {
            living.lines = living.lines.saturating_sub(1);
            if living.lines == 0 {
                ids.remove(&hash);
            }
        }
    }

    /// Whether another session of ours has the same id.
    fn is_shared(&self, hash: Option<Hash>) -> bool {
        let ids = self.ids.lock();
        let living = hash.and_then(|hash| ids.get(&hash));
        living.is_some_and(|living| living.lines > 1)
    }

    fn whose(&self, key: &Key) -> Whose {
        let [a, b, c, ..] = self.hashing.hash_one(key).to_le_bytes();
        // Nobody's is no key's.
        [a.max(1), b, c]
    }

    fn hash_of(&self, entry: &Entry, found: &Found, session: &Session) -> Option<Hash> {
        let id = session.session_id()?;
        let server = (&entry.name, found.revision.0.bytes());
        let [a, b, c, d, e, f, g, h] = self.hashing.hash_one((server, id)).to_le_bytes();
        Some([[a, b, c, d], [e, f, g, h]].map(u32::from_le_bytes))
    }
}

impl Connect {
    /// The session that a server gave, unless its id is that of another one that lives. The one
    /// that it replaces is no other.
    pub(super) fn line(
        &self,
        (entry, found): (&Entry, &Found),
        (session, told): (Session, Option<Arc<Told>>),
        replaces: Option<&Arc<Line>>,
    ) -> Result<Arc<Line>, Trouble> {
        let replaced = replaces.and_then(|old| old.session_id());
        let right = if replaced.is_some() && replaced == session.session_id() {
            Right::Replaces
        } else {
            Right::Given
        };
        let hash = self.live.hash_of(entry, found, &session);
        if self.live.remember(hash, right) {
            return Ok(Line::new(session, told, self.shared.tick()));
        }
        // It is not ended either: with its id the other one would end.
        let what = format!("`{}` issued the id of a session that lives", entry.name);
        Err(Trouble::new(Reason::BadSessionId, what))
    }

    /// A session that a record gives to its key; none where its id is that of somebody else's
    /// session that lives.
    pub(super) fn line_again(
        &self,
        setup: &Setup,
        key: &Key,
        session: Session,
    ) -> Option<Arc<Line>> {
        let right = Right::Recorded(self.live.whose(key));
        let hash = self.live.hash_of(&setup.entry, &setup.found, &session);
        let may = self.live.remember(hash, right);
        may.then(|| Line::new(session, None, self.shared.tick()))
    }

    /// A session belongs to a key from now on.
    pub(super) fn moves_in(&self, setup: &Setup, key: &Key, line: &Line) {
        let hash = self.live.hash_of(&setup.entry, &setup.found, line);
        self.live.belongs_to(hash, self.live.whose(key));
    }

    /// Whether ending this session would end another one of ours, which has the same id.
    pub(super) fn ends_another(&self, setup: &Setup, line: &Line) -> bool {
        let hash = self.live.hash_of(&setup.entry, &setup.found, line);
        self.live.is_shared(hash)
    }

    /// A session is over for us: the server may give its id to another one.
    pub(super) fn give_back(&self, setup: &Setup, line: &Line) {
        let hash = self.live.hash_of(&setup.entry, &setup.found, line);
        self.live.forget(hash);
    }
}
