//! The breaker: when too many openings fail, opening pauses.
//!
//! Asked by: the shell, before it opens a session.  Told by: how the opening ended, and what the
//! session was worth (`proof.rs`).
//!
//! There is one for each server and one for each credential of an owner, so that one tenant's bad
//! token, or calls that end its own process, never block another. Sessions that are open are not touched by either (A94), and calls
//! that fail say nothing here (A93).

use std::time::Duration;

use crate::code::{Code, Reason};
use crate::policy::BreakerPolicy;
use crate::tick::Tick;

/// One breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Breaker {
    state: State,
    /// When something last failed.
    failed: Tick,
}

/// What a breaker is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Openings pass; so many failed in a row since it last paused for that long.
    Passing { failures: u32, paused: Duration },
    /// None passes until then.
    Tripped { until: Tick, paused: Duration },
    /// Exactly one is tried; the others are turned away as before.
    Probing { until: Tick, paused: Duration },
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
    /// Whoever asked, with its credential: others may well succeed.
    Identity,
    /// Nobody: it says nothing about the next opening.
    Nobody,
}

/// What a breaker does, seen from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stance {
    /// Openings pass.
    Passing,
    /// They pause.
    Tripped,
    /// One is tried.
    Probing,
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

/// What failed this long ago, after every pause, says nothing any more.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(10 * 60);

/// Failures are in a row also with openings between them that succeeded, if they follow one another
/// this closely, not counting the pause: a process that starts well and soon dies is no success.
const IN_A_ROW: Duration = Duration::from_secs(60);

/// Passing, and nothing failed.
const FRESH: State = State::Passing {
    failures: 0,
    paused: Duration::ZERO,
};

impl Breaker {
    /// One that passes.
    pub const fn new() -> Self {
        Self {
            state: FRESH,
            failed: Tick::START,
        }
    }

    /// What it does now.
    pub const fn stance(&self) -> Stance {
        match self.state {
            State::Passing { .. } => Stance::Passing,
            State::Tripped { .. } => Stance::Tripped,
            State::Probing { .. } => Stance::Probing,
        }
    }

    /// How long nothing may be tried; none if something may.
    pub fn pause(&self, now: Tick) -> Option<Duration> {
        match self.state {
            State::Passing { .. } => None,
            State::Tripped { until, .. } => (until > now).then(|| until.since(now)),
            State::Probing { until, .. } => Some(until.since(now)),
        }
    }

    /// Whether an opening may be tried now. Who gets [`Pass::Probe`] must tell how it ended.
    pub fn ask(&mut self, now: Tick, policy: &BreakerPolicy) -> (Pass, Option<Change>) {
        match self.state {
            State::Passing { .. } => (Pass::Free, None),
            State::Tripped { until, paused } if until <= now => {
                // While the probe is out, the others are told to come back after another pause.
                let until = now.after(policy.reset);
                self.state = State::Probing { until, paused };
                (Pass::Probe, Some(Change::Probing))
            },
            State::Tripped { until, .. } | State::Probing { until, .. } => {
                (Pass::Not(until.since(now)), None)
            },
        }
    }

    /// An opening succeeded. Whether the session is any good is not known yet: if it was opened in
    /// vain, that is one more failure in a row.
    pub fn opened(&mut self, now: Tick, policy: &BreakerPolicy) -> Option<Change> {
        let paused = match self.state {
            State::Passing { paused, .. } => {
                if now.since(self.failed) > paused.saturating_add(IN_A_ROW) {
                    self.state = FRESH;
                }
                return None;
            },
            State::Tripped { paused, .. } | State::Probing { paused, .. } => paused,
        };
        let failures = policy.threshold.saturating_sub(1);
        self.state = State::Passing { failures, paused };
        Some(Change::Passing)
    }

    /// A session showed that it was worth it to open it.
    pub fn proven(&mut self) -> Option<Change> {
        match std::mem::replace(&mut self.state, FRESH) {
            State::Passing { .. } => None,
            State::Tripped { .. } | State::Probing { .. } => Some(Change::Passing),
        }
    }

    /// An opening failed. The dice, thrown evenly from all there are, spread the pause.
    pub fn failed(&mut self, now: Tick, policy: &BreakerPolicy, dice: u32) -> Option<Change> {
        self.failed = now;
        let paused = match self.state {
            State::Passing { failures, paused } => {
                let failures = failures.saturating_add(1);
                if failures < policy.threshold {
                    self.state = State::Passing { failures, paused };
                    return None;
                }
                paused
            },
            // It was begun before the breaker tripped, and says nothing new.
            State::Tripped { .. } => return None,
            State::Probing { paused, .. } => paused,
        };
        let paused = paused
            .saturating_mul(2)
            .max(policy.reset)
            .min(policy.longest);
        let pause = spread(paused, dice);
        let until = now.after(pause);
        self.state = State::Tripped { until, paused };
        Some(Change::Tripped(pause))
    }

