//! Checks that open a session as any command would, without calling a tool.

use std::time::Duration;

use serde_json::{Map, Value};
use warmline_core::delivery::Delivery;
use warmline_core::era::Era;
use warmline_core::error::code::Reason;
use warmline_core::exchange::Diagnostic;
use warmline_platform::clock;
use warmline_upstream::{
    ChildReport, ClientProfile, ProgramSource, ServerFacts, ServerTarget, Transport,
    TransportConfig, Upstream,
};

use super::{Finding, FindingState, checks};
use crate::backend::{CommandSession, OpenedSession, Tool};
use crate::hints;
use crate::output::{CliResult, Report, format_duration, pluralize, truncate};
use crate::prompt::{PromptListener, ServerRequestArgs};
use crate::target::Target;

struct OpenedServer<'t> {
    target: &'t Target,
    facts: ServerFacts,
    other_era: Result<ServerFacts, Diagnostic>,
    tools: CliResult<Vec<Tool>>,
    first_call: Duration,
    child: Option<ChildReport>,
}

const SESSION_CHECKS: [fn(&OpenedServer<'_>) -> Vec<Finding>; 7] = [
    check_connection,
    check_era,
    check_sessions,
    check_versions,
    check_capabilities,
    check_tools,
    check_stderr,
];

const OTHER_ERA_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) async fn check_session(target: &Target, report: &'static Report) -> Vec<Finding> {
    let started = clock::now();
    let upstream = Upstream::new();
    let name = &target.server.name;
    // Servers may list other tools to clients that answer questions, as calls do.
    let listener = PromptListener::new(report, name, &ServerRequestArgs::default());
    let profile = listener.map_or_else(|_| ClientProfile::default(), |l| l.client_profile());
    let opening = Box::pin(upstream.open(&target.server, &profile));
    // A last resort beside the deadlines of each step. A program that exits at the first request is
    // started twice.
    let limit =
        target.deadlines.total * 3 + target.server.timeouts.start * 2 + Duration::from_secs(5);
    let opening = clock::timeout(limit, opening);
    let what = format!("opening a session to {name}");
    let session = match report.with_progress(&what, opening).await {
        Ok(Ok(session)) => CommandSession::new(OpenedSession::direct(session), target, report),
        Ok(Err(diagnostic)) => return open_failure_findings(target, &diagnostic),
        Err(_) => {
            let message = format!("no answer within {}", format_duration(started.elapsed()));
            let finding = Finding::new("start", FindingState::Broken, message);
            return vec![finding.with_hint("start it by hand and see what it does")];
        },
    };
    let facts = session.opened.facts.clone();
    let started = clock::now();
    let tools = session.list_tools().await;
    let first_call = started.elapsed();
    let child = session.child();
    session.close().await;
    let server = OpenedServer {
        other_era: probe_other_era(&upstream, target, &facts, report).await,
        target,
        facts,
        tools,
        first_call,
        child,
    };
    let checks = SESSION_CHECKS.iter();
    checks.flat_map(|check| check(&server)).collect()
}

async fn probe_other_era(
    upstream: &Upstream,
    target: &Target,
    facts: &ServerFacts,
    report: &Report,
) -> Result<ServerFacts, Diagnostic> {
    let era = other_era(facts.era);
    let mut server = ServerTarget {
        era: Some(era),
        ..target.server.clone()
    };
    let limit = server.timeouts.handshake.min(OTHER_ERA_TIMEOUT);
    // A program takes as long to start as before.
    (server.timeouts.handshake, server.timeouts.start) = (limit, limit + facts.open_duration);
    let what = format!("trying the {era} era of {}", server.name);
    let profile = ClientProfile::default();
    let opening = Box::pin(upstream.open(&server, &profile));
    let session = report.with_progress(&what, opening).await?;
    session.close().await;
    Ok(session.facts().clone())
}

fn other_era(era: Era) -> Era {
    match era {
        Era::Legacy => Era::Modern,
        Era::Modern => Era::Legacy,
    }
}

