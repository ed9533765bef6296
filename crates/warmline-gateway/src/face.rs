//! Faces: how a client of each era is spoken with, told apart per message.
//!
//! Asked by: [`door`](crate::door), with a request that was let in and read. No face knows the
//! other; which of them a message is for is decided here, by its body.

pub(crate) mod legacy;
pub(crate) mod modern;

use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{Method, Response, StatusCode};
use warmline::core::era::{Era, Version};
use warmline::core::protocol::envelope::{Kind, Message};
use warmline::core::protocol::headers::PROTOCOL_VERSION;
use warmline::core::protocol::meta;
use warmline::core::protocol::params::Params;

use crate::Shared;
use crate::body::Body;
use crate::path::Target;
use crate::reply::{self, RpcCode};
use crate::who::Subject;

/// A request that was let in.
pub(crate) struct Visit<'a> {
    pub(crate) shared: &'a Arc<Shared>,
    pub(crate) subject: Subject,
    pub(crate) target: Target<'a>,
    pub(crate) head: &'a Parts,
}

/// Answers a request that has no body.
pub(crate) async fn without_body(visit: Visit<'_>) -> Response<Body> {
    if stated_era(visit.head) == Some(Era::Modern) {
        return reply::wrong_method("POST");
    }
    match visit.head.method {
        Method::GET => legacy::stream(visit).await,
        Method::DELETE => legacy::end(visit).await,
        _ => reply::wrong_method("GET, POST, DELETE"),
    }
}

/// Answers a message.
pub(crate) async fn with_body(visit: Visit<'_>, body: Bytes) -> Response<Body> {
    let message = match Message::split(body) {
        Ok(message) => message,
        Err(malformed) => {
            let (code, what) = if malformed.is_json() {
                (RpcCode::Invalid, "Invalid Request")
            } else {
                (RpcCode::Parse, "Parse error")
            };
            let said = format!("{what}: {malformed}");
            return reply::error(StatusCode::BAD_REQUEST, None, code, &said);
        },
    };
    let params = match message.params().map(Params::parse) {
        None => Params::empty(),
        Some(Ok(params)) => params,
        Some(Err(malformed)) => {
            let said = format!("Invalid params: {malformed}");
            let status = StatusCode::BAD_REQUEST;
            return reply::error(status, message.raw_id(), RpcCode::Params, &said);
        },
    };
    match era(visit.head, &message, &params) {
        Era::Modern => modern::message(visit, message, params).await,
        Era::Legacy => legacy::message(visit, message, params).await,
    }
}

/// Which era a message speaks (mcp-spec 4.3): its body says, and the header only where the body
/// says nothing.
fn era(head: &Parts, message: &Message, params: &Params) -> Era {
    if params.meta_member(meta::PROTOCOL_VERSION).is_some() {
        return Era::Modern;
    }
    let is_greeting = message.method() == Some("initialize");
    let is_answer = matches!(message.kind(), Kind::Result | Kind::Error);
    match stated_era(head) {
        Some(Era::Modern) if !is_greeting && !is_answer => Era::Modern,
        _ => Era::Legacy,
    }
}

/// The era that the header claims. What no legacy version is called is a modern claim.
fn stated_era(head: &Parts) -> Option<Era> {
    let stated = head.headers.get(PROTOCOL_VERSION)?;
    let version = stated.to_str().ok().and_then(Version::parse);
    Some(version.map_or_else(
        || {
            // Dates sort as text; what is no date is nobody's version.
            let newest = Version::NEWEST_LEGACY.as_str().as_bytes();
            if stated.as_bytes() > newest {
                Era::Modern
            } else {
                Era::Legacy
            }
        },
        Version::era,
    ))
}
