//! What a loss of state means for a call: an error, a note in its result, or nothing.
//!
//! Every lease carries the loss until it was reported to the run, or to any caller where there is no
//! run; the run knows of losses with ended keys. One result reports a loss. Where the policy forbids
//! going on, every call that knows of the loss or saw it happen is refused.

use bytes::Bytes;
use warmline_core::delivery::Delivery;
use warmline_core::exchange::Diagnostic;
use warmline_core::pool::LeaseOutcome;
use warmline_core::state_loss::{self, NoticePlacement, ResultMeta, StateLossAction};

use super::CallState;
use super::failure::{FailedAttempt, lease_outcome};
use super::route::Route;
use crate::engine::end_in_background;
use crate::error::Error;
use crate::events::RunEnd;
use crate::lease::LEASE_OVER_HINT;
use crate::session_factory::SessionFactory;
use warmline_pool::{Lease, PoolEntry};

/// Whether this failure ended the session of a lease with its state. Evaluated at the end of the
/// attempt: other calls may have left state since it began.
pub(super) fn lost_session_state(lease: &Lease<SessionFactory>, diagnostic: &Diagnostic) -> bool {
    let session = &lease.session;
    session.is_stateful()
        && matches!(
            lease_outcome(diagnostic, session.retired_reason()),
            LeaseOutcome::SessionEnded(_)
        )
}

impl CallState<'_> {
    pub(super) fn state_loss_action(&self, lease: &Lease<SessionFactory>) -> StateLossAction {
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
    pub(super) fn has_unreported_loss(&self, lease: &Lease<SessionFactory>) -> bool {
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
            self.server.policy().state_loss_policy(),
            &self.request.method,
        )
    }

    /// The result with its notes, and whether they report a loss.
    pub(super) fn annotate_result(
        &mut self,
        (route, lease): (&Route, &mut Lease<SessionFactory>),
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
    fn mark_loss_reported(&mut self, route: &Route, lease: &mut Lease<SessionFactory>) -> bool {
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
        mut lease: Lease<SessionFactory>,
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
