//! Replies of a server, and failures of requests.

use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use warmline_config::closest_match;
use warmline_core::delivery::Delivery;
use warmline_core::error::code::Code;
use warmline_core::exchange::Reply;
use warmline_core::protocol::methods::{Direction, Method, MethodForm};
use warmline_core::state_loss::state_loss_notice;

use super::CommandSession;
use crate::background::problem_from_rpc_error;
use crate::output::problem::DeclinedServerRequest;
use crate::output::{CliResult, JsonFields, Problem, truncate};

#[derive(Debug)]
pub(crate) struct TimedReply {
    pub(super) reply: Reply,
    pub(crate) elapsed: Duration,
    /// Server requests that were declined meanwhile.
    pub(super) declined: Option<Vec<DeclinedServerRequest>>,
}

impl TimedReply {
    pub(crate) fn put_raw(&self, fields: JsonFields) -> JsonFields {
        match &self.reply {
            Reply::Result(raw) => fields.put_raw("result", raw),
            Reply::Error(raw) => fields.put_raw("error", raw),
        }
    }
}

#[derive(Debug)]
pub(super) enum RequestFailure {
    Problem(Problem),
    /// The server answered with an error: its raw JSON.
    ErrorReply(Bytes),
}

impl RequestFailure {
    /// The problem, also of an error reply that a gateway of ours wrote; otherwise the error reply.
    pub(super) fn into_problem(self) -> Result<Problem, Bytes> {
        match self {
            Self::Problem(problem) => Ok(problem),
            Self::ErrorReply(raw) => problem_from_rpc_error(&raw).ok_or(raw),
        }
    }
}

impl From<Problem> for RequestFailure {
    fn from(problem: Problem) -> Self {
        Self::Problem(problem)
    }
}

impl From<warmline_engine::Error> for RequestFailure {
    fn from(error: warmline_engine::Error) -> Self {
        let Some(reply) = error.server_error() else {
            return Problem::from(error).into();
        };
        let mut json = json!({ "code": reply.code, "message": reply.message });
        let data = reply.data.as_ref();
        if let Some(data) = data.and_then(|raw| serde_json::from_slice::<Value>(raw).ok()) {
            json["data"] = data;
        }
        Self::ErrorReply(Bytes::from(json.to_string()))
    }
}

/// The two names of a server: the plain one that engines and gateways use, and the user's.
#[derive(Clone, Debug)]
pub(super) struct ServerNames {
    pub(super) plain: String,
    pub(super) display: String,
}

impl ServerNames {
    pub(super) fn rename(&self, text: &str) -> String {
        text.replace(&format!("`{}`", self.plain), &format!("`{}`", self.display))
    }

    /// Renames the server in the notice on lost state, if the result has one.
    pub(super) fn rename_in_result(&self, result: Bytes) -> Bytes {
        let notice = state_loss_notice(&self.plain);
        match std::str::from_utf8(&result) {
            Ok(text) if text.contains(&notice) => {
                Bytes::from(text.replacen(&notice, &state_loss_notice(&self.display), 1))
            },
            Ok(_) | Err(_) => result,
        }
    }
}

const METHOD_NOT_FOUND: i64 = -32601;

impl CommandSession<'_> {
    pub(crate) fn parse_result(
        &self,
        reply: &TimedReply,
        method: &str,
        subject: &str,
    ) -> CliResult<Value> {
        match &reply.reply {
            Reply::Result(raw) => serde_json::from_slice(raw).map_err(|error| {
                let what = format!("cannot read the answer of `{}` to {subject}", self.name());
                Problem::caused(Code::BadAnswer, &what)(error).with_delivery(Delivery::Answered)
            }),
            Reply::Error(raw) => {
                let problem = self.error_reply_problem(raw, method, subject);
                Err(problem.with_declined(reply.declined.clone()))
            },
        }
    }

    pub(super) fn error_reply_problem(&self, raw: &[u8], method: &str, subject: &str) -> Problem {
        let error: Value = serde_json::from_slice(raw).unwrap_or_default();
        let number = error.get("code");
        let name = self.name();
        let problem = if number.and_then(Value::as_i64) == Some(METHOD_NOT_FOUND) {
            let what = format!("`{name}` has no method `{}`", method.escape_debug());
            Problem::new(Code::RequestRefused, what).with_hint(self.unknown_method_hint(method))
        } else {
            let number = number.map_or_else(|| "none".to_owned(), Value::to_string);
            let what = format!("`{name}` answered {subject} with error {number}");
            let code = match method {
                "tools/call" => Code::ToolFailed,
                _ => Code::RequestRefused,
            };
            Problem::new(code, what)
        };
        let message = error.get("message").and_then(Value::as_str);
        let message = message.unwrap_or("it gave no reason");
        let data = error.get("data").filter(|data| !data.is_null());
        let data = data.map(|data| format!(" ({})", truncate(&data.to_string(), 300)));
        problem
            .with_cause(format!("{message}{}", data.unwrap_or_default()))
            .with_delivery(Delivery::Answered)
            .with_server(name)
    }

    fn unknown_method_hint(&self, method: &str) -> String {
        let version = self.opened.facts.version;
        if let Some(elsewhere) = Method::find(method).filter(|one| !one.is_in_version(version)) {
            let era = elsewhere.until.era();
            return format!("`{method}` belongs to other versions than {version}: `--era {era}`");
        }
        let known = Method::ALL.iter().filter(|one| {
            let is_ours = one.form == MethodForm::Request && one.direction != Direction::ToClient;
            is_ours && one.is_in_version(version)
        });
        match closest_match(method, known.map(|one| one.name)) {
            Some(near) if near != method => format!("did you mean `{near}`?"),
            _ => format!(
                "see its capabilities: `warmline doctor {}`",
                self.target_argument()
            ),
        }
    }
}
