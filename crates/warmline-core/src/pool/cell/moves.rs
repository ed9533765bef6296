//! The moves a cell is made of: each event is some of these.

use std::num::NonZeroU32;

use super::{Cell, Phase};
use crate::pool::event::{Effect, Effects, Refusal};
use crate::pool::proof::Worth;
use crate::pool::session::{Hold, Past, Session, State, Trust};
use crate::pool::waiters::Waiter;
use crate::pool::{Ends, Generation, Health, Loss, Outcome, Sharing, Want, Why, Word, ages};
use crate::tick::Tick;

impl Cell {
    /// The only place where a session changes state: counts and closings follow from here.
    pub(super) fn enter(&mut self, at: usize, next: State, now: Tick, out: &mut Effects) {
        let Some(session) = self.sessions.get_mut(at) else {
            return self.stray();
        };
        let before = std::mem::replace(&mut session.state, next);
        let generation = session.generation;
        self.counts.subtract(&before);
        self.counts.add(&next);
        if let State::Closed(why) = next {
            self.sessions.remove(at);
            self.note_emptiness(now);
            // What was never open cannot be closed.
            if before != State::Opening {
                out.push(Effect::Close { generation, why });
            }
        }
    }

    pub(super) fn close(&mut self, at: usize, why: Why, now: Tick, out: &mut Effects) {
        self.enter(at, State::Closed(why), now, out);
    }

    /// Lets no new lease in; closes what has none. An opening is judged when it has ended.
    pub(super) fn retire(&mut self, at: usize, why: Why, now: Tick, out: &mut Effects) {
        let Some(session) = self.sessions.get(at) else {
            return;
        };
        match session.state {
            State::Idle => {
                self.note_loss(at, why);
                self.close(at, why, now, out);
            },
            State::Leased { leases, hold } => {
                self.note_loss(at, why);
                self.enter(at, State::Retiring { leases, hold, why }, now, out);
            },
            State::Opening | State::Retiring { .. } | State::Closed(_) => {},
        }
    }

    /// A session is over, and its key goes on. If its server ended it, its siblings may be over too.
    pub(super) fn lose(&mut self, at: usize, why: Why, now: Tick, out: &mut Effects) {
        let Some(session) = self.sessions.get(at).filter(|one| one.state.is_usable()) else {
            return;
        };
        let generation = session.generation;
        out.push(Effect::Lost { generation, why });
        self.note_in_vain(at, why, now, out);
        self.retire(at, why, now, out);
        if !why.is_of_server() {
            return;
        }
        for sibling in &mut self.sessions {
            if sibling.state.is_usable() {
                sibling.trust = Trust::Doubted;
            }
        }
    }

    /// Says that a session was opened in vain, if it was: it is over, and not by our will.
    pub(super) fn note_in_vain(&mut self, at: usize, why: Why, now: Tick, out: &mut Effects) {
        let proof = self.policy.proof;
        if let Some(session) = self.sessions.get_mut(at)
            && why.is_of_server()
            && session.worth == Worth::Open
            && proof.is_missed(session, now)
        {
            session.worth = Worth::InVain;
            let (generation, opened) = (session.generation, session.opened);
            out.push(Effect::InVain { generation, opened });
        }
    }

    /// What a lease tells of its session.
    pub(super) fn learn(&mut self, at: usize, outcome: Outcome, now: Tick, out: &mut Effects) {
        let (sharing, proof) = (self.policy.sharing, self.policy.proof);
        let Some(session) = self.sessions.get_mut(at) else {
            return;
        };
        let before = session.past;
        match outcome {
            Outcome::Unused => return,
            Outcome::Fine { left_state } => {
                let past = if left_state {
                    Past::LeftState
                } else {
                    Past::Served
                };
                session.past = before.max(past);
                session.heard = now;
                session.silent = 0;
                session.trust = Trust::Sure;
                if session.worth != Worth::Proven && proof.is_given(session, now) {
                    session.worth = Worth::Proven;
                    let generation = session.generation;
                    out.push(Effect::Proven { generation });
                }
            },
            Outcome::Broken => session.trust = Trust::Doubted,
            // Beside others a caller who left says nothing. Alone it may have left a mess.
            Outcome::Dropped if sharing == Sharing::SideBySide => {},
            Outcome::Dropped => session.trust = Trust::Doubted,
            Outcome::Gone(_) => {},
        }
        session.used = now;
        let (state, past) = (session.state, session.past);
        // Answered after it was given up: what it left is lost all the same.
        if let State::Retiring { why, .. } = state
            && past > before
        {
            self.note_loss(at, why);
        }
    }

