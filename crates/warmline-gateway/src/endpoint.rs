//! Endpoints of the gateway, and their paths.

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
}
