//! The state of one key, and the one function that changes it.
//!
//! An event that makes no sense in this state changes nothing and is counted. An event about a
//! session that is gone changes nothing either; it only came late.

mod transitions;

use std::time::Duration;

use smallvec::SmallVec;

use self::transitions::{WaitQueue, Waiter};
use super::events::{Effect, Effects, Event, LeaseRefusal, OpenedSession};
use super::session::{CheckNeed, Session, SessionCounts, SessionState, SessionUsage};
use super::{
    EndCondition, EndReason, EntryPolicy, Generation, HealthCheckResult, LeaseOutcome,
    QueuePosition, StateLoss, WaiterId,
};
use crate::time::Tick;

/// An event that is being applied: its moment, and its effects so far.
struct Transition {
    now: Tick,
    effects: Effects,
}

impl Transition {
    fn refuse(&mut self, waiter: Waiter, refusal: LeaseRefusal) {
        self.effects.push(Effect::RefuseLease(waiter.id, refusal));
    }
}

/// The state of one key.
#[derive(Clone, Debug)]
pub struct EntryState {
    policy: EntryPolicy,
    seed: u32,
    /// Why it ended; none while it takes callers.
    end_reason: Option<EndReason>,
    next_generation: Generation,
    sessions: SmallVec<[Session; 1]>,
    queue: WaitQueue,
    last_loss: Option<StateLoss>,
    /// Since when it has neither sessions nor queued callers.
    empty_since: Tick,
    counts: SessionCounts,
    invalid_events: u32,
}

impl EntryState {
    /// A key without sessions. The seed spreads its limits; any number will do.
    pub fn new(policy: EntryPolicy, seed: u64, now: Tick) -> Self {
        // Half of the seed spreads as well, and there may be very many keys.
        let [a, b, c, d, ..] = seed.to_le_bytes();
        Self {
            policy,
            seed: u32::from_le_bytes([a, b, c, d]),
            end_reason: None,
            next_generation: Generation::FIRST,
            sessions: SmallVec::new(),
            queue: WaitQueue::default(),
            last_loss: None,
            empty_since: now,
            counts: SessionCounts::default(),
            invalid_events: 0,
        }
    }

    /// Applies an event and returns what is to be done. Nothing else changes an entry.
    pub fn handle_event(&mut self, event: Event, now: Tick) -> Effects {
        let effects = Effects::new();
        let mut step = Transition { now, effects };
        self.apply(event, &mut step);
        self.counts.waiting = self.queue.len();
        step.effects
    }

    fn apply(&mut self, event: Event, step: &mut Transition) {
        match event {
            Event::LeaseRequested {
                waiter: id,
                mode,
                position,
            } => self.on_lease_requested(Waiter { id, mode, position }, step),
            Event::WaiterLeft(waiter) => self.on_waiter_left(waiter, step),
            Event::Opened(generation, arrival) => self.on_opened(generation, arrival, step),
            Event::OpenFailed(generation) => self.on_open_failed(generation, step),
            Event::OpenCancelled(generation) => self.on_open_cancelled(generation, step),
            Event::OpenerLost(generation) => self.on_opener_lost(generation, step),
            Event::HolderCallStarted(waiter, generation) => {
                self.on_holder_call_started(waiter, generation, step);
            },
            Event::LeaseReturned(generation, outcome) => {
                self.on_lease_returned(generation, outcome, step);
            },
            // A later loss stays unreported.
            Event::LossReported(number) => {
                if let Some(loss) = self.last_loss.as_mut().filter(|loss| loss.number == number) {
                    loss.is_reported = true;
                }
            },
            Event::SessionEnded(generation, why) => {
                self.on_session_ended(generation, why, step);
            },
            Event::CheckFinished(generation, health) => {
                self.on_check_finished(generation, health, step);
            },
            Event::KeepAliveFinished(generation, health) => {
                self.on_keep_alive_finished(generation, health, step);
            },
            Event::ServerLostSessions(since) => self.on_server_lost_sessions(since),
            Event::Reconfigured(policy) => {
                self.policy = policy;
                self.serve_queue(step);
            },
            Event::MaintenanceTick(forget_after) => {
                self.on_maintenance_tick(forget_after, step);
            },
            Event::PermitNeeded(generation) => self.on_permit_needed(generation, step),
            Event::EntryEnded(why) => self.on_entry_ended(why, step),
            Event::GraceExpired => self.on_grace_expired(step),
        }
    }

