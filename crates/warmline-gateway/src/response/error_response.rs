//! The gateway's own responses.
//!
//! A response that rejects something carries its [`RequestRejection`] for the log and the audit. Only these
//! functions make one, and its sender writes both lines.

use std::borrow::Cow;

use bytes::Bytes;
use http::header::{ALLOW, CONNECTION, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use serde_json::json;
use warmline_core::error::code::Code;

use super::body::ResponseBody;
use super::call_error::ErrorDetail;
use super::rejection::{LEGACY_ONLY_MESSAGE, RequestRejection, RpcCode, RpcRejection};

/// The message was accepted, and has no answer.
pub(crate) fn accepted() -> Response<ResponseBody> {
    empty_response(StatusCode::ACCEPTED)
}

pub(crate) fn no_content() -> Response<ResponseBody> {
    empty_response(StatusCode::NO_CONTENT)
}

pub(crate) fn ok_json(body: impl Into<Bytes>) -> Response<ResponseBody> {
    json_response(StatusCode::OK, body)
}

pub(crate) fn json_response(status: StatusCode, body: impl Into<Bytes>) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::full(body.into()));
    *response.status_mut() = status;
    response
}

fn empty_response(status: StatusCode) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::Empty);
    *response.status_mut() = status;
    response
}

/// A rejection with its own body: `why` is for the audit, `what` for the log.
pub(crate) fn rejection(
    status: StatusCode,
    why: (&'static str, &str),
    body: impl Into<Bytes>,
) -> Response<ResponseBody> {
    with_rejection(json_response(status, body), why)
}

fn with_rejection(
    mut response: Response<ResponseBody>,
    (audit_reason, what): (&'static str, &str),
) -> Response<ResponseBody> {
    let what = Cow::Owned(what.to_owned());
    let rejection = RpcRejection::new(response.status(), None, what, audit_reason);
    response
        .extensions_mut()
        .insert(RequestRejection::Rpc(rejection));
    response
}

/// The error of the gateway that a response carries.
pub(crate) fn rejection_details(response: &Response<ResponseBody>) -> Option<&RpcRejection> {
    match response.extensions().get()? {
        RequestRejection::Rpc(rejection) => Some(rejection),
        RequestRejection::Failed(error) if error.code() == Code::ServerUnknown => {
            Some(&UNKNOWN_SERVER)
        },
        RequestRejection::Failed(_) => None,
    }
}

/// Sets the content type, and reuses the header map of the request, so that a call needs one map for both.
pub(crate) fn reuse_header_map(
    mut response: Response<ResponseBody>,
    mut map: HeaderMap,
) -> Response<ResponseBody> {
    if map.capacity() <= MAX_REUSED_HEADERS {
        map.clear();
        map.extend(response.headers_mut().drain());
        *response.headers_mut() = map;
    }
    if matches!(response.body(), ResponseBody::Full(_)) {
        let kind = HeaderValue::from_static("application/json");
        response.headers_mut().entry(CONTENT_TYPE).or_insert(kind);
    }
    response
}

/// A larger map is not kept with a connection.
const MAX_REUSED_HEADERS: usize = 48;

/// A JSON-RPC error; `id` is raw JSON, `None` for `null`.
pub(crate) fn rpc_error(
    status: StatusCode,
    id: Option<&[u8]>,
    code: RpcCode,
    message: &str,
) -> Response<ResponseBody> {
    let rejection = RequestRejection::new(status, code, message.to_owned());
    rejection.to_response(id, ErrorDetail::Limited)
}

pub(crate) fn error_message(
    id: Option<&[u8]>,
    code: i64,
    message: &str,
    data: Option<&serde_json::Value>,
) -> Bytes {
    let mut error = json!({ "code": code, "message": message });
    if let Some(data) = data {
        error["data"] = data.clone();
    }
    response_message(id, "error", error.to_string().as_bytes())
}

/// The bytes of a JSON-RPC response: `id` and `value` are raw JSON, `member` is `result` or `error`.
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
    // A vector without spare capacity becomes `Bytes` without a copy.
    parts.concat().into()
}

/// Marks a response with status 400 that carries [`RequestRejection::legacy_only`] as an answer, for the log and the audit.
pub(crate) fn mark_if_legacy_only(mut response: Response<ResponseBody>) -> Response<ResponseBody> {
    let is_said =
        |said: &Bytes| memchr::memmem::find(said, LEGACY_ONLY_MESSAGE.as_bytes()).is_some();
    if matches!(response.body(), ResponseBody::Full(Some(said)) if is_said(said)) {
        let rejection = RequestRejection::legacy_only();
        response.extensions_mut().insert(rejection);
    }
    response
}

/// Too many requests in all. It is answered early, while that is cheap.
pub(crate) fn overloaded() -> Response<ResponseBody> {
    let what = "Service Unavailable: too many requests are in flight; not executed, safe to call \
                again";
    retry_later(StatusCode::SERVICE_UNAVAILABLE, what)
}

/// Too many requests of one identity.
pub(crate) fn quota_exceeded() -> Response<ResponseBody> {
    let what = "Too Many Requests: too many of your requests are in flight; not executed, safe to call \
                again";
    retry_later(StatusCode::TOO_MANY_REQUESTS, what)
}

fn retry_later(status: StatusCode, what: &'static str) -> Response<ResponseBody> {
    let rejection = RequestRejection::new(status, RpcCode::Invalid, what);
    let rejection = rejection.with_audit_reason(Code::Overloaded.as_str());
    let mut response = rejection.to_response(None, ErrorDetail::Limited);
    let headers = response.headers_mut();
    headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
    // The rest of the request is not read.
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

static UNKNOWN_PATH: RpcRejection = not_found("there is nothing at this path");
static UNKNOWN_SERVER: RpcRejection =
    not_found("Not Found: no server has this name; check the path");

const fn not_found(what: &'static str) -> RpcRejection {
    let code = Some(RpcCode::Invalid);
    RpcRejection::new(StatusCode::NOT_FOUND, code, Cow::Borrowed(what), "path")
}

pub(crate) fn unknown_path() -> Response<ResponseBody> {
    RequestRejection::Rpc(UNKNOWN_PATH.clone()).to_response(None, ErrorDetail::Limited)
}

/// The server in the path does not exist, or is hidden from this caller.
pub(crate) fn unknown_server() -> Response<ResponseBody> {
    RequestRejection::Rpc(UNKNOWN_SERVER.clone()).to_response(None, ErrorDetail::Limited)
}

pub(crate) fn method_not_allowed(allowed: &'static str) -> Response<ResponseBody> {
    let what = format!("Method Not Allowed: use {allowed}");
    let response = empty_response(StatusCode::METHOD_NOT_ALLOWED);
    let mut response = with_rejection(response, ("wrong-method", &what));
    let allowed = HeaderValue::from_static(allowed);
    response.headers_mut().insert(ALLOW, allowed);
    response
}
