//! "This session is gone", in every dialect that servers use.
//!
//! Asked by: [`status`](super::status), for every reply of a legacy server that is no answer.
//!
//! Why a table: the protocol says 404, but many servers say 400, 401 or 200 with a sentence. Who
//!   only knows 404 never recovers from a restarted server.
//! What is compared: the status, and the message of a JSON-RPC error or the first 1 KiB of any
//!   other body, without case. Never a result.
//! What is sure: a row that only a server which looked for a session and did not find it can
//!   write. Such a request was not executed. Wide rows are read only where an operator asked for
//!   it: the session is replaced, but the request may have been executed.

use bytes::Bytes;

use super::envelope::{Kind, Message, RpcError};
use crate::delivery::Delivery;

/// The form in which a server said that it does not know the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// 404, whatever the body says: what the protocol asks for.
    NotFound,
    /// 404 with "method not found" for our request, whose text names the session.
    NotFoundNamesSession,
    /// 410.
    Gone,
    /// 400 "No valid session ID".
    NoValidId,
    /// 400 "Invalid session", "Invalid or missing session ID", "invalid session ID: …".
    InvalidId,
    /// 400 "Session not found".
    BadRequestNotFound,
    /// 400 "Server not initialized": the server began anew.
    NotInitialized,
    /// 400 "the header is not supported in stateless mode": go on without an id.
    Stateless,
    /// 400 "Missing session ID" although we sent one: something on the way takes it out.
    Stripped,
    /// 401 "Unauthorized: Session not found", without a challenge.
    UnauthorizedNotFound,
    /// 401 "No valid session ID provided", with or without a challenge.
    UnauthorizedNoValidId,
    /// 500 "Session terminated before the request completed": gone while the request ran.
    EndedWhileRunning,
    /// 409 whose text says that the session is stale.
    Conflict,
    /// 503 whose text says that the session is unknown.
    Unavailable,
    /// 500 with a 400 of one of these rows wrapped in its text.
    Wrapped,
    /// 200 with an error that says nothing but "Session not found" or "Session terminated".
    InBand,
    /// `-32603` whose text says that the session is gone.
    Internal,
    /// A request without an id was told that it needs a session.
    NeedsSession,
    /// 403: the session belongs to another user.
    OtherUser,
    /// 400 "Server already initialized": the server holds one session, and somebody has it.
    SingleSession,
}

/// Whether a row is read always or only where an operator asked for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Breadth {
    /// Always.
    #[default]
    Sure,
    /// Only with `dialects = "wide"`.
    Wide,
}

/// What helps against a lost session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Remedy {
    /// Open a new one, without the old id.
    Reopen,
    /// The same, but only once: the next time it means what the status says.
    ReopenOnce,
    /// Forget the id and go on without a session.
    GoStateless,
    /// Open the first one; we had none.
    Open,
    /// None: another user's session must be dropped, and never happens by itself.
    DropSession,
    /// None: wait until the one session is free, or report it.
    Wait,
}

/// Whether our request carried a session id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SentSession {
    /// It did.
    WithId,
    /// It did not.
    WithoutId,
}

/// What a legacy server replied to a request.
#[derive(Clone, Copy, Debug)]
pub struct Reply<'a> {
    /// The HTTP status.
    pub status: u16,
    /// The body, as far as it was read.
    pub body: &'a [u8],
    /// The value of `WWW-Authenticate`.
    pub challenge: Option<&'a str>,
    /// Whether the request carried a session id.
    pub sent: SentSession,
    /// The id of the request.
    pub our_id: u64,
}

/// Reads whether a legacy server said that the session is gone, and how.
///
/// Wide rows are found too: ask [`Dialect::breadth`] before acting on one. Never ask for a modern
/// server, which has no session to lose.
pub fn read(reply: &Reply<'_>) -> Option<Dialect> {
    let said = Words::of(reply.body, reply.our_id)?;
    match reply.sent {
        SentSession::WithId => lost(reply, &said),
        SentSession::WithoutId => needed(reply.status, &said),
    }
}

/// Whether a server that was asked to end a session, and answered so, has nothing left to end: it
/// did, it knows no such session, or it lets nobody end one. Any other answer leaves the session
/// where it was.
pub const fn nothing_left_to_end(status: u16) -> bool {
    matches!(status, 200..=299 | 400 | 404 | 405 | 410 | 501)
}

impl Dialect {
    /// Every dialect.
    pub const ALL: [Self; 20] = [
        Self::NotFound,
        Self::NotFoundNamesSession,
        Self::Gone,
        Self::NoValidId,
        Self::InvalidId,
        Self::BadRequestNotFound,
        Self::NotInitialized,
        Self::Stateless,
        Self::Stripped,
        Self::UnauthorizedNotFound,
        Self::UnauthorizedNoValidId,
        Self::EndedWhileRunning,
        Self::Conflict,
        Self::Unavailable,
        Self::Wrapped,
        Self::InBand,
        Self::Internal,
        Self::NeedsSession,
        Self::OtherUser,
        Self::SingleSession,
    ];

