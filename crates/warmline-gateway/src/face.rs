//! Faces: how a client of each era is spoken with, told apart per message.
//!
//! Asked by: [`door`](crate::door), with a request that was let in and read. No face knows the
//! other; which of them a message is for is decided here, by its body.

pub(crate) mod legacy;
pub(crate) mod modern;
mod passing;
pub(crate) mod sse;
pub(crate) mod stdio;

use std::borrow::Cow;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::request::Parts;
use http::{Response, StatusCode};
use parking_lot::Mutex;
use warmline::core::era::{Era, Version};
use warmline::core::protocol::envelope::{Kind, Message};
use warmline::core::protocol::headers::PROTOCOL_VERSION;
use warmline::core::protocol::malformed::{Fault, Malformed};
use warmline::core::protocol::meta;
use warmline::core::protocol::methods::Method;
use warmline::core::protocol::params::Params;

use crate::Shared;
use crate::body::Body;
use crate::door::limits::Burden;
use crate::door::replies::ReplyRoom;
use crate::failure::Candour;
use crate::flow::{Accepts, Flow};
use crate::metrics::Face;
use crate::path::Target;
use crate::reply::{self, RpcCode};
use crate::terms;
use crate::which;
use crate::who::{Peer, Subject};

/// At which place a request came in, wherever it goes from there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CameAt {
    /// That of its server.
    OneServer,
    /// That of all servers.
    AllServers,
}

/// A request that was let in.
pub(crate) struct Visit<'a> {
    pub(crate) shared: &'a Arc<Shared>,
    pub(crate) subject: Subject,
    pub(crate) target: Target<'a>,
    pub(crate) came_at: CameAt,
    pub(crate) head: &'a Parts,
    /// Where it comes from.
    pub(crate) peer: Peer,
    /// What the request takes up at the door, until somebody takes it over with the call.
    pub(crate) burden: &'a Mutex<Burden>,
    /// Whether it has its line in the audit; none where there is no audit.
    pub(crate) noted: Option<Arc<AtomicBool>>,
}

impl<'a> Visit<'a> {
    /// A request of somebody, at a place.
    pub(crate) fn new(
        shared: &'a Arc<Shared>,
        (subject, peer): (Subject, Peer),
        target: Target<'a>,
        head: &'a Parts,
        burden: &'a Mutex<Burden>,
    ) -> Self {
        Self {
            noted: shared.audit.is_some().then(Arc::default),
            shared,
            subject,
            came_at: match target.server {
                Some(_) => CameAt::OneServer,
                None => CameAt::AllServers,
            },
            target,
            head,
            peer,
            burden,
        }
    }

    /// The same at the place of one server.
    pub(crate) fn to<'b>(&'b self, server: &'b str) -> Visit<'b> {
        Visit {
            shared: self.shared,
            subject: self.subject.clone(),
            target: Target {
                run: self.target.run,
                server: Some(server),
            },
            came_at: self.came_at,
            head: self.head,
            peer: self.peer,
            burden: self.burden,
            noted: self.noted.clone(),
        }
    }

    /// What the request takes up, for as long as its call is under way.
    pub(crate) fn take_burden(&self) -> Burden {
        std::mem::take(&mut *self.burden.lock())
    }

    /// Where replies to this are held.
    pub(crate) fn reply_room(&self) -> ReplyRoom {
        ReplyRoom::new(&self.shared.gate, self.subject.whose())
    }

    /// How much the client is told of what goes wrong behind us.
    pub(crate) fn candour(&self) -> Candour {
        self.subject.candour()
    }

    /// The stream that answers a call, ended when who sent this is not let in any more. A client that
    /// hears everything on one stream has that watched instead, or is on a pipe and shows nothing.
    pub(crate) fn watched(&self, flow: Flow) -> Flow {
        match self.head.extensions.get() {
            Some(OneStream) => flow,
            None => {
                let servers = flow.lane().servers().into_iter().map(String::from);
                let servers = self.own_server().chain(servers).collect();
                flow.until(self.turned_out_of(servers))
            },
        }
    }

    /// Ends when who sent this is not let in any more: for a stream that stays open.
    pub(crate) fn turned_out(&self) -> impl Future<Output = ()> + Send + use<> {
        self.turned_out_of(self.own_server().collect())
    }

