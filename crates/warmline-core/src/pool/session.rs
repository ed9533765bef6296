//! One session of a key: its state, what is remembered of its past, when it expires, is checked or
//! kept alive, and whether it proved stable. The breaker counts those that did not.

use std::num::NonZeroU32;
use std::time::Duration;

use super::{EndCondition, EndReason, EntryPolicy, Generation, Sharing};
use crate::pool_key::Transport;
use crate::time::Tick;

/// The state of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionState {
    Opening,
    Idle,
    Leased {
        leases: NonZeroU32,
        kind: LeaseKind,
    },
    /// It takes no new lease and closes with its last one.
    Retiring {
        leases: NonZeroU32,
        kind: LeaseKind,
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
    Single,
    /// One holder, whose calls are further leases.
    Exclusive,
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

    /// Whether a health check is what it is leased for.
    pub(super) fn is_checked(&self) -> bool {
        self.lease_kind() == Some(LeaseKind::Check)
    }

    pub const fn leases(&self) -> u32 {
        match self {
            Self::Opening | Self::Idle | Self::Closed(_) => 0,
            Self::Leased { leases, .. } | Self::Retiring { leases, .. } => leases.get(),
        }
    }

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
    Served,
    /// It answered a call that was not repeatable: the server may remember something.
    Stateful,
}

/// Whether a session is checked before its next use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum CheckNeed {
    AfterIdle,
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
    pub generation: Generation,
    pub state: SessionState,
    /// When it was opened; for an opening, when that began.
    pub opened_at: Tick,
    pub last_used: Tick,
    pub(super) last_alive: Tick,
    pub(super) last_keep_alive: Tick,
    pub(super) expires_at: Tick,
    /// When it is replaced, if it has no state to lose.
    pub(super) renew_at: Tick,
    pub usage: SessionUsage,
    pub(super) check_need: CheckNeed,
    pub(super) origin: SessionOrigin,
    pub(super) stability: Stability,
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

    /// Why a session expired, if it did. During a call only the server's own limit counts, and the age
    /// of sessions that calls share side by side: a busy one would never be replaced otherwise.
    pub(super) fn expiry_reason(
        &self,
        policy: &EntryPolicy,
        seed: u64,
        now: Tick,
    ) -> Option<EndReason> {
        let at_rest = matches!(self.state, SessionState::Idle);
        if !self.state.is_usable() {
            return None;
        }
        if self.expires_at <= now {
            return Some(EndReason::Expired);
        }
        // Its end costs nothing now, and would soon cost a failed call.
        let has_state = matches!(self.usage, SessionUsage::Stateful);
        if at_rest && !has_state && self.renew_at <= now {
            return Some(EndReason::Expired);
        }
        let is_over = |since: Tick, limit: Duration, jitter| {
            since.after(jittered(limit, jitter, seed, self.generation)) <= now
        };
        let max_age = policy.max_age;
        let aged = max_age.is_some_and(|age| is_over(self.opened_at, age, AGE_JITTER));
        let busy_may_age =
            policy.end_condition == EndCondition::AtLimits && policy.sharing == Sharing::SideBySide;
        if aged && (at_rest || busy_may_age) {
            return Some(EndReason::MaxAge);
        }
        let rested = at_rest
            && policy.end_condition == EndCondition::AtLimits
            && policy
                .max_idle
                .is_some_and(|rest| is_over(self.last_used, rest, IDLE_JITTER));
        rested.then_some(EndReason::MaxIdle)
    }

    /// Whether an idle session has to be checked before its next use.
    pub(super) fn needs_check(&self, policy: &EntryPolicy, now: Tick) -> bool {
        match self.check_need {
            CheckNeed::BeforeNextUse => true,
            CheckNeed::SkipOnce => false,
            CheckNeed::AfterIdle => self.last_alive.after(policy.check_after) <= now,
        }
    }

    /// Whether a session on which nothing is sent has to be kept alive.
    pub(super) fn needs_keep_alive(&self, policy: &EntryPolicy, seed: u64, now: Tick) -> bool {
        let Some(rest) = policy.keep_alive else {
            return false;
        };
        let quiet_since = self.last_alive.max(self.last_keep_alive);
        self.state.is_quiet()
            && policy.end_condition == EndCondition::WithRunEnd
            && quiet_since.after(jittered(rest, KEEP_ALIVE_JITTER, seed, self.generation)) <= now
    }
}

// Limits are spread, so that sessions opened together are not replaced together. The spread
// follows from the key's seed and the session's number.

