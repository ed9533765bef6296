//! The legacy driver over Streamable HTTP: `initialize`, a session id, streams that resume.
//!
//! Asked by: [`session`](super::session).  Speaks 2025-03-26 to 2025-11-25 (and 2024-11-05 to
//! servers that serve it on one endpoint).
//!
//! What it keeps of a session is an id, a version and a counter: no task, no socket.
//! A disconnect is no cancel in this era, so a call that is dropped or runs out of time tells the
//! server with `notifications/cancelled`; a stream that breaks after an event with an id is taken
//! up again where it broke.

mod half_open;
mod listening;

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use warmline_core::code::Reason;
use warmline_core::era::{Era, Version};
use warmline_core::exchange::{Ending, Request, Trouble};
use warmline_core::key::Transport;
use warmline_core::protocol::headers::{self, LAST_EVENT_ID, SESSION_ID};
use warmline_core::protocol::splice;
use warmline_core::protocol::sse::SseParser;
use warmline_core::protocol::{gone, handshake};

use self::half_open::HalfOpen;
pub(crate) use self::listening::Stood;
use self::listening::{HeadStart, Headed, Listening};
use super::answer;
use super::facts::{Evidence, Facts, Kept};
use super::greeting::{self, Offer};
use super::hidden::Hidden;
use super::http::{Arrival, BodyKind, Lost};
use super::letterhead::{Form, Letterhead};
use super::limits::{Ids, Limits};
use super::listener::Listener;
use super::notices::{Hearing, Speaker};
use super::pipes::write_legacy;
use super::session::{Declared, Standing, not_kept};
use super::stream::{Pause, Watch};
use super::unheard::Unheard;
use super::voice::Voice;
use crate::clock;

/// How long to wait before a broken stream is taken up again, where the server did not say.
const RESUME_AFTER: Duration = Duration::from_secs(1);
/// No server is asked more often than this, whatever pause it names.
const RESUME_SOONEST: Duration = Duration::from_millis(50);
/// A longer pause than this is no pause but an end; the call's own limits come first.
const RESUME_LATEST: Duration = Duration::from_secs(3600);
/// How often in a row a resumption may fail to bring anything before the answer counts as lost.
const RESUME_TRIES: u32 = 5;
/// The second half of the handshake.
pub(crate) const INITIALIZED: &str = "notifications/initialized";

/// A legacy session over HTTP. It is small: a server may have very many of them.
#[derive(Debug)]
pub(crate) struct LegacyHttp {
    voice: Voice,
    ids: Ids,
    questions: Questions,
    hearing: Hearing,
    /// Made when somebody first listens.
    listening: OnceLock<Box<Listening>>,
    pub(crate) standing: Standing,
}

/// Whether a session listens for questions besides those on the streams of its calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Questions {
    /// We declared that we can answer, and there is a session for them to come in.
    Expected(HeadStart),
    None,
}

impl Questions {
    fn of(head: &Letterhead, declared: &Declared, head_start: HeadStart) -> Self {
        match head.session_id().is_some() && declared.declares_anything() {
            true => Self::Expected(head_start),
            false => Self::None,
        }
    }
}

