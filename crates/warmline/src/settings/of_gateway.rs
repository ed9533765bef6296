//! Settings of a gateway: the table, and the values it fills.
//!
//! Asked by: whoever starts a gateway. Here they are only words, numbers and addresses; what they
//! mean for clients is the gateway's to say.

mod watching;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::kind::{Kind, Value};
use super::{Origins, Setting, plain, words};

pub use watching::{LogFormat, LogLevel, OpsListen};

/// What is decided about a gateway, and where each value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewaySettings {
    /// Where it listens for MCP.
    pub listen: SocketAddr,
    /// How callers show who they are.
    pub auth: AuthWord,
    /// The certificate for TLS, with those that lead to its root; none speaks without TLS.
    pub tls_certificate: Option<PathBuf>,
    /// The private key of the certificate.
    pub tls_key: Option<PathBuf>,
    /// A socket beside the address, by which the user of this machine comes in.
    pub socket: Option<PathBuf>,
    /// Names beside those of this machine by which it may be called.
    pub hosts: Vec<String>,
    /// Origins of pages that may call it.
    pub origins_allowed: Vec<String>,
    /// Places where clients name their conversation, looked at in order.
    pub run_from: Vec<String>,
    /// How long a list of all servers waits for one of them.
    pub list_share: Duration,
    /// The largest request that is taken, in bytes.
    pub max_request: usize,
    /// Connections in all.
    pub max_connections: u32,
    /// Requests in all that have no answer yet.
    pub max_requests: u32,
    /// The file to which a line is added for every call; none writes none.
    pub audit: Option<PathBuf>,
    /// The names of arguments whose values are written there.
    pub audit_arguments: Vec<String>,
    /// Whether a changed configuration file is read again by itself.
    pub watch: bool,
    /// Where machines that watch it find their pages.
    pub ops: OpsListen,
    /// Which lines of the log are written.
    pub log_level: LogLevel,
    /// How they are written.
    pub log_format: LogFormat,
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
            tls_certificate: None,
            tls_key: None,
            socket: None,
            hosts: Vec::new(),
            origins_allowed: Vec::new(),
            run_from: vec!["_meta:openai/session".to_owned()],
            list_share: Duration::from_secs(10),
            max_request: 4 << 20,
            max_connections: 16_384,
            max_requests: 8_192,
            audit: None,
            audit_arguments: Vec::new(),
            watch: true,
            ops: OpsListen::default(),
            log_level: LogLevel::default(),
            log_format: LogFormat::default(),
            origins: Origins::default(),
        }
    }
}

type Of = Setting<GatewaySettings>;

/// How a place that may hold a path is read and written.
macro_rules! perhaps_path {
    ($field:ident) => {
        (
            |of| match &of.$field {
                Some(path) => Value::Path(path.clone()),
                None => Value::Word("none"),
            },
            |of, value| {
                of.$field = if let Value::Path(path) = value {
                    Some(path)
                } else {
                    None
                }
            },
        )
    };
}

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
        "gateway.tls_certificate",
        Kind::path().or(&["none"]),
        "the certificate (PEM) for TLS, followed by those that lead to its root; renewed in place",
        perhaps_path!(tls_certificate),
    ),
    Of::new(
        "gateway.tls_key",
        Kind::path().or(&["none"]),
        "the private key (PEM) of the certificate",
        perhaps_path!(tls_key),
    ),
    Of::new(
        "gateway.socket",
        Kind::path().or(&["none"]),
        "a Unix socket beside the address, by which only the user of the gateway comes in",
        perhaps_path!(socket),
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
        "gateway.list_share",
        Kind::time(),
        "how long a list of all servers in one waits for each of them; who is late is left out and named",
        plain!(Time, list_share),
    ),
    Of::new(
        "gateway.max_request",
        Kind::size(1 << 10..=1 << 30),
        "the largest request that is taken",
        plain!(Size, max_request),
    ),
    Of::new(
        "gateway.max_connections",
        Kind::count(1..=1_000_000),
        "connections of clients, in all",
        plain!(Count, max_connections),
    ),
    Of::new(
        "gateway.max_requests",
        Kind::count(1..=1_000_000),
        "requests of clients that have no answer yet, in all",
        plain!(Count, max_requests),
    ),
    Of::new(
        "gateway.watch",
        Kind::switch(),
        "whether a changed configuration file is read again by itself; `SIGHUP` always does it",
        plain!(Switch, watch),
    ),
    Of::new(
        "audit.file",
        Kind::path().or(&["none"]),
        "the file to which one line of JSON is added for every call and refusal",
        perhaps_path!(audit),
    ),
    Of::new(
        "audit.arguments",
        Kind::texts(),
        "names of arguments whose values are written there; no others ever are",
        plain!(Texts, audit_arguments),
    ),
    Of::new(
        "ops.listen",
        Kind::address().or(OpsListen::WORDS),
        "where machines find `/livez`, `/readyz`, `/metrics` and `/servers`, which ask nobody who they are; `beside` is on loopback, at the port after that of `gateway.listen`",
        (
            |of| match of.ops {
                OpsListen::Beside => Value::Word("beside"),
                OpsListen::None => Value::Word("none"),
                OpsListen::At(address) => Value::Address(address),
            },
            |of, value| {
                of.ops = if let Value::Address(address) = value {
                    OpsListen::At(address)
                } else if value == Value::Word("none") {
                    OpsListen::None
                } else {
                    OpsListen::Beside
                }
            },
        ),
    ),
    Of::new(
        "log.level",
        Kind::words(LogLevel::WORDS),
        "which lines of the log are written; `WARMLINE_LOG` says it more finely",
        words!(log_level: LogLevel),
    ),
    Of::new(
        "log.format",
        Kind::words(LogFormat::WORDS),
        "how lines of the log are written; `auto` is text on a terminal and JSON elsewhere",
        words!(log_format: LogFormat),
    ),
];
