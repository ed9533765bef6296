//! A call that failed, as a client gets it: what the server said, or what we know.
//!
//! Asked by: the faces, and the admin socket.  An error of the server passes as it is. One of ours
//! carries the delivery in its code, in its sentence and in its fields: a model reads the sentence,
//! a program the rest.
//!
//! This is the one place where an error of the engine becomes one of a caller. Our own user reads
//! all of it. Whoever comes over the network reads what became of the call and what to do: where
//! servers are, how they are started and what they said as they died stands in the log.

mod advice;

use bytes::Bytes;
use http::StatusCode;
use serde_json::{Value, json};
use warmline::Error;
use warmline::core::code::{Code, Reason};
use warmline::core::delivery::Delivery;

use crate::reply::{RpcCode, error_message, response_message};

/// How much somebody is told of what went wrong behind the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Candour {
    /// Everything: they started us, and read our log.
    Full,
    /// What concerns their call.
    Reserved,
}

/// The message for a call that ended without a result; `id` is raw JSON.
pub(crate) fn message(id: &[u8], error: &Error, candour: Candour) -> Bytes {
    if let Some(raw) = error.server_error_raw() {
        return response_message(Some(id), "error", raw);
    }
    let code = RpcCode::Failed(error.delivery());
    let sentence = match known(error) {
        Some(known) => format!("{}; {known}", what(error, candour)),
        None => what(error, candour),
    };
    let data = json!({ "warmline": fields(error, candour) });
    error_message(Some(id), code.number(), &sentence, Some(&data))
}

/// The status of a modern answer that is an error of the server: some codes have one of their own,
/// and some servers say 400 with each error of a request (mcp-spec 3.4.7). `heard` is theirs, 0
/// where it is not known.
pub(crate) fn modern_status(error: &Error, heard: u16) -> StatusCode {
    match (error.server_error().map(|error| error.code), heard) {
        (Some(-32601), _) => StatusCode::NOT_FOUND,
        (Some(-32022..=-32020), _) | (Some(_), 400) => StatusCode::BAD_REQUEST,
        _ => StatusCode::OK,
    }
}

/// What is known of the request, in a sentence.
fn known(error: &Error) -> Option<&'static str> {
    match (error.code(), error.delivery()) {
        // Nothing will be different the next time.
        (Code::NotAllowed, Delivery::Unsent | Delivery::Refused) => {
            Some("not executed, and calling again changes nothing")
        },
        (_, delivery) => delivery.sentence(),
    }
}

/// What happened, in one line.
pub(crate) fn what(error: &Error, candour: Candour) -> String {
    let server = error.server().unwrap_or("the server");
    match (candour, error.code()) {
        // Whoever calls knows nothing of engines.
        (_, Code::Draining) => "this gateway is going down".to_owned(),
        (Candour::Full, _) => error.to_string(),
        (_, Code::CannotReach) => format!("`{server}` cannot be reached"),
        (_, Code::OpenFailed) => format!("no session with `{server}` could be opened"),
        // Only whoever calls can mend that.
        (_, Code::CredentialUnavailable) if error.reason() == Reason::CredentialNotSent => {
            error.to_string()
        },
        (_, Code::CredentialUnavailable) => format!("there is no credential for `{server}`"),
        (_, Code::ResolveFailed) => format!("nobody could say where `{server}` is"),
        (_, Code::StoreUnavailable | Code::RecordRefused) => {
            "what is kept of sessions cannot be used".to_owned()
        },
        (_, Code::Bug) => "something of the gateway broke".to_owned(),
        (
            _,
            Code::ConfigUnreadable
            | Code::ConfigUnknownKey
            | Code::ConfigBadValue
            | Code::ConfigUntrusted
            | Code::UsageBadArgument,
        ) => format!("`{server}` is not configured as it has to be"),
        (
            _,
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
            | Code::Closed,
        ) => error.to_string(),
    }
}

/// Why, where that speaks of the message itself: what the caller wrote, or what the server says to
/// it. Everything else is about the way to the server, or what a program said as it died.
fn why(error: &Error, candour: Candour) -> Option<&str> {
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
    // A server that points elsewhere names a place behind us.
    let is_theirs = speaks_of_it && error.reason() != Reason::Redirect;
    error
        .why()
        .filter(|_| candour == Candour::Full || is_theirs)
}

/// One thing to do about it. What names are near, and which limits there are, is not for everybody.
fn hint(error: &Error, candour: Candour) -> &str {
    let own = error.trouble().hint.as_deref();
    let is_theirs = error.code() == Code::BadMessage || error.reason() == Reason::CredentialNotSent;
    let own = own.filter(|_| candour == Candour::Full || is_theirs);
    own.unwrap_or_else(|| advice::of(error.code(), error.delivery()))
}

/// What a gateway advises its callers about a code, where an error has no advice of its own. Who
/// looks after the gateway knows better.
pub const fn advice(code: Code, delivery: Delivery) -> &'static str {
    advice::of(code, delivery)
}

/// What a program reads of an error.
pub(crate) fn fields(error: &Error, candour: Candour) -> Value {
    let mut fields = json!({
        "code": error.code().word(),
        "reason": error.reason().word(),
        "delivery": error.delivery().to_string(),
        "attempts": error.attempts(),
        "hint": hint(error, candour),
    });
    let more = [
        ("server", error.server().map(Value::from)),
        ("why", why(error, candour).map(Value::from)),
        ("generation", error.generation().map(Value::from)),
        (
            "retryAfterMs",
            error
                .retry_after()
                .map(|after| Value::from(u64::try_from(after.as_millis()).unwrap_or(u64::MAX))),
        ),
    ];
    if let Some(fields) = fields.as_object_mut() {
        for (name, value) in more {
            if let Some(value) = value {
                fields.insert(name.to_owned(), value);
            }
        }
    }
    fields
}

#[cfg(test)]
mod tests;
