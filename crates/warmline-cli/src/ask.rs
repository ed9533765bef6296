//! Questions of a server, asked on the terminal; declined where there is none.

use std::sync::{self, Arc};

use bytes::Bytes;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::Mutex;
use warmline::core::exchange::{Answer, News, Question, QuestionKind};
use warmline::upstream::{Asked, Declared, Listener};

use crate::args::Answers;
use crate::problem::{Outcome, Problem};
use crate::report::text::{cut, first_line, one_line};
use crate::report::{Report, sanitised, style};

mod form;

/// Hears what a server tells during a call, and asks the person what it asks.
#[derive(Debug)]
pub(crate) struct Person {
    report: &'static Report,
    server: String,
    roots: Vec<Value>,
    asks: Asks,
    /// One question at a time: there is one terminal.
    turn: Mutex<()>,
    /// Questions that nobody was asked.
    declined: sync::Mutex<Vec<Declined>>,
}

/// A question that was declined without asking anybody.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Declined {
    method: String,
    why: &'static str,
}

/// Whether there is somebody to ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asks {
    Terminal,
    /// There is no terminal.
    Nobody,
    /// `--no-ask` was given.
    NotAllowed,
}

impl Person {
    pub(crate) fn new(
        report: &'static Report,
        server: &str,
        answers: &Answers,
    ) -> Outcome<Arc<Self>> {
        let asks = match (answers.no_ask, report.can_ask()) {
            (true, _) => Asks::NotAllowed,
            (false, true) => Asks::Terminal,
            (false, false) => Asks::Nobody,
        };
        let roots = answers
            .root
            .iter()
            .map(|folder| root(folder))
            .collect::<Outcome<_>>()?;
        Ok(Arc::new(Self {
            report,
            server: server.to_owned(),
            roots,
            asks,
            turn: Mutex::new(()),
            declined: sync::Mutex::default(),
        }))
    }

    /// Questions of the server that were declined so far without asking anybody; none where there
    /// were none.
    pub(crate) fn unasked(&self) -> Option<Vec<Declined>> {
        let declined = self.declined.lock().ok()?;
        Some(declined.clone()).filter(|all| !all.is_empty())
    }

    /// What we say that we can answer. Elicitation always: declining is an answer too.
    pub(crate) fn declared(&self) -> Declared {
        let mut capabilities = json!({"elicitation": {"form": {}, "url": {}}});
        if !self.roots.is_empty() {
            capabilities["roots"] = json!({});
        }
        Declared {
            client_name: "warmline".to_owned(),
            client_version: env!("CARGO_PKG_VERSION").to_owned(),
            capabilities: Bytes::from(capabilities.to_string()),
            version: None,
        }
    }

    async fn answer(&self, question: Question) -> Answer {
        let turn = self.turn.lock().await;
        let answer = match question.kind {
            QuestionKind::Roots if !self.roots.is_empty() => {
                Answer::Result(Bytes::from(json!({ "roots": self.roots }).to_string()))
            },
            QuestionKind::Elicitation => self.elicit(&question.params).await,
            QuestionKind::Roots | QuestionKind::Sampling | QuestionKind::Other => {
                self.decline(question.kind, &question.method);
                Answer::Declined
            },
        };
        drop(turn);
        answer
    }

    async fn elicit(&self, raw: &[u8]) -> Answer {
        let params: Value = serde_json::from_slice(raw).unwrap_or_default();
        if self.asks != Asks::Terminal {
            self.decline(QuestionKind::Elicitation, "elicitation/create");
            return Answer::Declined;
        }
        let message = params
            .get("message")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let head = format!("{} asks:", style::name(&format!("`{}`", self.server)));
        // What a server writes stays under its name: it cannot look like a word of ours.
        let message = sanitised(message).replace('\n', "\n    ");
        self.report.say(&format!("{head} {message}"));
        let result = match params.get("url").and_then(Value::as_str) {
            Some(url) => self.consent(url).await,
            None => form::fill(self.report, raw).await,
        };
        Answer::Result(Bytes::from(result.to_string()))
    }

    /// A URL is shown and never opened: what opens it is the reader's browser and decision.
    async fn consent(&self, url: &str) -> Value {
        self.report.say(&format!(
            "  it wants you to open {}",
            style::name(&one_line(url))
        ));
        self.report
            .say("  open it yourself if you trust this server; nothing is opened here");
        let typed = self.report.ask("  go on? [y/N] ").await;
        match typed.as_deref().map(str::trim) {
            Some("y" | "Y" | "yes") => json!({"action": "accept"}),
            Some(_) => json!({"action": "decline"}),
            None => json!({"action": "cancel"}),
        }
    }

    fn decline(&self, kind: QuestionKind, method: &str) {
        let why = match kind {
            QuestionKind::Elicitation if self.asks == Asks::NotAllowed => "--no-ask",
            QuestionKind::Elicitation => "there is no terminal to ask on",
            QuestionKind::Sampling => "there is no model here",
            QuestionKind::Roots => "no --root was given",
            QuestionKind::Other => "this command does not know it",
        };
        // A server may write whatever it likes there, at any length.
        let method: String = one_line(method).chars().take(LONGEST_METHOD).collect();
        self.report.note(&format!(
            "`{}` asked `{method}`, declined: {why}",
            self.server
        ));
        if let Ok(mut declined) = self.declined.lock()
            && declined.len() < MOST_DECLINED
        {
            declined.push(Declined { method, why });
        }
    }
}

/// So much of a method is told that the protocol does not name.
const LONGEST_METHOD: usize = 100;

/// So many declined questions of a call are told by name.
const MOST_DECLINED: usize = 16;

impl Listener for Person {
    fn news(&self, news: News) {
        let told = |kind: &str, params: &[u8]| {
            let text = sanitised(&String::from_utf8_lossy(params));
            self.report
                .account(&format!("← {kind} {}", cut(&text, 400)));
        };
        match news {
            News::Progress(params) => {
                self.report.tell_progress(&how_far(&params));
                told("progress", &params);
            },
            News::Log(params) => told("log", &params),
            News::Other(method, params) => told(&sanitised(&method), &params),
        }
    }

    fn question(&self, question: Question) -> Asked<'_> {
        Box::pin(self.answer(question))
    }
}

/// `3 of 10, reading` from the parameters of a notification.
fn how_far(params: &[u8]) -> String {
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
    sanitised(&parts.join(", "))
}

fn root(folder: &std::path::Path) -> Outcome<Value> {
    let bad = |why: String| {
        Problem::usage(format!("`{}` cannot be a root", folder.display())).because(why)
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
            assert_eq!(how_far(params.as_bytes()), said);
        }
    }
}
