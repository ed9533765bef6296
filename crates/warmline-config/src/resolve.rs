//! From a declaration to a server that can be used: variables expanded, the credential found.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use http::{HeaderName, HeaderValue};
use url::Url;
use warmline_core::error::code::Code;
use warmline_engine::credentials::{CredentialSource, Secret};
use warmline_engine::server::{DeclaredEndpoint, Server, ServerParts as _};
use warmline_engine::server_resolver::ServerResolver;
use warmline_engine::settings::config_error::ConfigError;
use warmline_engine::settings::{ServerSettings, VariableLookup};
use warmline_upstream::parse_url;
use warmline_upstream::target::{HttpConfig, ServerTarget, StdioConfig, TransportConfig};

use crate::declaration::{Declaration, DeclaredSecret, SensitiveText};
use crate::document::read_bounded;
use crate::expand::{expand, variable_names};

/// Looks up servers that are declared without a URL; none if nothing does.
pub type OptionalResolver = Option<Arc<dyn ServerResolver>>;

/// A server for a single command, with its settings.
#[derive(Clone, Debug)]
pub struct ConfiguredTarget {
    /// How it is reached, and with which credential.
    pub target: ServerTarget,
    /// Its settings, each with its origin.
    pub settings: ServerSettings,
}

/// The headers of the target are sent as they are.
impl From<ConfiguredTarget> for Server {
    fn from(configured: ConfiguredTarget) -> Self {
        let target = configured.target;
        let endpoint = DeclaredEndpoint::Static(target.transport);
        Self::from_parts(target.name, endpoint, configured.settings, None)
    }
}

impl Declaration {
    /// The server for a single command, with variables expanded and the credential read. Only
    /// trusted files get here.
    pub(crate) fn to_target(
        &self,
        lookup: VariableLookup<'_>,
    ) -> Result<ConfiguredTarget, ConfigError> {
        let mut reasons = self.disabled_reason.iter().chain(&self.unusable_reason);
        if let Some(error) = reasons.next() {
            return Err(error.clone());
        }
        if !self.settings.policy.enabled {
            let name = &self.original_name;
            let error = self.bad_value(format!("`{name}` is switched off by `enabled = false`"));
            return Err(error.with_hint("set it to `true`, or remove it"));
        }
        let mut transport = self.resolve_transport(lookup)?;
        if let TransportConfig::Http(http) = &mut transport {
            let credential = self.read_credential_header(&http.url, lookup)?;
            http.headers.extend(credential);
        }
        Ok(ConfiguredTarget {
            target: ServerTarget::new(self.name.clone(), transport),
            settings: self.settings.clone(),
        })
    }

    /// The server for an engine: variables are expanded, and the credential is a source that is read
    /// when it is needed. Only trusted files get here.
    pub(crate) fn to_server(
        &self,
        lookup: VariableLookup<'_>,
        resolver: &OptionalResolver,
    ) -> Result<Server, ConfigError> {
        if let Some(error) = self.unusable_reason.clone() {
            return Err(error);
        }
        let resolver = resolver.as_ref().filter(|_| self.url.is_none());
        let resolver = resolver.filter(|_| self.descriptor.slug.is_some());
        let url_env = self.variable_value(self.url_env.as_deref(), lookup)?;
        let (endpoint, credential) = match resolver.filter(|_| url_env.is_none()) {
            Some(resolver) if self.command.is_none() => {
                let endpoint = DeclaredEndpoint::Resolver {
                    resolver: Arc::clone(resolver),
                    headers: self.resolve_headers(lookup)?,
                    ca_file: self.in_base_folder(&self.ca_file),
                };
                // The resolver knows the URL, and so whether a token would be sent unencrypted.
                (endpoint, self.credential_source()?)
            },
            Some(_) | None => {
                let transport = self.resolve_transport(lookup)?;
                let credential = self.credential_source_for(&transport, lookup)?;
                (DeclaredEndpoint::Static(transport), credential)
            },
        };
        let server = Server::from_parts(&self.name, endpoint, self.settings.clone(), credential);
        let described = self.descriptor.clone();
        Ok(server.card(|card| {
            (card.id, card.slug) = (described.id, described.slug);
            (card.folder, card.labels) = (described.folder, described.labels);
        }))
    }

