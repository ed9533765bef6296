//! The circuit breaker: when too many openings fail, openings pause.
//!
//! There is one for each server and one for each credential of an owner, so that one tenant's bad
//! token, or calls that end its own process, never block another. Open sessions are not affected by
//! either (A94), and failed calls do not count (A93).

use std::time::Duration;

use crate::error::code::{Code, Reason};
use crate::policy::BreakerPolicy;
use crate::time::Tick;
use crate::word_enum::word_enum;

/// One breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Breaker {
    state: CircuitState,
    last_pause: Duration,
    last_failure: Tick,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CircuitState {
    /// So many openings failed in a row.
    Closed {
        failures: u32,
    },
    Open {
        until: Tick,
    },
    /// One opening probes; the others are denied as before.
    HalfOpen {
        until: Tick,
    },
}

/// Whether an opening may be tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum BreakerDecision {
    Allow,
    /// It may, as the only one: its result counts for all.
    Probe,
    /// Not before this pause is over.
    Deny(Duration),
}

/// Which breaker a failed opening counts against.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Blame {
    /// That of the server: openings of every identity will fail.
    Server,
    /// That of the identity and its credential: others may succeed.
    Identity,
    /// None: the failure says nothing about the next opening.
    Nobody,
}

word_enum! {
    /// The state of a breaker, and its word in metrics, events and logs.
    pub enum BreakerState {
        /// Openings pass.
        Closed = "passing",
        /// Openings pause.
        Open = "tripped",
        /// One opening is tried.
        HalfOpen = "probing",
    }
}

/// How a breaker changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BreakerTransition {
    /// Openings are allowed again.
    Closed,
    /// They pause for that long.
    Opened(Duration),
    HalfOpened,
}

impl BreakerTransition {
    pub const fn state(self) -> BreakerState {
        match self {
            Self::Closed => BreakerState::Closed,
            Self::Opened(_) => BreakerState::Open,
            Self::HalfOpened => BreakerState::HalfOpen,
        }
    }
}

/// How long after the last failure and its pause a breaker is remembered.
const EVICT_AFTER: Duration = Duration::from_secs(10 * 60);

/// Failures this close to each other, not counting the pause, are in a row even if openings between
/// them succeeded: a process that starts well and soon dies is no success.
const CONSECUTIVE_WITHIN: Duration = Duration::from_secs(60);

impl Breaker {
    /// A closed breaker without failures.
    pub const fn new() -> Self {
        Self {
            state: CircuitState::Closed { failures: 0 },
            last_pause: Duration::ZERO,
            last_failure: Tick::START,
        }
    }

    pub const fn state(&self) -> BreakerState {
        match self.state {
            CircuitState::Closed { .. } => BreakerState::Closed,
            CircuitState::Open { .. } => BreakerState::Open,
            CircuitState::HalfOpen { .. } => BreakerState::HalfOpen,
        }
    }

    /// How long openings pause; none if one may be tried.
    pub fn remaining_pause(&self, now: Tick) -> Option<Duration> {
        match self.state {
            CircuitState::Closed { .. } => None,
            CircuitState::Open { until } => (until > now).then(|| until.duration_since(now)),
            CircuitState::HalfOpen { until } => Some(until.duration_since(now)),
        }
    }

    /// Whether an opening may be tried now. The holder of [`BreakerDecision::Probe`] must report how
    /// it ended.
    pub fn try_acquire(
        &mut self,
        now: Tick,
        policy: &BreakerPolicy,
    ) -> (BreakerDecision, Option<BreakerTransition>) {
        match self.state {
            CircuitState::Closed { .. } => (BreakerDecision::Allow, None),
            CircuitState::Open { until } if until <= now => {
                // While the probe runs, the others are denied for another pause.
                let until = now.after(policy.reset);
                self.state = CircuitState::HalfOpen { until };
                (BreakerDecision::Probe, Some(BreakerTransition::HalfOpened))
            },
            CircuitState::Open { until } | CircuitState::HalfOpen { until } => {
                (BreakerDecision::Deny(until.duration_since(now)), None)
            },
        }
    }

    /// An opening succeeded. Whether the session proves stable is not known yet: if it is short-lived,
    /// that is one more failure in a row.
    pub fn on_opened(&mut self, now: Tick, policy: &BreakerPolicy) -> Option<BreakerTransition> {
        if matches!(self.state, CircuitState::Closed { .. }) {
            let consecutive = self.last_pause.saturating_add(CONSECUTIVE_WITHIN);
            if now.duration_since(self.last_failure) > consecutive {
                self.forget_failures();
            }
            return None;
        }
        let failures = policy.threshold.saturating_sub(1);
        self.state = CircuitState::Closed { failures };
        Some(BreakerTransition::Closed)
    }

    pub fn on_session_stable(&mut self) -> Option<BreakerTransition> {
        let was = self.state();
        self.forget_failures();
        (was != BreakerState::Closed).then_some(BreakerTransition::Closed)
    }

