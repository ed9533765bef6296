//! What holds at every step of every history, with ages, expiry and restored sessions too.

use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;
use warmline_core::pool::{
    Effect, Effects, EndCondition, EndReason, EntryPolicy, Event, Generation, LeaseKind, LeaseMode,
    LeaseOutcome, OpenedSession, QueuePosition, SessionOrigin, SessionState, Sharing,
    StabilityCriterion, WaiterId,
};

use super::random_events::{Move, history, policy};
use super::simulated_shell::World;

/// A policy with every limit that time can pass.
fn timed_policy() -> impl Strategy<Value = EntryPolicy> {
    let secs = |range: std::ops::Range<u64>| range.prop_map(Duration::from_secs);
    let maybe = |range| proptest::option::of(secs(range));
    let times = (maybe(50..400), maybe(50..400), maybe(30..120));
    (policy(), times).prop_map(|(policy, (max_age, max_idle, keep_alive))| EntryPolicy {
        max_age,
        max_idle,
        keep_alive,
        ..policy
    })
}

/// How sessions of a history arrive, by turns.
fn arrivals() -> impl Strategy<Value = Vec<OpenedSession>> {
    let origin = prop_oneof![
        3 => Just(SessionOrigin::Fresh),
        1 => Just(SessionOrigin::Spare),
        1 => Just(SessionOrigin::Restored)
    ];
    let one = (
        origin,
        proptest::option::weighted(0.2, 1_u32..40),
        proptest::option::weighted(0.2, 0_u64..200),
        0_u64..100,
    );
    let one = one.prop_map(|(origin, number, expires_in, rested)| OpenedSession {
        origin,
        generation: number.and_then(Generation::new),
        expires_in: expires_in.map(Duration::from_secs),
        renew_in: expires_in.map(|secs| Duration::from_secs(secs / 2)),
        idle_time: Duration::from_secs(rested),
        unreported_loss: false,
        stateful: false,
    });
    proptest::collection::vec(one, 1..8)
}

/// What is known from outside, to hold the promises against.
#[derive(Default)]
struct Witness {
    arrived: Vec<WaiterId>,
    /// Those who had a turn before they asked.
    again: BTreeSet<WaiterId>,
    told: BTreeSet<u16>,
}

/// A78, A82, A84, reliability I7 to I10, reliability I15, reliability I16, reliability I20,
/// reliability I22, reliability I24, reliability I28, reliability P12: at every step of every
/// history, and when everything under way has ended nobody is left waiting.
#[test]
fn every_promise_of_a_cell_holds_at_every_step() {
    let histories = (timed_policy(), arrivals(), history(), any::<u64>());
    super::check(histories, |(policy, arrivals, history, seed)| {
        let mut world = World::new(policy, seed);
        let mut witness = Witness::default();
        let mut arrivals = arrivals.into_iter().cycle();
        for one in history {
            let Some(event) = world.event(one) else {
                continue;
            };
            let event = dressed(event, arrivals.next().expect("a cycle"));
            let before = world.clone();
            witness.note(&event);
            let effects = world.tell(event);
            witness.hold(&before, &world, &event, &effects)?;
        }
        prop_assert_eq!(world.cell.invalid_events(), 0);
        finish(world)
    });
}

fn dressed(event: Event, arrival: OpenedSession) -> Event {
    let Event::Opened(generation, _) = event else {
        return event;
    };
    Event::Opened(generation, arrival)
}

impl Witness {
    /// How many in line had a turn before: they stand in front.
    fn came_again(&self) -> usize {
        let again = |one: &&WaiterId| self.again.contains(one);
        self.arrived.iter().take_while(again).count()
    }

    fn note(&mut self, event: &Event) {
        if let Event::LeaseRequested {
            waiter,
            position: turn,
            ..
        } = event
        {
            let at = match turn {
                QueuePosition::Back => self.arrived.len(),
                QueuePosition::Front => self.came_again(),
            };
            self.arrived.insert(at, *waiter);
            if *turn == QueuePosition::Front {
                self.again.insert(*waiter);
            }
        } else if let Event::HolderCallStarted(waiter, _) = event {
            // Whoever holds a session does not stand in line for it.
            self.arrived.insert(0, *waiter);
        } else if let Event::WaiterLeft(waiter) = event {
            self.arrived.retain(|one| one != waiter);
        } else if let Event::LossReported(number) = event {
            self.told.insert(*number);
        }
    }

    fn hold(
        &mut self,
        before: &World,
        world: &World,
        event: &Event,
        effects: &Effects,
    ) -> Result<(), TestCaseError> {
        prop_assert_eq!(world.cell.counts(), world.cell.recount(), "{:?}", event);
        let counts = world.cell.counts();
        if world.policy.sharing == Sharing::OnePerCaller && !matches!(event, Event::Reconfigured(_))
        {
            let more = places_taken(world) > places_taken(before);
            prop_assert!(
                !more || places_taken(world) <= world.policy.max_sessions,
                "{:?}",
                event
            );
        }
        for effect in effects {
            self.hold_effect(before, world, event, effect)?;
        }
        if let Event::HolderCallStarted(waiter, _) = event {
            self.arrived.retain(|one| one != waiter);
        }
        let new = counts.waiting as usize - self.came_again();
        prop_assert!(new <= world.policy.max_waiters as usize, "{:?}", event);
        let leases = world.leases_alive() + world.checks_alive();
        prop_assert_eq!(counts.leases as usize, leases, "{:?}", event);
        alone_is_alone(world)?;
        nobody_waits_for_what_is_there(world)
    }

