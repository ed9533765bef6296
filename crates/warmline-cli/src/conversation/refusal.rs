//! What a server answered, and what it is where that is an error: of the tool that was called, or
//! of the request itself.
//!
//! Asked by: `call` and `request`, and by whoever lists tools.

use serde_json::Value;
use warmline::config::nearest;
use warmline::core::code::Code;
use warmline::core::delivery::Delivery;
use warmline::core::exchange::Reply;
use warmline::core::protocol::methods::{Direction, Form, Method};

use super::{Conversation, Told};
use crate::problem::{Outcome, Problem};
use crate::report::text::cut;

/// The number of JSON-RPC for a method that nobody knows.
const METHOD_NOT_FOUND: i64 = -32601;

impl Conversation<'_> {
    /// The result as a tree; an error of the server is a problem.
    pub(crate) fn result(&self, told: &Told, method: &str, subject: &str) -> Outcome<Value> {
        match &told.reply {
            Reply::Result(raw) => serde_json::from_slice(raw).map_err(|error| {
                let what = format!("the answer of `{}` to {subject} cannot be read", self.name);
                Problem::new(Code::BadAnswer, what)
                    .because(error.to_string())
                    .delivered(Delivery::Answered)
            }),
            Reply::Error(raw) => {
                let problem = self.said_no(raw, method, subject);
                Err(problem.after_declining(told.declined.clone()))
            },
        }
    }

    /// An error of the protocol, as the server put it.
    pub(super) fn said_no(&self, raw: &[u8], method: &str, subject: &str) -> Problem {
        let error: Value = serde_json::from_slice(raw).unwrap_or_default();
        let number = error.get("code");
        let (name, why) = (&self.name, reason(&error));
        if number.and_then(Value::as_i64) == Some(METHOD_NOT_FOUND) {
            let what = format!("`{name}` knows no method `{}`", method.escape_debug());
            return Problem::new(Code::RequestRefused, what)
                .because(why)
                .hint(self.instead_of(method))
                .delivered(Delivery::Answered)
                .of_server(name);
        }
        let number = number.map_or_else(|| "none".to_owned(), Value::to_string);
        let code = match method {
            "tools/call" => Code::ToolFailed,
            _ => Code::RequestRefused,
        };
        Problem::new(
            code,
            format!("`{name}` answered {subject} with error {number}"),
        )
        .because(why)
        .delivered(Delivery::Answered)
        .of_server(name)
    }

    /// What somebody may have wanted who asked for a method that the server does not know.
    fn instead_of(&self, method: &str) -> String {
        let version = self.facts().version;
        let is_ours =
            |one: &&Method| one.form == Form::Request && one.direction != Direction::ToClient;
        let known = Method::ALL.iter().filter(is_ours);
        let here = known
            .clone()
            .filter(|one| one.is_in(version))
            .map(|one| one.name);
        if let Some(elsewhere) = Method::find(method).filter(|one| !one.is_in(version)) {
            let era = elsewhere.until.era();
            return format!("`{method}` belongs to other versions than {version}: `--era {era}`");
        }
        match nearest(method, here) {
            Some(near) if near != method => format!("did you mean `{near}`?"),
            _ => format!("see what it can do: `warmline doctor {}`", self.again),
        }
    }
}

/// What a server says of its error.
fn reason(error: &Value) -> String {
    let message = error.get("message").and_then(Value::as_str);
    let message = message.unwrap_or("it gave no reason");
    match error.get("data").filter(|data| !data.is_null()) {
        Some(data) => format!("{message} ({})", cut(&data.to_string(), 300)),
        None => message.to_owned(),
    }
}
