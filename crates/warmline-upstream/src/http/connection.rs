//! One connection, held by one exchange at a time and driven by it.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use bytes::Bytes;
use futures_util::task::AtomicWaker;
use http::{HeaderMap, Request, Response};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use tokio::runtime::Id;

use warmline_platform::clock;
use warmline_platform::net::{ReadControl, Socket};

/// A header map with more capacity is not reused.
const MAX_SPARE_HEADERS: usize = 48;
/// How many chunks a stream may bring after its reply before it is closed.
const MAX_DRAIN_CHUNKS: usize = 16;
/// How often a connection is driven in a row while it wakes itself.
const MAX_DRIVE_ROUNDS: usize = 4;

pub(crate) struct Connection {
    sender: http1::SendRequest<RequestBody>,
    /// On the heap: a connection is moved whenever it is taken or released.
    driver: Box<ConnectionDriver>,
    wake_filter: WakeFilter,
    body_pulled: Arc<AtomicBool>,
    /// The rest of the last response, whose reply came before its end.
    pub(crate) undrained_body: Option<Incoming>,
    pub(crate) was_used: bool,
    /// The runtime that it was opened in, which watches its socket.
    pub(super) runtime: Option<Id>,
}

struct ConnectionDriver {
    connection: http1::Connection<Socket, RequestBody>,
    reads: ReadControl,
    max_head: usize,
    is_closed: bool,
    /// The emptied header map of the last response, for the next request.
    spare_headers: HeaderMap,
}

impl Connection {
    pub(super) fn new(
        (sender, connection): (
            http1::SendRequest<RequestBody>,
            http1::Connection<Socket, RequestBody>,
        ),
        reads: ReadControl,
        max_head: usize,
    ) -> Self {
        reads.set_manual_ack();
        Self {
            sender,
            driver: Box::new(ConnectionDriver {
                connection,
                reads,
                max_head,
                is_closed: false,
                spare_headers: HeaderMap::new(),
            }),
            wake_filter: WakeFilter::default(),
            body_pulled: Arc::default(),
            undrained_body: None,
            was_used: false,
            runtime: clock::current_runtime_id(),
        }
    }

    /// Sends a request and waits for the head of the response.
    ///
    /// # Cancel safety
    /// Dropping it abandons the request; [`Connection::was_body_pulled`] tells whether it may have left us.
    pub(crate) async fn send(
        &mut self,
        mut head: Request<()>,
        body: Bytes,
    ) -> Result<Response<Incoming>, hyper::Error> {
        // Nobody pulls an empty body: without a body there is no witness.
        self.body_pulled.store(body.is_empty(), Ordering::Relaxed);
        self.was_used = true;
        let payload = RequestBody {
            bytes: Some(body),
            body_pulled: Arc::clone(&self.body_pulled),
        };
        *head.version_mut() = http::Version::HTTP_11;
        let mut response = pin!(self.sender.send_request(head.map(|()| payload)));
        let (driven, waking) = (&mut self.driver, &self.wake_filter);
        driven.reads.await_head(driven.max_head);
        let came =
            poll_fn(|cx| driven.poll_until(waking, cx, |cx| response.as_mut().poll(cx))).await;
        driven.reads.head_received();
        came
    }

    pub(crate) async fn next_chunk(
        &mut self,
        body: &mut Incoming,
    ) -> Option<Result<Bytes, hyper::Error>> {
        let (driven, waking) = (&mut self.driver, &self.wake_filter);
        poll_fn(|cx| driven.poll_until(waking, cx, |cx| poll_data(body, cx))).await
    }

    pub(crate) fn recycle_headers(&mut self, mut map: HeaderMap) {
        if map.capacity() <= MAX_SPARE_HEADERS {
            map.clear();
            self.driver.spare_headers = map;
        }
    }

    pub(crate) fn take_headers(&mut self) -> HeaderMap {
        std::mem::take(&mut self.driver.spare_headers)
    }

    /// Whether the last request's body was pulled: if not, at most its head has left.
    pub(crate) fn was_body_pulled(&self) -> bool {
        self.body_pulled.load(Ordering::Relaxed)
    }

    /// Whether it can carry another request. A hint: the server may close it a moment later.
    pub(super) fn state(&mut self) -> ConnectionState {
        // Nobody waits for this, so nobody is woken.
        let cx = &mut Context::from_waker(Waker::noop());
        let state = match self.undrained_body.take() {
            None => ConnectionState::Ready,
            Some(tail) => self.poll_drained(tail, cx),
        };
        match state {
            ConnectionState::Ready
                if self.driver.drive_while_open(cx) && self.sender.is_ready() =>
            {
                ConnectionState::Ready
            },
            ConnectionState::Draining => ConnectionState::Draining,
            ConnectionState::Ready | ConnectionState::Closed => ConnectionState::Closed,
        }
    }

    /// The same, asking the kernel, which knows of a close before the runtime does.
    pub(super) fn state_after_idle(&mut self) -> ConnectionState {
        let reads = self.driver.reads.clone();
        reads.with_kernel_poll(|| self.state())
    }

