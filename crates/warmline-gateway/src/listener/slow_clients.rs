//! Slow clients: deadlines for request heads, idle connections and unread responses, in the IO of one
//! client connection.
//!
//! Hyper has one timer for a request head and for the rest between two requests. Here they differ:
//! a client may rest much longer than it may take for a head. While a request is being answered,
//! the client waits for the gateway, and no read deadline runs.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;
use warmline_platform::clock::{self, Instant};

use super::connection::ConnectionRequests;
use super::framing::RequestFraming;

/// While a request is in flight, the timer runs at least this long.
const MIN_RECHECK_INTERVAL: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionTimeouts {
    pub(crate) head: Duration,
    pub(crate) idle: Duration,
    /// Before it reads the next bytes of a response.
    pub(crate) write: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LateClient {
    /// It began the head of a request and did not finish it.
    SendingHead,
    ReadingResponse,
}

/// Called when a client is late. What it returns is written before the connection ends.
type OnLateClient = Box<dyn FnMut(LateClient) -> Bytes + Send>;

/// A connection that ends when its client takes too long.
pub(crate) struct ConnectionIo<I> {
    inner: I,
    requests: Arc<ConnectionRequests>,
    framing: RequestFraming,
    timeouts: ConnectionTimeouts,
    on_late_client: OnLateClient,
    requests_seen: usize,
    /// Since when the head of a request is due.
    head_wait_started: Option<Instant>,
    has_head_bytes: bool,
    last_activity: Instant,
    /// Fires at the read deadline or before it, so that a request does not reset it.
    read_timer: Option<Pin<Box<Sleep>>>,
    write_timer: Option<Pin<Box<Sleep>>>,
}

impl<I> ConnectionIo<I> {
    /// A new connection: its first request is due within the head timeout.
    pub(crate) fn new(
        inner: I,
        requests: Arc<ConnectionRequests>,
        timeouts: ConnectionTimeouts,
        on_late_client: impl FnMut(LateClient) -> Bytes + Send + 'static,
    ) -> Self {
        let now = clock::now();
        Self {
            inner,
            requests,
            framing: RequestFraming::default(),
            timeouts,
            on_late_client: Box::new(on_late_client),
            requests_seen: 0,
            head_wait_started: Some(now),
            has_head_bytes: false,
            last_activity: now,
            read_timer: None,
            write_timer: None,
        }
    }

    fn note_new_requests(&mut self, now: Instant) {
        let started = self.requests.started.load(Ordering::Relaxed);
        if started != self.requests_seen {
            self.requests_seen = started;
            self.head_wait_started = None;
            self.has_head_bytes = false;
            self.last_activity = now;
        }
    }

    fn on_read(&mut self, bytes: &[u8]) {
        if let Some(number) = self.framing.feed(bytes) {
            self.requests
                .first_ambiguous
                .store(number, Ordering::Relaxed);
        }
        let now = clock::now();
        self.note_new_requests(now);
        self.last_activity = now;
        if self.requests.in_flight.load(Ordering::Relaxed) == 0 {
            self.head_wait_started.get_or_insert(now);
            self.has_head_bytes = true;
        }
    }

    fn poll_read_deadline(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let now = clock::now();
        self.note_new_requests(now);
        if self.requests.in_flight.load(Ordering::Relaxed) > 0 {
            // Nothing wakes this task when the response ends, so the timer goes on and looks then.
            let later = now + self.timeouts.idle.max(MIN_RECHECK_INTERVAL);
            let timer = self
                .read_timer
                .get_or_insert_with(|| Box::pin(clock::sleep_until(later)));
            while timer.as_mut().poll(cx).is_ready() {
                timer.as_mut().reset(later);
            }
            return Poll::Pending;
        }
        let deadline = match self.head_wait_started {
            Some(since) => since + self.timeouts.head,
            None => self.last_activity + self.timeouts.idle,
        };
        let timer = self
            .read_timer
            .get_or_insert_with(|| Box::pin(clock::sleep_until(deadline)));
        if timer.deadline() > deadline {
            timer.as_mut().reset(deadline);
        }
        loop {
            ready!(timer.as_mut().poll(cx));
            if timer.deadline() >= deadline {
                return Poll::Ready(());
            }
            timer.as_mut().reset(deadline);
        }
    }

    /// Passes the result of a write on, unless the client has read nothing for too long.
    fn poll_write_deadline<T>(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.write_timer = None;
            return written;
        }
        let timeout = self.timeouts.write;
        let timer = self
            .write_timer
            .get_or_insert_with(|| Box::pin(clock::sleep_until(clock::after(timeout))));
        ready!(timer.as_mut().poll(cx));
        (self.on_late_client)(LateClient::ReadingResponse);
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    fn on_write<T>(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let written = self.poll_write_deadline(cx, written);
        self.requests
            .has_unsent_bytes
            .store(true, Ordering::Relaxed);
        if written.is_ready() {
            self.last_activity = clock::now();
        }
        written
    }
}

impl<I: AsyncWrite + Unpin> ConnectionIo<I> {
    /// Writes the response to a late head. It fits into the buffer of the connection: no request is in
    /// flight, so nothing else is being written.
    fn poll_late_response(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let response = (self.on_late_client)(LateClient::SendingHead);
        ready!(Pin::new(&mut self.inner).poll_write(cx, &response))?;
        Pin::new(&mut self.inner).poll_flush(cx)
    }
}

impl<I: AsyncRead + AsyncWrite + Unpin> AsyncRead for ConnectionIo<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.inner).poll_read(cx, buffer);
        if read.is_pending() {
            ready!(self.poll_read_deadline(cx));
            if self.has_head_bytes {
                drop(self.poll_late_response(cx));
            }
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        let received = buffer.filled().get(before..).unwrap_or_default();
        if !received.is_empty() {
            self.on_read(received);
        }
        read
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for ConnectionIo<I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(cx, bytes);
        self.on_write(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write_vectored(cx, slices);
        self.on_write(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.inner).poll_flush(cx);
        let flushed = self.poll_write_deadline(cx, flushed);
        if flushed.is_ready() {
            // Hyper flushes once it has written everything.
            self.requests
                .has_unsent_bytes
                .store(false, Ordering::Relaxed);
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut_down = Pin::new(&mut self.inner).poll_shutdown(cx);
        self.poll_write_deadline(cx, shut_down)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    fn connection(
        requests: &Arc<ConnectionRequests>,
    ) -> (ConnectionIo<DuplexStream>, DuplexStream) {
        let (ours, theirs) = tokio::io::duplex(16);
        let timeouts = ConnectionTimeouts {
            head: seconds(15),
            idle: seconds(120),
            write: seconds(30),
        };
        let io = ConnectionIo::new(ours, Arc::clone(requests), timeouts, |_| Bytes::new());
        (io, theirs)
    }

    async fn read_one(ours: &mut ConnectionIo<DuplexStream>, theirs: &mut DuplexStream) {
        theirs.write_u8(b'P').await.unwrap();
        ours.read_u8().await.unwrap();
    }

    async fn time_to_timeout(ours: &mut ConnectionIo<DuplexStream>) -> Duration {
        let started = clock::now();
        let error = ours.read_u8().await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        started.elapsed()
    }

    /// reliability F39: a client that reads nothing is disconnected, one that reads slowly is not.
    #[tokio::test(start_paused = true)]
    async fn only_a_client_that_reads_nothing_is_disconnected() {
        let (mut ours, mut theirs) = connection(&Arc::default());
        let reading = clock::spawn("reading", async move {
            let mut part = [0; 16];
            for _ in 0..10 {
                tokio::time::sleep(seconds(29)).await;
                theirs.read_exact(&mut part).await.unwrap();
            }
            theirs
        });
        ours.write_all(&[7; 160]).await.unwrap();
        let theirs = reading.await.unwrap();
        let started = clock::now();
        let error = ours.write_all(&[7; 160]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(started.elapsed() >= seconds(30));
        drop(theirs);
    }

    /// reliability F83: an unfinished head times out however slowly its bytes arrive; an idle
    /// connection lives longer.
    #[tokio::test(start_paused = true)]
    async fn a_slow_head_times_out_and_an_idle_connection_does_not() {
        let requests = Arc::default();
        let (mut ours, mut theirs) = connection(&requests);
        for _ in 0..2 {
            read_one(&mut ours, &mut theirs).await;
            clock::sleep(seconds(5)).await;
        }
        assert_eq!(time_to_timeout(&mut ours).await, seconds(5));

        let (mut ours, mut theirs) = connection(&requests);
        read_one(&mut ours, &mut theirs).await;
        let request = requests.begin_request();
        let answering = clock::timeout(seconds(3_600), ours.read_u8()).await;
        assert!(answering.is_err(), "a client that waits for us stays");
        ours.write_u8(b'O').await.unwrap();
        drop(request);
        let idle = clock::timeout(seconds(119), ours.read_u8()).await;
        assert!(idle.is_err(), "an idle connection stays");
        read_one(&mut ours, &mut theirs).await;
        assert_eq!(time_to_timeout(&mut ours).await, seconds(15));
    }

    /// Hyper does not read again when a response ends: an idle connection is closed all the same
    /// after a response that took longer than a head may.
    #[tokio::test(start_paused = true)]
    async fn an_idle_connection_is_closed_after_a_slow_response() {
        let requests = Arc::default();
        let (mut ours, mut theirs) = connection(&requests);
        read_one(&mut ours, &mut theirs).await;
        let request = requests.begin_request();
        let started = clock::now();
        let idle = clock::spawn("idle", async move { ours.read_u8().await });
        clock::sleep(seconds(100)).await;
        drop(request);
        assert!(idle.await.unwrap().is_err());
        let took = started.elapsed();
        assert!(took <= seconds(240), "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_connection_is_closed() {
        let requests = Arc::default();
        let (mut ours, _theirs) = connection(&requests);
        assert_eq!(time_to_timeout(&mut ours).await, seconds(15));
        let (mut ours, mut theirs) = connection(&requests);
        read_one(&mut ours, &mut theirs).await;
        drop(requests.begin_request());
        assert_eq!(time_to_timeout(&mut ours).await, seconds(120));
    }
}
