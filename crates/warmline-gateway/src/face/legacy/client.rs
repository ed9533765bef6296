//! A legacy client as it is served: its way to the server, and what is under way.
//!
//! Made from a ticket, or for one request that carries none.  Asked by: the legacy face.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use http::header::HeaderValue;
use parking_lot::Mutex;
use smallvec::SmallVec;
use tokio::sync::Notify;
use warmline::clock::{self, Instant};
use warmline::core::code::Reason;
use warmline::core::era::Version;
use warmline::core::exchange::{QuestionKind, Trouble};
use warmline::core::key::Digest;
use warmline::core::protocol::headers::SESSION_ID;
use warmline::core::protocol::params::Params;
use warmline::{Attending, Run, ServerHandle};

use super::asking::{Questions, StandingEar};
use super::gathering::Missed;
use super::lists::ListsAsked;
use super::refusal::Refusal;
use super::way::{Coming, NamedWay, Way, enter, identity, named_run, route};
use crate::Shared;
use crate::declared::{Answers, beyond_flags};
use crate::face::{OneStream, Visit, is_same_id};
use crate::lane::Lane;
use crate::path::Target;
use crate::ticket::{RunOf, Ticket};
use crate::which;
use crate::who::Subject;

/// A legacy client as it is served.
#[derive(Debug)]
pub(crate) struct Client {
    pub(super) ticket: Option<Ticket>,
    /// The run that was named when its session began, as far as it is known still.
    pub(super) run: Option<Box<str>>,
    whose: Whose,
    place: Place,
    /// What it declared, where that is more than its ticket says and it is one server's alone.
    pub(super) words: Option<Bytes>,
    /// Its ways to servers, by the run that was named beside the path.
    pub(super) ways: Mutex<SmallVec<[NamedWay; 1]>>,
    calls: Mutex<SmallVec<[UnderWay; 2]>>,
    pub(super) questions: Questions,
    /// The level from which on it hears log lines, as far as it is known: its place, from one.
    pub(super) level: AtomicU8,
    /// How often it asked for its lists.
    pub(super) lists: ListsAsked,
    /// Servers that were left out of its lists.
    pub(super) missed: Missed,
    /// The stream that stands, if one does.
    standing: Mutex<Option<Standing>>,
    /// Rings when a run that was over is begun again.
    pub(super) run_anew: Notify,
    /// Streams and questions are numbered from a start drawn at random, so that a number of an
    /// earlier process, or from before the client was forgotten, means nothing now.
    numbers: AtomicU64,
    /// Whether it was heard of since it was last looked at.
    seen: AtomicBool,
}

/// Whom a client speaks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    Known(Digest),
    /// Nobody was asked; the ticket itself keeps its holder apart.
    Anybody,
}

impl Whose {
    fn of(subject: &Subject) -> Self {
        match subject {
            Subject::Known(known) => Self::Known(known.identity.digest()),
            Subject::Anybody => Self::Anybody,
        }
    }
}

/// Where a client session is good: a server, in the run that the path names.
#[derive(Debug)]
struct Place {
    run: Option<Box<str>>,
    server: Option<Box<str>>,
}

impl Place {
    fn of(target: Target<'_>) -> Self {
        Self {
            run: target.run.map(Box::from),
            server: target.server.map(Box::from),
        }
    }

    fn is(&self, target: Target<'_>) -> bool {
        (self.run.as_deref(), self.server.as_deref()) == (target.run, target.server)
    }
}

#[derive(Debug)]
struct UnderWay {
    /// The client's own id, raw.
    id: Bytes,
    lane: Arc<Lane>,
}

impl UnderWay {
    fn is(&self, id: &[u8]) -> bool {
        is_same_id(&self.id, id)
    }
}

/// Whether a client hears all answers on one stream.
fn hears_all_on_one(visit: &Visit<'_>) -> bool {
    visit.head.extensions.get::<OneStream>().is_some()
}

/// The stream that stands.
#[derive(Debug)]
struct Standing {
    stream: u64,
    lane: Arc<Lane>,
    /// Which of its readers has the place: one that was left behind may end later.
    holder: u64,
    /// What is heard on it of one server; that of all is gathered.
    hears: Option<Hears>,
}

