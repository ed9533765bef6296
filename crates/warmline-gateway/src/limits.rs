//! Limits on connections, requests and bytes.
//!
//! Over a limit the answer is no at once. Connections and requests are counted before
//! authentication; afterwards a request counts against the [quota](usage) of its identity as well.

mod auth_failures;
mod connections;
pub(crate) mod reply_budget;
mod request_permit;
mod usage;

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::sync::Notify;

use self::auth_failures::AuthFailureCounts;
pub(crate) use self::connections::ConnectionPermit;
pub(crate) use self::request_permit::{EMPTY_PERMIT, RequestPermit};
use self::usage::{IdentityUsages, Usage};
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv6_network_counts_as_one_address() {
        let of = |text: &str| network_prefix(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::2:3"));
        assert_ne!(of("2001:db8:0:1::1"), of("2001:db8:0:2::1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
    }
}
