//! From settings to a gateway's options: what may be decided together, and what may not.
//!
//! Asked by: whoever starts a gateway by a configuration file, or reads that file again.

mod callers;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use warmline::config::{Access, ConfigError, Place};
use warmline::core::code::Code;
use warmline::settings::{AuthWord, GatewaySettings, Origin};

use crate::door::{Unusable, check_certificate};
use crate::tokens::TokenStore;
use crate::{AuditOptions, Auth, Limits, NotStarted, Options, Rules, RunFrom, Sse, TlsFiles, Way};

/// What is said of a gateway that lets everybody in.
pub const NOBODY_IS_ASKED: &str = "nobody is asked who they are";
/// What is said of its callers.
pub const ANYBODY_SHARES: &str = "Callers share nothing but a run they name: its name is the whole \
    secret. Each run and each client session is somebody new: limits per identity bind nobody";

/// Rules about callers, by the names of servers.
pub type Accesses = BTreeMap<String, Access>;

impl Options {
    /// The options that settings and rules about callers stand for.
    ///
    /// # Errors
    /// `config-bad-value`: what cannot be decided together, such as a listener that others can
    /// reach and that asks nobody who they are.
    pub fn of(
        settings: &GatewaySettings,
        accesses: &Accesses,
        tokens: &TokenStore,
    ) -> Result<Self, ConfigError> {
        Ok(Self {
            listen: settings.listen,
            auth: auth(settings, tokens)?,
            resource: callers::resource(settings)?,
            hosts: settings.hosts.clone(),
            origins: settings.origins_allowed.clone(),
            tls: tls(settings)?,
            socket: settings.socket.clone(),
            admin: settings.admin.clone(),
            ops: settings.ops.address(settings.listen),
            sse: if settings.sse { Sse::On } else { Sse::Off },
            limits: limits(settings),
            ..Self::anywhere(settings, accesses)?
        })
    }

    /// What counts wherever a gateway listens: all but addresses, who is let in, and what bounds
    /// strangers.
    ///
    /// # Errors
    /// As [`Options::of`].
    pub fn anywhere(settings: &GatewaySettings, accesses: &Accesses) -> Result<Self, ConfigError> {
        Ok(Self {
            rules: callers::rules(settings, accesses)?,
            run_from: run_from(settings)?,
            max_request: settings.max_request,
            audit: audit(settings),
            list_share: settings.list_share,
            ..Self::default()
        })
    }
}

/// Where these settings want an audit.
pub fn audit(settings: &GatewaySettings) -> Option<AuditOptions> {
    settings.audit.clone().map(|file| AuditOptions {
        file,
        arguments: settings.audit_arguments.clone(),
    })
}

fn limits(settings: &GatewaySettings) -> Limits {
    Limits {
        connections: settings.max_connections as usize,
        connections_per_address: settings.max_connections_per_address as usize,
        requests: settings.max_requests as usize,
        request_bytes: settings.max_request_bytes,
        strangers_per_minute: settings.max_strangers_per_minute,
        head: settings.max_head,
        head_within: settings.head_timeout,
        body_within: settings.body_timeout,
        stalled_after: settings.stall_timeout,
        idle_for: settings.idle_timeout,
    }
}

/// The rules that settings and rules about callers stand for, for whoever asks nobody who they are.
///
/// # Errors
/// `config-bad-value`: a rule could never be met.
pub fn rules(settings: &GatewaySettings, accesses: &Accesses) -> Result<Rules, ConfigError> {
    callers::rules(settings, accesses)
}

/// Checks settings without making or reading anything.
///
/// # Errors
/// As [`Options::of`], but for tokens, which nobody looked for.
pub fn check(settings: &GatewaySettings, accesses: &Accesses) -> Result<(), ConfigError> {
    run_from(settings)?;
    tls(settings)?;
    callers::resource(settings)?;
    callers::rules(settings, accesses)?;
    reachable(settings)?;
    callers::others(settings).map(drop)
}

/// Looks whether the files that settings name can be used: certificates are read, and nothing is
/// written. Whoever reads a configuration again needs none of them, only whoever starts.
///
/// # Errors
/// `config-bad-value`, at the place that names the file.
pub fn check_files(settings: &GatewaySettings) -> Result<(), ConfigError> {
    if let Some(files) = tls(settings)? {
        usable(settings, &files)?;
    }
    let folder = settings.audit.as_deref().and_then(Path::parent);
    match folder.filter(|folder| !folder.as_os_str().is_empty() && !folder.is_dir()) {
        Some(folder) => {
            let why = format!("`{}` is no folder", folder.display());
            Err(unwritten(settings, why))
        },
        None => Ok(()),
    }
}

