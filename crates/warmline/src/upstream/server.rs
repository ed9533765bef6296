//! An upstream server as configured: its name, how it is reached, and its limits.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use url::Url;
use warmline_core::code::{Code, Reason};
use warmline_core::era::{Era, Version};
use warmline_core::exchange::Trouble;
use warmline_core::key::Digest;
use warmline_core::policy::Sessions;
use warmline_core::protocol::gone::Breadth;

use super::environment::is_variable_name;
use super::notices::Notices;
use crate::metrics::ServerMetrics;
use crate::net::Dial;

/// Where the header comes from that speaks for us.
///
/// Asked anew for every HTTP request, whatever it is for: handshake, call, stream, cancel, close.
/// So a token that was refreshed is used by the very next request.
pub trait HeaderSource: Send + Sync + fmt::Debug {
    /// The header as it is now; none where there is nothing to send. Values are marked sensitive
    /// on their way.
    fn header(&self) -> Option<(HeaderName, HeaderValue)>;

    /// The number of what it gives now, to be said where a server refuses that.
    fn epoch(&self) -> u64 {
        0
    }

    /// Asks for another one where that number was refused; true if there is another.
    fn renewed(&self, _refused: u64) -> Renewing<'_> {
        Box::pin(std::future::ready(false))
    }
}

/// Whether another header can be sent, once that is known.
pub type Renewing<'a> = Pin<Box<dyn Future<Output = bool> + Send + 'a>>;

/// An upstream MCP server as configured.
#[derive(Clone, Debug)]
pub struct Server {
    /// Its name: 1 to 24 of `[a-z0-9-]`.
    pub name: String,
    /// How it is reached.
    pub reach: Reach,
    /// Which era to speak; none finds out.
    pub era: Option<Era>,
    /// The one protocol version to speak; none offers the newest and takes what the server has.
    pub version: Option<Version>,
    /// Whether sessions are opened at all. [`Sessions::Never`] sends no handshake and no session
    /// header, ever.
    pub sessions: Sessions,
    /// Which forms of "this session is gone" are believed.
    pub dialects: Breadth,
    /// Who speaks for us; asked for every HTTP request.
    pub credential: Option<Arc<dyn HeaderSource>>,
    /// Which source of secrets that is. What is remembered of a server is kept apart by it.
    pub credential_id: Option<Digest>,
    /// Who hears what belongs to no call.
    pub on_notice: Option<Arc<dyn Notices>>,
    /// Who makes the connections; none leaves it to us.
    pub dial: Option<Arc<dyn Dial>>,
    /// Kept by every process that is started for this, until nothing is left of it.
    pub tether: Option<Tether>,
    /// Where it is counted what its handshakes leave behind; none counts nothing.
    pub counts: Option<Arc<ServerMetrics>>,
    /// How long things may take.
    pub times: Times,
    /// How large things may be.
    pub sizes: Sizes,
}

/// Anything whose last clone is dropped when a process is gone: whoever counts processes learns of
/// their ends by it, also of those that nobody waits for any more.
pub type Tether = Arc<dyn fmt::Debug + Send + Sync>;

/// How a server is reached.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Reach {
    /// Streamable HTTP at a URL.
    Http(HttpReach),
    /// A child process that speaks over its standard streams.
    Stdio(StdioReach),
}

/// A server behind a URL. Printed without its query and the values of its headers.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct HttpReach {
    /// The endpoint.
    pub url: Url,
    /// Headers of every request. Values that are secret are marked sensitive.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// A PEM file of certificate authorities to trust instead of the system's.
    pub ca_file: Option<PathBuf>,
    /// Values of variables that were filled into the URL, by their names. They are struck out of
    /// what is told.
    pub filled: BTreeMap<String, String>,
}

impl Reach {
    /// Whether it can be used, as far as that is known without using it.
    ///
    /// # Errors
    /// `config-bad-value`, with what is wrong.
    pub(crate) fn check(&self, server: &str) -> Result<(), Trouble> {
        match self {
            Self::Http(http) => super::way::check(server, http),
            Self::Stdio(stdio) => stdio.check(server),
        }
    }
}

