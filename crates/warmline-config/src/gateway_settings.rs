//! Settings of a gateway: the values, and the table that fills them.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use warmline_core::word_enum::word_enum;
use warmline_engine::settings::{
    ConfigError, SettingField, SettingOrigins, SettingValue, SettingsGroup as _,
};
use warmline_engine::{settings_table, word_fields};

/// Declares the settings of a gateway: each row is a field with its default, and a row of the
/// table as [`settings_table`] reads it.
macro_rules! gateway_settings {
    ($(#[$doc:meta])* pub struct $group:ident { $(
        $key:literal $([$($source:literal),+])? $(, $reloadable:ident)?
            : $form:ident($($arg:expr)?) $(.$with:ident($with_arg:expr))*
            => $field:ident: $type:ty = $default:expr,
        $help:literal;
    )+ }) => {
        $(#[$doc])*
        pub struct $group {
            $(#[doc = $help] pub $field: $type,)+
            pub(crate) origins: SettingOrigins,
        }

        impl Default for $group {
            fn default() -> Self {
                Self { $($field: $default,)+ origins: SettingOrigins::new() }
            }
        }

        settings_table! { $group; $(
            $key $([$($source),+])? $(, $reloadable)?
                : $form($($arg)?) $(.$with($with_arg))* => $field,
            $help;
        )+ }
    };
}

gateway_settings! {
/// The settings of a gateway, each with its origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewaySettings {
    "gateway.listen": address()
        => listen: SocketAddr = ([127, 0, 0, 1], 8484).into(),
        "where it listens for MCP; port 0 takes a free one";
    "gateway.auth", reloadable: words(AuthMode::WORDS)
        => auth: AuthMode = AuthMode::default(),
        "how callers authenticate: with the token of this machine, with tokens made for them, with signed tokens alone, through a proxy alone, or not at all";
    "gateway.auth_required" ["S14", "AUTH_REQUIRED"]: switch()
        => auth_required: bool = false,
        "whether it refuses to run with `auth = \"none\"`, whichever source sets that";
    "gateway.trusted_proxies", reloadable: texts()
        => trusted_proxies: Vec<String> = Vec::new(),
        "addresses and networks (`10.0.0.0/8`) of proxies that name the caller, in addition to `auth`";
    "gateway.proxy_header", reloadable: text().with_words(&["none"])
        => proxy_header: Option<String> = None,
        "the header in which trusted proxies name the caller; ignored from any other address";
    "gateway.tls_certificate": path().with_words(&["none"])
        => tls_certificate: Option<PathBuf> = None,
        "the TLS certificate (PEM), followed by its chain; a renewed file is read again";
    "gateway.tls_key": path().with_words(&["none"])
        => tls_key: Option<PathBuf> = None,
        "the private key (PEM) of the certificate";
    "gateway.socket": path().with_words(&["none"])
        => socket: Option<PathBuf> = None,
        "a Unix socket beside the address, for the user of the gateway alone";
    "gateway.sse": switch()
        => sse: bool = false,
        "whether clients of the 2024-11-05 transport are served, at `/servers/{server}/sse`";
    "gateway.hosts", reloadable: texts()
        => hosts: Vec<String> = Vec::new(),
        "host names besides those of this machine under which clients may call it";
    "gateway.origins", reloadable: texts()
        => origins_allowed: Vec<String> = Vec::new(),
        "origins that requests may have besides those of this machine. Preflights are not answered, so a page of another \
         origin sends its requests through its own server";
    "gateway.run_from", reloadable: texts()
        => run_from: Vec<String> = vec!["_meta:openai/session".to_owned()],
        "where clients name their conversation, in this order: `_meta:KEY` or `header:NAME`";
    "gateway.list_share": time()
        => list_share: Duration = Duration::from_secs(10),
        "how long the merged list of all servers waits for each of them; a late server is left out and named";
    "gateway.max_request", reloadable: size(1 << 10..=1 << 30)
        => max_request: usize = 4 << 20,
        "the largest request";
    "gateway.max_connections", reloadable: count(1..=1_000_000)
        => max_connections: u32 = 16_384,
        "connections of clients, in all";
    "gateway.max_connections_per_address", reloadable: count(1..=1_000_000)
        => max_connections_per_address: u32 = 4_096,
        "connections of one address, or of one /64 of IPv6";
    "gateway.max_requests", reloadable: count(1..=1_000_000)
        => max_requests: u32 = 8_192,
        "requests of clients without a response yet, in all; one identity may have eight times as many as are free";
    "gateway.max_request_bytes", reloadable: size(64 << 10..=1 << 40)
        => max_request_bytes: usize = 512 << 20,
        "bytes of all requests that are read or answered, each counted as received and as forwarded, and as many of large replies that clients have not read; one identity may hold eight times what is free";
    "gateway.max_strangers_per_minute", reloadable: count(1..=1_000_000)
        => max_strangers_per_minute: u32 = 300,
        "requests of one address in a minute that fail to authenticate; beyond, the response is 429, and no key of a signed token is fetched";
    "gateway.max_head", reloadable: size(8 << 10..=1 << 20)
        => max_head: usize = 32 << 10,
        "the largest head of a request";
    "gateway.head_timeout", reloadable: time()
        => head_timeout: Duration = Duration::from_secs(15),
        "how long a client may take for the head of a request";
    "gateway.body_timeout", reloadable: time()
        => body_timeout: Duration = Duration::from_secs(30),
        "how long a client may take for the body of a request";
    "gateway.stall_timeout", reloadable: time()
        => stall_timeout: Duration = Duration::from_secs(30),
        "how long a client may read nothing of a response before its connection is closed";
    "gateway.idle_timeout", reloadable: time()
        => idle_timeout: Duration = Duration::from_secs(120),
        "how long a connection of a client may be idle before it is closed";
    "gateway.watch": switch()
        => watch: bool = true,
        "whether a changed configuration file is read again automatically; `SIGHUP` always does it";
    "gateway.jwt.issuer", reloadable: text().with_words(&["none"])
        => jwt_issuer: Option<String> = None,
        "the issuer of signed tokens (`iss`); with it they count in addition to `auth`";
    "gateway.jwt.audiences", reloadable: texts()
        => jwt_audiences: Vec<String> = Vec::new(),
        "for whom signed tokens must be issued (`aud`): one of these";
    "gateway.jwt.keys_url", reloadable: text().with_words(&["none"])
        => jwt_keys_url: Option<String> = None,
        "the URL of the issuer's keys (JWKS): `https`, or `http` on this machine; fetched when they are needed, and again when they changed";
    "gateway.jwt.keys_file", reloadable: path().with_words(&["none"])
        => jwt_keys_file: Option<PathBuf> = None,
        "a file with the issuer's keys (JWKS), instead of a URL";
    "gateway.jwt.algorithms", reloadable: texts()
        => jwt_algorithms: Vec<String> = ["RS256", "PS256", "ES256", "ES384", "EdDSA"].map(str::to_owned).to_vec(),
        "the accepted signatures; never none, never with a shared secret";
    "gateway.jwt.leeway", reloadable: time()
        => jwt_leeway: Duration = Duration::from_secs(60),
        "how far clocks may differ";
    "gateway.jwt.identity", reloadable: text()
        => jwt_identity: String = "sub".to_owned(),
        "the claim that names the caller, beside the issuer";
    "gateway.resource.url", reloadable: text().with_words(&["none"])
        => resource_url: Option<String> = None,
        "our URL as clients know it, without a path; with it a 401 says where tokens come from (RFC 9728)";
    "gateway.resource.authorization_servers", reloadable: texts()
        => resource_authorization_servers: Vec<String> = Vec::new(),
        "who issues tokens; an empty list means the issuer of signed ones";
    "gateway.resource.scopes", reloadable: texts()
        => resource_scopes: Vec<String> = Vec::new(),
        "scopes that clients should request";
    "admin.socket": path().with_words(&["none"])
        => admin: Option<PathBuf> = None,
        "a Unix socket on which the user of the gateway alone sees servers, runs, sessions and events, ends runs, closes sessions, reloads and drains";
    "audit.file": path().with_words(&["none"])
        => audit: Option<PathBuf> = None,
        "the file that gets one line of JSON for every call and refusal";
    "audit.arguments": texts()
        => audit_arguments: Vec<String> = Vec::new(),
        "names of arguments whose values are written to it; no other value ever is";
    "ops.listen": address().with_words(&["beside", "none"])
        => ops: OpsListen = OpsListen::default(),
        "where monitoring finds `/livez`, `/readyz`, `/metrics` and `/servers`, without authentication; `beside` is on loopback, at the port after that of `gateway.listen`";
    "log.level": words(LogLevel::WORDS)
        => log_level: LogLevel = LogLevel::default(),
        "the least severe lines that are logged; `WARMLINE_LOG` chooses more finely";
    "log.format": words(LogFormat::WORDS)
        => log_format: LogFormat = LogFormat::default(),
        "the format of the log; `auto` is text on a terminal and JSON elsewhere";
}
}

