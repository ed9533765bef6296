//! What somebody gets who goes no further than the door.
//!
//! Asked by: [`door`](crate::door).  Each reason is counted by its word, and its response says what
//! is wrong. A connection whose request was not read to its end cannot be used again: that is said
//! too, so that no client sends its next request into it.

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
use warmline::core::code::Reason;
use warmline::core::exchange::Trouble;
use warmline::core::protocol::envelope::{Kind, Message};
use warmline::core::protocol::headers::SESSION_ID;
use warmline::core::protocol::malformed::{Fault, Malformed};
use warmline::{Code, Error};

use super::limits::NoRoom;
use super::pace::Bounds;
use super::resource;
use crate::Shared;
use crate::body::{self, Body, Rest, Unread};
use crate::face::{Visit, raw_id};
use crate::failure::{self, Candour};
use crate::metrics::{Face, StatusClass, TurnedAwayFor};
use crate::reply::{self, RpcCode};
use crate::terms::{self, Terms};
use crate::who::{Peer, TurnedAway};

/// A request that goes no further than the door.
pub(super) struct Refusal {
    pub(super) why: TurnedAwayFor,
    pub(super) response: Response<Body>,
}

impl TurnedAwayFor {
    pub(super) const fn with(self, response: Response<Body>) -> Refusal {
        Refusal {
            why: self,
            response,
        }
    }
}

/// Says of a response to a request that was not read to its end that the connection ends with it;
/// a little that is there already is taken, and the connection goes on.
pub(super) async fn parting(
    mut response: Response<Body>,
    head: &Parts,
    rest: Option<Incoming>,
) -> Response<Body> {
    let Some(mut rest) = rest.filter(|rest| !rest.is_end_stream()) else {
        return response;
    };
    // Who waits to be told to go on would be told so by reading.
    let waits = head.headers.contains_key(EXPECT);
    let closes = response.headers().contains_key(CONNECTION);
    if waits || closes || body::drain(&mut rest).await == Rest::Left {
        closing(&mut response);
    }
    response
}

/// Says that the connection ends with this response.
pub(super) fn closing(response: &mut Response<Body>) {
    let close = HeaderValue::from_static("close");
    response.headers_mut().insert(CONNECTION, close);
}

/// The body of a refusal of a head that could not be read, or did not come whole: counted and told as all others are.
pub(super) fn unreadable(shared: &Shared, peer: Peer, status: StatusCode) -> Bytes {
    let what = match status {
        StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => {
            "Request Header Fields Too Large: the head of the request is larger than is taken"
        },
        StatusCode::URI_TOO_LONG => "URI Too Long: the address is longer than is taken",
        StatusCode::REQUEST_TIMEOUT => {
            "Request Timeout: the head of the request did not come in time"
        },
        _ => "Bad Request: this is not the head of a request of HTTP/1.1",
    };
    let mut response = reply::error(status, None, RpcCode::Invalid, what);
    let why = match status {
        StatusCode::REQUEST_TIMEOUT => TurnedAwayFor::TooSlow,
        _ => TurnedAwayFor::Head,
    };
    turned_away_at_once(shared, peer, None, (why, &response));
    match response.body_mut() {
        Body::Whole(bytes) => bytes.take().unwrap_or_default(),
        Body::Empty | Body::Events(_) | Body::Lines(_) | Body::Told(_) => Bytes::new(),
    }
}

/// What somebody gets whose request could be read in two ways: whoever stands between them and us
/// may have seen another one. Nothing that follows it is believed.
pub(super) fn unclear(
    shared: &Shared,
    request: &Request<Incoming>,
    bounds: Bounds,
    peer: Peer,
) -> Option<Response<Body>> {
    let mut codings = request.headers().get_all(TRANSFER_ENCODING).iter();
    let is_plain = codings.all(|coding| coding.as_bytes().eq_ignore_ascii_case(b"chunked"));
    if is_plain && bounds == Bounds::Clear {
        return None;
    }
    let what = "Bad Request: where this request ends could be read in two ways";
    let status = StatusCode::BAD_REQUEST;
    let mut response = reply::error(status, None, RpcCode::Invalid, what);
    closing(&mut response);
    let path = Some(request.uri().path());
    turned_away_at_once(shared, peer, path, (TurnedAwayFor::Head, &response));
    Some(reply::headed(response, HeaderMap::new()))
}