    fn hold_effect(
        &mut self,
        before: &World,
        world: &World,
        event: &Event,
        effect: &Effect,
    ) -> Result<(), TestCaseError> {
        match *effect {
            Effect::GrantLease {
                waiter,
                generation,
                loss,
            } => {
                prop_assert_eq!(
                    self.arrived.first(),
                    Some(&waiter),
                    "first come, first served"
                );
                self.arrived.remove(0);
                prop_assert!(!before.closed.contains(&generation), "closed is final");
                granted((before, world), event, generation)?;
                if matches!(event, Event::HolderCallStarted(..)) {
                    prop_assert_eq!(loss, None, "it has the session that it had");
                } else {
                    prop_assert_eq!(loss, world.cell.last_loss(), "each has the last one");
                }
                if let Some(loss) = loss {
                    let told = loss.is_reported;
                    prop_assert_eq!(told, self.told.contains(&loss.number), "{:?}", loss);
                }
            },
            Effect::RefuseLease(waiter, _) => self.arrived.retain(|one| *one != waiter),
            Effect::CloseSession(generation, why) => {
                prop_assert!(!before.closed.contains(&generation), "closed twice");
                let ours = matches!(
                    why,
                    EndReason::MaxAge | EndReason::MaxIdle | EndReason::Evicted
                );
                let busy = before
                    .state_of(generation)
                    .is_some_and(|one| one.leases() > 1);
                prop_assert!(!(ours && busy), "closed under its leases");
                let of_run = before.policy.end_condition == EndCondition::WithRunEnd;
                prop_assert!(!(of_run && matches!(why, EndReason::MaxIdle)));
            },
            Effect::KeepAlive(generation) => {
                prop_assert_eq!(world.policy.end_condition, EndCondition::WithRunEnd);
                let state = world.state_of(generation);
                let quiet = state == Some(SessionState::Idle)
                    || (state.and_then(held_how) == Some(LeaseKind::Exclusive)
                        && state.is_some_and(|state| state.leases() == 1));
                prop_assert!(quiet, "{:?}", state);
            },
            Effect::OpenSession(..)
            | Effect::OpenUnneeded(..)
            | Effect::AbortOpen(..)
            | Effect::Renumber { .. }
            | Effect::CheckSession(..)
            | Effect::SessionStable(..)
            | Effect::SessionShortLived(..)
            | Effect::SessionLost(..)
            | Effect::EvictEntry => {},
        }
        Ok(())
    }
}

impl World {
    fn state_of(&self, generation: Generation) -> Option<SessionState> {
        let all = self.cell.sessions().iter();
        all.filter(|one| one.generation == generation)
            .map(|one| one.state)
            .next()
    }

    /// Leases whose session is still there: after a cut some outlive it.
    fn leases_alive(&self) -> usize {
        let alive = self
            .leases
            .iter()
            .filter(|(generation, _)| self.state_of(*generation).is_some());
        alive.count()
    }

    fn checks_alive(&self) -> usize {
        let alive = self
            .checking
            .iter()
            .filter(|one| self.state_of(**one).is_some());
        alive.count()
    }
}

/// Sessions that take a place; those that the server ended do not.
fn places_taken(world: &World) -> u32 {
    let takes = |state: SessionState| match state {
        SessionState::Opening | SessionState::Idle | SessionState::Leased { .. } => true,
        SessionState::Retiring { reason: why, .. } => {
            !matches!(why, EndReason::Gone | EndReason::Expired)
        },
        SessionState::Closed(_) => false,
    };
    let all = world.cell.sessions().iter();
    u32::try_from(all.filter(|one| takes(one.state)).count()).expect("few")
}

/// Who got a lease was alone where it has to be, and nothing that ends was leased but to its holder.
fn granted(
    (before, after): (&World, &World),
    event: &Event,
    generation: Generation,
) -> Result<(), TestCaseError> {
    let state = before.state_of(generation);
    if matches!(event, Event::HolderCallStarted(..)) {
        let hold = state.and_then(held_how);
        prop_assert_eq!(hold, Some(LeaseKind::Exclusive), "only who is alone");
        return Ok(());
    }
    let retiring = matches!(state, Some(SessionState::Retiring { .. }));
    prop_assert!(!retiring, "it takes no new lease");
    let after = after.state_of(generation);
    let shared = after.and_then(held_how) == Some(LeaseKind::Shared);
    let only = after.is_some_and(|state| state.leases() == 1);
    prop_assert!(shared || only, "alone is alone");
    Ok(())
}

