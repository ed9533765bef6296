//! The path of a call: route, lease, send, decide, heal.
//!
//! There is no other way to a server, and [`warmline_core::retry::decide_retry`] alone decides whether a
//! request is sent again.
//!
//! A call on a held session costs two lookups in the run's session table, two short locks of the pool
//! entry (lease, settle) and two of the run (begin, end). It takes no lock that an unrelated call also
//! takes, and needs no task, no JSON tree and no round trip of ours. Awaiting the builder allocates its
//! future once. `benches/lease.rs` and `tests/cost` hold the numbers.

pub(crate) mod builder;
mod client_state;
mod failure;
mod lease;
pub(crate) mod lists;
pub(crate) mod output;
pub(crate) mod route;
pub(crate) mod server_handle;
pub(crate) mod stream;

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::SemaphorePermit;
use warmline_core::delivery::{Delivery, Idempotency};
use warmline_core::error::code::Reason;
use warmline_core::exchange::{
    AttemptResult, Deadlines, DeliveryFailure, Diagnostic, Reply, Request,
};
use warmline_core::pool::{EndReason, LeaseMode, LeaseOutcome};
use warmline_core::retry::{self, AttemptHistory, IdempotencyQuery};
use warmline_core::state_loss::StateLossAction;

use crate::context::draining_diagnostic;
use crate::engine::random_hex;
use crate::error::Result;
use crate::metrics::{CallOutcome, CallRecorder, HealCause, HealResult};
use crate::run_state::{self, RunGuard, RunUse};
use crate::server_state::ServerState;
use crate::session_factory::{CallCountGuard, SessionLease};
use crate::settings::ServerSettings;
use warmline_platform::clock::{self, Instant};

use builder::{CallRequest, CallResponse};
use client_state::PendingSubscribeGuard;
pub(crate) use client_state::send_cleanup_requests;
use failure::FailedAttempt;
use route::{Route, known_list_owner, list_owner};
use server_handle::CallerContext;
use server_handle::ExclusiveSession;
use stream::AttemptListener;

/// Executes a call until its result, on the session that its caller holds or on one that the pool
/// leases.
///
/// # Cancel safety
/// Dropping it cancels the call as the server's era demands, settles the lease and leaves the run.
pub(crate) async fn execute(
    caller: &CallerContext,
    server: &Arc<ServerState>,
    exclusive: Option<&ExclusiveSession>,
    request: CallRequest,
) -> Result<CallResponse> {
    let metrics = CallRecorder::start(&server.metrics, &request.method);
    let mut call = CallState::begin(caller, server, request, Some(metrics))?;
    call.exclusive = exclusive;
    server.unbudgeted_calls.fetch_add(1, Ordering::Relaxed);
    // Dropped after the call: when the calls of a run are over, so are their leases.
    let admitted = admit(caller).map_err(|stopped| call.stopped_error(stopped))?;
    let on_lease = exclusive.map(|held| held.holder.begin_call());
    let mut overhead = Duration::ZERO;
    // Pinned here, so that the wrappers hold no copy of the future.
    let finished = run_until_stopped(caller, time_polls(pin!(call.run()), &mut overhead)).await;
    drop((admitted, on_lease));
    match finished {
        Ok(result) => {
            server.metrics.overhead_time.record_time(overhead);
            result
        },
        Err(stopped) => Err(call.stopped_error(stopped)),
    }
}

/// Measures how long our own code runs for a future: all polls, without what passes between them. Work
/// of other tasks does not count.
fn time_polls<F: Future>(
    mut future: Pin<&mut F>,
    time: &mut Duration,
) -> impl Future<Output = F::Output> {
    poll_fn(move |context| {
        let began = clock::now();
        let polled = future.as_mut().poll(context);
        *time += clock::now().saturating_duration_since(began);
        polled
    })
}

enum CallStop {
    /// Its run has ended.
    NotAdmitted(Diagnostic),
    /// The run or the engine cancelled it.
    Cancelled(Diagnostic),
}

/// Counts a call as one of its run, unless the run has ended.
fn admit(caller: &CallerContext) -> Result<Option<RunGuard>, CallStop> {
    let run = caller.run.as_ref();
    let admitted = run.map(|run| run.admit(&caller.engine.context, RunUse::Call));
    admitted.transpose().map_err(CallStop::NotAdmitted)
}

