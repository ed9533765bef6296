//! One call as both sides see it: what goes up, what comes down, and exactly one result.
//!
//! The code that serves clients and the drivers of servers meet in these types, so that neither
//! needs to know both eras. Up go a [`Request`], a [`ServerRequestReply`] for each request of the
//! server, and a cancel (dropping the exchange). Down come [`Notification`]s, [`ServerRequest`]s,
//! and one [`AttemptResult`]. Payloads are raw JSON in shared buffers: what is not understood
//! passes unchanged.

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue};

use crate::delivery::Delivery;
use crate::error::code::{Code, Reason};
use crate::message::params::Params;
use crate::protocol::headers::{PARAM_PREFIX, is_reserved_header};
use crate::protocol::session_gone::SessionGoneForm;

/// One request of a caller, ready to be sent any number of times.
#[derive(Clone, Debug)]
pub struct Request {
    pub method: Cow<'static, str>,
    pub params: Params,
    /// Headers of this request alone. Only [`Request::with_header`] adds one: it refuses reserved names,
    /// by the origin.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    pub deadlines: Deadlines,
    pub origin: RequestOrigin,
}

/// Who wrote a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RequestOrigin {
    /// Ours, or those of a program that speaks through us.
    #[default]
    Own,
    /// A client, forwarded: it keeps what the client says of itself, and server requests go back to
    /// it.
    Forwarded,
    /// The same for a client that also sends the headers of its arguments, and is responsible for
    /// them.
    ForwardedWithHeaders,
}

impl RequestOrigin {
    pub const fn is_forwarded(self) -> bool {
        matches!(self, Self::Forwarded | Self::ForwardedWithHeaders)
    }
}

/// How long a request may take. Both are durations from the moment of sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadlines {
    /// How long the server may be silent; progress restarts it.
    pub idle: Duration,
    /// How long the whole call may take, whatever the server shows.
    pub total: Duration,
}

impl Default for Deadlines {
    /// Fixed limits of 30 to 60 s kill tools that work: 300 s without a sign of life, 1 h in all.
    fn default() -> Self {
        Self {
            idle: Duration::from_secs(300),
            total: Duration::from_secs(3600),
        }
    }
}

impl Request {
    pub fn new(method: impl Into<Cow<'static, str>>, params: Params) -> Self {
        Self {
            method: method.into(),
            params,
            headers: Vec::new(),
            deadlines: Deadlines::default(),
            origin: RequestOrigin::Own,
        }
    }

    /// The same request with other time limits.
    #[must_use]
    pub fn with_deadlines(mut self, deadlines: Deadlines) -> Self {
        self.deadlines = deadlines;
        self
    }

    /// The same request with one more HTTP header; other transports ignore it. So are headers
    /// that only we may write, such as `Content-Length` and `Mcp-Session-Id`. In the words of a
    /// client the headers of its arguments are its own.
    #[must_use]
    pub fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        let is_argument = name.as_str().starts_with(PARAM_PREFIX);
        if !is_reserved_header(&name) || (is_argument && self.origin.is_forwarded()) {
            self.headers.push((name, value));
        }
        self
    }
}

/// A notification of the server during a call, with its raw `params`.
#[derive(Clone, Debug)]
pub enum Notification {
    /// `notifications/progress` for this call.
    Progress(Bytes),
    /// `notifications/message`: a log line.
    Log(Bytes),
    /// Any other notification: its method and parameters.
    Other(String, Bytes),
}

/// What a server asks in the middle of a call.
#[derive(Clone, Debug)]
pub struct ServerRequest {
    /// Which kind of question it is.
    pub kind: ServerRequestKind,
    /// The method of the request.
    pub method: Cow<'static, str>,
    /// The raw `params`, as the server wrote them.
    pub params: Bytes,
}

impl ServerRequest {
    /// What a request of a server asks.
    pub fn new(method: &str, params: Bytes) -> Self {
        let kind = ServerRequestKind::from_method(method);
        let known = kind.method().map(Cow::Borrowed);
        Self {
            kind,
            method: known.unwrap_or_else(|| method.to_owned().into()),
            params,
        }
    }
}

/// The kinds of questions a server may ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ServerRequestKind {
    /// `elicitation/create`: ask the person.
    Elicitation,
    /// `sampling/createMessage`: ask the model.
    Sampling,
    /// `roots/list`: which folders may be used.
    Roots,
    /// A request of another method: of an extension, or of what client and server agreed on as
    /// experimental. Declined by clients that do not know it.
    Other,
}

impl ServerRequestKind {
    /// The method that asks it, where the protocol names it.
    pub const fn method(self) -> Option<&'static str> {
        match self {
            Self::Elicitation => Some("elicitation/create"),
            Self::Sampling => Some("sampling/createMessage"),
            Self::Roots => Some("roots/list"),
            Self::Other => None,
        }
    }

    /// The kind a method asks.
    pub fn from_method(method: &str) -> Self {
        [Self::Elicitation, Self::Sampling, Self::Roots]
            .into_iter()
            .find(|kind| kind.method() == Some(method))
            .unwrap_or(Self::Other)
    }
}

