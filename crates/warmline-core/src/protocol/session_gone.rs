//! The forms in which servers say that a session is gone.
//!
//! The protocol says 404, but many servers say 400, 401 or 200 with a sentence: a client that knows
//! only 404 never recovers from a restarted server. Compared are the status, and the message of a
//! JSON-RPC error or the first 1 KiB of any other body, without case. A result is never searched.
//!
//! A sure row is one that only a server writes which looked for a session and did not find it. Such
//! a request was not executed. Wide rows count only with `dialects = "wide"`: the session is
//! replaced, but the request may have been executed.

use bytes::Bytes;

use crate::delivery::Delivery;
use crate::message::envelope::{Message, MessageKind, RpcError};
use crate::word_enum::word_enum;

word_enum! {
    /// Whether a row counts always or only where the operator wants it.
    pub enum SessionGoneMatching: default Sure {
        /// Always.
        Sure = "sure",
        /// Only with `dialects = "wide"`.
        Wide = "wide",
    }
}

/// What helps against a lost session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SessionGoneRemedy {
    /// Open a new one, without the old id.
    Reopen,
    /// The same, but only once: the next time it means what the status says.
    ReopenOnce,
    /// Forget the id and go on without a session.
    GoStateless,
    /// Open the first one; the request had none.
    Open,
    /// None: another user's session must be dropped, and never happens by itself.
    DropSession,
    /// None: wait until the one session is free, or report it.
    Wait,
}

/// What a legacy server replied to a request.
#[derive(Clone, Copy, Debug)]
pub struct LegacyReply<'a> {
    pub status: u16,
    /// The body, as far as it was read.
    pub body: &'a [u8],
    /// The value of `WWW-Authenticate`.
    pub challenge: Option<&'a str>,
    pub has_session_id: bool,
    pub request_id: u64,
}

