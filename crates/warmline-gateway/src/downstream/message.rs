//! A message of a client, and what its transport says about it.
//!
//! Streamable HTTP names in headers what HTTP+SSE and stdio know of their client: its session, and
//! the formats that it accepts.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use http::header::ACCEPT;
use http::request::Parts;
use http::{HeaderMap, HeaderValue};
use warmline_core::era::{Era, Version};
use warmline_core::message::envelope::{Message, MessageKind};
use warmline_core::message::params::Params;
use warmline_core::message::parse_error::{ParseError, ParseErrorKind};
use warmline_core::protocol::headers::{PROTOCOL_VERSION, SESSION_ID};
use warmline_core::protocol::meta;
use warmline_core::protocol::methods::Method;

use crate::response::event_queue::EventQueue;
use crate::response::stream::AcceptedFormats;

/// How the messages of a client arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientTransport {
    /// Streamable HTTP: each request has its own response.
    Http,
    /// The 2024-11-05 transport: one stream of events for everything.
    HttpSse,
    /// A pair of pipes: one line per message.
    Stdio,
}

/// What a transport says about a message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MessageHead<'a> {
    pub(crate) transport: ClientTransport,
    /// The headers of its HTTP request; empty over stdio.
    pub(crate) headers: &'a HeaderMap,
    /// The path of its HTTP request, for the audit.
    pub(crate) path: &'a str,
    /// The legacy client session that it belongs to.
    pub(crate) session: Option<&'a HeaderValue>,
    pub(crate) accepts: AcceptedFormats,
    /// The queue that is cancelled when the client cancels the request with a message and not by closing its
    /// response.
    pub(crate) queue: Option<&'a Arc<EventQueue>>,
}

impl<'a> MessageHead<'a> {
    pub(crate) fn http(head: &'a Parts) -> Self {
        Self {
            transport: ClientTransport::Http,
            headers: &head.headers,
            path: head.uri.path(),
            session: head.headers.get(SESSION_ID),
            // `reject_by_head` rejects a message whose client accepts none of the gateway's formats.
            accepts: accepted_formats(&head.headers).unwrap_or(AcceptedFormats::Json),
            queue: None,
        }
    }

    /// The head of a message of a client with a single stream, or of work that outlives its request.
    pub(crate) fn single_stream(
        transport: ClientTransport,
        headers: &'a HeaderMap,
        path: &'a str,
        session: Option<&'a HeaderValue>,
    ) -> Self {
        Self {
            transport,
            headers,
            path,
            session,
            accepts: AcceptedFormats::Both,
            queue: None,
        }
    }

    /// Whether all answers go to one stream, so that the client cannot resume a part of it.
    pub(crate) fn is_single_stream(self) -> bool {
        self.transport != ClientTransport::Http
    }

    /// The protocol version that the headers name. Only Streamable HTTP names it there.
    pub(crate) fn protocol_version(self) -> Option<&'a HeaderValue> {
        let is_http = self.transport == ClientTransport::Http;
        is_http
            .then(|| self.headers.get(PROTOCOL_VERSION))
            .flatten()
    }

    pub(crate) fn legacy_version(self) -> Option<Version> {
        let stated = self.protocol_version()?.to_str().ok()?;
        Version::parse(stated).filter(|version| version.era() == Era::Legacy)
    }

    pub(crate) fn claimed_era(self) -> Option<Era> {
        self.protocol_version().map(version_era)
    }
}

/// A message of a client, parsed once.
#[derive(Debug)]
pub(crate) enum InboundMessage {
    Single {
        message: Message,
        /// `Err` if they are no JSON object.
        params: Result<Params, ParseError>,
    },
    /// Several messages in one body, or none that can be read.
    Unparsed { body: Bytes, error: ParseError },
}

impl InboundMessage {
    pub(crate) fn parse(body: Bytes) -> Self {
        match Message::parse(body.clone()) {
            Ok(message) => {
                let params = message.params().map(Params::parse);
                let params = params.unwrap_or_else(|| Ok(Params::empty()));
                Self::Single { message, params }
            },
            Err(error) => Self::Unparsed { body, error },
        }
    }

    pub(crate) fn is_batch(&self) -> bool {
        matches!(self, Self::Unparsed { error, .. } if error.kind == ParseErrorKind::Batch)
    }

