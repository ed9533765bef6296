//! What an HTTP status, with its body, says of the request that got it.
//!
//! Asked by: the HTTP drivers, once a reply is complete that is no event stream.
//!
//! One function decides. What does not stand in its rows is [`Meaning::Unknown`]: a request that
//! may have been executed is never called refused.

use bytes::Bytes;

use super::envelope::{Id, Kind, Message, RpcError};
use super::gone::{self, Breadth, Dialect, Reply, SentSession};
use crate::code::Reason;
use crate::era::Era;

/// What is known of a reply to the POST of a request.
#[derive(Clone, Debug)]
pub struct StatusFacts<'a> {
    /// The HTTP status.
    pub status: u16,
    /// The era we spoke.
    pub era: Era,
    /// Whether the request carried a session id.
    pub sent: SentSession,
    /// The id of the request.
    pub our_id: u64,
    /// The body.
    pub body: Body<'a>,
    /// The value of `WWW-Authenticate`.
    pub challenge: Option<&'a str>,
    /// Which dialects of "session gone" count.
    pub dialects: Breadth,
    /// Whether an answer could still come on a stream that stands open.
    pub standing: Standing,
}

/// The body of a reply.
#[derive(Clone, Copy, Debug)]
pub enum Body<'a> {
    /// All of it.
    Whole(&'a Bytes),
    /// It was cut before its end.
    Cut,
    /// It was longer than allowed.
    TooLarge,
}

/// Whether an answer could come on another stream of the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Standing {
    /// A stream for messages of the server stands open.
    Open,
    /// There is none.
    None,
}

/// What the reply says of the request.
#[derive(Clone, Debug)]
pub enum Meaning {
    /// It is the answer.
    Answer(Message),
    /// The answer comes on the standing stream.
    Wait,
    /// The server did not act.
    Refused {
        /// Why.
        reason: Reason,
        /// The form in which it said that the session is gone.
        gone: Option<Dialect>,
    },
    /// The server may have acted.
    Unknown {
        /// Why there is no answer.
        reason: Reason,
        /// The form in which it said that the session is gone.
        gone: Option<Dialect>,
    },
}

/// Reads what a reply says of the request that got it.
pub fn read_status(facts: &StatusFacts<'_>) -> Meaning {
    let body = match facts.body {
        Body::Whole(bytes) => bytes.clone(),
        Body::Cut | Body::TooLarge => return without_body(facts),
    };
    let answer = Answer::of(&body, facts.our_id);
    let is_result = |answer: &Answer| answer.message.kind() == Kind::Result;
    // A result is never searched for words; it is also by far the most frequent reply.
    if !answer.as_ref().is_some_and(is_result)
        && let Some(meaning) = told_gone(facts, &body)
    {
        return meaning;
    }
    if (200..300).contains(&facts.status) {
        return success(facts, answer);
    }
    match answer {
        Some(answer) if answer.is_final(facts) => Meaning::Answer(answer.message),
        Some(answer) => answer
            .refusal(facts.status)
            .unwrap_or_else(|| by_status(facts.status)),
        None => by_status(facts.status),
    }
}

/// A body that is a JSON-RPC response.
struct Answer {
    message: Message,
    addressee: Addressee,
    code: Option<i64>,
}

/// Whom a response is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Addressee {
    Us,
    /// It names no request. Over HTTP it belongs to the request it answers.
    Nobody,
    SomebodyElse,
}

impl Answer {
    fn of(body: &Bytes, our_id: u64) -> Option<Self> {
        let message = Message::split(body.clone()).ok()?;
        if !matches!(message.kind(), Kind::Result | Kind::Error) {
            return None;
        }
        let addressee = match message.id() {
            Some(id) if id.is_number(our_id) => Addressee::Us,
            None | Some(Id::Null) => Addressee::Nobody,
            // What older Python servers write when they did not read the id.
            Some(Id::Text(text)) if text == "server-error" => Addressee::Nobody,
            Some(_) => Addressee::SomebodyElse,
        };
        let code = message
            .error()
            .and_then(|raw| RpcError::parse(&raw).ok())
            .map(|e| e.code);
        Some(Self {
            message,
            addressee,
            code,
        })
    }

