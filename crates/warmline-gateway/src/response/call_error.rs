//! Errors of the engine, as callers see them.
//!
//! An error of the server passes unchanged. One of the engine carries the delivery in its code, its
//! message and its data: a model reads the message, a program the rest. The local user sees all of an
//! error. A remote caller sees what became of the call and what to do; addresses, commands and the
//! output of servers are only in the log.

use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use serde_json::{Value, json};
use warmline_core::delivery::Delivery;
use warmline_core::error::code::{Audience, Code, Reason};
use warmline_engine::Error;

use crate::response::rejection::RpcCode;
use crate::response::{error_message, response_message};

/// How much of an error a caller sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorDetail {
    /// Everything: the local user can read the log anyway.
    Full,
    /// What concerns the call.
    Limited,
}

/// The message for a call that ended without a result; `id` is raw JSON.
pub(crate) fn call_error_message(id: &[u8], error: &Error, candour: ErrorDetail) -> Bytes {
    if let Some(raw) = error.server_error_raw() {
        return response_message(Some(id), "error", raw);
    }
    let code = RpcCode::Failed(error.delivery());
    let sentence = match delivery_note(error) {
        Some(known) => format!("{}; {known}", summary(error, candour)),
        None => summary(error, candour),
    };
    let data = json!({ "warmline": error_fields(error, candour) });
    error_message(Some(id), code.number(), &sentence, Some(&data))
}

/// The status of a modern answer that is an error of the server: some codes have their own, and some
/// servers use 400 for each error of a request (mcp-spec 3.4.7). `heard` is the server's, or 0.
pub(crate) fn modern_http_status(error: &Error, heard: u16) -> StatusCode {
    match (error.server_error().map(|error| error.code), heard) {
        (Some(-32601), _) => StatusCode::NOT_FOUND,
        (Some(-32022..=-32020), _) | (Some(_), 400) => StatusCode::BAD_REQUEST,
        _ => StatusCode::OK,
    }
}

fn delivery_note(error: &Error) -> Option<&'static str> {
    match (error.code(), error.delivery()) {
        (Code::NotAllowed, Delivery::Unsent | Delivery::Refused) => {
            Some("not executed, and calling again changes nothing")
        },
        (_, delivery) => delivery.description(),
    }
}

pub(crate) fn summary(error: &Error, candour: ErrorDetail) -> String {
    let server = error.server().unwrap_or("the server");
    match error.code() {
        Code::Draining => "this gateway is shutting down".to_owned(),
        _ if candour == ErrorDetail::Full => error.to_string(),
        // Only the caller can fix that.
        _ if error.reason() == Reason::CredentialNotSent => error.to_string(),
        Code::CannotReach => format!("`{server}` cannot be reached"),
        Code::OpenFailed => format!("no session with `{server}` could be opened"),
        Code::CredentialUnavailable => format!("there is no credential for `{server}`"),
        Code::ResolveFailed => format!("`{server}` could not be resolved"),
        Code::StoreUnavailable | Code::RecordRefused => {
            "the session store cannot be used".to_owned()
        },
        Code::Bug => "the gateway failed".to_owned(),
        Code::ConfigUnreadable
        | Code::ConfigUnknownKey
        | Code::ConfigBadValue
        | Code::ConfigUntrusted
        | Code::UsageBadArgument => format!("`{server}` is misconfigured"),
        Code::ServerUnknown
        | Code::ToolUnknown
        | Code::CredentialRefused
        | Code::BadMessage
        | Code::EraUnknown
        | Code::RequestRefused
        | Code::Deadline
        | Code::SessionLost
        | Code::AnswerLost
        | Code::BadAnswer
        | Code::ToolFailed
        | Code::RunUnknown
        | Code::RunEnded
        | Code::NotAllowed
        | Code::IdentityMissing
        | Code::BreakerOpen
        | Code::PoolFull
        | Code::Overloaded
        | Code::Cancelled
        | Code::Closed => error.to_string(),
    }
}

/// The cause, if it is about the message itself. Other causes describe the connection to the server or the
/// output of a program.
fn cause(error: &Error, candour: ErrorDetail) -> Option<&str> {
    let speaks_of_it = matches!(
        error.code(),
        Code::BadMessage
            | Code::ToolUnknown
            | Code::EraUnknown
            | Code::SessionLost
            | Code::RequestRefused
            | Code::RunUnknown
            | Code::NotAllowed
    );
    // A redirect names an internal address.
    let is_theirs = speaks_of_it && error.reason() != Reason::Redirect;
    error
        .cause()
        .filter(|_| candour == ErrorDetail::Full || is_theirs)
}

/// The hint. The engine's own may name other servers and limits, so not every caller sees it.
fn hint(error: &Error, candour: ErrorDetail) -> &str {
    let own = error.diagnostic().hint.as_deref();
    let is_theirs = error.code() == Code::BadMessage || error.reason() == Reason::CredentialNotSent;
    let own = own.filter(|_| candour == ErrorDetail::Full || is_theirs);
    own.unwrap_or_else(|| error.code().advice(Audience::Gateway, error.delivery()))
}

pub(crate) fn error_fields(error: &Error, candour: ErrorDetail) -> Value {
    let mut fields = json!({
        "code": error.code().as_str(),
        "reason": error.reason().as_str(),
        "delivery": error.delivery().to_string(),
        "attempts": error.attempts(),
        "hint": hint(error, candour),
    });
    let mut set = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            fields[name] = value;
        }
    };
    let millis = |after: Duration| u64::try_from(after.as_millis()).unwrap_or(u64::MAX);
    set("server", error.server().map(Value::from));
    set("why", cause(error, candour).map(Value::from));
    set("generation", error.generation().map(Value::from));
    set(
        "retryAfterMs",
        error.retry_after().map(millis).map(Value::from),
    );
    fields
}

#[cfg(test)]
mod tests;
