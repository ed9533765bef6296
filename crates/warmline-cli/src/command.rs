//! What each command does.

use crate::args::Command;
use crate::problem::Outcome;
use crate::report::Report;

mod call;
mod completions;
mod demo;
mod demo_server;
mod doctor;
mod explain;
mod request;
mod tools;
mod trust;

/// Runs a command; the number is the exit code.
pub(crate) async fn run(command: Command, report: &'static Report) -> Outcome<u8> {
    match command {
        Command::Call(call) => Box::pin(call::run(&call, report)).await,
        Command::Request(request) => Box::pin(request::run(&request, report)).await,
        Command::Tools(tools) => Box::pin(tools::run(&tools, report)).await,
        Command::Doctor(doctor) => Box::pin(doctor::run(&doctor, report)).await,
        Command::Explain(explain) => explain::run(&explain, report),
        Command::Trust(trust) => trust::run(&trust, report).await,
        Command::Demo(_) => Box::pin(demo::run(report)).await,
        Command::DemoServer(server) => demo_server::run(&server, report).await,
        Command::Completions(completions) => {
            completions::run(&completions, report);
            Ok(0)
        },
    }
}