    fn turned_out_of(&self, servers: Vec<String>) -> impl Future<Output = ()> + Send + use<> {
        terms::turned_out(Arc::clone(self.shared), self.subject.clone(), servers)
    }

    /// The server of this place, where it has one.
    fn own_server(&self) -> impl Iterator<Item = String> {
        self.target.server.map(str::to_owned).into_iter()
    }
}

/// Stands in the head of a request whose client has no headers to say anything in: the head was
/// made for it, and nobody answers for what is missing there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Headless;

/// Stands in the head of a request that its client may give up by a message: what it says then.
#[derive(Clone, Debug, Default)]
pub(crate) struct PartingWords(Arc<OnceLock<Bytes>>);

impl PartingWords {
    /// The client gives the request up, with these parameters.
    pub(crate) fn say(&self, params: &Params) {
        let words = which::without_run(params.clone());
        // Only the first who gives it up ends it.
        drop(self.0.set(words.raw().clone()));
    }

    /// What it said, raw, if it gave the request up.
    pub(crate) fn said(&self) -> Option<Bytes> {
        self.0.get().cloned()
    }
}

/// Stands in the head of a request whose client hears everything on one stream, made for its whole
/// conversation: it cannot come back for the rest of an answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OneStream;

/// Why a request is turned away by its head alone, whoever sends it: by its method, by what its
/// body is, by what can be read by its client (mcp-spec 3.4.6, steps 2 and 3).
pub(crate) fn unfit(head: &Parts) -> Option<Response<Body>> {
    if head.method != http::Method::POST {
        let is_modern = stated_era(head) == Some(Era::Modern);
        return is_modern.then(|| reply::wrong_method("POST"));
    }
    let no_json = wrong_type(head);
    no_json.or_else(|| accepts(head).is_none().then(|| reply::not_acceptable(None)))
}

/// What is wrong with what a message says it is.
fn wrong_type(head: &Parts) -> Option<Response<Body>> {
    let stated = head.headers.get(CONTENT_TYPE);
    let kind = stated.map(|stated| stated.to_str().unwrap_or_default());
    let kind = kind.and_then(|kind| kind.split(';').next())?;
    let is_json = kind.trim().eq_ignore_ascii_case("application/json");
    (!is_json).then(reply::wrong_type)
}

/// Answers a request that has no body.
pub(crate) async fn without_body(visit: &Visit<'_>) -> Response<Body> {
    let response = match visit.head.method {
        http::Method::GET => legacy::stream(visit).await,
        http::Method::DELETE => legacy::end(visit).await,
        _ => reply::wrong_method("GET, POST, DELETE"),
    };
    visit.note_refusal(None, &response);
    response
}

/// Answers a message. Whoever refuses it, and why ever: the audit has a line of it.
pub(crate) async fn with_body(visit: &Visit<'_>, body: Bytes) -> (Face, Response<Body>) {
    let mut said = None;
    let (face, response) = answered(visit, body, &mut said).await;
    let said = said.as_ref().map(|(method, params)| (&**method, params));
    visit.note_refusal(said, &response);
    (face, response)
}

/// Answers a message, and says for the audit what was said.
async fn answered(
    visit: &Visit<'_>,
    body: Bytes,
    said: &mut Option<(String, Params)>,
) -> (Face, Response<Body>) {
    let mut keep = |message: &Message, params: &Params| {
        if let (Some(_), Some(method)) = (&visit.noted, message.method()) {
            *said = Some((method.to_owned(), params.clone()));
        }
    };
    let message = match Message::split(body.clone()) {
        Ok(message) => message,
        Err(Malformed {
            what: Fault::Batch, ..
        }) if stated_era(visit.head) != Some(Era::Modern) => {
            let answer = Box::pin(legacy::batch::answer(visit, body)).await;
            return (Face::Legacy, answer);
        },
        Err(malformed) => {
            let (code, what) = if malformed.is_json() {
                (RpcCode::Invalid, "Invalid Request")
            } else {
                (RpcCode::Parse, "Parse error")
            };
            let said = format!("{what}: {malformed}");
            let refusal = reply::error(StatusCode::BAD_REQUEST, None, code, &said);
            return (Face::None, refusal);
        },
    };
    let params = match message.params().map(Params::parse) {
        None => Params::empty(),
        Some(Ok(params)) => params,
        Some(Err(malformed)) => {
            keep(&message, &Params::empty());
            let said = format!("Invalid params: {malformed}");
            let status = StatusCode::BAD_REQUEST;
            let refusal = reply::error(status, message.raw_id(), RpcCode::Params, &said);
            return (Face::None, refusal);
        },
    };
    keep(&message, &params);
    if lacks_id(&message) {
        let refusal = reply::error(StatusCode::BAD_REQUEST, None, RpcCode::Invalid, LACKS_ID);
        return (Face::None, refusal);
    }
    match era(visit.head, &message, &params) {
        Era::Modern => {
            let answer = modern::message(visit, message, params).await;
            (Face::Modern, answer)
        },
        Era::Legacy => {
            let answer = legacy::message(visit, message, params).await;
            (Face::Legacy, answer)
        },
    }
}

