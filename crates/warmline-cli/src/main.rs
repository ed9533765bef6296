//! The binary `warmline`: parse, run, exit.

mod backend;
mod background;
mod commands;
mod gateway_host;
mod hints;
mod leftover_runs;
mod logging;
mod output;
mod prompt;
mod signals;
mod target;
mod values;

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser as _};

use warmline_core::error::code::Code;

use crate::commands::{Cli, CommandLifetime};
use crate::hints::command_line::{problem_from_clap, with_separator_hint};
use crate::output::{CliResult, OutputArgs, Problem, Report};

fn main() -> ExitCode {
    // This binary is also the warden of our children, which end with us.
    warmline_upstream::child::warden::run_if_asked();
    set_not_dumpable();
    let typed = match Cli::try_parse() {
        Ok(typed) => typed,
        Err(error) => return report_parse_error(&error),
    };
    if typed.command.lifetime() == CommandLifetime::OneShot {
        logging::start_for_command();
    }
    // Listeners of calls need it for the life of the process.
    let report: &'static Report = Box::leak(Box::new(Report::new(&typed.output)));
    let exit = match run(typed, report) {
        Ok(exit) => exit,
        Err(problem) => {
            let problem = with_separator_hint(problem, Cli::command());
            report.print_problem(&problem);
            problem.exit_code()
        },
    };
    logging::flush();
    ExitCode::from(report.final_exit_code(exit))
}

/// Keeps tokens and keys out of core dumps and of the reach of other processes. Programs that we start
/// are not affected.
fn set_not_dumpable() {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{DumpableBehavior, set_dumpable_behavior};
        // It cannot fail with this value.
        set_dumpable_behavior(DumpableBehavior::NotDumpable).ok();
    }
}

/// Reports an error of the command line, or prints the help that was asked for.
fn report_parse_error(error: &clap::Error) -> ExitCode {
    let report = Report::new(&OutputArgs::from_raw_args(std::env::args_os()));
    let help = error.render().ansi().to_string();
    if [ErrorKind::DisplayHelp, ErrorKind::DisplayVersion].contains(&error.kind()) {
        report.print(&help);
        return ExitCode::from(report.final_exit_code(0));
    }
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        report.print_to_stderr(help.trim_end());
        return ExitCode::from(2);
    }
    let problem = with_separator_hint(problem_from_clap(error), Cli::command());
    report.print_problem(&problem);
    ExitCode::from(problem.exit_code())
}

/// Runs a command on one thread, a service on all processors. Returns the exit code.
fn run(typed: Cli, report: &'static Report) -> CliResult<u8> {
    let mut builder = match typed.command.lifetime() {
        CommandLifetime::OneShot | CommandLifetime::UntilInputClosed => {
            tokio::runtime::Builder::new_current_thread()
        },
        CommandLifetime::UntilStopped => tokio::runtime::Builder::new_multi_thread(),
    };
    let runtime = builder.enable_all().build();
    let runtime = runtime.map_err(Problem::caused(Code::Bug, "cannot start a runtime"))?;
    let outcome = runtime.block_on(commands::run(typed.command, report));
    // A prompt may still read a line: nothing waits for it.
    runtime.shutdown_background();
    outcome
}
