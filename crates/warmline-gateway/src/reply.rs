//! Responses: every status and every JSON-RPC error that the gateway itself gives, in one place.
//!
//! Asked by: the door, the faces.  What a server answered passes through; what stands here is ours.
//!
//! A response that refuses something carries what the log and the audit say of it ([`Told`]): no
//! other function makes one, and whoever sends it on writes both lines.

use bytes::Bytes;
use http::header::{ALLOW, CONNECTION, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use hyper::ext::ReasonPhrase;
use serde_json::json;
use warmline::core::code::Code;
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

    /// The word in the audit for what is refused with it.
    pub(crate) const fn why(self) -> &'static str {
        match self {
            Self::Parse | Self::Invalid => "bad-message",
            Self::Method => "unknown-method",
            Self::Params => "bad-params",
            Self::Resource => "unknown-resource",
            Self::Header => "bad-headers",
            Self::Version => "bad-version",
            Self::Internal | Self::Failed(_) => "failed",
        }
    }
}

/// A message was taken, and has no answer.
pub(crate) fn accepted() -> Response<Body> {
    empty(StatusCode::ACCEPTED)
}

/// What was asked for is done.
pub(crate) fn done() -> Response<Body> {
    empty(StatusCode::NO_CONTENT)
}

/// What was asked for, as JSON.
pub(crate) fn answer(body: impl Into<Bytes>) -> Response<Body> {
    json(StatusCode::OK, body)
}

/// The end of a call in the words of its server, or of what is known of it. Its status is the
/// server's word as well, and no refusal of ours.
pub(crate) fn ended(status: StatusCode, message: Bytes) -> Response<Body> {
    json(status, message)
}

/// A refusal with a body of its own: `why` is its word in the audit, `what` is for the log.
pub(crate) fn refused(
    status: StatusCode,
    (why, what): (&'static str, &str),
    body: impl Into<Bytes>,
) -> Response<Body> {
    telling(json(status, body), why, None, what)
}

/// A response without a body.
fn empty(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::Empty);
    *response.status_mut() = status;
    response
}

/// A response with JSON.
fn json(status: StatusCode, body: impl Into<Bytes>) -> Response<Body> {
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
    let response = json(status, error_message(id, code.number(), message, data));
    telling(response, code.why(), Some(code), message)
}

/// The same response, with what the log and the audit say of it.
fn telling(
    mut response: Response<Body>,
    why: &'static str,
    code: Option<RpcCode>,
    what: &str,
) -> Response<Body> {
    let told = Told {
        code: code.map(RpcCode::number),
        what: what.chars().take(MAX_TOLD).collect(),
        matter: Matter::Message,
        why,
    };
    response.extensions_mut().insert(told);
    response
}

/// What the log and the audit say of a response, if it refuses something.
pub(crate) fn told(response: &Response<Body>) -> Option<&Told> {
    response.extensions().get()
}

/// The same refusal under another word in the audit than its code has.
pub(crate) fn called(mut response: Response<Body>, why: &'static str) -> Response<Body> {
    if let Some(told) = response.extensions_mut().get_mut::<Told>() {
        told.why = why;
    }
    response
}

/// The same response with its status in these words. Some clients throw the body of an error away,
/// and show its status line.
pub(crate) fn worded(mut response: Response<Body>, words: &'static str) -> Response<Body> {
    let words = ReasonPhrase::from_static(words.as_bytes());
    response.extensions_mut().insert(words);
    response
}

/// The same response, of which the log says that its client spoke another era than the server.
pub(crate) fn about_era(mut response: Response<Body>) -> Response<Body> {
    if let Some(told) = response.extensions_mut().get_mut::<Told>() {
        told.matter = Matter::Era;
    }
    response
}

/// What the log and the audit say of a refusal.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    /// The code of the error, where it has one.
    pub(crate) code: Option<i64>,
    pub(crate) what: String,
    pub(crate) matter: Matter,
    /// The word for it in the audit.
    pub(crate) why: &'static str,
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

/// It names no modern version: who looks for one in what a server says would find it here.
const ONLY_LEGACY: &str = "Bad Request: this server begins with initialize; only 2025-11-25 and \
    older versions are spoken here, so let the client fall back to them";

