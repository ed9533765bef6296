//! Listeners and connections, and what is checked before a message is parsed.
//!
//! A request passes, in this order: the limits, Host and Origin, the path, the rest of its head,
//! authentication, the rules about its server, and the limits of its body.

mod connection;
mod framing;
mod local_socket;
mod rejection;
mod slow_clients;
mod tls;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, EXPECT, HOST, ORIGIN, RETRY_AFTER};
use http::request::Parts;
use http::uri::Authority;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body::Body as _;
use hyper::body::Incoming;
use parking_lot::Mutex;
use serde_json::value::RawValue;
use warmline_core::error::code::{Code, Reason};
use warmline_core::exchange::Diagnostic;
use warmline_core::message::envelope::{Message, MessageKind};
use warmline_core::message::parse_error::{ParseError, ParseErrorKind};
use warmline_core::protocol::headers::SESSION_ID;
use warmline_engine::Error;
use warmline_engine::admin::EngineAdmin as _;

pub(crate) use self::connection::{
    ACCEPT_RETRY_DELAY, ConnectionRequests, UnfinishedResponses, accept_connections,
    accept_local_connections, bind_local_sockets,
};
pub(crate) use self::rejection::RejectionLog;
use self::rejection::{
    Rejection, audit_anonymous_rejection, body_read_failed, count_response, engine_error_response,
    limit_exceeded, record_rejection, set_connection_close, too_many_auth_failures_response,
    unauthorized,
};
pub(crate) use self::slow_clients::{ConnectionIo, ConnectionTimeouts};
pub use self::tls::TlsFiles;
pub(crate) use self::tls::{ReloadingTlsAcceptor, TlsFileError, check_certificate};
use crate::access::{self, AccessPolicy};
use crate::auth::{self, AnonymousScope, KeyLookup, LOCAL_IDENTITY, Peer, Subject};
use crate::downstream::message::{InboundMessage, MessageHead, raw_id};
use crate::downstream::{self, RequestContext, http_sse};
use crate::endpoint::{Endpoint, parse_endpoint};
use crate::limits::LimitExceeded;
use crate::metrics::{RejectionReason, RequestEra};
use crate::response::{self, ResponseBody};
use crate::{GatewayState, admin};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListenerRole {
    Mcp,
    /// The paths below `/admin`.
    Admin,
    Both,
}

/// Answers one request, if the role of its listener allows it.
async fn serve_request(
    shared: &Arc<GatewayState>,
    request: Request<Incoming>,
    (peer, role): (Peer, ListenerRole),
) -> Response<ResponseBody> {
    let (head, body) = request.into_parts();
    // Before the limits: an overloaded gateway can still be looked at and stopped.
    if role != ListenerRole::Mcp && admin::is_admin_path(head.uri.path()) {
        let response = Box::pin(admin::serve_request(shared, &head, body)).await;
        shared.rejection_log.log_response(None, peer, &response);
        if let (Some(audit), Some(rejected)) =
            (&shared.audit, response::rejection_details(&response))
        {
            let rejected = (LOCAL_IDENTITY, rejected.audit_reason);
            audit.write_rejection((Some(head.uri.path()), None), rejected, 0);
        }
        return response::reuse_header_map(response, HeaderMap::new());
    }
    let response = match role {
        ListenerRole::Mcp | ListenerRole::Both => {
            serve_mcp_request(shared, &head, body, peer).await
        },
        ListenerRole::Admin => {
            let response = response::unknown_path();
            let reason = Some(RejectionReason::Path);
            shared.rejection_log.log_response(reason, peer, &response);
            response
        },
    };
    let mut response = response::reuse_header_map(response, head.headers);
    if shared.drain_notice.announced.load(Ordering::Relaxed) {
        set_connection_close(&mut response);
    }
    response
}

/// Answers one MCP request. Counts it, and logs it if it is rejected.
async fn serve_mcp_request(
    shared: &Arc<GatewayState>,
    head: &Parts,
    body: Incoming,
    peer: Peer,
) -> Response<ResponseBody> {
    // `None` once it was read to its end.
    let mut body = Some(body);
    let response = match admit_request(shared, head, &mut body, peer).await {
        Ok((era, response)) => {
            shared.rejection_log.log_response(None, peer, &response);
            count_response(shared, era, response.status());
            response
        },
        Err(rejection) => {
            record_rejection(shared, peer, Some(head.uri.path()), &rejection);
            *rejection.response
        },
    };
    drain_or_close(response, head, body).await
}

