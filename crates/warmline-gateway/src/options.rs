//! From settings to the options of a gateway: values that need each other are checked together.

mod auth;

use std::collections::BTreeMap;
use std::path::Path;

use warmline_config::gateway_settings::{AuthMode, GatewaySettings};
use warmline_config::{ConfigError, DeclaredAccess, FileLocation};
use warmline_core::error::code::Code;
use warmline_engine::settings::{SettingOrigin, SettingsGroup as _};

use crate::auth::token_store::TokenStore;
use crate::listener::{TlsFileError, check_certificate};
use crate::{
    AccessRules, AuditOptions, Auth, AuthMethod, GatewayOptions, ListenerLimits, RunSource,
    StartError, TlsFiles,
};

/// A gateway without authentication, in short.
pub const NO_AUTH_SUMMARY: &str = "callers need not authenticate";
/// What that means for its callers.
pub const NO_AUTH_EXPLANATION: &str = "Any program that reaches this port can call, and one that \
    knows the name of a run can use it. Limits per identity have no effect";

/// The rules of servers about their callers, by server.
pub type AccessByServer = BTreeMap<String, DeclaredAccess>;

impl GatewayOptions {
    /// The options for these settings and rules.
    ///
    /// # Errors
    /// `config-bad-value`: values that contradict each other, such as a network listener without
    /// authentication.
    pub fn from_settings(
        settings: &GatewaySettings,
        accesses: &AccessByServer,
        tokens: &TokenStore,
    ) -> Result<Self, ConfigError> {
        Ok(Self {
            listen: settings.listen,
            auth: build_auth(settings, tokens)?,
            protected_resource: auth::protected_resource(settings)?,
            allowed_hosts: settings.hosts.clone(),
            allowed_origins: settings.origins_allowed.clone(),
            tls: tls_files(settings)?,
            socket: settings.socket.clone(),
            admin_socket: settings.admin.clone(),
            ops: settings.ops.address(settings.listen),
            sse: settings.sse,
            limits: ListenerLimits::from(settings),
            ..Self::from_settings_without_listener(settings, accesses)?
        })
    }

    /// The options that do not concern a network listener: no addresses, authentication and
    /// limits.
    ///
    /// # Errors
    /// As [`GatewayOptions::from_settings`].
    pub fn from_settings_without_listener(
        settings: &GatewaySettings,
        accesses: &AccessByServer,
    ) -> Result<Self, ConfigError> {
        Ok(Self {
            rules: access_rules(settings, accesses)?,
            run_from: parse_run_from(settings)?,
            max_request: settings.max_request,
            audit: audit_options(settings),
            list_share: settings.list_share,
            ..Self::default()
        })
    }
}

impl From<&GatewaySettings> for ListenerLimits {
    fn from(settings: &GatewaySettings) -> Self {
        Self {
            max_connections: settings.max_connections as usize,
            max_connections_per_address: settings.max_connections_per_address as usize,
            max_requests: settings.max_requests as usize,
            max_request_bytes: settings.max_request_bytes,
            max_auth_failures_per_minute: settings.max_strangers_per_minute,
            max_head: settings.max_head,
            head_timeout: settings.head_timeout,
            body_timeout: settings.body_timeout,
            stall_timeout: settings.stall_timeout,
            idle_timeout: settings.idle_timeout,
        }
    }
}

impl Default for ListenerLimits {
    fn default() -> Self {
        Self::from(&GatewaySettings::default())
    }
}

/// The audit of these settings.
pub fn audit_options(settings: &GatewaySettings) -> Option<AuditOptions> {
    settings.audit.clone().map(|file| AuditOptions {
        file,
        arguments: settings.audit_arguments.clone(),
    })
}

/// The rules about callers.
///
/// # Errors
/// `config-bad-value`: a rule needs a claim, and no signed token is accepted, so that it could
/// never match.
pub fn access_rules(
    settings: &GatewaySettings,
    accesses: &AccessByServer,
) -> Result<AccessRules, ConfigError> {
    let mut rules = AccessRules::none();
    for (server, access) in accesses {
        if access.requires_claims() && settings.jwt_issuer.is_none() {
            let what = format!("rules of `{server}` need a claim, and no signed token is accepted");
            let hint = "set an issuer in `[gateway.jwt]`, or use `identity` in the rule";
            return Err(bad_value(settings, "gateway.jwt.issuer", what, hint));
        }
        if !access.is_empty() {
            rules = rules.with_server(server, access.clone());
        }
    }
    Ok(rules)
}

/// Checks settings without creating or reading anything.
///
/// # Errors
/// As [`GatewayOptions::from_settings`]. Whether tokens exist is not checked.
pub fn check_settings(
    settings: &GatewaySettings,
    accesses: &AccessByServer,
) -> Result<(), ConfigError> {
    GatewayOptions::from_settings_without_listener(settings, accesses)?;
    tls_files(settings)?;
    auth::protected_resource(settings)?;
    check_listener(settings)?;
    auth::extra_auth_methods(settings).map(drop)
}

/// Checks whether the files in the settings can be used: certificates are read, and nothing is
/// written. Needed at a start, not at a reload.
///
/// # Errors
/// `config-bad-value`, at the setting of the file.
pub fn check_files(settings: &GatewaySettings) -> Result<(), ConfigError> {
    if let Some(files) = tls_files(settings)?
        && let Err(error) = check_certificate(&files)
    {
        let (key, why) = match error {
            TlsFileError::Certificate(why) => ("gateway.tls_certificate", why),
            TlsFileError::Key(why) => ("gateway.tls_key", why),
        };
        let what = "the TLS certificate cannot be used";
        let hint = "name a PEM file with the certificate and its chain, and one with its key";
        return Err(bad_value(settings, key, what, hint).with_cause(why));
    }
    let folder = settings.audit.as_deref().and_then(Path::parent);
    match folder.filter(|folder| !folder.as_os_str().is_empty() && !folder.is_dir()) {
        Some(folder) => {
            let why = format!("`{}` is no folder", folder.display());
            Err(audit_unwritable(settings, why))
        },
        None => Ok(()),
    }
}

