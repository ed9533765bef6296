//! The session of one command with its server: open, request, list, close.
//!
//! Without a run the command opens a session of its own. In a run the session is held by the
//! gateway of the enclosing `warmline run`, by the background gateway if one is up, or by an engine
//! in this process that resumes it from its record.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;
use warmline_core::delivery::Delivery;
use warmline_core::error::code::{Code, Reason};
use warmline_core::exchange::{AttemptResult, Diagnostic, Reply, Request};
use warmline_core::message::params::Params;
use warmline_core::state_loss::STATE_LOST;
use warmline_platform::clock;
use warmline_upstream::{
    ChildReport, ClientProfile, ListKind, ServerFacts, ServerTarget, Session, Transport, Upstream,
};

use crate::output::{CliResult, JsonFields, Note, Problem, Report, format_duration, sanitize};
use crate::prompt::PromptListener;
use crate::signals::until_interrupted;
use crate::target::{Target, TargetNote, TargetSource};

mod engine_session;
mod gateway_session;
mod reply;
pub(crate) mod selected_run;
pub(crate) mod tools;

use engine_session::EngineSession;
use gateway_session::GatewayRun;
use reply::{RequestFailure, ServerNames};
use selected_run::SelectedRun;

pub(crate) use reply::TimedReply;
pub(crate) use tools::Tool;

/// An open session, and what a command needs to use it and to report on it.
pub(crate) struct CommandSession<'a> {
    pub(crate) opened: OpenedSession,
    target: &'a Target,
    report: &'a Report,
}

/// Who holds the server's session.
enum Backend {
    /// This process, or a gateway that this process has a session with.
    Session(Session, Option<GatewayRun>),
    /// An engine in this process, for a run that outlives the command.
    Engine(Box<EngineSession>),
}

/// An open backend, and what it knows about the server's session.
pub(crate) struct OpenedSession {
    backend: Backend,
    pub(crate) facts: ServerFacts,
    /// The names of the server, where the backend has its own.
    names: Option<ServerNames>,
    pub(crate) run_name: Option<String>,
    pub(crate) is_warm: bool,
    notes: Vec<Note>,
}

impl<'a> CommandSession<'a> {
    pub(crate) async fn open(
        target: &'a Target,
        run: Option<&SelectedRun>,
        profile: &ClientProfile,
        report: &'a Report,
    ) -> CliResult<Self> {
        let name = &target.server.name;
        for note in &target.notes {
            match note {
                TargetNote::Origin(text) => report.print_verbose(&format!("· {text}")),
                TargetNote::Warning(text) => report.warn(text),
            }
        }
        let of_run = run.map(|run| format!(" of run `{}`", run.name));
        let (of_run, address) = (of_run.unwrap_or_default(), target.display_address());
        report.print_verbose(&format!(
            "· opening a session{of_run} to `{name}`: {address}"
        ));
        let what = format!("opening a session to {name}");
        let opening = open_backend(target, run, profile);
        let opened = wait(report, &what, name, Delivery::Unsent, opening).await?;
        let opened = opened.map_err(|problem| problem.with_server(name))?;
        Ok(Self::new(opened, target, report))
    }

