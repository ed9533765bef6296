//! `warmline demo-server`: the ledger server, to try things with.

use clap::Args;
use warmline_core::error::code::Code;
use warmline_testkit::demo_server::{self, DemoServerOptions, ExitReason};
use warmline_testkit::faults::personality::Personality;

use crate::output::{CliResult, JsonFields, Problem, Report, style};
use crate::signals::until_interrupted;
use crate::target::EraChoice;

const EXAMPLES: &str = "\
Examples:
  warmline demo-server --http
  warmline demo-server --http 8400 --era legacy
  warmline demo-server --http -- --fault '{\"tool\":\"pay\",\"fault\":{\"silence\":\"after-executing\"}}'
  warmline tools -- warmline demo-server --stdio";

/// Examples, and the options of the server itself.
fn long_examples() -> String {
    let more = demo_server::HELP.trim_start();
    format!("{EXAMPLES}\n\nBehind `--`:\n  {more}")
}

/// Run the server of the demo, to try things with
#[derive(Debug, Args)]
#[command(after_long_help = long_examples())]
pub(crate) struct DemoServerArgs {
    /// Speak Streamable HTTP on a port of 127.0.0.1; without a number on a free one
    #[arg(long, value_name = "PORT", num_args = 0..=1, default_missing_value = "0", value_parser = parse_port)]
    pub(crate) http: Option<u16>,
    /// Speak over stdin and stdout (default)
    #[arg(long, conflicts_with = "http")]
    pub(crate) stdio: bool,
    /// The era to speak; `auto` speaks both
    #[arg(long, value_name = "ERA", default_value = "auto")]
    pub(crate) era: EraChoice,
    /// Faults, and other options listed below
    #[arg(last = true, value_name = "MORE", allow_hyphen_values = true)]
    pub(crate) server_args: Vec<String>,
}

pub(super) async fn run(typed: &DemoServerArgs, report: &Report) -> CliResult<u8> {
    let mut words = typed.server_args.iter();
    if words.any(|word| word == "--help" || word == "-h") {
        report.print(demo_server::HELP);
        return Ok(0);
    }
    let serving = Box::pin(demo_server::run(parse_options(typed)?, |url, _control| {
        // On stdio stdout belongs to MCP.
        if let Some(url) = url {
            print_url(url, report);
        }
    }));
    match until_interrupted(serving).await {
        Some(Ok(ExitReason::Crashed)) => Ok(CRASH_EXIT_CODE),
        Some(Ok(_)) | None => Ok(0),
        // A client that disconnects is no error on stdio.
        Some(Err(_)) if typed.http.is_none() => Ok(0),
        Some(Err(error)) => {
            let problem = Problem::new(Code::UsageBadArgument, "the demo server cannot listen");
            Err(problem
                .with_cause(error.to_string())
                .with_hint("leave the port out: any free one is taken"))
        },
    }
}

fn parse_options(typed: &DemoServerArgs) -> CliResult<DemoServerOptions> {
    let mut words: Vec<String> = match typed.http {
        Some(port) => vec!["--port".to_owned(), port.to_string()],
        None => vec!["--stdio".to_owned()],
    };
    let personality = match typed.era {
        EraChoice::Auto => Personality::dual(),
        EraChoice::Legacy => Personality::legacy(),
        EraChoice::Modern => Personality::modern(),
    };
    words.extend(typed.server_args.iter().cloned());
    let mut options = DemoServerOptions::parse(words).map_err(|what| usage_error(&what))?;
    if !typed.server_args.iter().any(|word| word == "--personality") {
        // Only the eras are chosen here.
        options.personality.legacy = personality.legacy;
        options.personality.modern = personality.modern;
    }
    Ok(options)
}

fn usage_error(what: &str) -> Problem {
    let Some(rule) = what.strip_prefix("--fault ") else {
        return Problem::usage(what)
            .with_hint("`warmline help demo-server` lists the options behind `--`");
    };
    let problem = Problem::usage("a --fault is not a rule of the demo server").with_hint(
        "write for instance --fault '{\"tool\":\"pay\",\"fault\":{\"silence\":\"after-executing\"}}'",
    );
    // Parser errors about JSON and names help; those about our types do not.
    match rule.rsplit_once(": ").map(|(_, why)| why) {
        Some(why) if !why.contains("::") && !why.contains("struct") => problem.with_cause(why),
        _ => problem,
    }
}

fn print_url(url: &str, report: &Report) {
    if report.is_json() {
        return report.print_object("listening", &JsonFields::with("url", url));
    }
    report.print(url);
    report.print_note(&format!(
        "try: {}",
        style::name(&format!("warmline call {url} counter"))
    ));
}

/// The exit code of a crash that was asked for.
const CRASH_EXIT_CODE: u8 = 70;

fn parse_port(written: &str) -> Result<u16, String> {
    written
        .parse()
        .map_err(|_| "a port is a number from 0 to 65535".to_owned())
}
