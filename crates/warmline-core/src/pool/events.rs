//! Events and effects: what an entry receives, and what the shell must do.

use std::time::Duration;

use smallvec::SmallVec;

use super::session::{SessionOrigin, SessionState};
use super::waiters::{QueuePosition, WaiterId};
use super::{
    EndReason, EntryPolicy, Generation, HealthCheckResult, LeaseMode, LeaseOutcome, StateLoss,
};
use crate::time::Tick;

/// What happened to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A caller asks for a lease.
    LeaseRequested {
        /// The caller.
        waiter: WaiterId,
        /// What it wants.
        mode: LeaseMode,
        /// Where it is queued, if it has to wait.
        position: QueuePosition,
    },
    /// A queued caller left.
    WaiterLeft(WaiterId),
    /// A session was opened.
    Opened(Generation, OpenedSession),
    /// An opening failed.
    OpenFailed(Generation),
    /// An opening that no caller waited for was stopped before it sent anything.
    OpenCancelled(Generation),
    /// The task of an opening is gone, without a result.
    OpenerLost(Generation),
    /// The holder of an exclusive lease sends a call: a lease beside its own, unless the session was
    /// lost meanwhile.
    HolderCallStarted(WaiterId, Generation),
    /// A lease was settled.
    LeaseReturned(Generation, LeaseOutcome),
    /// The loss of this number, and all before it, was reported to a caller.
    LossReported(u16),
    /// A session ended: the server said so, or it was ended here.
    SessionEnded(Generation, EndReason),
    /// A check ended.
    CheckFinished(Generation, HealthCheckResult),
    /// A keep-alive check ended.
    KeepAliveFinished(Generation, HealthCheckResult),
    /// The server lost sessions at that moment: those not known to be alive since are checked first.
    ServerLostSessions(Tick),
    /// Another policy applies.
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
    /// Where it came from.
    pub origin: SessionOrigin,
    /// Its number, if it has one already.
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
    /// Give the caller a lease.
    GrantLease {
        /// The caller.
        waiter: WaiterId,
        /// The session.
        generation: Generation,
        /// The last loss of the key, reported or not: not every call can report it, and each run has
        /// to learn of it. None for a call of a holder: it had the session before.
        loss: Option<StateLoss>,
    },
    /// Refuse the caller.
    RefuseLease(WaiterId, LeaseRefusal),
    /// Open a session of this number.
    OpenSession(Generation),
    /// No caller waits for this opening any more. Stop it if it has sent nothing, and apply
    /// [`Event::OpenCancelled`].
    OpenUnneeded(Generation),
    /// Stop this opening: there is no time to wait for it.
    AbortOpen(Generation),
    /// The session that was just opened has another number.
    Renumber {
        /// That of the opening.
        from: Generation,
        /// That of the session.
        to: Generation,
    },
    /// Check a session.
    CheckSession(Generation),
    /// Check a session to keep it alive.
    KeepAlive(Generation),
    /// The session proved stable. Reported once.
    SessionStable(Generation),
    /// The session, opened at that moment, ended before it was of use. Reported once.
    SessionShortLived(Generation, Tick),
    /// A session was lost. If it is to be closed, that is a further effect.
    SessionLost(Generation, EndReason),
    /// Close a session.
    CloseSession(Generation, EndReason),
    /// Remove this empty key.
    EvictEntry,
}

/// Why a caller gets no lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LeaseRefusal {
    /// The queue is full.
    QueueFull,
    /// The opening it waited for failed.
    OpenFailed,
    /// The task of the opening is gone. The caller may ask again, and then opens a session itself.
    OpenerLost,
    /// The key ended.
    EntryEnded(EndReason),
}

/// The effects of one event, in order.
pub type Effects = SmallVec<[Effect; 2]>;

/// The number of sessions of each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionCounts {
    /// Sessions being opened.
    pub opening: u32,
    /// Idle sessions.
    pub idle: u32,
    /// Sessions in use.
    pub leased: u32,
    /// Sessions that close with their last lease.
    pub retiring: u32,
    /// Leases, including those of checks.
    pub leases: u32,
    /// Queued callers.
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

    /// Sessions in all.
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
