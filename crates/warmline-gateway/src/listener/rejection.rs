//! Rejections before a message is parsed, and the responses to them.
//!
//! Each has a [`RejectionReason`] for counter, log and audit. A response to a request that was not
//! read to its end closes the connection, and says so.

use std::time::Duration;

use bytes::Bytes;
use http::header::{
    CONNECTION, EXPECT, HOST, ORIGIN, RETRY_AFTER, TRANSFER_ENCODING, WWW_AUTHENTICATE,
};
use http::request::Parts;
use http::uri::Authority;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body::Body as _;
use hyper::body::Incoming;
use serde_json::value::RawValue;
use warmline_core::error::code::{Code, Reason};
use warmline_core::exchange::Diagnostic;
use warmline_core::message::envelope::{Message, MessageKind};
use warmline_core::message::parse_error::{ParseError, ParseErrorKind};
use warmline_core::protocol::headers::SESSION_ID;
use warmline_engine::Error;
use warmline_engine::admin::EngineAdmin as _;

use crate::GatewayState;
use crate::access::{self, AccessPolicy};
use crate::auth::{AuthError, Peer, protected_resource};
use crate::downstream::RequestContext;
use crate::downstream::message::raw_id;
use crate::limits::LimitExceeded;
use crate::metrics::{RejectionReason, RequestEra, StatusClass};
use crate::response::body::{self, DrainOutcome, ReadBodyError, ResponseBody};
use crate::response::call_error::{self, ErrorDetail};
use crate::response::error_response;
use crate::response::rejection::RpcCode;

pub(super) struct Rejection {
    pub(super) reason: RejectionReason,
    pub(super) response: Box<Response<ResponseBody>>,
    /// Whether it has a line in the audit, with the name of the caller.
    pub(super) is_audited: bool,
}

impl RejectionReason {
    pub(super) fn with_response(self, response: Response<ResponseBody>) -> Rejection {
        Rejection {
            reason: self,
            response: Box::new(response),
            is_audited: false,
        }
    }

    fn with_error(self, status: StatusCode, what: &str) -> Rejection {
        self.with_response(error_response::rpc_error(
            status,
            None,
            RpcCode::Invalid,
            what,
        ))
    }
}

/// Reads the rest of a request body if it is small and has arrived; else the response closes the
/// connection.
pub(super) async fn drain_or_close(
    mut response: Response<ResponseBody>,
    head: &Parts,
    rest: Option<Incoming>,
) -> Response<ResponseBody> {
    let Some(mut rest) = rest.filter(|rest| !rest.is_end_stream()) else {
        return response;
    };
    // Reading would make hyper send `100 Continue`.
    let waits = head.headers.contains_key(EXPECT);
    let closes = response.headers().contains_key(CONNECTION);
    if waits || closes || body::drain_body(&mut rest).await == DrainOutcome::Remaining {
        set_connection_close(&mut response);
    }
    response
}

pub(super) fn set_connection_close(response: &mut Response<ResponseBody>) {
    let close = HeaderValue::from_static("close");
    response.headers_mut().insert(CONNECTION, close);
}

