//! Connections: kept HTTP/1.1 connections to one origin.
//!
//! Asked by: [`http`](super::http), for every request.
//!
//! A connection has no task of its own. Whoever sends on it also drives it: the caller's future
//! polls the connection beside the response, so a call adds no task and no hop between tasks.
//! Between calls the connection rests here, undriven; a [keeper](keep) exists only while something
//! rests, and closes what has rested too long. Servers close idle connections too, and a request
//! that meets such a close is lost in a way nobody can tell from an execution, so ours end first.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use rustls::ClientConfig;

use crate::clock::{self, Instant};
use crate::net::{self, ConnectError, Dial, Glance, Origin, Socket};
use crate::sync::Mutex;

/// At most this many connections rest per origin; more are closed, oldest first.
const MAX_RESTING: usize = 64;
/// A map with room for more headers is not kept.
const MAX_SPARE: usize = 48;
/// After its answer a stream may bring this many pieces more before it is given up.
const MAX_TAIL: usize = 16;

/// The kept connections to one origin under one TLS identity.
pub(crate) struct Connections {
    origin: Origin,
    tls: Option<Arc<ClientConfig>>,
    dial: Option<Arc<dyn Dial>>,
    keep_for: Duration,
    max_head: usize,
    resting: Mutex<Resting>,
}

#[derive(Default)]
struct Resting {
    /// The most recently used last: it is the warmest, and the others may age out.
    lines: Vec<(Line, Instant)>,
    keeper: bool,
}

/// One connection, held by one exchange at a time.
pub(crate) struct Line {
    sender: http1::SendRequest<Payload>,
    /// On the heap: a line is moved whenever it is taken and given back.
    driven: Box<Driven>,
    glance: Glance,
    pulled: Arc<AtomicBool>,
    /// What is left of the last response, whose answer was there before its end.
    pub(crate) tail: Option<Incoming>,
    /// The connection ended; nothing more can be read or written.
    over: bool,
    /// It has carried a request before.
    pub(crate) used: bool,
}

/// What whoever uses a line drives.
struct Driven {
    connection: http1::Connection<Socket, Payload>,
    /// The map of the last response's headers, emptied, for those of the next request.
    spare: HeaderMap,
}

impl std::fmt::Debug for Connections {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connections")
            .field("origin", &self.origin)
            .finish_non_exhaustive()
    }
}

impl Connections {
    pub(crate) fn new(
        origin: Origin,
        tls: Option<Arc<ClientConfig>>,
        keep_for: Duration,
        max_head: usize,
    ) -> Self {
        Self {
            origin,
            tls,
            dial: None,
            keep_for,
            max_head,
            resting: Mutex::default(),
        }
    }

    /// The same, with connections made by somebody else.
    pub(crate) fn made_by(mut self, dial: Option<Arc<dyn Dial>>) -> Self {
        self.dial = dial;
        self
    }

    /// Whether any connection rests here.
    pub(crate) fn is_resting(&self) -> bool {
        !self.resting.lock().lines.is_empty()
    }

    /// A kept connection that is still alive as far as we can tell, the warmest first.
    pub(crate) async fn take_kept(&self) -> Option<Line> {
        poll_fn(|cx| {
            loop {
                let Some((mut line, since)) = self.resting.lock().lines.pop() else {
                    return Poll::Ready(None);
                };
                if clock::now() < since + self.keep_for && line.is_still_alive(cx) {
                    return Poll::Ready(Some(line));
                }
            }
        })
        .await
    }

    /// A new connection.
    pub(crate) async fn open(&self) -> Result<Line, ConnectError> {
        let (socket, glance) =
            net::connect(&self.origin, self.tls.clone(), self.dial.as_deref()).await?;
        let (sender, connection) = http1::Builder::new()
            .max_header_size(self.max_head)
            .handshake(socket)
            .await
            .map_err(|error| ConnectError::Tcp(std::io::Error::other(error)))?;
        Ok(Line {
            sender,
            driven: Box::new(Driven {
                connection,
                spare: HeaderMap::new(),
            }),
            glance,
            pulled: Arc::default(),
            tail: None,
            over: false,
            used: false,
        })
    }

    /// How large the head of a response may be.
    pub(crate) fn max_head(&self) -> usize {
        self.max_head
    }

