//! Room for large replies, from the moment they are read from a server until their client has read
//! them.
//!
//! A reply without room waits at its server; that of an identity that holds much waits sooner (see
//! [quota](super::usage)). A client that does not read is disconnected after a while.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use warmline_core::pool_key::Digest;
use warmline_upstream::CapacityFuture;

use super::ListenerLimiter;
use super::usage::{Charge, Resource, Usage};

/// Smaller replies are not counted: the limit on requests bounds them.
const MIN_COUNTED_REPLY: usize = 64 << 10;

pub(crate) fn is_large_reply(reply: &Bytes) -> bool {
    reply.len() > MIN_COUNTED_REPLY
}

/// The reply budget of one identity, or of an unknown caller.
#[derive(Clone)]
pub(crate) struct IdentityReplyBudget {
    limiter: Arc<ListenerLimiter>,
    identity: Option<Digest>,
}

impl IdentityReplyBudget {
    pub(crate) fn new(limiter: &Arc<ListenerLimiter>, identity: Option<Digest>) -> Self {
        Self {
            limiter: Arc::clone(limiter),
            identity,
        }
    }

    fn usage(&self) -> Option<Arc<Usage>> {
        Some(self.limiter.identities.of(self.identity?))
    }

    /// Waits for room.
    ///
    /// # Cancel safety
    /// Dropping it reserves nothing.
    async fn reserve(&self, bytes: usize) -> Charge {
        loop {
            let mut freed = std::pin::pin!(self.limiter.reply_bytes_freed.notified());
            // Before the attempt, so that no release in between is missed.
            freed.as_mut().enable();
            // A reply that is larger than the limit goes alone.
            let limit = self.limiter.limits.load().max_request_bytes.max(bytes);
            let wanted = (Resource::ReplyBytes, bytes);
            if let Ok(charge) = Charge::try_new(&self.limiter, self.usage(), wanted, limit) {
                return charge;
            }
            freed.await;
        }
    }

    /// Counts a reply until its client has read it.
    pub(crate) fn track_reply(&self, reply: Bytes) -> Bytes {
        let amount = (Resource::ReplyBytes, reply.len());
        Bytes::from_owner(BudgetedReply {
            _charge: Charge::new(&self.limiter, self.usage(), amount),
            reply,
        })
    }
}

/// The room for the reply of one call.
pub(crate) struct CallReplyBudget {
    budget: IdentityReplyBudget,
    reserved: Mutex<Option<Charge>>,
}

impl CallReplyBudget {
    pub(crate) fn new(budget: IdentityReplyBudget) -> Self {
        Self {
            budget,
            reserved: Mutex::default(),
        }
    }

    /// Waits for room. Gives the old room back first: a call that waits holds nothing.
    pub(crate) fn reserve(&self, bytes: usize) -> Option<CapacityFuture<'_>> {
        drop(self.reserved.lock().take());
        if bytes == 0 {
            return None;
        }
        Some(Box::pin(async move {
            let charge = self.budget.reserve(bytes).await;
            *self.reserved.lock() = Some(charge);
        }))
    }
}

struct BudgetedReply {
    reply: Bytes,
    _charge: Charge,
}

impl AsRef<[u8]> for BudgetedReply {
    fn as_ref(&self) -> &[u8] {
        &self.reply
    }
}
