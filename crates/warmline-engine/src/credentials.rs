//! Credentials: what a server is shown, read fresh for every request.
//!
//! A credential is identified by its source, never by the bytes of a token: a refreshed token keeps
//! its sessions. Only a value that a caller sends counts by its keyed digest. No secret is printed,
//! and a source that hangs delays no other.

mod credential;
mod secret;
mod source;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use credential::{Credential, RefreshOutcome};
use http::{HeaderName, HeaderValue};
pub use secret::Secret;
use warmline_core::error::code::{Code, Reason};
use warmline_core::exchange::Diagnostic;
use warmline_core::pool_key::Identity;
use warmline_core::protocol::headers::is_reserved_header;
use zeroize::Zeroizing;

use crate::identity::IdentityName;
use crate::server_resolver::ServerLookup;
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

const FETCH_TIMEOUT: Duration = Duration::from_secs(10);

const MAX_SECRET_BYTES: usize = 64 << 10;

/// The header that shows a secret to a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CredentialHeader {
    name: HeaderName,
    prefix: String,
    suffix: String,
}

impl CredentialHeader {
    /// `Authorization: Bearer {}`.
    pub fn bearer() -> Self {
        Self {
            name: http::header::AUTHORIZATION,
            prefix: "Bearer ".to_owned(),
            suffix: String::new(),
        }
    }

    /// `Authorization: {}`.
    fn raw() -> Self {
        Self {
            prefix: String::new(),
            ..Self::bearer()
        }
    }

    /// A header of that name; `form` holds `{}` once, where the secret goes.
    ///
    /// # Errors
    /// `config-bad-value`, if the name or the form cannot be used.
    pub fn new(name: &str, form: &str) -> Result<Self, Diagnostic> {
        let Ok(name) = HeaderName::try_from(name.trim()) else {
            let shown = name.trim().escape_debug();
            return Err(bad_credential_header(format!(
                "`{shown}` is not the name of a header"
            )));
        };
        if is_reserved_header(&name) {
            return Err(bad_credential_header(format!(
                "`{name}` is written by Warmline itself"
            )));
        }
        let (before, after) = match form.split_once("{}") {
            Some((before, after)) if !after.contains("{}") => (before, after),
            Some(_) | None => {
                return Err(bad_credential_header(
                    "the form holds `{}` once, for the secret",
                ));
            },
        };
        if HeaderValue::from_str(before).is_err() || HeaderValue::from_str(after).is_err() {
            return Err(bad_credential_header(
                "the form holds characters no header can carry",
            ));
        }
        Ok(Self {
            name,
            prefix: before.to_owned(),
            suffix: after.to_owned(),
        })
    }

    /// The name of the header.
    pub fn name(&self) -> &HeaderName {
        &self.name
    }

    /// The value that shows a secret; none if it is no valid header value.
    pub fn render(&self, secret: &str) -> Option<HeaderValue> {
        // A token that is stored with its prefix does not get it twice.
        let is_said = secret.get(..self.prefix.len());
        let is_said = is_said.is_some_and(|head| head.eq_ignore_ascii_case(&self.prefix));
        let bare = match is_said && !self.prefix.is_empty() {
            true => secret.get(self.prefix.len()..).unwrap_or(secret),
            false => secret,
        };
        let whole = Zeroizing::new(format!("{}{bare}{}", self.prefix, self.suffix));
        // Servers read other characters in different ways.
        let plain = |byte: u8| byte == b' ' || byte.is_ascii_graphic();
        let mut value = HeaderValue::from_str(&whole)
            .ok()
            .filter(|_| whole.bytes().all(plain))?;
        value.set_sensitive(true);
        Some(value)
    }

    pub(crate) fn digest_parts(&self) -> [&[u8]; 3] {
        [
            self.name.as_str().as_bytes(),
            self.prefix.as_bytes(),
            self.suffix.as_bytes(),
        ]
    }
}

fn bad_credential_header(why: impl Into<String>) -> Diagnostic {
    Diagnostic::new(
        Reason::InvalidRequest,
        "the form of the credential cannot be used",
    )
    .with_code(Code::ConfigBadValue)
    .with_cause(why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_stands_where_the_form_says() {
        let table = [
            ("Authorization", "Bearer {}", "Bearer s"),
            ("X-Api-Key", "{}", "s"),
            ("x-auth", "token={};v=1", "token=s;v=1"),
        ];
        for (name, form, shown) in table {
            let form = CredentialHeader::new(name, form).unwrap();
            let value = form.render("s").unwrap();
            assert_eq!(value, shown);
            // A word that stands before the secret already is not said twice.
            let before = shown.split('s').next().unwrap_or_default();
            if form == CredentialHeader::bearer() {
                assert_eq!(form.render(&format!("{before}s")).unwrap(), shown);
                assert_eq!(form.render("bearer s").unwrap(), shown);
            }
            assert!(value.is_sensitive());
        }
        assert_eq!(
            CredentialHeader::bearer(),
            CredentialHeader::new("authorization", "Bearer {}").unwrap()
        );
    }

    #[test]
    fn what_cannot_be_a_header_is_refused() {
        let table = [
            ("X Key", "{}"),
            ("", "{}"),
            ("Mcp-Session-Id", "{}"),
            ("Host", "{}"),
            ("X-Key", "Bearer"),
            ("X-Key", "{} {}"),
            ("X-Key", "a\n{}"),
        ];
        for (name, form) in table {
            let diagnostic = CredentialHeader::new(name, form).unwrap_err();
            assert_eq!(diagnostic.code, Code::ConfigBadValue, "{name} {form}");
        }
        for secret in ["a\nb", "a\0", "ä", "a\r"] {
            assert!(CredentialHeader::bearer().render(secret).is_none());
        }
    }
}
