//! One request of a legacy client, from its message to its response.
//!
//! What it costs beside the engine's own: the lane, the ear, and the future that drives both. Its
//! id and its parameters stay where they were read.

use std::sync::Arc;

use bytes::Bytes;
use http::{Response, StatusCode};
use warmline::core::era::Version;
use warmline::core::key::Digest;
use warmline::core::protocol::envelope::Message;
use warmline::core::protocol::meta;
use warmline::core::protocol::params::Params;

use super::asking::Ear;
use super::client::{Client, Present};
use super::levels::asked_level;
use super::refusal::Refusal;
use super::streams::Kind;
use super::{accepts, merged};
use crate::body::Body;
use crate::face::{CameAt, OneStream, Visit, method_named, raw_id};
use crate::failure;
use crate::flow::{self, Begun, Calling, Ended, Flow, Leaving, Manner, Prime};
use crate::lane::Lane;
use crate::reply::{self, RpcCode};
use crate::trace;
use crate::which;

/// Answers a request.
pub(super) async fn answer(
    visit: &Visit<'_>,
    client: Arc<Client>,
    message: &Message,
    params: Params,
) -> Response<Body> {
    let id = raw_id(message);
    let Some(accepts) = accepts(visit.head) else {
        return reply::not_acceptable(Some(&id));
    };
    if message.method() == Some("ping") && !client.is_confused_by(visit, &id) {
        return reply::answer(pong(&id));
    }
    let manner = Manner {
        accepts,
        leaving: Leaving::GoesOn,
        stream: can_come_back(visit, &client).then(|| client.new_number()),
    };
    let lane = Lane::new(flow::keep_for(&manner)).counted(&visit.shared.counts);
    let lane = Arc::new(lane);
    let present = match client.begin(visit, id.clone(), &lane) {
        Ok(present) => present,
        Err(refusal) => {
            refusal.note(visit, message.method().unwrap_or_default(), &params);
            return refusal.response(Some(&id), visit.candour());
        },
    };
    let seat = (id, &lane, Some(present));
    let calling = match calling(visit, &client, message, params, seat).await {
        Ok(calling) => calling,
        Err(refusal) => return refusal.response(message.raw_id(), visit.candour()),
    };
    respond(visit, &client, calling, lane, manner).await
}

/// Drives what was asked for, and holds its stream if it becomes one.
pub(super) async fn respond(
    visit: &Visit<'_>,
    client: &Client,
    calling: Calling,
    lane: Arc<Lane>,
    manner: Manner,
) -> Response<Body> {
    let flow = Flow::of(calling, Arc::clone(&lane), manner, visit.take_burden());
    match flow.counted(&visit.shared.counts).begin().await {
        Begun::Alone(ended) => reply::ended(ended.status, ended.message),
        // It ended its session while this was under way, and is told as for any later request.
        Begun::GivenUp if visit.shared.clients.has_ended(client) => reply::no_such_session(None),
        Begun::GivenUp => reply::accepted(),
        Begun::Events(flow) => {
            if let (Some(whose), Some(stream)) = (client.name(), manner.stream) {
                hold(visit, client, (whose, stream), &lane, Kind::Call);
            }
            visit.watched(flow.primed(prime(visit, client))).response()
        },
    }
}

/// Holds a stream for a client that may come back, as part of the share of who it is.
pub(super) fn hold(
    visit: &Visit<'_>,
    client: &Client,
    (whose, stream): (Digest, u64),
    lane: &Arc<Lane>,
    kind: Kind,
) {
    let owner = client.owner().unwrap_or(whose);
    let streams = &visit.shared.clients.streams;
    streams.hold(owner, (whose, stream), lane, kind);
}

/// Whether a client can come back for the rest of a stream: one that has a session, and not one
/// stream for all it hears.
pub(super) fn can_come_back(visit: &Visit<'_>, client: &Client) -> bool {
    client.name().is_some() && visit.head.extensions.get::<OneStream>().is_none()
}

/// Clients of the newest version are given an id to come back with before anything is said, where
/// they can come back at all.
pub(super) fn prime(visit: &Visit<'_>, client: &Client) -> Prime {
    match (client.version(), visit.head.extensions.get()) {
        (Some(Version::V2025_11_25), None::<&OneStream>) => Prime::First,
        _ => Prime::No,
    }
}

/// What a request comes with: its raw id, the lane to its client, and its place among the calls.
pub(super) type Seat<'a> = (Bytes, &'a Arc<Lane>, Option<Present>);

/// What a request asks for, ready to be driven.
pub(super) async fn calling(
    visit: &Visit<'_>,
    client: &Arc<Client>,
    message: &Message,
    params: Params,
    seat: Seat<'_>,
) -> Result<Calling, Refusal> {
    let method = message.method().unwrap_or_default();
    client.lists.note(method);
    let said = visit.shared.audit.is_some().then(|| params.clone());
    let calling = if visit.target.server.is_none() {
        Box::pin(merged::calling(visit, client, method, params, seat)).await
    } else if method.starts_with("tasks/") && Box::pin(has_no_tasks(visit, client, &params)).await {
        let what = format!("Method not found: {method}");
        Err(Refusal::Wrong(RpcCode::Method, what))
    } else {
        calling_one(visit, client, method, params, seat)
    };
    if let (Err(refusal), Some(said)) = (&calling, &said) {
        refusal.note(visit, method, said);
    }
    calling
}

/// Whether tasks are not offered to a client: where its server keeps nothing apart for it, those of
/// others would be its own (mcp-spec 5.7).
async fn has_no_tasks(visit: &Visit<'_>, client: &Client, params: &Params) -> bool {
    let Ok(way) = client.way(visit, Some(params)) else {
        return false;
    };
    let facts = way.server.greeting().await;
    facts.is_ok_and(|facts| way.server.keeps_nothing_apart(&facts))
}

/// The call of a request to one server.
pub(super) fn calling_one(
    visit: &Visit<'_>,
    client: &Arc<Client>,
    named: &str,
    params: Params,
    (id, lane, present): Seat<'_>,
) -> Result<Calling, Refusal> {
    let way = client.way(visit, Some(&params))?;
    let method = method_named(named);
    let pass = visit.pass(way.server.name(), &method, &params)?;
    if visit.came_at == CameAt::AllServers {
        lane.comes_from(way.server.name());
    }
    let (level, whose) = (asked_level(&method, &params), Arc::clone(client));
    let token = params.meta_member(meta::PROGRESS_TOKEN);
    let token = token.map(Bytes::copy_from_slice);
    let ear = Ear::new(visit, client, lane, token).of(present.as_ref());
    let trace = trace::passed_on(visit.head, &params);
    let candour = visit.candour();
    let params = which::without_run(params);
    let call = way
        .server
        .request_raw(method, params)
        .headers(trace)
        .listened_by(Arc::new(ear));
    Ok(Box::pin(async move {
        let outcome = pass.ended(&way.server, call.unboxed().await);
        drop(present);
        let message = match outcome {
            Ok(result) => {
                level.into_iter().for_each(|level| whose.hears_from(level));
                reply::response_message(Some(&id), "result", &result)
            },
            Err(error) => failure::message(&id, &error, candour),
        };
        Ended {
            status: StatusCode::OK,
            message,
        }
    }))
}

/// What `ping` gets: it asks whether we are there.
pub(super) fn pong(id: &[u8]) -> Bytes {
    reply::response_message(Some(id), "result", b"{}")
}