async fn admit_request(
    shared: &Arc<GatewayState>,
    head: &Parts,
    body: &mut Option<Incoming>,
    peer: Peer,
) -> Result<(RequestEra, Response<ResponseBody>), Rejection> {
    let permit = shared.limiter.try_acquire_request();
    let permit = Mutex::new(permit.ok_or_else(|| limit_exceeded(LimitExceeded::Total))?);
    let policy = shared.access.policy.load_full();
    check_host_and_origin(&policy, head)?;
    let resource = policy.protected_resource.as_ref();
    if let Some(response) = resource.and_then(|resource| resource.metadata_response(head)) {
        return match response::rejection_details(&response) {
            None => Ok((RequestEra::None, response)),
            Some(_) => Err(RejectionReason::Head.with_response(response)),
        };
    }
    let Some(endpoint) = parse_endpoint(head.uri.path()) else {
        return Err(reject_unknown_path(shared, &policy, head, peer).await);
    };
    let by_head = match endpoint {
        Endpoint::Mcp(_) => downstream::reject_by_head(head),
        Endpoint::Run(_) if head.method == Method::DELETE => None,
        Endpoint::Run(_) => Some(response::method_not_allowed("DELETE")),
        Endpoint::Sse(_) | Endpoint::Messages(_) if !shared.options.sse => {
            return Err(reject_unknown_path(shared, &policy, head, peer).await);
        },
        Endpoint::Sse(_) => http_sse::reject_stream_request(head),
        Endpoint::Messages(_) => http_sse::reject_message_post(head),
    };
    if let Some(response) = by_head {
        return Err(RejectionReason::Head.with_response(response));
    }
    let subject = authenticate(shared, &policy, head, peer).await?;
    shared.admin.record_use();
    let context = RequestContext::new(
        shared,
        (subject, peer),
        endpoint.target(),
        MessageHead::http(head),
        &permit,
    );
    // The subject is known from here on, so every rejection has its own line in the audit.
    match serve_authenticated(&context, (endpoint, head), body, &policy).await {
        Ok((era, response)) => {
            let budgeted = |body: ResponseBody| body.with_reply_budget(|| context.reply_budget());
            let response = response.map(budgeted);
            context.audit_rejection_once(None, &response);
            Ok((era, response))
        },
        Err(mut rejection) => {
            context.audit_rejected_head(rejection.reason.as_str());
            rejection.is_audited = true;
            Err(rejection)
        },
    }
}

