//! The legacy driver over HTTP+SSE (2024-11-05): one standing stream down, a second endpoint up.
//!
//! Asked by: [`session`](super::session).
//!
//! The session is the stream: it ends when the stream ends, and nothing resumes it. One task reads
//! it and passes each message to the call it belongs to; requests are posted by their callers. A
//! POST is only acknowledged (202); its answer comes down the stream, sometimes before the
//! acknowledgement.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use url::Url;
use warmline_core::code::Reason;
use warmline_core::era::{Era, Version};
use warmline_core::exchange::{Ending, Request, Trouble};
use warmline_core::protocol::batch;
use warmline_core::protocol::envelope::Message;
use warmline_core::protocol::sse::SseParser;

use super::answer;
use super::aside::Aside;
use super::calls::{Calls, Heard, Routed};
use super::fair::Share;
use super::hidden::Hidden;
use super::http::{Arrival, BodyKind, Cut, Lost};
use super::legacy::Stood;
use super::letterhead::{Form, Letterhead};
use super::limits::{Ids, Limits};
use super::listener::{Listener, Spoken};
use super::notices::{Hearing, Speaker};
use super::pace::ASK_AFTER;
use super::pipes::{notification, write_legacy};
use super::session::Standing;
use super::stream::{Pause, Watch, heard_on};
use super::voice::Voice;
use super::way::Way;
use crate::clock::{self, Instant};

/// A session over HTTP+SSE.
#[derive(Debug)]
pub(crate) struct TwoEndpoints {
    up: Arc<Up>,
    calls: Arc<Calls>,
    ids: Ids,
    reader: JoinHandle<()>,
}

/// The way up, shared with the reader.
#[derive(Debug)]
struct Up {
    voice: Voice,
    hearing: Hearing,
    /// Questions that belong to no call.
    aside: Arc<Aside>,
    standing: Standing,
    /// The version that was agreed on, once it was.
    version: OnceLock<Version>,
    /// Told when its stream has ended.
    over: Notify,
}

impl TwoEndpoints {
    /// Opens the stream and waits for the endpoint it names; none where no such stream is.
    pub(crate) async fn connect(
        head: Letterhead,
        url: &Url,
        hearing: Hearing,
    ) -> Option<Result<Self, Trouble>> {
        let by = clock::after(head.way.times.handshake);
        let headers = |map: &mut HeaderMap| head.write(Form::Stream, &[], map);
        let got = head
            .way
            .endpoint
            .send(Method::GET, headers, Bytes::new(), by)
            .await;
        let mut stream = got.ok()?;
        if stream.status != StatusCode::OK || stream.kind() != BodyKind::Stream {
            return None;
        }
        let mut parser = SseParser::new(head.way.sizes.event);
        let place = clock::timeout_at(by, named_endpoint(&mut stream, &mut parser))
            .await
            .ok()??;
        let way = match second_endpoint(&head.way, url, &place) {
            Ok(way) => way,
            Err(trouble) => return Some(Err(trouble)),
        };
        let up = Arc::new(Up {
            voice: Voice::new(head.by_way_of(way)),
            hearing,
            aside: Arc::default(),
            standing: Standing::default(),
            version: OnceLock::new(),
            over: Notify::new(),
        });
        let calls = Arc::new(Calls::of_the_only_stream());
        let reading = read(Arc::clone(&up), Arc::clone(&calls), stream, parser);
        let reader = clock::spawn("read an HTTP+SSE stream", reading);
        Some(Ok(Self {
            up,
            calls,
            ids: Ids::new(),
            reader,
        }))
    }

    /// An id that was not used before.
    pub(crate) fn next_id(&self) -> u64 {
        self.ids.next()
    }

    /// A version was agreed on.
    pub(crate) fn speak(&self, version: Version) {
        // There is one handshake in the life of a session.
        self.up.version.set(version).ok();
    }

    pub(crate) fn standing(&self) -> &Standing {
        &self.up.standing
    }

    /// What must not be told of what it sends.
    pub(crate) fn hidden(&self) -> Hidden {
        self.up.voice.head.hidden()
    }

    /// Waits until its stream has ended.
    pub(crate) async fn ended(&self) -> Stood {
        let mut over = pin!(self.up.over.notified());
        over.as_mut().enable();
        if self.up.standing.retired().is_none() {
            over.await;
        }
        Stood::Over
    }

    /// The server's name, for messages.
    pub(crate) fn server(&self) -> &str {
        self.up.voice.server()
    }

