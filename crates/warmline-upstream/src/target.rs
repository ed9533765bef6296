//! An upstream server as configured, and what we say of ourselves to it.

#![warn(missing_docs)]

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use url::Url;
use warmline_core::era::{Era, Version};
use warmline_core::error::code::{Code, Reason};
use warmline_core::exchange::Diagnostic;
use warmline_core::policy::SessionMode;
use warmline_core::pool_key::Digest;
use warmline_core::protocol::handshake;
use warmline_core::protocol::meta::ClientMeta;
use warmline_core::protocol::session_gone::SessionGoneMatching;

use super::unsolicited::UnsolicitedListener;
use warmline_platform::net::Dial;

/// The source of the credential header.
///
/// It is read for every HTTP request (handshake, call, stream, cancel, close), so the very next one
/// uses a refreshed token.
pub trait HeaderSource: Send + Sync + fmt::Debug {
    /// The current header, if any. Its value is marked sensitive when it is sent.
    fn header(&self) -> Option<(HeaderName, HeaderValue)>;

    /// The number of the current header, for [`HeaderSource::renew`].
    fn epoch(&self) -> u64 {
        0
    }

    /// Asks for another header after this one was refused; true if there is another.
    fn renew(&self, _refused: u64) -> RenewFuture<'_> {
        Box::pin(std::future::ready(false))
    }
}

/// Whether there is another header.
pub type RenewFuture<'a> = Pin<Box<dyn Future<Output = bool> + Send + 'a>>;

/// An upstream MCP server as configured.
#[derive(Clone, Debug)]
pub struct ServerTarget {
    /// Its name: 1 to 24 of `[a-z0-9-]`.
    pub name: String,
    /// How it is reached.
    pub transport: TransportConfig,
    /// The era to speak; none detects it.
    pub era: Option<Era>,
    /// The only protocol version to speak; none offers the newest and takes what the server has.
    pub version: Option<Version>,
    /// Whether sessions are opened at all. [`SessionMode::Never`] sends no handshake and no session
    /// header, ever.
    pub sessions: SessionMode,
    /// Which forms of "this session is gone" are recognised.
    pub session_gone_matching: SessionGoneMatching,
    /// The credential.
    pub credential: Option<Arc<dyn HeaderSource>>,
    /// Identifies its source. Known eras and facts are kept apart by it.
    pub credential_id: Option<Digest>,
    /// Receives what belongs to no call.
    pub unsolicited_listener: Option<Arc<dyn UnsolicitedListener>>,
    /// Makes the connections; none uses ours.
    pub dial: Option<Arc<dyn Dial>>,
    /// Held by every process that is started for this server, until nothing is left of it.
    pub lifetime_token: Option<LifetimeToken>,
    /// Counts lost handshakes.
    pub metrics: Option<Arc<dyn HandshakeObserver>>,
    /// How long things may take.
    pub timeouts: Timeouts,
    /// How large things may be.
    pub size_limits: SizeLimits,
}

/// Counts what handshakes may leave behind at a server.
pub trait HandshakeObserver: fmt::Debug + Send + Sync {
    /// An `initialize` was sent, and its outcome is unknown.
    fn initialize_lost(&self);
}

/// Its last clone is dropped when a process is gone, even if nobody waits for that.
pub type LifetimeToken = Arc<dyn fmt::Debug + Send + Sync>;

/// How a server is reached.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TransportConfig {
    /// Streamable HTTP at a URL.
    Http(HttpConfig),
    /// A child process, over its standard streams.
    Stdio(StdioConfig),
}

/// A server behind a URL. Printed without its query and the values of its headers.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct HttpConfig {
    /// The endpoint.
    pub url: Url,
    /// Headers of every request. Values that are secret are marked sensitive.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// A PEM file of certificate authorities to trust instead of the system's.
    pub ca_file: Option<PathBuf>,
    /// Values of variables that were filled into the URL, by name. They are redacted.
    pub substituted: BTreeMap<String, String>,
}

