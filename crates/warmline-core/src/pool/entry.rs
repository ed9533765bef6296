//! The state of one key, and the one function that changes it.
//!
//! An event that makes no sense in this state changes nothing and is counted. An event about a
//! session that is gone changes nothing either; it only came late.

mod transitions;

use std::time::Duration;

use smallvec::SmallVec;

use super::events::{Effect, Effects, Event, LeaseRefusal, OpenedSession, SessionCounts};
use super::session::{CheckNeed, LeaseKind, Session, SessionState, SessionUsage};
use super::waiters::{QueuePosition, WaitQueue, Waiter, WaiterId};
use super::{
    EndCondition, EndReason, EntryPolicy, Generation, HealthCheckResult, LeaseOutcome, LossReport,
    StateLoss, expiry,
};
use crate::time::Tick;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EntryPhase {
    Live,
    Ended(EndReason),
}

/// The state of one key.
#[derive(Clone, Debug)]
pub struct EntryState {
    policy: EntryPolicy,
    seed: u32,
    phase: EntryPhase,
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
            phase: EntryPhase::Live,
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
        let mut effects = Effects::new();
        let out = &mut effects;
        match event {
            Event::LeaseRequested {
                waiter: id,
                mode,
                position,
            } => self.on_lease_requested(Waiter { id, mode, position }, now, out),
            Event::WaiterLeft(waiter) => self.on_waiter_left(waiter, now, out),
            Event::Opened(generation, arrival) => self.on_opened(generation, arrival, now, out),
            Event::OpenFailed(generation) => self.on_open_failed(generation, now, out),
            Event::OpenCancelled(generation) => self.on_open_cancelled(generation, now, out),
            Event::OpenerLost(generation) => self.on_opener_lost(generation, now, out),
            Event::HolderCallStarted(waiter, generation) => {
                self.on_holder_call_started(waiter, generation, now, out);
            },
            Event::LeaseReturned(generation, outcome) => {
                self.on_lease_returned(generation, outcome, now, out);
            },
            // A later loss stays unreported.
            Event::LossReported(number) => {
                if let Some(loss) = self.last_loss.as_mut().filter(|loss| loss.number == number) {
                    loss.report = LossReport::Reported;
                }
            },
            Event::SessionEnded(generation, why) => {
                self.on_session_ended(generation, why, now, out);
            },
            Event::CheckFinished(generation, health) => {
                self.on_check_finished(generation, health, now, out);
            },
            Event::KeepAliveFinished(generation, health) => {
                self.on_keep_alive_finished(generation, health, now, out);
            },
            Event::ServerLostSessions(since) => self.on_server_lost_sessions(since),
            Event::Reconfigured(policy) => {
                self.policy = policy;
                self.serve_queue(now, out);
            },
            Event::MaintenanceTick(forget_after) => {
                self.on_maintenance_tick(forget_after, now, out);
            },
            Event::PermitNeeded(generation) => self.on_permit_needed(generation, now, out),
            Event::EntryEnded(why) => self.on_entry_ended(why, now, out),
            Event::GraceExpired => self.on_grace_expired(now, out),
        }
        self.counts.waiting = self.queue.len();
        effects
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

    /// Its policy.
    pub const fn policy(&self) -> &EntryPolicy {
        &self.policy
    }

    /// Its sessions.
    pub fn sessions(&self) -> &[Session] {
        &self.sessions
    }

    /// The last loss, reported or not.
    pub const fn last_loss(&self) -> Option<StateLoss> {
        self.last_loss
    }

    /// The last loss, if it was not reported to any caller.
    pub fn unreported_loss(&self) -> Option<StateLoss> {
        self.last_loss
            .filter(|loss| loss.report == LossReport::Unreported)
    }

