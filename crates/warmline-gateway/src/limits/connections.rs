//! Connections: so many in total, and so many of one address.

use std::net::IpAddr;
use std::sync::Arc;

use super::usage::{Charge, Resource};
use super::{ListenerLimiter, network_prefix};

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

pub(crate) struct ConnectionPermit {
    charge: Charge,
    address: Option<IpAddr>,
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let Some(address) = self.address else { return };
        let mut by_address = self.charge.limiter().connections_by_address.lock();
        if let Some(count) = by_address.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                by_address.remove(&address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::ListenerLimits;
    use super::*;

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
}
