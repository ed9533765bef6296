//! What the pool needs from outside: somebody who opens, checks and ends sessions, and who hears
//! what happened.
//!
//! Asked by: the pool's tasks.  Answered by: `connect.rs`, and by fakes in tests.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use warmline_core::exchange::Trouble;
use warmline_core::key::{DeclaredId, Key, Owner, Place};
use warmline_core::policy::BreakerPolicy;
use warmline_core::pool::breaker;
use warmline_core::pool::{Generation, Health, Origin, Why};

use super::places::Trace;

/// Opens, checks and ends sessions. Nothing of it is called under a lock.
pub(crate) trait Connector: Send + Sync + Sized + 'static {
    /// One conversation with a server.
    type Session: Send + Sync + 'static;
    /// All that is needed to open a session of a key again.
    type Setup: Send + Sync + 'static;

    /// A session of this key that an earlier process left behind, with nothing on the wire. Asked
    /// for what a key holds, before a spare is taken or anything is opened.
    fn restore(
        &self,
        _order: &Order<Self>,
    ) -> impl Future<Output = Option<Opened<Self::Session>>> + Send {
        std::future::ready(None)
    }

    /// A session, opened or taken from the shelf, is about to belong to a key: does what has to be
    /// done before anybody gets it, and says which session it is in the end (a record may have
    /// been written by somebody else first).
    fn move_in(
        &self,
        _order: &Order<Self>,
        session: Arc<Self::Session>,
    ) -> impl Future<Output = Opened<Self::Session>> + Send {
        std::future::ready(Opened::of(session))
    }

    /// Opens a session. Bounded by itself.
    fn open(
        &self,
        order: &Order<Self>,
    ) -> impl Future<Output = Result<Arc<Self::Session>, Trouble>> + Send;

    /// A session of a key is there now, and others get it.
    fn joined(&self, _session: &Arc<Self::Session>, _setup: &Arc<Self::Setup>) {}

    /// Asks an idle session whether it lives. Bounded by itself.
    fn check(
        &self,
        session: &Arc<Self::Session>,
        setup: &Arc<Self::Setup>,
    ) -> impl Future<Output = Health> + Send;

    /// Ends a session. Bounded by itself; a session that is dead already ends at once.
    fn close(
        &self,
        session: Arc<Self::Session>,
        setup: &Arc<Self::Setup>,
        key: Option<&Key>,
        why: Why,
    ) -> impl Future<Output = ()> + Send;

    /// Whether a session can still be used: false once its driver retired it.
    fn is_usable(&self, session: &Self::Session) -> bool;

    /// Hears what happened, for metrics and events.
    fn happened(&self, setup: &Self::Setup, happened: &Happened<'_>);

    /// What a session of this setup says of us: spares are kept apart by it.
    fn declared(&self, setup: &Self::Setup) -> DeclaredId;

    /// How many spares are wanted.
    fn spares(&self, setup: &Self::Setup) -> u32;

    /// Most sessions of the server; none leaves it to the totals.
    fn max_sessions(&self, _setup: &Self::Setup) -> Option<u32> {
        None
    }

    /// When openings stop being tried.
    fn breaker(&self, _setup: &Self::Setup) -> BreakerPolicy {
        BreakerPolicy::default()
    }

    /// Whether the server holds anything for this session, so that it counts in the limits.
    fn holds_room(&self, _session: &Self::Session) -> bool {
        true
    }
}

/// A session that is to be opened.
pub(crate) struct Order<C: Connector> {
    /// How.
    pub(crate) setup: Arc<C::Setup>,
    /// For which key; none for a spare or a single call.
    pub(crate) key: Option<Key>,
    /// The number it will have within its key.
    pub(crate) generation: Generation,
    /// What for.
    pub(crate) purpose: Purpose,
    /// The session of the same key that was lost and is replaced.
    pub(crate) replaces: Option<Arc<C::Session>>,
    /// To be kept by what the opening starts, until nothing is left of it.
    pub(crate) trace: Trace,
}

