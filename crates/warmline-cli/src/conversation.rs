//! A conversation with a target: opened, used, closed, with an account of it for `--verbose`.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use warmline::core::code::Code;
use warmline::core::delivery::Delivery;
use warmline::core::exchange::{Patience, Reply, Request, Trouble};
use warmline::core::loss::STATE_LOST;
use warmline::core::protocol::params::Params;
use warmline::settings::ServerSettings;
use warmline::upstream::{ChildReport, Declared, Facts, Session, Transport, Upstream};

use crate::advice::About;
use crate::ask::{Declined, Person};
use crate::clock;
use crate::interrupt::until_interrupted;
use crate::problem::{Outcome, Problem};
use crate::report::text::{note, seconds};
use crate::report::{Fields, Report, sanitised};
use crate::rules;
use crate::run::ChosenRun;
use crate::target::{Note, Target};

mod inside;
mod joined;
mod line;
mod refusal;
mod relayed;
mod through;
mod tools;

use inside::Inside;
use joined::{Joined, Remark};
use line::{Line, Unopened};
use through::Through;
pub(crate) use tools::Tool;

/// An open session and everything a command needs around it.
#[derive(Debug)]
pub(crate) struct Conversation<'r> {
    line: Line,
    report: &'r Report,
    name: String,
    again: String,
    about: About,
    struck: Option<String>,
    patience: Patience,
    settings: ServerSettings,
}

/// An answer, and how long it took.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) reply: Reply,
    pub(crate) took: Duration,
    /// Questions of the server that were declined meanwhile.
    pub(crate) declined: Option<Vec<Declined>>,
}

impl<'r> Conversation<'r> {
    /// Opens a session to the target, or joins the run that was chosen.
    pub(crate) async fn open(
        target: &Target,
        chosen: Option<&ChosenRun>,
        declared: &Declared,
        report: &'r Report,
    ) -> Outcome<Self> {
        let name = &target.server.name;
        for note in &target.notes {
            match note {
                Note::Origin(text) => report.account(&format!("· {text}")),
                Note::Warning(text) => report.caution(text),
            }
        }
        let of_run = chosen.map(|run| format!(" of run `{}`", run.name));
        report.account(&format!(
            "· opening a session{} to `{name}`: {}",
            of_run.unwrap_or_default(),
            target.place()
        ));
        let what = format!("opening a session to {name}");
        let opening = Box::pin(open_line(target, chosen, declared));
        let opened = until_interrupted(report.while_waiting(&what, opening)).await;
        let (line, remarks) = opened
            .map_err(|_| interrupted(name, Delivery::Unsent))?
            .map_err(|unopened| match unopened {
                Unopened::Here(problem) => problem.of_server(name),
                Unopened::There(trouble) => not_opened(&trouble, target),
            })?;
        let conversation = Self::on(line, target, report);
        let told = Beside {
            report,
            server: name,
            run: conversation.run(),
        };
        remarks.iter().for_each(|remark| told.tell(remark));
        Ok(conversation)
    }

    /// A conversation on a session that is open already.
    pub(crate) fn new(session: Session, target: &Target, report: &'r Report) -> Self {
        Self::on(Line::Own(session), target, report)
    }

    fn on(line: Line, target: &Target, report: &'r Report) -> Self {
        tell_facts(line.facts(), report);
        let name = target.server.name.clone();
        Self {
            line,
            report,
            name,
            again: target.again(),
            about: About::of(target),
            struck: target.secret_path(),
            patience: target.patience,
            settings: target.settings.clone(),
        }
    }

    /// The name of the server.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// How to name the server on another command line.
    pub(crate) fn again(&self) -> &str {
        &self.again
    }

    /// What is known of the session since it was opened.
    pub(crate) fn facts(&self) -> &Facts {
        self.line.facts()
    }

    /// The run it belongs to, if there is one.
    pub(crate) fn run(&self) -> Option<&str> {
        self.line.run()
    }

    /// Whether the session was there before this command.
    pub(crate) fn is_warm(&self) -> bool {
        self.line.is_warm()
    }

    /// The number of the session within its run.
    pub(crate) fn generation(&self) -> Option<u32> {
        self.line.generation()
    }

    /// What the session cost, and whose it is: a part of the line that says what an answer cost.
    pub(crate) fn how_it_was_met(&self) -> String {
        let run = self.run().map(|run| format!(" · run {run}"));
        let session = match self.is_warm() {
            true => "warm".to_owned(),
            false => format!("cold · opened {}", seconds(self.facts().opened_in)),
        };
        format!("{} · {session}", run.unwrap_or_default())
    }

    /// Whether a result says that what the run left in its session is lost; none outside a run.
    pub(crate) fn lost_state(&self, result: &Value) -> Option<bool> {
        let meta = result.get("_meta");
        self.run()
            .map(|_| meta.and_then(|meta| meta.get(STATE_LOST)) == Some(&Value::Bool(true)))
    }

    /// What is known of the child behind the session, if it is one.
    pub(crate) fn child(&self) -> Option<ChildReport> {
        self.line.child()
    }

