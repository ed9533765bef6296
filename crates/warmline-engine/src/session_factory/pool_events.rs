//! Turns what happens in the pool into metrics, events and the health of a server.
//!
//! A lease of an open session only counts, with one atomic addition; everything else is rare enough
//! to be an event.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use warmline_core::error::code::{Code, Reason};
use warmline_core::exchange::Diagnostic;
use warmline_core::pool::breaker::{Blame, BreakerTransition};
use warmline_core::pool::{EndReason, Generation, HealthCheckResult, SessionOrigin};
use warmline_core::pool_key::{Identity, KeyOwner, PoolKey};
use warmline_core::protocol::session_gone::SessionGoneForm;

use super::{PooledSession, SessionFactory, SessionSetup};
use crate::credentials::CallerIdentity;
use crate::events::{Event, Fingerprint, SessionRef, ShortId};
use crate::metrics::{
    AcquireOutcome, BreakerScope, CheckResult, ChildEnd, HealCause, OpenResult, StoreOperation,
    StoreResult,
};
use crate::server_state::ServerState;
use warmline_platform::clock::{self, Instant};
use warmline_pool::{BreakerTransitions, HealInfo, PoolEvent};
use warmline_store::Records;
use warmline_upstream::{ChildExit, ChildReport};

impl SessionFactory {
    pub(super) fn record_close(
        &self,
        setup: &SessionSetup,
        key: Option<&PoolKey>,
        session: SessionRef,
        reason: EndReason,
    ) {
        // A session that is left to its record stays open at the server.
        let why = match self.is_left_to_record(setup, key, reason) {
            true => EndReason::Retained,
            false => reason,
        };
        setup.server.metrics.closes.increment(why);
        self.emit(Event::SessionClosed { session, why });
    }

    pub(super) fn emit(&self, event: Event) {
        self.context.events.emit(event);
    }

    pub(super) fn report_joined(
        &self,
        session: &SessionRef,
        origin: SessionOrigin,
        took: Duration,
        heal: Option<HealInfo>,
    ) {
        let session = || session.clone();
        if origin == SessionOrigin::Spare {
            self.emit(Event::SpareTaken { session: session() });
        }
        if let Some(heal) = heal {
            self.emit(Event::SessionHealed {
                session: session(),
                from: heal.lost_generation.number(),
                state_lost: heal.state_lost,
                took,
            });
        }
        self.emit(Event::SessionOpened {
            session: session(),
            how: open_result_of(origin),
            took,
        });
    }

    pub(crate) fn record_open_failure(
        &self,
        server: &ServerState,
        session: SessionRef,
        diagnostic: &Diagnostic,
        took: Duration,
    ) {
        server.metrics.open_time.record_time(took);
        let result = open_failure_of(diagnostic.code);
        server.metrics.opens.increment(result);
        server.note_failure(diagnostic);
        self.report_open_failure(session, diagnostic);
    }

    fn report_open_failure(&self, session: SessionRef, diagnostic: &Diagnostic) {
        self.emit(Event::OpenFailed {
            session,
            code: diagnostic.code,
            reason: diagnostic.reason,
            what: one_line_summary(diagnostic),
        });
    }

    pub(super) fn record_check(
        &self,
        server: &ServerState,
        session: SessionRef,
        health: HealthCheckResult,
        took: Duration,
    ) {
        let found = CheckResult::from(health);
        server.metrics.checks.increment(found);
        server.metrics.check_time.record_time(took);
        if health != HealthCheckResult::Alive {
            self.emit(Event::CheckFailed { session, found });
        }
    }

    pub(super) fn record_loss(&self, setup: &SessionSetup, session: SessionRef, why: EndReason) {
        if setup.is_process() {
            setup.server.metrics.child_restarts.increment();
        }
        setup.server.forget_lists();
        // The server reported nothing; closing the session is an event of its own.
        if why == EndReason::ByOperator {
            return;
        }
        let cause = if why == EndReason::CheckFailed {
            HealCause::CheckFailed
        } else if setup.is_process() {
            HealCause::ChildExit
        } else {
            HealCause::Reported(SessionGoneForm::NotFound)
        };
        self.emit(Event::SessionGone { session, cause });
    }

