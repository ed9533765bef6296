//! The transitions that events are made of, and the queue of callers that wait for a session.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::num::NonZeroU32;

use super::{EntryState, Transition};
use crate::pool::events::{Effect, LeaseRefusal};
use crate::pool::session::{
    CheckNeed, LeaseKind, MAX_TIMED_OUT_CHECKS, Session, SessionState, SessionUsage, Stability,
};
use crate::pool::{
    EndCondition, EndReason, Generation, HealthCheckResult, LeaseMode, LeaseOutcome, QueuePosition,
    Sharing, StateLoss, WaiterId, limits,
};
use crate::time::Tick;

impl EntryState {
    /// The only place where a session changes state: it keeps the counts and closes sessions.
    pub(super) fn set_state(&mut self, at: usize, next: SessionState, step: &mut Transition) {
        let Some(session) = self.sessions.get_mut(at) else {
            return self.count_invalid_event();
        };
        let before = std::mem::replace(&mut session.state, next);
        let generation = session.generation;
        self.counts.subtract(&before);
        self.counts.add(&next);
        if let SessionState::Closed(why) = next {
            self.sessions.remove(at);
            self.note_if_empty(step.now);
            // What was never open cannot be closed.
            if before != SessionState::Opening {
                step.effects.push(Effect::CloseSession(generation, why));
            }
        }
    }

    pub(super) fn close_session(&mut self, at: usize, why: EndReason, step: &mut Transition) {
        self.set_state(at, SessionState::Closed(why), step);
    }

    /// Refuses new leases and closes an idle session. An opening is decided when it ends.
    pub(super) fn retire_session(&mut self, at: usize, why: EndReason, step: &mut Transition) {
        let Some(session) = self.sessions.get(at) else {
            return;
        };
        match session.state {
            SessionState::Idle => {
                self.note_state_loss(at, why);
                self.close_session(at, why, step);
            },
            SessionState::Leased { leases, kind } => {
                self.note_state_loss(at, why);
                let reason = why;
                let retiring = SessionState::Retiring {
                    leases,
                    kind,
                    reason,
                };
                self.set_state(at, retiring, step);
            },
            SessionState::Opening | SessionState::Retiring { .. } | SessionState::Closed(_) => {},
        }
    }

    /// The session is lost, and its key continues. If its server ended it, its siblings may be lost
    /// too.
    pub(super) fn lose_session(&mut self, at: usize, why: EndReason, step: &mut Transition) {
        let Some(session) = self.sessions.get(at).filter(|one| one.state.is_usable()) else {
            return;
        };
        let generation = session.generation;
        step.effects.push(Effect::SessionLost(generation, why));
        self.note_short_lived(at, why, step);
        self.retire_session(at, why, step);
        if !why.is_server_side() {
            return;
        }
        for sibling in &mut self.sessions {
            if sibling.state.is_usable() {
                sibling.check_need = CheckNeed::BeforeNextUse;
            }
        }
    }

    /// Reports a session that the server ended before it was of use.
    pub(super) fn note_short_lived(&mut self, at: usize, why: EndReason, step: &mut Transition) {
        let proof = self.policy.stability;
        if let Some(session) = self.sessions.get_mut(at)
            && why.is_server_side()
            && session.stability == Stability::Undecided
            && proof.is_failed_by(session, step.now)
        {
            session.stability = Stability::ShortLived;
            let (generation, opened) = (session.generation, session.opened_at);
            step.effects
                .push(Effect::SessionShortLived(generation, opened));
        }
    }