/// How the server was reached: program and PATH, or connection and TLS.
fn check_connection(server: &OpenedServer<'_>) -> Vec<Finding> {
    let took = format_duration(server.facts.open_duration);
    let ready = format!("ready after {took}");
    match (&server.target.server.transport, &server.child) {
        (TransportConfig::Stdio(stdio), Some(child)) => {
            let program = child.program.display().to_string();
            let found = match program == stdio.program {
                true => program,
                false => format!("{} → {program}", stdio.program),
            };
            let found = format!("{found} ({})", child.program_source);
            vec![
                Finding::ok("program", stdio.redact_substituted(found)),
                path_finding(child),
                start_finding(child, &ready),
            ]
        },
        (TransportConfig::Http(http), _) => {
            let mut findings = vec![checks::connect_finding(http)];
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
        (TransportConfig::Stdio(_), None) => vec![Finding::ok("start", ready)],
    }
}

fn start_finding(child: &ChildReport, ready: &str) -> Finding {
    if !child.has_warden {
        let message =
            format!("{ready}; no warden: the program may outlive Warmline if that is killed");
        return Finding::warning("start", message);
    }
    let Some(last) = &child.last_skipped_line else {
        return Finding::ok("start", ready);
    };
    let skipped = match child.skipped_lines {
        1 => format!("1 line of its output is no message: \"{last}\""),
        lines => format!("{lines} lines of its output are no messages, the last is \"{last}\""),
    };
    Finding::warning("start", format!("{ready}; {skipped}"))
        .with_hint("a server must write nothing but MCP to stdout; logs belong on stderr")
}

fn path_finding(child: &ChildReport) -> Finding {
    let folders = pluralize(std::env::split_paths(&child.path).count(), "folder");
    match child.program_source {
        ProgramSource::LoginShell => Finding::warning(
            "path",
            format!("{folders}; only the PATH of the login shell has the program"),
        )
        .with_hint("give the program's full path, or start Warmline from a shell"),
        ProgramSource::Path { .. } | ProgramSource::Explicit => {
            Finding::ok("path", format!("{folders}, as ours"))
        },
    }
}

fn check_era(server: &OpenedServer<'_>) -> Vec<Finding> {
    let facts = &server.facts;
    let evidence = facts.evidence.iter();
    let evidence = evidence.map(|one| format!("`{}` → {}", one.step, truncate(&one.answer, 80)));
    let evidence: Vec<String> = evidence.collect();
    let message = format!("{} {}: {}", facts.era, facts.version, evidence.join(", "));
    vec![Finding::ok("era", message)]
}

fn check_sessions(server: &OpenedServer<'_>) -> Vec<Finding> {
    let (facts, other) = (&server.facts, &server.other_era);
    let other_text = match other {
        Ok(other) => session_scope_text(other),
        Err(diagnostic) if diagnostic.reason == Reason::Version => "not spoken",
        Err(_) => "does not answer",
    };
    let (era, text, other_era) = (facts.era, session_scope_text(facts), other_era(facts.era));
    let message = format!("{era}: {text}; {other_era}: {other_text}");
    let other_keeps_state = other.as_ref().is_ok_and(|other| other.keeps_session);
    vec![match !facts.keeps_session && other_keeps_state {
        true => Finding::warning("sessions", message).with_hint(
            "if its tools need state between calls, speak legacy: `--era legacy`, or `era = \"legacy\"`",
        ),
        false => Finding::ok("sessions", message),
    }]
}

fn session_scope_text(facts: &ServerFacts) -> &'static str {
    match (facts.keeps_session, facts.transport, facts.era) {
        (true, Transport::Stdio, Era::Modern) => {
            "keeps state, one process per identity (per run with `session_per = \"run\"`)"
        },
        (true, Transport::Stdio, Era::Legacy) => "keeps state, one process per run",
        (true, _, _) => "keeps state, one session per run",
        (false, _, _) => "keeps nothing per session",
    }
}

fn check_versions(server: &OpenedServer<'_>) -> Vec<Finding> {
    let facts = &server.facts;
    let mut message = format!("{} {}", facts.era, facts.version);
    if let Ok(other) = &server.other_era {
        message.push_str(&format!(", {} {}", other.era, other.version));
    }
    if let Some(info) = &facts.server_info {
        let info: Value = serde_json::from_slice(info).unwrap_or_default();
        let text = |name: &str| info.get(name).and_then(Value::as_str).unwrap_or("?");
        let (name, version) = (text("name"), text("version"));
        message.push_str(&format!("; it calls itself {name} {version}"));
    }
    vec![Finding::ok("versions", message)]
}