/// Each row: its meaning, variant, word (also the metric label), whether it counts always, what
/// helps, and the replies that match. The first row that matches a reply counts.
macro_rules! session_gone_forms {
    ($($(#[doc = $doc:literal])+ $variant:ident = $word:literal, $matching:ident, $remedy:ident,
        |$reply:ident| $rule:expr;)+) => {
        word_enum! {
            /// The form in which a server says that it does not know the session.
            pub enum SessionGoneForm { $($(#[doc = $doc])+ $variant = $word),+ }
        }

        impl SessionGoneForm {
            /// Whether it counts always.
            pub const fn matching(self) -> SessionGoneMatching {
                match self {
                    $(Self::$variant => SessionGoneMatching::$matching),+
                }
            }

            /// What helps.
            pub const fn remedy(self) -> SessionGoneRemedy {
                match self {
                    $(Self::$variant => SessionGoneRemedy::$remedy),+
                }
            }

            fn matches(self, reply: &ReplyText<'_>) -> bool {
                match self {
                    $(Self::$variant => { let $reply = reply; $rule },)+
                }
            }
        }
    };
}

session_gone_forms! {
    /// 404, whatever the body says: what the protocol asks for.
    NotFound = "not-found", Sure, Reopen,
        |reply| reply.with_id(404) && !reply.is_method_not_found();
    /// 404 with "method not found" for our request, whose text names the session.
    NotFoundNamesSession = "not-found-names-session", Sure, Reopen,
        |reply| reply.with_id(404) && reply.is_method_not_found() && reply.says(&["session"]);
    /// 410.
    Gone = "gone", Sure, Reopen, |reply| reply.with_id(410);
    /// 400 "Server already initialized": the server holds one session, and it is taken.
    SingleSession = "single-session", Sure, Wait,
        |reply| reply.is_bad_request() && reply.says(&["server already initialized"]);
    /// 400 "the header is not supported in stateless mode": go on without an id.
    Stateless = "stateless", Sure, GoStateless,
        |reply| reply.is_bad_request_with_id() && reply.says(&["not supported in stateless mode"]);
    /// 400 "No valid session ID".
    NoValidId = "no-valid-id", Sure, Reopen,
        |reply| reply.is_bad_request_with_id() && reply.says(&["no valid session id"]);
    /// 400 "Session not found".
    BadRequestNotFound = "bad-request-not-found", Sure, Reopen,
        |reply| reply.is_bad_request_with_id() && reply.says(&["session not found"]);
    /// 400 "Server not initialized": the server was restarted.
    NotInitialized = "not-initialized", Sure, Reopen,
        |reply| reply.is_bad_request_with_id() && reply.says(&["server not initialized"]);
    /// 400 "Invalid session", "Invalid or missing session ID", "invalid session ID: …".
    InvalidId = "invalid-id", Sure, Reopen,
        |reply| reply.is_bad_request_with_id() && reply.says(&[
            "invalid or missing session id", "invalid session", "invalid or expired session",
            "unknown mcp-session-id", "session has been terminated", "session id not found",
            "no transport found for sessionid",
        ]);
    /// 400 "Missing session ID" although one was sent: something on the way removes it.
    HeaderStripped = "stripped", Sure, ReopenOnce,
        |reply| reply.is_bad_request_with_id() && reply.says(MISSING_ID_PHRASES);
    /// 401 "Unauthorized: Session not found", in the body or the challenge.
    UnauthorizedNotFound = "unauthorized-not-found", Sure, ReopenOnce,
        |reply| reply.with_id(401) && reply.says_anywhere("unauthorized: session not found");
    /// 401 "Unauthorized: No valid session ID provided", in the body or the challenge.
    UnauthorizedNoValidId = "unauthorized-no-valid-id", Sure, ReopenOnce,
        |reply| reply.with_id(401) && reply.says_anywhere("unauthorized: no valid session id provided");
    /// 500 "Session terminated before the request completed": gone while the request ran.
    EndedWhileRunning = "ended-while-running", Sure, Reopen,
        |reply| reply.with_id(500) && reply.says(&["session terminated before the request completed"]);
    /// 409 whose text says that the session is stale.
    Conflict = "conflict", Wide, Reopen,
        |reply| reply.with_id(409) && reply.says(SESSION_GONE_PHRASES);
    /// 503 whose text says that the session is unknown.
    Unavailable = "unavailable", Wide, Reopen,
        |reply| reply.with_id(503) && reply.says(SESSION_GONE_PHRASES);
    /// 500 with a 400 of one of these rows wrapped in its text.
    Wrapped = "wrapped", Wide, Reopen,
        |reply| reply.with_id(500) && reply.says(&["(http 400)"]) && reply.wraps_bad_request();
    /// 200 with an error that says nothing but "Session not found" or "Session terminated".
    InBand = "in-band", Wide, Reopen,
        |reply| reply.with_id(200)
            && matches!(reply.code, Some(-32600 | -32002 | -32001 | -32000 | 32600))
            && matches!(reply.text.trim().trim_end_matches('.'), "session not found" | "session terminated");
    /// `-32603` whose text says that the session is gone.
    Internal = "internal", Wide, Reopen,
        |reply| (reply.with_id(200) || reply.with_id(500))
            && reply.code == Some(INTERNAL_ERROR) && reply.says(SESSION_GONE_PHRASES);
    /// A request without an id, and the server asks for a session.
    NeedsSession = "needs-session", Sure, Open, |reply| reply.asks_for_session();
    /// 403: the session belongs to another user.
    OtherUser = "other-user", Sure, DropSession,
        |reply| reply.with_id(403) && reply.says(&["session user mismatch", "does not match the user"]);
}

/// Reads whether a legacy server said that the session is gone, and how.
///
/// Wide rows are found too: check [`SessionGoneForm::matching`] before acting on one. Not for a
/// modern server, which has no session to lose.
pub fn find_session_gone(reply: &LegacyReply<'_>) -> Option<SessionGoneForm> {
    let (text, code, is_for_request) = error_text(reply.body, reply.request_id)?;
    let challenge = lowercase_head(reply.challenge.unwrap_or_default().as_bytes());
    let reply = ReplyText {
        status: reply.status,
        has_session_id: reply.has_session_id,
        text: &text,
        challenge: &challenge,
        code,
        is_for_request,
    };
    SessionGoneForm::ALL
        .into_iter()
        .find(|form| form.matches(&reply))
}

/// Whether a reply to DELETE leaves no session to end: the server ended it, knows no such session,
/// or lets no client end one.
pub const fn is_session_deleted(status: u16) -> bool {
    matches!(status, 200..=299 | 400 | 404 | 405 | 410 | 501)
}

impl SessionGoneForm {
    /// What it says of the request that got it.
    pub const fn delivery(self) -> Delivery {
        match (self, self.matching()) {
            (Self::EndedWhileRunning, _) | (_, SessionGoneMatching::Wide) => Delivery::Unknown,
            (_, SessionGoneMatching::Sure) => Delivery::Refused,
        }
    }
}

/// What the rows look at. The texts are in lower case.
#[derive(Clone, Copy)]
struct ReplyText<'a> {
    status: u16,
    has_session_id: bool,
    text: &'a str,
    challenge: &'a str,
    code: Option<i64>,
    is_for_request: bool,
}

impl ReplyText<'_> {
    fn with_id(&self, status: u16) -> bool {
        self.has_session_id && self.status == status
    }

    /// A 400 of a transport rather than of a method: bare text, or a code that transports use. A
    /// tool may well have a parameter that it calls a session.
    const fn is_bad_request(&self) -> bool {
        self.status == 400 && matches!(self.code, None | Some(-32000 | -32001 | -32600))
    }

    fn is_bad_request_with_id(&self) -> bool {
        self.is_bad_request() && self.has_session_id
    }

    fn is_method_not_found(&self) -> bool {
        self.code == Some(METHOD_NOT_FOUND) && self.is_for_request
    }

    fn says(&self, phrases: &[&str]) -> bool {
        phrases.iter().any(|phrase| self.text.contains(phrase))
    }

    fn says_anywhere(&self, phrase: &str) -> bool {
        self.text.contains(phrase) || self.challenge.contains(phrase)
    }

    /// Whether the text would match a row as the body of a bare 400.
    fn wraps_bad_request(&self) -> bool {
        let wrapped = Self {
            status: 400,
            code: None,
            ..*self
        };
        SessionGoneForm::ALL
            .into_iter()
            .any(|form| form.matches(&wrapped))
    }

    fn asks_for_session(&self) -> bool {
        if self.has_session_id {
            return false;
        }
        match self.status {
            400 => {
                self.is_bad_request()
                    && (self.says(MISSING_ID_PHRASES) || self.says(SESSION_REQUIRED_PHRASES))
            },
            401 => self.says(&["unauthorized: session id is required"]),
            404 => self.says(&["invalid session id", "session terminated"]),
            422 => self.says(&["expect initialize request"]),
            200 => self.code == Some(0) && self.says(&["is invalid during session initialization"]),
            _ => false,
        }
    }
}

/// The text to search, the code of a JSON-RPC error, and whether it names the request. None for a
/// result, which is never searched.
fn error_text(body: &[u8], request_id: u64) -> Option<(String, Option<i64>, bool)> {
    let Ok(message) = Message::parse(Bytes::copy_from_slice(body)) else {
        return Some((lowercase_head(body), None, false));
    };
    if message.kind() == MessageKind::Result {
        return None;
    }
    let is_for_request = message.is_response_to(request_id);
    let error = message.error().and_then(|raw| RpcError::parse(&raw).ok());
    Some(match error {
        Some(error) => {
            let text = lowercase_head(error.message.as_bytes());
            (text, Some(error.code), is_for_request)
        },
        None => (lowercase_head(body), None, is_for_request),
    })
}

fn lowercase_head(text: &[u8]) -> String {
    let head = text.get(..MAX_SEARCHED_BYTES).unwrap_or(text);
    String::from_utf8_lossy(head).to_lowercase()
}

const MAX_SEARCHED_BYTES: usize = 1024;
const METHOD_NOT_FOUND: i64 = -32601;
const INTERNAL_ERROR: i64 = -32603;

/// From a server that wants an id and got none.
const MISSING_ID_PHRASES: &[&str] = &[
    "missing session id",
    "session id required",
    "session id is required",
    "mcp-session-id header is required",
    "missing mcp-session-id",
];

/// Further replies to a request outside a session.
const SESSION_REQUIRED_PHRASES: &[&str] = &[
    "invalid or missing session id",
    "no valid session id",
    "invalid session id",
    "server not initialized",
    "can only be created by an initialize request",
];

/// Only from a server that looked for a session and did not find it. A full server that counts its
/// sessions ("too many open sessions") must not match.
const SESSION_GONE_PHRASES: &[&str] = &[
    "session not found",
    "session terminated",
    "session has been terminated",
    "session expired",
    "session has expired",
    "session does not exist",
    "unknown session",
    "stale session",
    "expired session",
    "invalid session",
    "no valid session id",
    "session is stale",
];

#[cfg(test)]
mod tests;