    fn resolve_transport(
        &self,
        lookup: VariableLookup<'_>,
    ) -> Result<TransportConfig, ConfigError> {
        let transport = match &self.command {
            Some(argv) => TransportConfig::Stdio(self.resolve_stdio(argv, lookup)?),
            None => TransportConfig::Http(self.resolve_http(lookup)?),
        };
        let checked = transport.check(&self.original_name);
        checked.map_err(|diagnostic| ConfigError::from_diagnostic(diagnostic, &self.location))?;
        Ok(transport)
    }

    fn resolve_http(&self, lookup: VariableLookup<'_>) -> Result<HttpConfig, ConfigError> {
        let mut substituted = self.substituted_variables(&self.url, lookup);
        if let Some(variable) = &self.url_env
            && let Some(value) = self.variable_value(Some(variable), lookup)?
        {
            substituted.insert(variable.clone(), value);
        }
        Ok(HttpConfig {
            url: self.resolve_url(lookup)?,
            headers: self.resolve_headers(lookup)?,
            ca_file: self.in_base_folder(&self.ca_file),
            substituted,
        })
    }

    fn resolve_url(&self, lookup: VariableLookup<'_>) -> Result<Url, ConfigError> {
        let name = &self.original_name;
        if let Some(variable) = &self.url_env
            && let Some(url) = self.variable_value(Some(variable), lookup)?
        {
            let what = format!("the variable `{variable}`, which `{name}` names, is not a URL");
            return parse_url(&url).map_err(|why| self.bad_value(what).with_cause(why));
        }
        let Some(written) = &self.url else {
            let missing = format!("`{name}` has no `url`");
            return Err(match (&self.url_env, &self.descriptor.slug) {
                (Some(variable), _) => self
                    .bad_value(format!("{missing}, and `{variable}` is not set"))
                    .with_hint(format!("set `{variable}`, or write the URL into the file")),
                (None, Some(_)) => self
                    .bad_value(format!("{missing}, and nothing here looks it up"))
                    .with_hint(
                        "a program that embeds Warmline can look it up by `slug` and `folder`",
                    ),
                (None, None) => self.bad_value(missing),
            });
        };
        parse_url(&self.expand_text(written, lookup)?).map_err(|why| {
            let what = format!("the `url` of `{name}` is not a URL");
            let mut error = self.bad_value(what).with_cause(why);
            // Not shown, as a URL may hold a secret.
            if let (Some(place), Some(_)) = (&mut error.location, written.position) {
                (place.position, place.excerpt) = (written.position, None);
            }
            error
        })
    }

    fn resolve_headers(
        &self,
        lookup: VariableLookup<'_>,
    ) -> Result<Vec<(HeaderName, HeaderValue)>, ConfigError> {
        let headers = self.headers.iter().map(|(name, value)| {
            let value = self.expand_text(value, lookup)?;
            parse_header(name, &value).map_err(|why| self.bad_value(why))
        });
        headers.collect()
    }

    fn resolve_stdio(
        &self,
        argv: &[SensitiveText],
        lookup: VariableLookup<'_>,
    ) -> Result<StdioConfig, ConfigError> {
        let words = argv.iter().map(|word| self.expand_text(word, lookup));
        let mut words = words.collect::<Result<Vec<_>, _>>()?.into_iter();
        let env = self.env.iter().map(|(name, value)| {
            let value = self.expand_text(value, lookup)?;
            Ok((name.clone(), value))
        });
        let program = words.next().ok_or_else(|| {
            let what = format!("the `command` of `{}` is empty", self.original_name);
            self.bad_value(what)
        })?;
        Ok(StdioConfig {
            program,
            args: words.collect(),
            env: env.collect::<Result<_, ConfigError>>()?,
            env_pass: self.env_pass.clone(),
            cwd: self.in_base_folder(&self.cwd),
            base_env: None,
            substituted: self.substituted_variables(argv, lookup),
        })
    }

