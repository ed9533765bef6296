//! A call on its way back to its client: as JSON where nothing else comes, as events where
//! something does.
//!
//! Asked by: the faces, with a call that nobody has driven yet. The response itself drives it:
//! there is no task of its own until a client leaves a call that goes on without it.

use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderName, HeaderValue, Response, StatusCode};
use tokio::time::Sleep;
use warmline::clock;

use crate::body::Body;
use crate::lane::{Keep, Lane, Next};
use crate::reply;

/// A response that says nothing for so long becomes a stream, which can be kept alive.
const COMMIT_AFTER: Duration = Duration::from_secs(15);
/// So often a stream on which nothing happens shows that it is alive.
const ALIVE_EVERY: Duration = Duration::from_secs(15);
/// Several small events go out in one write, up to about this size.
const ONE_WRITE: usize = 16 << 10;

/// How a call ended: the whole message, and the status it has where it stands alone.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: StatusCode,
    pub(crate) message: Bytes,
}

/// A call that is driven by its response.
pub(crate) type Calling = Pin<Box<dyn Future<Output = Ended> + Send>>;

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

/// A stream of events, and the call behind it.
pub(crate) struct Flow {
    call: Option<Calling>,
    lane: Arc<Lane>,
    /// The number of the message to write next.
    next: u64,
    manner: Manner,
    alive: Option<Pin<Box<Sleep>>>,
}

impl fmt::Debug for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flow")
            .field("next", &self.next)
            .field("manner", &self.manner)
            .finish_non_exhaustive()
    }
}

/// Drives a call, and answers its client.
pub(crate) async fn respond(call: Calling, lane: Arc<Lane>, manner: Manner) -> Response<Body> {
    let mut flow = Flow {
        call: Some(call),
        lane,
        next: 1,
        manner,
        alive: None,
    };
    let mut commit = pin!(clock::sleep(COMMIT_AFTER));
    let first = std::future::poll_fn(|cx| flow.poll_first(cx, commit.as_mut())).await;
    match first {
        First::Alone(ended) => reply::json(ended.status, ended.message),
        First::Events => events(flow),
    }
}

/// Goes on with a stream that broke, after the message of that number.
pub(crate) fn go_on(lane: Arc<Lane>, after: u64, manner: Manner) -> Response<Body> {
    events(Flow {
        call: None,
        lane,
        next: after.saturating_add(1),
        manner,
        alive: None,
    })
}

fn events(flow: Flow) -> Response<Body> {
    let mut response = Response::new(Body::Events(Box::new(flow)));
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

/// What a response begins with.
enum First {
    /// The end, and nothing before it.
    Alone(Ended),
    /// Something else, or nothing for a long time.
    Events,
}

impl Flow {
    fn poll_first(
        &mut self,
        cx: &mut Context<'_>,
        commit: Pin<&mut impl Future<Output = ()>>,
    ) -> Poll<First> {
        let Some(call) = &mut self.call else {
            return Poll::Ready(First::Events);
        };
        let ended = call.as_mut().poll(cx);
        let told = self.lane.has(self.next, cx);
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
            Poll::Pending if !streams => Poll::Pending,
            Poll::Pending if told => Poll::Ready(First::Events),
            Poll::Pending => commit.poll(cx).map(|()| First::Events),
        }
    }

    /// The next events, ready to be written; none at the end of the stream.
    pub(crate) fn poll_events(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if let Some(call) = &mut self.call
            && let Poll::Ready(ended) = call.as_mut().poll(cx)
        {
            self.call = None;
            self.lane.end(Some(ended.message));
        }
        let mut out = BytesMut::new();
        while out.len() < ONE_WRITE {
            match self.lane.next(self.next, cx) {
                Poll::Ready(Next::Message(number, message)) => {
                    write_event(&mut out, self.manner.stream, number, &message);
                    self.next = number + 1;
                },
                Poll::Ready(Next::Over | Next::Cancelled) if out.is_empty() => {
                    // Whoever gave the call up cancels it; dropping it does.
                    self.call = None;
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
        Poll::Ready(Some(Bytes::from_static(b": still here\n\n")))
    }
}

/// A client left. What it asked for goes on where its era says so.
impl Drop for Flow {
    fn drop(&mut self) {
        let Some(call) = self.call.take() else { return };
        if self.manner.leaving == Leaving::GoesOn {
            let lane = Arc::clone(&self.lane);
            tokio::runtime::Handle::try_current().is_ok().then(|| {
                clock::spawn("call-goes-on", async move {
                    tokio::select! {
                        ended = call => lane.end(Some(ended.message)),
                        () = std::future::poll_fn(|cx| lane.poll_cancelled(cx)) => {},
                    }
                })
            });
        }
    }
}

/// Writes one event. JSON on one line needs one field; a line break inside it would end the field.
fn write_event(out: &mut BytesMut, stream: Option<u64>, number: u64, message: &Bytes) {
    if let Some(stream) = stream {
        out.extend_from_slice(format!("id: {stream:x}-{number:x}\n").as_bytes());
    }
    out.extend_from_slice(b"event: message\ndata: ");
    let line = warmline::core::protocol::splice::one_line(message.clone());
    out.extend_from_slice(&line);
    out.extend_from_slice(b"\n\n");
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
