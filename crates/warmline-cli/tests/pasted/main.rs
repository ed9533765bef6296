//! What people paste works as it stands: the quickstarts of the README and the texts of
//! `warmline url`, with the real clients of `tests/parts` through `warmline serve`. Without those
//! parts these tests fail.
#![cfg(test)]

#[path = "../../../warmline-testkit/tests/servers/parts.rs"]
#[expect(dead_code, reason = "only clients are needed here, not the servers")]
mod parts;
mod quickstarts;
mod snippets;
#[path = "../cli/warmline.rs"]
#[expect(
    dead_code,
    reason = "only a part of what commands can be told is needed"
)]
mod warmline;
mod world;
