//! Line: one connection, held by one exchange at a time and driven by it.
//!
//! Asked by: [`http`](super::super::http), which sends on it, and by [`connections`](super), where it rests.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use tokio::runtime::Id;

use super::waking::Waking;
use crate::clock;
use crate::net::{Reads, Socket};

/// A map with room for more headers is not kept.
const MAX_SPARE: usize = 48;
/// After its answer a stream may bring this many pieces more before it is given up.
const MAX_TAIL: usize = 16;
/// A connection is driven this often in a row where it is never done with what it has.
const MAX_ROUNDS: usize = 4;

/// One connection, held by one exchange at a time.
pub(crate) struct Line {
    sender: http1::SendRequest<Payload>,
    /// On the heap: a line is moved whenever it is taken and given back.
    driven: Box<Driven>,
    waking: Waking,
    pulled: Arc<AtomicBool>,
    /// What is left of the last response, whose answer was there before its end.
    pub(crate) tail: Option<Incoming>,
    /// It has carried a request before.
    pub(crate) used: bool,
    /// The runtime that it was opened in: there its socket is waited for.
    pub(super) home: Option<Id>,
}

/// What whoever uses a line drives.
struct Driven {
    connection: http1::Connection<Socket, Payload>,
    reads: Reads,
    max_head: usize,
    /// The connection ended; nothing more can be read or written.
    over: bool,
    /// The map of the last response's headers, emptied, for those of the next request.
    spare: HeaderMap,
}

impl Line {
    /// A connection over which nothing was sent yet.
    pub(super) fn new(
        (sender, connection): (
            http1::SendRequest<Payload>,
            http1::Connection<Socket, Payload>,
        ),
        reads: Reads,
        max_head: usize,
    ) -> Self {
        reads.quieten();
        Self {
            sender,
            driven: Box::new(Driven {
                connection,
                reads,
                max_head,
                over: false,
                spare: HeaderMap::new(),
            }),
            waking: Waking::default(),
            pulled: Arc::default(),
            tail: None,
            used: false,
            home: clock::here(),
        }
    }

    /// Sends a request and waits for the head of the response.
    ///
    /// # Cancel safety
    /// Dropping it abandons the request; [`Line::was_pulled`] tells whether it may have left us.
    pub(crate) async fn send(
        &mut self,
        mut head: Request<()>,
        body: Bytes,
    ) -> Result<Response<Incoming>, hyper::Error> {
        // Nobody ever pulls an empty body: without one there is no witness.
        self.pulled.store(body.is_empty(), Ordering::Relaxed);
        self.used = true;
        let payload = Payload {
            bytes: Some(body),
            pulled: Arc::clone(&self.pulled),
        };
        *head.version_mut() = http::Version::HTTP_11;
        let mut response = pin!(self.sender.send_request(head.map(|()| payload)));
        let (driven, waking) = (&mut self.driven, &self.waking);
        driven.reads.await_head(driven.max_head);
        let came = poll_fn(|cx| driven.until(waking, cx, |cx| response.as_mut().poll(cx))).await;
        driven.reads.head_came();
        came
    }

    /// The next piece of a response's body.
    pub(crate) async fn piece(
        &mut self,
        body: &mut Incoming,
    ) -> Option<Result<Bytes, hyper::Error>> {
        let (driven, waking) = (&mut self.driven, &self.waking);
        poll_fn(|cx| driven.until(waking, cx, |cx| data(body, cx))).await
    }

    /// Keeps the map of a response's headers for the next request, unless it is unusually large.
    pub(crate) fn keep_map(&mut self, mut map: HeaderMap) {
        if map.capacity() <= MAX_SPARE {
            map.clear();
            self.driven.spare = map;
        }
    }

    /// A map for the headers of the next request.
    pub(crate) fn take_map(&mut self) -> HeaderMap {
        std::mem::take(&mut self.driven.spare)
    }

    /// Whether the last request's body was pulled: if not, at most its head left us.
    pub(crate) fn was_pulled(&self) -> bool {
        self.pulled.load(Ordering::Relaxed)
    }

