//! A conversation by the 2024-11-05 transport: whose it is, and how far it has come.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use papaya::HashMap;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, mpsc};
use warmline::core::key::Digest;
use warmline::core::protocol::envelope::Message;
use warmline::core::protocol::headers::{LAST_EVENT_ID, PROTOCOL_VERSION, SESSION_ID};

use crate::Shared;
use crate::body::Body;
use crate::door::limits::NO_BURDEN;
use crate::face::{self, Visit};
use crate::path::Target;
use crate::reply::{self, RpcCode};
use crate::who::{Peer, Subject};

/// So many requests of one client may be under way; more are turned away.
pub(super) const MAX_UNDER_WAY: u32 = 256;
/// So many messages may wait for a client that reads slowly; calls that have more wait with them.
pub(super) const MAX_WAITING: usize = 16;

/// Whether the 2024-11-05 transport is spoken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sse {
    /// There is nothing at its paths.
    #[default]
    Off,
    /// At `/servers/{server}/sse`, beside `/servers/{server}/mcp`.
    On,
}

/// The conversations that have a stream, by a name that nobody can guess. Each holds a connection,
/// so there are no more than these.
#[derive(Default)]
pub(crate) struct Talks(HashMap<String, Arc<Talk>>);

impl Talks {
    pub(super) fn begin(&self, name: &str, talk: &Arc<Talk>) {
        self.0.pin().insert(name.to_owned(), Arc::clone(talk));
    }

    /// The conversation that a message is left for, if it is of whoever opened it.
    pub(super) fn find(&self, visit: &Visit<'_>) -> Option<Arc<Talk>> {
        let mut query = visit.head.uri.query()?.split('&');
        let name = query.find_map(|part| part.strip_prefix("session="))?;
        let talks = self.0.pin();
        let talk = talks.get(name)?;
        talk.belongs_to(visit).then(|| Arc::clone(talk))
    }

    pub(super) fn end(&self, name: &str) {
        self.0.pin().remove(name);
    }
}

/// A conversation.
pub(super) struct Talk {
    /// Who opened it; none where nobody was asked.
    whose: Option<Digest>,
    /// Where they came from.
    pub(super) peer: Peer,
    run: Option<String>,
    server: Option<String>,
    pub(super) out: mpsc::Sender<Bytes>,
    pub(super) places: Arc<Semaphore>,
    stage: Mutex<Stage>,
}

/// How far a conversation has come.
enum Stage {
    /// Nothing was agreed on.
    New,
    /// `initialize` is under way.
    Greeting,
    /// With this session of the legacy face.
    Open(HeaderValue),
    /// Nobody reads any more.
    Over,
}

impl Talk {
    pub(super) fn new(visit: &Visit<'_>, out: mpsc::Sender<Bytes>) -> Self {
        Self {
            whose: visit.subject.whose(),
            peer: visit.peer,
            run: visit.target.run.map(str::to_owned),
            server: visit.target.server.map(str::to_owned),
            out,
            places: Arc::new(Semaphore::new(MAX_UNDER_WAY as usize)),
            stage: Mutex::new(Stage::New),
        }
    }

    fn target(&self) -> Target<'_> {
        Target {
            run: self.run.as_deref(),
            server: self.server.as_deref(),
        }
    }

    fn belongs_to(&self, visit: &Visit<'_>) -> bool {
        self.whose == visit.subject.whose() && self.target() == visit.target
    }

    /// The same request, as the legacy face would see it.
    pub(super) fn visit<'a>(
        &'a self,
        shared: &'a Arc<Shared>,
        subject: &Subject,
        head: &'a Parts,
    ) -> Visit<'a> {
        let who = (subject.clone(), self.peer);
        Visit::new(shared, who, self.target(), head, &NO_BURDEN)
    }

    /// The session, once there is one.
    pub(super) fn session(&self) -> Option<HeaderValue> {
        match &*self.stage.lock() {
            Stage::Open(session) => Some(session.clone()),
            Stage::New | Stage::Greeting | Stage::Over => None,
        }
    }

    /// The session that a request is answered in, none for what needs none; or why it is not.
    pub(super) fn step(
        &self,
        message: Option<&Message>,
        is_modern: bool,
    ) -> Result<Option<HeaderValue>, Box<Response<Body>>> {
        let id = message.and_then(Message::raw_id);
        if is_modern {
            let only_legacy = reply::only_legacy(id.unwrap_or(b"null"));
            let refusal = reply::ended(StatusCode::BAD_REQUEST, only_legacy);
            return Err(Box::new(reply::told_if_only_legacy(refusal)));
        }
        let refused = |what| {
            let refusal = reply::error(StatusCode::BAD_REQUEST, id, RpcCode::Invalid, what);
            Err(Box::new(refusal))
        };
        let method = message.and_then(Message::method);
        let mut stage = self.stage.lock();
        match (method, &*stage) {
            (Some("initialize"), Stage::New) => {
                *stage = Stage::Greeting;
                Ok(None)
            },
            (Some("initialize"), _) => {
                refused("Invalid Request: a session was begun on this stream")
            },
            (_, Stage::Open(session)) => Ok(Some(session.clone())),
            (Some("ping"), _) => Ok(None),
            _ => refused("Invalid Request: a session begins with initialize"),
        }
    }

    /// The greeting was answered, with a session unless it failed.
    pub(super) async fn greeted(
        &self,
        shared: &Arc<Shared>,
        subject: &Subject,
        session: Option<HeaderValue>,
    ) {
        let unread = {
            let mut stage = self.stage.lock();
            match (&*stage, session) {
                // The client left before it was greeted.
                (Stage::Over, session) => session,
                (_, Some(session)) => {
                    *stage = Stage::Open(session);
                    None
                },
                (_, None) => {
                    *stage = Stage::New;
                    None
                },
            }
        };
        if let Some(session) = unread {
            self.end(shared, subject, &session).await;
        }
    }

    /// Nobody reads any more: gives the session that is to be ended.
    pub(super) fn over(&self) -> Option<HeaderValue> {
        match std::mem::replace(&mut *self.stage.lock(), Stage::Over) {
            Stage::Open(session) => Some(session),
            Stage::New | Stage::Greeting | Stage::Over => None,
        }
    }

    /// Ends the client session, and the run that it made.
    pub(super) async fn end(&self, shared: &Arc<Shared>, subject: &Subject, session: &HeaderValue) {
        let (none, ()) = Request::new(()).into_parts();
        let head = head(&none, Method::DELETE, Some(session));
        let visit = self.visit(shared, subject, &head);
        drop(face::without_body(&visit).await);
    }
}

/// The head that a client of the newer transport would have sent with the same message.
pub(super) fn head(sent: &Parts, method: Method, session: Option<&HeaderValue>) -> Parts {
    let mut head = sent.clone();
    head.method = method;
    head.extensions.insert(face::OneStream);
    for foreign in [LAST_EVENT_ID, PROTOCOL_VERSION, SESSION_ID] {
        head.headers.remove(foreign);
    }
    let both = HeaderValue::from_static("application/json, text/event-stream");
    head.headers.insert(ACCEPT, both);
    let json = HeaderValue::from_static("application/json");
    head.headers.insert(CONTENT_TYPE, json);
    if let Some(session) = session {
        head.headers.insert(SESSION_ID, session.clone());
    }
    head
}
