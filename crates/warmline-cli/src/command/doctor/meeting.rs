//! Meeting the server: opening it as any command would, asking for its lists, trying its other leg.

use std::time::Duration;

use serde_json::Value;
use warmline::core::code::Reason;
use warmline::core::delivery::Delivery;
use warmline::core::era::Era;
use warmline::core::exchange::Trouble;
use warmline::upstream::{
    ChildReport, Declared, Facts, FoundBy, Reach, Server, Transport, Upstream,
};

use super::{Finding, State, program};
use crate::advice::{self, About};
use crate::args::Answers;
use crate::ask::Person;
use crate::clock;
use crate::conversation::{Conversation, Tool};
use crate::problem::Problem;
use crate::report::Report;
use crate::report::text::{count, cut, seconds};
use crate::target::Target;

/// Opens a session and asks what can be asked without calling a tool.
pub(super) async fn meet(target: &Target, report: &'static Report) -> Vec<Finding> {
    let begun = clock::now();
    let upstream = Upstream::new();
    let name = &target.server.name;
    // As a call would: a server may show other tools to whoever can be asked something.
    let person = Person::new(report, name, &Answers::default());
    let declared = person.map_or_else(|_| Declared::default(), |person| person.declared());
    let opening = Box::pin(upstream.open(&target.server, &declared));
    // The steps have deadlines of their own; this one is for whatever they forget.
    // A program that ends on the first question is started twice.
    let limit = target.patience.total * 3 + target.server.times.start * 2 + Duration::from_secs(5);
    let waiting = tokio::time::timeout(limit, opening);
    match report
        .while_waiting(&format!("opening a session to {name}"), waiting)
        .await
    {
        Ok(Ok(session)) => {
            let conversation = Conversation::new(session, target, report);
            Box::pin(examine(&upstream, target, conversation, report)).await
        },
        Ok(Err(trouble)) => failed(target, &trouble),
        Err(_) => {
            let says = format!("no answer within {}", seconds(begun.elapsed()));
            vec![
                Finding::new("start", State::Broken, says)
                    .hint("see what it does when started by hand"),
            ]
        },
    }
}

async fn examine(
    upstream: &Upstream,
    target: &Target,
    conversation: Conversation<'_>,
    report: &Report,
) -> Vec<Finding> {
    let facts = conversation.facts().clone();
    let begun = clock::now();
    let tools = conversation.tools().await;
    let first_call = begun.elapsed();
    let child = conversation.child();
    conversation.close().await;
    let other = other_leg(upstream, target, &facts, report).await;

    let mut findings = reached(target, &facts, child.as_ref());
    findings.push(era(&facts));
    findings.extend(sessions(&facts, &other));
    findings.push(versions(&facts, &other));
    findings.push(capabilities(&facts));
    match tools {
        Ok(tools) => {
            findings.push(listed(&tools));
            findings.push(Finding::ok(
                "first call",
                format!("tools/list took {}", seconds(first_call)),
            ));
        },
        Err(problem) if problem.parts().delivery == Some(Delivery::Answered) => {
            findings.push(Finding::look("tools", problem.parts().what.clone()));
        },
        Err(problem) => findings.push(Finding::of_problem("tools", problem.parts())),
    }
    findings.extend(
        child
            .as_ref()
            .map(|child| stderr(child, &About::of(target))),
    );
    findings
}

/// What the leg that was not chosen does. Nobody uses it, so it is not waited for as long.
async fn other_leg(
    upstream: &Upstream,
    target: &Target,
    facts: &Facts,
    report: &Report,
) -> Result<Facts, Trouble> {
    let era = match facts.era {
        Era::Legacy => Era::Modern,
        Era::Modern => Era::Legacy,
    };
    let mut server = Server {
        era: Some(era),
        ..target.server.clone()
    };
    let limit = server.times.handshake.min(OTHER_LEG);
    // A program takes as long to start as it did.
    (server.times.handshake, server.times.start) = (limit, limit + facts.opened_in);
    let what = format!("trying the {era} era of {}", server.name);
    let declared = Declared::default();
    let opening = Box::pin(upstream.open(&server, &declared));
    let session = report.while_waiting(&what, opening).await?;
    session.close().await;
    Ok(session.facts().clone())
}

