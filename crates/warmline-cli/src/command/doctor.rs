//! `warmline doctor`: one line per question, each with its evidence, and what to do if it is bad.
//!
//! Nothing is called but lists. Each step has its own deadline, so there is always an answer.

use std::time::Duration;

use crate::args;
use crate::interrupt::until_interrupted;
use crate::problem::{Outcome, Parts, Problem};
use crate::report::text::{count, one_line, padded};
use crate::report::{Fields, Report, sanitised, style};
use crate::target::{Aim, Named, Note, Target, TargetSource, split};

mod environment;
mod meeting;
mod overview;
mod program;
mod sending;
mod settings;

use warmline::config::Origin;
use warmline::core::code::Code;

/// How one question was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    Ok,
    /// Somebody switched it off.
    Off,
    /// Nobody looked: it may be dead.
    Unseen,
    Look,
    Broken,
}

/// One question and its answer.
#[derive(Clone, Debug)]
struct Finding {
    question: String,
    state: State,
    says: String,
    why: Option<String>,
    hint: Option<String>,
}

impl Finding {
    fn new(question: &str, state: State, says: impl Into<String>) -> Self {
        Self {
            question: question.to_owned(),
            state,
            says: says.into(),
            why: None,
            hint: None,
        }
    }

    fn ok(question: &str, says: impl Into<String>) -> Self {
        Self::new(question, State::Ok, says)
    }

    fn off(question: &str) -> Self {
        Self::new(question, State::Off, "switched off in its file")
    }

    fn unseen(question: &str, says: impl Into<String>) -> Self {
        Self::new(question, State::Unseen, says)
    }

    fn look(question: &str, says: impl Into<String>) -> Self {
        Self::new(question, State::Look, says)
    }

    fn of_problem(question: &str, parts: &Parts) -> Self {
        let place = parts
            .place
            .as_ref()
            .map(|place| format!("{place}: "))
            .unwrap_or_default();
        Self {
            question: question.to_owned(),
            state: State::Broken,
            says: format!("{place}{}", parts.what),
            why: parts.why.clone(),
            hint: parts.hint.clone(),
        }
    }

    fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// Looks at one target, or at everything that is configured.
pub(super) async fn run(typed: &args::Doctor, report: &'static Report) -> Outcome<u8> {
    let (aim, _, _) = split(&typed.words, &typed.command, Named::Nothing)?;
    let told = match &aim {
        Some(aim) => until_interrupted(examine(aim, typed, report))
            .await
            .map_err(|_| Problem::new(Code::Cancelled, "interrupted"))??,
        None => overview::look(&typed.connect)?,
    };
    let unseen = told.findings.iter();
    let unseen = unseen.filter(|finding| finding.state == State::Unseen);
    let unseen: Vec<String> = unseen.map(|finding| finding.question.clone()).collect();
    let exit = tell(told, report);
    if !report.is_json() {
        let who = match (&aim, unseen.as_slice()) {
            (_, []) => return Ok(exit),
            (Some(_), _) => "without `--offline` it is".to_owned(),
            (None, [only]) => format!("`warmline doctor {only}` does"),
            (None, _) => "`warmline doctor NAME` does".to_owned(),
        };
        report.data(&format!("nothing was started or contacted: {who}"));
    }
    Ok(exit)
}

/// All that is to be told: findings, and the settings that count.
#[derive(Debug, Default)]
struct Examined {
    findings: Vec<Finding>,
    settings: Vec<settings::Row>,
}

async fn examine(aim: &Aim, typed: &args::Doctor, report: &'static Report) -> Outcome<Examined> {
    let mut target = match Target::find(aim, &typed.connect) {
        Ok(target) => target,
        Err(problem) => {
            return Ok(Examined {
                findings: not_found(problem)?,
                ..Examined::default()
            });
        },
    };
    if typed.connect.timeout.is_none() {
        target.hurry(STEP);
    }
    let mut findings = source(&target);
    if typed.offline {
        findings.extend(program::look_without_starting(&target.server));
        findings.extend(program::not_started(&target.server));
    } else {
        findings.extend(Box::pin(meeting::meet(&target, report)).await);
    }
    let names = if report.is_verbose() {
        environment::Names::All
    } else {
        environment::Names::Telling
    };
    findings.extend(environment::look(&target.server, names));
    findings.extend(settings::strays(&[]));
    findings.extend(sending::look(&target));
    Ok(Examined {
        findings,
        settings: settings::of_target(&target),
    })
}

/// A target that cannot be used for what its file says is a finding; a slip of the hand is not.
fn not_found(problem: Problem) -> Outcome<Vec<Finding>> {
    let config = [
        Code::ConfigUnreadable,
        Code::ConfigUnknownKey,
        Code::ConfigBadValue,
    ];
    let code = problem.parts().code;
    let question = if code == Code::ConfigUntrusted {
        "trust"
    } else if config.contains(&code) {
        "config"
    } else {
        return Err(problem);
    };
    let mut findings = Vec::new();
    if question == "trust" {
        findings.push(Finding::ok(
            "config",
            "the file can be read, no unknown keys",
        ));
    }
    findings.push(Finding::of_problem(question, problem.parts()));
    Ok(findings)
}

/// Where the target comes from, and what was put together for it.
fn source(target: &Target) -> Vec<Finding> {
    let mut findings = Vec::new();
    match &target.source {
        TargetSource::Typed | TargetSource::Around => {
            findings.push(Finding::ok("config", format!("typed: {}", target.place())));
        },
        TargetSource::Configured { place, origin, .. } => {
            findings.push(Finding::ok("config", format!("{place}, no unknown keys")));
            let trust = if *origin == Origin::Folder {
                "accepted as it is, with `warmline trust` or by writing it (`add --here`)"
                    .to_owned()
            } else {
                format!("a {} file needs none", origin.word())
            };
            findings.push(Finding::ok("trust", trust));
        },
    }
    findings.extend(target.notes.iter().map(|note| match note {
        Note::Origin(text) => Finding::ok("config", text.clone()),
        Note::Warning(text) => Finding::look("config", text.clone()),
    }));
    findings
}

/// Prints the findings, worst last, then the settings, and says how many are bad.
fn tell(examined: Examined, report: &Report) -> u8 {
    let Examined {
        mut findings,
        settings,
    } = examined;
    findings.sort_by_key(|finding| finding.state);
    let width = findings
        .iter()
        .map(|f| f.question.chars().count())
        .max()
        .unwrap_or(0)
        .max(10);
    for finding in &findings {
        if report.is_json() {
            report.object("finding", &fields(finding));
        } else {
            report.data(&line(finding, width));
        }
    }
    settings::tell(&settings, report);
    summarise(&findings, report)
}

/// The last line, and the exit code.
fn summarise(findings: &[Finding], report: &Report) -> u8 {
    let many = |state| {
        let same = findings.iter().filter(|finding| finding.state == state);
        same.count()
    };
    let (unseen, look, broken) = (many(State::Unseen), many(State::Look), many(State::Broken));
    if report.is_json() {
        let fields = Fields::new()
            .put("questions", findings.len())
            .put("look", look)
            .put("broken", broken);
        let unseen = Some(unseen).filter(|unseen| *unseen > 0);
        report.object("summary", &fields.put("unseen", unseen));
    } else {
        let asked = count(findings.len(), "question");
        let mut parts = match unseen + look + broken {
            0 => vec![style::good(&format!("all is well ({asked})"))],
            _ => vec![asked],
        };
        parts.extend((unseen > 0).then(|| format!("{unseen} unseen")));
        parts.extend((look > 0).then(|| style::look(&format!("{look} to look at"))));
        parts.extend((broken > 0).then(|| style::broken(&format!("{broken} broken"))));
        report.data(&format!("\n{}", parts.join(" · ")));
    }
    if broken > 0 { 2 } else { 0 }
}

fn line(finding: &Finding, width: usize) -> String {
    let state = match finding.state {
        State::Ok => style::good("ok    "),
        State::Off => style::dim("off   "),
        State::Unseen => style::dim("unseen"),
        State::Look => style::look("look  "),
        State::Broken => style::broken("broken"),
    };
    let indent = " ".repeat(width + 2);
    let under = |text: &str| {
        sanitised(text)
            .lines()
            .collect::<Vec<_>>()
            .join(&format!("\n{indent}     "))
    };
    let mut line = format!(
        "{}  {state}  {}",
        padded(&finding.question, width),
        one_line(&finding.says)
    );
    if let Some(why) = &finding.why {
        line.push_str(&format!("\n{indent}why: {}", under(why)));
    }
    if let Some(hint) = &finding.hint {
        line.push_str(&format!("\n{indent}hint: {}", under(hint)));
    }
    line
}

fn fields(finding: &Finding) -> Fields {
    let state = match finding.state {
        State::Ok => "ok",
        State::Off => "off",
        State::Unseen => "unseen",
        State::Look => "look",
        State::Broken => "broken",
    };
    Fields::new()
        .put("question", &finding.question)
        .put("state", state)
        .put("says", &finding.says)
        .put("why", &finding.why)
        .put("hint", &finding.hint)
}

/// How long one step may take unless `--timeout` says otherwise. The start of a program has its own time.
const STEP: Duration = Duration::from_secs(30);