/// A server that is heard on the stream that stands.
#[derive(Debug)]
struct Hears {
    /// The run that was named for it.
    run: Option<Box<str>>,
    ear: Arc<StandingEar>,
    /// Held as long as it is heard.
    attending: Option<Attending>,
}

/// A client session that was just begun.
pub(crate) struct NewSession {
    /// The run that it named.
    run: Option<String>,
    client: Client,
    ticket: Ticket,
    /// The run that begins for it alone, and ends where nobody gets the ticket: nobody could come
    /// back to it.
    own: OnceLock<Run>,
}

impl NewSession {
    /// The way to the server, in a run that begins now unless it is there.
    pub(super) fn way(&self, visit: &Visit<'_>) -> Result<Arc<Way>, Refusal> {
        let (run, own) = (self.run.as_deref(), self.ticket.run_name());
        let coming = Coming::ByName(run.unwrap_or(&own));
        let (way, entered) = self.client.find_way(visit, run, coming)?;
        self.keep(entered);
        Ok(way)
    }

    /// Begins the run alone: all servers are behind this place, and none is reached yet.
    pub(super) fn begin_run(&self, visit: &Visit<'_>) -> Result<(), Refusal> {
        let (run, own) = (self.run.as_deref(), self.ticket.run_name());
        let identity = identity(visit, run, Some(&self.ticket));
        self.keep(enter(&identity, Coming::ByName(run.unwrap_or(&own)))?);
        Ok(())
    }

    /// Keeps the run that it began until the ticket is given. One with a name goes on anyhow.
    fn keep(&self, entered: Option<Run>) {
        let Some(run) = entered else { return };
        if self.run.is_some() {
            run.detach();
        } else if let Err(joined) = self.own.set(run) {
            joined.detach();
        }
    }

    /// The ticket for the client, now that the version is known. From here on it is served.
    pub(crate) fn admit(
        mut self,
        shared: &Shared,
        version: Version,
    ) -> Result<HeaderValue, Trouble> {
        self.ticket.version = version;
        if let Some(own) = self.own.take() {
            own.detach();
        }
        let sealed = self.ticket.seal(shared.warm.vault())?;
        let text = HeaderValue::try_from(sealed)
            .map_err(|error| Trouble::new(Reason::Internal, error.to_string()))?;
        self.client.ticket = Some(self.ticket);
        shared.clients.keep(&text, Arc::new(self.client));
        Ok(text)
    }
}

impl Client {
    /// The client that a request comes from.
    pub(crate) fn of(visit: &Visit<'_>) -> Result<Arc<Self>, Refusal> {
        let Some(shown) = visit.head.headers.get(SESSION_ID) else {
            // Clients that never send the id back are told apart by who they are and the run
            // they name.
            return Ok(Arc::new(Self::new(visit, None)));
        };
        let clients = &visit.shared.clients;
        if let Some(known) = clients.find(shown)
            && known.belongs_to(visit)
        {
            return Ok(known);
        }
        let vault = visit.shared.warm.vault();
        let ticket = Ticket::open(vault, shown.as_bytes()).ok_or(Refusal::NoSession)?;
        let whose = identity(visit, None, Some(&ticket)).digest();
        let is_over = clients.was_ended(ticket.name);
        if is_over || ticket.identity != whose || ticket.route != route(visit) {
            return Err(Refusal::NoSession);
        }
        let client = Arc::new(Self::new(visit, Some(ticket)));
        let kept = clients.keep(shown, client);
        // Its end may have come between the two: one of both sees the other.
        if clients.has_ended(&kept) {
            clients.forget(shown);
            return Err(Refusal::NoSession);
        }
        Ok(kept)
    }

    /// Begins a client session.
    pub(crate) fn begin_session(
        visit: &Visit<'_>,
        params: &Params,
        capabilities: &[u8],
        version: Version,
    ) -> Result<NewSession, Refusal> {
        let run = named_run(visit, Some(params))?;
        let mut ticket = Ticket {
            identity: Digest::new([0; 16]),
            route: route(visit),
            run: RunOf::named(run.as_deref()),
            name: Digest::new(warmline::seal::random_bytes()),
            version,
            answers: Answers::of(capabilities),
            given_at: clock::wall_seconds(),
        };
        ticket.identity = identity(visit, None, Some(&ticket)).digest();
        let mut client = Self::new(visit, Some(ticket));
        client.run = run.as_deref().map(Box::from);
        if client.place.server.is_some() {
            client.words = beyond_flags(capabilities);
        }
        Ok(NewSession {
            run: run.map(Cow::into_owned),
            client,
            ticket,
            own: OnceLock::new(),
        })
    }

