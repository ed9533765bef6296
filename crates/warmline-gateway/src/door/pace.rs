//! The pace of a connection: a head that was begun must come whole in time, and a connection on
//! which nothing happens is closed.
//!
//! Used by: [`door`](crate::door), around every connection. Between two requests a client may rest
//! for much longer than it may take for the head of one: so the two are told apart here, where
//! bytes come in. While a request is answered its client waits for us, and nothing is counted.

use std::convert::Infallible;
use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;
use warmline::clock::{self, Instant};

use super::Limits;
use super::framing::Framing;
use super::leaving::Leaving;
use crate::body::Body;
use crate::flow::Flow;

/// Requests of one connection: how many came, and how many have no whole answer yet.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    came: AtomicUsize,
    open: AtomicUsize,
    /// Whether one was refused before its head could be read.
    refused: AtomicBool,
    /// The first that is not to be believed, where there is one.
    doubtful: AtomicUsize,
    /// What is being answered with, where that is a stream.
    flow: Mutex<Weak<Mutex<Flow>>>,
    /// Whether something was written that the other end did not take yet.
    unsent: AtomicBool,
    /// Whether what is written is no answer: news for as long as the connection lasts, or what is
    /// told of a call that was cut.
    is_no_answer: AtomicBool,
}

/// What the bytes of a request say of where it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bounds {
    /// All readers agree.
    Clear,
    /// Two readers could see two requests.
    Doubtful,
}

impl Turns {
    /// The head of a request came whole.
    pub(crate) fn begin(self: &Arc<Self>) -> (Turn, Bounds) {
        let number = self.came.fetch_add(1, Ordering::Relaxed) + 1;
        self.open.fetch_add(1, Ordering::Relaxed);
        let doubtful = self.doubtful.load(Ordering::Relaxed);
        let bounds = match doubtful {
            0 => Bounds::Clear,
            first if number < first => Bounds::Clear,
            _ => Bounds::Doubtful,
        };
        (Turn(Arc::clone(self)), bounds)
    }

    /// A request is answered with this.
    pub(crate) fn answer(&self, body: Body, turn: Turn, leaving: &Leaving) -> Answering {
        let is_news = match &body {
            Body::Events(flow) => {
                *self.flow.lock() = Arc::downgrade(flow);
                !flow.lock().answers()
            },
            Body::Lines(_) | Body::Told(_) => true,
            Body::Empty | Body::Whole(_) => false,
        };
        let is_no_answer = is_news || leaving.calls_are_cut();
        self.is_no_answer.store(is_no_answer, Ordering::Relaxed);
        Answering { body, _turn: turn }
    }

    /// Lets the call behind an answer go on. Its body is not asked while its client takes nothing.
    pub(crate) fn drive(&self, cx: &mut Context<'_>, leaving: &Leaving) {
        let flow = self.flow.lock().upgrade();
        if let Some(flow) = flow
            && flow.lock().drive(cx)
            && leaving.calls_are_cut()
        {
            self.is_no_answer.store(true, Ordering::Relaxed);
        }
    }

    /// Whether the client has yet to take an answer, or some of it. News that it does not take are
    /// none, nor is what a call says that is under way.
    pub(crate) fn has_an_answer_to_leave(&self) -> bool {
        if !self.unsent.load(Ordering::Relaxed) || self.is_no_answer.load(Ordering::Relaxed) {
            return false;
        }
        let flow = self.flow.lock().upgrade();
        flow.is_none_or(|flow| flow.lock().lane().is_over())
    }

    /// The head of a request could not be read, and its client was told.
    pub(crate) fn refuse(&self) {
        self.refused.store(true, Ordering::Relaxed);
    }

    pub(crate) fn was_refused(&self) -> bool {
        self.refused.load(Ordering::Relaxed)
    }
}

/// A request whose answer is not whole yet.
#[derive(Debug)]
pub(crate) struct Turn(Arc<Turns>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What goes back for a request; it is open until all of it was taken.
pub(crate) struct Answering {
    body: Body,
    _turn: Turn,
}

impl http_body::Body for Answering {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// How often it is looked, at the most, whether an answer is whole.
const A_WHILE: Duration = Duration::from_millis(100);

/// The head of a request was begun, and did not come whole in time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlowHead;

impl std::fmt::Display for SlowHead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the head of a request did not come in time")
    }
}

