//! Reads the messages for one call until its reply is there or none can come.
//!
//! All drivers wait in [`CallReader::next`]: it hands server requests to the call's listener, sends
//! the replies back, keeps the deadlines, and waits for receivers that lag. What is left to a driver
//! is its own I/O, and what a broken stream means: a legacy one may be resumed, a modern one is lost.

use std::future::{Future, poll_fn};
use std::ops::ControlFlow;
use std::pin::pin;
use std::task::Poll;

use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use warmline_core::delivery::Delivery;
use warmline_core::era::Version;
use warmline_core::exchange::Notification;
use warmline_core::message::envelope::{Message, MessageKind, RequestId, split_batch};
use warmline_core::message::params::absent_params;
use warmline_core::message::sse::{SseEvent, SseParser};

use crate::attribution;
use crate::backpressure::{CHECK_EVERY_BYTES, ReadBudget};
use crate::http::endpoint::{HttpResponse, SendFailure};
use crate::listener::SourceSession;
use crate::listener::{
    self, IncomingRequest, LARGE_REPLY_BYTES, Listener, OpenServerRequests, ReplySink,
    ServerRequestChannel, ServerRequestOutcome,
};
use crate::pending::{MAX_STRAY_REPLIES, PendingEvent, PendingRequest};
use crate::session_state::CallTimer;
use crate::unsolicited::UnsolicitedDispatcher;
use warmline_platform::clock::{self, Instant};

/// The state of a call while its messages are read, over all resumptions of its stream.
pub(crate) struct CallReader<'a> {
    pub(crate) id: u64,
    pub(crate) listener: &'a dyn Listener,
    server_requests: OpenServerRequests<'a>,
    pub(crate) timer: CallTimer,
    /// Whether any message came before the reply.
    pub(crate) has_messages: bool,
    stray_replies: u32,
    /// Why the last event that was no message could not be parsed.
    pub(crate) parse_error: Option<String>,
    /// Its registration on the shared stream of the session, if there is one.
    pub(crate) pending: Option<PendingRequest>,
    /// Receives what comes on this stream and concerns other clients, too.
    pub(crate) unsolicited: Option<&'a UnsolicitedDispatcher>,
    pub(crate) source: SourceSession,
    /// The headers of this call: everything that is sent for it carries them.
    pub(crate) extra_headers: Vec<(HeaderName, HeaderValue)>,
    /// Whether the listener reserved room for the current event.
    has_capacity: bool,
    /// Bytes delivered since the receivers were last known to keep up.
    bytes_since_check: usize,
    pub(crate) version: Option<Version>,
    /// Sends replies to server requests. None if servers cannot ask.
    pub(crate) reply_sink: Option<&'a dyn ReplySink>,
    /// The server did not take a reply, so it may wait for it until the call is cancelled.
    pub(crate) was_reply_refused: bool,
}

/// Server requests that are open when the call ends are refused: a server must not wait for ever.
impl Drop for CallReader<'_> {
    fn drop(&mut self) {
        let Some(sink) = self.reply_sink else { return };
        for (id, kind) in self.server_requests.take_unanswered() {
            drop(sink.send_reply(&id, listener::refused_reply(kind), &self.extra_headers));
        }
        for message in self.pending.iter().flat_map(PendingRequest::unregister) {
            let unread = IncomingRequest::from_message(&message);
            drop(sink.send_reply(&unread.id, unread.refused_reply(), &self.extra_headers));
        }
    }
}

pub(crate) enum CallEnd {
    Reply(Message),
    TimedOut,
    /// No reply comes any more, or the server did not take one of ours.
    Lost(SendFailure),
}

pub(crate) enum StreamEnd {
    Call(CallEnd),
    /// It is over without a reply.
    Over {
        why: String,
        /// The server ended it in order.
        was_closed: bool,
    },
    /// An event was larger than this limit.
    TooLarge(usize),
    TooManyStrayReplies,
}

