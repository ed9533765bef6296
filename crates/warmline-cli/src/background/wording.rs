//! What a gateway says of a failure, as a problem of ours: with its code, its delivery, its hint.

use std::time::Duration;

use serde_json::Value;
use warmline::core::code::{Code, Reason};
use warmline::core::delivery::Delivery;
use warmline::core::exchange::Trouble;
use warmline_gateway::advice;
use warmline_gateway::local::Answered;

use crate::problem::Problem;

/// An error of the admin socket.
pub(crate) fn of_error(error: &Value) -> Problem {
    let what = text(error, "what").unwrap_or("the background gateway refused");
    problem(error, what)
}

/// Whether it said that it takes nothing new, because it is going down.
pub(super) fn says_it_goes(answered: &Answered) -> bool {
    let said: Option<Value> = serde_json::from_slice(&answered.body).ok();
    let error = said.as_ref().and_then(|said| said.get("error"));
    error.and_then(|error| text(error, "code")) == Some(Code::Draining.word())
}

/// What kept the gateway from opening a session, and what it calls the server; none where it refused
/// for another reason. What it would advise somebody else is left out.
pub(crate) fn unopened(answer: &[u8]) -> Option<(Trouble, String)> {
    let answer: Value = serde_json::from_slice(answer).ok()?;
    let error = answer.get("error")?;
    let server = text(error, "server")?.to_owned();
    let mut trouble = trouble(error, text(error, "what")?);
    let general = advice(trouble.code, delivery(error));
    trouble.hint = trouble.hint.filter(|hint| hint != general);
    Some((trouble, server))
}

/// An error that the gateway answered a call with, where it is its own and not the server's.
pub(crate) fn of_rpc_error(raw: &[u8]) -> Option<Problem> {
    let error: Value = serde_json::from_slice(raw).ok()?;
    let fields = error.pointer("/data/warmline")?;
    let message = text(&error, "message").unwrap_or("the call failed");
    // What is known of the call stands behind the sentence, and is told on a line of its own.
    let known = delivery(fields)
        .sentence()
        .map(|known| format!("; {known}"));
    let what = known.and_then(|known| message.strip_suffix(&*known));
    Some(problem(fields, what.unwrap_or(message)))
}

fn problem(fields: &Value, what: &str) -> Problem {
    Problem::of_trouble(&trouble(fields, what), delivery(fields))
}

fn trouble(fields: &Value, what: &str) -> Trouble {
    let reason = text(fields, "reason");
    let reason = reason.and_then(|word| Reason::ALL.into_iter().find(|one| one.word() == word));
    let code = text(fields, "code").and_then(Code::parse);
    let mut trouble = Trouble::new(reason.unwrap_or(Reason::Rejected), what);
    trouble.code = code.unwrap_or(trouble.code);
    trouble.why = text(fields, "why").map(str::to_owned);
    trouble.hint = text(fields, "hint").map(str::to_owned);
    let after = fields.get("retryAfterMs").and_then(Value::as_u64);
    trouble.retry_after = after.map(Duration::from_millis);
    trouble
}

fn delivery(fields: &Value) -> Delivery {
    match text(fields, "delivery") {
        Some("unknown") => Delivery::Unknown,
        Some("answered") => Delivery::Answered,
        Some("refused") => Delivery::Refused,
        _ => Delivery::Unsent,
    }
}

fn text<'v>(value: &'v Value, member: &str) -> Option<&'v str> {
    value.get(member).and_then(Value::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_keeps_what_is_known_of_it() {
        let raw = r#"{"code":7503,"message":"`x` broke off; may have been executed, check before calling again",
            "data":{"warmline":{"code":"answer-lost","reason":"cut","delivery":"unknown","hint":"look","retryAfterMs":70}}}"#;
        let problem = of_rpc_error(raw.as_bytes()).unwrap();
        let parts = problem.parts();
        assert_eq!(parts.what, "`x` broke off");
        assert_eq!(parts.code, Code::AnswerLost);
        assert_eq!(parts.delivery, Some(Delivery::Unknown));
        assert_eq!(parts.hint.as_deref(), Some("look"));
        assert_eq!(parts.retry_after, Some(Duration::from_millis(70)));
        assert_eq!(problem.exit(), 4);
        let of_server = br#"{"code":-32602,"message":"no","data":{"warm":1}}"#;
        assert!(of_rpc_error(of_server).is_none());
    }
}