    /// The word used in logs and evidence.
    pub const fn word(self) -> &'static str {
        match self {
            Self::NotFound => "not-found",
            Self::NotFoundNamesSession => "not-found-names-session",
            Self::Gone => "gone",
            Self::NoValidId => "no-valid-id",
            Self::InvalidId => "invalid-id",
            Self::BadRequestNotFound => "bad-request-not-found",
            Self::NotInitialized => "not-initialized",
            Self::Stateless => "stateless",
            Self::Stripped => "stripped",
            Self::UnauthorizedNotFound => "unauthorized-not-found",
            Self::UnauthorizedNoValidId => "unauthorized-no-valid-id",
            Self::EndedWhileRunning => "ended-while-running",
            Self::Conflict => "conflict",
            Self::Unavailable => "unavailable",
            Self::Wrapped => "wrapped",
            Self::InBand => "in-band",
            Self::Internal => "internal",
            Self::NeedsSession => "needs-session",
            Self::OtherUser => "other-user",
            Self::SingleSession => "single-session",
        }
    }

    /// Whether it is read always.
    pub const fn breadth(self) -> Breadth {
        match self {
            Self::Conflict | Self::Unavailable | Self::Wrapped | Self::InBand | Self::Internal => {
                Breadth::Wide
            },
            Self::NotFound
            | Self::NotFoundNamesSession
            | Self::Gone
            | Self::NoValidId
            | Self::InvalidId
            | Self::BadRequestNotFound
            | Self::NotInitialized
            | Self::Stateless
            | Self::Stripped
            | Self::UnauthorizedNotFound
            | Self::UnauthorizedNoValidId
            | Self::EndedWhileRunning
            | Self::NeedsSession
            | Self::OtherUser
            | Self::SingleSession => Breadth::Sure,
        }
    }

    /// What it says of the request that got it.
    pub const fn delivery(self) -> Delivery {
        match (self, self.breadth()) {
            (Self::EndedWhileRunning, _) | (_, Breadth::Wide) => Delivery::Unknown,
            (_, Breadth::Sure) => Delivery::Refused,
        }
    }

    /// What helps.
    pub const fn remedy(self) -> Remedy {
        match self {
            Self::Stateless => Remedy::GoStateless,
            Self::Stripped | Self::UnauthorizedNotFound | Self::UnauthorizedNoValidId => {
                Remedy::ReopenOnce
            },
            Self::NeedsSession => Remedy::Open,
            Self::OtherUser => Remedy::DropSession,
            Self::SingleSession => Remedy::Wait,
            Self::NotFound
            | Self::NotFoundNamesSession
            | Self::Gone
            | Self::NoValidId
            | Self::InvalidId
            | Self::BadRequestNotFound
            | Self::NotInitialized
            | Self::EndedWhileRunning
            | Self::Conflict
            | Self::Unavailable
            | Self::Wrapped
            | Self::InBand
            | Self::Internal => Remedy::Reopen,
        }
    }
}

impl std::fmt::Display for Dialect {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.word())
    }
}

/// What the body says, in lower case.
struct Words {
    text: String,
    code: Option<i64>,
    is_for_us: bool,
}

impl Words {
    /// Nothing, if the body is a result: results are never searched.
    fn of(body: &[u8], our_id: u64) -> Option<Self> {
        let Ok(message) = Message::split(Bytes::copy_from_slice(body)) else {
            return Some(Self::plain(body, None, false));
        };
        if message.kind() == Kind::Result {
            return None;
        }
        let is_for_us = message.is_response_to(our_id);
        let error = message.error().and_then(|raw| RpcError::parse(&raw).ok());
        Some(match error {
            Some(error) => Self::plain(error.message.as_bytes(), Some(error.code), is_for_us),
            None => Self::plain(body, None, is_for_us),
        })
    }

    fn plain(text: &[u8], code: Option<i64>, is_for_us: bool) -> Self {
        let head = text.get(..SEARCHED).unwrap_or(text);
        Self {
            text: String::from_utf8_lossy(head).to_lowercase(),
            code,
            is_for_us,
        }
    }

    fn has(&self, phrases: &[&str]) -> bool {
        phrases.iter().any(|phrase| self.text.contains(phrase))
    }

    fn is(&self, sentences: &[&str]) -> bool {
        let text = self.text.trim().trim_end_matches('.');
        sentences.contains(&text)
    }

    /// Whether a transport says it rather than a method: bare text, or a code that transports use.
    /// A tool may well have a parameter that it calls a session.
    const fn is_of_the_transport(&self) -> bool {
        matches!(self.code, None | Some(-32000 | -32001 | -32600))
    }

