//! What an HTTP response means for its request. [`warmline_core::protocol::http_status`] classifies
//! status and body; here the bytes are read, and the diagnostics written.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, LOCATION, RETRY_AFTER, WWW_AUTHENTICATE};
use warmline_core::delivery::Delivery;
use warmline_core::era::{Era, Version};
use warmline_core::error::code::{Code, Reason};
use warmline_core::exchange::{AttemptResult, Diagnostic, Reply, Request, RequestOrigin};
use warmline_core::message::envelope::{Message, MessageKind, is_batch};
use warmline_core::protocol::http_status::{
    HttpReplyFacts, ReplyBody, ReplyFailure, classify_reply,
};
use warmline_core::protocol::retry_after::read_retry_after;
use warmline_core::protocol::session_gone::{SessionGoneForm, SessionGoneRemedy};

use crate::http::call_reader::{CallEnd, CallReader, StreamEnd};
use crate::http::endpoint::{BodyError, BodyKind, Endpoint, HttpResponse, SendFailure};
use crate::listener::Listener;
use crate::sanitize::{sanitize_line, summarize_body};
use crate::session_state::Retirement;
use warmline_platform::clock::{self, Instant};

pub(crate) const MAX_ERROR_BODY: usize = 64 << 10;

#[derive(Clone, Copy)]
pub(crate) struct SentRequest<'a> {
    pub(crate) endpoint: &'a Endpoint,
    pub(crate) era: Era,
    pub(crate) has_session: bool,
    pub(crate) id: u64,
    pub(crate) retirement: &'a Retirement,
}

/// A reply that is not a stream, read to its end.
pub(crate) struct CompleteResponse {
    status: u16,
    kind: BodyKind,
    head: ResponseHead,
    body: Result<Bytes, BodyError>,
}

impl CompleteResponse {
    pub(crate) async fn read(
        sent: SentRequest<'_>,
        arrival: HttpResponse,
        by: Instant,
        listener: &dyn Listener,
    ) -> Self {
        let status = arrival.status.as_u16();
        let limit = match status {
            200 => sent.endpoint.size_limits.reply,
            _ => MAX_ERROR_BODY,
        };
        Self {
            status,
            kind: arrival.body_kind(),
            head: ResponseHead::from_response(&arrival),
            body: arrival.read_body(limit, by, listener).await,
        }
    }

    /// The text of several messages, where this is one.
    pub(crate) fn batch(&self, version: Option<Version>) -> Option<Bytes> {
        let is_answer = self.status == 200 && self.kind == BodyKind::Json;
        let text = self.body.as_ref().ok().filter(|_| is_answer)?;
        is_batch(text, version).then(|| text.clone())
    }

    pub(crate) fn into_ending(self, sent: SentRequest<'_>, request: Request) -> AttemptResult {
        let server = &sent.endpoint.server;
        let Self {
            status,
            kind,
            head: said,
            body: read,
        } = self;
        let body = match &read {
            Ok(body) => ReplyBody::Complete(body),
            Err(BodyError::TooLarge { .. }) if status != 200 => ReplyBody::TooLarge,
            Err(BodyError::Interrupted(_)) if status != 200 => ReplyBody::Truncated,
            Err(cut) => return cut.diagnostic(server).into_unknown(),
        };
        let text = read.as_deref().unwrap_or_default();
        // JSON of another content type is no answer: pages and proxies send such (D28).
        let is_page = status == 200 && kind != BodyKind::Json;
        let page = ReplyFailure {
            is_refused: false,
            reason: Reason::BadReply,
            session_gone: None,
        };
        let failure = match is_page {
            true => page,
            false => match classify_reply(&sent.status_facts(status, body, &said)) {
                Ok(message) => return ending_of_reply(server, &message),
                Err(failure) => failure,
            },
        };
        let (reason, is_refused) = (failure.reason, failure.is_refused);
        if is_refused && let Some(message) = passed_through_error(&request, reason, text) {
            return ending_of_reply(server, &message);
        }
        if !is_refused && !is_page && reason == Reason::BadReply && is_response(text) {
            let what = format!("`{server}` answered with the id of another request");
            return ending_in_doubt(sent, what);
        }
        let diagnostic = said.diagnostic(server, status, reason, text);
        ending_of_failure(sent, diagnostic, failure, request)
    }
}

/// Ends a call that the server refused, or may have.
fn ending_of_failure(
    sent: SentRequest<'_>,
    diagnostic: Diagnostic,
    failure: ReplyFailure,
    request: Request,
) -> AttemptResult {
    if failure.session_gone.is_some() {
        sent.retirement.set(diagnostic.reason);
    }
    let server = &sent.endpoint.server;
    let mut diagnostic = with_session_gone(server, diagnostic, failure.session_gone);
    if failure.is_refused {
        return diagnostic.into_refused(request);
    }
    // The server may have acted, whatever the status sounds like.
    if diagnostic.code == Code::RequestRefused {
        diagnostic.code = Code::AnswerLost;
    }
    diagnostic.into_unknown()
}

