//! Real servers: each is opened, listed, called and closed, over every transport and in every era
//! that it offers. Versions are pinned in `tests/parts`; without them these tests fail.
#![cfg(test)]

mod counters;
mod meeting;
mod official;
mod parts;
mod running;

#[test]
#[should_panic(expected = "run `make parts`")]
fn a_missing_part_is_a_failure_that_says_what_to_do() {
    parts::part("node/not-there.mjs");
}
