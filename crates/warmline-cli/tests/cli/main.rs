//! Every command as its users see it: the whole output, exit code included.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::too_many_lines,
    reason = "a test that cannot set its scene has failed, and outputs are as long as they are"
)]

mod around;
mod background;
mod blocked;
mod call;
mod callers;
mod check;
mod config;
mod demo;
mod doctor;
mod help;
mod hints;
mod init;
mod kept;
mod left_out;
#[path = "../../../warmline-testkit/tests/stage/old_server.rs"]
mod old_server;
mod output;
mod restart;
mod runs;
mod secrets;
mod serve;
mod servers;
mod settings;
mod slips;
mod stdio;
mod stopping;
mod terminal;
mod url;
mod variables;
mod warmline;

/// Compares what a command told with what it should tell.
///
/// What depends on the machine is replaced by a word in brackets.
macro_rules! tells {
    ($told:expr, @$expected:literal) => {
        insta::with_settings!({ filters => crate::warmline::FILTERS.to_vec() }, {
            insta::assert_snapshot!($told.to_string(), @$expected);
        })
    };
}
pub(crate) use tells;
