//! Replies that are held: from when they are read at a server until their client has read them.
//!
//! Asked by: the ears of calls, before a large reply is read, and [`door`](crate::door), which
//! counts every large answer that leaves, and every large event. A client that does not read is left
//! after a while; until then its replies are held, and there must be room for those of others. So a
//! reply that has no room waits at its server, and who has much of it waits sooner than others (see
//! [shares](super::shares)). Of a program as much is read by then as one line may have, and nothing
//! after it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;
use warmline::core::key::Digest;
use warmline::upstream::Roomy;

use super::limits::Gate;
use super::shares::{Share, is_fair};

/// Answers that are smaller are not counted: there are no more of them than requests.
const LARGE: usize = 64 << 10;

/// Whether an answer is counted.
pub(crate) fn is_large(answer: &Bytes) -> bool {
    answer.len() > LARGE
}

/// What is held of replies.
#[derive(Debug, Default)]
pub(super) struct Replies {
    bytes: AtomicUsize,
    freed: Notify,
}

impl Replies {
    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// The room for replies of one identity, or of nobody that is known.
#[derive(Clone)]
pub(crate) struct ReplyRoom {
    gate: Arc<Gate>,
    whose: Option<Digest>,
}

impl ReplyRoom {
    pub(crate) fn new(gate: &Arc<Gate>, whose: Option<Digest>) -> Self {
        Self {
            gate: Arc::clone(gate),
            whose,
        }
    }

    /// Room for so many bytes, as soon as there is.
    ///
    /// # Cancel safety
    /// Dropping it takes nothing.
    async fn wait(&self, bytes: usize) -> HeldReply {
        loop {
            let freed = self.gate.replies.freed.notified();
            let mut freed = std::pin::pin!(freed);
            // Before it is looked: what is freed in between is not missed.
            freed.as_mut().enable();
            let taken = self.take(bytes);
            if taken.has_room {
                return taken;
            }
            drop(taken);
            freed.await;
        }
    }

    /// An answer on its way to its client, counted until it was read.
    pub(crate) fn held(&self, answer: Bytes) -> Bytes {
        let held = self.take(answer.len());
        Bytes::from_owner(Counted {
            answer,
            _held: held,
        })
    }

    fn take(&self, bytes: usize) -> HeldReply {
        let share = self.whose.map(|whose| self.gate.share(whose));
        let most = self.gate.limits().request_bytes;
        let before = self.gate.replies.bytes.fetch_add(bytes, Ordering::Relaxed);
        let theirs = share.as_ref().map_or(0, |share| {
            let theirs = share.replies.fetch_add(bytes, Ordering::Relaxed);
            theirs.saturating_add(bytes)
        });
        // One that is larger than all there is goes alone.
        let fits = before == 0 || before.saturating_add(bytes) <= most;
        let has_room = fits && (before == 0 || is_fair(theirs, before, most));
        HeldReply {
            gate: Arc::clone(&self.gate),
            share,
            bytes,
            has_room,
        }
    }
}

/// The room of one call, for the reply that is read for it.
pub(crate) struct CallRoom {
    room: ReplyRoom,
    held: Mutex<Option<HeldReply>>,
}

impl CallRoom {
    pub(crate) fn new(room: ReplyRoom) -> Self {
        Self {
            room,
            held: Mutex::default(),
        }
    }

    /// Room for so many bytes, in place of what was taken before: nobody waits who has some.
    pub(crate) fn wait(&self, bytes: usize) -> Option<Roomy<'_>> {
        drop(self.held.lock().take());
        if bytes == 0 {
            return None;
        }
        Some(Box::pin(async move {
            let held = self.room.wait(bytes).await;
            *self.held.lock() = Some(held);
        }))
    }
}

/// Room that is taken for a reply, until it is dropped.
struct HeldReply {
    gate: Arc<Gate>,
    share: Option<Arc<Share>>,
    bytes: usize,
    has_room: bool,
}

impl Drop for HeldReply {
    fn drop(&mut self) {
        let replies = &self.gate.replies;
        replies.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        if let Some(share) = &self.share {
            share.replies.fetch_sub(self.bytes, Ordering::Relaxed);
        }
        // What was only tried frees nothing.
        if self.has_room {
            replies.freed.notify_waiters();
        }
    }
}

/// An answer, and the room that it takes up.
struct Counted {
    answer: Bytes,
    _held: HeldReply,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.answer
    }
}
