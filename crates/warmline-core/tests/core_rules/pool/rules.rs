//! Single promises of the machine, one by one.

use std::time::Duration;

use warmline_core::pool::{
    Effect, Effects, EndCondition, EndReason, EntryPolicy, EntryState, Event, Generation,
    LeaseMode, LeaseOutcome, OpenedSession, QueuePosition, SessionOrigin, StateLoss, WaiterId,
};
use warmline_core::time::Tick;

use super::properties::side_by_side;
use super::random_events::Move;
use super::simulated_shell::World;

pub(crate) const FINE: LeaseOutcome = LeaseOutcome::Answered { stateful: false };
pub(crate) const LEFT_STATE: LeaseOutcome = LeaseOutcome::Answered { stateful: true };

pub(crate) fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

impl World {
    pub(crate) fn make(&mut self, one: Move) -> Effects {
        let event = self.event(one).expect("something it can happen to");
        self.tell(event)
    }

    pub(crate) fn wait(&mut self, secs: u64) {
        self.event(Move::Wait(secs));
    }

    pub(crate) fn ask(&mut self) -> Effects {
        self.make(Move::Ask(LeaseMode::Shared))
    }

    /// A world whose one session is open, was used like this, and rests.
    pub(crate) fn resting(policy: EntryPolicy, outcome: LeaseOutcome) -> Self {
        let mut world = Self::new(policy, 1);
        world.ask();
        world.make(Move::Opened(0));
        world.make(Move::Settle(0, outcome));
        world
    }
}

pub(crate) fn leased(effects: &Effects) -> Vec<u32> {
    leases(effects).map(|(generation, _)| generation).collect()
}

/// What leases have the word of that nobody was told yet.
pub(crate) fn losses(effects: &Effects) -> Vec<StateLoss> {
    let untold = |loss: &StateLoss| !loss.is_reported;
    let lost = leases(effects).filter_map(|(_, loss)| loss);
    lost.filter(untold).collect()
}

/// A48: each loss of a key is news to whoever was told of the one before it, however many there were.
#[test]
fn each_loss_is_news_to_who_knows_of_the_one_before() {
    let mut cell = EntryState::new(side_by_side(EndCondition::AtLimits), 1, Tick::START);
    let (mut heard, gone) = (0, LeaseOutcome::SessionEnded(EndReason::Gone));
    let mut on = |event| cell.handle_event(event, Tick::START);
    for number in 1..=u32::from(u16::MAX) + 1_000 {
        let generation = Generation::new(number).unwrap();
        let (want, turn) = (LeaseMode::Shared, QueuePosition::Back);
        let ask = |waiter| Event::LeaseRequested {
            waiter,
            mode: want,
            position: turn,
        };
        on(ask(WaiterId(1)));
        let arrival = OpenedSession::FRESH;
        let opened = on(Event::Opened(generation, arrival));
        if let Some(loss) = losses(&opened).first() {
            assert!(!loss.is_known_to(heard), "{number}: {loss:?}");
            heard = loss.number;
            assert!(loss.is_known_to(heard), "{number}: {loss:?}");
        }
        assert_eq!(number == 1, losses(&opened).is_empty());
        on(ask(WaiterId(2)));
        for outcome in [LEFT_STATE, gone] {
            on(Event::LeaseReturned(generation, outcome));
        }
    }
}

/// A48: what a record tells of was lost before the key had a session here, and has the lowest number;
/// what is lost later is news to who knows of that alone.
#[test]
fn what_was_lost_before_a_key_had_sessions_is_told_apart() {
    for lost_state in [true, false] {
        let mut cell = EntryState::new(side_by_side(EndCondition::AtLimits), 1, Tick::START);
        let (want, turn) = (LeaseMode::Shared, QueuePosition::Back);
        let ask = |waiter| Event::LeaseRequested {
            waiter,
            mode: want,
            position: turn,
        };
        let arrival = OpenedSession {
            unreported_loss: lost_state,
            ..OpenedSession::FRESH
        };
        let generation = Generation::FIRST;
        let open = |generation, arrival| Event::Opened(generation, arrival);
        cell.handle_event(ask(WaiterId(1)), Tick::START);
        let opened = cell.handle_event(open(generation, arrival), Tick::START);
        let before = losses(&opened).first().map(|loss| loss.number);
        assert_eq!(before, lost_state.then_some(StateLoss::PRIOR_LOSS));
        cell.handle_event(ask(WaiterId(2)), Tick::START);
        for outcome in [LEFT_STATE, LeaseOutcome::SessionEnded(EndReason::Gone)] {
            let settled = Event::LeaseReturned(generation, outcome);
            cell.handle_event(settled, Tick::START);
        }
        let later = cell.last_loss().unwrap();
        assert!(!later.is_known_to(StateLoss::PRIOR_LOSS), "{later:?}");
    }
}

