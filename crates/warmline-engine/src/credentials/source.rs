//! Reads the source of a secret: the environment, a file, a command or a provider.
//!
//! A missing secret is not a failure: only a missing one may be left out or replaced by the next
//! source. The caller limits the time.
//!
//! A credential command is a program of the user that prints a token. It gets our whole environment, no
//! input and no shell. Errors say how it ended and repeat none of its output, which may hold a secret.
//! It is ended with all that it started when it is done, prints too much, or its caller gives up.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::HeaderValue;
use tokio::io::{AsyncRead, AsyncReadExt};
use warmline_core::error::code::{Code, Reason};
use warmline_core::exchange::Diagnostic;
use zeroize::Zeroizing;

use super::secret::{IDENTITY_PLACEHOLDER, Secret, SecretSource, has_identity_placeholder};
use super::{
    BoxFuture, MAX_SECRET_BYTES, Token, TokenLifetime, TokenRequest, credential_unavailable,
};
use crate::identity::IdentityName;
use warmline_platform::{clock, private_file};
use warmline_upstream::child::find_program;
use warmline_upstream::child::process::{ChildExit, Process, SpawnSpec};
use warmline_upstream::environment::{Environment, NotUnicode, variable_text};
use warmline_upstream::target::StdioConfig;

pub(super) type SecretResult = Result<Token, SecretError>;

#[derive(Debug)]
pub(super) struct SecretError {
    pub(super) diagnostic: Diagnostic,
    /// A missing secret may be left out, or replaced by the next source.
    pub(super) is_missing: bool,
}

impl From<Diagnostic> for SecretError {
    fn from(diagnostic: Diagnostic) -> Self {
        Self {
            diagnostic,
            is_missing: false,
        }
    }
}

impl SecretError {
    fn missing(diagnostic: Diagnostic) -> Self {
        Self {
            diagnostic,
            is_missing: true,
        }
    }
}

impl Secret {
    /// Reads a source that needs no waiting; none for other sources.
    pub(super) fn read_now(&self, server: &str) -> Option<SecretResult> {
        Some(match &self.source {
            SecretSource::Value(value) => parse_token(value).ok_or_else(|| {
                let what = format!("the credential of `{server}` is empty");
                SecretError::missing(credential_unavailable(what))
            }),
            SecretSource::Env(name) => read_variable(server, name),
            SecretSource::CallerHeader(name) => {
                let what = format!("the caller sent no `{name}`, which `{server}` is called with");
                let hint = format!("send `{name}` with each request");
                let diagnostic = Diagnostic::new(Reason::CredentialNotSent, what);
                Err(SecretError::missing(diagnostic.with_hint(hint)))
            },
            SecretSource::FirstOf(secrets) => return read_first_now(server, secrets),
            SecretSource::File(_)
            | SecretSource::Command(_)
            | SecretSource::Provider(_)
            | SecretSource::Resolver(_) => return None,
        })
    }

    pub(super) fn fetch<'a>(&'a self, asked: TokenRequest<'a>) -> BoxFuture<'a, SecretResult> {
        Box::pin(async move {
            if let Some(found) = self.read_now(asked.server) {
                return found.map(with_recheck);
            }
            let token = match &self.source {
                SecretSource::File(path) => read_file(asked, path).await?,
                SecretSource::Command(words) => run_command(asked.server, words).await?,
                SecretSource::Provider(provider) => {
                    let identity = asked.identity.filter(|_| provider.is_per_identity());
                    let token = provider.fetch(TokenRequest { identity, ..asked }).await;
                    token.map_err(|diagnostic| provider_failed(asked.server, diagnostic))?
                },
                SecretSource::FirstOf(secrets) => fetch_first_of(asked, secrets).await?,
                SecretSource::Resolver(lookup) => {
                    let value = lookup.authorization(asked.refresh).await?;
                    resolver_token(asked.server, value.as_ref())?
                },
                SecretSource::Value(_) | SecretSource::Env(_) | SecretSource::CallerHeader(_) => {
                    let what = format!("`{}` has no credential", asked.server);
                    return Err(SecretError::missing(credential_unavailable(what)));
                },
            };
            Ok(match self.renew_after {
                Some(time) => token.expires_in(time),
                None => token,
            })
        })
    }
}

