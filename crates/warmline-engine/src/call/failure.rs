//! Failed attempts and the errors that calls end with: what a failure shows, whether the request is sent
//! again, and what is repaired before. An unknown tool is recognised without another request.

use std::sync::Arc;

use bytes::Bytes;
use warmline_core::delivery::{Delivery, Idempotency};
use warmline_core::error::code::{Code, Reason};
use warmline_core::exchange::{Diagnostic, Request};
use warmline_core::policy::SessionMode;
use warmline_core::pool::{EndReason, LeaseOutcome};
use warmline_core::protocol::session_gone::{SessionGoneForm, SessionGoneRemedy};
use warmline_core::protocol::unknown_tool::is_unknown_tool_message;
use warmline_core::retry::{self, Attempt, FailureClass, RetryDecision, RetryPreparation};

use super::lists::{ListFreshness, tool_list};
use super::route::{self, Route};
use super::{AttemptOutcome, CallState, CallStop, known_list_owner};
use crate::credentials::{Credential, RefreshOutcome};
use crate::engine::random_hex;
use crate::error::{Error, ErrorContext};
use crate::events::{Event, Fingerprint, SessionRef};
use crate::metrics::{
    CallOutcome, CallRecorder, HealCause, HealResult, MethodLabel, RefreshResult,
};
use crate::session_factory::SessionLease;
use crate::tools::{self, ToolList};
use warmline_platform::clock;

