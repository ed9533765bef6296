//! `warmline-ledger`: the ledger server as a program of its own, and the fault proxy.
//!
//! The server prints its URL (or, with `--json`, an object with it) and serves until it is ended.

use std::io::{BufRead as _, Write as _};
use std::process::ExitCode;

use warmline_testkit::FaultProxy;
use warmline_testkit::demo_server::{self, DemoServerOptions, ExitReason, HELP, Transport};
use warmline_testkit::faults::dialects;
use warmline_testkit::proxy::{Direction, LinkConditions};

/// The exit code of a crash on command.
const EXIT_CRASHED: u8 = 70;
/// The exit code of a bad argument.
const EXIT_USAGE: u8 = 2;

const INTRODUCTION: &str = "\
warmline-ledger: an MCP server that writes down what it does, and does wrong what it is told to

  warmline-ledger [OPTIONS]                  serve
  warmline-ledger proxy TARGET [PORT]        stand in front of TARGET (HOST:PORT); lanes are set by
                                             lines on standard input: up {\"slice\":1}
  warmline-ledger dialects                   list how servers say that a session is gone

Options:
  --json                      print the URL as JSON
";

fn main() -> ExitCode {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == "--help") {
        return print(&format!("{INTRODUCTION}{HELP}"));
    }
    let as_json = take_flag(&mut arguments, "--json");
    match arguments.first().map(String::as_str) {
        Some("proxy") => run_proxy(arguments.get(1..).unwrap_or_default(), as_json),
        Some("dialects") => list_dialects(),
        _ => match DemoServerOptions::parse(arguments) {
            Ok(options) => serve(options, as_json),
            Err(what) => fail(&what, EXIT_USAGE),
        },
    }
}

fn serve(options: DemoServerOptions, as_json: bool) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => return fail(&error.to_string(), 1),
    };
    let is_stdio = options.transport == Transport::Stdio;
    let ended = runtime.block_on(demo_server::run(options, |url, _control| {
        if let Some(url) = url {
            print(&announcement("url", url, as_json));
        }
    }));
    // Standard input is read on a thread that may be waiting for ever.
    runtime.shutdown_background();
    match ended {
        Ok(ExitReason::Crashed) => ExitCode::from(EXIT_CRASHED),
        Ok(_) => ExitCode::SUCCESS,
        // A client that went away is no fault of a server on pipes.
        Err(_) if is_stdio => ExitCode::SUCCESS,
        Err(error) => fail(&error.to_string(), 1),
    }
}

fn run_proxy(arguments: &[String], as_json: bool) -> ExitCode {
    let Some(Ok(target)) = arguments.first().map(|target| target.parse()) else {
        return fail("proxy needs a target like 127.0.0.1:8080", EXIT_USAGE);
    };
    let port = arguments.get(1).map_or(Ok(0), |port| port.parse::<u16>());
    let Ok(port) = port else {
        return fail("the port must be a number", EXIT_USAGE);
    };
    let proxy = match FaultProxy::start_on(([127, 0, 0, 1], port).into(), target) {
        Ok(proxy) => proxy,
        Err(error) => return fail(&error.to_string(), 1),
    };
    print(&announcement(
        "address",
        &proxy.address().to_string(),
        as_json,
    ));
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        if let Err(what) = set_conditions(&proxy, &line) {
            fail(&what, EXIT_USAGE);
        }
    }
    ExitCode::SUCCESS
}

/// One line: `up` or `down`, and a lane as JSON.
fn set_conditions(proxy: &FaultProxy, line: &str) -> Result<(), String> {
    let (word, lane) = line
        .trim()
        .split_once(' ')
        .ok_or("say: up {…} or down {…}")?;
    let direction = match word {
        "up" => Direction::Up,
        "down" => Direction::Down,
        _ => return Err(format!("{word:?} is not up or down")),
    };
    let lane: LinkConditions = serde_json::from_str(lane).map_err(|error| error.to_string())?;
    proxy.set_conditions(direction, lane);
    Ok(())
}

fn list_dialects() -> ExitCode {
    let rows: String = dialects::SESSION_GONE
        .iter()
        .chain(dialects::SESSION_MISSING)
        .map(|one| {
            format!(
                "{:8} {:3} {:?}  {}\n",
                one.name, one.post.status, one.post.effect, one.server
            )
        })
        .collect();
    print(&rows)
}

fn announcement(name: &str, value: &str, as_json: bool) -> String {
    if as_json {
        format!("{}\n", serde_json::json!({name: value}))
    } else {
        format!("{value}\n")
    }
}

fn take_flag(arguments: &mut Vec<String>, flag: &str) -> bool {
    let before = arguments.len();
    arguments.retain(|argument| argument != flag);
    arguments.len() < before
}

fn print(text: &str) -> ExitCode {
    let mut out = std::io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS)
}

fn fail(what: &str, code: u8) -> ExitCode {
    drop(writeln!(std::io::stderr(), "warmline-ledger: {what}"));
    ExitCode::from(code)
}