/// A48: whoever heard of later losses while it was on its way knows of the earlier ones; whoever
/// slept through very many knows of none.
#[test]
fn who_was_told_of_a_loss_knows_of_those_before_it_alone() {
    let number = 5;
    let loss = StateLoss {
        generation: Generation::FIRST,
        reason: EndReason::Gone,
        number,
        is_reported: false,
    };
    for later in [number, number + 1, number + 100] {
        assert!(loss.is_known_to(later), "{later}");
    }
    for earlier in [number - 1, 0, u16::MAX, u16::MAX / 2, 1_000] {
        assert!(!loss.is_known_to(earlier), "{earlier}");
    }
}

fn leases(effects: &Effects) -> impl Iterator<Item = (u32, Option<StateLoss>)> {
    effects.iter().filter_map(|effect| {
        if let Effect::GrantLease {
            generation, loss, ..
        } = effect
        {
            return Some((generation.number(), *loss));
        }
        None
    })
}

pub(crate) fn closed(effects: &Effects) -> Vec<(u32, EndReason)> {
    let of = |effect: &Effect| {
        if let Effect::CloseSession(generation, why) = effect {
            return Some((generation.number(), *why));
        }
        None
    };
    effects.iter().filter_map(of).collect()
}

pub(crate) fn opened(effects: &Effects) -> usize {
    let opens = |effect: &&Effect| matches!(effect, Effect::OpenSession(..));
    effects.iter().filter(opens).count()
}

pub(crate) fn checks(effects: &Effects) -> usize {
    let checks = |effect: &&Effect| matches!(effect, Effect::CheckSession(..));
    effects.iter().filter(checks).count()
}

/// An opening that nobody waits for need not begin; what was abandoned is closed if it succeeds.
#[test]
fn openings_that_nobody_wants_need_not_begin() {
    let mut world = World::new(side_by_side(EndCondition::AtLimits), 1);
    world.ask();
    let generation = Generation::FIRST;
    assert!(
        world
            .make(Move::Leave(0))
            .contains(&Effect::OpenUnneeded(generation))
    );
    world.make(Move::End);
    assert!(
        world
            .tell(Event::GraceExpired)
            .contains(&Effect::AbortOpen(generation))
    );
    let arrival = OpenedSession::FRESH;
    let late = world.tell(Event::Opened(generation, arrival));
    assert_eq!(closed(&late), [(1, EndReason::RunEnded)]);
}

/// A restored session keeps its number, and the next opening takes the one after it.
#[test]
fn a_restored_session_keeps_its_number() {
    let mut world = World::new(side_by_side(EndCondition::WithRunEnd), 1);
    world.ask();
    let generation = Generation::FIRST;
    let arrival = OpenedSession {
        origin: SessionOrigin::Restored,
        generation: Generation::new(7),
        unreported_loss: true,
        ..OpenedSession::FRESH
    };
    world.opening.clear();
    let restored = world.tell(Event::Opened(generation, arrival));
    assert_eq!(leased(&restored), [7]);
    let lost = losses(&restored)
        .into_iter()
        .map(|loss| loss.generation.number());
    let found = lost.collect::<Vec<_>>();
    assert_eq!(found, [6], "its record told of state that died");
    world.make(Move::Settle(0, LeaseOutcome::SessionEnded(EndReason::Gone)));
    let Some(Effect::OpenSession(generation)) = world.ask().pop() else {
        panic!("an opening");
    };
    assert_eq!(generation.number(), 8);
}