impl GatewaySettings {
    /// Checks every value's range.
    ///
    /// # Errors
    /// `config-bad-value` names the setting and what is possible.
    pub fn normalize(&mut self) -> Result<(), ConfigError> {
        self.check_ranges()
    }

    /// The scheme of its URLs.
    pub fn scheme(&self) -> &'static str {
        match self.tls_certificate {
            Some(_) => "https",
            None => "http",
        }
    }
}

word_enum! {
    /// How callers of a gateway authenticate. Signed tokens and proxies are configured apart from it.
    pub enum AuthMode: default Local {
        /// With the token of this machine, made at the first start, or one that was made for them.
        /// On loopback only.
        Local = "local",
        /// With a token that was made for them.
        Tokens = "tokens",
        /// With a signed token of another issuer; none of ours counts.
        Jwt = "jwt",
        /// With the identity that a trusted proxy sends; none of our tokens counts.
        Proxy = "proxy",
        /// Not at all. On loopback only.
        None = "none",
    }
}

word_enum! {
    /// The least severe lines of the log that are written.
    pub enum LogLevel: default Info {
        /// No line at all.
        Off = "off",
        /// What somebody must act on.
        Error = "error",
        /// What recovered by itself and is worth knowing.
        Warn = "warn",
        /// Start, stop, reload and unusual events.
        Info = "info",
        /// Normal operation.
        Debug = "debug",
        /// Everything.
        Trace = "trace",
    }
}

