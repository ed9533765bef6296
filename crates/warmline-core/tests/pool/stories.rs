//! Single promises of the machine, one by one.

use std::time::Duration;

use warmline_core::pool::{
    Arrival, Cell, CellPolicy, Effect, Effects, Ends, Event, Generation, Loss, Origin, Outcome,
    Proof, Refusal, Sharing, State, Turn, WaiterId, Want, Why, Word,
};
use warmline_core::tick::Tick;

use super::moves::Move;
use super::properties::side_by_side;
use super::world::World;

pub(crate) const FINE: Outcome = Outcome::Fine { left_state: false };
pub(crate) const LEFT_STATE: Outcome = Outcome::Fine { left_state: true };

pub(crate) fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn one_each(max: u32) -> CellPolicy {
    CellPolicy {
        sharing: Sharing::OneEach,
        max,
        ..side_by_side(Ends::ByLimits)
    }
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
        self.make(Move::Ask(Want::Shared))
    }

    /// A world whose one session is open, was used like this, and rests.
    pub(crate) fn resting(policy: CellPolicy, outcome: Outcome) -> Self {
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
pub(crate) fn losses(effects: &Effects) -> Vec<Loss> {
    let untold = |loss: &Loss| loss.word == Word::Untold;
    let lost = leases(effects).filter_map(|(_, loss)| loss);
    lost.filter(untold).collect()
}

/// A48: each loss of a key is news to whoever was told of the one before it, however many there were.
#[test]
fn each_loss_is_news_to_who_knows_of_the_one_before() {
    let mut cell = Cell::new(side_by_side(Ends::ByLimits), 1, Tick::START);
    let (mut heard, gone) = (0, Outcome::Gone(Why::Gone));
    let mut on = |event| cell.on(event, Tick::START);
    for number in 1..=u32::from(u16::MAX) + 1_000 {
        let generation = Generation::of(number).unwrap();
        let (want, turn) = (Want::Shared, Turn::Last);
        let ask = |waiter| Event::Asked { waiter, want, turn };
        on(ask(WaiterId(1)));
        let arrival = Arrival::FRESH;
        let opened = on(Event::Opened {
            generation,
            arrival,
        });
        if let Some(loss) = losses(&opened).first() {
            assert!(!loss.is_known_to(heard), "{number}: {loss:?}");
            heard = loss.number;
            assert!(loss.is_known_to(heard), "{number}: {loss:?}");
        }
        assert_eq!(number == 1, losses(&opened).is_empty());
        on(ask(WaiterId(2)));
        for outcome in [LEFT_STATE, gone] {
            on(Event::Settled {
                generation,
                outcome,
            });
        }
    }
}

/// A48: what a record tells of was lost before the key had a session here, and has the lowest number;
/// what is lost later is news to who knows of that alone.
#[test]
fn what_was_lost_before_a_key_had_sessions_is_told_apart() {
    for lost_state in [true, false] {
        let mut cell = Cell::new(side_by_side(Ends::ByLimits), 1, Tick::START);
        let (want, turn) = (Want::Shared, Turn::Last);
        let ask = |waiter| Event::Asked { waiter, want, turn };
        let arrival = Arrival {
            lost_state,
            ..Arrival::FRESH
        };
        let generation = Generation::FIRST;
        let open = |generation, arrival| Event::Opened {
            generation,
            arrival,
        };
        cell.on(ask(WaiterId(1)), Tick::START);
        let opened = cell.on(open(generation, arrival), Tick::START);
        let before = losses(&opened).first().map(|loss| loss.number);
        assert_eq!(before, lost_state.then_some(Loss::FROM_BEFORE));
        cell.on(ask(WaiterId(2)), Tick::START);
        for outcome in [LEFT_STATE, Outcome::Gone(Why::Gone)] {
            let settled = Event::Settled {
                generation,
                outcome,
            };
            cell.on(settled, Tick::START);
        }
        let later = cell.loss().unwrap();
        assert!(!later.is_known_to(Loss::FROM_BEFORE), "{later:?}");
    }
}

/// A48: whoever heard of later losses while it was on its way knows of the earlier ones; whoever
/// slept through very many knows of none.
#[test]
fn who_was_told_of_a_loss_knows_of_those_before_it_alone() {
    let number = 5;
    let loss = Loss {
        generation: Generation::FIRST,
        why: Why::Gone,
        number,
        word: Word::Untold,
    };
    for later in [number, number + 1, number + 100] {
        assert!(loss.is_known_to(later), "{later}");
    }
    for earlier in [number - 1, 0, u16::MAX, u16::MAX / 2, 1_000] {
        assert!(!loss.is_known_to(earlier), "{earlier}");
    }
}

fn leases(effects: &Effects) -> impl Iterator<Item = (u32, Option<Loss>)> {
    effects.iter().filter_map(|effect| {
        if let Effect::Lease {
            generation, loss, ..
        } = effect
        {
            return Some((generation.number(), *loss));
        }
        None
    })
}

pub(crate) fn closed(effects: &Effects) -> Vec<(u32, Why)> {
    let of = |effect: &Effect| {
        if let Effect::Close { generation, why } = effect {
            return Some((generation.number(), *why));
        }
        None
    };
    effects.iter().filter_map(of).collect()
}

pub(crate) fn opened(effects: &Effects) -> usize {
    let opens = |effect: &&Effect| matches!(effect, Effect::Open { .. });
    effects.iter().filter(opens).count()
}

pub(crate) fn checks(effects: &Effects) -> usize {
    let checks = |effect: &&Effect| matches!(effect, Effect::Check { .. });
    effects.iter().filter(checks).count()
}

/// A24: a thousand who ask at once are served by one opening.
#[test]
fn a_thousand_who_ask_at_once_are_served_by_one_opening() {
    let mut world = World::new(side_by_side(Ends::WithRun), 1);
    let opens: usize = (0..1_000).map(|_| opened(&world.ask())).sum();
    assert_eq!(opens, 1);
    assert_eq!(leased(&world.make(Move::Opened(0))), vec![1; 1_000]);
}

/// A25, reliability I17: a failed opening is told to all who waited if nothing else comes, and to
/// one of them otherwise.
#[test]
fn a_failed_opening_is_told_to_all_or_to_one() {
    let refused = |effects: &Effects| {
        let refusals = |effect: &&Effect| {
            let refusal = Refusal::OpenFailed;
            matches!(effect, Effect::Refuse { refusal: said, .. } if *said == refusal)
        };
        effects.iter().filter(refusals).count()
    };
    let mut alone = World::new(side_by_side(Ends::WithRun), 1);
    for _ in 0..5 {
        alone.ask();
    }
    assert_eq!(refused(&alone.make(Move::OpenFailed(0))), 5);
    assert_eq!(opened(&alone.ask()), 1, "the next call tries again");

    let mut beside = World::new(one_each(2), 1);
    for _ in 0..5 {
        beside.ask();
    }
    let told = beside.make(Move::OpenFailed(0));
    assert_eq!(
        (refused(&told), opened(&told)),
        (1, 1),
        "another still comes"
    );
}

/// A82, A84: the eleventh waits, and gets the first that comes back.
#[test]
fn the_eleventh_waits_for_the_first_that_comes_back() {
    let mut world = World::new(one_each(10), 1);
    let opens: usize = (0..11).map(|_| opened(&world.ask())).sum();
    assert_eq!(opens, 10);
    for _ in 0..10 {
        world.make(Move::Opened(0));
    }
    assert_eq!(world.cell.counts().waiting, 1);
    let served = world.make(Move::Settle(3, FINE));
    assert_eq!(leased(&served), [4]);
}

/// A85: whoever leaves the line gives up its place and nothing else.
#[test]
fn whoever_leaves_the_line_blocks_nobody() {
    let mut world = World::new(one_each(1), 1);
    world.ask();
    world.make(Move::Opened(0));
    world.ask();
    world.ask();
    world.make(Move::Leave(0));
    assert_eq!(leased(&world.make(Move::Settle(0, FINE))), [1]);
    assert_eq!(world.cell.counts().waiting, 0);
}

/// An exclusive lease waits until it is alone, and nobody overtakes it.
#[test]
fn nobody_overtakes_one_who_waits_to_be_alone() {
    let mut world = World::resting(side_by_side(Ends::WithRun), FINE);
    assert_eq!(leased(&world.ask()), [1]);
    assert_eq!(leased(&world.ask()), [1], "side by side");
    assert!(leased(&world.make(Move::Ask(Want::Exclusive))).is_empty());
    assert!(
        leased(&world.ask()).is_empty(),
        "behind the one who is first"
    );
    assert!(
        leased(&world.make(Move::Settle(0, FINE))).is_empty(),
        "not alone yet"
    );
    assert_eq!(leased(&world.make(Move::Settle(0, FINE))), [1], "alone");
    assert!(leased(&world.ask()).is_empty());
    let after = world.make(Move::Settle(0, FINE));
    assert_eq!(
        leased(&after),
        [1, 1],
        "then those who waited, side by side"
    );
}

/// A76, A77, A52, reliability I31: a check comes before use only after a rest, and a failed one
/// DESIGN 2, healing: the siblings of a lost session are checked before their next use.
#[test]
fn the_siblings_of_a_lost_session_are_checked_first() {
    let mut world = World::new(one_each(2), 1);
    world.ask();
    world.ask();
    world.make(Move::Opened(0));
    world.make(Move::Opened(0));
    world.make(Move::Settle(0, FINE));
    world.make(Move::Settle(0, Outcome::Gone(Why::Gone)));
    assert_eq!(checks(&world.ask()), 1);
}

/// reliability P11: every lease has the word of a loss until somebody was told of it, and none has
/// it afterwards: whoever got it first may leave, or send what does not tell it.
#[test]
fn every_lease_has_the_word_of_a_loss_until_it_was_told() {
    let mut world = World::resting(side_by_side(Ends::WithRun), LEFT_STATE);
    world.ask();
    world.make(Move::Settle(0, Outcome::Gone(Why::Gone)));
    world.ask();
    assert_eq!(losses(&world.make(Move::Opened(0))).len(), 1);
    assert_eq!(losses(&world.ask()).len(), 1, "beside the first");
    world.make(Move::Settle(0, Outcome::Dropped));
    assert_eq!(losses(&world.ask()).len(), 1, "after the first");
    world.make(Move::Tell(0));
    let asked = world.ask();
    assert!(losses(&asked).is_empty(), "told");
    let others = leases(&asked)
        .filter_map(|(_, loss)| loss)
        .collect::<Vec<_>>();
    assert!(
        matches!(
            others[..],
            [Loss {
                number: 1,
                word: Word::Told,
                ..
            }]
        ),
        "of several runs each is told: {others:?}"
    );
}

/// reliability P11: whoever holds a session hears of no loss while it goes on there: it was given up
/// under its holder, and what is in it is lost for whoever comes after.
#[test]
fn a_holder_has_no_word_of_the_loss_of_the_session_it_holds() {
    let mut world = World::resting(side_by_side(Ends::WithRun), LEFT_STATE);
    world.make(Move::Ask(Want::Exclusive));
    world.tell(Event::Gone {
        generation: Generation::FIRST,
        why: Why::Expired,
    });
    assert!(world.cell.untold().is_some());
    let joined = world.make(Move::Join(0));
    assert_eq!((leased(&joined), losses(&joined)), (vec![1], vec![]));
    world.make(Move::Settle(1, LEFT_STATE));
    world.make(Move::Settle(0, Outcome::Unused));
    world.ask();
    assert_eq!(losses(&world.make(Move::Opened(0))).len(), 1);
}

/// reliability P11: whoever holds a session hears of no loss of another session of the key.
#[test]
fn a_holder_has_no_word_of_a_loss_beside_it() {
    for lost in [1, 2] {
        let mut world = World::new(one_each(2), 1);
        for _ in 0..2 {
            world.make(Move::Ask(Want::Exclusive));
            world.make(Move::Opened(0));
        }
        let (lost_at, held_at) = (lost - 1, 2 - lost);
        world.make(Move::Join(lost_at));
        world.make(Move::Settle(2, LEFT_STATE));
        world.make(Move::Gone(lost_at));
        assert!(world.cell.untold().is_some());
        assert!(losses(&world.make(Move::Join(held_at))).is_empty());
    }
}

/// Who tells of one loss has not told of the next.
#[test]
fn a_loss_that_follows_another_is_told_too() {
    let mut world = World::resting(side_by_side(Ends::WithRun), LEFT_STATE);
    world.ask();
    world.make(Move::Settle(0, Outcome::Gone(Why::Gone)));
    world.ask();
    world.make(Move::Opened(0));
    world.ask();
    world.make(Move::Settle(0, LEFT_STATE));
    world.make(Move::Gone(1));
    world.make(Move::Tell(0));
    world.ask();
    let lost = losses(&world.make(Move::Opened(0)));
    assert!(
        matches!(lost[..], [Loss { generation, .. }] if generation.number() == 2),
        "{lost:?}"
    );
}

/// A session that only repeats itself has nothing to lose.
#[test]
fn nothing_is_lost_with_a_session_that_left_no_state() {
    let mut world = World::resting(side_by_side(Ends::WithRun), FINE);
    world.ask();
    world.make(Move::Settle(0, Outcome::Gone(Why::Gone)));
    world.ask();
    assert!(losses(&world.make(Move::Opened(0))).is_empty());
}

/// reliability I14: limits are looked at again when a session is opened.
#[test]
fn a_session_over_a_lowered_limit_is_closed_when_it_is_opened() {
    let mut world = World::new(one_each(2), 1);
    world.ask();
    world.ask();
    world.make(Move::Opened(0));
    world.make(Move::Limit(1));
    assert_eq!(closed(&world.make(Move::Opened(0))), [(2, Why::Evicted)]);
    assert_eq!(
        world.cell.counts().waiting,
        1,
        "its caller waits for the one there is"
    );
    assert_eq!(leased(&world.make(Move::Settle(0, FINE))), [1]);
}

/// reliability I9: the end of a key cuts nobody; only a cut does.
#[test]
fn the_end_of_a_key_waits_for_its_leases() {
    let mut world = World::resting(side_by_side(Ends::WithRun), FINE);
    world.ask();
    assert!(closed(&world.make(Move::End)).is_empty());
    assert!(
        matches!(world.cell.sessions(), [one] if matches!(one.state(), State::Retiring { .. }))
    );
    let mut settled = world.clone();
    assert_eq!(
        closed(&settled.make(Move::Settle(0, FINE))),
        [(1, Why::RunEnded)]
    );
    assert_eq!(closed(&world.make(Move::Cut)), [(1, Why::RunEnded)]);
    assert!(
        world.make(Move::Settle(0, FINE)).is_empty(),
        "the lease outlives it"
    );
    assert!(world.cell.is_over() && world.cell.mistakes() == 0);
}

/// An opening that nobody waits for need not begin; what was abandoned is closed if it succeeds.
#[test]
fn openings_that_nobody_wants_need_not_begin() {
    let mut world = World::new(side_by_side(Ends::ByLimits), 1);
    world.ask();
    let generation = Generation::FIRST;
    assert!(
        world
            .make(Move::Leave(0))
            .contains(&Effect::Unwanted { generation })
    );
    world.make(Move::End);
    assert!(
        world
            .tell(Event::Cut)
            .contains(&Effect::Abandon { generation })
    );
    let arrival = Arrival::FRESH;
    let late = world.tell(Event::Opened {
        generation,
        arrival,
    });
    assert_eq!(closed(&late), [(1, Why::RunEnded)]);
}

/// A restored session keeps its number, and the next opening takes the one after it.
#[test]
fn a_restored_session_keeps_its_number() {
    let mut world = World::new(side_by_side(Ends::WithRun), 1);
    world.ask();
    let generation = Generation::FIRST;
    let arrival = Arrival {
        origin: Origin::Restored,
        number: Generation::of(7),
        lost_state: true,
        ..Arrival::FRESH
    };
    world.opening.clear();
    let restored = world.tell(Event::Opened {
        generation,
        arrival,
    });
    assert_eq!(leased(&restored), [7]);
    let lost = losses(&restored)
        .into_iter()
        .map(|loss| loss.generation.number());
    assert_eq!(
        lost.collect::<Vec<_>>(),
        [6],
        "its record told of state that died"
    );
    world.make(Move::Settle(0, Outcome::Gone(Why::Gone)));
    let Some(Effect::Open { generation }) = world.ask().pop() else {
        panic!("an opening");
    };
    assert_eq!(generation.number(), 8);
}

/// A caller that got a dead session is the next again.
#[test]
fn who_got_a_dead_session_is_the_next_again() {
    let mut world = World::new(one_each(1), 1);
    world.ask();
    world.make(Move::Opened(0));
    world.ask();
    let (waiter, want, turn) = (WaiterId(77), Want::Shared, Turn::First);
    world.waiting.insert(0, waiter);
    world.tell(Event::Asked { waiter, want, turn });
    let served = world.make(Move::Settle(0, FINE));
    assert!(matches!(served[..], [.., Effect::Lease { waiter: first, .. }] if first == waiter));
}

/// A line has an end.
#[test]
fn a_full_line_is_said_at_once() {
    let policy = CellPolicy {
        waiters: 3,
        proof: Proof::Serving,
        ..one_each(1)
    };
    let mut world = World::new(policy, 1);
    for _ in 0..3 {
        world.ask();
    }
    let refusal = Refusal::LineFull;
    let full = |effect: &Effect| matches!(effect, Effect::Refuse { refusal: said, .. } if *said == refusal);
    assert!(world.ask().iter().any(full));
}
