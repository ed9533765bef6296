//! Kinds of servers, as files of all sorts name them. What is no MCP server is refused by name.

use super::declaration::{DeclaredReach, Refusal};
use crate::settings::nearest;

/// How a server of some kind is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerKind {
    /// By a URL.
    Remote,
    /// By a command.
    Local,
}

impl ServerKind {
    /// What a word means; or why a server of that kind cannot be used.
    pub(crate) fn parse(word: &str, whose: &str) -> Result<Self, Refusal> {
        let plain = word.trim().to_ascii_lowercase().replace('_', "-");
        if let Some((_, kind)) = KINDS.iter().find(|(known, _)| *known == plain) {
            return Ok(*kind);
        }
        let shown: String = word.chars().take(40).collect();
        let listed: Vec<String> = USUAL.iter().map(|kind| format!("`{kind}`")).collect();
        let known = format!("known kinds are {}", listed.join(", "));
        Err(Refusal {
            what: format!(
                "`{whose}` is of the kind `{}`, which is not an MCP server's",
                shown.escape_debug()
            ),
            hint: Some(match nearest(&plain, USUAL.iter().copied()) {
                Some(meant) => format!("did you mean `{meant}`? {known}"),
                None => known,
            }),
        })
    }

    /// Why a server of this kind cannot be reached so; none if it can.
    pub(crate) fn contradicts(self, reach: &DeclaredReach, whose: &str) -> Option<String> {
        match (self, reach) {
            (Self::Remote, DeclaredReach::Command { .. }) => Some(format!(
                "`{whose}` is a remote server and has a `command`, but no `url`"
            )),
            (Self::Local, DeclaredReach::Url { .. }) => Some(format!(
                "`{whose}` is a local server and has a `url`, but no `command`"
            )),
            (Self::Remote, DeclaredReach::Url { .. })
            | (Self::Local, DeclaredReach::Command { .. }) => None,
        }
    }
}

/// What is missing of a server that says neither where it is nor what starts it.
pub(crate) fn missing(kind: Option<ServerKind>, whose: &str) -> String {
    match kind {
        Some(ServerKind::Remote) => format!("`{whose}` is a remote server, and has no `url`"),
        Some(ServerKind::Local) => format!("`{whose}` is a local server, and has no `command`"),
        None => format!("`{whose}` has neither a `command` nor a `url`"),
    }
}

/// The words that are named to people.
const USUAL: &[&str] = &["http", "stdio", "sse", "streamable-http"];

/// Every word, in small letters and with `-` for `_`. Which HTTP transport it is, is found out.
const KINDS: &[(&str, ServerKind)] = &[
    ("http", ServerKind::Remote),
    ("sse", ServerKind::Remote),
    ("streamable-http", ServerKind::Remote),
    ("streamablehttp", ServerKind::Remote),
    ("http-stream", ServerKind::Remote),
    ("remote", ServerKind::Remote),
    ("remote-mcp", ServerKind::Remote),
    ("stdio", ServerKind::Local),
    ("local", ServerKind::Local),
    ("local-mcp", ServerKind::Local),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// A30, E13: a kind that is no MCP server's is refused, and the known kinds are listed.
    #[test]
    fn an_unknown_kind_is_refused_with_the_known_ones() {
        let refusal = ServerKind::parse("kiln_task", "x").unwrap_err();
        assert_eq!(
            refusal.what,
            "`x` is of the kind `kiln_task`, which is not an MCP server's"
        );
        assert_eq!(
            refusal.hint.unwrap(),
            "known kinds are `http`, `stdio`, `sse`, `streamable-http`"
        );
        let slip = ServerKind::parse("stido", "x").unwrap_err().hint.unwrap();
        assert!(slip.starts_with("did you mean `stdio`?"), "{slip}");
        #[rustfmt::skip]
        let table = [
            ("http", ServerKind::Remote), ("streamableHttp", ServerKind::Remote), ("streamable_http", ServerKind::Remote),
            ("sse", ServerKind::Remote), ("remote_mcp", ServerKind::Remote), ("stdio", ServerKind::Local), ("local_mcp", ServerKind::Local),
        ];
        for (word, kind) in table {
            assert_eq!(ServerKind::parse(word, "x").unwrap(), kind, "{word}");
        }
    }
}
