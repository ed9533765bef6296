//! The lease of a call: the caller's exclusive one, or one from the pool; and what a loss of its state
//! means for the call: an error, a note in its result, or nothing.
//!
//! Every lease carries the loss until it was reported to the run, or to any caller where there is no
//! run; the run knows of losses with ended keys. One result reports a loss. Where the policy forbids
//! going on, every call that knows of the loss or saw it happen is refused.

use std::pin::pin;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use warmline_core::delivery::Delivery;
use warmline_core::error::code::{Code, Reason};
use warmline_core::exchange::Diagnostic;
use warmline_core::pool::{LeaseMode, LeaseOutcome, QueuePosition};
use warmline_core::pool_key::{KeyOwner, Transport};
use warmline_core::state_loss::{self, NoticePlacement, ResultMeta, StateLossAction};

use super::failure::{FailedAttempt, lease_outcome};
use super::route::{self, Route};
use super::{CallState, admit, run_until_stopped};
use crate::engine::end_in_background;
use crate::error::{Error, Result};
use crate::events::{Event, Fingerprint, RunEnd, SessionRef, ShortId};
use crate::lease::{LEASE_OVER_HINT, LeaseHolder};
use crate::metrics::AcquireOutcome;
use crate::session_factory::SessionLease;
use warmline_platform::clock;
use warmline_pool::{AcquireKind, LeaseDeadlines, PoolEntry};

impl<'a> CallState<'a> {
    pub(super) async fn acquire_lease(&mut self) -> Result<(Route, SessionLease)> {
        loop {
            let seen = self.server.discovery_epoch();
            match self.try_acquire_lease().await {
                Ok((route, mut lease)) => {
                    self.note_acquired(&route, &mut lease);
                    return Ok((route, lease));
                },
                // The facts of the server or the cached route are outdated: resolve once more.
                Err(diagnostic)
                    if !self.rerouted
                        && self.exclusive.is_none()
                        && (self.server.discovery_epoch() != seen
                            || diagnostic.reason == Reason::Closed) =>
                {
                    self.rerouted = true;
                    route::forget_route(self.caller, self.server);
                },
                Err(diagnostic) => return Err(self.unsent_error(diagnostic)),
            }
        }
    }

    /// A lease that no request is sent on yet.
    pub(super) async fn acquire_without_request(&mut self) -> Result<(Route, SessionLease)> {
        let admitted = admit(self.caller).map_err(|stopped| self.stopped_error(stopped))?;
        let leased = run_until_stopped(self.caller, pin!(self.acquire_lease())).await;
        drop(admitted);
        leased.unwrap_or_else(|stopped| Err(self.stopped_error(stopped)))
    }

    async fn try_acquire_lease(&mut self) -> Result<(Route, SessionLease), Diagnostic> {
        if let Some(held) = self.exclusive {
            self.acquire_serial_permit(&held.holder).await?;
            self.wait_for_credential(&held.route).await?;
            return Ok((held.route.clone(), held.holder.join_lease()?));
        }
        let policy = &self.settings.policy;
        let tool = self.request.tool.as_deref();
        let per_tool = tool.and_then(|tool| policy.tools.get(tool)?.session_per);
        let route = route::find_route(self.caller, self.server, per_tool);
        let Ok(route) = clock::timeout_at(self.deadline, route).await else {
            return Err(self.timeout_diagnostic("while resolving the server"));
        };
        let route = match self.lease_mode {
            LeaseMode::Exclusive => route?.for_exclusive_use(self.caller),
            LeaseMode::Shared => route?,
        };
        self.wait_for_credential(&route).await?;
        // Resolving the route has other limits. A retry keeps its place in the queue.
        let position = match self.history.attempts() {
            1 => QueuePosition::Back,
            _ => QueuePosition::Front,
        };
        let wait = policy.wait;
        let is_process = route.setup().server_profile.transport == Transport::Stdio;
        let queued = clock::after(self.remaining_wait());
        let deadlines = LeaseDeadlines {
            queued: queued.min(self.deadline),
            opening: clock::after(wait).min(self.deadline),
            connecting: clock::after(wait.max(self.server.open_time_limit(is_process)))
                .min(self.deadline),
        };
        let pool = &self.caller.engine.pool;
        let leased = match &route {
            Route::Pooled(entry) => {
                pool.lease(entry, self.lease_mode, position, deadlines)
                    .await
            },
            Route::PerCall(own) => {
                pool.lease_for_single_call(&own.spare_key, &own.setup, own.owner, deadlines)
                    .await
            },
        };
        match leased {
            Ok(lease) => {
                if matches!(lease.kind(), AcquireKind::Waited) {
                    let left = queued.saturating_duration_since(clock::now());
                    self.queued_for = wait.saturating_sub(left);
                }
                Ok((route, lease))
            },
            // The deadline of the call passed, not the time to wait.
            Err(diagnostic)
                if diagnostic.code == Code::PoolFull && clock::now() >= self.deadline =>
            {
                Err(self.timeout_diagnostic("while waiting for a session"))
            },
            Err(diagnostic) => Err(diagnostic),
        }
    }

