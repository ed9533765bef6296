//! The envelope of a JSON-RPC message: its kind, its id, and where its parts are. And batches:
//! several messages in one text, which only 2025-03-26 has. A batch in a batch is none.
//!
//! No tree is built: what is not read passes unchanged, and a tree costs ten times as much. Refused
//! are duplicate members (two readers would see two messages), batches, and anything that is not
//! exactly one request, notification or response. A response without an id is accepted: over HTTP
//! such an error belongs to the POST that it answers.

use std::borrow::Cow;
use std::ops::Range;

use bytes::{Bytes, BytesMut};

use crate::era::Version;
use crate::message::json::{self, Member};
pub use crate::message::parse_error::{ParseError, ParseErrorKind};

/// One JSON-RPC message: shared bytes, and where its parts are.
#[derive(Clone, Debug)]
pub struct Message {
    raw: Bytes,
    kind: MessageKind,
    id: Option<Range<usize>>,
    method: Option<MethodText>,
    params: Option<Range<usize>>,
    payload: Option<Range<usize>>,
}

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MessageKind {
    /// Has a method and an id.
    Request,
    /// Has a method and no id.
    Notification,
    Result,
    Error,
}

/// The id of a message, by value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RequestId {
    /// `null`: the server could not read the id of the request it answers.
    Null,
    Number(i64),
    Text(String),
    /// A number that is no integer of 64 bits.
    Other,
}

/// The error of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RpcError {
    /// The number of the error.
    pub code: i64,
    /// The sentence beside it.
    pub message: String,
    /// The raw `data`, if there is any.
    pub data: Option<Bytes>,
}

#[derive(Clone, Debug)]
enum MethodText {
    Plain(Range<usize>),
    Unescaped(Box<str>),
}

impl Message {
    /// Splits one message into its parts.
    pub fn parse(raw: Bytes) -> Result<Self, ParseError> {
        let text = json::parse_utf8(&raw)?;
        let mut parts = MessageParts::default();
        json::walk_members(text, |member| parts.add_member(&member))
            .map_err(|fault| batch_fault_or(fault, text))?;
        Ok(Self {
            kind: parts.kind()?,
            id: parts.id,
            method: parts.method,
            params: parts.params,
            payload: parts.result.or(parts.error),
            raw,
        })
    }

    pub const fn kind(&self) -> MessageKind {
        self.kind
    }

    /// The whole message as it came.
    pub const fn raw(&self) -> &Bytes {
        &self.raw
    }

    pub fn raw_id(&self) -> Option<&[u8]> {
        self.raw.get(self.id.clone()?)
    }

    pub fn id(&self) -> Option<RequestId> {
        self.raw_id().map(RequestId::from_raw)
    }

    pub fn method(&self) -> Option<&str> {
        match self.method.as_ref()? {
            MethodText::Plain(range) => std::str::from_utf8(self.raw.get(range.clone())?).ok(),
            MethodText::Unescaped(text) => Some(text),
        }
    }

    pub fn params(&self) -> Option<Bytes> {
        self.params.clone().map(|range| self.raw.slice(range))
    }

    pub fn result(&self) -> Option<Bytes> {
        self.payload_if(MessageKind::Result)
    }

    pub fn error(&self) -> Option<Bytes> {
        self.payload_if(MessageKind::Error)
    }

    pub fn is_response_to(&self, our_id: u64) -> bool {
        matches!(self.kind, MessageKind::Result | MessageKind::Error)
            && self.id().is_some_and(|id| id.is_number(our_id))
    }

    /// The same message under another id, given as raw JSON. A message without an id gets it as
    /// its first member.
    pub fn with_id(&self, raw_id: &[u8]) -> Bytes {
        let mut out = BytesMut::with_capacity(self.raw.len() + raw_id.len() + 6);
        if let Some(range) = &self.id {
            out.extend_from_slice(self.raw.get(..range.start).unwrap_or_default());
            out.extend_from_slice(raw_id);
            out.extend_from_slice(self.raw.get(range.end..).unwrap_or_default());
        } else {
            let inside = memchr::memchr(b'{', &self.raw).map_or(0, |brace| brace + 1);
            out.extend_from_slice(self.raw.get(..inside).unwrap_or_default());
            out.extend_from_slice(b"\"id\":");
            out.extend_from_slice(raw_id);
            out.extend_from_slice(b",");
            out.extend_from_slice(self.raw.get(inside..).unwrap_or_default());
        }
        out.freeze()
    }

