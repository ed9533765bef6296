//! One session as its cell sees it: its state, and what is remembered of its past.
//!
//! Asked by: the cell.  Changed by: the cell alone, in `Cell::enter`.

use std::num::NonZeroU32;

use super::proof::Worth;
use super::{Generation, Why};
use crate::tick::Tick;

/// Where a session stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The handshake is under way.
    Opening,
    /// Open, and nobody sends on it.
    Idle,
    /// Somebody sends on it.
    Leased {
        /// How many.
        leases: NonZeroU32,
        /// In which way.
        hold: Hold,
    },
    /// It takes no new lease; those it has end on their own.
    Retiring {
        /// How many are left.
        leases: NonZeroU32,
        /// In which way they hold it.
        hold: Hold,
        /// Why it ends.
        why: Why,
    },
    /// Over. Its cell forgets it in the same moment, so that closed is final.
    Closed(Why),
}

/// In which way a session is leased.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Hold {
    /// Others may join.
    Shared,
    /// By one call alone.
    Single,
    /// By one holder alone. What it sends are leases too, beside its own.
    Exclusive,
    /// By a check of ours.
    Check,
}

impl State {
    /// The word used in documents, logs and metrics.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Opening => "opening",
            Self::Idle => "idle",
            Self::Leased { .. } => "leased",
            Self::Retiring { .. } => "retiring",
            Self::Closed(_) => "closed",
        }
    }

    /// How many leases it has.
    pub const fn leases(&self) -> u32 {
        match self {
            Self::Opening | Self::Idle | Self::Closed(_) => 0,
            Self::Leased { leases, .. } | Self::Retiring { leases, .. } => leases.get(),
        }
    }

    /// How many send on it, or could at any moment: whoever holds it alone is one with its call.
    pub fn senders(&self) -> u32 {
        match self {
            Self::Leased {
                leases,
                hold: Hold::Exclusive,
            } => leases.get().saturating_sub(1).max(1),
            Self::Opening
            | Self::Idle
            | Self::Leased { .. }
            | Self::Retiring { .. }
            | Self::Closed(_) => self.leases(),
        }
    }

    /// Whether nothing is sent on it: it rests, or whoever holds it alone does.
    pub(super) const fn is_quiet(&self) -> bool {
        match self {
            Self::Idle => true,
            Self::Leased { leases, hold } => matches!(hold, Hold::Exclusive) && leases.get() == 1,
            Self::Opening | Self::Retiring { .. } | Self::Closed(_) => false,
        }
    }

    /// Whether its holder, if it has one, may send on it: not once it was lost.
    pub(super) const fn serves_holder(&self) -> bool {
        match self {
            Self::Leased { hold, .. } => matches!(hold, Hold::Exclusive),
            Self::Retiring { hold, why, .. } => {
                matches!(hold, Hold::Exclusive)
                    && !matches!(why, Why::Gone | Why::CheckFailed | Why::Bug)
            },
            Self::Opening | Self::Idle | Self::Closed(_) => false,
        }
    }

    /// The same with one lease more.
    pub(super) const fn and_one(self) -> Self {
        match self {
            Self::Leased { leases, hold } => Self::Leased {
                leases: leases.saturating_add(1),
                hold,
            },
            Self::Retiring { leases, hold, why } => Self::Retiring {
                leases: leases.saturating_add(1),
                hold,
                why,
            },
            Self::Opening | Self::Idle | Self::Closed(_) => self,
        }
    }

    /// Whether callers may still come to it.
    pub const fn is_usable(&self) -> bool {
        matches!(self, Self::Idle | Self::Leased { .. })
    }

    /// Whether it takes up one of the places of its key. A session that the server ended takes up
    /// none: its replacement must not wait for the calls that hang on it.
    pub(super) const fn takes_place(&self) -> bool {
        match self {
            Self::Opening | Self::Idle | Self::Leased { .. } => true,
            Self::Retiring { why, .. } => !matches!(why, Why::Gone | Why::Expired),
            Self::Closed(_) => false,
        }
    }
}

/// What a session did so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Past {
    /// It answered nothing yet.
    Unused,
    /// It answered.
    Served,
    /// It answered a call that was not repeatable: the server may remember something.
    LeftState,
}

/// How far a session is believed to live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Trust {
    /// As long as it does not rest too long.
    Sure,
    /// It is checked before its next use.
    Doubted,
    /// It was checked, and what was found is no verdict: the next caller gets it all the same.
    Excused,
}

/// Where an open session came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// It was opened just now.
    Fresh,
    /// It was opened ahead, and rested until now.
    Spare,
    /// It was resumed from a record, with nothing on the wire.
    Restored,
}

/// One session of a key.
#[derive(Clone, Debug)]
pub struct Session {
    pub(super) generation: Generation,
    pub(super) state: State,
    /// When it was opened; for an opening, when that began.
    pub(super) opened: Tick,
    /// When it was last used.
    pub(super) used: Tick,
    /// When it was last known to live.
    pub(super) heard: Tick,
    /// When it was last kept alive.
    pub(super) pinged: Tick,
    /// When the server will forget it.
    pub(super) expires: Tick,
    /// When it is better replaced, as long as it has no state to lose.
    pub(super) renew: Tick,
    pub(super) past: Past,
    pub(super) trust: Trust,
    pub(super) origin: Origin,
    pub(super) worth: Worth,
    /// Checks in a row that got no answer.
    pub(super) silent: u8,
}

impl Session {
    pub(super) const fn opening(generation: Generation, now: Tick) -> Self {
        Self {
            generation,
            state: State::Opening,
            opened: now,
            used: now,
            heard: now,
            pinged: now,
            expires: Tick::NEVER,
            renew: Tick::NEVER,
            past: Past::Unused,
            trust: Trust::Sure,
            origin: Origin::Fresh,
            worth: Worth::Open,
            silent: 0,
        }
    }

    /// Its number.
    pub const fn generation(&self) -> Generation {
        self.generation
    }

    /// Where it stands.
    pub const fn state(&self) -> State {
        self.state
    }

    /// When it was opened.
    pub const fn opened(&self) -> Tick {
        self.opened
    }

    /// When it was last used.
    pub const fn used(&self) -> Tick {
        self.used
    }

    /// When the server will forget it, if it said so.
    pub fn expires(&self) -> Option<Tick> {
        (self.expires != Tick::NEVER).then_some(self.expires)
    }

    /// What it did so far.
    pub const fn past(&self) -> Past {
        self.past
    }
}