fn process_environment() -> Environment {
    std::env::vars_os().collect()
}

fn read_variable(server: &str, name: &str) -> SecretResult {
    // It exists and is unusable: no other source replaces it.
    let value = variable_text(name).map_err(|NotUnicode| {
        let what = format!("`{name}` is no text, and `{server}` takes its token from it");
        credential_unavailable(what)
            .with_cause("it is set to bytes that are not UTF-8")
            .with_hint(format!("write `{name}` in UTF-8, or unset it"))
    })?;
    let value = value.map(Zeroizing::new);
    let token = value.as_ref().and_then(|value| parse_token(value));
    token.ok_or_else(|| {
        let state = match value {
            Some(_) => "empty",
            None => "not set",
        };
        let what = format!("`{name}` is {state}, and `{server}` takes its token from it");
        let hint = format!("set `{name}` in the environment");
        SecretError::missing(credential_unavailable(what).with_hint(hint))
    })
}

fn read_first_now(server: &str, secrets: &[Secret]) -> Option<SecretResult> {
    let mut missing = no_sources(server);
    for secret in secrets {
        match secret.read_now(server)? {
            Err(error) if error.is_missing => missing = error,
            found => return Some(found),
        }
    }
    Some(Err(missing))
}

async fn fetch_first_of(asked: TokenRequest<'_>, secrets: &[Secret]) -> SecretResult {
    let mut missing = no_sources(asked.server);
    for secret in secrets {
        match secret.fetch(asked).await {
            Err(error) if error.is_missing => missing = error,
            found => return found,
        }
    }
    Err(missing)
}

fn no_sources(server: &str) -> SecretError {
    let what = format!("no source is named for the credential of `{server}`");
    SecretError::missing(credential_unavailable(what))
}

/// A token that is cheap to read again.
fn with_recheck(mut token: Token) -> Token {
    token.lifetime = TokenLifetime::RecheckAfter(FILE_RECHECK);
    token
}

async fn read_file(asked: TokenRequest<'_>, path: &Path) -> SecretResult {
    let path = path_for(asked, path)?;
    let cannot = |why: &str| {
        credential_unavailable(format!("the token of `{}` cannot be read", asked.server))
            .with_cause(format!("{}: {why}", path.display()))
    };
    match read_bounded(&path).await {
        Ok(text) => {
            let token = parse_token(&text).map(with_recheck);
            token.ok_or_else(|| SecretError::missing(cannot("it is empty")))
        },
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Err(SecretError::missing(cannot("there is no such file")))
        },
        Err(error) => Err(cannot(&error.to_string()).into()),
    }
}

fn path_for(asked: TokenRequest<'_>, path: &Path) -> Result<PathBuf, Diagnostic> {
    if !has_identity_placeholder(path) {
        return Ok(path.to_owned());
    }
    let Some(name) = asked.identity.and_then(IdentityName::as_file_name) else {
        let what = format!(
            "there is no file with a token of `{}` for this identity",
            asked.server
        );
        return Err(credential_unavailable(what)
            .with_cause("the name of the identity cannot be part of a path")
            .with_hint(
                "a name has 1 to 128 of a-z, A-Z, 0-9 and . _ @ + -, and does not begin with a dot; \
                 issuer and subject of a signed token have 255 at most",
            ));
    };
    let path = path.to_string_lossy();
    Ok(PathBuf::from(path.replace(IDENTITY_PLACEHOLDER, &name)))
}

async fn read_bounded(path: &Path) -> io::Result<Zeroizing<String>> {
    let most = u64::try_from(MAX_SECRET_BYTES).unwrap_or(u64::MAX);
    let path = path.to_owned();
    let reading = clock::spawn_blocking("token-file", move || {
        private_file::read_limited(&path, most)
    });
    let bytes = Zeroizing::new(reading.await.map_err(io::Error::other)??);
    match std::str::from_utf8(&bytes) {
        Ok(text) => Ok(Zeroizing::new(text.to_owned())),
        Err(_) => Err(io::Error::other("it is no text")),
    }
}