/// Awaits a call until its run or the engine cancels it.
async fn run_until_stopped<F: Future>(
    caller: &CallerContext,
    call: F,
) -> Result<F::Output, CallStop> {
    let engine = &caller.engine;
    let Some(run) = &caller.run else {
        let finished = engine.run_until_cancelled(call).await;
        return finished.ok_or_else(|| CallStop::Cancelled(draining_diagnostic()));
    };
    run.cancel.run_until_set(call).await.ok_or_else(|| {
        CallStop::Cancelled(match engine.context.closed_diagnostic() {
            None => run_state::ended_diagnostic(&run.name),
            Some(_) => draining_diagnostic(),
        })
    })
}

/// Checks the rules in force before a byte is sent.
fn check_allowed(
    caller: &CallerContext,
    server: &Arc<ServerState>,
    request: &CallRequest,
) -> Result<(), Diagnostic> {
    caller.engine.check_open()?;
    let rules = caller.engine.ruling_settings(server);
    rules.check_enabled(&server.name)?;
    let policy = &rules.policy;
    let what = match &request.tool {
        _ if policy.allow.is_empty() && policy.deny.is_empty() => return Ok(()),
        Some(tool) if !policy.allows_tool(tool) => {
            format!("`{tool}` of `{}` may not be called", server.name)
        },
        // The server might read a denied name into it.
        None if request.is_tool_call() => {
            format!("a call of `{}` has to name its tool by a text", server.name)
        },
        Some(_) | None => return Ok(()),
    };
    Err(Diagnostic::new(Reason::NotAllowed, what))
}

#[expect(
    clippy::struct_excessive_bools,
    reason = "independent facts, each of which only turns from false to true"
)]
struct CallState<'a> {
    caller: &'a CallerContext,
    server: &'a Arc<ServerState>,
    /// The settings in force when the call began. What decides on a retry reads the current ones.
    settings: Arc<ServerSettings>,
    request: CallRequest,
    changes_client_state: bool,
    deadlines: Deadlines,
    history: AttemptHistory,
    /// Whether the current attempt may have reached the server.
    in_flight: bool,
    deadline: Instant,
    /// The time spent in queues and in pauses that the server asked for.
    queued_for: Duration,
    generation: Option<u32>,
    rerouted: bool,
    /// The sign of the lost session that this retry follows.
    heal_cause: Option<HealCause>,
    /// State was lost with an ended key, and without a run only this call can report it.
    lost_state_without_run: bool,
    saw_session_lost: bool,
    /// The delivery of the last attempt, until the next one begins.
    last_delivery: Option<Delivery>,
    lease_mode: LeaseMode,
    exclusive: Option<&'a ExclusiveSession>,
    /// The turn on a serial server's lease.
    serial_permit: Option<SemaphorePermit<'a>>,
    pending_subscribe: Option<Box<PendingSubscribeGuard>>,
    /// None for what is no call of a user.
    metrics: Option<CallRecorder>,
}

enum AttemptOutcome {
    Done(Result<CallResponse>),
    Retry(Request),
}

impl<'a> CallState<'a> {
    fn begin(
        caller: &'a CallerContext,
        server: &'a Arc<ServerState>,
        request: CallRequest,
        metrics: Option<CallRecorder>,
    ) -> Result<Self> {
        let settings = server.settings.load_full();
        let deadlines = request.deadlines(&settings.policy);
        let mut call = Self {
            caller,
            server,
            settings,
            changes_client_state: request.changes_client_state(),
            request,
            deadlines,
            history: AttemptHistory::default(),
            in_flight: false,
            deadline: clock::after(deadlines.total),
            queued_for: Duration::ZERO,
            generation: None,
            rerouted: false,
            heal_cause: None,
            lost_state_without_run: false,
            saw_session_lost: false,
            last_delivery: None,
            lease_mode: LeaseMode::Shared,
            exclusive: None,
            serial_permit: None,
            pending_subscribe: None,
            metrics,
        };
        if let Err(diagnostic) = check_allowed(caller, server, &call.request) {
            return Err(call.reject(diagnostic));
        }
        if deadlines.total.is_zero() {
            let diagnostic = call.timeout_diagnostic("its timeout is zero");
            return Err(call.reject(diagnostic));
        }
        Ok(call)
    }

