//! Events and effects: what an entry receives, and what the shell must do.

use std::time::Duration;

use smallvec::SmallVec;

use super::session::SessionOrigin;
use super::{
    EndReason, EntryPolicy, Generation, HealthCheckResult, LeaseMode, LeaseOutcome, QueuePosition,
    StateLoss, WaiterId,
};
use crate::time::Tick;

/// What happened to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    LeaseRequested {
        waiter: WaiterId,
        mode: LeaseMode,
        position: QueuePosition,
    },
    WaiterLeft(WaiterId),
    Opened(Generation, OpenedSession),
    OpenFailed(Generation),
    /// An opening that no caller waited for was stopped before it sent anything.
    OpenCancelled(Generation),
    /// The task of an opening is gone, without a result.
    OpenerLost(Generation),
    /// The holder of an exclusive lease sends a call: a lease beside its own, unless the session was
    /// lost meanwhile.
    HolderCallStarted(WaiterId, Generation),
    LeaseReturned(Generation, LeaseOutcome),
    /// The loss of this number, and all before it, was reported to a caller.
    LossReported(u16),
    /// A session ended: the server said so, or it was ended here.
    SessionEnded(Generation, EndReason),
    CheckFinished(Generation, HealthCheckResult),
    KeepAliveFinished(Generation, HealthCheckResult),
    /// The server lost sessions at that moment: those not known to be alive since are checked first.
    ServerLostSessions(Tick),
    Reconfigured(EntryPolicy),
    /// Time passed. An empty key is evicted after that long.
    MaintenanceTick(Duration),
    /// A claimant needs the permit of this session.
    PermitNeeded(Generation),
    /// The key ends: it refuses callers.
    EntryEnded(EndReason),
    /// The grace of an ended key is over: the rest is closed under its leases.
    GraceExpired,
}

/// An open session, as it joins its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenedSession {
    pub origin: SessionOrigin,
    pub generation: Option<Generation>,
    /// How long the server keeps it after its opening.
    pub expires_in: Option<Duration>,
    /// The age at which it is replaced if it has no state to lose: the server is known to drop
    /// sessions soon after.
    pub renew_in: Option<Duration>,
    /// How long it was idle since it was opened.
    pub idle_time: Duration,
    /// Its record reports state that was lost with an earlier session.
    pub unreported_loss: bool,
    /// It answered a call that was not repeatable, before it was restored.
    pub stateful: bool,
}

impl OpenedSession {
    /// A session that was opened just now.
    pub const FRESH: Self = Self {
        origin: SessionOrigin::Fresh,
        generation: None,
        expires_in: None,
        renew_in: None,
        idle_time: Duration::ZERO,
        unreported_loss: false,
        stateful: false,
    };
}

/// What the shell must do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    GrantLease {
        waiter: WaiterId,
        generation: Generation,
        /// The last loss of the key, reported or not: not every call can report it, and each run has
        /// to learn of it. None for a call of a holder: it had the session before.
        loss: Option<StateLoss>,
    },
    RefuseLease(WaiterId, LeaseRefusal),
    OpenSession(Generation),
    /// No caller waits for this opening any more. Stop it if it has sent nothing, and apply
    /// [`Event::OpenCancelled`].
    OpenUnneeded(Generation),
    /// Stop this opening: there is no time to wait for it.
    AbortOpen(Generation),
    /// The session that was just opened has another number.
    Renumber {
        from: Generation,
        to: Generation,
    },
    CheckSession(Generation),
    KeepAlive(Generation),
    /// The session proved stable. Reported once.
    SessionStable(Generation),
    /// The session, opened at that moment, ended before it was of use. Reported once.
    SessionShortLived(Generation, Tick),
    /// A session was lost. If it is to be closed, that is a further effect.
    SessionLost(Generation, EndReason),
    CloseSession(Generation, EndReason),
    /// Remove this empty key.
    EvictEntry,
}

/// Why a caller gets no lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LeaseRefusal {
    QueueFull,
    OpenFailed,
    /// The task of the opening is gone. The caller may ask again, and then opens a session itself.
    OpenerLost,
    EntryEnded(EndReason),
}

/// The effects of one event, in order.
pub type Effects = SmallVec<[Effect; 2]>;
