//! The machine against its model, over any history.

use proptest::prelude::*;
use warmline_core::pool::{CellPolicy, Effect, Effects};

use super::model::{Model, Said, lost};
use super::moves::{Move, history, policy};
use super::world::World;

/// A24, A25, A74, A82, reliability I8, reliability I9, reliability I11 to I13, reliability I15,
/// reliability I17, reliability I20, reliability I34: whatever happens, the machine does what the model does.
#[test]
fn the_machine_does_what_its_model_does_whatever_happens() {
    super::check((policy(), history()), |(policy, history)| {
        agree(policy, &history)
    });
}

fn agree(policy: CellPolicy, history: &[Move]) -> Result<(), TestCaseError> {
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
    prop_assert_eq!(world.cell.mistakes(), 0);
    Ok(())
}

fn sessions(world: &World) -> Vec<(u32, &'static str, u32)> {
    let all = world.cell.sessions().iter();
    let mut seen: Vec<_> = all
        .map(|one| {
            let state = one.state();
            (one.generation().number(), state.word(), state.leases())
        })
        .collect();
    seen.sort_unstable();
    seen
}

fn said(effects: &Effects) -> Vec<Said> {
    let say = |effect: &Effect| match *effect {
        Effect::Lease {
            waiter,
            generation,
            loss,
        } => Some(Said::Lease(waiter.0, generation.number(), lost(loss))),
        Effect::Refuse { waiter, .. } => Some(Said::Refuse(waiter.0)),
        Effect::Open { generation } => Some(Said::Open(generation.number())),
        Effect::Abandon { generation } => Some(Said::Abandon(generation.number())),
        Effect::Check { generation } => Some(Said::Check(generation.number())),
        Effect::Close { generation, .. } => Some(Said::Close(generation.number())),
        Effect::Proven { generation } => Some(Said::Proven(generation.number())),
        Effect::InVain { generation, .. } => Some(Said::InVain(generation.number())),
        // Hints and news.
        Effect::Unwanted { .. }
        | Effect::Renumber { .. }
        | Effect::KeepAlive { .. }
        | Effect::Lost { .. }
        | Effect::Forget => None,
    };
    let mut said: Vec<Said> = effects.iter().filter_map(say).collect();
    said.sort_unstable();
    said
}