    /// Sends one request and stays with it to its end.
    pub(crate) async fn send(&self, request: Request, listener: &dyn Listener) -> Ending {
        let id = self.next_id();
        let mut cancel = self.up.voice.cancel_notice(id, &request, listener);
        let body = write_legacy(id, &request);
        let ending = self
            .ask((id, body), request, listener, &cancel.issued)
            .await;
        let late = matches!(&ending, Ending::Failed(f) if f.trouble.reason == Reason::Timeout);
        if !late {
            cancel.disarm();
        }
        ending
    }

    /// What watches the stream for a call.
    fn watch<'a>(
        &'a self,
        id: u64,
        request: &Request,
        listener: &'a dyn Listener,
    ) -> Result<Watch<'a>, Trouble> {
        let mut watch = Watch::new(id, Limits::begin(request.patience()), listener);
        watch.own = request.headers().to_vec();
        watch.back = Some(&self.up.voice);
        watch.standing = Some(self.calls.register(id, listener.whose())?);
        Ok(watch)
    }

    /// Posts a message under an id, and waits for its answer on the stream. `issued` is set once
    /// anything of it may have left.
    pub(crate) async fn ask(
        &self,
        (id, body): (u64, Bytes),
        request: Request,
        listener: &dyn Listener,
        issued: &AtomicBool,
    ) -> Ending {
        let voice = &self.up.voice;
        let endpoint = &voice.way().endpoint;
        let mut watch = match self.watch(id, &request, listener) {
            Ok(watch) => watch,
            Err(trouble) => return trouble.unsent(request),
        };
        let headers = |map: &mut HeaderMap| {
            issued.store(true, Ordering::Relaxed);
            voice.head.write(Form::Message, request.headers(), map);
        };
        // Limits are kept by the wait below, which knows the questions.
        let by = watch.limits.total_by();
        let mut posting = Box::pin(endpoint.send(Method::POST, headers, body, by));
        let mut posted = false;
        loop {
            let by = watch.by();
            // A stream that always has more would never let the timer below speak.
            if clock::now() >= by {
                drop(posting);
                let lost = endpoint.late(issued.load(Ordering::Relaxed));
                return answer::lost(lost, request);
            }
            tokio::select! {
                biased;
                turn = watch.open.turn() => {
                    if let Some(trouble) = voice.heed(&mut watch, turn) {
                        return trouble.unknown();
                    }
                },
                heard = heard_on(&mut watch.standing) => match heard {
                    Heard::Message(message) => match watch.heed_message(message) {
                        Some(Pause::Reply(reply)) => {
                            drop(posting);
                            return self.taken(&reply, request, &mut watch).await;
                        },
                        Some(Pause::Ask(asking)) => voice.hear_question(&mut watch, asking),
                        None if !watch.keep_pace().await => return answer::late(self.server()),
                        _ => {},
                    },
                    Heard::Missed(notices) => listener.missed(notices),
                    Heard::Lost(trouble) => return trouble.unknown(),
                },
                sent = &mut posting, if !posted => match sent {
                    Ok(arrival) if arrival.status.is_success() => {
                        posted = true;
                        arrival.drain();
                    },
                    Ok(arrival) => {
                        drop(posting);
                        return self.refused(id, arrival, request, by).await;
                    },
                    Err(lost) => {
                        drop(posting);
                        return answer::lost(lost, request);
                    },
                },
                () = clock::sleep_until(by) => {},
            }
        }
    }

    /// The answer is here: it is handed over when there is room for it.
    async fn taken(&self, reply: &Message, request: Request, watch: &mut Watch<'_>) -> Ending {
        match watch.room_for(reply.raw().len()).await {
            true => answer::streamed(self.sent(watch.id), reply, request, watch.before),
            false => answer::late(self.server()),
        }
    }

    /// The POST was not taken: its status says what that means, as for any other POST.
    async fn refused(&self, id: u64, arrival: Arrival, request: Request, by: Instant) -> Ending {
        answer::ending(self.sent(id), arrival, request, by, &()).await
    }

    fn sent(&self, id: u64) -> answer::Sent<'_> {
        answer::Sent {
            way: self.up.voice.way(),
            era: Era::Legacy,
            with_session: true,
            id,
            standing: &self.up.standing,
        }
    }

    /// Sends a notification.
    pub(crate) async fn notify(&self, method: &str, params: Option<&[u8]>) -> Result<(), Lost> {
        self.up.voice.tell(notification(method, params)).await
    }

    /// Ends the session: it is the stream.
    pub(crate) fn close(&self) {
        self.reader.abort();
        self.up.voice.end();
        self.calls.end(&closed(self.up.voice.server()));
        self.up.standing.retire(Reason::Closed);
        self.up.aside.end();
    }
}

impl Drop for TwoEndpoints {
    fn drop(&mut self) {
        self.reader.abort();
        self.up.aside.end();
    }
}

