//! Spares: sessions opened ahead, for the next caller.
//!
//! A set holds the spares of one target, credential and client profile. They count in no limit of
//! sessions, and each is taken once and never comes back (reliability I32).

use std::time::Duration;

use smallvec::SmallVec;

use crate::error::code::Reason;
use crate::pool_key::{ClientProfileId, CredentialId, PoolKey, TargetKey, Transport};
use crate::retry::backoff::Backoff;
use crate::time::Tick;

/// Spares are kept only for credentials that were used this recently.
const RECENT_USE: Duration = Duration::from_secs(30 * 60);

/// Servers drop idle HTTP sessions after five minutes or more. A process drops nothing.
const MAX_HTTP_AGE: Duration = Duration::from_secs(4 * 60);

/// How long the session of a first contact is kept for its caller, even if no spares are wanted.
const FIRST_CONTACT_TTL: Duration = Duration::from_secs(30);

/// Pauses after spares that failed to open. No caller waits for a spare, so they are longer than
/// those of the breaker.
const OPEN_BACKOFF: Backoff = Backoff::new(Duration::from_secs(10), Duration::from_secs(10 * 60));

/// What spares are kept apart by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SpareKey {
    pub target: TargetKey,
    pub credential: CredentialId,
    /// What they declare about the client.
    pub client_profile: ClientProfileId,
}

impl SpareKey {
    /// The key of the spares that the sessions of a pool key may come from.
    pub fn for_key(key: &PoolKey, client_profile: ClientProfileId) -> Self {
        Self {
            target: key.target.clone(),
            credential: key.credential,
            client_profile,
        }
    }
}

/// A spare in its set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SpareId(u64);

/// The spares of one kind.
#[derive(Clone, Debug)]
pub struct SpareSet {
    max_age: Option<Duration>,
    wanted: u32,
    opening: u32,
    backoff: Backoff,
    /// When a spare may be opened again, if the last one failed.
    retry_at: Option<Tick>,
    /// The server has no session to spare.
    is_disabled: bool,
    idle: SmallVec<[IdleSpare; 1]>,
    last_used: Tick,
    next_id: SpareId,
}

#[derive(Clone, Copy, Debug)]
struct IdleSpare {
    id: SpareId,
    since: Tick,
    /// The caller that opened it will ask for it in a moment.
    is_expected: bool,
}

/// What a set needs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct RefillPlan {
    /// Spares that are to be closed.
    pub close: SmallVec<[SpareId; 1]>,
    pub open: u32,
}

impl SpareSet {
    pub fn new(transport: Transport, now: Tick) -> Self {
        Self {
            max_age: match transport {
                Transport::Stdio => None,
                Transport::Http | Transport::HttpSse => Some(MAX_HTTP_AGE),
            },
            wanted: 0,
            opening: 0,
            backoff: OPEN_BACKOFF,
            retry_at: None,
            is_disabled: false,
            idle: SmallVec::new(),
            last_used: now,
            next_id: SpareId(0),
        }
    }

    /// A caller used the credential, and wants this many spares.
    pub const fn record_use(&mut self, wanted: u32, now: Tick) {
        self.wanted = wanted;
        self.last_used = now;
    }

    /// Changes the number of spares, if any are wanted. Does not count as a use of the credential.
    pub const fn set_wanted(&mut self, wanted: u32) {
        if self.wanted > 0 {
            self.wanted = wanted;
        }
    }

    /// Takes the spare that was idle least, and says how long. It never comes back.
    pub fn take_spare(&mut self, now: Tick) -> Option<(SpareId, Duration)> {
        let at = self
            .idle
            .iter()
            .rposition(|spare| !self.is_expired(spare.since, now))?;
        let spare = self.idle.remove(at);
        Some((spare.id, now.duration_since(spare.since)))
    }

    /// Takes one spare, and says how long it was idle; none if it is gone or too old.
    pub fn take_by_id(&mut self, id: SpareId, now: Tick) -> Option<Duration> {
        let is_meant = |spare: &IdleSpare| spare.id == id && !self.is_expired(spare.since, now);
        let at = self.idle.iter().position(is_meant)?;
        let spare = self.idle.remove(at);
        Some(now.duration_since(spare.since))
    }

