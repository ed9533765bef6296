//! Single promises of the machine, one by one.

use std::time::Duration;

use warmline_core::pool::{
    Arrival, CellPolicy, Effect, Effects, Ends, Event, Generation, Health, Loss, Origin, Outcome,
    Refusal, Sharing, State, Turn, WaiterId, Want, Why,
};

use super::moves::Move;
use super::properties::side_by_side;
use super::world::World;

const FINE: Outcome = Outcome::Fine { left_state: false };
const LEFT_STATE: Outcome = Outcome::Fine { left_state: true };

fn secs(secs: u64) -> Duration {
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
    fn make(&mut self, one: Move) -> Effects {
        let event = self.event(one).expect("something it can happen to");
        self.tell(event)
    }

    fn wait(&mut self, secs: u64) {
        self.event(Move::Wait(secs));
    }

    fn ask(&mut self) -> Effects {
        self.make(Move::Ask(Want::Shared))
    }

    /// A world whose one session is open, was used like this, and rests.
    fn resting(policy: CellPolicy, outcome: Outcome) -> Self {
        let mut world = Self::new(policy, 1);
        world.ask();
        world.make(Move::Opened(0));
        world.make(Move::Settle(0, outcome));
        world
    }
}

fn leased(effects: &Effects) -> Vec<u32> {
    leases(effects).map(|(generation, _)| generation).collect()
}