/// Reads the stream to its end, which is the end of the session.
async fn read(up: Arc<Up>, calls: Arc<Calls>, mut stream: Arrival, mut parser: SseParser) {
    let mut share = Share::default();
    let (most, mut told) = (parser.max_event_bytes(), 0);
    let why = loop {
        calls.room(most, |only| up.hearing.is_alone(only)).await;
        if told >= ASK_AFTER {
            told = 0;
            up.hearing.keep_pace().await;
        }
        match parser.next() {
            Some(Ok(event)) => {
                told += event.data.len();
                share.took(event.data.len()).await;
                let version = up.version.get().copied();
                let mut texts = batch::parts(event.data, version);
                if let Err(why) = texts.try_for_each(|text| route(&up, &calls, text)) {
                    break why.to_owned();
                }
                continue;
            },
            Some(Err(large)) => {
                break format!("an event is larger than {} bytes", large.max_event_bytes);
            },
            None => {},
        }
        match stream.piece().await {
            Some(Ok(bytes)) => {
                parser.push(&bytes);
                share.took(bytes.len()).await;
            },
            Some(Err(Cut::Broken(why))) => break why,
            Some(Err(Cut::TooLarge { .. } | Cut::Late)) => break "it cannot be read".to_owned(),
            None => break "the server ended the stream".to_owned(),
        }
    };
    up.standing.retire(Reason::ReplyLost);
    let what = format!(
        "the stream of `{}` ended, and the session with it",
        up.voice.server()
    );
    calls.end(&Trouble::new(Reason::ReplyLost, what).because(why));
    up.aside.end();
    up.over.notify_waiters();
}

/// Leads one message to whom it is for, or says why nothing more is to be read.
fn route(up: &Arc<Up>, calls: &Calls, text: Bytes) -> Result<(), &'static str> {
    let Ok(message) = Message::split(text) else {
        return Ok(());
    };
    match calls.route(message) {
        Routed::Done => {},
        Routed::Unheard(notice) => up.hearing.tell(&notice),
        Routed::ForAll(notice) => {
            let told = up.hearing.tell_all(&notice, Speaker::of(&**up));
            calls.tell_callers(&notice, &told);
        },
        Routed::Answer(id, spoken) => up.voice.answer(&id, spoken, &[]),
        Routed::Stray(stray) => up.hearing.ask(&up.aside, stray, answering(up)),
        Routed::OneCallers(whose, stray, question) => {
            let by_a_call = || calls.ask_oldest_of(whose, question);
            let (aside, answer) = (&up.aside, answering(up));
            up.hearing
                .ask_caller(whose, aside, stray, by_a_call, answer);
        },
        Routed::Nobodys(id, kind) => up.voice.answer(&id, up.hearing.refuse(kind), &[]),
        Routed::TakenBack(id) => up.aside.take_back(&id),
        Routed::TooManyStrays => return Err("it answers requests nobody sent"),
    }
    Ok(())
}

/// Sends what a question got that no call waits for.
fn answering(up: &Arc<Up>) -> impl FnOnce(&[u8], Spoken) + Send + 'static {
    let weak = Arc::downgrade(up);
    move |id, spoken| {
        if let Some(up) = weak.upgrade() {
            up.voice.answer(id, spoken, &[]);
        }
    }
}

/// The data of the first event, if it is the one that names the endpoint.
async fn named_endpoint(stream: &mut Arrival, parser: &mut SseParser) -> Option<String> {
    loop {
        if let Some(event) = parser.next() {
            let event = event.ok()?;
            let named = event.event.as_deref() == Some("endpoint");
            return named.then(|| String::from_utf8_lossy(&event.data).into_owned());
        }
        parser.push(&stream.piece().await?.ok()?);
    }
}

/// The way to the endpoint that the stream named, which must be of the same origin.
fn second_endpoint(first: &Way, url: &Url, place: &str) -> Result<Way, Trouble> {
    let bad = |why: String| {
        let what = format!("`{}` names an endpoint that cannot be used", first.server());
        Trouble::new(Reason::NotMcp, what).because(why)
    };
    let second = url
        .join(place.trim())
        .map_err(|error| bad(error.to_string()))?;
    if second.origin() != url.origin() {
        return Err(bad("it is of another origin than the stream".to_owned()));
    }
    let uri = second[url::Position::BeforePath..url::Position::AfterQuery]
        .parse()
        .map_err(|error: http::uri::InvalidUri| bad(error.to_string()))?;
    let mut second_way = first.clone();
    second_way.endpoint.uri = uri;
    Ok(second_way)
}

fn closed(server: &str) -> Trouble {
    Trouble::new(
        Reason::Closed,
        format!("the session with `{server}` was closed"),
    )
}
