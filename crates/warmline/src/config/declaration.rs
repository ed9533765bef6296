//! A server as a file declares it, before anything in it is expanded, and the way to a [`Server`].

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use url::Url;
use warmline_core::code::Code;
use warmline_core::era::Era;
use warmline_core::exchange::Patience;

use super::expand::{Expand, expand};
use super::outline::{public_url, quoted, setting};
use crate::settings::Lookup;
use crate::settings::place::{ConfigError, Place};
use crate::upstream::server::{HttpReach, Reach, Server, StdioReach, Times};

/// Text of a file that may be or become a secret. It cannot be printed by accident.
#[derive(Clone, PartialEq, Eq)]
pub struct Written(pub(crate) String);

impl std::fmt::Debug for Written {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("…")
    }
}

/// A server as a file declares it.
#[derive(Clone, Debug)]
pub struct Declaration {
    /// Its name in Warmline: 1 to 24 of `[a-z0-9-]`.
    pub name: String,
    /// Its name as the file writes it.
    pub written: String,
    /// Where it is declared.
    pub place: Place,
    /// Settings that were read but belong to other parts of Warmline.
    pub elsewhere: Vec<String>,
    pub(crate) span: Range<usize>,
    pub(crate) reach: DeclaredReach,
    pub(crate) credential: Option<(Credential, Place)>,
    pub(crate) era: Option<Era>,
    pub(crate) times: Times,
    pub(crate) patience: Patience,
    pub(crate) url_env: Option<String>,
    pub(crate) auth_env: Option<String>,
    pub(crate) expand: Expand,
    /// Why it cannot be used although the file can.
    pub(crate) refusal: Option<Refusal>,
    /// The folder that relative paths start from: the one of the file.
    pub(crate) folder: PathBuf,
}

/// Why one server of a file cannot be used: what is wrong, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) what: String,
    pub(crate) hint: Option<String>,
}

/// How a declared server is reached.
#[derive(Clone, Debug)]
pub(crate) enum DeclaredReach {
    Url {
        url: Written,
        headers: Vec<(String, Written)>,
        ca_file: Option<PathBuf>,
    },
    Command {
        argv: Vec<Written>,
        env: BTreeMap<String, Written>,
        env_pass: Vec<String>,
        cwd: Option<PathBuf>,
    },
}

/// Where the bearer token of a server comes from. Never the token itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Credential {
    Env(String),
    File(PathBuf),
}

/// A server that is ready to be used, and how patient its calls are.
#[derive(Clone, Debug)]
pub struct Configured {
    /// The server.
    pub server: Server,
    /// How long a call to it may take.
    pub patience: Patience,
}

/// What a declaration would do, for people: commands, URLs and names of variables; no values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outline {
    /// The command line, or the URL without what could be secret in it.
    pub reaches: String,
    /// Variables that are set for the program, by name; with their values where these decide what
    /// is executed, as `PATH` does.
    pub sets: Vec<String>,
    /// Variables of ours that are read or passed on, by name.
    pub reads: Vec<String>,
    /// Headers that are sent, by name.
    pub headers: Vec<String>,
    /// Files that are read.
    pub files: Vec<PathBuf>,
}

