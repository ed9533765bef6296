//! Legacy clients: what is held in memory of those that are busy.
//!
//! Asked by: the legacy face, at every message.  A client that does nothing is forgotten; its
//! ticket says all that is needed to know it again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use http::{HeaderValue, Response};
use papaya::HashMap;
use parking_lot::Mutex;
use smallvec::SmallVec;
use tokio::sync::oneshot;
use warmline::core::era::{Era, Version};
use warmline::core::exchange::{Answer, News, Question, QuestionKind, Trouble};
use warmline::core::key::Digest;
use warmline::core::protocol::envelope::{Kind, Message};
use warmline::core::protocol::headers::SESSION_ID;
use warmline::core::protocol::params::Params;
use warmline::core::protocol::splice::{self, Edit};
use warmline::seal::Purpose;
use warmline::upstream::Asked;
use warmline::{Declared, Error, IdentityHandle, Listener, Run, ServerHandle, Warmline, clock};

use crate::body::Body;
use crate::declared::Answers;
use crate::face::Visit;
use crate::failure;
use crate::lane::Lane;
use crate::path::Target;
use crate::reply;
use crate::ticket::Ticket;
use crate::which::{self, BadName};
use crate::who::{self, Split};

/// The clients that are busy, by the ticket they carry.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    by_ticket: HashMap<HeaderValue, Arc<Client>>,
}

/// A legacy client as it is served: its way to the server, and what is under way.
#[derive(Debug)]
pub(crate) struct Client {
    server: ServerHandle,
    run: Option<Run>,
    ticket: Option<Ticket>,
    answers: Answers,
    calls: Mutex<SmallVec<[UnderWay; 2]>>,
    questions: Mutex<Vec<(u64, oneshot::Sender<Answer>)>>,
    numbers: AtomicU64,
}

#[derive(Debug)]
struct UnderWay {
    /// The client's own id, raw.
    id: Bytes,
    stream: Option<u64>,
    lane: Arc<Lane>,
}

/// Why a client is not served.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// Its session is not known, or somebody else's.
    NoSession,
    /// It names a run that cannot be.
    BadRun(BadName),
    /// The engine said why.
    Failed(Error),
}