    fn new(visit: &Visit<'_>, ticket: Option<Ticket>) -> Self {
        let run = ticket.as_ref().and_then(|ticket| ticket.run.name());
        let run = run.map(Box::from);
        Self {
            ticket,
            run,
            whose: Whose::of(&visit.subject),
            place: Place::of(visit.target),
            words: None,
            ways: Mutex::default(),
            calls: Mutex::default(),
            questions: Questions::default(),
            level: AtomicU8::new(0),
            lists: ListsAsked::default(),
            missed: Missed::default(),
            standing: Mutex::default(),
            run_anew: Notify::new(),
            numbers: AtomicU64::new(first_number()),
            seen: AtomicBool::new(true),
        }
    }

    /// Whether what is held is what this request may use.
    fn belongs_to(&self, visit: &Visit<'_>) -> bool {
        self.whose == Whose::of(&visit.subject) && self.place.is(visit.target)
    }

    /// The name of the client session, where there is one.
    pub(super) fn name(&self) -> Option<Digest> {
        self.ticket.as_ref().map(|ticket| ticket.name)
    }

    /// Whose share of what is held for clients its streams are.
    pub(super) fn owner(&self) -> Option<Digest> {
        self.ticket.as_ref().map(|ticket| ticket.identity)
    }

    /// The version that was agreed on, where a client session was begun.
    pub(super) fn version(&self) -> Option<Version> {
        self.ticket.as_ref().map(|ticket| ticket.version)
    }

    /// Whether the client can answer such a question.
    pub(super) fn can_answer(&self, question: QuestionKind) -> bool {
        self.ticket.is_some_and(|it| it.answers.can(question))
    }

    /// The number of a new stream, or of a question.
    pub(super) fn new_number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// Notes a call, until what is given back is dropped.
    ///
    /// Each answer over HTTP is the response to its own request, so that ids that are the same
    /// never matter there. Where all answers come on one stream, the second of them is refused.
    pub(super) fn begin(
        self: &Arc<Self>,
        visit: &Visit<'_>,
        id: Bytes,
        lane: &Arc<Lane>,
    ) -> Result<Present, Refusal> {
        let mut calls = self.calls.lock();
        if hears_all_on_one(visit) && calls.iter().any(|call| call.is(&id)) {
            return Err(Refusal::IdUnderWay);
        }
        calls.push(UnderWay {
            id,
            lane: Arc::clone(lane),
        });
        drop(calls);
        Ok(Present {
            client: Arc::clone(self),
            lane: Arc::clone(lane),
        })
    }

    /// Whether an answer with this id would be taken for that of a call under way.
    pub(super) fn is_confused_by(&self, visit: &Visit<'_>, id: &[u8]) -> bool {
        hears_all_on_one(visit) && self.calls.lock().iter().any(|call| call.is(id))
    }

    /// The client gave a call up. What it names may be over, or never have been.
    ///
    /// A client that never sends its session id back finds none of its calls here. Two programs of
    /// one identity that do so cannot be told apart, and both count their ids from one: the late
    /// cancel of a call that is over could meet the call of the other. So it is not guessed, and
    /// ignored as the protocol allows (mcp-spec 2.5, X7); the call goes on until its limit.
    pub(super) fn cancel(&self, params: &Params) {
        let Some(id) = params.member("requestId") else {
            return;
        };
        let mut calls = self.calls.lock();
        let place = calls.iter().position(|call| call.is(id));
        // Its id is free from here on: it gets no answer.
        let given_up = place.map(|place| calls.swap_remove(place));
        drop(calls);
        if let Some(call) = given_up {
            let words = which::without_run(params.clone());
            call.lane.cancel_saying(words.raw().clone());
        }
    }

    /// Takes the place of the standing stream, if it is free or was this one's before.
    pub(super) fn stand(self: &Arc<Self>, stream: u64, lane: &Arc<Lane>) -> Option<AtTheStream> {
        let mut standing = self.standing.lock();
        if standing.as_ref().is_some_and(|at| at.stream != stream) {
            return None;
        }
        let holder = self.new_number();
        *standing = Some(Standing {
            stream,
            lane: Arc::clone(lane),
            holder,
            hears: None,
        });
        Some(AtTheStream {
            client: Arc::clone(self),
            holder,
        })
    }

