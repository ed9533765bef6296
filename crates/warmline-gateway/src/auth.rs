//! Authentication: from what a request presents to the identity of its caller.
//!
//! Each request is authenticated before its body is read. A session id proves nothing, and what a
//! client presents goes no further than here.

mod authenticator;
mod jwks;
mod jwks_fetch;
mod jwt;
pub(crate) mod protected_resource;
mod subject;
pub mod token_store;
mod tokens;
mod trusted_proxy;

use std::net::IpAddr;

use warmline_engine::admin::EngineAdmin as _;
use warmline_engine::identity::IdentityName;
use warmline_engine::{Caller, Warmline};

pub(crate) use self::authenticator::{AuthError, Authenticators};
pub(crate) use self::jwks::KeyLookup;
pub use self::jwks::{JWT_ALGORITHMS, KeySource};
pub use self::jwt::{JwtAlgorithm, JwtOptions};
#[cfg(test)]
pub(crate) use self::subject::AuthenticatedSubject;
pub(crate) use self::subject::Subject;
pub use self::tokens::{BearerToken, TokenSource};
pub use self::trusted_proxy::{IpNetwork, TrustedProxies};

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