    /// A session that was opened at that time was opened in vain.
    pub fn in_vain(
        &mut self,
        opened: Tick,
        now: Tick,
        policy: &BreakerPolicy,
        dice: u32,
    ) -> Option<Change> {
        // What made the last failure may have ended this one too: a restart that takes many
        // sessions is one fault. Only what was opened since says something new.
        if opened < self.failed {
            return None;
        }
        self.failed(now, policy, dice)
    }

    /// The probe was given up before it found anything out: the next one to ask is the probe.
    pub fn gave_up(&mut self, now: Tick) -> Option<Change> {
        let State::Probing { paused, .. } = self.state else {
            return None;
        };
        self.state = State::Tripped { until: now, paused };
        Some(Change::Tripped(Duration::ZERO))
    }

    /// Whether nothing is remembered that is worth it: identities that failed once and never came
    /// back must not be remembered for ever.
    pub fn is_forgettable(&self, now: Tick) -> bool {
        let paused = match self.state {
            FRESH => return true,
            State::Probing { .. } => return false,
            State::Passing { paused, .. } | State::Tripped { paused, .. } => paused,
        };
        now.since(self.failed) >= paused.saturating_add(FORGOTTEN_AFTER)
    }
}

/// A pause that is up to a twentieth shorter: processes that lost a server together do not come back
/// to it together. It is never longer than was said.
fn spread(pause: Duration, dice: u32) -> Duration {
    let shorter = u128::from(u32::MAX - dice) * pause.as_nanos() / (20 * u128::from(u32::MAX));
    pause.saturating_sub(Duration::from_nanos(u64::try_from(shorter).unwrap_or(0)))
}

impl Default for Breaker {
    fn default() -> Self {
        Self::new()
    }
}

/// Whom a failed opening speaks against.
#[expect(clippy::too_many_lines, reason = "a line for each reason there is")]
pub const fn blame(code: Code, reason: Reason) -> Blame {
    if matches!(code, Code::CredentialRefused) {
        return Blame::Identity;
    }
    match reason {
        // The server is there; it is this credential it does not want, or not so often.
        Reason::Unauthorized
        | Reason::Forbidden
        | Reason::RateLimited
        | Reason::SessionMismatch
        | Reason::CredentialUnavailable => Blame::Identity,
        // We did not try, gave up, or made the mistake ourselves.
        Reason::LocalResources
        | Reason::InvalidRequest
        | Reason::Cancelled
        | Reason::Closed
        | Reason::RunUnknown
        | Reason::RunEnded
        | Reason::NotAllowed
        | Reason::IdentityMissing
        | Reason::CredentialNotSent
        | Reason::BreakerOpen
        | Reason::PoolFull
        | Reason::Overloaded
        | Reason::StoreUnavailable
        | Reason::RecordRefused
        | Reason::Draining
        | Reason::ServerUnknown
        | Reason::ToolUnknown
        | Reason::StateLost
        | Reason::Internal => Blame::Nobody,
        // It came from the server, or from the way to it.
        Reason::Dns
        | Reason::ConnectRefused
        | Reason::ConnectTimeout
        | Reason::Unreachable
        | Reason::Tls
        | Reason::TlsClosed
        | Reason::Proxy
        | Reason::WriteFailed
        | Reason::ReplyLost
        | Reason::BadReply
        | Reason::ReplyTooLarge
        | Reason::Timeout
        | Reason::TimeoutUnsent
        | Reason::Redirect
        | Reason::Rejected
        | Reason::RejectedUnclear
        | Reason::NotFound
        | Reason::TooLarge
        | Reason::Conflict
        | Reason::TooEarly
        | Reason::ServerError
        | Reason::GatewayError
        | Reason::Unavailable
        | Reason::NoReplyChannel
        | Reason::Version
        | Reason::HeaderMismatch
        | Reason::SessionGone
        | Reason::BadSessionId
        | Reason::Spawn
        | Reason::ProgramMissing
        | Reason::ChildExit
        | Reason::Handshake
        | Reason::SilentServer
        | Reason::NotMcp
        | Reason::SingleSession
        | Reason::TooManyRounds
        | Reason::ResolveFailed => Blame::Server,
    }
}

#[cfg(test)]
mod tests;
