//! Real servers: each is opened, listed, called and closed, over every transport and in every era
//! that it offers; and those that keep state keep it for a run, and are killed in the middle of one.
//! Versions are pinned in `tests/parts`; without them these tests fail.
#![cfg(test)]

#[path = "../stage/census.rs"]
#[expect(dead_code, reason = "processes are looked for by their ids here")]
mod census;
mod counters;
mod killed;
mod meeting;
mod official;
mod parts;
mod running;
mod runs;
mod stateful;

#[test]
#[should_panic(expected = "run `make parts`")]
fn a_missing_part_is_a_failure_that_says_what_to_do() {
    parts::part("node/not-there.mjs");
}