    /// The credential for a URL: the variable that `auth_env` names, if it is set, or else the
    /// declared one.
    fn credential_source_for(
        &self,
        transport: &TransportConfig,
        lookup: VariableLookup<'_>,
    ) -> Result<Option<CredentialSource>, ConfigError> {
        let TransportConfig::Http(http) = transport else {
            return Ok(None);
        };
        if let Some(variable) = &self.auth_env
            && self.variable_value(Some(variable), lookup)?.is_some()
        {
            self.check_token_encrypted(&http.url)?;
            return Ok(Some(CredentialSource::bearer(Secret::env(variable))));
        }
        self.credential_source()
    }

    fn credential_source(&self) -> Result<Option<CredentialSource>, ConfigError> {
        let credential = self.credential.as_ref();
        let source = credential.map(|declared| declared.to_credential_source(&self.base_folder));
        source.transpose()
    }

    /// The source of its token, in words; none if it has none or if the token is in its headers.
    pub(crate) fn token_source(&self, lookup: VariableLookup<'_>) -> Option<String> {
        let auth_env = self.auth_env.as_deref();
        if let Ok(Some(_)) = self.variable_value(auth_env, lookup) {
            return Some(Secret::env(auth_env?).to_string());
        }
        let declared = self.credential_source().ok()??;
        Some(declared.secret.to_string())
    }

    /// The header with the token as it is now.
    fn read_credential_header(
        &self,
        url: &Url,
        lookup: VariableLookup<'_>,
    ) -> Result<Option<(HeaderName, HeaderValue)>, ConfigError> {
        let unsendable = || {
            let name = &self.name;
            self.bad_value(format!(
                "the token of `{name}` holds characters that no header can carry"
            ))
        };
        if let Some(token) = self.variable_value(self.auth_env.as_deref(), lookup)? {
            self.check_token_encrypted(url)?;
            let value = bearer_value(&token).ok_or_else(unsendable)?;
            return Ok(Some((http::header::AUTHORIZATION, value)));
        }
        let Some(credential) = &self.credential else {
            return Ok(None);
        };
        let header = credential.credential_header()?;
        let secret = self.read_secret(&credential.secret, lookup);
        let secret = secret.map_err(|error| error.with_location(credential.location.clone()))?;
        let value = header.render(&secret).ok_or_else(unsendable)?;
        Ok(Some((header.name().clone(), value)))
    }

    fn read_secret(
        &self,
        secret: &DeclaredSecret,
        lookup: VariableLookup<'_>,
    ) -> Result<String, ConfigError> {
        let bad = |what: String| ConfigError::new(Code::ConfigBadValue, what);
        let unsupported = |key: &str| {
            bad(format!(
                "a credential by `{key}` is not for single commands"
            ))
            .with_hint("use `credential = { env = \"NAME\" }` or `{ file = \"path\" }`")
        };
        let server = &self.name;
        match secret {
            DeclaredSecret::Env(name) => lookup.var(name)?.ok_or_else(|| {
                bad(format!(
                    "`{name}` is not set, and `{server}` takes its token from it"
                ))
                .with_hint(format!("set `{name}` in the environment of this command"))
            }),
            DeclaredSecret::File(file) => {
                let path = self.base_folder.join(file);
                let text = read_bounded(&path, MAX_TOKEN_BYTES);
                text.map(|text| text.trim().to_owned()).map_err(|why| {
                    bad(format!("the token of `{server}` cannot be read"))
                        .with_cause(format!("{}: {why}", path.display()))
                })
            },
            DeclaredSecret::Command(_) => Err(unsupported("command")),
            DeclaredSecret::Header(_) => Err(unsupported("header")),
        }
    }

    /// The token of a variable is never sent unencrypted: any server might name the variable.
    fn check_token_encrypted(&self, url: &Url) -> Result<(), ConfigError> {
        if !is_cleartext(url) {
            return Ok(());
        }
        let what = format!(
            "the token of `{}` would travel in the clear",
            self.original_name
        );
        Err(self
            .bad_value(what)
            .with_hint("use the `https` URL of the server"))
    }

