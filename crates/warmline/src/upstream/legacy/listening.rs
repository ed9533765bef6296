//! The standing stream of a legacy session: what a server says and asks outside any call's stream.
//!
//! Some servers send a question on the session's GET stream even if it belongs to a call. So a
//! session that declared it can answer questions holds that stream while its calls run, and for a
//! short rest after the last. A session that declared nothing never opens it, and a server that
//! refuses it is not asked twice.

mod reading;

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use warmline_core::code::Reason;
use warmline_core::delivery::Delivery;
use warmline_core::exchange::{Question, Trouble};
use warmline_core::protocol::envelope::Message;
use warmline_core::protocol::headers::LAST_EVENT_ID;
use warmline_core::protocol::sse::SseParser;

use self::reading::Reading;
use super::{LegacyHttp, spread};
use crate::clock;
use crate::sync::Mutex;
use crate::upstream::aside::Aside;
use crate::upstream::calls::{Call, Calls};
use crate::upstream::http::{Arrival, BodyKind, Lost};
use crate::upstream::letterhead::Form;
use crate::upstream::listener::{Listener, Spoken};
use crate::upstream::notices::Stray;
use crate::upstream::stream::{Asking, Pause, Watch, next_of};
use crate::upstream::whose::Whose;

/// How long a call that may need the stream waits for its head, in milliseconds: what is asked on
/// a stream that is not there is lost, and the call waits for ever. A server that sends no head
/// before its first event costs the first call this much, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HeadStart(u16);

impl HeadStart {
    pub(super) const SHORTEST: Self = Self(250);
    const LONGEST: Self = Self(5_000);

    /// At a server that takes so long for a handshake: where that is slow, so is the stream.
    pub(super) fn at_a_server_like(greeted_in: Duration) -> Self {
        let greeted_in = u16::try_from(greeted_in.as_millis()).unwrap_or(u16::MAX);
        let wait = greeted_in.saturating_mul(2);
        Self(wait.saturating_add(Self::SHORTEST.0).min(Self::LONGEST.0))
    }

    fn wait(self) -> Duration {
        Duration::from_millis(self.0.into())
    }
}

/// How soon a stream that ended is opened again for those who attend.
const REOPEN_AFTER: Duration = Duration::from_secs(1);
/// The longest pause between two tries.
const REOPEN_LATEST: Duration = Duration::from_secs(60);
/// So long a server may take for the head of a stream that somebody attends: some send it with
/// their first event.
const SILENT_FOR: Duration = Duration::from_secs(3600);

/// The standing stream of one session, and who waits for what comes on it.
#[derive(Debug, Default)]
pub(super) struct Listening {
    calls: Arc<Calls>,
    stream: Mutex<Stream>,
    /// The head of the stream has come, and its end has not.
    open: AtomicBool,
    /// How many want it held between calls, too.
    held: AtomicUsize,
    /// The id of the last event, to go on after when it broke.
    last: Mutex<Option<HeaderValue>>,
    /// Something may have been said that nobody can ever hear.
    missed: AtomicBool,
    /// Told when a stream is open, and when a reader has ended, however it did.
    turned: Notify,
    /// Told when whoever wants what comes on it came or left.
    wanted: Arc<Notify>,
    /// Questions that belong to no call.
    aside: Arc<Aside>,
}

#[derive(Debug, Default)]
enum Stream {
    #[default]
    Closed,
    Running(JoinHandle<()>),
    /// It could not be had this time; whoever only has a call does not wait for it again.
    Failed,
    /// The server wants to see another credential.
    Denied,
    /// The server has none, or has none any more.
    Refused,
    /// The server did not find it: it has none, or it forgot the session.
    NotFound,
}

/// Who wants the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    /// A call, that goes on without it.
    ByCall,
    /// Somebody who attends.
    Held,
}

/// How it went with somebody who stood at a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stood {
    /// This session has no standing stream.
    Never,
    /// The server did not find it: this session has none, or is gone.
    Doubtful,
    /// The server wants to see another credential.
    Denied,
    /// It could not be had this time.
    Failing,
    /// This session is over.
    Over,
}

