//! Spares: sessions opened ahead, for whoever comes next.
//!
//! Asked by: openings, before they open anything, and the keeper.  Told by: whoever used the
//! credential, and by openings of spares that ended.
//!
//! A shelf holds the spares of one place, credential and declaration. They are counted apart from
//! the sessions of keys, and each is given away once and never comes back (reliability I32).

use std::time::Duration;

use smallvec::SmallVec;

use crate::code::Reason;
use crate::key::{CredentialId, DeclaredId, Key, Place, Transport};
use crate::tick::Tick;

/// Spares are kept only for credentials that were used this lately.
const LATELY: Duration = Duration::from_secs(30 * 60);

/// Servers forget HTTP sessions after five minutes or more. A process forgets nothing.
const HTTP_AGE: Duration = Duration::from_secs(4 * 60);

/// A session that was opened to get to know the server is kept this long for whoever asked, also
/// where no spares are wanted.
const FIRST_CONTACT: Duration = Duration::from_secs(30);

/// So long the next try waits after a spare could not be opened; it doubles as long as none can.
/// Nobody waits for a spare, so it is tried far more seldom than what somebody asks for.
const PAUSE: Duration = Duration::from_secs(10);
/// The longest of these pauses.
const LONGEST_PAUSE: Duration = Duration::from_secs(10 * 60);

/// What spares are kept apart by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SpareKey {
    /// Where they lead.
    pub place: Place,
    /// Which source of secrets opened them.
    pub credential: CredentialId,
    /// What they were told of us.
    pub declared: DeclaredId,
}

impl SpareKey {
    /// The shelf that the sessions of a key may come from.
    pub fn of(key: &Key, declared: DeclaredId) -> Self {
        Self {
            place: key.place().clone(),
            credential: key.credential(),
            declared,
        }
    }
}

/// One spare on its shelf.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SpareId(u64);

/// The spares of one kind.
#[derive(Clone, Debug)]
pub struct Shelf {
    age: Option<Duration>,
    wanted: u32,
    opening: u32,
    refilling: Refilling,
    resting: SmallVec<[Resting; 1]>,
    used: Tick,
    next: SpareId,
}

/// A spare that lies on its shelf.
#[derive(Clone, Copy, Debug)]
struct Resting {
    id: SpareId,
    since: Tick,
    /// Somebody will ask for it in a moment, and opened it for that.
    is_expected: bool,
}

/// Whether spares are opened, by how the last one was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refilling {
    /// As many as are wanted.
    Goes,
    /// None until then, and then one.
    Pauses { until: Tick, pause: Duration },
    /// None any more: the server has no session to spare.
    Ended,
}

/// What a shelf needs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Need {
    /// Spares that are to be closed.
    pub close: SmallVec<[SpareId; 1]>,
    /// How many are to be opened.
    pub open: u32,
}

impl Shelf {
    /// An empty shelf.
    pub fn new(transport: Transport, now: Tick) -> Self {
        Self {
            age: match transport {
                Transport::Stdio => None,
                Transport::Http | Transport::HttpSse => Some(HTTP_AGE),
            },
            wanted: 0,
            opening: 0,
            refilling: Refilling::Goes,
            resting: SmallVec::new(),
            used: now,
            next: SpareId(0),
        }
    }

    /// Somebody used the credential, and so many spares are wanted.
    pub const fn used(&mut self, wanted: u32, now: Tick) {
        self.wanted = wanted;
        self.used = now;
    }

    /// Another number is wanted from now on, where spares are wanted at all. Nobody used the
    /// credential for that.
    pub const fn decide(&mut self, wanted: u32) {
        if self.wanted > 0 {
            self.wanted = wanted;
        }
    }

    /// Takes the spare that rested least, and says how long it did. It never comes back.
    pub fn take(&mut self, now: Tick) -> Option<(SpareId, Duration)> {
        let at = self
            .resting
            .iter()
            .rposition(|spare| !self.is_old(spare.since, now))?;
        let spare = self.resting.remove(at);
        Some((spare.id, now.since(spare.since)))
    }

    /// Takes this one, and says how long it rested; none if it does not lie there, or for too long.
    pub fn take_this(&mut self, id: SpareId, now: Tick) -> Option<Duration> {
        let is_meant = |spare: &Resting| spare.id == id && !self.is_old(spare.since, now);
        let at = self.resting.iter().position(is_meant)?;
        let spare = self.resting.remove(at);
        Some(now.since(spare.since))
    }