impl CallState<'_> {
    pub(super) async fn handle_failure(
        &mut self,
        route: &Route,
        lease: SessionLease,
        mut failed: FailedAttempt,
    ) -> AttemptOutcome {
        let retired = lease.session.retired_reason();
        self.note_lost_session_age(&lease, &failed.diagnostic);
        let outcome = lease_outcome(&failed.diagnostic, retired);
        let class = self.failure_class(&failed.diagnostic, retired, outcome);
        let mut idempotency = failed.idempotency;
        lease.settle(outcome);
        // The tools may not be listed yet: now the tool's own hints matter.
        if failed.delivery == Delivery::Unknown
            && idempotency == Idempotency::NotIdempotent
            && !failed.has_streamed
            && class != FailureClass::Permanent
        {
            idempotency = self.classify_idempotency(route, self.fetch_tool_hints().await);
        }
        self.note_failure(route, &failed.diagnostic);
        if let (Some(held), LeaseOutcome::SessionEnded(_)) = (self.exclusive, outcome) {
            held.holder.release();
            return AttemptOutcome::Done(Err(self.lease_lost_error(route, failed)));
        }
        let credential = route.setup().credential.as_ref();
        failed.diagnostic = Credential::name_source_in(credential, failed.diagnostic);
        let attempt = self.describe_attempt(&failed, idempotency, class, credential);
        let now = self.caller.engine.tick();
        let next = self
            .server
            .with_retry_budget(now, |budget| budget.decide_retry(&attempt, now));
        let RetryDecision::Retry {
            preparation, delay, ..
        } = next
        else {
            return AttemptOutcome::Done(Err(self.final_error(failed)));
        };
        let again = failed.request.take();
        let again = again.unwrap_or_else(|| self.build_request());
        if preparation == RetryPreparation::RefreshCredential
            && let (Some(credential), Some(epoch)) = (credential, failed.credential_epoch)
            && !self.refresh_credential(credential, epoch).await
        {
            return AttemptOutcome::Done(Err(self.final_error(failed)));
        }
        self.record_retry(route, &failed, preparation);
        // Even the shortest sleep would let others pass in the queue.
        if !delay.is_zero() {
            clock::sleep(delay).await;
        }
        // A pause that the server asked for counts as queued.
        if failed.diagnostic.retry_after.is_some() {
            self.queued_for = self.queued_for.saturating_add(delay);
        }
        let id = self.request.call_id.clone().unwrap_or_else(random_hex);
        let params = retry::with_attempt_meta(&again.params, &id, self.history.attempts());
        AttemptOutcome::Retry(Request { params, ..again })
    }

    fn describe_attempt(
        &self,
        failed: &FailedAttempt,
        idempotency: Idempotency,
        failure: FailureClass,
        credential: Option<&Arc<Credential>>,
    ) -> Attempt {
        Attempt {
            delivery: failed.delivery,
            idempotency,
            failure,
            retry_after: failed.diagnostic.retry_after,
            history: self.history,
            max_session_replacements: self.server.settings.load().policy.heals_per_call,
            has_streamed: failed.has_streamed,
            can_refresh_credential: credential.is_some_and(|it| it.can_refresh()),
            time_left: self.time_left(clock::now()),
            max_retry_after: self.remaining_wait(),
            typical_latency: self.server.latency.median(),
            // The budget fills it in.
            has_budget: false,
            random: fastrand::u32(..),
        }
    }

    fn note_lost_session_age(&self, lease: &SessionLease, diagnostic: &Diagnostic) {
        let session = &lease.session;
        if diagnostic.session_gone.is_some() && session.mark_loss_seen() {
            let now = self.caller.engine.tick();
            self.server.note_session_lost(session.age(now), now);
        }
    }

    fn record_retry(
        &mut self,
        route: &Route,
        failed: &FailedAttempt,
        preparation: RetryPreparation,
    ) {
        let reason = failed.diagnostic.reason;
        self.history.record_retry(failed.delivery, preparation);
        self.server.metrics.resends.increment(reason);
        let form = failed.diagnostic.session_gone;
        self.heal_cause = form.map(HealCause::Reported).or(self.heal_cause);
        let session = match route {
            Route::Pooled(entry) => SessionRef::for_key(&entry.key),
            Route::PerCall(_) => SessionRef::for_server(Arc::clone(&self.server.name)),
        };
        self.caller.engine.context.events.emit(Event::CallRetried {
            session,
            reason,
            attempt: self.history.attempts(),
        });
    }

    fn wants_forbidden_session(&self, diagnostic: &Diagnostic) -> bool {
        let remedy = diagnostic.session_gone.map(SessionGoneForm::remedy);
        remedy == Some(SessionGoneRemedy::Open)
            && self.settings.policy.sessions == SessionMode::Never
    }

    /// The class of a failure. Nothing is healed under an exclusive lease, nor where the policy forbids
    /// sessions.
    fn failure_class(
        &self,
        diagnostic: &Diagnostic,
        retired: Option<Reason>,
        outcome: LeaseOutcome,
    ) -> FailureClass {
        let has_lost_lease =
            self.exclusive.is_some() && matches!(outcome, LeaseOutcome::SessionEnded(_));
        if has_lost_lease || self.wants_forbidden_session(diagnostic) {
            return FailureClass::Permanent;
        }
        retry::classify_failure(diagnostic, retired)
    }

    /// Refreshes a credential within the deadline of the call; true if there is a new token to try.
    async fn refresh_credential(&self, credential: &Credential, epoch: u64) -> bool {
        let result = match clock::timeout_at(self.deadline, credential.refresh(epoch)).await {
            Ok(Ok(RefreshOutcome::NewToken)) => RefreshResult::Renewed,
            Ok(Ok(RefreshOutcome::SameToken)) => RefreshResult::Unchanged,
            Ok(Err(diagnostic)) if diagnostic.reason == Reason::Timeout => RefreshResult::TimedOut,
            Ok(Err(_)) | Err(_) => RefreshResult::Failed,
        };
        self.server.metrics.refreshes.increment(result);
        let context = &self.caller.engine.context;
        context.events.emit(Event::CredentialRefreshed {
            server: Arc::clone(&self.server.name),
            identity: Some(Fingerprint::from(self.caller.identity.id)),
            result,
        });
        result == RefreshResult::Renewed
    }

    fn note_failure(&mut self, route: &Route, diagnostic: &Diagnostic) {
        if is_unreachable(diagnostic.reason) {
            // The next call, check or opening that reaches it ends this.
            self.server.note_health(&Err(diagnostic.clone()));
        }
        let busy = [Reason::RateLimited, Reason::Unavailable];
        if let Some(pause) = diagnostic.retry_after
            && busy.contains(&diagnostic.reason)
        {
            let (engine, identity) = (&self.caller.engine, self.caller.identity.id);
            self.server.start_cooldown(identity, engine.tick(), pause);
        }
        if diagnostic.reason == Reason::Version {
            self.forget_server_facts(route);
        }
        let Some(dialect) = diagnostic.session_gone else {
            return;
        };
        self.server.metrics.session_gone.increment(dialect);
        if matches!(
            dialect.remedy(),
            SessionGoneRemedy::Open | SessionGoneRemedy::GoStateless
        ) {
            self.forget_server_facts(route);
        }
        self.server.forget_lists();
        // A server that forgot one session may have forgotten others: they are checked before their
        // next use. A session that is replaced already shows nothing.
        let Route::Pooled(entry) = route else { return };
        let mut sessions = entry.sessions().into_iter();
        if sessions.all(|seen| Some(seen.generation.number()) <= self.generation) {
            let revision = route.setup().location.revision;
            let pool = &self.caller.engine.pool;
            pool.record_server_loss(&self.server.name, revision);
        }
    }

    /// The server changed its era or whether it keeps sessions: its old entry ends. A run with state
    /// there learns of the loss at its next route; a caller without a run only through this call.
    fn forget_server_facts(&mut self, route: &Route) {
        self.lost_state_without_run |=
            self.caller.run.is_none() && Self::loses_unreported_state(route);
        self.server.forget_discoveries();
        route::forget_route(self.caller, self.server);
        if let Route::Pooled(entry) = route {
            self.caller.engine.pool.end_entry(entry, EndReason::Gone);
        }
    }

    async fn fetch_tool_hints(&self) -> Option<retry::ToolHints> {
        let tool = self.request.tool.as_ref()?;
        // The caller decides first, and a list would wait for the session that the caller holds.
        if self.request.idempotency.is_some() || self.exclusive.is_some() {
            return None;
        }
        let trusts_hints = {
            let policy = &self.server.settings.load().policy;
            policy.trust_read_only_hint || !policy.trust_idempotent_hint.is_empty()
        };
        if !trusts_hints {
            return None;
        }
        let listing = tool_list(self.caller, self.server, ListFreshness::WithinTtl);
        let listed = clock::timeout_at(self.deadline, listing).await.ok()?;
        listed.ok()?.hints(tool)
    }

    pub(super) fn final_error(&mut self, failed: FailedAttempt) -> Error {
        if let Some(cause) = self.heal_cause.take() {
            let result = match failed.diagnostic.session_gone {
                Some(_) => HealResult::LostAgain,
                None => HealResult::Failed,
            };
            self.server.metrics.heals.increment(cause, result);
        }
        let delivery = self.history.overall_delivery(failed.delivery);
        let mut diagnostic = failed.diagnostic;
        if self.wants_forbidden_session(&diagnostic) {
            let hint =
                "this server wants a session, and `sessions = \"never\"` forbids one: use `auto`";
            diagnostic.hint = Some(hint.to_owned());
        }
        let names_it = [Code::Deadline, Code::BadAnswer, Code::AnswerLost];
        if delivery == Delivery::Unknown
            && diagnostic.code.usual_delivery() != Some(delivery)
            && !names_it.contains(&diagnostic.code)
        {
            diagnostic.code = Code::AnswerLost;
        }
        self.finish_with_error(diagnostic, delivery)
    }

    pub(super) fn protocol_error(&mut self, raw: &Bytes) -> Error {
        if let Some(metrics) = self.metrics.take() {
            metrics.finish_answered(CallOutcome::ProtocolError);
        }
        let mut error = Error::from_server_error(&self.server.name, &self.request.method, raw);
        if let (Some(reply), Some(tool)) = (error.server_error(), self.request.tool.as_deref())
            && (is_unknown_tool_message(&reply.message, tool)
                || (reply.code == INVALID_PARAMS
                    && self
                        .cached_tools()
                        .is_some_and(|known| !known.contains(tool))))
        {
            error = error.with_diagnostic(self.unknown_tool_diagnostic(tool));
        }
        error
            .with_context(self.error_context())
            .with_attempts(self.history.attempts())
    }

    /// The error of a call without an attempt.
    pub(super) fn reject(&mut self, diagnostic: Diagnostic) -> Error {
        self.finish_with_error(diagnostic, Delivery::Unsent)
            .with_attempts(0)
    }

    /// The error of a call that ends before its next attempt.
    pub(super) fn unsent_error(&mut self, diagnostic: Diagnostic) -> Error {
        let delivery = self.history.overall_delivery(Delivery::Unsent);
        self.finish_with_error(diagnostic, delivery)
    }

    /// The error of a call that the end of its run or of the engine stopped.
    pub(super) fn stopped_error(&mut self, stopped: CallStop) -> Error {
        let diagnostic = match stopped {
            CallStop::NotAdmitted(diagnostic) => return self.reject(diagnostic),
            CallStop::Cancelled(diagnostic) => diagnostic,
        };
        if self.metrics.as_ref().map(|call| call.method) == Some(MethodLabel::Listen) {
            // A stream that ends with its run has not failed.
            self.metrics = None;
        }
        let last = self.last_delivery.unwrap_or(Delivery::Unsent);
        let delivery = match self.in_flight {
            true => Delivery::Unknown,
            false => self.history.overall_delivery(last),
        };
        self.finish_with_error(diagnostic, delivery)
    }

    /// The error that ends the call, with metrics and an event.
    pub(super) fn finish_with_error(
        &mut self,
        diagnostic: Diagnostic,
        delivery: Delivery,
    ) -> Error {
        if diagnostic.reason == Reason::Internal {
            self.report_internal_error();
        }
        if let Some(metrics) = self.metrics.take() {
            self.report_failure(&metrics, &diagnostic, delivery);
            metrics.finish_failed(delivery, diagnostic.code);
        }
        // The session does not know the headers of a single call.
        let diagnostic = warmline_upstream::redact_headers(&self.request.headers, diagnostic);
        Error::new(diagnostic, delivery)
            .with_context(self.error_context())
            .with_attempts(self.history.attempts())
    }

    fn error_context(&self) -> ErrorContext {
        ErrorContext {
            server: Some(self.server.name.to_string()),
            method: Some(self.request.method.to_string()),
            tool: self.request.tool.as_ref().map(ToString::to_string),
            run: self.caller.run.as_ref().map(|run| run.name.to_string()),
            generation: self.generation,
            location: self.server.display_location(),
        }
    }

    fn report_failure(&self, metrics: &CallRecorder, diagnostic: &Diagnostic, delivery: Delivery) {
        let mut session = SessionRef::for_server(Arc::clone(&self.server.name));
        session.identity = Some(Fingerprint::from(self.caller.identity.id));
        let run = self.caller.run.as_ref();
        session.run = run.map(|run| Fingerprint::from(run.id));
        session.generation = self.generation;
        self.caller.engine.context.events.emit(Event::CallFailed {
            session,
            method: metrics.method,
            delivery,
            code: diagnostic.code,
            reason: diagnostic.reason,
            attempts: metrics.attempts,
            took: metrics.elapsed(),
        });
    }

    fn report_internal_error(&self) {
        let context = &self.caller.engine.context;
        context.metrics.engine.invariant_failures.increment();
        context.events.emit(Event::InvariantViolated {
            promise: "no call fails by a fault of Warmline",
            server: Some(Arc::clone(&self.server.name)),
        });
    }

    /// The diagnostic of a failed result that says the server has no such tool.
    pub(super) fn detect_unknown_tool(&self, result: &[u8]) -> Option<Box<Diagnostic>> {
        let tool = self.request.tool.as_deref()?;
        let text = only_text_block(result)?;
        is_unknown_tool_message(&text, tool)
            .then(|| Box::new(self.unknown_tool_diagnostic(tool).with_cause(text)))
    }

    fn unknown_tool_diagnostic(&self, tool: &str) -> Diagnostic {
        let known = self.cached_tools();
        if known.as_ref().is_some_and(|tools| tools.contains(tool)) {
            // The cached list is outdated.
            self.server.tool_lists.forget_all();
        }
        tools::unknown_tool(&self.server.name, tool, known.as_deref())
    }

    fn cached_tools(&self) -> Option<Arc<ToolList>> {
        let owner = known_list_owner(self.caller, self.server);
        self.server.tool_lists.peek(&owner)
    }
}

