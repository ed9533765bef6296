//! The cell: all that is known of one key, and the one function that changes it.
//!
//! Asked by: the pool's shell, under the cell's own lock.  Told by: callers who ask, leave and
//! settle; openings and checks that end; the keeper, who tells that time went by.
//!
//! Event in, effects out. An event that makes no sense in this state changes nothing and is
//! counted. News of a session that is not there any more changes nothing either; that is no
//! mistake, it came late.

mod moves;

use std::time::Duration;

use smallvec::SmallVec;

use super::event::{Arrival, Counts, Effect, Effects, Event, Refusal};
use super::session::{Hold, Past, Session, State, Trust};
use super::waiters::{Line, Turn, Waiter, WaiterId};
use super::{CellPolicy, Ends, Generation, Health, Loss, Outcome, Why, Word, ages};
use crate::tick::Tick;

/// Whether the key is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Live,
    Ended(Why),
}

/// All that is known of one key.
#[derive(Clone, Debug)]
pub struct Cell {
    policy: CellPolicy,
    seed: u32,
    phase: Phase,
    next: Generation,
    sessions: SmallVec<[Session; 1]>,
    line: Line,
    /// What was lost last.
    loss: Option<Loss>,
    /// Since when it has neither sessions nor callers.
    empty_since: Tick,
    counts: Counts,
    mistakes: u32,
}

impl Cell {
    /// A key nobody asked for yet. The seed spreads its limits; any number will do.
    pub fn new(policy: CellPolicy, seed: u64, now: Tick) -> Self {
        // Half of it spreads as well, and there may be very many keys.
        let [a, b, c, d, ..] = seed.to_le_bytes();
        Self {
            policy,
            seed: u32::from_le_bytes([a, b, c, d]),
            phase: Phase::Live,
            next: Generation::FIRST,
            sessions: SmallVec::new(),
            line: Line::default(),
            loss: None,
            empty_since: now,
            counts: Counts::default(),
            mistakes: 0,
        }
    }

    /// Takes in what happened and says what is to be done. Nothing else changes a cell.
    pub fn on(&mut self, event: Event, now: Tick) -> Effects {
        let mut effects = Effects::new();
        let out = &mut effects;
        match event {
            Event::Asked { waiter, want, turn } => {
                let id = waiter;
                self.asked(Waiter { id, want, turn }, now, out);
            },
            Event::Left { waiter } => self.left(waiter, now, out),
            Event::Opened {
                generation,
                arrival,
            } => self.opened(generation, arrival, now, out),
            Event::OpenFailed { generation } => self.open_failed(generation, now, out),
            Event::Withdrawn { generation } => self.withdrawn(generation, now, out),
            Event::Deserted { generation } => self.deserted(generation, now, out),
            Event::Joined { waiter, generation } => self.joined(waiter, generation, now, out),
            Event::Settled {
                generation,
                outcome,
            } => self.settled(generation, outcome, now, out),
            // Of a later loss nobody heard by that.
            Event::Told { number } => {
                if let Some(loss) = self.loss.as_mut().filter(|loss| loss.number == number) {
                    loss.word = Word::Told;
                }
            },
            Event::Gone { generation, why } => self.gone(generation, why, now, out),
            Event::Checked { generation, health } => self.checked(generation, health, now, out),
            Event::KeptAlive { generation, health } => {
                self.kept_alive(generation, health, now, out);
            },
            Event::Doubted { since } => self.doubted(since),
            Event::Reconfigured(policy) => {
                self.policy = policy;
                self.serve(now, out);
            },
            Event::Swept { forget_after } => self.swept(forget_after, now, out),
            Event::RoomNeeded { generation } => self.room_needed(generation, now, out),
            Event::Ended(why) => self.ended(why, now, out),
            Event::Cut => self.cut(now, out),
        }
        self.counts.waiting = self.line.len();
        effects
    }

    /// How many there are of each state.
    pub const fn counts(&self) -> Counts {
        self.counts
    }