    pub(super) fn apply_lease_outcome(
        &mut self,
        at: usize,
        outcome: LeaseOutcome,
        step: &mut Transition,
    ) {
        let (sharing, proof) = (self.policy.sharing, self.policy.stability);
        let Some(session) = self.sessions.get_mut(at) else {
            return;
        };
        let before = session.usage;
        match outcome {
            LeaseOutcome::Unused => return,
            LeaseOutcome::Answered {
                stateful: left_state,
            } => {
                let past = if left_state {
                    SessionUsage::Stateful
                } else {
                    SessionUsage::Served
                };
                session.usage = before.max(past);
                session.last_alive = step.now;
                session.timed_out_checks = 0;
                session.check_need = CheckNeed::AfterIdle;
                if session.stability != Stability::Stable && proof.is_met_by(session, step.now) {
                    session.stability = Stability::Stable;
                    let generation = session.generation;
                    step.effects.push(Effect::SessionStable(generation));
                }
            },
            LeaseOutcome::ConnectionFailed => session.check_need = CheckNeed::BeforeNextUse,
            // A caller that leaves may leave a mess, unless it shared the session with others.
            LeaseOutcome::Cancelled if sharing == Sharing::SideBySide => {},
            LeaseOutcome::Cancelled => session.check_need = CheckNeed::BeforeNextUse,
            LeaseOutcome::SessionEnded(_) => {},
        }
        session.last_used = step.now;
        let (state, past) = (session.state, session.usage);
        // It answered after it was marked as lost: that state is lost too.
        if let SessionState::Retiring { reason: why, .. } = state
            && past > before
        {
            self.note_state_loss(at, why);
        }
    }

    pub(super) fn apply_check_result(
        &mut self,
        at: usize,
        health: HealthCheckResult,
        step: &mut Transition,
    ) {
        let ends = self.policy.end_condition;
        let Some(session) = self.sessions.get_mut(at) else {
            return;
        };
        match (health, ends) {
            (HealthCheckResult::Alive, _) => {
                session.last_alive = step.now;
                session.timed_out_checks = 0;
                session.check_need = CheckNeed::AfterIdle;
            },
            (HealthCheckResult::Gone, _) => self.lose_session(at, EndReason::Gone, step),
            (HealthCheckResult::TimedOut, EndCondition::WithRunEnd) => {
                session.timed_out_checks = session.timed_out_checks.saturating_add(1);
                session.check_need = CheckNeed::SkipOnce;
                if session.timed_out_checks >= MAX_TIMED_OUT_CHECKS {
                    self.lose_session(at, EndReason::CheckFailed, step);
                }
            },
            // A failed connection is no verdict: the session may be alive. The state of a run
            // outweighs a doubt.
            (HealthCheckResult::Unreachable, _)
            | (HealthCheckResult::Refused, EndCondition::WithRunEnd) => {
                session.check_need = CheckNeed::SkipOnce;
            },
            (HealthCheckResult::TimedOut | HealthCheckResult::Refused, EndCondition::AtLimits) => {
                self.lose_session(at, EndReason::CheckFailed, step);
            },
        }
    }

    pub(super) fn release_lease(&mut self, at: usize, step: &mut Transition) {
        let Some(session) = self.sessions.get(at) else {
            return;
        };
        let next = match session.state {
            SessionState::Leased { leases, kind } => match one_fewer(leases) {
                Some(leases) => SessionState::Leased { leases, kind },
                None => SessionState::Idle,
            },
            SessionState::Retiring {
                leases,
                kind,
                reason,
            } => match one_fewer(leases) {
                Some(leases) => SessionState::Retiring {
                    leases,
                    kind,
                    reason,
                },
                None => SessionState::Closed(reason),
            },
            SessionState::Opening | SessionState::Idle | SessionState::Closed(_) => {
                return self.count_invalid_event();
            },
        };
        self.set_state(at, next, step);
    }

    /// Retires expired sessions, grants what can be granted, and opens or checks what is missing.
    pub(super) fn serve_queue(&mut self, step: &mut Transition) {
        if !self.is_live() {
            return;
        }
        self.retire_expired(step);
        while let Some(first) = self.queue.front() {
            let Some(at) = self.best_session_for(first.mode, step.now) else {
                return self.open_or_check(step);
            };
            self.queue.pop_front();
            self.grant_lease(first, at, step);
        }
    }

    pub(super) fn retire_expired(&mut self, step: &mut Transition) {
        for at in (0..self.sessions.len()).rev() {
            let Some(session) = self.sessions.get(at) else {
                continue;
            };
            let too_many = session.state == SessionState::Idle
                && self.policy.end_condition == EndCondition::AtLimits
                && self.fill_level().is_gt();
            let over = session.expiry_reason(&self.policy, self.seed.into(), step.now);
            if let Some(why) = over.or(too_many.then_some(EndReason::Evicted)) {
                self.retire_session(at, why, step);
            }
        }
    }