/// How a session is held.
fn held_how(state: SessionState) -> Option<LeaseKind> {
    match state {
        SessionState::Leased { kind: hold, .. } | SessionState::Retiring { kind: hold, .. } => {
            Some(hold)
        },
        SessionState::Opening | SessionState::Idle | SessionState::Closed(_) => None,
    }
}

/// Whoever asked to be alone on a session is.
fn alone_is_alone(world: &World) -> Result<(), TestCaseError> {
    for session in world.cell.sessions() {
        if let SessionState::Leased { leases, kind: hold }
        | SessionState::Retiring {
            leases, kind: hold, ..
        } = session.state
        {
            match hold {
                // Those beside its own are of the holder: they joined it.
                LeaseKind::Exclusive => {},
                LeaseKind::Shared => prop_assert_eq!(world.policy.sharing, Sharing::SideBySide),
                LeaseKind::Single | LeaseKind::Check => prop_assert_eq!(leases.get(), 1),
            }
        }
    }
    Ok(())
}

/// While somebody waits, something comes, or everything there is is in use.
fn nobody_waits_for_what_is_there(world: &World) -> Result<(), TestCaseError> {
    let counts = world.cell.counts();
    if counts.waiting > 0 {
        let coming = counts.opening as usize + world.checking.len();
        prop_assert!(
            coming > 0 || counts.leased > 0 || counts.retiring > 0,
            "{:?}",
            world
        );
        prop_assert!(coming > 0 || counts.idle == 0, "{:?}", world);
    }
    Ok(())
}

/// When everything under way ends well, nobody is left waiting.
fn finish(mut world: World) -> Result<(), TestCaseError> {
    for _ in 0..200 {
        let next = [
            Move::Opened(0),
            Move::Checked(0, warmline_core::pool::HealthCheckResult::Alive),
            Move::Settle(0, LeaseOutcome::Answered { stateful: false }),
        ];
        let event = next.into_iter().find_map(|one| world.event(one));
        let Some(event) = event else { break };
        world.tell(event);
    }
    prop_assert_eq!(world.cell.counts().waiting, 0);
    prop_assert_eq!(world.cell.counts().leases, 0);
    prop_assert_eq!(world.cell.counts().opening, 0);
    Ok(())
}

/// Events that make no sense change nothing and are counted.
#[test]
fn senseless_events_change_nothing_and_are_counted() {
    let histories = (policy(), history(), 1_u32..30);
    super::check(histories, |(policy, history, number)| {
        let mut world = World::new(policy, 3);
        for one in history {
            if let Some(event) = world.event(one) {
                world.tell(event);
            }
        }
        let generation = Generation::new(number + 10_000).expect("not zero");
        let before = format!("{:?}", world.cell.sessions());
        let arrival = OpenedSession::FRESH;
        let senseless = [
            Event::OpenFailed(generation),
            Event::OpenCancelled(generation),
            Event::OpenerLost(generation),
            Event::Opened(generation, arrival),
            Event::CheckFinished(generation, warmline_core::pool::HealthCheckResult::Gone),
            Event::LeaseReturned(generation, LeaseOutcome::SessionEnded(EndReason::Gone)),
        ];
        for event in senseless {
            world.cell.handle_event(event, world.now);
        }
        prop_assert_eq!(before, format!("{:?}", world.cell.sessions()));
        let expected = if world.ended { 0 } else { 6 };
        prop_assert_eq!(world.cell.invalid_events(), expected);
        prop_assert_eq!(world.cell.counts(), world.cell.recount());
        Ok(())
    });
}

/// reliability I12: any number of failures that speak of one session make one new one.
#[test]
fn any_number_of_failures_make_one_new_session() {
    for calls in [1_u64, 5, 100] {
        let mut world = World::new(side_by_side(EndCondition::WithRunEnd), 1);
        let asked = |n: u64| Event::LeaseRequested {
            waiter: WaiterId(n),
            mode: LeaseMode::Shared,
            position: QueuePosition::Back,
        };
        let mut opened = BTreeSet::new();
        let mut tell = |world: &mut World, event| {
            for effect in world.tell(event) {
                if let Effect::OpenSession(generation) = effect {
                    opened.insert(generation.number());
                }
            }
        };
        for call in 0..calls {
            tell(&mut world, asked(call));
        }
        let first = world.event(Move::Opened(0)).expect("an opening");
        tell(&mut world, first);
        for call in 0..calls {
            let gone = Move::Settle(0, LeaseOutcome::SessionEnded(EndReason::Gone));
            let gone = world.event(gone).expect("a lease");
            tell(&mut world, gone);
            tell(&mut world, asked(1_000 + call));
        }
        let all_opened = opened.into_iter().collect::<Vec<_>>();
        assert_eq!(all_opened, [1, 2], "{calls} calls");
    }
}

pub(crate) fn side_by_side(ends: EndCondition) -> EntryPolicy {
    EntryPolicy {
        sharing: Sharing::SideBySide,
        max_sessions: 1,
        max_age: None,
        max_idle: None,
        check_after: Duration::from_secs(60),
        keep_alive: None,
        max_waiters: 2_000,
        stability: StabilityCriterion::FirstReply,
        end_condition: ends,
    }
}
