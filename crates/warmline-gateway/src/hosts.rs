//! Hosts and origins: by which names we may be called, and which pages may call us.
//!
//! Asked by: [`door`](crate::door), of every request. A page in somebody's browser can reach a
//! listener on their own machine, also under a name that leads there by rebinding.

use std::net::{IpAddr, SocketAddr};

use http::{HeaderValue, Uri};

/// The names that count.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hosts {
    /// Whether only names of this machine count; else any name does that is not forbidden.
    local_only: bool,
    named: Vec<String>,
    origins: Vec<String>,
}

impl Hosts {
    /// The names for a listener: on loopback only those of this machine, and what is named.
    pub(crate) fn of(listening: SocketAddr, named: &[String], origins: &[String]) -> Self {
        Self {
            local_only: listening.ip().is_loopback(),
            named: named.to_vec(),
            origins: origins.to_vec(),
        }
    }

    /// The same with the name in a URL by which we tell clients to call us.
    pub(crate) fn and_of(mut self, url: Option<&str>) -> Self {
        // Where every name counts, one that is named would leave out the others.
        let counts_all = !self.local_only && self.named.is_empty();
        let url = url.filter(|_| !counts_all).map(str::parse::<Uri>);
        let host = url.as_ref().and_then(|url| url.as_ref().ok()?.host());
        self.named
            .extend(host.and_then(without_port).map(str::to_owned));
        self
    }

    /// Whether a request may be for this `Host`.
    pub(crate) fn may_be_called(&self, host: Option<&str>) -> bool {
        let Some(host) = host else {
            return !self.local_only;
        };
        let Some(name) = without_port(host) else {
            return false;
        };
        self.named
            .iter()
            .any(|known| known.eq_ignore_ascii_case(name))
            || is_local(name)
            || (!self.local_only && self.named.is_empty())
    }

    /// Whether a page of this origin may call.
    pub(crate) fn may_come_from(&self, origin: &HeaderValue) -> bool {
        let Ok(origin) = origin.to_str() else {
            return false;
        };
        if self
            .origins
            .iter()
            .any(|known| known.eq_ignore_ascii_case(origin))
        {
            return true;
        }
        let host = origin
            .strip_prefix("http://")
            .or_else(|| origin.strip_prefix("https://"));
        host.and_then(without_port).is_some_and(is_local)
    }
}

/// A host without its port; an IPv6 address without its brackets. None where it is no host: what
/// looks like one to us may be read as another elsewhere.
fn without_port(host: &str) -> Option<&str> {
    let (name, port) = match host.strip_prefix('[') {
        Some(inside) => {
            let (name, rest) = inside.split_once(']')?;
            let port = rest.strip_prefix(':');
            (name, port.or_else(|| rest.is_empty().then_some(""))?)
        },
        None => host.rsplit_once(':').unwrap_or((host, "")),
    };
    let is_port = port.bytes().all(|byte| byte.is_ascii_digit());
    let is_name = !name.contains(['@', '/', '?', '#', ' ', '\t']);
    (is_port && is_name).then_some(name)
}

pub(crate) fn is_local(name: &str) -> bool {
    name.eq_ignore_ascii_case("localhost")
        || name
            .parse::<IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn on_loopback_only_names_of_this_machine_count() {
        let here = Hosts::of(([127, 0, 0, 1], 8484).into(), &["mcp.test".to_owned()], &[]);
        for host in [
            "localhost",
            "127.0.0.1:8484",
            "[::1]:1",
            "LOCALHOST:8484",
            "mcp.test:80",
        ] {
            assert!(here.may_be_called(Some(host)), "{host}");
        }
        for host in [
            "evil.example",
            "127.0.0.1.evil.example:8484",
            "",
            "10.0.0.1",
            "127.0.0.1:80@evil.example",
            "localhost@evil.example",
            "localhost:8484/@evil.example",
            "[::1]evil.example",
            "[::1]:80@evil.example",
            "[::1",
        ] {
            assert!(!here.may_be_called(Some(host)), "{host}");
        }
        assert!(!here.may_be_called(None));
    }

    #[test]
    fn we_may_be_called_by_the_name_that_we_tell() {
        let told = Some("https://mcp.test:8443/");
        let may = |hosts: &Hosts, host| hosts.may_be_called(Some(host));
        let here = Hosts::of(([127, 0, 0, 1], 1).into(), &[], &[]).and_of(told);
        assert!(may(&here, "mcp.test") && may(&here, "localhost") && !may(&here, "evil.test"));
        let open = Hosts::of(([0, 0, 0, 0], 1).into(), &[], &[]).and_of(told);
        assert!(may(&open, "mcp.test") && may(&open, "10.0.0.5"));
        let named = ["other.test".to_owned()];
        let named = Hosts::of(([0, 0, 0, 0], 1).into(), &named, &[]).and_of(told);
        assert!(may(&named, "mcp.test:8443") && may(&named, "other.test"));
        assert!(!may(&named, "10.0.0.5"));
    }

    #[test]
    fn a_page_of_elsewhere_may_not_call() {
        let origins = ["https://app.test".to_owned()];
        let hosts = Hosts::of(([127, 0, 0, 1], 1).into(), &[], &origins);
        let may = |origin| hosts.may_come_from(&HeaderValue::from_static(origin));
        assert!(may("https://app.test") && may("http://localhost:3000") && may("http://[::1]"));
        for origin in [
            "https://evil.test",
            "null",
            "http://localhost.evil.test",
            "file://",
        ] {
            assert!(!may(origin), "{origin}");
        }
    }
}