pub(super) struct FailedAttempt {
    pub(super) delivery: Delivery,
    pub(super) request: Option<Request>,
    pub(super) diagnostic: Diagnostic,
    pub(super) has_streamed: bool,
    pub(super) credential_epoch: Option<u64>,
    pub(super) idempotency: Idempotency,
}

pub(super) fn lease_outcome(diagnostic: &Diagnostic, retired: Option<Reason>) -> LeaseOutcome {
    // The end of a child, or of a stream that is the session, is the server's decision.
    let is_over = diagnostic.session_gone.is_some()
        || [Reason::SessionGone, Reason::Version].contains(&diagnostic.reason)
        || retired.is_some();
    match is_over {
        true => LeaseOutcome::SessionEnded(EndReason::Gone),
        false => LeaseOutcome::ConnectionFailed,
    }
}

const fn is_unreachable(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::Dns
            | Reason::ConnectRefused
            | Reason::ConnectTimeout
            | Reason::Unreachable
            | Reason::Tls
            | Reason::TlsClosed
    )
}

/// The JSON-RPC code by which most servers refuse an unknown tool.
const INVALID_PARAMS: i64 = -32602;

fn only_text_block(result: &[u8]) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct ToolResultText {
        content: Vec<TextBlock>,
    }
    #[derive(serde::Deserialize)]
    struct TextBlock {
        text: Option<String>,
    }
    let body: ToolResultText = serde_json::from_slice(result).ok()?;
    let [only] = <[TextBlock; 1]>::try_from(body.content).ok()?;
    only.text
}
