//! What an HTTP status, with its body, says about the request.
//!
//! What no row covers is not refused: a request that may have been executed is never
//! called refused.

use bytes::Bytes;

use super::session_gone::{self, LegacyReply, SessionGoneForm, SessionGoneMatching};
use crate::era::Era;
use crate::error::code::Reason;
use crate::message::envelope::{Message, MessageKind, RequestId, RpcError};

/// A reply to the POST of a request.
#[derive(Clone, Debug)]
pub struct HttpReplyFacts<'a> {
    pub status: u16,
    pub era: Era,
    pub has_session_id: bool,
    pub request_id: u64,
    pub body: ReplyBody<'a>,
    /// The value of `WWW-Authenticate`.
    pub challenge: Option<&'a str>,
    /// Which forms of "session gone" count.
    pub matching: SessionGoneMatching,
}

/// The body of a reply.
#[derive(Clone, Copy, Debug)]
pub enum ReplyBody<'a> {
    Complete(&'a Bytes),
    /// It was cut before its end.
    Truncated,
    /// It was longer than allowed.
    TooLarge,
}

/// What a reply that is not the response says about the request.
#[derive(Clone, Copy, Debug)]
pub struct ReplyFailure {
    /// Whether the server did not act; else it may have acted.
    pub is_refused: bool,
    pub reason: Reason,
    pub session_gone: Option<SessionGoneForm>,
}

/// The response, or what the reply says about its request.
pub fn classify_reply(facts: &HttpReplyFacts<'_>) -> Result<Message, ReplyFailure> {
    let body = match facts.body {
        ReplyBody::Complete(bytes) => bytes.clone(),
        ReplyBody::Truncated | ReplyBody::TooLarge => return Err(failure_without_body(facts)),
    };
    let answer = ParsedResponse::parse(&body, facts.request_id);
    let is_result = |answer: &ParsedResponse| answer.message.kind() == MessageKind::Result;
    // A result is never searched; it is also by far the most frequent reply.
    if !answer.as_ref().is_some_and(is_result)
        && let Some(failure) = session_gone_failure(facts, &body)
    {
        return Err(failure);
    }
    let is_success = (200..300).contains(&facts.status);
    match answer {
        Some(answer) if is_success && answer.addressee != Addressee::OtherRequest => {
            Ok(answer.message)
        },
        Some(answer) if !is_success && answer.is_final(facts) => Ok(answer.message),
        None if facts.status == 202 => Err(unknown(Reason::NoReplyChannel)),
        Some(_) | None if is_success => Err(unknown(Reason::BadReply)),
        Some(answer) => Err(answer
            .refusal(facts.status)
            .unwrap_or_else(|| failure_of_status(facts.status))),
        None => Err(failure_of_status(facts.status)),
    }
}

struct ParsedResponse {
    message: Message,
    addressee: Addressee,
    code: Option<i64>,
}

/// The request that a response is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Addressee {
    ThisRequest,
    /// It names no request. Over HTTP it belongs to the request it answers.
    Unaddressed,
    OtherRequest,
}

impl ParsedResponse {
    fn parse(body: &Bytes, our_id: u64) -> Option<Self> {
        let message = Message::parse(body.clone()).ok()?;
        if !matches!(message.kind(), MessageKind::Result | MessageKind::Error) {
            return None;
        }
        let addressee = match message.id() {
            Some(id) if id.is_number(our_id) => Addressee::ThisRequest,
            None | Some(RequestId::Null) => Addressee::Unaddressed,
            // From older Python servers that did not read the id.
            Some(RequestId::Text(text)) if text == "server-error" => Addressee::Unaddressed,
            Some(_) => Addressee::OtherRequest,
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

    /// Whether a response with an error status is final for our request.
    fn is_final(&self, facts: &HttpReplyFacts<'_>) -> bool {
        let ours = self.addressee == Addressee::ThisRequest;
        let ours_or_nobody = self.addressee != Addressee::OtherRequest;
        match (facts.status, self.code) {
            // Refusals by their status, whatever the body is.
            (401 | 407 | 421 | 425 | 429, _) => false,
            (400, Some(-32700 | -32600 | -32022 | -32020)) => false,
            (400, Some(-32021 | -32602)) => ours_or_nobody,
            (404, Some(-32601)) => ours_or_nobody,
            (400..=599, _) => ours,
            _ => false,
        }
    }

    /// What a JSON-RPC error that is not final adds to its status.
    fn refusal(&self, status: u16) -> Option<ReplyFailure> {
        match (status, self.code?) {
            _ if self.addressee == Addressee::OtherRequest => None,
            (400, -32022) => Some(refused(Reason::Version)),
            (400, -32020) => Some(refused(Reason::HeaderMismatch)),
            _ => None,
        }
    }
}

/// A modern server has no session to lose.
fn session_gone_failure(facts: &HttpReplyFacts<'_>, body: &Bytes) -> Option<ReplyFailure> {
    if facts.era == Era::Modern {
        return None;
    }
    let reply = LegacyReply {
        status: facts.status,
        body,
        challenge: facts.challenge,
        has_session_id: facts.has_session_id,
        request_id: facts.request_id,
    };
    let dialect = session_gone::find_session_gone(&reply)
        .filter(|dialect| dialect.matching() <= facts.matching)?;
    let reason = if dialect == SessionGoneForm::OtherUser {
        Reason::SessionMismatch
    } else if dialect == SessionGoneForm::SingleSession {
        Reason::SingleSession
    } else if dialect == SessionGoneForm::EndedWhileRunning {
        Reason::ServerError
    } else {
        Reason::SessionGone
    };
    Some(ReplyFailure {
        is_refused: dialect.delivery().is_safe_to_retry(),
        reason,
        session_gone: Some(dialect),
    })
}

/// Without a body only the status counts.
fn failure_without_body(facts: &HttpReplyFacts<'_>) -> ReplyFailure {
    match (facts.status, facts.body) {
        (200..=299, ReplyBody::TooLarge) => unknown(Reason::ReplyTooLarge),
        (200..=299, _) => unknown(Reason::ReplyLost),
        _ => session_gone_failure(facts, &Bytes::new())
            .unwrap_or_else(|| failure_of_status(facts.status)),
    }
}

const fn failure_of_status(status: u16) -> ReplyFailure {
    match status {
        307 | 308 => refused(Reason::Redirect),
        300..=399 => unknown(Reason::Redirect),
        401 => refused(Reason::Unauthorized),
        403 => refused(Reason::Forbidden),
        404 | 410 => refused(Reason::NotFound),
        407 => refused(Reason::Proxy),
        // From a server that stopped waiting, or a gateway; a gateway may have forwarded the
        // request.
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

const fn refused(reason: Reason) -> ReplyFailure {
    ReplyFailure {
        is_refused: true,
        ..unknown(reason)
    }
}

const fn unknown(reason: Reason) -> ReplyFailure {
    ReplyFailure {
        is_refused: false,
        reason,
        session_gone: None,
    }
}

#[cfg(test)]
mod tests;
