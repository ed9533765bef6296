//! The declaration of a server: its transport, credential and policy.
//!
//! Declaring a server reads and connects nothing. A problem with a declaration is kept and reported
//! by [`WarmlineBuilder::build`](crate::WarmlineBuilder::build) and
//! [`Warmline::add_server`](crate::Warmline::add_server).

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use url::Url;
use warmline_core::era::{Era, Version};
use warmline_core::error::code::{Code, Reason};
use warmline_core::exchange::Diagnostic;
use warmline_core::policy::{
    CallConcurrency, Policy, SessionMode, SessionScope, StateLossPolicy, ToolPolicy,
};
use warmline_core::protocol::headers::is_reserved_header;
use warmline_core::protocol::session_gone::SessionGoneMatching;

use crate::credentials::{CredentialProvider, CredentialSource, Secret};
use crate::server_resolver::ServerResolver;
use crate::settings::{ServerSettings, SettingsGroup as _};
use warmline_platform::net::Dial;
use warmline_store::ServerDescriptor;
use warmline_upstream::{
    HttpConfig, SizeLimits, StdioConfig, Timeouts, TransportConfig, has_userinfo, is_variable_name,
    parse_url,
};

type Headers = Vec<(HeaderName, HeaderValue)>;

/// The declaration of a server.
///
/// ```
/// use warmline::{Secret, Server};
///
/// let browser = Server::stdio("browser", ["npx", "-y", "@playwright/mcp"]).spares(1);
/// let github = Server::http("github", "https://example.com/mcp").bearer(Secret::env("GITHUB_TOKEN"));
/// ```
#[derive(Clone, Debug)]
pub struct Server {
    pub(crate) name: String,
    pub(crate) endpoint: DeclaredEndpoint,
    pub(crate) settings: ServerSettings,
    pub(crate) credential: Option<CredentialSource>,
    pub(crate) dial: Option<Arc<dyn Dial>>,
    pub(crate) card: ServerDescriptor,
    problem: Option<Box<Diagnostic>>,
}

/// The transport of a server, or the resolver that knows it.
#[derive(Clone, Debug)]
pub enum DeclaredEndpoint {
    /// A fixed transport.
    Static(TransportConfig),
    /// Looked up at the first call.
    Resolver {
        /// Looks up the URL.
        resolver: Arc<dyn ServerResolver>,
        /// Headers of every request.
        headers: Headers,
        /// The certificates to trust beside those of the system.
        ca_file: Option<PathBuf>,
    },
}

impl Server {
    /// A server behind a URL.
    pub fn http(name: impl Into<String>, url: impl AsRef<str>) -> Self {
        let name = name.into();
        let (url, problem) = match checked_url(url.as_ref()) {
            Ok(url) => (url, None),
            // A declaration with a problem is never used, so the placeholder is never contacted.
            Err((why, hint)) => (
                placeholder_url(),
                Some(bad_declaration(&name, "its URL", &why, hint)),
            ),
        };
        let reach = TransportConfig::Http(HttpConfig {
            url,
            headers: Vec::new(),
            ca_file: None,
            substituted: BTreeMap::new(),
        });
        Self::new(name, DeclaredEndpoint::Static(reach), problem)
    }

    /// A server that is a program: its name or path first, then its arguments.
    pub fn stdio(
        name: impl Into<String>,
        command: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        let name = name.into();
        let mut words = command.into_iter().map(Into::into);
        let program: String = words.next().unwrap_or_default();
        let problem = program.trim().is_empty().then(|| {
            bad_declaration(
                &name,
                "its command",
                "it names no program",
                PROGRAM_NAME_HINT,
            )
        });
        let reach = TransportConfig::Stdio(StdioConfig {
            program,
            args: words.collect(),
            env: BTreeMap::new(),
            env_pass: Vec::new(),
            cwd: None,
            base_env: None,
            substituted: BTreeMap::new(),
        });
        Self::new(name, DeclaredEndpoint::Static(reach), problem)
    }