    async fn run(&mut self) -> Result<CallResponse> {
        let mut request = self.build_request();
        loop {
            let (route, lease) = self.acquire_lease().await?;
            if let Err(error) = self.check_isolation(&route) {
                lease.settle(LeaseOutcome::SessionEnded(EndReason::Bug));
                return Err(error);
            }
            let outcome = match self.changes_client_state {
                false => self.attempt(&route, lease, request).await,
                true => Box::pin(self.attempt_client_state_change(&route, lease, request)).await,
            };
            match outcome {
                AttemptOutcome::Done(result) => return result,
                AttemptOutcome::Retry(again) => request = again,
            }
        }
    }

    fn build_request(&self) -> Request {
        let asked = &self.request;
        let params = match &asked.call_id {
            Some(id) => retry::with_attempt_meta(&asked.params, id, 1),
            None if self.settings.policy.dedupe_by_call_id => {
                retry::with_attempt_meta(&asked.params, &random_hex(), 1)
            },
            None => asked.params.clone(),
        };
        let request = Request {
            method: asked.method.clone(),
            params,
            headers: Vec::new(),
            deadlines: self.deadlines,
            origin: asked.origin,
        };
        asked
            .headers
            .iter()
            .fold(request, |request, (name, value)| {
                request.with_header(name.clone(), value.clone())
            })
    }

    async fn attempt(
        &mut self,
        route: &Route,
        lease: SessionLease,
        request: Request,
    ) -> AttemptOutcome {
        let setup = route.setup();
        let action = self.state_loss_action(&lease);
        if matches!(action, StateLossAction::Fail | StateLossAction::EndRun) {
            return AttemptOutcome::Done(Err(self.refuse_after_loss(route, lease, action)));
        }
        let idempotency = self.classify_idempotency(route, None);
        let copy = matches!(idempotency, Idempotency::Idempotent).then(|| request.clone());
        if let Err(diagnostic) = self.wait_for_cooldown().await {
            lease.settle(LeaseOutcome::Unused);
            return AttemptOutcome::Done(Err(self.unsent_error(diagnostic)));
        }
        // Read after the pause, which may have renewed the token.
        let credential_epoch = setup.credential.as_ref().map(|it| it.epoch());
        let listener = AttemptListener::new(&self.request, self.caller.identity.id, setup);
        let began = clock::now();
        if let Some(metrics) = &mut self.metrics {
            metrics.record_attempt();
        }
        self.last_delivery = None;
        self.in_flight = true;
        let tool = self.request.tool.as_ref();
        let count_guard = tool.map(|_| CallCountGuard(setup));
        let request = request.with_deadlines(Deadlines {
            idle: self.deadlines.idle,
            total: self.time_left(began).min(self.deadlines.total),
        });
        let result = lease.session.upstream.call(request, &listener).await;
        drop(count_guard);
        self.in_flight = false;
        match result {
            AttemptResult::Answered(reply) => {
                let took = clock::now().saturating_duration_since(began);
                self.server.record_answer(took, || {
                    let now = self.caller.engine.tick();
                    lease.session.age(now)
                });
                self.handle_reply(route, lease, reply, (action, idempotency))
            },
            AttemptResult::Failed(failure) => {
                let (delivery, request) = match failure.delivery_failure {
                    DeliveryFailure::Unsent(request) => (Delivery::Unsent, Some(request)),
                    DeliveryFailure::Refused(request) => (Delivery::Refused, Some(request)),
                    DeliveryFailure::Unknown => (Delivery::Unknown, copy),
                };
                self.last_delivery = Some(delivery);
                self.saw_session_lost |= lease::lost_session_state(&lease, &failure.diagnostic);
                let failed = FailedAttempt {
                    delivery,
                    request,
                    diagnostic: failure.diagnostic,
                    has_streamed: listener.has_streamed(),
                    credential_epoch,
                    idempotency,
                };
                // Boxed, so that a call without failure has a small future.
                Box::pin(self.handle_failure(route, lease, failed)).await
            },
        }
    }

    fn time_left(&self, now: Instant) -> Duration {
        self.deadline.saturating_duration_since(now)
    }

