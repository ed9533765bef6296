//! The legacy driver over Streamable HTTP: `initialize`, a session id, streams that resume.
//!
//! Asked by: [`session`](super::session).  Speaks 2025-03-26 to 2025-11-25 (and 2024-11-05 to
//! servers that serve it on one endpoint).
//!
//! What it keeps of a session is an id, a version and a header template: no task, no socket.
//! A disconnect is no cancel in this era, so a call that is dropped or runs out of time tells the
//! server with `notifications/cancelled`; a stream that breaks after an event with an id is taken
//! up again where it broke.

mod listening;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use warmline_core::code::Reason;
use warmline_core::era::{Era, Version};
use warmline_core::exchange::{Ending, Request, Trouble};
use warmline_core::key::Transport;
use warmline_core::protocol::handshake;
use warmline_core::protocol::headers::{self, LAST_EVENT_ID, PROTOCOL_VERSION, SESSION_ID};
use warmline_core::protocol::splice;
use warmline_core::protocol::sse::SseParser;

use self::listening::{Headed, Listening};
use super::answer;
use super::greeting;
use super::http::{Arrival, BodyKind, Endpoint, Lost};
use super::limits::{Ids, Limits};
use super::listener::{self, Listener};
use super::pipes::write_legacy;
use super::server::{Sizes, Times};
use super::session::{Declared, Evidence, Facts, Kept, Standing, not_kept};
use super::stream::{Pause, Watch};
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

/// A legacy session over HTTP.
#[derive(Debug)]
pub(crate) struct LegacyHttp {
    voice: Voice,
    has_session_id: bool,
    ids: Ids,
    sizes: Sizes,
    times: Times,
    /// We declared that we can answer questions, and there is a session for them to come in.
    may_be_asked: bool,
    listening: Listening,
    pub(crate) standing: Standing,
}

impl LegacyHttp {
    /// The handshake: `initialize`, then `notifications/initialized`.
    pub(crate) async fn open(
        endpoint: Endpoint,
        mut base: HeaderMap,
        (offer, declared): (Version, &Declared),
        (times, sizes): (Times, Sizes),
        evidence: &mut Vec<Evidence>,
    ) -> Result<(Arc<Self>, Facts), Trouble> {
        let ids = Ids::new();
        let id = ids.next();
        let body = declared.initialize(id, offer);
        let server = Arc::clone(&endpoint.server);
        let by = clock::after(times.handshake);
        let arrival = endpoint
            .send(Method::POST, || base.clone(), body, by)
            .await
            .map_err(|lost| lost.trouble)?;
        let session_id = arrival.headers.get(SESSION_ID).cloned();
        let standing = Standing::default();
        let sent = answer::Sent {
            server: &server,
            era: Era::Legacy,
            with_session: false,
            id,
            sizes,
            standing: &standing,
        };
        let heard = greeting::hear(sent, arrival, by).await;
        let opened = greeting::initialized(&server, heard, evidence)?;
        if let Some(id) = &session_id {
            check_session_id(&server, id)?;
            base.insert(SESSION_ID, id.clone());
        }
        if opened.version >= Version::V2025_06_18 {
            let version = HeaderValue::from_static(opened.version.as_str());
            base.insert(PROTOCOL_VERSION, version);
        }
        let session = Arc::new(Self {
            voice: Voice::new(endpoint, base, times.handshake),
            has_session_id: session_id.is_some(),
            ids,
            sizes,
            times,
            may_be_asked: session_id.is_some() && declared.declares_anything(),
            listening: Listening::default(),
            standing,
        });
        if let Err(trouble) = session.tell_initialized().await {
            evidence.push(Evidence {
                step: INITIALIZED,
                answer: trouble.what.clone(),
            });
            session.close().await;
            return Err(trouble);
        }
        let facts = opened.facts(Transport::Http, session_id.is_some());
        Ok((session, facts))
    }

    /// Takes up a session that was opened before. Nothing is sent.
    pub(crate) fn resumed(
        endpoint: Endpoint,
        mut base: HeaderMap,
        (declared, kept): (&Declared, &Kept),
        (times, sizes): (Times, Sizes),
    ) -> Result<Arc<Self>, Trouble> {
        let facts = &kept.facts;
        let server = Arc::clone(&endpoint.server);
        if (facts.era, facts.transport) != (Era::Legacy, Transport::Http) {
            let why = "only sessions over Streamable HTTP of the legacy era live in their id";
            return Err(not_kept(&server, why));
        }
        let id = HeaderValue::from_str(&kept.session_id)
            .ok()
            .filter(|id| headers::is_session_id(id.as_bytes()))
            .ok_or_else(|| not_kept(&server, "its session id cannot be sent"))?;
        base.insert(SESSION_ID, id);
        if facts.version >= Version::V2025_06_18 {
            let version = HeaderValue::from_static(facts.version.as_str());
            base.insert(PROTOCOL_VERSION, version);
        }
        Ok(Arc::new(Self {
            voice: Voice::new(endpoint, base, times.handshake),
            has_session_id: true,
            ids: Ids::new(),
            sizes,
            times,
            may_be_asked: declared.declares_anything(),
            listening: Listening::default(),
            standing: Standing::default(),
        }))
    }

