//! Kinds of servers, as files name them.

use warmline_core::error::code::Code;
use warmline_engine::settings::{ConfigError, closest_match};

/// How a server of some kind is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerKind {
    /// By a URL.
    Remote,
    /// By a command.
    Local,
}

impl ServerKind {
    /// The kind that a word means, or an error without a place.
    pub(crate) fn parse(word: &str, server: &str) -> Result<Self, ConfigError> {
        let plain = word.trim().to_ascii_lowercase().replace('_', "-");
        match plain.as_str() {
            "http" | "sse" | "streamable-http" | "streamablehttp" | "http-stream" | "remote"
            | "remote-mcp" => return Ok(Self::Remote),
            "stdio" | "local" | "local-mcp" => return Ok(Self::Local),
            _ => {},
        }
        let shown: String = word.chars().take(40).collect();
        let shown = shown.escape_debug();
        let what = format!("`{server}` is of the kind `{shown}`, which is not an MCP server's");
        let hint = format!("known kinds are `{}`", SUGGESTED_KINDS.join("`, `"));
        let hint = match closest_match(&plain, SUGGESTED_KINDS.iter().copied()) {
            Some(meant) => format!("did you mean `{meant}`? {hint}"),
            None => hint,
        };
        Err(ConfigError::new(Code::ConfigBadValue, what).with_hint(hint))
    }
}

/// The words that errors name. Which HTTP transport a server speaks is found out anyway.
const SUGGESTED_KINDS: [&str; 4] = ["http", "stdio", "sse", "streamable-http"];
