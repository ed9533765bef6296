//! A call on its way back to its client: as JSON where nothing else comes, as events where
//! something does, or where the server itself answers with events.
//!
//! Asked by: the faces, with a call that nobody has driven yet. Whoever carries the response to its
//! client drives it, also while that client reads nothing: a call ends when it is over, and not when
//! somebody wants to know. There is no task of its own until a client leaves a call that goes on
//! without it.

use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderName, HeaderValue, Response, StatusCode};
use parking_lot::Mutex;
use tokio::time::Sleep;
use warmline::clock;

use crate::body::Body;
use crate::door::limits::Burden;
use crate::door::replies::{ReplyRoom, is_large};
use crate::lane::{Hears, Keep, Lane, Next, Pausing};
use crate::metrics::{Counts, LeftCall, Undelivered};
use crate::reply;

/// A response that says nothing for so long becomes a stream, which can be kept alive.
const COMMIT_AFTER: Duration = Duration::from_secs(15);
/// So often a stream on which nothing happens shows that it is alive.
pub(crate) const ALIVE_EVERY: Duration = Duration::from_secs(15);
/// How it shows that.
pub(crate) const STILL_HERE: Bytes = Bytes::from_static(b": still here\n\n");
/// So soon a client whose stream broke shall come back for the rest.
const COME_BACK_AFTER: Duration = Duration::from_secs(1);
/// Several small events go out in one write, up to about this size.
const ONE_WRITE: usize = 16 << 10;

/// How a call ended: the whole message, and the status it has where it stands alone.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: StatusCode,
    pub(crate) message: Bytes,
}

/// A call that is driven by whoever carries its response.
pub(crate) type Calling = Pin<Box<dyn Future<Output = Ended> + Send>>;

/// A call, with what its request takes up until it is over.
struct Borne {
    call: Calling,
    burden: Burden,
}

/// What becomes of a call whose client leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaving {
    /// It is cancelled: modern clients cancel like that.
    Cancels,
    /// It goes on: a legacy client may come back for the end.
    GoesOn,
}

/// What a client can read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Accepts {
    /// Either; JSON where it is enough.
    Both,
    Json,
    Events,
}

/// How a response is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manner {
    pub(crate) accepts: Accepts,
    pub(crate) leaving: Leaving,
    /// The number of the stream, where its events have ids to come back with.
    pub(crate) stream: Option<u64>,
}

/// Whether a stream begins with an event that only gives an id to come back with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Prime {
    /// It does not: older clients choke on an event without data.
    No,
    /// It will.
    First,
    /// It did, or the stream that it goes on with: its client comes back where it is told to.
    Done,
}

/// A stream of events, and the call behind it.
pub(crate) struct Flow {
    call: Option<Borne>,
    /// Whether a call was behind it from the beginning: then its end is an answer.
    answers: bool,
    lane: Arc<Lane>,
    /// As whom it reads the lane.
    reader: u64,
    /// The number of the message to write next.
    next: u64,
    manner: Manner,
    prime: Prime,
    /// What is left of an event that is being written.
    rest: Rest,
    /// Where what its client has not read yet is held.
    room: Option<ReplyRoom>,
    alive: Option<Pin<Box<Sleep>>>,
    /// What lasts as long as somebody reads.
    holds: Option<Box<dyn Send>>,
    /// Who counts clients that leave.
    counts: Option<Arc<Counts>>,
    /// When it ends whatever may still come.
    until: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl fmt::Debug for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flow")
            .field("next", &self.next)
            .field("manner", &self.manner)
            .finish_non_exhaustive()
    }
}

/// What a response begins with.
pub(crate) enum Begun {
    /// The end, and nothing before it.
    Alone(Ended),
    /// Something else, or nothing for a long time: a stream.
    Events(Flow),
    /// The client gave the call up before anything was said.
    GivenUp,
}

/// Drives a call, and answers its client.
pub(crate) async fn respond(
    call: Calling,
    lane: Arc<Lane>,
    manner: Manner,
    burden: Burden,
) -> Response<Body> {
    let begun = Flow::of(call, lane, manner, burden).begin().await;
    begun.response(|flow| flow)
}