fn usable(settings: &GatewaySettings, files: &TlsFiles) -> Result<(), ConfigError> {
    let (key, why) = match check_certificate(files) {
        Ok(()) => return Ok(()),
        Err(Unusable::Certificate(why)) => ("gateway.tls_certificate", why),
        Err(Unusable::Key(why)) => ("gateway.tls_key", why),
    };
    let what = "the certificate of the listener cannot be used";
    let hint = "name a PEM file with the certificate and those that lead to its root, \
                and one with its own key";
    Err(because(bad(settings, key, what, hint), why))
}

fn unwritten(settings: &GatewaySettings, why: String) -> ConfigError {
    let what = "the audit cannot be written";
    let hint = "name a file in a folder that is there, and where this user may write";
    because(bad(settings, "audit.file", what, hint), why)
}

/// What settings have to do with it that a gateway did not start, at the place that says so.
pub fn blamed(settings: &GatewaySettings, error: &NotStarted) -> Option<ConfigError> {
    match error {
        NotStarted::Tls(_) => check_files(settings).err(),
        NotStarted::Audit(file, error) => {
            let why = format!("{}: {error}", file.display());
            Some(unwritten(settings, why))
        },
        NotStarted::Unguarded(_)
        | NotStarted::Address(_)
        | NotStarted::Ops(_)
        | NotStarted::Socket(..)
        | NotStarted::Required(_) => None,
    }
}

/// How callers of these settings show who they are, with the tokens as they are kept now.
fn auth(settings: &GatewaySettings, tokens: &TokenStore) -> Result<Auth, ConfigError> {
    reachable(settings)?;
    let others = callers::others(settings)?;
    let mut ways = match settings.auth {
        AuthWord::None => return Ok(Auth::None),
        AuthWord::Tokens if others.is_empty() && tokens.tokens().is_empty() => {
            return Err(bad(
                settings,
                "gateway.auth",
                "callers shall show a token, and none was made yet",
                "make one with `warmline token new NAME`",
            ));
        },
        AuthWord::Tokens => vec![Way::Kept(tokens.source())],
        AuthWord::Jwt | AuthWord::Proxy => Vec::new(),
        AuthWord::Local => {
            tokens.local().map_err(|error| {
                let what = format!(
                    "the token of this machine cannot be kept in `{}`",
                    tokens.local_file().display()
                );
                let hint = "name another folder with --state-dir";
                let mut unkept = bad(settings, "gateway.auth", &what, hint);
                unkept.why = Some(error.to_string());
                unkept
            })?;
            vec![Way::Kept(tokens.source_with_local())]
        },
    };
    ways.extend(others);
    Ok(Auth::AnyOf(ways))
}

/// A listener that others can reach has to ask who they are, and so has one that was told to.
fn reachable(settings: &GatewaySettings) -> Result<(), ConfigError> {
    let listen = settings.listen;
    if listen.port() != 0 && settings.ops.address(listen) == Some(listen) {
        let what = format!("`ops.listen` and `gateway.listen` are both `{listen}`");
        return Err(bad(
            settings,
            "ops.listen",
            &what,
            "decide another port for one of them",
        ));
    }
    if settings.auth_required && settings.auth == AuthWord::None {
        let what = "callers have to show who they are, and `gateway.auth` is `none`";
        let hint =
            "decide another `gateway.auth`, or take `gateway.auth_required` (`AUTH_REQUIRED`) away";
        return Err(bad(settings, "gateway.auth_required", what, hint));
    }
    let is_asked = !matches!(settings.auth, AuthWord::Local | AuthWord::None);
    if settings.listen.ip().is_loopback() || is_asked {
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
            let what = format!("`{}` is no place where a client names a run", shown(text));
            let hint = "write `_meta:KEY` or `header:NAME`";
            bad(settings, "gateway.run_from", &what, hint)
        })
    });
    places.collect()
}

/// What somebody wrote, short and without what a terminal would obey.
fn shown(text: &str) -> String {
    let short: String = text.chars().take(40).collect();
    short.escape_debug().to_string()
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

fn because(error: ConfigError, why: String) -> ConfigError {
    ConfigError {
        why: Some(why),
        ..error
    }
}

fn place(file: PathBuf, line: Option<usize>) -> Place {
    Place {
        file,
        at: line.map(|line| (line, 1)),
        excerpt: None,
    }
}
