//! Authentication: from what a request presents to the identity of its caller.
//!
//! Each request is authenticated before its body is read. A session id proves nothing, and what a
//! client presents goes no further than here.

mod jwks;
mod jwt;
pub(crate) mod protected_resource;
pub mod token_store;
mod tokens;
mod trusted_proxy;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::header::AUTHORIZATION;
use http::request::Parts;
use serde_json::Value;
use warmline_core::pool_key::Digest;
use warmline_engine::admin::{CallerAdmin as _, EngineAdmin as _};
use warmline_engine::identity::IdentityName;
use warmline_engine::{Caller, Warmline};
use warmline_platform::clock;

pub(crate) use self::jwks::KeyLookup;
use self::jwks::VerificationKey;
pub use self::jwks::{JWT_ALGORITHMS, KeySource};
use self::jwt::JwtVerifier;
pub use self::jwt::{JwtAlgorithm, JwtOptions};
use self::tokens::TokenSourceCache;
pub use self::tokens::{BearerToken, FileStamps, TokenSource};
pub use self::trusted_proxy::{IpNetwork, TrustedProxies};
use crate::response::call_error::ErrorDetail;

/// The identity of the local machine token, and of every caller on a local socket or a pipe.
pub const LOCAL_IDENTITY: &str = "local";

/// How callers authenticate.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum Auth {
    /// Not at all. Callers share nothing but a run that they name.
    #[default]
    None,
    /// With any of these methods, tried in order.
    AnyOf(Vec<AuthMethod>),
}

impl Auth {
    /// With one of these tokens.
    pub fn tokens(tokens: Vec<BearerToken>) -> Self {
        let source = TokenSource::watching([], move |_| tokens.clone());
        Self::AnyOf(vec![AuthMethod::TokenSource(source)])
    }
}

/// A method of authentication.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum AuthMethod {
    /// Bearer tokens from a source that may change at any time.
    TokenSource(TokenSource),
    /// Tokens that an issuer signed.
    Jwt(JwtOptions),
    /// A header of a proxy that authenticates callers.
    TrustedProxies(TrustedProxies),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    Address(IpAddr),
    /// A local socket or a pipe of the user who runs the gateway.
    SameUser,
}

impl Peer {
    pub(crate) const fn address(self) -> Option<IpAddr> {
        match self {
            Self::Address(address) => Some(address),
            Self::SameUser => None,
        }
    }

    pub(crate) fn address_text(self) -> Option<String> {
        self.address().map(|address| address.to_string())
    }
}

