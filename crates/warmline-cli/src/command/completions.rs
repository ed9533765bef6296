//! `warmline completions`: for a shell, generated from the command line itself.

use clap::CommandFactory as _;

use crate::args;
use crate::report::Report;

/// Prints the completions of a shell.
pub(super) fn run(typed: &args::Completions, report: &Report) {
    let mut script = Vec::new();
    clap_complete::generate(
        typed.shell,
        &mut args::Typed::command(),
        "warmline",
        &mut script,
    );
    report.bytes(&script);
}
