//! Paths: which place of the gateway a request is for.
//!
//! Asked by: [`door`](crate::door), before anything of a request is read.

/// A place of the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place<'a> {
    /// One server, or all of them in one, where MCP is spoken.
    Mcp(Target<'a>),
    /// The same by the 2024-11-05 transport: where its stream is opened.
    Sse(Target<'a>),
    /// Where messages for such a stream are left.
    Messages(Target<'a>),
    /// A run, to be ended.
    Run(&'a str),
}

impl<'a> Place<'a> {
    /// What it is about: a run, a server, both or neither.
    pub(crate) const fn target(self) -> Target<'a> {
        match self {
            Self::Mcp(target) | Self::Sse(target) | Self::Messages(target) => target,
            Self::Run(name) => Target {
                run: Some(name),
                server: None,
            },
        }
    }
}

/// What MCP is spoken with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target<'a> {
    /// The run that the path names.
    pub(crate) run: Option<&'a str>,
    /// The server; none for all of them in one.
    pub(crate) server: Option<&'a str>,
}

/// The place that a path names, if it names one. Names stand there as they are: neither a server
/// nor a run has a name that would have to be escaped.
pub(crate) fn place(path: &str) -> Option<Place<'_>> {
    let path = path.strip_prefix('/')?;
    let (run, inside) = match path.strip_prefix("runs/") {
        None => (None, path),
        Some(of_run) => match of_run.split_once('/') {
            Some((run, inside)) => (Some(run), inside),
            None => return (!of_run.is_empty()).then_some(Place::Run(of_run)),
        },
    };
    if run == Some("") {
        return None;
    }
    let (server, way) = match inside.strip_prefix("servers/") {
        None => (None, inside),
        Some(of_server) => {
            let (name, way) = of_server.split_once('/')?;
            if name.is_empty() {
                return None;
            }
            (Some(name), way)
        },
    };
    let target = Target { run, server };
    match way {
        "mcp" => Some(Place::Mcp(target)),
        "sse" => Some(Place::Sse(target)),
        "messages" => Some(Place::Messages(target)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_a_place_or_nothing() {
        let mcp = |run, server| Some(Place::Mcp(Target { run, server }));
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
                Some(Place::Sse(Target {
                    run: None,
                    server: Some("github"),
                })),
            ),
            (
                "/runs/r1/messages",
                Some(Place::Messages(Target {
                    run: Some("r1"),
                    server: None,
                })),
            ),
            ("/servers/github/mcp/sse", None),
            ("/runs/r1", Some(Place::Run("r1"))),
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
            assert_eq!(place(path), expected, "{path}");
        }
    }
}
