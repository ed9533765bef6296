//! The state behind the lock: who gets which message, and who lags.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::Notify;
use warmline_core::delivery::Delivery;
use warmline_core::error::code::Reason;
use warmline_core::exchange::Diagnostic;
use warmline_core::message::envelope::{Message, MessageKind, RequestId, RpcError};

use super::{
    MAX_STRAY_REPLIES, PendingEvent, PendingKind, StreamLayout, TooManyStrayReplies, is_reply,
};
use crate::attribution::{self, Attribution, CallerId, named_call};
use crate::backpressure::Backlog;
use crate::listener::LARGE_REPLY_BYTES;
use crate::unsolicited::{NotificationScope, scope_of_method};
use warmline_platform::clock::{self, Instant};

const MAX_ABANDONED: usize = 1024;
#[derive(Debug)]
pub(super) struct PendingState {
    pub(super) layout: StreamLayout,
    /// By id. Ids count up, so the first is the oldest.
    pub(super) calls: BTreeMap<u64, PendingSlot>,
    /// Calls that were given up. A late reply to one of them is no stray.
    abandoned: BTreeSet<u64>,
    stray_replies: u32,
    /// Bytes of large replies that their callers have not taken, or have no capacity for yet.
    pub(super) unread_reply_bytes: usize,
    /// How many calls lag, so that reading waits for them.
    pub(super) lagging: usize,
    /// Bytes routed since the session's listener was last known to keep up.
    pub(super) bytes_since_check: usize,
    pub(super) ignores_server_requests: bool,
    pub(super) end_reason: Option<Diagnostic>,
}

#[derive(Debug)]
pub(super) struct PendingSlot {
    kind: PendingKind,
    caller: Option<CallerId>,
    pub(super) is_sent: bool,
    /// Its reply or loss is in the queue, or was taken from there.
    pub(super) is_ended: bool,
    pub(super) queue: VecDeque<PendingEvent>,
    backlog: Backlog,
    pub(super) unread_reply_bytes: usize,
    wake: Arc<Notify>,
}

/// Who else gets a notification, after the calls.
pub(super) enum NotificationRoute {
    Done,
    Listener,
    Broadcast,
    /// It cancels the server request with this raw id.
    Cancels(Bytes),
}

impl PendingState {
    pub(super) fn new(layout: StreamLayout) -> Self {
        Self {
            layout,
            calls: BTreeMap::new(),
            abandoned: BTreeSet::new(),
            stray_replies: 0,
            unread_reply_bytes: 0,
            lagging: 0,
            bytes_since_check: 0,
            ignores_server_requests: false,
            end_reason: None,
        }
    }

    /// Adds a slot. After the end of the stream its only event is that the request was not sent.
    pub(super) fn register(
        &mut self,
        id: u64,
        kind: PendingKind,
        caller: Option<CallerId>,
    ) -> Arc<Notify> {
        let mut slot = PendingSlot {
            kind,
            caller,
            is_sent: self.layout != StreamLayout::Pipe,
            is_ended: false,
            queue: VecDeque::new(),
            backlog: Backlog::default(),
            unread_reply_bytes: 0,
            wake: Arc::default(),
        };
        if let Some(reason) = &self.end_reason {
            slot.end(PendingEvent::Lost(Delivery::Unsent, reason.clone()));
        }
        let wake = Arc::clone(&slot.wake);
        self.calls.insert(id, slot);
        wake
    }

    pub(super) fn is_blocked(&self, max_unread: usize) -> bool {
        self.lagging > 0 || self.unread_reply_bytes > max_unread
    }

    pub(super) fn lag_deadline(&self) -> Option<Instant> {
        let slots = self.calls.values().filter(|_| self.lagging > 0);
        slots.filter_map(|slot| slot.backlog.wait_deadline()).min()
    }

