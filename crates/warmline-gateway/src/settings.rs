//! From settings to a gateway's options: what may be decided together, and what may not.
//!
//! Asked by: whoever starts a gateway by a configuration file.

use std::path::PathBuf;

use warmline::Vault;
use warmline::config::{ConfigError, Place};
use warmline::core::code::Code;
use warmline::settings::{AuthWord, GatewaySettings, Origin};

use crate::tokens::{LOCAL, TokenStore};
use crate::{AuditOptions, Auth, Limits, Options, RunFrom, TlsFiles, Token, Way};

impl Options {
    /// The options that settings stand for.
    ///
    /// # Errors
    /// `config-bad-value`: a place that names no run, or a listener that others can reach and that
    /// asks nobody who they are.
    pub fn of(
        settings: &GatewaySettings,
        tokens: &TokenStore,
        vault: &Vault,
    ) -> Result<Self, ConfigError> {
        Ok(Self {
            listen: settings.listen,
            auth: auth(settings, tokens, vault)?,
            run_from: run_from(settings)?,
            hosts: settings.hosts.clone(),
            origins: settings.origins_allowed.clone(),
            max_request: settings.max_request,
            list_share: settings.list_share,
            tls: tls(settings)?,
            socket: settings.socket.clone(),
            ops: settings.ops.address(settings.listen),
            audit: settings.audit.clone().map(|file| AuditOptions {
                file,
                arguments: settings.audit_arguments.clone(),
            }),
            limits: Limits {
                connections: settings.max_connections as usize,
                requests: settings.max_requests as usize,
                ..Limits::default()
            },
            ..Self::default()
        })
    }
}

/// Checks settings without making or reading anything.
///
/// # Errors
/// As [`Options::of`], but for tokens, which nobody looked for.
pub fn check(settings: &GatewaySettings) -> Result<(), ConfigError> {
    run_from(settings)?;
    tls(settings)?;
    reachable(settings)
}

/// How callers of these settings show who they are, with the tokens as they are kept now.
///
/// # Errors
/// As [`Options::of`].
pub fn auth(
    settings: &GatewaySettings,
    tokens: &TokenStore,
    vault: &Vault,
) -> Result<Auth, ConfigError> {
    reachable(settings)?;
    let made = tokens.tokens();
    match settings.auth {
        AuthWord::None => Ok(Auth::None),
        AuthWord::Tokens if made.is_empty() => Err(bad(
            settings,
            "gateway.auth",
            "callers shall show a token, and none was made yet",
            "make one with `warmline token new NAME`",
        )),
        AuthWord::Tokens => Ok(Auth::AnyOf(vec![Way::Kept(tokens.source())])),
        AuthWord::Local => {
            let text = tokens.local().map_err(|error| {
                let what = format!(
                    "the token of this machine cannot be kept in `{}`",
                    tokens.local_file().display()
                );
                let hint = "name another folder with --state-dir";
                let mut unkept = bad(settings, "gateway.auth", &what, hint);
                unkept.why = Some(error.to_string());
                unkept
            })?;
            let local = Token::of(vault, LOCAL, &text);
            let kept = Way::Kept(tokens.source());
            Ok(Auth::AnyOf(vec![Way::Tokens(vec![local]), kept]))
        },
    }
}

/// A listener that others can reach has to ask who they are.
fn reachable(settings: &GatewaySettings) -> Result<(), ConfigError> {
    if settings.listen.ip().is_loopback() || settings.auth == AuthWord::Tokens {
        return Ok(());
    }
    let what = format!(
        "`{}` can be reached from elsewhere, and `gateway.auth` is `{}`",
        settings.listen,
        settings.auth.word()
    );
    let hint = "make tokens with `warmline token new NAME` and decide `gateway.auth = \"tokens\"`, \
                or listen on 127.0.0.1";
    Err(bad(settings, "gateway.listen", &what, hint))
}

/// A certificate is of no use without its key, nor a key without its certificate.
fn tls(settings: &GatewaySettings) -> Result<Option<TlsFiles>, ConfigError> {
    match (&settings.tls_certificate, &settings.tls_key) {
        (Some(certificate), Some(key)) => Ok(Some(TlsFiles {
            certificate: certificate.clone(),
            key: key.clone(),
        })),
        (None, None) => Ok(None),
        (certificate, _) => {
            let (key, missing) = match certificate {
                Some(_) => ("gateway.tls_certificate", "gateway.tls_key"),
                None => ("gateway.tls_key", "gateway.tls_certificate"),
            };
            let what = format!("`{key}` is decided, and `{missing}` is not");
            Err(bad(settings, key, &what, "name both files, or none"))
        },
    }
}

fn run_from(settings: &GatewaySettings) -> Result<Vec<RunFrom>, ConfigError> {
    let places = settings.run_from.iter().map(|text| {
        RunFrom::parse(text).ok_or_else(|| {
            let shown: String = text.chars().take(40).collect();
            let what = format!(
                "`{}` is no place where a client names a run",
                shown.escape_debug()
            );
            let hint = "write `_meta:KEY` or `header:NAME`";
            bad(settings, "gateway.run_from", &what, hint)
        })
    });
    places.collect()
}

/// What is wrong, at the place that said so.
fn bad(settings: &GatewaySettings, key: &str, what: &str, hint: &str) -> ConfigError {
    let (place, why) = match settings.origin(key) {
        Origin::File { file, line } => (Some(place(file, line)), None),
        Origin::Environment(variable) => (None, Some(format!("{variable} says so"))),
        Origin::Builder | Origin::Machine | Origin::Default => (None, None),
    };
    ConfigError {
        code: Code::ConfigBadValue,
        what: what.to_owned(),
        place: place.map(Box::new),
        why,
        hint: Some(hint.to_owned()),
    }
}

fn place(file: PathBuf, line: Option<usize>) -> Place {
    Place {
        file,
        at: line.map(|line| (line, 1)),
        excerpt: None,
    }
}
