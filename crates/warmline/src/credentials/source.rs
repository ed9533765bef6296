//! Asking the source of a secret: the environment, a file, a command, a provider.
//!
//! What each may do: be missing, fail, or hang. Missing is told apart from failing, because only
//!   what is missing may be left out or replaced by the next source. Who hangs is cut off by
//!   whoever asked.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::HeaderValue;
use warmline_core::code::{Code, Reason};
use warmline_core::exchange::Trouble;
use zeroize::Zeroizing;

use super::secret::{IDENTITY, Secret, Source, names_identity};
use super::{Asked, Lasts, SECRET_BYTES, Stepping, Token, command, unavailable};
use crate::clock;
use crate::identity::IdentityName;
use crate::private;
use crate::upstream::environment::{Environment, NoText, text_of};

/// What a source has to give.
#[derive(Debug)]
pub(super) enum Found {
    Token(Token),
    /// It is not there, and this is what to say if it had to be.
    Missing(Trouble),
}

impl Secret {
    /// What can be read without waiting; none if this source makes one wait.
    pub(super) fn read_now(&self, server: &str) -> Option<Result<Found, Trouble>> {
        let found = match &self.source {
            Source::Value(value) => read_value(server, value),
            Source::Env(name) => return Some(read_variable(server, name)),
            Source::CallerHeader(name) => {
                let what = format!("the caller sent no `{name}`, which `{server}` is called with");
                let hint = format!("send `{name}` with each request");
                Found::Missing(Trouble::new(Reason::CredentialNotSent, what).hint(hint))
            },
            Source::FirstOf(secrets) => return read_first_now(server, secrets),
            Source::File(_) | Source::Command(_) | Source::Provider(_) | Source::Resolver(_) => {
                return None;
            },
        };
        Some(Ok(found))
    }

    /// Asks the source.
    pub(super) fn ask<'a>(&'a self, asked: Asked<'a>) -> Stepping<'a, Result<Found, Trouble>> {
        Box::pin(async move {
            if let Some(found) = self.read_now(asked.server) {
                return found.map(look_again);
            }
            let found = match &self.source {
                Source::File(path) => read_file(asked, path).await?,
                Source::Command(words) => Found::Token(command::run(asked.server, words).await?),
                Source::Provider(provider) => {
                    let identity = asked.identity.filter(|_| provider.splits_by_identity());
                    let asked = Asked { identity, ..asked };
                    let token = provider.fetch(asked).await;
                    Found::Token(token.map_err(|trouble| of_provider(asked.server, trouble))?)
                },
                Source::FirstOf(secrets) => first_of(asked, secrets).await?,
                Source::Resolver(lookup) => {
                    let value = lookup.authorization(asked.refresh).await?;
                    of_resolver(asked.server, value.as_ref())
                },
                Source::Value(_) | Source::Env(_) | Source::CallerHeader(_) => {
                    Found::Missing(unavailable(format!("`{}` has no credential", asked.server)))
                },
            };
            Ok(self.dated(found))
        })
    }

    /// With the time after which it is to be renewed, where it was configured.
    fn dated(&self, found: Found) -> Found {
        match (found, self.renew_after) {
            (Found::Token(token), Some(time)) => Found::Token(token.expires_in(time)),
            (found, _) => found,
        }
    }
}

/// The whole environment of this process, for a command of its own user.
pub(super) fn environment() -> Environment {
    std::env::vars_os().collect()
}

fn read_value(server: &str, value: &Zeroizing<String>) -> Found {
    token_of(value).map(Found::Token).unwrap_or_else(|| {
        Found::Missing(unavailable(format!(
            "the credential of `{server}` is empty"
        )))
    })
}

fn read_variable(server: &str, name: &str) -> Result<Found, Trouble> {
    let missing = |what: String| {
        Found::Missing(unavailable(what).hint(format!("set `{name}` in the environment")))
    };
    // It is there and says nothing that could be sent: no other source takes its place.
    let value = text_of(name).map_err(|NoText| {
        let what = format!("`{name}` is no text, and `{server}` takes its token from it");
        unavailable(what)
            .because("it is set to bytes that are not UTF-8")
            .hint(format!("write `{name}` in UTF-8, or unset it"))
    })?;
    let Some(value) = value.map(Zeroizing::new) else {
        let what = format!("`{name}` is not set, and `{server}` takes its token from it");
        return Ok(missing(what));
    };
    Ok(match token_of(&value) {
        Some(token) => Found::Token(token),
        None => missing(format!(
            "`{name}` is empty, and `{server}` takes its token from it"
        )),
    })
}