/// What is said to a message that lacks its id.
pub(crate) const LACKS_ID: &str = "Invalid Request: only notifications have no id";

/// Whether a message is a request that lacks its id. Passed on as a notice it would go around the
/// rules and the audit, and a server might well do what it asks.
pub(crate) fn lacks_id(message: &Message) -> bool {
    let is_notice = |method: &str| method.starts_with("notifications/");
    message.kind() == Kind::Notification && !message.method().is_some_and(is_notice)
}

/// The raw id of a message, in the bytes that came.
pub(crate) fn raw_id(message: &Message) -> Bytes {
    let id = message.raw_id();
    id.map(|id| message.raw().slice_ref(id)).unwrap_or_default()
}

/// An id by value: the same text may be written in several ways.
pub(crate) fn plain_id(raw: &[u8]) -> Bytes {
    match serde_json::from_slice::<Cow<'_, str>>(raw) {
        // The quote tells it from a number.
        Ok(text) => [b"\"", text.as_bytes()].concat().into(),
        Err(_) => Bytes::copy_from_slice(raw),
    }
}

/// Whether two raw ids are the same by value.
pub(crate) fn is_same_id(one: &[u8], other: &[u8]) -> bool {
    let is_escaped = |raw: &[u8]| raw.contains(&b'\\');
    one == other || (is_escaped(one) || is_escaped(other)) && plain_id(one) == plain_id(other)
}

/// A method by its name; those of the protocol need no text of their own.
pub(crate) fn method_named(name: &str) -> Cow<'static, str> {
    match Method::find(name) {
        Some(method) => Cow::Borrowed(method.name),
        None => Cow::Owned(name.to_owned()),
    }
}

/// What a client can read, if it is anything we write.
pub(crate) fn accepts(head: &Parts) -> Option<Accepts> {
    let mut stated = head.headers.get_all(ACCEPT).iter().peekable();
    if stated.peek().is_none() {
        return Some(Accepts::Both);
    }
    let (mut json, mut events) = (false, false);
    for part in stated
        .filter_map(|value| value.to_str().ok())
        .flat_map(|text| text.split(','))
    {
        let kind = part.split(';').next().unwrap_or_default().trim();
        let is = |name: &str| kind.eq_ignore_ascii_case(name);
        json |= is("application/json") || is("application/*") || is("*/*");
        events |= is("text/event-stream") || is("text/*") || is("*/*");
    }
    match (json, events) {
        (true, true) => Some(Accepts::Both),
        (true, false) => Some(Accepts::Json),
        (false, true) => Some(Accepts::Events),
        (false, false) => None,
    }
}

/// Which era a message speaks (mcp-spec 4.3): its body says, and the header only where the body
/// says nothing. Answers say nothing: one under a modern version is none that anybody waits for.
fn era(head: &Parts, message: &Message, params: &Params) -> Era {
    let is_greeting = message.method() == Some("initialize");
    let claims = |name: &str| params.meta_member(name).is_some();
    // The handshake is legacy by definition, but for one that says all that a modern request does.
    if claims(meta::PROTOCOL_VERSION) && (!is_greeting || claims(meta::CLIENT_CAPABILITIES)) {
        return Era::Modern;
    }
    match stated_era(head) {
        Some(Era::Modern) if !is_greeting => Era::Modern,
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
