//! What time does to sessions: checks, ages, rests, keeping alive, forgetting.

use warmline_core::pool::{
    Effect, Effects, EndCondition, EndReason, EntryPolicy, Event, Generation, HealthCheckResult,
    LeaseOutcome, OpenedSession, SessionOrigin, StabilityCriterion, StateLoss,
};
use warmline_core::pool_key::Transport;

use super::properties::side_by_side;
use super::random_events::Move;
use super::rules::{FINE, LEFT_STATE, checks, closed, leased, losses, opened, secs};
use super::simulated_shell::World;

/// DESIGN 6: a broken wire ends no session, whosever it is; whoever asked gets it and finds out.
#[test]
fn a_shared_session_survives_trouble_on_the_wire() {
    let mut world = World::resting(side_by_side(EndCondition::AtLimits), LEFT_STATE);
    world.wait(60);
    assert_eq!(checks(&world.ask()), 1);
    let found = world.make(Move::Checked(0, HealthCheckResult::Unreachable));
    assert_eq!((leased(&found), opened(&found)), (vec![1], 0));
    assert_eq!(closed(&found), []);
    world.make(Move::Settle(0, LeaseOutcome::ConnectionFailed));
    assert_eq!(checks(&world.ask()), 1, "it is checked again");
    assert_eq!(
        leased(&world.make(Move::Checked(0, HealthCheckResult::Alive))),
        [1]
    );
}

/// A run's session outlives silence and trouble on the wire; only three silences in a row end it.
#[test]
fn a_session_of_a_run_survives_trouble_on_the_wire() {
    let mut world = World::resting(side_by_side(EndCondition::WithRunEnd), LEFT_STATE);
    for found in [
        HealthCheckResult::Unreachable,
        HealthCheckResult::TimedOut,
        HealthCheckResult::TimedOut,
    ] {
        world.wait(60);
        assert_eq!(checks(&world.ask()), 1);
        let lease = leased(&world.make(Move::Checked(0, found)));
        assert_eq!(lease, [1], "{found:?}");
        world.make(Move::Settle(0, LeaseOutcome::ConnectionFailed));
    }
    let seen = checks(&world.ask());
    assert_eq!(seen, 1, "broken: checked again, without any rest");
    let third = world.make(Move::Checked(0, HealthCheckResult::TimedOut));
    assert_eq!(closed(&third), [(1, EndReason::CheckFailed)]);
    let healed = world.make(Move::Opened(0));
    let (generation, why) = (Generation::FIRST, EndReason::CheckFailed);
    let lost = StateLoss {
        generation,
        reason: why,
        number: 1,
        is_reported: false,
    };
    assert_eq!(losses(&healed), [lost]);
}

/// A session that was not heard of since its server lost others is checked; one that was, is not.
#[test]
fn only_what_was_not_heard_of_since_is_doubted() {
    let mut world = World::resting(side_by_side(EndCondition::WithRunEnd), FINE);
    let doubt = Event::ServerLostSessions(world.now);
    world.wait(1);
    world.ask();
    world.make(Move::Settle(0, FINE));
    world.tell(doubt);
    assert_eq!(checks(&world.ask()), 0);
}

/// What the server gave only for a time is not used after it, by anybody.
#[test]
fn an_expired_session_is_given_to_nobody() {
    for ends in [EndCondition::AtLimits, EndCondition::WithRunEnd] {
        let mut world = World::new(side_by_side(ends), 1);
        world.ask();
        let Some(Event::Opened(generation, _)) = world.event(Move::Opened(0)) else {
            panic!("an opening");
        };
        let arrival = OpenedSession {
            expires_in: Some(secs(30)),
            ..OpenedSession::FRESH
        };
        world.tell(Event::Opened(generation, arrival));
        world.make(Move::Settle(0, LEFT_STATE));
        world.wait(30);
        let asked = world.ask();
        let found = (closed(&asked), opened(&asked));
        assert_eq!(found, (vec![(1, EndReason::Expired)], 1));
        assert_eq!(losses(&world.make(Move::Opened(0))).len(), 1);
    }
}

