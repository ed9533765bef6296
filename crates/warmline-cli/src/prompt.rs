//! Server requests: elicitation on the terminal, roots, and declining the rest.

use std::path::PathBuf;
use std::sync::{self, Arc};

use bytes::Bytes;
use clap::Args;
use serde_json::{Value, json};
use tokio::sync::Mutex;
use warmline_core::exchange::{Notification, ServerRequest, ServerRequestKind, ServerRequestReply};
use warmline_upstream::{ClientProfile, Listener, ReplyFuture};

use crate::output::problem::DeclinedServerRequest;
use crate::output::{CliResult, Problem, Report, first_line, one_line, sanitize, style, truncate};

mod form;

/// Options about server requests.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Questions of the server")]
pub(crate) struct ServerRequestArgs {
    /// A folder to give to a server that asks for roots
    #[arg(long, value_name = "FOLDER")]
    pub(crate) root: Vec<PathBuf>,
    /// Decline every question of the server, also on a terminal
    #[arg(long)]
    pub(crate) no_ask: bool,
}

/// Reports notifications of a server during a call, and answers its requests.
#[derive(Debug)]
pub(crate) struct PromptListener {
    report: &'static Report,
    server: String,
    roots: Vec<Value>,
    mode: PromptMode,
    /// One prompt at a time: there is one terminal.
    prompt_lock: Mutex<()>,
    /// Requests that were declined without asking the user.
    declined: sync::Mutex<Vec<DeclinedServerRequest>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PromptMode {
    Terminal,
    NoTerminal,
    /// By `--no-ask`.
    Disabled,
}

impl PromptListener {
    pub(crate) fn new(
        report: &'static Report,
        server: &str,
        answers: &ServerRequestArgs,
    ) -> CliResult<Arc<Self>> {
        let asks = match (answers.no_ask, report.can_ask()) {
            (true, _) => PromptMode::Disabled,
            (false, true) => PromptMode::Terminal,
            (false, false) => PromptMode::NoTerminal,
        };
        let roots = answers
            .root
            .iter()
            .map(|folder| root_entry(folder))
            .collect::<CliResult<_>>()?;
        Ok(Arc::new(Self {
            report,
            server: server.to_owned(),
            roots,
            mode: asks,
            prompt_lock: Mutex::new(()),
            declined: sync::Mutex::default(),
        }))
    }

    pub(crate) fn declined_requests(&self) -> Option<Vec<DeclinedServerRequest>> {
        let declined = self.declined.lock().ok()?;
        Some(declined.clone()).filter(|all| !all.is_empty())
    }

    /// The profile that calls declare. Elicitation always: declining is an answer too.
    pub(crate) fn client_profile(&self) -> ClientProfile {
        let mut capabilities = json!({"elicitation": {"form": {}, "url": {}}});
        if !self.roots.is_empty() {
            capabilities["roots"] = json!({});
        }
        ClientProfile {
            client_name: "warmline".to_owned(),
            client_version: env!("CARGO_PKG_VERSION").to_owned(),
            capabilities: Bytes::from(capabilities.to_string()),
            version: None,
        }
    }

    async fn handle_request(&self, question: ServerRequest) -> ServerRequestReply {
        let turn = self.prompt_lock.lock().await;
        let answer = match question.kind {
            ServerRequestKind::Roots if !self.roots.is_empty() => {
                ServerRequestReply::Result(Bytes::from(json!({ "roots": self.roots }).to_string()))
            },
            ServerRequestKind::Elicitation => self.elicit(&question.params).await,
            ServerRequestKind::Roots | ServerRequestKind::Sampling | ServerRequestKind::Other => {
                self.record_declined(question.kind, &question.method);
                ServerRequestReply::Declined
            },
        };
        drop(turn);
        answer
    }

    async fn elicit(&self, raw: &[u8]) -> ServerRequestReply {
        let params: Value = serde_json::from_slice(raw).unwrap_or_default();
        if self.mode != PromptMode::Terminal {
            self.record_declined(ServerRequestKind::Elicitation, "elicitation/create");
            return ServerRequestReply::Declined;
        }
        let message = params
            .get("message")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let head = format!("{} asks:", style::name(&format!("`{}`", self.server)));
        // Text of the server is indented under its name: it cannot look like ours.
        let message = sanitize(message).replace('\n', "\n    ");
        self.report.print_to_stderr(&format!("{head} {message}"));
        let result = match params.get("url").and_then(Value::as_str) {
            Some(url) => self.confirm_url(url).await,
            None => form::fill_form(self.report, raw).await,
        };
        ServerRequestReply::Result(Bytes::from(result.to_string()))
    }

