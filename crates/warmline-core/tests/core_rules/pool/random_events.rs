//! Moves: what may happen next, drawn at random. A number picks one of those there are.

use std::time::Duration;

use proptest::prelude::*;
use warmline_core::pool::{
    EndCondition, EndReason, EntryPolicy, HealthCheckResult, LeaseMode, LeaseOutcome, Sharing,
    StabilityCriterion,
};
use warmline_core::pool_key::Transport;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Move {
    Ask(LeaseMode),
    /// Whoever had its turn asks again: what it got was dead.
    AskAgain(LeaseMode),
    Leave(usize),
    Opened(usize),
    OpenFailed(usize),
    Withdraw(usize),
    Desert(usize),
    Settle(usize, LeaseOutcome),
    /// Whoever has a lease is told of the loss that came with it.
    Tell(usize),
    /// Whoever has a lease sends on it as its holder does; only who is alone may.
    Join(usize),
    /// Picks among all generations there ever were: late news must change nothing.
    Gone(usize),
    /// The same, and it is the operator who ends it.
    Close(usize),
    Checked(usize, HealthCheckResult),
    KeptAlive(usize, HealthCheckResult),
    Doubt,
    Wait(u64),
    Sweep,
    RoomNeeded(usize),
    Limit(u32),
    End,
    Cut,
}

pub(crate) fn outcome() -> impl Strategy<Value = LeaseOutcome> {
    prop_oneof![
        6 => any::<bool>().prop_map(|left_state| LeaseOutcome::Answered { stateful: left_state }),
        1 => Just(LeaseOutcome::ConnectionFailed),
        2 => Just(LeaseOutcome::SessionEnded(EndReason::Gone)),
        1 => Just(LeaseOutcome::Cancelled),
        1 => Just(LeaseOutcome::Unused),
    ]
}

fn health() -> impl Strategy<Value = HealthCheckResult> {
    prop_oneof![
        4 => Just(HealthCheckResult::Alive),
        1 => Just(HealthCheckResult::Gone),
        2 => Just(HealthCheckResult::TimedOut),
        1 => Just(HealthCheckResult::Refused),
        1 => Just(HealthCheckResult::Unreachable),
    ]
}

fn want() -> impl Strategy<Value = LeaseMode> {
    prop_oneof![5 => Just(LeaseMode::Shared), 1 => Just(LeaseMode::Exclusive)]
}

fn one_move() -> impl Strategy<Value = Move> {
    let any = any::<usize>;
    prop_oneof![
        8 => want().prop_map(Move::Ask),
        2 => want().prop_map(Move::AskAgain),
        2 => any().prop_map(Move::Leave),
        8 => any().prop_map(Move::Opened),
        2 => any().prop_map(Move::OpenFailed),
        1 => any().prop_map(Move::Withdraw),
        1 => any().prop_map(Move::Desert),
        10 => (any(), outcome()).prop_map(|(n, outcome)| Move::Settle(n, outcome)),
        3 => any().prop_map(Move::Tell),
        4 => any().prop_map(Move::Join),
        2 => any().prop_map(Move::Gone),
        1 => any().prop_map(Move::Close),
        4 => (any(), health()).prop_map(|(n, health)| Move::Checked(n, health)),
        1 => (any(), health()).prop_map(|(n, health)| Move::KeptAlive(n, health)),
        1 => Just(Move::Doubt),
        4 => (1_u64..90).prop_map(Move::Wait),
        2 => Just(Move::Sweep),
        1 => any().prop_map(Move::RoomNeeded),
        1 => (1_u32..5).prop_map(Move::Limit),
    ]
}

/// A history that may end with the key's end.
pub(crate) fn history() -> impl Strategy<Value = Vec<Move>> {
    let end = prop_oneof![
        2 => Just(vec![]),
        1 => Just(vec![Move::End]),
        1 => Just(vec![Move::End, Move::Cut]),
    ];
    let before = proptest::collection::vec(one_move(), 0..50);
    let after = proptest::collection::vec(one_move(), 0..10);
    (before, end, after).prop_map(|(before, end, after)| [before, end, after].concat())
}

pub(crate) fn policy() -> impl Strategy<Value = EntryPolicy> {
    let sharing = prop_oneof![
        Just(Sharing::SideBySide),
        Just(Sharing::Serial),
        Just(Sharing::OnePerCaller)
    ];
    let ends = prop_oneof![Just(EndCondition::AtLimits), Just(EndCondition::WithRunEnd)];
    let proof = prop_oneof![
        Just(StabilityCriterion::FirstReply),
        Just(StabilityCriterion::for_transport(Transport::Stdio))
    ];
    let drawn = (sharing, ends, 1_u32..4, 1_u32..7, proof);
    drawn.prop_map(|(sharing, ends, max, waiters, proof)| EntryPolicy {
        sharing,
        max_sessions: max,
        max_age: None,
        max_idle: None,
        check_after: Duration::from_secs(60),
        keep_alive: None,
        max_waiters: waiters,
        stability: proof,
        end_condition: ends,
    })
}