fn audit_unwritable(settings: &GatewaySettings, why: String) -> ConfigError {
    let what = "cannot write the audit";
    let hint = "name a file in an existing folder that this user may write to";
    bad_value(settings, "audit.file", what, hint).with_cause(why)
}

/// The setting that caused a failed start, if one did.
pub fn start_error_setting(settings: &GatewaySettings, error: &StartError) -> Option<ConfigError> {
    match error {
        StartError::Tls(_) => check_files(settings).err(),
        StartError::Audit(file, error) => {
            let why = format!("{}: {error}", file.display());
            Some(audit_unwritable(settings, why))
        },
        StartError::OpenToNetwork(_)
        | StartError::Address(_)
        | StartError::Ops(_)
        | StartError::Socket(..)
        | StartError::RequiredServer(_) => None,
    }
}

/// The authentication of these settings. Creates the local machine token if it is needed.
fn build_auth(settings: &GatewaySettings, tokens: &TokenStore) -> Result<Auth, ConfigError> {
    check_listener(settings)?;
    let others = auth::extra_auth_methods(settings)?;
    let mut methods = match settings.auth {
        AuthMode::None => return Ok(Auth::None),
        AuthMode::Tokens if others.is_empty() && tokens.tokens().is_empty() => {
            let what = "callers need a token, and none exists";
            let hint = "create one with `warmline token new NAME`";
            return Err(bad_value(settings, "gateway.auth", what, hint));
        },
        AuthMode::Tokens => vec![AuthMethod::TokenSource(tokens.source())],
        AuthMode::Jwt | AuthMode::Proxy => Vec::new(),
        AuthMode::Local => {
            tokens.local_token().map_err(|error| {
                let file = tokens.local_token_file();
                let what = format!(
                    "cannot store the local machine token in `{}`",
                    file.display()
                );
                let hint = "name another folder with --state-dir";
                bad_value(settings, "gateway.auth", what, hint).with_cause(error.to_string())
            })?;
            vec![AuthMethod::TokenSource(tokens.source_with_local())]
        },
    };
    methods.extend(others);
    Ok(Auth::AnyOf(methods))
}

/// A network listener needs authentication, and so does `auth_required`.
fn check_listener(settings: &GatewaySettings) -> Result<(), ConfigError> {
    let listen = settings.listen;
    if listen.port() != 0 && settings.ops.address(listen) == Some(listen) {
        let what = format!("`ops.listen` and `gateway.listen` are both `{listen}`");
        let hint = "set another port for one of them";
        return Err(bad_value(settings, "ops.listen", what, hint));
    }
    if settings.auth_required && settings.auth == AuthMode::None {
        let what = "callers must authenticate, and `gateway.auth` is `none`";
        let hint =
            "set another `gateway.auth`, or remove `gateway.auth_required` (`AUTH_REQUIRED`)";
        return Err(bad_value(settings, "gateway.auth_required", what, hint));
    }
    let is_network_auth = !matches!(settings.auth, AuthMode::Local | AuthMode::None);
    if listen.ip().is_loopback() || is_network_auth {
        return Ok(());
    }
    let auth = settings.auth.as_str();
    let what = format!("`{listen}` is reachable from the network, and `gateway.auth` is `{auth}`");
    let hint = "create tokens with `warmline token new NAME` and set `gateway.auth = \"tokens\"`, \
                or listen on 127.0.0.1";
    Err(bad_value(settings, "gateway.listen", what, hint))
}

/// A certificate needs its key, and a key its certificate.
fn tls_files(settings: &GatewaySettings) -> Result<Option<TlsFiles>, ConfigError> {
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
            let hint = "set both files, or none";
            Err(incomplete(settings, key, missing, hint))
        },
    }
}

fn parse_run_from(settings: &GatewaySettings) -> Result<Vec<RunSource>, ConfigError> {
    let sources = settings.run_from.iter().map(|text| {
        RunSource::parse(text).ok_or_else(|| {
            let what = format!(
                "`{}` is not a place where clients name a run",
                shorten(text)
            );
            let hint = "write `_meta:KEY` or `header:NAME`";
            bad_value(settings, "gateway.run_from", what, hint)
        })
    });
    sources.collect()
}

/// A text of a user, short and without control characters.
fn shorten(text: &str) -> String {
    let short: String = text.chars().take(40).collect();
    short.escape_debug().to_string()
}

fn incomplete(
    settings: &GatewaySettings,
    key: &str,
    missing: &str,
    hint: impl Into<String>,
) -> ConfigError {
    let what = format!("`{key}` is set, and `{missing}` is not");
    bad_value(settings, key, what, hint)
}

/// What is wrong with a setting, at the place that set it.
fn bad_value(
    settings: &GatewaySettings,
    key: &str,
    what: impl Into<String>,
    hint: impl Into<String>,
) -> ConfigError {
    let error = ConfigError::new(Code::ConfigBadValue, what).with_hint(hint);
    match settings.origin(key) {
        SettingOrigin::File { file, line } => error.with_location(FileLocation {
            file,
            position: line.map(|line| (line, 1)),
            excerpt: None,
        }),
        SettingOrigin::Environment(variable) => error.with_cause(format!("{variable} sets it")),
        SettingOrigin::Builder | SettingOrigin::MachineLimit | SettingOrigin::Default => error,
    }
}
