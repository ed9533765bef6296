//! `warmline demo`: a tour of what Warmline does, with its own server.
//!
//! Each step does something the usual way and in a run, and ends with the commands that repeat it.

use std::cell::Cell;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use warmline_core::era::Era;
use warmline_core::error::code::Code;
use warmline_engine::events::{Event, EventItem};
use warmline_engine::{Server, ServerHandle, ToolResult, Warmline};
use warmline_gateway::{Gateway, GatewayOptions};
use warmline_platform::clock;
use warmline_store::FileStore;
use warmline_store::keyring::Keyring;
use warmline_testkit::LedgerServer;
use warmline_testkit::faults::personality::Personality;

use crate::output::{CliResult, JsonFields, Problem, Report, style};

mod steps;

const EXAMPLES: &str = "\
Examples:
  warmline demo
  warmline demo --json";

/// See what Warmline is for, in a few seconds
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct DemoArgs {}

/// Starts the server of the steps by hand. `$DEMO` is its process: the shell may have other jobs.
const SERVER_COMMAND: &str = "warmline demo-server --http 8400 --era legacy & DEMO=$!";

pub(super) async fn run(report: &Report) -> CliResult<u8> {
    let out = DemoOutput {
        report,
        steps: Cell::new(0),
    };
    out.print_line("Warmline's own server, on this machine: nothing is installed or sent away.");
    out.print_line("Each step ends with the commands that repeat it, with a server of your own:");
    out.print_commands(&[SERVER_COMMAND, "U=http://127.0.0.1:8400/mcp"]);
    let servers = DemoServers::start()?;
    let shown = Box::pin(run_steps(&out, &servers)).await;
    servers.warmline.close().await;
    shown.map_err(|problem| demo_failure(&problem))?;
    out.print_line("\nTry your own:");
    out.print_commands(&[
        "warmline doctor https://example.com/mcp",
        "warmline doctor -- npx -y some-server",
    ]);
    Ok(0)
}

async fn run_steps(out: &DemoOutput<'_>, servers: &DemoServers) -> CliResult<()> {
    steps::show_counter(out, servers).await?;
    steps::show_isolation(out, servers).await?;
    steps::show_payment(out, servers).await?;
    steps::show_healing(out, servers).await?;
    steps::show_timings(out, servers).await?;
    steps::show_restart(out, servers).await
}

/// No step fails with our own server: one that does is a bug.
fn demo_failure(problem: &Problem) -> Problem {
    let parts = problem.parts();
    let cause = parts.cause.as_ref().map(|cause| format!(": {cause}"));
    let failure = Problem::new(Code::Bug, "the demo failed with its own server")
        .with_cause(format!("{}{}", parts.message, cause.unwrap_or_default()));
    match parts.delivery {
        Some(delivery) => failure.with_delivery(delivery),
        None => failure,
    }
}

struct DemoOutput<'r> {
    report: &'r Report,
    steps: Cell<u8>,
}

impl DemoOutput<'_> {
    fn print_line(&self, text: &str) {
        if !self.report.is_json() {
            self.report.print(text);
        }
    }

    fn print_title(&self, text: &str) {
        let number = self.steps.get() + 1;
        self.steps.set(number);
        self.print_line(&format!("\n{}", style::bold(&format!("{number}  {text}"))));
    }

    /// One way of doing it, its result, and what that means.
    fn print_row(&self, step: &str, way: &str, result: &str, means: &str) {
        let fields = JsonFields::with("step", step)
            .put("way", way)
            .put("result", result)
            .put("means", means);
        let line = format!("     {way:<19}  {result:<12}  {means}");
        self.report.print_entry("demo", &fields, line.trim_end());
    }

    fn print_quote(&self, step: &str, way: &str, text: &str) {
        if self.report.is_json() {
            return self.print_row(step, way, text, "");
        }
        let lines = text.lines().flat_map(|line| wrap_text(line, TEXT_WIDTH));
        for (number, line) in lines.enumerate() {
            let label = if number == 0 { way } else { "" };
            self.print_line(&format!("     {label:<19}  {line}"));
        }
    }

    /// Commands that can be typed. A line that begins with a blank continues the one before.
    fn print_commands(&self, commands: &[&str]) {
        for command in commands {
            let (prompt, text) = match command.strip_prefix(' ') {
                Some(rest) => ("  ".to_owned(), rest),
                None => (format!("{} ", style::dim("$")), *command),
            };
            self.print_line(&format!("   {prompt}{}", style::name(text)));
        }
    }
}

fn wrap_text(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            },
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

const TEXT_WIDTH: usize = 53;