    /// What a check found.
    pub(super) fn judge(&mut self, at: usize, health: Health, now: Tick, out: &mut Effects) {
        let ends = self.policy.ends;
        let Some(session) = self.sessions.get_mut(at) else {
            return;
        };
        match (health, ends) {
            (Health::Alive, _) => {
                session.heard = now;
                session.silent = 0;
                session.trust = Trust::Sure;
            },
            (Health::Gone, _) => self.lose(at, Why::Gone, now, out),
            (Health::Silent, Ends::WithRun) => {
                session.silent = session.silent.saturating_add(1);
                session.trust = Trust::Excused;
                if session.silent >= ages::SILENCES {
                    self.lose(at, Why::CheckFailed, now, out);
                }
            },
            // Trouble on the wire is no verdict: the session may live, and know something. What a run
            // remembers is worth more than a doubt.
            (Health::Unreachable, _) | (Health::Refused, Ends::WithRun) => {
                session.trust = Trust::Excused;
            },
            (Health::Silent | Health::Refused, Ends::ByLimits) => {
                self.lose(at, Why::CheckFailed, now, out);
            },
        }
    }

    /// Takes back one lease.
    pub(super) fn give_back(&mut self, at: usize, now: Tick, out: &mut Effects) {
        let Some(session) = self.sessions.get(at) else {
            return;
        };
        let next = match session.state {
            State::Leased { leases, hold } => match fewer(leases) {
                Some(leases) => State::Leased { leases, hold },
                None => State::Idle,
            },
            State::Retiring { leases, hold, why } => match fewer(leases) {
                Some(leases) => State::Retiring { leases, hold, why },
                None => State::Closed(why),
            },
            State::Opening | State::Idle | State::Closed(_) => return self.stray(),
        };
        self.enter(at, next, now, out);
    }

    /// Ends what is too old or too many, then serves the line as far as it can be served, and
    /// has opened or checked what is missing.
    pub(super) fn serve(&mut self, now: Tick, out: &mut Effects) {
        if self.phase != Phase::Live {
            return;
        }
        self.retire_what_is_over(now, out);
        while let Some(first) = self.line.first() {
            let Some(at) = self.best_for(first.want, now) else {
                return self.summon(now, out);
            };
            self.line.serve();
            self.grant(first, at, now, out);
        }
    }

    pub(super) fn retire_what_is_over(&mut self, now: Tick, out: &mut Effects) {
        for at in (0..self.sessions.len()).rev() {
            let Some(session) = self.sessions.get(at) else {
                continue;
            };
            let too_many = session.state == State::Idle
                && self.policy.ends == Ends::ByLimits
                && self.taken() > self.places();
            let over = ages::over(session, &self.policy, self.seed.into(), now);
            if let Some(why) = over.or(too_many.then_some(Why::Evicted)) {
                self.retire(at, why, now, out);
            }
        }
    }

    /// The session a caller gets now, if it gets one. Of several the one used last: the others
    /// may then rest until they are closed.
    pub(super) fn best_for(&self, want: Want, now: Tick) -> Option<usize> {
        let fits = |session: &Session| match session.state {
            State::Idle => !ages::needs_check(session, &self.policy, now),
            State::Leased { hold, .. } => {
                hold == Hold::Shared
                    && want == Want::Shared
                    && self.policy.sharing == Sharing::SideBySide
            },
            State::Opening | State::Retiring { .. } | State::Closed(_) => false,
        };
        let fitting = self
            .sessions
            .iter()
            .enumerate()
            .filter(|(_, one)| fits(one));
        fitting.max_by_key(|(_, one)| one.used).map(|(at, _)| at)
    }

    pub(super) fn grant(&mut self, waiter: Waiter, at: usize, now: Tick, out: &mut Effects) {
        let hold = match (waiter.want, self.policy.sharing) {
            (Want::Exclusive, _) => Hold::Exclusive,
            (Want::Shared, Sharing::SideBySide) => Hold::Shared,
            (Want::Shared, Sharing::Serial | Sharing::OneEach) => Hold::Single,
        };
        let Some(session) = self.sessions.get_mut(at) else {
            return self.stray();
        };
        let leases = NonZeroU32::MIN.saturating_add(session.state.leases());
        let generation = session.generation;
        session.used = now;
        if session.trust == Trust::Excused {
            session.trust = Trust::Doubted;
        }
        self.enter(at, State::Leased { leases, hold }, now, out);
        out.push(Effect::Lease {
            waiter: waiter.id,
            generation,
            loss: self.loss,
        });
    }

