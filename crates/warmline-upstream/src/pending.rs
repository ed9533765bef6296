//! The pending requests of a stream that several calls share: a child's output, the stream of an
//! HTTP+SSE session, the GET stream of a legacy session.
//!
//! A reply goes to the call with its id. A notification goes to the call that it names. One that
//! names no call and concerns all clients goes to the session's listener, and then to one call of
//! each caller that did not get it there. Any other goes to the oldest call if all calls are one
//! caller's, else to the session's listener. [`attribution`] decides who gets a server request; one
//! that belongs to nobody is refused at once.

mod state;

use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::Notify;
use warmline_core::delivery::Delivery;
use warmline_core::era::Version;
use warmline_core::exchange::Diagnostic;
use warmline_core::message::envelope::{Message, MessageKind, split_batch};

use self::state::{NotificationRoute, PendingSlot, PendingState, read_after_end};
use crate::attribution::{self, Attribution, CallerId};
use crate::backpressure::CHECK_EVERY_BYTES;
use crate::listener::SourceSession;
use crate::listener::{IncomingRequest, ReplyPayload, ping_reply};
use crate::unsolicited::{UnsolicitedDispatcher, UnsolicitedRequests};
use warmline_platform::clock;
use warmline_platform::lock::Mutex;

/// A stream with this many replies to nothing we asked is not trusted any more.
pub(crate) const MAX_STRAY_REPLIES: u32 = 16;

