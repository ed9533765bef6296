//! Answers: what a reply over HTTP means for the request it belongs to.
//!
//! Asked by: both HTTP drivers, and by detection.  The meaning of a status and its body is decided
//! by [`warmline_core::protocol::status`]; this file reads the bytes and puts the meaning into
//! words that name the server, the place and the limit.

use std::time::Duration;

use bytes::Bytes;
use warmline_core::code::Reason;
use warmline_core::delivery::Delivery;
use warmline_core::era::{Era, Version};
use warmline_core::exchange::{Ending, Reply, Request, Trouble};
use warmline_core::protocol::envelope::{Kind, Message, RpcError};
use warmline_core::protocol::gone::{Breadth, SentSession};
use warmline_core::protocol::handshake;
use warmline_core::protocol::sse::SseParser;
use warmline_core::protocol::status::{
    Body, Meaning, Standing as Stream, StatusFacts, read_status,
};

use super::http::{Arrival, BodyKind, Cut, Lost};
use super::limits::Limits;
use super::server::Sizes;
use super::session::{Evidence, Facts, Standing, Transport};
use super::stream::{Pause, Watch};
use crate::clock::{self, Instant};

/// The body of a refusal is read up to here; what it says stands at its beginning.
const REFUSAL_BODY: usize = 64 << 10;
/// Nothing that belongs to a handshake is larger.
const HANDSHAKE_BODY: usize = 1 << 20;

/// What is known of a request when its reply arrives.
#[derive(Clone, Copy)]
pub(crate) struct Sent<'a> {
    pub(crate) server: &'a str,
    pub(crate) era: Era,
    pub(crate) with_session: bool,
    pub(crate) id: u64,
    pub(crate) sizes: Sizes,
    pub(crate) standing: &'a Standing,
}

/// Ends a call whose reply is not a stream.
pub(crate) async fn ending(
    sent: Sent<'_>,
    arrival: Arrival,
    request: Request,
    by: Instant,
) -> Ending {
    let server = sent.server;
    let kind = arrival.kind();
    let status = arrival.status.as_u16();
    let limit = if status == 200 {
        sent.sizes.reply
    } else {
        REFUSAL_BODY
    };
    let said = Said::of(&arrival);
    let read = arrival.whole(limit, by).await;
    let body = match &read {
        Ok(body) => Body::Whole(body),
        Err(Cut::Late) => return late(server),
        Err(Cut::TooLarge { limit }) if status == 200 => {
            return too_large(server, "reply", *limit);
        },
        Err(Cut::Broken(why)) if status == 200 => return lost_reply(server, why),
        Err(Cut::TooLarge { .. }) => Body::TooLarge,
        Err(Cut::Broken(_)) => Body::Cut,
    };
    let text = read.as_deref().unwrap_or_default();
    // JSON under another name is not an answer: pages and proxies send such things (D28).
    if status == 200 && kind != BodyKind::Json {
        return said
            .trouble(server, status, Reason::BadReply, text)
            .unknown();
    }
    match read_status(&sent.facts(status, body, &said)) {
        Meaning::Answer(message) => replied(server, &message),
        Meaning::Refused { reason, gone } => {
            if gone.is_some() {
                sent.standing.retire(reason);
            }
            let mut trouble = said.trouble(server, status, reason, text);
            trouble.gone = gone;
            trouble.refused(request)
        },
        Meaning::Unknown { reason, gone } => {
            if gone.is_some() {
                sent.standing.retire(reason);
            }
            if reason == Reason::BadReply && is_response(text) {
                return foreign(server, sent.standing);
            }
            let mut trouble = said.trouble(server, status, reason, text);
            trouble.gone = gone;
            trouble.unknown()
        },
        Meaning::Wait => said
            .trouble(server, status, Reason::NoReplyChannel, text)
            .unknown(),
    }
}