/// In thousandths of the limit.
const AGE_JITTER: (u64, u64) = (900, 1_100);
/// Never longer than the limit.
const IDLE_JITTER: (u64, u64) = (975, 1_000);
const KEEP_ALIVE_JITTER: (u64, u64) = (900, 1_100);

/// Timed-out checks in a row that end the session of a run. The state of a run is worth a second
/// try.
pub(super) const MAX_TIMED_OUT_CHECKS: u8 = 3;

/// A duration between two thousandths of the base, always the same for the same session. Binary
/// fractions, because this runs for every lease.
fn jittered(
    base: Duration,
    (least, most): (u64, u64),
    seed: u64,
    generation: Generation,
) -> Duration {
    let share = splitmix64(seed ^ (u64::from(generation.number()) << 32)) >> 32;
    let thousandths = (least << 32) + (most - least) * share;
    let fraction = u128::from(thousandths / 1_000);
    let nanos = base.as_nanos().saturating_mul(fraction) >> 32;
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// The finaliser of `SplitMix64`.
const fn splitmix64(seed: u64) -> u64 {
    let mut mixed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// The number of sessions of each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionCounts {
    pub opening: u32,
    pub idle: u32,
    pub leased: u32,
    /// Sessions that close with their last lease.
    pub retiring: u32,
    /// Leases, including those of checks.
    pub leases: u32,
    pub waiting: u32,
}

impl SessionCounts {
    pub(super) fn add(&mut self, state: &SessionState) {
        if let Some(count) = self.counter_for(state) {
            *count = count.saturating_add(1);
        }
        self.leases = self.leases.saturating_add(state.leases());
    }

    pub(super) fn subtract(&mut self, state: &SessionState) {
        if let Some(count) = self.counter_for(state) {
            *count = count.saturating_sub(1);
        }
        self.leases = self.leases.saturating_sub(state.leases());
    }

    /// Adds the counts of another key.
    pub const fn merge(&mut self, other: &Self) {
        self.opening += other.opening;
        self.idle += other.idle;
        self.leased += other.leased;
        self.retiring += other.retiring;
        self.leases += other.leases;
        self.waiting += other.waiting;
    }

    pub const fn sessions(&self) -> u32 {
        self.opening + self.idle + self.leased + self.retiring
    }

    const fn counter_for(&mut self, state: &SessionState) -> Option<&mut u32> {
        match state {
            SessionState::Opening => Some(&mut self.opening),
            SessionState::Idle => Some(&mut self.idle),
            SessionState::Leased { .. } => Some(&mut self.leased),
            SessionState::Retiring { .. } => Some(&mut self.retiring),
            SessionState::Closed(_) => None,
        }
    }
}

/// A process that ends before this age was of no use, whatever it answered: a program that dies of
/// every call must not be started by every call (reliability I34).
const MIN_PROCESS_AGE: Duration = Duration::from_secs(60);

/// A session that answered nothing was of no use if the server ends it before this age. One that
/// was idle for longer was lost otherwise, as by a restart.
const SHORT_LIVED_HTTP_AGE: Duration = Duration::from_secs(10);

/// What shows that a session was of use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StabilityCriterion {
    FirstReply,
    /// It still answers at this age.
    MinAge(Duration),
}

impl StabilityCriterion {
    /// The criterion for sessions of this transport.
    pub const fn for_transport(transport: Transport) -> Self {
        match transport {
            Transport::Http | Transport::HttpSse => Self::FirstReply,
            Transport::Stdio => Self::MinAge(MIN_PROCESS_AGE),
        }
    }

    /// For a session that just answered.
    pub(super) fn is_met_by(self, session: &Session, now: Tick) -> bool {
        match self {
            Self::FirstReply => true,
            Self::MinAge(age) => now.duration_since(session.opened_at) >= age,
        }
    }

    /// For a session that its server just ended.
    pub(super) fn is_failed_by(self, session: &Session, now: Tick) -> bool {
        let age = now.duration_since(session.opened_at);
        match self {
            // A spare or restored session says nothing about opening one.
            Self::FirstReply => {
                session.usage == SessionUsage::Unused
                    && session.origin == SessionOrigin::Fresh
                    && age < SHORT_LIVED_HTTP_AGE
            },
            Self::MinAge(needed) => age < needed,
        }
    }
}

/// What is known so far. It only grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stability {
    /// Nothing yet.
    Undecided,
    ShortLived,
    /// Also if the session is lost and still answered.
    Stable,
}

#[cfg(test)]
mod tests;