/// How the server was reached: program and PATH, or connection and TLS.
fn reached(target: &Target, facts: &Facts, child: Option<&ChildReport>) -> Vec<Finding> {
    let ready = format!("ready after {}", seconds(facts.opened_in));
    match (&target.server.reach, child) {
        (Reach::Stdio(stdio), Some(child)) => {
            let program = child.program.display().to_string();
            let found = match program == stdio.program {
                true => program,
                false => format!("{} → {program}", stdio.program),
            };
            let mut findings = vec![Finding::ok(
                "program",
                stdio.without_filled(format!("{found} ({})", child.found_by)),
            )];
            findings.push(path(child));
            findings.push(match (child.warden, &child.skipped_line) {
                (false, _) => Finding::look(
                    "start",
                    format!(
                        "{ready}; no warden: if Warmline is killed, the program may stay behind"
                    ),
                ),
                (true, None) => Finding::ok("start", ready),
                (true, Some(last)) => Finding::look(
                    "start",
                    format!("{ready}; {}", skipped(child.skipped_lines, last)),
                )
                .hint("a server must write nothing but MCP to stdout; logs belong on stderr"),
            });
            findings
        },
        (Reach::Http(http), _) => {
            let host = http.url.host_str().unwrap_or_default();
            let port = http.url.port_or_known_default().unwrap_or_default();
            let mut findings = vec![Finding::ok(
                "connect",
                format!("{host} port {port} answered"),
            )];
            if http.url.scheme() == "https" {
                let by = match &http.ca_file {
                    Some(file) => format!("authorities of {}", file.display()),
                    None => "the system's authorities".to_owned(),
                };
                findings.push(Finding::ok("tls", format!("certificate accepted by {by}")));
            }
            findings.push(Finding::ok("start", ready));
            findings
        },
        (Reach::Stdio(_), None) => vec![Finding::ok("start", ready)],
    }
}

/// Lines of a program's output that were no messages, by their number and the last of them.
fn skipped(lines: u64, last: &str) -> String {
    match lines {
        1 => format!("1 line of its output was no message: \"{last}\""),
        lines => format!("{lines} lines of its output were no messages, the last is \"{last}\""),
    }
}

fn path(child: &ChildReport) -> Finding {
    let folders = std::env::split_paths(&child.path).count();
    let says = count(folders, "folder");
    match child.found_by {
        FoundBy::LoginShell => Finding::look(
            "path",
            format!("{says}; the program was only found through the PATH of the login shell"),
        )
        .hint("give the program's full path, or start Warmline from a shell"),
        FoundBy::Path { .. } | FoundBy::Given => Finding::ok("path", format!("{says}, as ours")),
    }
}

fn era(facts: &Facts) -> Finding {
    let evidence: Vec<String> = facts
        .evidence
        .iter()
        .map(|e| format!("`{}` → {}", e.step, cut(&e.answer, 80)))
        .collect();
    Finding::ok(
        "era",
        format!("{} {}: {}", facts.era, facts.version, evidence.join(", ")),
    )
}

fn sessions(facts: &Facts, other: &Result<Facts, Trouble>) -> Vec<Finding> {
    let verdict = |facts: &Facts| match (facts.keeps_session, facts.transport == Transport::Stdio) {
        (true, true) if facts.era == Era::Modern => {
            "keeps state, one process per identity (per run with `session_per = \"run\"`)"
        },
        (true, true) => "keeps state, one process per run",
        (true, false) => "keeps state, one session per run",
        (false, _) => "keeps nothing per session",
    };
    let mut says = format!("{}: {}", facts.era, verdict(facts));
    match other {
        Ok(other) => says.push_str(&format!("; {}: {}", other.era, verdict(other))),
        Err(trouble) => {
            let other = if facts.era == Era::Legacy {
                Era::Modern
            } else {
                Era::Legacy
            };
            let word = if trouble.reason == Reason::Version {
                "not spoken"
            } else {
                "does not answer"
            };
            says.push_str(&format!("; {other}: {word}"));
        },
    }
    let loses_state = !facts.keeps_session && other.as_ref().is_ok_and(|other| other.keeps_session);
    vec![match loses_state {
        true => Finding::look("sessions", says)
            .hint("if its tools remember things between calls, speak legacy: `--era legacy`, or `era = \"legacy\"`"),
        false => Finding::ok("sessions", says),
    }]
}