    /// Has opened or checked what the line needs, one session for each caller at most, and one
    /// for all of them where they share it.
    fn summon(&mut self, now: Tick, out: &mut Effects) {
        let checking = self
            .sessions
            .iter()
            .filter(|one| is_checked(&one.state))
            .count();
        let mut coming = self.counts.opening + u32::try_from(checking).unwrap_or(u32::MAX);
        let wanted = match self.policy.sharing {
            Sharing::SideBySide | Sharing::Serial => 1,
            Sharing::OneEach => self.line.len(),
        };
        while coming < wanted {
            let resting = self
                .sessions
                .iter()
                .position(|one| one.state == State::Idle);
            if let Some(at) = resting {
                let (leases, hold) = (NonZeroU32::MIN, Hold::Check);
                let Some(generation) = self.sessions.get(at).map(Session::generation) else {
                    return;
                };
                self.enter(at, State::Leased { leases, hold }, now, out);
                out.push(Effect::Check { generation });
            } else if self.taken() < self.places() {
                out.push(self.open(now));
            } else {
                return;
            }
            coming += 1;
        }
    }

    fn open(&mut self, now: Tick) -> Effect {
        let generation = self.next;
        self.next = generation.next();
        let opening = Session::opening(generation, now);
        self.counts.add(&opening.state);
        self.sessions.push(opening);
        Effect::Open { generation }
    }

    /// The number of a session that was opened under another. Numbers are never given twice.
    pub(super) fn number_for(
        &mut self,
        opening: Generation,
        asked: Option<Generation>,
        out: &mut Effects,
    ) -> Generation {
        let is_new = |number: &Generation| *number >= self.next;
        let Some(to) = asked.filter(is_new) else {
            return opening;
        };
        self.next = to.next();
        out.push(Effect::Renumber { from: opening, to });
        to
    }

    /// How many places of the key are taken. Where callers share one session, one that retires
    /// beside its replacement takes none: a busy session could not be replaced otherwise.
    pub(super) fn taken(&self) -> u32 {
        let takes = |session: &&Session| match self.policy.sharing {
            Sharing::OneEach => session.state.takes_place(),
            Sharing::SideBySide | Sharing::Serial => {
                session.state == State::Opening || session.state.is_usable()
            },
        };
        let taken = self.sessions.iter().filter(takes).count();
        u32::try_from(taken).unwrap_or(u32::MAX)
    }

    pub(super) fn places(&self) -> u32 {
        match self.policy.sharing {
            Sharing::SideBySide | Sharing::Serial => 1,
            Sharing::OneEach => self.policy.max.max(1),
        }
    }

    pub(super) fn refuse_all(&mut self, refusal: Refusal, out: &mut Effects) {
        for waiter in self.line.dissolve() {
            let waiter = waiter.id;
            out.push(Effect::Refuse { waiter, refusal });
        }
    }

    /// Remembers that state died with a session.
    fn note_loss(&mut self, at: usize, why: Why) {
        let Some(session) = self.sessions.get(at) else {
            return;
        };
        let told = is_loss(why, self.policy.ends) && self.phase == Phase::Live;
        if told && session.past == Past::LeftState {
            self.loses(session.generation, why, Loss::FROM_BEFORE + 1);
        }
    }

    /// Notes a loss, which has this number if it is the first one.
    pub(super) fn loses(&mut self, generation: Generation, why: Why, first: u16) {
        let next = |before: Loss| before.number.wrapping_add(1);
        self.loss = Some(Loss {
            generation,
            why,
            number: self.loss.map_or(first, next),
            word: Word::Untold,
        });
    }

    pub(super) fn note_emptiness(&mut self, now: Tick) {
        if self.is_empty() {
            self.empty_since = now;
        }
    }

    /// Where the session of this number stands, if it is in one of these states.
    pub(super) fn at(
        &self,
        generation: Generation,
        is_it: impl Fn(&State) -> bool,
    ) -> Option<usize> {
        self.sessions
            .iter()
            .position(|one| one.generation == generation && is_it(&one.state))
    }

    /// Something came that makes no sense. After the end of a key much comes late; that is none.
    pub(super) fn stray(&mut self) {
        if self.phase == Phase::Live {
            self.mistakes = self.mistakes.saturating_add(1);
        }
    }
}

/// Whether the end of a session that held state is worth telling.
///
/// Whoever shares a session by limits knows that limits end it. A run loses what it believed to
/// have, whoever ends it.
const fn is_loss(why: Why, ends: Ends) -> bool {
    match why {
        Why::RunEnded | Why::Drained | Why::Kept | Why::OpenFailed => false,
        Why::Aged | Why::IdleTooLong | Why::Evicted | Why::Reloaded => {
            matches!(ends, Ends::WithRun)
        },
        Why::ByOperator
        | Why::CheckFailed
        | Why::Gone
        | Why::CredentialRefused
        | Why::Expired
        | Why::Bug => true,
    }
}

const fn is_checked(state: &State) -> bool {
    matches!(
        state,
        State::Leased {
            hold: Hold::Check,
            ..
        }
    )
}

fn fewer(leases: NonZeroU32) -> Option<NonZeroU32> {
    NonZeroU32::new(leases.get() - 1)
}