/// An error that goes to the client as it is, because the client wrote the headers.
fn passed_through_error(request: &Request, reason: Reason, body: &[u8]) -> Option<Message> {
    let wrote_them = request.origin == RequestOrigin::ForwardedWithHeaders;
    match wrote_them && reason == Reason::HeaderMismatch {
        true => Message::parse(Bytes::copy_from_slice(body)).ok(),
        false => None,
    }
}

impl<'a> SentRequest<'a> {
    pub(crate) fn status_facts(
        &self,
        status: u16,
        body: ReplyBody<'a>,
        said: &'a ResponseHead,
    ) -> HttpReplyFacts<'a> {
        HttpReplyFacts {
            status,
            era: self.era,
            has_session_id: self.has_session,
            request_id: self.id,
            body,
            challenge: said.challenge.as_deref(),
            matching: self.endpoint.session_gone_matching,
        }
    }
}

/// Whether a body is a response, if only to somebody else.
fn is_response(body: &[u8]) -> bool {
    Message::parse(Bytes::copy_from_slice(body))
        .is_ok_and(|message| matches!(message.kind(), MessageKind::Result | MessageKind::Error))
}

/// What the head of a response says, kept while its body is read.
#[derive(Default)]
pub(crate) struct ResponseHead {
    content_type: String,
    pub(super) challenge: Option<String>,
    location: Option<String>,
    retry_after: Option<Duration>,
}

impl ResponseHead {
    pub(crate) fn from_response(arrival: &HttpResponse) -> Self {
        // The usual reply needs and allocates nothing of this.
        if arrival.status.as_u16() == 200 && arrival.body_kind() == BodyKind::Json {
            return Self::default();
        }
        Self {
            content_type: arrival.header(&CONTENT_TYPE).unwrap_or("none").to_owned(),
            challenge: arrival.header(&WWW_AUTHENTICATE).map(str::to_owned),
            location: arrival.header(&LOCATION).map(str::to_owned),
            retry_after: arrival
                .header(&RETRY_AFTER)
                .and_then(|text| read_retry_after(text, clock::wall_seconds())),
        }
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "most refusals read the same"
    )]
    pub(crate) fn diagnostic(
        &self,
        server: &str,
        status: u16,
        reason: Reason,
        body: &[u8],
    ) -> Diagnostic {
        let what = match reason {
            Reason::BadReply => format!("the answer of `{server}` is not an MCP answer"),
            Reason::Unauthorized => format!("`{server}` needs a credential that it accepts"),
            Reason::Forbidden => format!("`{server}` forbids this request"),
            Reason::SessionGone => format!("`{server}` does not know our session any more"),
            Reason::NotFound => format!("`{server}` is not at this URL"),
            Reason::Redirect => {
                format!("`{server}` redirects elsewhere, and redirects are not followed")
            },
            Reason::RateLimited => format!("`{server}` limits the rate of requests"),
            Reason::NoReplyChannel => {
                format!("`{server}` accepted the request, but left no way for its answer")
            },
            Reason::ServerError | Reason::GatewayError | Reason::Unavailable => {
                format!("`{server}` failed with HTTP {status}")
            },
            _ => format!("`{server}` refused the request with HTTP {status}"),
        };
        let mut why = format!("HTTP {status}");
        if let Some(location) = &self.location {
            why = format!("{why} to {}", sanitize_line(location.as_bytes(), 200));
        } else if let Some(text) = summarize_body(body) {
            let gap = if text.starts_with('"') { " " } else { ", " };
            why = format!("{why}{gap}{text}");
        } else if reason == Reason::BadReply {
            let body = match body.is_empty() {
                true => "an empty body",
                false => "a body",
            };
            why = format!("{why} with {body} of type {}", self.content_type);
        }
        let mut diagnostic = Diagnostic::new(reason, what).with_cause(why);
        diagnostic.retry_after = self.retry_after;
        if reason == Reason::Unauthorized {
            diagnostic = diagnostic.with_hint(
                "give the server a token that it accepts: `Server::bearer`, or `credential` in a configuration file",
            );
        }
        diagnostic
    }
}