impl LegacyHttp {
    /// The handshake: `initialize`, then `notifications/initialized`.
    pub(crate) async fn open(
        head: Letterhead,
        (offer, declared): (Offer, &Declared),
        (hearing, unheard): (Hearing, Unheard),
        evidence: &mut Vec<Evidence>,
    ) -> Result<(Arc<Self>, Facts), Trouble> {
        let way = Arc::clone(&head.way);
        let ids = Ids::new();
        let id = ids.next();
        let body = declared.initialize(id, offer.version());
        let began = clock::now();
        let by = clock::after(way.times.handshake);
        let headers = |map: &mut HeaderMap| {
            unheard.goes_out();
            head.write(Form::Message, &[], map);
        };
        let sent = way.endpoint.send(Method::POST, headers, body, by).await;
        let arrival = sent.map_err(|lost| {
            unheard.lost(&lost);
            lost.trouble
        })?;
        let session_id = arrival.headers.get(SESSION_ID).cloned();
        let sent = answer::Sent {
            way: &way,
            era: Era::Legacy,
            with_session: false,
            id,
            standing: &Standing::default(),
        };
        let heard = greeting::hear(sent, arrival, by).await;
        unheard.heard(&heard);
        let opened = greeting::initialized(way.server(), heard, evidence);
        let opened = opened.map_err(|trouble| offer.explain(trouble))?;
        let mut head = head.speaking(opened.version);
        if let Some(id) = &session_id {
            check_session_id(way.server(), id)?;
            head = head.in_session(id);
        }
        let greeted_in = clock::now().saturating_duration_since(began);
        let questions = Questions::of(&head, declared, HeadStart::at_a_server_like(greeted_in));
        let half_open = HalfOpen::of(Self::with(head, ids, questions, hearing));
        if let Err(trouble) = offer.accepts(way.server(), opened.version) {
            half_open.end().await;
            return Err(trouble);
        }
        if let Err(trouble) = half_open.session.tell_initialized().await {
            evidence.push(Evidence {
                step: INITIALIZED,
                answer: trouble.what.clone(),
            });
            half_open.end().await;
            return Err(trouble);
        }
        let facts = opened.facts(Transport::Http, session_id.is_some());
        Ok((half_open.opened(), facts))
    }

    /// No session, for a server that shall be called without one. Nothing is sent.
    pub(crate) fn without_session(
        head: Letterhead,
        version: Option<Version>,
        hearing: Hearing,
    ) -> Arc<Self> {
        let head = match version {
            Some(version) => head.speaking(version),
            None => head,
        };
        Self::with(head, Ids::new(), Questions::None, hearing)
    }

    /// Takes up a session that was opened before. Nothing is sent.
    pub(crate) fn resumed(
        head: Letterhead,
        declared: &Declared,
        kept: &Kept,
        hearing: Hearing,
    ) -> Result<Arc<Self>, Trouble> {
        let (facts, server) = (&kept.facts, head.way.server());
        if (facts.era, facts.transport) != (Era::Legacy, Transport::Http) {
            let why = "only sessions over Streamable HTTP of the legacy era live in their id";
            return Err(not_kept(server, why));
        }
        let id = HeaderValue::from_str(&kept.session_id)
            .ok()
            .filter(|id| headers::is_session_id(id.as_bytes()))
            .ok_or_else(|| not_kept(server, "its session id cannot be sent"))?;
        let head = head.speaking(facts.version).in_session(&id);
        let questions = Questions::of(&head, declared, HeadStart::SHORTEST);
        Ok(Self::with(head, Ids::new(), questions, hearing))
    }

    fn with(head: Letterhead, ids: Ids, questions: Questions, hearing: Hearing) -> Arc<Self> {
        Arc::new(Self {
            voice: Voice::new(head),
            ids,
            questions,
            hearing,
            listening: OnceLock::new(),
            standing: Standing::default(),
        })
    }

    /// The id that the server issued, where it did.
    pub(crate) fn session_id(&self) -> Option<&str> {
        self.voice.head.session_id()
    }

