//! Faults on command: what the ledger server is told to do wrong, and to which requests.
//!
//! A [`FaultRule`] names the requests and how many of them; the first rule that fits a request is
//! applied, once. Rules are JSON as well, for the program's command line and control path:
//!
//! ```
//! # use warmline_testkit::{Fault, FaultRule, FaultTiming};
//! let by_hand = FaultRule::new(Fault::Silence(FaultTiming::AfterExecuting)).on_tool("pay");
//! let as_json = r#"{"fault":{"silence":"after-executing"},"tool":"pay"}"#;
//! # let read: FaultRule = serde_json::from_str(as_json).unwrap();
//! # assert_eq!(format!("{read:?}"), format!("{by_hand:?}"));
//! ```

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::server::message::MessageKind;

/// One thing done wrong. What has no meaning on a transport is ignored there.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Fault {
    /// Every session is forgotten, then the request is treated as usual.
    ForgetSessions,
    /// Refused in the words of this row of the dialects, whatever the session.
    Dialect(String),
    /// These bytes instead of the reply.
    Reply(CannedReply),
    /// This JSON-RPC error, for the request's id. Nothing is executed.
    Error {
        /// Its code.
        code: i64,
        /// Its message.
        message: String,
        /// Its data; null for none.
        #[serde(default)]
        data: Value,
    },
    /// This result. Nothing is executed.
    Result(Value),
    /// The connection ends: at this place, in this way. On stdio stdout is closed.
    Cut(CutPoint, ConnectionEnd),
    /// Nothing is said, and the connection stays open.
    Silence(FaultTiming),
    /// The reply waits so many milliseconds.
    Delay(u64, FaultTiming),
    /// The process ends (in process: the server stops and every connection is closed).
    Crash(FaultTiming),
    /// A good reply is spoilt.
    #[serde(rename = "spoil")]
    CorruptReply(ReplyCorruption),
    /// So many notifications come before the reply.
    Flood(u32),
    /// The reply holds so many bytes, well formed.
    #[serde(rename = "giant")]
    GiantReply(usize),
    /// A header of so many bytes comes with the reply.
    GiantHeader(usize),
    /// The reply is a stream of comments and notifications that never ends.
    EndlessStream,
    /// The reply is a body that never ends.
    EndlessBody,
    /// `initialize` hands out this session id; bytes are written as they are (Latin-1).
    SessionId(String),
    /// `initialize` hands out a session id of so many bytes.
    GiantSessionId(usize),
    /// `initialize` answers with this version.
    Version(String),
    /// The list's pages never end: the cursor comes round again.
    CursorLoop,
    /// The list has so many tools more.
    ManyTools(usize),
}

/// Before or after the effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultTiming {
    /// Nothing was done.
    BeforeExecuting,
    /// It is done and in the ledger.
    AfterExecuting,
}

/// Where a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CutPoint {
    /// The request was read, nothing was done.
    BeforeExecuting,
    /// It is done, no byte of the reply was written.
    AfterExecuting,
    /// It is done, half of the reply's head was written.
    InHead,
    /// It is done, the whole head was written and nothing else.
    AfterHead,
    /// It is done, so many bytes of the body were written.
    InBody(usize),
    /// So many events of the stream were written (the first empty one does not count).
    AfterEvents(usize),
}

/// How a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ConnectionEnd {
    /// The reply is ended as if it were whole (an early end of a stream); the connection lives.
    Clean,
    /// FIN.
    Fin,
    /// RST.
    Rst,
}

/// How a good reply is spoilt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ReplyCorruption {
    /// It has this id.
    Id(Value),
    /// Its id is the text of the number that was sent.
    #[serde(rename = "string-twin")]
    IdAsString,
    /// Its id is the number that was sent, plus one half.
    #[serde(rename = "float-twin")]
    FractionalId,
    /// It has no id.
    NoId,
    /// It has the id of another call in flight; its own if there is none.
    #[serde(rename = "other-call")]
    OtherCallId,
    /// It comes twice.
    #[serde(rename = "twice")]
    Duplicate,
    /// A reply to an id that nobody sent comes first.
    #[serde(rename = "stranger-first")]
    UnknownIdFirst,
    /// The reply to the next id comes first, before that request was sent.
    #[serde(rename = "next-first")]
    NextIdFirst,
    /// It has both a result and an error.
    ResultAndError,
    /// A member stands twice.
    DuplicateMember,
    /// Its second half is missing, though the transport says it is whole.
    Truncated,
    /// It holds bytes that are not UTF-8.
    InvalidUtf8,
    /// It holds one half of a surrogate pair, escaped: valid JSON that is no text.
    LoneSurrogate,
    /// It is an array with the response in it.
    Batch,
    /// Such lines come first (stdio), or such an event (stream).
    GarbageFirst(String),
    /// It is nested so deeply.
    Depth(usize),
    /// Its `resultType` is this.
    ResultType(String),
}

