//! What a modern request must say, and in which order what is missing is told (mcp-spec 3.4.6).

use std::borrow::Cow;

use http::request::Parts;
use http::{HeaderName, HeaderValue, Response, StatusCode};
use serde_json::{Value, json};
use warmline::core::era::{Era, Version};
use warmline::core::protocol::envelope::{Kind, Message};
use warmline::core::protocol::headers::{self, METHOD, NAME, PARAM_PREFIX, PROTOCOL_VERSION};
use warmline::core::protocol::meta;
use warmline::core::protocol::methods::Method;
use warmline::core::protocol::params::Params;

use crate::body::Body;
use crate::reply::{self, RpcCode};

/// Why a request is turned away.
#[derive(Debug, PartialEq)]
pub(super) struct Refusal {
    code: RpcCode,
    what: String,
    data: Option<Value>,
}

impl Refusal {
    fn new(code: RpcCode, what: impl Into<String>) -> Self {
        Self {
            code,
            what: what.into(),
            data: None,
        }
    }

    pub(super) fn response(&self, id: Option<&[u8]>) -> Response<Body> {
        let status = if self.code == RpcCode::Method {
            StatusCode::NOT_FOUND
        } else {
            StatusCode::BAD_REQUEST
        };
        reply::error_with(status, id, (self.code, &self.what), self.data.as_ref())
    }
}

/// Methods of the legacy era that have no meaning in this one. A list of tasks would show those of
/// everybody who looks alike to the server. What else there may be the server knows best.
const GONE: [&str; 4] = ["ping", "initialize", "tasks/list", "tasks/result"];

/// Checks a message, step by step; the first that fails is told.
pub(super) fn check(head: &Parts, message: &Message, params: &Params) -> Result<(), Refusal> {
    if matches!(message.kind(), Kind::Result | Kind::Error) {
        let what = "Invalid Request: a modern client answers in its next request";
        return Err(Refusal::new(RpcCode::Invalid, what));
    }
    if message.kind() == Kind::Notification {
        return Ok(());
    }
    let version = stated(params)?;
    if let Some(name) = doubled(head) {
        let what = format!("Header mismatch: `{name}` stands there twice");
        return Err(Refusal::new(RpcCode::Header, what));
    }
    same(head, &PROTOCOL_VERSION, &version)?;
    let known = Version::parse(&version).filter(|version| version.era() == Era::Modern);
    if known.is_none() {
        return Err(unsupported(&version));
    }
    let method = message.method().unwrap_or_default();
    same(head, &METHOD, method)?;
    let has_name = Method::find(method).is_some_and(|method| method.named_by.is_some());
    if has_name && !names_plainly(head, method, params) {
        // Where the body names nothing that could stand there, no header says the same.
        let expected = headers::mcp_name(method, params);
        let expected = expected.and_then(|written| headers::decode_value(&written));
        same(head, &NAME, &expected.unwrap_or_default())?;
    }
    if GONE.contains(&method) {
        let what = format!("Method not found: {method}");
        return Err(Refusal::new(RpcCode::Method, what));
    }
    Ok(())
}

/// A header of the protocol that stands there twice: two readers would see two requests.
fn doubled(head: &Parts) -> Option<&HeaderName> {
    let of_protocol = |name: &&HeaderName| {
        [PROTOCOL_VERSION, METHOD, NAME].contains(name) || name.as_str().starts_with(PARAM_PREFIX)
    };
    let mut names = head.headers.keys().filter(of_protocol);
    names.find(|name| head.headers.get_all(*name).iter().count() > 1)
}

/// The version, as `_meta` says it beside the capabilities.
fn stated(params: &Params) -> Result<Cow<'_, str>, Refusal> {
    let version = params.meta_member(meta::PROTOCOL_VERSION).and_then(text);
    let capabilities = params
        .meta_member(meta::CLIENT_CAPABILITIES)
        .filter(|raw| raw.starts_with(b"{"));
    match (version, capabilities) {
        (Some(version), Some(_)) => Ok(version),
        (version, capabilities) => {
            let missing: Vec<&str> = [
                version.is_none().then_some(meta::PROTOCOL_VERSION),
                capabilities.is_none().then_some(meta::CLIENT_CAPABILITIES),
            ]
            .into_iter()
            .flatten()
            .collect();
            let what = format!("Invalid params: `_meta` lacks {}", missing.join(" and "));
            Err(Refusal::new(RpcCode::Params, what))
        },
    }
}

fn text(raw: &[u8]) -> Option<Cow<'_, str>> {
    let borrowed = serde_json::from_slice::<&str>(raw).map(Cow::Borrowed);
    borrowed.or_else(|_| serde_json::from_slice(raw)).ok()
}

fn unsupported(version: &str) -> Refusal {
    let supported: Vec<&str> = Version::ALL
        .iter()
        .filter(|version| version.era() == Era::Modern)
        .map(|version| version.as_str())
        .collect();
    Refusal {
        data: Some(json!({ "supported": supported, "requested": version })),
        ..Refusal::new(RpcCode::Version, "Unsupported protocol version")
    }
}

/// Whether `Mcp-Name` is letter for letter what stands in the body: the usual request, for which
/// nothing has to be decoded.
fn names_plainly(head: &Parts, method: &str, params: &Params) -> bool {
    let named_by = Method::find(method).and_then(|method| method.named_by);
    let written = named_by.and_then(|by| params.member(by.member()));
    let stated = head.headers.get(NAME).map(HeaderValue::as_bytes);
    let (Some(written), Some(stated)) = (written, stated) else {
        return false;
    };
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-./:".contains(byte);
    let quoted = written.strip_prefix(b"\"");
    let inside = quoted.and_then(|rest| rest.strip_suffix(b"\""));
    inside == Some(stated) && stated.iter().all(is_plain)
}

/// Whether a header says what the body says.
fn same(head: &Parts, name: &HeaderName, expected: &str) -> Result<(), Refusal> {
    let Some(stated) = head.headers.get(name) else {
        let what = format!("Header mismatch: `{}` is missing", title(name));
        return Err(Refusal::new(RpcCode::Header, what));
    };
    // Nothing that is coded is a version or a method.
    let is_same = stated.as_bytes() == expected.as_bytes() && *name != NAME;
    if is_same || headers::decode_value(stated).as_deref() == Some(expected) {
        return Ok(());
    }
    let what = format!(
        "Header mismatch: `{}` is not what the body says",
        title(name)
    );
    Err(Refusal::new(RpcCode::Header, what))
}

/// A header as people write it.
fn title(name: &HeaderName) -> &'static str {
    if *name == PROTOCOL_VERSION {
        "MCP-Protocol-Version"
    } else if *name == METHOD {
        "Mcp-Method"
    } else {
        "Mcp-Name"
    }
}
