//! What each command does.

use crate::args::Command;
use crate::problem::{Outcome, Problem};
use crate::report::Report;

mod add;
mod call;
mod check;
mod completions;
mod demo;
mod demo_server;
mod doctor;
mod down;
mod end;
mod explain;
mod init;
mod ps;
mod request;
mod run;
mod serve;
mod stdio;
mod token;
mod tools;
mod trust;
mod up;
mod url;

/// Runs a command; the number is the exit code.
pub(crate) async fn run(command: Command, report: &'static Report) -> Outcome<u8> {
    use Command::{Call, Request, Tools};
    let asks_a_server = matches!(command, Call(_) | Request(_) | Tools(_));
    let outcome = carry_out(command, report).await;
    match asks_a_server {
        true => outcome,
        false => outcome.map_err(Problem::of_no_call),
    }
}

async fn carry_out(command: Command, report: &'static Report) -> Outcome<u8> {
    match command {
        Command::Call(call) => Box::pin(call::run(&call, report)).await,
        Command::Request(request) => Box::pin(request::run(&request, report)).await,
        Command::Tools(tools) => Box::pin(tools::run(&tools, report)).await,
        Command::Doctor(doctor) => Box::pin(doctor::run(&doctor, report)).await,
        Command::Serve(serve) => Box::pin(serve::run(&serve, report)).await,
        Command::Stdio(stdio) => Box::pin(stdio::run(&stdio, report)).await,
        Command::Run(around) => Box::pin(run::run(&around, report)).await,
        Command::Up(up) => Box::pin(up::run(&up, report)).await,
        Command::Down(down) => down::run(&down, report).await,
        Command::Ps(ps) => ps::run(&ps, report).await,
        Command::End(end) => end::run(&end, report).await,
        Command::Url(url) => url::run(&url, report),
        Command::Token(token) => token::run(&token, report),
        Command::Check(check) => check::run(&check, report),
        Command::Init(init) => init::run(&init, report),
        Command::Add(add) => add::run(&add, report),
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
