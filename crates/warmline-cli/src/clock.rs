//! The clock of the command line: the only place that asks what time it is, or waits for it.

use std::future::Future;
use std::time::Duration;

pub(crate) use tokio::time::Instant;

/// What a future gives, if it does so within that time.
pub(crate) async fn timeout<F: Future>(limit: Duration, future: F) -> Option<F::Output> {
    tokio::time::timeout(limit, future).await.ok()
}

/// This moment.
#[expect(clippy::disallowed_methods, reason = "this is the clock")]
pub(crate) fn now() -> Instant {
    Instant::now()
}
