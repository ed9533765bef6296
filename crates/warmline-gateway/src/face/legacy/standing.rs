//! `GET`: a stream that broke is taken up, or the standing stream of a client begins.
//!
//! The standing stream carries what belongs to no call. What is wanted of the server for it is
//! wanted only while somebody reads.

use std::sync::Arc;

use http::header::HeaderValue;
use http::{Response, StatusCode};
use warmline::clock::{self, Instant};
use warmline::core::key::Digest;
use warmline::core::protocol::headers::LAST_EVENT_ID;

use super::asking::StandingEar;
use super::client::{AtTheStream, Client};
use super::gathering::Gathering;
use super::request::{can_come_back, hold, prime};
use super::streams::Kind;
use super::way::named_run;
use super::{accepts, wrong_version};
use crate::body::Body;
use crate::face::Visit;
use crate::flow::{self, Accepts, Flow, Leaving, Manner, Prime};
use crate::lane::{Keep, Lane};
use crate::reply::{self, RpcCode};

/// Answers `GET`.
pub(crate) async fn stream(visit: &Visit<'_>) -> Response<Body> {
    if let Some(refusal) = wrong_version(visit.head, None) {
        return refusal;
    }
    if !matches!(accepts(visit.head), Some(Accepts::Both | Accepts::Events)) {
        return reply::unreadable(None, "Not Acceptable: a stream is text/event-stream");
    }
    let client = match Client::of(visit) {
        Ok(client) => client,
        Err(refusal) => return refusal.response(None, visit.candour()),
    };
    let Some(whose) = client.name() else {
        // Nothing could be told to a client that is another one with each request.
        return reply::wrong_method("POST");
    };
    match visit.head.headers.get(LAST_EVENT_ID) {
        Some(last) => go_on(visit, &client, whose, last),
        None => begin(visit, &client, whose),
    }
}

/// Goes on with the stream that an event id names.
fn go_on(
    visit: &Visit<'_>,
    client: &Arc<Client>,
    whose: Digest,
    last: &HeaderValue,
) -> Response<Body> {
    let place = last.to_str().ok().and_then(flow::event_id);
    let streams = &visit.shared.clients.streams;
    let held = place.and_then(|(stream, number)| {
        let (lane, kind) = streams.find(whose, stream)?;
        let can = lane.can_go_on_after(number);
        can.then_some((lane, kind, stream, number))
    });
    let Some((lane, kind, stream, number)) = held else {
        let what = "Bad Request: this event is not held any more";
        let refusal = reply::error(StatusCode::BAD_REQUEST, None, RpcCode::Invalid, what);
        return reply::called(refusal, "event-unknown");
    };
    // Whoever may not read it leaves it to those who do.
    let flow = || Flow::after(number, Arc::clone(&lane), manner(stream));
    match kind {
        Kind::Call => {
            let flow = flow().primed(already(prime(visit, client)));
            visit.watched(flow).response()
        },
        Kind::Standing => {
            // Whoever reads it still is heard for until now.
            let away = lane.resting().unwrap_or_else(clock::now);
            match client.stand(stream, &lane) {
                Some(at) => stand(visit, client, (&lane, Some(away)), at, flow()),
                None => taken(),
            }
        },
    }
}

/// The stream that is gone on with began as its client's version wants it.
const fn already(prime: Prime) -> Prime {
    match prime {
        Prime::First | Prime::Done => Prime::Done,
        Prime::No => Prime::No,
    }
}

/// Begins the standing stream; a client has one.
fn begin(visit: &Visit<'_>, client: &Arc<Client>, whose: Digest) -> Response<Body> {
    let stream = client.new_number();
    let keep = match can_come_back(visit, client) {
        true => Keep::Written,
        false => Keep::Nothing,
    };
    let lane = Arc::new(Lane::new(keep).counted(&visit.shared.counts));
    let Some(at) = client.stand(stream, &lane) else {
        return taken();
    };
    hold(visit, client, (whose, stream), &lane, Kind::Standing);
    let flow = Flow::after(0, Arc::clone(&lane), manner(stream));
    let flow = flow.primed(prime(visit, client));
    stand(visit, client, (&lane, None), at, flow)
}

fn stand(
    visit: &Visit<'_>,
    client: &Arc<Client>,
    (lane, away): (&Arc<Lane>, Option<Instant>),
    at: AtTheStream,
    flow: Flow,
) -> Response<Body> {
    if *visit.shared.stopping.borrow() {
        lane.end(None);
    }
    let ear = Arc::new(StandingEar::new(client, lane));
    let reading = Reading(Arc::clone(lane));
    let flow = flow.until(visit.turned_out());
    if visit.target.server.is_none() {
        let gathering = Gathering::begin(visit, client, (ear, away));
        return flow.holding((gathering, reading, at)).response();
    }
    let run = match named_run(visit, None) {
        Ok(run) => run,
        Err(refusal) => return refusal.response(None, visit.candour()),
    };
    match client.way(visit, None) {
        Ok(way) => {
            let run = run.as_deref().or(client.run.as_deref());
            at.hear(run, (ear, away), &way.server);
            flow.holding((reading, at)).response()
        },
        Err(refusal) => {
            visit.sent_away(refusal.why());
            refusal.response(None, visit.candour())
        },
    }
}

/// A lane that somebody reads; dropping it leaves it to whoever comes back.
struct Reading(Arc<Lane>);

impl Drop for Reading {
    fn drop(&mut self) {
        self.0.rest();
    }
}

const fn manner(stream: u64) -> Manner {
    Manner {
        accepts: Accepts::Events,
        leaving: Leaving::GoesOn,
        stream: Some(stream),
    }
}

fn taken() -> Response<Body> {
    let what = "Conflict: only one standing stream is allowed per session";
    let refusal = reply::error(StatusCode::CONFLICT, None, RpcCode::Invalid, what);
    reply::called(refusal, "stream-taken")
}