    pub(crate) fn message(&self) -> Option<&Message> {
        match self {
            Self::Single { message, .. } => Some(message),
            Self::Unparsed { .. } => None,
        }
    }

    pub(crate) fn method(&self) -> Option<&str> {
        self.message().and_then(Message::method)
    }

    pub(crate) fn params(&self) -> Option<&Params> {
        match self {
            Self::Single { params, .. } => params.as_ref().ok(),
            Self::Unparsed { .. } => None,
        }
    }

    /// The era of a single message whose parameters could be read.
    pub(crate) fn era(&self, claimed: Option<Era>) -> Option<Era> {
        Some(message_era(claimed, self.message()?, self.params()?))
    }
}

/// The era of a message (mcp-spec 4.3): its body says, and the era that the header claims only
/// where the body says nothing. A response says nothing: under a modern version nobody waits for one.
pub(crate) fn message_era(claimed: Option<Era>, message: &Message, params: &Params) -> Era {
    let is_initialize = message.method() == Some("initialize");
    let claims = |name: &str| params.meta_member(name).is_some();
    // `initialize` is legacy by definition, unless it says all that a modern request does.
    if claims(meta::PROTOCOL_VERSION) && (!is_initialize || claims(meta::CLIENT_CAPABILITIES)) {
        return Era::Modern;
    }
    match claimed {
        Some(Era::Modern) if !is_initialize => Era::Modern,
        _ => Era::Legacy,
    }
}

/// The era of a version. A text that is no known version and sorts after the legacy ones is modern.
fn version_era(stated: &HeaderValue) -> Era {
    let version = stated.to_str().ok().and_then(Version::parse);
    version.map_or_else(
        || {
            // Versions are dates, which sort as text.
            let newest = Version::NEWEST_LEGACY.as_str().as_bytes();
            if stated.as_bytes() > newest {
                Era::Modern
            } else {
                Era::Legacy
            }
        },
        Version::era,
    )
}

pub(super) fn accepted_formats(headers: &HeaderMap) -> Option<AcceptedFormats> {
    let mut stated = headers.get_all(ACCEPT).iter().peekable();
    if stated.peek().is_none() {
        return Some(AcceptedFormats::Both);
    }
    let (mut json, mut events) = (false, false);
    for part in stated
        .filter_map(|value| value.to_str().ok())
        .flat_map(|text| text.split(','))
    {
        let kind = part.split(';').next().unwrap_or_default().trim();
        let is = |name: &str| kind.eq_ignore_ascii_case(name);
        json |= is("application/json") || is("application/*") || is("*/*");
        events |= is("text/event-stream") || is("text/*") || is("*/*");
    }
    match (json, events) {
        (true, true) => Some(AcceptedFormats::Both),
        (true, false) => Some(AcceptedFormats::Json),
        (false, true) => Some(AcceptedFormats::Events),
        (false, false) => None,
    }
}

pub(crate) const MISSING_ID: &str = "Invalid Request: only notifications have no id";

/// Whether a message is a request that lacks its id. Passed on as a notification it would go around
/// the rules and the audit, and a server might well do what it asks.
pub(crate) fn is_missing_id(message: &Message) -> bool {
    let is_notification = |method: &str| method.starts_with("notifications/");
    matches!(message.kind(), MessageKind::Notification)
        && !message.method().is_some_and(is_notification)
}

pub(crate) fn raw_id(message: &Message) -> Bytes {
    let id = message.raw_id();
    id.map(|id| message.raw().slice_ref(id)).unwrap_or_default()
}

/// An id by value: one text has several spellings in JSON.
pub(crate) fn canonical_id(raw: &[u8]) -> Bytes {
    match serde_json::from_slice::<Cow<'_, str>>(raw) {
        // The quote tells it from a number.
        Ok(text) => [b"\"", text.as_bytes()].concat().into(),
        Err(_) => Bytes::copy_from_slice(raw),
    }
}

pub(crate) fn is_same_id(one: &[u8], other: &[u8]) -> bool {
    let is_escaped = |raw: &[u8]| raw.contains(&b'\\');
    one == other
        || (is_escaped(one) || is_escaped(other)) && canonical_id(one) == canonical_id(other)
}

/// The name of a method; those of the protocol are static.
pub(crate) fn method_name(name: &str) -> Cow<'static, str> {
    match Method::find(name) {
        Some(method) => Cow::Borrowed(method.name),
        None => Cow::Owned(name.to_owned()),
    }
}