impl Begun {
    /// The response that begins so; what becomes a stream may be told more.
    pub(crate) fn response(self, streams: impl FnOnce(Flow) -> Flow) -> Response<Body> {
        match self {
            Self::Alone(ended) => reply::ended(ended.status, ended.message),
            Self::Events(flow) => streams(flow).response(),
            Self::GivenUp => reply::accepted(),
        }
    }
}

/// What a response begins with, found out without taking the flow apart.
enum First {
    Alone(Ended),
    Events,
    GivenUp,
}

impl Flow {
    /// A call that nobody has driven yet.
    pub(crate) fn of(call: Calling, lane: Arc<Lane>, manner: Manner, burden: Burden) -> Self {
        Self::new(Some(Borne { call, burden }), lane, 1, manner)
    }

    /// A stream that goes on after the message of that number.
    pub(crate) fn after(number: u64, lane: Arc<Lane>, manner: Manner) -> Self {
        Self::new(None, lane, number.saturating_add(1), manner)
    }

    fn new(call: Option<Borne>, lane: Arc<Lane>, next: u64, manner: Manner) -> Self {
        let hears = match manner.accepts {
            Accepts::Json => Hears::TheEnd,
            Accepts::Both | Accepts::Events => Hears::All,
        };
        Self {
            answers: call.is_some(),
            call,
            reader: lane.attach(hears),
            lane,
            next,
            manner,
            prime: Prime::No,
            rest: Rest::Nothing,
            room: None,
            alive: None,
            holds: None,
            counts: None,
            until: None,
        }
    }

    /// Whether it answers a call, and is no stream of news.
    pub(crate) const fn answers(&self) -> bool {
        self.answers
    }

    /// What it writes comes on this.
    pub(crate) fn lane(&self) -> &Lane {
        &self.lane
    }

    /// The same, begun as the client's version wants it.
    pub(crate) fn primed(mut self, prime: Prime) -> Self {
        self.prime = prime;
        self
    }

    /// The same, counted where its client leaves.
    pub(crate) fn counted(mut self, counts: &Arc<Counts>) -> Self {
        self.counts = Some(Arc::clone(counts));
        self
    }

    /// Counts large messages there from now on, until its client has read them.
    pub(crate) fn hold_in(&mut self, room: ReplyRoom) {
        self.room = Some(room);
    }

    /// The same, with something that lasts as long as somebody reads.
    pub(crate) fn holding(mut self, held: impl Send + 'static) -> Self {
        self.holds = Some(Box::new(held));
        self
    }

    /// The same, ended when this does. What is left unread may be asked for again.
    pub(crate) fn until(mut self, over: impl Future<Output = ()> + Send + 'static) -> Self {
        self.until = Some(Box::pin(over));
        self
    }

    /// Drives the call until it is known how the response begins.
    pub(crate) async fn begin(mut self) -> Begun {
        let mut commit = pin!(clock::sleep(COMMIT_AFTER));
        let first = std::future::poll_fn(|cx| self.poll_first(cx, commit.as_mut())).await;
        match first {
            First::Alone(ended) => Begun::Alone(ended),
            First::Events => Begun::Events(self),
            First::GivenUp => Begun::GivenUp,
        }
    }

    /// The response that writes the events.
    pub(crate) fn response(self) -> Response<Body> {
        events(Body::Events(Arc::new(Mutex::new(self))))
    }

    fn poll_first(
        &mut self,
        cx: &mut Context<'_>,
        commit: Pin<&mut impl Future<Output = ()>>,
    ) -> Poll<First> {
        let Some(borne) = &mut self.call else {
            return Poll::Ready(First::Events);
        };
        let ended = borne.call.as_mut().poll(cx);
        let told = self.lane.has_begun(self.next, self.reader, cx);
        let streams = self.manner.accepts != Accepts::Json;
        match ended {
            Poll::Ready(ended) => {
                self.call = None;
                if streams && (told || self.manner.accepts == Accepts::Events) {
                    self.lane.end(Some(ended.message));
                    return Poll::Ready(First::Events);
                }
                Poll::Ready(First::Alone(ended))
            },
            Poll::Pending if told && self.lane.is_cancelled() => {
                // Dropping it cancels it.
                self.call = None;
                Poll::Ready(First::GivenUp)
            },
            Poll::Pending if !streams => Poll::Pending,
            Poll::Pending if told => Poll::Ready(First::Events),
            Poll::Pending => commit.poll(cx).map(|()| First::Events),
        }
    }