/// The bytes of the response to a request head that did not arrive in time. Counts, logs and
/// audits it.
pub(super) fn late_head_response(shared: &GatewayState, peer: Peer) -> Bytes {
    let what = "Request Timeout: the request head did not arrive in time";
    let mut rejection = RejectionReason::TooSlow.with_error(StatusCode::REQUEST_TIMEOUT, what);
    record_rejection(shared, peer, None, &rejection);
    let body = match rejection.response.body_mut() {
        ResponseBody::Full(bytes) => bytes.take().unwrap_or_default(),
        ResponseBody::Empty | ResponseBody::Events(_) | ResponseBody::Stream(_) => Bytes::new(),
    };
    let head = format!(
        "HTTP/1.1 408 Request Timeout\r\ncontent-length: {}\r\ncontent-type: application/json\r\n\
         connection: close\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), &body].concat().into()
}

/// Counts, logs and audits a request head that hyper could not parse. Hyper has answered it, unless
/// the client speaks HTTP/2.
pub(super) fn record_unparsed_head(shared: &GatewayState, peer: Peer, error: &hyper::Error) {
    let (status, what) = if error.is_parse_version_h2() {
        (0, "connection does not speak HTTP/1.1")
    } else if error.is_parse_too_large() {
        (431, "request head is larger than the limit")
    } else {
        (400, "not the head of an HTTP/1.1 request")
    };
    if status > 0 {
        let class = StatusClass::ClientError;
        shared.counters.requests.increment(RequestEra::None, class);
    }
    record_rejected_connection(shared, peer, status, (RejectionReason::Head, what));
}

/// Counts, logs and audits a connection that was rejected before it carried a request. `status` is
/// 0 if its client got no response.
pub(super) fn record_rejected_connection(
    shared: &GatewayState,
    peer: Peer,
    status: u16,
    (reason, what): (RejectionReason, &str),
) {
    shared.counters.rejected.increment(reason);
    audit_anonymous_rejection(shared, None, reason);
    shared
        .rejection_log
        .log_connection(reason, peer, status, what);
}

/// Rejects a request that two readers could frame differently: an intermediary may have seen
/// another request. Nothing that follows on the connection is read.
pub(super) fn reject_ambiguous_framing(
    shared: &GatewayState,
    request: &Request<Incoming>,
    is_ambiguous: bool,
    peer: Peer,
) -> Option<Response<ResponseBody>> {
    let mut codings = request.headers().get_all(TRANSFER_ENCODING).iter();
    let is_plain = codings.all(|coding| coding.as_bytes().eq_ignore_ascii_case(b"chunked"));
    if is_plain && !is_ambiguous {
        return None;
    }
    let what = "Bad Request: the length of this request is ambiguous";
    let mut rejection = RejectionReason::Head.with_error(StatusCode::BAD_REQUEST, what);
    set_connection_close(&mut rejection.response);
    record_rejection(shared, peer, Some(request.uri().path()), &rejection);
    let response = *rejection.response;
    Some(error_response::reuse_header_map(response, HeaderMap::new()))
}

pub(super) fn record_rejection(
    shared: &GatewayState,
    peer: Peer,
    path: Option<&str>,
    rejection: &Rejection,
) {
    let Rejection {
        reason, response, ..
    } = rejection;
    if !rejection.is_audited {
        audit_anonymous_rejection(shared, path, *reason);
    }
    shared.counters.rejected.increment(*reason);
    let log = &shared.rejection_log;
    log.log_response(Some(*reason), peer, response);
    let class = StatusClass::from_status(response.status());
    shared.counters.requests.increment(RequestEra::None, class);
}

/// Audits the rejection of an unknown caller. Repeated ones are throttled and counted.
pub(super) fn audit_anonymous_rejection(
    shared: &GatewayState,
    path: Option<&str>,
    reason: RejectionReason,
) {
    if let Some(audit) = &shared.audit
        && let Some(suppressed) = shared.rejection_log.check_audit_throttle(reason)
    {
        audit.write_rejection((path, None), ("nobody", reason.as_str()), suppressed);
    }
}

/// Rejects a request that a foreign web page sent, or that arrived under a rebound name.
pub(super) fn check_host_and_origin(policy: &AccessPolicy, head: &Parts) -> Result<(), Rejection> {
    for (reason, name) in [
        (RejectionReason::Host, HOST),
        (RejectionReason::Origin, ORIGIN),
        (RejectionReason::Head, SESSION_ID),
    ] {
        // Two readers may have read different headers: nothing that follows is read.
        if head.headers.get_all(&name).iter().nth(1).is_some() {
            let mut rejection = reject_duplicate_header(reason, &name);
            set_connection_close(&mut rejection.response);
            return Err(rejection);
        }
    }
    let host = head.headers.get(HOST).and_then(|host| host.to_str().ok());
    // The authority of an absolute request target counts before the Host header.
    let authority = head.uri.authority().map(Authority::as_str);
    let is_allowed = |host: Option<&str>| policy.hosts.allows_host(host);
    if !is_allowed(host) || !authority.is_none_or(|authority| is_allowed(Some(authority))) {
        let what = "Forbidden: this Host is not allowed";
        return Err(RejectionReason::Host.with_error(StatusCode::FORBIDDEN, what));
    }
    match head.headers.get(ORIGIN) {
        Some(origin) if !policy.hosts.allows_origin(origin) => {
            let what = "Forbidden: this Origin is not allowed";
            Err(RejectionReason::Origin.with_error(StatusCode::FORBIDDEN, what))
        },
        Some(_) | None => Ok(()),
    }
}

fn reject_duplicate_header(reason: RejectionReason, name: &HeaderName) -> Rejection {
    let what = format!("Bad Request: duplicate `{name}` header");
    reason.with_error(StatusCode::BAD_REQUEST, &what)
}

pub(super) fn unauthorized(policy: &AccessPolicy, head: &Parts, error: AuthError) -> Rejection {
    let (reason, what) = match error {
        AuthError::Missing if !policy.accepts_tokens() => (
            RejectionReason::NoToken,
            "Unauthorized: requests must come through a trusted proxy that names the caller",
        ),
        AuthError::Missing => (
            RejectionReason::NoToken,
            "Unauthorized: a bearer token is needed",
        ),
        AuthError::Unknown => (
            RejectionReason::UnknownToken,
            "Unauthorized: this token is not known here",
        ),
    };
    let mut rejection = reason.with_error(StatusCode::UNAUTHORIZED, what);
    let resource = policy.protected_resource.as_ref();
    let challenge = protected_resource::bearer_challenge(resource, head.uri.path(), error);
    let headers = rejection.response.headers_mut();
    headers.insert(WWW_AUTHENTICATE, challenge);
    rejection
}

/// Rejects a server that does not exist. A server that the rules deny gets the same response, so
/// that no caller can probe for it.
pub(super) fn check_server(
    policy: &AccessPolicy,
    context: &RequestContext<'_>,
    (method, server): (&Method, &str),
) -> Result<(), Rejection> {
    let reason = if !policy.rules.may_use(&context.subject, server) {
        RejectionReason::NotAllowed
    } else if !context.shared.warmline.has_server(server) {
        RejectionReason::Path
    } else if *method == Method::GET
        && !access::may_use_server(context.shared, &context.subject, server)
    {
        // A disabled server sends no notifications; other requests fail with a reason.
        RejectionReason::NotAllowed
    } else {
        return Ok(());
    };
    Err(reason.with_response(error_response::unknown_server()))
}

/// Rejects two credentials in one header: the gateway does not choose between them.
pub(super) fn check_credentials(context: &RequestContext<'_>) -> Result<(), Rejection> {
    let headers = context.head.headers;
    if headers.len() == headers.keys_len() {
        return Ok(());
    }
    let is_duplicate = |name: &&HeaderName| headers.get_all(*name).iter().nth(1).is_some();
    let mut duplicates = headers.keys().filter(is_duplicate);
    match duplicates.find(|name| context.shared.warmline.reads_credentials_from(name)) {
        Some(name) => Err(reject_duplicate_header(RejectionReason::Head, name)),
        None => Ok(()),
    }
}

pub(super) fn run_error_response(error: &Error, detail: ErrorDetail) -> Response<ResponseBody> {
    let status = if error.code() == Code::RunUnknown {
        StatusCode::NOT_FOUND
    } else {
        StatusCode::BAD_REQUEST
    };
    engine_error_response(status, b"null", error, detail)
}

fn engine_error_response(
    status: StatusCode,
    id: &[u8],
    error: &Error,
    detail: ErrorDetail,
) -> Response<ResponseBody> {
    let summary = call_error::summary(error, detail);
    let message = call_error::call_error_message(id, error, detail);
    error_response::rejection(status, (error.code().as_str(), &*summary), message)
}

pub(super) fn too_many_auth_failures_response() -> Response<ResponseBody> {
    let what = "Too Many Requests: too many requests from this address without a valid token";
    let status = StatusCode::TOO_MANY_REQUESTS;
    let mut response = error_response::rpc_error(status, None, RpcCode::Invalid, what);
    let after = HeaderValue::from_static("60");
    response.headers_mut().insert(RETRY_AFTER, after);
    response
}

pub(super) fn limit_exceeded(limit: LimitExceeded) -> Rejection {
    match limit {
        LimitExceeded::Total => {
            RejectionReason::Overloaded.with_response(error_response::overloaded())
        },
        LimitExceeded::Identity => {
            RejectionReason::Quota.with_response(error_response::quota_exceeded())
        },
    }
}

/// Rejects new requests during a drain. Replies to server requests and cancellations belong to
/// calls in flight and pass.
pub(super) fn check_draining(context: &RequestContext<'_>, body: &Bytes) -> Result<(), Rejection> {
    if !*context.shared.stopping.borrow() {
        return Ok(());
    }
    let id = match Message::parse(body.clone()) {
        Ok(message) => (message.kind() == MessageKind::Request).then(|| raw_id(&message)),
        Err(ParseError {
            kind: ParseErrorKind::Batch,
            ..
        }) => batch_contains_request(body).then(|| Bytes::from_static(b"null")),
        // The parser proper reports what is wrong.
        Err(_) => None,
    };
    let Some(id) = id else {
        return Ok(());
    };
    let mut diagnostic = Diagnostic::new(Reason::Draining, "this gateway is shutting down");
    diagnostic.retry_after = Some(DRAIN_RETRY_AFTER);
    let error = Error::from(diagnostic);
    let status = StatusCode::SERVICE_UNAVAILABLE;
    let mut response = engine_error_response(status, &id, &error, context.error_detail());
    let after = HeaderValue::from(DRAIN_RETRY_AFTER.as_secs());
    response.headers_mut().insert(RETRY_AFTER, after);
    set_connection_close(&mut response);
    Err(RejectionReason::Draining.with_response(response))
}

fn batch_contains_request(body: &Bytes) -> bool {
    let parts: Vec<&RawValue> = serde_json::from_slice(body).unwrap_or_default();
    let mut parts = parts
        .into_iter()
        .map(|part| body.slice_ref(part.get().as_bytes()));
    parts.any(|raw| Message::parse(raw).is_ok_and(|one| one.kind() == MessageKind::Request))
}

const DRAIN_RETRY_AFTER: Duration = Duration::from_secs(1);

pub(super) fn body_read_failed(error: ReadBodyError) -> Rejection {
    let (reason, status, what) = match error {
        ReadBodyError::TooLarge => (
            RejectionReason::TooLarge,
            StatusCode::PAYLOAD_TOO_LARGE,
            "the message is too large",
        ),
        ReadBodyError::TooSlow => (
            RejectionReason::TooSlow,
            StatusCode::REQUEST_TIMEOUT,
            "the message did not arrive in time",
        ),
        ReadBodyError::Broken => (
            RejectionReason::Truncated,
            StatusCode::BAD_REQUEST,
            "the message is incomplete",
        ),
    };
    reason.with_error(status, what)
}
