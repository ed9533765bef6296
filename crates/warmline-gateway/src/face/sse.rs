//! The 2024-11-05 transport: one stream on which everything comes down, and a place where the
//! client leaves its messages.
//!
//! Asked by: [`door`](crate::door), where it is switched on.  What a message means is said by the
//! legacy face, as for every other client; here it is only carried. The end of the stream is the
//! end of the client session.

mod talk;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http::Response;
use http::request::Parts;
use tokio::sync::mpsc;
use tokio::time::Sleep;
use warmline::clock;
use warmline::core::era::Era;
use warmline::core::key::Digest;
use warmline::core::protocol::envelope::{Kind, Message};
use warmline::core::protocol::headers::SESSION_ID;
use warmline::core::protocol::malformed::{Fault, Malformed};
use warmline::core::protocol::params::Params;
use warmline::seal::random_bytes;

pub use self::talk::Sse;
pub(crate) use self::talk::Talks;
use self::talk::{MAX_UNDER_WAY, MAX_WAITING, Talk};
use super::{Visit, accepts, era, wrong_type};
use crate::body::Body;
use crate::flow::{self, ALIVE_EVERY, Accepts, Rest};
use crate::who::Subject;
use crate::{Shared, door, face, reply};

/// Why a request for a stream is turned away by its head alone.
pub(crate) fn unfit_to_listen(head: &Parts) -> Option<Response<Body>> {
    if head.method != http::Method::GET {
        return Some(reply::wrong_method("GET"));
    }
    let can_read = matches!(accepts(head), Some(Accepts::Both | Accepts::Events));
    (!can_read).then(|| reply::not_acceptable(None))
}

/// The same of one that leaves a message.
pub(crate) fn unfit_to_say(head: &Parts) -> Option<Response<Body>> {
    if head.method != http::Method::POST {
        return Some(reply::wrong_method("POST"));
    }
    wrong_type(head)
}

/// Opens a stream. Its first event says where messages are left; whoever knows that place and is
/// who opened the stream speaks on it.
pub(crate) fn listen(visit: &Visit<'_>) -> Response<Body> {
    let name = Digest::new(random_bytes()).hex();
    let (out, said) = mpsc::channel(MAX_WAITING);
    let talk = Arc::new(Talk::new(visit, out));
    let path = visit.head.uri.path();
    let place = path.strip_suffix("sse").unwrap_or(path);
    let first = format!("event: endpoint\ndata: {place}messages?session={name}\n\n");
    visit.shared.talks.begin(&name, &talk);
    let mut stopping = visit.shared.stopping.clone();
    let places = Arc::clone(&talk.places);
    let stream = Stream {
        shared: Arc::clone(visit.shared),
        subject: visit.subject.clone(),
        name,
        talk,
        said,
        first: Some(first.into()),
        rest: Rest::Nothing,
        alive: None,
        turned_out: Box::pin(visit.turned_out()),
        done: Some(Box::pin(async move {
            door::stopped(&mut stopping).await;
            // What is under way goes on; nothing else begins.
            drop(places.acquire_many(MAX_UNDER_WAY).await);
        })),
    };
    flow::events(Body::Told(Box::new(stream)))
}

/// Takes a message. What comes of it goes down the stream.
pub(crate) async fn said(visit: &Visit<'_>, body: Bytes) -> Response<Body> {
    let Some(talk) = visit.shared.talks.find(visit) else {
        return reply::no_such_session(None);
    };
    let message = match Message::split(body.clone()) {
        Ok(message) if !face::lacks_id(&message) => Some(message),
        Err(Malformed {
            what: Fault::Batch, ..
        }) => None,
        // It belongs to no request, so it is told where it came.
        Ok(_) | Err(_) => return face::with_body(visit, body).await.1,
    };
    match &message {
        Some(message) if message.kind() != Kind::Request => {
            told(visit, &talk, message, body).await;
            reply::accepted()
        },
        _ => asked(visit, &talk, message.as_ref(), body),
    }
}

/// A message that wants no answer is done with before the next one.
async fn told(visit: &Visit<'_>, talk: &Arc<Talk>, message: &Message, body: Bytes) {
    let Some(session) = talk.session() else {
        return;
    };
    if is_modern(visit.head, Some(message)) {
        return;
    }
    if message.method() == Some("notifications/initialized") {
        stand(visit, talk);
    }
    let head = talk::head(visit.head, http::Method::POST, Some(&session));
    let to_legacy = talk.visit(visit.shared, &visit.subject, &head);
    let (_, response) = face::with_body(&to_legacy, body).await;
    visit.shared.faults.tell(None, visit.peer, &response);
}

