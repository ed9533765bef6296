//! The stdio face: one client on a pair of pipes, of either era, told apart per message.
//!
//! Asked by: whoever was started by a desktop client.  It reads lines and writes lines; what a
//! message means is said by the faces of the two eras, as for every other client. What HTTP says
//! in headers is taken from the message itself.

mod hand;
mod lines;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::future::{AbortHandle, Abortable, Aborted, BoxFuture};
use futures_util::stream::FuturesUnordered;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderValue, Method, Request, StatusCode};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{mpsc, watch};
use warmline::Warmline;
use warmline::core::key::Digest;
use warmline::core::protocol::envelope::{Kind, Message};
use warmline::core::protocol::headers::{self, METHOD, NAME, PROTOCOL_VERSION, SESSION_ID};
use warmline::core::protocol::meta;
use warmline::core::protocol::params::Params;
use warmline::core::protocol::splice;
use warmline::seal::random_bytes;

pub use self::hand::PipeHand;
use self::lines::{Line, Lines};
use super::passing::pass;
use super::{PartingWords, Visit, plain_id};
use crate::audit::Audit;
use crate::door::limits::NO_BURDEN;
use crate::metrics::TurnedAwayFor;
use crate::path::Target;
use crate::reply::{self, RpcCode};
use crate::who::{Peer, Subject};
use crate::{AuditOptions, NotStarted, Options, Shared, face, written_down};

/// So many requests of a client may be under way; more are read when one has ended.
const MAX_UNDER_WAY: usize = 1024;
/// So many lines may wait for a client that reads slowly.
const MAX_WAITING: usize = 64;
/// How long calls may go on after a client closed its end, unless something else is decided.
const AFTER_THE_END: Duration = Duration::from_secs(18);

/// A client on a pair of pipes: the user of this machine.
pub struct Pipe {
    shared: Arc<Shared>,
    stop: watch::Sender<bool>,
    server: Option<String>,
    run: Within,
    /// How long calls may go on after the client closed its end.
    after_the_end: Duration,
    /// Whether somebody wants them to end now.
    cut: watch::Sender<bool>,
    /// Whether they have had their time, and only the end of the engine ends them.
    late: watch::Sender<bool>,
}

/// The run that a client belongs to.
#[derive(Debug)]
enum Within {
    /// One of its own, which ends with it.
    Own(String),
    /// One that somebody named, which goes on.
    Named(String),
}

impl Within {
    fn name(&self) -> &str {
        match self {
            Self::Own(name) | Self::Named(name) => name,
        }
    }
}

impl fmt::Debug for Pipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pipe")
            .field("server", &self.server)
            .field("run", &self.run)
            .finish_non_exhaustive()
    }
}

impl Pipe {
    /// A client in front of all servers of an engine, in a run of its own. Of the options those count that do not
    /// speak of listening.
    pub fn new(warm: Warmline, options: Options) -> Self {
        let address = options.listen;
        let (stop, stopping) = watch::channel(false);
        Self {
            shared: Arc::new(Shared::new(warm, options, address, stopping)),
            stop,
            server: None,
            run: Within::Own(format!("pipe_{}", Digest::new(random_bytes()).hex())),
            after_the_end: AFTER_THE_END,
            cut: watch::Sender::new(false),
            late: watch::Sender::new(false),
        }
    }

    /// With a line in the audit for every call.
    ///
    /// # Errors
    /// The audit cannot be written.
    pub fn audited(mut self, audit: AuditOptions) -> Result<Self, NotStarted> {
        // Nobody else has it before it serves.
        if let Some(shared) = Arc::get_mut(&mut self.shared) {
            let counts = Arc::clone(&shared.counts.audit);
            shared.audit = Some(Audit::start(audit, counts)?);
        }
        Ok(self)
    }

    /// In front of one server.
    #[must_use]
    pub fn to(mut self, server: impl Into<String>) -> Self {
        self.server = Some(server.into());
        self
    }