    fn payload_if(&self, kind: MessageKind) -> Option<Bytes> {
        if self.kind != kind {
            return None;
        }
        self.payload.clone().map(|range| self.raw.slice(range))
    }
}

impl RequestId {
    /// Whether it is this number. `1` and `"1"` are different ids.
    pub fn is_number(&self, number: u64) -> bool {
        matches!(self, Self::Number(n) if u64::try_from(*n) == Ok(number))
    }

    fn from_raw(raw: &[u8]) -> Self {
        let Ok(text) = std::str::from_utf8(raw) else {
            return Self::Other;
        };
        if text == "null" {
            return Self::Null;
        }
        if let Some(unescaped) = json::decode_string(text) {
            return Self::Text(unescaped.into_owned());
        }
        text.parse().map_or(Self::Other, Self::Number)
    }
}

impl RpcError {
    /// Reads the raw `error` of a response.
    pub fn parse(raw: &[u8]) -> Result<Self, ParseError> {
        let text = json::parse_utf8(raw)?;
        let (mut code, mut message, mut data) = (None, None, None);
        json::walk_members(text, |member| {
            match member.name.as_ref() {
                "code" => code = parse_integer(member.value),
                "message" => message = json::decode_string(member.value),
                "data" => data = Some(Bytes::copy_from_slice(member.value.as_bytes())),
                _ => {},
            }
            Ok(())
        })?;
        match (code, message) {
            (Some(code), Some(message)) => Ok(Self {
                code,
                message: message.into_owned(),
                data,
            }),
            _ => Err(ParseError::new(ParseErrorKind::BadError, 0)),
        }
    }
}

impl std::fmt::Display for RpcError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.message, self.code)
    }
}

impl std::error::Error for RpcError {}

/// An integer, also where a server wrote it as `-32600.0`.
pub(crate) fn parse_integer(raw: &str) -> Option<i64> {
    if let Ok(plain) = raw.parse() {
        return Some(plain);
    }
    let float: f64 = raw.parse().ok()?;
    let whole = float.fract() == 0.0 && float.abs() < 9_007_199_254_740_992.0;
    #[expect(clippy::cast_possible_truncation, reason = "whole and below 2^53")]
    whole.then_some(float as i64)
}

#[derive(Default)]
struct MessageParts {
    version_ok: bool,
    id: Option<Range<usize>>,
    id_is_null: bool,
    /// Whether the id is a number that is not written as an integer. A server may answer so.
    id_is_fraction: bool,
    method: Option<MethodText>,
    params: Option<Range<usize>>,
    result: Option<Range<usize>>,
    error: Option<Range<usize>>,
}

impl MessageParts {
    fn add_member(&mut self, member: &Member<'_>) -> Result<(), ParseError> {
        let fault = |what| Err(ParseError::new(what, member.offset));
        let first = member.value.as_bytes().first().copied();
        match member.name.as_ref() {
            "jsonrpc" => {
                if json::decode_string(member.value).as_deref() != Some("2.0") {
                    return fault(ParseErrorKind::NotJsonRpc);
                }
                self.version_ok = true;
            },
            "id" => match first {
                Some(b'"') => self.id = Some(member.range()),
                Some(b'-' | b'0'..=b'9') => {
                    self.id = Some(member.range());
                    self.id_is_fraction = member.value.contains(['.', 'e', 'E']);
                },
                Some(b'n') => {
                    self.id = Some(member.range());
                    self.id_is_null = true;
                },
                _ => return fault(ParseErrorKind::BadId),
            },
            "method" => self.method = Some(parse_method(member)?),
            // Some implementations write `null` for no parameters.
            "params" => match first {
                Some(b'{') => self.params = Some(member.range()),
                Some(b'n') => {},
                _ => return fault(ParseErrorKind::BadParams),
            },
            "result" => self.result = Some(member.range()),
            "error" if first == Some(b'{') => self.error = Some(member.range()),
            "error" => return fault(ParseErrorKind::BadError),
            _ => {},
        }
        Ok(())
    }