    /// The number of sessions of each state.
    pub const fn counts(&self) -> SessionCounts {
        self.counts
    }

    /// The same, counted again.
    pub fn recount(&self) -> SessionCounts {
        let mut counts = SessionCounts {
            waiting: self.queue.len(),
            ..SessionCounts::default()
        };
        for session in &self.sessions {
            counts.add(&session.state);
        }
        counts
    }

    pub const fn policy(&self) -> &EntryPolicy {
        &self.policy
    }

    pub fn sessions(&self) -> &[Session] {
        &self.sessions
    }

    pub const fn last_loss(&self) -> Option<StateLoss> {
        self.last_loss
    }

    /// The last loss, if it was not reported to any caller.
    pub fn unreported_loss(&self) -> Option<StateLoss> {
        self.last_loss.filter(|loss| !loss.is_reported)
    }

    /// Whether it has neither sessions nor queued callers.
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty() && self.queue.is_empty()
    }

    pub fn is_live(&self) -> bool {
        self.end_reason.is_none()
    }

    pub const fn end_reason(&self) -> Option<EndReason> {
        self.end_reason
    }

    /// Whether it ended, and nothing is left of it.
    pub fn is_finished(&self) -> bool {
        !self.is_live() && self.is_empty()
    }

    /// Events that made no sense. Anything but zero is a bug in the shell.
    pub const fn invalid_events(&self) -> u32 {
        self.invalid_events
    }

    /// The session that can be evicted, and when it was last used. A hint: [`Event::PermitNeeded`]
    /// checks again.
    pub fn eviction_candidate(&self) -> Option<(Generation, Tick)> {
        if self.policy.end_condition == EndCondition::WithRunEnd || !self.queue.is_empty() {
            return None;
        }
        let idle = self
            .sessions
            .iter()
            .filter(|one| one.state == SessionState::Idle);
        let oldest = idle.min_by_key(|one| one.last_used)?;
        Some((oldest.generation, oldest.last_used))
    }

    fn on_lease_requested(&mut self, waiter: Waiter, step: &mut Transition) {
        if let Some(why) = self.end_reason {
            return step.refuse(waiter, LeaseRefusal::EntryEnded(why));
        }
        self.retire_expired(step);
        if self.queue.is_empty()
            && let Some(at) = self.best_session_for(waiter.mode, step.now)
        {
            return self.grant_lease(waiter, at, step);
        }
        // Callers behind queued ones have to wait too. A caller that was admitted before is not
        // refused because of later ones.
        if waiter.position == QueuePosition::Back
            && self.queue.len() >= self.policy.max_waiters.max(1)
        {
            return step.refuse(waiter, LeaseRefusal::QueueFull);
        }
        self.queue.enqueue(waiter);
        self.serve_queue(step);
    }

    fn on_waiter_left(&mut self, waiter: WaiterId, step: &mut Transition) {
        // A caller that was granted a lease at the same moment is not queued; its lease comes back.
        if !self.queue.remove(waiter) {
            return;
        }
        self.serve_queue(step);
        if self.counts.opening > self.queue.len()
            && let Some(latest) = self
                .sessions
                .iter()
                .rfind(|one| one.state == SessionState::Opening)
        {
            let generation = latest.generation;
            step.effects.push(Effect::OpenUnneeded(generation));
        }
        self.note_if_empty(step.now);
    }

    fn on_opened(&mut self, opening: Generation, arrival: OpenedSession, step: &mut Transition) {
        let Some(at) = self.find_opening(opening) else {
            return self.on_opened_after_abort(opening, step);
        };
        let generation = self.assign_generation(opening, arrival.generation, step);
        if arrival.unreported_loss {
            let before = Generation::new(generation.number() - 1).unwrap_or(generation);
            // Before a later session than the first, callers here may have shared the one that was
            // lost.
            let first = StateLoss::PRIOR_LOSS + u16::from(opening != Generation::FIRST);
            self.record_loss(before, EndReason::Gone, first);
        }
        if let Some(session) = self.sessions.get_mut(at) {
            session.generation = generation;
            session.opened_at =
                Tick::from_start(step.now.since_start().saturating_sub(arrival.idle_time));
            session.last_alive = session.opened_at;
            session.last_keep_alive = session.opened_at;
            session.last_used = step.now;
            session.origin = arrival.origin;
            if arrival.stateful {
                session.usage = SessionUsage::Stateful;
            }
            // Both count from the opening; a spare has lived for a while.
            let at =
                |age: Option<Duration>| age.map_or(Tick::NEVER, |age| session.opened_at.after(age));
            (session.expires_at, session.renew_at) = (at(arrival.expires_in), at(arrival.renew_in));
        }
        // Limits may have been lowered since the opening began.
        let is_full = self.fill_level().is_gt();
        let why = self.end_reason.or(is_full.then_some(EndReason::Evicted));
        self.set_state(at, SessionState::Idle, step);
        if let Some(why) = why {
            self.close_session(at, why, step);
        }
        self.serve_queue(step);
    }

    /// It was aborted, and succeeded all the same.
    fn on_opened_after_abort(&mut self, generation: Generation, step: &mut Transition) {
        self.count_invalid_event();
        let why = self.end_reason.unwrap_or(EndReason::Bug);
        // With a number that is in use, closing would hit the other session.
        if self.find_session(generation, |_| true).is_none() {
            step.effects.push(Effect::CloseSession(generation, why));
        }
    }

    fn on_open_failed(&mut self, generation: Generation, step: &mut Transition) {
        let Some(at) = self.find_opening(generation) else {
            return self.count_invalid_event();
        };
        self.close_session(at, EndReason::OpenFailed, step);
        let refusal = LeaseRefusal::OpenFailed;
        let others = self
            .sessions
            .iter()
            .any(|one| one.state == SessionState::Opening || one.state.is_usable());
        if others {
            if let Some(waiter) = self.queue.pop_front() {
                step.refuse(waiter, refusal);
            }
        } else {
            self.refuse_all_waiters(refusal, step);
        }
        self.serve_queue(step);
        self.note_if_empty(step.now);
    }

    fn on_open_cancelled(&mut self, generation: Generation, step: &mut Transition) {
        let Some(at) = self.find_opening(generation) else {
            return self.count_invalid_event();
        };
        self.close_session(at, EndReason::OpenFailed, step);
        self.serve_queue(step);
    }

    /// The waiters are not moved to another opening here: they ask again.
    fn on_opener_lost(&mut self, generation: Generation, step: &mut Transition) {
        let Some(at) = self.find_opening(generation) else {
            return self.count_invalid_event();
        };
        self.close_session(at, EndReason::OpenFailed, step);
        self.refuse_all_waiters(LeaseRefusal::OpenerLost, step);
        self.note_if_empty(step.now);
    }

    fn on_holder_call_started(
        &mut self,
        waiter: WaiterId,
        generation: Generation,
        step: &mut Transition,
    ) {
        let Some(at) = self.find_session(generation, SessionState::serves_exclusive_holder) else {
            return;
        };
        if let Some(session) = self.sessions.get_mut(at) {
            session.last_used = step.now;
            let next = session.state.with_extra_lease();
            self.set_state(at, next, step);
            let loss = None;
            step.effects.push(Effect::GrantLease {
                waiter,
                generation,
                loss,
            });
        }
    }

    fn on_lease_returned(
        &mut self,
        generation: Generation,
        outcome: LeaseOutcome,
        step: &mut Transition,
    ) {
        let is_leased = |state: &SessionState| state.lease_kind().is_some() && !state.is_checked();
        let Some(at) = self.find_session(generation, is_leased) else {
            return self.count_invalid_event();
        };
        self.apply_lease_outcome(at, outcome, step);
        if let LeaseOutcome::SessionEnded(why) = outcome {
            self.lose_session(at, why, step);
            // Even if its key ended meanwhile, as that of a single call has.
            if let Some(at) = self.find_session(generation, |_| true) {
                self.note_short_lived(at, why, step);
            }
        }
        // The session may only be marked as lost: its lease still counts.
        if let Some(at) = self.find_session(generation, |_| true) {
            self.release_lease(at, step);
        }
        self.serve_queue(step);
    }

    fn on_session_ended(&mut self, generation: Generation, why: EndReason, step: &mut Transition) {
        if let Some(at) = self.find_session(generation, SessionState::is_usable) {
            self.lose_session(at, why, step);
            self.serve_queue(step);
        } else if let Some(at) =
            self.find_session(generation, |state| *state != SessionState::Opening)
        {
            self.note_short_lived(at, why, step);
        }
    }

    fn on_check_finished(
        &mut self,
        generation: Generation,
        health: HealthCheckResult,
        step: &mut Transition,
    ) {
        let Some(at) = self.find_session(generation, SessionState::is_checked) else {
            return self.count_invalid_event();
        };
        self.apply_check_result(at, health, step);
        if let Some(at) = self.find_session(generation, |_| true) {
            self.release_lease(at, step);
        }
        self.serve_queue(step);
    }

    fn on_keep_alive_finished(
        &mut self,
        generation: Generation,
        health: HealthCheckResult,
        step: &mut Transition,
    ) {
        let Some(at) = self.find_session(generation, SessionState::is_usable) else {
            return;
        };
        let is_idle = self.find_session(generation, |state| *state == SessionState::Idle);
        // While it is in use only an answer of the server counts.
        let is_answer = matches!(health, HealthCheckResult::Alive | HealthCheckResult::Gone);
        if is_idle.is_some() || is_answer {
            self.apply_check_result(at, health, step);
            // No caller asked for this check: the next one has the session checked again.
            if let Some(session) = self.sessions.get_mut(at)
                && session.generation == generation
                && session.check_need == CheckNeed::SkipOnce
            {
                session.check_need = CheckNeed::BeforeNextUse;
            }
        }
        self.serve_queue(step);
    }

    fn on_server_lost_sessions(&mut self, since: Tick) {
        for session in &mut self.sessions {
            if session.state.is_usable() && session.last_alive <= since {
                session.check_need = CheckNeed::BeforeNextUse;
            }
        }
    }

    fn on_maintenance_tick(&mut self, forget_after: Duration, step: &mut Transition) {
        self.serve_queue(step);
        for session in &mut self.sessions {
            if session.needs_keep_alive(&self.policy, self.seed.into(), step.now) {
                session.last_keep_alive = step.now;
                let generation = session.generation;
                step.effects.push(Effect::KeepAlive(generation));
            }
        }
        // The key of a run is kept with its run: it knows the next generation.
        if self.is_empty()
            && self.is_live()
            && self.policy.end_condition == EndCondition::AtLimits
            && self.unreported_loss().is_none()
            && step.now.duration_since(self.empty_since) >= forget_after
        {
            self.end_reason = Some(EndReason::Evicted);
            step.effects.push(Effect::EvictEntry);
        }
    }

    fn on_permit_needed(&mut self, generation: Generation, step: &mut Transition) {
        if self.policy.end_condition == EndCondition::AtLimits
            && self.queue.is_empty()
            && let Some(at) = self.find_session(generation, |state| *state == SessionState::Idle)
        {
            self.close_session(at, EndReason::Evicted, step);
        }
    }

    fn on_entry_ended(&mut self, why: EndReason, step: &mut Transition) {
        if !self.is_live() {
            return;
        }
        self.end_reason = Some(why);
        self.refuse_all_waiters(LeaseRefusal::EntryEnded(why), step);
        for at in (0..self.sessions.len()).rev() {
            self.retire_session(at, why, step);
        }
    }

    fn on_grace_expired(&mut self, step: &mut Transition) {
        let Some(why) = self.end_reason else {
            return self.count_invalid_event();
        };
        for at in (0..self.sessions.len()).rev() {
            let Some(session) = self.sessions.get(at) else {
                continue;
            };
            let generation = session.generation;
            if session.state == SessionState::Opening {
                step.effects.push(Effect::AbortOpen(generation));
            }
            self.close_session(at, why, step);
        }
    }
}