fn losses(effects: &Effects) -> Vec<Loss> {
    leases(effects).filter_map(|(_, loss)| loss).collect()
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

fn closed(effects: &Effects) -> Vec<(u32, Why)> {
    let of = |effect: &Effect| {
        if let Effect::Close { generation, why } = effect {
            return Some((generation.number(), *why));
        }
        None
    };
    effects.iter().filter_map(of).collect()
}

fn opened(effects: &Effects) -> usize {
    let opens = |effect: &&Effect| matches!(effect, Effect::Open { .. });
    effects.iter().filter(opens).count()
}

fn checks(effects: &Effects) -> usize {
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
/// costs nobody an error.
#[test]
fn a_session_is_checked_after_a_rest_and_not_before() {
    let mut world = World::resting(side_by_side(Ends::ByLimits), FINE);
    world.wait(59);
    assert_eq!(leased(&world.ask()), [1]);
    world.make(Move::Settle(0, FINE));
    world.wait(60);
    let asked = world.ask();
    assert_eq!((checks(&asked), leased(&asked).len()), (1, 0));
    let failed = world.make(Move::Checked(0, Health::Silent));
    assert_eq!(closed(&failed), [(1, Why::CheckFailed)]);
    assert_eq!(opened(&failed), 1, "another one, and no error");
}

/// A run's session outlives silence and trouble on the wire; only three silences in a row end it.
#[test]
fn a_session_of_a_run_survives_trouble_on_the_wire() {
    let mut world = World::resting(side_by_side(Ends::WithRun), LEFT_STATE);
    for found in [Health::Unreachable, Health::Silent, Health::Silent] {
        world.wait(60);
        assert_eq!(checks(&world.ask()), 1);
        assert_eq!(
            leased(&world.make(Move::Checked(0, found))),
            [1],
            "{found:?}"
        );
        world.make(Move::Settle(0, Outcome::Broken));
    }
    assert_eq!(
        checks(&world.ask()),
        1,
        "broken: checked again, without any rest"
    );
    let third = world.make(Move::Checked(0, Health::Silent));
    assert_eq!(closed(&third), [(1, Why::CheckFailed)]);
    let healed = world.make(Move::Opened(0));
    let (generation, why) = (Generation::FIRST, Why::CheckFailed);
    assert_eq!(losses(&healed), [Loss { generation, why }]);
}

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

/// A session that was not heard of since its server lost others is checked; one that was, is not.
#[test]
fn only_what_was_not_heard_of_since_is_doubted() {
    let mut world = World::resting(side_by_side(Ends::WithRun), FINE);
    let doubt = Event::Doubted { since: world.now };
    world.wait(1);
    world.ask();
    world.make(Move::Settle(0, FINE));
    world.tell(doubt);
    assert_eq!(checks(&world.ask()), 0);
}

/// A51, A78: age ends what rests, and a run's session between two calls only.
#[test]
fn age_ends_sessions_between_calls() {
    let aged = |ends| CellPolicy {
        max_age: Some(secs(300)),
        check_after: secs(10_000),
        ..side_by_side(ends)
    };
    let mut run = World::resting(aged(Ends::WithRun), LEFT_STATE);
    run.ask();
    run.wait(400);
    assert_eq!(
        leased(&run.ask()),
        [1],
        "a run's session is not replaced under a call"
    );
    run.make(Move::Settle(0, FINE));
    assert_eq!(closed(&run.make(Move::Settle(0, FINE))), [(1, Why::Aged)]);
    run.ask();
    assert_eq!(
        losses(&run.make(Move::Opened(0))).len(),
        1,
        "and the loss is told"
    );

    let mut shared = World::resting(aged(Ends::ByLimits), LEFT_STATE);
    shared.ask();
    shared.wait(400);
    assert_eq!(
        opened(&shared.ask()),
        1,
        "a busy shared session is replaced beside its calls"
    );
    let after = shared.make(Move::Opened(0));
    assert_eq!(
        (leased(&after), losses(&after)),
        (vec![2], vec![]),
        "limits are no loss"
    );
    assert_eq!(
        closed(&shared.make(Move::Settle(0, FINE))),
        [(1, Why::Aged)]
    );
}

/// A79: what nobody asks for is closed by the sweep, unless a run holds it.
#[test]
fn the_sweep_closes_what_rests_too_long() {
    for (ends, expected) in [
        (Ends::ByLimits, vec![(1, Why::IdleTooLong)]),
        (Ends::WithRun, vec![]),
    ] {
        let policy = CellPolicy {
            max_idle: Some(secs(1_800)),
            ..side_by_side(ends)
        };
        let mut world = World::resting(policy, FINE);
        world.wait(1_700);
        assert!(closed(&world.make(Move::Sweep)).is_empty());
        world.wait(100);
        assert_eq!(closed(&world.make(Move::Sweep)), expected);
    }
}

/// DESIGN 5.2: the session of a live run is kept alive, which is no use of it.
#[test]
fn a_resting_session_of_a_run_is_kept_alive() {
    let policy = CellPolicy {
        keep_alive: Some(secs(120)),
        ..side_by_side(Ends::WithRun)
    };
    let due = |world: &mut World| {
        let kept = |effect: &&Effect| matches!(effect, Effect::KeepAlive { .. });
        world.make(Move::Sweep).iter().filter(kept).count()
    };
    let mut world = World::resting(policy, FINE);
    world.wait(100);
    assert_eq!(due(&mut world), 0);
    world.wait(40);
    assert_eq!((due(&mut world), due(&mut world)), (1, 0), "once");
    world.make(Move::KeptAlive(0, Health::Alive));
    world.wait(59);
    assert_eq!(checks(&world.ask()), 0, "it was heard of");
}

/// A81: a key that is empty for long is forgotten; one of a run is not.
#[test]
fn empty_keys_are_forgotten_in_time() {
    for (ends, forgotten) in [(Ends::ByLimits, true), (Ends::WithRun, false)] {
        let policy = CellPolicy {
            max_idle: Some(secs(10)),
            ..side_by_side(ends)
        };
        let mut world = World::new(policy, 1);
        let sweep = Event::Swept {
            forget_after: secs(600),
        };
        world.wait(599);
        assert!(world.tell(sweep).is_empty());
        world.wait(1);
        assert_eq!(world.tell(sweep).contains(&Effect::Forget), forgotten);
        let refusal = Refusal::Ended(Why::Evicted);
        let refused = |effect: &Effect| matches!(effect, Effect::Refuse { refusal: said, .. } if *said == refusal);
        assert_eq!(world.ask().iter().any(refused), forgotten);
    }
}

/// What the server gave only for a time is not used after it, by anybody.
#[test]
fn an_expired_session_is_given_to_nobody() {
    for ends in [Ends::ByLimits, Ends::WithRun] {
        let mut world = World::new(side_by_side(ends), 1);
        world.ask();
        let Some(Event::Opened { generation, .. }) = world.event(Move::Opened(0)) else {
            panic!("an opening");
        };
        let arrival = Arrival {
            expires_in: Some(secs(30)),
            ..Arrival::FRESH
        };
        world.tell(Event::Opened {
            generation,
            arrival,
        });
        world.make(Move::Settle(0, LEFT_STATE));
        world.wait(30);
        let asked = world.ask();
        assert_eq!(
            (closed(&asked), opened(&asked)),
            (vec![(1, Why::Expired)], 1)
        );
        assert_eq!(losses(&world.make(Move::Opened(0))).len(), 1);
    }
}

/// What is known to die soon is replaced between two calls while nothing is lost by it.
#[test]
fn a_session_that_will_die_soon_is_renewed_while_it_has_no_state() {
    let arrival = Arrival {
        renew_in: Some(secs(30)),
        ..Arrival::FRESH
    };
    for (outcome, renewed) in [(FINE, true), (LEFT_STATE, false)] {
        let mut world = World::new(side_by_side(Ends::WithRun), 1);
        world.ask();
        world.opening.clear();
        let generation = Generation::FIRST;
        world.tell(Event::Opened {
            generation,
            arrival,
        });
        world.wait(30);
        assert_eq!(leased(&world.ask()), [1], "not under a call");
        world.make(Move::Settle(0, outcome));
        let last = world.make(Move::Settle(0, outcome));
        assert_eq!(closed(&last) == [(1, Why::Expired)], renewed);
    }
}

/// A loss is told once; a caller that leaves untold leaves it to the next.
#[test]
fn a_loss_is_told_once_and_put_back_if_it_was_not() {
    let mut world = World::resting(side_by_side(Ends::WithRun), LEFT_STATE);
    world.ask();
    world.make(Move::Settle(0, Outcome::Gone(Why::Gone)));
    world.ask();
    assert_eq!(losses(&world.make(Move::Opened(0))).len(), 1);
    world.make(Move::Settle(0, Outcome::Dropped));
    assert_eq!(losses(&world.ask()).len(), 1, "put back");
    world.leases.iter_mut().for_each(|lease| lease.1 = None);
    world.make(Move::Settle(0, FINE));
    assert!(losses(&world.ask()).is_empty(), "told");
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
    world.leases.iter_mut().for_each(|lease| lease.1 = None);
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
