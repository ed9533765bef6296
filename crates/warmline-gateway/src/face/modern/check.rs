//! What a modern request must say, and in which order what is missing is told (mcp-spec 3.4.6).

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderName, Response, StatusCode};
use serde_json::{Value, json};
use warmline::Declared;
use warmline::core::era::{Era, Version};
use warmline::core::protocol::envelope::{Kind, Message};
use warmline::core::protocol::headers::{self, METHOD, NAME, PROTOCOL_VERSION};
use warmline::core::protocol::meta;
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
        let message = reply::error_message(id, self.code.number(), &self.what, self.data.as_ref());
        reply::json(StatusCode::BAD_REQUEST, message)
    }
}

/// Checks a message; gives what its client says of itself.
pub(super) fn check(head: &Parts, message: &Message, params: &Params) -> Result<Declared, Refusal> {
    if matches!(message.kind(), Kind::Result | Kind::Error) {
        let what = "Invalid Request: a modern client answers in its next request";
        return Err(Refusal::new(RpcCode::Invalid, what));
    }
    if message.kind() == Kind::Notification {
        return Ok(Declared::default());
    }
    let (version, capabilities) = stated(params)?;
    for name in [PROTOCOL_VERSION, METHOD, NAME] {
        if head.headers.get_all(&name).iter().count() > 1 {
            let what = format!("the header `{}` stands there twice", title(&name));
            return Err(Refusal::new(RpcCode::Header, what));
        }
    }
    same(head, &PROTOCOL_VERSION, &version)?;
    let known = Version::parse(&version).filter(|version| version.era() == Era::Modern);
    let Some(known) = known else {
        return Err(unsupported(&version));
    };
    let method = message.method().unwrap_or_default();
    same(head, &METHOD, method)?;
    if let Some(expected) = headers::mcp_name(method, params) {
        let expected = headers::decode_value(&expected).unwrap_or_default();
        same(head, &NAME, &expected)?;
    }
    Ok(Declared {
        capabilities,
        version: Some(known),
        ..Declared::default()
    })
}

/// Version and capabilities, as `_meta` says them.
fn stated(params: &Params) -> Result<(String, Bytes), Refusal> {
    let version = params
        .meta_member(meta::PROTOCOL_VERSION)
        .and_then(|raw| serde_json::from_slice::<String>(raw).ok());
    let capabilities = params
        .meta_member(meta::CLIENT_CAPABILITIES)
        .filter(|raw| raw.starts_with(b"{"));
    match (version, capabilities) {
        (Some(version), Some(raw)) => Ok((version, Bytes::copy_from_slice(raw))),
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

/// Whether a header says what the body says.
fn same(head: &Parts, name: &HeaderName, expected: &str) -> Result<(), Refusal> {
    let Some(stated) = head.headers.get(name) else {
        let what = format!("Header mismatch: `{}` is missing", title(name));
        return Err(Refusal::new(RpcCode::Header, what));
    };
    if headers::decode_value(stated).as_deref() == Some(expected) {
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
