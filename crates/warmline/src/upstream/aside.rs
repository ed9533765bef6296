//! Questions that no call waits for, until they are answered, their server takes them back or its
//! session is over.
//!
//! Told by: whoever reads what a server says outside the streams of its calls.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::Notify;

use crate::sync::Mutex;

/// More of one session are not asked at a time.
const MAX_OPEN: usize = 64;

/// The questions of one session that are not answered yet, by their raw ids.
#[derive(Debug, Default)]
pub(crate) struct Aside(Mutex<Vec<(Bytes, Arc<Notify>)>>);

/// A question that is not answered yet; dropping it notes its end.
#[derive(Debug)]
pub(crate) struct OpenAside {
    aside: Arc<Aside>,
    taken_back: Arc<Notify>,
}

impl Aside {
    /// Notes a question; none where too many are open.
    pub(crate) fn open(self: &Arc<Self>, id: Bytes) -> Option<OpenAside> {
        let mut open = self.0.lock();
        if open.len() >= MAX_OPEN {
            return None;
        }
        let taken_back = Arc::new(Notify::new());
        open.push((id, Arc::clone(&taken_back)));
        Some(OpenAside {
            aside: Arc::clone(self),
            taken_back,
        })
    }

    /// The server no longer wants to know. What it names may be answered already.
    pub(crate) fn take_back(&self, id: &[u8]) {
        for (_, asked) in self.0.lock().iter().filter(|(asked, _)| asked == id) {
            asked.notify_one();
        }
    }

    /// Its session is over: nobody wants to know any more.
    pub(crate) fn end(&self) {
        for (_, asked) in self.0.lock().iter() {
            asked.notify_one();
        }
    }
}

impl OpenAside {
    /// Waits until the server takes it back, or is gone.
    pub(crate) async fn taken_back(&self) {
        self.taken_back.notified().await;
    }
}

impl Drop for OpenAside {
    fn drop(&mut self) {
        let mut open = self.aside.0.lock();
        open.retain(|(_, asked)| !Arc::ptr_eq(asked, &self.taken_back));
    }
}