impl<'a> Sent<'a> {
    fn facts(&self, status: u16, body: Body<'a>, said: &'a Said) -> StatusFacts<'a> {
        StatusFacts {
            status,
            era: self.era,
            sent: if self.with_session {
                SentSession::WithId
            } else {
                SentSession::WithoutId
            },
            our_id: self.id,
            body,
            challenge: said.challenge.as_deref(),
            dialects: Breadth::Sure,
            standing: Stream::None,
        }
    }
}

/// Whether a body is a response, if only to somebody else.
fn is_response(body: &[u8]) -> bool {
    Message::split(Bytes::copy_from_slice(body))
        .is_ok_and(|message| matches!(message.kind(), Kind::Result | Kind::Error))
}

/// What the head of a reply said, kept while its body is read.
struct Said {
    content_type: String,
    challenge: Option<String>,
    location: Option<String>,
    retry_after: Option<Duration>,
}

impl Said {
    fn of(arrival: &Arrival) -> Self {
        // Nothing of this is needed, nor allocated, for the usual answer.
        if arrival.status.as_u16() == 200 && arrival.kind() == BodyKind::Json {
            return Self {
                content_type: String::new(),
                challenge: None,
                location: None,
                retry_after: None,
            };
        }
        Self {
            content_type: arrival.content_type().to_owned(),
            challenge: arrival.challenge().map(str::to_owned),
            location: arrival.location().map(str::to_owned),
            retry_after: arrival.retry_after(),
        }
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "most refusals read the same"
    )]
    fn trouble(&self, server: &str, status: u16, reason: Reason, body: &[u8]) -> Trouble {
        let what = match reason {
            Reason::BadReply => format!("what `{server}` answered is not an MCP answer"),
            Reason::Unauthorized => format!("`{server}` did not accept our credential"),
            Reason::Forbidden => format!("`{server}` forbids this request"),
            Reason::SessionGone => format!("`{server}` does not know our session any more"),
            Reason::NotFound => format!("`{server}` is not at this URL"),
            Reason::Redirect => format!("`{server}` sends us elsewhere, which we do not follow"),
            Reason::RateLimited => format!("`{server}` wants fewer requests"),
            Reason::NoReplyChannel => {
                format!("`{server}` took the request and will answer nowhere")
            },
            Reason::ServerError | Reason::GatewayError | Reason::Unavailable => {
                format!("`{server}` failed with HTTP {status}")
            },
            _ => format!("`{server}` refused the request with HTTP {status}"),
        };
        let mut why = format!("HTTP {status}");
        if let Some(location) = &self.location {
            why = format!("{why} to {}", plain(location.as_bytes(), 200));
        } else if let Some(text) = text_of(body) {
            why = format!("{why} \"{text}\"");
        } else if reason == Reason::BadReply {
            let body = if body.is_empty() {
                "an empty body"
            } else {
                "a body"
            };
            why = format!("{why} with {body} of type {}", self.content_type);
        }
        let mut trouble = Trouble::new(reason, what).because(why);
        trouble.retry_after = self.retry_after;
        if self.challenge.is_some() && reason == Reason::Unauthorized {
            trouble = trouble.hint(
                "give a token: `--header-env Authorization=VARIABLE`, or `credential` in the configuration",
            );
        }
        trouble
    }
}

/// Ends a call with the server's answer.
pub(crate) fn replied(server: &str, message: &Message) -> Ending {
    match (message.kind(), message.result(), message.error()) {
        (Kind::Result, Some(result), _) => Ending::Answered(Reply::Result(result)),
        (Kind::Error, _, Some(error)) => Ending::Answered(Reply::Error(error)),
        _ => Trouble::new(
            Reason::BadReply,
            format!("what `{server}` answered is not a response"),
        )
        .unknown(),
    }
}

/// Ends a call that brought no response head.
pub(crate) fn lost(lost: Lost, request: Request) -> Ending {
    match lost.delivery {
        Delivery::Unsent => lost.trouble.unsent(request),
        Delivery::Refused | Delivery::Answered | Delivery::Unknown => lost.trouble.unknown(),
    }
}

