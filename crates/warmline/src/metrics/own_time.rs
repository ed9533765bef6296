//! How long our own code ran for something, all waiting apart.
//!
//! Told by: the way of a call, which runs inside one. It reads the clock twice each time it goes on;
//! it takes no lock and holds nothing on the heap. What other tasks do for a call, and the time
//! until the runtime comes to go on with it, is not in it.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::clock;

/// A future that comes with how long it ran itself.
#[derive(Debug)]
pub(crate) struct OwnTime<'a, F> {
    future: Pin<&'a mut F>,
    ran: Duration,
}

impl<'a, F: Future> OwnTime<'a, F> {
    pub(crate) const fn of(future: Pin<&'a mut F>) -> Self {
        Self {
            future,
            ran: Duration::ZERO,
        }
    }
}

impl<F: Future> Future for OwnTime<'_, F> {
    type Output = (F::Output, Duration);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let began = clock::now();
        let polled = self.future.as_mut().poll(context);
        self.ran += clock::now().saturating_duration_since(began);
        polled.map(|output| (output, self.ran))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;

    #[tokio::test(start_paused = true)]
    async fn what_is_waited_for_is_not_counted_and_what_runs_is() {
        let work = async {
            tokio::time::advance(Duration::from_millis(2)).await;
            clock::sleep(Duration::from_secs(60)).await;
            "done"
        };
        let began = clock::now();
        let (said, ran) = OwnTime::of(pin!(work)).await;
        assert_eq!(said, "done");
        assert!(began.elapsed() >= Duration::from_secs(60));
        assert_eq!(ran, Duration::from_millis(2));
    }
}