    /// Whether an answer under an error status is the server's word on our request.
    fn is_final(&self, facts: &StatusFacts<'_>) -> bool {
        let ours = self.addressee == Addressee::Us;
        let ours_or_nobody = self.addressee != Addressee::SomebodyElse;
        match (facts.status, self.code) {
            // Refusals by their status, whatever the body says.
            (401 | 407 | 421 | 425 | 429, _) => false,
            (400, Some(-32700 | -32600 | -32022 | -32020)) => false,
            (400, Some(-32021 | -32602)) => ours_or_nobody,
            (404, Some(-32601)) => ours_or_nobody,
            (400..=599, _) => ours,
            _ => false,
        }
    }

    /// What an error that is no answer says besides its status.
    fn refusal(&self, status: u16) -> Option<Meaning> {
        match (status, self.code?) {
            _ if self.addressee == Addressee::SomebodyElse => None,
            (400, -32022) => Some(refused(Reason::Version)),
            (400, -32020) => Some(refused(Reason::HeaderMismatch)),
            _ => None,
        }
    }
}

/// The rows of "session gone". A modern server has no session to lose.
fn told_gone(facts: &StatusFacts<'_>, body: &Bytes) -> Option<Meaning> {
    if facts.era == Era::Modern {
        return None;
    }
    let reply = Reply {
        status: facts.status,
        body,
        challenge: facts.challenge,
        sent: facts.sent,
        our_id: facts.our_id,
    };
    let dialect = gone::read(&reply).filter(|dialect| dialect.breadth() <= facts.dialects)?;
    let reason = if dialect == Dialect::OtherUser {
        Reason::SessionMismatch
    } else if dialect == Dialect::SingleSession {
        Reason::SingleSession
    } else if dialect == Dialect::EndedWhileRunning {
        Reason::ServerError
    } else {
        Reason::SessionGone
    };
    let gone = Some(dialect);
    Some(if dialect.delivery().is_safe() {
        Meaning::Refused { reason, gone }
    } else {
        Meaning::Unknown { reason, gone }
    })
}

fn success(facts: &StatusFacts<'_>, answer: Option<Answer>) -> Meaning {
    match (facts.status, answer) {
        (_, Some(answer)) if answer.addressee != Addressee::SomebodyElse => {
            Meaning::Answer(answer.message)
        },
        (202, None) if facts.era == Era::Legacy && facts.standing == Standing::Open => {
            Meaning::Wait
        },
        (202, None) => unknown(Reason::NoReplyChannel),
        _ => unknown(Reason::BadReply),
    }
}

/// A body we do not have can say nothing; only statuses that refuse by themselves still do.
fn without_body(facts: &StatusFacts<'_>) -> Meaning {
    match (facts.status, facts.body) {
        (200..=299, Body::TooLarge) => unknown(Reason::ReplyTooLarge),
        (200..=299, _) => unknown(Reason::ReplyLost),
        _ => told_gone(facts, &Bytes::new()).unwrap_or_else(|| by_status(facts.status)),
    }
}

/// The rows that a status decides alone.
const fn by_status(status: u16) -> Meaning {
    match status {
        307 | 308 => refused(Reason::Redirect),
        300..=399 => unknown(Reason::Redirect),
        401 => refused(Reason::Unauthorized),
        403 => refused(Reason::Forbidden),
        404 | 410 => refused(Reason::NotFound),
        407 => refused(Reason::Proxy),
        // A server that gave up waiting, or a gateway that did: the second may have passed it on.
        408 => unknown(Reason::Timeout),
        409 => unknown(Reason::Conflict),
        411 | 413 | 414 | 431 => refused(Reason::TooLarge),
        425 => refused(Reason::TooEarly),
        429 => refused(Reason::RateLimited),
        400 | 405 | 406 | 415 | 417 | 421 | 422 | 426 | 428 | 451 | 501 | 505 => {
            refused(Reason::Rejected)
        },
        400..=499 => unknown(Reason::RejectedUnclear),
        502 | 504 | 520..=527 | 530 => unknown(Reason::GatewayError),
        503 => unknown(Reason::Unavailable),
        500..=599 => unknown(Reason::ServerError),
        _ => unknown(Reason::BadReply),
    }
}

const fn refused(reason: Reason) -> Meaning {
    Meaning::Refused { reason, gone: None }
}

const fn unknown(reason: Reason) -> Meaning {
    Meaning::Unknown { reason, gone: None }
}

#[cfg(test)]
mod tests;