    /// Shows a URL and never opens it.
    async fn confirm_url(&self, url: &str) -> Value {
        self.report.print_to_stderr(&format!(
            "  it wants you to open {}",
            style::name(&one_line(url))
        ));
        self.report
            .print_to_stderr("  open it yourself if you trust this server; nothing is opened here");
        match self.report.confirm("  go on? [y/N] ").await {
            Some(true) => json!({"action": "accept"}),
            Some(false) => json!({"action": "decline"}),
            None => json!({"action": "cancel"}),
        }
    }

    fn record_declined(&self, kind: ServerRequestKind, method: &str) {
        let why = match kind {
            ServerRequestKind::Elicitation if self.mode == PromptMode::Disabled => "--no-ask",
            ServerRequestKind::Elicitation => "there is no terminal to ask on",
            ServerRequestKind::Sampling => "there is no model here",
            ServerRequestKind::Roots => "no --root was given",
            ServerRequestKind::Other => "this command does not support it",
        };
        // It may be any text of any length.
        let method: String = one_line(method).chars().take(MAX_METHOD_CHARS).collect();
        self.report.print_note(&format!(
            "`{}` asked `{method}`, declined: {why}",
            self.server
        ));
        if let Ok(mut declined) = self.declined.lock()
            && declined.len() < MAX_DECLINED
        {
            declined.push(DeclinedServerRequest { method, why });
        }
    }
}

const MAX_METHOD_CHARS: usize = 100;

const MAX_DECLINED: usize = 16;

impl Listener for PromptListener {
    fn on_notification(&self, news: Notification) {
        let told = |kind: &str, params: &[u8]| {
            let text = sanitize(&String::from_utf8_lossy(params));
            self.report
                .print_verbose(&format!("← {kind} {}", truncate(&text, 400)));
        };
        match news {
            Notification::Progress(params) => {
                self.report.set_server_progress(&progress_text(&params));
                told("progress", &params);
            },
            Notification::Log(params) => told("log", &params),
            Notification::Other(method, params) => told(&sanitize(&method), &params),
        }
    }

    fn on_request(&self, question: ServerRequest) -> ReplyFuture<'_> {
        Box::pin(self.handle_request(question))
    }
}

/// `3 of 10, reading` from the parameters of a notification.
fn progress_text(params: &[u8]) -> String {
    let params: Value = serde_json::from_slice(params).unwrap_or_default();
    let number = |name: &str| params.get(name).filter(|value| value.is_number());
    let message = params
        .get("message")
        .and_then(Value::as_str)
        .map(|text| first_line(text, 40));
    let far = match (number("progress"), number("total")) {
        (Some(progress), Some(total)) => Some(format!("{progress} of {total}")),
        (Some(progress), None) => Some(progress.to_string()),
        (None, _) => None,
    };
    let parts: Vec<String> = far.into_iter().chain(message).collect();
    sanitize(&parts.join(", "))
}

fn root_entry(folder: &std::path::Path) -> CliResult<Value> {
    let bad = |why: String| {
        Problem::usage(format!("`{}` cannot be a root", folder.display())).with_cause(why)
    };
    let path = std::fs::canonicalize(folder).map_err(|error| bad(error.to_string()))?;
    let uri = url::Url::from_directory_path(&path).map_err(|()| bad("it has no URL".to_owned()))?;
    let name = path
        .file_name()
        .map(|name| name.to_string_lossy().into_owned());
    Ok(json!({"uri": uri.as_str().trim_end_matches('/'), "name": name}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_reads_as_people_say_it() {
        #[rustfmt::skip]
        let table = [
            (r#"{"progress": 3, "total": 10, "message": "reading"}"#, "3 of 10, reading"),
            (r#"{"progress": 0.5}"#,                                    "0.5"),
            (r#"{"message": "a\u001b[2Jb\nc"}"#,                        "a\u{fffd}[2Jb"),
            ("nonsense",                                                ""),
        ];
        for (params, said) in table {
            assert_eq!(progress_text(params.as_bytes()), said);
        }
    }
}