    /// Sends one request and stays with it to its end.
    pub(crate) async fn send(
        self: &Arc<Self>,
        request: Request,
        listener: &dyn Listener,
    ) -> Ending {
        let id = self.ids.next();
        let limits = Limits::begin(request.patience());
        let body = write_legacy(id, &request);
        let mut cancel = self.voice.cancel_notice(id, &request, listener);
        // The headers are made when there is a connection to write them to.
        let headers = |map: &mut HeaderMap| {
            cancel.issued.store(true, Ordering::Relaxed);
            let own = request.headers();
            self.voice.head.write(Form::Message, own, map);
        };
        let mut watch = Watch::new(id, limits, listener);
        watch.own = request.headers().to_vec();
        watch.hearing = self.hearing.clone();
        watch.speaker = Speaker::of(&**self);
        watch.version = self.voice.head.version();
        watch.back = Some(&self.voice);
        let sent = if let Questions::Expected(head_start) = self.questions {
            let listening = self.listen(id, listener, head_start);
            let Ok(standing) = clock::timeout_at(limits.by(), listening).await else {
                return answer::lost(self.voice.way().endpoint.late(false), request);
            };
            watch.standing = standing;
            // Limits of a call that may be asked are kept by the wait, which knows the questions.
            let by = limits.total_by();
            let sent = self
                .voice
                .way()
                .endpoint
                .send(Method::POST, headers, body, by);
            Box::pin(self.while_listening(sent, &mut watch)).await
        } else {
            let sent = self
                .voice
                .way()
                .endpoint
                .send(Method::POST, headers, body, limits.by());
            sent.await.map(Headed::Arrived)
        };
        let ending = match sent {
            Ok(Headed::Replied(message)) => {
                answer::streamed(self.sent(id), &message, request, watch.before)
            },
            Ok(Headed::Arrived(arrival)) => self.read(arrival, request, watch).await,
            // The wait for questions ended before there was a connection to write to.
            Err(lost) if is_late(&lost) && !cancel.issued.load(Ordering::Relaxed) => {
                answer::lost(self.voice.way().endpoint.late(false), request)
            },
            Err(lost) => answer::lost(lost, request),
        };
        // A call that ran out of time may still be running: the server is told.
        let late = matches!(&ending, Ending::Failed(f) if f.trouble.reason == Reason::Timeout);
        if !late {
            cancel.disarm();
        }
        ending
    }

    async fn read(
        self: &Arc<Self>,
        arrival: Arrival,
        request: Request,
        mut watch: Watch<'_>,
    ) -> Ending {
        let server = self.voice.server();
        if arrival.status == StatusCode::OK && arrival.kind() == BodyKind::Stream {
            // On the heap, so that the usual call, which has no stream, stays small.
            return Box::pin(self.follow(arrival, request, &mut watch)).await;
        }
        if arrival.status == StatusCode::ACCEPTED
            && self.listening.get().is_some_and(|aside| aside.is_open())
        {
            arrival.drain();
            return match Box::pin(self.wait_aside(&mut watch)).await {
                Ok(Headed::Replied(message)) => {
                    answer::streamed(self.sent(watch.id), &message, request, watch.before)
                },
                Ok(Headed::Arrived(_)) => answer::late(server),
                Err(lost) => lost.trouble.unknown(),
            };
        }
        let (sent, by) = (self.sent(watch.id), watch.limits.by());
        let whole = answer::Whole::read(sent, arrival, by, watch.listener).await;
        match whole.batch(watch.version) {
            Some(batch) => self.heed_batch(batch, request, &mut watch),
            None => whole.ending(sent, request),
        }
    }

    /// A reply of several messages is heard as if they had come on a stream.
    fn heed_batch(
        self: &Arc<Self>,
        batch: Bytes,
        request: Request,
        watch: &mut Watch<'_>,
    ) -> Ending {
        let mut pause = watch.heed_text(batch);
        while let Some(Pause::Ask(asking)) = pause {
            self.hear_question(watch, asking);
            pause = watch.heed_said();
        }
        match pause {
            Some(Pause::Reply(message)) => {
                answer::streamed(self.sent(watch.id), &message, request, watch.before)
            },
            Some(_) | None => answer::without_answer(self.voice.server()),
        }
    }

