//! The exchange: one call as both sides see it. Up, down, and exactly one ending.
//!
//! A face (towards a client) and a driver (towards a server) meet in these types, so that no code
//! needs to know both eras. Up go a [`Request`], the [`Answer`]s to the server's questions, and a
//! cancel (dropping the exchange). Down come [`News`], [`Question`]s, and one [`Ending`].
//!
//! Payloads are raw JSON in shared buffers: what we do not understand passes untouched.

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue};

use crate::code::{Code, Reason};
use crate::delivery::Delivery;
use crate::protocol::gone::Dialect;
use crate::protocol::headers::{PARAM_PREFIX, is_ours};
use crate::protocol::params::Params;

/// One request of a caller, ready to be sent any number of times.
#[derive(Clone, Debug)]
pub struct Request {
    method: Cow<'static, str>,
    params: Params,
    headers: Vec<(HeaderName, HeaderValue)>,
    patience: Patience,
    words: Words,
}

/// Whose words a request is in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Words {
    /// Ours, or those of a program that speaks through us.
    #[default]
    Ours,
    /// A client's, passed on: what it says of itself stands, and what it is asked goes back to it.
    Passed,
    /// The same of a client that says some of it in headers too, and answers for them.
    PassedWithHeaders,
}

impl Words {
    /// Whether they are a client's.
    pub const fn are_passed(self) -> bool {
        matches!(self, Self::Passed | Self::PassedWithHeaders)
    }
}

/// How long a request may take. Both are durations from the moment of sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// How long the server may show no sign of life; progress starts it anew.
    pub idle: Duration,
    /// How long the whole call may take, whatever the server shows.
    pub total: Duration,
}

impl Default for Patience {
    /// Fixed limits of 30 to 60 s kill tools that work: 300 s without a sign of life, 1 h in all.
    fn default() -> Self {
        Self {
            idle: Duration::from_secs(300),
            total: Duration::from_secs(3600),
        }
    }
}

impl Request {
    /// A request for any method.
    pub fn new(method: impl Into<Cow<'static, str>>, params: Params) -> Self {
        Self {
            method: method.into(),
            params,
            headers: Vec::new(),
            patience: Patience::default(),
            words: Words::Ours,
        }
    }

    /// The same request with other time limits.
    #[must_use]
    pub fn patient(mut self, patience: Patience) -> Self {
        self.patience = patience;
        self
    }

    /// The same request with one more HTTP header; other transports ignore it. So are headers
    /// that only we may write, such as `Content-Length` and `Mcp-Session-Id`. In the words of a
    /// client the headers of its arguments are its own.
    #[must_use]
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        let is_argument = name.as_str().starts_with(PARAM_PREFIX);
        if !is_ours(&name) || (is_argument && self.words.are_passed()) {
            self.headers.push((name, value));
        }
        self
    }

    /// The same request with other parameters.
    #[must_use]
    pub fn with_params(mut self, params: Params) -> Self {
        self.params = params;
        self
    }

    /// The same request, in these words.
    #[must_use]
    pub fn in_words(mut self, words: Words) -> Self {
        self.words = words;
        self
    }

    /// Whose words it is in.
    pub fn words(&self) -> Words {
        self.words
    }

    /// The method, as it stands on the wire.
    pub fn method(&self) -> &str {
        &self.method
    }

    /// The parameters.
    pub fn params(&self) -> &Params {
        &self.params
    }

    /// Headers of this request alone.
    pub fn headers(&self) -> &[(HeaderName, HeaderValue)] {
        &self.headers
    }

    /// How long it may take.
    pub fn patience(&self) -> Patience {
        self.patience
    }
}

/// What a server tells while a call runs. Each carries the raw `params` of its notification.
#[derive(Clone, Debug)]
pub enum News {
    /// `notifications/progress` for this call.
    Progress(Bytes),
    /// `notifications/message`: a log line.
    Log(Bytes),
    /// Any other notification: its method and parameters.
    Other(String, Bytes),
}

/// What a server asks in the middle of a call.
#[derive(Clone, Debug)]
pub struct Question {
    /// Which kind of question it is.
    pub kind: QuestionKind,
    /// The method under which the server asked.
    pub method: Cow<'static, str>,
    /// The raw `params`, as the server wrote them.
    pub params: Bytes,
}