/// A server over HTTP, one over stdio, and one over stdio with a spare.
struct DemoServers {
    warmline: Warmline,
    http: LedgerServer,
}

impl DemoServers {
    const HTTP: &str = "demo";
    /// This program, started as a server over stdio.
    const STDIO: &str = "program";
    /// The same, with one process opened ahead.
    const STDIO_WITH_SPARE: &str = "spared";

    fn start() -> CliResult<Self> {
        let http = LedgerServer::start(Personality::legacy()).map_err(|error| {
            Problem::new(Code::CannotReach, "the demo server cannot listen")
                .with_cause(error.to_string())
        })?;
        let program = std::env::current_exe();
        let program = program.map_err(|error| demo_failure(&bug(&error)))?;
        let program = program.to_string_lossy().into_owned();
        let command = [
            program.as_str(),
            "demo-server",
            "--stdio",
            "--era",
            "legacy",
        ];
        let servers = [
            Server::http(Self::HTTP, http.url()),
            Server::stdio(Self::STDIO, command),
            Server::stdio(Self::STDIO_WITH_SPARE, command).spares(1),
        ];
        let builder = Warmline::builder().servers(servers.map(configure));
        let warmline = builder.build();
        let warmline = warmline.map_err(|error| demo_failure(&error.into()))?;
        Ok(Self { warmline, http })
    }

    async fn wait_for_spare(&self) -> CliResult<()> {
        let mut events = self.warmline.events();
        // Spares are opened once a run has used the server.
        let run = self.warmline.begin_run();
        call_counter(&run.server(Self::STDIO_WITH_SPARE)?).await?;
        let opened = async {
            while let Some(event) = events.next().await {
                if matches!(event, EventItem::Event(Event::SpareOpened { .. })) {
                    return true;
                }
            }
            false
        };
        let opened = clock::timeout(STEP_TIMEOUT, opened).await;
        run.end().await;
        match opened {
            Ok(true) => Ok(()),
            Ok(false) | Err(_) => Err(bug(&"no spare was opened")),
        }
    }
}

async fn call_counter(server: &ServerHandle) -> CliResult<String> {
    let result = server.call("counter", json!({})).await;
    let result = result.and_then(ToolResult::ok)?.structured::<Value>()?;
    let count = result.get("count").map(Value::to_string);
    Ok(count.unwrap_or_default())
}

/// A gateway with an engine of its own, whose sessions are kept in a folder.
struct DemoGateway {
    warmline: Warmline,
    gateway: Gateway,
}

impl DemoGateway {
    async fn start(
        folder: &Path,
        server: &LedgerServer,
        listen: Option<SocketAddr>,
    ) -> CliResult<Self> {
        let vault = Keyring::in_folder(folder).map_err(|diagnostic| bug(&diagnostic))?;
        let warmline = Warmline::builder()
            .server(configure(Server::http(DemoServers::HTTP, server.url())))
            .store(FileStore::in_folder(folder.join("sessions")))
            .vault(vault)
            .build()?;
        let options = GatewayOptions {
            listen: listen.unwrap_or_else(|| (Ipv4Addr::LOCALHOST, 0).into()),
            ..GatewayOptions::default()
        };
        let gateway = Gateway::start(warmline.clone(), options).await;
        let gateway = gateway.map_err(|error| bug(&error))?;
        Ok(Self { warmline, gateway })
    }

    fn address(&self) -> SocketAddr {
        self.gateway.address()
    }

    /// An engine that holds one session with the gateway, as well-made clients do.
    fn client(&self) -> CliResult<Warmline> {
        let (address, name) = (self.address(), DemoServers::HTTP);
        let url = format!("http://{address}/servers/{name}/mcp");
        let server = configure(Server::http(DemoServers::HTTP, url));
        Ok(Warmline::builder().server(server).build()?)
    }

    /// Stops it; what it knew is in its folder only.
    async fn shut_down(self) {
        self.gateway.stop().await;
        self.warmline.close().await;
    }
}

fn configure(server: Server) -> Server {
    let server = server.era(Era::Legacy);
    server.deadlines(STEP_TIMEOUT, STEP_TIMEOUT)
}

fn bug(why: &impl ToString) -> Problem {
    Problem::new(Code::Bug, why.to_string())
}

/// No step needs more time.
const STEP_TIMEOUT: Duration = Duration::from_secs(20);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_broken_between_words() {
        assert_eq!(wrap_text("a bb ccc dddd", 6), ["a bb", "ccc", "dddd"]);
        assert_eq!(wrap_text("unbreakable a", 4), ["unbreakable", "a"]);
        assert_eq!(wrap_text("", 4), Vec::<String>::new());
    }
}
