//! The headers of the protocol, and how values are encoded in them.
//!
//! A modern request repeats its method, its name and chosen arguments in headers, so that
//! intermediaries can route without reading bodies. A server refuses a header that contradicts the
//! body, so both are made from the same bytes.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderName, HeaderValue};

use super::methods::Method;
use crate::message::params::Params;

pub use super::param_headers::{ParamHeaderError, ParamHeaders};

/// The version a request speaks.
pub const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
/// The legacy session a request belongs to.
pub const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
/// The event after which a legacy stream goes on.
pub const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// The method of a modern request.
pub const METHOD: HeaderName = HeaderName::from_static("mcp-method");
/// What a modern request is about.
pub const NAME: HeaderName = HeaderName::from_static("mcp-name");
/// What the headers of arguments begin with.
pub const PARAM_PREFIX: &str = "mcp-param-";

/// A text as a header value: as it is where that is safe, else in the base64 form.
pub fn encode_value(text: &str) -> HeaderValue {
    if is_safe_as_plain(text)
        && let Ok(value) = HeaderValue::from_str(text)
    {
        return value;
    }
    let coded = format!("{BASE64_PREFIX}{}{BASE64_SUFFIX}", STANDARD.encode(text));
    HeaderValue::try_from(coded).unwrap_or(HeaderValue::from_static(""))
}

/// The text of a header value; none where it holds what no value may. Only the whole base64 form
/// is decoded; a value that only begins or ends like it is plain.
pub fn decode_value(value: &HeaderValue) -> Option<String> {
    let text = value.to_str().ok()?;
    let coded = text
        .strip_prefix(BASE64_PREFIX)
        .and_then(|rest| rest.strip_suffix(BASE64_SUFFIX));
    match coded {
        Some(coded) => String::from_utf8(STANDARD.decode(coded).ok()?).ok(),
        None => is_printable(text).then(|| text.to_owned()),
    }
}

pub fn mcp_name(method: &str, params: &Params) -> Option<HeaderValue> {
    let member = Method::find(method)?.name_param?.member();
    let name = params.string_member(member)?;
    if let Cow::Borrowed(plain) = name
        && is_safe_as_plain(plain)
        && let Ok(shared) = HeaderValue::from_maybe_shared(params.raw().slice_ref(plain.as_bytes()))
    {
        return Some(shared);
    }
    Some(encode_value(&name))
}

/// `Mcp-Method` of a request. Methods are plain; one that is not is not sent in a header.
pub fn mcp_method(method: &str) -> Option<HeaderValue> {
    if let Some(known) = Method::find(method) {
        return Some(HeaderValue::from_static(known.name));
    }
    let is_plain = !method.is_empty() && method.bytes().all(|byte| byte.is_ascii_graphic());
    is_plain
        .then(|| HeaderValue::from_str(method).ok())
        .flatten()
}

/// Whether only Warmline writes a header: it frames the message, or the protocol needs its value.
pub fn is_reserved_header(name: &HeaderName) -> bool {
    let name = name.as_str();
    RESERVED_HEADERS.contains(&name) || name.starts_with("mcp-")
}

const RESERVED_HEADERS: [&str; 14] = [
    "accept",
    "connection",
    "content-length",
    "content-type",
    "expect",
    "host",
    "keep-alive",
    "last-event-id",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "content-encoding",
];

/// Whether a session id has a form that may be sent: visible ASCII, at most 1 KiB.
pub fn is_valid_session_id(value: &[u8]) -> bool {
    (1..=1024).contains(&value.len()) && value.iter().all(u8::is_ascii_graphic)
}

const BASE64_PREFIX: &str = "=?base64?";
const BASE64_SUFFIX: &str = "?=";

/// Whether a value reads back as itself everywhere. Nothing that so much as begins like the base64
/// form does.
fn is_safe_as_plain(text: &str) -> bool {
    let is_marked = text
        .get(..BASE64_PREFIX.len())
        .is_some_and(|head| head.eq_ignore_ascii_case(BASE64_PREFIX));
    is_printable(text) && !is_marked
}

/// Printable ASCII without a blank at either end, which HTTP would take away.
fn is_printable(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b' '..=b'~')) && text.trim() == text
}

#[cfg(test)]
mod tests;
