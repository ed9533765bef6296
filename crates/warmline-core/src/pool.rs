//! The pure pool: events go in, effects come out. Crate `warmline-pool` carries the effects out.
//!
//! | question | file |
//! |---|---|
//! | What happens to a key on this event? | `pool/entry.rs` |
//! | Why did my call wait? | `pool/entry/transitions.rs` |
//! | Which states does a session have? When is it closed, checked, kept alive? Was it of use? | `pool/session.rs` |
//! | At which age does a server end its sessions? | `pool/observed_lifetimes.rs` |
//! | How many sessions may there be? | `pool/limits.rs` |
//! | How many spares are opened? | `pool/spares.rs` |
//! | When do openings pause? | `pool/breaker.rs` |

pub mod breaker;
mod entry;
mod events;
pub mod limits;
pub mod observed_lifetimes;
mod session;
pub mod spares;

use std::num::NonZeroU32;
use std::time::Duration;

use crate::word_enum::word_enum;

pub use entry::EntryState;
pub use events::{Effect, Effects, Event, LeaseRefusal, OpenedSession};
pub use session::{
    LeaseKind, Session, SessionCounts, SessionOrigin, SessionState, SessionUsage,
    StabilityCriterion,
};

/// The number of a session within its key. Each opening takes the next; none is used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Generation(NonZeroU32);

impl Generation {
    pub const FIRST: Self = Self(NonZeroU32::MIN);

    /// A stored number; none for zero, which no session has.
    pub const fn new(number: u32) -> Option<Self> {
        match NonZeroU32::new(number) {
            Some(number) => Some(Self(number)),
            None => None,
        }
    }

    pub const fn number(self) -> u32 {
        self.0.get()
    }

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
    /// Each on its own session, up to the key's maximum.
    OnePerCaller,
}

/// What ends the sessions of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EndCondition {
    /// Age, idle time and eviction: shared sessions.
    AtLimits,
    /// The end of the run, unless the operator set an age for runs.
    WithRunEnd,
}

/// The limits of the sessions of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryPolicy {
    /// How callers share its sessions.
    pub sharing: Sharing,
    /// Most sessions under [`Sharing::OnePerCaller`]; the others hold one.
    pub max_sessions: u32,
    /// Age at which a session is replaced; never during a call.
    pub max_age: Option<Duration>,
    /// How long a session may be idle before it is closed; without effect in a run.
    pub max_idle: Option<Duration>,
    /// How long a session may be idle before it is checked ahead of its next use.
    pub check_after: Duration,
    /// How long a run's session may be idle before it is kept alive; none for never.
    pub keep_alive: Option<Duration>,
    /// Most queued callers.
    pub max_waiters: u32,
    /// What shows that a session was of use.
    pub stability: StabilityCriterion,
    pub end_condition: EndCondition,
}

word_enum! {
    /// Why a session ended.
    pub enum EndReason {
        /// It reached its age limit.
        MaxAge = "aged",
        /// It was idle for too long.
        MaxIdle = "idle-too-long",
        /// Its run ended, or the single call it was opened for.
        RunEnded = "run-ended",
        /// Its permit was needed, or its key was evicted.
        Evicted = "evicted",
        /// The configuration of its server changed.
        Reloaded = "reloaded",
        /// An operator closed it.
        ByOperator = "by-operator",
        /// The pool is draining.
        Drained = "drained",
        /// The pool is draining, and the session stays open for the next reader of its record.
        Retained = "kept",
        /// It could not be opened.
        OpenFailed = "open-failed",
        /// It failed a health check.
        CheckFailed = "check-failed",
        /// The server no longer knows it, or its process ended.
        Gone = "gone",
        /// The server no longer accepts the credential.
        CredentialRefused = "credential-refused",
        /// The lifetime that the server gave it is over.
        Expired = "expired",
        /// A bug in Warmline.
        Bug = "bug",
    }
}

impl EndReason {
    /// Whether the server ended it. Its other sessions may have ended too.
    pub const fn is_server_side(self) -> bool {
        matches!(
            self,
            Self::Gone | Self::CheckFailed | Self::CredentialRefused
        )
    }

    /// Whether the end of a session with state is a loss to report. Shared sessions end by their
    /// limits, as callers know; a run loses what it relied on.
    pub(crate) const fn is_reportable_loss(self, ends: EndCondition) -> bool {
        match self {
            Self::RunEnded | Self::Drained | Self::Retained | Self::OpenFailed => false,
            Self::MaxAge | Self::MaxIdle | Self::Evicted | Self::Reloaded => {
                matches!(ends, EndCondition::WithRunEnd)
            },
            Self::ByOperator
            | Self::CheckFailed
            | Self::Gone
            | Self::CredentialRefused
            | Self::Expired
            | Self::Bug => true,
        }
    }
}

/// A queued caller. The shell numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WaiterId(pub u64);

/// Where a caller is queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QueuePosition {
    /// Behind all others.
    Back,
    /// Before all who had no lease yet: its lease was dead.
    Front,
}

/// How a caller wants to use a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LeaseMode {
    /// Beside other callers, where the key allows it.
    Shared,
    /// Alone, until the lease is settled.
    Exclusive,
}

/// What a settled lease says about its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LeaseOutcome {
    Answered {
        /// It answered a call that was not repeatable: the server may remember something.
        stateful: bool,
    },
    /// The connection failed, which says nothing about the session.
    ConnectionFailed,
    /// The server said that it ended.
    SessionEnded(EndReason),
    Cancelled,
    Unused,
}

/// The result of a health check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HealthCheckResult {
    Alive,
    /// The server said that it does not know the session.
    Gone,
    TimedOut,
    /// The server refused the check itself, which says nothing about the session.
    Refused,
    /// The server could not be reached.
    Unreachable,
}

/// A loss of state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StateLoss {
    pub generation: Generation,
    pub reason: EndReason,
    /// Its number within its key. Losses are counted from one and wrap around. A caller that knows
    /// of it knows of those before it.
    pub number: u16,
    pub is_reported: bool,
}

impl StateLoss {
    /// The number of a loss before the key's first session here, as a record reports it.
    pub const PRIOR_LOSS: u16 = 0;

    /// The known number of a caller that knows of no loss.
    pub const NO_LOSS_KNOWN: u16 = u16::MAX;

    /// Whether a caller knows of it that knows of the key's losses up to that number.
    pub const fn is_known_to(&self, heard: u16) -> bool {
        heard.wrapping_sub(self.number) < MAX_LATER_LOSSES
    }
}

/// How many losses a caller may learn of while it holds a lease.
const MAX_LATER_LOSSES: u16 = 256;