/// What goes back for a [`ServerRequest`].
#[derive(Clone, Debug)]
pub enum ServerRequestReply {
    /// The raw JSON of the result.
    Result(Bytes),
    /// The raw JSON of an error in place of the result.
    Error(Bytes),
    /// No client can answer: elicitation is declined, the others get "method not found".
    Declined,
}

/// How an attempt ended. There is exactly one for each request that was sent.
#[derive(Debug)]
pub enum AttemptResult {
    /// The server answered with a result or a JSON-RPC error.
    Answered(Reply),
    Failed(Box<AttemptFailure>),
}

impl AttemptResult {
    pub fn delivery(&self) -> Delivery {
        match self {
            Self::Answered(_) => Delivery::Answered,
            Self::Failed(failure) => failure.delivery(),
        }
    }
}

/// A server's answer.
#[derive(Clone, Debug)]
pub enum Reply {
    Result(Bytes),
    Error(Bytes),
}

/// What is known of a request that was not answered. Only what was certainly not executed gives
/// the request back.
#[derive(Debug)]
pub enum DeliveryFailure {
    /// The server cannot have received it.
    Unsent(Request),
    /// The server said that it did not act.
    Refused(Request),
    /// It may have been executed.
    Unknown,
}

impl DeliveryFailure {
    pub const fn delivery(&self) -> Delivery {
        match self {
            Self::Unsent(_) => Delivery::Unsent,
            Self::Refused(_) => Delivery::Refused,
            Self::Unknown => Delivery::Unknown,
        }
    }
}

/// Why there is no answer.
#[derive(Debug)]
pub struct AttemptFailure {
    /// What became of the request, and the request itself where it can be sent again.
    pub delivery_failure: DeliveryFailure,
    pub diagnostic: Diagnostic,
}

impl AttemptFailure {
    pub fn delivery(&self) -> Delivery {
        self.delivery_failure.delivery()
    }
}

/// What went wrong, in the terms of the error page: what, where, why, what to do.
///
/// Openings that fail carry it alone: no request of a caller was involved.
#[derive(Clone, Debug)]
pub struct Diagnostic {
    /// The stable name of the error.
    pub code: Code,
    /// The finer word beside it.
    pub reason: Reason,
    /// One line: what happened, with names and numbers.
    pub message: String,
    /// The cause, in the words of the other side.
    pub cause: Option<String>,
    /// One thing to do, where the code's own advice is too general.
    pub hint: Option<String>,
    /// The form in which the server said that the session is gone.
    pub session_gone: Option<SessionGoneForm>,
    /// How long the server asked us to wait.
    pub retry_after: Option<Duration>,
}

impl Diagnostic {
    /// A diagnostic with the code of its reason.
    pub fn new(reason: Reason, what: impl Into<String>) -> Self {
        Self {
            code: reason.code(),
            reason,
            message: what.into(),
            cause: None,
            hint: None,
            session_gone: None,
            retry_after: None,
        }
    }

    /// Adds the cause, in the words of the other side.
    #[must_use]
    pub fn with_cause(mut self, why: impl Into<String>) -> Self {
        self.cause = Some(why.into());
        self
    }

    /// Adds a specific hint.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Replaces the code of its reason.
    #[must_use]
    pub fn with_code(mut self, code: Code) -> Self {
        self.code = code;
        self
    }

    /// Ends an attempt whose request the server cannot have received.
    pub fn into_unsent(self, request: Request) -> AttemptResult {
        self.into_failed(DeliveryFailure::Unsent(request))
    }

    /// Ends an attempt that the server refused.
    pub fn into_refused(self, request: Request) -> AttemptResult {
        self.into_failed(DeliveryFailure::Refused(request))
    }

    /// Ends an attempt that may have been executed.
    pub fn into_unknown(self) -> AttemptResult {
        self.into_failed(DeliveryFailure::Unknown)
    }

    fn into_failed(self, delivery_failure: DeliveryFailure) -> AttemptResult {
        AttemptResult::Failed(Box::new(AttemptFailure {
            delivery_failure,
            diagnostic: self,
        }))
    }
}

impl std::fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Diagnostic {}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only a forwarded request carries headers of arguments; none carries headers that the
    /// protocol reserves.
    #[test]
    fn headers_of_arguments_are_those_of_a_client_alone() {
        let rows = [
            (RequestOrigin::Own, "mcp-param-x", 0),
            (RequestOrigin::Forwarded, "mcp-param-x", 1),
            (RequestOrigin::ForwardedWithHeaders, "mcp-param-x", 1),
            (RequestOrigin::ForwardedWithHeaders, "mcp-session-id", 0),
            (RequestOrigin::ForwardedWithHeaders, "mcp-name", 0),
            (RequestOrigin::Own, "x-trace", 1),
        ];
        for (words, name, expected) in rows {
            let mut request = Request::new("tools/call", Params::empty());
            request.origin = words;
            let value = HeaderValue::from_static("1");
            let request = request.with_header(HeaderName::from_static(name), value);
            assert_eq!(request.headers.len(), expected, "{words:?} {name}");
        }
    }
}
