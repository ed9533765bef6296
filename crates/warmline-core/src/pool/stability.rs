//! Whether a session proved stable. The breaker counts those that did not.

use std::time::Duration;

use super::SessionOrigin;
use super::session::{Session, SessionUsage};
use crate::pool_key::Transport;
use crate::time::Tick;

/// A process that ends before this age was of no use, whatever it answered: a program that dies of
/// every call must not be started by every call (reliability I34).
const MIN_PROCESS_AGE: Duration = Duration::from_secs(60);

/// A session that answered nothing was of no use if the server ends it before this age. One that
/// was idle for longer was lost otherwise, as by a restart.
const SHORT_LIVED_HTTP_AGE: Duration = Duration::from_secs(10);

/// What shows that a session was of use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StabilityCriterion {
    /// It answers.
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