/// What a session is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A key holds it.
    Held,
    /// It waits for whoever comes.
    Spare,
    /// One call.
    Call,
}

/// A session that was opened.
#[derive(Debug)]
pub(crate) struct Opened<S> {
    /// The session.
    pub(crate) session: Arc<S>,
    /// A record told of state that died with an earlier one.
    pub(crate) lost_state: bool,
    /// It answered a call that was not repeatable before it was restored: it has state to lose.
    pub(crate) left_state: bool,
    /// The number it has already, if it was restored or adopted.
    pub(crate) generation: Option<Generation>,
    /// How long the server keeps it, if it said so.
    pub(crate) expires_in: Option<Duration>,
    /// When it is better replaced, as long as it has no state to lose.
    pub(crate) renew_in: Option<Duration>,
}

impl<S> Opened<S> {
    /// A session of which nothing more is known.
    pub(crate) fn of(session: Arc<S>) -> Self {
        Self {
            session,
            lost_state: false,
            left_state: false,
            generation: None,
            expires_in: None,
            renew_in: None,
        }
    }
}

/// What happened, and to whom.
#[derive(Debug)]
pub(crate) struct Happened<'a> {
    /// Where the session leads.
    pub(crate) place: &'a Place,
    /// Whose it is; none for a spare.
    pub(crate) owner: Option<Owner>,
    /// Its key; none for a spare or a single call.
    pub(crate) key: Option<&'a Key>,
    /// What.
    pub(crate) what: What<'a>,
}

/// A session that was lost and is replaced.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heals {
    /// Its number.
    pub(crate) from: Generation,
    /// Whether state died with it.
    pub(crate) state_lost: bool,
}

/// What happened in the pool.
#[derive(Clone, Copy, Debug)]
pub(crate) enum What<'a> {
    /// A caller got a session.
    Leased {
        /// How it came to it.
        how: How,
        /// After how long.
        waited: Duration,
    },
    /// A caller got none.
    Refused {
        /// Why.
        trouble: &'a Trouble,
        /// After how long.
        waited: Duration,
    },
    /// There is a session that was not there before, or a spare left its shelf. To be counted: whose
    /// it is may not be known yet.
    Opened {
        /// Where it came from.
        origin: Origin,
        /// After how long.
        took: Duration,
    },
    /// A session belongs to a key, or to a call, from now on.
    Joined {
        /// Its number.
        generation: Generation,
        /// Where it came from. What a first contact opened for its caller was opened just now.
        origin: Origin,
        /// After how long.
        took: Duration,
        /// The lost one that it takes the place of, if it does.
        heals: Option<Heals>,
    },
    /// A session lies on its shelf that was opened for whoever comes.
    SpareOpened {
        /// After how long.
        took: Duration,
    },
    /// A session could not be opened.
    OpenFailed {
        /// Why.
        trouble: &'a Trouble,
        /// After how long.
        took: Duration,
    },
    /// A session was lost: it will be replaced when somebody asks.
    Lost {
        /// Its number.
        generation: Generation,
        /// Why.
        why: Why,
    },
    /// A session was checked.
    Checked {
        /// Its number.
        generation: Generation,
        /// What was found.
        health: Health,
        /// After how long.
        took: Duration,
    },
    /// A session was closed.
    Closed {
        /// Its number; none for a spare.
        generation: Option<Generation>,
        /// Why.
        why: Why,
    },
    /// A breaker changed.
    Breaker {
        /// Whose it is: the server's, or that of one credential.
        scope: breaker::Blame,
        /// What it is now.
        change: breaker::Change,
    },
    /// A key was ended, whether or not it had sessions.
    KeyEnded,
    /// An empty key was forgotten.
    KeyForgotten,
    /// A caller got in line.
    Waiting,
}

/// How a caller came to a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum How {
    /// It was there.
    Hit,
    /// It was opened for this caller, or for one who came at the same time.
    Miss,
    /// It was given back, or checked first.
    Waited,
    /// For this call alone.
    Once,
}
