//! A bounded, replayable queue of the events sent to a client on one stream.
//!
//! The listener of a call or of a GET stream pushes events, and a
//! [`ResponseStream`](super::stream::ResponseStream) reads them. Events are numbered from 1.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use smallvec::SmallVec;
use warmline_platform::clock::{self, Instant};
use warmline_upstream::{CapacityFuture, ReceiverPace};

use super::replay_store::ReplayStore;
use super::stream::AcceptedFormats;
use crate::metrics::GatewayCounters;

/// The most bytes for a client that does not read, or may come back. Beyond it the oldest events are
/// dropped, but never a required one. The owner of the queue bounds those.
const MAX_RETAINED_BYTES: usize = 256 << 10;

/// A reader that keeps up loses nothing, since senders wait for it. For senders that do not wait, this is the
/// most.
const MAX_UNREAD_BYTES: usize = 1 << 20;

#[derive(Debug, Default)]
pub(crate) struct EventQueue(Mutex<QueueState>);

#[derive(Debug, Default)]
struct QueueState {
    /// Whether events that were read are kept for a client that may ask for them again.
    keeps_read: bool,
    /// The number of the last event that was dropped from the front.
    dropped: u64,
    events: VecDeque<QueuedEvent>,
    bytes: usize,
    /// The number of the last event that was read.
    read: u64,
    unread_bytes: usize,
    pace: ReceiverPace,
    /// Whether the client accepts no stream, so that only the answer to its call reaches it.
    is_final_only: bool,
    counters: Option<Arc<GatewayCounters>>,
    phase: QueuePhase,
    cancel_params: Option<Bytes>,
    is_streaming: bool,
    /// The server wants its reader to leave, and to come back after this long.
    pause_for: Option<Duration>,
    reader_id: u64,
    presence: ReaderPresence,
    /// The servers behind it, where the path names none.
    servers: SmallVec<[Box<str>; 1]>,
    /// The store that retains it for replay.
    store: Option<Weak<ReplayStore>>,
    /// Since when no event can come and no client reads.
    idle_since: Option<Instant>,
    /// The reader, and the driver of the call.
    wakers: SmallVec<[Waker; 2]>,
}

#[derive(Debug)]
struct QueuedEvent {
    message: Bytes,
    is_required: bool,
}

/// Where the last reader is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ReaderPresence {
    /// No reader came yet.
    #[default]
    Awaited,
    Reading,
    /// It left, and may come back while the queue is retained.
    Left,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum QueuePhase {
    #[default]
    Open,
    Finished,
    Cancelled,
}

impl EventQueue {
    pub(crate) fn new(counters: &Arc<GatewayCounters>) -> Self {
        Self(Mutex::new(QueueState {
            counters: Some(Arc::clone(counters)),
            ..QueueState::default()
        }))
    }

    /// Its events come from this server, which the path does not name. The stream ends when the client
    /// may not use it any more.
    pub(crate) fn add_source_server(&self, server: &str) {
        self.0.lock().servers.push(server.into());
    }

    pub(crate) fn source_servers(&self) -> Vec<String> {
        let servers = &self.0.lock().servers;
        servers.iter().map(ToString::to_string).collect()
    }

    /// Counts messages that were dropped before they came here.
    pub(crate) fn count_dropped(&self, messages: u64) {
        self.0.lock().count_dropped(messages);
    }