    fn classify_idempotency(&self, route: &Route, hints: Option<retry::ToolHints>) -> Idempotency {
        let cached = || {
            let tool = self.request.tool.as_ref()?;
            let owner = match route.pool_entry() {
                Some(entry) => list_owner(self.caller, self.server, Some(entry)),
                // The list comes from another session.
                None => known_list_owner(self.caller, self.server),
            };
            self.server.tool_lists.peek(&owner)?.hints(tool)
        };
        let query = IdempotencyQuery {
            method: &self.request.method,
            params: &self.request.params,
            hints: hints.or_else(cached),
            caller: self.request.idempotency,
        };
        retry::call_idempotency(&query, &self.server.settings.load().policy)
    }

    fn handle_reply(
        &mut self,
        route: &Route,
        mut lease: SessionLease,
        reply: Reply,
        (action, idempotency): (StateLossAction, Idempotency),
    ) -> AttemptOutcome {
        let setup = route.setup();
        // An error reply may leave state, too.
        let left_state = matches!(idempotency, Idempotency::NotIdempotent)
            && self.request.tool.is_some()
            && setup.note_state_left(&lease.session);
        let result = match reply {
            Reply::Result(result) => result,
            Reply::Error(raw) => {
                self.settle_lease(route, lease, left_state);
                return AttemptOutcome::Done(Err(self.protocol_error(&raw)));
            },
        };
        let changed = self.changes_client_state.then(|| {
            self.record_client_state(route);
            Arc::clone(&lease.session)
        });
        let (result, state_lost) = self.annotate_result((route, &mut lease), result, action);
        if let Some(cause) = self.heal_cause.take() {
            self.server
                .metrics
                .heals
                .increment(cause, HealResult::Healed);
        }
        self.settle_lease(route, lease, left_state);
        match changed {
            Some(session) if self.must_repeat_on_new_session(route, &session) => {
                AttemptOutcome::Retry(self.build_request())
            },
            _ => AttemptOutcome::Done(Ok(self.respond(route, result, state_lost))),
        }
    }

    fn respond(&mut self, route: &Route, result: Bytes, state_lost: bool) -> CallResponse {
        let outcome = outcome_of_result(&result);
        if let Some(metrics) = self.metrics.take() {
            metrics.finish_answered(outcome);
        }
        let has_failed = matches!(outcome, CallOutcome::ToolError);
        CallResponse {
            unknown_tool: has_failed
                .then(|| self.detect_unknown_tool(&result))
                .flatten(),
            result,
            server: Arc::clone(&self.server.name),
            tool: self.request.tool.clone(),
            attempts: self.history.attempts(),
            generation: self.generation.unwrap_or_default(),
            state_lost,
            server_profile: route.setup().server_profile,
        }
    }

    /// Settles a lease after a reply. State that a run left in a key that ended meanwhile is lost.
    fn settle_lease(&self, route: &Route, lease: SessionLease, left_state: bool) {
        let ended = lease.settle_and_check_end(LeaseOutcome::Answered {
            stateful: left_state,
        });
        if left_state
            && let Some(ended) = ended
            && let (Some(run), Some(entry)) = (&self.caller.run, route.pool_entry())
        {
            run.note_state_left(entry, ended);
        }
    }
}

/// Whether a result says that the tool failed. Only a result with the member's name is parsed.
fn outcome_of_result(result: &[u8]) -> CallOutcome {
    #[derive(serde::Deserialize)]
    struct ToolErrorFlag {
        #[serde(default, rename = "isError")]
        is_error: bool,
    }
    let named = memchr::memmem::find(result, b"\"isError\"").is_some();
    let failed =
        named && serde_json::from_slice::<ToolErrorFlag>(result).is_ok_and(|flag| flag.is_error);
    if failed {
        CallOutcome::ToolError
    } else {
        CallOutcome::Ok
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_is_waited_for_is_not_counted_and_what_runs_is() {
        let work = async {
            tokio::time::advance(Duration::from_millis(2)).await;
            clock::sleep(Duration::from_secs(60)).await;
        };
        let (began, mut time) = (clock::now(), Duration::ZERO);
        time_polls(pin!(work), &mut time).await;
        assert!(began.elapsed() >= Duration::from_secs(60));
        assert_eq!(time, Duration::from_millis(2));
    }
}
