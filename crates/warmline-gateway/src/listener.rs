//! Listeners and connections, and what is checked before a message is parsed.
//!
//! A request passes, in this order: the limits, Host and Origin, the path, the rest of its head,
//! authentication, the rules about its server, and the limits of its body.

mod accept;
mod connection;
mod connection_timeouts;
mod framing;
mod local_socket;
mod read_body;
mod rejection;
mod rejection_log;
mod tls;

use std::sync::Arc;

use http::request::Parts;
use http::{HeaderMap, Method, Request, Response};
use hyper::body::Incoming;
use parking_lot::Mutex;

pub(crate) use self::accept::{
    ACCEPT_RETRY_DELAY, accept_connections, accept_local_connections, bind_local_sockets,
};
pub(crate) use self::connection::ConnectionRequests;
pub(crate) use self::connection_timeouts::{ConnectionIo, ConnectionTimeouts};
use self::rejection::{
    Rejection, audit_anonymous_rejection, check_credentials, check_draining, check_host_and_origin,
    check_server, drain_or_close, limit_exceeded, record_rejection, run_error_response,
    set_connection_close, too_many_auth_failures_response, unauthorized,
};
pub(crate) use self::rejection_log::RejectionLog;
pub use self::tls::TlsFiles;
pub(crate) use self::tls::{ReloadingTlsAcceptor, TlsFileError, check_certificate};
use crate::GatewayState;
use crate::access::AccessPolicy;
use crate::admin;
use crate::auth::{self, AnonymousScope, KeyLookup, LOCAL_IDENTITY, Peer, Subject};
use crate::downstream::http_sse::{self, HttpSseTransport};
use crate::downstream::message::{InboundMessage, MessageHead};
use crate::downstream::{self, RequestContext};
use crate::endpoint::{Endpoint, parse_endpoint};
use crate::limits::LimitExceeded;
use crate::metrics::{RejectionReason, RequestEra, StatusClass};
use crate::response::body::ResponseBody;
use crate::response::error_response;

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
            (&shared.audit, error_response::rejection_details(&response))
        {
            let rejected = (LOCAL_IDENTITY, rejected.audit_reason);
            audit.write_rejection((Some(head.uri.path()), None), rejected, 0);
        }
        return error_response::reuse_header_map(response, HeaderMap::new());
    }
    let response = match role {
        ListenerRole::Mcp | ListenerRole::Both => {
            serve_mcp_request(shared, &head, body, peer).await
        },
        ListenerRole::Admin => {
            let response = error_response::unknown_path();
            let reason = Some(RejectionReason::Path);
            shared.rejection_log.log_response(reason, peer, &response);
            response
        },
    };
    let mut response = error_response::reuse_header_map(response, head.headers);
    if shared.drain_notice.is_announced() {
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
            let class = StatusClass::from_status(response.status());
            shared.counters.requests.increment(era, class);
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
    let policy = shared.access_policy.load_full();
    check_host_and_origin(&policy, head)?;
    let resource = policy.protected_resource.as_ref();
    if let Some(response) = resource.and_then(|resource| resource.metadata_response(head)) {
        return match error_response::rejection_details(&response) {
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
        Endpoint::Run(_) => Some(error_response::method_not_allowed("DELETE")),
        Endpoint::Sse(_) | Endpoint::Messages(_) if shared.options.sse == HttpSseTransport::Off => {
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
    let message = read_body::read_message(context, body, policy.max_request).await?;
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
            error_response::no_content()
        },
        Err(error) => run_error_response(&error, context.error_detail()),
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
        return RejectionReason::Path.with_response(error_response::unknown_path());
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
