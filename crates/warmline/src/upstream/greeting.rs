//! What the messages of a handshake got, over HTTP and over a pipe.

use std::time::Duration;

use bytes::Bytes;
use serde::Deserialize;
use warmline_core::code::{Code, Reason};
use warmline_core::delivery::Delivery;
use warmline_core::era::{Era, Version};
use warmline_core::exchange::{Patience, Trouble};
use warmline_core::key::Transport;
use warmline_core::protocol::envelope::{Kind, Message, RpcError};
use warmline_core::protocol::gone::Dialect;
use warmline_core::protocol::handshake;
use warmline_core::protocol::sse::SseParser;
use warmline_core::protocol::status::{Body, Meaning, read_status};
use warmline_core::verdict::supported_versions;

use super::answer::{self, SINGLE_SESSION, Said, Sent};
use super::facts::{Evidence, Facts};
use super::http::{Arrival, BodyKind, Cut};
use super::limits::Limits;
use super::listener::NOBODY_ANSWERS;
use super::server::Sizes;
use super::stream::{Pause, Watch};
use super::wording::{error_words, plain, words};
use crate::clock::{self, Instant};

/// Nothing that belongs to a handshake is larger.
const HANDSHAKE_BODY: usize = 1 << 20;

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

impl Heard {
    /// The reply had no end that could be read.
    fn cut(server: &str, status: u16, cut: &Cut) -> Self {
        let trouble = cut_trouble(server, cut);
        Self {
            status,
            message: None,
            words: format!("HTTP {status}, then {}", trouble.what),
            trouble: Some(trouble),
        }
    }
}