word_enum! {
    /// The format of the log.
    pub enum LogFormat: default Auto {
        /// Text on a terminal, JSON elsewhere.
        Auto = "auto",
        /// Text, for people.
        Text = "text",
        /// One JSON object per line.
        Json = "json",
    }
}

word_fields! { AuthMode; LogLevel; LogFormat; }

/// Where the pages for monitoring are served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OpsListen {
    /// On loopback, at the port after the one for MCP, or at any free port if that one is 0.
    #[default]
    Beside,
    /// Nowhere.
    None,
    /// At this address.
    Address(SocketAddr),
}

impl OpsListen {
    /// The address, for a gateway that serves MCP at the given one.
    pub fn address(self, mcp: SocketAddr) -> Option<SocketAddr> {
        match self {
            Self::None => None,
            Self::Address(address) => Some(address),
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

impl SettingField for OpsListen {
    fn to_value(&self) -> SettingValue {
        match self {
            Self::Beside => SettingValue::Word("beside"),
            Self::None => SettingValue::Word("none"),
            Self::Address(address) => SettingValue::Address(*address),
        }
    }

    fn from_value(value: SettingValue) -> Option<Self> {
        if let SettingValue::Address(address) = value {
            return Some(Self::Address(address));
        }
        let mut words = [Self::Beside, Self::None].into_iter();
        words.find(|word| word.to_value() == value)
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
                OpsListen::Address(at("0.0.0.0:1")),
                "127.0.0.1:8484",
                Some("0.0.0.0:1"),
            ),
        ] {
            assert_eq!(said.address(at(mcp)), expected.map(at), "{said:?} {mcp}");
        }
    }
}