/// Ends a call whose stream is over without a response.
pub(crate) fn cut_stream(server: &str, watch: &Watch<'_>, why: &str) -> Ending {
    match &watch.bad {
        Some(bad) => Trouble::new(
            Reason::BadReply,
            format!("`{server}` sent an event that is not an MCP message"),
        )
        .because(bad.clone())
        .unknown(),
        None => lost_reply(server, why),
    }
}

fn lost_reply(server: &str, why: &str) -> Ending {
    Trouble::new(
        Reason::ReplyLost,
        format!("the answer of `{server}` did not arrive"),
    )
    .because(why)
    .unknown()
}

/// Ends a call whose time is over.
pub(crate) fn late(server: &str) -> Ending {
    Trouble::new(
        Reason::Timeout,
        format!("`{server}` did not answer in time"),
    )
    .unknown()
}

/// Ends a call whose answer is larger than we take.
pub(crate) fn too_large(server: &str, what: &str, limit: usize) -> Ending {
    Trouble::new(
        Reason::ReplyTooLarge,
        format!("`{server}` sent a larger {what} than the limit of {limit} bytes"),
    )
    .unknown()
}

/// Ends a call on a session that answers what nobody asked.
pub(crate) fn strays(server: &str, standing: &Standing) -> Ending {
    standing.retire(Reason::BadReply);
    Trouble::new(
        Reason::BadReply,
        format!("`{server}` keeps answering requests nobody sent"),
    )
    .unknown()
}

/// Ends a call that got another call's answer: isolation is in doubt, so is the session.
fn foreign(server: &str, standing: &Standing) -> Ending {
    standing.retire(Reason::BadReply);
    Trouble::new(
        Reason::BadReply,
        format!("`{server}` answered with the id of another request"),
    )
    .unknown()
}

/// Reads what a notification or an answer of ours got.
pub(crate) async fn accepted(server: &str, arrival: Arrival, by: Instant) -> Result<(), Trouble> {
    let status = arrival.status.as_u16();
    let said = Said::of(&arrival);
    let body = arrival.whole(REFUSAL_BODY, by).await.unwrap_or_default();
    if (200..300).contains(&status) {
        return Ok(());
    }
    Err(said.trouble(server, status, Reason::Rejected, &body))
}

/// What came back for a message of the handshake, whatever it was.
#[derive(Debug)]
pub(crate) struct Heard {
    pub(crate) status: u16,
    /// The response, if one came.
    pub(crate) message: Option<Message>,
    /// What the trouble is, if none came.
    pub(crate) trouble: Option<Trouble>,
    /// A few words for people.
    pub(crate) words: String,
}

/// Reads the reply to a message of the handshake to its end.
pub(crate) async fn hear(sent: Sent<'_>, arrival: Arrival, by: Instant) -> Heard {
    if arrival.status.as_u16() == 200 && arrival.kind() == BodyKind::Stream {
        return hear_stream(sent, arrival, by).await;
    }
    let server = sent.server;
    let status = arrival.status.as_u16();
    let said = Said::of(&arrival);
    let is_json = arrival.kind() == BodyKind::Json;
    let body = match arrival
        .whole(sent.sizes.reply.min(HANDSHAKE_BODY), by)
        .await
    {
        Ok(body) => body,
        Err(cut) => {
            let trouble = cut_trouble(server, &cut);
            let words = format!("HTTP {status}, then {}", trouble.what);
            return Heard {
                status,
                message: None,
                trouble: Some(trouble),
                words,
            };
        },
    };
    let message = Message::split(body.clone()).ok();
    let words = words(status, message.as_ref(), &body);
    let trouble = match read_status(&sent.facts(status, Body::Whole(&body), &said)) {
        Meaning::Answer(_) if status != 200 || is_json => None,
        Meaning::Answer(_) => Some(said.trouble(server, status, Reason::BadReply, &body)),
        Meaning::Wait => Some(said.trouble(server, status, Reason::NoReplyChannel, &body)),
        Meaning::Refused { reason, .. } | Meaning::Unknown { reason, .. } => {
            Some(said.trouble(server, status, reason, &body))
        },
    };
    Heard {
        status,
        message,
        trouble,
        words,
    }
}

