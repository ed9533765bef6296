//! A server as people declare it: how it is reached, its credential and its policy.
//!
//! Asked by: the engine, whenever it routes a call.  Told by: an embedding program's builder, or
//! a configuration file. Declaring a server reads and connects nothing; what is wrong with a
//! declaration is kept and told by [`Builder::build`](crate::Builder::build) and
//! [`Warmline::add`](crate::Warmline::add).

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use url::Url;
use warmline_core::code::{Code, Reason};
use warmline_core::era::{Era, Version};
use warmline_core::exchange::Trouble;
use warmline_core::policy::{Calls, OnStateLoss, Policy, SessionPer, Sessions, ToolPolicy};
use warmline_core::protocol::gone::Breadth;
use warmline_core::protocol::headers::is_ours;

use crate::credentials::{CredentialProvider, CredentialSource, Secret};
use crate::net::Dial;
use crate::resolve::ServerResolver;
use crate::settings::{Group as _, ServerSettings};
use crate::store::ServerCard;
use crate::upstream::{
    HttpReach, Reach, Sizes, StdioReach, Times, holds_a_login, is_variable_name, parse_url,
};

/// A server as people declare it.
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
    pub(crate) reach: Whereabouts,
    /// Era, limits and policy, and where each value came from.
    pub(crate) settings: ServerSettings,
    pub(crate) credential: Option<CredentialSource>,
    pub(crate) dial: Option<Arc<dyn Dial>>,
    pub(crate) card: ServerCard,
    /// What is wrong with the declaration; told when it is used.
    problem: Option<Box<Trouble>>,
}

/// How a server is reached, or who knows.
#[derive(Clone, Debug)]
pub(crate) enum Whereabouts {
    /// It was said.
    Said(Reach),
    /// It is looked up at the first call.
    LookedUp {
        resolver: Arc<dyn ServerResolver>,
        headers: Vec<(HeaderName, HeaderValue)>,
        ca_file: Option<PathBuf>,
    },
}

impl Server {
    /// A server behind a URL.
    pub fn http(name: impl Into<String>, url: impl AsRef<str>) -> Self {
        let name = name.into();
        let (url, problem) = match checked_url(url.as_ref()) {
            Ok(url) => (url, None),
            // A declaration with a problem is never used: the URL that stands in leads nowhere.
            Err((why, hint)) => (nowhere(), Some(bad(&name, "its URL", &why, hint))),
        };
        let reach = Reach::Http(HttpReach {
            url,
            headers: Vec::new(),
            ca_file: None,
            filled: BTreeMap::new(),
        });
        Self::new(name, Whereabouts::Said(reach), problem)
    }

    /// A server that is a program: its name or path first, then its arguments.
    pub fn stdio(
        name: impl Into<String>,
        command: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        let name = name.into();
        let mut words = command.into_iter().map(Into::into);
        let program: String = words.next().unwrap_or_default();
        let problem = program
            .trim()
            .is_empty()
            .then(|| bad(&name, "its command", "it names no program", NAME_A_PROGRAM));
        let reach = Reach::Stdio(StdioReach {
            program,
            args: words.collect(),
            env: BTreeMap::new(),
            env_pass: Vec::new(),
            cwd: None,
            surroundings: None,
            filled: BTreeMap::new(),
        });
        Self::new(name, Whereabouts::Said(reach), problem)
    }

    /// A server whose URL is looked up at its first call, once.
    pub fn resolved(name: impl Into<String>, resolver: impl ServerResolver + 'static) -> Self {
        let reach = Whereabouts::LookedUp {
            resolver: Arc::new(resolver),
            headers: Vec::new(),
            ca_file: None,
        };
        Self::new(name.into(), reach, None)
    }

    /// A server as a configuration file declares it.
    pub(crate) fn of_whereabouts(name: impl Into<String>, reach: Whereabouts) -> Self {
        Self::new(name.into(), reach, None)
    }