    /// Resolves when the reader has caught up or left; `None` where it keeps up. For senders to this queue
    /// alone: the listener disconnects clients that read nothing.
    pub(crate) fn backpressure(&self) -> Option<CapacityFuture<'_>> {
        self.0.lock().backpressure_deadline()?;
        Some(Box::pin(self.reader_caught_up()))
    }

    /// The same for senders to several queues, which wait only for a while.
    pub(crate) fn bounded_backpressure(&self) -> Option<CapacityFuture<'_>> {
        let by = self.0.lock().backpressure_deadline()?;
        Some(Box::pin(async move {
            let caught_up = clock::timeout_at(by, self.reader_caught_up()).await;
            if caught_up.is_err() {
                self.0.lock().pace.stop_waiting();
            }
        }))
    }

    async fn reader_caught_up(&self) {
        std::future::poll_fn(|cx| {
            let mut state = self.0.lock();
            if state.backpressure_deadline().is_none() {
                return Poll::Ready(());
            }
            state.register_waker(cx.waker());
            Poll::Pending
        })
        .await;
    }

    /// Pushes an event that may be dropped. Returns whether a client can still read it.
    pub(crate) fn push_droppable(&self, message: Bytes) -> bool {
        self.change(|state| state.push(message, false))
    }

    pub(crate) fn push_required(&self, message: Bytes) -> bool {
        self.change(|state| state.push(message, true))
    }

    /// Ends the queue, with a last message if there is one.
    pub(crate) fn finish(&self, message: Option<Bytes>) {
        self.change(|state| {
            if let Some(message) = message {
                state.push(message, true);
            }
            state.close(QueuePhase::Finished);
        });
    }

    /// Changes the queue, and evicts streams if the store holds too much then.
    fn change<T>(&self, change: impl FnOnce(&mut QueueState) -> T) -> T {
        let mut state = self.0.lock();
        let changed = change(&mut state);
        let store = state.store();
        // The store locks the queues that it evicts.
        drop(state);
        if let Some(store) = store {
            store.evict_excess();
        }
        changed
    }

    pub(crate) fn mark_streaming(&self) {
        let mut state = self.0.lock();
        state.is_streaming = true;
        state.wake_all();
    }

    /// The server closed its stream, and wants its client back after this long.
    pub(crate) fn request_pause(&self, come_back_after: Duration) {
        let mut state = self.0.lock();
        state.pause_for = Some(come_back_after);
        state.wake_all();
    }

    pub(super) fn requested_pause(&self) -> Option<Duration> {
        self.0.lock().pause_for
    }

    /// The client cancelled the call, perhaps by a notification with these raw parameters.
    pub(crate) fn cancel(&self, params: Option<Bytes>) {
        let mut state = self.0.lock();
        state.cancel_params = params.or(state.cancel_params.take());
        state.close(QueuePhase::Cancelled);
    }

    pub(crate) fn cancel_params(&self) -> Option<Bytes> {
        self.0.lock().cancel_params.clone()
    }

    /// Attaches a reader. The one before finds the queue finished.
    pub(super) fn attach_reader(&self, accepts: AcceptedFormats) -> u64 {
        let mut state = self.0.lock();
        state.is_final_only = accepts == AcceptedFormats::Json;
        state.reader_id += 1;
        state.presence = ReaderPresence::Reading;
        // A new reader does not leave at once.
        state.pause_for = None;
        if state.phase == QueuePhase::Open {
            state.idle_since = None;
        }
        state.wake_all();
        state.reader_id
    }

    pub(super) fn detach_reader(&self, reader: u64) {
        let mut state = self.0.lock();
        if state.reader_id == reader {
            state.presence = ReaderPresence::Left;
            state.drop_if_unreachable();
            state.wake_all();
        }
    }

    /// No call drives the queue from now on.
    pub(crate) fn mark_idle(&self) {
        let mut state = self.0.lock();
        if state.presence != ReaderPresence::Reading {
            state.idle_since.get_or_insert_with(clock::now);
        }
    }

    /// The store retains the queue from now on, with the events that were read, and counts its bytes.
    pub(super) fn set_store(&self, store: &Arc<ReplayStore>) {
        let mut state = self.0.lock();
        store.add_bytes(state.bytes);
        state.store = Some(Arc::downgrade(store));
        state.keeps_read = true;
    }

    /// The queue is no longer retained. A current reader gets the rest.
    pub(super) fn release_store(&self) {
        let mut state = self.0.lock();
        if let Some(store) = state.store() {
            store.remove_bytes(state.bytes);
        }
        state.store = None;
        state.drop_read_events();
        state.drop_if_unreachable();
    }

    pub(crate) fn drop_read_events(&self) {
        self.0.lock().drop_read_events();
    }

    /// Whether its client has left and cannot come back.
    pub(super) fn is_unreachable(&self) -> bool {
        self.0.lock().is_unreachable()
    }

    pub(super) fn retained_bytes(&self) -> usize {
        self.0.lock().bytes
    }

    /// Whether unread events are held that no client is reading.
    pub(super) fn is_abandoned_unread(&self) -> bool {
        let state = self.0.lock();
        state.presence != ReaderPresence::Reading && state.read < state.last_number()
    }

    /// Since when no event can come and no client reads.
    pub(crate) fn idle_since(&self) -> Option<Instant> {
        self.0.lock().idle_since
    }

    /// Whether the response is a stream by now: an event waits, or the server's answer is a stream.
    pub(super) fn has_started(&self, after: u64, reader: u64, cx: &mut Context<'_>) -> bool {
        let mut state = self.0.lock();
        state.poll_next(after, reader, cx).is_ready() || state.is_streaming
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.0.lock().phase == QueuePhase::Finished
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.0.lock().phase == QueuePhase::Cancelled
    }

    /// The event after that number or, where it was dropped, the first one that is held, with its own
    /// number. `None` if no event comes any more, the call was cancelled, or another reader gets the rest.
    pub(super) fn poll_next(
        &self,
        after: u64,
        reader: u64,
        cx: &mut Context<'_>,
    ) -> Poll<Option<(u64, Bytes)>> {
        self.0.lock().poll_next(after, reader, cx)
    }

    pub(crate) fn poll_cancelled(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.0.lock();
        if state.phase == QueuePhase::Cancelled {
            return Poll::Ready(());
        }
        state.register_waker(cx.waker());
        Poll::Pending
    }

    /// Whether the event after that number is still held, or yet to come.
    pub(crate) fn can_replay_after(&self, number: u64) -> bool {
        let state = self.0.lock();
        state.phase != QueuePhase::Cancelled
            && (state.dropped..=state.last_number()).contains(&number)
    }
}

