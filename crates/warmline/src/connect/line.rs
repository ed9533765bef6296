//! A session as the pool holds it, and which ids live.
//!
//! Asked by: openings and first contacts, for every session that a server gave.
//!
//! An id is all that tells one session of a server from another. A server that gives the same one
//! twice, because it is broken or wants to know what others say, would put two callers into one
//! conversation; the second one is not used.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use warmline_core::code::Reason;
use warmline_core::exchange::Trouble;
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
    hashes: Mutex<HashSet<u64>>,
}

impl Line {
    fn new(session: Session, told: Option<Arc<Told>>, born: Tick) -> Arc<Self> {
        Arc::new(Self {
            session,
            told,
            generation: AtomicU32::new(0),
            born,
            seen_gone: AtomicBool::new(false),
        })
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
    /// Remembers the id of a session; false if it was remembered already.
    fn remember(&self, entry: &Entry, found: &Found, session: &Session) -> bool {
        let hash = self.hash_of(entry, found, session);
        hash.is_none_or(|hash| self.hashes.lock().insert(hash))
    }

    fn forget(&self, entry: &Entry, found: &Found, session: &Session) {
        if let Some(hash) = self.hash_of(entry, found, session) {
            self.hashes.lock().remove(&hash);
        }
    }

    fn hash_of(&self, entry: &Entry, found: &Found, session: &Session) -> Option<u64> {
        let id = session.session_id()?;
        let server = (&entry.name, found.revision.0.bytes());
        Some(self.hashing.hash_one((server, id)))
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
        let is_replaced = replaced.is_some() && replaced == session.session_id();
        if self.live.remember(entry, found, &session) || is_replaced {
            return Ok(Line::new(session, told, self.shared.tick()));
        }
        // It is not ended either: with its id the other one would end.
        let what = format!("`{}` issued the id of a session that lives", entry.name);
        Err(Trouble::new(Reason::BadSessionId, what))
    }

    /// A session that is taken up again: whoever had its id in this process leaves it to us.
    pub(super) fn line_again(&self, setup: &Setup, session: Session) -> Arc<Line> {
        self.live.remember(&setup.entry, &setup.found, &session);
        Line::new(session, None, self.shared.tick())
    }

    /// A session is over for us: the server may give its id to another one.
    pub(super) fn give_back(&self, setup: &Setup, line: &Line) {
        self.live.forget(&setup.entry, &setup.found, line);
    }
}
