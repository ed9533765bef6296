//! Real servers: each is opened, listed, called and closed, over every transport and in every era
//! that it offers; and those that keep state keep it for a run, and are killed in the middle of one.
//! Versions are pinned in `tests/parts`; without them these tests fail.
mod counters;
mod official_servers;
mod runs;
mod server_crash;
mod session_check;
mod stateful_server;

#[test]
#[should_panic(expected = "run `make parts`")]
fn a_missing_part_is_a_failure_that_says_what_to_do() {
    crate::real_parts::part("node/not-there.mjs");
}