impl StdioConfig {
    /// No argument can hold a NUL, and no variable can have every name.
    pub(crate) fn check(&self, server: &str) -> Result<(), Diagnostic> {
        let bad = |what: String| {
            let diagnostic =
                Diagnostic::new(Reason::InvalidRequest, what).with_code(Code::ConfigBadValue);
            Err(diagnostic)
        };
        let mut names = self.env.keys().chain(&self.env_pass);
        if let Some(name) = names.find(|name| !is_variable_name(name)) {
            let name = name.escape_debug();
            return bad(format!("no variable of `{server}` can be named `{name}`"));
        }
        let words = std::iter::once(&self.program).chain(&self.args);
        if self.program.is_empty() {
            return bad(format!("the program of `{server}` has no name"));
        }
        if words
            .chain(self.env.values())
            .any(|word| word.contains('\0'))
        {
            return bad(format!("a word or variable of `{server}` holds a NUL"));
        }
        Ok(())
    }
}

/// A server that is a program. Printed without its arguments and the values of its variables.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct StdioConfig {
    /// The program, by name or path.
    pub program: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Variables set for it, beside the allow-list.
    pub env: BTreeMap<String, String>,
    /// Names of our variables that it gets, too.
    pub env_pass: Vec<String>,
    /// Its working folder; ours by default.
    pub cwd: Option<PathBuf>,
    /// The variables that the allow-list selects from, if these are not ours: another process of the
    /// same user asks for the program, which must find what it would find there.
    pub base_env: Option<BTreeMap<String, String>>,
    /// Values of variables that were filled into its arguments, by name. They are redacted.
    pub substituted: BTreeMap<String, String>,
}

/// Queries and headers hold keys, marked as secret or not.
impl fmt::Debug for HttpConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&HeaderName> = self.headers.iter().map(|(name, _)| name).collect();
        let mut url = self.url.clone();
        url.set_query(None);
        url.set_fragment(None);
        // A URL without a place for them has none.
        url.set_username("").ok();
        url.set_password(None).ok();
        f.debug_struct("HttpReach")
            .field("url", &url.as_str())
            .field("headers", &names)
            .field("ca_file", &self.ca_file)
            .finish()
    }
}

/// Arguments and variables hold tokens.
impl fmt::Debug for StdioConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&String> = self.env.keys().collect();
        f.debug_struct("StdioReach")
            .field("program", &self.program)
            .field("args", &self.args.len())
            .field("env", &names)
            .field("env_pass", &self.env_pass)
            .field("cwd", &self.cwd)
            .finish()
    }
}

/// How long things may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Timeouts {
    /// To connect, TLS included.
    pub connect: Duration,
    /// For one message of the handshake.
    pub handshake: Duration,
    /// For a child to send its first message.
    pub start: Duration,
    /// How long a probe over stdio waits before `initialize` is sent as well.
    pub probe_silence: Duration,
    /// How long an idle connection is kept.
    pub connection_idle: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            handshake: Duration::from_secs(30),
            start: Duration::from_secs(60),
            probe_silence: Duration::from_secs(3),
            // Shorter than servers allow: a request that meets a closing connection is lost.
            connection_idle: Duration::from_secs(15),
        }
    }
}

/// How large things may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SizeLimits {
    /// One reply, as a JSON body.
    pub reply: usize,
    /// One event of a stream.
    pub event: usize,
    /// One line of a child's standard output.
    pub line: usize,
    /// The header block of a reply.
    pub headers: usize,
}

impl Default for SizeLimits {
    fn default() -> Self {
        Self {
            reply: 16 << 20,
            event: 4 << 20,
            line: 16 << 20,
            headers: 32 << 10,
        }
    }
}

impl ServerTarget {
    /// A server behind a URL.
    pub fn http(name: impl Into<String>, url: Url) -> Self {
        Self::new(
            name,
            TransportConfig::Http(HttpConfig {
                url,
                headers: Vec::new(),
                ca_file: None,
                substituted: BTreeMap::new(),
            }),
        )
    }