/// The error of a provider, with the right code.
fn provider_failed(server: &str, diagnostic: Diagnostic) -> Diagnostic {
    if diagnostic.code == Code::CredentialUnavailable {
        return diagnostic;
    }
    credential_unavailable(format!("the provider has no token for `{server}`"))
        .with_cause(diagnostic.message)
}

fn resolver_token(server: &str, value: Option<&HeaderValue>) -> SecretResult {
    let text = value.and_then(|value| value.to_str().ok());
    text.and_then(parse_token).ok_or_else(|| {
        let what = format!("the resolver gives no token for `{server}`");
        SecretError::missing(credential_unavailable(what))
    })
}

fn parse_token(text: &str) -> Option<Token> {
    let text = text.trim();
    (!text.is_empty()).then(|| Token::new(text))
}

/// How long the contents of a file are taken as current.
const FILE_RECHECK: Duration = Duration::from_secs(1);

/// Runs the program and returns what it prints, trimmed.
async fn run_command(server: &str, words: &[String]) -> Result<Token, Diagnostic> {
    let [program, args @ ..] = words else {
        return Err(credential_unavailable(format!(
            "the credential command of `{server}` names no program"
        )));
    };
    let failed = |why: String| {
        let what = format!("`{program}`, the credential command of `{server}`, failed");
        credential_unavailable(what).with_cause(why)
    };
    let mut environment = process_environment();
    let found = find_program::find_program(server, &program_reach(program, args), &mut environment)
        .await
        .map_err(|diagnostic| failed(diagnostic.message))?;
    let start = SpawnSpec {
        program: &found.path,
        args,
        environment: &environment,
        cwd: None,
        lifetime_token: None,
    };
    let (process, streams) = Process::spawn(start)
        .await
        .map_err(|error| failed(error.to_string()))?;
    drop(streams.stdin);
    let Some((text, exit)) = collect_output(process, streams.stdout, streams.stderr).await else {
        return Err(failed("it printed more than 64 KiB".to_owned()));
    };
    if exit != ChildExit::Code(0) {
        return Err(failed(exit.to_string()).with_hint(RUN_BY_HAND_HINT));
    }
    match std::str::from_utf8(&text).map(parse_token) {
        Ok(Some(token)) => Ok(token),
        Ok(None) => Err(failed("it printed nothing".to_owned())),
        Err(_) => Err(failed("what it printed is no text".to_owned())),
    }
}

/// What a command prints, and how it ends; none if it prints too much. All at once: a command blocks
/// if nobody reads its standard error, and its exit counts even if a process that it started keeps
/// the output open.
async fn collect_output(
    mut process: Process,
    stdout: impl AsyncRead + Unpin,
    mut stderr: impl AsyncRead + Unpin,
) -> Option<(Zeroizing<Vec<u8>>, ChildExit)> {
    let most = u64::try_from(MAX_SECRET_BYTES).unwrap_or(u64::MAX);
    let reading = async {
        let mut text = Zeroizing::new(Vec::new());
        // An output that breaks off has ended: the exit status says the rest.
        stdout.take(most + 1).read_to_end(&mut text).await.ok();
        (text.len() <= MAX_SECRET_BYTES).then_some(text).ok_or(())
    };
    let drained = async {
        let mut sink = tokio::io::sink();
        tokio::io::copy(&mut stderr, &mut sink).await.ok();
        Ok(())
    };
    let exited = async { Ok(process.wait_for_exit().await) };
    let (text, (), exit) = tokio::try_join!(reading, drained, exited).ok()?;
    Some((text, exit))
}

fn program_reach(program: &str, args: &[String]) -> StdioConfig {
    StdioConfig {
        program: program.to_owned(),
        args: args.to_vec(),
        env: BTreeMap::new(),
        env_pass: Vec::new(),
        cwd: None,
        base_env: None,
        substituted: BTreeMap::new(),
    }
}

const RUN_BY_HAND_HINT: &str =
    "run it by hand to see why: what it says is not repeated here, it may hold a secret";

#[cfg(test)]
mod tests;