impl StdioReach {
    /// No program can be given a NUL, and no variable every name.
    fn check(&self, server: &str) -> Result<(), Trouble> {
        let bad = |what: String| {
            let trouble = Trouble::new(Reason::InvalidRequest, what).coded(Code::ConfigBadValue);
            Err(trouble)
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
pub struct StdioReach {
    /// The program, by name or path.
    pub program: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Variables set for it, besides the allow-list.
    pub env: BTreeMap<String, String>,
    /// Names of variables of ours that it gets too.
    pub env_pass: Vec<String>,
    /// Its working folder; ours by default.
    pub cwd: Option<PathBuf>,
    /// The variables that the allow-list chooses from, where these are not ours: another process
    /// of the same user asks for the program, and it shall find what it would have found there.
    pub surroundings: Option<BTreeMap<String, String>>,
    /// Values of variables that were filled into its arguments, by their names. They are struck out
    /// of what is told.
    pub filled: BTreeMap<String, String>,
}

/// Keys stand in queries and headers, said to be secret or not.
impl fmt::Debug for HttpReach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&HeaderName> = self.headers.iter().map(|(name, _)| name).collect();
        let mut url = self.url.clone();
        url.set_query(None);
        url.set_fragment(None);
        // Where there is no place for them there are none.
        url.set_username("").ok();
        url.set_password(None).ok();
        f.debug_struct("HttpReach")
            .field("url", &url.as_str())
            .field("headers", &names)
            .field("ca_file", &self.ca_file)
            .finish()
    }
}

/// Tokens are given to programs in both.
impl fmt::Debug for StdioReach {
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
pub struct Times {
    /// To connect, TLS included.
    pub connect: Duration,
    /// For one message of the handshake.
    pub handshake: Duration,
    /// For a child to show that it lives.
    pub start: Duration,
    /// How long a probe over stdio may stay silent before `initialize` is sent as well.
    pub probe_silence: Duration,
    /// How long an idle connection is kept.
    pub connection_idle: Duration,
}

impl Default for Times {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            handshake: Duration::from_secs(30),
            start: Duration::from_secs(60),
            probe_silence: Duration::from_secs(3),
            // Shorter than what servers allow: a request that meets a closing connection is lost.
            connection_idle: Duration::from_secs(15),
        }
    }
}

/// How large things may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sizes {
    /// One reply, as a JSON body.
    pub reply: usize,
    /// One event of a stream.
    pub event: usize,
    /// One line of a child's standard output.
    pub line: usize,
    /// The header block of a reply.
    pub headers: usize,
}

impl Default for Sizes {
    fn default() -> Self {
        Self {
            reply: 16 << 20,
            event: 4 << 20,
            line: 16 << 20,
            headers: 32 << 10,
        }
    }
}

impl Server {
    /// A server behind a URL.
    pub fn http(name: impl Into<String>, url: Url) -> Self {
        Self::new(
            name,
            Reach::Http(HttpReach {
                url,
                headers: Vec::new(),
                ca_file: None,
                filled: BTreeMap::new(),
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
            Reach::Stdio(StdioReach {
                program: program.into(),
                args: args.into_iter().map(Into::into).collect(),
                env: BTreeMap::new(),
                env_pass: Vec::new(),
                cwd: None,
                surroundings: None,
                filled: BTreeMap::new(),
            }),
        )
    }

    /// The era that is to be spoken, where it is said: by its word or by a version of it.
    pub(crate) fn said_era(&self) -> Option<Era> {
        self.era.or(self.version.map(Version::era))
    }

    /// The same, spoken to in this era.
    pub(crate) fn in_era(&self, era: Era) -> Self {
        Self {
            era: Some(era),
            ..self.clone()
        }
    }

    /// A server that is reached in this way, with the usual limits.
    pub(crate) fn new(name: impl Into<String>, reach: Reach) -> Self {
        Self {
            name: name.into(),
            reach,
            era: None,
            version: None,
            sessions: Sessions::Auto,
            dialects: Breadth::Sure,
            credential: None,
            credential_id: None,
            on_notice: None,
            dial: None,
            tether: None,
            counts: None,
            times: Times::default(),
            sizes: Sizes::default(),
        }
    }
}

/// A URL of a server: http or https, with a host.
///
/// # Errors
/// Says what is wrong with it, without repeating it: it may hold a secret.
pub fn parse_url(written: &str) -> Result<Url, String> {
    let url = Url::parse(written).map_err(|error| {
        if error == url::ParseError::RelativeUrlWithoutBase {
            return "it does not begin with `https://` or `http://`".to_owned();
        }
        error.to_string()
    })?;
    // Read leniently, what follows would be taken for the host.
    let names_a_host = !written.contains(":///");
    match url.scheme() {
        "http" | "https" if url.host().is_some() && names_a_host => Ok(url),
        "http" | "https" => Err("it names no host".to_owned()),
        other => Err(format!(
            "`{other}` is not a scheme of MCP; `http` and `https` are"
        )),
    }
}

/// Whether a URL holds a user name or a password, which would stand in every log.
pub(crate) fn holds_a_login(url: &Url) -> bool {
    !url.username().is_empty() || url.password().is_some()
}
