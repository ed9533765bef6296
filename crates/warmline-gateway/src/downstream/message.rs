//! A message of a client, and what its transport says about it.
//!
//! Streamable HTTP names in headers what HTTP+SSE and stdio know of their client: its session, and
//! the formats that it accepts.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use http::header::ACCEPT;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue};
use memchr::memmem;
use warmline_core::era::{Era, Version};
use warmline_core::message::envelope::{Message, MessageKind};
use warmline_core::message::params::Params;
use warmline_core::message::parse_error::{ParseError, ParseErrorKind};
use warmline_core::message::splice::{self, Edit};
use warmline_core::protocol::headers::{PROTOCOL_VERSION, SESSION_ID};
use warmline_core::protocol::meta::{self, BAGGAGE, TRACE_PARENT, TRACE_STATE};
use warmline_core::protocol::methods::Method;
use warmline_core::protocol::trace::trace_id;

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

/// A JSON object with these edits; `None` if it is none.
pub(crate) fn edited(object: &[u8], edits: &[Edit<'_>]) -> Option<Bytes> {
    let added = edits.iter().map(|edit| match edit {
        Edit::Set(_, value) => value.len(),
        Edit::Remove(_) => 0,
    });
    let mut out = Vec::with_capacity(object.len() + added.sum::<usize>());
    splice::edit_object(object, edits, &mut out).ok()?;
    Some(out.into())
}

/// The name of a method; those of the protocol are static.
pub(crate) fn method_name(name: &str) -> Cow<'static, str> {
    match Method::find(name) {
        Some(method) => Cow::Borrowed(method.name),
        None => Cow::Owned(name.to_owned()),
    }
}

/// A longer `tracestate` is not passed on.
const MAX_TRACESTATE: usize = 4 << 10;
/// A longer `baggage` is not passed on: the limit of its specification.
const MAX_BAGGAGE: usize = 8 << 10;

/// The trace context of a request, for its server. The gateway makes no spans
/// (`docs/adr/0013-traces-are-forwarded.md`), so headers are passed on as headers, `_meta` as `_meta`,
/// and what is only in `_meta` as headers too. A program gets what is only in headers in its `_meta`.
/// Malformed values are dropped.
pub(crate) fn trace_headers(
    headers: &HeaderMap,
    params: &Params,
) -> impl Iterator<Item = (HeaderName, HeaderValue)> + use<> {
    let said = TraceSource { headers, params };
    let parent = said.traceparent();
    let state = parent.as_ref().and_then(|_| said.value(TRACE_STATE));
    let state = state.filter(|state| state.len() <= MAX_TRACESTATE);
    let baggage = said.value(BAGGAGE);
    let baggage = baggage.filter(|baggage| baggage.len() <= MAX_BAGGAGE);
    let made = [
        trace_header(TRACE_PARENT, parent),
        trace_header(TRACE_STATE, state),
        trace_header(BAGGAGE, baggage),
    ];
    made.into_iter().flatten()
}

fn trace_header(
    name: &'static str,
    text: Option<Cow<'_, str>>,
) -> Option<(HeaderName, HeaderValue)> {
    let value = HeaderValue::from_str(&text?).ok()?;
    Some((HeaderName::from_static(name), value))
}

pub(crate) fn request_trace_id(headers: &HeaderMap, params: &Params) -> Option<String> {
    let parent = TraceSource { headers, params }.traceparent()?;
    trace_id(&parent).map(str::to_owned)
}

#[derive(Clone, Copy)]
struct TraceSource<'a> {
    headers: &'a HeaderMap,
    params: &'a Params,
}

