//! What a request uses until its call ends, whether or not its client stays: a slot among the
//! requests in flight, and room for its bytes.

use std::sync::Arc;

use parking_lot::Mutex;
use warmline_core::pool_key::Digest;

use super::ListenerLimiter;
use super::usage::{Charge, LimitExceeded, Resource};

/// A request is held as it arrived, for a retry, and as it is written to its server.
const COPIES_PER_REQUEST: usize = 2;

/// What a request uses, until it is dropped.
#[derive(Default)]
pub(crate) struct RequestPermit {
    slot: Option<Charge>,
    bytes: Option<Charge>,
}

/// The permit of a request that did not arrive at a listener.
pub(crate) static EMPTY_PERMIT: Mutex<RequestPermit> = Mutex::new(RequestPermit {
    slot: None,
    bytes: None,
});

impl RequestPermit {
    /// Gives back the bytes that a message of this length does not need.
    pub(crate) fn shrink_to(&mut self, bytes: usize) {
        if let Some(reserved) = &mut self.bytes {
            reserved.shrink_to(bytes.saturating_mul(COPIES_PER_REQUEST));
        }
    }

    /// Gives back the slot: a long-lived stream is no call in flight.
    pub(crate) fn into_bytes_only(mut self) -> Self {
        self.slot = None;
        self
    }
}

impl ListenerLimiter {
    pub(crate) fn try_acquire_request(self: &Arc<Self>) -> Option<RequestPermit> {
        let limit = self.limits.load().max_requests;
        let slot = Charge::try_new(self, None, (Resource::Requests, 1), limit);
        Some(RequestPermit {
            slot: Some(slot.ok()?),
            bytes: None,
        })
    }

    /// Counts a request against the quota of its identity.
    pub(crate) fn charge_identity(
        &self,
        permit: &Mutex<RequestPermit>,
        identity: Digest,
    ) -> Result<(), LimitExceeded> {
        let mut permit = permit.lock();
        let Some(slot) = &mut permit.slot else {
            return Ok(());
        };
        // This request is among those in flight already.
        let before = self.used(Resource::Requests).saturating_sub(1);
        let limit = self.limits.load().max_requests;
        slot.add_identity(self.identities.of(identity), before, limit)
    }

    /// Reserves room for a body, in the quota of an identity or of none: replies and cancellations,
    /// which free quota, need none.
    pub(crate) fn reserve_bytes(
        self: &Arc<Self>,
        permit: &Mutex<RequestPermit>,
        bytes: usize,
        identity: Option<Digest>,
    ) -> Result<(), LimitExceeded> {
        let limit = self.limits.load().max_request_bytes;
        let bytes = bytes.saturating_mul(COPIES_PER_REQUEST).min(limit);
        let usage = identity.map(|identity| self.identities.of(identity));
        let charge = Charge::try_new(self, usage, (Resource::RequestBytes, bytes), limit)?;
        permit.lock().bytes = Some(charge);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::limits::ListenerLimits;

    fn limiter(max_requests: usize, max_request_bytes: usize) -> Arc<ListenerLimiter> {
        Arc::new(ListenerLimiter::new(ListenerLimits {
            max_requests,
            max_request_bytes,
            ..ListenerLimits::default()
        }))
    }

    #[test]
    fn new_limits_count_at_once_and_permits_stay_valid() {
        let limiter = limiter(8_192, 200);
        let [first, second, third] =
            [(); 3].map(|()| Mutex::new(limiter.try_acquire_request().unwrap()));
        let reserve =
            |permit: &Mutex<RequestPermit>, bytes| limiter.reserve_bytes(permit, bytes, None);
        let set_limits = |max_requests, max_request_bytes| {
            limiter.set_limits(ListenerLimits {
                max_requests,
                max_request_bytes,
                ..ListenerLimits::default()
            });
        };
        reserve(&first, 60).unwrap();
        assert_eq!(reserve(&second, 60), Err(LimitExceeded::Total));
        assert_eq!(limiter.used(Resource::RequestBytes), 120);
        set_limits(0, 300);
        reserve(&second, 60).unwrap();
        assert!(limiter.try_acquire_request().is_none() && limiter.is_full());
        set_limits(8_192, 200);
        let over_limit = reserve(&third, 1);
        assert_eq!(over_limit, Err(LimitExceeded::Total));
        first.lock().shrink_to(10);
        assert_eq!(
            limiter.used(Resource::RequestBytes),
            140,
            "the rest was given back"
        );
        drop((first, second));
        assert_eq!(limiter.used(Resource::RequestBytes), 0);
        assert!(reserve(&third, 1_000).is_ok(), "one may have all");
    }

    /// An identity that has nearly everything is rejected and another one is not, by count and by
    /// bytes; ended requests count for neither.
    #[test]
    fn no_identity_takes_everything() {
        let limiter = limiter(20, 20_000);
        let (greedy, other) = (Digest::new([1; 16]), Digest::new([2; 16]));
        let acquire = |identity, bytes| {
            let permit = limiter.try_acquire_request();
            let permit = Mutex::new(permit.ok_or(LimitExceeded::Total)?);
            limiter.charge_identity(&permit, identity)?;
            limiter.reserve_bytes(&permit, bytes, Some(identity))?;
            Ok(permit)
        };
        for bytes in [1, 600] {
            let mut held: Vec<_> = std::iter::from_fn(|| acquire(greedy, bytes).ok()).collect();
            assert!(held.len() >= 14, "{}", held.len());
            assert_eq!(acquire(greedy, bytes).err(), Some(LimitExceeded::Identity));
            held.push(acquire(other, bytes).unwrap());
            held.clear();
            let used = (
                limiter.used(Resource::Requests),
                limiter.used(Resource::RequestBytes),
            );
            assert_eq!(used, (0, 0));
            for identity in [greedy, other] {
                let usage = limiter.identities.of(identity);
                for resource in [Resource::Requests, Resource::RequestBytes] {
                    assert_eq!(usage.of(resource).load(Ordering::Relaxed), 0);
                }
            }
        }
    }
}
