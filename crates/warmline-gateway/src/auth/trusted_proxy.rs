//! Trusted proxies, which authenticate callers and name them in a header.
//!
//! The header counts on connections from the configured addresses alone.

use std::net::IpAddr;

use http::HeaderName;
use http::request::Parts;

use super::LOCAL_IDENTITY;

/// The prefix of IPv4 addresses that are written as IPv6.
const V4_MAPPED_BITS: u8 = 96;
const MAX_NAME_BYTES: usize = 256;

/// Proxies that authenticate callers.
#[derive(Clone, Debug)]
pub struct TrustedProxies {
    /// Their addresses.
    pub addresses: Vec<IpNetwork>,
    /// The header that names the identity.
    pub header: HeaderName,
}

/// An address, or a network of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpNetwork {
    address: IpAddr,
    prefix_len: u8,
}

impl IpNetwork {
    /// Parses `10.0.0.7` or `10.0.0.0/8`.
    pub fn parse(text: &str) -> Option<Self> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits.parse().ok()?)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().ok()?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits: u8 = bits.unwrap_or(most);
        if bits > most {
            return None;
        }
        // An IPv4 address that is written as IPv6 becomes IPv4, as that of a peer does.
        let canonical = match (address.to_canonical(), bits.checked_sub(V4_MAPPED_BITS)) {
            (canonical @ IpAddr::V4(_), Some(bits)) if address.is_ipv6() => (canonical, bits),
            _ => (address, bits),
        };
        let (address, prefix_len) = canonical;
        Some(Self {
            address,
            prefix_len,
        })
    }

    /// Whether it contains every address.
    pub const fn is_all(&self) -> bool {
        self.prefix_len == 0
    }

    /// Whether it contains an address.
    pub fn contains(&self, other: IpAddr) -> bool {
        let difference = match (self.address, other.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                u128::from(u32::from(own) ^ u32::from(other)) << V4_MAPPED_BITS
            },
            (IpAddr::V6(own), IpAddr::V6(other)) => u128::from(own) ^ u128::from(other),
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => return false,
        };
        // The whole address of IPv4 is the first 32 bits here.
        difference.leading_zeros() >= u32::from(self.prefix_len)
    }
}

impl TrustedProxies {
    pub(super) fn contains(&self, from: IpAddr) -> bool {
        self.addresses.iter().any(|network| network.contains(from))
    }

    pub(super) fn identity_from_header<'a>(
        &self,
        head: &'a Parts,
        from: IpAddr,
    ) -> Option<&'a str> {
        if !self.contains(from) {
            return None;
        }
        let mut values = head.headers.get_all(&self.header).iter();
        let name = values.next()?.to_str().ok()?.trim();
        // Two names are ambiguous, and no proxy may name the local user.
        let is_one = values.next().is_none() && (1..=MAX_NAME_BYTES).contains(&name.len());
        (is_one && name != LOCAL_IDENTITY).then_some(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_cannot_name_the_local_user() {
        let from = "10.0.0.7".parse().unwrap();
        let proxies = TrustedProxies {
            addresses: vec![IpNetwork::parse("10.0.0.7").unwrap()],
            header: HeaderName::from_static("x-user"),
        };
        for (header, expected) in [("alice", Some("alice")), ("local", None), (" local ", None)] {
            let request = http::Request::builder().header("x-user", header);
            let (head, ()) = request.body(()).unwrap().into_parts();
            assert_eq!(proxies.identity_from_header(&head, from), expected);
        }
    }

    #[test]
    fn a_network_contains_the_addresses_with_its_prefix() {
        for (network, address, expected) in [
            ("10.0.0.7", "10.0.0.7", true),
            ("10.0.0.7", "10.0.0.8", false),
            ("10.0.0.0/8", "10.200.3.4", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("10.0.0.0/8", "::ffff:10.1.2.3", true),
            ("::ffff:10.0.0.7", "10.0.0.7", true),
            ("::ffff:10.0.0.7", "::ffff:10.0.0.7", true),
            ("::ffff:10.0.0.7", "10.0.0.8", false),
            ("::ffff:10.0.0.0/104", "10.200.3.4", true),
            ("::ffff:10.0.0.0/104", "11.0.0.1", false),
            ("0.0.0.0/0", "192.0.2.1", true),
            ("0.0.0.0/0", "::1", false),
            ("::1", "::1", true),
            ("fd00::/8", "fd12::1", true),
            ("fd00::/8", "fe00::1", false),
        ] {
            let network = IpNetwork::parse(network).unwrap();
            let address = address.parse().unwrap();
            assert_eq!(network.contains(address), expected, "{network:?} {address}");
        }
        for text in [
            "",
            "10.0.0.0/33",
            "::/129",
            "10.0.0/8",
            "a",
            "1.2.3.4/",
            "1.2.3.4/-1",
        ] {
            assert_eq!(IpNetwork::parse(text), None, "{text}");
        }
    }
}
