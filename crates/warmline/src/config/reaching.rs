//! From a declaration to a server that can be reached: variables filled in, credential found.

use std::collections::BTreeMap;
use std::path::PathBuf;

use http::{HeaderName, HeaderValue};
use url::Url;
use warmline_core::code::Code;

use super::credential::From;
use super::declaration::{Declaration, DeclaredReach, Refusal, Written};
use super::expand::{expand, names};
use crate::settings::place::ConfigError;
use crate::settings::{Lookup, ServerSettings};
use crate::upstream::parse_url;
use crate::upstream::server::{HttpReach, Reach, Server, StdioReach};

/// A server that is ready to be used, and what is decided about it.
#[derive(Clone, Debug)]
pub struct Configured {
    /// How it is reached, and as whom.
    pub server: Server,
    /// What is decided about it, each value with its origin.
    pub settings: ServerSettings,
}

impl Declaration {
    /// The server for a single command, with variables expanded and the credential read. Only a
    /// trusted file's declarations get here.
    pub(crate) fn server(&self, lookup: Lookup<'_>) -> Result<Configured, ConfigError> {
        self.refused(self.off.as_ref())?;
        self.usable()?;
        if !self.settings.policy.enabled {
            let what = format!("`{}` is switched off by `enabled = false`", self.written);
            return Err(self.bad(what).hint("set it to `true`, or take it out"));
        }
        let mut reach = self.reached(lookup)?;
        if let Reach::Http(http) = &mut reach
            && let Some(shown) = self.token(&http.url, lookup)?
        {
            http.headers.push(shown);
        }
        Ok(Configured {
            server: Server::new(self.name.clone(), reach),
            settings: self.settings.clone(),
        })
    }

    /// Whether it can be used at all.
    pub(super) fn usable(&self) -> Result<(), ConfigError> {
        self.refused(self.refusal.as_ref())
    }

    fn refused(&self, refusal: Option<&Refusal>) -> Result<(), ConfigError> {
        let Some(Refusal { what, hint }) = refusal else {
            return Ok(());
        };
        let error = self.bad(what.clone());
        Err(match hint {
            Some(hint) => error.hint(hint.clone()),
            None => error,
        })
    }

    /// How it is reached, with variables expanded. What could never be reached so is told here,
    /// and not to the first caller.
    pub(super) fn reached(&self, lookup: Lookup<'_>) -> Result<Reach, ConfigError> {
        let reach = self.filled_in(lookup)?;
        let checked = reach.check(&self.written);
        checked.map_err(|trouble| ConfigError::of_trouble(trouble, &self.place))?;
        Ok(reach)
    }

    fn filled_in(&self, lookup: Lookup<'_>) -> Result<Reach, ConfigError> {
        match &self.reach {
            DeclaredReach::Url {
                url,
                headers,
                ca_file,
            } => {
                let ca_file = ca_file.as_ref().map(|file| self.base.join(file));
                let mut filled = self.filled(url.as_ref(), lookup);
                if let Some(said) = self.said_by(self.url_env.as_deref(), lookup)? {
                    filled.extend(self.url_env.clone().map(|variable| (variable, said)));
                }
                Ok(Reach::Http(HttpReach {
                    url: self.url(url.as_ref(), lookup)?,
                    headers: self.headers(headers, lookup)?,
                    ca_file,
                    filled,
                }))
            },
            DeclaredReach::Command {
                argv,
                env,
                env_pass,
                cwd,
            } => {
                let cwd = cwd.as_ref().map(|folder| self.base.join(folder));
                self.stdio(argv, env, env_pass.clone(), cwd, lookup)
                    .map(Reach::Stdio)
            },
        }
    }

    fn url(&self, url: Option<&Written>, lookup: Lookup<'_>) -> Result<Url, ConfigError> {
        if let Some(variable) = &self.url_env
            && let Some(url) = self.said_by(Some(variable), lookup)?
        {
            let what = format!(
                "the variable `{variable}`, which `{}` names, is not a URL",
                self.written
            );
            return parse_url(&url).map_err(|why| self.bad(what).because(why));
        }
        let Some(url) = url else {
            return Err(self.no_url());
        };
        let written_at = url.at;
        let url = self.expanded(url, lookup)?;
        parse_url(&url).map_err(|why| {
            let what = format!("the `url` of `{}` is not a URL", self.written);
            let mut bad = self.bad(what).because(why);
            // Its own line, where that is known; not shown, as a URL may hold a secret.
            if let (Some(place), Some(_)) = (&mut bad.place, written_at) {
                (place.at, place.excerpt) = (written_at, None);
            }
            bad
        })
    }

    /// Nobody says where it is.
    fn no_url(&self) -> ConfigError {
        let missing = format!("`{}` has no `url`", self.written);
        match (&self.url_env, &self.described.slug) {
            (Some(variable), _) => self
                .bad(format!("{missing}, and `{variable}` is not set"))
                .hint(format!("set `{variable}`, or write the URL into the file")),
            (None, Some(_)) => self
                .bad(format!("{missing}, and nobody here looks it up"))
                .hint("a program that embeds Warmline can look it up by `slug` and `folder`"),
            (None, None) => self.bad(missing),
        }
    }