    /// The session for a caller, if one is free: the most recently used one, so that others can
    /// become idle and close.
    pub(super) fn best_session_for(&self, want: LeaseMode, now: Tick) -> Option<usize> {
        let fits = |session: &Session| match session.state {
            SessionState::Idle => !session.needs_check(&self.policy, now),
            SessionState::Leased { kind, .. } => {
                kind == LeaseKind::Shared
                    && want == LeaseMode::Shared
                    && self.policy.sharing == Sharing::SideBySide
            },
            SessionState::Opening | SessionState::Retiring { .. } | SessionState::Closed(_) => {
                false
            },
        };
        let fitting = self
            .sessions
            .iter()
            .enumerate()
            .filter(|(_, one)| fits(one));
        fitting
            .max_by_key(|(_, one)| one.last_used)
            .map(|(at, _)| at)
    }

    pub(super) fn grant_lease(&mut self, waiter: Waiter, at: usize, step: &mut Transition) {
        let kind = match (waiter.mode, self.policy.sharing) {
            (LeaseMode::Exclusive, _) => LeaseKind::Exclusive,
            (LeaseMode::Shared, Sharing::SideBySide) => LeaseKind::Shared,
            (LeaseMode::Shared, Sharing::Serial | Sharing::OnePerCaller) => LeaseKind::Single,
        };
        let Some(session) = self.sessions.get_mut(at) else {
            return self.count_invalid_event();
        };
        let leases = NonZeroU32::MIN.saturating_add(session.state.leases());
        let generation = session.generation;
        session.last_used = step.now;
        if session.check_need == CheckNeed::SkipOnce {
            session.check_need = CheckNeed::BeforeNextUse;
        }
        self.set_state(at, SessionState::Leased { leases, kind }, step);
        step.effects.push(Effect::GrantLease {
            waiter: waiter.id,
            generation,
            loss: self.last_loss,
        });
    }

    /// Opens or checks at most one session per queued caller, or one in all if they share it.
    fn open_or_check(&mut self, step: &mut Transition) {
        let is_checking = |one: &&Session| one.state.is_checked() && one.state.is_usable();
        let checking = self.sessions.iter().filter(is_checking);
        let mut coming = self.counts.opening + u32::try_from(checking.count()).unwrap_or(u32::MAX);
        let wanted = match self.policy.sharing {
            Sharing::SideBySide | Sharing::Serial => 1,
            Sharing::OnePerCaller => self.queue.len(),
        };
        while coming < wanted {
            let resting = self
                .sessions
                .iter()
                .position(|one| one.state == SessionState::Idle);
            if let Some(at) = resting {
                let (leases, kind) = (NonZeroU32::MIN, LeaseKind::Check);
                let Some(generation) = self.sessions.get(at).map(|one| one.generation) else {
                    return;
                };
                self.set_state(at, SessionState::Leased { leases, kind }, step);
                step.effects.push(Effect::CheckSession(generation));
            } else if self.fill_level().is_lt() {
                step.effects.push(self.start_opening(step.now));
            } else {
                return;
            }
            coming += 1;
        }
    }

    fn start_opening(&mut self, now: Tick) -> Effect {
        let generation = self.next_generation;
        self.next_generation = generation.next();
        let opening = Session::opening(generation, now);
        self.counts.add(&opening.state);
        self.sessions.push(opening);
        Effect::OpenSession(generation)
    }

    /// The number of a session that has one already. Numbers are never used twice.
    pub(super) fn assign_generation(
        &mut self,
        opening: Generation,
        asked: Option<Generation>,
        step: &mut Transition,
    ) -> Generation {
        let is_new = |number: &Generation| *number >= self.next_generation;
        let Some(to) = asked.filter(is_new) else {
            return opening;
        };
        self.next_generation = to.next();
        step.effects.push(Effect::Renumber { from: opening, to });
        to
    }

    /// How full the key is, compared with its limit.
    pub(super) fn fill_level(&self) -> Ordering {
        limits::compare_with_key_limit(&self.policy, &self.sessions)
    }