impl<'a> CallReader<'a> {
    pub(crate) fn new(id: u64, timer: CallTimer, listener: &'a dyn Listener) -> Self {
        Self {
            id,
            listener,
            server_requests: OpenServerRequests::default(),
            timer,
            has_messages: false,
            stray_replies: 0,
            parse_error: None,
            pending: None,
            unsolicited: None,
            source: SourceSession::default(),
            extra_headers: Vec::new(),
            has_capacity: false,
            bytes_since_check: 0,
            version: None,
            reply_sink: None,
            was_reply_refused: false,
        }
    }

    /// Waits for `io`, while the call may end otherwise.
    pub(crate) async fn next<T>(&mut self, io: impl Future<Output = T>) -> ControlFlow<CallEnd, T> {
        self.next_in_order(io, false).await
    }

    /// The same. With `is_io_first`, as for a request that is being sent, it goes on however much other
    /// streams bring.
    pub(crate) async fn next_in_order<T>(
        &mut self,
        io: impl Future<Output = T>,
        is_io_first: bool,
    ) -> ControlFlow<CallEnd, T> {
        let mut io = pin!(io);
        loop {
            let by = self.wait_deadline();
            // A server that always has more would keep the timer below from firing.
            if clock::now() >= by {
                return ControlFlow::Break(CallEnd::TimedOut);
            }
            if is_io_first
                && let Poll::Ready(done) = poll_fn(|cx| Poll::Ready(io.as_mut().poll(cx))).await
            {
                return ControlFlow::Continue(done);
            }
            let end = tokio::select! {
                biased;
                outcome = self.server_requests.next_outcome() => self.handle_outcome(outcome),
                event = next_pending_event(&mut self.pending) => self.handle_pending(event).await,
                done = &mut io => return ControlFlow::Continue(done),
                () = clock::sleep_until(by) => None,
            };
            if let Some(end) = end {
                return ControlFlow::Break(end);
            }
        }
    }

    /// Reads a stream of events until the call is over or the stream is.
    pub(crate) async fn read_stream(
        &mut self,
        mut response: HttpResponse,
        parser: &mut SseParser,
    ) -> StreamEnd {
        let end = self.read_events(&mut response, parser).await;
        // After a reply nobody waits for the end of the stream.
        if let StreamEnd::Call(CallEnd::Reply(_)) = end {
            response.drain();
        }
        end
    }

    async fn read_events(
        &mut self,
        response: &mut HttpResponse,
        parser: &mut SseParser,
    ) -> StreamEnd {
        let mut budget = ReadBudget::default();
        loop {
            if let Some(end) = self.handle_events(parser, &mut budget).await {
                return end;
            }
            if !self.reserve_for_event(parser).await {
                return StreamEnd::Call(CallEnd::TimedOut);
            }
            let (why, was_closed) = match self.next(response.next_chunk()).await {
                ControlFlow::Continue(Some(Ok(bytes))) => {
                    parser.push(&bytes);
                    budget.consume(bytes.len()).await;
                    continue;
                },
                ControlFlow::Continue(Some(Err(why))) => (why, false),
                ControlFlow::Continue(None) => {
                    let why = "the server ended the stream without an answer";
                    (why.to_owned(), true)
                },
                ControlFlow::Break(end) => return StreamEnd::Call(end),
            };
            return StreamEnd::Over { why, was_closed };
        }
    }

    async fn handle_events(
        &mut self,
        parser: &mut SseParser,
        budget: &mut ReadBudget,
    ) -> Option<StreamEnd> {
        for event in parser {
            let event = match event {
                Ok(event) => event,
                Err(large) => return Some(StreamEnd::TooLarge(large.max_event_bytes)),
            };
            let bytes = event.data.len();
            if let Some(reply) = self.handle_event(event) {
                return Some(StreamEnd::Call(CallEnd::Reply(reply)));
            }
            if self.stray_replies > MAX_STRAY_REPLIES {
                return Some(StreamEnd::TooManyStrayReplies);
            }
            budget.consume(bytes).await;
            if !self.apply_backpressure().await || clock::now() >= self.timer.total_deadline {
                return Some(StreamEnd::Call(CallEnd::TimedOut));
            }
        }
        None
    }

