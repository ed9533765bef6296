//! Proof: whether it was worth it to open a session.
//!
//! Asked by: the cell, when a session answered and when one was lost.  What it finds goes to the
//! breaker, which counts openings that were in vain.

use std::time::Duration;

use super::Origin;
use super::session::{Past, Session};
use crate::key::Transport;
use crate::tick::Tick;

/// A process that ends before it is this old was started in vain, whatever it answered: a program
/// that starts well and dies of every call must not be started by every call (reliability I34).
const PROCESSES_LAST: Duration = Duration::from_secs(60);

/// A session that answered nothing was opened in vain if it is over before it is this old: its server
/// ends what it opens. One that rested for longer was taken by something else, as by a restart.
const AT_ONCE: Duration = Duration::from_secs(10);

/// What shows that it was worth it to open a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Proof {
    /// That it answers.
    Serving,
    /// That it still answers at this age.
    Lasting(Duration),
}

impl Proof {
    /// What a session over this transport has to show.
    pub const fn over(transport: Transport) -> Self {
        match transport {
            Transport::Http | Transport::HttpSse => Self::Serving,
            Transport::Stdio => Self::Lasting(PROCESSES_LAST),
        }
    }

    /// Whether a session that just answered has shown it.
    pub(super) fn is_given(self, session: &Session, now: Tick) -> bool {
        match self {
            Self::Serving => true,
            Self::Lasting(age) => now.since(session.opened) >= age,
        }
    }

    /// Whether a session that its server just ended was opened in vain.
    pub(super) fn is_missed(self, session: &Session, now: Tick) -> bool {
        let age = now.since(session.opened);
        match self {
            // One that was opened ahead or by somebody else says nothing of opening.
            Self::Serving => {
                session.past == Past::Unused && session.origin == Origin::Fresh && age < AT_ONCE
            },
            Self::Lasting(needed) => age < needed,
        }
    }
}

/// What is known of it so far. It only grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Worth {
    /// Nothing yet.
    Open,
    /// It was in vain.
    InVain,
    /// It was worth it; what a lost session still answered counts.
    Proven,
}