    /// Adds the losses that the run knows of to a lease, and logs where its session comes from.
    fn note_acquired(&mut self, route: &Route, lease: &mut SessionLease) {
        let run = self.caller.run.as_ref();
        lease.set_known_loss(|| run?.session_table.known_loss(route.pool_entry()?));
        let generation = lease.generation.number();
        self.generation = Some(generation);
        if self.metrics.is_some() {
            // One line per call (A53).
            tracing::debug!(
                target: "warmline::events",
                server = &*self.server.name,
                run = run.map(|run| display(Fingerprint::from(run.id))),
                generation,
                session = lease.session.upstream.session_id().map(ShortId::from_session_id).map(display),
                how = AcquireOutcome::from(lease.kind()).as_str(),
                "session acquired"
            );
        }
    }

    /// Waits for the other calls on the lease of a serial server.
    async fn acquire_serial_permit(&mut self, held: &'a LeaseHolder) -> Result<(), Diagnostic> {
        if self.serial_permit.is_none() && self.settings.policy.serial {
            let turn = clock::timeout_at(self.deadline, held.serial_permits.acquire()).await;
            let late = || self.timeout_diagnostic("while waiting for another call on the lease");
            // It is never closed.
            self.serial_permit = turn.map_err(|_| late())?.ok();
        }
        Ok(())
    }

    async fn wait_for_credential(&self, route: &Route) -> Result<(), Diagnostic> {
        let Some(credential) = &route.setup().credential else {
            return Ok(());
        };
        let ready = clock::timeout_at(self.deadline, credential.ensure_ready()).await;
        if let Ok(ready) = &ready {
            let factory = &self.caller.engine.session_factory;
            factory.record_credential_result(self.server, &self.caller.identity, ready);
        }
        ready.unwrap_or_else(|_| Err(self.timeout_diagnostic("while getting the credential")))
    }

    /// Waits out the pause that the server asked this identity for, unless it is longer than a call
    /// waits for a session.
    pub(super) async fn wait_for_cooldown(&mut self) -> Result<(), Diagnostic> {
        let context = &self.caller.engine.context;
        let identity = self.caller.identity.id;
        let Some(left) = self.server.cooldown_left(identity, || context.tick()) else {
            return Ok(());
        };
        let mut diagnostic = if left > self.remaining_wait() {
            let what = format!(
                "`{}` asked for a pause of another {} s, longer than a call waits",
                self.server.name,
                left.as_secs_f64().ceil()
            );
            Diagnostic::new(Reason::Overloaded, what)
                .with_hint("call again after the pause, or raise `wait`")
        } else if clock::after(left) >= self.deadline {
            self.timeout_diagnostic("the server asked for a longer pause")
        } else {
            clock::sleep(left).await;
            self.queued_for = self.queued_for.saturating_add(left);
            return Ok(());
        };
        diagnostic.retry_after = Some(left);
        Err(diagnostic)
    }

    pub(super) fn remaining_wait(&self) -> Duration {
        self.settings.policy.wait.saturating_sub(self.queued_for)
    }

    pub(super) fn timeout_diagnostic(&self, when: &str) -> Diagnostic {
        let what = format!("call to `{}` timed out", self.server.name);
        Diagnostic::new(Reason::TimeoutUnsent, what).with_cause(when)
    }

    /// Checks at the last moment that the session belongs to the caller.
    pub(super) fn check_isolation(&mut self, route: &Route) -> Result<()> {
        let Route::Pooled(entry) = route else {
            return Ok(());
        };
        let (key, caller) = (&entry.key, self.caller);
        let is_own = match key.owner {
            KeyOwner::Identity(owner) => owner == caller.identity.id,
            KeyOwner::AnyIdentity => true,
        };
        let run = key.run();
        if is_own && (run.is_none() || run == caller.run.as_ref().map(|run| run.id)) {
            return Ok(());
        }
        self.server.metrics.isolation_violations.increment();
        caller
            .engine
            .context
            .events
            .emit(Event::IsolationViolation {
                session: SessionRef::for_key(key),
                caller: Some(Fingerprint::from(caller.identity.id)),
            });
        let what = "the session belongs to another caller";
        Err(self.unsent_error(Diagnostic::new(Reason::Internal, what)))
    }

    pub(super) fn state_loss_action(&self, lease: &SessionLease) -> StateLossAction {
        let is_unreported = self.has_unreported_loss(lease);
        if !is_unreported && !self.saw_session_lost {
            return StateLossAction::Ignore;
        }
        let planned = self.planned_action();
        let forbids = matches!(planned, StateLossAction::Fail | StateLossAction::EndRun);
        match is_unreported || forbids {
            true => planned,
            false => StateLossAction::Ignore,
        }
    }