    fn sent(&self, id: u64) -> answer::Sent<'_> {
        answer::Sent {
            way: self.voice.way(),
            era: Era::Legacy,
            with_session: self.session_id().is_some(),
            id,
            standing: &self.standing,
        }
    }

    /// Follows the stream of a call, over as many connections as the server likes.
    async fn follow(
        self: &Arc<Self>,
        first: Arrival,
        request: Request,
        watch: &mut Watch<'_>,
    ) -> Ending {
        let server = Arc::clone(self.voice.server());
        let mut parser = SseParser::new(self.voice.way().sizes.event);
        let mut arrival = Some(first);
        watch.listener.stream_begun();
        let (mut fruitless, mut seen) = (0, None::<String>);
        loop {
            let Some(mut stream) = arrival.take() else {
                return answer::cut_stream(&server, watch, "it could not be resumed");
            };
            let pause = watch.read(&mut stream, &mut parser).await;
            let closed = matches!(pause, Pause::Ended);
            let why = match pause {
                Pause::Reply(message) => {
                    stream.drain();
                    return answer::streamed(self.sent(watch.id), &message, request, watch.before);
                },
                Pause::Ask(asking) => {
                    self.hear_question(watch, asking);
                    arrival = Some(stream);
                    continue;
                },
                Pause::Turned(turn) => {
                    if let Some(trouble) = self.voice.heed(watch, turn) {
                        return trouble.unknown();
                    }
                    arrival = Some(stream);
                    continue;
                },
                Pause::Ended => "the server ended the stream without an answer".to_owned(),
                Pause::Broken(why) => why,
                Pause::TooLarge { limit } => return answer::too_large(&server, "event", limit),
                Pause::Late => return answer::late(&server),
                Pause::Strays => return answer::strays(&server, &self.standing),
            };
            drop(stream);
            let Some(last) = parser.last_id().map(str::to_owned) else {
                return answer::cut_stream(&server, watch, &why);
            };
            let wait = parser
                .retry()
                .map_or(RESUME_AFTER, Duration::from_millis)
                .clamp(RESUME_SOONEST, RESUME_LATEST);
            if closed {
                watch.listener.stream_paused(wait);
            }
            parser.finish();
            // Only a stream that brought something new starts the count of tries anew.
            if seen.as_deref() != Some(last.as_str()) {
                fruitless = 0;
                seen = Some(last.clone());
            }
            arrival = match self.resume(&last, wait, &mut fruitless, watch).await {
                Ok(stream) => Some(stream),
                Err(ending) => return ending,
            };
        }
    }

    /// Takes a broken stream up again with `Last-Event-ID`.
    async fn resume(
        &self,
        last: &str,
        mut wait: Duration,
        fruitless: &mut u32,
        watch: &mut Watch<'_>,
    ) -> Result<Arrival, Ending> {
        let server = self.voice.server();
        let Ok(last) = HeaderValue::from_str(last) else {
            return Err(answer::cut_stream(
                server,
                watch,
                "its event id cannot be a header",
            ));
        };
        loop {
            let wait_now = spread(wait);
            if clock::after(wait_now) >= watch.by() {
                clock::sleep_until(watch.by()).await;
                return Err(answer::late(server));
            }
            clock::sleep(wait_now).await;
            let by = watch.by();
            let headers = |map: &mut HeaderMap| {
                self.voice.head.write(Form::Stream, &watch.own, map);
                map.insert(LAST_EVENT_ID, last.clone());
            };
            let got = self
                .voice
                .way()
                .endpoint
                .send(Method::GET, headers, Bytes::new(), by)
                .await;
            match got {
                Ok(stream)
                    if stream.status == StatusCode::OK && stream.kind() == BodyKind::Stream =>
                {
                    return Ok(stream);
                },
                // Busy, or a gateway in trouble: the stream may still be there.
                Ok(other) if matches!(other.status.as_u16(), 429 | 500..=599) => {
                    let why = format!("resuming it got HTTP {}", other.status.as_u16());
                    wait = self.try_again(wait, &why, fruitless, watch)?;
                },
                // The session may be gone; that says nothing about the request itself.
                Ok(other) => {
                    if matches!(other.status.as_u16(), 404 | 410) {
                        self.standing.retire(Reason::SessionGone);
                    }
                    let why = format!("resuming it got HTTP {}", other.status.as_u16());
                    return Err(answer::cut_stream(server, watch, &why));
                },
                Err(lost) => {
                    let why = lost.trouble.why.unwrap_or(lost.trouble.what);
                    wait = self.try_again(wait, &why, fruitless, watch)?;
                },
            }
        }
    }

    /// How long to wait before the next try, unless there were enough of them.
    fn try_again(
        &self,
        wait: Duration,
        why: &str,
        fruitless: &mut u32,
        watch: &Watch<'_>,
    ) -> Result<Duration, Ending> {
        *fruitless += 1;
        if *fruitless >= RESUME_TRIES {
            return Err(answer::cut_stream(self.voice.server(), watch, why));
        }
        Ok((wait * 2).clamp(Duration::from_millis(100), Duration::from_secs(30)))
    }

    async fn tell_initialized(&self) -> Result<(), Trouble> {
        let mut body = Vec::new();
        handshake::write_initialized(&mut body);
        let told = self.voice.tell(body.into()).await;
        told.map_err(|lost| lost.trouble)
    }

    /// Sends a notification; `params` is a raw JSON object.
    pub(crate) async fn notify(&self, method: &str, params: &[u8]) -> Result<(), Lost> {
        let mut body = Vec::new();
        splice::write_notification(&mut body, method, Some(params));
        self.voice.tell(body.into()).await
    }

    /// What must not be told of what it sends.
    pub(crate) fn hidden(&self) -> Hidden {
        self.voice.head.hidden()
    }

    /// The server's name, for messages.
    pub(crate) fn server(&self) -> &str {
        self.voice.server()
    }

    /// Waits until the server has heard of every call that was cancelled, for a short time.
    pub(crate) async fn cancels_heard(&self) {
        self.voice.cancels_heard().await;
    }

    /// Ends the session at the server, or says why that may hold it still. Here it is over anyway.
    pub(crate) async fn end(&self) -> Result<(), Trouble> {
        // Before those who listen are told, so that they do not look for another stream.
        self.standing.retire(Reason::Closed);
        self.stop_listening().await;
        self.voice.end();
        self.voice.cancels_heard().await;
        if self.session_id().is_none() {
            return Ok(());
        }
        let by = clock::after(Duration::from_secs(2));
        let headers = |map: &mut HeaderMap| self.voice.head.write(Form::End, &[], map);
        let endpoint = &self.voice.way().endpoint;
        let arrival = endpoint.send(Method::DELETE, headers, Bytes::new(), by);
        let arrival = arrival.await.map_err(|lost| lost.trouble)?;
        let status = arrival.status.as_u16();
        arrival.whole(64 << 10, by, &()).await.ok();
        if gone::nothing_left_to_end(status) {
            return Ok(());
        }
        let server = self.voice.server();
        let what = format!("`{server}` answered {status} when it was asked to end a session");
        Err(Trouble::new(Reason::ServerError, what))
    }
}

impl Drop for LegacyHttp {
    fn drop(&mut self) {
        self.end_listening();
    }
}

/// A pause that is up to a quarter longer than the server asked for: streams that broke together are
/// not taken up together.
fn spread(wait: Duration) -> Duration {
    wait + wait.mul_f64(fastrand::f64() / 4.0)
}

/// A session id that cannot be sent back is no session.
fn check_session_id(server: &str, id: &HeaderValue) -> Result<(), Trouble> {
    if headers::is_session_id(id.as_bytes()) {
        return Ok(());
    }
    let what = format!("`{server}` issued a session id that cannot be used");
    let why = format!("its {} bytes are not 1 to 1024 of visible ASCII", id.len());
    Err(Trouble::new(Reason::BadSessionId, what).because(why))
}

fn is_late(lost: &Lost) -> bool {
    lost.trouble.reason == Reason::Timeout
}
