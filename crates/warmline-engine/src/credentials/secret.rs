//! The source of a secret. Declaring one reads nothing, and it cannot be printed.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName};
use warmline_core::error::code::{Code, Reason};
use warmline_core::exchange::Diagnostic;
use zeroize::Zeroizing;

use super::CredentialProvider;
use crate::server_resolver::ServerLookup;
use warmline_upstream::is_variable_name;

/// The source of a secret. It is read when it is needed, and cannot be printed.
#[derive(Clone)]
pub struct Secret {
    pub(super) source: SecretSource,
    /// If it is missing, nothing is sent.
    pub(super) optional: bool,
    pub(super) renew_after: Option<Duration>,
}

#[derive(Clone)]
pub(super) enum SecretSource {
    Value(Arc<Zeroizing<String>>),
    Env(String),
    /// `{identity}` stands for the name of the caller.
    File(PathBuf),
    Command(Arc<[String]>),
    Provider(Arc<dyn CredentialProvider>),
    /// A header of the caller's request.
    CallerHeader(HeaderName),
    /// The `Authorization` of a resolver.
    Resolver(ServerLookup),
    /// The first of these that exists.
    FirstOf(Arc<[Secret]>),
}

impl Secret {
    /// A fixed value.
    pub fn new(value: impl Into<String>) -> Self {
        Self::from_source(SecretSource::Value(Arc::new(Zeroizing::new(value.into()))))
    }

    /// An environment variable, read for every request.
    pub fn env(name: impl Into<String>) -> Self {
        Self::from_source(SecretSource::Env(name.into()))
    }