    /// The same, counted anew.
    pub fn recount(&self) -> Counts {
        let mut counts = Counts {
            waiting: self.line.len(),
            ..Counts::default()
        };
        for session in &self.sessions {
            counts.add(&session.state);
        }
        counts
    }

    /// What was decided for this key.
    pub const fn policy(&self) -> &CellPolicy {
        &self.policy
    }

    /// Its sessions.
    pub fn sessions(&self) -> &[Session] {
        &self.sessions
    }

    /// What was lost last, told or not.
    pub const fn loss(&self) -> Option<Loss> {
        self.loss
    }

    /// State that died with an earlier session, if nobody was told of it yet.
    pub fn untold(&self) -> Option<Loss> {
        self.loss.filter(|loss| loss.word == Word::Untold)
    }

    /// Whether neither sessions nor callers are there.
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty() && self.line.is_empty()
    }

    /// Whether callers are let in.
    pub fn is_live(&self) -> bool {
        self.phase == Phase::Live
    }

    /// Why it ended, if it did.
    pub const fn ended_by(&self) -> Option<Why> {
        match self.phase {
            Phase::Live => None,
            Phase::Ended(why) => Some(why),
        }
    }

    /// Whether it ended, and nothing is left of it.
    pub fn is_over(&self) -> bool {
        self.phase != Phase::Live && self.is_empty()
    }

    /// Events that made no sense. Anything but zero is a mistake of the shell.
    pub const fn mistakes(&self) -> u32 {
        self.mistakes
    }

    /// The session that could go if room is needed, and since when nobody used it.
    ///
    /// A hint: whoever acts on it says [`Event::RoomNeeded`], which looks again.
    pub fn could_go(&self) -> Option<(Generation, Tick)> {
        if self.policy.ends == Ends::WithRun || !self.line.is_empty() {
            return None;
        }
        let idle = self.sessions.iter().filter(|one| one.state == State::Idle);
        let oldest = idle.min_by_key(|one| one.used)?;
        Some((oldest.generation, oldest.used))
    }

    fn asked(&mut self, waiter: Waiter, now: Tick, out: &mut Effects) {
        if let Phase::Ended(why) = self.phase {
            let (waiter, refusal) = (waiter.id, Refusal::Ended(why));
            return out.push(Effect::Refuse { waiter, refusal });
        }
        self.retire_what_is_over(now, out);
        if self.line.is_empty()
            && let Some(at) = self.best_for(waiter.want, now)
        {
            return self.grant(waiter, at, now, out);
        }
        // Whoever stands in line cannot be served now, so neither can whoever comes after. Whoever was
        // let in before is not sent away by those who came later.
        if waiter.turn == Turn::Last && self.line.len() >= self.policy.waiters.max(1) {
            let (waiter, refusal) = (waiter.id, Refusal::LineFull);
            return out.push(Effect::Refuse { waiter, refusal });
        }
        self.line.join(waiter);
        self.serve(now, out);
    }

    fn left(&mut self, waiter: WaiterId, now: Tick, out: &mut Effects) {
        // A caller that was served in the same moment is not in line; its lease comes back.
        if !self.line.leave(waiter) {
            return;
        }
        self.serve(now, out);
        if self.counts.opening > self.line.len()
            && let Some(latest) = self
                .sessions
                .iter()
                .rfind(|one| one.state == State::Opening)
        {
            let generation = latest.generation;
            out.push(Effect::Unwanted { generation });
        }
        self.note_emptiness(now);
    }

    fn opened(&mut self, opening: Generation, arrival: Arrival, now: Tick, out: &mut Effects) {
        let Some(at) = self.at(opening, |state| *state == State::Opening) else {
            return self.opened_in_vain(opening, out);
        };
        let generation = self.number_for(opening, arrival.number, out);
        if arrival.lost_state {
            let before = Generation::of(generation.number() - 1).unwrap_or(generation);
            // Of a session that is not the first one, somebody here may have shared the one before.
            let first = Loss::FROM_BEFORE + u16::from(opening != Generation::FIRST);
            self.loses(before, Why::Gone, first);
        }
        if let Some(session) = self.sessions.get_mut(at) {
            session.generation = generation;
            session.opened = Tick::at(now.since_start().saturating_sub(arrival.rested));
            session.heard = session.opened;
            session.pinged = session.opened;
            session.used = now;
            session.origin = arrival.origin;
            if arrival.left_state {
                session.past = Past::LeftState;
            }
            // Both were said of a session that is opened now; a spare has lived for a while.
            let at =
                |age: Option<Duration>| age.map_or(Tick::NEVER, |age| session.opened.after(age));
            (session.expires, session.renew) = (at(arrival.expires_in), at(arrival.renew_in));
        }
        // Limits may be lower than they were when the opening began.
        let why = match self.phase {
            Phase::Ended(why) => Some(why),
            Phase::Live if self.taken() > self.places() => Some(Why::Evicted),
            Phase::Live => None,
        };
        self.enter(at, State::Idle, now, out);
        if let Some(why) = why {
            self.close(at, why, now, out);
        }
        self.serve(now, out);
    }

    /// It was abandoned, and succeeded all the same.
    fn opened_in_vain(&mut self, generation: Generation, out: &mut Effects) {
        self.stray();
        let why = match self.phase {
            Phase::Ended(why) => why,
            Phase::Live => Why::Bug,
        };
        // Under a number that is in use it could only close another one.
        if self.at(generation, |_| true).is_none() {
            out.push(Effect::Close { generation, why });
        }
    }

    fn open_failed(&mut self, generation: Generation, now: Tick, out: &mut Effects) {
        let Some(at) = self.at(generation, |state| *state == State::Opening) else {
            return self.stray();
        };
        self.close(at, Why::OpenFailed, now, out);
        let refusal = Refusal::OpenFailed;
        let others = self
            .sessions
            .iter()
            .any(|one| one.state == State::Opening || one.state.is_usable());
        if others {
            if let Some(waiter) = self.line.serve() {
                let waiter = waiter.id;
                out.push(Effect::Refuse { waiter, refusal });
            }
        } else {
            self.refuse_all(refusal, out);
        }
        self.serve(now, out);
        self.note_emptiness(now);
    }

    fn withdrawn(&mut self, generation: Generation, now: Tick, out: &mut Effects) {
        let Some(at) = self.at(generation, |state| *state == State::Opening) else {
            return self.stray();
        };
        self.close(at, Why::OpenFailed, now, out);
        self.serve(now, out);
    }

    /// Nobody is given to another opening from here: what carried this one out could carry out none.
    fn deserted(&mut self, generation: Generation, now: Tick, out: &mut Effects) {
        let Some(at) = self.at(generation, |state| *state == State::Opening) else {
            return self.stray();
        };
        self.close(at, Why::OpenFailed, now, out);
        self.refuse_all(Refusal::Deserted, out);
        self.note_emptiness(now);
    }

    fn joined(&mut self, waiter: WaiterId, generation: Generation, now: Tick, out: &mut Effects) {
        let Some(at) = self.at(generation, State::serves_holder) else {
            return;
        };
        if let Some(session) = self.sessions.get_mut(at) {
            session.used = now;
            let next = session.state.and_one();
            self.enter(at, next, now, out);
            out.push(Effect::Lease {
                waiter,
                generation,
                loss: None,
            });
        }
    }

    fn settled(&mut self, generation: Generation, outcome: Outcome, now: Tick, out: &mut Effects) {
        let Some(at) = self.at(generation, |state| match state {
            State::Leased { hold, .. } | State::Retiring { hold, .. } => *hold != Hold::Check,
            State::Opening | State::Idle | State::Closed(_) => false,
        }) else {
            return self.stray();
        };
        self.learn(at, outcome, now, out);
        if let Outcome::Gone(why) = outcome {
            self.lose(at, why, now, out);
            // Also where its key ended meanwhile, as that of a single call has.
            if let Some(at) = self.at(generation, |_| true) {
                self.note_in_vain(at, why, now, out);
            }
        }
        // Losing it may only have marked it: the lease itself still counts.
        if let Some(at) = self.at(generation, |_| true) {
            self.give_back(at, now, out);
        }
        self.serve(now, out);
    }

    fn gone(&mut self, generation: Generation, why: Why, now: Tick, out: &mut Effects) {
        if let Some(at) = self.at(generation, State::is_usable) {
            self.lose(at, why, now, out);
            self.serve(now, out);
        } else if let Some(at) = self.at(generation, |state| *state != State::Opening) {
            self.note_in_vain(at, why, now, out);
        }
    }

    fn checked(&mut self, generation: Generation, health: Health, now: Tick, out: &mut Effects) {
        let Some(at) = self.at(generation, |state| match state {
            State::Leased { hold, .. } | State::Retiring { hold, .. } => *hold == Hold::Check,
            State::Opening | State::Idle | State::Closed(_) => false,
        }) else {
            return self.stray();
        };
        self.judge(at, health, now, out);
        if let Some(at) = self.at(generation, |_| true) {
            self.give_back(at, now, out);
        }
        self.serve(now, out);
    }

    fn kept_alive(&mut self, generation: Generation, health: Health, now: Tick, out: &mut Effects) {
        let Some(at) = self.at(generation, State::is_usable) else {
            return;
        };
        let at_rest = self
            .sessions
            .get(at)
            .is_some_and(|one| one.state == State::Idle);
        match health {
            // While it is in use only the server's word counts.
            Health::Silent | Health::Refused | Health::Unreachable if !at_rest => {},
            Health::Alive
            | Health::Gone
            | Health::Silent
            | Health::Refused
            | Health::Unreachable => {
                self.judge(at, health, now, out);
                // Nobody asked for it: the next caller has it checked again.
                if let Some(session) = self.sessions.get_mut(at)
                    && session.generation == generation
                    && session.trust == Trust::Excused
                {
                    session.trust = Trust::Doubted;
                }
            },
        }
        self.serve(now, out);
    }

    fn doubted(&mut self, since: Tick) {
        for session in &mut self.sessions {
            if session.state.is_usable() && session.heard <= since {
                session.trust = Trust::Doubted;
            }
        }
    }

    fn swept(&mut self, forget_after: Duration, now: Tick, out: &mut Effects) {
        self.serve(now, out);
        for session in &mut self.sessions {
            if ages::needs_keep_alive(session, &self.policy, self.seed.into(), now) {
                session.pinged = now;
                let generation = session.generation;
                out.push(Effect::KeepAlive { generation });
            }
        }
        // A run's key is kept as long as the run: it knows which generation comes next.
        if self.is_empty()
            && self.phase == Phase::Live
            && self.policy.ends == Ends::ByLimits
            && self.untold().is_none()
            && now.since(self.empty_since) >= forget_after
        {
            self.phase = Phase::Ended(Why::Evicted);
            out.push(Effect::Forget);
        }
    }

    fn room_needed(&mut self, generation: Generation, now: Tick, out: &mut Effects) {
        if self.policy.ends == Ends::ByLimits
            && self.line.is_empty()
            && let Some(at) = self.at(generation, |state| *state == State::Idle)
        {
            self.close(at, Why::Evicted, now, out);
        }
    }

    fn ended(&mut self, why: Why, now: Tick, out: &mut Effects) {
        if self.phase != Phase::Live {
            return;
        }
        self.phase = Phase::Ended(why);
        self.refuse_all(Refusal::Ended(why), out);
        for at in (0..self.sessions.len()).rev() {
            self.retire(at, why, now, out);
        }
    }

    fn cut(&mut self, now: Tick, out: &mut Effects) {
        let Phase::Ended(why) = self.phase else {
            return self.stray();
        };
        for at in (0..self.sessions.len()).rev() {
            let Some(session) = self.sessions.get(at) else {
                continue;
            };
            let generation = session.generation;
            if session.state == State::Opening {
                out.push(Effect::Abandon { generation });
            }
            self.close(at, why, now, out);
        }
    }
}
