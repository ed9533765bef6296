//! Responses: every status and every JSON-RPC error that the gateway itself gives, in one place.
//!
//! Asked by: the door, the faces.  What a server answered passes through; what stands here is ours.

use bytes::Bytes;
use http::header::{ALLOW, CONNECTION, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use serde_json::json;
use warmline::core::delivery::Delivery;

use crate::body::Body;

/// Codes of JSON-RPC and of the protocol that we give ourselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RpcCode {
    /// The body is no JSON.
    Parse,
    /// It is JSON, and no message that may stand here.
    Invalid,
    /// No such method is spoken here.
    Method,
    /// The parameters are wrong.
    Params,
    /// No server has this resource.
    Resource,
    /// Something of ours broke.
    Internal,
    /// A header is missing, or says something else than the body.
    Header,
    /// The version is not spoken here.
    Version,
    /// The call failed, and this is what is known of it.
    Failed(Delivery),
}

impl RpcCode {
    /// The number on the wire. Failures of delivery stand outside the range that is reserved.
    pub(crate) const fn number(self) -> i64 {
        match self {
            Self::Parse => -32700,
            Self::Invalid => -32600,
            Self::Method => -32601,
            Self::Params => -32602,
            Self::Resource => -32002,
            Self::Internal => -32603,
            Self::Header => -32020,
            Self::Version => -32022,
            Self::Failed(Delivery::Unsent) => 7501,
            Self::Failed(Delivery::Refused) => 7502,
            Self::Failed(Delivery::Unknown | Delivery::Answered) => 7503,
        }
    }
}

/// A response without a body.
pub(crate) fn empty(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::Empty);
    *response.status_mut() = status;
    response
}

/// A response with JSON.
pub(crate) fn json(status: StatusCode, body: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Body::whole(body.into()));
    *response.status_mut() = status;
    response
}

/// The response as it goes out: what it is stands in its headers, and these stand where those of
/// its request did, so that a call needs one map for both.
pub(crate) fn headed(mut response: Response<Body>, mut map: HeaderMap) -> Response<Body> {
    if map.capacity() <= MAX_SPARE {
        map.clear();
        map.extend(response.headers_mut().drain());
        *response.headers_mut() = map;
    }
    if matches!(response.body(), Body::Whole(_)) {
        let kind = HeaderValue::from_static("application/json");
        response.headers_mut().entry(CONTENT_TYPE).or_insert(kind);
    }
    response
}

/// A map with room for more headers is not kept with a connection.
const MAX_SPARE: usize = 48;

/// A response with an error of JSON-RPC; `id` is raw JSON, none for `null`.
pub(crate) fn error(
    status: StatusCode,
    id: Option<&[u8]>,
    code: RpcCode,
    message: &str,
) -> Response<Body> {
    error_with(status, id, (code, message), None)
}

/// The same with more for programs to read.
pub(crate) fn error_with(
    status: StatusCode,
    id: Option<&[u8]>,
    (code, message): (RpcCode, &str),
    data: Option<&serde_json::Value>,
) -> Response<Body> {
    let mut response = json(status, error_message(id, code.number(), message, data));
    let told = Told {
        code: code.number(),
        what: message.chars().take(MAX_TOLD).collect(),
        matter: Matter::Message,
    };
    response.extensions_mut().insert(told);
    response
}

/// The same response, of which the log says that its client spoke another era than the server.
pub(crate) fn about_era(mut response: Response<Body>) -> Response<Body> {
    if let Some(told) = response.extensions_mut().get_mut::<Told>() {
        told.matter = Matter::Era;
    }
    response
}

/// What a client is told, as the log has it.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    pub(crate) code: i64,
    pub(crate) what: String,
    pub(crate) matter: Matter,
}

/// What was wrong with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Matter {
    /// Something in it.
    Message,
    /// Nothing, but that its server speaks another era.
    Era,
}