    /// A server whose URL is looked up at its first call, once.
    pub fn resolved(name: impl Into<String>, resolver: impl ServerResolver + 'static) -> Self {
        let reach = DeclaredEndpoint::Resolver {
            resolver: Arc::new(resolver),
            headers: Vec::new(),
            ca_file: None,
        };
        Self::new(name.into(), reach, None)
    }

    fn new(name: String, endpoint: DeclaredEndpoint, problem: Option<Box<Diagnostic>>) -> Self {
        let mut card = ServerDescriptor::new(&name);
        if let DeclaredEndpoint::Static(TransportConfig::Http(http)) = &endpoint {
            card.url = Some(http.url.to_string());
        }
        let problem = problem.or_else(|| check_name(&name));
        Self {
            name,
            endpoint,
            settings: ServerSettings::default(),
            credential: None,
            dial: None,
            card,
            problem,
        }
    }

    /// Its name: 1 to 24 of `[a-z0-9-]`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The policy of its sessions and calls.
    pub fn policy(&self) -> &Policy {
        &self.settings.policy
    }

    /// Whether it is a program, not a URL.
    pub fn is_program(&self) -> bool {
        matches!(
            &self.endpoint,
            DeclaredEndpoint::Static(TransportConfig::Stdio(_))
        )
    }

    pub(crate) fn problem(&self) -> Option<&Diagnostic> {
        self.problem.as_deref()
    }
}

/// Transport and credential.
impl Server {
    /// Sends the secret as `Authorization: Bearer …`, read again for every request.
    #[must_use]
    pub fn bearer(self, secret: Secret) -> Self {
        self.credential(CredentialSource::bearer(secret))
    }

    /// Sends a credential in the header and format that it names.
    #[must_use]
    pub fn credential(mut self, source: CredentialSource) -> Self {
        if self.is_program() {
            let why = "it is a program, and a credential is a header of HTTP";
            return self.with_problem("a credential", why, PROGRAM_SECRET_HINT);
        }
        if let Some(why) = source.secret.problem() {
            let hint = "say where the secret is: a variable, a file, a command or a value";
            return self.with_problem("its credential", &why, hint);
        }
        self.credential = Some(source);
        self
    }

    /// Gets the bearer token from a provider, again before it expires and once after a 401.
    #[must_use]
    pub fn provider(self, provider: impl CredentialProvider + 'static) -> Self {
        self.credential(CredentialSource::provider(Arc::new(provider)))
    }

