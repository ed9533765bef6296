//! The modern era: 2026-07-28. A client opens nothing and says everything in each request.
//! Closing the response cancels the call.

pub(crate) mod discover;
pub(crate) mod listen;
mod request_state;
pub(crate) mod server_call;
pub(crate) mod shared_listen;
pub(crate) mod tasks;

use std::borrow::Cow;
use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue, Response};
use serde_json::json;
use warmline_core::era::{Era, Version};
use warmline_core::message::envelope::{Message, MessageKind};
use warmline_core::message::params::Params;
use warmline_core::protocol::headers::{self, METHOD, NAME, PARAM_PREFIX, PROTOCOL_VERSION};
use warmline_core::protocol::meta;
use warmline_core::protocol::methods::Method;

use self::listen::ListenRequest;
use self::server_call::ModernCaller;
use super::RequestContext;
use super::message::{ClientTransport, MessageHead, method_name, raw_id};
use super::request::{self, Client, ClientRequest};
use crate::response::rejection::{RequestRejection, RpcCode};
use crate::response::stream::{DisconnectPolicy, PrimingEvent, ResponseMode};
use crate::response::{self, ResponseBody};

/// Methods that this era removed. A list of tasks would show those of every caller that looks alike to
/// the server. Any other method is for the server to know.
const REMOVED_METHODS: [&str; 4] = ["ping", "initialize", "tasks/list", "tasks/result"];

pub(crate) async fn handle_message(
    context: &RequestContext<'_>,
    message: &Message,
    params: Params,
) -> Result<Response<ResponseBody>, RequestRejection> {
    check_request(context.head, message, &params)?;
    if message.kind() == MessageKind::Notification {
        // The protocol defines none that a modern client sends over HTTP.
        return Ok(response::accepted());
    }
    let method = message.method().unwrap_or_default();
    let caller = ModernCaller::from_request(context, &params)?;
    let id = raw_id(message);
    if method == discover::METHOD && context.target.server.is_some() {
        return Box::pin(discover::handle_discover(context, &id, caller, params)).await;
    }
    let queue = context.new_queue();
    if method == listen::METHOD {
        let request = ListenRequest {
            id,
            params,
            queue,
            caller,
        };
        return Box::pin(listen::handle_listen(context, request)).await;
    }
    let request = ClientRequest {
        id,
        method: method_name(method),
        params,
        queue: Arc::clone(&queue),
        client: Client::Modern(caller),
    };
    let call = request.into_call(context).await?;
    let mode = response_mode(context);
    Ok(request::respond(context, None, call, queue, mode).await)
}

/// A modern client cancels by closing the response, and cannot resume a stream.
const fn response_mode(context: &RequestContext<'_>) -> ResponseMode {
    ResponseMode {
        accepts: context.head.accepts,
        on_disconnect: DisconnectPolicy::Cancel,
        stream_id: None,
        priming: PrimingEvent::Disabled,
    }
}

/// Checks what a modern message must contain, in the order of mcp-spec 3.4.6. The first step that fails
/// decides.
fn check_request(
    head: MessageHead<'_>,
    message: &Message,
    params: &Params,
) -> Result<(), RequestRejection> {
    if matches!(message.kind(), MessageKind::Result | MessageKind::Error) {
        let what = "Invalid Request: a modern client answers in its next request";
        return Err(RequestRejection::bad_request(RpcCode::Invalid, what));
    }
    if message.kind() == MessageKind::Notification {
        return Ok(());
    }
    let version = declared_version(params)?;
    // Only HTTP has headers to compare with.
    let headers = (head.transport == ClientTransport::Http).then_some(head.headers);
    if let Some(headers) = headers {
        if let Some(name) = duplicate_header(headers) {
            let what = format!("Header mismatch: `{name}` appears twice");
            return Err(RequestRejection::bad_request(RpcCode::Header, what));
        }
        check_header(headers, &PROTOCOL_VERSION, &version)?;
    }
    let known = Version::parse(&version).filter(|version| version.era() == Era::Modern);
    if known.is_none() {
        return Err(unsupported_version(&version));
    }
    let method = message.method().unwrap_or_default();
    let has_name = Method::find(method).is_some_and(|method| method.name_param.is_some());
    match headers {
        Some(headers) => {
            check_header(headers, &METHOD, method)?;
            if has_name && !is_plain_name_match(headers, method, params) {
                // Where the body names nothing that could stand there, no header says the same.
                let expected = headers::mcp_name(method, params);
                let expected = expected.and_then(|written| headers::decode_value(&written));
                check_header(headers, &NAME, &expected.unwrap_or_default())?;
            }
        },
        // What no header could say is rejected all the same.
        None if headers::mcp_method(method).is_none() => return Err(missing_header(&METHOD)),
        None if has_name && headers::mcp_name(method, params).is_none() => {
            return Err(missing_header(&NAME));
        },
        None => {},
    }
    if REMOVED_METHODS.contains(&method) {
        return Err(RequestRejection::method_not_found(method, Era::Modern));
    }
    Ok(())
}