fn check_capabilities(server: &OpenedServer<'_>) -> Vec<Finding> {
    let capabilities = serde_json::from_slice(&server.facts.capabilities);
    let capabilities: Map<String, Value> = capabilities.unwrap_or_default();
    let names: Vec<&str> = capabilities.keys().map(String::as_str).collect();
    vec![match names.is_empty() {
        true => Finding::warning("capabilities", "it offers nothing"),
        false => Finding::ok("capabilities", names.join(", ")),
    }]
}

fn check_tools(server: &OpenedServer<'_>) -> Vec<Finding> {
    let tools = match &server.tools {
        Ok(tools) => tools,
        Err(problem) if problem.parts().delivery == Some(Delivery::Answered) => {
            return vec![Finding::warning("tools", problem.parts().message.clone())];
        },
        Err(problem) => return vec![Finding::from_problem("tools", problem)],
    };
    let count = |hint: &str| {
        let tools = tools.iter();
        tools.filter(|tool| tool.repeat_hint() == hint).count()
    };
    let message = format!(
        "{}, {} read-only, {} without a hint about running twice",
        pluralize(tools.len(), "tool"),
        count("read-only"),
        count("")
    );
    let first_call = format!("tools/list took {}", format_duration(server.first_call));
    vec![
        match tools.is_empty() {
            true => Finding::warning("tools", "it lists no tools"),
            false => Finding::ok("tools", message),
        },
        Finding::ok("first call", first_call),
    ]
}

fn check_stderr(server: &OpenedServer<'_>) -> Vec<Finding> {
    let Some(child) = &server.child else {
        return Vec::new();
    };
    let lines = child.stderr_tail.lines();
    let lines: Vec<&str> = lines.filter(|line| !line.trim().is_empty()).collect();
    let Some(last) = lines.last() else {
        return vec![Finding::ok("stderr", "silent")];
    };
    let count = pluralize(lines.len(), "line");
    let message = format!("\"{}\" (last of {count})", truncate(last, 100));
    let mut finding = Finding::warning("stderr", message);
    finding.hint = server.target.hint_for_missing_variable(&child.stderr_tail);
    vec![finding]
}

/// The findings of a server that could not be opened: how far it came, and what stopped it.
fn open_failure_findings(target: &Target, diagnostic: &Diagnostic) -> Vec<Finding> {
    let question = question_for_reason(diagnostic.reason);
    let mut findings = match &target.server.transport {
        TransportConfig::Http(http) if question != "connect" => {
            vec![checks::connect_finding(http)]
        },
        TransportConfig::Stdio(stdio) if question != "program" => {
            vec![checks::program_finding(stdio)]
        },
        TransportConfig::Http(_) | TransportConfig::Stdio(_) => Vec::new(),
    };
    let mut finding = Finding::from_problem(question, &target.open_failure_problem(diagnostic));
    let cause = finding.cause.take();
    finding.cause = cause.map(|why| hints::readable_certificate_error(&why));
    let hint = target.hint_for_open_failure(diagnostic);
    finding.hint = hint.or_else(|| hints::general_hint(diagnostic.code));
    findings.push(finding);
    findings
}

fn question_for_reason(reason: Reason) -> &'static str {
    use Reason as R;

    #[rustfmt::skip]
    let table: [(&str, &[Reason]); 5] = [
        ("program",    &[R::ProgramMissing, R::Spawn]),
        ("connect",    &[R::Dns, R::ConnectRefused, R::ConnectTimeout, R::Unreachable, R::Proxy, R::LocalResources]),
        ("tls",        &[R::Tls, R::TlsClosed]),
        ("credential", &[R::Unauthorized, R::Forbidden]),
        ("start",      &[R::ChildExit, R::SilentServer, R::Timeout, R::TimeoutUnsent]),
    ];
    let row = table.iter().find(|(_, reasons)| reasons.contains(&reason));
    row.map_or("era", |(question, _)| question)
}
