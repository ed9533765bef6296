//! The envelope of a JSON-RPC message: its kind, its id, and where its parts are.
//!
//! No tree is built: what is not read passes unchanged, and a tree costs ten times as much. Refused
//! are duplicate members (two readers would see two messages), batches, and anything that is not
//! exactly one request, notification or response. A response without an id is accepted: over HTTP
//! such an error belongs to the POST that it answers.

use std::ops::Range;

use bytes::{Bytes, BytesMut};

use crate::message::object;
use crate::message::object::Member;
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
    /// A response with a result.
    Result,
    /// A response with an error.
    Error,
}

/// The id of a message, by value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RequestId {
    /// `null`: the server could not read the id of the request it answers.
    Null,
    /// An integer.
    Number(i64),
    /// A text.
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
        let text = object::parse_utf8(&raw)?;
        let mut parts = MessageParts::default();
        object::walk_members(text, |member| parts.add_member(&member))
            .map_err(|fault| batch_fault_or(fault, text))?;
        let kind = parts.kind()?;
        let MessageParts {
            id,
            method,
            params,
            result,
            error,
            ..
        } = parts;
        Ok(Self {
            kind,
            id,
            method,
            params,
            payload: result.or(error),
            raw,
        })
    }

    /// What the message is.
    pub const fn kind(&self) -> MessageKind {
        self.kind
    }

    /// The whole message as it came.
    pub const fn raw(&self) -> &Bytes {
        &self.raw
    }

    /// The raw id.
    pub fn raw_id(&self) -> Option<&[u8]> {
        self.raw.get(self.id.clone()?)
    }

    /// The id by value.
    pub fn id(&self) -> Option<RequestId> {
        self.raw_id().map(RequestId::from_raw)
    }

    /// The method, unescaped.
    pub fn method(&self) -> Option<&str> {
        match self.method.as_ref()? {
            MethodText::Plain(range) => std::str::from_utf8(self.raw.get(range.clone())?).ok(),
            MethodText::Unescaped(text) => Some(text),
        }
    }

    /// The raw parameters.
    pub fn params(&self) -> Option<Bytes> {
        self.params.clone().map(|range| self.raw.slice(range))
    }

    /// The raw result.
    pub fn result(&self) -> Option<Bytes> {
        self.payload_if(MessageKind::Result)
    }

    /// The raw error.
    pub fn error(&self) -> Option<Bytes> {
        self.payload_if(MessageKind::Error)
    }

    /// Whether it is a response to our request of that id.
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
        if let Some(unescaped) = object::decode_string(text) {
            return Self::Text(unescaped.into_owned());
        }
        text.parse().map_or(Self::Other, Self::Number)
    }
}

impl RpcError {
    /// Reads the raw `error` of a response.
    pub fn parse(raw: &[u8]) -> Result<Self, ParseError> {
        let text = object::parse_utf8(raw)?;
        let (mut code, mut message, mut data) = (None, None, None);
        object::walk_members(text, |member| {
            match member.name.as_ref() {
                "code" => code = parse_integer(member.value),
                "message" => message = object::decode_string(member.value),
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
                if object::decode_string(member.value).as_deref() != Some("2.0") {
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
    let refused = ParseError::new(ParseErrorKind::BadMethod, member.offset);
    match object::decode_string(member.value).ok_or(refused)? {
        text if text.is_empty() => Err(refused),
        std::borrow::Cow::Borrowed(_) => {
            Ok(MethodText::Plain(member.offset + 1..member.range().end - 1))
        },
        std::borrow::Cow::Owned(text) => Ok(MethodText::Unescaped(text.into())),
    }
}

#[cfg(test)]
mod tests;
