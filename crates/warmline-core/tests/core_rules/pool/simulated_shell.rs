//! A world around one cell: it answers effects as the shell would, so that histories are legal.

use std::collections::BTreeSet;
use std::time::Duration;

use warmline_core::pool::{
    Effect, Effects, EndReason, EntryPolicy, EntryState, Event, Generation, LeaseMode,
    OpenedSession, QueuePosition, StateLoss, WaiterId,
};
use warmline_core::time::Tick;

use super::random_events::Move;

#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) cell: EntryState,
    pub(crate) policy: EntryPolicy,
    pub(crate) now: Tick,
    pub(crate) waiting: Vec<WaiterId>,
    pub(crate) leases: Vec<(Generation, Option<StateLoss>)>,
    pub(crate) opening: Vec<Generation>,
    pub(crate) checking: Vec<Generation>,
    pub(crate) open: BTreeSet<Generation>,
    pub(crate) closed: BTreeSet<Generation>,
    pub(crate) ended: bool,
    asked: u64,
}

impl World {
    pub(crate) fn new(policy: EntryPolicy, seed: u64) -> Self {
        let now = Tick::from_start(Duration::from_secs(1_000));
        Self {
            cell: EntryState::new(policy, seed, now),
            policy,
            now,
            waiting: Vec::new(),
            leases: Vec::new(),
            opening: Vec::new(),
            checking: Vec::new(),
            open: BTreeSet::new(),
            closed: BTreeSet::new(),
            ended: false,
            asked: 0,
        }
    }

    /// The event that a move means here; none if there is nothing it could happen to.
    pub(crate) fn event(&mut self, one: Move) -> Option<Event> {
        Some(match one {
            Move::Ask(want) => self.asked(want, QueuePosition::Back),
            Move::AskAgain(want) => self.asked(want, QueuePosition::Front),
            Move::Leave(n) => Event::WaiterLeft(take(&mut self.waiting, n)?),
            Move::Opened(n) => {
                let generation = take(&mut self.opening, n)?;
                self.open.insert(generation);
                Event::Opened(generation, OpenedSession::FRESH)
            },
            Move::OpenFailed(n) => self.in_vain(n, Event::OpenFailed)?,
            Move::Withdraw(n) => self.in_vain(n, Event::OpenCancelled)?,
            Move::Desert(n) => self.in_vain(n, Event::OpenerLost)?,
            Move::Settle(n, outcome) => {
                let (generation, _) = take(&mut self.leases, n)?;
                Event::LeaseReturned(generation, outcome)
            },
            Move::Tell(n) => {
                let at = n.checked_rem(self.leases.len())?;
                let (_, loss) = self.leases.get_mut(at)?;
                let number = loss.take()?.number;
                Event::LossReported(number)
            },
            Move::Join(n) => {
                let at = n.checked_rem(self.leases.len())?;
                let (generation, _) = *self.leases.get(at)?;
                self.asked += 1;
                let waiter = WaiterId(self.asked);
                Event::HolderCallStarted(waiter, generation)
            },
            Move::Checked(n, health) => Event::CheckFinished(take(&mut self.checking, n)?, health),
            Move::Gone(_)
            | Move::Close(_)
            | Move::KeptAlive(..)
            | Move::Doubt
            | Move::Wait(_)
            | Move::Sweep
            | Move::RoomNeeded(_)
            | Move::Limit(_)
            | Move::End
            | Move::Cut => return self.news(one),
        })
    }

    fn asked(&mut self, want: LeaseMode, turn: QueuePosition) -> Event {
        self.asked += 1;
        let waiter = WaiterId(self.asked);
        self.waiting.push(waiter);
        Event::LeaseRequested {
            waiter,
            mode: want,
            position: turn,
        }
    }

    /// An opening comes to nothing.
    fn in_vain(&mut self, n: usize, event: fn(Generation) -> Event) -> Option<Event> {
        take(&mut self.opening, n).map(event)
    }

    /// Moves that answer nothing the cell asked for.
    fn news(&mut self, one: Move) -> Option<Event> {
        Some(match one {
            Move::Gone(n) => Event::SessionEnded(self.any_session(n)?, EndReason::Gone),
            Move::Close(n) => Event::SessionEnded(self.any_session(n)?, EndReason::ByOperator),
            Move::KeptAlive(n, health) => Event::KeepAliveFinished(self.any_session(n)?, health),
            Move::Doubt => Event::ServerLostSessions(self.now),
            Move::Wait(secs) => {
                self.now = self.now.after(Duration::from_secs(secs));
                return None;
            },
            Move::Sweep => Event::MaintenanceTick(Duration::from_secs(100_000)),
            Move::RoomNeeded(n) => Event::PermitNeeded(self.any_session(n)?),
            Move::Limit(max) => {
                self.policy.max_sessions = max;
                Event::Reconfigured(self.policy)
            },
            Move::End => {
                self.ended = true;
                Event::EntryEnded(EndReason::RunEnded)
            },
            Move::Cut if self.ended => Event::GraceExpired,
            Move::Ask(_)
            | Move::AskAgain(_)
            | Move::Leave(_)
            | Move::Opened(_)
            | Move::OpenFailed(_)
            | Move::Desert(_)
            | Move::Withdraw(_)
            | Move::Settle(..)
            | Move::Tell(_)
            | Move::Join(_)
            | Move::Checked(..)
            | Move::Cut => return None,
        })
    }

    /// Tells the cell, and does what it says.
    pub(crate) fn tell(&mut self, event: Event) -> Effects {
        let effects = self.cell.handle_event(event, self.now);
        for effect in &effects {
            self.carry_out(*effect);
        }
        effects
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::GrantLease {
                waiter,
                generation,
                loss,
            } => {
                self.waiting.retain(|one| *one != waiter);
                self.leases.push((generation, loss));
            },
            Effect::RefuseLease(waiter, _) => self.waiting.retain(|one| *one != waiter),
            Effect::OpenSession(generation) => self.opening.push(generation),
            Effect::AbortOpen(generation) => self.opening.retain(|one| *one != generation),
            Effect::CheckSession(generation) => self.checking.push(generation),
            Effect::CloseSession(generation, _) => {
                self.open.remove(&generation);
                self.closed.insert(generation);
            },
            Effect::Renumber { from, to } => {
                self.open.remove(&from);
                self.open.insert(to);
            },
            Effect::OpenUnneeded(..)
            | Effect::KeepAlive(..)
            | Effect::SessionStable(..)
            | Effect::SessionShortLived(..)
            | Effect::SessionLost(..)
            | Effect::EvictEntry => {},
        }
    }

    /// Any session there is or ever was.
    fn any_session(&self, n: usize) -> Option<Generation> {
        let all: Vec<_> = self.open.union(&self.closed).copied().collect();
        all.get(n.checked_rem(all.len())?).copied()
    }
}

fn take<T>(from: &mut Vec<T>, n: usize) -> Option<T> {
    let at = n.checked_rem(from.len())?;
    Some(from.remove(at))
}