    /// The id that the server issued, where it did.
    pub(crate) fn session_id(&self) -> Option<&str> {
        self.voice.base.get(SESSION_ID)?.to_str().ok()
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
        let mut cancel = self.voice.cancel_notice(id, &request);
        // The headers are made when there is a connection to write them to.
        let headers = || {
            cancel.issued.store(true, Ordering::Relaxed);
            self.voice.headers(request.headers())
        };
        let mut watch = Watch::new(id, limits, listener);
        watch.own = request.headers().to_vec();
        let sent = if self.may_be_asked {
            let Ok(standing) = clock::timeout_at(limits.by(), self.listen(id)).await else {
                return answer::lost(self.voice.endpoint.late(false), request);
            };
            watch.standing = standing;
            // Limits of a call that may be asked are kept by the wait, which knows the questions.
            let by = limits.total_by();
            let sent = self.voice.endpoint.send(Method::POST, headers, body, by);
            Box::pin(self.while_listening(sent, &mut watch)).await
        } else {
            let sent = self
                .voice
                .endpoint
                .send(Method::POST, headers, body, limits.by());
            sent.await.map(Headed::Arrived)
        };
        let ending = match sent {
            Ok(Headed::Replied(message)) => answer::replied(&self.voice.endpoint.server, &message),
            Ok(Headed::Arrived(arrival)) => self.read(arrival, request, watch).await,
            // The wait for questions ended before there was a connection to write to.
            Err(lost) if is_late(&lost) && !cancel.issued.load(Ordering::Relaxed) => {
                answer::lost(self.voice.endpoint.late(false), request)
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
        let server = &self.voice.endpoint.server;
        if arrival.status == StatusCode::OK && arrival.kind() == BodyKind::Stream {
            // On the heap, so that the usual call, which has no stream, stays small.
            return Box::pin(self.follow(arrival, &mut watch)).await;
        }
        if arrival.status == StatusCode::ACCEPTED && self.listening.is_open() {
            arrival.drain().await;
            return match Box::pin(self.wait_aside(&mut watch)).await {
                Ok(Headed::Replied(message)) => answer::replied(server, &message),
                Ok(Headed::Arrived(_)) => answer::late(server),
                Err(lost) => lost.trouble.unknown(),
            };
        }
        let facts = answer::Sent {
            server,
            era: Era::Legacy,
            with_session: self.has_session_id,
            id: watch.id,
            sizes: self.sizes,
            standing: &self.standing,
        };
        answer::ending(facts, arrival, request, watch.limits.by()).await
    }

    /// Follows the stream of a call, over as many connections as the server likes.
    async fn follow(self: &Arc<Self>, first: Arrival, watch: &mut Watch<'_>) -> Ending {
        let server = Arc::clone(&self.voice.endpoint.server);
        let mut parser = SseParser::new(self.sizes.event);
        let mut arrival = Some(first);
        let (mut fruitless, mut seen) = (0, None::<String>);
        loop {
            let Some(mut stream) = arrival.take() else {
                return answer::cut_stream(&server, watch, "it could not be resumed");
            };
            let pause = watch.read(&mut stream, &mut parser).await;
            let why = match pause {
                Pause::Reply(message) => {
                    stream.drain().await;
                    return answer::replied(&server, &message);
                },
                Pause::Ask(asking) => {
                    self.voice.hear_question(watch, asking);
                    arrival = Some(stream);
                    continue;
                },
                Pause::Answered(id, kind, given) => {
                    let spoken = listener::spoken(kind, given);
                    self.voice.answer(&id, spoken, &watch.own);
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
        let server = &self.voice.endpoint.server;
        let Ok(last) = HeaderValue::from_str(last) else {
            return Err(answer::cut_stream(
                server,
                watch,
                "its event id cannot be a header",
            ));
        };
        loop {
            if clock::after(wait) >= watch.by() {
                clock::sleep_until(watch.by()).await;
                return Err(answer::late(server));
            }
            clock::sleep(wait).await;
            let headers = || {
                let mut headers = self.voice.headers(&watch.own);
                headers.insert(http::header::ACCEPT, STREAM);
                headers.remove(http::header::CONTENT_TYPE);
                headers.insert(LAST_EVENT_ID, last.clone());
                headers
            };
            let got = self
                .voice
                .endpoint
                .send(Method::GET, headers, Bytes::new(), watch.by())
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
            return Err(answer::cut_stream(&self.voice.endpoint.server, watch, why));
        }
        Ok((wait * 2).clamp(Duration::from_millis(100), Duration::from_secs(30)))
    }

    async fn tell_initialized(&self) -> Result<(), Trouble> {
        let mut body = Vec::new();
        handshake::write_initialized(&mut body);
        self.voice.tell(body.into(), &[]).await
    }

    /// Sends a notification; `params` is a raw JSON object.
    pub(crate) async fn notify(&self, method: &str, params: &[u8]) -> Result<(), Trouble> {
        let mut body = Vec::new();
        splice::write_notification(&mut body, method, Some(params));
        self.voice.tell(body.into(), &[]).await
    }

    /// The server's name, for messages.
    pub(crate) fn server(&self) -> &str {
        &self.voice.endpoint.server
    }

    /// Ends the session at the server. What it answers changes nothing.
    pub(crate) async fn close(&self) {
        self.listening.end();
        self.voice.end();
        self.standing.retire(Reason::Closed);
        if !self.has_session_id {
            return;
        }
        let by = clock::after(Duration::from_secs(2));
        let headers = || {
            let mut headers = self.voice.base.clone();
            headers.remove(http::header::CONTENT_TYPE);
            headers
        };
        match self
            .voice
            .endpoint
            .send(Method::DELETE, headers, Bytes::new(), by)
            .await
        {
            Ok(arrival) => {
                let status = arrival.status.as_u16();
                tracing::debug!(server = %self.voice.endpoint.server, status, "session ended");
                arrival.whole(64 << 10, by).await.ok();
            },
            Err(lost) => {
                let trouble = lost.trouble;
                tracing::debug!(server = %self.voice.endpoint.server, %trouble, "session not ended");
            },
        }
    }
}

const STREAM: HeaderValue = HeaderValue::from_static("text/event-stream");

impl Drop for LegacyHttp {
    fn drop(&mut self) {
        self.listening.end();
    }
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