fn versions(facts: &Facts, other: &Result<Facts, Trouble>) -> Finding {
    let mut says = format!("{} {}", facts.era, facts.version);
    if let Ok(other) = other {
        says.push_str(&format!(", {} {}", other.era, other.version));
    }
    if let Some(info) = &facts.server_info {
        let info: Value = serde_json::from_slice(info).unwrap_or_default();
        let text = |name: &str| {
            info.get(name)
                .and_then(Value::as_str)
                .unwrap_or("?")
                .to_owned()
        };
        says.push_str(&format!(
            "; it calls itself {} {}",
            text("name"),
            text("version")
        ));
    }
    Finding::ok("versions", says)
}

fn capabilities(facts: &Facts) -> Finding {
    let capabilities: Value = serde_json::from_slice(&facts.capabilities).unwrap_or_default();
    let names: Vec<&str> = capabilities
        .as_object()
        .into_iter()
        .flat_map(|all| all.keys().map(String::as_str))
        .collect();
    match names.is_empty() {
        true => Finding::look("capabilities", "it offers nothing"),
        false => Finding::ok("capabilities", names.join(", ")),
    }
}

fn listed(tools: &[Tool]) -> Finding {
    let many = |word: &str| tools.iter().filter(|tool| tool.repeats() == word).count();
    let says = format!(
        "{}, {} read-only, {} say nothing about running twice",
        count(tools.len(), "tool"),
        many("read-only"),
        many("")
    );
    match tools.is_empty() {
        true => Finding::look("tools", "it lists no tools"),
        false => Finding::ok("tools", says),
    }
}

fn stderr(child: &ChildReport, about: &About) -> Finding {
    let lines: Vec<&str> = child
        .stderr_tail
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    match lines.last() {
        None => Finding::ok("stderr", "silent"),
        Some(last) => {
            let says = format!(
                "\"{}\" (last of {})",
                cut(last, 100),
                count(lines.len(), "line")
            );
            let finding = Finding::look("stderr", says);
            match about.missed_by(&child.stderr_tail) {
                Some(missed) => finding.hint(missed),
                None => finding,
            }
        },
    }
}

/// A server that could not be opened: how far it came, and what stopped it.
fn failed(target: &Target, trouble: &Trouble) -> Vec<Finding> {
    let question = question(trouble.reason);
    let mut findings = Vec::new();
    if let Reach::Http(http) = &target.server.reach
        && question != "connect"
    {
        let host = http.url.host_str().unwrap_or_default();
        let port = http.url.port_or_known_default().unwrap_or_default();
        findings.push(Finding::ok(
            "connect",
            format!("{host} port {port} answered"),
        ));
    }
    if matches!(target.server.reach, Reach::Stdio(_)) && question != "program" {
        findings.extend(program::look_without_starting(&target.server));
    }
    let problem = Problem::of_trouble(trouble, Delivery::Unsent)
        .naming_no_credential(target)
        .striking(target.secret_path().as_deref());
    let mut finding = Finding::of_problem(question, problem.parts());
    finding.why = finding.why.map(|why| advice::plainly(&why));
    let advice = About::of(target).advice(trouble);
    finding.hint = advice.or_else(|| advice::general(trouble.code));
    findings.push(finding);
    findings
}

/// The question that a reason answers.
fn question(reason: Reason) -> &'static str {
    use Reason as R;
    let table: [(&str, &[Reason]); 5] = [
        ("program", &[R::ProgramMissing, R::Spawn]),
        (
            "connect",
            &[
                R::Dns,
                R::ConnectRefused,
                R::ConnectTimeout,
                R::Unreachable,
                R::Proxy,
                R::LocalResources,
            ],
        ),
        ("tls", &[R::Tls, R::TlsClosed]),
        ("credential", &[R::Unauthorized, R::Forbidden]),
        (
            "start",
            &[R::ChildExit, R::SilentServer, R::Timeout, R::TimeoutUnsent],
        ),
    ];
    table
        .iter()
        .find(|(_, reasons)| reasons.contains(&reason))
        .map_or("era", |(word, _)| word)
}

/// The leg that nobody uses need not be waited for as long as the one that is.
const OTHER_LEG: Duration = Duration::from_secs(10);