    /// Sends a request and waits for its answer.
    pub(crate) async fn ask(
        &self,
        method: &str,
        params: Params,
        person: &Arc<Person>,
    ) -> Outcome<Told> {
        let named = params.name();
        let subject = match &named {
            Some(name) => format!("{method} {name}"),
            None => method.to_owned(),
        };
        let tool = named.filter(|_| method == "tools/call");
        let patience = tool.map_or(self.patience, |tool| {
            rules::patience(&self.settings, self.patience, &tool)
        });
        let request = Request::new(method.to_owned(), params).patient(patience);
        self.report.account(&format!("→ {subject}"));
        let begun = clock::now();
        let what = format!("waiting for {} of {}", sanitised(&subject), self.name);
        let calling = Box::pin(self.line.call(request, person));
        let ending = until_interrupted(self.report.while_waiting(&what, calling)).await;
        let (took, declined) = (begun.elapsed(), person.unasked());
        match ending {
            Ok(Ok(reply)) => {
                let (word, size) = match &reply {
                    Reply::Result(raw) => ("result", raw.len()),
                    Reply::Error(raw) => ("error", raw.len()),
                };
                self.report
                    .account(&format!("← {word}, {size} bytes, after {}", seconds(took)));
                Ok(Told {
                    reply,
                    took,
                    declined,
                })
            },
            Ok(Err(problem)) => {
                let problem = self.failed(problem, subject, took);
                Err(problem.after_declining(declined))
            },
            // The future was dropped, which cancels the call; whether it came in time is not known.
            Err(_) => Err(interrupted(&self.name, Delivery::Unknown).at(subject)),
        }
    }

    fn failed(&self, problem: Problem, subject: String, took: Duration) -> Problem {
        let place = match problem.parts().delivery {
            None | Some(Delivery::Unsent) => subject,
            Some(Delivery::Refused | Delivery::Answered | Delivery::Unknown) => {
                format!("{subject}, {} after sending", seconds(took))
            },
        };
        self.about
            .at_once(problem)
            .striking(self.struck.as_deref())
            .at(place)
            .of_server(&self.name)
    }

    /// Ends the session, or leaves it to its run. What the child said is part of the account.
    pub(crate) async fn close(self) {
        let child = self.child();
        let run = self.run().map(str::to_owned);
        let (report, name) = (self.report, &self.name);
        let told = Beside {
            report,
            server: name,
            run: run.as_deref(),
        };
        let remarks = self.line.close().await;
        remarks.iter().for_each(|remark| told.tell(remark));
        let Some(child) = child.filter(|child| !child.stderr_tail.trim().is_empty()) else {
            return;
        };
        report.account(&format!("· stderr of `{name}`:"));
        for line in child.stderr_tail.lines() {
            report.account(&format!("    {}", sanitised(line)));
        }
    }
}

/// A session of the command's own, or that of the run.
async fn open_line(
    target: &Target,
    chosen: Option<&ChosenRun>,
    declared: &Declared,
) -> Result<(Line, Vec<Remark>), Unopened> {
    if let Some(chosen) = chosen {
        if let Some((inside, remarks)) = Inside::open(target, chosen, declared).await? {
            return Ok((Line::Inside(Box::new(inside)), remarks));
        }
        if let Some((through, remarks)) = Through::open(target, chosen, declared).await? {
            return Ok((Line::Through(Box::new(through)), remarks));
        }
        let (joined, remarks) = Joined::open(target, chosen, declared).await?;
        return Ok((Line::Joined(Box::new(joined)), remarks));
    }
    let opened = Upstream::new().open(&target.server, declared).await;
    let session = opened.map_err(|trouble| Unopened::There(Box::new(trouble)))?;
    Ok((Line::Own(session), Vec::new()))
}

/// Who says what stands beside an answer.
struct Beside<'a> {
    report: &'a Report,
    server: &'a str,
    run: Option<&'a str>,
}

impl Beside<'_> {
    fn tell(&self, remark: &Remark) {
        let fields = Fields::new()
            .put("code", remark.code.map(Code::word))
            .put("server", self.server)
            .put("run", self.run)
            .put("what", &remark.what)
            .put("why", &remark.why)
            .put("hint", &remark.hint);
        let below = [
            ("why", remark.why.as_deref()),
            ("hint", remark.hint.as_deref()),
        ];
        let text = note(remark.code.map(Code::word), &remark.what, &below);
        self.report.remark(&text, &fields);
    }
}

/// What a session says of itself, in a few words.
pub(crate) fn summary(facts: &Facts) -> String {
    let keeps = match (facts.keeps_session, facts.transport == Transport::Stdio) {
        (true, true) => "one process per session",
        (true, false) => "keeps state per session",
        (false, _) => "keeps no sessions",
    };
    format!(
        "{} {} · {} · {keeps}",
        facts.era,
        facts.version,
        facts.transport.word()
    )
}

/// What kept the session from being opened, and who can say more about it.
fn not_opened(trouble: &Trouble, target: &Target) -> Problem {
    let place = target.place();
    let mut problem = Problem::of_trouble(trouble, Delivery::Unsent)
        .naming_no_credential(target)
        .striking(target.secret_path().as_deref())
        .of_server(&target.server.name);
    if !trouble.what.contains(&place) {
        problem = problem.at(place);
    }
    let about = About::of(target);
    problem.hint(about.advice(trouble).unwrap_or_else(|| about.elsewhere()))
}

fn tell_facts(facts: &Facts, report: &Report) {
    for evidence in &facts.evidence {
        report.account(&format!("→ {}", evidence.step));
        report.account(&format!("← {}", sanitised(&evidence.answer)));
    }
    let how = match facts.opened_in.is_zero() {
        true => "taken up again, nothing sent".to_owned(),
        false => format!("open after {}", seconds(facts.opened_in)),
    };
    report.account(&format!("· {how}: {}", summary(facts)));
}

fn interrupted(server: &str, delivery: Delivery) -> Problem {
    Problem::new(Code::Cancelled, "interrupted")
        .delivered(delivery)
        .of_server(server)
}
