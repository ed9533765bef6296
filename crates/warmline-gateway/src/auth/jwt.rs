//! Signed tokens (JWT): who issued them, for whom, and until when.
//!
//! The identity is issuer and subject, never the bytes of a token: a refreshed token has the same
//! identity.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

pub use jsonwebtoken::Algorithm as JwtAlgorithm;
use jsonwebtoken::{Validation, decode, decode_header};
use papaya::HashMap;
use serde_json::Value;
use warmline_core::pool_key::Digest;
use warmline_engine::Warmline;
use warmline_engine::admin::EngineAdmin as _;
use warmline_engine::identity::IdentityName;
use warmline_platform::clock;

use super::jwks::{JwksCache, KeyLookup, KeySource, VerificationKey};
use crate::auth::{AuthenticatedSubject, PresentedCredential};

const MAX_TOKEN_BYTES: usize = 16 << 10;
const MAX_VERIFIED: usize = 10_000;

/// Whose signed tokens are accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JwtOptions {
    /// The issuer.
    pub issuer: String,
    /// The audiences. A token must be for one of them.
    pub audiences: Vec<String>,
    /// Where the issuer's keys are.
    pub keys: KeySource,
    /// The allowed signature algorithms, of [`JWT_ALGORITHMS`](super::JWT_ALGORITHMS).
    pub algorithms: Vec<JwtAlgorithm>,
    /// By how much clocks may differ.
    pub leeway: Duration,
    /// The claim that names the identity, beside the issuer: usually `sub`.
    pub identity_claim: String,
}

const SUBJECT_CLAIM: &str = "sub";

impl JwtOptions {
    /// Tokens of an issuer for an audience, with the usual algorithms.
    pub fn new(issuer: impl Into<String>, audience: impl Into<String>, keys: KeySource) -> Self {
        Self {
            issuer: issuer.into(),
            audiences: vec![audience.into()],
            keys,
            algorithms: vec![
                JwtAlgorithm::RS256,
                JwtAlgorithm::PS256,
                JwtAlgorithm::ES256,
                JwtAlgorithm::ES384,
                JwtAlgorithm::EdDSA,
            ],
            leeway: Duration::from_secs(60),
            identity_claim: SUBJECT_CLAIM.to_owned(),
        }
    }
}

/// Verifies signed tokens. Caches verified ones until they expire or their key is revoked.
pub(super) struct JwtVerifier {
    pub(super) options: JwtOptions,
    pub(super) keys: Arc<JwksCache>,
    verified: HashMap<Digest, Arc<AuthenticatedSubject>>,
}

impl JwtVerifier {
    pub(super) fn new(options: JwtOptions) -> Self {
        Self {
            keys: Arc::new(JwksCache::new(options.keys.clone())),
            options,
            verified: HashMap::new(),
        }
    }

    pub(super) async fn authenticate(
        &self,
        (digest, token): (&Digest, &str),
        warm: &Warmline,
        lookup: KeyLookup,
    ) -> Option<Arc<AuthenticatedSubject>> {
        // Boxed, because these large futures are rarely needed.
        let may_load = lookup == KeyLookup::Fetch || self.keys.is_file();
        if may_load && self.keys.is_stale() {
            Box::pin(self.keys.refresh()).await;
        }
        if let Some(subject) = self.cached(digest) {
            return Some(subject);
        }
        if token.len() > MAX_TOKEN_BYTES {
            return None;
        }
        let subject = Arc::new(Box::pin(self.verify(token, warm, lookup)).await?);
        self.cache(*digest, &subject);
        Some(subject)
    }

    fn cached(&self, digest: &Digest) -> Option<Arc<AuthenticatedSubject>> {
        let verified = self.verified.pin();
        let subject = verified.get(digest)?;
        let PresentedCredential::SignedToken(key) = &subject.credential else {
            return None;
        };
        self.keys.contains(key).then(|| Arc::clone(subject))
    }

    async fn verify(
        &self,
        token: &str,
        warm: &Warmline,
        lookup: KeyLookup,
    ) -> Option<AuthenticatedSubject> {
        let header = decode_header(token).ok()?;
        // No critical header parameter is supported.
        if header.crit.is_some() || !self.options.algorithms.contains(&header.alg) {
            return None;
        }
        let validation = self.validation(header.alg);
        let verify =
            |key: &VerificationKey| decode::<Value>(token, &key.decoding_key, &validation).ok();
        let wanted = (header.kid.as_deref(), header.alg);
        let (key, verified) = self.keys.find(wanted, lookup, verify).await?;
        let claims = verified.claims;
        // `decode` accepts a list of issuers.
        claims.get("iss")?.as_str()?;
        let claim = self.options.identity_claim.as_str();
        let subject = claims.get(claim)?.as_str().filter(|sub| !sub.is_empty())?;
        let leeway = self.options.leeway.as_secs();
        let expires_at = numeric_date(&claims, "exp")?.saturating_add(leeway);
        let begins_at = match claims.get("nbf") {
            Some(_) => numeric_date(&claims, "nbf")?.saturating_sub(leeway),
            None => 0,
        };
        if !(begins_at..expires_at).contains(&clock::wall_seconds()) {
            return None;
        }
        let issuer = self.options.issuer.as_str();
        // Equal values of two claims are different identities.
        let identity = match claim {
            SUBJECT_CLAIM => IdentityName::composed(["jwt", issuer, subject]),
            _ => IdentityName::composed(["jwt", issuer, claim, subject]),
        };
        Some(AuthenticatedSubject {
            credential: PresentedCredential::SignedToken(key),
            identity: warm.identity_from_name(identity),
            name: format!("{issuer} {subject}"),
            expires_at: Some(expires_at),
            claims: Some(claims),
        })
    }

    /// Issuer and audience are checked with the signature; times by the clock of the gateway.
    fn validation(&self, algorithm: JwtAlgorithm) -> Validation {
        let mut validation = Validation::new(algorithm);
        validation.validate_exp = false;
        validation.validate_nbf = false;
        validation.set_issuer(&[&self.options.issuer]);
        validation.set_audience(&self.options.audiences);
        let required = ["exp", "iss", "aud"].map(str::to_owned);
        validation.required_spec_claims = HashSet::from(required);
        validation
    }

    fn cache(&self, digest: Digest, subject: &Arc<AuthenticatedSubject>) {
        let verified = self.verified.pin();
        if verified.len() >= MAX_VERIFIED {
            verified.retain(|_, subject| subject.is_unexpired());
        }
        // All of them are valid: they are verified again when they come.
        if verified.len() >= MAX_VERIFIED {
            verified.clear();
        }
        verified.insert(digest, Arc::clone(subject));
    }
}

/// A claim that is a time in whole or fractional seconds of the Unix epoch.
fn numeric_date(claims: &Value, name: &str) -> Option<u64> {
    let claim = claims.get(name)?;
    claim.as_u64().or_else(|| {
        let second = claim.as_f64().filter(|second| *second >= 0.0)?;
        Duration::try_from_secs_f64(second)
            .ok()
            .map(|since| since.as_secs())
    })
}
