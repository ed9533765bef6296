//! The task that opens a GET stream and reads it.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method};
use tokio::sync::Notify;
use warmline_core::error::code::Reason;
use warmline_core::message::sse::SseParser;
use warmline_core::protocol::headers::LAST_EVENT_ID;

use super::{GetStream, GetStreamState, LegacyHttpSession, StreamHoldOutcome, reply_callback};
use crate::backpressure::ReadBudget;
use crate::http::endpoint::HttpResponse;
use crate::listener::SourceSession;
use warmline_platform::clock;

/// How long a server may take for the head of a stream that a subscriber holds: some send it with
/// their first event.
const SUBSCRIBER_HEAD_TIMEOUT: Duration = Duration::from_secs(3600);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StreamDemand {
    /// Somebody does.
    Present,
    /// Nobody since the last call ended: what comes is refused.
    None,
    /// Subscribers left and may come back: what comes waits for them.
    MayReturn,
}

/// Sets the state when the task ends, also when it is cut short.
struct StateOnEnd {
    stream: Arc<GetStream>,
    opened: Arc<Notify>,
    end_state: GetStreamState,
}

impl Drop for StateOnEnd {
    fn drop(&mut self) {
        self.opened.notify_one();
        let stream = &self.stream;
        stream.open.store(false, Ordering::Relaxed);
        let mut state = stream.state.lock();
        // Once a session is over there is none again.
        if !matches!(
            &*state,
            GetStreamState::Refused(StreamHoldOutcome::SessionEnded)
        ) {
            *state = std::mem::take(&mut self.end_state);
        }
        drop(state);
        stream.state_changed.notify_waiters();
    }
}

pub(super) async fn run_get_stream(
    stream: Arc<GetStream>,
    session: Weak<LegacyHttpSession>,
    opened: Arc<Notify>,
    is_for_subscriber: bool,
) {
    let mut task = StateOnEnd {
        stream: Arc::clone(&stream),
        opened,
        end_state: GetStreamState::Closed,
    };
    task.end_state = stream
        .open_and_read(session, &task.opened, is_for_subscriber)
        .await;
}

impl GetStream {
    async fn open_and_read(
        &self,
        session: Weak<LegacyHttpSession>,
        opened: &Notify,
        is_for_subscriber: bool,
    ) -> GetStreamState {
        let headers = session.upgrade().map(|it| it.poster.headers.clone());
        let Some(headers) = headers else {
            return GetStreamState::Closed;
        };
        let timeouts = headers.endpoint.timeouts;
        let last = self.last_event_id.lock().clone();
        let by = clock::after(match is_for_subscriber {
            false => timeouts.handshake,
            true => SUBSCRIBER_HEAD_TIMEOUT,
        });
        let resume = |map: &mut HeaderMap| {
            if let Some(last) = &last {
                map.insert(LAST_EVENT_ID, last.clone());
            }
        };
        let kind = Method::GET;
        let sent = headers.send(kind, &[], Bytes::new(), by, resume).await;
        let response = match sent {
            Ok(response) if response.is_event_stream() => response,
            Ok(other) => return self.state_after_refusal(other.status.as_u16(), last.is_some()),
            Err(_) => return GetStreamState::Refused(StreamHoldOutcome::Failed),
        };
        // A resumed stream misses nothing.
        if last.is_some() {
            self.has_gap.store(false, Ordering::Relaxed);
        }
        self.open.store(true, Ordering::Relaxed);
        self.state_changed.notify_waiters();
        opened.notify_one();
        let mut reader = GetStreamReader {
            stream: self,
            session,
            parser: SseParser::new(headers.endpoint.size_limits.event),
            was_held: false,
        };
        reader.read(response, timeouts.connection_idle).await;
        let mut known = self.last_event_id.lock();
        if let Some(last) = reader.parser.last_id() {
            *known = HeaderValue::from_str(last).ok();
        }
        // If it cannot be resumed, what comes until the next one is lost. Calls miss nothing between
        // them, subscribers do.
        if known.is_none() && reader.was_held {
            self.has_gap.store(true, Ordering::Relaxed);
        }
        GetStreamState::Closed
    }

    fn state_after_refusal(&self, status: u16, was_resumed: bool) -> GetStreamState {
        match status {
            // Another connection holds the only stream: nothing of ours is lost.
            409 => GetStreamState::Closed,
            // It cannot be resumed there: the next one starts without an id.
            400 if was_resumed => {
                *self.last_event_id.lock() = None;
                self.has_gap.store(true, Ordering::Relaxed);
                GetStreamState::Closed
            },
            401 => GetStreamState::Refused(StreamHoldOutcome::Unauthorized),
            400 | 404 | 410 => GetStreamState::Refused(StreamHoldOutcome::NotFound),
            // Late, busy, or a gateway in trouble.
            408 | 425 | 429 | 500 | 502..=599 => GetStreamState::Refused(StreamHoldOutcome::Failed),
            _ => GetStreamState::Refused(StreamHoldOutcome::Unsupported),
        }
    }
}

struct GetStreamReader<'a> {
    stream: &'a GetStream,
    session: Weak<LegacyHttpSession>,
    parser: SseParser,
    was_held: bool,
}

impl GetStreamReader<'_> {
    /// Reads until the stream ends, or nobody has waited for anything for a while.
    async fn read(&mut self, mut response: HttpResponse, idle: Duration) {
        let mut idle_by = clock::after(idle);
        let mut budget = ReadBudget::default();
        loop {
            let demand = loop {
                let demand = self.demand();
                if demand == StreamDemand::MayReturn {
                    break demand;
                }
                let max_unread = self.parser.max_event_bytes();
                self.stream.pending.wait_for_capacity(max_unread).await;
                match self.parser.next() {
                    Some(Ok(event)) => {
                        let bytes = event.data.len();
                        if self.route(event.data).is_none() {
                            return;
                        }
                        budget.consume(bytes).await;
                    },
                    Some(Err(_)) | None => break demand,
                }
            };
            if demand == StreamDemand::Present {
                idle_by = clock::after(idle);
            } else if clock::now() >= idle_by {
                return;
            }
            tokio::select! {
                biased;
                () = self.stream.demand_changed.notified() => {},
                piece = response.next_chunk(), if demand != StreamDemand::MayReturn => match piece {
                    Some(Ok(bytes)) => {
                        self.parser.push(&bytes);
                        budget.consume(bytes.len()).await;
                    },
                    Some(Err(_)) | None => return,
                },
                () = clock::sleep_until(idle_by) => {},
            }
        }
    }

    fn demand(&mut self) -> StreamDemand {
        let is_held = self.stream.holders.load(Ordering::Relaxed) > 0;
        self.was_held |= is_held;
        match (is_held || !self.stream.pending.is_empty(), self.was_held) {
            (true, _) => StreamDemand::Present,
            (false, true) => StreamDemand::MayReturn,
            (false, false) => StreamDemand::None,
        }
    }

    /// Routes the messages of an event; none if nothing more is to be read.
    fn route(&self, data: Bytes) -> Option<()> {
        let session = self.session.upgrade()?;
        let version = session.poster.headers.version;
        let source = SourceSession::from_ref(&*session);
        let send_reply = reply_callback(&session);
        let pending = &self.stream.pending;
        let routed = pending.dispatch_text(data, version, source, &send_reply);
        if routed.is_err() {
            session.retirement.set(Reason::BadReply);
        }
        routed.ok()
    }
}