    /// Inside the run of that name, which goes on after this client.
    #[must_use]
    pub fn in_run(mut self, run: impl Into<String>) -> Self {
        self.run = Within::Named(run.into());
        self
    }

    /// With so much time for calls that are under way when the client closes its end.
    #[must_use]
    pub fn going_on_for(mut self, time: Duration) -> Self {
        self.after_the_end = time;
        self
    }

    /// Speaks with the client until it closes its end.
    ///
    /// # Errors
    /// Its pipes broke.
    pub async fn serve(
        self,
        input: impl AsyncRead + Unpin,
        output: impl AsyncWrite + Unpin,
    ) -> io::Result<()> {
        let (out, lines) = mpsc::channel(MAX_WAITING);
        let mut talk = Talk {
            pipe: &self,
            out,
            session: None,
            is_ready: false,
            stream: None,
            asked: HashMap::new(),
        };
        let reading = async {
            talk.read(input).await?;
            talk.close().await;
            drop(talk);
            Ok(())
        };
        let spoke = tokio::try_join!(reading, write(output, lines)).map(drop);
        written_down(&self.shared).await;
        spoke
    }

    fn visit<'a>(&'a self, head: &'a Parts) -> Visit<'a> {
        let who = (Subject::local(&self.shared.warm), Peer::SameUser);
        let target = Target {
            run: Some(self.run.name()),
            server: self.server.as_deref(),
        };
        Visit::new(&self.shared, who, target, head, &NO_BURDEN)
    }

    /// Answers one message, and writes what comes of it. Gives the client session it opened.
    async fn answer(
        &self,
        head: Parts,
        body: Bytes,
        out: mpsc::Sender<Bytes>,
    ) -> Option<HeaderValue> {
        let (_, response) = face::with_body(&self.visit(&head), body).await;
        self.shared.faults.tell(None, Peer::SameUser, &response);
        let session = response.headers().get(SESSION_ID).cloned();
        pass(response, (&out, None), self.shared.max_request()).await;
        session
    }

    /// What comes down to a legacy client beside its calls.
    async fn stand(&self, head: Parts, out: mpsc::Sender<Bytes>) -> Ended {
        let response = face::without_body(&self.visit(&head)).await;
        self.shared.faults.tell(None, Peer::SameUser, &response);
        if response.status().is_success() {
            pass(response, (&out, None), self.shared.max_request()).await;
        }
        Ended::default()
    }
}

/// What was answered.
#[derive(Default)]
struct Ended {
    /// The id that its request had, where that is free again.
    id: Option<Bytes>,
    /// The client session that the answer opened, if it opened one.
    session: Option<HeaderValue>,
}

/// A conversation with a client.
struct Talk<'p> {
    pipe: &'p Pipe,
    out: mpsc::Sender<Bytes>,
    /// The session of a legacy client, as the legacy face knows it.
    session: Option<HeaderValue>,
    /// Whether it said that it is ready before it had one.
    is_ready: bool,
    /// Ends the stream of that session.
    stream: Option<AbortHandle>,
    /// Requests under way, by id. Those of the modern era have a way to end them: their client gives
    /// them up by a message here.
    asked: HashMap<Bytes, Option<GivingUp>>,
}

/// How a modern call is given up: it is dropped, and its words are found beside it.
struct GivingUp {
    handle: AbortHandle,
    words: PartingWords,
}

type UnderWay<'p> = FuturesUnordered<BoxFuture<'p, Ended>>;