/// Counts and tells a refusal of a head, as all others are.
fn turned_away_at_once(
    shared: &Shared,
    peer: Peer,
    path: Option<&str>,
    (why, response): (TurnedAwayFor, &Response<Body>),
) {
    note_nobody(shared, path, why);
    shared.counts.turned_away.one_more(why);
    shared.faults.tell(Some(why), peer, response);
    let class = StatusClass::of(response.status());
    shared.counts.requests.one_more(Face::None, class);
}

/// The line in the audit for somebody nobody knows. Of many that come alike one is written.
pub(super) fn note_nobody(shared: &Shared, path: Option<&str>, why: TurnedAwayFor) {
    if let Some(audit) = &shared.audit
        && let Some(left_out) = shared.faults.due_in_audit(why)
    {
        audit.turned_away_after(path, ("nobody", why.word()), left_out);
    }
}

/// What is wrong with where a request comes from: a page of elsewhere sent it, or it came under a
/// name that leads here by rebinding.
pub(super) fn foreign(terms: &Terms, head: &Parts) -> Option<Refusal> {
    let refused = |why: TurnedAwayFor, status: StatusCode, what: &str| {
        why.with(reply::error(status, None, RpcCode::Invalid, what))
    };
    let mut hosts = head.headers.get_all(HOST).iter();
    let host = hosts.next().and_then(|host| host.to_str().ok());
    if hosts.next().is_some() {
        let what = "Bad Request: two Hosts are none";
        let mut refusal = refused(TurnedAwayFor::Host, StatusCode::BAD_REQUEST, what);
        // Two readers may have read it differently: nothing that follows it is believed.
        closing(&mut refusal.response);
        return Some(refusal);
    }
    // A whole address in place of a path names the host before the header does.
    let named = head.uri.authority().map(Authority::as_str);
    let may_be_called = |host: Option<&str>| terms.hosts.may_be_called(host);
    if !may_be_called(host) || !named.is_none_or(|named| may_be_called(Some(named))) {
        let what = "Forbidden: this Host is not one of ours";
        return Some(refused(TurnedAwayFor::Host, StatusCode::FORBIDDEN, what));
    }
    for (why, name) in [
        (TurnedAwayFor::Origin, ORIGIN),
        (TurnedAwayFor::Head, SESSION_ID),
    ] {
        if head.headers.get_all(&name).iter().nth(1).is_some() {
            let what = format!("Bad Request: `{name}` stands there twice");
            let mut refusal = refused(why, StatusCode::BAD_REQUEST, &what);
            closing(&mut refusal.response);
            return Some(refusal);
        }
    }
    let origin = head.headers.get(ORIGIN)?;
    if terms.hosts.may_come_from(origin) {
        return None;
    }
    let what = "Forbidden: this Origin may not call here";
    Some(refused(TurnedAwayFor::Origin, StatusCode::FORBIDDEN, what))
}

/// Why somebody is not let in, as it is counted and told.
pub(super) const fn reason_of(turned_away: TurnedAway) -> TurnedAwayFor {
    match turned_away {
        TurnedAway::Missing => TurnedAwayFor::NoToken,
        TurnedAway::Unknown => TurnedAwayFor::UnknownToken,
    }
}

pub(super) fn not_let_in(terms: &Terms, head: &Parts, turned_away: TurnedAway) -> Refusal {
    let what = match turned_away {
        TurnedAway::Missing if !terms.takes_tokens() => {
            "Unauthorized: callers come through a proxy that says who they are"
        },
        TurnedAway::Missing => "Unauthorized: a bearer token is needed",
        TurnedAway::Unknown => "Unauthorized: this token is not known here",
    };
    let mut response = reply::error(StatusCode::UNAUTHORIZED, None, RpcCode::Invalid, what);
    let resource = terms.resource.as_ref();
    let challenge = resource::challenge(resource, head.uri.path(), turned_away);
    response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
    reason_of(turned_away).with(response)
}

/// What somebody gets for a server that is not there. One that the rules keep from them is not
/// there either: nobody finds out by asking, whatever they ask.
pub(super) fn not_there(terms: &Terms, visit: &Visit<'_>, server: &str) -> Option<Refusal> {
    if !terms.rules.may_use(&visit.subject, server) {
        return Some(TurnedAwayFor::NotAllowed.with(reply::no_such_server()));
    }
    if !visit.shared.warm.knows_server(server) {
        return Some(TurnedAwayFor::Path.with(reply::no_such_server()));
    }
    // Nothing is heard of one that is switched off; who asks it for something is told so.
    let is_silent =
        visit.head.method == Method::GET && !terms::may_use(visit.shared, &visit.subject, server);
    is_silent.then(|| TurnedAwayFor::NotAllowed.with(reply::no_such_server()))
}

