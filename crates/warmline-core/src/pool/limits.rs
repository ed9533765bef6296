//! Limits: how many sessions there may be, of one server, of one identity, and in all.
//!
//! Asked by: the shell, before a session is opened and when it was opened.  Told by: rooms that
//! are given back.
//!
//! Whoever finds no room gets in line, behind those who need room of the same kind; a claim that
//! is stopped by its own identity's limit stops nobody else. Limits hold at every step, not in
//! the end (reliability I22).

use std::collections::BTreeMap;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::era::Era;
use crate::key::{Identity, Key, Owner, Place, Transport};
use crate::policy::Ceilings;

/// What a session takes up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// A session at an HTTP server.
    Session,
    /// A child process.
    Process,
}

impl Kind {
    /// What a session at this place takes up; none where servers hold nothing per session.
    pub const fn of(place: &Place) -> Option<Self> {
        match (place.transport, place.era) {
            (Transport::Stdio, _) => Some(Self::Process),
            (Transport::Http, Era::Modern) => None,
            (Transport::Http | Transport::HttpSse, _) => Some(Self::Session),
        }
    }
}

/// A claim to room for one session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    kind: Kind,
    server: Arc<str>,
    identity: Option<Identity>,
    server_max: Option<u32>,
}

impl Claim {
    /// The claim of a key's session; none where none is needed.
    pub fn of(key: &Key, server_max: Option<u32>) -> Option<Self> {
        Some(Self {
            kind: Kind::of(key.place())?,
            server: Arc::clone(&key.place().server),
            identity: match key.owner() {
                Owner::Identity(identity) => Some(identity),
                Owner::Everybody => None,
            },
            server_max,
        })
    }

    /// Whether closing a session of that key makes room in a limit that stops this claim.
    pub fn gains_by(&self, full: &Limit, key: &Key) -> bool {
        Self::of(key, None).is_some_and(|other| other.limits().any(|limit| limit == *full))
    }

    fn limits(&self) -> impl Iterator<Item = Limit> + use<> {
        let server = Limit::Server(Arc::clone(&self.server));
        let identity = self
            .identity
            .map(|identity| Limit::Identity(identity, self.kind));
        [Some(server), identity, Some(Limit::All(self.kind))]
            .into_iter()
            .flatten()
    }
}

/// A limit that sessions are counted against.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Limit {
    /// Of one server.
    Server(Arc<str>),
    /// Of one identity, by kind.
    Identity(Identity, Kind),
    /// In all, by kind.
    All(Kind),
}

/// A place in line for room; also the order of arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(u64);

/// What became of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Claimed {
    /// There was room, and it is taken.
    Granted,
    /// There was none. The ticket is called when there is.
    InLine(Ticket, Limit),
}

/// What was known of a room before it was given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Was {
    /// Nothing.
    Taken,
    /// That it would be given back: see [`Limits::promise`].
    Promised,
}

/// Tickets whose claims were granted, in order.
pub type Called = SmallVec<[Ticket; 1]>;

/// All rooms that are taken, and who waits for one.
#[derive(Clone, Debug)]
pub struct Limits {
    ceilings: Ceilings,
    taken: BTreeMap<Limit, u32>,
    /// Whoever waits stands at the limit that stopped it.
    line: BTreeMap<Limit, BTreeMap<Ticket, Claim>>,
    waits_at: BTreeMap<Ticket, Limit>,
    /// Rooms that will be given back soon, because somebody was asked to make room.
    promised: BTreeMap<Limit, u32>,
    /// Who stands at another limit since [`Limits::moved`] was last asked.
    moved: Vec<Ticket>,
    next: Ticket,
}

impl Limits {
    /// Nothing is taken.
    pub const fn new(ceilings: Ceilings) -> Self {
        Self {
            ceilings,
            taken: BTreeMap::new(),
            line: BTreeMap::new(),
            waits_at: BTreeMap::new(),
            promised: BTreeMap::new(),
            moved: Vec::new(),
            next: Ticket(0),
        }
    }

    /// Takes room, or a place in line.
    pub fn claim(&mut self, claim: Claim) -> Claimed {
        if let Some(full) = self.stops(&claim) {
            let ticket = self.next;
            self.next = Ticket(ticket.0 + 1);
            self.wait(ticket, claim, full.clone());
            return Claimed::InLine(ticket, full);
        }
        self.take(&claim);
        Claimed::Granted
    }

    /// Room that was nobody's is that of this claim's identity from now on; false where the
    /// identity has no room left. Server and kind are those that the room was granted for.
    pub fn take_over(&mut self, claim: &Claim) -> bool {
        let Some(identity) = claim.identity else {
            return true;
        };
        let own = Limit::Identity(identity, claim.kind);
        let has_room = self.taken_of(&own) < self.most(&own, claim);
        if has_room {
            add(&mut self.taken, own);
        }
        has_room
    }

    /// Whether somebody waits for room that this one would make, and nobody else makes it.
    pub fn is_needed(&self, claim: &Claim) -> bool {
        claim.limits().any(|limit| {
            let waiting = self.line.get(&limit).map_or(0, BTreeMap::len);
            let promised = self.promised.get(&limit).copied().unwrap_or(0);
            u32::try_from(waiting).unwrap_or(u32::MAX) > promised
        })
    }

    /// Room will be given back as soon as a session is closed.
    pub fn promise(&mut self, claim: &Claim) {
        for limit in claim.limits() {
            add(&mut self.promised, limit);
        }
    }