    /// Whether it can carry another request. A hint: the server may close it a moment later.
    pub(super) fn state(&mut self) -> State {
        // Nobody waits for what is seen here, so nobody is to be woken.
        let cx = &mut Context::from_waker(Waker::noop());
        let state = match self.tail.take() {
            None => State::Free,
            Some(tail) => self.finish(tail, cx),
        };
        match state {
            State::Free if self.driven.goes_on(cx) && self.sender.is_ready() => State::Free,
            State::Busy => State::Busy,
            State::Free | State::Dead => State::Dead,
        }
    }

    /// The same after a rest: the kernel is asked, which knows of a close before the runtime does.
    pub(super) fn state_after_rest(&mut self) -> State {
        let reads = self.driven.reads.clone();
        reads.looking(|| self.state())
    }

    /// Whether the last response has come to its end by now.
    fn finish(&mut self, mut tail: Incoming, cx: &mut Context<'_>) -> State {
        for _ in 0..MAX_TAIL {
            let mut next = data(&mut tail, cx);
            if next.is_pending() && self.driven.goes_on(cx) {
                next = data(&mut tail, cx);
            }
            match next {
                Poll::Ready(None) => return State::Free,
                Poll::Ready(Some(Ok(_))) => {},
                Poll::Pending if !self.driven.over => {
                    self.tail = Some(tail);
                    return State::Busy;
                },
                Poll::Ready(Some(Err(_))) | Poll::Pending => return State::Dead,
            }
        }
        State::Dead
    }
}

/// What can be said of a line between two requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It can carry another request.
    Free,
    /// The last response, whose answer was taken, has not come to its end yet.
    Busy,
    /// It is over, or the last response does not come to an end.
    Dead,
}

impl Driven {
    /// Drives the connection until something is seen. Where more is waited for after something was
    /// read, that is acknowledged: the server may hold the rest back for it.
    fn until<T>(
        &mut self,
        waking: &Waking,
        cx: &mut Context<'_>,
        mut seen: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        let ours = &mut waking.up(cx);
        if let Poll::Ready(seen) = seen(ours) {
            return Poll::Ready(seen);
        }
        for _ in 0..MAX_ROUNDS {
            waking.begin_look();
            self.drive(ours);
            let mut found = seen(ours);
            if found.is_pending() && self.reads.owe() {
                let reads = self.reads.clone();
                reads.acknowledging(|| self.drive(ours));
                found = seen(ours);
            }
            if found.is_ready() || waking.may_sleep() {
                return found;
            }
        }
        // The runtime has its turn: it may be what is waited for.
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Whether the connection still stands after it was driven.
    fn goes_on(&mut self, cx: &mut Context<'_>) -> bool {
        self.drive(cx);
        !self.over
    }

    fn drive(&mut self, cx: &mut Context<'_>) {
        self.reads.begin_share();
        // What went wrong is told by the response, too.
        self.over = self.over || Pin::new(&mut self.connection).poll(cx).is_ready();
    }
}

/// The next data of a body. Trailers hold nothing for us.
fn data(body: &mut Incoming, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, hyper::Error>>> {
    loop {
        return match std::task::ready!(Pin::new(&mut *body).poll_frame(cx)) {
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => Poll::Ready(Some(Ok(data))),
                Err(_) => continue,
            },
            Some(Err(error)) => Poll::Ready(Some(Err(error))),
            None => Poll::Ready(None),
        };
    }
}

/// The body of a request, and the witness of whether anybody asked for it.
pub(crate) struct Payload {
    bytes: Option<Bytes>,
    pulled: Arc<AtomicBool>,
}

impl Body for Payload {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.pulled.store(true, Ordering::Relaxed);
        Poll::Ready(
            self.bytes
                .take()
                .filter(|b| !b.is_empty())
                .map(|b| Ok(Frame::data(b))),
        )
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.as_ref().is_none_or(Bytes::is_empty)
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.as_ref().map_or(0, |b| b.len() as u64))
    }
}
