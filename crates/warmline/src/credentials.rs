//! Credentials: what we show a server, taken fresh for every request.
//!
//! Asked by: the engine, before a call (is it ready?) and after a 401 (one refresh for all), and
//! the HTTP drivers, for the header of every request.  Told by: the environment, a file, a
//! command, or a [`CredentialProvider`].
//!
//! What counts as the same credential: its source, never the bytes of a token. A token that was
//!   refreshed keeps its sessions. Only a value that a caller hands in counts by its keyed digest.
//! What it must not do: print a secret, or let a source that hangs hang anybody else.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use warmline_core::code::Reason;
use warmline_core::exchange::Trouble;
use zeroize::Zeroizing;

use crate::identity::IdentityName;
use crate::resolve::Lookup;

pub(crate) mod asking;
mod command;
mod credential;
mod form;
mod secret;
mod source;

pub(crate) use credential::{Credential, Refreshed};
pub use form::Form;
pub use secret::Secret;

pub use crate::store::Stepping;

/// Gives out tokens: the door for sources that this crate does not know.
///
/// It is asked before the first call, again before a token expires, and once after a 401 for any
/// number of callers; never twice at the same time for the same credential.
pub trait CredentialProvider: Send + Sync + fmt::Debug {
    /// A token. `asked.refresh` says that the last one is no good any more.
    ///
    /// # Errors
    /// Says why there is none; see [`unavailable`].
    fn fetch<'a>(&'a self, asked: Asked<'a>) -> Stepping<'a, Result<Token, Trouble>>;

    /// What it is, without any secret: two providers with the same label are the same credential.
    fn label(&self) -> String;

    /// Whether its tokens differ by identity. If they do, no two identities share one.
    fn splits_by_identity(&self) -> bool {
        true
    }
}

/// For whom a token is wanted.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Asked<'a> {
    /// The server that will see it.
    pub server: &'a str,
    /// Who is asking; none if the provider does not split by identity.
    pub identity: Option<&'a IdentityName>,
    /// The last token was refused, or is about to expire.
    pub refresh: bool,
}

/// A token, and how long it is good for. It cannot be printed.
#[derive(Clone)]
pub struct Token {
    pub(crate) value: Zeroizing<String>,
    pub(crate) lasts: Lasts,
}

/// How long a token is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lasts {
    /// Until a server refuses it.
    UntilRefused,
    /// It is to be renewed before that time is over.
    For(Duration),
    /// Its source is cheap to ask: look again after that time.
    LookAgainAfter(Duration),
}

impl Token {
    /// A token that is good until a server refuses it.
    pub fn new(value: impl Into<String>) -> Self {
        Self {
            value: Zeroizing::new(value.into()),
            lasts: Lasts::UntilRefused,
        }
    }

    /// The same token, to be renewed before that time is over.
    #[must_use]
    pub fn expires_in(mut self, time: Duration) -> Self {
        self.lasts = Lasts::For(time);
        self
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token(hidden, {:?})", self.lasts)
    }
}

/// A secret and how it is shown: all a server needs to know about its credential.
#[derive(Clone, Debug)]
pub struct CredentialSource {
    pub(crate) secret: Secret,
    pub(crate) form: Form,
    pub(crate) within: Duration,
}

impl CredentialSource {
    /// Shown as `Authorization: Bearer …`.
    pub fn bearer(secret: Secret) -> Self {
        Self::shown(secret, Form::bearer())
    }

    /// Shown in a header and form of its own.
    pub fn shown(secret: Secret, form: Form) -> Self {
        Self {
            secret,
            form,
            within: FETCH_TIME,
        }
    }

    /// The tokens of a provider, shown as `Authorization: Bearer …`.
    pub fn provider(provider: Arc<dyn CredentialProvider>) -> Self {
        Self::bearer(Secret::provider(provider))
    }

    /// What the resolver of a server gives as `Authorization`, shown as it is.
    pub(crate) fn of_resolver(lookup: Lookup) -> Self {
        Self::shown(Secret::of_resolver(lookup), Form::whole())
    }

    /// The same with another limit on how long its source may take.
    #[must_use]
    pub fn within(mut self, time: Duration) -> Self {
        self.within = time;
        self
    }

    /// Whether each identity has a credential of its own.
    pub(crate) fn splits_by_identity(&self) -> bool {
        self.secret.splits_by_identity()
    }

    /// Whether a caller's own request holds it.
    pub(crate) fn is_of_caller(&self) -> bool {
        self.secret.is_of_caller()
    }

    /// Whether this header of a caller's request may hold it.
    pub(crate) fn is_header(&self, header: &http::HeaderName) -> bool {
        self.secret.is_header(header)
    }

    /// The same for the request of one caller: a secret that is a header of the caller's
    /// request becomes the value that stands there.
    #[must_use]
    pub fn of_caller(mut self, headers: &http::HeaderMap) -> Self {
        self.secret = self.secret.of_caller(headers);
        self
    }
}

/// The error of a source that has no token to give.
pub fn unavailable(what: impl Into<String>) -> Trouble {
    Trouble::new(Reason::CredentialUnavailable, what)
}

/// How long a source of secrets may take.
const FETCH_TIME: Duration = Duration::from_secs(10);

/// The most bytes that are read of a secret.
const SECRET_BYTES: usize = 64 << 10;
