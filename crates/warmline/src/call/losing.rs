//! What a loss of state means for a call: that it is refused, what its result says of it, or
//! nothing.
//!
//! Every lease has the word of a loss until its run was told, or anybody where there is no run; what
//! was lost with a key that is no more, its run knows. One result tells it; where the policy forbids going on, nobody goes on who has the word or saw the
//! loss happen.

use bytes::Bytes;
use warmline_core::delivery::Delivery;
use warmline_core::exchange::Trouble;
use warmline_core::loss::{self, Notes, Reaction, Told};
use warmline_core::pool::{Outcome, Word};

use super::Way;
use super::failing::{Failed, outcome};
use crate::connect::Connect;
use crate::error::Error;
use crate::events::RunEnd;
use crate::lease::{BEGIN_ANEW, Holder};
use crate::pool::{CellOf, Lease};
use crate::route::Route;
use crate::run;

/// Whether the session of a lease is over with this trouble, by the server's word or with its
/// process or stream, and state with it. Asked when it is over: others may have left some since the
/// call began.
pub(super) fn ended_with_state(lease: &Lease<Connect>, trouble: &Trouble) -> bool {
    let session = lease.session();
    session.has_left_state() && matches!(outcome(trouble, session.retired()), Outcome::Gone(_))
}

impl Way<'_> {
    /// What a loss of state means for this call.
    pub(super) fn reaction(&self, lease: &Lease<Connect>) -> Reaction {
        let planned = self.planned();
        let forbids = matches!(planned, Reaction::Fail | Reaction::EndRun);
        if self.has_word(lease) || (self.saw_it_go && forbids) {
            planned
        } else {
            Reaction::Nothing
        }
    }

    /// Whether the caller lost something, and was not told yet.
    pub(super) fn has_word(&self, lease: &Lease<Connect>) -> bool {
        lease.loss().is_some() || self.state_is_gone || self.lost_elsewhere()
    }

    /// Whether its run lost something on other sessions of this server. What happens beside a lease
    /// is no loss of its holder.
    fn lost_elsewhere(&self) -> bool {
        self.held.is_none_or(Holder::began_with_a_loss) && self.caller.has_lost_at(self.entry)
    }

    fn planned(&self) -> Reaction {
        loss::plan(self.entry.policy().state_loss(), &self.job.method)
    }

    /// The result with what is to be told beside it, and whether it tells of a loss.
    pub(super) fn told(
        &mut self,
        (route, lease): (&Route, &mut Lease<Connect>),
        result: Bytes,
        reaction: Reaction,
    ) -> (Bytes, bool) {
        let generation = lease.generation().number();
        let attempts = self.so_far.attempts();
        let notes = |state_lost| Notes {
            generation: (state_lost || attempts > 1).then_some(generation),
            state_lost,
            attempts,
        };
        // Others may have the word of it too, and the first answer tells it.
        match reaction {
            Reaction::Tell => {
                let (told, place) = loss::tell(&result, &self.entry.name, &notes(true));
                if place == Told::NotYet || self.tells(route, lease) {
                    return (told, true);
                }
            },
            Reaction::Mention => return (loss::annotate(&result, &notes(true)), true),
            Reaction::Meta if self.tells(route, lease) => {
                return (loss::annotate(&result, &notes(true)), true);
            },
            Reaction::Meta | Reaction::Nothing | Reaction::Fail | Reaction::EndRun => {},
        }
        if attempts > 1 {
            return (loss::annotate(&result, &notes(false)), false);
        }
        (result, false)
    }

    /// The caller is told what it lost; false if its run was told before, or anybody where there is
    /// no run.
    fn tells(&mut self, route: &Route, lease: &mut Lease<Connect>) -> bool {
        let run = self.caller.run.as_ref();
        let elsewhere = run.is_some_and(|run| run.hears_of_loss_at(&self.entry.name));
        let here = lease.loss().is_some_and(|loss| {
            let is_first = lease.told();
            route.setup().gave_word();
            let in_run = run.zip(route.cell());
            in_run
                .and_then(|(run, cell)| run.routes.hears(cell, loss))
                .unwrap_or(is_first)
        });
        std::mem::take(&mut self.state_is_gone) || elsewhere || here
    }

    /// Whether something dies with the key of a call, or did, and nobody was told yet.
    pub(super) fn dies_with(route: &Route) -> bool {
        let loss = route.cell().and_then(CellOf::loss);
        route.setup().has_left_state() || loss.is_some_and(|loss| loss.word == Word::Untold)
    }

    /// The policy forbids going on with this lease.
    pub(super) fn goes_no_further(
        &mut self,
        route: &Route,
        mut lease: Lease<Connect>,
        reaction: Reaction,
    ) -> Error {
        if reaction == Reaction::EndRun {
            // Whoever comes after the run knows by that. The run itself stays untold: nobody goes
            // on in it.
            lease.told();
        } else {
            self.tells(route, &mut lease);
        }
        lease.settle(Outcome::Unused);
        self.state_lost(reaction)
    }

    fn state_lost(&mut self, reaction: Reaction) -> Error {
        if reaction == Reaction::EndRun {
            self.end_run();
        }
        let notes = Notes {
            generation: self.generation,
            state_lost: true,
            attempts: self.so_far.attempts(),
        };
        let trouble = loss::refusal(&self.entry.name, reaction, &notes);
        let delivery = self.so_far.delivery(Delivery::Refused);
        self.over(trouble, delivery)
    }

    /// The session that the caller holds is gone, and the lease with it. Whoever calls next is told
    /// what was lost.
    pub(super) fn lost_under_lease(&mut self, route: &Route, mut failed: Failed) -> Error {
        failed.trouble.hint = Some(BEGIN_ANEW.to_owned());
        if self.planned() == Reaction::EndRun && route.setup().has_left_state() {
            self.end_run();
            failed.trouble.hint = Some("the run ended with it: begin another".to_owned());
        }
        self.surface(failed)
    }

    /// State was lost, and the policy ends the run then: before anybody reads that it did.
    fn end_run(&self) {
        if let Some(run) = &self.caller.run {
            run::end_in_background(&self.caller.engine, run, RunEnd::StateLost);
        }
    }
}