/// More of it does not stand in the log.
const MAX_TOLD: usize = 200;

/// The bytes of an error of JSON-RPC.
pub(crate) fn error_message(
    id: Option<&[u8]>,
    code: i64,
    message: &str,
    data: Option<&serde_json::Value>,
) -> Bytes {
    let mut error = json!({ "code": code, "message": message });
    if let (Some(data), Some(error)) = (data, error.as_object_mut()) {
        error.insert("data".to_owned(), data.clone());
    }
    response_message(id, "error", error.to_string().as_bytes())
}

/// The bytes of a response: `id` and `value` are raw JSON, `member` is `result` or `error`.
pub(crate) fn response_message(id: Option<&[u8]>, member: &str, value: &[u8]) -> Bytes {
    let id = id.unwrap_or(b"null");
    let parts: [&[u8]; 7] = [
        b"{\"jsonrpc\":\"2.0\",\"id\":",
        id,
        b",\"",
        member.as_bytes(),
        b"\":",
        value,
        b"}",
    ];
    // A vector without room to spare becomes shared bytes as it is.
    parts.concat().into()
}

/// What a modern request gets where the server speaks the legacy era alone: the words of such a
/// server, so that its client goes on with `initialize`. None of the errors that modern servers
/// give may stand here.
pub(crate) fn only_legacy(id: &[u8]) -> Bytes {
    error_message(Some(id), RpcCode::Invalid.number(), ONLY_LEGACY, None)
}

const ONLY_LEGACY: &str = "Bad Request: this server begins with initialize";

/// A response of the modern face, of which the log hears if it is one of these.
pub(crate) fn told_if_only_legacy(mut response: Response<Body>) -> Response<Body> {
    let is_said = |said: &Bytes| memchr::memmem::find(said, ONLY_LEGACY.as_bytes()).is_some();
    if response.status() == StatusCode::BAD_REQUEST
        && matches!(response.body(), Body::Whole(Some(said)) if is_said(said))
    {
        response.extensions_mut().insert(Told {
            code: RpcCode::Invalid.number(),
            what: ONLY_LEGACY.to_owned(),
            matter: Matter::Era,
        });
    }
    response
}

/// A message in a form that is none.
pub(crate) fn wrong_type() -> Response<Body> {
    let what = "Unsupported Media Type: a message is application/json";
    let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
    error(status, None, RpcCode::Invalid, what)
}

/// Nothing that we write can be read by the client.
pub(crate) fn not_acceptable() -> Response<Body> {
    let what = "Not Acceptable: a client must accept application/json or text/event-stream";
    error(StatusCode::NOT_ACCEPTABLE, None, RpcCode::Invalid, what)
}

/// There is too much to do: said early, while saying so is cheap.
pub(crate) fn overloaded() -> Response<Body> {
    let what = "Service Unavailable: too many requests are under way; not executed, safe to call \
                again";
    let status = StatusCode::SERVICE_UNAVAILABLE;
    let mut response = error(status, None, RpcCode::Invalid, what);
    let headers = response.headers_mut();
    headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
    // What is left of the request is not read.
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

/// There is nothing at this path.
pub(crate) fn nothing_here() -> Response<Body> {
    error(
        StatusCode::NOT_FOUND,
        None,
        RpcCode::Invalid,
        "there is nothing at this path",
    )
}

/// The method of HTTP does not fit the place.
pub(crate) fn wrong_method(allowed: &'static str) -> Response<Body> {
    let mut response = empty(StatusCode::METHOD_NOT_ALLOWED);
    let allowed = HeaderValue::from_static(allowed);
    response.headers_mut().insert(ALLOW, allowed);
    response
}

/// A client session that there is not, or that is somebody else's: nobody can tell which.
pub(crate) fn no_such_session(id: Option<&[u8]>) -> Response<Body> {
    error(
        StatusCode::NOT_FOUND,
        id,
        RpcCode::Invalid,
        "Session not found",
    )
}
