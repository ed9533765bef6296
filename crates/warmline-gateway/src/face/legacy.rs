//! The legacy face: 2024-11-05 to 2025-11-25 over Streamable HTTP.
//!
//! Asked by: [`face`](crate::face).  A client session is a [`ticket`](crate::ticket); what is held
//! in memory of it stands in [`clients`].

mod asking;
pub(crate) mod batch;
mod client;
pub(crate) mod clients;
mod gathering;
mod greeting;
mod levels;
mod lists;
mod merged;
mod refusal;
mod request;
mod standing;
mod streams;
mod way;

use http::request::Parts;
use http::{Response, StatusCode};
use warmline::core::era::{Era, Version};
use warmline::core::protocol::envelope::{Kind, Message};
use warmline::core::protocol::headers::{PROTOCOL_VERSION, SESSION_ID};
use warmline::core::protocol::params::Params;

use self::client::Client;
use self::refusal::Refusal;
use super::{Visit, accepts};
use crate::body::Body;
use crate::reply::{self, RpcCode};
use crate::which;

pub(crate) use self::standing::stream;

/// Answers a message of a legacy client.
pub(crate) async fn message(visit: &Visit<'_>, message: Message, params: Params) -> Response<Body> {
    if let Some(refusal) = two_versions(visit.head, message.raw_id()) {
        return refusal;
    }
    if message.kind() == Kind::Request && message.method() == Some("initialize") {
        return Box::pin(greeting::greet(visit, message, params)).await;
    }
    // An answer has the id of a question, which is nobody's request.
    let own_id = message.raw_id().filter(|_| message.method().is_some());
    if let Some(refusal) = wrong_version(visit.head, own_id) {
        return refusal;
    }
    let method = message.method().unwrap_or_default();
    let client = match Client::of(visit) {
        Ok(client) => client,
        Err(refusal) => {
            refusal.note(visit, method, &params);
            return refusal.response(message.raw_id(), visit.candour());
        },
    };
    match message.kind() {
        Kind::Request => request::answer(visit, client, &message, params).await,
        Kind::Notification => match notified(visit, &client, &message, &params).await {
            Ok(()) => reply::accepted(),
            Err(refusal) => {
                refusal.note(visit, method, &params);
                refusal.to_notice(visit.candour())
            },
        },
        Kind::Result | Kind::Error => {
            client.questions.answered(&message);
            reply::accepted()
        },
    }
}

/// The client told something: what is not for us is for its server, if a session is held there.
async fn notified(
    visit: &Visit<'_>,
    client: &Client,
    message: &Message,
    params: &Params,
) -> Result<(), Refusal> {
    match message.method().unwrap_or_default() {
        // We greeted the server ourselves.
        "notifications/initialized" => return Ok(()),
        "notifications/cancelled" => {
            client.cancel(params);
            return Ok(());
        },
        _ => {},
    }
    let method = message.method().unwrap_or_default();
    let for_server = which::without_run(params.clone());
    let raw = for_server.raw();
    if visit.target.server.is_none() {
        return merged::notified(visit, client, method, (params, raw)).await;
    }
    let way = client.way(visit, Some(params))?;
    visit.may_tell(way.server.name(), method, params)?;
    if let Err(error) = way.server.notify(method, raw).await {
        tracing::debug!(server = way.server.name(), %error, "a notice of a client was not taken");
    }
    Ok(())
}

/// Two versions are none: two readers would see two requests.
fn two_versions(head: &Parts, id: Option<&[u8]>) -> Option<Response<Body>> {
    let mut stated = head.headers.get_all(PROTOCOL_VERSION).iter();
    let second = stated.nth(1);
    second.map(|_| {
        let what = "Bad Request: `MCP-Protocol-Version` stands there twice";
        let refusal = reply::error(StatusCode::BAD_REQUEST, id, RpcCode::Invalid, what);
        reply::called(refusal, RpcCode::Header.why())
    })
}

/// A version in the header that is none of this era. A greeting says its version itself.
fn wrong_version(head: &Parts, id: Option<&[u8]>) -> Option<Response<Body>> {
    if let Some(refusal) = two_versions(head, id) {
        return Some(refusal);
    }
    let stated = head.headers.get(PROTOCOL_VERSION)?;
    let known = stated.to_str().ok().and_then(Version::parse);
    if known.is_some_and(|version| version.era() == Era::Legacy) {
        return None;
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
    let refusal = reply::error(StatusCode::BAD_REQUEST, id, RpcCode::Invalid, &what);
    Some(reply::called(refusal, RpcCode::Version.why()))
}

/// `DELETE`: the client is done.
pub(crate) async fn end(visit: &Visit<'_>) -> Response<Body> {
    if let Some(refusal) = wrong_version(visit.head, None) {
        return refusal;
    }
    let Some(ticket) = visit.head.headers.get(SESSION_ID) else {
        let what = "Bad Request: a session id is needed";
        return reply::error(StatusCode::BAD_REQUEST, None, RpcCode::Invalid, what);
    };
    let client = match Client::of(visit) {
        Ok(client) => client,
        Err(refusal) => return refusal.response(None, visit.candour()),
    };
    if let Some(name) = client.name() {
        visit.shared.clients.end(ticket, name);
    }
    client.end(visit).await;
    reply::done()
}