    fn expand_text(
        &self,
        text: &SensitiveText,
        lookup: VariableLookup<'_>,
    ) -> Result<String, ConfigError> {
        expand(&text.text, self.expansion, lookup).map_err(|why| {
            let what = format!("a variable of `{}` cannot be filled in", self.original_name);
            self.bad_value(what)
                .with_cause(why)
                .with_hint("set it in the environment of this command, or write `${NAME:-VALUE}`")
        })
    }

    /// The values of the variables in these texts, by their names.
    fn substituted_variables<'t>(
        &self,
        texts: impl IntoIterator<Item = &'t SensitiveText>,
        lookup: VariableLookup<'_>,
    ) -> BTreeMap<String, String> {
        let texts = texts.into_iter();
        let names = texts.flat_map(|text| variable_names(&text.text, self.expansion));
        let values = names.filter_map(|name| {
            let value = lookup.var(&name).ok().flatten()?;
            Some((name, value))
        });
        values.collect()
    }

    fn in_base_folder(&self, path: &Option<PathBuf>) -> Option<PathBuf> {
        path.as_ref().map(|path| self.base_folder.join(path))
    }

    /// The value of a variable that this server names; none if it is unset or empty.
    fn variable_value(
        &self,
        variable: Option<&str>,
        lookup: VariableLookup<'_>,
    ) -> Result<Option<String>, ConfigError> {
        let value = variable.map(|variable| lookup.var(variable)).transpose();
        let value = value.map_err(|error| error.with_location(self.location.clone()))?;
        Ok(value.flatten().filter(|value| !value.is_empty()))
    }
}

/// A header as configured; its value counts as a secret.
///
/// # Errors
/// Says what is wrong with it, without repeating its value.
pub fn parse_header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), String> {
    let name = HeaderName::try_from(name.trim())
        .map_err(|_| format!("`{}` is not the name of a header", name.trim()))?;
    if warmline_core::protocol::headers::is_reserved_header(&name) {
        return Err(format!(
            "`{name}` is written by Warmline itself and cannot be set"
        ));
    }
    let mut value = HeaderValue::try_from(value.trim())
        .map_err(|_| format!("the value of `{name}` holds characters that no header can carry"))?;
    value.set_sensitive(true);
    Ok((name, value))
}

