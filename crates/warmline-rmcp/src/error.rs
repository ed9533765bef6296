//! Errors for the SDK.

use rmcp::ErrorData;
use rmcp::model::ErrorCode;
use serde_json::{Value, json};
use warmline_engine::Error;

/// A message of the SDK was not sent: it is malformed, or the server could not be reached.
#[derive(Debug)]
pub struct SendError {
    what: &'static str,
    source: Box<dyn std::error::Error + Send + Sync>,
}

impl SendError {
    pub(crate) fn malformed(error: serde_json::Error) -> Self {
        let what = "the message is not one of the protocol";
        Self {
            what,
            source: error.into(),
        }
    }

    pub(crate) fn not_delivered(error: Error) -> Self {
        let what = "the server was not told";
        Self {
            what,
            source: error.into(),
        }
    }
}

impl std::fmt::Display for SendError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.what, self.source)
    }
}

impl std::error::Error for SendError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&*self.source)
    }
}

/// An error for the SDK: the server's own unchanged, ours with the delivery of the call.
pub(crate) fn to_error_data(error: &Error) -> ErrorData {
    if let Some(theirs) = error.server_error() {
        let data = theirs.data.as_deref().map(serde_json::from_slice);
        return ErrorData {
            code: ErrorCode(i32::try_from(theirs.code).unwrap_or(OWN_ERROR_CODE)),
            message: theirs.message.clone().into(),
            data: data.and_then(Result::ok),
        };
    }
    let message = match error.delivery().description() {
        Some(sentence) => format!("{error}: {sentence}"),
        None => error.to_string(),
    };
    ErrorData {
        code: ErrorCode(OWN_ERROR_CODE),
        message: message.into(),
        data: Some(error_fields(error)),
    }
}

fn error_fields(error: &Error) -> Value {
    json!({
        "code": error.code().as_str(),
        "reason": error.reason().as_str(),
        "delivery": error.delivery().as_str(),
        "why": error.cause(),
        "hint": error.hint(),
        "server": error.server(),
        "attempts": error.attempts(),
        "retryAfterMs": error.retry_after().map(|pause| pause.as_millis()),
    })
}

/// The code of errors that are ours: the first of those that the protocol leaves to programs.
const OWN_ERROR_CODE: i32 = -32000;