    fn new(name: String, reach: Whereabouts, problem: Option<Box<Trouble>>) -> Self {
        let mut card = ServerCard::new(&name);
        if let Whereabouts::Said(Reach::Http(http)) = &reach {
            card.url = Some(http.url.to_string());
        }
        let problem = problem.or_else(|| bad_name(&name));
        Self {
            name,
            reach,
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

    /// What is decided about its sessions and calls.
    pub fn policy(&self) -> &Policy {
        &self.settings.policy
    }

    /// Whether it is a program, not a URL.
    pub fn is_a_program(&self) -> bool {
        matches!(&self.reach, Whereabouts::Said(Reach::Stdio(_)))
    }

    /// What is wrong with this declaration, if anything is.
    pub(crate) fn problem(&self) -> Option<&Trouble> {
        self.problem.as_deref()
    }
}

/// How it is reached, and as whom.
impl Server {
    /// Sends what a secret holds as `Authorization: Bearer …`, fresh with every request.
    #[must_use]
    pub fn bearer(self, secret: Secret) -> Self {
        self.credential(CredentialSource::bearer(secret))
    }

    /// Sends a credential in a header and form of its own.
    #[must_use]
    pub fn credential(mut self, source: CredentialSource) -> Self {
        if self.is_a_program() {
            let why = "it is a program, and a credential is a header of HTTP";
            return self.spoilt("a credential", why, FOR_A_PROGRAM);
        }
        if let Some(why) = source.secret.problem() {
            let hint = "say where the secret is: a variable, a file, a command or a value";
            return self.spoilt("its credential", &why, hint);
        }
        self.credential = Some(source);
        self
    }

    /// Asks a provider for the bearer token, again before it expires and once after a 401.
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
            return self.spoilt("a header", &why, "use characters that HTTP allows there");
        };
        if is_ours(&header) {
            let why = format!("`{header}` is written by Warmline itself");
            return self.spoilt("a header", &why, "leave it out");
        }
        match &mut self.reach {
            Whereabouts::Said(Reach::Http(reach)) => reach.headers.push((header, value)),
            Whereabouts::LookedUp { headers, .. } => headers.push((header, value)),
            Whereabouts::Said(Reach::Stdio(_)) => {
                return self.spoilt("a header", A_PROGRAM, FOR_A_PROGRAM);
            },
        }
        self
    }

    /// Trusts the certificate authorities of a PEM file instead of the system's.
    #[must_use]
    pub fn ca_file(mut self, path: impl Into<PathBuf>) -> Self {
        match &mut self.reach {
            Whereabouts::Said(Reach::Http(reach)) => reach.ca_file = Some(path.into()),
            Whereabouts::LookedUp { ca_file, .. } => *ca_file = Some(path.into()),
            Whereabouts::Said(Reach::Stdio(_)) => {
                return self.spoilt("`ca_file`", A_PROGRAM, "leave it out");
            },
        }
        self
    }

    /// Makes the connections to this server's URL in a way of your own.
    #[must_use]
    pub fn dial(mut self, dial: impl Dial + 'static) -> Self {
        if self.is_a_program() {
            return self.spoilt("`dial`", A_PROGRAM, "leave it out");
        }
        self.dial = Some(Arc::new(dial));
        self
    }

