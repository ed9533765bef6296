//! Errors of a gateway as problems: with code, delivery and hint.

use std::time::Duration;

use serde_json::Value;
use warmline_core::delivery::Delivery;
use warmline_core::error::code::{Audience, Code, Reason};
use warmline_core::exchange::Diagnostic;
use warmline_gateway::admin::socket_client::SocketResponse;

use crate::output::problem::Problem;

pub(crate) fn problem_from_admin_error(error: &Value) -> Problem {
    let what = string_member(error, "what").unwrap_or("the background gateway refused");
    problem_from_fields(error, what)
}

/// Whether the gateway accepts nothing new because it is stopping.
pub(super) fn is_draining_response(answered: &SocketResponse) -> bool {
    let said: Option<Value> = serde_json::from_slice(&answered.body).ok();
    let error = said.as_ref().and_then(|said| said.get("error"));
    error.and_then(|error| string_member(error, "code")) == Some(Code::Draining.as_str())
}

/// Why the gateway could not open a session, and its name of the server; none if it refused for
/// another reason. Its advice for remote callers is dropped.
pub(crate) fn parse_open_failure(answer: &[u8]) -> Option<(Diagnostic, String)> {
    let answer: Value = serde_json::from_slice(answer).ok()?;
    let error = answer.get("error")?;
    let server = string_member(error, "server")?.to_owned();
    let mut diagnostic = diagnostic_from_fields(error, string_member(error, "what")?);
    let general = diagnostic
        .code
        .advice(Audience::Gateway, delivery_from_fields(error));
    diagnostic.hint = diagnostic.hint.filter(|hint| hint != general);
    Some((diagnostic, server))
}

/// An error of the gateway itself; none if it is the server's.
pub(crate) fn problem_from_rpc_error(raw: &[u8]) -> Option<Problem> {
    let error: Value = serde_json::from_slice(raw).ok()?;
    let fields = error.pointer("/data/warmline")?;
    let message = string_member(&error, "message").unwrap_or("the call failed");
    // The delivery has its own line.
    let known = delivery_from_fields(fields)
        .description()
        .map(|known| format!("; {known}"));
    let what = known.and_then(|known| message.strip_suffix(&*known));
    Some(problem_from_fields(fields, what.unwrap_or(message)))
}

fn problem_from_fields(fields: &Value, what: &str) -> Problem {
    Problem::from_diagnostic(
        &diagnostic_from_fields(fields, what),
        delivery_from_fields(fields),
    )
}

fn diagnostic_from_fields(fields: &Value, what: &str) -> Diagnostic {
    let reason = string_member(fields, "reason");
    let reason = reason.and_then(|word| Reason::ALL.into_iter().find(|one| one.as_str() == word));
    let code = string_member(fields, "code").and_then(Code::parse);
    let mut diagnostic = Diagnostic::new(reason.unwrap_or(Reason::Rejected), what);
    diagnostic.code = code.unwrap_or(diagnostic.code);
    diagnostic.cause = string_member(fields, "why").map(str::to_owned);
    diagnostic.hint = string_member(fields, "hint").map(str::to_owned);
    let after = fields.get("retryAfterMs").and_then(Value::as_u64);
    diagnostic.retry_after = after.map(Duration::from_millis);
    diagnostic
}

fn delivery_from_fields(fields: &Value) -> Delivery {
    match string_member(fields, "delivery") {
        Some("unknown") => Delivery::Unknown,
        Some("answered") => Delivery::Answered,
        Some("refused") => Delivery::Refused,
        _ => Delivery::Unsent,
    }
}

fn string_member<'v>(value: &'v Value, member: &str) -> Option<&'v str> {
    value.get(member).and_then(Value::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_keeps_what_is_known_of_it() {
        let raw = r#"{"code":7503,"message":"`x` broke off; may have been executed, check before calling again",
            "data":{"warmline":{"code":"answer-lost","reason":"cut","delivery":"unknown","hint":"look","retryAfterMs":70}}}"#;
        let problem = problem_from_rpc_error(raw.as_bytes()).unwrap();
        let parts = problem.parts();
        assert_eq!(parts.message, "`x` broke off");
        assert_eq!(parts.code, Code::AnswerLost);
        assert_eq!(parts.delivery, Some(Delivery::Unknown));
        assert_eq!(parts.hint.as_deref(), Some("look"));
        assert_eq!(parts.retry_after, Some(Duration::from_millis(70)));
        assert_eq!(problem.exit_code(), 4);
        let of_server = br#"{"code":-32602,"message":"no","data":{"warm":1}}"#;
        assert!(problem_from_rpc_error(of_server).is_none());
    }
}