    /// Reports a session that its server may still hold; `closed` is none if closing timed out.
    pub(super) fn report_unfinished_close(
        &self,
        setup: &SessionSetup,
        key: Option<&PoolKey>,
        line: &PooledSession,
        closed: Option<Result<(), Diagnostic>>,
    ) {
        let what = match closed {
            Some(Ok(())) => return,
            Some(Err(diagnostic)) => diagnostic.message,
            None => "it did not close in time".to_owned(),
        };
        let mut session = key_ref(&setup.server.name, key);
        session.generation = Some(line.generation.load(Ordering::Relaxed));
        session.session = line.session_id().map(ShortId::from_session_id);
        let what = Arc::from(what);
        self.emit(Event::SessionNotEnded { session, what });
    }

    /// Counts how a child ended. A child that ended by itself, or had to be ended for what it did,
    /// is an event too.
    pub(super) fn record_child_exit(
        &self,
        setup: &SessionSetup,
        key: Option<&PoolKey>,
        report: &ChildReport,
    ) {
        let how = match report.exit_status {
            None if report.loss_cause.is_some() => ChildEnd::Failed,
            None => ChildEnd::Closed,
            Some(ChildExit::Code(0)) => ChildEnd::Finished,
            Some(ChildExit::Code(_) | ChildExit::Unknown) => ChildEnd::Failed,
            Some(ChildExit::Signal(_)) => ChildEnd::Killed,
        };
        setup.server.metrics.child_ends.increment(how);
        let ended = || Some(format!("{}: {}", report.exit.as_ref()?, report.stderr_tail));
        if let Some(what) = report.loss_cause.clone().or_else(ended) {
            self.emit(Event::ChildExited {
                session: key_ref(&setup.server.name, key),
                how,
                what: Arc::from(what),
            });
        }
    }

    pub(super) fn record_store_result(
        setup: &SessionSetup,
        operation: StoreOperation,
        result: StoreResult,
        began: Instant,
    ) {
        let metrics = &setup.server.metrics;
        metrics.store.increment(operation, result);
        if matches!(result, StoreResult::Failed | StoreResult::TimedOut) {
            metrics.last_store_failure.record_now();
        }
        let took = clock::now().saturating_duration_since(began);
        metrics.store_time.record_time(took);
    }

    /// Reports a store that failed; the session goes on without it.
    pub(super) fn report_store_failure(
        &self,
        setup: &SessionSetup,
        operation: StoreOperation,
        diagnostic: &Diagnostic,
    ) {
        let server = Arc::clone(&setup.server.name);
        let what = Arc::from(diagnostic.cause.as_deref().unwrap_or(&diagnostic.message));
        self.emit(match diagnostic.code == Code::RecordRefused {
            true => Event::RecordRefused { server, what },
            false => Event::StoreFailed {
                server,
                operation,
                what,
            },
        });
    }

    /// Reports, where a store has no record, whether the secrets were replaced since it was
    /// written.
    pub(crate) async fn detect_replaced_secrets(&self, server: &ServerState, records: &Records) {
        if records.are_all_foreign().await {
            let server = Arc::clone(&server.name);
            self.emit(Event::SecretsReplaced { server });
        }
    }

    /// Notes whether the credential of a caller is ready. What callers hand in themselves says
    /// nothing about the server, and neither does a credential of one identity.
    pub(crate) fn record_credential_result(
        &self,
        server: &ServerState,
        who: &CallerIdentity,
        ready: &Result<(), Diagnostic>,
    ) {
        if who.request_credential.is_some() {
            return;
        }
        if !server.has_identity_credentials() {
            server.note_credential_result(ready);
        }
        if let Err(diagnostic) = ready
            && diagnostic.code == Code::CredentialUnavailable
        {
            self.report_open_failure(identity_ref(server, who.id), diagnostic);
        }
    }

    pub(crate) fn record_breaker_changes(
        &self,
        server: &ServerState,
        whose: Identity,
        changes: BreakerTransitions,
    ) {
        for (scope, change) in changes {
            self.record_breaker_change(server, Some(KeyOwner::Identity(whose)), scope, change);
        }
    }

    pub(super) fn record_breaker_change(
        &self,
        server: &ServerState,
        owner: Option<KeyOwner>,
        scope: Blame,
        change: BreakerTransition,
    ) {
        let (scope, identity) = match scope {
            Blame::Identity => (
                BreakerScope::Identity,
                owner.and_then(Fingerprint::from_owner),
            ),
            Blame::Server | Blame::Nobody => (BreakerScope::Server, None),
        };
        let retry_in = match change {
            BreakerTransition::Opened(pause) => Some(pause),
            BreakerTransition::Closed | BreakerTransition::HalfOpened => None,
        };
        let state = change.state();
        server.metrics.breaker_changes.increment(scope, state);
        self.emit(Event::BreakerChanged {
            server: Arc::clone(&server.name),
            scope,
            identity,
            state,
            reason: retry_in.and_then(|_| server.failure_reason()),
            retry_in,
        });
    }
}