impl<'p> Talk<'p> {
    async fn read(&mut self, input: impl AsyncRead + Unpin) -> io::Result<()> {
        let mut lines = Lines::new(input, self.pipe.shared.max_request());
        let mut under_way: UnderWay<'p> = FuturesUnordered::new();
        let mut standing: UnderWay<'p> = FuturesUnordered::new();
        let mut cut = pin!(self.pipe.is_cut());
        loop {
            // What ended is looked at first: it may say how the next message is understood.
            tokio::select! {
                biased;
                Some(ended) = under_way.next() => standing.extend(self.ended(ended)),
                Some(_) = standing.next() => {},
                () = &mut cut => break,
                line = lines.next(), if under_way.len() < MAX_UNDER_WAY => match line? {
                    Some(Line::Text(text)) => {
                        if is_ready(&text) {
                            self.is_ready = true;
                            standing.extend(self.standing());
                        }
                        if let Some(answering) = self.said(text) {
                            under_way.push(answering);
                        }
                    },
                    Some(Line::TooLong) => self.too_long().await,
                    None => break,
                },
            }
        }
        // Streams that would never end do now.
        self.pipe.stop.send_replace(true);
        drop(lines);
        self.pipe.await_rest(under_way).await;
        Ok(())
    }

    /// Something was answered. Where it opened a session that its client was ready for already, its
    /// stream begins.
    fn ended(&mut self, ended: Ended) -> Option<BoxFuture<'p, Ended>> {
        if let Some(id) = ended.id {
            self.asked.remove(&id);
        }
        self.session = Some(ended.session?);
        // Whoever greets again has left the session before: what it hears is said by the new one.
        if let Some(stream) = self.stream.take() {
            stream.abort();
        }
        self.standing()
    }

    /// A message of the client; none where it is done with already.
    fn said(&mut self, text: Bytes) -> Option<BoxFuture<'p, Ended>> {
        let message = Message::split(text.clone()).ok();
        let params = message.as_ref().and_then(|message| {
            let params = message.params().map(Params::parse);
            params.unwrap_or_else(|| Ok(Params::empty())).ok()
        });
        let mut head = self.head(Method::POST);
        let (handle, registration) = AbortHandle::new_pair();
        let mut given_up_by = None;
        if let (Some(message), Some(params)) = (&message, &params) {
            if self.cancels(message, params) {
                return None;
            }
            if let Some(version) = stated_version(params) {
                speak_modern(&mut head, message, params, version);
                let words = PartingWords::default();
                head.extensions.insert(words.clone());
                given_up_by = Some(GivingUp { handle, words });
            }
        }
        let request = message.filter(|message| message.kind() == Kind::Request);
        let id = request.as_ref().and_then(Message::raw_id).map(plain_id);
        if let (Some(id), Some(request)) = (&id, &request) {
            match self.asked.entry(id.clone()) {
                Entry::Occupied(_) => {
                    let params = params.unwrap_or_else(Params::empty);
                    return Some(self.refused_again(head, request, params));
                },
                Entry::Vacant(place) => drop(place.insert(given_up_by)),
            }
        }
        let (pipe, out) = (self.pipe, self.out.clone());
        let answering = Abortable::new(pipe.answer(head, text, out), registration);
        Some(Box::pin(async move {
            match answering.await {
                Ok(session) => Ended { id, session },
                // Its id was free when it was given up, and may be taken again.
                Err(Aborted) => Ended::default(),
            }
        }))
    }

    /// What a request hears whose id is that of one under way.
    fn refused_again(
        &self,
        head: Parts,
        request: &Message,
        params: Params,
    ) -> BoxFuture<'p, Ended> {
        let refusal = reply::id_under_way(request.raw_id());
        let method = request.method().unwrap_or_default().to_owned();
        let (pipe, out) = (self.pipe, self.out.clone());
        Box::pin(async move {
            pipe.visit(&head)
                .note_refusal(Some((&method, &params)), &refusal);
            pipe.shared.faults.tell(None, Peer::SameUser, &refusal);
            pass(refusal, (&out, None), pipe.shared.max_request()).await;
            Ended::default()
        })
    }

    /// Whether a message gives up a modern call, which is done by dropping it. Legacy calls are
    /// the legacy face's own.
    fn cancels(&mut self, message: &Message, params: &Params) -> bool {
        if message.method() != Some("notifications/cancelled") {
            return false;
        }
        let Some(id) = params.member("requestId") else {
            return false;
        };
        match self.asked.entry(plain_id(id)) {
            Entry::Occupied(asked) if asked.get().is_some() => {
                if let Some(given_up) = asked.remove() {
                    given_up.words.say(params);
                    given_up.handle.abort();
                }
                true
            },
            Entry::Occupied(_) | Entry::Vacant(_) => false,
        }
    }

    /// The stream of a legacy client that has opened its session, and said that it is ready.
    fn standing(&mut self) -> Option<BoxFuture<'p, Ended>> {
        if self.session.is_none() || !std::mem::take(&mut self.is_ready) {
            return None;
        }
        let (pipe, head) = (self.pipe, self.head(Method::GET));
        let (handle, registration) = AbortHandle::new_pair();
        self.stream = Some(handle);
        let stream = Abortable::new(pipe.stand(head, self.out.clone()), registration);
        Some(Box::pin(async move { stream.await.unwrap_or_default() }))
    }

    /// The client is done: what its session made ends with it.
    async fn close(&mut self) {
        if self.session.is_some() {
            let head = self.head(Method::DELETE);
            drop(face::without_body(&self.pipe.visit(&head)).await);
        }
        if let Some(run) = self.pipe.own_run() {
            run.end().await;
        }
    }

    async fn too_long(&self) {
        let what = "Invalid Request: the message is too large";
        let status = StatusCode::PAYLOAD_TOO_LARGE;
        let response = reply::error(status, None, RpcCode::Invalid, what);
        let (shared, why) = (&self.pipe.shared, TurnedAwayFor::TooLarge);
        shared.faults.tell(Some(why), Peer::SameUser, &response);
        let head = self.head(Method::POST);
        self.pipe.visit(&head).sent_away(why.word());
        pass(response, (&self.out, None), shared.max_request()).await;
    }

    /// The head that an HTTP client of the same session would send.
    fn head(&self, method: Method) -> Parts {
        let (mut head, ()) = Request::new(()).into_parts();
        head.method = method;
        head.extensions.insert(face::OneStream);
        let both = HeaderValue::from_static("application/json, text/event-stream");
        head.headers.insert(ACCEPT, both);
        let json = HeaderValue::from_static("application/json");
        head.headers.insert(CONTENT_TYPE, json);
        if let Some(session) = &self.session {
            head.headers.insert(SESSION_ID, session.clone());
        }
        head
    }
}