/// What somebody gets who hands in two credentials by one header: which of them is meant is not
/// for us to choose.
pub(super) fn two_credentials(visit: &Visit<'_>) -> Option<Refusal> {
    let headers = &visit.head.headers;
    if headers.len() == headers.keys_len() {
        return None;
    }
    let stands_twice = |name: &&HeaderName| headers.get_all(*name).iter().nth(1).is_some();
    let mut twice = headers.keys().filter(stands_twice);
    let name = twice.find(|name| visit.shared.warm.takes_credentials_from(name))?;
    let what = format!("Bad Request: `{name}` stands there twice");
    let status = StatusCode::BAD_REQUEST;
    let response = reply::error(status, None, RpcCode::Invalid, &what);
    Some(TurnedAwayFor::Head.with(response))
}

/// What somebody gets who ends a run that cannot be ended.
pub(super) fn no_such_run(error: &Error, candour: Candour) -> Response<Body> {
    let status = if error.code() == Code::RunUnknown {
        StatusCode::NOT_FOUND
    } else {
        StatusCode::BAD_REQUEST
    };
    let said = (error.code().word(), &*failure::what(error, candour));
    reply::refused(status, said, failure::message(b"null", error, candour))
}

pub(super) fn too_many_strangers() -> Response<Body> {
    let what = "Too Many Requests: too many requests from here showed no token that is known";
    let status = StatusCode::TOO_MANY_REQUESTS;
    let mut response = reply::error(status, None, RpcCode::Invalid, what);
    let after = HeaderValue::from_static("60");
    response.headers_mut().insert(RETRY_AFTER, after);
    response
}

/// What somebody gets for whom there is no room now.
pub(super) fn too_much(no_room: NoRoom) -> Refusal {
    match no_room {
        NoRoom::ForAnybody => TurnedAwayFor::Overloaded.with(reply::overloaded()),
        NoRoom::OfTheirs => TurnedAwayFor::Share.with(reply::overdrawn()),
    }
}

/// What somebody gets who asks for something new while we go down. What belongs to calls under way
/// is heard: answers to questions, and that a call is given up.
pub(super) fn too_late(visit: &Visit<'_>, body: &Bytes) -> Option<Refusal> {
    let asked = match Message::split(body.clone()) {
        Ok(message) => (message.kind() == Kind::Request).then(|| raw_id(&message)),
        Err(Malformed {
            what: Fault::Batch, ..
        }) => asks_together(body).then(|| Bytes::from_static(b"null")),
        // What is wrong with it is said where it is read.
        Err(_) => None,
    };
    let id = asked?;
    let mut trouble = Trouble::new(Reason::Draining, "this gateway is going down");
    trouble.retry_after = Some(LATER);
    let (error, candour) = (Error::unsent(trouble), visit.candour());
    let said = (error.code().word(), &*failure::what(&error, candour));
    let status = StatusCode::SERVICE_UNAVAILABLE;
    let mut response = reply::refused(status, said, failure::message(&id, &error, candour));
    let after = HeaderValue::from(LATER.as_secs());
    response.headers_mut().insert(RETRY_AFTER, after);
    closing(&mut response);
    Some(TurnedAwayFor::Draining.with(response))
}

/// Whether one of several messages asks for something.
fn asks_together(body: &Bytes) -> bool {
    let parts: Vec<&RawValue> = serde_json::from_slice(body).unwrap_or_default();
    let mut parts = parts
        .into_iter()
        .map(|part| body.slice_ref(part.get().as_bytes()));
    parts.any(|raw| Message::split(raw).is_ok_and(|one| one.kind() == Kind::Request))
}

/// When to come back, to whoever is here then.
const LATER: Duration = Duration::from_secs(1);

pub(super) fn not_read(unread: Unread) -> Refusal {
    let (why, status, what) = match unread {
        Unread::TooLarge => (
            TurnedAwayFor::TooLarge,
            StatusCode::PAYLOAD_TOO_LARGE,
            "the message is too large",
        ),
        Unread::TooSlow => (
            TurnedAwayFor::TooSlow,
            StatusCode::REQUEST_TIMEOUT,
            "the message did not come in time",
        ),
        Unread::Broken => (
            TurnedAwayFor::BrokeOff,
            StatusCode::BAD_REQUEST,
            "the message broke off",
        ),
    };
    why.with(reply::error(status, None, RpcCode::Invalid, what))
}