    /// A header of every request, secrets excepted: those belong in a credential.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        let parsed = (
            HeaderName::try_from(name.to_ascii_lowercase()),
            HeaderValue::from_str(value),
        );
        let (Ok(header), Ok(value)) = parsed else {
            let why = format!("`{}` or its value cannot be sent", name.escape_debug());
            return self.with_problem("a header", &why, "use characters that HTTP allows there");
        };
        if is_reserved_header(&header) {
            let why = format!("`{header}` is written by Warmline itself");
            return self.with_problem("a header", &why, "leave it out");
        }
        match self.http_fields() {
            Some((headers, _)) => headers.push((header, value)),
            None => return self.with_problem("a header", PROGRAM_NOT_URL, PROGRAM_SECRET_HINT),
        }
        self
    }

    /// Trusts the certificate authorities of a PEM file instead of the system's.
    #[must_use]
    pub fn ca_file(mut self, path: impl Into<PathBuf>) -> Self {
        match self.http_fields() {
            Some((_, ca_file)) => *ca_file = Some(path.into()),
            None => return self.with_problem("`ca_file`", PROGRAM_NOT_URL, "leave it out"),
        }
        self
    }

    /// Opens the connections to this server's URL with your own dialer.
    #[must_use]
    pub fn dial(mut self, dial: impl Dial + 'static) -> Self {
        if self.is_program() {
            return self.with_problem("`dial`", PROGRAM_NOT_URL, "leave it out");
        }
        self.dial = Some(Arc::new(dial));
        self
    }

    /// Sets a variable for the program.
    #[must_use]
    pub fn env(self, name: impl Into<String>, value: impl Into<String>) -> Self {
        let name = name.into();
        if !is_variable_name(&name) {
            return self.with_bad_variable(&name);
        }
        self.change_program("`env`", |program| {
            program.env.insert(name, value.into());
        })
    }

    /// Passes a variable of this process on to the program.
    #[must_use]
    pub fn env_pass(self, name: impl Into<String>) -> Self {
        let name = name.into();
        if !is_variable_name(&name) {
            return self.with_bad_variable(&name);
        }
        self.change_program("`env_pass`", |program| program.env_pass.push(name))
    }

    /// Starts the program in this folder.
    #[must_use]
    pub fn cwd(self, folder: impl Into<PathBuf>) -> Self {
        self.change_program("`cwd`", |program| program.cwd = Some(folder.into()))
    }

    /// Speaks this era instead of detecting it.
    #[must_use]
    pub fn era(mut self, era: Era) -> Self {
        self.settings.era = Some(era);
        self.settings.mark_set_by_builder("era");
        self
    }

    /// Offers exactly this version of the protocol.
    #[must_use]
    pub fn version(self, version: Version) -> Self {
        self.set_policy("protocol_version", |policy| policy.version = Some(version))
    }

    /// Time limits for connecting, starting and the handshake.
    #[must_use]
    pub fn times(mut self, times: Timeouts) -> Self {
        self.settings
            .change_as_builder(|settings| settings.timeouts = times);
        self
    }

    /// Size limits for replies, events and lines.
    #[must_use]
    pub fn sizes(mut self, sizes: SizeLimits) -> Self {
        self.settings
            .change_as_builder(|settings| settings.size_limits = sizes);
        self
    }

    /// Changes the description that a store factory and a resolver get.
    #[must_use]
    pub fn card(mut self, change: impl FnOnce(&mut ServerDescriptor)) -> Self {
        change(&mut self.card);
        self.card.name.clone_from(&self.name);
        self
    }

    /// Headers and certificates of a server behind a URL; none for a program.
    fn http_fields(&mut self) -> Option<(&mut Headers, &mut Option<PathBuf>)> {
        match &mut self.endpoint {
            DeclaredEndpoint::Static(TransportConfig::Http(http)) => {
                Some((&mut http.headers, &mut http.ca_file))
            },
            DeclaredEndpoint::Resolver {
                headers, ca_file, ..
            } => Some((headers, ca_file)),
            DeclaredEndpoint::Static(TransportConfig::Stdio(_)) => None,
        }
    }

    /// Changes a program; `what` is a problem of a server behind a URL.
    fn change_program(mut self, what: &str, change: impl FnOnce(&mut StdioConfig)) -> Self {
        if let DeclaredEndpoint::Static(TransportConfig::Stdio(program)) = &mut self.endpoint {
            change(program);
            return self;
        }
        self.with_problem(what, URL_NOT_PROGRAM, "leave it out")
    }

    fn with_bad_variable(self, name: &str) -> Self {
        let why = format!("`{}` is not the name of a variable", name.escape_debug());
        self.with_problem(
            "a variable",
            &why,
            "a name has a character at least, and no `=`",
        )
    }

    /// Keeps the first problem, until it is reported.
    fn with_problem(mut self, what: &str, why: &str, hint: &str) -> Self {
        self.problem
            .get_or_insert_with(|| bad_declaration(&self.name, what, why, hint));
        self
    }
}

/// The policy of its sessions and calls.
impl Server {
    /// Changes its policy. Values that differ afterwards take precedence over environment and files.
    /// A value set to its default leaves no trace.
    #[must_use]
    pub fn with_policy(mut self, change: impl FnOnce(&mut Policy)) -> Self {
        self.settings
            .change_as_builder(|settings| change(&mut settings.policy));
        self
    }

