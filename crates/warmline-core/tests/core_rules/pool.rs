//! The pool's machine: every event in every state, against a model, in any order.
//!
//! Histories are drawn at random; `WARMLINE_CASES` says how many, and a history that fails is
//! shown with the `WARMLINE_SEED` that repeats it.

mod model;
mod model_test;
mod properties;
mod random_events;
mod rules;
mod simulated_shell;
mod states;
mod time_rules;

use std::hash::{BuildHasher, Hasher};

use proptest::test_runner::{Config, RngSeed, TestError, TestRunner};

const USUAL_CASES: u64 = 2_000;

/// Runs a property on many histories.
#[track_caller]
fn check<S: proptest::strategy::Strategy>(
    histories: S,
    property: impl Fn(S::Value) -> Result<(), proptest::test_runner::TestCaseError>,
) where
    S::Value: std::fmt::Debug,
{
    let seed = number("WARMLINE_SEED").unwrap_or_else(drawn);
    let cases = number("WARMLINE_CASES").unwrap_or(USUAL_CASES);
    let config = Config {
        cases: u32::try_from(cases).expect("a number of cases"),
        rng_seed: RngSeed::Fixed(seed),
        failure_persistence: None,
        max_shrink_iters: 20_000,
        ..Config::default()
    };
    match TestRunner::new(config).run(&histories, property) {
        Ok(()) => {},
        Err(TestError::Fail(why, history)) => {
            panic!("WARMLINE_SEED={seed} shows: {why}\nwith this history:\n{history:#?}")
        },
        Err(TestError::Abort(why)) => panic!("WARMLINE_SEED={seed}: {why}"),
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "how hard to look is said from outside"
)]
fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

#[expect(clippy::disallowed_types, reason = "each run looks at other histories")]
fn drawn() -> u64 {
    std::hash::RandomState::new().build_hasher().finish()
}