    pub(super) fn headers(
        &self,
        headers: &[(String, Written)],
        lookup: Lookup<'_>,
    ) -> Result<Vec<(HeaderName, HeaderValue)>, ConfigError> {
        let mut out = Vec::with_capacity(headers.len() + 1);
        for (name, value) in headers {
            let value = self.expanded(value, lookup)?;
            out.push(header(name, &value).map_err(|why| self.bad(why))?);
        }
        Ok(out)
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
        let program = words
            .next()
            .ok_or_else(|| self.bad(format!("the `command` of `{}` is empty", self.written)))?;
        Ok(StdioReach {
            program,
            args: words.collect(),
            env: variables,
            env_pass,
            cwd,
            surroundings: None,
            filled: self.filled(argv, lookup),
        })
    }

    /// The header that speaks for us, with the secret as it is now.
    fn token(
        &self,
        url: &Url,
        lookup: Lookup<'_>,
    ) -> Result<Option<(HeaderName, HeaderValue)>, ConfigError> {
        if let Some(token) = self.said_by(self.auth_env.as_deref(), lookup)? {
            self.sent_safely(url)?;
            let value = bearer(&token).ok_or_else(|| self.no_header())?;
            return Ok(Some((http::header::AUTHORIZATION, value)));
        }
        let Some(credential) = &self.credential else {
            return Ok(None);
        };
        let form = credential.shown()?;
        let secret = self
            .secret(&credential.from, lookup)
            .map_err(|error| error.at(credential.place.clone()))?;
        let value = form.value(&secret).ok_or_else(|| self.no_header())?;
        Ok(Some((form.name().clone(), value)))
    }

    fn secret(&self, from: &From, lookup: Lookup<'_>) -> Result<String, ConfigError> {
        let missing = |what: String| ConfigError::new(Code::ConfigBadValue, what);
        let not_here = |word: &str| {
            missing(format!(
                "a credential by `{word}` is not for single commands"
            ))
            .hint("use `credential = { env = \"NAME\" }` or `{ file = \"path\" }`")
        };
        match from {
            From::Env(name) => lookup.text(name)?.ok_or_else(|| {
                missing(format!(
                    "`{name}` is not set, and `{}` takes its token from it",
                    self.name
                ))
                .hint(format!("set `{name}` in the environment of this command"))
            }),
            From::File(file) => {
                let path = self.base.join(file);
                super::read_bounded(&path, TOKEN_BYTES)
                    .map(|text| text.trim().to_owned())
                    .map_err(|why| {
                        missing(format!("the token of `{}` cannot be read", self.name))
                            .because(format!("{}: {why}", path.display()))
                    })
            },
            From::Command(_) => Err(not_here("command")),
            From::Header(_) => Err(not_here("header")),
        }
    }

    /// A token that any server might get by its variable's name never travels in the clear.
    pub(super) fn sent_safely(&self, url: &Url) -> Result<(), ConfigError> {
        if !is_in_the_clear(url) {
            return Ok(());
        }
        let what = format!("the token of `{}` would travel in the clear", self.written);
        Err(self.bad(what).hint("use the `https` URL of the server"))
    }

    fn no_header(&self) -> ConfigError {
        self.bad(format!(
            "the token of `{}` holds characters no header can carry",
            self.name
        ))
    }

    fn expanded(&self, text: &Written, lookup: Lookup<'_>) -> Result<String, ConfigError> {
        expand(&text.text, self.expand, lookup).map_err(|why| {
            self.bad(format!(
                "a variable of `{}` cannot be filled in",
                self.written
            ))
            .because(why)
            .hint("set it in the environment of this command, or write `${NAME:-VALUE}`")
        })
    }

    /// The values of variables in these texts, by their names.
    fn filled<'t>(
        &self,
        texts: impl IntoIterator<Item = &'t Written>,
        lookup: Lookup<'_>,
    ) -> BTreeMap<String, String> {
        let texts = texts.into_iter();
        let names = texts.flat_map(|text| names(&text.text, self.expand));
        let values = names.filter_map(|name| {
            let value = lookup.text(&name).ok().flatten()?;
            Some((name, value))
        });
        values.collect()
    }

    /// What a variable says that this server names, if it names one and that is set. One that is
    /// empty says nothing.
    pub(super) fn said_by(
        &self,
        variable: Option<&str>,
        lookup: Lookup<'_>,
    ) -> Result<Option<String>, ConfigError> {
        let said = variable.map(|variable| lookup.text(variable)).transpose();
        said.map(|said| said.flatten().filter(|said| !said.is_empty()))
            .map_err(|error| error.at(self.place.clone()))
    }

    fn bad(&self, what: impl Into<String>) -> ConfigError {
        ConfigError::new(Code::ConfigBadValue, what).at(self.place.clone())
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
    // Who keeps it with the word before it does not mean to say the word twice.
    let token = token.trim();
    let head = token.get(.."Bearer ".len());
    let bare = match head.is_some_and(|head| head.eq_ignore_ascii_case("Bearer ")) {
        true => token.get("Bearer ".len()..).unwrap_or(token),
        false => token,
    };
    let mut value = HeaderValue::try_from(format!("Bearer {}", bare.trim())).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// Whether a URL stays on this machine.
pub fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        Some(url::Host::Domain(name)) => name == "localhost",
        None => false,
    }
}

/// Whether what is sent to a URL leaves this machine without TLS.
pub fn is_in_the_clear(url: &Url) -> bool {
    url.scheme() == "http" && !is_loopback(url)
}

/// The longest token file that is read.
const TOKEN_BYTES: u64 = 64 << 10;