impl Declaration {
    /// What it would do, with no value expanded and no secret shown.
    pub fn outline(&self) -> Outline {
        let mut outline = Outline {
            reaches: String::new(),
            sets: Vec::new(),
            reads: self.url_env.iter().chain(&self.auth_env).cloned().collect(),
            headers: Vec::new(),
            files: Vec::new(),
        };
        let mut texts: Vec<&Written> = Vec::new();
        match &self.reach {
            DeclaredReach::Url {
                url,
                headers,
                ca_file,
            } => {
                outline.reaches = public_url(&url.0);
                outline.headers = headers.iter().map(|(name, _)| name.clone()).collect();
                outline.files.extend(ca_file.clone());
                texts.push(url);
                texts.extend(headers.iter().map(|(_, value)| value));
            },
            DeclaredReach::Command {
                argv,
                env,
                env_pass,
                cwd,
            } => {
                let words: Vec<String> = argv.iter().map(|word| quoted(&word.0)).collect();
                outline.reaches = words.join(" ");
                outline.sets = env
                    .iter()
                    .map(|(name, value)| setting(name, value))
                    .collect();
                outline.reads.extend(env_pass.iter().cloned());
                outline.files.extend(cwd.clone());
                texts.extend(argv);
                texts.extend(env.values());
            },
        }
        match &self.credential {
            Some((Credential::Env(name), _)) => outline.reads.push(name.clone()),
            Some((Credential::File(path), _)) => outline.files.push(path.clone()),
            None => {},
        }
        for text in texts {
            outline
                .reads
                .extend(super::expand::names(&text.0, self.expand));
        }
        outline.reads.sort();
        outline.reads.dedup();
        outline
    }

    /// Whether it names a variable that replaces its URL.
    pub fn url_env(&self) -> Option<&str> {
        self.url_env.as_deref()
    }

    /// Whether it names a variable that holds its token.
    pub fn auth_env(&self) -> Option<&str> {
        self.auth_env.as_deref()
    }

    /// The server, with variables expanded and the credential read. Only a trusted file's
    /// declarations get here.
    pub(crate) fn server(&self, lookup: Lookup<'_>) -> Result<Configured, ConfigError> {
        if let Some(Refusal { what, hint }) = &self.refusal {
            let error = self.bad(what.clone());
            return Err(match hint {
                Some(hint) => error.hint(hint.clone()),
                None => error,
            });
        }
        let reach = match &self.reach {
            DeclaredReach::Url {
                url,
                headers,
                ca_file,
            } => {
                let ca_file = ca_file.as_ref().map(|file| self.folder.join(file));
                Reach::Http(self.http(url, headers, ca_file, lookup)?)
            },
            DeclaredReach::Command {
                argv,
                env,
                env_pass,
                cwd,
            } => {
                let cwd = cwd.as_ref().map(|folder| self.folder.join(folder));
                Reach::Stdio(self.stdio(argv, env, env_pass.clone(), cwd, lookup)?)
            },
        };
        let mut server = Server::new(self.name.clone(), reach);
        (server.era, server.times) = (self.era, self.times);
        if let Reach::Http(http) = &mut server.reach
            && let Some(token) = self.token(&http.url, lookup)?
        {
            http.headers
                .push((http::header::AUTHORIZATION, self.bearer(&token)?));
        }
        Ok(Configured {
            server,
            patience: self.patience,
        })
    }

    fn http(
        &self,
        url: &Written,
        headers: &[(String, Written)],
        ca_file: Option<PathBuf>,
        lookup: Lookup<'_>,
    ) -> Result<HttpReach, ConfigError> {
        let replaced = self.url_env.as_deref().and_then(lookup);
        let url = match replaced {
            Some(url) => url,
            None => self.expanded(url, lookup)?,
        };
        let url = parse_url(&url).map_err(|why| self.bad("`url` is not a URL").because(why))?;
        let mut out = Vec::with_capacity(headers.len() + 1);
        for (name, value) in headers {
            let value = self.expanded(value, lookup)?;
            out.push(header(name, &value).map_err(|why| self.bad(why))?);
        }
        Ok(HttpReach {
            url,
            headers: out,
            ca_file,
        })
    }

    fn stdio(
        &self,
        argv: &[Written],
        env: &BTreeMap<String, Written>,
        env_pass: Vec<String>,
        cwd: Option<PathBuf>,
        lookup: Lookup<'_>,
    ) -> Result<StdioReach, ConfigError> {
        let mut words = Vec::with_capacity(argv.len());
        for word in argv {
            words.push(self.expanded(word, lookup)?);
        }
        let mut variables = BTreeMap::new();
        for (name, value) in env {
            variables.insert(name.clone(), self.expanded(value, lookup)?);
        }
        let mut words = words.into_iter();
        let program = words.next().ok_or_else(|| self.bad("`command` is empty"))?;
        Ok(StdioReach {
            program,
            args: words.collect(),
            env: variables,
            env_pass,
            cwd,
        })
    }

