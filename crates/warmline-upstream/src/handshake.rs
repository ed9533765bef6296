//! Reads the responses to the messages of a handshake.

use std::time::Duration;

use bytes::Bytes;
use serde::Deserialize;
use warmline_core::delivery::Delivery;
use warmline_core::era::{Era, Version};
use warmline_core::era_detection::supported_versions;
use warmline_core::error::code::{Code, Reason};
use warmline_core::exchange::{Deadlines, Diagnostic};
use warmline_core::message::envelope::{Message, MessageKind, RpcError};
use warmline_core::message::sse::SseParser;
use warmline_core::pool_key::Transport;
use warmline_core::protocol::handshake;
use warmline_core::protocol::http_status::{ReplyBody, classify_reply};
use warmline_core::protocol::session_gone::SessionGoneForm;

use super::listener::NO_RESPONDER_TEXT;
use super::sanitize::{sanitize_line, summarize_error, summarize_response};
use super::server_facts::{Evidence, ServerFacts};
use crate::http::call_reader::{CallEnd, CallReader, StreamEnd};
use crate::http::endpoint::{BodyError, BodyKind, HttpResponse};
use crate::http::response::{self, ResponseHead, SINGLE_SESSION_HINT, SentRequest};
use crate::session_state::CallTimer;
use warmline_platform::clock::{self, Instant};

const MAX_HANDSHAKE_BODY: usize = 1 << 20;

#[derive(Debug)]
pub(crate) struct HandshakeResponse {
    pub(crate) status: u16,
    pub(crate) message: Option<Message>,
    /// Why there is none, or what the status means.
    pub(crate) diagnostic: Option<Diagnostic>,
    pub(crate) summary: String,
}

impl HandshakeResponse {
    fn from_body_error(server: &str, status: u16, cut: &BodyError) -> Self {
        let diagnostic = cut.diagnostic(server);
        Self {
            status,
            message: None,
            summary: format!("HTTP {status}, then {}", diagnostic.message),
            diagnostic: Some(diagnostic),
        }
    }
}

/// Whether a reply broke off: nobody knows what it would have said.
pub(crate) fn is_broken_off(diagnostic: &Diagnostic) -> bool {
    let reasons = [Reason::ReplyLost, Reason::ReplyTooLarge, Reason::Timeout];
    reasons.contains(&diagnostic.reason)
}

pub(crate) async fn read_response(
    sent: SentRequest<'_>,
    arrival: HttpResponse,
    by: Instant,
) -> HandshakeResponse {
    let (server, status) = (&sent.endpoint.server, arrival.status.as_u16());
    if arrival.is_event_stream() {
        return match read_first_reply(sent, arrival, by).await {
            Ok(message) => HandshakeResponse {
                status,
                summary: summarize_response(status, Some(&message), b""),
                message: Some(message),
                diagnostic: None,
            },
            Err(cut) => HandshakeResponse::from_body_error(server, status, &cut),
        };
    }
    let head = ResponseHead::from_response(&arrival);
    let is_json = arrival.body_kind() == BodyKind::Json;
    let limit = sent.endpoint.size_limits.reply.min(MAX_HANDSHAKE_BODY);
    let body = match arrival.read_body(limit, by, &()).await {
        Ok(body) => body,
        Err(cut) => return HandshakeResponse::from_body_error(server, status, &cut),
    };
    let message = Message::parse(body.clone()).ok();
    let facts = sent.status_facts(status, ReplyBody::Complete(&body), &head);
    let (reason, gone) = match classify_reply(&facts) {
        Ok(_) if status != 200 || is_json => (None, None),
        Ok(_) => (Some(Reason::BadReply), None),
        Err(failure) => (Some(failure.reason), failure.session_gone),
    };
    // There is no session yet, so none can be gone.
    let gone = gone.filter(|form| *form == SessionGoneForm::SingleSession);
    let diagnostic = reason.map(|reason| {
        let diagnostic = head.diagnostic(server, status, reason, &body);
        response::with_session_gone(server, diagnostic, gone)
    });
    HandshakeResponse {
        status,
        summary: summarize_response(status, message.as_ref(), &body),
        message,
        diagnostic,
    }
}

async fn read_first_reply(
    sent: SentRequest<'_>,
    arrival: HttpResponse,
    by: Instant,
) -> Result<Message, BodyError> {
    let left = by.saturating_duration_since(clock::now());
    let deadlines = Deadlines {
        idle: left,
        total: left,
    };
    let mut call = CallReader::new(sent.id, CallTimer::start(deadlines), &());
    let mut parser = SseParser::new(sent.endpoint.size_limits.event);
    match call.read_stream(arrival, &mut parser).await {
        StreamEnd::Call(CallEnd::Reply(message)) => Ok(message),
        StreamEnd::Call(CallEnd::TimedOut | CallEnd::Lost(_)) => Err(BodyError::TimedOut),
        StreamEnd::Over { why, .. } => Err(BodyError::Interrupted(why)),
        StreamEnd::TooLarge(limit) => Err(BodyError::TooLarge { limit }),
        StreamEnd::TooManyStrayReplies => {
            let why = "the stream answers requests that nobody sent";
            Err(BodyError::Interrupted(why.to_owned()))
        },
    }
}