/// A response of the modern face, of which the log hears if it is one of these.
pub(crate) fn told_if_only_legacy(response: Response<Body>) -> Response<Body> {
    let is_said = |said: &Bytes| memchr::memmem::find(said, ONLY_LEGACY.as_bytes()).is_some();
    if response.status() == StatusCode::BAD_REQUEST
        && matches!(response.body(), Body::Whole(Some(said)) if is_said(said))
    {
        let code = Some(RpcCode::Invalid);
        return about_era(telling(response, ERA_UNKNOWN, code, ONLY_LEGACY));
    }
    response
}

/// The word in the audit for a request in an era that its server does not speak.
pub(crate) const ERA_UNKNOWN: &str = Code::EraUnknown.word();
/// The word in the audit for a session that is not known, or somebody else's.
pub(crate) const NO_SESSION: &str = "session-unknown";
/// The word in the audit for what there is no room for.
pub(crate) const OVERLOADED: &str = Code::Overloaded.word();
/// The word in the audit for a client that cannot read what it would get.
pub(crate) const NOT_ACCEPTABLE: &str = "not-acceptable";

/// The word in the audit for an id that is under way.
pub(crate) const ID_UNDER_WAY: &str = "id-under-way";
/// What a request hears whose id is that of one under way.
pub(crate) const UNDER_WAY: &str = "Invalid Request: a request with this id is under way";

/// A request whose id is that of one under way, where both would be answered on one stream: nobody
/// could tell the two answers apart. The first goes on.
pub(crate) fn id_under_way(id: Option<&[u8]>) -> Response<Body> {
    let refusal = error(StatusCode::BAD_REQUEST, id, RpcCode::Invalid, UNDER_WAY);
    called(refusal, ID_UNDER_WAY)
}

/// A message in a form that is none.
pub(crate) fn wrong_type() -> Response<Body> {
    let what = "Unsupported Media Type: a message is application/json";
    let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
    error(status, None, RpcCode::Invalid, what)
}

/// Nothing that we write can be read by the client.
pub(crate) fn not_acceptable(id: Option<&[u8]>) -> Response<Body> {
    let what = "Not Acceptable: a client must accept application/json or text/event-stream";
    unreadable(id, what)
}

/// What is asked for cannot be read by the client in the form that it comes in.
pub(crate) fn unreadable(id: Option<&[u8]>, what: &str) -> Response<Body> {
    let status = StatusCode::NOT_ACCEPTABLE;
    called(error(status, id, RpcCode::Invalid, what), NOT_ACCEPTABLE)
}

/// There is too much to do: said early, while saying so is cheap.
pub(crate) fn overloaded() -> Response<Body> {
    let what = "Service Unavailable: too many requests are under way; not executed, safe to call \
                again";
    come_back(StatusCode::SERVICE_UNAVAILABLE, what)
}

/// Somebody has so much under way that others would find no room.
pub(crate) fn overdrawn() -> Response<Body> {
    let what = "Too Many Requests: too many of yours are under way; not executed, safe to call \
                again";
    come_back(StatusCode::TOO_MANY_REQUESTS, what)
}

fn come_back(status: StatusCode, what: &str) -> Response<Body> {
    let mut response = called(error(status, None, RpcCode::Invalid, what), OVERLOADED);
    let headers = response.headers_mut();
    headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
    // What is left of the request is not read.
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

/// There is nothing at this path.
pub(crate) fn nothing_here() -> Response<Body> {
    let (status, what) = (StatusCode::NOT_FOUND, "there is nothing at this path");
    called(error(status, None, RpcCode::Invalid, what), "path")
}

/// There is no server of the name in the path, or none for this caller: nobody can tell which.
pub(crate) fn no_such_server() -> Response<Body> {
    let what = "Not Found: no server is called so here; look at the name in the path";
    let response = error(StatusCode::NOT_FOUND, None, RpcCode::Invalid, what);
    called(response, "path")
}

/// The method of HTTP does not fit the place.
pub(crate) fn wrong_method(allowed: &'static str) -> Response<Body> {
    let what = format!("Method Not Allowed: here is {allowed}");
    let response = empty(StatusCode::METHOD_NOT_ALLOWED);
    let mut response = telling(response, "wrong-method", None, &what);
    let allowed = HeaderValue::from_static(allowed);
    response.headers_mut().insert(ALLOW, allowed);
    response
}

/// A client session that there is not, or that is somebody else's: nobody can tell which.
pub(crate) fn no_such_session(id: Option<&[u8]>) -> Response<Body> {
    let (status, what) = (StatusCode::NOT_FOUND, "Session not found");
    called(error(status, id, RpcCode::Invalid, what), NO_SESSION)
}