impl<'a> TraceSource<'a> {
    /// The valid `traceparent`: of the header, else of `_meta`.
    fn traceparent(self) -> Option<Cow<'a, str>> {
        let is_one = |parent: &Cow<'a, str>| trace_id(parent).is_some();
        let header = self.header(TRACE_PARENT).filter(is_one);
        header.or_else(|| self.meta_value(TRACE_PARENT).filter(is_one))
    }

    fn value(self, name: &'static str) -> Option<Cow<'a, str>> {
        self.header(name).or_else(|| self.meta_value(name))
    }

    /// The text of a header. Several headers of one name are one list.
    fn header(self, name: &'static str) -> Option<Cow<'a, str>> {
        let mut all = self.headers.get_all(name).iter();
        let first = all.next()?.to_str().ok()?;
        let mut text = Cow::Borrowed(first);
        for more in all {
            // Two parents are invalid.
            if name == TRACE_PARENT {
                return None;
            }
            let joined = text.to_mut();
            joined.push(',');
            joined.push_str(more.to_str().ok()?);
        }
        Some(text)
    }

    /// Most requests have no trace, and are not parsed for it.
    fn meta_value(self, name: &'static str) -> Option<Cow<'a, str>> {
        memmem::find(self.params.raw(), name.as_bytes())?;
        let raw = self.params.meta_member(name)?;
        let text: String = serde_json::from_slice(raw).ok()?;
        Some(Cow::Owned(text))
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::Request;
    use serde_json::{Value, json};

    use super::*;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    const OTHER: &str = "00-1af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn passed(headers: &[(&str, &str)], meta: &Value) -> Vec<(String, String)> {
        let mut request = Request::builder();
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (head, ()) = request.body(()).unwrap().into_parts();
        let raw = json!({ "_meta": meta }).to_string();
        let params = Params::parse(Bytes::from(raw)).unwrap();
        let passed = trace_headers(&head.headers, &params);
        passed
            .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()))
            .collect()
    }

    /// Headers, `_meta`, and what is passed on.
    type Case<'a> = (Vec<(&'a str, &'a str)>, Value, Vec<(String, String)>);

    /// P57: each request passes on its own trace, from where it is said, and no other.
    #[test]
    fn what_is_said_of_a_trace_is_passed_on_and_what_is_malformed_is_not() {
        let large = format!("a={}", "x".repeat(MAX_BAGGAGE));
        let pairs = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
            let owned = pairs.iter();
            owned
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect()
        };
        #[rustfmt::skip]
    let cases: Vec<Case<'_>> = vec![
        (vec![], json!({}), vec![]),
        (vec![("traceparent", PARENT)], json!({}), pairs(&[("traceparent", PARENT)])),
        (vec![], json!({ "traceparent": PARENT }), pairs(&[("traceparent", PARENT)])),
        (vec![("traceparent", PARENT)], json!({ "traceparent": OTHER }), pairs(&[("traceparent", PARENT)])),
        (vec![("traceparent", "nonsense")], json!({ "traceparent": OTHER }), pairs(&[("traceparent", OTHER)])),
        (vec![("traceparent", "nonsense"), ("tracestate", "a=1")], json!({}), vec![]),
        (vec![("traceparent", PARENT), ("traceparent", OTHER)], json!({}), vec![]),
        (vec![("tracestate", "a=1")], json!({}), vec![]),
        (vec![], json!({ "traceparent": 7, "tracestate": ["a"] }), vec![]),
        (vec![], json!({ "traceparent": format!("{PARENT}\r\nX: y") }), vec![]),
        (
            vec![("traceparent", PARENT), ("tracestate", "a=1"), ("tracestate", "b=2")],
            json!({}),
            pairs(&[("traceparent", PARENT), ("tracestate", "a=1,b=2")]),
        ),
        (vec![("baggage", "who=me")], json!({}), pairs(&[("baggage", "who=me")])),
        (vec![], json!({ "baggage": "who=me\r\nX: y" }), vec![]),
        (vec![("baggage", &large)], json!({}), vec![]),
    ];
        for (headers, meta, expected) in cases {
            assert_eq!(passed(&headers, &meta), expected, "{headers:?} {meta}");
        }
    }
}
