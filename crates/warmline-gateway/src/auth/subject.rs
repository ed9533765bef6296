//! The caller of a request, as authentication found it.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use warmline_core::pool_key::Digest;
use warmline_engine::admin::CallerAdmin as _;
use warmline_engine::{Caller, Warmline};
use warmline_platform::clock;

use super::LOCAL_IDENTITY;
use super::jwks::VerificationKey;
use crate::response::call_error::ErrorDetail;

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
    pub(super) expires_at: Option<u64>,
    pub(super) credential: PresentedCredential,
}

/// What a caller presented, as far as it is needed to check later that it still counts.
#[derive(Clone, Debug)]
pub(super) enum PresentedCredential {
    /// Nothing: the connection belongs to the local user.
    LocalUser,
    Token(Digest),
    SignedToken(Arc<VerificationKey>),
    ProxyHeader(IpAddr),
}

impl AuthenticatedSubject {
    pub(super) fn new(warm: &Warmline, name: &str, credential: PresentedCredential) -> Self {
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

    pub(super) fn is_unexpired(&self) -> bool {
        self.expires_at
            .is_none_or(|end| clock::wall_seconds() < end)
    }
}
