//! What becomes of a call whose attempt brought no answer: what is learnt from it, the decision,
//! and what has to be mended before the next attempt.

use std::sync::Arc;
use std::time::Duration;

use warmline_core::code::{Code, Reason};
use warmline_core::delivery::{
    Attempt, Delivery, First, Heard, Hurdle, Next, Purse, Renewal, Repeat,
};
use warmline_core::exchange::{Request, Trouble};
use warmline_core::policy::Sessions;
use warmline_core::pool::{Outcome, Why};
use warmline_core::protocol::gone::{Dialect, Remedy};
use warmline_core::repeat;

use super::{Fresh, Step, Way, fresh_call_id, tools};
use crate::clock;
use crate::connect::Connect;
use crate::credentials::{Credential, Refreshed};
use crate::error::{Error, Result};
use crate::events::{Event, Fingerprint, Which};
use crate::metrics::{CallUnderWay, HealCause, HealResult, RefreshResult};
use crate::pool::Lease;
use crate::route::{self, Route};

impl Way<'_> {
    /// Tells how a call of somebody failed: what is known of it, in words of ours.
    pub(super) fn tell_failed(
        &self,
        counted: &CallUnderWay,
        trouble: &Trouble,
        delivery: Delivery,
    ) {
        let mut session = Which::of(Arc::clone(&self.entry.name));
        session.identity = Some(Fingerprint::from(self.caller.who.id));
        session.run = self
            .caller
            .run
            .as_ref()
            .map(|run| Fingerprint::from(run.id));
        session.generation = self.generation;
        self.caller.engine.events().tell(Event::CallFailed {
            session,
            method: counted.method(),
            delivery,
            code: trouble.code,
            reason: trouble.reason,
            attempts: counted.attempts(),
            took: counted.took(),
        });
    }

    /// Something happened to a call that never does, but by a fault of ours.
    pub(super) fn tell_broken(&self) {
        let engine = &self.caller.engine;
        engine.shared().metrics.engine.broken_promises.one_more();
        engine.events().tell(Event::BrokenPromise {
            promise: "no call fails by a fault of Warmline",
            server: Some(Arc::clone(&self.entry.name)),
        });
    }

    pub(super) async fn failed(
        &mut self,
        route: &Route,
        lease: Lease<Connect>,
        mut failed: Failed,
    ) -> Step {
        let retired = lease.session().retired();
        self.note_age(&lease, &failed.trouble);
        let outcome = outcome(&failed.trouble, retired);
        let hurdle = self.hurdle(&failed.trouble, retired, outcome);
        let mut repeat = failed.repeat;
        lease.settle(outcome);
        // Nobody listed the tools so far: now that it matters, the tool's own word is asked for.
        if failed.delivery == Delivery::Unknown
            && repeat == Repeat::Unsafe
            && failed.heard == Heard::Nothing
            && hurdle != Hurdle::Final
        {
            repeat = self.repeat(route, self.hints_now().await);
        }
        self.learn(route, &failed.trouble);
        if let (Some(held), Outcome::Gone(_)) = (self.held, outcome) {
            held.let_go();
            return Step::Over(Err(self.lost_under_lease(route, failed)));
        }
        let credential = route.setup().credential.as_ref();
        failed.trouble = Credential::named_in(credential, failed.trouble);
        let attempt = Attempt {
            delivery: failed.delivery,
            repeat,
            hurdle,
            retry_after: failed.trouble.retry_after,
            so_far: self.so_far,
            heals_allowed: self.entry.policy().heals_per_call,
            heard: failed.heard,
            renewal: match credential {
                Some(credential) if credential.can_refresh() => Renewal::Possible,
                _ => Renewal::Pointless,
            },
            left: self.by.saturating_duration_since(clock::now()),
            patience: self.patience(),
            typical: self.entry.answers.usual(),
            // Said by the budget itself, when it decides.
            purse: Purse::Empty,
            dice: fastrand::u32(..),
        };
        let now = self.caller.engine.tick();
        let next = self
            .entry
            .with_budget(now, |budget| budget.decide(&attempt, now));
        let Next::SendAgain { first, pause, .. } = next else {
            return Step::Over(Err(self.surface(failed)));
        };
        let again = failed.back.clone().unwrap_or_else(|| self.request());
        if first == First::RenewCredential
            && let (Some(credential), Some(epoch)) = (credential, failed.epoch)
            && !self.refreshed(self.renewed(credential, epoch).await)
        {
            return Step::Over(Err(self.surface(failed)));
        }
        self.goes_again(route, &failed, first);
        self.pauses(pause, &failed.trouble).await;
        let id = self.job.call_id.clone().unwrap_or_else(fresh_call_id);
        let marked = repeat::marked(again.params(), &id, self.so_far.attempts());
        Step::Again(again.with_params(marked))
    }

    /// Waits before the next attempt. What the server asked for counts as time in line.
    async fn pauses(&mut self, pause: Duration, trouble: &Trouble) {
        // The shortest sleep there is takes longer than it takes others to pass by in line.
        if !pause.is_zero() {
            clock::sleep(pause).await;
        }
        if trouble.retry_after.is_some() {
            self.in_line = self.in_line.saturating_add(pause);
        }
    }

    /// How old a session was that the server does not know any more.
    fn note_age(&self, lease: &Lease<Connect>, trouble: &Trouble) {
        let session = lease.session();
        if trouble.gone.is_some() && session.is_first_seen_gone() {
            let now = self.caller.engine.tick();
            self.entry.note_dropped(session.age(now), now);
        }
    }

    /// Notes and tells that the call is sent again.
    fn goes_again(&mut self, route: &Route, failed: &Failed, first: First) {
        self.so_far.note(failed.delivery, first);
        self.entry.metrics.resends.one_more(failed.trouble.reason);
        self.healing = failed.trouble.gone.map(HealCause::of).or(self.healing);
        let which = match route {
            Route::Held(cell) => Which::of_key(cell.key()),
            Route::Once(_) => Which::of(Arc::clone(&self.entry.name)),
        };
        self.caller.engine.events().tell(Event::SentAgain {
            session: which,
            reason: failed.trouble.reason,
            attempt: self.so_far.attempts(),
        });
    }

    fn needs_a_session(trouble: &Trouble) -> bool {
        trouble.gone.map(Dialect::remedy) == Some(Remedy::Open)
    }

    /// What stood in the way. Where no session is ever to be opened, one that is missing stays so,
    /// and nothing is healed under a lease.
    fn hurdle(&self, trouble: &Trouble, retired: Option<Reason>, outcome: Outcome) -> Hurdle {
        if self.held.is_some() && matches!(outcome, Outcome::Gone(_)) {
            return Hurdle::Final;
        }
        if Self::needs_a_session(trouble) && self.entry.policy().sessions == Sessions::Never {
            return Hurdle::Final;
        }
        repeat::hurdle(trouble, retired)
    }

    /// Asks for a fresh credential, for as long as the caller waits.
    async fn renewed(&self, credential: &Credential, epoch: u64) -> Result<Refreshed, Trouble> {
        let asked = clock::timeout_at(self.by, credential.refresh(epoch)).await;
        asked.unwrap_or_else(|_| Err(self.late("while a fresh credential was asked for")))
    }

    /// Counts what came of asking for a fresh credential; true if there is one to try.
    fn refreshed(&self, asked: Result<Refreshed, Trouble>) -> bool {
        let (result, is_new) = match &asked {
            Ok(Refreshed::New) => (RefreshResult::Renewed, true),
            Ok(Refreshed::Same) => (RefreshResult::Unchanged, false),
            Err(trouble) if trouble.reason == Reason::Timeout => (RefreshResult::TimedOut, false),
            Err(_) => (RefreshResult::Failed, false),
        };
        self.entry.metrics.refreshes.one_more(result);
        self.caller
            .engine
            .events()
            .tell(Event::CredentialRefreshed {
                server: Arc::clone(&self.entry.name),
                identity: Some(Fingerprint::from(self.caller.who.id)),
                result,
            });
        is_new
    }

    /// What a failure says of the server itself.
    fn learn(&mut self, route: &Route, trouble: &Trouble) {
        if is_absent(trouble.reason) {
            self.entry.note_absent(trouble);
        }
        let busy = [Reason::RateLimited, Reason::Unavailable];
        if let Some(pause) = trouble.retry_after
            && busy.contains(&trouble.reason)
        {
            let now = self.caller.engine.tick();
            self.entry.cool(self.caller.who.id, now, pause);
        }
        if trouble.reason == Reason::Version {
            self.is_another_server(route);
        }
        let Some(dialect) = trouble.gone else { return };
        self.entry.metrics.gone.one_more(dialect);
        if matches!(dialect.remedy(), Remedy::Open | Remedy::GoStateless) {
            self.is_another_server(route);
        }
        self.entry.forget_lists();
        // A server that forgot one session may have forgotten others: they are looked at before
        // their next use. What is said of one that was replaced already is no news.
        let Route::Held(cell) = route else { return };
        let mut held = cell.sessions().into_iter();
        if held.all(|seen| Some(seen.generation.number()) <= self.generation) {
            let revision = route.setup().found.revision;
            let pool = self.caller.engine.pool();
            pool.loss_seen(&self.entry.name, revision);
        }
    }

    /// It speaks another era by now, keeps sessions after all, or none any more: what was held
    /// before is over, and whoever shares it would share a session that is not theirs. Runs that had
    /// state there find that out on their next way; who has no run is told now or never.
    fn is_another_server(&mut self, route: &Route) {
        self.state_is_gone |= self.caller.run.is_none() && Self::dies_with(route);
        self.entry.forget_contacts();
        route::forget(self.caller, self.entry);
        if let Route::Held(cell) = route {
            self.caller.engine.pool().end(cell, Why::Gone);
        }
    }

    /// The hints of the tool that was called, from a list that is read now.
    async fn hints_now(&self) -> Option<repeat::Hints> {
        let tool = self.job.tool.as_ref()?;
        // The caller's own word needs no other, and a list would wait for the session it holds.
        if self.job.said.is_some() || self.held.is_some() {
            return None;
        }
        if !self.entry.policy().trust_read_only_hint
            && self.entry.policy().trust_idempotent_hint.is_empty()
        {
            return None;
        }
        let listing = tools(self.caller, self.entry, Fresh::UntilHorizon);
        let listed = clock::timeout_at(self.by, listing).await.ok()?;
        listed.ok()?.hints(tool)
    }

    pub(super) fn surface(&mut self, failed: Failed) -> Error {
        if let Some(cause) = self.healing.take() {
            let result = if failed.trouble.gone.is_some() {
                HealResult::LostAgain
            } else {
                HealResult::Failed
            };
            self.entry.metrics.heals.one_more(cause, result);
        }
        let delivery = self.so_far.delivery(failed.delivery);
        let mut trouble = failed.trouble;
        if Self::needs_a_session(&trouble) && self.entry.policy().sessions == Sessions::Never {
            trouble.hint = Some(
                "this server wants a session, and `sessions = \"never\"` forbids one: say `auto`"
                    .to_owned(),
            );
        }
        if delivery == Delivery::Unknown && trouble.code.usual_delivery() != Some(delivery) {
            let says_so = [Code::Deadline, Code::BadAnswer, Code::AnswerLost];
            if !says_so.contains(&trouble.code) {
                trouble.code = Code::AnswerLost;
            }
        }
        self.over(trouble, delivery)
    }
}

/// An attempt that brought no answer.
pub(super) struct Failed {
    pub(super) delivery: Delivery,
    pub(super) back: Option<Request>,
    pub(super) trouble: Trouble,
    pub(super) heard: Heard,
    pub(super) epoch: Option<u64>,
    pub(super) repeat: Repeat,
}

/// What a failure says of the session.
pub(super) fn outcome(trouble: &Trouble, retired: Option<Reason>) -> Outcome {
    let over = [Reason::SessionGone, Reason::Version];
    if trouble.gone.is_some() || over.contains(&trouble.reason) {
        return Outcome::Gone(Why::Gone);
    }
    match retired {
        // A child that ended, a stream that is the session: the server's word in its own way.
        Some(_) => Outcome::Gone(Why::Gone),
        None => Outcome::Broken,
    }
}

/// Whether nobody was found where the server should be.
const fn is_absent(reason: Reason) -> bool {
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
