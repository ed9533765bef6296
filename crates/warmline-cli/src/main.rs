//! The binary `warmline`: parse, run, exit.

mod advice;
mod args;
mod ask;
mod background;
mod clock;
mod command;
mod content;
mod conversation;
mod dashes;
mod gate;
mod interrupt;
mod kept;
mod log;
mod problem;
mod program;
mod report;
mod rules;
mod run;
mod target;
mod unread;
mod values;

use std::process::ExitCode;

use clap::Parser as _;

use crate::args::{Complaint, Lasts, Look, Typed};
use crate::problem::{Outcome, Problem};
use crate::report::Report;

fn main() -> ExitCode {
    // Children die with us, whatever kills us: this binary is also their warden.
    warmline::warden::run_if_asked();
    keep_memory_private();
    let typed = match Typed::try_parse() {
        Ok(typed) => typed,
        Err(error) => return complain(&error),
    };
    log::start(typed.command.lasts());
    // One for the whole life of the process: what is told in the middle of a call needs it too.
    let report: &'static Report = Box::leak(Box::new(Report::new(&typed.look)));
    let exit = match run(typed, report) {
        Ok(exit) => exit,
        Err(problem) => {
            let problem = dashes::pointed_out(problem);
            report.problem(&problem);
            problem.exit()
        },
    };
    log::flush();
    ExitCode::from(report.finish(exit))
}

/// Tokens and keys are in our memory: no core dump holds them, and no other process of the same
/// user reads them. Programs that we start are not concerned.
fn keep_memory_private() {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{DumpableBehavior, set_dumpable_behavior};
        // It cannot fail with this value; where it did, we would be as other programs are.
        set_dumpable_behavior(DumpableBehavior::NotDumpable).ok();
    }
}

/// Says what is wrong with the command line, or shows the help that was asked for.
fn complain(error: &clap::Error) -> ExitCode {
    let report = Report::new(&Look::guessed(std::env::args_os()));
    match Complaint::of(error) {
        Complaint::Answer(text) => {
            report.data(&text);
            ExitCode::from(report.finish(0))
        },
        Complaint::Help(text) => {
            report.say(text.trim_end());
            ExitCode::from(2)
        },
        Complaint::Problem(problem) => {
            let problem = dashes::pointed_out(problem);
            report.problem(&problem);
            ExitCode::from(problem.exit())
        },
    }
}

/// Runs the command on a small runtime, a service on one for all processors; the exit code says
/// how it went.
fn run(typed: Typed, report: &'static Report) -> Outcome<u8> {
    let mut builder = match typed.command.lasts() {
        Lasts::OneCommand | Lasts::UntilClosed => tokio::runtime::Builder::new_current_thread(),
        Lasts::UntilStopped => tokio::runtime::Builder::new_multi_thread(),
    };
    let runtime = builder.enable_all().build().map_err(|error| {
        Problem::new(
            warmline::core::code::Code::Bug,
            "no runtime could be started",
        )
        .because(error.to_string())
    })?;
    let outcome = runtime.block_on(command::run(typed.command, report));
    // Somebody who was asked something may still sit before an empty line: nobody waits for that.
    runtime.shutdown_background();
    outcome
}