/// What separates anonymous callers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AnonymousScope<'a> {
    /// The run that they name.
    Run(&'a str),
    /// Their client session, by the name of its own run.
    ClientSession(&'a str),
    /// They share nothing.
    Request,
}

pub(crate) fn caller_for(warm: &Warmline, subject: &Subject, scope: AnonymousScope<'_>) -> Caller {
    let name = match (subject, scope) {
        (Subject::Authenticated(known), _) => return known.identity.clone(),
        (Subject::Anonymous, AnonymousScope::Run(run)) => format!("anybody/run/{run}"),
        (Subject::Anonymous, AnonymousScope::ClientSession(run)) => format!("anybody/{run}"),
        (Subject::Anonymous, AnonymousScope::Request) => {
            return warm.identity_from_name(IdentityName::for_one_call());
        },
    };
    warm.identity(&name)
}

#[derive(Clone, Debug)]
pub(crate) enum Subject {
    Authenticated(Arc<AuthenticatedSubject>),
    /// Nobody has to authenticate. Calls are separated by the run or the client session they name.
    Anonymous,
}

impl Subject {
    pub(crate) fn local_user(warm: &Warmline) -> Self {
        let credential = PresentedCredential::LocalUser;
        let subject = AuthenticatedSubject::new(warm, LOCAL_IDENTITY, credential);
        Self::Authenticated(Arc::new(subject))
    }

    fn known(&self) -> Option<&AuthenticatedSubject> {
        match self {
            Self::Authenticated(known) => Some(known),
            Self::Anonymous => None,
        }
    }

    /// How long the credential stays valid; `None` if it does not expire.
    pub(crate) fn remaining_validity(&self) -> Option<Duration> {
        let left = self
            .known()?
            .expires_at?
            .saturating_sub(clock::wall_seconds());
        Some(Duration::from_secs(left))
    }

    /// How much detail the caller's errors have. The local user sees full causes.
    pub(crate) fn error_detail(&self) -> ErrorDetail {
        match self.known() {
            Some(known) if known.is_local_user() => ErrorDetail::Full,
            Some(_) | None => ErrorDetail::Limited,
        }
    }

    pub(crate) fn quota_key(&self) -> Option<Digest> {
        Some(self.known()?.identity.digest())
    }

    pub(crate) fn audit_name(&self) -> &str {
        self.known().map_or("anybody", |known| &known.name)
    }
}

#[derive(Debug)]
pub(crate) struct AuthenticatedSubject {
    pub(crate) identity: Caller,
    /// The name of the identity; never a credential.
    pub(crate) name: String,
    pub(crate) claims: Option<Value>,
    /// When the credential expires, in seconds of the Unix epoch.
    expires_at: Option<u64>,
    credential: PresentedCredential,
}

/// What a caller presented, as far as it is needed to check later that it still counts.
#[derive(Clone, Debug)]
enum PresentedCredential {
    /// Nothing: the connection belongs to the local user.
    LocalUser,
    Token(Digest),
    SignedToken(Arc<VerificationKey>),
    ProxyHeader(IpAddr),
}

impl AuthenticatedSubject {
    fn new(warm: &Warmline, name: &str, credential: PresentedCredential) -> Self {
        Self {
            identity: warm.identity(name),
            name: name.to_owned(),
            claims: None,
            expires_at: None,
            credential,
        }
    }

    #[cfg(test)]
    pub(crate) fn for_tests(warm: &Warmline, name: &str, claims: Option<Value>) -> Self {
        Self {
            claims,
            ..Self::new(warm, name, PresentedCredential::LocalUser)
        }
    }

    fn is_local_user(&self) -> bool {
        match self.credential {
            PresentedCredential::LocalUser => true,
            PresentedCredential::Token(_) => self.name == LOCAL_IDENTITY,
            PresentedCredential::SignedToken(_) | PresentedCredential::ProxyHeader(_) => false,
        }
    }

    fn is_unexpired(&self) -> bool {
        self.expires_at
            .is_none_or(|end| clock::wall_seconds() < end)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AuthError {
    Missing,
    /// Its credential is unknown, revoked or expired.
    Unknown,
}

pub(crate) struct Authenticators {
    warmline: Warmline,
    /// `None` if callers need not authenticate.
    methods: Option<Vec<Authenticator>>,
    local_user: Subject,
}

enum Authenticator {
    Tokens(TokenSourceCache),
    Jwt(Arc<JwtVerifier>),
    TrustedProxies(TrustedProxies),
}

impl Authenticators {
    /// Verifiers of `previous` with the same options keep the tokens that they have verified.
    pub(crate) fn new(auth: Auth, warmline: Warmline, previous: Option<&Self>) -> Self {
        let previous = previous.map(Self::methods).unwrap_or_default();
        let new = |method| Authenticator::new(method, previous);
        let methods = match auth {
            Auth::None => None,
            Auth::AnyOf(methods) => Some(methods.into_iter().map(new).collect()),
        };
        Self {
            methods,
            local_user: Subject::local_user(&warmline),
            warmline,
        }
    }

    fn methods(&self) -> &[Authenticator] {
        self.methods.as_deref().unwrap_or_default()
    }

    pub(crate) fn accepts_tokens(&self) -> bool {
        let is_proxy = |method: &Authenticator| matches!(method, Authenticator::TrustedProxies(_));
        !self.methods().iter().all(is_proxy)
    }

    /// Whether tokens or keys changed since the last call.
    pub(crate) fn has_changed(&self) -> bool {
        // Each is called, so that none reports the same change later.
        let changed = self.methods().iter().map(Authenticator::has_changed);
        changed.fold(false, |any, changed| any | changed)
    }

    /// Has published keys fetched again before they count.
    pub(crate) fn invalidate_keys(&self) {
        for method in self.methods() {
            if let Authenticator::Jwt(verifier) = method {
                verifier.keys.invalidate();
            }
        }
    }

    /// Whether a caller who authenticated earlier would be accepted now.
    pub(crate) fn still_accepts(&self, subject: &Subject) -> bool {
        match subject {
            Subject::Anonymous => self.methods.is_none(),
            Subject::Authenticated(known) => {
                let is_local_user = matches!(known.credential, PresentedCredential::LocalUser);
                let mut methods = self.methods().iter();
                known.is_unexpired()
                    && (is_local_user
                        || methods.any(|method| method.still_accepts(known, &self.warmline)))
            },
        }
    }

    pub(crate) async fn authenticate(
        &self,
        head: &Parts,
        peer: Peer,
        lookup: KeyLookup,
    ) -> Result<Subject, AuthError> {
        let Peer::Address(address) = peer else {
            return Ok(self.local_user.clone());
        };
        let Some(methods) = &self.methods else {
            return Ok(Subject::Anonymous);
        };
        let mut proxies = methods.iter().filter_map(|method| match method {
            Authenticator::TrustedProxies(proxies) => Some(proxies),
            Authenticator::Tokens(_) | Authenticator::Jwt(_) => None,
        });
        if let Some(name) = proxies.find_map(|proxies| proxies.identity_from_header(head, address))
        {
            let credential = PresentedCredential::ProxyHeader(address);
            let subject = AuthenticatedSubject::new(&self.warmline, name, credential);
            return Ok(Subject::Authenticated(Arc::new(subject)));
        }
        let token = bearer_token(head).ok_or(AuthError::Missing)?;
        let digest = tokens::token_digest(self.warmline.vault(), token);
        for method in methods {
            let found = match method {
                Authenticator::Tokens(cache) => cache.find(&digest, &self.warmline),
                Authenticator::Jwt(verifier) => {
                    let token = (&digest, token);
                    verifier.authenticate(token, &self.warmline, lookup).await
                },
                Authenticator::TrustedProxies(_) => None,
            };
            if let Some(subject) = found {
                let is_valid = subject.is_unexpired();
                return is_valid
                    .then_some(Subject::Authenticated(subject))
                    .ok_or(AuthError::Unknown);
            }
        }
        Err(AuthError::Unknown)
    }
}

impl Authenticator {
    fn new(method: AuthMethod, previous: &[Self]) -> Self {
        match method {
            AuthMethod::TokenSource(source) => Self::Tokens(TokenSourceCache::new(source)),
            AuthMethod::TrustedProxies(proxies) => Self::TrustedProxies(proxies),
            AuthMethod::Jwt(options) => {
                let same = previous.iter().find_map(|method| match method {
                    Self::Jwt(verifier) if verifier.options == options => {
                        Some(Arc::clone(verifier))
                    },
                    Self::Jwt(_) | Self::Tokens(_) | Self::TrustedProxies(_) => None,
                });
                Self::Jwt(same.unwrap_or_else(|| Arc::new(JwtVerifier::new(options))))
            },
        }
    }

    fn has_changed(&self) -> bool {
        match self {
            Self::Tokens(cache) => cache.has_changed(),
            Self::Jwt(verifier) => verifier.keys.has_changed(),
            Self::TrustedProxies(_) => false,
        }
    }

    fn still_accepts(&self, known: &AuthenticatedSubject, warm: &Warmline) -> bool {
        match (self, &known.credential) {
            (Self::Tokens(cache), PresentedCredential::Token(digest)) => {
                let found = cache.find(digest, warm);
                found.is_some_and(|found| found.is_unexpired() && found.name == known.name)
            },
            (Self::Jwt(verifier), PresentedCredential::SignedToken(key)) => {
                verifier.keys.contains(key)
            },
            (Self::TrustedProxies(proxies), PresentedCredential::ProxyHeader(address)) => {
                proxies.contains(*address)
            },
            _ => false,
        }
    }
}

/// The token of `Authorization: Bearer …`, if there is exactly one.
fn bearer_token(head: &Parts) -> Option<&str> {
    let mut values = head.headers.get_all(AUTHORIZATION).iter();
    let value = values.next()?.to_str().ok()?;
    if values.next().is_some() {
        return None;
    }
    let (scheme, token) = value.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}
