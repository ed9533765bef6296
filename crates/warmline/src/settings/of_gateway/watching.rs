//! What is decided about being watched: where the pages for machines stand, and how the log is
//! written.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Where machines that watch a gateway find their pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OpsListen {
    /// On loopback, at the port after the one for MCP; where that one is free, at any.
    #[default]
    Beside,
    /// Nowhere.
    None,
    /// There.
    At(SocketAddr),
}

impl OpsListen {
    /// Every word that stands instead of an address.
    pub const WORDS: &'static [&'static str] = &["beside", "none"];

    /// The address, for a gateway that listens there for MCP.
    pub fn address(self, mcp: SocketAddr) -> Option<SocketAddr> {
        match self {
            Self::None => None,
            Self::At(address) => Some(address),
            Self::Beside => {
                let port = match mcp.port() {
                    0 => 0,
                    port => port.checked_add(1)?,
                };
                Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port))
            },
        }
    }
}

/// Which lines of the log are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogLevel {
    /// None.
    Off,
    /// What somebody must act on.
    Error,
    /// And what healed itself and is worth knowing.
    Warn,
    /// And start, stop, reload, and what is out of the ordinary.
    #[default]
    Info,
    /// And a normal day.
    Debug,
    /// And everything.
    Trace,
}

impl LogLevel {
    const ALL: [Self; 6] = [
        Self::Off,
        Self::Error,
        Self::Warn,
        Self::Info,
        Self::Debug,
        Self::Trace,
    ];
    /// Every word.
    pub const WORDS: &'static [&'static str] = &["off", "error", "warn", "info", "debug", "trace"];

    /// The word for it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }

    /// What a word means.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.word() == word)
    }
}

/// How lines of the log are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// As text on a terminal, as JSON elsewhere.
    #[default]
    Auto,
    /// As text, for people.
    Text,
    /// As one object of JSON each, for machines.
    Json,
}

impl LogFormat {
    /// Every word.
    pub const WORDS: &'static [&'static str] = &["auto", "text", "json"];

    /// The word for it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Text => "text",
            Self::Json => "json",
        }
    }

    /// What a word means.
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Auto, Self::Text, Self::Json]
            .into_iter()
            .find(|one| one.word() == word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pages_stand_beside_the_listener_for_mcp_unless_said_otherwise() {
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        for (said, mcp, expected) in [
            (OpsListen::Beside, "127.0.0.1:8484", Some("127.0.0.1:8485")),
            (OpsListen::Beside, "0.0.0.0:9000", Some("127.0.0.1:9001")),
            (OpsListen::Beside, "127.0.0.1:0", Some("127.0.0.1:0")),
            (OpsListen::Beside, "127.0.0.1:65535", None),
            (OpsListen::None, "127.0.0.1:8484", None),
            (
                OpsListen::At(at("0.0.0.0:1")),
                "127.0.0.1:8484",
                Some("0.0.0.0:1"),
            ),
        ] {
            assert_eq!(said.address(at(mcp)), expected.map(at), "{said:?} {mcp}");
        }
    }
}