    /// What the shelf needs now. What is to be opened counts as being opened.
    pub fn look(&mut self, now: Tick) -> Need {
        let wanted = self.wanted_now(now);
        let mut close = SmallVec::new();
        let (age, mut kept) = (self.age, 0);
        self.resting.retain(|spare| {
            let rested = now.since(spare.since);
            let old = age.is_some_and(|age| rested >= age);
            let expected = spare.is_expected && rested < FIRST_CONTACT;
            if old || (kept >= wanted && !expected) {
                close.push(spare.id);
                return false;
            }
            kept += 1;
            true
        });
        let there = self.resting().saturating_add(self.opening);
        let missing = wanted.saturating_sub(there);
        let open = match self.refilling {
            Refilling::Goes => missing,
            Refilling::Pauses { until, .. } if until <= now => {
                missing.min(1_u32.saturating_sub(self.opening))
            },
            Refilling::Pauses { .. } | Refilling::Ended => 0,
        };
        self.opening += open;
        Need { close, open }
    }

    /// A spare was opened; none if it is not wanted any more.
    pub fn opened(&mut self, now: Tick) -> Option<SpareId> {
        self.opening = self.opening.saturating_sub(1);
        self.refilling = Refilling::Goes;
        self.put(now)
    }

    /// A spare was not tried, or given up: nothing is known of the next.
    pub const fn gave_up(&mut self) {
        self.opening = self.opening.saturating_sub(1);
    }

    /// A spare could not be opened, for this reason.
    pub fn failed(&mut self, reason: Reason, now: Tick) {
        self.opening = self.opening.saturating_sub(1);
        self.refilling = match self.refilling {
            _ if reason == Reason::SingleSession => Refilling::Ended,
            // It was tried together with the one that failed before.
            Refilling::Pauses { until, pause } if until > now => Refilling::Pauses { until, pause },
            Refilling::Pauses { pause, .. } => paused(now, pause.saturating_mul(2)),
            Refilling::Goes => paused(now, PAUSE),
            Refilling::Ended => Refilling::Ended,
        };
    }

    /// Somebody has a session that nobody used; none if it is not wanted.
    pub fn put(&mut self, now: Tick) -> Option<SpareId> {
        if self.resting() + self.opening >= self.wanted_now(now) {
            return None;
        }
        Some(self.lay(now, false))
    }

    /// Somebody has a session from a first contact, and will ask for it in a moment; none if one
    /// lies there for that already.
    pub fn put_first(&mut self, now: Tick) -> Option<SpareId> {
        if self.resting() >= self.wanted_now(now).max(1) {
            return None;
        }
        Some(self.lay(now, true))
    }

    fn lay(&mut self, since: Tick, is_expected: bool) -> SpareId {
        let id = self.next;
        self.next = SpareId(id.0 + 1);
        self.resting.push(Resting {
            id,
            since,
            is_expected,
        });
        id
    }

    /// Takes all of them off the shelf, and wants none any more.
    pub fn clear(&mut self) -> SmallVec<[SpareId; 1]> {
        self.wanted = 0;
        self.resting.drain(..).map(|spare| spare.id).collect()
    }

    /// How many rest on it.
    pub fn resting(&self) -> u32 {
        u32::try_from(self.resting.len()).unwrap_or(u32::MAX)
    }

    /// How many are being opened.
    pub const fn opening(&self) -> u32 {
        self.opening
    }

    /// Whether it is empty and will stay so until somebody comes.
    pub fn is_forgettable(&self, now: Tick) -> bool {
        let wanted = match self.refilling {
            // That there is nothing to spare is remembered as long as somebody comes.
            Refilling::Ended => self.wanted_by(now),
            Refilling::Goes | Refilling::Pauses { .. } => self.wanted_now(now),
        };
        self.resting.is_empty() && self.opening == 0 && wanted == 0
    }

    fn wanted_now(&self, now: Tick) -> u32 {
        match self.refilling {
            Refilling::Ended => 0,
            Refilling::Goes | Refilling::Pauses { .. } => self.wanted_by(now),
        }
    }

    /// How many those want who came lately.
    fn wanted_by(&self, now: Tick) -> u32 {
        if now.since(self.used) < LATELY {
            self.wanted
        } else {
            0
        }
    }

    fn is_old(&self, since: Tick, now: Tick) -> bool {
        self.age.is_some_and(|age| now.since(since) >= age)
    }
}

fn paused(now: Tick, pause: Duration) -> Refilling {
    let pause = pause.min(LONGEST_PAUSE);
    let until = now.after(pause);
    Refilling::Pauses { until, pause }
}

#[cfg(test)]
mod tests;