    /// Lets the call go on, and says whether it ended now. Events are asked for only while their client
    /// takes them; the end of a call waits for nobody.
    pub(crate) fn drive(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(borne) = &mut self.call else {
            return false;
        };
        if let Poll::Ready(ended) = borne.call.as_mut().poll(cx) {
            self.call = None;
            self.lane.end(Some(ended.message));
        } else if self.lane.poll_cancelled(cx).is_ready() {
            // Dropping it cancels it.
            self.call = None;
        }
        self.call.is_none()
    }

    /// The next events, ready to be written; none at the end of the stream.
    pub(crate) fn poll_events(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if let Some(piece) = self.rest.next(self.room.as_ref()) {
            return Poll::Ready(Some(piece));
        }
        if let Some(until) = &mut self.until
            && until.as_mut().poll(cx).is_ready()
        {
            self.until = None;
            return Poll::Ready(None);
        }
        let mut out = BytesMut::new();
        if self.prime == Prime::First {
            self.prime = Prime::Done;
            write_prime(&mut out, self.manner.stream);
        }
        while out.len() < ONE_WRITE && self.rest == Rest::Nothing {
            match self.lane.next(self.next, self.reader, cx, self.pausing()) {
                Poll::Ready(Next::Message(number, message)) => {
                    self.rest = write_event(&mut out, self.manner.stream, number, message);
                    self.next = number + 1;
                },
                Poll::Ready(Next::Pause(come_back_after)) => {
                    self.pause(come_back_after, &mut out);
                    break;
                },
                Poll::Ready(Next::Over | Next::Cancelled) if out.is_empty() => {
                    return Poll::Ready(None);
                },
                Poll::Ready(Next::Over | Next::Cancelled) | Poll::Pending => break,
            }
        }
        if !out.is_empty() {
            self.alive = None;
            return Poll::Ready(Some(out.freeze()));
        }
        let alive = self
            .alive
            .get_or_insert_with(|| Box::pin(clock::sleep_until(clock::after(ALIVE_EVERY))));
        ready!(alive.as_mut().poll(cx));
        self.alive = None;
        Poll::Ready(Some(STILL_HERE))
    }
}

impl Flow {
    /// Whether the client comes back where the server wants it to.
    fn pausing(&self) -> Pausing {
        match (self.prime, self.manner.stream) {
            (Prime::Done, Some(_)) => Pausing::Yes,
            (Prime::No | Prime::First | Prime::Done, _) => Pausing::No,
        }
    }

    /// The server lets its caller go for a while. So do we: the call goes on, and this stream is
    /// over.
    fn pause(&mut self, come_back_after: Duration, out: &mut BytesMut) {
        let retry = come_back_after.as_millis();
        out.extend_from_slice(format!("retry: {retry}\n\n").as_bytes());
        if let Some(call) = self.call.take() {
            go_on(call, Arc::clone(&self.lane), self.counts.clone());
        }
        self.until = Some(Box::pin(std::future::ready(())));
    }
}

/// A response whose body is events.
pub(crate) fn events(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    let kind = HeaderValue::from_static("text/event-stream");
    headers.insert(CONTENT_TYPE, kind);
    let caching = HeaderValue::from_static("no-cache, no-transform");
    headers.insert(CACHE_CONTROL, caching);
    // Reverse proxies in front of us that would wait for more.
    let buffering = HeaderName::from_static("x-accel-buffering");
    headers.insert(buffering, HeaderValue::from_static("no"));
    response
}

/// A client left. What it asked for goes on where its era says so.
impl Drop for Flow {
    fn drop(&mut self) {
        self.lane.leave(self.reader);
        let Some(call) = self.call.take() else { return };
        // Whoever gave the call up cancels it; dropping it does.
        if self.manner.leaving == Leaving::GoesOn && !self.lane.is_cancelled() {
            let counts = self.counts.take();
            if let Some(counts) = &counts {
                counts.left.one_more(LeftCall::GoesOn);
            }
            go_on(call, Arc::clone(&self.lane), counts);
        }
    }
}

