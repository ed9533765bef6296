//! Batches: several messages in one body, which only 2025-03-26 knows.
//!
//! Asked by: [`face`](crate::face), with a body that is an array of JSON.  Each message goes its own way;
//! the answers go back together.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use futures_util::future::{BoxFuture, join_all};
use http::{Response, StatusCode};
use warmline::core::era::Version;
use warmline::core::protocol::batch;
use warmline::core::protocol::envelope::{Kind, Message};
use warmline::core::protocol::meta;
use warmline::core::protocol::params::Params;

use super::client::Client;
use super::{accepts, notified, request, wrong_version};
use crate::body::Body;
use crate::face::{LACKS_ID, Visit, lacks_id, plain_id, raw_id};
use crate::flow::{self, Calling, Ended, Leaving, Manner};
use crate::lane::{Keep, Lane};
use crate::reply::{self, RpcCode};

/// More messages than these are not taken in one body.
const MAX_MESSAGES: usize = 50;

/// Answers a batch.
pub(crate) async fn answer(visit: &Visit<'_>, body: Bytes) -> Response<Body> {
    if let Some(refusal) = wrong_version(visit.head, None) {
        return refusal;
    }
    let client = match Client::of(visit) {
        Ok(client) => client,
        Err(refusal) => return refusal.response(None, visit.candour()),
    };
    let version = client.version();
    if !version.is_some_and(Version::knows_batches) {
        return refused("Invalid Request: this version of the protocol knows no batches");
    }
    let messages = match split(body, version) {
        Ok(messages) => messages,
        Err(why) => return refused(&why),
    };
    let Some(accepts) = accepts(visit.head) else {
        return reply::not_acceptable(None);
    };
    let manner = Manner {
        accepts,
        leaving: Leaving::GoesOn,
        stream: request::can_come_back(visit, &client).then(|| client.new_number()),
    };
    let lane = Lane::new(flow::keep_for(&manner)).counted(&visit.shared.counts);
    let lane = Arc::new(lane);
    let (mut asked, mut refused) = (Vec::new(), None);
    for (message, params) in messages {
        match message.kind() {
            Kind::Request => asked.push(ask(visit, &client, &message, params, &lane).await),
            Kind::Notification => {
                if let Err(refusal) = notified(visit, &client, &message, &params).await {
                    refusal.note(visit, message.method().unwrap_or_default(), &params);
                    refused = Some(refusal);
                }
            },
            Kind::Result | Kind::Error => client.questions.answered(&message),
        }
    }
    // A notice has no answer of its own; beside calls these are what is answered.
    match (asked.is_empty(), refused) {
        (true, Some(refusal)) => return refusal.to_notice(visit.candour()),
        (true, None) => return reply::accepted(),
        (false, _) => {},
    }
    let together = together(asked, Arc::clone(&lane));
    request::respond(visit, &client, together, lane, manner).await
}

/// All calls of a batch, without those that the client gave up: these have no answer.
fn together(asked: Vec<Perhaps>, lane: Arc<Lane>) -> Calling {
    Box::pin(async move {
        let ended: Vec<_> = join_all(asked).await.into_iter().flatten().collect();
        if ended.is_empty() {
            // Nothing is left to be answered.
            lane.cancel();
            return std::future::pending().await;
        }
        Ended {
            status: StatusCode::OK,
            message: array(&ended),
        }
    })
}

/// A call that may be given up alone.
type Perhaps = BoxFuture<'static, Option<Ended>>;

/// One call of a batch. What keeps it from being made is its answer.
async fn ask(
    visit: &Visit<'_>,
    client: &Arc<Client>,
    message: &Message,
    params: Params,
    lane: &Arc<Lane>,
) -> Perhaps {
    let id = raw_id(message);
    if message.method() == Some("ping") && !client.is_confused_by(visit, &id) {
        return ready(request::pong(&id));
    }
    // What comes down goes on the lane of all; a cancel concerns this call alone.
    let own = Arc::new(Lane::new(Keep::Nothing));
    let present = match client.begin(visit, id.clone(), &own) {
        Ok(present) => present,
        Err(refusal) => {
            refusal.note(visit, message.method().unwrap_or_default(), &params);
            return ready(refusal.message(Some(&id), visit.candour()));
        },
    };
    let seat = (id, lane, Some(present));
    match request::calling(visit, client, message, params, seat).await {
        Ok(calling) => Box::pin(async move {
            tokio::select! {
                biased;
                () = std::future::poll_fn(|cx| own.poll_cancelled(cx)) => None,
                ended = calling => Some(ended),
            }
        }),
        Err(refusal) => ready(refusal.message(message.raw_id(), visit.candour())),
    }
}

fn ready(message: Bytes) -> Perhaps {
    let status = StatusCode::OK;
    Box::pin(std::future::ready(Some(Ended { status, message })))
}

/// The messages of a batch, all of them or what is wrong.
fn split(body: Bytes, version: Option<Version>) -> Result<Vec<(Message, Params)>, String> {
    let parts = batch::parts(body, version);
    if parts.clone().take(MAX_MESSAGES + 1).count() > MAX_MESSAGES {
        return Err(format!(
            "Invalid Request: a batch has 1 to {MAX_MESSAGES} messages"
        ));
    }
    let messages: Vec<_> = parts.map(one).collect::<Result<_, _>>()?;
    if has_an_id_twice(&messages) {
        return Err("Invalid Request: two requests of a batch have the same id".to_owned());
    }
    Ok(messages)
}

/// Whether two requests have one id: their answers come together, and could not be told apart.
fn has_an_id_twice(messages: &[(Message, Params)]) -> bool {
    let requests = messages.iter().map(|(message, _)| message);
    let requests = requests.filter(|message| message.kind() == Kind::Request);
    let mut known = BTreeSet::new();
    let mut ids = requests.filter_map(Message::raw_id).map(plain_id);
    ids.any(|id| !known.insert(id))
}

fn one(text: Bytes) -> Result<(Message, Params), String> {
    let message = Message::split(text).map_err(|error| format!("Invalid Request: {error}"))?;
    if lacks_id(&message) {
        return Err(LACKS_ID.to_owned());
    }
    if message.method() == Some("initialize") {
        return Err("Invalid Request: `initialize` stands alone".to_owned());
    }
    let params = message
        .params()
        .map_or_else(|| Ok(Params::empty()), Params::parse);
    let params = params.map_err(|error| format!("Invalid params: {error}"))?;
    if params.meta_member(meta::PROTOCOL_VERSION).is_some() {
        return Err("Invalid Request: a message of the modern era stands alone".to_owned());
    }
    Ok((message, params))
}

fn array(ended: &[Ended]) -> Bytes {
    let length: usize = ended.iter().map(|one| one.message.len() + 1).sum();
    let mut out = BytesMut::with_capacity(length + 1);
    for (place, one) in ended.iter().enumerate() {
        out.put_u8(if place == 0 { b'[' } else { b',' });
        out.extend_from_slice(&one.message);
    }
    out.put_u8(b']');
    out.freeze()
}

fn refused(what: &str) -> Response<Body> {
    let refusal = reply::error(StatusCode::BAD_REQUEST, None, RpcCode::Invalid, what);
    reply::called(refusal, "bad-batch")
}