impl QueueState {
    fn poll_next(
        &mut self,
        after: u64,
        reader: u64,
        cx: &mut Context<'_>,
    ) -> Poll<Option<(u64, Bytes)>> {
        if self.phase == QueuePhase::Cancelled || self.reader_id != reader {
            return Poll::Ready(None);
        }
        self.mark_read(after);
        if !self.keeps_read {
            while self.dropped < after && self.drop_first() {}
        }
        let after = after.max(self.dropped);
        if let Some(held) = self.events.get(self.index(after)) {
            return Poll::Ready(Some((after + 1, held.message.clone())));
        }
        if self.phase == QueuePhase::Finished {
            return Poll::Ready(None);
        }
        self.register_waker(cx.waker());
        Poll::Pending
    }

    fn push(&mut self, message: Bytes, is_required: bool) -> bool {
        if self.phase != QueuePhase::Open || self.is_unreachable() {
            return false;
        }
        if self.is_final_only && !is_required {
            return true;
        }
        let length = message.len();
        while self.bytes + length > MAX_RETAINED_BYTES && self.can_drop_first() {
            self.count_dropped(u64::from(self.dropped >= self.read));
            self.drop_first();
        }
        let is_too_much = self.bytes + length > MAX_RETAINED_BYTES && !self.events.is_empty();
        if is_too_much && !is_required && !self.is_reader_keeping_up() {
            self.count_dropped(1);
            return true;
        }
        self.bytes += length;
        self.unread_bytes += length;
        self.pace.update(self.unread_bytes);
        self.events.push_back(QueuedEvent {
            message,
            is_required,
        });
        self.wake_all();
        if let Some(store) = self.store() {
            store.add_bytes(length);
        }
        true
    }

    fn store(&self) -> Option<Arc<ReplayStore>> {
        self.store.as_ref()?.upgrade()
    }

    /// The place of the event after that number, which was not dropped.
    fn index(&self, after: u64) -> usize {
        usize::try_from(after - self.dropped).unwrap_or(usize::MAX)
    }

    fn last_number(&self) -> u64 {
        let held = u64::try_from(self.events.len()).unwrap_or(u64::MAX);
        self.dropped.saturating_add(held)
    }

    fn drop_read_events(&mut self) {
        self.keeps_read = false;
        while self.dropped < self.read && self.drop_first() {}
    }

    fn drop_if_unreachable(&mut self) {
        if self.is_unreachable() {
            while self.drop_first() {}
        }
    }

    fn is_unreachable(&self) -> bool {
        self.presence == ReaderPresence::Left && self.store.is_none()
    }

    fn close(&mut self, phase: QueuePhase) {
        if self.phase == QueuePhase::Open {
            self.phase = phase;
            self.idle_since = Some(clock::now());
        }
        self.wake_all();
    }

    fn can_drop_first(&self) -> bool {
        self.events.front().is_some_and(|first| {
            self.dropped < self.read || (!first.is_required && !self.is_reader_keeping_up())
        })
    }

    /// Whether a client reads and keeps up, or senders wait for it.
    fn is_reader_keeping_up(&self) -> bool {
        let keeps_up = self.pace != ReceiverPace::Slow && self.unread_bytes <= MAX_UNREAD_BYTES;
        self.presence == ReaderPresence::Reading && keeps_up
    }

    /// Until when senders wait for the reader, where it is behind.
    fn backpressure_deadline(&self) -> Option<Instant> {
        let is_read = self.phase == QueuePhase::Open && self.presence == ReaderPresence::Reading;
        let by = self.pace.wait_deadline(self.unread_bytes);
        by.filter(|_| is_read)
    }

    /// Every event up to that number was read.
    fn mark_read(&mut self, number: u64) {
        if number <= self.read {
            return;
        }
        let to = self.index(number).min(self.events.len());
        let read = self.events.range(self.index(self.read).min(to)..to);
        let bytes: usize = read.map(|held| held.message.len()).sum();
        self.read = number;
        self.unread_bytes = self.unread_bytes.saturating_sub(bytes);
        if self.pace != ReceiverPace::KeepsUp {
            self.pace.update(self.unread_bytes);
            self.wake_all();
        }
    }

    fn count_dropped(&self, messages: u64) {
        if let Some(counters) = &self.counters {
            counters.dropped_notifications.add(messages);
        }
    }

    fn drop_first(&mut self) -> bool {
        let Some(held) = self.events.pop_front() else {
            return false;
        };
        let length = held.message.len();
        self.bytes = self.bytes.saturating_sub(length);
        self.dropped += 1;
        if self.read < self.dropped {
            self.read = self.dropped;
            self.unread_bytes = self.unread_bytes.saturating_sub(length);
        }
        if let Some(store) = self.store() {
            store.remove_bytes(length);
        }
        true
    }

    fn register_waker(&mut self, waker: &Waker) {
        if !self.wakers.iter().any(|known| known.will_wake(waker)) {
            self.wakers.push(waker.clone());
        }
    }

    fn wake_all(&mut self) {
        for waker in self.wakers.drain(..) {
            waker.wake();
        }
    }
}

#[cfg(test)]
mod tests;