    /// Sets a variable for the program.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        let name = name.into();
        if !is_variable_name(&name) {
            return self.no_variable(&name);
        }
        match &mut self.reach {
            Whereabouts::Said(Reach::Stdio(reach)) => {
                reach.env.insert(name, value.into());
            },
            Whereabouts::Said(Reach::Http(_)) | Whereabouts::LookedUp { .. } => {
                return self.spoilt("`env`", A_URL, "leave it out");
            },
        }
        self
    }

    /// Gives the program a variable of ours too.
    #[must_use]
    pub fn env_pass(mut self, name: impl Into<String>) -> Self {
        let name = name.into();
        if !is_variable_name(&name) {
            return self.no_variable(&name);
        }
        match &mut self.reach {
            Whereabouts::Said(Reach::Stdio(reach)) => reach.env_pass.push(name),
            Whereabouts::Said(Reach::Http(_)) | Whereabouts::LookedUp { .. } => {
                return self.spoilt("`env_pass`", A_URL, "leave it out");
            },
        }
        self
    }

    /// Starts the program in this folder.
    #[must_use]
    pub fn cwd(mut self, folder: impl Into<PathBuf>) -> Self {
        match &mut self.reach {
            Whereabouts::Said(Reach::Stdio(reach)) => reach.cwd = Some(folder.into()),
            Whereabouts::Said(Reach::Http(_)) | Whereabouts::LookedUp { .. } => {
                return self.spoilt("`cwd`", A_URL, "leave it out");
            },
        }
        self
    }

    /// Speaks this era; without it, it is found out.
    #[must_use]
    pub fn era(mut self, era: Era) -> Self {
        self.settings.era = Some(era);
        self.settings.built("era");
        self
    }

    /// Offers exactly this version of the protocol.
    #[must_use]
    pub fn version(self, version: Version) -> Self {
        self.decide("protocol_version", |policy| policy.version = Some(version))
    }

    /// How long connecting, starting and shaking hands may take.
    #[must_use]
    pub fn times(mut self, times: Times) -> Self {
        self.settings.built_by(|settings| settings.times = times);
        self
    }

    /// How large replies, events and lines may be.
    #[must_use]
    pub fn sizes(mut self, sizes: Sizes) -> Self {
        self.settings.built_by(|settings| settings.sizes = sizes);
        self
    }

    /// What a store factory and a resolver know it by, besides its name.
    #[must_use]
    pub fn card(mut self, change: impl FnOnce(&mut ServerCard)) -> Self {
        change(&mut self.card);
        self.card.name.clone_from(&self.name);
        self
    }

    fn no_variable(self, name: &str) -> Self {
        let why = format!("`{}` is not the name of a variable", name.escape_debug());
        self.spoilt(
            "a variable",
            &why,
            "a name has a character at least, and no `=`",
        )
    }

    /// Keeps the first thing that is wrong, until it is told.
    fn spoilt(mut self, what: &str, why: &str, hint: &str) -> Self {
        self.problem
            .get_or_insert_with(|| bad(&self.name, what, why, hint));
        self
    }
}

/// What is decided about its sessions and calls.
impl Server {
    /// Changes its policy as a whole. What is different afterwards counts before environment and files;
    /// a value that was the default already does not show that it was said.
    #[must_use]
    pub fn with_policy(mut self, change: impl FnOnce(&mut Policy)) -> Self {
        self.settings
            .built_by(|settings| change(&mut settings.policy));
        self
    }

    /// Changes one setting, which no other source overrules then.
    fn decide(mut self, key: &'static str, change: impl FnOnce(&mut Policy)) -> Self {
        change(&mut self.settings.policy);
        self.settings.built(key);
        self
    }

    /// How many sessions stand ready for runs to come, so that the first call of a run does not
    /// wait for a program to start. A spare belongs to nobody yet: it is opened in the background
    /// once the server has been used, given to the next run that needs a session, whole and
    /// unused, and replaced. None by default; none is opened for a server that keeps no session.
    ///
    /// ```
    /// # use warmline::Server;
    /// // A browser takes two seconds to start. With one spare only the very first run waits.
    /// let browser = Server::stdio("browser", ["npx", "-y", "@playwright/mcp"]).spares(1);
    /// ```
    #[must_use]
    pub fn spares(self, spares: u32) -> Self {
        self.decide("spares", |policy| policy.spares = spares)
    }

    /// Whether it needs sessions; found out by default.
    #[must_use]
    pub fn sessions(self, sessions: Sessions) -> Self {
        self.decide("sessions", |policy| policy.sessions = sessions)
    }

    /// What one session is held for.
    #[must_use]
    pub fn session_per(self, per: SessionPer) -> Self {
        self.decide("session_per", |policy| policy.session_per = Some(per))
    }

    /// How calls share a session that is held per identity.
    #[must_use]
    pub fn calls(self, calls: Calls) -> Self {
        self.decide("calls", |policy| policy.calls = Some(calls))
    }

