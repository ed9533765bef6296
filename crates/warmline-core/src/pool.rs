//! The pure pool: what happened goes in, what is to be done comes out.
//!
//! Asked by: the pool's shell in `warmline`, which carries the effects out and decides nothing.
//!
//! | question | file |
//! |---|---|
//! | What becomes of a key when this happens? | `cell.rs` |
//! | Which states has a session? | `session.rs` |
//! | Why did my call wait? | `waiters.rs` |
//! | When is a session closed, checked, kept alive? | `ages.rs` |
//! | At which age does a server end its sessions? | `lifetimes.rs` |
//! | How many sessions may there be? | `limits.rs` |
//! | How many spares are opened? | `spares.rs` |
//! | When does opening pause? | `breaker.rs` |
//! | Which openings were in vain? | `proof.rs` |

mod ages;
pub mod breaker;
mod cell;
mod event;
pub mod lifetimes;
pub mod limits;
mod proof;
mod session;
pub mod spares;
mod waiters;

use std::num::NonZeroU32;
use std::time::Duration;

pub use cell::Cell;
pub use event::{Arrival, Counts, Effect, Effects, Event, Refusal};
pub use proof::Proof;
pub use session::{Hold, Origin, Past, Session, State};
pub use waiters::{Turn, WaiterId};

/// The number of a session within its key. Each opening takes the next; none is given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Generation(NonZeroU32);

impl Generation {
    /// The first of a key.
    pub const FIRST: Self = Self(NonZeroU32::MIN);

    /// A number that was kept elsewhere; none for zero, which no session has.
    pub const fn of(number: u32) -> Option<Self> {
        match NonZeroU32::new(number) {
            Some(number) => Some(Self(number)),
            None => None,
        }
    }

    /// The plain number.
    pub const fn number(self) -> u32 {
        self.0.get()
    }

    /// The one after it.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl std::fmt::Display for Generation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// How callers share the sessions of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sharing {
    /// All on one session at the same time.
    SideBySide,
    /// One after the other on one session.
    Serial,
    /// Each on a session of its own, up to the key's maximum.
    OneEach,
}

/// What ends the sessions of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ends {
    /// Age, idling and making room: sessions that are shared.
    ByLimits,
    /// The end of the run, and nothing else of ours, unless the operator set an age for runs.
    WithRun,
}

/// What was decided for one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellPolicy {
    /// How callers share its sessions.
    pub sharing: Sharing,
    /// Most sessions under [`Sharing::OneEach`]; the others hold one.
    pub max: u32,
    /// Age at which a session is replaced; never during a call.
    pub max_age: Option<Duration>,
    /// How long a session may rest before it is closed; of no meaning in a run.
    pub max_idle: Option<Duration>,
    /// How long a session may rest before it is checked ahead of its next use.
    pub check_after: Duration,
    /// How long a run's session may rest before it is kept alive; none for never.
    pub keep_alive: Option<Duration>,
    /// Most callers in line.
    pub waiters: u32,
    /// What shows that it was worth it to open a session.
    pub proof: Proof,
    /// What ends its sessions.
    pub ends: Ends,
}

/// Why a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Why {
    /// It reached its age.
    Aged,
    /// It rested too long.
    IdleTooLong,
    /// Its run ended, or the one call it was opened for.
    RunEnded,
    /// Room was needed, or its key was forgotten.
    Evicted,
    /// Its server is configured otherwise now.
    Reloaded,
    /// Whoever looks after the engine closed it.
    ByOperator,
    /// Everything is going down.
    Drained,
    /// Everything here is going down, and it is left as it is for whoever takes up its record.
    Kept,
    /// It never came to be.
    OpenFailed,
    /// It did not answer a check.
    CheckFailed,
    /// The server said that it does not know it, or its process ended.
    Gone,
    /// The server does not accept the credential any more.
    CredentialRefused,
    /// The time that the server gave it is over.
    Expired,
    /// A promise of ours was broken.
    Bug,
}

impl Why {
    /// Every reason there is.
    pub const ALL: [Self; 14] = [
        Self::Aged,
        Self::IdleTooLong,
        Self::RunEnded,
        Self::Evicted,
        Self::Reloaded,
        Self::ByOperator,
        Self::Drained,
        Self::Kept,
        Self::OpenFailed,
        Self::CheckFailed,
        Self::Gone,
        Self::CredentialRefused,
        Self::Expired,
        Self::Bug,
    ];

    /// Whether it is the server's doing: what it says or fails to say of one session may hold for
    /// others. What ends here says nothing of the server.
    pub const fn is_of_server(self) -> bool {
        matches!(
            self,
            Self::Gone | Self::CheckFailed | Self::CredentialRefused
        )
    }

    /// The word used in logs and metrics.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Aged => "aged",
            Self::IdleTooLong => "idle-too-long",
            Self::RunEnded => "run-ended",
            Self::Evicted => "evicted",
            Self::Reloaded => "reloaded",
            Self::ByOperator => "by-operator",
            Self::Drained => "drained",
            Self::Kept => "kept",
            Self::OpenFailed => "open-failed",
            Self::CheckFailed => "check-failed",
            Self::Gone => "gone",
            Self::CredentialRefused => "credential-refused",
            Self::Expired => "expired",
            Self::Bug => "bug",
        }
    }
}

impl std::fmt::Display for Why {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.word())
    }
}

/// What a caller wants of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Want {
    /// To send on it, beside others where the key allows it.
    Shared,
    /// To be alone on it until the lease is settled.
    Exclusive,
}

/// What a settled lease tells of its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// It answered.
    Fine {
        /// It answered a call that was not repeatable: the server may remember something.
        left_state: bool,
    },
    /// The wire failed; of the session itself nothing is known.
    Broken,
    /// It is over, by the server's word.
    Gone(Why),
    /// The caller left in the middle.
    Dropped,
    /// Nothing was sent at all.
    Unused,
}

/// What a check found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Health {
    /// It answered.
    Alive,
    /// The server said that it does not know the session.
    Gone,
    /// No answer in time.
    Silent,
    /// The server refused the check itself, and said nothing of the session.
    Refused,
    /// The server could not be reached.
    Unreachable,
}

/// State died with a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Loss {
    /// The session that had it.
    pub generation: Generation,
    /// Why it ended.
    pub why: Why,
    /// Which loss of its key it is. They are counted from one, and round and round: there may be very
    /// many keys, so that it is a short number. Whoever knows of it knows of those before it.
    pub number: u16,
    /// Whether anybody was told of it.
    pub word: Word,
}

impl Loss {
    /// The number of what was lost before a key had any session here, as a record tells.
    pub const FROM_BEFORE: u16 = 0;

    /// What somebody knows of who heard of no loss of a key.
    pub const NONE: u16 = u16::MAX;

    /// Whether it is known to somebody who heard of losses of its key up to that number.
    pub const fn is_known_to(&self, heard: u16) -> bool {
        heard.wrapping_sub(self.number) < LATER
    }
}

/// Of so many losses somebody may have heard since a lease was told of one; the others are earlier.
const LATER: u16 = 256;

/// Whether anybody was told of a loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Word {
    /// Nobody was.
    Untold,
    /// Somebody was: whoever has no memory of its own need not be told again.
    Told,
}
