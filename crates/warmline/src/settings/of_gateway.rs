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
    /// Whether it must not run without asking who callers are.
    pub auth_required: bool,
    /// Tokens that somebody else signed.
    pub jwt: JwtSettings,
    /// Addresses and networks of proxies that say who is calling.
    pub trusted_proxies: Vec<String>,
    /// The header in which they say it.
    pub proxy_header: Option<String>,
    /// What clients are told of where they get tokens.
    pub resource: ResourceSettings,
    /// The certificate for TLS, with those that lead to its root; none speaks without TLS.
    pub tls_certificate: Option<PathBuf>,
    /// The private key of the certificate.
    pub tls_key: Option<PathBuf>,
    /// A socket beside the address, by which the user of this machine comes in.
    pub socket: Option<PathBuf>,
    /// A socket by which the user of this machine sees what runs in it and steers it.
    pub admin: Option<PathBuf>,
    /// Whether clients of the 2024-11-05 transport are served.
    pub sse: bool,
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
    /// Connections of one address (of one /64 of IPv6).
    pub max_connections_per_address: u32,
    /// Requests in all that have no answer yet.
    pub max_requests: u32,
    /// Bytes of all requests that are being read or answered, and as many of large replies.
    pub max_request_bytes: usize,
    /// Requests of one address in a minute that nobody was let in with.
    pub max_strangers_per_minute: u32,
    /// The largest head of a request.
    pub max_head: usize,
    /// A client may take so long for the head of a request.
    pub head_timeout: Duration,
    /// A client may take so long for the body of a request.
    pub body_timeout: Duration,
    /// A client that takes nothing of an answer for so long is left.
    pub stall_timeout: Duration,
    /// A connection on which nothing happens for so long is closed.
    pub idle_timeout: Duration,
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

/// Whose signed tokens count, as a file says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JwtSettings {
    /// Who must have issued them; none lets nobody in by them.
    pub issuer: Option<String>,
    /// For whom they must be issued: one of these.
    pub audiences: Vec<String>,
    /// Where the issuer's keys are fetched.
    pub keys_url: Option<String>,
    /// The file that holds them.
    pub keys_file: Option<PathBuf>,
    /// How they may be signed, by the names of the standard.
    pub algorithms: Vec<String>,
    /// By how much clocks may differ.
    pub leeway: Duration,
    /// The claim that says who it is, beside the issuer.
    pub identity: String,
}

impl Default for JwtSettings {
    fn default() -> Self {
        let algorithms = ["RS256", "PS256", "ES256", "ES384", "EdDSA"];
        Self {
            issuer: None,
            audiences: Vec::new(),
            keys_url: None,
            keys_file: None,
            algorithms: algorithms.map(str::to_owned).to_vec(),
            leeway: Duration::from_secs(60),
            identity: "sub".to_owned(),
        }
    }
}

/// What clients are told of where they get tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceSettings {
    /// Our own URL as clients know it, without a path; none tells nothing.
    pub url: Option<String>,
    /// Who gives out tokens.
    pub authorization_servers: Vec<String>,
    /// Scopes that are worth asking for.
    pub scopes: Vec<String>,
}

/// How callers of a gateway show who they are. What is decided about signed tokens and proxies
/// counts beside it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AuthWord {
    /// By the token of this machine, made at the first start, or by one that was made for them.
    /// On loopback only.
    #[default]
    Local,
    /// By a token that was made for them.
    Tokens,
    /// By a token that somebody else signed; none of ours counts.
    Jwt,
    /// By what a trusted proxy says of them; none of our tokens counts.
    Proxy,
    /// Not at all. On loopback only.
    None,
}

impl AuthWord {
    /// Every word.
    pub const WORDS: &'static [&'static str] = &["local", "tokens", "jwt", "proxy", "none"];

    /// The word for it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Tokens => "tokens",
            Self::Jwt => "jwt",
            Self::Proxy => "proxy",
            Self::None => "none",
        }
    }

    /// What a word means.
    pub fn parse(word: &str) -> Option<Self> {
        [
            Self::Local,
            Self::Tokens,
            Self::Jwt,
            Self::Proxy,
            Self::None,
        ]
        .into_iter()
        .find(|one| one.word() == word)
    }
}

