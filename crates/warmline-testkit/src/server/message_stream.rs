//! What a server says about one request, in order: notices, questions, and the response at the end.
//!
//! Written by: the execution of a request.  Read by: whoever carries it to the client.
//!
//! A legacy execution does not end when its connection breaks, so what it says is kept here and
//! can be read again from any place (`Last-Event-ID`).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::Notify;

/// The messages of one request, or of one standing stream.
#[derive(Debug)]
pub(crate) struct MessageStream {
    /// First part of its event ids.
    pub(crate) name: String,
    state: Mutex<MessageStreamState>,
    changed: Notify,
    reader_count: AtomicUsize,
}

/// Somebody who reads a stream.
#[derive(Debug)]
pub(crate) struct StreamReaderGuard(Arc<MessageStream>);

impl Drop for StreamReaderGuard {
    fn drop(&mut self) {
        self.0.reader_count.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Debug, Default)]
struct MessageStreamState {
    messages: Vec<Value>,
    ended: bool,
}

impl MessageStream {
    pub(crate) fn new(name: impl Into<String>) -> Arc<Self> {
        Arc::new(Self {
            name: name.into(),
            state: Mutex::default(),
            changed: Notify::new(),
            reader_count: AtomicUsize::new(0),
        })
    }

    /// Adds a message.
    pub(crate) fn push(&self, message: Value) {
        self.state.lock().messages.push(message);
        self.changed.notify_waiters();
    }

    /// Nothing follows.
    pub(crate) fn end(&self) {
        self.state.lock().ended = true;
        self.changed.notify_waiters();
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.state.lock().ended
    }

    /// The message at this place, once there is one; none when the stream ended before.
    pub(crate) async fn message_at(&self, place: usize) -> Option<Value> {
        loop {
            let news = self.changed.notified();
            {
                let said = self.state.lock();
                if let Some(message) = said.messages.get(place) {
                    return Some(message.clone());
                }
                if said.ended {
                    return None;
                }
            }
            news.await;
        }
    }

    /// Counts a reader until the guard is dropped.
    pub(crate) fn add_reader(self: &Arc<Self>) -> StreamReaderGuard {
        self.reader_count.fetch_add(1, Ordering::Relaxed);
        StreamReaderGuard(Arc::clone(self))
    }

    pub(crate) fn has_reader(&self) -> bool {
        self.reader_count.load(Ordering::Relaxed) > 0
    }

    /// Waits for the end.
    pub(crate) async fn wait_for_end(&self) {
        loop {
            let news = self.changed.notified();
            if self.is_ended() {
                return;
            }
            news.await;
        }
    }
}