    /// One call at a time on a session.
    #[must_use]
    pub fn serial(self) -> Self {
        self.decide("serial", |policy| policy.serial = true)
    }

    /// Most sessions of one identity, where a session is held per identity.
    #[must_use]
    pub fn max_per_key(self, most: u32) -> Self {
        self.decide("max_per_key", |policy| policy.max_per_key = most)
    }

    /// What becomes of a call whose session's state was lost.
    #[must_use]
    pub fn on_state_loss(self, then: OnStateLoss) -> Self {
        self.decide("on_state_loss", |policy| policy.on_state_loss = Some(then))
    }

    /// Believes the doubtful forms of "session gone" too.
    #[must_use]
    pub fn wide_dialects(self) -> Self {
        self.decide("dialects", |policy| policy.dialects = Breadth::Wide)
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

    /// What is decided for one tool.
    #[must_use]
    pub fn tool(self, name: impl Into<String>, decided: ToolPolicy) -> Self {
        let name = name.into();
        if [decided.idle, decided.total].contains(&Some(Duration::ZERO)) {
            let what = format!("what is decided for `{}`", name.escape_debug());
            return self.spoilt(
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
        self.decide("allow", |policy| {
            policy.allow.extend(tools.into_iter().map(Into::into));
        })
    }

    /// Tools that may not be called.
    #[must_use]
    pub fn deny(self, tools: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.decide("deny", |policy| {
            policy.deny.extend(tools.into_iter().map(Into::into));
        })
    }

    /// Whether it may be used at all.
    #[must_use]
    pub fn enabled(self, enabled: bool) -> Self {
        self.decide("enabled", |policy| policy.enabled = enabled)
    }

    /// Whether a gateway is of no use without it: it does not start where the server cannot be
    /// met, and is not ready while it fails.
    #[must_use]
    pub fn required(self, required: bool) -> Self {
        self.decide("required", |policy| policy.required = required)
    }

    /// How long its calls may take: without a sign of life, and in all.
    #[must_use]
    pub fn patience(self, idle: Duration, total: Duration) -> Self {
        self.decide("call_idle_timeout", |policy| policy.patience.idle = idle)
            .decide("call_timeout", |policy| policy.patience.total = total)
    }
}

fn nowhere() -> Url {
    #[expect(clippy::expect_used, reason = "a constant that parses")]
    Url::parse("http://127.0.0.1:9/").expect("a constant that parses")
}

const A_PROGRAM: &str = "it is a program, not a URL";
const A_URL: &str = "it is a URL, not a program";
const FOR_A_PROGRAM: &str = "give the program its secret in a variable: `env` or `env_pass`";
const NAME_A_PROGRAM: &str = "give the program's name or path first, then its arguments";

/// The URL of a server, or what is wrong with it and what to do.
fn checked_url(written: &str) -> Result<Url, (String, &'static str)> {
    let url = parse_url(written).map_err(|why| (why, "a URL begins with https:// or http://"))?;
    if holds_a_login(&url) {
        let why = "it holds a user name or a password".to_owned();
        return Err((why, "leave them out, and use `bearer` or `credential`"));
    }
    Ok(url)
}

fn bad(name: &str, what: &str, why: &str, hint: &str) -> Box<Trouble> {
    let what = format!("`{name}` cannot be declared so: {what} cannot be used");
    Box::new(
        Trouble::new(Reason::InvalidRequest, what)
            .coded(Code::ConfigBadValue)
            .because(why)
            .hint(hint),
    )
}

fn bad_name(name: &str) -> Option<Box<Trouble>> {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if (1..=24).contains(&name.len()) && name.bytes().all(plain) {
        return None;
    }
    let trouble = Trouble::new(
        Reason::InvalidRequest,
        "a server cannot have this name".to_owned(),
    )
    .coded(Code::ConfigBadValue)
    .because(format!("`{}`", name.escape_debug()))
    .hint("a name has 1 to 24 of a-z, 0-9 and -");
    Some(Box::new(trouble))
}