pub(crate) fn record_refusal(
    server: &ServerState,
    diagnostic: &Diagnostic,
    waited: Option<Duration>,
) {
    let metrics = &server.metrics;
    metrics.acquires.increment(AcquireOutcome::Refused);
    let is_late = matches!(diagnostic.code, Code::PoolFull | Code::Deadline);
    let is_rejection = matches!(
        diagnostic.code,
        Code::Overloaded | Code::BreakerOpen | Code::Draining | Code::Closed | Code::RunEnded
    );
    // A failed opening is counted as one.
    if is_late || is_rejection {
        metrics.refusals.increment(diagnostic.code);
    }
    if let Some(waited) = waited.filter(|_| is_late) {
        metrics.wait_timeouts.increment();
        metrics.wait_time.record_time(waited);
    }
}

pub(super) fn record_open(setup: &SessionSetup, origin: SessionOrigin, took: Duration) {
    let metrics = &setup.server.metrics;
    metrics.open_time.record_time(took);
    metrics.opens.increment(open_result_of(origin));
    setup.server.note_opened();
    // The child of a spare was counted when it was started.
    if setup.is_process() && origin == SessionOrigin::Fresh {
        metrics.child_starts.increment();
    }
}

impl From<HealthCheckResult> for CheckResult {
    fn from(health: HealthCheckResult) -> Self {
        match health {
            HealthCheckResult::Alive => Self::Alive,
            HealthCheckResult::Gone => Self::Gone,
            HealthCheckResult::TimedOut => Self::Silent,
            HealthCheckResult::Refused => Self::Refused,
            HealthCheckResult::Unreachable => Self::Unreachable,
        }
    }
}

const fn open_result_of(origin: SessionOrigin) -> OpenResult {
    match origin {
        SessionOrigin::Fresh => OpenResult::Opened,
        SessionOrigin::Spare => OpenResult::Spare,
        SessionOrigin::Restored => OpenResult::Resumed,
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "most failures count alike")]
const fn open_failure_of(code: Code) -> OpenResult {
    match code {
        Code::CannotReach => OpenResult::Unreachable,
        Code::CredentialRefused => OpenResult::CredentialRefused,
        Code::Deadline => OpenResult::TimedOut,
        _ => OpenResult::Failed,
    }
}

pub(super) fn store_failure_of(diagnostic: &Diagnostic) -> StoreResult {
    if diagnostic.code == Code::RecordRefused {
        StoreResult::Refused
    } else if diagnostic.reason == Reason::Timeout {
        StoreResult::TimedOut
    } else {
        StoreResult::Failed
    }
}

/// The message with its innermost known cause. Callers learn less, so the event holds it.
fn one_line_summary(diagnostic: &Diagnostic) -> Arc<str> {
    // The folders where a program was looked for fill a page, and `doctor` lists them.
    let is_short = diagnostic.reason != Reason::ProgramMissing;
    let cause = diagnostic.cause.as_deref().filter(|_| is_short);
    let mut line = diagnostic.message.clone();
    if let Some(cause) = cause.and_then(|cause| cause.lines().last()) {
        line = format!("{line}: {cause}");
    }
    // Nothing else tells where a refused token came from.
    let is_refused = matches!(diagnostic.reason, Reason::Unauthorized | Reason::Forbidden);
    if let Some(hint) = diagnostic.hint.as_deref().filter(|_| is_refused) {
        line = format!("{line}; {hint}");
    }
    Arc::from(line)
}

pub(super) fn session_ref(event: &PoolEvent<'_>, generation: Option<Generation>) -> SessionRef {
    let mut session = key_ref(&event.target.server, event.key);
    session.generation = generation.map(Generation::number);
    session
}

fn key_ref(server: &Arc<str>, key: Option<&PoolKey>) -> SessionRef {
    match key {
        Some(key) => SessionRef::for_key(key),
        None => SessionRef::for_server(Arc::clone(server)),
    }
}

/// A session that an identity does not have yet.
pub(crate) fn identity_ref(server: &ServerState, whose: Identity) -> SessionRef {
    let mut session = SessionRef::for_server(Arc::clone(&server.name));
    session.identity = Some(Fingerprint::from(whose));
    session
}
