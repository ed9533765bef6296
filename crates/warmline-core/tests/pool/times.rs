//! What time does to sessions: checks, ages, rests, keeping alive, forgetting.

use warmline_core::key::Transport;
use warmline_core::pool::{
    Arrival, CellPolicy, Effect, Effects, Ends, Event, Generation, Health, Loss, Origin, Outcome,
    Proof, Refusal, Why, Word,
};

use super::moves::Move;
use super::properties::side_by_side;
use super::stories::{FINE, LEFT_STATE, checks, closed, leased, losses, opened, secs};
use super::world::World;

/// A52, A76, A77: a session that rested is checked, one that did not is not; a check that fails
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

/// DESIGN 6: a broken wire ends no session, whosever it is; whoever asked gets it and finds out.
#[test]
fn a_shared_session_survives_trouble_on_the_wire() {
    let mut world = World::resting(side_by_side(Ends::ByLimits), LEFT_STATE);
    world.wait(60);
    assert_eq!(checks(&world.ask()), 1);
    let found = world.make(Move::Checked(0, Health::Unreachable));
    assert_eq!((leased(&found), opened(&found)), (vec![1], 0));
    assert_eq!(closed(&found), []);
    world.make(Move::Settle(0, Outcome::Broken));
    assert_eq!(checks(&world.ask()), 1, "it is checked again");
    assert_eq!(leased(&world.make(Move::Checked(0, Health::Alive))), [1]);
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
    let lost = Loss {
        generation,
        why,
        number: 1,
        word: Word::Untold,
    };
    assert_eq!(losses(&healed), [lost]);
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

/// A186: what a server says of the end of a session counts from its opening, also where it lay on a
/// shelf in between.
#[test]
fn a_spare_ends_by_the_age_it_has() {
    let spare = Arrival {
        origin: Origin::Spare,
        rested: secs(20),
        ..Arrival::FRESH
    };
    let in_30 = Some(secs(30));
    let stated = Arrival {
        expires_in: in_30,
        ..spare
    };
    let seen = Arrival {
        renew_in: in_30,
        ..spare
    };
    for arrival in [stated, seen] {
        let mut world = World::new(side_by_side(Ends::WithRun), 1);
        world.ask();
        world.opening.clear();
        let generation = Generation::FIRST;
        world.tell(Event::Opened {
            generation,
            arrival,
        });
        world.make(Move::Settle(0, FINE));
        world.wait(9);
        assert_eq!(leased(&world.ask()), [1]);
        world.make(Move::Settle(0, FINE));
        world.wait(1);
        assert_eq!(closed(&world.ask()), [(1, Why::Expired)]);
    }
}

/// What was said of the worth of openings.
fn worth(effects: &Effects) -> Vec<&'static str> {
    let word = |effect: &Effect| match effect {
        Effect::Proven { .. } => Some("worth it"),
        Effect::InVain { .. } => Some("in vain"),
        Effect::Lease { .. }
        | Effect::Refuse { .. }
        | Effect::Open { .. }
        | Effect::Unwanted { .. }
        | Effect::Abandon { .. }
        | Effect::Renumber { .. }
        | Effect::Check { .. }
        | Effect::KeepAlive { .. }
        | Effect::Lost { .. }
        | Effect::Close { .. }
        | Effect::Forget => None,
    };
    effects.iter().filter_map(word).collect()
}

/// reliability P35, reliability I34, reliability P5: a session over HTTP shows its worth by answering,
/// a process by living for a minute, whatever it answers and wherever it came from. What its server
/// ended when it was older, and what was ended here, says nothing.
#[test]
fn a_process_shows_its_worth_by_lasting() {
    use Origin::{Fresh, Spare};
    use Transport::{Http, Stdio};
    let (vain, good, none): (&[_], &[_], &[_]) = (&["in vain"], &["worth it"], &[]);
    #[rustfmt::skip]
    let table = [
        // it came from, rested; answers after seconds; said then; is lost after so many more; said then
        (Http,  Fresh, 0,  None,     none, 1,  vain),
        (Http,  Fresh, 0,  None,     none, 9,  vain),
        (Http,  Fresh, 0,  None,     none, 10, none),
        (Http,  Fresh, 0,  Some(0),  good, 1,  none),
        (Http,  Spare, 5,  None,     none, 1,  none),
        (Stdio, Fresh, 0,  None,     none, 1,  vain),
        (Stdio, Fresh, 0,  Some(0),  none, 1,  vain),
        (Stdio, Fresh, 0,  Some(58), none, 1,  vain),
        (Stdio, Fresh, 0,  Some(59), none, 1,  none),
        (Stdio, Fresh, 0,  Some(60), good, 1,  none),
        (Stdio, Spare, 0,  Some(0),  none, 1,  vain),
        (Stdio, Spare, 50, Some(10), good, 1,  none),
        (Stdio, Spare, 90, None,     none, 1,  none),
    ];
    let ways = [false, true].map(|ended| [(ended, Why::Gone), (ended, Why::ByOperator)]);
    for (at, (transport, origin, rested, answers, then, after, lost)) in
        table.into_iter().enumerate()
    {
        for (ended, why) in ways.into_iter().flatten() {
            let policy = CellPolicy {
                check_after: secs(10_000),
                proof: Proof::over(transport),
                ..side_by_side(Ends::WithRun)
            };
            let mut world = World::new(policy, 1);
            world.ask();
            world.opening.clear();
            let (generation, rested) = (Generation::FIRST, secs(rested));
            let arrival = Arrival {
                origin,
                rested,
                ..Arrival::FRESH
            };
            world.tell(Event::Opened {
                generation,
                arrival,
            });
            world.ask();
            if let Some(answers) = answers {
                world.wait(answers);
                assert_eq!(worth(&world.make(Move::Settle(0, FINE))), then, "row {at}");
            }
            world.wait(after);
            // That nobody else will ask for it makes no difference.
            if ended {
                world.make(Move::End);
            }
            let gone = Move::Settle(0, Outcome::Gone(why));
            let said = if why == Why::Gone { lost } else { none };
            assert_eq!(worth(&world.make(gone)), said, "row {at}");
        }
    }
}