    fn is_method_not_found(&self) -> bool {
        self.code == Some(METHOD_NOT_FOUND) && self.is_for_us
    }
}

/// How much of a text is searched.
const SEARCHED: usize = 1024;
const METHOD_NOT_FOUND: i64 = -32601;
const INTERNAL_ERROR: i64 = -32603;

fn lost(reply: &Reply<'_>, said: &Words) -> Option<Dialect> {
    match reply.status {
        404 if !said.is_method_not_found() => Some(Dialect::NotFound),
        404 => said
            .has(&["session"])
            .then_some(Dialect::NotFoundNamesSession),
        410 => Some(Dialect::Gone),
        400 if said.is_of_the_transport() => bad_request(said),
        401 => unauthorized(reply.challenge, said),
        403 => said.has(OTHER_USER).then_some(Dialect::OtherUser),
        409 => said.has(GONE_WORDS).then_some(Dialect::Conflict),
        503 => said.has(GONE_WORDS).then_some(Dialect::Unavailable),
        500 => internal(said),
        200 => in_band(said),
        _ => None,
    }
}

fn needed(status: u16, said: &Words) -> Option<Dialect> {
    match status {
        400 if !said.is_of_the_transport() => None,
        400 if said.has(ALREADY) => Some(Dialect::SingleSession),
        400 if said.has(MISSING) || said.has(NEEDED) => Some(Dialect::NeedsSession),
        401 if said.has(&["unauthorized: session id is required"]) => Some(Dialect::NeedsSession),
        404 if said.has(&["invalid session id", "session terminated"]) => {
            Some(Dialect::NeedsSession)
        },
        422 if said.has(&["expect initialize request"]) => Some(Dialect::NeedsSession),
        200 if said.code == Some(0) && said.has(&["is invalid during session initialization"]) => {
            Some(Dialect::NeedsSession)
        },
        _ => None,
    }
}

#[rustfmt::skip]
const BAD_REQUEST: &[(&[&str], Dialect)] = &[
    (ALREADY,                                             Dialect::SingleSession),
    (&["not supported in stateless mode"],                Dialect::Stateless),
    (&["invalid or missing session id"],                  Dialect::InvalidId),
    (&["no valid session id"],                            Dialect::NoValidId),
    (&["session not found"],                              Dialect::BadRequestNotFound),
    (&["server not initialized"],                         Dialect::NotInitialized),
    (&["invalid session", "invalid or expired session", "unknown mcp-session-id",
       "session has been terminated", "session id not found", "no transport found for sessionid"],
                                                          Dialect::InvalidId),
    (MISSING,                                             Dialect::Stripped),
];

fn bad_request(said: &Words) -> Option<Dialect> {
    BAD_REQUEST
        .iter()
        .find(|(phrases, _)| said.has(phrases))
        .map(|(_, dialect)| *dialect)
}

fn unauthorized(challenge: Option<&str>, said: &Words) -> Option<Dialect> {
    let challenge = Words::plain(challenge.unwrap_or_default().as_bytes(), None, false);
    let has = |phrase: &[&str]| said.has(phrase) || challenge.has(phrase);
    if has(&["unauthorized: session not found"]) {
        return Some(Dialect::UnauthorizedNotFound);
    }
    has(&["unauthorized: no valid session id provided"]).then_some(Dialect::UnauthorizedNoValidId)
}

fn internal(said: &Words) -> Option<Dialect> {
    if said.has(&["session terminated before the request completed"]) {
        return Some(Dialect::EndedWhileRunning);
    }
    if said.has(&["(http 400)"]) && bad_request(said).is_some() {
        return Some(Dialect::Wrapped);
    }
    let names_it = said.code == Some(INTERNAL_ERROR) && said.has(GONE_WORDS);
    names_it.then_some(Dialect::Internal)
}

fn in_band(said: &Words) -> Option<Dialect> {
    match said.code? {
        INTERNAL_ERROR => said.has(GONE_WORDS).then_some(Dialect::Internal),
        -32600 | -32002 | -32001 | -32000 | 32600 => said
            .is(&["session not found", "session terminated"])
            .then_some(Dialect::InBand),
        _ => None,
    }
}

const ALREADY: &[&str] = &["server already initialized"];

/// What a server says that wants an id and got none.
const MISSING: &[&str] = &[
    "missing session id",
    "session id required",
    "session id is required",
    "mcp-session-id header is required",
    "missing mcp-session-id",
];

/// What a server says besides to a request outside a session.
const NEEDED: &[&str] = &[
    "invalid or missing session id",
    "no valid session id",
    "invalid session id",
    "server not initialized",
    "can only be created by an initialize request",
];

/// What only a server says that looked for a session and did not find it. A full server that
/// counts its sessions ("too many open sessions") must not match.
const GONE_WORDS: &[&str] = &[
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

const OTHER_USER: &[&str] = &["session user mismatch", "does not match the user"];

#[cfg(test)]
mod tests;