    pub(super) fn refuse_all_waiters(&mut self, refusal: LeaseRefusal, step: &mut Transition) {
        for waiter in self.queue.drain() {
            step.refuse(waiter, refusal);
        }
    }

    fn note_state_loss(&mut self, at: usize, why: EndReason) {
        let Some(session) = self.sessions.get(at) else {
            return;
        };
        let told = why.is_reportable_loss(self.policy.end_condition) && self.is_live();
        if told && session.usage == SessionUsage::Stateful {
            self.record_loss(session.generation, why, StateLoss::PRIOR_LOSS + 1);
        }
    }

    /// `first` is its number if it is the key's first loss.
    pub(super) fn record_loss(&mut self, generation: Generation, why: EndReason, first: u16) {
        let next = |before: StateLoss| before.number.wrapping_add(1);
        self.last_loss = Some(StateLoss {
            generation,
            reason: why,
            number: self.last_loss.map_or(first, next),
            is_reported: false,
        });
    }

    pub(super) fn note_if_empty(&mut self, now: Tick) {
        if self.is_empty() {
            self.empty_since = now;
        }
    }

    /// The index of the session of this number, if it is in one of these states.
    pub(super) fn find_session(
        &self,
        generation: Generation,
        is_it: impl Fn(&SessionState) -> bool,
    ) -> Option<usize> {
        self.sessions
            .iter()
            .position(|one| one.generation == generation && is_it(&one.state))
    }

    /// The index of the opening of this number.
    pub(super) fn find_opening(&self, generation: Generation) -> Option<usize> {
        self.find_session(generation, |state| *state == SessionState::Opening)
    }

    /// Events may come late after the end of a key; those are not counted.
    pub(super) fn count_invalid_event(&mut self) {
        if self.is_live() {
            self.invalid_events = self.invalid_events.saturating_add(1);
        }
    }
}

fn one_fewer(leases: NonZeroU32) -> Option<NonZeroU32> {
    NonZeroU32::new(leases.get() - 1)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Waiter {
    pub(super) id: WaiterId,
    pub(super) mode: LeaseMode,
    pub(super) position: QueuePosition,
}

/// In order of arrival. None while no caller waits, as in nearly all keys most of the time.
#[derive(Clone, Debug, Default)]
#[expect(
    clippy::box_collection,
    reason = "a key at rest keeps one word, not four"
)]
pub(super) struct WaitQueue(Option<Box<VecDeque<Waiter>>>);

impl WaitQueue {
    pub(super) fn enqueue(&mut self, waiter: Waiter) {
        let line = self.0.get_or_insert_default();
        match waiter.position {
            QueuePosition::Back => line.push_back(waiter),
            QueuePosition::Front => {
                let before = line
                    .iter()
                    .take_while(|one| one.position == QueuePosition::Front);
                let at = before.count();
                line.insert(at, waiter);
            },
        }
    }

    pub(super) fn front(&self) -> Option<Waiter> {
        self.0.as_ref()?.front().copied()
    }

    pub(super) fn pop_front(&mut self) -> Option<Waiter> {
        let served = self.0.as_mut()?.pop_front();
        self.free_if_empty();
        served
    }

    /// Removes a caller; false if it is not queued.
    pub(super) fn remove(&mut self, id: WaiterId) -> bool {
        let Some(line) = &mut self.0 else {
            return false;
        };
        let Some(at) = line.iter().position(|waiter| waiter.id == id) else {
            return false;
        };
        line.remove(at);
        self.free_if_empty();
        true
    }

    pub(super) fn drain(&mut self) -> impl Iterator<Item = Waiter> + use<> {
        let line = self.0.take().map(|line| *line);
        line.unwrap_or_default().into_iter()
    }

    pub(super) fn len(&self) -> u32 {
        let line = self.0.as_ref().map_or(0, |line| line.len());
        u32::try_from(line).unwrap_or(u32::MAX)
    }

    pub(super) const fn is_empty(&self) -> bool {
        // An empty queue is dropped.
        self.0.is_none()
    }

    fn free_if_empty(&mut self) {
        if self.0.as_ref().is_some_and(|line| line.is_empty()) {
            self.0 = None;
        }
    }
}