    fn kind(&self) -> Result<MessageKind, ParseError> {
        if !self.version_ok {
            return Err(ParseError::new(ParseErrorKind::NotJsonRpc, 0));
        }
        match (&self.method, &self.id, &self.result, &self.error) {
            (Some(_), Some(id), None, None) if self.id_is_null || self.id_is_fraction => {
                Err(ParseError::new(ParseErrorKind::BadId, id.start))
            },
            (Some(_), Some(_), None, None) => Ok(MessageKind::Request),
            (Some(_), None, None, None) => Ok(MessageKind::Notification),
            (None, _, Some(_), None) => Ok(MessageKind::Result),
            (None, _, None, Some(_)) => Ok(MessageKind::Error),
            _ => Err(ParseError::new(ParseErrorKind::UnknownMessageKind, 0)),
        }
    }
}

/// An array in place of a message is a batch of them.
fn batch_fault_or(fault: ParseError, text: &str) -> ParseError {
    let is_array = text.as_bytes().get(fault.offset) == Some(&b'[');
    if fault.kind == ParseErrorKind::NotObject && is_array {
        return ParseError::new(ParseErrorKind::Batch, fault.offset);
    }
    fault
}

fn parse_method(member: &Member<'_>) -> Result<MethodText, ParseError> {
    match json::decode_string(member.value) {
        Some(Cow::Borrowed(text)) if !text.is_empty() => {
            Ok(MethodText::Plain(member.offset + 1..member.range().end - 1))
        },
        Some(Cow::Owned(text)) if !text.is_empty() => Ok(MethodText::Unescaped(text.into())),
        Some(_) | None => Err(ParseError::new(ParseErrorKind::BadMethod, member.offset)),
    }
}

/// The messages of a text: those of a batch, where this version has batches, or else the text
/// itself.
pub fn split_batch(text: Bytes, version: Option<Version>) -> BatchMessages {
    let next = first_message_offset(&text, version).map_or(BatchPosition::Whole, BatchPosition::At);
    BatchMessages { text, next }
}

/// Whether a text is a batch where this version knows such.
pub fn is_batch(text: &[u8], version: Option<Version>) -> bool {
    first_message_offset(text, version).is_some()
}

/// Where the first message of a batch begins.
fn first_message_offset(text: &[u8], version: Option<Version>) -> Option<usize> {
    version.filter(|version| version.supports_batches())?;
    let open = json::skip_whitespace(text, 0);
    if text.get(open) != Some(&b'[') {
        return None;
    }
    let first = json::skip_whitespace(text, open + 1);
    let end = json::value_end(text, open).ok()?;
    let is_all = json::skip_whitespace(text, end) == text.len() && json::parse_utf8(text).is_ok();
    (is_all && text.get(first) != Some(&b']')).then_some(first)
}

/// The texts of messages that came in one. They are found one by one: however many there are,
/// nothing is held of them.
#[derive(Clone, Debug, Default)]
pub struct BatchMessages {
    text: Bytes,
    next: BatchPosition,
}

#[derive(Clone, Copy, Debug, Default)]
enum BatchPosition {
    /// The text itself.
    Whole,
    At(usize),
    #[default]
    Done,
}

impl Iterator for BatchMessages {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        let at = match self.next {
            BatchPosition::Whole => {
                self.next = BatchPosition::Done;
                return Some(std::mem::take(&mut self.text));
            },
            BatchPosition::At(at) => at,
            BatchPosition::Done => return None,
        };
        self.next = BatchPosition::Done;
        // That all of it is JSON was seen before.
        let end = json::value_end(&self.text, at).ok()?;
        let behind = json::skip_whitespace(&self.text, end);
        if self.text.get(behind) == Some(&b',') {
            self.next = BatchPosition::At(json::skip_whitespace(&self.text, behind + 1));
        }
        Some(self.text.slice(at..end))
    }
}

#[cfg(test)]
mod tests;
