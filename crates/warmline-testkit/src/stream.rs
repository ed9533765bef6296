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
pub(crate) struct Stream {
    /// First part of its event ids.
    pub(crate) name: String,
    said: Mutex<Said>,
    news: Notify,
    readers: AtomicUsize,
}

/// Somebody who reads a stream.
#[derive(Debug)]
pub(crate) struct Reader(Arc<Stream>);

impl Drop for Reader {
    fn drop(&mut self) {
        self.0.readers.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Debug, Default)]
struct Said {
    messages: Vec<Value>,
    ended: bool,
}

impl Stream {
    pub(crate) fn new(name: impl Into<String>) -> Arc<Self> {
        Arc::new(Self {
            name: name.into(),
            said: Mutex::default(),
            news: Notify::new(),
            readers: AtomicUsize::new(0),
        })
    }

    /// Adds a message.
    pub(crate) fn say(&self, message: Value) {
        self.said.lock().messages.push(message);
        self.news.notify_waiters();
    }

    /// Nothing follows.
    pub(crate) fn end(&self) {
        self.said.lock().ended = true;
        self.news.notify_waiters();
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.said.lock().ended
    }

    /// The message at this place, once there is one; none when the stream ended before.
    pub(crate) async fn at(&self, place: usize) -> Option<Value> {
        loop {
            let news = self.news.notified();
            {
                let said = self.said.lock();
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
    pub(crate) fn read_by(self: &Arc<Self>) -> Reader {
        self.readers.fetch_add(1, Ordering::Relaxed);
        Reader(Arc::clone(self))
    }

    pub(crate) fn is_read(&self) -> bool {
        self.readers.load(Ordering::Relaxed) > 0
    }

    /// Waits for the end.
    pub(crate) async fn ended(&self) {
        loop {
            let news = self.news.notified();
            if self.is_ended() {
                return;
            }
            news.await;
        }
    }
}
