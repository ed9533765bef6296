//! The standing stream of a legacy session: what a server says and asks outside any call's stream.
//!
//! Some servers send a question on the session's GET stream even if it belongs to a call. So a
//! session that declared it can answer questions holds that stream while its calls run, and for a
//! short rest after the last. A session that declared nothing never opens it, and a server that
//! refuses it is not asked twice.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, StatusCode};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use warmline_core::code::Reason;
use warmline_core::delivery::Delivery;
use warmline_core::exchange::Trouble;
use warmline_core::protocol::envelope::Message;
use warmline_core::protocol::sse::SseParser;

use super::LegacyHttp;
use crate::clock;
use crate::sync::Mutex;
use crate::upstream::calls::{Call, Calls, Routed};
use crate::upstream::http::{Arrival, BodyKind, Lost};
use crate::upstream::letterhead::Form;
use crate::upstream::listener;
use crate::upstream::stream::{Pause, Watch, next_of};

/// The stream gets this head start before the call that may need it. A server that sends no head
/// before its first event costs the first call this much, once.
const HEAD_START: Duration = Duration::from_millis(250);

/// The standing stream of one session, and who waits for what comes on it.
#[derive(Debug, Default)]
pub(super) struct Listening {
    calls: Arc<Calls>,
    stream: Mutex<Stream>,
    /// The head of the stream has come, and its end has not.
    open: AtomicBool,
}

#[derive(Debug, Default)]
enum Stream {
    #[default]
    Closed,
    Running(JoinHandle<()>),
    /// The server has none.
    Refused,
}

impl Listening {
    /// Ends the stream.
    pub(super) fn end(&self) {
        if let Stream::Running(reader) = std::mem::take(&mut *self.stream.lock()) {
            reader.abort();
        }
    }

    /// Whether a response could come on the stream.
    pub(super) fn is_open(&self) -> bool {
        self.open.load(Ordering::Relaxed)
    }
}

/// What came first of a response.
pub(super) enum Headed {
    /// Its head, on the connection of its request.
    Arrived(Arrival),
    /// All of it, on the standing stream.
    Replied(Message),
}

impl LegacyHttp {
    /// Lets a call hear what comes on the standing stream, and sees that there is one.
    pub(super) async fn listen(self: &Arc<Self>, id: u64) -> Option<Call> {
        let listening = self.listening.get_or_init(Box::default);
        let call = listening.calls.register(id).ok()?;
        if let Some(begun) = self.begin_listening() {
            // Too late is no harm: the stream goes on beginning while the call runs.
            clock::timeout(HEAD_START, begun.notified()).await.ok();
        }
        Some(call)
    }

    /// Starts the reader unless one runs or the server has no stream; tells when it has begun.
    fn begin_listening(self: &Arc<Self>) -> Option<Arc<Notify>> {
        let mut stream = self.listening.get()?.stream.lock();
        match &*stream {
            Stream::Running(reader) if !reader.is_finished() => return None,
            Stream::Refused => return None,
            Stream::Running(_) | Stream::Closed => {},
        }
        let begun = Arc::new(Notify::new());
        let listening = listen_on(Arc::downgrade(self), Arc::clone(&begun));
        *stream = Stream::Running(clock::spawn("read a standing stream", listening));
        Some(begun)
    }

    /// Waits for the head of a response while questions, or even the response itself, may come
    /// on the standing stream.
    pub(super) async fn while_listening(
        self: &Arc<Self>,
        sent: impl Future<Output = Result<Arrival, Lost>>,
        watch: &mut Watch<'_>,
    ) -> Result<Headed, Lost> {
        let mut sent = pin!(sent);
        loop {
            let by = watch.by();
            // A stream that always has more would never let the timer below speak.
            if clock::now() >= by {
                return Err(late(self.voice.server()));
            }
            let message = tokio::select! {
                biased;
                done = &mut sent => return done.map(Headed::Arrived),
                (id, kind, answer) = watch.open.answered() => {
                    watch.limits.sign_of_life();
                    self.voice.answer(&id, listener::spoken(kind, answer), &watch.own);
                    continue;
                },
                message = next_of(&mut watch.standing) => message,
                () = clock::sleep_until(by) => return Err(late(self.voice.server())),
            };
            match watch.heed_message(message) {
                Some(Pause::Ask(asking)) => self.voice.hear_question(watch, asking),
                Some(Pause::Reply(message)) => return Ok(Headed::Replied(message)),
                _ => {},
            }
        }
    }