    /// An opening failed. `random` is spread evenly over all numbers; it spreads the pause.
    pub fn on_open_failed(
        &mut self,
        now: Tick,
        policy: &BreakerPolicy,
        random: u32,
    ) -> Option<BreakerTransition> {
        self.last_failure = now;
        match self.state {
            CircuitState::Closed { failures } => {
                let failures = failures.saturating_add(1);
                if failures < policy.threshold {
                    self.state = CircuitState::Closed { failures };
                    return None;
                }
            },
            // It began before the breaker opened, and says nothing new.
            CircuitState::Open { .. } => return None,
            CircuitState::HalfOpen { .. } => {},
        }
        let pause = self.last_pause.saturating_mul(2).max(policy.reset);
        self.last_pause = pause.min(policy.longest);
        let pause = spread_pause(self.last_pause, random);
        let until = now.after(pause);
        self.state = CircuitState::Open { until };
        Some(BreakerTransition::Opened(pause))
    }

    /// A session that was opened at that moment was lost before it was of use.
    pub fn on_session_short_lived(
        &mut self,
        opened: Tick,
        now: Tick,
        policy: &BreakerPolicy,
        random: u32,
    ) -> Option<BreakerTransition> {
        // A restart that ends many sessions is one fault: only those opened since the last failure
        // say something new.
        if opened < self.last_failure {
            return None;
        }
        self.on_open_failed(now, policy, random)
    }

    /// The probe was given up: the next opening is the probe.
    pub fn on_probe_abandoned(&mut self, now: Tick) -> Option<BreakerTransition> {
        if !matches!(self.state, CircuitState::HalfOpen { .. }) {
            return None;
        }
        self.state = CircuitState::Open { until: now };
        Some(BreakerTransition::Opened(Duration::ZERO))
    }

    /// Whether it remembers nothing of use: identities that failed once and never came back must not
    /// be remembered for ever.
    pub fn is_evictable(&self, now: Tick) -> bool {
        let has_failures = self.state != CircuitState::Closed { failures: 0 };
        let remembered = self.last_pause.saturating_add(EVICT_AFTER);
        match self.state {
            CircuitState::HalfOpen { .. } => false,
            CircuitState::Closed { .. } | CircuitState::Open { .. } => {
                (!has_failures && self.last_pause.is_zero())
                    || now.duration_since(self.last_failure) >= remembered
            },
        }
    }

    const fn forget_failures(&mut self) {
        self.state = CircuitState::Closed { failures: 0 };
        self.last_pause = Duration::ZERO;
    }
}

impl Default for Breaker {
    fn default() -> Self {
        Self::new()
    }
}

/// A pause that is up to a twentieth shorter: processes that lost a server together do not come back
/// to it together.
fn spread_pause(pause: Duration, random: u32) -> Duration {
    let shorter = u128::from(u32::MAX - random) * pause.as_nanos() / (20 * u128::from(u32::MAX));
    pause.saturating_sub(Duration::from_nanos(u64::try_from(shorter).unwrap_or(0)))
}

/// Which breaker a failed opening counts against.
pub const fn blame(code: Code, reason: Reason) -> Blame {
    // The server is there; it does not want this credential, or not so often.
    if matches!(code, Code::CredentialRefused)
        || matches!(
            reason,
            Reason::Forbidden
                | Reason::RateLimited
                | Reason::SessionMismatch
                | Reason::CredentialUnavailable
        )
    {
        return Blame::Identity;
    }
    // Failures of this machine, this request or this run say nothing of the server.
    if matches!(
        reason,
        Reason::LocalResources | Reason::CredentialNotSent | Reason::StateLost
    ) {
        return Blame::Nobody;
    }
    match reason.code() {
        Code::CredentialRefused => Blame::Identity,
        Code::EraUnknown
        | Code::CannotReach
        | Code::OpenFailed
        | Code::RequestRefused
        | Code::Deadline
        | Code::SessionLost
        | Code::AnswerLost
        | Code::BadAnswer
        | Code::ToolFailed
        | Code::ResolveFailed => Blame::Server,
        Code::ConfigUnreadable
        | Code::ConfigUnknownKey
        | Code::ConfigBadValue
        | Code::ConfigUntrusted
        | Code::UsageBadArgument
        | Code::ServerUnknown
        | Code::ToolUnknown
        | Code::BadMessage
        | Code::RunUnknown
        | Code::RunEnded
        | Code::NotAllowed
        | Code::IdentityMissing
        | Code::CredentialUnavailable
        | Code::BreakerOpen
        | Code::PoolFull
        | Code::Overloaded
        | Code::StoreUnavailable
        | Code::RecordRefused
        | Code::Draining
        | Code::Cancelled
        | Code::Closed
        | Code::Bug => Blame::Nobody,
    }
}

#[cfg(test)]
mod tests;
