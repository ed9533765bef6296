//! `Secret`: where a secret comes from. Declaring one reads nothing, and it cannot be printed.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName};
use warmline_core::code::{Code, Reason};
use warmline_core::exchange::Trouble;
use zeroize::Zeroizing;

use super::CredentialProvider;
use crate::resolve::Lookup;
use crate::upstream::is_variable_name;

/// Where a secret comes from. It is read when it is needed, and cannot be printed.
#[derive(Clone)]
pub struct Secret {
    pub(super) source: Source,
    /// Without it, nothing is sent in its place.
    pub(super) optional: bool,
    pub(super) renew_after: Option<Duration>,
}

#[derive(Clone)]
pub(super) enum Source {
    Value(Arc<Zeroizing<String>>),
    Env(String),
    /// `{identity}` in it stands for the name of whoever asks.
    File(PathBuf),
    Command(Arc<[String]>),
    Provider(Arc<dyn CredentialProvider>),
    /// A header of the caller's request.
    CallerHeader(HeaderName),
    /// What a resolver gives as `Authorization`.
    Resolver(Lookup),
    /// The first of these that is there.
    FirstOf(Arc<[Secret]>),
}

impl Secret {
    /// A value that is known already.
    pub fn new(value: impl Into<String>) -> Self {
        Self::of(Source::Value(Arc::new(Zeroizing::new(value.into()))))
    }

    /// An environment variable, looked at for every request.
    pub fn env(name: impl Into<String>) -> Self {
        Self::of(Source::Env(name.into()))
    }