    /// Puts a connection to rest if it can carry another request, else closes it.
    pub(crate) async fn give_back(self: &Arc<Self>, mut line: Line) {
        let resting = line.tail.is_some() || poll_fn(|cx| Poll::Ready(line.is_alive(cx))).await;
        if !resting {
            return;
        }
        let mut resting = self.resting.lock();
        if resting.lines.len() >= MAX_RESTING {
            resting.lines.remove(0);
        }
        resting.lines.push((line, clock::now()));
        if !std::mem::replace(&mut resting.keeper, true) {
            drop(clock::spawn(
                "keep connections",
                keep(Arc::downgrade(self), self.keep_for),
            ));
        }
    }
}

/// Closes what has rested too long; ends when nothing rests any more.
async fn keep(connections: std::sync::Weak<Connections>, keep_for: Duration) {
    loop {
        clock::sleep(keep_for / 2).await;
        let Some(connections) = connections.upgrade() else {
            return;
        };
        let mut resting = connections.resting.lock();
        let now = clock::now();
        resting.lines.retain(|(_, since)| now < *since + keep_for);
        if resting.lines.is_empty() {
            resting.keeper = false;
            return;
        }
    }
}

impl Line {
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
        let (connection, over) = (&mut self.driven.connection, &mut self.over);
        poll_fn(|cx| {
            if let Poll::Ready(done) = response.as_mut().poll(cx) {
                return Poll::Ready(done);
            }
            if !*over && Pin::new(&mut *connection).poll(cx).is_ready() {
                *over = true;
            }
            response.as_mut().poll(cx)
        })
        .await
    }

    /// The next piece of a response's body.
    pub(crate) async fn piece(
        &mut self,
        body: &mut Incoming,
    ) -> Option<Result<Bytes, hyper::Error>> {
        poll_fn(|cx| {
            loop {
                if let Poll::Ready(frame) = Pin::new(&mut *body).poll_frame(cx) {
                    match frame {
                        // Trailers hold nothing for us.
                        Some(Ok(frame)) => match frame.into_data() {
                            Ok(data) => return Poll::Ready(Some(Ok(data))),
                            Err(_) => continue,
                        },
                        Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                        None => return Poll::Ready(None),
                    }
                }
                if self.over || self.drive(cx).is_pending() {
                    // One more look: driving may just have brought something.
                    return match Pin::new(&mut *body).poll_frame(cx) {
                        Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                            Ok(data) => Poll::Ready(Some(Ok(data))),
                            Err(_) => continue,
                        },
                        Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(error))),
                        Poll::Ready(None) => Poll::Ready(None),
                        Poll::Pending => Poll::Pending,
                    };
                }
            }
        })
        .await
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

    fn drive(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if Pin::new(&mut self.driven.connection).poll(cx).is_ready() {
            self.over = true;
            return Poll::Ready(());
        }
        Poll::Pending
    }

    /// Whether it can carry another request. A hint: the server may close it a moment later.
    fn is_alive(&mut self, cx: &mut Context<'_>) -> bool {
        !self.over && self.drive(cx).is_pending() && self.finish_tail(cx) && self.sender.is_ready()
    }

    /// The same after a rest: the kernel is asked, which knows of a close before the runtime does.
    fn is_still_alive(&mut self, cx: &mut Context<'_>) -> bool {
        let glance = self.glance.clone();
        glance.during(|| self.is_alive(cx))
    }

    /// Whether the last response has come to its end by now.
    fn finish_tail(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(mut tail) = self.tail.take() else {
            return true;
        };
        for _ in 0..MAX_TAIL {
            match Pin::new(&mut tail).poll_frame(cx) {
                Poll::Ready(None) => return self.drive(cx).is_pending(),
                Poll::Ready(Some(Ok(_))) => {},
                Poll::Ready(Some(Err(_))) => return false,
                Poll::Pending if self.drive(cx).is_ready() => return false,
                Poll::Pending => {
                    // Driving may just have brought the end.
                    let end = Pin::new(&mut tail).poll_frame(cx);
                    if !matches!(end, Poll::Ready(Some(Ok(_)))) {
                        return matches!(end, Poll::Ready(None)) && self.drive(cx).is_pending();
                    }
                },
            }
        }
        false
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