    /// Reading no longer waits for calls that had their time, unless one is alone.
    pub(super) fn stop_waiting(&mut self, is_alone: bool) {
        let now = clock::now();
        self.lagging = 0;
        for slot in self.calls.values_mut() {
            slot.backlog.stop_waiting(now, is_alone);
            self.lagging += slot.is_lagging();
        }
    }

    /// The caller of the only call; none if there are several calls, or the call has no listener.
    pub(super) fn only_caller(&self) -> Option<CallerId> {
        let mut callers = self.calls.values().map(|slot| slot.caller);
        let first = callers.next().flatten();
        first.filter(|_| callers.next().is_none())
    }

    pub(super) fn in_flight_mut(&mut self, id: u64) -> Option<&mut PendingSlot> {
        self.calls.get_mut(&id).filter(|slot| slot.is_in_flight())
    }

    /// The calls that wait for their replies, oldest first, with their callers.
    pub(super) fn calls_in_flight(
        &self,
    ) -> impl Iterator<Item = (u64, Option<CallerId>)> + Clone + '_ {
        let calls = self.calls.iter();
        let waiting = calls.filter(|(_, s)| s.is_in_flight() && s.kind == PendingKind::Call);
        waiting.map(|(id, slot)| (*id, slot.caller))
    }

    /// The request that an error without an id must be about: the only one in flight, and none was
    /// abandoned. Where calls have their own streams, such an error comes there.
    fn only_request(&self) -> Option<u64> {
        if self.layout == StreamLayout::PerCallStreams || !self.abandoned.is_empty() {
            return None;
        }
        let mut in_flight = self.calls.iter().filter(|(_, slot)| slot.is_in_flight());
        let (first, _) = in_flight.next()?;
        in_flight.next().is_none().then_some(*first)
    }

    /// Changes a slot, and counts the calls that lag.
    pub(super) fn update_slot<T>(
        &mut self,
        id: u64,
        change: impl FnOnce(&mut PendingSlot) -> T,
    ) -> Option<T> {
        let slot = self.calls.get_mut(&id)?;
        let before = slot.is_lagging();
        let changed = change(slot);
        self.lagging = self.lagging + slot.is_lagging() - before;
        Some(changed)
    }

    pub(super) fn push(&mut self, id: u64, message: Message) -> bool {
        self.update_slot(id, |slot| slot.push(message)) == Some(true)
    }

    pub(super) fn route_reply(&mut self, message: Message) -> Result<(), TooManyStrayReplies> {
        let id = match message.id() {
            Some(RequestId::Number(number)) => u64::try_from(number).ok(),
            None | Some(RequestId::Null) if message.kind() == MessageKind::Error => {
                match self.only_request().filter(|_| is_parse_failure(&message)) {
                    // It answers a notification.
                    None => return Ok(()),
                    only => only,
                }
            },
            None | Some(RequestId::Null | RequestId::Text(_) | RequestId::Other) => None,
        };
        if let Some(id) = id {
            let bytes = Some(message.raw().len()).filter(|bytes| *bytes > LARGE_REPLY_BYTES);
            // The first reply counts.
            if let Some(slot) = self.in_flight_mut(id) {
                slot.unread_reply_bytes = bytes.unwrap_or(0);
                slot.end(PendingEvent::Message(message));
                self.unread_reply_bytes += bytes.unwrap_or(0);
                return Ok(());
            }
            if self.abandoned.remove(&id) {
                return Ok(());
            }
        }
        self.stray_replies += 1;
        match self.stray_replies {
            ..MAX_STRAY_REPLIES => Ok(()),
            MAX_STRAY_REPLIES.. => Err(TooManyStrayReplies),
        }
    }

    pub(super) fn route_notification(&mut self, message: &Message) -> NotificationRoute {
        let named = named_call(message);
        let target = named.and_then(|id| Some((id, self.in_flight_mut(id)?.kind)));
        if let Some(cancelled) = attribution::cancelled_request_id(message) {
            match target {
                Some((id, PendingKind::Listen)) => {
                    self.complete_listen(id);
                    return NotificationRoute::Done;
                },
                Some((_, PendingKind::Call)) => {},
                None => {
                    // The call that was asked knows the request by its id.
                    let calls: Vec<u64> = self.calls_in_flight().map(|(id, _)| id).collect();
                    for call in calls {
                        self.push(call, message.clone());
                    }
                    return NotificationRoute::Cancels(cancelled);
                },
            }
        }
        let scope = scope_of_method(message.method().unwrap_or_default());
        let call = match (named, scope) {
            (Some(_), _) => target.map(|(id, _)| id),
            (None, NotificationScope::AllClients | NotificationScope::CallElseAllClients) => {
                return NotificationRoute::Broadcast;
            },
            (None, NotificationScope::CallElseUnsolicited | NotificationScope::NamedCall) => {
                attribution::attribute_notification(self.calls_in_flight())
            },
        };
        if let Some(call) = call {
            self.push(call, message.clone());
        }
        match scope {
            NotificationScope::AllClients => NotificationRoute::Listener,
            NotificationScope::CallElseAllClients | NotificationScope::CallElseUnsolicited
                if call.is_none() =>
            {
                NotificationRoute::Listener
            },
            NotificationScope::CallElseAllClients
            | NotificationScope::CallElseUnsolicited
            | NotificationScope::NamedCall => NotificationRoute::Done,
        }
    }

    /// Over a pipe a server may end a listen by a cancel, instead of a result or before it.
    fn complete_listen(&mut self, id: u64) {
        let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"resultType":"complete"}}}}"#);
        if let (Ok(result), Some(slot)) = (Message::parse(text.into()), self.in_flight_mut(id)) {
            slot.end(PendingEvent::Message(result));
            self.expect_late_reply(id);
        }
    }

    pub(super) fn expect_late_reply(&mut self, id: u64) {
        self.abandoned.insert(id);
        if self.abandoned.len() > MAX_ABANDONED {
            self.abandoned.pop_first();
        }
    }

    pub(super) fn attribute_request(&self, message: &Message) -> Attribution {
        let is_abandoned = |id| self.abandoned.contains(&id);
        attribution::attribute_request(message, is_abandoned, self.calls_in_flight())
    }
}

