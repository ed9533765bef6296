//! The pool's interface to the outside: opening, checking and closing sessions, and its events.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use warmline_core::exchange::Diagnostic;
use warmline_core::policy::BreakerPolicy;
use warmline_core::pool::breaker;
use warmline_core::pool::{EndReason, Generation, HealthCheckResult, OpenedSession, SessionOrigin};
use warmline_core::pool_key::{ClientProfileId, KeyOwner, PoolKey, TargetKey};

use super::cleanup::CleanupToken;

/// Opens, checks and closes sessions, and observes the pool. Never called under a lock.
pub trait Connector: Send + Sync + Sized + 'static {
    type Session: Send + Sync + 'static;
    /// What it takes to open a session of a key.
    type Setup: Send + Sync + 'static;

    /// Restores a session of this key that an earlier process recorded, without a request. Tried
    /// for pooled keys before a spare is taken or a session opened.
    fn restore(
        &self,
        _request: &OpenRequest<Self>,
    ) -> impl Future<Output = Option<ConnectedSession<Self::Session>>> + Send {
        std::future::ready(None)
    }

    /// Prepares a new session or a spare for its key before any caller gets it. May return another
    /// session: another process may have recorded one first.
    fn prepare_for_key(
        &self,
        _request: &OpenRequest<Self>,
        session: Arc<Self::Session>,
    ) -> impl Future<Output = ConnectedSession<Self::Session>> + Send {
        std::future::ready(ConnectedSession::new(session))
    }

    /// Opens a session. Must end in bounded time.
    fn open(
        &self,
        request: &OpenRequest<Self>,
    ) -> impl Future<Output = Result<Arc<Self::Session>, Diagnostic>> + Send;

    /// A session joined its key, and callers get it.
    fn session_joined(&self, _session: &Arc<Self::Session>, _setup: &Arc<Self::Setup>) {}

    /// Asks the server whether an idle session lives. Must end in bounded time.
    fn check(
        &self,
        session: &Arc<Self::Session>,
        setup: &Arc<Self::Setup>,
    ) -> impl Future<Output = HealthCheckResult> + Send;

    /// Closes a session. Must end in bounded time, and at once for a dead session.
    fn close(
        &self,
        session: Arc<Self::Session>,
        setup: &Arc<Self::Setup>,
        key: Option<&PoolKey>,
        reason: EndReason,
    ) -> impl Future<Output = ()> + Send;

    /// Whether a session can still be used: false once its driver retired it.
    fn is_usable(&self, session: &Self::Session) -> bool;

    /// Observes an event, for metrics and logs. Each is reported once.
    fn report(&self, setup: &Self::Setup, event: &PoolEvent<'_>);

    /// What its sessions declare about the client: spares are kept apart by it.
    fn client_profile_id(&self, setup: &Self::Setup) -> ClientProfileId;

    fn wanted_spares(&self, setup: &Self::Setup) -> u32;

    /// Most sessions of the server; none leaves it to the totals.
    fn max_sessions(&self, _setup: &Self::Setup) -> Option<u32> {
        None
    }

    fn breaker_policy(&self, _setup: &Self::Setup) -> BreakerPolicy {
        BreakerPolicy::default()
    }

    /// Whether the server holds anything for this session, so that it counts in the limits.
    fn needs_permit(&self, _session: &Self::Session) -> bool {
        true
    }
}

/// A session to open.
pub struct OpenRequest<C: Connector> {
    pub setup: Arc<C::Setup>,
    /// For which key; none for a spare or a single call.
    pub key: Option<PoolKey>,
    pub generation: Generation,
    /// The lost session of the same key that it replaces.
    pub replaces: Option<Arc<C::Session>>,
    /// Held by everything that the opening starts, until nothing is left of it.
    pub cleanup_token: CleanupToken,
}

/// An open session.
#[derive(Debug)]
pub struct ConnectedSession<S> {
    pub session: Arc<S>,
    /// Its origin and its idle time are set by the pool.
    pub details: OpenedSession,
}

impl<S> ConnectedSession<S> {
    pub fn new(session: Arc<S>) -> Self {
        Self {
            session,
            details: OpenedSession::FRESH,
        }
    }
}

/// Something that happened in the pool: the one form in which the pool reports it. The observer
/// counts it, logs it and wakes subscribers.
#[derive(Debug)]
pub struct PoolEvent<'a> {
    /// Where the session leads.
    pub target: &'a TargetKey,
    /// The owner of the session; none for a spare.
    pub owner: Option<KeyOwner>,
    /// Its key; none for a spare or a single call.
    pub key: Option<&'a PoolKey>,
    pub kind: PoolEventKind<'a>,
}

#[derive(Clone, Copy, Debug)]
pub struct HealInfo {
    pub lost_generation: Generation,
    pub state_lost: bool,
}

/// What happened in the pool.
///
/// A session is reported once as `Opened` and once as `Closed`, whatever it is opened for and
/// however that ends: the difference is the number of open sessions. A spare that a key takes is
/// `Opened` again, with the origin `Spare`.
#[derive(Clone, Copy, Debug)]
pub enum PoolEventKind<'a> {
    Leased {
        kind: AcquireKind,
        waited: Duration,
    },
    LeaseRefused {
        diagnostic: &'a Diagnostic,
        waited: Duration,
    },
    /// A session was opened or restored, or a spare was taken. It may belong to no key yet.
    Opened {
        origin: SessionOrigin,
        took: Duration,
    },
    /// A session joined its key, or the single call it is for.
    Joined {
        generation: Generation,
        /// Where it came from; `Fresh` for one that a first contact opened for its caller.
        origin: SessionOrigin,
        took: Duration,
        heal: Option<HealInfo>,
    },
    SpareOpened {
        took: Duration,
    },
    OpenFailed {
        diagnostic: &'a Diagnostic,
        took: Duration,
    },
    /// A session was lost. The next caller has it replaced.
    Lost {
        generation: Generation,
        reason: EndReason,
    },
    Checked {
        generation: Generation,
        health: HealthCheckResult,
        took: Duration,
    },
    Closed {
        /// Its number; none for a spare.
        generation: Option<Generation>,
        reason: EndReason,
    },
    BreakerChanged {
        /// Which one: that of the server, or of one identity.
        scope: breaker::Blame,
        transition: breaker::BreakerTransition,
    },
    /// A key was ended, with or without sessions.
    KeyEnded,
    KeyEvicted,
}

/// How a caller got a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AcquireKind {
    /// A session was free.
    Hit,
    /// One was opened for this caller.
    Miss,
    /// The caller waited: for an opening that others began, a returned session or a check.
    Waited,
    /// A session for this call alone.
    SingleCall,
}