/// Whether a legacy client says that it is ready.
fn is_ready(text: &Bytes) -> bool {
    let message = Message::split(text.clone());
    message.is_ok_and(|message| message.method() == Some("notifications/initialized"))
}

/// The version that a message says it speaks; only modern ones do.
fn stated_version(params: &Params) -> Option<HeaderValue> {
    let raw = params.meta_member(meta::PROTOCOL_VERSION)?;
    let version = serde_json::from_slice::<String>(raw).ok()?;
    HeaderValue::from_str(&version).ok()
}

/// Says in the head what a modern message says of itself.
fn speak_modern(head: &mut Parts, message: &Message, params: &Params, version: HeaderValue) {
    head.headers.remove(SESSION_ID);
    head.extensions.insert(face::Headless);
    head.headers.insert(PROTOCOL_VERSION, version);
    if message.kind() != Kind::Request {
        return;
    }
    let method = message.method().unwrap_or_default();
    if let Some(method) = headers::mcp_method(method) {
        head.headers.insert(METHOD, method);
    }
    if let Some(name) = headers::mcp_name(method, params) {
        head.headers.insert(NAME, name);
    }
}

/// Writes lines as they come, several at once where they wait.
async fn write(
    mut output: impl AsyncWrite + Unpin,
    mut lines: mpsc::Receiver<Bytes>,
) -> io::Result<()> {
    while let Some(line) = lines.recv().await {
        let mut next = Some(line);
        while let Some(line) = next {
            output.write_all(&splice::one_line(line)).await?;
            output.write_all(b"\n").await?;
            next = lines.try_recv().ok();
        }
        output.flush().await?;
    }
    output.shutdown().await
}
