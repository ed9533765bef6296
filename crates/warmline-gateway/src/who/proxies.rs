//! Trusted proxies: whoever stands in front of us and says in a header who is calling.
//!
//! Asked by: the doorman. The header counts only on connections of addresses that are named; from
//! anywhere else it is as if it were not there.

use std::net::IpAddr;

use http::HeaderName;
use http::request::Parts;

use super::LOCAL;

/// So many bits of IPv6 say that the rest is an address of IPv4.
const MAPPED: u8 = 96;
/// Nobody has a longer name.
const MAX_NAME: usize = 256;

/// Proxies that authenticate for us.
#[derive(Clone, Debug)]
pub struct TrustedProxies {
    /// Where they are.
    pub addresses: Vec<Network>,
    /// The header that names the identity.
    pub header: HeaderName,
}

/// An address, or all that begin like it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

impl Network {
    /// Reads `10.0.0.7` or `10.0.0.0/8`.
    pub fn parse(text: &str) -> Option<Self> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits.parse().ok()?)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().ok()?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.unwrap_or(most);
        (bits <= most).then(|| Self { address, bits }.canonical())
    }

    /// An IPv4 address that is written as one of IPv6 is what it is: whoever comes from there is
    /// looked at in the short form.
    fn canonical(self) -> Self {
        match (self.address.to_canonical(), self.bits.checked_sub(MAPPED)) {
            (address @ IpAddr::V4(_), Some(bits)) if self.address.is_ipv6() => {
                Self { address, bits }
            },
            _ => self,
        }
    }

    /// Whether every address is in it.
    pub const fn is_all(&self) -> bool {
        self.bits == 0
    }

    /// Whether an address is in it.
    pub fn holds(&self, other: IpAddr) -> bool {
        match (self.address, other.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let unlike = u32::from(own) ^ u32::from(other);
                unlike.leading_zeros() >= u32::from(self.bits)
            },
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let unlike = u128::from(own) ^ u128::from(other);
                unlike.leading_zeros() >= u32::from(self.bits)
            },
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }
}

impl TrustedProxies {
    /// Whether one of them is at this address.
    pub(super) fn is_one(&self, from: IpAddr) -> bool {
        self.addresses.iter().any(|network| network.holds(from))
    }

    /// Whom a proxy names, if it is one of ours that sends this.
    pub(super) fn named<'a>(&self, head: &'a Parts, from: IpAddr) -> Option<&'a str> {
        if !self.is_one(from) {
            return None;
        }
        let mut values = head.headers.get_all(&self.header).iter();
        let name = values.next()?.to_str().ok()?.trim();
        // Two names are nobody's, and that of this machine's own user is not theirs to give.
        let is_one = values.next().is_none() && (1..=MAX_NAME).contains(&name.len());
        (is_one && name != LOCAL).then_some(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_names_nobody_as_the_user_of_this_machine() {
        let from = "10.0.0.7".parse().unwrap();
        let proxies = TrustedProxies {
            addresses: vec![Network::parse("10.0.0.7").unwrap()],
            header: HeaderName::from_static("x-user"),
        };
        for (said, expected) in [("alice", Some("alice")), ("local", None), (" local ", None)] {
            let request = http::Request::builder().header("x-user", said);
            let (head, ()) = request.body(()).unwrap().into_parts();
            assert_eq!(proxies.named(&head, from), expected);
        }
    }

    #[test]
    fn a_network_holds_what_begins_like_it() {
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
            let network = Network::parse(network).unwrap();
            let address = address.parse().unwrap();
            assert_eq!(network.holds(address), expected, "{network:?} {address}");
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
            assert_eq!(Network::parse(text), None, "{text}");
        }
    }
}
