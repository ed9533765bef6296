//! A clock without time: it goes on by being asked, and a limit is over after some turns, so that
//! it may be over at any point of what it limits.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

/// A moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Instant(Duration);

thread_local! {
    static NOW: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// Waits that are longer than this never end by themselves.
const FOR_EVER: Duration = Duration::from_secs(3_600);

impl Instant {
    pub(crate) fn saturating_duration_since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl std::ops::Add<Duration> for Instant {
    type Output = Self;

    fn add(self, pause: Duration) -> Self {
        Self(self.0.saturating_add(pause))
    }
}

/// A new schedule begins.
pub(crate) fn begin() {
    NOW.set(Duration::from_secs(1_000));
}

/// Time goes by.
pub(crate) fn advance(pause: Duration) {
    NOW.set(NOW.get() + pause);
}

pub(crate) fn now() -> Instant {
    advance(Duration::from_nanos(100));
    Instant(NOW.get())
}

pub(crate) fn after(pause: Duration) -> Instant {
    now() + pause
}

/// The time for it was over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Elapsed;

/// Runs a future until it is done, or for as many turns as the limit has milliseconds.
pub(crate) async fn timeout_at<F: Future>(by: Instant, future: F) -> Result<F::Output, Elapsed> {
    let limit = by.saturating_duration_since(now());
    let mut turns = limit.as_millis();
    let mut future = pin!(future);
    poll_fn(|context| {
        if let Poll::Ready(output) = future.as_mut().poll(context) {
            return Poll::Ready(Ok(output));
        }
        if limit >= FOR_EVER {
            return Poll::Pending;
        }
        if turns == 0 {
            advance(by.saturating_duration_since(now()));
            return Poll::Ready(Err(Elapsed));
        }
        turns -= 1;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await
}

pub(crate) async fn yield_now() {
    shuttle::future::yield_now().await;
}

pub(crate) fn spawn_if_running<F>(_: &'static str, future: F)
where
    F: Future<Output = ()> + Send + 'static,
{
    drop(shuttle::future::spawn(future));
}

/// Nothing here runs anywhere else.
#[derive(Clone, Debug)]
pub(crate) enum RuntimeHandle {}

impl RuntimeHandle {
    pub(crate) fn current() -> Option<Self> {
        None
    }

    pub(crate) fn is_current(&self) -> bool {
        match *self {}
    }

    pub(crate) async fn wait_until_stalled(&self) {
        match *self {}
    }
}