    /// What the set needs now. What is to be opened counts as being opened.
    pub fn plan_refill(&mut self, now: Tick) -> RefillPlan {
        let wanted = self.wanted_now(now);
        let mut close = SmallVec::new();
        let (age, mut kept) = (self.max_age, 0);
        self.idle.retain(|spare| {
            let rested = now.duration_since(spare.since);
            let old = age.is_some_and(|age| rested >= age);
            let expected = spare.is_expected && rested < FIRST_CONTACT_TTL;
            if old || (kept >= wanted && !expected) {
                close.push(spare.id);
                return false;
            }
            kept += 1;
            true
        });
        let there = self.idle_count().saturating_add(self.opening);
        let missing = wanted.saturating_sub(there);
        let open = match self.retry_at {
            None => missing,
            Some(retry_at) if retry_at <= now => missing.min(1_u32.saturating_sub(self.opening)),
            Some(_) => 0,
        };
        self.opening += open;
        RefillPlan { close, open }
    }

    /// A spare was opened; none if it is no longer wanted.
    pub fn on_opened(&mut self, now: Tick) -> Option<SpareId> {
        self.opening = self.opening.saturating_sub(1);
        self.backoff.reset();
        self.retry_at = None;
        self.is_disabled = false;
        self.add_unused(now)
    }

    /// The opening of a spare was given up: it says nothing about the next.
    pub const fn on_open_abandoned(&mut self) {
        self.opening = self.opening.saturating_sub(1);
    }

    pub fn on_open_failed(&mut self, reason: Reason, now: Tick) {
        self.opening = self.opening.saturating_sub(1);
        self.is_disabled |= reason == Reason::SingleSession;
        // A failure before the pause is over began together with the one before.
        if self.retry_at.is_none_or(|retry_at| retry_at <= now) {
            self.retry_at = Some(now.after(self.backoff.next_pause()));
        }
    }

    /// Adds a session that no caller used; none if it is not wanted.
    pub fn add_unused(&mut self, now: Tick) -> Option<SpareId> {
        if self.idle_count() + self.opening >= self.wanted_now(now) {
            return None;
        }
        Some(self.insert(now, false))
    }

    /// Adds the session of a first contact, which its caller will ask for in a moment; none if there
    /// is one already.
    pub fn add_first_contact(&mut self, now: Tick) -> Option<SpareId> {
        if self.idle_count() >= self.wanted_now(now).max(1) {
            return None;
        }
        Some(self.insert(now, true))
    }

    fn insert(&mut self, since: Tick, is_expected: bool) -> SpareId {
        let id = self.next_id;
        self.next_id = SpareId(id.0 + 1);
        self.idle.push(IdleSpare {
            id,
            since,
            is_expected,
        });
        id
    }

    /// Takes all of them; none are wanted afterwards.
    pub fn clear(&mut self) -> SmallVec<[SpareId; 1]> {
        self.wanted = 0;
        self.idle.drain(..).map(|spare| spare.id).collect()
    }

    pub fn idle_count(&self) -> u32 {
        u32::try_from(self.idle.len()).unwrap_or(u32::MAX)
    }

    pub const fn opening_count(&self) -> u32 {
        self.opening
    }

    /// Whether it is empty and stays so until a caller comes.
    pub fn is_evictable(&self, now: Tick) -> bool {
        // Even without a session to spare it is remembered as long as callers come.
        self.idle.is_empty() && self.opening == 0 && self.wanted_if_recently_used(now) == 0
    }

    fn wanted_now(&self, now: Tick) -> u32 {
        if self.is_disabled {
            return 0;
        }
        self.wanted_if_recently_used(now)
    }

    fn wanted_if_recently_used(&self, now: Tick) -> u32 {
        if now.duration_since(self.last_used) < RECENT_USE {
            self.wanted
        } else {
            0
        }
    }

    fn is_expired(&self, since: Tick, now: Tick) -> bool {
        self.max_age
            .is_some_and(|age| now.duration_since(since) >= age)
    }
}

#[cfg(test)]
mod tests;
