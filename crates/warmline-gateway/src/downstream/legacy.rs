//! The legacy era: 2024-11-05 to 2025-11-25. A client session is a
//! [`session_ticket`](self::session_ticket); what memory holds of it is a
//! [`client_session`](self::client_session).

pub(crate) mod batch;
pub(crate) mod client_session;
pub(crate) mod client_sessions;
pub(crate) mod get_stream;
pub(crate) mod initialize;
pub(crate) mod route;
pub(crate) mod server_requests;
pub(crate) mod session_ticket;

use std::sync::Arc;

use bytes::Bytes;
use http::Response;
use warmline_core::era::{Era, Version};
use warmline_core::message::envelope::{Message, MessageKind};
use warmline_core::message::params::Params;
use warmline_core::protocol::headers::PROTOCOL_VERSION;
use warmline_engine::ServerHandle;

use self::client_session::{ClientSession, InFlightGuard};
pub(crate) use self::get_stream::handle_get;
use super::message::{ClientTransport, MessageHead, method_name, raw_id};
use super::request::{self, Client, ClientRequest};
use super::{RequestContext, aggregate};
use crate::downstream::strip_run;
use crate::response::event_queue::EventQueue;
use crate::response::rejection::{RequestRejection, RpcCode};
use crate::response::stream::CallFuture;
use crate::response::{self, ResponseBody};

pub(crate) async fn handle_message(
    context: &RequestContext<'_>,
    message: &Message,
    params: Params,
) -> Result<Response<ResponseBody>, RequestRejection> {
    let (kind, method) = (message.kind(), message.method().unwrap_or_default());
    if method == "initialize" && matches!(kind, MessageKind::Request) {
        check_single_version(context.head)?;
        return Box::pin(initialize::handle_initialize(context, message, params)).await;
    }
    check_version(context.head)?;
    let session = ClientSession::from_request(context)?;
    match kind {
        MessageKind::Request => {
            return handle_request(context, session, (raw_id(message), method), params).await;
        },
        MessageKind::Notification => {
            handle_notification(context, &session, method, &params).await?;
        },
        MessageKind::Result | MessageKind::Error => session.server_requests.resolve(message),
    }
    Ok(response::accepted())
}

async fn handle_request(
    context: &RequestContext<'_>,
    session: Arc<ClientSession>,
    (id, method): (Bytes, &str),
    params: Params,
) -> Result<Response<ResponseBody>, RequestRejection> {
    if is_ping(context, &session, (&id, method)) {
        return Ok(response::ok_json(pong_message(&id)));
    }
    let mode = session.response_mode(context);
    let queue = context.new_queue();
    let in_flight = session.begin_call(context, id.clone(), &queue)?;
    let request = (id, method, params);
    let call = prepare_call(context, &session, request, (&queue, in_flight)).await?;
    Ok(request::respond(context, Some(&session), call, queue, mode).await)
}

async fn prepare_call(
    context: &RequestContext<'_>,
    session: &Arc<ClientSession>,
    (id, method, params): (Bytes, &str, Params),
    (queue, in_flight): (&Arc<EventQueue>, InFlightGuard),
) -> Result<CallFuture, RequestRejection> {
    if method.ends_with("/list") {
        session.list_requests.record_request(method);
    }
    let request = ClientRequest {
        id,
        method: method_name(method),
        params,
        queue: Arc::clone(queue),
        client: Client::Legacy {
            session: Arc::clone(session),
            in_flight: Some(in_flight),
        },
    };
    request.into_call(context).await
}

/// Whether the gateway answers a request itself: `ping` asks whether the gateway is there.
fn is_ping(
    context: &RequestContext<'_>,
    session: &ClientSession,
    (id, method): (&[u8], &str),
) -> bool {
    method == "ping" && !session.is_id_in_flight(context, id)
}

fn pong_message(id: &[u8]) -> Bytes {
    response::response_message(Some(id), "result", b"{}")
}

async fn handle_notification(
    context: &RequestContext<'_>,
    session: &Arc<ClientSession>,
    method: &str,
    params: &Params,
) -> Result<(), RequestRejection> {
    match method {
        // The gateway sent its own to the server.
        "notifications/initialized" => Ok(()),
        "notifications/cancelled" => {
            session.cancel_call(params);
            Ok(())
        },
        _ if context.target.server.is_none() => {
            Box::pin(aggregate::notify(context, session, (method, params))).await
        },
        _ => {
            let route = session.route(context, Some(params))?;
            context.check_notification(route.server.name(), method, params)?;
            let params = strip_run(params.clone());
            notify_server(&route.server, method, params.raw()).await;
            Ok(())
        },
    }
}

/// Passes a notification on. Its client hears of no failure: a notification has no answer.
pub(super) async fn notify_server(server: &ServerHandle, method: &str, params: &[u8]) {
    if let Err(error) = server.notify(method, params).await {
        let server = server.name();
        tracing::debug!(server, %error, "the server did not take a notification of a client");
    }
}

/// Rejects a second version header: two readers would see two requests.
fn check_single_version(head: MessageHead<'_>) -> Result<(), RequestRejection> {
    let is_http = head.transport == ClientTransport::Http;
    let mut stated = head.headers.get_all(PROTOCOL_VERSION).iter();
    if !is_http || stated.nth(1).is_none() {
        return Ok(());
    }
    let what = "Bad Request: `MCP-Protocol-Version` appears twice";
    let reason = RpcCode::Header.audit_reason();
    Err(RequestRejection::invalid(what).with_audit_reason(reason))
}

/// Rejects a version header that names no legacy version. `initialize` names its version itself.
fn check_version(head: MessageHead<'_>) -> Result<(), RequestRejection> {
    check_single_version(head)?;
    let Some(stated) = head.protocol_version() else {
        return Ok(());
    };
    if head.legacy_version().is_some() {
        return Ok(());
    }
    let shown = String::from_utf8_lossy(stated.as_bytes());
    let shown: String = shown.chars().take(40).collect();
    let legacy = Version::ALL
        .iter()
        .filter(|version| version.era() == Era::Legacy);
    let supported: Vec<_> = legacy.map(|version| version.as_str()).collect();
    let what = format!(
        "Bad Request: Unsupported protocol version: {shown} (supported versions: {})",
        supported.join(", ")
    );
    Err(RequestRejection::invalid(what).with_audit_reason(RpcCode::Version.audit_reason()))
}

/// Answers `DELETE`: the client ends its session.
pub(crate) async fn end_session(
    context: &RequestContext<'_>,
) -> Result<Response<ResponseBody>, RequestRejection> {
    check_version(context.head)?;
    let Some(ticket) = context.head.session else {
        return Err(RequestRejection::invalid(
            "Bad Request: a session id is needed",
        ));
    };
    let session = ClientSession::from_request(context)?;
    if let Some(key) = session.session_key() {
        context.shared.clients.end_session(ticket, key);
    }
    session.end(context).await;
    Ok(response::no_content())
}