    fn poll_drained(&mut self, mut tail: Incoming, cx: &mut Context<'_>) -> ConnectionState {
        for _ in 0..MAX_DRAIN_CHUNKS {
            let mut next = poll_data(&mut tail, cx);
            if next.is_pending() && self.driver.drive_while_open(cx) {
                next = poll_data(&mut tail, cx);
            }
            match next {
                Poll::Ready(None) => return ConnectionState::Ready,
                Poll::Ready(Some(Ok(_))) => {},
                Poll::Pending if !self.driver.is_closed => {
                    self.undrained_body = Some(tail);
                    return ConnectionState::Draining;
                },
                Poll::Ready(Some(Err(_))) | Poll::Pending => return ConnectionState::Closed,
            }
        }
        ConnectionState::Closed
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectionState {
    /// It can carry another request.
    Ready,
    /// The last response, whose reply was read, has not ended yet.
    Draining,
    /// It is closed, or the last response does not end.
    Closed,
}

impl ConnectionDriver {
    /// Drives the connection until `seen` is ready. What was read is acknowledged if more is needed:
    /// the server may wait for that before it sends the rest.
    fn poll_until<T>(
        &mut self,
        waking: &WakeFilter,
        cx: &mut Context<'_>,
        mut seen: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        let ours = &mut waking.attach_task(cx);
        if let Poll::Ready(seen) = seen(ours) {
            return Poll::Ready(seen);
        }
        for _ in 0..MAX_DRIVE_ROUNDS {
            waking.begin_poll();
            self.drive(ours);
            let mut found = seen(ours);
            if found.is_pending() && self.reads.is_ack_pending() {
                let reads = self.reads.clone();
                reads.with_ack(|| self.drive(ours));
                found = seen(ours);
            }
            if found.is_ready() || waking.may_sleep() {
                return found;
            }
        }
        // Other tasks run: one of them may be what is needed.
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn drive_while_open(&mut self, cx: &mut Context<'_>) -> bool {
        self.drive(cx);
        !self.is_closed
    }

    fn drive(&mut self, cx: &mut Context<'_>) {
        self.reads.reset_turn_budget();
        // The response reports the error, too.
        self.is_closed = self.is_closed || Pin::new(&mut self.connection).poll(cx).is_ready();
    }
}

/// The next data of a body. Trailers are skipped.
fn poll_data(
    body: &mut Incoming,
    cx: &mut Context<'_>,
) -> Poll<Option<Result<Bytes, hyper::Error>>> {
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

/// The body of a request, and the witness whether it was pulled.
pub(crate) struct RequestBody {
    bytes: Option<Bytes>,
    body_pulled: Arc<AtomicBool>,
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.body_pulled.store(true, Ordering::Relaxed);
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

/// Keeps a task that drives a connection from waking itself.
///
/// hyper makes a request, its connection and its response body for separate tasks, which wake each
/// other. Here one task drives all of them, so most of these wakes are about what it polls anyway.
/// Each would cost a turn of the runtime, several per call.
struct WakeFilter {
    shared: Arc<WakeState>,
    waker: Waker,
}

#[derive(Default)]
struct WakeState {
    task: AtomicWaker,
    is_asleep: AtomicBool,
    was_woken: AtomicBool,
}

impl Default for WakeFilter {
    fn default() -> Self {
        let shared = Arc::<WakeState>::default();
        let waker = Waker::from(Arc::clone(&shared));
        Self { shared, waker }
    }
}

impl WakeFilter {
    /// Registers the task, and returns the context to poll the connection with.
    fn attach_task(&self, task: &Context<'_>) -> Context<'_> {
        self.shared.task.register(task.waker());
        self.shared.is_asleep.store(false, Ordering::SeqCst);
        Context::from_waker(&self.waker)
    }

    /// The poll that begins sees all that happened before.
    fn begin_poll(&self) {
        self.shared.is_asleep.store(false, Ordering::SeqCst);
        self.shared.was_woken.store(false, Ordering::SeqCst);
    }

    /// Whether nothing happened since the poll began. What happens from now on wakes the task.
    fn may_sleep(&self) -> bool {
        // In this order: the second line sees what happens before the first, and what happens after
        // it wakes the task.
        self.shared.is_asleep.store(true, Ordering::SeqCst);
        !self.shared.was_woken.load(Ordering::SeqCst)
    }
}

impl Wake for WakeState {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.was_woken.store(true, Ordering::SeqCst);
        if self.is_asleep.load(Ordering::SeqCst) {
            self.task.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[derive(Default)]
    struct Counting(AtomicUsize);

    impl Wake for Counting {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// What happens while the task looks is told to it at the end of its look, and what happens
    /// while it sleeps wakes it.
    #[test]
    fn a_task_is_woken_only_while_it_sleeps_and_misses_nothing() {
        let counted = Arc::<Counting>::default();
        let task = Waker::from(Arc::clone(&counted));
        let wakes = || counted.0.load(Ordering::SeqCst);
        let waking = WakeFilter::default();
        let ours = waking
            .attach_task(&Context::from_waker(&task))
            .waker()
            .clone();

        ours.wake_by_ref();
        waking.begin_poll();
        assert!(waking.may_sleep(), "the look has seen what came before it");
        waking.begin_poll();
        ours.wake_by_ref();
        assert!(!waking.may_sleep(), "something happened during the look");
        assert_eq!(wakes(), 0, "the task was looking all the time");
        waking.begin_poll();
        assert!(waking.may_sleep());
        ours.wake_by_ref();
        assert_eq!(wakes(), 1, "it slept");
    }

    /// The same from another thread, at any moment: a task never sleeps on what has happened.
    #[test]
    fn a_wake_at_any_moment_is_seen_or_wakes_the_task() {
        for _ in 0..2000 {
            let counted = Arc::<Counting>::default();
            let waking = WakeFilter::default();
            let task = Waker::from(Arc::clone(&counted));
            let ours = waking
                .attach_task(&Context::from_waker(&task))
                .waker()
                .clone();
            waking.begin_poll();
            let other = std::thread::spawn(move || ours.wake());
            let slept = waking.may_sleep();
            other.join().unwrap();
            let woken = counted.0.load(Ordering::SeqCst) > 0;
            assert!(!slept || woken, "it slept, and nobody woke it");
        }
    }
}