impl Question {
    /// What a request of a server asks.
    pub fn new(method: &str, params: Bytes) -> Self {
        let kind = QuestionKind::of(method);
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
pub enum QuestionKind {
    /// `elicitation/create`: ask the person.
    Elicitation,
    /// `sampling/createMessage`: ask the model.
    Sampling,
    /// `roots/list`: which folders may be used.
    Roots,
    /// A request of another method: of an extension, or of what client and server agreed on as
    /// experimental. Who knows nothing of it declines.
    Other,
}

impl QuestionKind {
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
    pub fn of(method: &str) -> Self {
        [Self::Elicitation, Self::Sampling, Self::Roots]
            .into_iter()
            .find(|kind| kind.method() == Some(method))
            .unwrap_or(Self::Other)
    }
}

/// What goes back for a [`Question`].
#[derive(Clone, Debug)]
pub enum Answer {
    /// The raw JSON of the result.
    Result(Bytes),
    /// The raw JSON of the error that whoever was asked gave instead.
    Error(Bytes),
    /// Nobody here can answer: elicitation is declined, the others get "method not found".
    Declined,
}

/// How an attempt ended. There is exactly one for each request that was sent.
#[derive(Debug)]
pub enum Ending {
    /// The server answered with a result or a JSON-RPC error.
    Answered(Reply),
    /// It did not, and this is what is known.
    Failed(Box<Failure>),
}

impl Ending {
    /// What is known of the request.
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
    /// The raw `result`.
    Result(Bytes),
    /// The raw `error` object.
    Error(Bytes),
}

/// What became of a request that was not answered. Only what was certainly not executed gives
/// the request back.
#[derive(Debug)]
pub enum Fate {
    /// The server cannot have received it.
    Unsent(Request),
    /// The server said that it did not act.
    Refused(Request),
    /// It may have been executed.
    Unknown,
}

impl Fate {
    /// The fate as a plain word.
    pub const fn delivery(&self) -> Delivery {
        match self {
            Self::Unsent(_) => Delivery::Unsent,
            Self::Refused(_) => Delivery::Refused,
            Self::Unknown => Delivery::Unknown,
        }
    }
}

/// Why there is no answer, and what is known all the same.
#[derive(Debug)]
pub struct Failure {
    /// What became of the request, and the request itself where it can be sent again.
    pub fate: Fate,
    /// What happened.
    pub trouble: Trouble,
}

impl Failure {
    /// What is known of the request.
    pub fn delivery(&self) -> Delivery {
        self.fate.delivery()
    }
}

/// What went wrong, in the terms of the error page: what, where, why, what to do.
///
/// Openings that fail carry it alone: no request of a caller was involved.
#[derive(Clone, Debug)]
pub struct Trouble {
    /// The stable name of the error.
    pub code: Code,
    /// The finer word beside it.
    pub reason: Reason,
    /// One line: what happened, with names and numbers.
    pub what: String,
    /// The cause as the other side put it, if it said anything.
    pub why: Option<String>,
    /// One thing to do, where the code's own advice is too general.
    pub hint: Option<String>,
    /// The form in which the server said that the session is gone.
    pub gone: Option<Dialect>,
    /// How long the server asked us to wait.
    pub retry_after: Option<Duration>,
}

impl Trouble {
    /// A trouble with the code that its reason belongs to.
    pub fn new(reason: Reason, what: impl Into<String>) -> Self {
        Self {
            code: reason.code(),
            reason,
            what: what.into(),
            why: None,
            hint: None,
            gone: None,
            retry_after: None,
        }
    }

    /// The same with the cause as the other side put it.
    #[must_use]
    pub fn because(mut self, why: impl Into<String>) -> Self {
        self.why = Some(why.into());
        self
    }

    /// The same with a hint of its own.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The same under another code than its reason's.
    #[must_use]
    pub fn coded(mut self, code: Code) -> Self {
        self.code = code;
        self
    }

    /// Ends an attempt whose request the server cannot have received.
    pub fn unsent(self, request: Request) -> Ending {
        Ending::Failed(Box::new(Failure {
            fate: Fate::Unsent(request),
            trouble: self,
        }))
    }

    /// Ends an attempt that the server said it did not act on.
    pub fn refused(self, request: Request) -> Ending {
        Ending::Failed(Box::new(Failure {
            fate: Fate::Refused(request),
            trouble: self,
        }))
    }

    /// Ends an attempt that may have been executed.
    pub fn unknown(self) -> Ending {
        Ending::Failed(Box::new(Failure {
            fate: Fate::Unknown,
            trouble: self,
        }))
    }
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for Trouble {}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever passes a client's words on passes the headers of its arguments on as well; nobody
    /// writes those that say what the protocol needs said.
    #[test]
    fn headers_of_arguments_are_those_of_a_client_alone() {
        let rows = [
            (Words::Ours, "mcp-param-x", 0),
            (Words::Passed, "mcp-param-x", 1),
            (Words::PassedWithHeaders, "mcp-param-x", 1),
            (Words::PassedWithHeaders, "mcp-session-id", 0),
            (Words::PassedWithHeaders, "mcp-name", 0),
            (Words::Ours, "x-trace", 1),
        ];
        for (words, name, expected) in rows {
            let request = Request::new("tools/call", Params::empty()).in_words(words);
            let value = HeaderValue::from_static("1");
            let request = request.header(HeaderName::from_static(name), value);
            assert_eq!(request.headers().len(), expected, "{words:?} {name}");
        }
    }
}