impl std::error::Error for SlowHead {}

/// A connection that ends when its client takes too long.
pub(crate) struct Paced<I> {
    inner: I,
    turns: Arc<Turns>,
    framing: Framing,
    head_within: Duration,
    idle_for: Duration,
    /// How many requests had come when it was last looked.
    seen: usize,
    /// Since when the head of a request is waited for.
    head_since: Option<Instant>,
    /// Whether bytes of it came.
    has_begun: bool,
    /// When something was last read or written.
    last: Instant,
    /// Goes off at the end or before; it is not set anew with every request.
    timer: Option<Pin<Box<Sleep>>>,
}

impl<I> Paced<I> {
    /// A connection that was just taken: its client wanted something, and says so soon.
    pub(crate) fn new(inner: I, turns: Arc<Turns>, limits: &Limits) -> Self {
        let now = clock::now();
        Self {
            inner,
            turns,
            framing: Framing::default(),
            head_within: limits.head_within,
            idle_for: limits.idle_for,
            seen: 0,
            head_since: Some(now),
            has_begun: false,
            last: now,
            timer: None,
        }
    }

    /// A head that was waited for has come whole.
    fn look(&mut self, now: Instant) {
        let came = self.turns.came.load(Ordering::Relaxed);
        if came != self.seen {
            self.seen = came;
            self.head_since = None;
            self.has_begun = false;
            self.last = now;
        }
    }

    fn is_answering(&self) -> bool {
        self.turns.open.load(Ordering::Relaxed) > 0
    }

    /// Bytes came.
    fn heard(&mut self, bytes: &[u8]) {
        if let Some(number) = self.framing.take(bytes) {
            self.turns.doubtful.store(number, Ordering::Relaxed);
        }
        let now = clock::now();
        self.look(now);
        self.last = now;
        if !self.is_answering() {
            self.head_since.get_or_insert(now);
            self.has_begun = true;
        }
    }

    /// Nothing came: an error when that has been so for too long.
    fn waited(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let now = clock::now();
        self.look(now);
        if self.is_answering() {
            // Nobody wakes us when the answer is whole: the timer goes on, and looks then.
            let later = now + self.idle_for.max(A_WHILE);
            let timer = self
                .timer
                .get_or_insert_with(|| Box::pin(clock::sleep_until(later)));
            while timer.as_mut().poll(cx).is_ready() {
                timer.as_mut().reset(later);
            }
            return Poll::Pending;
        }
        let end = match self.head_since {
            Some(since) => since + self.head_within,
            None => self.last + self.idle_for,
        };
        let timer = self
            .timer
            .get_or_insert_with(|| Box::pin(clock::sleep_until(end)));
        if timer.deadline() > end {
            timer.as_mut().reset(end);
        }
        loop {
            ready!(timer.as_mut().poll(cx));
            if timer.deadline() >= end {
                let late = match self.has_begun {
                    true => io::Error::new(io::ErrorKind::TimedOut, SlowHead),
                    false => io::ErrorKind::TimedOut.into(),
                };
                return Poll::Ready(Err(late));
            }
            timer.as_mut().reset(end);
        }
    }