    fn set_policy(mut self, key: &'static str, change: impl FnOnce(&mut Policy)) -> Self {
        change(&mut self.settings.policy);
        self.settings.mark_set_by_builder(key);
        self
    }

    /// The number of sessions kept ready, so that the first call of a run does not wait for a
    /// program to start. A spare is opened in the background once the server has been used, handed
    /// unused to the next run that needs a session, and replaced. The default is none; a server
    /// without sessions gets none.
    ///
    /// ```
    /// # use warmline::Server;
    /// // A browser takes two seconds to start. With one spare only the very first run waits.
    /// let browser = Server::stdio("browser", ["npx", "-y", "@playwright/mcp"]).spares(1);
    /// ```
    #[must_use]
    pub fn spares(self, spares: u32) -> Self {
        self.set_policy("spares", |policy| policy.spares = spares)
    }

    /// Whether it needs sessions; detected by default.
    #[must_use]
    pub fn sessions(self, sessions: SessionMode) -> Self {
        self.set_policy("sessions", |policy| policy.sessions = sessions)
    }

    /// The scope of one session.
    #[must_use]
    pub fn session_per(self, per: SessionScope) -> Self {
        self.set_policy("session_per", |policy| policy.session_per = Some(per))
    }

    /// How calls share a session per identity.
    #[must_use]
    pub fn calls(self, calls: CallConcurrency) -> Self {
        self.set_policy("calls", |policy| policy.calls = Some(calls))
    }

    /// One call at a time on a session.
    #[must_use]
    pub fn serial(self) -> Self {
        self.set_policy("serial", |policy| policy.serial = true)
    }

    /// The maximum number of sessions of one identity, with a session per identity.
    #[must_use]
    pub fn max_per_key(self, most: u32) -> Self {
        self.set_policy("max_per_key", |policy| policy.max_per_key = most)
    }

    /// What happens to a call whose session lost its state.
    #[must_use]
    pub fn on_state_loss(self, then: StateLossPolicy) -> Self {
        self.set_policy("on_state_loss", |policy| policy.on_state_loss = Some(then))
    }

    /// Also accepts the doubtful forms of "session gone".
    #[must_use]
    pub fn wide_dialects(self) -> Self {
        self.set_policy("dialects", |policy| {
            policy.dialects = SessionGoneMatching::Wide;
        })
    }

    /// Tools that may run twice.
    #[must_use]
    pub fn repeatable(self, tools: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.with_policy(|policy| {
            for tool in tools {
                policy.tools.entry(tool.into()).or_default().repeatable = Some(true);
            }
        })
    }

    /// The policy of one tool.
    #[must_use]
    pub fn tool(self, name: impl Into<String>, decided: ToolPolicy) -> Self {
        let name = name.into();
        if [decided.idle, decided.total].contains(&Some(Duration::ZERO)) {
            let what = format!("what is decided for `{}`", name.escape_debug());
            return self.with_problem(
                &what,
                "its calls have no time",
                "leave the time out, or give some",
            );
        }
        self.with_policy(|policy| {
            policy.tools.insert(name, decided);
        })
    }

    /// The only tools that may be called; `*` stands for any characters.
    #[must_use]
    pub fn allow(self, tools: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.set_policy("allow", |policy| {
            policy.allow.extend(tools.into_iter().map(Into::into));
        })
    }

    /// Tools that may not be called.
    #[must_use]
    pub fn deny(self, tools: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.set_policy("deny", |policy| {
            policy.deny.extend(tools.into_iter().map(Into::into));
        })
    }

    /// Whether it may be used at all.
    #[must_use]
    pub fn enabled(self, enabled: bool) -> Self {
        self.set_policy("enabled", |policy| policy.enabled = enabled)
    }

