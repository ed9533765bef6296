//! Tokens that somebody else signed (JWT): who issued them, for whom, until when.
//!
//! Asked by: the doorman, for a bearer token that none of ours is. Identity is issuer and subject,
//! never the bytes of a token: a refreshed token is the same somebody.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use jsonwebtoken::{Validation, decode, decode_header};
use papaya::HashMap;
use serde_json::Value;
use warmline::core::key::Digest;
use warmline::identity::IdentityName;
use warmline::{Warmline, clock};

use super::keys::{Key, KeySource, Keys};
use super::{Effort, Known, Mark, Shown};

/// Nothing longer is looked at.
const MAX_TOKEN: usize = 16 << 10;
/// So many verified tokens are remembered.
const MAX_VERIFIED: usize = 10_000;

/// How a signature is made. There is none without a signature, and none with a shared secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "they are called as the standard calls them")]
#[non_exhaustive]
pub enum Algorithm {
    Rs256,
    Rs384,
    Rs512,
    Ps256,
    Ps384,
    Ps512,
    Es256,
    Es384,
    EdDsa,
}

impl Algorithm {
    /// Every one, by its name in the standard.
    pub const ALL: [(&'static str, Self); 9] = [
        ("RS256", Self::Rs256),
        ("RS384", Self::Rs384),
        ("RS512", Self::Rs512),
        ("PS256", Self::Ps256),
        ("PS384", Self::Ps384),
        ("PS512", Self::Ps512),
        ("ES256", Self::Es256),
        ("ES384", Self::Es384),
        ("EdDSA", Self::EdDsa),
    ];

    /// The one of that name.
    pub fn parse(name: &str) -> Option<Self> {
        let found = Self::ALL.iter().find(|(known, _)| *known == name);
        found.map(|(_, algorithm)| *algorithm)
    }

    const fn meant(self) -> jsonwebtoken::Algorithm {
        match self {
            Self::Rs256 => jsonwebtoken::Algorithm::RS256,
            Self::Rs384 => jsonwebtoken::Algorithm::RS384,
            Self::Rs512 => jsonwebtoken::Algorithm::RS512,
            Self::Ps256 => jsonwebtoken::Algorithm::PS256,
            Self::Ps384 => jsonwebtoken::Algorithm::PS384,
            Self::Ps512 => jsonwebtoken::Algorithm::PS512,
            Self::Es256 => jsonwebtoken::Algorithm::ES256,
            Self::Es384 => jsonwebtoken::Algorithm::ES384,
            Self::EdDsa => jsonwebtoken::Algorithm::EdDSA,
        }
    }
}

/// Whose signed tokens count here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Jwt {
    /// Who must have issued them.
    pub issuer: String,
    /// For whom they must be issued: one of these. A token for somebody else is not for us.
    pub audiences: Vec<String>,
    /// Where the issuer's keys are.
    pub keys: KeySource,
    /// How they may be signed.
    pub algorithms: Vec<Algorithm>,
    /// By how much the clocks may differ.
    pub leeway: Duration,
    /// The claim that says who it is, beside the issuer: `sub`, where nobody wants another.
    pub identity_claim: String,
}

/// The claim that says who it is, by the standard.
const SUBJECT: &str = "sub";

impl Jwt {
    /// Tokens of an issuer for an audience, signed as is usual today.
    pub fn new(issuer: impl Into<String>, audience: impl Into<String>, keys: KeySource) -> Self {
        Self {
            issuer: issuer.into(),
            audiences: vec![audience.into()],
            keys,
            algorithms: vec![
                Algorithm::Rs256,
                Algorithm::Ps256,
                Algorithm::Es256,
                Algorithm::Es384,
                Algorithm::EdDsa,
            ],
            leeway: Duration::from_secs(60),
            identity_claim: SUBJECT.to_owned(),
        }
    }
}

/// Checks tokens, and remembers those that were good until they expire, or their key is taken back.
pub(super) struct Verifier {
    jwt: Jwt,
    keys: Keys,
    verified: HashMap<Digest, Arc<Known>>,
}

impl Verifier {
    pub(super) fn new(jwt: Jwt) -> Self {
        Self {
            keys: Keys::new(jwt.keys.clone()),
            jwt,
            verified: HashMap::new(),
        }
    }

    /// Whether it asks for the same.
    pub(super) fn asks_for(&self, jwt: &Jwt) -> bool {
        self.jwt == *jwt
    }

    /// Whether a token may count that the key with this mark signed.
    pub(super) fn holds(&self, mark: &Arc<Mark>) -> bool {
        self.keys.holds(mark)
    }

    /// Keys are looked for before any counts again, unless that takes longer than a moment.
    pub(super) fn doubt_keys(&self) {
        self.keys.doubt();
    }

    /// Whether other keys count since this was last asked. Where they should be looked for, that
    /// begins now, and whoever asks does not wait for it: a URL may hang.
    pub(super) fn has_changed(self: &Arc<Self>) -> bool {
        self.look_if_wanted();
        self.keys.have_changed()
    }