    /// Gives room back, and says who got it.
    pub fn release(&mut self, claim: &Claim, was: Was) -> Called {
        for limit in claim.limits() {
            subtract(&mut self.taken, &limit);
            if was == Was::Promised {
                subtract(&mut self.promised, &limit);
            }
        }
        let freed: SmallVec<[Limit; 3]> = claim.limits().collect();
        self.call(&freed)
    }

    /// Leaves the line; false if the ticket was called already, so that room is to be given back.
    pub fn leave(&mut self, ticket: Ticket) -> bool {
        let Some(limit) = self.waits_at.remove(&ticket) else {
            return false;
        };
        self.unqueue(&limit, ticket);
        true
    }

    /// Other ceilings count from now on. Says who got room by that.
    pub fn reconfigure(&mut self, ceilings: Ceilings) -> Called {
        self.ceilings = ceilings;
        let waited_for: Vec<Limit> = self.line.keys().cloned().collect();
        self.call(&waited_for)
    }

    /// Another limit of a server counts from now on, for those who wait as well. Says who got room
    /// by that.
    pub fn decide(&mut self, server: &str, most: Option<u32>) -> Called {
        let claims = self.line.values_mut().flat_map(BTreeMap::values_mut);
        for claim in claims.filter(|claim| *claim.server == *server) {
            claim.server_max = most;
        }
        self.call(&[Limit::Server(Arc::from(server))])
    }

    /// Whether more is taken than may be, at a limit that counts this claim: limits may have been
    /// lowered since it was granted.
    pub fn is_over(&self, claim: &Claim) -> bool {
        claim
            .limits()
            .any(|limit| self.taken_of(&limit) > self.most(&limit, claim))
    }

    /// The limit that leaves no room for this claim now, and how much it allows.
    pub fn full(&self, claim: &Claim) -> Option<(Limit, u32)> {
        let full = self.stops(claim)?;
        let most = self.most(&full, claim);
        Some((full, most))
    }

    /// Those who found room where they stood, and were stopped by another limit since this was last
    /// asked: nobody was asked to make room there.
    pub fn moved(&mut self) -> Vec<Ticket> {
        std::mem::take(&mut self.moved)
    }

    /// The limit that a ticket stands at; none if it was called, or left.
    pub fn stands_at(&self, ticket: Ticket) -> Option<&Limit> {
        self.waits_at.get(&ticket)
    }

    /// How many rooms of a kind are taken.
    pub fn taken(&self, kind: Kind) -> u32 {
        self.taken_of(&Limit::All(kind))
    }

    /// How many claims are in line.
    pub fn waiting(&self) -> usize {
        self.waits_at.len()
    }

    /// Grants what can be granted now that these limits may have room, the earliest first.
    fn call(&mut self, freed: &[Limit]) -> Called {
        let mut called = Called::new();
        while let Some((ticket, limit)) = self.first_of(freed) {
            let Some(claim) = self.unqueue(&limit, ticket) else {
                break;
            };
            match self.stops(&claim) {
                // It stands elsewhere now, with the place its arrival gives it.
                Some(full) => {
                    self.wait(ticket, claim, full);
                    self.moved.push(ticket);
                },
                None => {
                    self.waits_at.remove(&ticket);
                    self.take(&claim);
                    called.push(ticket);
                },
            }
        }
        called
    }

    /// Of those who stand at one of these limits, where there is room: the one that came first.
    fn first_of(&self, limits: &[Limit]) -> Option<(Ticket, Limit)> {
        let firsts = limits.iter().filter_map(|limit| {
            let (ticket, claim) = self.line.get(limit)?.first_key_value()?;
            let room = self.taken_of(limit) < self.most(limit, claim);
            room.then(|| (*ticket, limit.clone()))
        });
        firsts.min_by_key(|(ticket, _)| *ticket)
    }

    fn stops(&self, claim: &Claim) -> Option<Limit> {
        claim
            .limits()
            .find(|limit| self.taken_of(limit) >= self.most(limit, claim))
    }

    fn take(&mut self, claim: &Claim) {
        for limit in claim.limits() {
            add(&mut self.taken, limit);
        }
    }

    fn wait(&mut self, ticket: Ticket, claim: Claim, full: Limit) {
        self.waits_at.insert(ticket, full.clone());
        self.line.entry(full).or_default().insert(ticket, claim);
    }

    fn unqueue(&mut self, limit: &Limit, ticket: Ticket) -> Option<Claim> {
        let line = self.line.get_mut(limit)?;
        let claim = line.remove(&ticket);
        if line.is_empty() {
            self.line.remove(limit);
        }
        claim
    }

    fn taken_of(&self, limit: &Limit) -> u32 {
        self.taken.get(limit).copied().unwrap_or(0)
    }

    fn most(&self, limit: &Limit, claim: &Claim) -> u32 {
        let ceilings = &self.ceilings;
        match limit {
            Limit::Server(_) => claim.server_max.unwrap_or(u32::MAX),
            Limit::Identity(_, Kind::Session) => ceilings.sessions_per_identity,
            Limit::Identity(_, Kind::Process) => ceilings.processes_per_identity,
            Limit::All(Kind::Session) => ceilings.sessions,
            Limit::All(Kind::Process) => ceilings.processes,
        }
    }
}

fn add(counts: &mut BTreeMap<Limit, u32>, limit: Limit) {
    let count = counts.entry(limit).or_insert(0);
    *count = count.saturating_add(1);
}

fn subtract(counts: &mut BTreeMap<Limit, u32>, limit: &Limit) {
    if let Some(count) = counts.get_mut(limit) {
        *count = count.saturating_sub(1);
        if *count == 0 {
            counts.remove(limit);
        }
    }
}

#[cfg(test)]
mod tests;