/// A header of the protocol that appears twice: two readers would see two requests.
fn duplicate_header(headers: &HeaderMap) -> Option<&HeaderName> {
    let of_protocol = |name: &&HeaderName| {
        [PROTOCOL_VERSION, METHOD, NAME].contains(name) || name.as_str().starts_with(PARAM_PREFIX)
    };
    let mut names = headers.keys().filter(of_protocol);
    names.find(|name| headers.get_all(*name).iter().count() > 1)
}

/// The version in `_meta`, which must also hold the capabilities.
fn declared_version(params: &Params) -> Result<Cow<'_, str>, RequestRejection> {
    let version = params
        .meta_member(meta::PROTOCOL_VERSION)
        .and_then(json_text);
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
            Err(RequestRejection::bad_request(RpcCode::Params, what))
        },
    }
}

fn json_text(raw: &[u8]) -> Option<Cow<'_, str>> {
    let borrowed = serde_json::from_slice::<&str>(raw).map(Cow::Borrowed);
    borrowed.or_else(|_| serde_json::from_slice(raw)).ok()
}

fn unsupported_version(version: &str) -> RequestRejection {
    let supported: Vec<&str> = Version::ALL
        .iter()
        .filter(|version| version.era() == Era::Modern)
        .map(|version| version.as_str())
        .collect();
    RequestRejection::bad_request(RpcCode::Version, "Unsupported protocol version")
        .with_data(json!({ "supported": supported, "requested": version }))
}

/// Whether `Mcp-Name` equals the name in the body byte for byte. That is the usual request, and nothing
/// needs decoding.
fn is_plain_name_match(headers: &HeaderMap, method: &str, params: &Params) -> bool {
    let named_by = Method::find(method).and_then(|method| method.name_param);
    let written = named_by.and_then(|by| params.member(by.member()));
    let stated = headers.get(NAME).map(HeaderValue::as_bytes);
    let (Some(written), Some(stated)) = (written, stated) else {
        return false;
    };
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-./:".contains(byte);
    let quoted = written.strip_prefix(b"\"");
    let inside = quoted.and_then(|rest| rest.strip_suffix(b"\""));
    inside == Some(stated) && stated.iter().all(is_plain)
}

/// Checks that a header agrees with the body.
fn check_header(
    headers: &HeaderMap,
    name: &HeaderName,
    expected: &str,
) -> Result<(), RequestRejection> {
    let Some(stated) = headers.get(name) else {
        return Err(missing_header(name));
    };
    // No version and no method is ever encoded.
    let is_same = stated.as_bytes() == expected.as_bytes() && *name != NAME;
    if is_same || headers::decode_value(stated).as_deref() == Some(expected) {
        return Ok(());
    }
    let what = format!(
        "Header mismatch: `{}` contradicts the body",
        header_title(name)
    );
    Err(RequestRejection::bad_request(RpcCode::Header, what))
}

fn missing_header(name: &HeaderName) -> RequestRejection {
    let what = format!("Header mismatch: `{}` is missing", header_title(name));
    RequestRejection::bad_request(RpcCode::Header, what)
}

/// The usual spelling of a header.
fn header_title(name: &HeaderName) -> &'static str {
    if *name == PROTOCOL_VERSION {
        "MCP-Protocol-Version"
    } else if *name == METHOD {
        "Mcp-Method"
    } else {
        "Mcp-Name"
    }
}