    /// Whether it has neither sessions nor queued callers.
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty() && self.queue.is_empty()
    }

    /// Whether it takes callers.
    pub fn is_live(&self) -> bool {
        self.phase == EntryPhase::Live
    }

    /// Why it ended, if it did.
    pub const fn end_reason(&self) -> Option<EndReason> {
        match self.phase {
            EntryPhase::Live => None,
            EntryPhase::Ended(why) => Some(why),
        }
    }

    /// Whether it ended, and nothing is left of it.
    pub fn is_finished(&self) -> bool {
        self.phase != EntryPhase::Live && self.is_empty()
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

    fn on_lease_requested(&mut self, waiter: Waiter, now: Tick, out: &mut Effects) {
        if let EntryPhase::Ended(why) = self.phase {
            let (waiter, refusal) = (waiter.id, LeaseRefusal::EntryEnded(why));
            return out.push(Effect::RefuseLease(waiter, refusal));
        }
        self.retire_expired(now, out);
        if self.queue.is_empty()
            && let Some(at) = self.best_session_for(waiter.mode, now)
        {
            return self.grant_lease(waiter, at, now, out);
        }
        // Callers behind queued ones have to wait too. A caller that was admitted before is not
        // refused because of later ones.
        if waiter.position == QueuePosition::Back
            && self.queue.len() >= self.policy.max_waiters.max(1)
        {
            let (waiter, refusal) = (waiter.id, LeaseRefusal::QueueFull);
            return out.push(Effect::RefuseLease(waiter, refusal));
        }
        self.queue.enqueue(waiter);
        self.serve_queue(now, out);
    }

    fn on_waiter_left(&mut self, waiter: WaiterId, now: Tick, out: &mut Effects) {
        // A caller that was granted a lease at the same moment is not queued; its lease comes back.
        if !self.queue.remove(waiter) {
            return;
        }
        self.serve_queue(now, out);
        if self.counts.opening > self.queue.len()
            && let Some(latest) = self
                .sessions
                .iter()
                .rfind(|one| one.state == SessionState::Opening)
        {
            let generation = latest.generation;
            out.push(Effect::OpenUnneeded(generation));
        }
        self.note_if_empty(now);
    }

    fn on_opened(
        &mut self,
        opening: Generation,
        arrival: OpenedSession,
        now: Tick,
        out: &mut Effects,
    ) {
        let Some(at) = self.find_opening(opening) else {
            return self.on_opened_after_abort(opening, out);
        };
        let generation = self.assign_generation(opening, arrival.generation, out);
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
                Tick::from_start(now.since_start().saturating_sub(arrival.idle_time));
            session.last_alive = session.opened_at;
            session.last_keep_alive = session.opened_at;
            session.last_used = now;
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
        let why = match self.phase {
            EntryPhase::Ended(why) => Some(why),
            EntryPhase::Live if self.used_slots() > self.max_slots() => Some(EndReason::Evicted),
            EntryPhase::Live => None,
        };
        self.set_state(at, SessionState::Idle, now, out);
        if let Some(why) = why {
            self.close_session(at, why, now, out);
        }
        self.serve_queue(now, out);
    }

    /// It was aborted, and succeeded all the same.
    fn on_opened_after_abort(&mut self, generation: Generation, out: &mut Effects) {
        self.count_invalid_event();
        let why = match self.phase {
            EntryPhase::Ended(why) => why,
            EntryPhase::Live => EndReason::Bug,
        };
        // With a number that is in use, closing would hit the other session.
        if self.find_session(generation, |_| true).is_none() {
            out.push(Effect::CloseSession(generation, why));
        }
    }

    fn on_open_failed(&mut self, generation: Generation, now: Tick, out: &mut Effects) {
        let Some(at) = self.find_opening(generation) else {
            return self.count_invalid_event();
        };
        self.close_session(at, EndReason::OpenFailed, now, out);
        let refusal = LeaseRefusal::OpenFailed;
        let others = self
            .sessions
            .iter()
            .any(|one| one.state == SessionState::Opening || one.state.is_usable());
        if others {
            if let Some(waiter) = self.queue.pop_front() {
                let waiter = waiter.id;
                out.push(Effect::RefuseLease(waiter, refusal));
            }
        } else {
            self.refuse_all_waiters(refusal, out);
        }
        self.serve_queue(now, out);
        self.note_if_empty(now);
    }

    fn on_open_cancelled(&mut self, generation: Generation, now: Tick, out: &mut Effects) {
        let Some(at) = self.find_opening(generation) else {
            return self.count_invalid_event();
        };
        self.close_session(at, EndReason::OpenFailed, now, out);
        self.serve_queue(now, out);
    }

    /// The waiters are not moved to another opening here: they ask again.
    fn on_opener_lost(&mut self, generation: Generation, now: Tick, out: &mut Effects) {
        let Some(at) = self.find_opening(generation) else {
            return self.count_invalid_event();
        };
        self.close_session(at, EndReason::OpenFailed, now, out);
        self.refuse_all_waiters(LeaseRefusal::OpenerLost, out);
        self.note_if_empty(now);
    }

    fn on_holder_call_started(
        &mut self,
        waiter: WaiterId,
        generation: Generation,
        now: Tick,
        out: &mut Effects,
    ) {
        let Some(at) = self.find_session(generation, SessionState::serves_exclusive_holder) else {
            return;
        };
        if let Some(session) = self.sessions.get_mut(at) {
            session.last_used = now;
            let next = session.state.with_extra_lease();
            self.set_state(at, next, now, out);
            out.push(Effect::GrantLease {
                waiter,
                generation,
                loss: None,
            });
        }
    }

    fn on_lease_returned(
        &mut self,
        generation: Generation,
        outcome: LeaseOutcome,
        now: Tick,
        out: &mut Effects,
    ) {
        let Some(at) = self.find_session(generation, |state| {
            state
                .lease_kind()
                .is_some_and(|kind| kind != LeaseKind::Check)
        }) else {
            return self.count_invalid_event();
        };
        self.apply_lease_outcome(at, outcome, now, out);
        if let LeaseOutcome::SessionEnded(why) = outcome {
            self.lose_session(at, why, now, out);
            // Even if its key ended meanwhile, as that of a single call has.
            if let Some(at) = self.find_session(generation, |_| true) {
                self.note_short_lived(at, why, now, out);
            }
        }
        // The session may only be marked as lost: its lease still counts.
        if let Some(at) = self.find_session(generation, |_| true) {
            self.release_lease(at, now, out);
        }
        self.serve_queue(now, out);
    }

    fn on_session_ended(
        &mut self,
        generation: Generation,
        why: EndReason,
        now: Tick,
        out: &mut Effects,
    ) {
        if let Some(at) = self.find_session(generation, SessionState::is_usable) {
            self.lose_session(at, why, now, out);
            self.serve_queue(now, out);
        } else if let Some(at) =
            self.find_session(generation, |state| *state != SessionState::Opening)
        {
            self.note_short_lived(at, why, now, out);
        }
    }

    fn on_check_finished(
        &mut self,
        generation: Generation,
        health: HealthCheckResult,
        now: Tick,
        out: &mut Effects,
    ) {
        let Some(at) = self.find_session(generation, |state| {
            state
                .lease_kind()
                .is_some_and(|kind| kind == LeaseKind::Check)
        }) else {
            return self.count_invalid_event();
        };
        self.apply_check_result(at, health, now, out);
        if let Some(at) = self.find_session(generation, |_| true) {
            self.release_lease(at, now, out);
        }
        self.serve_queue(now, out);
    }

    fn on_keep_alive_finished(
        &mut self,
        generation: Generation,
        health: HealthCheckResult,
        now: Tick,
        out: &mut Effects,
    ) {
        let Some(at) = self.find_session(generation, SessionState::is_usable) else {
            return;
        };
        let at_rest = self
            .sessions
            .get(at)
            .is_some_and(|one| one.state == SessionState::Idle);
        match health {
            // While it is in use only an answer of the server counts.
            HealthCheckResult::TimedOut
            | HealthCheckResult::Refused
            | HealthCheckResult::Unreachable
                if !at_rest => {},
            HealthCheckResult::Alive
            | HealthCheckResult::Gone
            | HealthCheckResult::TimedOut
            | HealthCheckResult::Refused
            | HealthCheckResult::Unreachable => {
                self.apply_check_result(at, health, now, out);
                // No caller asked for this check: the next one has the session checked again.
                if let Some(session) = self.sessions.get_mut(at)
                    && session.generation == generation
                    && session.check_need == CheckNeed::SkipOnce
                {
                    session.check_need = CheckNeed::BeforeNextUse;
                }
            },
        }
        self.serve_queue(now, out);
    }

    fn on_server_lost_sessions(&mut self, since: Tick) {
        for session in &mut self.sessions {
            if session.state.is_usable() && session.last_alive <= since {
                session.check_need = CheckNeed::BeforeNextUse;
            }
        }
    }

    fn on_maintenance_tick(&mut self, forget_after: Duration, now: Tick, out: &mut Effects) {
        self.serve_queue(now, out);
        for session in &mut self.sessions {
            if expiry::needs_keep_alive(session, &self.policy, self.seed.into(), now) {
                session.last_keep_alive = now;
                let generation = session.generation;
                out.push(Effect::KeepAlive(generation));
            }
        }
        // The key of a run is kept with its run: it knows the next generation.
        if self.is_empty()
            && self.phase == EntryPhase::Live
            && self.policy.end_condition == EndCondition::AtLimits
            && self.unreported_loss().is_none()
            && now.duration_since(self.empty_since) >= forget_after
        {
            self.phase = EntryPhase::Ended(EndReason::Evicted);
            out.push(Effect::EvictEntry);
        }
    }

    fn on_permit_needed(&mut self, generation: Generation, now: Tick, out: &mut Effects) {
        if self.policy.end_condition == EndCondition::AtLimits
            && self.queue.is_empty()
            && let Some(at) = self.find_session(generation, |state| *state == SessionState::Idle)
        {
            self.close_session(at, EndReason::Evicted, now, out);
        }
    }

    fn on_entry_ended(&mut self, why: EndReason, now: Tick, out: &mut Effects) {
        if self.phase != EntryPhase::Live {
            return;
        }
        self.phase = EntryPhase::Ended(why);
        self.refuse_all_waiters(LeaseRefusal::EntryEnded(why), out);
        for at in (0..self.sessions.len()).rev() {
            self.retire_session(at, why, now, out);
        }
    }

    fn on_grace_expired(&mut self, now: Tick, out: &mut Effects) {
        let EntryPhase::Ended(why) = self.phase else {
            return self.count_invalid_event();
        };
        for at in (0..self.sessions.len()).rev() {
            let Some(session) = self.sessions.get(at) else {
                continue;
            };
            let generation = session.generation;
            if session.state == SessionState::Opening {
                out.push(Effect::AbortOpen(generation));
            }
            self.close_session(at, why, now, out);
        }
    }
}