    /// Whether a loss was not reported to the caller yet. The holder of a lease is not concerned by
    /// losses on other sessions of its run.
    pub(super) fn has_unreported_loss(&self, lease: &SessionLease) -> bool {
        let run = self.caller.run.as_ref().filter(|_| {
            self.exclusive
                .is_none_or(|held| held.holder.began_after_loss)
        });
        lease.unreported_loss().is_some()
            || self.lost_state_without_run
            || run.is_some_and(|run| run.has_pending_loss(&self.server.name))
    }

    fn planned_action(&self) -> StateLossAction {
        state_loss::state_loss_action(
            self.server.settings.load().policy.state_loss_policy(),
            &self.request.method,
        )
    }

    /// The result with its notes, and whether they report a loss.
    pub(super) fn annotate_result(
        &mut self,
        (route, lease): (&Route, &mut SessionLease),
        result: Bytes,
        action: StateLossAction,
    ) -> (Bytes, bool) {
        let generation = self.generation;
        let attempts = self.history.attempts();
        let notes = |state_lost| ResultMeta {
            generation: generation.filter(|_| state_lost || attempts > 1),
            state_lost,
            attempts,
        };
        // Other calls may know of it too; the first result reports it.
        match action {
            StateLossAction::TextAndMeta => {
                let (noted, place) =
                    state_loss::with_state_loss_notice(&result, &self.server.name, &notes(true));
                if place == NoticePlacement::Deferred || self.mark_loss_reported(route, lease) {
                    return (noted, true);
                }
            },
            StateLossAction::MetaThenText => {
                return (state_loss::with_result_meta(&result, &notes(true)), true);
            },
            StateLossAction::MetaOnly if self.mark_loss_reported(route, lease) => {
                return (state_loss::with_result_meta(&result, &notes(true)), true);
            },
            StateLossAction::MetaOnly
            | StateLossAction::Ignore
            | StateLossAction::Fail
            | StateLossAction::EndRun => {},
        }
        match attempts {
            1 => (result, false),
            _ => (state_loss::with_result_meta(&result, &notes(false)), false),
        }
    }

    /// Marks the loss as reported; false if it was before.
    fn mark_loss_reported(&mut self, route: &Route, lease: &mut SessionLease) -> bool {
        let run = self.caller.run.as_ref();
        let elsewhere = run.is_some_and(|run| run.take_pending_loss(&self.server.name));
        let here = lease.unreported_loss().is_some_and(|loss| {
            let is_first = lease.mark_loss_reported();
            route.setup().mark_loss_reported();
            let in_run = run.zip(route.pool_entry());
            in_run
                .and_then(|(run, entry)| run.session_table.mark_loss_known(entry, loss))
                .unwrap_or(is_first)
        });
        std::mem::take(&mut self.lost_state_without_run) || elsewhere || here
    }

    /// Whether state is lost with the key of a call, or was, without a report.
    pub(super) fn loses_unreported_state(route: &Route) -> bool {
        let loss = route.pool_entry().and_then(PoolEntry::last_loss);
        route.setup().is_stateful() || loss.is_some_and(|loss| !loss.is_reported)
    }

    /// The policy forbids going on with this lease.
    pub(super) fn refuse_after_loss(
        &mut self,
        route: &Route,
        mut lease: SessionLease,
        action: StateLossAction,
    ) -> Error {
        if action == StateLossAction::EndRun {
            // The end of the run reports the loss.
            lease.mark_loss_reported();
        } else {
            self.mark_loss_reported(route, &mut lease);
        }
        lease.settle(LeaseOutcome::Unused);
        self.state_lost_error(action)
    }

    fn state_lost_error(&mut self, action: StateLossAction) -> Error {
        if action == StateLossAction::EndRun {
            self.end_run();
        }
        let notes = ResultMeta {
            generation: self.generation,
            state_lost: true,
            attempts: self.history.attempts(),
        };
        let diagnostic = state_loss::state_loss_diagnostic(&self.server.name, action, &notes);
        let delivery = self.history.overall_delivery(Delivery::Refused);
        self.finish_with_error(diagnostic, delivery)
    }

    /// The error of a call whose exclusive session is gone. The next call reports the loss.
    pub(super) fn lease_lost_error(&mut self, route: &Route, mut failed: FailedAttempt) -> Error {
        failed.diagnostic.hint = Some(LEASE_OVER_HINT.to_owned());
        if self.planned_action() == StateLossAction::EndRun && route.setup().is_stateful() {
            self.end_run();
            failed.diagnostic.hint = Some("the run ended with it: begin another".to_owned());
        }
        self.final_error(failed)
    }

    fn end_run(&self) {
        if let Some(run) = &self.caller.run {
            end_in_background(&self.caller.engine, run, RunEnd::StateLost);
        }
    }
}

/// Whether this failure ended the session of a lease with its state. Evaluated at the end of the
/// attempt: other calls may have left state since it began.
pub(super) fn lost_session_state(lease: &SessionLease, diagnostic: &Diagnostic) -> bool {
    let session = &lease.session;
    session.stateful.load(Ordering::Relaxed)
        && matches!(
            lease_outcome(diagnostic, session.retired_reason()),
            LeaseOutcome::SessionEnded(_)
        )
}