    /// Sends the listener's reply. If the server does not take it, the call ends: the server would
    /// wait for ever.
    fn handle_outcome(&mut self, outcome: ServerRequestOutcome) -> Option<CallEnd> {
        match outcome {
            ServerRequestOutcome::Answered(id, kind, reply) => {
                self.timer.reset_idle();
                let payload = listener::reply_payload(kind, reply);
                let sent = self
                    .reply_sink?
                    .send_reply(&id, payload, &self.extra_headers);
                self.server_requests.track_delivery(sent);
                None
            },
            ServerRequestOutcome::Undelivered(diagnostic) => {
                self.was_reply_refused = true;
                Some(CallEnd::Lost(SendFailure {
                    delivery: Delivery::Unknown,
                    diagnostic,
                }))
            },
        }
    }

    /// Handles what came on a shared stream. Until there is room for a reply it counts as unread, so
    /// that the stream is read no further.
    pub(crate) async fn handle_pending(&mut self, event: PendingEvent) -> Option<CallEnd> {
        let message = match event {
            PendingEvent::Message(message) => message,
            PendingEvent::Dropped(count) => {
                self.listener.on_notifications_dropped(count);
                return None;
            },
            PendingEvent::Lost(delivery, diagnostic) => {
                return Some(CallEnd::Lost(SendFailure {
                    delivery,
                    diagnostic,
                }));
            },
        };
        let bytes = message.raw().len();
        let reply = self.handle_message(message, ServerRequestChannel::OtherStream);
        let is_in_time = match &reply {
            Some(_) => self.reserve_capacity(bytes).await,
            None => self.apply_backpressure().await,
        };
        match is_in_time {
            true => reply.map(CallEnd::Reply),
            false => Some(CallEnd::TimedOut),
        }
    }

    /// Waits for receivers that are behind; false if the total deadline passed. The idle time does not
    /// run meanwhile.
    async fn apply_backpressure(&mut self) -> bool {
        if self.bytes_since_check < CHECK_EVERY_BYTES {
            return true;
        }
        self.bytes_since_check = 0;
        let by = self.timer.total_deadline;
        let unsolicited = self.unsolicited.and_then(UnsolicitedDispatcher::catch_up);
        for one in self.listener.catch_up().into_iter().chain(unsolicited) {
            if clock::timeout_at(by, one).await.is_err() {
                return false;
            }
        }
        self.timer.reset_idle();
        true
    }

    /// Waits until the listener has room for a reply; false if it had none in time.
    async fn reserve_capacity(&mut self, bytes: usize) -> bool {
        let listener = self.listener;
        let room = (bytes > LARGE_REPLY_BYTES)
            .then(|| listener.reserve_reply(bytes))
            .flatten();
        match room {
            Some(room) => clock::timeout_at(self.wait_deadline(), room).await.is_ok(),
            None => true,
        }
    }

    /// The same for a large event whose end is not known: it may be as large as the limit. Room for an
    /// event that was no reply is released.
    async fn reserve_for_event(&mut self, parser: &SseParser) -> bool {
        let is_large = parser.buffered_bytes() > LARGE_REPLY_BYTES;
        if self.has_capacity == is_large {
            return true;
        }
        self.has_capacity = is_large;
        if is_large {
            return self.reserve_capacity(parser.max_event_bytes()).await;
        }
        drop(self.listener.reserve_reply(0));
        true
    }

    /// When waiting ends if nothing happens. While a server request is open only the total deadline
    /// runs.
    pub(crate) fn wait_deadline(&mut self) -> Instant {
        if !self.server_requests.is_empty() {
            return self.timer.total_deadline;
        }
        if clock::now() >= self.timer.next_deadline() && self.listener.is_answering_unsolicited() {
            self.timer.reset_idle();
        }
        self.timer.next_deadline()
    }

    fn handle_event(&mut self, event: SseEvent) -> Option<Message> {
        // Priming events have an id and no data. They are a sign of life.
        if event.data.is_empty() {
            if event.id.is_some() {
                self.timer.reset_idle();
            }
            return None;
        }
        self.handle_text(event.data)
    }

