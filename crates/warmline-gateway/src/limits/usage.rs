//! What clients use, in total and by identity, so that no identity takes everything.
//!
//! The quota is not fixed: an identity may hold a multiple of what is still free. One alone gets
//! nearly everything, several that want everything get equal parts, and there is always room for
//! the next one. Each identity has its own counters, so no call waits for another.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use papaya::HashMap;
use parking_lot::Mutex;
use warmline_core::pool_key::Digest;
use warmline_upstream::CapacityFuture;

use crate::limits::ListenerLimiter;

/// The multiple of what is free: 8/9 of everything for one identity, 8/17 each for two.
const FREE_MULTIPLE: usize = 8;
/// Idle identities are removed after this many new ones.
const SWEEP_AFTER_NEW: usize = 4_096;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resource {
    Connections,
    Requests,
    RequestBytes,
    ReplyBytes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LimitExceeded {
    /// That of all callers together.
    Total,
    /// The quota of this identity.
    Identity,
}

/// What one identity, or all callers together, use.
#[derive(Debug, Default)]
pub(super) struct Usage {
    connections: AtomicUsize,
    requests: AtomicUsize,
    request_bytes: AtomicUsize,
    reply_bytes: AtomicUsize,
}

impl Usage {
    pub(super) const fn of(&self, resource: Resource) -> &AtomicUsize {
        match resource {
            Resource::Connections => &self.connections,
            Resource::Requests => &self.requests,
            Resource::RequestBytes => &self.request_bytes,
            Resource::ReplyBytes => &self.reply_bytes,
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct IdentityUsages {
    by_identity: HashMap<Digest, Arc<Usage>>,
    new_identities: AtomicUsize,
}

impl IdentityUsages {
    pub(super) fn of(&self, identity: Digest) -> Arc<Usage> {
        let by_identity = self.by_identity.pin();
        if let Some(usage) = by_identity.get(&identity) {
            return Arc::clone(usage);
        }
        let number = self.new_identities.fetch_add(1, Ordering::Relaxed) + 1;
        if number.is_multiple_of(SWEEP_AFTER_NEW) {
            // A request that arrives at this moment starts a new count, which does no harm.
            by_identity.retain(|_, usage| Arc::strong_count(usage) > 1);
        }
        Arc::clone(by_identity.get_or_insert_with(identity, Arc::default))
    }
}

/// An amount in use, until it is dropped.
pub(super) struct Charge {
    pub(super) limiter: Arc<ListenerLimiter>,
    /// Of its identity, once that is known.
    usage: Option<Arc<Usage>>,
    resource: Resource,
    amount: usize,
}

impl Charge {
    /// Counts an amount, if there is room.
    pub(super) fn try_new(
        limiter: &Arc<ListenerLimiter>,
        usage: Option<Arc<Usage>>,
        (resource, amount): (Resource, usize),
        limit: usize,
    ) -> Result<Self, LimitExceeded> {
        let before = limiter
            .total
            .of(resource)
            .fetch_add(amount, Ordering::Relaxed);
        let mut charge = Self {
            limiter: Arc::clone(limiter),
            usage: None,
            resource,
            amount,
        };
        let checked = if before.saturating_add(amount) > limit {
            Err(LimitExceeded::Total)
        } else {
            usage.map_or(Ok(()), |usage| charge.add_identity(usage, before, limit))
        };
        match checked {
            Ok(()) => Ok(charge),
            Err(exceeded) => {
                // Given back here, so that dropping it wakes nobody who waits for room.
                charge.give_back(amount);
                Err(exceeded)
            },
        }
    }

    /// Counts an amount, whether or not there is room.
    pub(super) fn new(
        limiter: &Arc<ListenerLimiter>,
        usage: Option<Arc<Usage>>,
        (resource, amount): (Resource, usize),
    ) -> Self {
        for usage in usage.as_deref().into_iter().chain([&limiter.total]) {
            usage.of(resource).fetch_add(amount, Ordering::Relaxed);
        }
        Self {
            limiter: Arc::clone(limiter),
            usage,
            resource,
            amount,
        }
    }

    /// Counts the amount against an identity, where `before` of `limit` were used in total: also where
    /// its quota is used up.
    pub(super) fn add_identity(
        &mut self,
        usage: Arc<Usage>,
        before: usize,
        limit: usize,
    ) -> Result<(), LimitExceeded> {
        let own = usage
            .of(self.resource)
            .fetch_add(self.amount, Ordering::Relaxed);
        self.usage = Some(usage);
        is_within_quota(own.saturating_add(self.amount), before, limit)
            .then_some(())
            .ok_or(LimitExceeded::Identity)
    }

    /// Gives back what exceeds this amount.
    pub(super) fn shrink_to(&mut self, amount: usize) {
        self.give_back(self.amount.saturating_sub(amount));
    }

    fn give_back(&mut self, amount: usize) {
        self.amount -= amount;
        for usage in self
            .usage
            .as_deref()
            .into_iter()
            .chain([&self.limiter.total])
        {
            usage.of(self.resource).fetch_sub(amount, Ordering::Relaxed);
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let frees_reply_bytes = self.amount > 0 && self.resource == Resource::ReplyBytes;
        self.give_back(self.amount);
        if frees_reply_bytes {
            self.limiter.reply_bytes_freed.notify_waiters();
        }
    }
}

/// Whether an identity may hold `own`, where `before` of `limit` were held in total.
const fn is_within_quota(own: usize, before: usize, limit: usize) -> bool {
    let free = limit.saturating_sub(before);
    own <= free.saturating_mul(FREE_MULTIPLE)
}

/// Smaller replies are not counted: the limit on requests bounds them.
const MIN_COUNTED_REPLY: usize = 64 << 10;

pub(crate) fn is_large_reply(reply: &Bytes) -> bool {
    reply.len() > MIN_COUNTED_REPLY
}

/// Room for the large replies of one identity, or of an unknown caller, from the moment they are read
/// from a server until their client has read them. A reply without room waits at its server; that of
/// an identity that holds much waits sooner. A client that does not read is disconnected after a while.
#[derive(Clone)]
pub(crate) struct IdentityReplyBudget {
    pub(crate) limiter: Arc<ListenerLimiter>,
    pub(crate) identity: Option<Digest>,
}

impl IdentityReplyBudget {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives one to each identity in turn until none gets more; returns what each has.
    fn filled(limit: usize, identities: usize) -> Vec<usize> {
        let mut held = vec![0; identities];
        loop {
            let mut took_one = false;
            for one in 0..identities {
                let all: usize = held.iter().sum();
                if all < limit && is_within_quota(held[one] + 1, all, limit) {
                    held[one] += 1;
                    took_one = true;
                }
            }
            if !took_one {
                return held;
            }
        }
    }

    /// reliability T16: one alone gets nearly everything, several get equal parts, and there is
    /// always room for the next one.
    #[test]
    fn identities_get_equal_parts_and_leave_room() {
        for limit in 1..=8 {
            assert_eq!(filled(limit, 1), [limit]);
        }
        for limit in [9, 100, 8_192] {
            for identities in [1, 2, 3, 8, 50] {
                let held = filled(limit, identities);
                let all: usize = held.iter().sum();
                let (least, most) = (held.iter().min().unwrap(), held.iter().max().unwrap());
                let what = format!("{identities} of {limit}: {held:?}");
                assert!(most - least <= 1, "{what}");
                assert!(all >= limit * 7 / 9, "{what}");
                // With nearly as many identities as slots, each gets one at most.
                if identities * FREE_MULTIPLE < limit {
                    assert!(all < limit && is_within_quota(1, all, limit), "{what}");
                }
            }
        }
    }

    #[test]
    fn idle_identities_are_removed() {
        let usages = IdentityUsages::default();
        let digest = |number: usize| {
            let mut bytes = [0; 16];
            bytes[..8].copy_from_slice(&number.to_le_bytes());
            Digest::new(bytes)
        };
        let held = usages.of(digest(0));
        for number in 1..SWEEP_AFTER_NEW * 4 {
            usages.of(digest(number));
        }
        assert!(usages.by_identity.pin().len() <= SWEEP_AFTER_NEW);
        assert!(Arc::ptr_eq(&held, &usages.of(digest(0))));
    }
}
