//! The machine against its model, over any history.

use proptest::prelude::*;
use warmline_core::pool::{Effect, Effects, EntryPolicy};

use super::model::{Model, ModelEffect, lost};
use super::random_events::{Move, history, policy};
use super::simulated_shell::World;

/// A24, A25, A74, A82, reliability I8, reliability I9, reliability I11 to I13, reliability I15,
/// reliability I17, reliability I20, reliability I34: whatever happens, the machine does what the model does.
#[test]
fn the_machine_does_what_its_model_does_whatever_happens() {
    super::check((policy(), history()), |(policy, history)| {
        agree(policy, &history)
    });
}

fn agree(policy: EntryPolicy, history: &[Move]) -> Result<(), TestCaseError> {
    let mut world = World::new(policy, 7);
    let mut model = Model::new(&policy);
    for (at, one) in history.iter().enumerate() {
        let event = world.event(*one);
        model.now = world.now.since_start().as_secs();
        let Some(event) = event else { continue };
        let expected = model.on(event);
        let effects = world.tell(event);
        prop_assert_eq!(said(&effects), expected, "step {}: {:?}", at, event);
        let seen: Vec<_> = sessions(&world);
        prop_assert_eq!(seen, model.seen(), "step {}: {:?}", at, event);
        prop_assert_eq!(world.cell.counts().waiting as usize, model.line.len());
        prop_assert_eq!(world.cell.counts(), world.cell.recount());
    }
    prop_assert_eq!(world.cell.invalid_events(), 0);
    Ok(())
}

fn sessions(world: &World) -> Vec<(u32, &'static str, u32)> {
    let all = world.cell.sessions().iter();
    let mut seen: Vec<_> = all
        .map(|one| {
            let state = one.state;
            (one.generation.number(), state.as_str(), state.leases())
        })
        .collect();
    seen.sort_unstable();
    seen
}

fn said(effects: &Effects) -> Vec<ModelEffect> {
    let say = |effect: &Effect| match *effect {
        Effect::GrantLease {
            waiter,
            generation,
            loss,
        } => Some(ModelEffect::Lease(
            waiter.0,
            generation.number(),
            lost(loss),
        )),
        Effect::RefuseLease(waiter, _) => Some(ModelEffect::Refuse(waiter.0)),
        Effect::OpenSession(generation) => Some(ModelEffect::Open(generation.number())),
        Effect::AbortOpen(generation) => Some(ModelEffect::Abandon(generation.number())),
        Effect::CheckSession(generation) => Some(ModelEffect::Check(generation.number())),
        Effect::CloseSession(generation, _) => Some(ModelEffect::Close(generation.number())),
        Effect::SessionStable(generation) => Some(ModelEffect::Proven(generation.number())),
        Effect::SessionShortLived(generation, _) => Some(ModelEffect::InVain(generation.number())),
        // Hints and news.
        Effect::OpenUnneeded(..)
        | Effect::Renumber { .. }
        | Effect::KeepAlive(..)
        | Effect::SessionLost(..)
        | Effect::EvictEntry => None,
    };
    let mut said: Vec<ModelEffect> = effects.iter().filter_map(say).collect();
    said.sort_unstable();
    said
}
