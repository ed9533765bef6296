//! The one log line of each event.

use std::sync::Arc;
use std::time::Duration;

use tracing::Level;
use warmline_core::pool_key::RunId;

use super::log_throttle::LogThrottle;
use super::{Event, Fingerprint, SessionRef, ShortId};
use crate::metrics::AcquireOutcome;

/// Writes the line of an event. Callers can cause some lines as often as they like: the same line is
/// repeated once in a while, and each one is written for debugging.
pub(super) fn log_event(event: &Event, throttle: &LogThrottle) {
    let (mut level, mut line) = event.log_line();
    if level < Level::DEBUG
        && let (Some(server), Some(words)) = (line.server(), line.throttle)
    {
        match throttle.check((Arc::clone(server), line.kind, words)) {
            Some(0) => {},
            suppressed @ Some(_) => line.more = suppressed,
            None => level = Level::DEBUG,
        }
    }
    line.write(level);
}

/// Logs how a call got its session. One line per call, for debugging (A53).
pub fn log_acquire(
    how: AcquireOutcome,
    server: &str,
    run: Option<RunId>,
    generation: u32,
    session_id: Option<&str>,
) {
    tracing::debug!(
        target: "warmline::events",
        server,
        run = run.map(Fingerprint::from).map(display),
        generation,
        session = session_id.map(ShortId::from_session_id).map(display),
        how = how.as_str(),
        "session acquired"
    );
}

/// All fields that a line may have; those that are none are not written.
#[derive(Clone, Copy, Default)]
pub(super) struct LogLine<'a> {
    pub(super) kind: &'static str,
    pub(super) message: &'static str,
    pub(super) session: Option<&'a SessionRef>,
    pub(super) server: Option<&'a Arc<str>>,
    pub(super) identity: Option<Fingerprint>,
    pub(super) run: Option<Fingerprint>,
    pub(super) from: Option<u32>,
    pub(super) state_lost: Option<bool>,
    pub(super) how: Option<&'static str>,
    pub(super) reason: Option<&'static str>,
    pub(super) scope: Option<&'static str>,
    pub(super) attempt: Option<u32>,
    pub(super) sessions: Option<u32>,
    pub(super) method: Option<&'a str>,
    pub(super) took: Option<Duration>,
    pub(super) retry_in: Option<Duration>,
    pub(super) what: Option<&'a str>,
    pub(super) delivery: Option<&'static str>,
    pub(super) code: Option<&'static str>,
    /// What tells lines of this kind and server apart that may repeat.
    pub(super) throttle: Option<[&'static str; 2]>,
    /// How many lines were suppressed since the last one like it.
    pub(super) more: Option<u64>,
}

impl<'a> LogLine<'a> {
    pub(super) fn server(&self) -> Option<&'a Arc<str>> {
        self.server.or(self.session.map(|session| &session.server))
    }

    fn write(self, level: Level) {
        let session = self.session;
        let identity = session.and_then(|session| session.identity);
        let run = session.and_then(|session| session.run);
        let session_id = session.and_then(|session| session.session);
        macro_rules! at {
            ($level:expr) => {
                tracing::event!(
                    target: "warmline::events",
                    $level,
                    server = self.server().map(|server| &**server),
                    identity = self.identity.or(identity).map(display),
                    run = self.run.or(run).map(display),
                    generation = session.and_then(|session| session.generation),
                    session = session_id.map(display),
                    from = self.from,
                    state_lost = self.state_lost,
                    how = self.how,
                    reason = self.reason,
                    scope = self.scope,
                    attempt = self.attempt,
                    sessions = self.sessions,
                    method = self.method,
                    took_ms = self.took.map(millis),
                    retry_in_ms = self.retry_in.map(millis),
                    delivery = self.delivery,
                    code = self.code,
                    more = self.more,
                    what = self.what,
                    "{}",
                    self.message
                )
            };
        }
        match level {
            Level::ERROR => at!(Level::ERROR),
            Level::WARN => at!(Level::WARN),
            Level::INFO => at!(Level::INFO),
            _ => at!(Level::DEBUG),
        }
    }
}

pub(super) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
