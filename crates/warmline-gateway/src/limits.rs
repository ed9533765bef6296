//! Limits on connections, requests and bytes.
//!
//! Over a limit the answer is no at once. Connections and requests are counted before
//! authentication; afterwards a request counts against the [quota](usage) of its identity as well.

pub(crate) mod usage;

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;
use warmline_core::pool_key::Digest;
use warmline_platform::clock::{self, Instant};

use self::usage::{Charge, IdentityUsages, Usage};
pub(crate) use self::usage::{LimitExceeded, Resource};

/// What clients may use at a time, and how long they may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenerLimits {
    /// Connections in total.
    pub max_connections: usize,
    /// Connections of one address (of one /64 with IPv6).
    pub max_connections_per_address: usize,
    /// Requests in flight in total. A call whose client left counts until it ends.
    pub max_requests: usize,
    /// Bytes of all requests being read or answered, each counted twice: as it arrived, and as it
    /// is sent to its server. The same limit holds for replies that clients have yet to read.
    pub max_request_bytes: usize,
    /// Failed authentications of one address in a minute. Above it, keys for new signed tokens
    /// are not fetched. Behind a proxy all callers share one address.
    pub max_auth_failures_per_minute: u32,
    /// Bytes of a request head.
    pub max_head: usize,
    /// Time for a request head.
    pub head_timeout: Duration,
    /// Time for a request body.
    pub body_timeout: Duration,
    /// A client that reads nothing for this long is disconnected.
    pub stall_timeout: Duration,
    /// A connection without activity for this long is closed.
    pub idle_timeout: Duration,
}

/// Counts what clients use, and enforces [`ListenerLimits`].
pub(crate) struct ListenerLimiter {
    /// Replaced by a reload. Permits that were given stay valid.
    limits: ArcSwap<ListenerLimits>,
    connections_by_address: Mutex<HashMap<IpAddr, usize>>,
    total: Usage,
    identities: IdentityUsages,
    reply_bytes_freed: Notify,
    auth_failures: AuthFailureCounts,
}

impl ListenerLimiter {
    pub(crate) fn new(limits: ListenerLimits) -> Self {
        Self {
            limits: ArcSwap::from_pointee(limits),
            connections_by_address: Mutex::default(),
            total: Usage::default(),
            identities: IdentityUsages::default(),
            reply_bytes_freed: Notify::new(),
            auth_failures: AuthFailureCounts::default(),
        }
    }

    pub(crate) fn limits(&self) -> ListenerLimits {
        **self.limits.load()
    }

    /// Replaces the limits: at once for requests, and for connections as they arrive.
    pub(crate) fn set_limits(&self, limits: ListenerLimits) {
        self.limits.store(Arc::new(limits));
    }

    pub(crate) fn used(&self, resource: Resource) -> usize {
        self.total.of(resource).load(Ordering::Relaxed)
    }

    pub(crate) fn is_full(&self) -> bool {
        let limits = self.limits.load();
        self.used(Resource::Connections) >= limits.max_connections
            || self.used(Resource::Requests) >= limits.max_requests
            || self.used(Resource::RequestBytes) >= limits.max_request_bytes
    }

    pub(crate) fn has_too_many_auth_failures(&self, from: IpAddr) -> bool {
        let limit = self.limits.load().max_auth_failures_per_minute;
        self.auth_failures.exceeds(network_prefix(from), limit)
    }

    pub(crate) fn record_auth_failure(&self, from: IpAddr) {
        self.auth_failures.record(network_prefix(from));
    }
}

/// What counts as one address: an IPv6 client has a whole /64.
fn network_prefix(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) if !address.is_loopback() => {
            let prefix = u128::from(address) & !u128::from(u64::MAX);
            IpAddr::V6(Ipv6Addr::from(prefix))
        },
        address @ (IpAddr::V4(_) | IpAddr::V6(_)) => address,
    }
}

impl ListenerLimiter {
    pub(crate) fn try_acquire_connection(
        self: &Arc<Self>,
        from: Option<IpAddr>,
    ) -> Option<ConnectionPermit> {
        let limits = self.limits.load();
        let charge = Charge::try_new(
            self,
            None,
            (Resource::Connections, 1),
            limits.max_connections,
        );
        let mut permit = ConnectionPermit {
            charge: charge.ok()?,
            address: None,
        };
        if let Some(address) = from.map(network_prefix) {
            let mut by_address = self.connections_by_address.lock();
            let count = by_address.entry(address).or_default();
            if *count >= limits.max_connections_per_address {
                return None;
            }
            *count += 1;
            permit.address = Some(address);
        }
        Some(permit)
    }
}

/// A connection: one of so many in total, and of so many of one address.
pub(crate) struct ConnectionPermit {
    charge: Charge,
    address: Option<IpAddr>,
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let Some(address) = self.address else { return };
        let mut by_address = self.charge.limiter.connections_by_address.lock();
        if let Some(count) = by_address.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                by_address.remove(&address);
            }
        }
    }
}

