//! `warmline doctor`: one line per question, each with its evidence, and a hint if the answer is bad.
//!
//! It calls nothing but lists. Each step has a deadline, so there is always an answer.

use std::time::Duration;

use clap::Args;
use warmline_core::error::code::Code;

use crate::output::{
    CliResult, JsonFields, Problem, Report, one_line, pad, pluralize, sanitize, style,
};
use crate::signals::until_interrupted;
use crate::target::{ConnectArgs, ExpectedName, Target, TargetArgs, TargetSpec};

mod checks;
mod session;
mod settings;

const LONG_HELP: &str = "\
Diagnose a server, or the configuration.

One line per question: ok, look or broken, with the evidence, and a hint if something is wrong.
Only lists are called. Without a target it checks the configuration, and starts or contacts no
server: those are `unseen`. Exit 2 if anything is broken.";

const USAGE: &str = "\
warmline doctor [TARGET] [OPTIONS]
       warmline doctor [OPTIONS] -- COMMAND…";

const EXAMPLES: &str = "\
Examples:
  warmline doctor
  warmline doctor github
  warmline doctor https://example.com/mcp --timeout 5s
  warmline doctor --offline github
  warmline doctor -- npx -y some-server";

/// Diagnose a server, or the configuration
#[derive(Debug, Args)]
#[command(long_about = LONG_HELP, after_long_help = EXAMPLES, override_usage = USAGE)]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// Start nothing and contact no server
    #[arg(long)]
    offline: bool,
    #[command(flatten)]
    connect: ConnectArgs,
}

/// How long one step may take unless `--timeout` is given. Programs keep their own time to start.
const STEP_TIMEOUT: Duration = Duration::from_secs(30);

/// The answer to a question, from best to worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum FindingState {
    Ok,
    Disabled,
    /// Nothing was started or contacted to find out.
    NotChecked,
    Warning,
    Broken,
}

impl FindingState {
    fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Disabled => "off",
            Self::NotChecked => "unseen",
            Self::Warning => "look",
            Self::Broken => "broken",
        }
    }
}

#[derive(Clone, Debug)]
struct Finding {
    question: String,
    state: FindingState,
    message: String,
    cause: Option<String>,
    hint: Option<String>,
}

impl Finding {
    fn new(question: &str, state: FindingState, message: impl Into<String>) -> Self {
        Self {
            question: question.to_owned(),
            state,
            message: message.into(),
            cause: None,
            hint: None,
        }
    }

    fn ok(question: &str, message: impl Into<String>) -> Self {
        Self::new(question, FindingState::Ok, message)
    }

    fn warning(question: &str, message: impl Into<String>) -> Self {
        Self::new(question, FindingState::Warning, message)
    }

    fn from_problem(question: &str, problem: &Problem) -> Self {
        let parts = problem.parts();
        let place = parts.location.as_ref().map(|place| format!("{place}: "));
        let message = format!("{}{}", place.unwrap_or_default(), parts.message);
        Self {
            cause: parts.cause.clone(),
            hint: parts.hint.clone(),
            ..Self::new(question, FindingState::Broken, message)
        }
    }

    fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    fn to_text(&self, width: usize) -> String {
        let state = pad(self.state.as_str(), 6);
        let state = match self.state {
            FindingState::Ok => style::success(&state),
            FindingState::Disabled | FindingState::NotChecked => style::dim(&state),
            FindingState::Warning => style::warning(&state),
            FindingState::Broken => style::failure(&state),
        };
        let question = pad(&self.question, width);
        let mut text = format!("{question}  {state}  {}", one_line(&self.message));
        let indent = " ".repeat(width + 2);
        for (label, detail) in [("why", &self.cause), ("hint", &self.hint)] {
            if let Some(detail) = detail {
                let lines = sanitize(detail);
                let lines: Vec<&str> = lines.lines().collect();
                let lines = lines.join(&format!("\n{indent}     "));
                text.push_str(&format!("\n{indent}{label}: {lines}"));
            }
        }
        text
    }

    fn to_fields(&self) -> JsonFields {
        JsonFields::with("question", &self.question)
            .put("state", self.state.as_str())
            .put("says", &self.message)
            .put("why", &self.cause)
            .put("hint", &self.hint)
    }
}

#[derive(Debug, Default)]
struct DoctorReport {
    findings: Vec<Finding>,
    settings: Vec<settings::SettingRow>,
}