fn read_first_now(server: &str, secrets: &[Secret]) -> Option<Result<Found, Trouble>> {
    let mut missing = nothing_listed(server);
    for secret in secrets {
        match secret.read_now(server)? {
            Ok(Found::Missing(trouble)) => missing = trouble,
            found => return Some(found),
        }
    }
    Some(Ok(Found::Missing(missing)))
}

async fn first_of(asked: Asked<'_>, secrets: &[Secret]) -> Result<Found, Trouble> {
    let mut missing = nothing_listed(asked.server);
    for secret in secrets {
        match secret.ask(asked).await? {
            Found::Missing(trouble) => missing = trouble,
            found @ Found::Token(_) => return Ok(found),
        }
    }
    Ok(Found::Missing(missing))
}

fn nothing_listed(server: &str) -> Trouble {
    unavailable(format!(
        "no source is named for the credential of `{server}`"
    ))
}

/// A token that was read without waiting, among sources that are not.
fn look_again(found: Found) -> Found {
    match found {
        Found::Token(mut token) => {
            token.lasts = Lasts::LookAgainAfter(LOOK_AGAIN);
            Found::Token(token)
        },
        missing @ Found::Missing(_) => missing,
    }
}

async fn read_file(asked: Asked<'_>, path: &Path) -> Result<Found, Trouble> {
    let path = path_for(asked, path)?;
    let cannot = |why: String| {
        unavailable(format!("the token of `{}` cannot be read", asked.server))
            .because(format!("{}: {why}", path.display()))
    };
    match read_bounded(&path).await {
        Ok(text) => Ok(match token_of(&text) {
            Some(token) => look_again(Found::Token(token)),
            None => Found::Missing(cannot("it is empty".to_owned())),
        }),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Ok(Found::Missing(cannot("there is no such file".to_owned())))
        },
        Err(error) => Err(cannot(error.to_string())),
    }
}

/// The path with the name of whoever asks in its place.
fn path_for(asked: Asked<'_>, path: &Path) -> Result<PathBuf, Trouble> {
    if !names_identity(path) {
        return Ok(path.to_owned());
    }
    let Some(name) = asked.identity.and_then(IdentityName::as_file_name) else {
        let what = format!(
            "there is no file with a token of `{}` for this identity",
            asked.server
        );
        return Err(unavailable(what)
            .because("the name of the identity cannot be part of a path")
            .hint(
                "a name has 1 to 128 of a-z, A-Z, 0-9 and . _ @ + -, and does not begin with a dot; \
                 issuer and subject of a signed token have 255 at most",
            ));
    };
    let path = path.to_string_lossy();
    Ok(PathBuf::from(path.replace(IDENTITY, &name)))
}

async fn read_bounded(path: &Path) -> io::Result<Zeroizing<String>> {
    let most = u64::try_from(SECRET_BYTES).unwrap_or(u64::MAX);
    let path = path.to_owned();
    let reading = clock::spawn_blocking("token-file", move || private::read_named(&path, most));
    let bytes = Zeroizing::new(reading.await.map_err(io::Error::other)??);
    match std::str::from_utf8(&bytes) {
        Ok(text) => Ok(Zeroizing::new(text.to_owned())),
        Err(_) => Err(io::Error::other("it is no text")),
    }
}

/// What a provider said, under the code that belongs to it.
fn of_provider(server: &str, trouble: Trouble) -> Trouble {
    if trouble.code == Code::CredentialUnavailable {
        return trouble;
    }
    unavailable(format!("the provider has no token for `{server}`")).because(trouble.what)
}

fn of_resolver(server: &str, value: Option<&HeaderValue>) -> Found {
    let text = value.and_then(|value| value.to_str().ok());
    match text.and_then(token_of) {
        Some(token) => Found::Token(token),
        None => Found::Missing(unavailable(format!(
            "the resolver gives no token for `{server}`"
        ))),
    }
}

/// A token without the blanks around it; none if nothing is left.
pub(super) fn token_of(text: &str) -> Option<Token> {
    let text = text.trim();
    (!text.is_empty()).then(|| Token::new(text))
}

/// How long what a file says is believed.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