    /// Waits for a response that was promised (202) and can only come on the standing stream.
    pub(super) async fn wait_aside(
        self: &Arc<Self>,
        watch: &mut Watch<'_>,
    ) -> Result<Headed, Lost> {
        self.while_listening(std::future::pending(), watch).await
    }

    /// Ends the standing stream, if there is one.
    pub(super) fn end_listening(&self) {
        if let Some(listening) = self.listening.get() {
            listening.end();
        }
    }
}

/// The request left, or may have: how far it got is not known from here.
fn late(server: &str) -> Lost {
    Lost {
        delivery: Delivery::Unknown,
        trouble: Trouble::new(
            Reason::Timeout,
            format!("`{server}` did not answer in time"),
        ),
    }
}

/// Opens the stream and reads it to its end.
async fn listen_on(session: Weak<LegacyHttp>, begun: Arc<Notify>) {
    let Some(strong) = session.upgrade() else {
        return;
    };
    let Some(listening) = strong.listening.get() else {
        return;
    };
    let (head, calls) = (strong.voice.head.clone(), Arc::clone(&listening.calls));
    drop(strong);
    let way = &head.way;
    let by = clock::after(way.times.handshake);
    let headers = || head.headers(Form::Stream, &[]);
    let got = way
        .endpoint
        .send(Method::GET, headers, Bytes::new(), by)
        .await;
    let stream = match got {
        Ok(stream) if stream.status == StatusCode::OK && stream.kind() == BodyKind::Stream => {
            stream
        },
        // Another connection holds the one stream there is (409): nothing of ours is lost.
        Ok(other) if other.status == StatusCode::CONFLICT => return begun.notify_one(),
        Ok(_) | Err(_) => {
            if let Some(session) = session.upgrade()
                && let Some(listening) = session.listening.get()
            {
                *listening.stream.lock() = Stream::Refused;
            }
            return begun.notify_one();
        },
    };
    mark(&session, true);
    begun.notify_one();
    let parser = SseParser::new(way.sizes.event);
    let rest = way.times.connection_idle;
    read(&session, &calls, stream, parser, rest).await;
    mark(&session, false);
}

fn mark(session: &Weak<LegacyHttp>, open: bool) {
    if let Some(session) = session.upgrade()
        && let Some(listening) = session.listening.get()
    {
        listening.open.store(open, Ordering::Relaxed);
    }
}

/// Reads the stream until it ends, or until nobody has waited for anything for a while.
async fn read(
    session: &Weak<LegacyHttp>,
    calls: &Calls,
    mut stream: Arrival,
    mut parser: SseParser,
    rest: Duration,
) {
    let mut rested_by = clock::after(rest);
    loop {
        while let Some(Ok(event)) = parser.next() {
            let Ok(message) = Message::split(event.data) else {
                continue;
            };
            let Some(session) = session.upgrade() else {
                return;
            };
            session.hearing.tell_if_for_all(&message);
            match calls.route(message) {
                Routed::Done => {},
                Routed::Unheard(notice) => session.hearing.tell(&notice),
                Routed::Answer(id, spoken) => session.voice.answer(&id, spoken, &[]),
                Routed::TooManyStrays => return session.standing.retire(Reason::BadReply),
            }
        }
        if !calls.is_empty() {
            rested_by = clock::after(rest);
        } else if clock::now() >= rested_by {
            return;
        }
        tokio::select! {
            biased;
            piece = stream.piece() => match piece {
                Some(Ok(bytes)) => parser.push(&bytes),
                Some(Err(_)) | None => return,
            },
            () = clock::sleep_until(rested_by) => {},
        }
    }
}
