//! The breaker: when too many openings fail, opening pauses.
//!
//! Asked by: the shell, before it opens a session.  Told by: how the opening ended.
//!
//! There is one for each server and one for each credential of an owner, so that one tenant's bad
//! token never blocks another. Sessions that are open are not touched by either (A94), and calls
//! that fail say nothing here (A93).

use std::time::Duration;

use crate::code::{Code, Reason};
use crate::policy::BreakerPolicy;
use crate::tick::Tick;

/// One breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Breaker {
    state: State,
}

/// What a breaker is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Openings pass; so many failed in a row.
    Passing { failures: u32 },
    /// None passes until then.
    Tripped { until: Tick, pause: Duration },
    /// Exactly one is tried; the others are turned away as before.
    Probing { until: Tick, pause: Duration },
}

/// Whether an opening may be tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Pass {
    /// It may.
    Free,
    /// It may, alone: it finds out for all.
    Probe,
    /// Not now. It makes sense again after that long.
    Not(Duration),
}

/// Whom a failed opening speaks against.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Blame {
    /// The server: everybody's openings will fail.
    Server,
    /// The credential: others may well succeed.
    Credential,
    /// Nobody: it says nothing about the next opening.
    Nobody,
}

/// How a breaker changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    /// Openings pass again.
    Passing,
    /// They pause for that long.
    Tripped(Duration),
    /// One is tried.
    Probing,
}

impl Breaker {
    /// One that passes.
    pub const fn new() -> Self {
        Self {
            state: State::Passing { failures: 0 },
        }
    }

    /// Whether an opening may be tried now. Who gets [`Pass::Probe`] must tell how it ended.
    pub fn ask(&mut self, now: Tick, policy: &BreakerPolicy) -> (Pass, Option<Change>) {
        match self.state {
            State::Passing { .. } => (Pass::Free, None),
            State::Tripped { until, pause } if until <= now => {
                // While the probe is out, the others are told to come back after another pause.
                let until = now.after(policy.reset);
                self.state = State::Probing { until, pause };
                (Pass::Probe, Some(Change::Probing))
            },
            State::Tripped { until, .. } | State::Probing { until, .. } => {
                (Pass::Not(until.since(now)), None)
            },
        }
    }

    /// An opening succeeded.
    pub fn succeeded(&mut self) -> Option<Change> {
        let before = std::mem::replace(&mut self.state, State::Passing { failures: 0 });
        match before {
            State::Passing { .. } => None,
            State::Tripped { .. } | State::Probing { .. } => Some(Change::Passing),
        }
    }

    /// An opening failed, or a session was lost before it served anything.
    pub fn failed(&mut self, now: Tick, policy: &BreakerPolicy) -> Option<Change> {
        let pause = match self.state {
            State::Passing { failures } => {
                let failures = failures.saturating_add(1);
                if failures < policy.threshold.max(1) {
                    self.state = State::Passing { failures };
                    return None;
                }
                policy.reset
            },
            // It was begun before the breaker tripped, and says nothing new.
            State::Tripped { .. } => return None,
            State::Probing { pause, .. } => pause.saturating_mul(2),
        };
        let pause = pause.min(policy.longest);
        self.state = State::Tripped {
            until: now.after(pause),
            pause,
        };
        Some(Change::Tripped(pause))
    }

    /// The probe was given up before it found anything out: the next one to ask is the probe.
    pub fn gave_up(&mut self, now: Tick) -> Option<Change> {
        let State::Probing { pause, .. } = self.state else {
            return None;
        };
        self.state = State::Tripped { until: now, pause };
        Some(Change::Tripped(Duration::ZERO))
    }

    /// Whether nothing is remembered that a new one would not know.
    pub const fn is_fresh(&self) -> bool {
        matches!(self.state, State::Passing { failures: 0 })
    }
}

impl Default for Breaker {
    fn default() -> Self {
        Self::new()
    }
}

/// Whom a failed opening speaks against.
pub const fn blame(code: Code, reason: Reason) -> Blame {
    match reason {
        // The server is there; it is this credential it does not want, or not so often.
        Reason::Unauthorized
        | Reason::Forbidden
        | Reason::RateLimited
        | Reason::SessionMismatch
        | Reason::CredentialUnavailable => Blame::Credential,
        // We did not try, gave up, or made the mistake ourselves.
        Reason::LocalResources
        | Reason::InvalidRequest
        | Reason::Cancelled
        | Reason::Closed
        | Reason::RunUnknown
        | Reason::RunEnded
        | Reason::NotAllowed
        | Reason::IdentityMissing
        | Reason::BreakerOpen
        | Reason::PoolFull
        | Reason::Overloaded
        | Reason::StoreUnavailable
        | Reason::RecordRefused
        | Reason::Draining
        | Reason::ServerUnknown
        | Reason::ToolUnknown
        | Reason::TimeoutUnsent
        | Reason::Internal => Blame::Nobody,
        // All else came from the server or from the way to it.
        _ => match code {
            Code::CredentialRefused => Blame::Credential,
            _ => Blame::Server,
        },
    }
}