#[derive(Debug)]
pub(crate) struct PendingRequests {
    state: Mutex<PendingState>,
    /// Notified when a large reply was taken, or a lagging call caught up.
    capacity_freed: Notify,
    unsolicited: UnsolicitedDispatcher,
    open_requests: UnsolicitedRequests,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamLayout {
    /// This one, and one for each call.
    PerCallStreams,
    /// This one carries everything; requests go up another way.
    SingleStream,
    /// The same, where requests wait in a queue until a child reads them.
    Pipe,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PendingKind {
    /// Its reply, and what comes before it.
    Call,
    /// Notifications that name it, until somebody ends it.
    Listen,
}

/// What came for a call. The last one is a reply or a loss, and there is exactly one of these.
#[derive(Debug)]
pub(crate) enum PendingEvent {
    /// A message of the server; the reply is one, too.
    Message(Message),
    /// So many notifications were dropped, because too much waited already.
    Dropped(u64),
    Lost(Delivery, Diagnostic),
}

/// The server sent too many replies to requests that nobody sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooManyStrayReplies;

/// A pending request. Dropping it abandons the request; a late reply is dropped.
#[derive(Debug)]
pub(crate) struct PendingRequest {
    requests: Arc<PendingRequests>,
    id: u64,
    wake: Arc<Notify>,
}

impl PendingRequests {
    pub(crate) fn new(layout: StreamLayout, unsolicited: UnsolicitedDispatcher) -> Self {
        Self {
            state: Mutex::new(PendingState::new(layout)),
            capacity_freed: Notify::new(),
            unsolicited,
            open_requests: UnsolicitedRequests::default(),
        }
    }

    /// Registers a request. After the end of the stream its only event is that it was not sent.
    pub(crate) fn register(
        self: &Arc<Self>,
        id: u64,
        kind: PendingKind,
        caller: Option<CallerId>,
    ) -> PendingRequest {
        let wake = self.state.lock().register(id, kind, caller);
        PendingRequest {
            requests: Arc::clone(self),
            id,
            wake,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.state.lock().calls.is_empty()
    }

    pub(crate) fn mark_sent(&self, id: u64) {
        if let Some(slot) = self.state.lock().calls.get_mut(&id) {
            slot.is_sent = true;
        }
    }

    /// Ends a request that is in flight: its reply was read and cannot be used.
    pub(crate) fn lose(&self, id: u64, diagnostic: Diagnostic) {
        if let Some(slot) = self.state.lock().in_flight_mut(id) {
            slot.end(PendingEvent::Lost(Delivery::Unknown, diagnostic));
        }
    }

    /// From now on requests of the server are dropped: the modern era allows none over a pipe.
    pub(crate) fn ignore_server_requests(&self) {
        self.state.lock().ignores_server_requests = true;
    }

    pub(crate) fn end_reason(&self) -> Option<Diagnostic> {
        self.state.lock().end_reason.clone()
    }

    /// Ends all requests; no reply comes any more. The first reason counts.
    pub(crate) fn end_all(&self, diagnostic: &Diagnostic) {
        self.open_requests.cancel_all();
        let mut state = self.state.lock();
        if state.end_reason.is_some() {
            return;
        }
        state.end_reason = Some(diagnostic.clone());
        for slot in state.calls.values_mut().filter(|slot| !slot.is_ended) {
            let delivery = match slot.is_sent {
                true => Delivery::Unknown,
                false => Delivery::Unsent,
            };
            slot.end(PendingEvent::Lost(delivery, diagnostic.clone()));
        }
    }

    /// The session is over: server requests that belong to no call need no reply any more.
    pub(crate) fn cancel_server_requests(&self) {
        self.open_requests.cancel_all();
    }

    /// Routes each message of an event. What is no message is skipped.
    pub(crate) fn dispatch_text(
        &self,
        text: Bytes,
        version: Option<Version>,
        source: SourceSession,
        send_reply: &(impl Fn(&[u8], ReplyPayload) + Clone + Send + 'static),
    ) -> Result<(), TooManyStrayReplies> {
        let messages = split_batch(text, version);
        for message in messages.filter_map(|text| Message::parse(text).ok()) {
            self.dispatch(message, source, send_reply.clone())?;
        }
        Ok(())
    }

    pub(crate) fn dispatch(
        &self,
        message: Message,
        source: SourceSession,
        send_reply: impl FnOnce(&[u8], ReplyPayload) + Send + 'static,
    ) -> Result<(), TooManyStrayReplies> {
        let mut state = self.state.lock();
        state.bytes_since_check += message.raw().len();
        match message.kind() {
            MessageKind::Result | MessageKind::Error => return state.route_reply(message),
            MessageKind::Notification => {
                let route = state.route_notification(&message);
                drop(state);
                self.dispatch_notification(&message, route, source);
            },
            MessageKind::Request if state.ignores_server_requests => {},
            MessageKind::Request => {
                let attribution = state.attribute_request(&message);
                drop(state);
                self.dispatch_server_request(message, attribution, send_reply);
            },
        }
        Ok(())
    }

    /// The listener is called without the lock.
    fn dispatch_notification(
        &self,
        message: &Message,
        route: NotificationRoute,
        source: SourceSession,
    ) {
        match route {
            NotificationRoute::Done => {},
            NotificationRoute::Listener => self.unsolicited.notify(message),
            NotificationRoute::Cancels(id) => self.open_requests.cancel(&id),
            NotificationRoute::Broadcast => {
                let told = self.unsolicited.broadcast(message, source);
                let mut state = self.state.lock();
                for call in attribution::calls_to_notify(state.calls_in_flight(), &told) {
                    state.push(call, message.clone());
                }
            },
        }
    }

    fn dispatch_server_request(
        &self,
        message: Message,
        attribution: Attribution,
        send_reply: impl FnOnce(&[u8], ReplyPayload) + Send + 'static,
    ) {
        let request = IncomingRequest::from_message(&message);
        if request.is_ping() {
            return send_reply(&request.id, ping_reply());
        }
        match attribution {
            Attribution::Call(call) => {
                if !self.state.lock().push(call, message) {
                    send_reply(&request.id, request.refused_reply());
                }
            },
            Attribution::Caller(caller) => {
                let ask_call = || {
                    let mut state = self.state.lock();
                    let is_theirs = |(_, of_call): &(u64, _)| *of_call == Some(caller);
                    let oldest = state.calls_in_flight().find(is_theirs);
                    oldest.is_some_and(|(call, _)| state.push(call, message))
                };
                let open = &self.open_requests;
                self.unsolicited
                    .ask_caller(caller, open, request, ask_call, send_reply);
            },
            Attribution::Ambiguous => {
                let refused = self.unsolicited.refuse_ambiguous(request.request.kind);
                send_reply(&request.id, refused);
            },
            Attribution::NoCall => self.ask_unsolicited(request, send_reply),
        }
    }

    /// Asks the session's listener what belongs to no call.
    pub(crate) fn ask_unsolicited(
        &self,
        request: IncomingRequest,
        send_reply: impl FnOnce(&[u8], ReplyPayload) + Send + 'static,
    ) {
        self.unsolicited
            .ask_unsolicited(&self.open_requests, request, send_reply);
    }

    /// Waits while more than `max_unread` bytes of large replies wait for callers that do not take
    /// them: the server waits then, and so do all its callers. Waits for lagging calls as well: only
    /// for a while, unless nobody but the caller of the only call receives what is read.
    ///
    /// # Cancel safety
    /// Dropping it loses nothing.
    pub(crate) async fn wait_for_capacity(&self, max_unread: usize) {
        while self.state.lock().is_blocked(max_unread) {
            let mut freed = pin!(self.capacity_freed.notified());
            // Before the second look: nothing that changes in between is missed.
            freed.as_mut().enable();
            let deadline = {
                let state = self.state.lock();
                if !state.is_blocked(max_unread) {
                    continue;
                }
                state.lag_deadline()
            };
            match deadline {
                None => freed.await,
                Some(by) => {
                    if clock::timeout_at(by, freed).await.is_err() {
                        let caller = self.state.lock().only_caller();
                        // The listener is called without the lock.
                        let is_alone = self.unsolicited.is_only_receiver(caller);
                        self.state.lock().stop_waiting(is_alone);
                    }
                },
            }
        }
        let is_check_due = self.state.lock().bytes_since_check >= CHECK_EVERY_BYTES;
        if is_check_due {
            if let Some(caught_up) = self.unsolicited.catch_up() {
                caught_up.await;
            }
            self.state.lock().bytes_since_check = 0;
        }
    }
}

impl PendingRequest {
    /// The next event of this request.
    ///
    /// # Cancel safety
    /// Dropping it loses nothing.
    pub(crate) async fn next_event(&mut self) -> PendingEvent {
        loop {
            {
                let mut state = self.requests.state.lock();
                let lagging = state.lagging;
                let event = state.update_slot(self.id, PendingSlot::take_event);
                if state.lagging < lagging {
                    self.requests.capacity_freed.notify_waiters();
                }
                if let Some(event) = event.unwrap_or_else(|| Some(read_after_end())) {
                    return event;
                }
            }
            self.wake.notified().await;
        }
    }

    /// The request can never leave.
    pub(crate) fn fail_unsent(&self, diagnostic: Diagnostic) {
        if let Some(slot) = self.requests.state.lock().calls.get_mut(&self.id)
            && !slot.is_ended
        {
            slot.end(PendingEvent::Lost(Delivery::Unsent, diagnostic));
        }
    }

    pub(crate) fn is_ended(&self) -> bool {
        let state = self.requests.state.lock();
        state.calls.get(&self.id).is_none_or(|slot| slot.is_ended)
    }

    /// Removes the request; returns the server requests in its queue.
    pub(crate) fn unregister(&self) -> Vec<Message> {
        let mut state = self.requests.state.lock();
        let Some(slot) = state.calls.remove(&self.id) else {
            return Vec::new();
        };
        if slot.is_in_flight() {
            state.expect_late_reply(self.id);
        }
        state.lagging -= slot.is_lagging();
        state.unread_reply_bytes -= slot.unread_reply_bytes;
        if slot.unread_reply_bytes > 0 || slot.is_lagging() > 0 {
            self.requests.capacity_freed.notify_waiters();
        }
        let unread = slot.queue.into_iter().filter_map(|event| match event {
            PendingEvent::Message(message) => Some(message),
            PendingEvent::Dropped(_) | PendingEvent::Lost(..) => None,
        });
        unread
            .filter(|message| message.kind() == MessageKind::Request)
            .collect()
    }
}

impl Drop for PendingRequest {
    fn drop(&mut self) {
        drop(self.unregister());
    }
}

pub(crate) fn is_reply(message: &Message) -> bool {
    matches!(message.kind(), MessageKind::Result | MessageKind::Error)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use super::*;
    use crate::unsolicited::UnsolicitedListener;

    #[derive(Debug, Default)]
    struct SharedListener {
        has_others: AtomicBool,
    }

    impl UnsolicitedListener for SharedListener {
        fn on_notification(&self, _method: &str, _params: &[u8]) {}

        fn has_receivers_besides(&self, caller: CallerId) -> bool {
            caller != CallerId::from_ref(self) || self.has_others.load(Ordering::Relaxed)
        }
    }

    /// Waiting for a call that nobody reads holds up other listeners, though nobody else calls.
    #[tokio::test(start_paused = true)]
    async fn a_call_that_is_alone_is_waited_for_until_another_listens() {
        let listener = Arc::new(SharedListener::default());
        let unsolicited = UnsolicitedDispatcher::new(Some(Arc::<SharedListener>::clone(&listener)));
        let requests = PendingRequests::new(StreamLayout::SingleStream, unsolicited);
        let requests = Arc::new(requests);
        let caller = Some(CallerId::from_ref(&*listener));
        let unread = requests.register(7, PendingKind::Call, caller);
        let minute = Duration::from_secs(60);
        let text = format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{"data":"{}"}}}}"#,
            "x".repeat(200 << 10)
        );
        let message = Message::parse(text.into()).unwrap();
        let source = SourceSession::default();
        requests.dispatch(message, source, |_, _| {}).unwrap();
        let wait = || clock::timeout(minute, requests.wait_for_capacity(usize::MAX));
        assert!(wait().await.is_err());
        listener.has_others.store(true, Ordering::Relaxed);
        assert!(wait().await.is_ok());
        drop(unread);
    }
}
