//! Every command as its users see it: the whole output, exit code included.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::too_many_lines,
    reason = "a test that cannot set its scene has failed, and outputs are as long as they are"
)]

mod auth_config;
mod background;
mod broken_servers;
mod call;
mod check;
mod child_environment;
mod config;
mod demo;
mod doctor;
mod help;
mod hints;
#[path = "../../../warmline-testkit/tests/stage/http_sse_server.rs"]
mod http_sse_server;
mod init;
mod isolated_binary;
mod leftover_runs;
mod output;
mod prelude;
mod restart;
mod run_command;
mod runs;
mod secrets;
mod serve;
mod serve_shutdown;
mod settings;
mod skipped_config;
mod stdio;
mod suggestions;
mod terminal;
mod unusable_files;
mod url;

/// Compares what a command told with what it should tell.
///
/// What depends on the machine is replaced by a word in brackets.
macro_rules! tells {
    ($told:expr, @$expected:literal) => {
        insta::with_settings!({ filters => crate::isolated_binary::FILTERS.to_vec() }, {
            insta::assert_snapshot!($told.to_string(), @$expected);
        })
    };
}

/// Runs the commands of a transcript, and compares the output of each with the text below it.
macro_rules! shows {
    ($warmline:expr, $($name:literal = $value:expr,)* @$expected:literal) => {
        insta::with_settings!({ filters => crate::isolated_binary::FILTERS.to_vec() }, {
            let told = $warmline.transcript(&[$(($name, $value.as_ref())),*], $expected);
            insta::assert_snapshot!(told, @$expected);
        })
    };
}
pub(crate) use {shows, tells};
