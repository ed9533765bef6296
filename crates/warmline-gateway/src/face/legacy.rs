//! The legacy face: 2024-11-05 to 2025-11-25 over Streamable HTTP.
//!
//! Asked by: [`face`](crate::face).  A client session is a [`ticket`](crate::ticket); what is held
//! in memory of it stands in [`clients`].

pub(crate) mod clients;
mod greeting;

use std::sync::Arc;

use bytes::Bytes;
use http::{Response, StatusCode};
use warmline::core::protocol::envelope::{Kind, Message};
use warmline::core::protocol::headers::{LAST_EVENT_ID, SESSION_ID};
use warmline::core::protocol::meta;
use warmline::core::protocol::params::Params;

use self::clients::{Client, Ear};
use super::Visit;
use crate::body::Body;
use crate::failure;
use crate::flow::{self, Accepts, Calling, Ended, Leaving, Manner};
use crate::lane::Lane;
use crate::reply::{self, RpcCode};

/// Answers a message of a legacy client.
pub(crate) async fn message(visit: Visit<'_>, message: Message, params: Params) -> Response<Body> {
    if message.kind() == Kind::Request && message.method() == Some("initialize") {
        return Box::pin(greeting::greet(visit, message, params)).await;
    }
    let client = match Client::of(&visit, Some(&params)) {
        Ok(client) => client,
        Err(refusal) => return refusal.response(message.raw_id()),
    };
    match message.kind() {
        Kind::Request => request(&visit, client, message, params).await,
        Kind::Notification => {
            client.notified(&message, &params);
            reply::empty(StatusCode::ACCEPTED)
        },
        Kind::Result | Kind::Error => {
            client.answered(&message);
            reply::empty(StatusCode::ACCEPTED)
        },
    }
}

async fn request(
    visit: &Visit<'_>,
    client: Arc<Client>,
    message: Message,
    params: Params,
) -> Response<Body> {
    let id = message
        .raw_id()
        .map(Bytes::copy_from_slice)
        .unwrap_or_default();
    let method = message.method().unwrap_or_default().to_owned();
    if method == "ping" {
        let pong = reply::response_message(Some(&id), "result", b"{}");
        return reply::json(StatusCode::OK, pong);
    }
    let Some(accepts) = super::accepts(visit.head) else {
        let what = "Not Acceptable: a client must accept application/json or text/event-stream";
        let status = StatusCode::NOT_ACCEPTABLE;
        return reply::error(status, Some(&id), RpcCode::Invalid, what);
    };
    let manner = Manner {
        accepts,
        leaving: Leaving::GoesOn,
        stream: client.has_ticket().then(|| client.new_stream()),
    };
    let lane = Arc::new(Lane::new(flow::keep_for(&manner)));
    let token = params.meta_member(meta::PROGRESS_TOKEN);
    let ear = Ear::new(&client, &lane, token.map(Bytes::copy_from_slice));
    let pass = match visit.pass(client.server().name(), &method, &params) {
        Ok(pass) => pass,
        Err(error) => return reply::json(StatusCode::OK, failure::message(&id, &error)),
    };
    let server = client.server().clone();
    let present = client.begin(id.clone(), manner.stream, &lane);
    let call = client
        .server()
        .request_raw(method, params)
        .listened_by(Arc::new(ear));
    let calling: Calling = Box::pin(async move {
        let outcome = pass.ended(&server, call.await);
        drop(present);
        let message = match outcome {
            Ok(result) => reply::response_message(Some(&id), "result", &result),
            Err(error) => failure::message(&id, &error),
        };
        Ended {
            status: StatusCode::OK,
            message,
        }
    });
    flow::respond(calling, lane, manner).await
}

/// `GET`: a stream that broke is taken up, or a standing one begins.
pub(crate) async fn stream(visit: Visit<'_>) -> Response<Body> {
    let client = match Client::of(&visit, None) {
        Ok(client) => client,
        Err(refusal) => return refusal.response(None),
    };
    let Some(last) = visit.head.headers.get(LAST_EVENT_ID) else {
        return reply::wrong_method("POST, DELETE");
    };
    let place = last.to_str().ok().and_then(flow::event_id);
    let held = place.and_then(|(stream, number)| {
        let lane = client.lane(stream)?;
        lane.can_go_on_after(number)
            .then_some((lane, stream, number))
    });
    match held {
        Some((lane, stream, number)) => {
            let manner = Manner {
                accepts: Accepts::Events,
                leaving: Leaving::GoesOn,
                stream: Some(stream),
            };
            flow::go_on(lane, number, manner)
        },
        None => reply::error(
            StatusCode::BAD_REQUEST,
            None,
            RpcCode::Invalid,
            "Bad Request: this event is not held any more",
        ),
    }
}

/// `DELETE`: the client is done.
pub(crate) async fn end(visit: Visit<'_>) -> Response<Body> {
    if visit.head.headers.get(SESSION_ID).is_none() {
        let what = "Bad Request: a session id is needed";
        return reply::error(StatusCode::BAD_REQUEST, None, RpcCode::Invalid, what);
    }
    match Client::of(&visit, None) {
        Ok(client) => {
            client.end().await;
            reply::empty(StatusCode::NO_CONTENT)
        },
        Err(refusal) => refusal.response(None),
    }
}