/// Somebody wants the stream held.
struct Holding<'a>(&'a Listening);

impl<'a> Holding<'a> {
    fn new(listening: &'a Listening) -> Self {
        listening.held.fetch_add(1, Ordering::Relaxed);
        listening.wanted.notify_one();
        Self(listening)
    }
}

impl Drop for Holding<'_> {
    fn drop(&mut self) {
        self.0.held.fetch_sub(1, Ordering::Relaxed);
        self.0.wanted.notify_one();
    }
}

impl Listening {
    /// Ends the stream, and there is none again.
    pub(super) fn end(&self) {
        let ended = std::mem::replace(&mut *self.stream.lock(), Stream::Refused);
        if let Stream::Running(reader) = ended {
            reader.abort();
        }
        self.aside.end();
        self.turned.notify_waiters();
    }

    /// Waits until it is known what becomes of a stream that was asked for, for a short time: a
    /// server that is asked for the stream of a session after its end would be wronged.
    async fn settled(&self) {
        let turned = self.turned.notified();
        let is_asked_for = matches!(&*self.stream.lock(), Stream::Running(_)) && !self.is_open();
        if is_asked_for {
            clock::timeout(HeadStart::SHORTEST.wait(), turned)
                .await
                .ok();
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
    pub(super) async fn listen(
        self: &Arc<Self>,
        id: u64,
        listener: &dyn Listener,
        head_start: HeadStart,
    ) -> Option<Call> {
        let listening = self.listening.get_or_init(Box::default);
        let call = listening.calls.register(id, listener.whose()).ok()?;
        listening.wanted.notify_one();
        if let Some(begun) = self.begin_listening(Wanted::ByCall) {
            // Too late is no harm: the stream goes on beginning while the call runs.
            clock::timeout(head_start.wait(), begun.notified())
                .await
                .ok();
        }
        Some(call)
    }

    /// Starts the reader unless one runs or the server has no stream; tells when it has begun.
    fn begin_listening(self: &Arc<Self>, wanted: Wanted) -> Option<Arc<Notify>> {
        let mut stream = self.listening.get()?.stream.lock();
        match &*stream {
            Stream::Running(reader) if !reader.is_finished() => return None,
            Stream::Failed | Stream::Denied if wanted == Wanted::ByCall => return None,
            Stream::Refused | Stream::NotFound => return None,
            Stream::Running(_) | Stream::Closed | Stream::Failed | Stream::Denied => {},
        }
        let begun = Arc::new(Notify::new());
        let listening = listen_on(Arc::downgrade(self), Arc::clone(&begun), wanted);
        *stream = Stream::Running(clock::spawn("read a standing stream", listening));
        Some(begun)
    }

    /// Holds the standing stream, and opens it again where it breaks, as long as this session has
    /// one and it can be had. Whoever asked is told when it is open again and what was said meanwhile
    /// is lost.
    ///
    /// # Cancel safety
    /// Dropping it lets the stream go.
    pub(crate) async fn stand(self: &Arc<Self>, missed: impl Fn()) -> Stood {
        if self.session_id().is_none() {
            return Stood::Never;
        }
        let listening = self.listening.get_or_init(Box::default);
        let _held = Holding::new(listening);
        let mut pause = REOPEN_AFTER / 2;
        loop {
            let begun = clock::now();
            self.begin_listening(Wanted::Held);
            let mut was_open = false;
            let ended = self.until_ended(listening, &missed, &mut was_open).await;
            if let Some(stood) = ended {
                return stood;
            }
            // Another session may have one meanwhile.
            if !was_open {
                return Stood::Failing;
            }
            // A stream that lasted is opened again soon; one that does not is asked for less often.
            pause = if begun.elapsed() > pause {
                REOPEN_AFTER
            } else {
                (pause * 2).min(REOPEN_LATEST)
            };
            clock::sleep(spread(pause)).await;
        }
    }

    /// Waits for the end of the stream; says how it went where none follows.
    async fn until_ended(
        &self,
        listening: &Listening,
        missed: &impl Fn(),
        was_open: &mut bool,
    ) -> Option<Stood> {
        loop {
            let mut turned = pin!(listening.turned.notified());
            // From here on nothing that turns is overlooked.
            turned.as_mut().enable();
            if self.standing.retired().is_some() {
                return Some(Stood::Over);
            }
            *was_open |= listening.is_open();
            if listening.is_open() && listening.missed.swap(false, Ordering::Relaxed) {
                missed();
            }
            match &*listening.stream.lock() {
                Stream::Running(_) => {},
                Stream::Closed | Stream::Failed => return None,
                Stream::Denied => return Some(Stood::Denied),
                Stream::Refused => return Some(Stood::Never),
                Stream::NotFound => return Some(Stood::Doubtful),
            }
            turned.await;
        }
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
                turn = watch.open.turn() => match self.voice.heed(watch, turn) {
                    Some(trouble) => {
                        let delivery = Delivery::Unknown;
                        return Err(Lost { delivery, trouble });
                    },
                    None => continue,
                },
                message = next_of(&mut watch.standing, watch.listener) => message,
                () = clock::sleep_until(by) => continue,
            };
            match watch.heed_message(message) {
                Some(Pause::Ask(asking)) => self.voice.hear_question(watch, asking),
                Some(Pause::Reply(message)) => return Ok(Headed::Replied(message)),
                None if !watch.keep_pace().await => return Err(late(self.voice.server())),
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

    /// Puts a question on the stream of a call to its listener. Where there is none, it is for
    /// those who hear what belongs to no call.
    pub(super) fn hear_question(self: &Arc<Self>, watch: &mut Watch<'_>, asking: Asking) {
        if asking.method == "ping" || watch.listener.whose().is_some() {
            return self.voice.hear_question(watch, asking);
        }
        self.ask_aside(Stray {
            id: asking.id,
            question: Question::new(&asking.method, asking.params),
        });
    }

    /// Puts a question that belongs to no call to whoever attends, else refuses it.
    fn ask_aside(self: &Arc<Self>, stray: Stray) {
        let aside = &self.listening.get_or_init(Box::default).aside;
        self.hearing.ask(aside, stray, self.answering());
    }

    /// Puts a question of one of several calls of a caller to that caller: where they attend, else
    /// by the oldest of their calls.
    fn ask_caller(self: &Arc<Self>, whose: Whose, stray: Stray, question: Message) {
        let listening = self.listening.get_or_init(Box::default);
        let by_a_call = || listening.calls.ask_oldest_of(whose, question);
        let (aside, answer) = (&listening.aside, self.answering());
        self.hearing
            .ask_caller(whose, aside, stray, by_a_call, answer);
    }

    /// Sends what a question got that no call waits for.
    fn answering(self: &Arc<Self>) -> impl FnOnce(&[u8], Spoken) + Send + 'static {
        let session = Arc::downgrade(self);
        move |id, spoken| {
            if let Some(session) = session.upgrade() {
                session.voice.answer(id, spoken, &[]);
            }
        }
    }

    /// The server no longer wants to know what it asked outside any call.
    fn take_back(&self, id: &[u8]) {
        if let Some(listening) = self.listening.get() {
            listening.aside.take_back(id);
        }
    }

    /// Ends the standing stream, once it is known whether there is one.
    pub(super) async fn stop_listening(&self) {
        if let Some(listening) = self.listening.get() {
            listening.settled().await;
            listening.end();
        }
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

/// Whoever reads the stream. However it ends, also where it is cut short, those who wait hear of it.
struct Reader {
    session: Weak<LegacyHttp>,
    begun: Arc<Notify>,
    /// What the stream is after it.
    became: Stream,
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.begun.notify_one();
        let Some(session) = self.session.upgrade() else {
            return;
        };
        let Some(listening) = session.listening.get() else {
            return;
        };
        listening.open.store(false, Ordering::Relaxed);
        let mut stream = listening.stream.lock();
        // Once a session is over there is none again.
        if !matches!(&*stream, Stream::Refused) {
            *stream = std::mem::take(&mut self.became);
        }
        drop(stream);
        listening.turned.notify_waiters();
    }
}

/// Opens the stream and reads it to its end.
async fn listen_on(session: Weak<LegacyHttp>, begun: Arc<Notify>, wanted: Wanted) {
    let mut reader = Reader {
        session,
        begun,
        became: Stream::Closed,
    };
    reader.became = open_and_read(&reader.session, &reader.begun, wanted).await;
}

async fn open_and_read(session: &Weak<LegacyHttp>, begun: &Notify, wanted: Wanted) -> Stream {
    let Some(strong) = session.upgrade() else {
        return Stream::Closed;
    };
    let Some(listening) = strong.listening.get() else {
        return Stream::Closed;
    };
    let head = strong.voice.head.clone();
    let last = listening.last.lock().clone();
    let mut reading = Reading {
        session: Weak::clone(session),
        calls: Arc::clone(&listening.calls),
        wanted: Arc::clone(&listening.wanted),
        parser: SseParser::new(head.way.sizes.event),
        was_held: false,
        told: 0,
    };
    drop(strong);
    let way = &head.way;
    let by = clock::after(match wanted {
        Wanted::ByCall => way.times.handshake,
        Wanted::Held => SILENT_FOR,
    });
    let headers = |map: &mut HeaderMap| {
        head.write(Form::Stream, &[], map);
        if let Some(last) = &last {
            map.insert(LAST_EVENT_ID, last.clone());
        }
    };
    let got = way
        .endpoint
        .send(Method::GET, headers, Bytes::new(), by)
        .await;
    let stream = match got {
        Ok(stream) if stream.status == StatusCode::OK && stream.kind() == BodyKind::Stream => {
            stream
        },
        Ok(other) => return refused(session, &other, last.is_some()),
        Err(_) => return Stream::Failed,
    };
    opened(session, last.is_some());
    begun.notify_one();
    reading.read(stream, way.times.connection_idle).await;
    broke(session, &reading);
    Stream::Closed
}

/// A stream is open. One that goes on where it broke misses nothing.
fn opened(session: &Weak<LegacyHttp>, goes_on: bool) {
    if let Some(session) = session.upgrade()
        && let Some(listening) = session.listening.get()
    {
        if goes_on {
            listening.missed.store(false, Ordering::Relaxed);
        }
        listening.open.store(true, Ordering::Relaxed);
        listening.turned.notify_waiters();
    }
}

/// A stream ended. Where it cannot be gone on with, what is said until the next one is lost.
fn broke(session: &Weak<LegacyHttp>, reading: &Reading) {
    if let Some(session) = session.upgrade()
        && let Some(listening) = session.listening.get()
    {
        let mut known = listening.last.lock();
        if let Some(last) = reading.parser.last_id() {
            *known = HeaderValue::from_str(last).ok();
        }
        // Whoever has only calls misses nothing between them.
        if known.is_none() && reading.was_held {
            listening.missed.store(true, Ordering::Relaxed);
        }
    }
}

/// What a head that is no stream says.
fn refused(session: &Weak<LegacyHttp>, other: &Arrival, resumed: bool) -> Stream {
    match other.status.as_u16() {
        // Another connection holds the one stream there is: nothing of ours is lost.
        409 => Stream::Closed,
        // What was to be gone on with is not there any more: begun anew.
        400 if resumed => {
            if let Some(session) = session.upgrade()
                && let Some(listening) = session.listening.get()
            {
                *listening.last.lock() = None;
                listening.missed.store(true, Ordering::Relaxed);
            }
            Stream::Closed
        },
        401 => Stream::Denied,
        400 | 404 | 410 => Stream::NotFound,
        // Late, busy, or a gateway in trouble.
        408 | 425 | 429 | 500 | 502..=599 => Stream::Failed,
        _ => Stream::Refused,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_server_has_more_time_for_its_stream() {
        for (greeted_in, wait) in [(0, 250), (5, 260), (700, 1_650), (60_000, 5_000)] {
            let head_start = HeadStart::at_a_server_like(Duration::from_millis(greeted_in));
            assert_eq!(head_start.wait(), Duration::from_millis(wait));
        }
        let never = HeadStart::at_a_server_like(Duration::MAX);
        assert_eq!(never, HeadStart::LONGEST);
    }
}
