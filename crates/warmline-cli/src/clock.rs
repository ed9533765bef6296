//! The clock of the command line: the only place that asks what time it is.

pub(crate) use tokio::time::Instant;

/// This moment.
#[expect(clippy::disallowed_methods, reason = "this is the clock")]
pub(crate) fn now() -> Instant {
    Instant::now()
}