    /// Handles one message, or each of a batch; returns the first reply. Messages after it in
    /// the batch are handled too, because nothing reads them later.
    pub(crate) fn handle_text(&mut self, text: Bytes) -> Option<Message> {
        let mut reply = None;
        for text in split_batch(text, self.version) {
            let found = self.handle_parsed(text);
            reply = reply.or(found);
        }
        reply
    }

    fn handle_parsed(&mut self, text: Bytes) -> Option<Message> {
        let message = match Message::parse(text) {
            Ok(message) => message,
            Err(malformed) => {
                self.parse_error = Some(malformed.to_string());
                return None;
            },
        };
        let caller = self.listener.caller();
        if let Some(unsolicited) = self.unsolicited
            && unsolicited.broadcast_from_call(&message, self.source, caller)
        {
            self.record_message(&message);
            return None;
        }
        self.handle_message(message, ServerRequestChannel::CallStream)
    }

    /// Handles one message; returns it if it is the reply.
    fn handle_message(
        &mut self,
        message: Message,
        channel: ServerRequestChannel,
    ) -> Option<Message> {
        match message.kind() {
            MessageKind::Result | MessageKind::Error => {
                if is_reply_to(&message, self.id) {
                    self.server_requests.call_replied();
                    return Some(message);
                }
                self.stray_replies += 1;
            },
            MessageKind::Notification => {
                if let Some(id) = attribution::cancelled_request_id(&message) {
                    self.server_requests.cancel(&id);
                } else if !self.is_progress_of_another(&message) {
                    self.record_message(&message);
                    self.notify_listener(&message);
                }
            },
            MessageKind::Request => {
                self.has_messages = true;
                self.timer.reset_idle();
                self.handle_server_request(IncomingRequest {
                    channel,
                    ..IncomingRequest::from_message(&message)
                });
            },
        }
        None
    }

    /// A message that is no reply shows that the server works on the call.
    fn record_message(&mut self, message: &Message) {
        self.bytes_since_check += message.raw().len();
        self.has_messages = true;
        self.timer.reset_idle();
    }

    fn handle_server_request(&mut self, request: IncomingRequest) {
        let Some(sink) = self.reply_sink else {
            // A modern server must not send requests; there is no way to answer one.
            tracing::debug!(method = %request.request.method, "request ignored");
            return;
        };
        if request.is_ping() {
            drop(sink.send_reply(&request.id, listener::ping_reply(), &self.extra_headers));
        } else if self.listener.caller().is_none() {
            sink.ask_unsolicited(request);
        } else {
            self.server_requests.ask(request, self.listener);
        }
    }

    fn is_progress_of_another(&self, message: &Message) -> bool {
        message.method() == Some("notifications/progress")
            && message
                .params()
                .and_then(|params| attribution::progress_token(&params))
                .is_some_and(|token| token != self.id)
    }

    fn notify_listener(&self, message: &Message) {
        let params = message.params().unwrap_or_else(absent_params);
        let news = match message.method().unwrap_or_default() {
            "notifications/progress" => Notification::Progress(params),
            "notifications/message" => Notification::Log(params),
            method => Notification::Other(method.to_owned(), params),
        };
        self.listener.on_notification(news);
    }
}

async fn next_pending_event(pending: &mut Option<PendingRequest>) -> PendingEvent {
    match pending {
        Some(call) => call.next_event().await,
        None => std::future::pending().await,
    }
}

/// Whether a response belongs to our request on this exchange. Errors made before a server could read
/// the id carry none, null, or a text.
fn is_reply_to(message: &Message, id: u64) -> bool {
    match message.id() {
        Some(RequestId::Number(number)) => u64::try_from(number) == Ok(id),
        None | Some(RequestId::Null) => message.kind() == MessageKind::Error,
        Some(RequestId::Text(text)) => {
            message.kind() == MessageKind::Error && text == "server-error"
        },
        Some(RequestId::Other) => false,
    }
}
