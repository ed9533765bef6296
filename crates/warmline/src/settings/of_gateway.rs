//! Settings of a gateway: the table, and the values it fills.
//!
//! Asked by: whoever starts a gateway. Here they are only words, numbers and addresses; what they
//! mean for clients is the gateway's to say.

use std::net::SocketAddr;

use super::kind::{Kind, Value};
use super::{Origins, Setting, plain, words};

/// What is decided about a gateway, and where each value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewaySettings {
    /// Where it listens for MCP.
    pub listen: SocketAddr,
    /// How callers show who they are.
    pub auth: AuthWord,
    /// Names beside those of this machine by which it may be called.
    pub hosts: Vec<String>,
    /// Origins of pages that may call it.
    pub origins_allowed: Vec<String>,
    /// Places where clients name their conversation, looked at in order.
    pub run_from: Vec<String>,
    /// The largest request that is taken, in bytes.
    pub max_request: usize,
    /// Whether a changed configuration file is read again by itself.
    pub watch: bool,
    /// Where values came from.
    pub(crate) origins: Origins,
}

/// How callers of a gateway show who they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AuthWord {
    /// By the token of this machine, made at the first start, or by one that was made for them.
    /// On loopback only.
    #[default]
    Local,
    /// By a token that was made for them.
    Tokens,
    /// Not at all. On loopback only.
    None,
}

impl AuthWord {
    /// Every word.
    pub const WORDS: &'static [&'static str] = &["local", "tokens", "none"];

    /// The word for it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Tokens => "tokens",
            Self::None => "none",
        }
    }

    /// What a word means.
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Local, Self::Tokens, Self::None]
            .into_iter()
            .find(|one| one.word() == word)
    }
}

impl Default for GatewaySettings {
    fn default() -> Self {
        Self {
            listen: ([127, 0, 0, 1], 8484).into(),
            auth: AuthWord::default(),
            hosts: Vec::new(),
            origins_allowed: Vec::new(),
            run_from: vec!["_meta:openai/session".to_owned()],
            max_request: 4 << 20,
            watch: true,
            origins: Origins::default(),
        }
    }
}

type Of = Setting<GatewaySettings>;

/// Every setting of a gateway, in the order of the reference page.
pub(crate) const TABLE: &[Of] = &[
    Of::new(
        "gateway.listen",
        Kind::address(),
        "where it listens for MCP; port 0 takes a free one",
        plain!(Address, listen),
    ),
    Of::new(
        "gateway.auth",
        Kind::words(AuthWord::WORDS),
        "how callers show who they are: by the token of this machine, by tokens that were made for them, or not at all",
        words!(auth: AuthWord),
    ),
    Of::new(
        "gateway.hosts",
        Kind::texts(),
        "names beside those of this machine by which it may be called",
        plain!(Texts, hosts),
    ),
    Of::new(
        "gateway.origins",
        Kind::texts(),
        "origins of pages that may call it; those of this machine always may",
        plain!(Texts, origins_allowed),
    ),
    Of::new(
        "gateway.run_from",
        Kind::texts(),
        "where clients name their conversation, looked at in order: `_meta:KEY` or `header:NAME`",
        plain!(Texts, run_from),
    ),
    Of::new(
        "gateway.max_request",
        Kind::size(1 << 10..=1 << 30),
        "the largest request that is taken",
        plain!(Size, max_request),
    ),
    Of::new(
        "gateway.watch",
        Kind::switch(),
        "whether a changed configuration file is read again by itself; `SIGHUP` always does it",
        plain!(Switch, watch),
    ),
];
