//! The response to a call: JSON where nothing comes before the answer, else a stream of events.
//!
//! The carrier of the response drives the call, also while the client reads nothing. There is no task
//! for it, unless a client leaves a call that goes on.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderName, HeaderValue, Response, StatusCode};
use parking_lot::Mutex;
use tokio::time::Sleep;
use warmline_core::message::splice;
use warmline_platform::clock;

use super::event_queue::EventQueue;
use crate::limits::RequestPermit;
use crate::limits::usage::{IdentityReplyBudget, is_large_reply};
use crate::metrics::{AbandonedCall, GatewayCounters, UndeliveredReason};
use crate::response::{self, ResponseBody};

/// A response that waits this long becomes a stream, which can be kept alive.
const STREAM_AFTER: Duration = Duration::from_secs(15);
/// Small events are written together, up to about this size.
const WRITE_TARGET_BYTES: usize = 16 << 10;

/// The pause before a quiet stream shows that it is alive.
pub(crate) const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);
pub(crate) const KEEP_ALIVE_COMMENT: Bytes = Bytes::from_static(b": still here\n\n");
/// How soon a client whose stream broke shall come back.
const RECONNECT_DELAY: Duration = Duration::from_secs(1);
pub(crate) const EVENT_END: Bytes = Bytes::from_static(b"\n\n");

#[derive(Debug)]
pub(crate) struct FinalResponse {
    pub(crate) status: StatusCode,
    pub(crate) message: Bytes,
}

impl FinalResponse {
    pub(crate) const fn ok(message: Bytes) -> Self {
        Self {
            status: StatusCode::OK,
            message,
        }
    }
}

/// A call that the carrier of its response drives.
pub(crate) type CallFuture = Pin<Box<dyn Future<Output = FinalResponse> + Send>>;

struct DrivenCall {
    call: CallFuture,
    permit: RequestPermit,
    /// Counts clients that leave.
    counters: Arc<GatewayCounters>,
}

/// What happens to a call when its client leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DisconnectPolicy {
    /// Modern clients cancel by leaving.
    Cancel,
    /// A legacy client may come back for the answer.
    Continue,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AcceptedFormats {
    /// Both; JSON where it is enough.
    Both,
    Json,
    Events,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct ResponseMode {
    pub(crate) accepts: AcceptedFormats,
    pub(crate) on_disconnect: DisconnectPolicy,
    /// The number of the stream, if its events have ids to resume from.
    pub(crate) stream_id: Option<u64>,
    pub(crate) priming: PrimingEvent,
}

/// Whether a stream begins with an event that has only an id to resume from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PrimingEvent {
    /// Older clients fail on an event without data.
    Disabled,
    Pending,
    /// It was sent on this stream or the one before it. The client can be told to come back.
    Sent,
}