    /// The lane of the stream that stands, while one is read.
    pub(super) fn standing_lane(&self) -> Option<Arc<Lane>> {
        let standing = self.standing.lock();
        standing.as_ref().map(|at| Arc::clone(&at.lane))
    }

    /// A run of the client was over and is begun again: what its server says there is heard on the
    /// stream that stands, as it was before.
    pub(super) fn hear_anew(&self, run: Option<&str>, server: &ServerHandle) {
        self.run_anew.notify_one();
        let mut standing = self.standing.lock();
        let hears = standing.as_mut().and_then(|at| at.hears.as_mut());
        if let Some(hears) = hears
            && hears.run.as_deref() == run
        {
            hears.attending = attend(server, &hears.ear, None);
        }
    }

    /// The client session is over. The run that it made ends; a named one outlives it.
    pub(super) async fn end(&self, visit: &Visit<'_>) {
        if let Some(lane) = self.standing_lane() {
            lane.end(None);
        }
        self.questions.end();
        self.leave(visit);
        for call in self.calls.lock().iter() {
            call.lane.cancel();
        }
        let Some(own) = self.ticket.as_ref().map(Ticket::run_name) else {
            return;
        };
        let identity = identity(visit, None, self.ticket.as_ref());
        // It may have ended by itself, or never have begun.
        if let Ok(run) = identity.join(&own) {
            run.end().await;
        }
    }

    pub(super) fn seen(&self) {
        // A store that changes nothing would still take the line from other cores.
        if !self.seen.load(Ordering::Relaxed) {
            self.seen.store(true, Ordering::Relaxed);
        }
    }

    /// Whether it does nothing at this moment.
    pub(super) fn is_at_rest(&self) -> bool {
        self.calls.lock().is_empty() && self.standing.lock().is_none() && self.questions.is_empty()
    }

    /// Whether it does something, or did since this was asked last.
    pub(super) fn was_seen_lately(&self) -> bool {
        self.seen.swap(false, Ordering::Relaxed) || !self.is_at_rest()
    }
}

/// A call under way; dropping it notes its end.
#[derive(Debug)]
pub(crate) struct Present {
    client: Arc<Client>,
    lane: Arc<Lane>,
}

impl Present {
    /// The lane on which the client gives this call up.
    pub(super) fn lane(&self) -> &Arc<Lane> {
        &self.lane
    }
}

impl Drop for Present {
    fn drop(&mut self) {
        let mut calls = self.client.calls.lock();
        calls.retain(|call| !Arc::ptr_eq(&call.lane, &self.lane));
    }
}

/// A client's standing stream that is read; dropping it leaves the place free.
#[derive(Debug)]
pub(super) struct AtTheStream {
    client: Arc<Client>,
    holder: u64,
}

impl AtTheStream {
    /// What this server says in that run outside any call is heard on the stream.
    /// Who takes the stream up says since when nobody read it.
    pub(super) fn hear(
        &self,
        run: Option<&str>,
        (ear, away): (Arc<StandingEar>, Option<Instant>),
        server: &ServerHandle,
    ) {
        let mut standing = self.client.standing.lock();
        if let Some(at) = standing.as_mut()
            && at.holder == self.holder
        {
            let attending = attend(server, &ear, away);
            at.hears = Some(Hears {
                run: run.map(Box::from),
                ear,
                attending,
            });
        }
    }
}

impl Drop for AtTheStream {
    fn drop(&mut self) {
        let mut standing = self.client.standing.lock();
        // Whoever took the stream up meanwhile keeps the place.
        let left = standing.take_if(|at| at.holder == self.holder);
        drop(standing);
        drop(left);
    }
}

/// Hears a server, by somebody who is new or was away since then.
pub(super) fn attend(
    server: &ServerHandle,
    ear: &Arc<StandingEar>,
    away: Option<Instant>,
) -> Option<Attending> {
    let ear = Arc::<StandingEar>::clone(ear);
    match away {
        Some(since) => server.attend_again(ear, since),
        None => server.attend(ear),
    }
}

/// Below 2^52, so that no client's number type loses any of it.
fn first_number() -> u64 {
    let [a, b, c, d, e, f, ..] = warmline::seal::random_bytes();
    u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
}