/// Reads the reply to a message of the handshake to its end.
pub(crate) async fn hear(sent: Sent<'_>, arrival: Arrival, by: Instant) -> Heard {
    if arrival.status.as_u16() == 200 && arrival.kind() == BodyKind::Stream {
        return hear_stream(sent, arrival, by).await;
    }
    let server = sent.way.server();
    let status = arrival.status.as_u16();
    let said = Said::of(&arrival);
    let is_json = arrival.kind() == BodyKind::Json;
    let body = match arrival
        .whole(sent.way.sizes.reply.min(HANDSHAKE_BODY), by, &())
        .await
    {
        Ok(body) => body,
        Err(cut) => return Heard::cut(server, status, &cut),
    };
    let message = Message::split(body.clone()).ok();
    let words = words(status, message.as_ref(), &body);
    let trouble = match read_status(&sent.facts(status, Body::Whole(&body), &said)) {
        Meaning::Answer(_) if status != 200 || is_json => None,
        Meaning::Answer(_) => Some(said.trouble(server, status, Reason::BadReply, &body)),
        Meaning::Wait => Some(said.trouble(server, status, Reason::NoReplyChannel, &body)),
        Meaning::Refused { reason, gone } | Meaning::Unknown { reason, gone } => {
            let trouble = said.trouble(server, status, reason, &body);
            // Of our session nothing can be said here: there is none yet.
            let taken = gone.filter(|form| *form == Dialect::SingleSession);
            Some(answer::told_gone(server, trouble, taken))
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
    match first_reply(&mut arrival, sent.id, sent.way.sizes, by).await {
        Ok(message) => {
            arrival.drain();
            Heard {
                status,
                words: words(status, Some(&message), b""),
                message: Some(message),
                trouble: None,
            }
        },
        Err(cut) => Heard::cut(sent.way.server(), status, &cut),
    }
}

async fn first_reply(
    arrival: &mut Arrival,
    id: u64,
    sizes: Sizes,
    by: Instant,
) -> Result<Message, Cut> {
    let left = by.saturating_duration_since(clock::now());
    let patience = Patience {
        idle: left,
        total: left,
    };
    let mut watch = Watch::new(id, Limits::begin(patience), &());
    let mut parser = SseParser::new(sizes.event);
    loop {
        match watch.read(arrival, &mut parser).await {
            Pause::Reply(message) => return Ok(message),
            Pause::Ask(_) | Pause::Turned(_) => {},
            Pause::Ended => {
                let why = "the server ended the stream without an answer";
                return Err(Cut::Broken(why.to_owned()));
            },
            Pause::Strays => {
                let why = "the stream answers requests that nobody sent";
                return Err(Cut::Broken(why.to_owned()));
            },
            Pause::Broken(why) => return Err(Cut::Broken(why)),
            Pause::TooLarge { limit } => return Err(Cut::TooLarge { limit }),
            Pause::Late => return Err(Cut::Late),
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

/// Which version a handshake offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Offer {
    /// This one, or whatever else the server has that we speak.
    UpTo(Version),
    /// This one and no other.
    Exactly(Version),
}

impl Offer {
    /// What stands in the message.
    pub(crate) const fn version(self) -> Version {
        match self {
            Self::UpTo(version) | Self::Exactly(version) => version,
        }
    }

    /// Whether the version that a server chose will do.
    pub(crate) fn accepts(self, server: &str, chosen: Version) -> Result<(), Trouble> {
        if self == Self::Exactly(chosen) || matches!(self, Self::UpTo(_)) {
            return Ok(());
        }
        let what = format!("`{server}` does not speak the version that is wanted");
        let trouble = Trouble::new(Reason::Version, what);
        Err(self.explain(trouble.because(format!("it chose version {chosen}"))))
    }

    /// The same trouble, with the version that we insisted on.
    pub(crate) fn explain(self, mut trouble: Trouble) -> Trouble {
        if let (Self::Exactly(wanted), Reason::Version | Reason::Handshake) = (self, trouble.reason)
        {
            let why = trouble.why.take().unwrap_or_default();
            trouble.why = Some(format!("version {wanted} is wanted; {why}"));
            trouble.hint.get_or_insert_with(|| UNPIN.to_owned());
        }
        trouble
    }
}

/// What to do about a version that a server does not speak.
const UNPIN: &str = "leave the version to be agreed on, or say one that the server has";

/// What an opened legacy session agreed on.
pub(crate) struct Opened {
    pub(crate) version: Version,
    capabilities: Bytes,
    server_info: Option<Bytes>,
    instructions: Option<String>,
    expires_in: Option<Duration>,
    said: Bytes,
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
            expires_in: self.expires_in,
            said: Some(self.said),
            heard: Some(clock::now()),
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
    read_initialize_result(server, &message.result().unwrap_or_default())
}

/// Reads the result of `initialize`.
pub(crate) fn read_initialize_result(server: &str, result: &[u8]) -> Result<Opened, Trouble> {
    let opened = handshake::read_initialize_result(result).map_err(|malformed| {
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
        expires_in: opened.expires_in,
        said: Bytes::copy_from_slice(result),
    })
}

/// An error that was understood, in place of an answer that would tell the era: what the server
/// said is what there is to say.
pub(crate) fn said_instead(server: &str, status: u16, error: &RpcError) -> Trouble {
    let trouble = Trouble::new(Reason::Handshake, said(server, error));
    of_a_warmline(
        server,
        trouble.because(format!("HTTP {status}, {}", error.code)),
        error,
    )
}

fn said(server: &str, error: &RpcError) -> String {
    let message = plain(error.message.as_bytes(), 200);
    match message.is_empty() {
        true => format!("`{server}` answered with an error"),
        false => format!("`{server}` says: {message}"),
    }
}

/// The same, where another Warmline says it, with the code that it has there, what it advises and
/// when to come back.
fn of_a_warmline(server: &str, mut trouble: Trouble, error: &RpcError) -> Trouble {
    #[derive(Deserialize)]
    struct Data {
        warmline: Fields,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Fields {
        code: String,
        hint: Option<String>,
        retry_after_ms: Option<u64>,
    }
    let data = error.data.as_deref().map(serde_json::from_slice::<Data>);
    if let Some(Ok(Data { warmline })) = data
        && let Some(code) = Code::parse(&warmline.code)
    {
        trouble = trouble.coded(code);
        // What is known of the request is said where everybody says it.
        let said = said(server, error);
        let known = Delivery::Unsent.sentence().unwrap_or_default();
        let bare = said.strip_suffix(known).unwrap_or(&said);
        trouble.what = bare.trim_end_matches("; ").to_owned();
        trouble.hint = warmline.hint.map(|hint| plain(hint.as_bytes(), 200));
        trouble.retry_after = warmline.retry_after_ms.map(Duration::from_millis);
    }
    trouble
}

/// A JSON-RPC error instead of a handshake.
pub(crate) fn refused_handshake(server: &str, step: &str, error: &[u8]) -> Trouble {
    let parsed = RpcError::parse(error).ok();
    let code = parsed.as_ref().map_or(0, |e| e.code);
    let text = parsed
        .as_ref()
        .map(|e| e.message.as_str())
        .unwrap_or_default();
    // Our own words: it took our question for one of its own, which we refused.
    if text == NOBODY_ANSWERS {
        return Trouble::new(
            Reason::NotMcp,
            format!("`{server}` repeats what is sent to it"),
        )
        .because("it is not an MCP server")
        .hint("look at the command: it may lack the words that make it serve MCP");
    }
    // A server that does not know the handshake of an era does not speak it.
    let (reason, hint) = if code == -32022 || code == -32601 {
        (Reason::Version, None)
    } else if text.to_ascii_lowercase().contains("already initialized") {
        (Reason::SingleSession, Some(SINGLE_SESSION))
    } else {
        (Reason::Handshake, None)
    };
    let mut why = error_words(error);
    if let Some(supported) = parsed.as_ref().and_then(supported_versions) {
        let list = plain(supported.join(", ").as_bytes(), 200);
        why = format!("{why}; it supports {list}");
    }
    let trouble = Trouble::new(reason, format!("`{server}` refused `{step}`")).because(why);
    let trouble = match &parsed {
        Some(error) => of_a_warmline(server, trouble, error),
        None => trouble,
    };
    match hint {
        Some(hint) => trouble.hint(hint),
        None => trouble,
    }
}