/// What is known to die soon is replaced between two calls while nothing is lost by it.
#[test]
fn a_session_that_will_die_soon_is_renewed_while_it_has_no_state() {
    let arrival = OpenedSession {
        renew_in: Some(secs(30)),
        ..OpenedSession::FRESH
    };
    for (outcome, renewed) in [(FINE, true), (LEFT_STATE, false)] {
        let mut world = World::new(side_by_side(EndCondition::WithRunEnd), 1);
        world.ask();
        world.opening.clear();
        let generation = Generation::FIRST;
        world.tell(Event::Opened(generation, arrival));
        world.wait(30);
        assert_eq!(leased(&world.ask()), [1], "not under a call");
        world.make(Move::Settle(0, outcome));
        let last = world.make(Move::Settle(0, outcome));
        assert_eq!(closed(&last) == [(1, EndReason::Expired)], renewed);
    }
}

/// A186: what a server says of the end of a session counts from its opening, also where it lay on a
/// shelf in between.
#[test]
fn a_spare_ends_by_the_age_it_has() {
    let spare = OpenedSession {
        origin: SessionOrigin::Spare,
        idle_time: secs(20),
        ..OpenedSession::FRESH
    };
    let in_30 = Some(secs(30));
    let stated = OpenedSession {
        expires_in: in_30,
        ..spare
    };
    let seen = OpenedSession {
        renew_in: in_30,
        ..spare
    };
    for arrival in [stated, seen] {
        let mut world = World::new(side_by_side(EndCondition::WithRunEnd), 1);
        world.ask();
        world.opening.clear();
        let generation = Generation::FIRST;
        world.tell(Event::Opened(generation, arrival));
        world.make(Move::Settle(0, FINE));
        world.wait(9);
        assert_eq!(leased(&world.ask()), [1]);
        world.make(Move::Settle(0, FINE));
        world.wait(1);
        assert_eq!(closed(&world.ask()), [(1, EndReason::Expired)]);
    }
}

/// What was said of the worth of openings.
fn worth(effects: &Effects) -> Vec<&'static str> {
    let word = |effect: &Effect| match effect {
        Effect::SessionStable(..) => Some("worth it"),
        Effect::SessionShortLived(..) => Some("in vain"),
        Effect::GrantLease { .. }
        | Effect::RefuseLease(..)
        | Effect::OpenSession(..)
        | Effect::OpenUnneeded(..)
        | Effect::AbortOpen(..)
        | Effect::Renumber { .. }
        | Effect::CheckSession(..)
        | Effect::KeepAlive(..)
        | Effect::SessionLost(..)
        | Effect::CloseSession(..)
        | Effect::EvictEntry => None,
    };
    effects.iter().filter_map(word).collect()
}

/// reliability P35, reliability I34, reliability P5: a session over HTTP shows its worth by answering,
/// a process by living for a minute, whatever it answers and wherever it came from. What its server
/// ended when it was older, and what was ended here, says nothing.
#[test]
fn a_process_shows_its_worth_by_lasting() {
    use SessionOrigin::{Fresh, Spare};
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
    let ways =
        [false, true].map(|ended| [(ended, EndReason::Gone), (ended, EndReason::ByOperator)]);
    for (at, (transport, origin, rested, answers, then, after, lost)) in
        table.into_iter().enumerate()
    {
        for (ended, why) in ways.into_iter().flatten() {
            let policy = EntryPolicy {
                check_after: secs(10_000),
                stability: StabilityCriterion::for_transport(transport),
                ..side_by_side(EndCondition::WithRunEnd)
            };
            let mut world = World::new(policy, 1);
            world.ask();
            world.opening.clear();
            let (generation, rested) = (Generation::FIRST, secs(rested));
            let arrival = OpenedSession {
                origin,
                idle_time: rested,
                ..OpenedSession::FRESH
            };
            world.tell(Event::Opened(generation, arrival));
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
            let gone = Move::Settle(0, LeaseOutcome::SessionEnded(why));
            let said = if why == EndReason::Gone { lost } else { none };
            assert_eq!(worth(&world.make(gone)), said, "row {at}");
        }
    }
}