async fn hear_stream(sent: Sent<'_>, mut arrival: Arrival, by: Instant) -> Heard {
    let status = arrival.status.as_u16();
    let message = first_reply(&mut arrival, sent.id, sent.sizes, by).await;
    let words = words(status, message.as_ref(), b"");
    let trouble = if message.is_some() {
        arrival.drain().await;
        None
    } else {
        Some(Trouble::new(
            Reason::ReplyLost,
            format!(
                "the stream of `{}` brought no answer to the handshake",
                sent.server
            ),
        ))
    };
    Heard {
        status,
        message,
        trouble,
        words,
    }
}

async fn first_reply(arrival: &mut Arrival, id: u64, sizes: Sizes, by: Instant) -> Option<Message> {
    let left = by.saturating_duration_since(clock::now());
    let patience = warmline_core::exchange::Patience {
        idle: left,
        total: left,
    };
    let mut watch = Watch::new(id, Limits::begin(patience), &());
    let mut parser = SseParser::new(sizes.event);
    loop {
        match watch.read(arrival, &mut parser).await {
            Pause::Reply(message) => return Some(message),
            Pause::Ask(_) | Pause::Answered(..) => {},
            Pause::Ended
            | Pause::Broken(_)
            | Pause::TooLarge { .. }
            | Pause::Late
            | Pause::Strays => return None,
        }
    }
}

fn cut_trouble(server: &str, cut: &Cut) -> Trouble {
    match cut {
        Cut::Broken(why) => Trouble::new(
            Reason::ReplyLost,
            format!("the answer of `{server}` broke off"),
        )
        .because(why.clone()),
        Cut::TooLarge { limit } => Trouble::new(
            Reason::ReplyTooLarge,
            format!("`{server}` sent a larger reply than the limit of {limit} bytes"),
        ),
        Cut::Late => Trouble::new(
            Reason::Timeout,
            format!("`{server}` did not answer in time"),
        ),
    }
}

/// What came back, for people: the status, and the code and text of an error.
fn words(status: u16, message: Option<&Message>, body: &[u8]) -> String {
    let said = match message {
        Some(message) => message_words(message),
        None if body.is_empty() => "no body".to_owned(),
        None => {
            text_of(body).map_or_else(|| "an unreadable body".to_owned(), |t| format!("\"{t}\""))
        },
    };
    format!("HTTP {status}, {said}")
}

/// What a message says, in a few words.
pub(crate) fn message_words(message: &Message) -> String {
    match (message.kind(), message.error()) {
        (Kind::Error, Some(error)) => error_words(&error),
        (Kind::Result, _) => "a result".to_owned(),
        (Kind::Error | Kind::Request | Kind::Notification, _) => {
            "a message that is no answer".to_owned()
        },
    }
}

/// The code and the text of a JSON-RPC error.
fn error_words(error: &[u8]) -> String {
    RpcError::parse(error).map_or_else(
        |_| "an unreadable error".to_owned(),
        |error| {
            format!(
                "{} \"{}\"",
                error.code,
                plain(error.message.as_bytes(), 200)
            )
        },
    )
}

/// What an opened legacy session agreed on.
pub(crate) struct Opened {
    pub(crate) version: Version,
    capabilities: Bytes,
    server_info: Option<Bytes>,
    instructions: Option<String>,
}

impl Opened {
    pub(crate) fn facts(self, transport: Transport, keeps_session: bool) -> Facts {
        Facts {
            era: self.version.era(),
            version: self.version,
            transport,
            keeps_session,
            server_info: self.server_info,
            capabilities: self.capabilities,
            instructions: self.instructions,
            evidence: Vec::new(),
            opened_in: Duration::ZERO,
        }
    }
}

