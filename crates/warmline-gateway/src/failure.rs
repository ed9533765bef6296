//! A call that failed, as a client gets it: what the server said, or what we know.
//!
//! Asked by: the faces.  An error of the server passes as it is. One of ours carries the delivery
//! in its code, in its sentence and in its fields: a model reads the sentence, a program the rest.

use bytes::Bytes;
use http::StatusCode;
use serde_json::{Value, json};
use warmline::Error;

use crate::reply::{RpcCode, error_message, response_message};

/// The message for a call that ended without a result; `id` is raw JSON.
pub(crate) fn message(id: &[u8], error: &Error) -> Bytes {
    if let Some(raw) = error.server_error_raw() {
        return response_message(Some(id), "error", raw);
    }
    let code = RpcCode::Failed(error.delivery());
    let sentence = sentence(error);
    let data = json!({ "warmline": fields(error) });
    error_message(Some(id), code.number(), &sentence, Some(&data))
}

/// The status of a modern answer that is an error of the server: some codes have one of their own.
pub(crate) fn modern_status(error: &Error) -> StatusCode {
    match error.server_error().map(|error| error.code) {
        Some(-32601) => StatusCode::NOT_FOUND,
        Some(-32022..=-32020) => StatusCode::BAD_REQUEST,
        _ => StatusCode::OK,
    }
}

fn sentence(error: &Error) -> String {
    match error.delivery().sentence() {
        Some(known) => format!("{error}; {known}"),
        None => error.to_string(),
    }
}

pub(crate) fn fields(error: &Error) -> Value {
    let mut fields = json!({
        "code": error.code().word(),
        "reason": error.reason().word(),
        "delivery": error.delivery().to_string(),
        "attempts": error.attempts(),
    });
    let more = [
        ("server", error.server().map(Value::from)),
        ("why", error.why().map(Value::from)),
        ("hint", error.hint().map(Value::from)),
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
