//! `warmline-ledger`: the ledger server as a program of its own.
//!
//! It prints its URL (or, with `--json`, an object with it) and serves until it is ended.

use std::io::Write as _;
use std::process::ExitCode;

use warmline_testkit::demo_server::{self, Ending, HELP, Options, Transport};

/// The exit code of a crash on command.
const CRASHED: u8 = 70;
/// The exit code of a bad argument.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == "--help") {
        return print(&format!(
            "warmline-ledger: an MCP server that writes down what it does\n\n{HELP}"
        ));
    }
    let as_json = take(&mut arguments, "--json");
    match Options::parse(arguments) {
        Ok(options) => serve(options, as_json),
        Err(what) => complain(&what, USAGE),
    }
}

fn serve(options: Options, as_json: bool) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => return complain(&error.to_string(), 1),
    };
    let is_stdio = options.transport == Transport::Stdio;
    let ended = runtime.block_on(demo_server::run(options, |url, _control| {
        let line = match url {
            Some(url) if as_json => format!("{}\n", serde_json::json!({"url": url})),
            Some(url) => format!("{url}\n"),
            None => return,
        };
        print(&line);
    }));
    // Standard input is read on a thread that may be waiting for ever.
    runtime.shutdown_background();
    match ended {
        Ok(Ending::Crashed) => ExitCode::from(CRASHED),
        Ok(_) => ExitCode::SUCCESS,
        // A client that went away is no fault of a server on pipes.
        Err(_) if is_stdio => ExitCode::SUCCESS,
        Err(error) => complain(&error.to_string(), 1),
    }
}

fn take(arguments: &mut Vec<String>, flag: &str) -> bool {
    let before = arguments.len();
    arguments.retain(|argument| argument != flag);
    arguments.len() < before
}

fn print(text: &str) -> ExitCode {
    let mut out = std::io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS)
}

fn complain(what: &str, code: u8) -> ExitCode {
    drop(writeln!(std::io::stderr(), "warmline-ledger: {what}"));
    ExitCode::from(code)
}