/// Adds the form in which the server said that a session is gone.
pub(crate) fn with_session_gone(
    server: &str,
    mut diagnostic: Diagnostic,
    gone: Option<SessionGoneForm>,
) -> Diagnostic {
    diagnostic.session_gone = gone;
    match gone.map(SessionGoneForm::remedy) {
        Some(SessionGoneRemedy::Open) => {
            diagnostic.message = format!("`{server}` wants a session, and the request had none");
            diagnostic
                .with_hint(r#"let Warmline detect whether it needs sessions: `sessions = "auto"`"#)
        },
        Some(SessionGoneRemedy::Wait) => {
            diagnostic.message = format!("`{server}` allows one session only, and it is in use");
            diagnostic.with_hint(SINGLE_SESSION_HINT)
        },
        Some(
            SessionGoneRemedy::Reopen
            | SessionGoneRemedy::ReopenOnce
            | SessionGoneRemedy::GoStateless
            | SessionGoneRemedy::DropSession,
        )
        | None => diagnostic,
    }
}

pub(crate) const SINGLE_SESSION_HINT: &str =
    "this server keeps one session per process; end the other client, or restart it";

/// Ends a call whose reply came on a stream. Some servers say there, too, that a session is gone: in an
/// error before anything else.
pub(crate) fn ending_of_streamed_reply(
    sent: SentRequest<'_>,
    message: &Message,
    request: Request,
    call: &CallReader<'_>,
) -> AttemptResult {
    let server = &sent.endpoint.server;
    let is_error = message.kind() == MessageKind::Error;
    if sent.era == Era::Modern || !is_error || call.has_messages {
        return ending_of_reply(server, message);
    }
    let said = ResponseHead::default();
    let facts = sent.status_facts(200, ReplyBody::Complete(message.raw()), &said);
    let failure = match classify_reply(&facts) {
        Err(failure) if failure.session_gone.is_some() => failure,
        Ok(_) | Err(_) => return ending_of_reply(server, message),
    };
    let diagnostic = said.diagnostic(server, 200, failure.reason, message.raw());
    ending_of_failure(sent, diagnostic, failure, request)
}

pub(crate) fn ending_of_reply(server: &str, message: &Message) -> AttemptResult {
    match (message.kind(), message.result(), message.error()) {
        (MessageKind::Result, Some(result), _) => AttemptResult::Answered(Reply::Result(result)),
        (MessageKind::Error, _, Some(error)) => AttemptResult::Answered(Reply::Error(error)),
        _ => {
            let what = format!("the answer of `{server}` is not a response");
            Diagnostic::new(Reason::BadReply, what).into_unknown()
        },
    }
}

pub(crate) fn ending_of_send_failure(lost: SendFailure, request: Request) -> AttemptResult {
    match lost.delivery {
        Delivery::Unsent => lost.diagnostic.into_unsent(request),
        Delivery::Refused | Delivery::Answered | Delivery::Unknown => {
            lost.diagnostic.into_unknown()
        },
    }
}

pub(crate) fn ending_of_call(
    sent: SentRequest<'_>,
    end: CallEnd,
    request: Request,
    call: &CallReader<'_>,
) -> AttemptResult {
    match end {
        CallEnd::Reply(message) => ending_of_streamed_reply(sent, &message, request, call),
        CallEnd::TimedOut => timeout_diagnostic(&sent.endpoint.server).into_unknown(),
        CallEnd::Lost(lost) => ending_of_send_failure(lost, request),
    }
}

pub(crate) fn ending_of_stream(
    sent: SentRequest<'_>,
    end: StreamEnd,
    request: Request,
    call: &CallReader<'_>,
) -> AttemptResult {
    let server = &sent.endpoint.server;
    match end {
        StreamEnd::Call(end) => ending_of_call(sent, end, request, call),
        StreamEnd::Over { why, .. } => stream_interrupted(server, call, &why),
        StreamEnd::TooLarge(limit) => too_large_diagnostic(server, "event", limit).into_unknown(),
        StreamEnd::TooManyStrayReplies => {
            let what = format!("`{server}` keeps answering requests nobody sent");
            ending_in_doubt(sent, what)
        },
    }
}

pub(crate) fn stream_interrupted(server: &str, call: &CallReader<'_>, why: &str) -> AttemptResult {
    match &call.parse_error {
        Some(bad) => {
            let what = format!("`{server}` sent an event that is not an MCP message");
            Diagnostic::new(Reason::BadReply, what).with_cause(bad.clone())
        },
        None => BodyError::Interrupted(why.to_owned()).diagnostic(server),
    }
    .into_unknown()
}

impl BodyError {
    pub(crate) fn diagnostic(&self, server: &str) -> Diagnostic {
        match self {
            Self::Interrupted(why) => {
                let what = format!("the answer of `{server}` did not arrive");
                Diagnostic::new(Reason::ReplyLost, what).with_cause(why)
            },
            Self::TooLarge { limit } => too_large_diagnostic(server, "reply", *limit),
            Self::TimedOut => timeout_diagnostic(server),
        }
    }
}

fn too_large_diagnostic(server: &str, part: &str, limit: usize) -> Diagnostic {
    let what = format!("`{server}` sent a larger {part} than the limit of {limit} bytes");
    Diagnostic::new(Reason::ReplyTooLarge, what)
}

pub(crate) fn timeout_diagnostic(server: &str) -> Diagnostic {
    let what = format!("`{server}` did not answer in time");
    Diagnostic::new(Reason::Timeout, what)
}

/// Ends a call after replies to other requests: isolation is in doubt, so the session is retired.
fn ending_in_doubt(sent: SentRequest<'_>, what: String) -> AttemptResult {
    sent.retirement.set(Reason::BadReply);
    Diagnostic::new(Reason::BadReply, what).into_unknown()
}
