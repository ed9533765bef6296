//! Credentials: what a server is shown, read fresh for every request.
//!
//! A credential is identified by its source, never by the bytes of a token: a refreshed token keeps
//! its sessions. Only a value that a caller sends counts by its keyed digest. No secret is printed,
//! and a source that hangs delays no other.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use warmline_core::error::code::Reason;
use warmline_core::exchange::Diagnostic;
use warmline_core::pool_key::Identity;
use zeroize::Zeroizing;

use crate::identity::IdentityName;
use crate::server_resolver::ServerLookup;

mod command;
mod credential;
mod header;
mod secret;
mod source;

pub(crate) use credential::{Credential, RefreshOutcome};
pub use header::CredentialHeader;
pub use secret::Secret;

pub use warmline_store::BoxFuture;

/// A custom source of tokens.
///
/// It is called before the first call, again before a token expires, and once after a 401 for any
/// number of callers; never twice at the same time for the same credential.
pub trait CredentialProvider: Send + Sync + fmt::Debug {
    /// Returns a token. `asked.refresh` says that the last one is no longer valid.
    ///
    /// # Errors
    /// Says why there is none; see [`credential_unavailable`].
    fn fetch<'a>(&'a self, asked: TokenRequest<'a>) -> BoxFuture<'a, Result<Token, Diagnostic>>;

    /// Identifies the provider, without any secret: the same label is the same credential.
    fn label(&self) -> String;

    /// Whether its tokens differ by identity. If they do, no two identities share one.
    fn is_per_identity(&self) -> bool {
        true
    }
}

/// What a token is requested for.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct TokenRequest<'a> {
    /// The server that will see it.
    pub server: &'a str,
    /// The identity; none if the provider does not split by identity.
    pub identity: Option<&'a IdentityName>,
    /// The last token was refused, or is about to expire.
    pub refresh: bool,
}

/// Who calls: a name for people and a digest for keys.
#[derive(Debug)]
pub(crate) struct CallerIdentity {
    pub(crate) name: IdentityName,
    pub(crate) id: Identity,
    /// The credential that the caller's own request carries for one server.
    pub(crate) request_credential: Option<Arc<Credential>>,
}

/// A token and its lifetime. It cannot be printed.
#[derive(Clone)]
pub struct Token {
    pub(crate) value: Zeroizing<String>,
    pub(crate) lifetime: TokenLifetime,
}

/// How long a token is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenLifetime {
    /// Until a server refuses it.
    UntilRefused,
    /// It is renewed before that time is over.
    ExpiresIn(Duration),
    /// Its source is cheap to read: read it again after that time.
    RecheckAfter(Duration),
}

impl Token {
    /// A token that is valid until a server refuses it.
    pub fn new(value: impl Into<String>) -> Self {
        Self {
            value: Zeroizing::new(value.into()),
            lifetime: TokenLifetime::UntilRefused,
        }
    }

    /// The same token, which is renewed before that time is over.
    #[must_use]
    pub fn expires_in(mut self, time: Duration) -> Self {
        self.lifetime = TokenLifetime::ExpiresIn(time);
        self
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token(hidden, {:?})", self.lifetime)
    }
}

/// A secret and the header that shows it.
#[derive(Clone, Debug)]
pub struct CredentialSource {
    /// The secret itself.
    pub secret: Secret,
    pub(crate) header: CredentialHeader,
    pub(crate) timeout: Duration,
}

impl CredentialSource {
    /// Shown as `Authorization: Bearer …`.
    pub fn bearer(secret: Secret) -> Self {
        Self::in_header(secret, CredentialHeader::bearer())
    }

    /// Shown in a header of your choice.
    pub fn in_header(secret: Secret, header: CredentialHeader) -> Self {
        Self {
            secret,
            header,
            timeout: FETCH_TIMEOUT,
        }
    }

    /// The tokens of a provider, shown as `Authorization: Bearer …`.
    pub fn provider(provider: Arc<dyn CredentialProvider>) -> Self {
        Self::bearer(Secret::provider(provider))
    }

    /// The `Authorization` that the resolver of a server returns, shown as it is.
    pub(crate) fn from_resolver(lookup: ServerLookup) -> Self {
        Self::in_header(Secret::from_resolver(lookup), CredentialHeader::raw())
    }

    /// The same with another time limit for its source.
    #[must_use]
    pub fn with_timeout(mut self, time: Duration) -> Self {
        self.timeout = time;
        self
    }

    /// The same for the request of one caller: a secret that is a header of the request becomes the
    /// value of that header.
    #[must_use]
    pub fn with_caller_headers(mut self, headers: &http::HeaderMap) -> Self {
        self.secret = self.secret.with_caller_headers(headers);
        self
    }
}

/// The error of a source that has no token.
pub fn credential_unavailable(what: impl Into<String>) -> Diagnostic {
    Diagnostic::new(Reason::CredentialUnavailable, what)
}

/// The time limit for a source of secrets.
const FETCH_TIMEOUT: Duration = Duration::from_secs(10);

/// The maximum size of a secret.
const MAX_SECRET_BYTES: usize = 64 << 10;