    /// The trimmed text of a file, read again every second at most. `{identity}` in the path stands for
    /// the name of the caller, which must be plain. An identity of several parts is joined by commas
    /// and percent-encoded: `jwt,https%3A%2F%2Fidp.example.com,alice`.
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self::from_source(SecretSource::File(path.into()))
    }

    /// The output of a program, given by its name or path and its arguments. There is no shell. It runs
    /// with our environment for at most 10 s, and is ended with all that it started.
    pub fn command(words: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self::from_source(SecretSource::Command(
            words.into_iter().map(Into::into).collect(),
        ))
    }

    /// The tokens of a provider.
    pub fn provider(provider: Arc<dyn CredentialProvider>) -> Self {
        Self::from_source(SecretSource::Provider(provider))
    }

    /// A header of the caller's own request. It counts by its value: another value is another
    /// credential, and another session.
    ///
    /// # Errors
    /// `config-bad-value`, if the name is invalid, or if the header is meant for us.
    pub fn header(name: &str) -> Result<Self, Diagnostic> {
        let bad = |why: String| {
            let what = "a credential cannot be taken from this header of a caller";
            Diagnostic::new(Reason::InvalidRequest, what)
                .with_code(Code::ConfigBadValue)
                .with_cause(why)
        };
        let Ok(header) = HeaderName::try_from(name.trim()) else {
            let shown = name.trim().escape_debug();
            return Err(bad(format!("`{shown}` is not the name of a header")));
        };
        if RESERVED_HEADERS.contains(&header) {
            let why = format!("`{header}` says who the caller is, and never travels on");
            return Err(bad(why));
        }
        Ok(Self::from_source(SecretSource::CallerHeader(header)))
    }

    /// The first of these that exists. One that is there and fails is not passed over.
    pub fn first_of(secrets: impl IntoIterator<Item = Self>) -> Self {
        Self::from_source(SecretSource::FirstOf(secrets.into_iter().collect()))
    }

    /// The same, but nothing is sent if it is missing.
    #[must_use]
    pub fn optional(mut self) -> Self {
        self.optional = true;
        self
    }

    /// The same, read again before that time is over.
    #[must_use]
    pub fn renew_after(mut self, time: Duration) -> Self {
        self.renew_after = Some(time);
        self
    }

    /// The `Authorization` of a resolver, if it returns one.
    pub(super) fn from_resolver(lookup: ServerLookup) -> Self {
        Self::from_source(SecretSource::Resolver(lookup)).optional()
    }

    const fn from_source(source: SecretSource) -> Self {
        Self {
            source,
            optional: false,
            renew_after: None,
        }
    }

    /// Why it can never give a secret, if that is known without reading it.
    pub(crate) fn problem(&self) -> Option<String> {
        match &self.source {
            SecretSource::Value(value) => {
                let is_missed = value.trim().is_empty() && !self.optional;
                is_missed.then(|| "the secret is empty".to_owned())
            },
            SecretSource::Env(name) => (!is_variable_name(name))
                .then(|| format!("`{}` is not the name of a variable", name.escape_debug())),
            SecretSource::File(path) => path
                .as_os_str()
                .is_empty()
                .then(|| "the path of its file is empty".to_owned()),
            SecretSource::Command(words) => words
                .first()
                .is_none_or(|program| program.trim().is_empty())
                .then(|| "its command names no program".to_owned()),
            SecretSource::FirstOf(secrets) if secrets.is_empty() => {
                Some("it is the first of no sources".to_owned())
            },
            SecretSource::FirstOf(secrets) => secrets
                .iter()
                .filter(|secret| !matches!(secret.source, SecretSource::Value(_)))
                .find_map(Self::problem),
            SecretSource::Provider(_)
            | SecretSource::CallerHeader(_)
            | SecretSource::Resolver(_) => None,
        }
    }

    fn any(&self, is_such: &dyn Fn(&SecretSource) -> bool) -> bool {
        if let SecretSource::FirstOf(secrets) = &self.source {
            return secrets.iter().any(|secret| secret.any(is_such));
        }
        is_such(&self.source)
    }

    pub(crate) fn is_per_identity(&self) -> bool {
        self.any(&|source| {
            matches!(source, SecretSource::File(path) if has_identity_placeholder(path))
                || matches!(source, SecretSource::Provider(provider) if provider.is_per_identity())
        })
    }

    /// Whether a header of a caller's request may be it.
    pub(crate) fn is_caller_header(&self) -> bool {
        self.any(&|source| matches!(source, SecretSource::CallerHeader(_)))
    }

    /// Whether this header of a caller's request may be it.
    pub(crate) fn reads_header(&self, header: &HeaderName) -> bool {
        self.any(&|source| matches!(source, SecretSource::CallerHeader(name) if name == header))
    }

    pub(crate) fn is_constant(&self) -> bool {
        !self.any(&|source| {
            !matches!(
                source,
                SecretSource::Value(_) | SecretSource::CallerHeader(_)
            )
        })
    }

    /// The same for one request of a caller.
    pub(super) fn with_caller_headers(mut self, headers: &HeaderMap) -> Self {
        if let SecretSource::CallerHeader(name) = &self.source
            && let Some(value) = single_value(headers, name)
        {
            let value = Zeroizing::new(value.trim().to_owned());
            self.source = SecretSource::Value(Arc::new(value));
        } else if let SecretSource::FirstOf(secrets) = &self.source {
            let secrets = secrets.iter().cloned();
            let secrets = secrets.map(|secret| secret.with_caller_headers(headers));
            self.source = SecretSource::FirstOf(secrets.collect());
        }
        self
    }

    /// What identifies it, in parts. They may hold a secret value, so only a keyed digest may be made
    /// of them.
    pub(crate) fn digest_parts(&self) -> Vec<Zeroizing<Vec<u8>>> {
        let part = |part: &[u8]| Zeroizing::new(part.to_vec());
        let parts = |kind: &str, text: &[u8]| vec![part(kind.as_bytes()), part(text)];
        match &self.source {
            SecretSource::Value(value) => parts("value", value.as_bytes()),
            SecretSource::Env(name) => parts("env", name.as_bytes()),
            SecretSource::File(path) => parts("file", path.as_os_str().as_encoded_bytes()),
            SecretSource::Command(words) => {
                let words = words.iter().map(|word| part(word.as_bytes()));
                std::iter::once(part(b"command")).chain(words).collect()
            },
            SecretSource::Provider(provider) => parts("provider", provider.label().as_bytes()),
            SecretSource::CallerHeader(name) => parts("header", name.as_str().as_bytes()),
            SecretSource::Resolver(_) => vec![part(b"resolver")],
            SecretSource::FirstOf(secrets) => {
                let mut all = vec![part(b"first of")];
                for secret in secrets.iter() {
                    let inner = secret.digest_parts();
                    all.push(part(&inner.len().to_be_bytes()));
                    all.extend(inner);
                }
                all
            },
        }
    }
}

/// Shows the source without anything secret.
impl fmt::Display for SecretSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value(_) => f.write_str("a value"),
            Self::Env(name) => write!(f, "variable `{name}`"),
            Self::File(path) => write!(f, "file {}", path.display()),
            Self::Command(words) => {
                let program = words.first().map_or("", String::as_str);
                write!(f, "command `{program}`")
            },
            Self::Provider(provider) => write!(f, "provider {}", provider.label()),
            Self::CallerHeader(name) => write!(f, "header `{name}` of the caller"),
            Self::Resolver(_) => f.write_str("the resolver"),
            Self::FirstOf(secrets) => {
                let sources: Vec<_> = secrets.iter().map(Secret::to_string).collect();
                f.write_str(&sources.join(" or "))
            },
        }
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.source.fmt(f)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({self})")
    }
}

pub(super) fn has_identity_placeholder(path: &std::path::Path) -> bool {
    path.to_str()
        .is_some_and(|path| path.contains(IDENTITY_PLACEHOLDER))
}

/// The value of a header that appears once: of two, nobody knows which is meant.
fn single_value<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

/// Headers of a caller that are meant for us.
static RESERVED_HEADERS: [HeaderName; 3] = [
    http::header::AUTHORIZATION,
    http::header::PROXY_AUTHORIZATION,
    http::header::COOKIE,
];

/// Stands for the name of the caller in a path.
pub(super) const IDENTITY_PLACEHOLDER: &str = "{identity}";
