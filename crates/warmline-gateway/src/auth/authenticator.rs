//! Authenticators: one for each configured method, with its caches.

use std::sync::Arc;

use http::header::AUTHORIZATION;
use http::request::Parts;
use warmline_engine::Warmline;

use super::jwks::KeyLookup;
use super::jwt::JwtVerifier;
use super::subject::{AuthenticatedSubject, PresentedCredential};
use super::tokens::{self, TokenSourceCache};
use super::{Auth, AuthMethod, Peer, Subject, TrustedProxies};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AuthError {
    Missing,
    /// Its credential is unknown, revoked or expired.
    Unknown,
}

/// Authenticates requests, with any of the configured methods.
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