impl Refusal {
    pub(crate) fn response(&self, id: Option<&[u8]>) -> Response<Body> {
        match self {
            Self::NoSession => reply::no_such_session(id),
            Self::BadRun(bad) => bad.response(id),
            Self::Failed(error) => {
                let message = failure::message(id.unwrap_or(b"null"), error);
                reply::json(http::StatusCode::OK, message)
            },
        }
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// A client session that was just begun.
pub(crate) struct Begun {
    pub(crate) client: Arc<Client>,
    ticket: Ticket,
}

impl Begun {
    /// The ticket for the client, now that the version is known.
    pub(crate) fn ticket(&self, warm: &Warmline, version: Version) -> Result<String, Trouble> {
        let ticket = Ticket {
            version,
            ..self.ticket
        };
        ticket.seal(warm.vault())
    }
}

impl Client {
    /// The client that a request comes from.
    pub(crate) fn of(visit: &Visit<'_>, params: Option<&Params>) -> Result<Arc<Self>, Refusal> {
        let shared = visit.shared;
        let vault = shared.warm.vault();
        let Some(shown) = visit.head.headers.get(SESSION_ID) else {
            let run = which::run(
                visit.target.run,
                visit.head,
                params,
                &shared.options.run_from,
                vault,
            )
            .map_err(Refusal::BadRun)?;
            let identity = identity(visit, run.as_deref(), None);
            return Self::new(visit, &identity, run.as_deref(), None, Declared::default());
        };
        if let Some(known) = shared.clients.find(shown)
            && known.belongs_to(visit)
        {
            return Ok(known);
        }
        let ticket = Ticket::open(vault, shown.as_bytes()).ok_or(Refusal::NoSession)?;
        let own = ticket.run_name();
        let name = visit.target.run.unwrap_or(&own);
        let identity = identity(visit, visit.target.run, Some(&ticket));
        if !fits(&ticket, visit, &identity) {
            return Err(Refusal::NoSession);
        }
        let declared = Declared {
            capabilities: ticket.answers.capabilities(),
            version: Some(ticket.version),
            ..Declared::default()
        };
        let client = Self::new(visit, &identity, Some(name), Some(ticket), declared)?;
        shared.clients.keep(shown, &client);
        Ok(client)
    }

    /// Begins a client session.
    pub(crate) fn begin_session(
        visit: &Visit<'_>,
        params: &Params,
        declared: Declared,
        answers: Answers,
        version: Version,
    ) -> Result<Begun, Refusal> {
        let vault = visit.shared.warm.vault();
        let run_from = &visit.shared.options.run_from;
        let run = which::run(visit.target.run, visit.head, Some(params), run_from, vault)
            .map_err(Refusal::BadRun)?;
        let mut ticket = Ticket {
            identity: Digest::new([0; 16]),
            route: route(visit),
            name: Digest::new(warmline::seal::random_bytes()),
            version,
            answers,
            given_at: clock::wall_seconds(),
        };
        let identity = identity(visit, run.as_deref(), Some(&ticket));
        ticket.identity = identity.digest();
        let own = ticket.run_name();
        let name = run.as_deref().unwrap_or(&own);
        let client = Self::new(visit, &identity, Some(name), Some(ticket), declared)?;
        Ok(Begun { client, ticket })
    }

    fn new(
        visit: &Visit<'_>,
        identity: &IdentityHandle,
        run: Option<&str>,
        ticket: Option<Ticket>,
        declared: Declared,
    ) -> Result<Arc<Self>, Refusal> {
        let name = visit.target.server.unwrap_or_default();
        let (run, server) = match run {
            Some(run) => {
                let begun = identity.named(run)?;
                let run = begun.clone();
                begun.detach();
                let server = run.server(name)?;
                (Some(run), server)
            },
            None => (None, identity.server(name)?),
        };
        Ok(Arc::new(Self {
            server: server.declaring(declared).in_era(Era::Legacy),
            run,
            ticket,
            answers: ticket.map(|ticket| ticket.answers).unwrap_or_default(),
            calls: Mutex::default(),
            questions: Mutex::default(),
            numbers: AtomicU64::new(1),
        }))
    }

    /// Whether what is held is what this request may use, and still good.
    fn belongs_to(&self, visit: &Visit<'_>) -> bool {
        let Some(ticket) = &self.ticket else {
            return false;
        };
        let identity = identity(visit, visit.target.run, Some(ticket));
        fits(ticket, visit, &identity) && self.run.as_ref().is_none_or(Run::is_live)
    }

    /// The way to the server.
    pub(crate) fn server(&self) -> &ServerHandle {
        &self.server
    }

    pub(crate) fn has_ticket(&self) -> bool {
        self.ticket.is_some()
    }

    /// The number of a new stream, or of a question.
    pub(crate) fn new_stream(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// Notes a call, until what is given back is dropped.
    pub(crate) fn begin(
        self: &Arc<Self>,
        id: Bytes,
        stream: Option<u64>,
        lane: &Arc<Lane>,
    ) -> Present {
        self.calls.lock().push(UnderWay {
            id: id.clone(),
            stream,
            lane: Arc::clone(lane),
        });
        Present {
            client: Arc::clone(self),
            lane: Arc::clone(lane),
        }
    }

    /// The stream of that number, while its call is under way.
    pub(crate) fn lane(&self, stream: u64) -> Option<Arc<Lane>> {
        let calls = self.calls.lock();
        let call = calls.iter().find(|call| call.stream == Some(stream))?;
        Some(Arc::clone(&call.lane))
    }

    /// The client told something.
    pub(crate) fn notified(&self, message: &Message, params: &Params) {
        if message.method() == Some("notifications/cancelled")
            && let Some(id) = params.member("requestId")
        {
            let calls = self.calls.lock();
            if let Some(call) = calls.iter().find(|call| call.id == id) {
                call.lane.cancel();
            }
        }
    }

    /// The client answered a question.
    pub(crate) fn answered(&self, message: &Message) {
        let number = message.raw_id().map(serde_json::from_slice::<u64>);
        let Some(Ok(number)) = number else {
            return;
        };
        let mut questions = self.questions.lock();
        let Some(place) = questions.iter().position(|(asked, _)| *asked == number) else {
            return;
        };
        let (_, asked) = questions.swap_remove(place);
        drop(questions);
        let answer = match message.kind() {
            Kind::Result => message.result().map_or(Answer::Declined, Answer::Result),
            Kind::Error | Kind::Request | Kind::Notification => Answer::Declined,
        };
        // The call may be over by now; then nobody wants to know.
        asked.send(answer).ok();
    }

    fn ask(&self, question: Question, lane: &Lane) -> Asked<'static> {
        let can = match question.kind {
            QuestionKind::Elicitation => self.answers.bits() & 0b111,
            QuestionKind::Sampling => self.answers.bits() & 0b11_1000,
            QuestionKind::Roots => self.answers.bits() & 0b1100_0000,
        };
        if can == 0 {
            return Box::pin(std::future::ready(Answer::Declined));
        }
        let number = self.new_stream();
        let (answer, answered) = oneshot::channel();
        self.questions.lock().push((number, answer));
        let message = request_message(number, question.kind.method(), &question.params);
        lane.tell(message);
        Box::pin(async move { answered.await.unwrap_or(Answer::Declined) })
    }

    /// The client session is over. The run that it made ends; a named one outlives it.
    pub(crate) async fn end(&self) {
        let Some(run) = &self.run else { return };
        let own = self.ticket.as_ref().map(Ticket::run_name);
        if own.as_deref() == Some(run.name()) {
            run.clone().end().await;
        }
    }
}

/// A call under way; dropping it notes its end.
#[derive(Debug)]
pub(crate) struct Present {
    client: Arc<Client>,
    lane: Arc<Lane>,
}

impl Drop for Present {
    fn drop(&mut self) {
        let mut calls = self.client.calls.lock();
        calls.retain(|call| !Arc::ptr_eq(&call.lane, &self.lane));
    }
}

impl Clients {
    fn find(&self, ticket: &HeaderValue) -> Option<Arc<Client>> {
        self.by_ticket.pin().get(ticket).map(Arc::clone)
    }

    fn keep(&self, ticket: &HeaderValue, client: &Arc<Client>) {
        let known = self.by_ticket.pin();
        known.insert(ticket.clone(), Arc::clone(client));
    }
}

/// Whom a request speaks for.
fn identity(visit: &Visit<'_>, run: Option<&str>, ticket: Option<&Ticket>) -> IdentityHandle {
    let split = match (run, ticket) {
        (Some(run), _) => Split::Run(run),
        (None, Some(ticket)) => Split::Ticket(ticket),
        (None, None) => Split::Once,
    };
    who::identity(&visit.shared.warm, &visit.subject, split)
}

/// Whether a ticket was given to this identity, for this route.
fn fits(ticket: &Ticket, visit: &Visit<'_>, identity: &IdentityHandle) -> bool {
    ticket.identity == identity.digest() && ticket.route == route(visit)
}

/// The digest of where a ticket is good: a server, in the run that the path names.
fn route(visit: &Visit<'_>) -> Digest {
    let Target { run, server } = visit.target;
    let vault = visit.shared.warm.vault();
    let part = |text: Option<&'static str>| text.unwrap_or_default();
    let (has_run, run) = (part(run.map(|_| "run")), run.unwrap_or_default());
    let (has_server, server) = (part(server.map(|_| "server")), server.unwrap_or_default());
    let parts = [has_run, run, has_server, server].map(str::as_bytes);
    vault.digest(Purpose::Route, &parts)
}

/// Hears what comes down during one call of a client.
pub(crate) struct Ear {
    client: Arc<Client>,
    lane: Arc<Lane>,
    /// The client's own progress token, raw.
    token: Option<Bytes>,
}

impl Ear {
    pub(crate) fn new(client: &Arc<Client>, lane: &Arc<Lane>, token: Option<Bytes>) -> Self {
        Self {
            client: Arc::clone(client),
            lane: Arc::clone(lane),
            token,
        }
    }
}

impl Listener for Ear {
    fn news(&self, news: News) {
        let message = match news {
            News::Progress(params) => {
                let Some(token) = &self.token else { return };
                let mut named = Vec::with_capacity(params.len() + token.len());
                let edits = [Edit::Set("progressToken", token)];
                if splice::edit_object(&params, &edits, &mut named).is_err() {
                    return;
                }
                notification("notifications/progress", &named)
            },
            News::Log(params) => notification("notifications/message", &params),
            News::Other(method, params) => notification(&method, &params),
        };
        self.lane.tell(message);
    }

    fn question(&self, question: Question) -> Asked<'_> {
        self.client.ask(question, &self.lane)
    }
}

fn notification(method: &str, params: &[u8]) -> Bytes {
    let mut out = Vec::with_capacity(64 + params.len());
    splice::write_notification(&mut out, method, Some(params));
    out.into()
}

fn request_message(id: u64, method: &str, params: &[u8]) -> Bytes {
    let mut out = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{method}\",\"params\":")
        .into_bytes();
    out.extend_from_slice(params);
    out.push(b'}');
    out.into()
}