/// A request is held as it arrived, for a retry, and as it is written to its server.
const COPIES_PER_REQUEST: usize = 2;

/// What a request uses until its call ends, whether or not its client stays: a slot among the requests
/// in flight, and room for its bytes.
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

const WINDOW: Duration = Duration::from_mins(1);
const MAX_ADDRESSES: usize = 10_000;

/// Failed authentications per address: bounded, and forgotten after a minute. While there are none, a
/// request reads one number.
struct AuthFailureCounts {
    started_at: Instant,
    /// When the last window ends, in milliseconds since the start; 0 before the first failure.
    all_expired_at: AtomicU64,
    by_address: RwLock<HashMap<IpAddr, AuthFailureWindow>>,
}

struct AuthFailureWindow {
    started_at: Instant,
    failures: u32,
}

impl Default for AuthFailureCounts {
    fn default() -> Self {
        Self {
            started_at: clock::now(),
            all_expired_at: AtomicU64::new(0),
            by_address: RwLock::default(),
        }
    }
}

impl AuthFailureCounts {
    fn exceeds(&self, from: IpAddr, limit: u32) -> bool {
        let all_expired_at = self.all_expired_at.load(Ordering::Relaxed);
        if all_expired_at == 0 || self.millis_since_start(clock::now()) >= all_expired_at {
            return false;
        }
        let by_address = self.by_address.read();
        let window = by_address.get(&from).filter(|window| !window.is_expired());
        window.is_some_and(|window| window.failures >= limit)
    }

    fn millis_since_start(&self, at: Instant) -> u64 {
        let age = at.saturating_duration_since(self.started_at);
        u64::try_from(age.as_millis()).unwrap_or(u64::MAX)
    }

    fn record(&self, from: IpAddr) {
        let now = clock::now();
        let mut by_address = self.by_address.write();
        if by_address.len() >= MAX_ADDRESSES {
            by_address.retain(|_, window| !window.is_expired());
        }
        // So many addresses at once do not guess the token of one caller.
        if by_address.len() >= MAX_ADDRESSES {
            by_address.clear();
        }
        let new = || AuthFailureWindow {
            started_at: now,
            failures: 0,
        };
        let window = by_address.entry(from).or_insert_with(new);
        if window.is_expired() {
            *window = new();
        }
        window.failures = window.failures.saturating_add(1);
        let all_expired_at = self.millis_since_start(now + WINDOW);
        self.all_expired_at.store(all_expired_at, Ordering::Relaxed);
    }
}

impl AuthFailureWindow {
    fn is_expired(&self) -> bool {
        self.started_at.elapsed() >= WINDOW
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::limits::ListenerLimits;

    #[test]
    fn an_ipv6_network_counts_as_one_address() {
        let of = |text: &str| network_prefix(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::2:3"));
        assert_ne!(of("2001:db8:0:1::1"), of("2001:db8:0:2::1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
    }

    const ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

    #[tokio::test]
    async fn dropped_permits_free_their_slots() {
        let limiter = Arc::new(ListenerLimiter::new(ListenerLimits {
            max_connections: 3,
            max_connections_per_address: 2,
            max_requests: 1,
            ..ListenerLimits::default()
        }));
        for _ in 0..3 {
            let one = limiter.try_acquire_connection(Some(ADDRESS)).unwrap();
            let two = limiter.try_acquire_connection(Some(ADDRESS)).unwrap();
            let per_address = limiter.try_acquire_connection(Some(ADDRESS));
            assert!(per_address.is_none(), "per address");
            let three = limiter.try_acquire_connection(None).unwrap();
            assert!(limiter.try_acquire_connection(None).is_none(), "in total");
            drop((one, two, three));
            let request = limiter.try_acquire_request().unwrap();
            assert!(limiter.try_acquire_request().is_none());
            drop(request);
        }
        assert!(limiter.connections_by_address.lock().is_empty());
    }

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

    #[tokio::test(start_paused = true)]
    async fn failures_are_forgotten_after_a_minute() {
        let counts = AuthFailureCounts::default();
        let exceeds = |from| counts.exceeds(from, 2);
        counts.record(ADDRESS);
        assert!(!exceeds(ADDRESS));
        counts.record(ADDRESS);
        assert!(exceeds(ADDRESS));
        assert!(!exceeds(IpAddr::from([192, 0, 2, 2])));
        tokio::time::advance(WINDOW).await;
        assert!(!exceeds(ADDRESS));
    }

    #[tokio::test]
    async fn remembered_addresses_are_bounded() {
        let counts = AuthFailureCounts::default();
        for number in 0..30_000_u32 {
            counts.record(IpAddr::from(number.to_be_bytes()));
        }
        assert!(counts.by_address.read().len() <= MAX_ADDRESSES);
    }
}