pub(crate) struct ResponseStream {
    call: Option<DrivenCall>,
    /// Whether it began with a call, so that its end is an answer.
    pub(crate) answers_call: bool,
    pub(crate) queue: Arc<EventQueue>,
    reader_id: u64,
    last_number: u64,
    mode: ResponseMode,
    /// The rest of an event whose message is large and goes out without a copy.
    partial_event: VecDeque<Bytes>,
    /// Charged for large messages that the client has not read yet.
    pub(super) reply_budget: Option<IdentityReplyBudget>,
    keep_alive: Option<Pin<Box<Sleep>>>,
    guard: Option<Box<dyn Send>>,
    /// Ends the stream when it resolves.
    close_signal: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl ResponseStream {
    pub(crate) fn for_call(
        call: CallFuture,
        queue: Arc<EventQueue>,
        mode: ResponseMode,
        permit: RequestPermit,
        counters: &Arc<GatewayCounters>,
    ) -> Self {
        let driven = DrivenCall {
            call,
            permit,
            counters: Arc::clone(counters),
        };
        Self::new(Some(driven), queue, 0, mode)
    }

    pub(crate) fn after_event(number: u64, queue: Arc<EventQueue>, mode: ResponseMode) -> Self {
        Self::new(None, queue, number, mode)
    }

    fn new(
        call: Option<DrivenCall>,
        queue: Arc<EventQueue>,
        last_number: u64,
        mode: ResponseMode,
    ) -> Self {
        Self {
            answers_call: call.is_some(),
            call,
            reader_id: queue.attach_reader(mode.accepts),
            queue,
            last_number,
            mode,
            partial_event: VecDeque::new(),
            reply_budget: None,
            keep_alive: None,
            guard: None,
            close_signal: None,
        }
    }

    pub(crate) fn with_guard(mut self, held: impl Send + 'static) -> Self {
        self.guard = Some(Box::new(held));
        self
    }

    /// Ends the stream when `over` resolves. A client may resume the rest.
    pub(crate) fn with_close_signal(
        mut self,
        over: impl Future<Output = ()> + Send + 'static,
    ) -> Self {
        self.close_signal = Some(Box::pin(over));
        self
    }

    /// Drives the call until its response begins; `prepare` sees it if it is a stream. `None` if the client
    /// cancelled the call before that.
    pub(crate) async fn respond(
        mut self,
        prepare: impl FnOnce(Self) -> Self,
    ) -> Option<Response<ResponseBody>> {
        let mut commit = pin!(clock::sleep(STREAM_AFTER));
        let answer = std::future::poll_fn(|cx| self.poll_start(cx, commit.as_mut())).await;
        match answer {
            Some(answer) => Some(response::json_response(answer.status, answer.message)),
            None if self.queue.is_cancelled() => None,
            None => Some(prepare(self).into_response()),
        }
    }

    pub(crate) fn into_response(self) -> Response<ResponseBody> {
        event_stream_response(ResponseBody::Events(Arc::new(Mutex::new(self))))
    }

    /// The answer, or `None` when the response is a stream or the client cancelled the call.
    fn poll_start(
        &mut self,
        cx: &mut Context<'_>,
        commit: Pin<&mut impl Future<Output = ()>>,
    ) -> Poll<Option<FinalResponse>> {
        let Some(driven) = &mut self.call else {
            return Poll::Ready(None);
        };
        let ended = driven.call.as_mut().poll(cx);
        let has_started = self.queue.has_started(self.last_number, self.reader_id, cx);
        let streams = self.mode.accepts != AcceptedFormats::Json;
        match ended {
            Poll::Ready(ended) => {
                self.call = None;
                if streams && (has_started || self.mode.accepts == AcceptedFormats::Events) {
                    self.queue.finish(Some(ended.message));
                    return Poll::Ready(None);
                }
                Poll::Ready(Some(ended))
            },
            Poll::Pending if has_started && self.queue.is_cancelled() => {
                // Dropping it cancels it.
                self.call = None;
                Poll::Ready(None)
            },
            Poll::Pending if !streams => Poll::Pending,
            Poll::Pending if has_started => Poll::Ready(None),
            Poll::Pending => commit.poll(cx).map(|()| None),
        }
    }

    /// Drives the call, and says whether it is over. The connection does so also while its client reads
    /// nothing.
    pub(crate) fn drive_call(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(driven) = &mut self.call else {
            return false;
        };
        if let Poll::Ready(ended) = driven.call.as_mut().poll(cx) {
            self.call = None;
            self.queue.finish(Some(ended.message));
        } else if self.queue.poll_cancelled(cx).is_ready() {
            // Dropping it cancels it.
            self.call = None;
        }
        self.call.is_none()
    }

    /// The next message, for a transport that frames messages itself; `None` at the end.
    pub(super) fn poll_message(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if self.poll_closed(cx) {
            return Poll::Ready(None);
        }
        self.poll_next(cx)
            .map(|event| event.map(|(_, message)| message))
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<(u64, Bytes)>> {
        let next = ready!(self.queue.poll_next(self.last_number, self.reader_id, cx));
        if let Some((number, _)) = &next {
            self.last_number = *number;
        }
        Poll::Ready(next)
    }

    /// The next events, ready to be written; `None` at the end.
    pub(super) fn poll_events(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if let Some(piece) = self.partial_event.pop_front() {
            return Poll::Ready(Some(piece));
        }
        if self.poll_closed(cx) {
            return Poll::Ready(None);
        }
        let mut out = BytesMut::new();
        if self.mode.priming == PrimingEvent::Pending {
            self.mode.priming = PrimingEvent::Sent;
            if let Some(stream) = self.mode.stream_id {
                let retry = RECONNECT_DELAY.as_millis();
                let event = format!("id: {stream:x}-0\nretry: {retry}\ndata: \n\n");
                out.extend_from_slice(event.as_bytes());
            }
        }
        while out.len() < WRITE_TARGET_BYTES && self.partial_event.is_empty() {
            match self.poll_next(cx) {
                Poll::Ready(Some((number, message))) => {
                    let large = write_event(&mut out, self.mode.stream_id, number, message);
                    if let Some(message) = large {
                        let message = charge_if_large(self.reply_budget.as_ref(), message);
                        self.partial_event.extend([message, EVENT_END]);
                    }
                },
                Poll::Ready(None) if out.is_empty() => return Poll::Ready(None),
                Poll::Ready(None) => break,
                Poll::Pending => {
                    self.pause_if_requested(&mut out);
                    break;
                },
            }
        }
        if !out.is_empty() {
            self.keep_alive = None;
            return Poll::Ready(Some(out.freeze()));
        }
        let alive = self
            .keep_alive
            .get_or_insert_with(|| Box::pin(clock::sleep_until(clock::after(KEEP_ALIVE_INTERVAL))));
        ready!(alive.as_mut().poll(cx));
        self.keep_alive = None;
        Poll::Ready(Some(KEEP_ALIVE_COMMENT))
    }

    fn poll_closed(&mut self, cx: &mut Context<'_>) -> bool {
        let is_closed = self
            .close_signal
            .as_mut()
            .is_some_and(|closed| closed.as_mut().poll(cx).is_ready());
        if is_closed {
            self.close_signal = None;
        }
        is_closed
    }

    /// The server lets its caller go for a while: the call goes on, and this stream ends. Only a client that
    /// was told where to resume can come back.
    fn pause_if_requested(&mut self, out: &mut BytesMut) {
        let can_pause = self.mode.priming == PrimingEvent::Sent && self.mode.stream_id.is_some();
        let pause = can_pause.then(|| self.queue.requested_pause()).flatten();
        let Some(come_back_after) = pause else { return };
        let retry = come_back_after.as_millis();
        out.extend_from_slice(format!("retry: {retry}\n\n").as_bytes());
        if let Some(call) = self.call.take() {
            finish_in_background(call, Arc::clone(&self.queue));
        }
        self.close_signal = Some(Box::pin(std::future::ready(())));
    }
}

/// The client left. Its call goes on if its era says so.
impl Drop for ResponseStream {
    fn drop(&mut self) {
        self.queue.detach_reader(self.reader_id);
        let Some(call) = self.call.take() else { return };
        // Dropping a cancelled call cancels it at the server.
        if self.mode.on_disconnect == DisconnectPolicy::Continue && !self.queue.is_cancelled() {
            let abandoned = &call.counters.abandoned_calls;
            abandoned.increment(AbandonedCall::Continued);
            finish_in_background(call, Arc::clone(&self.queue));
        }
    }
}

/// Charges a large message to the budget until the client has read it.
pub(crate) fn charge_if_large(budget: Option<&IdentityReplyBudget>, message: Bytes) -> Bytes {
    match budget {
        Some(budget) if is_large_reply(&message) => budget.track_reply(message),
        Some(_) | None => message,
    }
}

/// Drives a call to its end without its client. The call keeps its share of the limits.
fn finish_in_background(driven: DrivenCall, queue: Arc<EventQueue>) {
    if tokio::runtime::Handle::try_current().is_err() {
        return;
    }
    clock::spawn("call-without-client", async move {
        let DrivenCall {
            call,
            permit,
            counters,
        } = driven;
        tokio::select! {
            ended = call => {
                queue.finish(Some(ended.message));
                if queue.is_unreachable() {
                    let undelivered = &counters.undelivered;
                    undelivered.increment(UndeliveredReason::Disconnected);
                }
            },
            () = std::future::poll_fn(|cx| queue.poll_cancelled(cx)) => {},
        }
        drop(permit);
    });
}

pub(crate) fn event_stream_response(body: ResponseBody) -> Response<ResponseBody> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    let kind = HeaderValue::from_static("text/event-stream");
    headers.insert(CONTENT_TYPE, kind);
    let caching = HeaderValue::from_static("no-cache, no-transform");
    headers.insert(CACHE_CONTROL, caching);
    // Some reverse proxies would buffer the events.
    let buffering = HeaderName::from_static("x-accel-buffering");
    headers.insert(buffering, HeaderValue::from_static("no"));
    response
}

/// Writes one event; all but the end of one whose message is large, which is returned to go out without a
/// copy. The JSON is on one line, since a line break would end the field.
#[must_use]
pub(crate) fn write_event(
    out: &mut BytesMut,
    stream: Option<u64>,
    number: u64,
    message: Bytes,
) -> Option<Bytes> {
    if let Some(stream) = stream {
        out.extend_from_slice(format!("id: {stream:x}-{number:x}\n").as_bytes());
    }
    out.extend_from_slice(b"event: message\ndata: ");
    let line = splice::to_single_line(message);
    if is_large_reply(&line) {
        return Some(line);
    }
    out.extend_from_slice(&line);
    out.extend_from_slice(&EVENT_END);
    None
}

pub(crate) fn parse_event_id(text: &str) -> Option<(u64, u64)> {
    let (stream, number) = text.split_once('-')?;
    let number = u64::from_str_radix(number, 16).ok()?;
    Some((u64::from_str_radix(stream, 16).ok()?, number))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// P90: a stream on which nothing happens says so every 15 s, so that nobody on the way cuts it.
    #[tokio::test(start_paused = true)]
    async fn a_quiet_stream_shows_that_it_is_alive() {
        let manner = ResponseMode {
            accepts: AcceptedFormats::Events,
            on_disconnect: DisconnectPolicy::Continue,
            stream_id: Some(1),
            priming: PrimingEvent::Disabled,
        };
        let queue = Arc::<EventQueue>::default();
        let mut flow = ResponseStream::after_event(0, Arc::clone(&queue), manner);
        let since = clock::now();
        for round in 1..=3 {
            let said = std::future::poll_fn(|cx| flow.poll_events(cx)).await;
            assert_eq!(said, Some(KEEP_ALIVE_COMMENT));
            let waited = clock::now().duration_since(since);
            assert!(
                waited >= KEEP_ALIVE_INTERVAL * round
                    && waited <= KEEP_ALIVE_INTERVAL * round + KEEP_ALIVE_INTERVAL
            );
        }
        queue.push_droppable("{}".into());
        let said = std::future::poll_fn(|cx| flow.poll_events(cx)).await;
        assert!(said.is_some_and(|said| said.ends_with(b"data: {}\n\n")));
    }
}