    fn told(&mut self, written: bool) {
        self.turns.unsent.store(true, Ordering::Relaxed);
        if written {
            self.last = clock::now();
        }
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for Paced<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.inner).poll_read(cx, buffer);
        if read.is_pending() {
            return self.waited(cx);
        }
        let came = buffer.filled().get(before..).unwrap_or_default();
        if !came.is_empty() {
            self.heard(came);
        }
        read
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for Paced<I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(cx, bytes);
        self.told(written.is_ready());
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write_vectored(cx, pieces);
        self.told(written.is_ready());
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.inner).poll_flush(cx);
        if flushed.is_ready() {
            // It is asked for when all that was to be written is.
            self.turns.unsent.store(false, Ordering::Relaxed);
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

    fn paced(turns: &Arc<Turns>) -> (Paced<DuplexStream>, DuplexStream) {
        let (ours, theirs) = tokio::io::duplex(64);
        let limits = Limits {
            head_within: Duration::from_secs(15),
            idle_for: Duration::from_secs(120),
            ..Limits::default()
        };
        (Paced::new(ours, Arc::clone(turns), &limits), theirs)
    }

    async fn cut_after(ours: &mut Paced<DuplexStream>) -> Duration {
        let begun = clock::now();
        let error = ours.read_u8().await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        begun.elapsed()
    }

    /// reliability O1: a stream of news that nobody reads is no answer that a stop waits for.
    #[tokio::test]
    async fn news_that_are_not_read_are_no_answer() {
        use crate::flow::{Accepts, Leaving as Leaves, Manner};
        use crate::lane::{Keep, Lane};
        let (turns, leaving) = (Arc::new(Turns::default()), Leaving::default());
        turns.unsent.store(true, Ordering::Relaxed);
        let manner = || Manner {
            accepts: Accepts::Events,
            leaving: Leaves::Cancels,
            stream: None,
        };
        let lane = Arc::new(Lane::new(Keep::Nothing));
        lane.end(None);
        let standing = Flow::after(0, lane, manner()).response().into_body();
        let news = turns.answer(standing, turns.begin().0, &leaving);
        assert!(!turns.has_an_answer_to_leave());
        drop(news);
        let whole = Body::Whole(Some(Bytes::from_static(b"{}")));
        let answer = turns.answer(whole, turns.begin().0, &leaving);
        assert!(turns.has_an_answer_to_leave());
        drop(answer);
    }

    /// reliability F83: a head that does not come whole is cut after its time, however slowly its
    /// bytes come; a connection between two requests lives for longer.
    #[tokio::test(start_paused = true)]
    async fn a_slow_head_is_cut_and_a_resting_connection_is_not() {
        let turns = Arc::new(Turns::default());
        let (mut ours, mut theirs) = paced(&turns);
        for _ in 0..2 {
            theirs.write_u8(b'P').await.unwrap();
            ours.read_u8().await.unwrap();
            clock::sleep(Duration::from_secs(5)).await;
        }
        assert_eq!(cut_after(&mut ours).await, Duration::from_secs(5));

        let (mut ours, mut theirs) = paced(&turns);
        theirs.write_u8(b'P').await.unwrap();
        ours.read_u8().await.unwrap();
        let (turn, _) = turns.begin();
        let answering = clock::timeout(Duration::from_secs(3_600), ours.read_u8()).await;
        assert!(answering.is_err(), "who waits for us is not cut");
        ours.write_u8(b'O').await.unwrap();
        drop(turn);
        let resting = clock::timeout(Duration::from_secs(119), ours.read_u8()).await;
        assert!(resting.is_err(), "it rests");
        theirs.write_u8(b'P').await.unwrap();
        ours.read_u8().await.unwrap();
        assert_eq!(cut_after(&mut ours).await, Duration::from_secs(15));
    }

    /// The library of HTTP does not read again once an answer is whole: a connection whose answer
    /// took longer than a head may is closed as well when it rests.
    #[tokio::test(start_paused = true)]
    async fn a_connection_rests_for_no_longer_after_a_slow_answer() {
        let turns = Arc::new(Turns::default());
        let (mut ours, mut theirs) = paced(&turns);
        theirs.write_u8(b'P').await.unwrap();
        ours.read_u8().await.unwrap();
        let (turn, _) = turns.begin();
        let begun = clock::now();
        let resting = clock::spawn("rests", async move { ours.read_u8().await });
        clock::sleep(Duration::from_secs(100)).await;
        drop(turn);
        assert!(resting.await.unwrap().is_err());
        assert!(
            begun.elapsed() <= Duration::from_secs(240),
            "{:?}",
            begun.elapsed()
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_on_which_nothing_happens_is_closed() {
        let turns = Arc::new(Turns::default());
        let (mut ours, _theirs) = paced(&turns);
        assert_eq!(cut_after(&mut ours).await, Duration::from_secs(15));
        let (mut ours, mut theirs) = paced(&turns);
        theirs.write_u8(b'P').await.unwrap();
        ours.read_u8().await.unwrap();
        drop(turns.begin());
        assert_eq!(cut_after(&mut ours).await, Duration::from_secs(120));
    }
}