    /// Whether a gateway requires it: the gateway does not start without the server, and is not
    /// ready while the server fails.
    #[must_use]
    pub fn required(self, required: bool) -> Self {
        self.set_policy("required", |policy| policy.required = required)
    }

    /// Time limits of its calls: without a sign of life, and in total.
    #[must_use]
    pub fn deadlines(self, idle: Duration, total: Duration) -> Self {
        self.set_policy("call_idle_timeout", |policy| policy.deadlines.idle = idle)
            .set_policy("call_timeout", |policy| policy.deadlines.total = total)
    }
}

impl AsRef<Self> for Server {
    fn as_ref(&self) -> &Self {
        self
    }
}

impl AsMut<Self> for Server {
    fn as_mut(&mut self) -> &mut Self {
        self
    }
}

/// The parts of a declaration, for configuration files. The facade does not re-export it.
pub trait ServerParts: AsRef<Server> + AsMut<Server> {
    /// A server as a configuration file declares it.
    fn from_parts(
        name: impl Into<String>,
        endpoint: DeclaredEndpoint,
        settings: ServerSettings,
        credential: Option<CredentialSource>,
    ) -> Server {
        let mut server = Server::new(name.into(), endpoint, None);
        (server.settings, server.credential) = (settings, credential);
        server
    }

    /// Its transport, or the resolver that knows it.
    fn endpoint(&self) -> &DeclaredEndpoint {
        &self.as_ref().endpoint
    }

    /// Era, limits and policy, each with its origin.
    fn settings(&self) -> &ServerSettings {
        &self.as_ref().settings
    }

    /// Its settings, to change them.
    fn settings_mut(&mut self) -> &mut ServerSettings {
        &mut self.as_mut().settings
    }

    /// The source of its credential.
    fn credential_source(&self) -> Option<&CredentialSource> {
        self.as_ref().credential.as_ref()
    }

    /// Its description for resolvers and stores.
    fn descriptor(&self) -> &ServerDescriptor {
        &self.as_ref().card
    }
}

impl ServerParts for Server {}

fn placeholder_url() -> Url {
    #[expect(clippy::expect_used, reason = "a constant that parses")]
    Url::parse("http://127.0.0.1:9/").expect("a constant that parses")
}

const PROGRAM_NOT_URL: &str = "it is a program, not a URL";
const URL_NOT_PROGRAM: &str = "it is a URL, not a program";
const PROGRAM_SECRET_HINT: &str = "give the program its secret in a variable: `env` or `env_pass`";
const PROGRAM_NAME_HINT: &str = "give the program's name or path first, then its arguments";

/// The URL of a server; or the reason why it cannot be used, with a hint.
fn checked_url(written: &str) -> Result<Url, (String, &'static str)> {
    let url = parse_url(written).map_err(|why| (why, "a URL begins with https:// or http://"))?;
    if has_userinfo(&url) {
        let why = "it holds a user name or a password".to_owned();
        return Err((why, "leave them out, and use `bearer` or `credential`"));
    }
    Ok(url)
}

fn bad_declaration(name: &str, what: &str, why: &str, hint: &str) -> Box<Diagnostic> {
    let what = format!("`{name}` cannot be declared so: {what} cannot be used");
    Box::new(
        Diagnostic::new(Reason::InvalidRequest, what)
            .with_code(Code::ConfigBadValue)
            .with_cause(why)
            .with_hint(hint),
    )
}

fn check_name(name: &str) -> Option<Box<Diagnostic>> {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if (1..=24).contains(&name.len()) && name.bytes().all(plain) {
        return None;
    }
    let diagnostic = Diagnostic::new(
        Reason::InvalidRequest,
        "a server cannot have this name".to_owned(),
    )
    .with_code(Code::ConfigBadValue)
    .with_cause(format!("`{}`", name.escape_debug()))
    .with_hint("a name has 1 to 24 of a-z, 0-9 and -");
    Some(Box::new(diagnostic))
}