    /// The text of a file without the blanks around it, looked at again every second at most.
    /// `{identity}` in the path stands for the name of whoever asks, who must have a plain one. Of
    /// an identity of several parts all stand there, with commas between and the rest coded with
    /// `%`: `jwt,https%3A%2F%2Fidp.example.com,alice`.
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self::of(Source::File(path.into()))
    }

    /// What a program prints: its name or path first, then its arguments. There is no shell. It
    /// runs with our environment, gets 10 s, and is ended with all it started.
    pub fn command(words: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self::of(Source::Command(words.into_iter().map(Into::into).collect()))
    }

    /// The tokens of a provider.
    pub fn provider(provider: Arc<dyn CredentialProvider>) -> Self {
        Self::of(Source::Provider(provider))
    }

    /// A header of the caller's own request, which then counts by its value: another value is
    /// another credential, and another session.
    ///
    /// # Errors
    /// `config-bad-value`, if no header has that name, or if it is one that is meant for us.
    pub fn header(name: &str) -> Result<Self, Trouble> {
        let bad = |why: String| {
            let what = "a credential cannot be taken from this header of a caller";
            Trouble::new(Reason::InvalidRequest, what)
                .coded(Code::ConfigBadValue)
                .because(why)
        };
        let Ok(header) = HeaderName::try_from(name.trim()) else {
            let shown = name.trim().escape_debug();
            return Err(bad(format!("`{shown}` is not the name of a header")));
        };
        if OURS.contains(&header) {
            let why = format!("`{header}` says who the caller is, and never travels on");
            return Err(bad(why));
        }
        Ok(Self::of(Source::CallerHeader(header)))
    }

    /// The first of these that is there. One that is there and fails is not passed over.
    pub fn first_of(secrets: impl IntoIterator<Item = Self>) -> Self {
        Self::of(Source::FirstOf(secrets.into_iter().collect()))
    }

    /// The same, but nothing is sent where it is not there.
    #[must_use]
    pub fn optional(mut self) -> Self {
        self.optional = true;
        self
    }

    /// The same, asked for anew before that time is over.
    #[must_use]
    pub fn renew_after(mut self, time: Duration) -> Self {
        self.renew_after = Some(time);
        self
    }

    /// What the resolver of a server gives as `Authorization`, if it gives anything.
    pub(super) fn of_resolver(lookup: Lookup) -> Self {
        Self::of(Source::Resolver(lookup)).optional()
    }

    const fn of(source: Source) -> Self {
        Self {
            source,
            optional: false,
            renew_after: None,
        }
    }

    /// Why nothing can ever be had from it, if that can be said without looking.
    pub(crate) fn problem(&self) -> Option<String> {
        match &self.source {
            Source::Value(value) => {
                let is_missed = value.trim().is_empty() && !self.optional;
                is_missed.then(|| "the secret is empty".to_owned())
            },
            Source::Env(name) => (!is_variable_name(name))
                .then(|| format!("`{}` is not the name of a variable", name.escape_debug())),
            Source::File(path) => path
                .as_os_str()
                .is_empty()
                .then(|| "the path of its file is empty".to_owned()),
            Source::Command(words) => words
                .first()
                .is_none_or(|program| program.trim().is_empty())
                .then(|| "its command names no program".to_owned()),
            Source::FirstOf(secrets) if secrets.is_empty() => {
                Some("it is the first of no sources".to_owned())
            },
            Source::FirstOf(secrets) => secrets
                .iter()
                .filter(|secret| !matches!(secret.source, Source::Value(_)))
                .find_map(Self::problem),
            Source::Provider(_) | Source::CallerHeader(_) | Source::Resolver(_) => None,
        }
    }

    /// Whether it differs by identity.
    pub(crate) fn splits_by_identity(&self) -> bool {
        match &self.source {
            Source::Value(_)
            | Source::Env(_)
            | Source::Command(_)
            | Source::CallerHeader(_)
            | Source::Resolver(_) => false,
            Source::File(path) => names_identity(path),
            Source::Provider(provider) => provider.splits_by_identity(),
            Source::FirstOf(secrets) => secrets.iter().any(Self::splits_by_identity),
        }
    }

    /// Whether a header of a caller's request may be it.
    pub(super) fn is_of_caller(&self) -> bool {
        match &self.source {
            Source::CallerHeader(_) => true,
            Source::FirstOf(secrets) => secrets.iter().any(Self::is_of_caller),
            Source::Value(_)
            | Source::Env(_)
            | Source::File(_)
            | Source::Command(_)
            | Source::Provider(_)
            | Source::Resolver(_) => false,
        }
    }

    /// Whether this header of a caller's request may be it.
    pub(super) fn is_header(&self, header: &HeaderName) -> bool {
        match &self.source {
            Source::CallerHeader(name) => name == header,
            Source::FirstOf(secrets) => secrets.iter().any(|secret| secret.is_header(header)),
            Source::Value(_)
            | Source::Env(_)
            | Source::File(_)
            | Source::Command(_)
            | Source::Provider(_)
            | Source::Resolver(_) => false,
        }
    }

    /// Whether it is the same for ever.
    pub(crate) fn is_fixed(&self) -> bool {
        match &self.source {
            Source::Value(_) | Source::CallerHeader(_) => true,
            Source::Env(_)
            | Source::File(_)
            | Source::Command(_)
            | Source::Provider(_)
            | Source::Resolver(_) => false,
            Source::FirstOf(secrets) => secrets.iter().all(Self::is_fixed),
        }
    }

    /// The same for one request of a caller.
    pub(super) fn of_caller(self, headers: &HeaderMap) -> Self {
        let source = match self.source {
            Source::CallerHeader(name) => match only(headers, &name) {
                Some(value) => Source::Value(Arc::new(Zeroizing::new(value.trim().to_owned()))),
                None => Source::CallerHeader(name),
            },
            Source::FirstOf(secrets) => {
                let secrets = secrets.iter().cloned();
                Source::FirstOf(secrets.map(|secret| secret.of_caller(headers)).collect())
            },
            other @ (Source::Value(_)
            | Source::Env(_)
            | Source::File(_)
            | Source::Command(_)
            | Source::Provider(_)
            | Source::Resolver(_)) => other,
        };
        Self { source, ..self }
    }

    /// What tells it from other secrets, part by part. Only a keyed digest may be made of it: a
    /// value that was handed in is among them.
    pub(crate) fn marks(&self) -> Vec<Zeroizing<Vec<u8>>> {
        let mut marks = vec![mark(self.kind())];
        match &self.source {
            Source::Value(value) => marks.push(mark(value.as_str())),
            Source::Env(name) => marks.push(mark(name)),
            Source::File(path) => marks.push(mark(path.as_os_str().as_encoded_bytes())),
            Source::Command(words) => marks.extend(words.iter().map(mark)),
            Source::Provider(provider) => marks.push(mark(provider.label())),
            Source::CallerHeader(name) => marks.push(mark(name.as_str())),
            Source::Resolver(_) => {},
            Source::FirstOf(secrets) => {
                for secret in secrets.iter() {
                    let inner = secret.marks();
                    marks.push(mark(inner.len().to_be_bytes()));
                    marks.extend(inner);
                }
            },
        }
        marks
    }

    const fn kind(&self) -> &'static str {
        match &self.source {
            Source::Value(_) => "value",
            Source::Env(_) => "env",
            Source::File(_) => "file",
            Source::Command(_) => "command",
            Source::Provider(_) => "provider",
            Source::CallerHeader(_) => "header",
            Source::Resolver(_) => "resolver",
            Source::FirstOf(_) => "first of",
        }
    }
}

/// Where it comes from, without what could be a secret itself.
impl fmt::Display for Source {
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

/// Where it comes from.
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

/// Whether a path has a place for the name of whoever asks.
pub(super) fn names_identity(path: &std::path::Path) -> bool {
    path.to_str().is_some_and(|path| path.contains(IDENTITY))
}

/// The value of a header that stands there once: of two nobody knows which is meant.
fn only<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

fn mark(part: impl AsRef<[u8]>) -> Zeroizing<Vec<u8>> {
    Zeroizing::new(part.as_ref().to_vec())
}

/// Headers of a caller that are meant for us.
static OURS: [HeaderName; 3] = [
    http::header::AUTHORIZATION,
    http::header::PROXY_AUTHORIZATION,
    http::header::COOKIE,
];

/// The place in a path where the name of whoever asks stands.
pub(super) const IDENTITY: &str = "{identity}";
