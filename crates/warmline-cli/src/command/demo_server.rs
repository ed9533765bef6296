//! `warmline demo-server`: the ledger server, to try things against.

use warmline::core::code::Code;
use warmline_testkit::demo_server::{self, Ending, Options};
use warmline_testkit::personality::Personality;

use crate::args::{self, EraChoice};
use crate::interrupt::until_interrupted;
use crate::problem::{Outcome, Problem};
use crate::report::{Fields, Report, style};

/// Serves until its input ends or somebody ends it.
pub(super) async fn run(typed: &args::DemoServer, report: &Report) -> Outcome<u8> {
    if typed
        .more
        .iter()
        .any(|word| word == "--help" || word == "-h")
    {
        report.data(demo_server::HELP);
        return Ok(0);
    }
    let serving = Box::pin(demo_server::run(options(typed)?, |url, _control| {
        // On stdio every word of ours would be taken for MCP.
        if let Some(url) = url {
            tell(url, report);
        }
    }));
    match until_interrupted(serving).await {
        Ok(Ok(Ending::Crashed)) => Ok(CRASHED),
        Ok(Ok(_)) | Err(_) => Ok(0),
        // A client that went away is no fault of a server on pipes.
        Ok(Err(_)) if typed.http.is_none() => Ok(0),
        Ok(Err(error)) => {
            let problem = Problem::new(Code::UsageBadArgument, "the demo server cannot listen");
            Err(problem
                .because(error.to_string())
                .hint("leave the port out: any free one is taken"))
        },
    }
}

fn options(typed: &args::DemoServer) -> Outcome<Options> {
    let mut words: Vec<String> = match typed.http {
        Some(port) => vec!["--port".to_owned(), port.to_string()],
        None => vec!["--stdio".to_owned()],
    };
    let personality = match typed.era {
        EraChoice::Auto => Personality::dual(),
        EraChoice::Legacy => Personality::legacy(),
        EraChoice::Modern => Personality::modern(),
    };
    words.extend(typed.more.iter().cloned());
    let mut options = Options::parse(words).map_err(|what| not_understood(&what))?;
    if !typed.more.iter().any(|word| word == "--personality") {
        // What was said of replies and versions stays; only the eras are chosen here.
        options.personality.legacy = personality.legacy;
        options.personality.modern = personality.modern;
    }
    Ok(options)
}

fn not_understood(what: &str) -> Problem {
    let Some(rule) = what.strip_prefix("--fault ") else {
        return Problem::usage(what)
            .hint("`warmline help demo-server` shows what stands behind `--`");
    };
    let problem = Problem::usage("a --fault is not a rule of the demo server").hint(
        "write for instance --fault '{\"tool\":\"pay\",\"fault\":{\"silence\":\"after-executing\"}}'",
    );
    // The parser speaks of our types where the form is wrong; what it says of JSON and of names
    // helps.
    match rule.rsplit_once(": ").map(|(_, why)| why) {
        Some(why) if !why.contains("::") && !why.contains("struct") => problem.because(why),
        _ => problem,
    }
}

fn tell(url: &str, report: &Report) {
    if report.is_json() {
        return report.object("listening", &Fields::new().put("url", url));
    }
    report.data(url);
    report.note(&format!(
        "try: {}",
        style::name(&format!("warmline call {url} counter"))
    ));
}

/// The exit code of a crash on command.
const CRASHED: u8 = 70;