/// A bearer token as the value of `Authorization`, with or without `Bearer` in front; none if no
/// header can carry it.
pub fn bearer_value(token: &str) -> Option<HeaderValue> {
    const SCHEME: &str = "Bearer ";
    let token = token.trim();
    let bare = match token.split_at_checked(SCHEME.len()) {
        Some((head, rest)) if head.eq_ignore_ascii_case(SCHEME) => rest.trim(),
        Some(_) | None => token,
    };
    let mut value = HeaderValue::try_from(format!("{SCHEME}{bare}")).ok()?;
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

/// Whether a URL leaves this machine without TLS.
pub fn is_cleartext(url: &Url) -> bool {
    url.scheme() == "http" && !is_loopback(url)
}

/// The longest token file that is read.
const MAX_TOKEN_BYTES: u64 = 64 << 10;

#[cfg(test)]
mod tests {
    use std::path::Path;

    use warmline_core::exchange::Diagnostic;
    use warmline_core::policy::SessionMode;

    use super::*;
    use crate::parse_text;
    use warmline_engine::server_resolver::ResolvedServer;
    use warmline_engine::settings::{SettingOrigin, SettingsGroup as _};
    use warmline_store::{BoxFuture, ServerDescriptor};

    fn declared(text: &str, variables: &[(&str, &str)]) -> Result<Server, ConfigError> {
        let lookup = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let read = parse_text(Path::new("conf/warmline.toml"), text).unwrap();
        read.declarations[0].to_server(&lookup, &None)
    }

    fn credential(server: &Server) -> String {
        format!(
            "{:?}",
            server.credential_source().map(|source| &source.secret)
        )
    }

    #[test]
    fn a_declaration_becomes_a_server_with_its_settings_and_its_card() {
        let text = "[servers.a]\nurl = 'https://example.com/mcp'\nsessions = 'always'\nspares = 2\n\
                    slug = 's'\nfolder = 'f'\nid = '7'\nlabels = { team = 'lamp' }\n";
        let server = declared(text, &[]).unwrap();
        assert_eq!(server.name(), "a");
        assert_eq!(server.policy().sessions, SessionMode::Always);
        assert_eq!(server.policy().spares, 2);
        assert_eq!(
            server.settings().origin("spares").to_string(),
            "conf/warmline.toml:4"
        );
        let card = server.descriptor();
        assert_eq!(
            (card.slug.as_deref(), card.folder.as_deref()),
            (Some("s"), Some("f"))
        );
        assert_eq!(
            (card.id.as_deref(), card.label("team")),
            (Some("7"), Some("lamp"))
        );
        let changed = server.spares(2);
        assert_eq!(changed.settings().origin("spares"), SettingOrigin::Builder);
    }

    /// A177, A178: what a server shows is a source; a variable it names counts if it is set.
    #[test]
    fn the_credential_of_a_declaration_is_a_source_and_no_value() {
        let base = "[servers.a]\nurl = 'https://example.com'\n";
        assert_eq!(credential(&declared(base, &[]).unwrap()), "None");
        let by_env = format!("{base}credential = {{ env = 'X' }}\nauth_env = 'T'\n");
        assert_eq!(
            credential(&declared(&by_env, &[]).unwrap()),
            "Some(Secret(variable `X`))"
        );
        let set = [("T", "canary")];
        assert_eq!(
            credential(&declared(&by_env, &set).unwrap()),
            "Some(Secret(variable `T`))"
        );
        let clear = "[servers.a]\nurl = 'http://example.com'\nauth_env = 'T'\n";
        let error = declared(clear, &set).unwrap_err();
        assert_eq!(error.message, "the token of `a` would travel in the clear");
        let file = format!("{base}credential = {{ file = 'secrets/x' }}\n");
        let shown = credential(&declared(&file, &[]).unwrap());
        assert!(shown.contains("conf/secrets/x"), "{shown}");
    }

    /// S32: a server that is switched off is known, and off; it does not spoil the others.
    #[test]
    fn a_server_that_is_switched_off_is_declared_as_such() {
        let file = r#"{"mcpServers": {"a": {"url": "http://127.0.0.1:9/", "disabled": true}}}"#;
        let read = parse_text(Path::new("mcp.json"), file).unwrap();
        let server = read.declarations[0]
            .to_server(&|_: &str| None, &None)
            .unwrap();
        assert!(!server.policy().enabled);
        assert_eq!(
            server.settings().origin("enabled").to_string(),
            "mcp.json:1"
        );
        let server = declared("[servers.a]\nurl = 'http://x'\nenabled = false\n", &[]).unwrap();
        assert!(!server.policy().enabled);
    }

    #[derive(Debug)]
    struct Directory;

    impl ServerResolver for Directory {
        fn resolve<'a>(
            &'a self,
            _: &'a ServerDescriptor,
        ) -> BoxFuture<'a, Result<ResolvedServer, Diagnostic>> {
            Box::pin(async { ResolvedServer::from_url("http://127.0.0.1:9/") })
        }
    }

    /// S33: a server that is known by slug and folder needs a resolver.
    #[test]
    fn a_server_without_a_url_is_left_to_the_resolver() {
        let text = "[servers.a]\nslug = 'github'\nfolder = 'Shared'\n";
        let error = declared(text, &[]).unwrap_err();
        assert_eq!(
            error.message,
            "`a` has no `url`, and nothing here looks it up"
        );
        let read = parse_text(Path::new("warmline.toml"), text).unwrap();
        let resolver: OptionalResolver = Some(Arc::new(Directory));
        let server = read.declarations[0]
            .to_server(&|_: &str| None, &resolver)
            .unwrap();
        assert!(matches!(
            server.endpoint(),
            DeclaredEndpoint::Resolver { .. }
        ));
        assert_eq!(server.descriptor().folder.as_deref(), Some("Shared"));
    }
}
