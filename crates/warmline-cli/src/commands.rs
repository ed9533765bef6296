//! The command line and its commands.

use clap::{Parser, Subcommand};

use crate::output::{CliResult, OutputArgs, Problem, Report};

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

const ABOUT: &str = "Call any MCP server over HTTP or stdio, and learn whether each call ran.";

const AFTER_HELP: &str = "\
A target is a URL, a name from warmline.toml or an mcpServers file, or a command behind `--`:
  warmline tools https://example.com/mcp
  warmline call github list_issues owner=acme repo=lamp
  warmline call echo message=hi -- npx -y some-server
  warmline doctor -- npx -y some-server
  warmline demo

With every command: --json, --color WHEN, -q/--quiet, -v/--verbose.
Exit: 0 success · 1 error of the tool · 2 usage or configuration · 3 not executed, safe to call
again · 4 may have been executed. `warmline help COMMAND` has the details.";

/// The command line.
#[derive(Debug, Parser)]
#[command(
    name = "warmline",
    version,
    about = ABOUT,
    after_help = AFTER_HELP,
    override_usage = "warmline COMMAND [TARGET] …",
    disable_help_subcommand = false,
    help_template = "{about}\n\n{usage-heading} {usage}\n\n{subcommands}\n{after-help}",
    max_term_width = 100
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Call(call::CallArgs),
    Request(request::RequestArgs),
    Tools(tools::ToolsArgs),
    Doctor(doctor::DoctorArgs),
    Serve(serve::ServeArgs),
    Stdio(stdio::StdioArgs),
    Run(run::RunArgs),
    Up(up::UpArgs),
    Down(down::DownArgs),
    Ps(ps::PsArgs),
    End(end::EndArgs),
    Url(url::UrlArgs),
    Token(token::TokenArgs),
    Check(check::CheckArgs),
    Init(init::InitArgs),
    Add(add::AddArgs),
    Explain(explain::ExplainArgs),
    Trust(trust::TrustArgs),
    Demo(demo::DemoArgs),
    DemoServer(demo_server::DemoServerArgs),
    Completions(completions::CompletionsArgs),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommandLifetime {
    OneShot,
    UntilInputClosed,
    /// Until a signal stops it.
    UntilStopped,
}

impl Command {
    pub(crate) fn lifetime(&self) -> CommandLifetime {
        let is_daemon = matches!(self, Self::Up(up) if up.run_as_daemon);
        if is_daemon || matches!(self, Self::Serve(_)) {
            CommandLifetime::UntilStopped
        } else if matches!(self, Self::Stdio(_) | Self::Run(_)) {
            CommandLifetime::UntilInputClosed
        } else {
            CommandLifetime::OneShot
        }
    }
}

pub(crate) async fn run(command: Command, report: &'static Report) -> CliResult<u8> {
    use Command::{Call, Request, Tools};
    let asks_a_server = matches!(command, Call(_) | Request(_) | Tools(_));
    let outcome = dispatch(command, report).await;
    match asks_a_server {
        true => outcome,
        false => outcome.map_err(Problem::without_delivery),
    }
}

async fn dispatch(command: Command, report: &'static Report) -> CliResult<u8> {
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
        Command::Demo(demo::DemoArgs {}) => Box::pin(demo::run(report)).await,
        Command::DemoServer(server) => demo_server::run(&server, report).await,
        Command::Completions(completions) => {
            completions::run(&completions, report);
            Ok(0)
        },
    }
}