    fn look_if_wanted(self: &Arc<Self>) {
        if self.keys.want_a_look() {
            let this = Arc::clone(self);
            drop(clock::spawn("keys-look", async move {
                this.keys.look_ahead().await;
            }));
        }
    }

    /// Looks for keys that may have changed. While that takes long, those that are known count.
    async fn renew_keys(self: &Arc<Self>) {
        if self.keys.are_of_a_file() || !self.keys.are_known() {
            return self.keys.renew().await;
        }
        self.look_if_wanted();
        self.keys.wait_a_moment().await;
    }

    /// Whom a token stands for.
    pub(super) async fn find(
        self: &Arc<Self>,
        digest: Digest,
        text: &str,
        warm: &Warmline,
        effort: Effort,
    ) -> Option<Arc<Known>> {
        // On the heap, both: they happen seldom, and their futures are large.
        let may_look = effort == Effort::Full || self.keys.are_of_a_file();
        if may_look && !self.keys.are_fresh() {
            Box::pin(self.renew_keys()).await;
        }
        if let Some(known) = self.remembered(&digest) {
            return Some(known);
        }
        if text.len() > MAX_TOKEN {
            return None;
        }
        let known = Arc::new(Box::pin(self.verify(text, warm, effort)).await?);
        self.remember(digest, &known);
        Some(known)
    }

    /// Whom a token stands for that was found good, as long as its key counts.
    fn remembered(&self, digest: &Digest) -> Option<Arc<Known>> {
        let verified = self.verified.pin();
        let known = verified.get(digest)?;
        let Shown::Signed(mark) = &known.shown else {
            return None;
        };
        self.keys.holds(mark).then(|| Arc::clone(known))
    }

    async fn verify(&self, text: &str, warm: &Warmline, effort: Effort) -> Option<Known> {
        let header = decode_header(text).ok()?;
        let allowed = |one: &Algorithm| one.meant() == header.alg;
        // What must be understood and is not, is refused.
        if header.crit.is_some() || !self.jwt.algorithms.iter().any(allowed) {
            return None;
        }
        let name = header.kid.as_deref();
        let validation = self.validation(header.alg);
        let signed = |key: &Key| decode::<Value>(text, &key.key, &validation).ok();
        let (key, said) = match effort {
            Effort::Full => self.keys.find(name, header.alg, signed).await?,
            Effort::Little => self.keys.known(name, header.alg, signed)?,
        };
        let claims = said.claims;
        // A list of issuers is nobody's word.
        claims.get("iss")?.as_str()?;
        let claim = self.jwt.identity_claim.as_str();
        let subject = claims.get(claim)?.as_str().filter(|sub| !sub.is_empty())?;
        let leeway = self.jwt.leeway.as_secs();
        let expires_at = second(&claims, "exp")?.saturating_add(leeway);
        let begins_at = match claims.get("nbf") {
            Some(_) => second(&claims, "nbf")?.saturating_sub(leeway),
            None => 0,
        };
        let now = clock::wall_seconds();
        if !(begins_at..expires_at).contains(&now) {
            return None;
        }
        let issuer = self.jwt.issuer.as_str();
        // Values of two claims never mean the same somebody.
        let name = match claim {
            SUBJECT => IdentityName::composed(["jwt", issuer, subject]),
            _ => IdentityName::composed(["jwt", issuer, claim, subject]),
        };
        Some(Known {
            shown: Shown::Signed(Arc::clone(&key.mark)),
            identity: warm.identity_by(name),
            name: format!("{} {subject}", self.jwt.issuer),
            expires_at: Some(expires_at),
            claims: Some(claims),
        })
    }

    /// Issuer and audience are checked with the signature; times by our own clock.
    fn validation(&self, algorithm: jsonwebtoken::Algorithm) -> Validation {
        let mut validation = Validation::new(algorithm);
        validation.validate_exp = false;
        validation.validate_nbf = false;
        validation.set_issuer(&[&self.jwt.issuer]);
        validation.set_audience(&self.jwt.audiences);
        let needed = ["exp", "iss", "aud"].map(str::to_owned);
        validation.required_spec_claims = HashSet::from(needed);
        validation
    }

    fn remember(&self, digest: Digest, known: &Arc<Known>) {
        let verified = self.verified.pin();
        if verified.len() >= MAX_VERIFIED {
            verified.retain(|_, known| known.counts());
        }
        // All of them still count: they are checked again when they come.
        if verified.len() >= MAX_VERIFIED {
            verified.clear();
        }
        verified.insert(digest, Arc::clone(known));
    }
}

/// A claim that is a time: whole seconds of the Unix epoch, or parts of one.
fn second(claims: &Value, name: &str) -> Option<u64> {
    let claim = claims.get(name)?;
    claim.as_u64().or_else(|| {
        let second = claim.as_f64().filter(|second| *second >= 0.0)?;
        Duration::try_from_secs_f64(second)
            .ok()
            .map(|since| since.as_secs())
    })
}