/// Drives a call that nobody waits for at this moment to its end. Until then its request takes up
/// what it took up before.
fn go_on(borne: Borne, lane: Arc<Lane>, counts: Option<Arc<Counts>>) {
    if tokio::runtime::Handle::try_current().is_err() {
        return;
    }
    clock::spawn("call-goes-on", async move {
        let Borne { call, burden } = borne;
        tokio::select! {
            ended = call => {
                lane.end(Some(ended.message));
                if let Some(counts) = counts
                    && lane.is_for_nobody()
                {
                    counts.undelivered.one_more(Undelivered::Left);
                }
            },
            () = std::future::poll_fn(|cx| lane.poll_cancelled(cx)) => {},
        }
        drop(burden);
    });
}

/// Writes the event that only gives an id, and how soon to come back with it.
fn write_prime(out: &mut BytesMut, stream: Option<u64>) {
    if let Some(stream) = stream {
        let retry = COME_BACK_AFTER.as_millis();
        out.extend_from_slice(format!("id: {stream:x}-0\nretry: {retry}\ndata: \n\n").as_bytes());
    }
}

/// What is left of an event whose message is large: that goes out as it is, without a copy.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) enum Rest {
    #[default]
    Nothing,
    Message(Bytes),
    End,
}

impl Rest {
    /// The next piece of it. The message is counted there until its client has read it.
    pub(crate) fn next(&mut self, room: Option<&ReplyRoom>) -> Option<Bytes> {
        match std::mem::take(self) {
            Self::Nothing => None,
            Self::Message(message) => {
                *self = Self::End;
                Some(held_in(room, message))
            },
            Self::End => Some(END),
        }
    }
}

/// A message, counted there until its client has read it if it is large.
pub(crate) fn held_in(room: Option<&ReplyRoom>, message: Bytes) -> Bytes {
    match room {
        Some(room) if is_large(&message) => room.held(message),
        Some(_) | None => message,
    }
}

/// The end of an event.
const END: Bytes = Bytes::from_static(b"\n\n");

/// Writes one event, or its beginning. JSON on one line needs one field; a line break inside it would
/// end the field.
#[must_use]
pub(crate) fn write_event(
    out: &mut BytesMut,
    stream: Option<u64>,
    number: u64,
    message: Bytes,
) -> Rest {
    if let Some(stream) = stream {
        out.extend_from_slice(format!("id: {stream:x}-{number:x}\n").as_bytes());
    }
    out.extend_from_slice(b"event: message\ndata: ");
    let line = warmline::core::protocol::splice::one_line(message);
    if is_large(&line) {
        return Rest::Message(line);
    }
    out.extend_from_slice(&line);
    out.extend_from_slice(&END);
    Rest::Nothing
}

/// The stream and the message that an event id names.
pub(crate) fn event_id(text: &str) -> Option<(u64, u64)> {
    let (stream, number) = text.split_once('-')?;
    let number = u64::from_str_radix(number, 16).ok()?;
    Some((u64::from_str_radix(stream, 16).ok()?, number))
}

/// What a lane keeps for a manner of answering.
pub(crate) const fn keep_for(manner: &Manner) -> Keep {
    match manner.stream {
        Some(_) => Keep::Written,
        None => Keep::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lane::Keep;

    /// P90: a stream on which nothing happens says so every 15 s, so that nobody on the way cuts it.
    #[tokio::test(start_paused = true)]
    async fn a_quiet_stream_shows_that_it_is_alive() {
        let manner = Manner {
            accepts: Accepts::Events,
            leaving: Leaving::GoesOn,
            stream: Some(1),
        };
        let lane = Arc::new(Lane::new(Keep::Written));
        let mut flow = Flow::after(0, Arc::clone(&lane), manner);
        let since = clock::now();
        for round in 1..=3 {
            let said = std::future::poll_fn(|cx| flow.poll_events(cx)).await;
            assert_eq!(said, Some(STILL_HERE));
            let waited = clock::now().duration_since(since);
            assert!(waited >= ALIVE_EVERY * round && waited <= ALIVE_EVERY * round + ALIVE_EVERY);
        }
        lane.tell("{}".into());
        let said = std::future::poll_fn(|cx| flow.poll_events(cx)).await;
        assert!(said.is_some_and(|said| said.ends_with(b"data: {}\n\n")));
    }
}
