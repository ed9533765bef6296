//! What a URL of the gateway may name: endpoints by their paths, and allowed hosts and origins.

use std::net::{IpAddr, SocketAddr};

use http::{HeaderValue, Uri};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint<'a> {
    /// MCP over streamable HTTP.
    Mcp(RequestTarget<'a>),
    /// The event stream of the HTTP+SSE transport of 2024-11-05.
    Sse(RequestTarget<'a>),
    /// The messages of that transport.
    Messages(RequestTarget<'a>),
    /// A run, by its name.
    Run(&'a str),
}

impl<'a> Endpoint<'a> {
    pub(crate) const fn target(self) -> RequestTarget<'a> {
        match self {
            Self::Mcp(target) | Self::Sse(target) | Self::Messages(target) => target,
            Self::Run(name) => RequestTarget {
                run: Some(name),
                server: None,
            },
        }
    }
}

/// The run and the server that a path names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RequestTarget<'a> {
    pub(crate) run: Option<&'a str>,
    /// `None` for the aggregate of all servers.
    pub(crate) server: Option<&'a str>,
}

/// Parses a path. Names of servers and runs need no escaping.
pub(crate) fn parse_endpoint(path: &str) -> Option<Endpoint<'_>> {
    let path = path.strip_prefix('/')?;
    let (run, inside) = match path.strip_prefix("runs/") {
        None => (None, path),
        Some(of_run) => match of_run.split_once('/') {
            Some((run, inside)) => (Some(run), inside),
            None => return (!of_run.is_empty()).then_some(Endpoint::Run(of_run)),
        },
    };
    if run == Some("") {
        return None;
    }
    let (server, endpoint) = match inside.strip_prefix("servers/") {
        None => (None, inside),
        Some(of_server) => {
            let (name, endpoint) = of_server.split_once('/')?;
            if name.is_empty() {
                return None;
            }
            (Some(name), endpoint)
        },
    };
    let target = RequestTarget { run, server };
    match endpoint {
        "mcp" => Some(Endpoint::Mcp(target)),
        "sse" => Some(Endpoint::Sse(target)),
        "messages" => Some(Endpoint::Messages(target)),
        _ => None,
    }
}

/// Allowed hosts and origins: a web page can send requests to a listener on the machine of its reader,
/// also under a name that is rebound to that machine.
#[derive(Clone, Debug, Default)]
pub(crate) struct AllowedHosts {
    /// Whether the listener is on loopback: only names of this machine and `names` are allowed.
    local_only: bool,
    names: Vec<String>,
    origins: Vec<String>,
}

impl AllowedHosts {
    pub(crate) fn for_listener(
        listening: SocketAddr,
        named: &[String],
        origins: &[String],
    ) -> Self {
        Self {
            local_only: listening.ip().is_loopback(),
            names: named.to_vec(),
            origins: origins.to_vec(),
        }
    }

    /// Adds the host of the URL that clients are told to use.
    pub(crate) fn with_url_host(mut self, url: Option<&str>) -> Self {
        // Where every name is allowed, a single one would exclude the others.
        let allows_all = !self.local_only && self.names.is_empty();
        let url = url.filter(|_| !allows_all).map(str::parse::<Uri>);
        let host = url.as_ref().and_then(|url| url.as_ref().ok()?.host());
        self.names
            .extend(host.and_then(strip_port).map(str::to_owned));
        self
    }

    pub(crate) fn allows_host(&self, host: Option<&str>) -> bool {
        let Some(host) = host else {
            return !self.local_only;
        };
        let Some(name) = strip_port(host) else {
            return false;
        };
        self.names
            .iter()
            .any(|known| known.eq_ignore_ascii_case(name))
            || is_loopback_name(name)
            || (!self.local_only && self.names.is_empty())
    }

    pub(crate) fn allows_origin(&self, origin: &HeaderValue) -> bool {
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
        host.and_then(strip_port).is_some_and(is_loopback_name)
    }
}

/// A host without its port, and an IPv6 address without its brackets. `None` for what other readers
/// could take for another host.
fn strip_port(host: &str) -> Option<&str> {
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

pub(crate) fn is_loopback_name(name: &str) -> bool {
    name.eq_ignore_ascii_case("localhost")
        || name
            .parse::<IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_parsed() {
        let mcp = |run, server| Some(Endpoint::Mcp(RequestTarget { run, server }));
        let cases = [
            ("/mcp", mcp(None, None)),
            ("/servers/github/mcp", mcp(None, Some("github"))),
            ("/runs/r1/mcp", mcp(Some("r1"), None)),
            (
                "/runs/r1/servers/github/mcp",
                mcp(Some("r1"), Some("github")),
            ),
            (
                "/servers/github/sse",
                Some(Endpoint::Sse(RequestTarget {
                    run: None,
                    server: Some("github"),
                })),
            ),
            (
                "/runs/r1/messages",
                Some(Endpoint::Messages(RequestTarget {
                    run: Some("r1"),
                    server: None,
                })),
            ),
            ("/servers/github/mcp/sse", None),
            ("/runs/r1", Some(Endpoint::Run("r1"))),
            ("/runs/", None),
            ("/runs//mcp", None),
            ("/servers//mcp", None),
            ("/servers/github", None),
            ("/servers/github/mcp/", None),
            ("/mcp/", None),
            ("/", None),
            ("", None),
            ("mcp", None),
        ];
        for (path, expected) in cases {
            assert_eq!(parse_endpoint(path), expected, "{path}");
        }
    }

    #[test]
    fn a_loopback_listener_allows_local_names_alone() {
        let here = AllowedHosts::for_listener(
            ([127, 0, 0, 1], 8484).into(),
            &["mcp.test".to_owned()],
            &[],
        );
        for host in [
            "localhost",
            "127.0.0.1:8484",
            "[::1]:1",
            "LOCALHOST:8484",
            "mcp.test:80",
        ] {
            assert!(here.allows_host(Some(host)), "{host}");
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
            assert!(!here.allows_host(Some(host)), "{host}");
        }
        assert!(!here.allows_host(None));
    }

    #[test]
    fn the_host_of_the_resource_url_is_allowed() {
        let told = Some("https://mcp.test:8443/");
        let may = |hosts: &AllowedHosts, host| hosts.allows_host(Some(host));
        let here =
            AllowedHosts::for_listener(([127, 0, 0, 1], 1).into(), &[], &[]).with_url_host(told);
        assert!(may(&here, "mcp.test") && may(&here, "localhost") && !may(&here, "evil.test"));
        let open =
            AllowedHosts::for_listener(([0, 0, 0, 0], 1).into(), &[], &[]).with_url_host(told);
        assert!(may(&open, "mcp.test") && may(&open, "10.0.0.5"));
        let named = ["other.test".to_owned()];
        let named =
            AllowedHosts::for_listener(([0, 0, 0, 0], 1).into(), &named, &[]).with_url_host(told);
        assert!(may(&named, "mcp.test:8443") && may(&named, "other.test"));
        assert!(!may(&named, "10.0.0.5"));
    }

    #[test]
    fn foreign_origins_are_rejected() {
        let origins = ["https://app.test".to_owned()];
        let hosts = AllowedHosts::for_listener(([127, 0, 0, 1], 1).into(), &[], &origins);
        let may = |origin| hosts.allows_origin(&HeaderValue::from_static(origin));
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