impl PendingSlot {
    pub(super) fn is_in_flight(&self) -> bool {
        self.is_sent && !self.is_ended
    }

    pub(super) fn is_lagging(&self) -> usize {
        usize::from(self.backlog.wait_deadline().is_some())
    }

    pub(super) fn push(&mut self, message: Message) -> bool {
        let has_room = self.backlog.push(message.raw().len());
        if has_room {
            self.queue.push_back(PendingEvent::Message(message));
            self.wake.notify_one();
        }
        has_room
    }

    /// The last event always has room.
    pub(super) fn end(&mut self, event: PendingEvent) {
        self.is_ended = true;
        self.queue.push_back(event);
        self.wake.notify_one();
    }

    pub(super) fn take_event(&mut self) -> Option<PendingEvent> {
        if let Some(dropped) = self.backlog.take_dropped() {
            return Some(PendingEvent::Dropped(dropped));
        }
        let event = self.queue.pop_front();
        match &event {
            Some(PendingEvent::Message(message)) if !is_reply(message) => {
                self.backlog.pop(message.raw().len());
            },
            None if self.is_ended => return Some(read_after_end()),
            Some(_) | None => {},
        }
        event
    }
}

/// Whether an error says that its sender could not read the request: only then it has no id to
/// name. An error without an id about anything else answers a notification.
fn is_parse_failure(message: &Message) -> bool {
    let error = message.error().and_then(|raw| RpcError::parse(&raw).ok());
    error.is_some_and(|error| matches!(error.code, -32700 | -32600))
}

/// Nobody should read on after the end; who does must not wait for ever.
pub(super) fn read_after_end() -> PendingEvent {
    let what = "a pending request was read after its end";
    PendingEvent::Lost(Delivery::Unknown, Diagnostic::new(Reason::Internal, what))
}