/// What `initialize` got over HTTP.
pub(crate) fn initialized(
    server: &str,
    heard: Heard,
    evidence: &mut Vec<Evidence>,
) -> Result<Opened, Trouble> {
    evidence.push(Evidence {
        step: "initialize",
        answer: heard.words,
    });
    match (heard.message, heard.trouble) {
        (Some(message), None) => read_initialize(server, &message),
        (Some(message), Some(trouble)) if message.kind() == Kind::Error => {
            // The server's own words say more than the status they came with, but for those
            // statuses that speak for themselves.
            let plain = [Reason::Unauthorized, Reason::Forbidden, Reason::RateLimited];
            if plain.contains(&trouble.reason) {
                return Err(trouble);
            }
            read_initialize(server, &message)
        },
        (_, Some(trouble)) => Err(trouble),
        (None, None) => Err(Trouble::new(
            Reason::Handshake,
            format!("`{server}` did not answer `initialize`"),
        )),
    }
}

/// Reads the response to `initialize`.
pub(crate) fn read_initialize(server: &str, message: &Message) -> Result<Opened, Trouble> {
    if let Some(error) = message.error() {
        return Err(refused_handshake(server, "initialize", &error));
    }
    let result = message.result().unwrap_or_default();
    let opened = handshake::read_initialize_result(&result).map_err(|malformed| {
        Trouble::new(
            Reason::Handshake,
            format!("`{server}` answered `initialize` in a form that is not MCP"),
        )
        .because(malformed.to_string())
    })?;
    let version = Version::parse(&opened.version).filter(|v| v.era() == Era::Legacy);
    let Some(version) = version else {
        return Err(Trouble::new(
            Reason::Version,
            format!("`{server}` answered `initialize` with a version we do not speak"),
        )
        .because(format!(
            "protocolVersion \"{}\"",
            plain(opened.version.as_bytes(), 40)
        )));
    };
    Ok(Opened {
        version,
        capabilities: opened.capabilities,
        server_info: opened.server_info,
        instructions: opened.instructions,
    })
}

/// A JSON-RPC error instead of a handshake.
pub(crate) fn refused_handshake(server: &str, step: &str, error: &[u8]) -> Trouble {
    let parsed = RpcError::parse(error).ok();
    let code = parsed.as_ref().map_or(0, |e| e.code);
    let text = parsed.map(|e| e.message).unwrap_or_default();
    let (reason, hint) = if code == -32022 {
        (Reason::Version, None)
    } else if text.to_ascii_lowercase().contains("already initialized") {
        (
            Reason::SingleSession,
            Some("this server keeps one session per process; end the other client, or restart it"),
        )
    } else {
        (Reason::Handshake, None)
    };
    let trouble =
        Trouble::new(reason, format!("`{server}` refused `{step}`")).because(error_words(error));
    match hint {
        Some(hint) => trouble.hint(hint),
        None => trouble,
    }
}

/// The raw parameters of a cancel notice.
pub(crate) fn cancelled(id: u64) -> String {
    format!(r#"{{"requestId":{id},"reason":"the caller no longer waits"}}"#)
}

/// What a body says, on one short line without control characters.
fn text_of(body: &[u8]) -> Option<String> {
    if let Ok(message) = Message::split(Bytes::copy_from_slice(body))
        && let Some(error) = message.error()
    {
        return Some(error_words(&error));
    }
    let text = plain(body, 160);
    (!text.is_empty()).then_some(text)
}

/// Marks that change the direction of the text around them, so that it reads as something else.
const fn turns_around(character: char) -> bool {
    matches!(
        character,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    )
}

/// Bytes from outside made safe to show: one line, no control characters, bounded.
pub(crate) fn plain(bytes: &[u8], max: usize) -> String {
    let text = String::from_utf8_lossy(bytes.get(..max * 4).unwrap_or(bytes));
    let mut shown = String::new();
    let mut blank = true;
    for character in text.chars() {
        if character.is_whitespace() || character.is_control() || turns_around(character) {
            if !blank {
                shown.push(' ');
            }
            blank = true;
        } else {
            shown.push(character);
            blank = false;
        }
        if shown.chars().count() >= max {
            shown.push('…');
            break;
        }
    }
    shown.trim_end().to_owned()
}
