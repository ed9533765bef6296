//! One session of a key: its state, and what is remembered of its past.

use std::num::NonZeroU32;

use super::stability::Stability;
use super::{EndReason, Generation};
use crate::time::Tick;

/// The state of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionState {
    /// The handshake is in progress.
    Opening,
    /// Open and not in use.
    Idle,
    /// In use.
    Leased {
        /// How many leases.
        leases: NonZeroU32,
        /// Their kind.
        kind: LeaseKind,
    },
    /// It takes no new lease and closes with its last one.
    Retiring {
        /// How many are left.
        leases: NonZeroU32,
        /// Their kind.
        kind: LeaseKind,
        /// Why it ends.
        reason: EndReason,
    },
    /// Closed, and removed from its key.
    Closed(EndReason),
}

/// The kind of the leases of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LeaseKind {
    /// Others may join.
    Shared,
    /// One call.
    Single,
    /// One holder, whose calls are further leases.
    Exclusive,
    /// A health check.
    Check,
}

impl SessionState {
    /// The word used in documents, logs and metrics.
    pub const fn as_str(&self) -> &'static str {
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

    /// The kind of its leases, if it has any.
    pub(super) const fn lease_kind(&self) -> Option<LeaseKind> {
        match self {
            Self::Opening | Self::Idle | Self::Closed(_) => None,
            Self::Leased { kind, .. } | Self::Retiring { kind, .. } => Some(*kind),
        }
    }

    /// How many calls are sent on it, or may be at any moment: an idle holder counts as one.
    pub fn active_senders(&self) -> u32 {
        match self {
            Self::Leased {
                leases,
                kind: LeaseKind::Exclusive,
            } => leases.get().saturating_sub(1).max(1),
            Self::Opening
            | Self::Idle
            | Self::Leased { .. }
            | Self::Retiring { .. }
            | Self::Closed(_) => self.leases(),
        }
    }

    /// Whether nothing is sent on it: it is idle, or its holder is.
    pub(super) fn is_quiet(&self) -> bool {
        let has_idle_holder = self.lease_kind() == Some(LeaseKind::Exclusive) && self.leases() == 1;
        *self == Self::Idle || (self.is_usable() && has_idle_holder)
    }

    /// Whether its holder may send on it: not once it is lost.
    pub(super) fn serves_exclusive_holder(&self) -> bool {
        let is_lost = matches!(
            self,
            Self::Retiring {
                reason: EndReason::Gone | EndReason::CheckFailed | EndReason::Bug,
                ..
            }
        );
        self.lease_kind() == Some(LeaseKind::Exclusive) && !is_lost
    }

    pub(super) const fn with_extra_lease(self) -> Self {
        match self {
            Self::Leased { leases, kind } => Self::Leased {
                leases: leases.saturating_add(1),
                kind,
            },
            Self::Retiring {
                leases,
                kind,
                reason,
            } => Self::Retiring {
                leases: leases.saturating_add(1),
                kind,
                reason,
            },
            Self::Opening | Self::Idle | Self::Closed(_) => self,
        }
    }

    /// Whether it can be leased.
    pub const fn is_usable(&self) -> bool {
        matches!(self, Self::Idle | Self::Leased { .. })
    }

    /// Whether it counts toward the maximum of its key. A session that the server ended does not:
    /// its replacement must not wait for the calls on it.
    pub(super) const fn counts_toward_max(&self) -> bool {
        !matches!(
            self,
            Self::Closed(_)
                | Self::Retiring {
                    reason: EndReason::Gone | EndReason::Expired,
                    ..
                }
        )
    }
}

/// What a session was used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SessionUsage {
    /// It answered nothing yet.
    Unused,
    /// It answered.
    Served,
    /// It answered a call that was not repeatable: the server may remember something.
    Stateful,
}

/// Whether a session is checked before its next use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum CheckNeed {
    /// After an idle time.
    AfterIdle,
    /// In any case.
    BeforeNextUse,
    /// No: the last check failed without a verdict, and the next caller gets it anyway.
    SkipOnce,
}

/// Where an open session came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SessionOrigin {
    /// It was opened just now.
    Fresh,
    /// It was opened ahead, as a spare.
    Spare,
    /// It was restored from a record, without a request.
    Restored,
}

/// One session of a key.
#[derive(Clone, Debug)]
pub struct Session {
    /// Its number.
    pub generation: Generation,
    /// Its state.
    pub state: SessionState,
    /// When it was opened; for an opening, when that began.
    pub opened_at: Tick,
    /// When it was last used.
    pub last_used: Tick,
    /// When it was last known to be alive.
    pub(super) last_alive: Tick,
    pub(super) last_keep_alive: Tick,
    pub(super) expires_at: Tick,
    /// When it is replaced, if it has no state to lose.
    pub(super) renew_at: Tick,
    /// What it was used for.
    pub usage: SessionUsage,
    pub(super) check_need: CheckNeed,
    pub(super) origin: SessionOrigin,
    pub(super) stability: Stability,
    /// Checks in a row that timed out.
    pub(super) timed_out_checks: u8,
}

impl Session {
    pub(super) const fn opening(generation: Generation, now: Tick) -> Self {
        Self {
            generation,
            state: SessionState::Opening,
            opened_at: now,
            last_used: now,
            last_alive: now,
            last_keep_alive: now,
            expires_at: Tick::NEVER,
            renew_at: Tick::NEVER,
            usage: SessionUsage::Unused,
            check_need: CheckNeed::AfterIdle,
            origin: SessionOrigin::Fresh,
            stability: Stability::Undecided,
            timed_out_checks: 0,
        }
    }

    /// When it expires on the server, if the server said so.
    pub fn expires_at(&self) -> Option<Tick> {
        (self.expires_at != Tick::NEVER).then_some(self.expires_at)
    }
}
