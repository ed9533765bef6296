//! Where an event goes: to its one log line, and to subscribers through a bounded channel that never
//! waits. A slow subscriber loses the oldest events and learns how many; others do not notice.
//!
//! The same line is written at most once in ten seconds per server, with the number of those that were
//! suppressed (reliability O25).

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::stream::{self, Stream};
use tokio::sync::broadcast;
use tracing::Level;

use super::{Event, Fingerprint, SessionRef};
use warmline_platform::clock::{self, Instant};
use warmline_platform::lock::Mutex;

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

/// The same line is not repeated for this long.
const REPEAT_INTERVAL: Duration = Duration::from_secs(10);
/// At most this many lines are tracked; words and servers are few.
const MAX_TRACKED_LINES: usize = 4_096;

#[derive(Debug, Default)]
pub(super) struct LogThrottle(Mutex<HashMap<RepeatKey, ThrottledLine>>);

/// A line: its server, its kind, and two words.
type RepeatKey = (Arc<str>, &'static str, [&'static str; 2]);

#[derive(Clone, Copy, Debug)]
struct ThrottledLine {
    written_at: Instant,
    suppressed: u64,
}

impl LogThrottle {
    /// The number of lines that were suppressed before this one; none if it is suppressed too, for it
    /// was written a moment ago.
    pub(super) fn check(&self, about: RepeatKey) -> Option<u64> {
        let now = clock::now();
        let mut known = self.0.lock();
        if known.len() >= MAX_TRACKED_LINES {
            known
                .retain(|_, told| now.saturating_duration_since(told.written_at) < REPEAT_INTERVAL);
        }
        match known.get_mut(&about) {
            Some(told) if now.saturating_duration_since(told.written_at) < REPEAT_INTERVAL => {
                told.suppressed += 1;
                None
            },
            Some(told) => {
                told.written_at = now;
                Some(std::mem::take(&mut told.suppressed))
            },
            None => {
                if known.len() < MAX_TRACKED_LINES {
                    let told = ThrottledLine {
                        written_at: now,
                        suppressed: 0,
                    };
                    known.insert(about, told);
                }
                Some(0)
            },
        }
    }
}

const CHANNEL_CAPACITY: usize = 1024;

/// Emits events. Clones are cheap and share everything.
#[derive(Clone, Debug, Default)]
pub struct Events(Arc<EventsInner>);

#[derive(Debug, Default)]
struct EventsInner {
    throttle: LogThrottle,
    /// Made for the first subscriber, so that events without subscribers cost nothing.
    channel: OnceLock<broadcast::Sender<Event>>,
}

impl Events {
    /// Logs an event once, and sends it to all subscribers.
    pub fn emit(&self, event: Event) {
        log_event(&event, &self.0.throttle);
        if let Some(channel) = self.0.channel.get() {
            // It fails only without subscribers.
            drop(channel.send(event));
        }
    }

    /// Receives every event from now on.
    pub fn subscribe(&self) -> EventSubscription {
        let make = || broadcast::channel(CHANNEL_CAPACITY).0;
        EventSubscription(self.0.channel.get_or_init(make).subscribe())
    }
}

/// A subscriber of events.
#[derive(Debug)]
pub struct EventSubscription(broadcast::Receiver<Event>);

/// An item that a subscriber receives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventItem {
    /// An event.
    Event(Event),
    /// The number of events that were lost: the subscriber was too slow.
    Missed(u64),
}

impl EventSubscription {
    /// The next event; none once the engine is gone. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<EventItem> {
        match self.0.recv().await {
            Ok(event) => Some(EventItem::Event(event)),
            Err(broadcast::error::RecvError::Lagged(missed)) => Some(EventItem::Missed(missed)),
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }

    /// The events as a stream.
    pub fn into_stream(self) -> impl Stream<Item = EventItem> + Send {
        stream::unfold(self, |mut subscription| async {
            let heard = subscription.next().await?;
            Some((heard, subscription))
        })
    }
}

#[cfg(test)]
impl Events {
    pub(super) fn has_no_channel(&self) -> bool {
        self.0.channel.get().is_none()
    }
}

#[cfg(test)]
impl EventSubscription {
    pub(super) fn has_nothing(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// reliability O25: the same once in ten seconds, with a count; another one at once.
    #[tokio::test(start_paused = true)]
    async fn what_happens_often_is_told_once_in_a_while() {
        let often = LogThrottle::default();
        let one = || (Arc::from("one"), "call-failed", ["unknown", "timeout"]);
        assert_eq!(often.check(one()), Some(0));
        for _ in 0..100 {
            assert_eq!(often.check(one()), None);
        }
        assert_eq!(
            often.check((Arc::from("two"), "call-failed", ["unknown", "timeout"])),
            Some(0)
        );
        clock::sleep(REPEAT_INTERVAL).await;
        assert_eq!(often.check(one()), Some(100));
        assert_eq!(often.check(one()), None);
    }
}