/// A reply written as it stands.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
#[non_exhaustive]
pub struct CannedReply {
    /// HTTP status; 0: `body` is written raw, head and all.
    pub status: u16,
    /// Headers besides `Content-Length`.
    pub headers: Vec<(String, String)>,
    /// The body, with `$ID` and `$SESSION` to be filled.
    pub body: String,
    /// Whether the request is executed first.
    #[serde(rename = "executes")]
    pub execute_first: ExecuteFirst,
    /// So many bytes of the body are written, then the connection ends; none: all of it.
    #[serde(rename = "cut")]
    pub cut_after: Option<usize>,
    /// What becomes of the connection.
    #[serde(rename = "then")]
    pub after_reply: AfterReply,
}

/// What becomes of a connection after a canned reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AfterReply {
    /// It lives on after a whole reply, and ends after raw or cut ones.
    #[default]
    AsUsual,
    /// FIN.
    Finish,
    /// RST.
    Reset,
    /// It stays open and silent.
    Hold,
}

/// Whether a request is executed before its canned reply is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExecuteFirst {
    /// It is not.
    #[default]
    No,
    /// It is.
    Yes,
}

/// A fault and the requests it is for. By default: the next JSON-RPC request, whatever it asks.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct FaultRule {
    fault: Fault,
    #[serde(default)]
    method: Option<String>,
    #[serde(default)]
    tool: Option<String>,
    #[serde(default)]
    skip: u32,
    #[serde(default = "once")]
    times: Option<u32>,
}

impl FaultRule {
    /// The fault, for the next request.
    pub fn new(fault: Fault) -> Self {
        Self {
            fault,
            method: None,
            tool: None,
            skip: 0,
            times: once(),
        }
    }

    /// Only for this method (`GET` and `DELETE` count as methods).
    #[must_use]
    pub fn on_method(mut self, method: &str) -> Self {
        self.method = Some(method.to_owned());
        self
    }

    /// Only for calls of this tool.
    #[must_use]
    pub fn on_tool(mut self, tool: &str) -> Self {
        self.tool = Some(tool.to_owned());
        self
    }

    /// Only after so many that fit have passed unharmed.
    #[must_use]
    pub fn skip(mut self, passed: u32) -> Self {
        self.skip = passed;
        self
    }

    /// For so many.
    #[must_use]
    pub fn times(mut self, times: u32) -> Self {
        self.times = Some(times);
        self
    }

    /// For all, until the rules are cleared.
    #[must_use]
    pub fn always(mut self) -> Self {
        self.times = None;
        self
    }

    /// A rule that names no method is for requests; notices, answers, GET and DELETE pass.
    fn matches(&self, method: &str, tool: Option<&str>, kind: MessageKind) -> bool {
        self.method
            .as_deref()
            .map_or(kind == MessageKind::Request, |wanted| wanted == method)
            && self
                .tool
                .as_deref()
                .is_none_or(|wanted| Some(wanted) == tool)
    }
}

impl CannedReply {
    /// This status with this body.
    pub fn new(status: u16, body: &str) -> Self {
        Self {
            status,
            body: body.to_owned(),
            ..Self::default()
        }
    }

    /// Exactly these bytes, head and all; the connection ends after them.
    pub fn raw(bytes: &str) -> Self {
        Self {
            status: 0,
            body: bytes.to_owned(),
            ..Self::default()
        }
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The body is JSON.
    #[must_use]
    pub fn json(self) -> Self {
        self.header("Content-Type", "application/json")
    }

    /// Sends the client elsewhere.
    pub fn redirect(status: u16, to: &str) -> Self {
        Self::new(status, "").header("Location", to)
    }

    /// Sets what becomes of the connection.
    #[must_use]
    pub fn after_reply(mut self, then: AfterReply) -> Self {
        self.after_reply = then;
        self
    }

    /// The request is executed first.
    #[must_use]
    pub fn execute_first(mut self) -> Self {
        self.execute_first = ExecuteFirst::Yes;
        self
    }

    /// The body ends after so many bytes, though its length says otherwise.
    #[must_use]
    pub fn cut_at(mut self, bytes: usize) -> Self {
        self.cut_after = Some(bytes);
        self
    }
}

/// Rules in the order they were given.
#[derive(Debug, Default)]
pub(crate) struct FaultRules {
    rules: Vec<FaultRule>,
    applied: u64,
}

impl FaultRules {
    pub(crate) fn add(&mut self, rule: FaultRule) {
        self.rules.push(rule);
    }

    pub(crate) fn clear(&mut self) {
        self.rules.clear();
    }

    pub(crate) fn applied(&self) -> u64 {
        self.applied
    }

    /// The fault for this request, if a rule has one; rules that are used up disappear.
    pub(crate) fn take_fault(
        &mut self,
        method: &str,
        tool: Option<&str>,
        kind: MessageKind,
    ) -> Option<Fault> {
        let place = self
            .rules
            .iter()
            .position(|rule| rule.matches(method, tool, kind))?;
        let rule = self.rules.get_mut(place)?;
        if rule.skip > 0 {
            rule.skip -= 1;
            return None;
        }
        let fault = rule.fault.clone();
        if let Some(times) = &mut rule.times {
            *times = times.saturating_sub(1);
            if *times == 0 {
                self.rules.remove(place);
            }
        }
        self.applied += 1;
        Some(fault)
    }
}

#[expect(
    clippy::unnecessary_wraps,
    reason = "the default of a field that is an option"
)]
fn once() -> Option<u32> {
    Some(1)
}