pub(super) async fn run(args: &DoctorArgs, report: &'static Report) -> CliResult<u8> {
    let (spec, _, _) = args.target.split(ExpectedName::Nothing)?;
    let mut examined = match &spec {
        Some(spec) => until_interrupted(examine_target(spec, args, report))
            .await
            .ok_or_else(|| Problem::new(Code::Cancelled, "interrupted"))??,
        None => checks::configured_servers(&args.connect)?,
    };
    examined.findings.sort_by_key(|finding| finding.state);
    let exit = examined.print(report);
    let findings = examined.findings.iter();
    let unseen = findings.filter(|finding| finding.state == FindingState::NotChecked);
    let unseen: Vec<&str> = unseen.map(|finding| finding.question.as_str()).collect();
    if !report.is_json() && !unseen.is_empty() {
        let how = match (spec, unseen.as_slice()) {
            (Some(_), _) => "remove `--offline` to do so".to_owned(),
            (None, [only]) => format!("`warmline doctor {only}` does"),
            (None, _) => "`warmline doctor NAME` does".to_owned(),
        };
        report.print(&format!("no server was started or contacted: {how}"));
    }
    Ok(exit)
}

async fn examine_target(
    spec: &TargetSpec,
    args: &DoctorArgs,
    report: &'static Report,
) -> CliResult<DoctorReport> {
    let mut target = match Target::resolve(spec, &args.connect) {
        Ok(target) => target,
        Err(problem) => return unresolved_target_report(problem),
    };
    if args.connect.timeout.is_none() {
        target.limit_timeouts(STEP_TIMEOUT);
    }
    let mut findings = checks::source_findings(&target);
    findings.extend(match args.offline {
        true => checks::offline_findings(&target.server),
        false => Box::pin(session::check_session(&target, report)).await,
    });
    let is_verbose = report.is_verbose();
    findings.extend(checks::environment_findings(&target.server, is_verbose));
    findings.extend(settings::unused_variable_findings(&[]));
    findings.extend(checks::sent_value_findings(&target));
    Ok(DoctorReport {
        findings,
        settings: settings::target_settings(&target),
    })
}

/// An error in the target's configuration is a finding; a mistake on the command line is not.
fn unresolved_target_report(problem: Problem) -> CliResult<DoctorReport> {
    let code = problem.parts().code;
    let config_errors = [
        Code::ConfigUnreadable,
        Code::ConfigUnknownKey,
        Code::ConfigBadValue,
    ];
    let findings = if code == Code::ConfigUntrusted {
        vec![
            Finding::ok("config", "the file can be read, no unknown keys"),
            Finding::from_problem("trust", &problem),
        ]
    } else if config_errors.contains(&code) {
        vec![Finding::from_problem("config", &problem)]
    } else {
        return Err(problem);
    };
    Ok(DoctorReport {
        findings,
        settings: Vec::new(),
    })
}

impl DoctorReport {
    /// Prints findings, settings, and how many findings are bad. Returns the exit code.
    fn print(&self, report: &Report) -> u8 {
        let widths = self.findings.iter().map(|one| one.question.chars().count());
        let width = widths.max().unwrap_or_default().max(10);
        for finding in &self.findings {
            report.print_entry("finding", &finding.to_fields(), &finding.to_text(width));
        }
        settings::print_settings(&self.settings, report);
        let count = |state| {
            let findings = self.findings.iter();
            findings.filter(|finding| finding.state == state).count()
        };
        let unseen = count(FindingState::NotChecked);
        let (look, broken) = (count(FindingState::Warning), count(FindingState::Broken));
        let fields = JsonFields::with("questions", self.findings.len())
            .put("look", look)
            .put("broken", broken)
            .put("unseen", Some(unseen).filter(|unseen| *unseen > 0));
        let questions = pluralize(self.findings.len(), "question");
        let mut parts = match unseen + look + broken {
            0 => vec![style::success(&format!("all is well ({questions})"))],
            _ => vec![questions],
        };
        parts.extend((unseen > 0).then(|| format!("{unseen} unseen")));
        parts.extend((look > 0).then(|| style::warning(&format!("{look} to look at"))));
        parts.extend((broken > 0).then(|| style::failure(&format!("{broken} broken"))));
        report.print_entry("summary", &fields, &format!("\n{}", parts.join(" · ")));
        if broken > 0 { 2 } else { 0 }
    }
}