pub(crate) fn read_initialize_response(
    server: &str,
    heard: HandshakeResponse,
    evidence: &mut Vec<Evidence>,
) -> Result<ServerFacts, Diagnostic> {
    evidence.push(Evidence {
        step: "initialize",
        answer: heard.summary,
    });
    // The server's error says more than its status, except for these.
    let plain = [Reason::Unauthorized, Reason::Forbidden, Reason::RateLimited];
    match (heard.message, heard.diagnostic) {
        (Some(message), Some(diagnostic))
            if message.kind() != MessageKind::Error || plain.contains(&diagnostic.reason) =>
        {
            Err(diagnostic)
        },
        (Some(message), _) => read_initialize(server, Transport::Http, &message),
        (None, Some(diagnostic)) => Err(diagnostic),
        (None, None) => {
            let what = format!("`{server}` did not answer `initialize`");
            Err(Diagnostic::new(Reason::Handshake, what))
        },
    }
}

pub(crate) fn read_initialize(
    server: &str,
    transport: Transport,
    message: &Message,
) -> Result<ServerFacts, Diagnostic> {
    if let Some(error) = message.error() {
        return Err(handshake_refused(server, "initialize", &error));
    }
    read_initialize_result(server, transport, &message.result().unwrap_or_default())
}

pub(crate) fn read_initialize_result(
    server: &str,
    transport: Transport,
    result: &[u8],
) -> Result<ServerFacts, Diagnostic> {
    let opened = handshake::read_initialize_result(result).map_err(|malformed| {
        let what = format!("`{server}` answered `initialize` in a form that is not MCP");
        Diagnostic::new(Reason::Handshake, what).with_cause(malformed.to_string())
    })?;
    let version = Version::parse(&opened.version).filter(|v| v.era() == Era::Legacy);
    let Some(version) = version else {
        let what = format!("`{server}` answered `initialize` with a version we do not speak");
        let why = sanitize_line(opened.version.as_bytes(), 40);
        let why = format!("protocolVersion \"{why}\"");
        return Err(Diagnostic::new(Reason::Version, what).with_cause(why));
    };
    Ok(ServerFacts {
        keeps_session: transport != Transport::Http,
        server_info: opened.server_info,
        capabilities: opened.capabilities,
        instructions: opened.instructions,
        expires_in: opened.expires_in,
        handshake_result: Some(Bytes::copy_from_slice(result)),
        learned_at: Some(clock::now()),
        ..ServerFacts::assumed(version, transport)
    })
}

pub(crate) fn error_instead_of_handshake(
    server: &str,
    status: u16,
    error: &RpcError,
) -> Diagnostic {
    let diagnostic = Diagnostic::new(Reason::Handshake, error_sentence(server, error))
        .with_cause(format!("HTTP {status}, {}", error.code));
    with_warmline_details(server, diagnostic, error)
}

fn error_sentence(server: &str, error: &RpcError) -> String {
    let message = sanitize_line(error.message.as_bytes(), 200);
    match message.is_empty() {
        true => format!("`{server}` answered with an error"),
        false => format!("`{server}` says: {message}"),
    }
}

/// Adds the code, hint and pause of an error that another Warmline sent.
fn with_warmline_details(server: &str, mut diagnostic: Diagnostic, error: &RpcError) -> Diagnostic {
    #[derive(Deserialize)]
    struct WarmlineErrorData {
        warmline: WarmlineErrorFields,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct WarmlineErrorFields {
        code: String,
        hint: Option<String>,
        retry_after_ms: Option<u64>,
    }
    let data = error
        .data
        .as_deref()
        .map(serde_json::from_slice::<WarmlineErrorData>);
    if let Some(Ok(WarmlineErrorData { warmline })) = data
        && let Some(code) = Code::parse(&warmline.code)
    {
        diagnostic = diagnostic.with_code(code);
        // The delivery is added where all errors add it.
        let said = error_sentence(server, error);
        let known = Delivery::Unsent.description().unwrap_or_default();
        let bare = said.strip_suffix(known).unwrap_or(&said);
        diagnostic.message = bare.trim_end_matches("; ").to_owned();
        diagnostic.hint = warmline
            .hint
            .map(|hint| sanitize_line(hint.as_bytes(), 200));
        diagnostic.retry_after = warmline.retry_after_ms.map(Duration::from_millis);
    }
    diagnostic
}

pub(crate) fn handshake_refused(server: &str, step: &str, error: &[u8]) -> Diagnostic {
    let parsed = RpcError::parse(error).ok();
    let (code, text) = parsed
        .as_ref()
        .map_or((0, ""), |error| (error.code, error.message.as_str()));
    // Our own text: it sent our request back, which we refused.
    if text == NO_RESPONDER_TEXT {
        let what = format!("`{server}` repeats what is sent to it");
        return Diagnostic::new(Reason::NotMcp, what)
            .with_cause("it is not an MCP server")
            .with_hint("check the command: an argument that starts MCP may be missing");
    }
    // A server that does not know the handshake of an era does not speak the era.
    let reason = if code == -32022 || code == -32601 {
        Reason::Version
    } else if text.to_ascii_lowercase().contains("already initialized") {
        Reason::SingleSession
    } else {
        Reason::Handshake
    };
    let mut why = summarize_error(error);
    if let Some(supported) = parsed.as_ref().and_then(supported_versions) {
        let list = sanitize_line(supported.join(", ").as_bytes(), 200);
        why = format!("{why}; it supports {list}");
    }
    let what = format!("`{server}` refused `{step}`");
    let mut diagnostic = Diagnostic::new(reason, what).with_cause(why);
    if let Some(error) = &parsed {
        diagnostic = with_warmline_details(server, diagnostic, error);
    }
    match reason == Reason::SingleSession {
        true => diagnostic.with_hint(SINGLE_SESSION_HINT),
        false => diagnostic,
    }
}