    fn token(&self, url: &Url, lookup: Lookup<'_>) -> Result<Option<String>, ConfigError> {
        if let Some(token) = self.auth_env.as_deref().and_then(lookup) {
            if is_in_the_clear(url) {
                let what = format!("the token of `{}` would travel in the clear", self.written);
                return Err(self.bad(what).hint("use the `https` URL of the server"));
            }
            return Ok(Some(token));
        }
        let Some((credential, place)) = &self.credential else {
            return Ok(None);
        };
        let missing = |what: String| ConfigError::new(Code::ConfigBadValue, what).at(place.clone());
        match credential {
            Credential::Env(name) => lookup(name).map(Some).ok_or_else(|| {
                missing(format!(
                    "`{name}` is not set, and `{}` takes its token from it",
                    self.name
                ))
                .hint(format!("set `{name}` in the environment of this command"))
            }),
            Credential::File(file) => {
                let path = self.folder.join(file);
                super::read_bounded(&path, TOKEN_BYTES)
                    .map(|text| Some(text.trim().to_owned()))
                    .map_err(|why| {
                        missing(format!("the token of `{}` cannot be read", self.name))
                            .because(format!("{}: {why}", path.display()))
                    })
            },
        }
    }

    fn bearer(&self, token: &str) -> Result<HeaderValue, ConfigError> {
        bearer(token).ok_or_else(|| {
            self.bad(format!(
                "the token of `{}` holds characters no header can carry",
                self.name
            ))
        })
    }

    fn expanded(&self, text: &Written, lookup: Lookup<'_>) -> Result<String, ConfigError> {
        expand(&text.0, self.expand, lookup).map_err(|why| {
            self.bad(format!(
                "a variable of `{}` cannot be filled in",
                self.written
            ))
            .because(why)
        })
    }

    fn bad(&self, what: impl Into<String>) -> ConfigError {
        ConfigError::new(Code::ConfigBadValue, what).at(self.place.clone())
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
    match url.scheme() {
        "http" | "https" if url.host().is_some() => Ok(url),
        "http" | "https" => Err("it names no host".to_owned()),
        other => Err(format!(
            "`{other}` is not a scheme of MCP; `http` and `https` are"
        )),
    }
}

/// A header as configured; its value counts as a secret.
///
/// # Errors
/// Says which header is not one, without repeating its value.
pub fn header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), String> {
    let name = HeaderName::try_from(name.trim())
        .map_err(|_| format!("`{}` is not the name of a header", name.trim()))?;
    if warmline_core::protocol::headers::is_ours(&name) {
        return Err(format!(
            "`{name}` is written by Warmline itself and cannot be set"
        ));
    }
    let mut value = HeaderValue::try_from(value.trim())
        .map_err(|_| format!("the value of `{name}` holds characters no header can carry"))?;
    value.set_sensitive(true);
    Ok((name, value))
}

/// A bearer token as the value of `Authorization`; none if no header can carry it.
pub fn bearer(token: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::try_from(format!("Bearer {}", token.trim())).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// Whether a URL leaves this machine without TLS.
fn is_in_the_clear(url: &Url) -> bool {
    let stays_here = match url.host() {
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        Some(url::Host::Domain(name)) => name == "localhost",
        None => false,
    };
    url.scheme() == "http" && !stays_here
}

/// The part of [`Times`] and [`Patience`] that a key sets.
pub(crate) fn set_time(key: &str, value: Duration, times: &mut Times, patience: &mut Patience) {
    match key {
        "connect_timeout" => times.connect = value,
        "handshake_timeout" => times.handshake = value,
        "start_timeout" => times.start = value,
        "call_idle_timeout" => patience.idle = value,
        "call_timeout" => patience.total = value,
        _ => {},
    }
}

/// The longest token file that is read.
const TOKEN_BYTES: u64 = 64 << 10;