    pub(crate) fn new(opened: OpenedSession, target: &'a Target, report: &'a Report) -> Self {
        let facts = &opened.facts;
        for evidence in &facts.evidence {
            report.print_verbose(&format!("→ {}", evidence.step));
            report.print_verbose(&format!("← {}", sanitize(&evidence.answer)));
        }
        let how = match facts.open_duration.is_zero() {
            true => "resumed, nothing sent".to_owned(),
            false => format!("open after {}", format_duration(facts.open_duration)),
        };
        report.print_verbose(&format!("· {how}: {}", facts_summary(facts)));
        let run = opened.run_name.as_deref();
        print_notes(&opened.notes, &target.server.name, run, report);
        Self {
            opened,
            target,
            report,
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.target.server.name
    }

    pub(crate) fn target_argument(&self) -> String {
        self.target.to_argument()
    }

    /// The run, and what opening the session cost: a part of the line after an answer.
    pub(crate) fn session_summary(&self) -> String {
        let opened = &self.opened;
        let run = opened.run_name.as_ref().map(|run| format!(" · run {run}"));
        let session = match opened.is_warm {
            true => "warm".to_owned(),
            false => {
                let took = format_duration(opened.facts.open_duration);
                format!("cold · opened {took}")
            },
        };
        format!("{} · {session}", run.unwrap_or_default())
    }

    /// The fields of a reply for programs. `subject` is the tool or the method.
    pub(crate) fn reply_fields(
        &self,
        subject: (&'static str, &str),
        is_warm: Option<bool>,
        reply: &TimedReply,
        result: &Value,
    ) -> JsonFields {
        let generation = match &self.opened.backend {
            Backend::Session(_, gateway) => gateway.as_ref().and_then(|run| run.generation),
            Backend::Engine(engine) => engine.generation(),
        };
        let state_lost = result.get("_meta").and_then(|meta| meta.get(STATE_LOST));
        let state_lost = state_lost == Some(&Value::Bool(true));
        JsonFields::with("server", self.name())
            .put(subject.0, subject.1)
            .put("era", self.opened.facts.era.as_str())
            .put("run", &self.opened.run_name)
            .put("warm", is_warm)
            .put("generation", generation)
            .put(
                "state_lost",
                self.opened.run_name.as_ref().map(|_| state_lost),
            )
            .put("declined", &reply.declined)
            .put("open_ms", self.opened.facts.open_duration.as_millis())
            .put("call_ms", reply.elapsed.as_millis())
    }

    pub(crate) fn child(&self) -> Option<ChildReport> {
        match &self.opened.backend {
            Backend::Session(session, _) => session.child(),
            Backend::Engine(_) => None,
        }
    }

    pub(crate) async fn send_request(
        &self,
        method: &str,
        params: Params,
        listener: &Arc<PromptListener>,
    ) -> CliResult<TimedReply> {
        let named = params.name();
        let subject = match &named {
            Some(name) => format!("{method} {name}"),
            None => method.to_owned(),
        };
        let usual = self.target.deadlines;
        let tool = named.filter(|_| method == "tools/call");
        let deadlines = tool.map_or(usual, |tool| {
            tools::tool_deadlines(&self.target.settings, usual, &tool)
        });
        let request = Request::new(method.to_owned(), params).with_deadlines(deadlines);
        self.report.print_verbose(&format!("→ {subject}"));
        let started = clock::now();
        // An interruption drops the future, which cancels the call; it may have been executed.
        let reply = self.wait_for(&subject, self.call(request, listener));
        let reply = reply.await?;
        let (elapsed, declined) = (started.elapsed(), listener.declined_requests());
        let (word, reply) = match reply {
            Ok(raw) => ("result", Reply::Result(raw)),
            Err(RequestFailure::ErrorReply(raw)) => ("error", Reply::Error(raw)),
            Err(RequestFailure::Problem(problem)) => {
                let problem = self.call_failure(problem, subject, elapsed);
                return Err(problem.with_declined(declined));
            },
        };
        let (Reply::Result(raw) | Reply::Error(raw)) = &reply;
        let (size, took) = (raw.len(), format_duration(elapsed));
        let report = self.report;
        report.print_verbose(&format!("← {word}, {size} bytes, after {took}"));
        Ok(TimedReply {
            reply,
            elapsed,
            declined,
        })
    }

    async fn call(
        &self,
        request: Request,
        listener: &Arc<PromptListener>,
    ) -> Result<Bytes, RequestFailure> {
        let result = match &self.opened.backend {
            Backend::Engine(engine) => engine.call(&request, listener).await,
            Backend::Session(session, _) => match session.call(request, &**listener).await {
                AttemptResult::Answered(Reply::Result(raw)) => Ok(raw),
                AttemptResult::Answered(Reply::Error(raw)) => Err(RequestFailure::ErrorReply(raw)),
                AttemptResult::Failed(failure) => {
                    Err(Problem::from_attempt_failure(&failure).into())
                },
            },
        };
        match (result, &self.opened.names) {
            (Ok(raw), Some(names)) => Ok(names.rename_in_result(raw)),
            (result, _) => result.map_err(|failure| self.localize(failure)),
        }
    }

    /// Reads a list with all its pages.
    async fn list(&self, list: ListKind) -> Result<Vec<Bytes>, RequestFailure> {
        let listed = match &self.opened.backend {
            Backend::Engine(engine) => engine.list(list).await,
            Backend::Session(session, _) => {
                let listed = session.list(list, self.target.deadlines).await;
                listed.map_err(|result| match result {
                    AttemptResult::Answered(Reply::Error(raw) | Reply::Result(raw)) => {
                        RequestFailure::ErrorReply(raw)
                    },
                    AttemptResult::Failed(failure) => {
                        let problem = Problem::from_attempt_failure(&failure);
                        // The server answered, with something that is no list.
                        let is_answered = failure.diagnostic.reason == Reason::BadReply;
                        RequestFailure::Problem(match is_answered {
                            true => problem.with_delivery(Delivery::Answered),
                            false => problem,
                        })
                    },
                })
            },
        };
        listed.map_err(|failure| self.localize(failure))
    }

    /// A failure that names the server as the user does. An error reply that a gateway of ours wrote
    /// is a problem.
    fn localize(&self, failure: RequestFailure) -> RequestFailure {
        let problem = match failure.into_problem() {
            Ok(problem) => problem,
            Err(raw) => return RequestFailure::ErrorReply(raw),
        };
        let problem = match &self.opened.names {
            Some(names) => problem.map_texts(|text| names.rename(text)),
            None => problem,
        };
        RequestFailure::Problem(match &self.opened.backend {
            Backend::Session(_, Some(_)) => problem.with_local_advice(),
            Backend::Session(_, None) | Backend::Engine(_) => problem,
        })
    }

    /// Waits for an answer; the error of an interruption names its subject.
    async fn wait_for<F: Future>(&self, subject: &str, future: F) -> CliResult<F::Output> {
        let name = self.name();
        let what = format!("waiting for {} of {name}", sanitize(subject));
        let answer = wait(self.report, &what, name, Delivery::Unknown, future).await;
        answer.map_err(|problem| problem.with_location(subject))
    }

    fn call_failure(&self, problem: Problem, subject: String, elapsed: Duration) -> Problem {
        let location = match problem.parts().delivery {
            None | Some(Delivery::Unsent) => subject,
            Some(Delivery::Refused | Delivery::Answered | Delivery::Unknown) => {
                format!("{subject}, {} after sending", format_duration(elapsed))
            },
        };
        self.target
            .specialize_hint(problem)
            .with_path_redacted(self.target.secret_path().as_deref())
            .with_location(location)
            .with_server(self.name())
    }

    /// Closes the session, or leaves it to its run. Verbose output includes the child's stderr.
    pub(crate) async fn close(self) {
        let child = self.child();
        let (name, report) = (&self.target.server.name, self.report);
        let notes = match self.opened.backend {
            Backend::Engine(engine) => engine.close().await,
            Backend::Session(session, gateway) => {
                session.close().await;
                match gateway {
                    Some(gateway) => gateway.leave().await.into_iter().collect(),
                    None => Vec::new(),
                }
            },
        };
        print_notes(&notes, name, self.opened.run_name.as_deref(), report);
        let stderr = child.map(|child| child.stderr_tail).unwrap_or_default();
        if !stderr.trim().is_empty() {
            report.print_verbose(&format!("· stderr of `{name}`:"));
            for line in stderr.lines() {
                report.print_verbose(&format!("    {}", sanitize(line)));
            }
        }
    }
}

fn print_notes(notes: &[Note], server: &str, run: Option<&str>, report: &Report) {
    let fields = JsonFields::with("server", server).put("run", run);
    notes.iter().for_each(|note| note.print(&fields, report));
}

impl OpenedSession {
    /// A session with the server itself, for this command alone.
    pub(crate) fn direct(session: Session) -> Self {
        Self {
            facts: session.facts().clone(),
            backend: Backend::Session(session, None),
            names: None,
            run_name: None,
            is_warm: false,
            notes: Vec::new(),
        }
    }
}

/// Chooses who holds the session, and opens it there.
async fn open_backend(
    target: &Target,
    run: Option<&SelectedRun>,
    profile: &ClientProfile,
) -> CliResult<OpenedSession> {
    let Some(run) = run else {
        let opened = open_session(&target.server, profile).await;
        let opened = opened.map(OpenedSession::direct);
        return opened.map_err(|diagnostic| open_failure(&diagnostic, target));
    };
    if matches!(target.source, TargetSource::EnclosingGateway) {
        return gateway_session::open_enclosing(target, run, profile).await;
    }
    match gateway_session::join_background(target, run, profile).await? {
        Some(opened) => Ok(opened),
        None => EngineSession::open(target, run, profile).await,
    }
}

async fn open_session(
    server: &ServerTarget,
    profile: &ClientProfile,
) -> Result<Session, Diagnostic> {
    Box::pin(Upstream::new().open(server, profile)).await
}

async fn wait<F: Future>(
    report: &Report,
    what: &str,
    server: &str,
    delivery: Delivery,
    future: F,
) -> CliResult<F::Output> {
    let waiting = report.with_progress(what, Box::pin(future));
    until_interrupted(waiting).await.ok_or_else(|| {
        Problem::new(Code::Cancelled, "interrupted")
            .with_delivery(delivery)
            .with_server(server)
    })
}

/// Era, version, transport and whether sessions have state: a few words for people.
pub(crate) fn facts_summary(facts: &ServerFacts) -> String {
    let keeps = match (facts.keeps_session, facts.transport == Transport::Stdio) {
        (true, true) => "one process per session",
        (true, false) => "keeps state per session",
        (false, _) => "keeps no sessions",
    };
    let (era, version, transport) = (facts.era, facts.version, facts.transport.as_str());
    format!("{era} {version} · {transport} · {keeps}")
}

fn open_failure(diagnostic: &Diagnostic, target: &Target) -> Problem {
    let address = target.display_address();
    let problem = target.open_failure_problem(diagnostic);
    let problem = match diagnostic.message.contains(&address) {
        true => problem,
        false => problem.with_location(address),
    };
    let hint = target.hint_for_open_failure(diagnostic);
    problem.with_hint(
        hint.unwrap_or_else(|| {
            format!("to diagnose it: `warmline doctor {}`", target.to_argument())
        }),
    )
}