    /// A server that is a program: its name or path first, then its arguments.
    pub fn stdio(
        name: impl Into<String>,
        program: impl Into<String>,
        args: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        Self::new(
            name,
            TransportConfig::Stdio(StdioConfig {
                program: program.into(),
                args: args.into_iter().map(Into::into).collect(),
                env: BTreeMap::new(),
                env_pass: Vec::new(),
                cwd: None,
                base_env: None,
                substituted: BTreeMap::new(),
            }),
        )
    }

    /// The configured era: named, or that of the configured version.
    pub(crate) fn required_era(&self) -> Option<Era> {
        self.era.or(self.version.map(Version::era))
    }

    pub(crate) fn with_era(&self, era: Era) -> Self {
        Self {
            era: Some(era),
            ..self.clone()
        }
    }

    /// A server that is reached in this way, with the default limits.
    pub fn new(name: impl Into<String>, transport: TransportConfig) -> Self {
        Self {
            name: name.into(),
            transport,
            era: None,
            version: None,
            sessions: SessionMode::Auto,
            session_gone_matching: SessionGoneMatching::Sure,
            credential: None,
            credential_id: None,
            unsolicited_listener: None,
            dial: None,
            lifetime_token: None,
            metrics: None,
            timeouts: Timeouts::default(),
            size_limits: SizeLimits::default(),
        }
    }
}

/// A URL of a server: http or https, with a host.
///
/// # Errors
/// Says what is wrong, without the URL: it may hold a secret.
pub fn parse_url(written: &str) -> Result<Url, String> {
    let url = Url::parse(written).map_err(|error| {
        if error == url::ParseError::RelativeUrlWithoutBase {
            return "it does not begin with `https://` or `http://`".to_owned();
        }
        error.to_string()
    })?;
    // The parser would take what follows for the host.
    let names_a_host = !written.contains(":///");
    match url.scheme() {
        "http" | "https" if url.host().is_some() && names_a_host => Ok(url),
        "http" | "https" => Err("it names no host".to_owned()),
        other => Err(format!(
            "`{other}` is not a scheme of MCP; `http` and `https` are"
        )),
    }
}

/// Whether a URL holds a user name or a password, which every log would show.
pub fn has_userinfo(url: &Url) -> bool {
    !url.username().is_empty() || url.password().is_some()
}

/// Whether a variable can have this name.
pub fn is_variable_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(['=', '\0'])
}

/// What we say of ourselves when a session is opened. It is fixed for the session's life.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClientProfile {
    /// The name of the client.
    pub client_name: String,
    /// Its version.
    pub client_version: String,
    /// Its capabilities, as raw JSON of the protocol.
    pub capabilities: Bytes,
    /// The protocol version it speaks, if the server shall speak it, too; none: the newest.
    pub version: Option<Version>,
}

impl Default for ClientProfile {
    /// Warmline itself, without capabilities.
    fn default() -> Self {
        Self {
            client_name: "warmline".to_owned(),
            client_version: env!("CARGO_PKG_VERSION").to_owned(),
            capabilities: Bytes::from_static(b"{}"),
            version: None,
        }
    }
}

impl ClientProfile {
    pub(crate) fn encode_initialize(&self, id: u64, offer: Version) -> Bytes {
        let mut body = Vec::with_capacity(256);
        handshake::write_initialize(
            &mut body,
            id,
            offer,
            &self.capabilities,
            &self.client_name,
            &self.client_version,
        );
        body.into()
    }

    /// What each modern request says of the client.
    pub(crate) fn meta(&self, version: Version) -> ClientMeta {
        let capabilities = self.capabilities.clone();
        ClientMeta::new(
            version,
            capabilities,
            &self.client_name,
            &self.client_version,
        )
    }

    /// Whether it declares any capability.
    pub fn has_capabilities(&self) -> bool {
        self.capabilities
            .iter()
            .any(|byte| !matches!(byte, b'{' | b'}') && !byte.is_ascii_whitespace())
    }
}
