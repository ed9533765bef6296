//! What people paste works as printed: the quickstarts, the shell lines of README and guides, and the
//! texts of `warmline url`, with the real clients of `tests/parts` through `warmline serve`. Without those
//! parts these tests fail.
#![cfg(test)]

mod child_cleanup;
mod fixture;
#[path = "../cli/isolated_binary.rs"]
#[expect(
    dead_code,
    reason = "only a part of what commands can be told is needed"
)]
mod isolated_binary;
mod quickstarts;
#[path = "../../../warmline-testkit/tests/stage/real_parts.rs"]
#[expect(dead_code, reason = "only clients are needed here, not the servers")]
mod real_parts;
mod shell_lines;
mod snippets;