impl Default for GatewaySettings {
    fn default() -> Self {
        Self {
            listen: ([127, 0, 0, 1], 8484).into(),
            auth: AuthWord::default(),
            auth_required: false,
            jwt: JwtSettings::default(),
            trusted_proxies: Vec::new(),
            proxy_header: None,
            resource: ResourceSettings::default(),
            tls_certificate: None,
            tls_key: None,
            socket: None,
            admin: None,
            sse: false,
            hosts: Vec::new(),
            origins_allowed: Vec::new(),
            run_from: vec!["_meta:openai/session".to_owned()],
            list_share: Duration::from_secs(10),
            max_request: 4 << 20,
            max_connections: 16_384,
            max_connections_per_address: 4_096,
            max_requests: 8_192,
            max_request_bytes: 512 << 20,
            max_strangers_per_minute: 300,
            max_head: 32 << 10,
            head_timeout: Duration::from_secs(15),
            body_timeout: Duration::from_secs(30),
            stall_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(120),
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

/// How a place is read and written that may hold nothing.
macro_rules! perhaps {
    ($form:ident, $($field:ident).+) => {
        (
            |of| match &of.$($field).+ {
                Some(value) => Value::$form(value.clone()),
                None => Value::Word("none"),
            },
            |of, value| {
                of.$($field).+ = if let Value::$form(value) = value {
                    Some(value)
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
        "how callers show who they are: by the token of this machine, by tokens that were made for them, by signed tokens alone, by a proxy alone, or not at all",
        words!(auth: AuthWord),
    ),
    Of::new(
        "gateway.auth_required",
        Kind::switch(),
        "whether it refuses to run with `auth = \"none\"`, whoever decided that",
        plain!(Switch, auth_required),
    )
    .elsewhere("S14", "AUTH_REQUIRED"),
    Of::new(
        "gateway.trusted_proxies",
        Kind::texts(),
        "addresses and networks (`10.0.0.0/8`) of proxies that say who is calling, which counts beside `auth`",
        plain!(Texts, trusted_proxies),
    ),
    Of::new(
        "gateway.proxy_header",
        Kind::text().or(&["none"]),
        "the header in which trusted proxies name the caller; from anywhere else it counts for nothing",
        perhaps!(Text, proxy_header),
    ),
    Of::new(
        "gateway.tls_certificate",
        Kind::path().or(&["none"]),
        "the certificate (PEM) for TLS, followed by those that lead to its root; renewed in place",
        perhaps!(Path, tls_certificate),
    ),
    Of::new(
        "gateway.tls_key",
        Kind::path().or(&["none"]),
        "the private key (PEM) of the certificate",
        perhaps!(Path, tls_key),
    ),
    Of::new(
        "gateway.socket",
        Kind::path().or(&["none"]),
        "a Unix socket beside the address, by which only the user of the gateway comes in",
        perhaps!(Path, socket),
    ),
    Of::new(
        "gateway.sse",
        Kind::switch(),
        "whether clients of the 2024-11-05 transport are served, at `/servers/{server}/sse`",
        plain!(Switch, sse),
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
        "origins that a request may name; those of this machine always may. Preflights are not answered, so a page of another \
         origin asks through a server of its own",
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
        "gateway.max_connections_per_address",
        Kind::count(1..=1_000_000),
        "connections of one address, or of one /64 of IPv6",
        plain!(Count, max_connections_per_address),
    ),
    Of::new(
        "gateway.max_requests",
        Kind::count(1..=1_000_000),
        "requests of clients that have no answer yet, in all; one identity may have eight times as many as are still free",
        plain!(Count, max_requests),
    ),
    Of::new(
        "gateway.max_request_bytes",
        Kind::size(64 << 10..=1 << 40),
        "bytes of all requests that are being read or answered, each counted as it came and as it goes on; and as many of large replies that clients have not read; one identity may hold eight times what is still free",
        plain!(Size, max_request_bytes),
    ),
    Of::new(
        "gateway.max_strangers_per_minute",
        Kind::count(1..=1_000_000),
        "requests of one address in a minute that nobody was let in with; above it they are told 429, and no key of a signed token is looked for",
        plain!(Count, max_strangers_per_minute),
    ),
    Of::new(
        "gateway.max_head",
        Kind::size(8 << 10..=1 << 20),
        "the largest head of a request",
        plain!(Size, max_head),
    ),
    Of::new(
        "gateway.head_timeout",
        Kind::time(),
        "how long a client may take for the head of a request",
        plain!(Time, head_timeout),
    ),
    Of::new(
        "gateway.body_timeout",
        Kind::time(),
        "how long a client may take for the body of a request",
        plain!(Time, body_timeout),
    ),
    Of::new(
        "gateway.stall_timeout",
        Kind::time(),
        "a client that takes nothing of an answer for so long is left",
        plain!(Time, stall_timeout),
    ),
    Of::new(
        "gateway.idle_timeout",
        Kind::time(),
        "a connection of a client on which nothing happens for so long is closed",
        plain!(Time, idle_timeout),
    ),
    Of::new(
        "gateway.watch",
        Kind::switch(),
        "whether a changed configuration file is read again by itself; `SIGHUP` always does it",
        plain!(Switch, watch),
    ),
    Of::new(
        "gateway.jwt.issuer",
        Kind::text().or(&["none"]),
        "who must have signed tokens (`iss`); with it such tokens count beside `auth`",
        perhaps!(Text, jwt.issuer),
    ),
    Of::new(
        "gateway.jwt.audiences",
        Kind::texts(),
        "for whom they must be issued (`aud`): one of these",
        plain!(Texts, jwt.audiences),
    ),
    Of::new(
        "gateway.jwt.keys_url",
        Kind::text().or(&["none"]),
        "where the issuer's keys (JWKS) are fetched: `https`, or `http` of this machine; fetched when they are needed, again when they changed",
        perhaps!(Text, jwt.keys_url),
    ),
    Of::new(
        "gateway.jwt.keys_file",
        Kind::path().or(&["none"]),
        "the file that holds the issuer's keys (JWKS), instead of a URL",
        perhaps!(Path, jwt.keys_file),
    ),
    Of::new(
        "gateway.jwt.algorithms",
        Kind::texts(),
        "how they may be signed; never without a signature, never by a shared secret",
        plain!(Texts, jwt.algorithms),
    ),
    Of::new(
        "gateway.jwt.leeway",
        Kind::time(),
        "by how much clocks may differ",
        plain!(Time, jwt.leeway),
    ),
    Of::new(
        "gateway.jwt.identity",
        Kind::text(),
        "the claim that says who it is, beside the issuer",
        plain!(Text, jwt.identity),
    ),
    Of::new(
        "gateway.resource.url",
        Kind::text().or(&["none"]),
        "our own URL as clients know it, without a path; with it a 401 says where tokens come from (RFC 9728)",
        perhaps!(Text, resource.url),
    ),
    Of::new(
        "gateway.resource.authorization_servers",
        Kind::texts(),
        "who gives out tokens; none says the issuer of signed ones",
        plain!(Texts, resource.authorization_servers),
    ),
    Of::new(
        "gateway.resource.scopes",
        Kind::texts(),
        "scopes that are worth asking for",
        plain!(Texts, resource.scopes),
    ),
    Of::new(
        "admin.socket",
        Kind::path().or(&["none"]),
        "a Unix socket by which only the user of the gateway sees servers, runs, sessions and events, ends runs, closes sessions, reloads and drains",
        perhaps!(Path, admin),
    ),
    Of::new(
        "audit.file",
        Kind::path().or(&["none"]),
        "the file to which one line of JSON is added for every call and refusal",
        perhaps!(Path, audit),
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