/// Hears what belongs to no call, as long as the stream is read.
fn stand(visit: &Visit<'_>, talk: &Arc<Talk>) {
    let session = talk.session();
    let head = talk::head(visit.head, http::Method::GET, session.as_ref());
    let (shared, talk) = (Arc::clone(visit.shared), Arc::clone(talk));
    let subject = visit.subject.clone();
    drop(clock::spawn("sse-standing", async move {
        let standing = async {
            let response = face::without_body(&talk.visit(&shared, &subject, &head)).await;
            shared.faults.tell(None, talk.peer, &response);
            if response.status().is_success() {
                let room = talk.visit(&shared, &subject, &head).reply_room();
                face::passing::pass(response, (&talk.out, Some(&room)), shared.max_request()).await;
            }
        };
        tokio::select! {
            () = standing => {},
            () = talk.out.closed() => {},
        }
    }));
}

/// A request, or several in one: answered on the stream.
fn asked(
    visit: &Visit<'_>,
    talk: &Arc<Talk>,
    message: Option<&Message>,
    body: Bytes,
) -> Response<Body> {
    let Ok(place) = Arc::clone(&talk.places).try_acquire_owned() else {
        return reply::overloaded();
    };
    let is_modern = is_modern(visit.head, message);
    let step = talk.step(message, is_modern);
    let session = step.as_ref().ok().and_then(Option::as_ref);
    let head = talk::head(visit.head, http::Method::POST, session);
    let (shared, talk) = (Arc::clone(visit.shared), Arc::clone(talk));
    let subject = visit.subject.clone();
    let method = message.and_then(Message::method).map(str::to_owned);
    // What the request takes up it takes up until it is answered on the stream.
    let burden = visit.take_burden();
    drop(clock::spawn("sse-call", async move {
        let to_legacy = talk.visit(&shared, &subject, &head);
        let response = match step {
            Ok(_) => {
                let (_, response) = face::with_body(&to_legacy, body).await;
                let greets = method.as_deref() == Some("initialize");
                if greets {
                    let session = response.headers().get(SESSION_ID).cloned();
                    talk.greeted(&shared, &subject, session).await;
                }
                response
            },
            Err(refusal) => {
                let none = Params::empty();
                let said = method.as_deref().map(|method| (method, &none));
                to_legacy.note_refusal(said, &refusal);
                *refusal
            },
        };
        shared.faults.tell(None, talk.peer, &response);
        let out = (&talk.out, Some(&to_legacy.reply_room()));
        face::passing::pass(response, out, shared.max_request()).await;
        drop((place, burden));
    }));
    reply::accepted()
}

/// Whether a message speaks the era that has no such transport.
fn is_modern(head: &Parts, message: Option<&Message>) -> bool {
    let Some(message) = message else { return false };
    let params = message.params().map(Params::parse);
    let head = talk::head(head, http::Method::POST, None);
    match params.unwrap_or_else(|| Ok(Params::empty())) {
        Ok(params) => era(&head, message, &params) == Era::Modern,
        Err(_) => false,
    }
}

/// The stream of a client. Dropping it ends the client session.
pub(crate) struct Stream {
    shared: Arc<Shared>,
    subject: Subject,
    name: String,
    talk: Arc<Talk>,
    said: mpsc::Receiver<Bytes>,
    first: Option<Bytes>,
    /// What is left of an event that is being written.
    rest: Rest,
    alive: Option<Pin<Box<Sleep>>>,
    /// Ends when the client is not let in any more.
    turned_out: Pin<Box<dyn Future<Output = ()> + Send>>,
    /// Ends when the gateway stops and nothing is under way; none once it has.
    done: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl Stream {
    /// The next events, ready to be written; none at the end.
    pub(crate) fn poll_events(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if self.turned_out.as_mut().poll(cx).is_ready() {
            return Poll::Ready(None);
        }
        let piece = self.first.take().or_else(|| self.rest.next(None));
        if piece.is_some() {
            return Poll::Ready(piece);
        }
        if let Some(done) = &mut self.done
            && done.as_mut().poll(cx).is_ready()
        {
            self.done = None;
        }
        if let Poll::Ready(said) = self.said.poll_recv(cx) {
            self.alive = None;
            return Poll::Ready(said.map(|message| {
                let mut out = BytesMut::new();
                self.rest = flow::write_event(&mut out, None, 0, message);
                out.freeze()
            }));
        }
        if self.done.is_none() {
            return Poll::Ready(None);
        }
        let alive = self
            .alive
            .get_or_insert_with(|| Box::pin(clock::sleep_until(clock::after(ALIVE_EVERY))));
        ready!(alive.as_mut().poll(cx));
        self.alive = None;
        Poll::Ready(Some(flow::STILL_HERE))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.shared.talks.end(&self.name);
        let session = self.talk.over();
        if let Some(session) = session
            && tokio::runtime::Handle::try_current().is_ok()
        {
            let (shared, talk) = (Arc::clone(&self.shared), Arc::clone(&self.talk));
            let subject = self.subject.clone();
            drop(clock::spawn("sse-end", async move {
                talk.end(&shared, &subject, &session).await;
            }));
        }
    }
}