async fn serve_authenticated(
    context: &RequestContext<'_>,
    (endpoint, head): (Endpoint<'_>, &Parts),
    body: &mut Option<Incoming>,
    policy: &AccessPolicy,
) -> Result<(RequestEra, Response<ResponseBody>), Rejection> {
    if let Endpoint::Run(name) = endpoint {
        return Ok((RequestEra::None, end_run(context, name).await));
    }
    if let Some(server) = context.target.server {
        check_server(policy, context, (&head.method, server))?;
    }
    check_credentials(context)?;
    if let Endpoint::Sse(_) = endpoint {
        return Ok((RequestEra::Legacy, http_sse::open_stream(context)));
    }
    if head.method != Method::POST {
        let response = downstream::handle_without_body(context, &head.method).await;
        return Ok((RequestEra::Legacy, response));
    }
    let message = read_message(context, body, policy.max_request).await?;
    check_draining(context, &message)?;
    if let Endpoint::Messages(_) = endpoint {
        let response = http_sse::handle_post(context, head.uri.query(), message).await;
        return Ok((RequestEra::Legacy, response));
    }
    Ok(downstream::handle_message(context, InboundMessage::parse(message)).await)
}

/// Answers `DELETE /runs/{run}`.
async fn end_run(context: &RequestContext<'_>, name: &str) -> Response<ResponseBody> {
    let warm = &context.shared.warmline;
    let caller = auth::caller_for(warm, &context.subject, AnonymousScope::Run(name));
    match caller.join_run(name) {
        Ok(run) => {
            run.end().await;
            response::no_content()
        },
        Err(error) => {
            let status = if error.code() == Code::RunUnknown {
                StatusCode::NOT_FOUND
            } else {
                StatusCode::BAD_REQUEST
            };
            let detail = context.subject.error_detail();
            engine_error_response(status, b"null", &error, detail)
        },
    }
}

/// Rejects a path that does not exist. Admin paths exist on the admin socket alone, and only a
/// known caller reads that.
async fn reject_unknown_path(
    shared: &GatewayState,
    policy: &AccessPolicy,
    head: &Parts,
    peer: Peer,
) -> Rejection {
    if !admin::is_admin_path(head.uri.path()) {
        return RejectionReason::Path.with_response(response::unknown_path());
    }
    let subject = match authenticate(shared, policy, head, peer).await {
        Ok(subject) => subject,
        Err(rejection) => return rejection,
    };
    let mut rejection = RejectionReason::NotAllowed.with_response(admin::wrong_listener());
    if let Some(audit) = &shared.audit {
        let rejected = (subject.audit_name(), rejection.reason.as_str());
        audit.write_rejection((Some(head.uri.path()), None), rejected, 0);
        rejection.is_audited = true;
    }
    rejection
}

async fn authenticate(
    shared: &GatewayState,
    policy: &AccessPolicy,
    head: &Parts,
    peer: Peer,
) -> Result<Subject, Rejection> {
    let address = peer.address();
    let is_over_limit =
        address.is_some_and(|address| shared.limiter.has_too_many_auth_failures(address));
    let lookup = if is_over_limit {
        KeyLookup::CachedOnly
    } else {
        KeyLookup::Fetch
    };
    let error = match policy.authenticate(head, peer, lookup).await {
        Ok(subject) => return Ok(subject),
        Err(error) => error,
    };
    if let Some(address) = address {
        shared.limiter.record_auth_failure(address);
    }
    let rejection = unauthorized(policy, head, error);
    if !is_over_limit {
        return Err(rejection);
    }
    audit_anonymous_rejection(shared, Some(head.uri.path()), rejection.reason);
    Err(Rejection {
        is_audited: true,
        ..RejectionReason::AuthFailures.with_response(too_many_auth_failures_response())
    })
}

/// The largest body that is read from a caller over its quota.
const MAX_NON_REQUEST_BODY: usize = 16 << 10;

/// Reads a message of at most `limit` bytes. A caller over its quota can still reply to server
/// requests and cancel calls: that is what frees its quota.
async fn read_message(
    context: &RequestContext<'_>,
    unread: &mut Option<Incoming>,
    limit: usize,
) -> Result<Bytes, Rejection> {
    let limiter = &context.shared.limiter;
    // A body of unknown length may be as large as the limit.
    let stated = unread.as_ref().and_then(|body| body.size_hint().exact());
    let stated = stated.and_then(|stated| usize::try_from(stated).ok());
    let expected = stated.map_or(limit, |stated| stated.min(limit));
    let identity = context.identity;
    let reserved = identity
        .map_or(Ok(()), |identity| {
            limiter.charge_identity(context.permit, identity)
        })
        .and_then(|()| limiter.reserve_bytes(context.permit, expected, identity));
    let is_over_quota = match reserved {
        Ok(()) => false,
        Err(LimitExceeded::Identity) if expected <= MAX_NON_REQUEST_BODY => {
            limiter
                .reserve_bytes(context.permit, expected, None)
                .map_err(limit_exceeded)?;
            true
        },
        Err(limit) => return Err(limit_exceeded(limit)),
    };
    let read = match unread {
        None => Bytes::new(),
        Some(body) => {
            let read = response::read_body(body, limit, limiter.limits().body_timeout).await;
            read.map_err(body_read_failed)?
        },
    };
    *unread = None;
    context.permit.lock().shrink_to(read.len());
    let may_be_request = |message: Message| message.kind() == MessageKind::Request;
    if is_over_quota && Message::parse(read.clone()).map_or(true, may_be_request) {
        return Err(limit_exceeded(LimitExceeded::Identity));
    }
    Ok(read)
}

/// Reads the rest of a request body if it is small and has arrived; else the response closes the
/// connection.
async fn drain_or_close(
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
    if waits || closes || !response::drain_body(&mut rest).await {
        set_connection_close(&mut response);
    }
    response
}

/// Rejects a request that a foreign web page sent, or that arrived under a rebound name.
fn check_host_and_origin(policy: &AccessPolicy, head: &Parts) -> Result<(), Rejection> {
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

/// Rejects a server that does not exist. A server that the rules deny gets the same response, so
/// that no caller can probe for it.
fn check_server(
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
    Err(reason.with_response(response::unknown_server()))
}

/// Rejects two credentials in one header: the gateway does not choose between them.
fn check_credentials(context: &RequestContext<'_>) -> Result<(), Rejection> {
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

/// Rejects new requests during a drain. Replies to server requests and cancellations belong to
/// calls in flight and pass.
fn check_draining(context: &RequestContext<'_>, body: &Bytes) -> Result<(), Rejection> {
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
    let mut response = engine_error_response(status, &id, &error, context.subject.error_detail());
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
