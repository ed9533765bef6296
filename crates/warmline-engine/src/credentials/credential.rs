//! One credential of a server: its current token, and how the next one is fetched.
//!
//! Reading it costs one atomic load; nothing is locked unless a token is fetched. It is renewed in the
//! background before it expires; by the first caller after that; and after a 401.

use std::sync::Arc;

use http::{HeaderName, HeaderValue};
use tokio::task::JoinHandle;
use warmline_core::error::code::Reason;
use warmline_core::exchange::Diagnostic;
use warmline_core::pool_key::CredentialId;

use super::source::SecretResult;
use super::{CredentialSource, Token, TokenLifetime, TokenRequest, credential_unavailable};
use crate::identity::IdentityName;
use crate::single_flight::{RefreshableValue, VersionedValue};
use warmline_platform::clock::{self, Instant};
use warmline_store::keyring::{Keyring, Purpose};
use warmline_upstream::{HeaderSource, RenewFuture};

/// One credential of a server, for one identity where it splits by identity.
#[derive(Clone, Debug)]
pub(crate) struct Credential(Arc<CredentialState>);

#[derive(Debug)]
struct CredentialState {
    server: Arc<str>,
    source: CredentialSource,
    /// Only where the source splits by identity.
    identity: Option<IdentityName>,
    id: CredentialId,
    header: Arc<RefreshableValue<CachedHeader>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RefreshOutcome {
    /// Another token than the one that was refused.
    NewToken,
    /// The same token: another attempt is of no use.
    SameToken,
}

struct CachedHeader {
    /// None if an optional secret is missing.
    value: Option<HeaderValue>,
    renew_at: Option<Instant>,
    expires_at: Option<Instant>,
}

enum TokenFreshness {
    Fresh,
    RenewalDue,
    Expired,
}

impl Credential {
    /// Cancels the fetch under way: nobody needs its result.
    pub(crate) fn stop(&self) -> Option<JoinHandle<()>> {
        self.0.header.stop()
    }

    /// A credential of a server, for one identity where it splits by identity.
    pub(crate) fn new(
        source: CredentialSource,
        server: &str,
        identity: Option<&IdentityName>,
        vault: &Keyring,
    ) -> Self {
        let identity = identity
            .filter(|_| source.secret.is_per_identity())
            .cloned();
        let id = credential_id(&source, identity.as_ref(), vault);
        let whom = format!("the credential of `{server}`");
        let tokens = RefreshableValue::new(whom, Reason::CredentialUnavailable, source.timeout);
        Self(Arc::new(CredentialState {
            server: server.into(),
            source,
            identity,
            id,
            header: tokens,
        }))
    }

    /// Identifies it by its source, never by a token.
    pub(crate) fn id(&self) -> CredentialId {
        self.0.id
    }

    pub(crate) fn header(&self) -> Option<(HeaderName, HeaderValue)> {
        let value = self
            .0
            .header
            .with_current(|held| held.value.value.clone())??;
        Some((self.0.source.header.name().clone(), value))
    }

    /// The number of the current token; 0 before the first. After a 401 it says which one was refused.
    pub(crate) fn epoch(&self) -> u64 {
        self.0.header.epoch()
    }

    pub(crate) fn can_refresh(&self) -> bool {
        !self.0.source.secret.is_constant()
    }

    /// Makes sure that there is a valid token, with one fetch for any number of callers.
    pub(crate) async fn ensure_ready(&self) -> Result<(), Diagnostic> {
        if self.update_without_waiting()? {
            return Ok(());
        }
        let now = clock::now();
        let held = |held: &VersionedValue<CachedHeader>| (held.epoch, held.value.freshness_at(now));
        match self.0.header.with_current(held) {
            Some((_, TokenFreshness::Fresh)) => Ok(()),
            Some((seen, TokenFreshness::RenewalDue)) => {
                self.0
                    .header
                    .refresh_ahead(seen, || self.clone().fetch(seen));
                Ok(())
            },
            Some((seen, TokenFreshness::Expired)) => self.fetch_newer_than(seen).await,
            None => self.fetch_newer_than(0).await,
        }
    }

    /// After a 401: fetches a newer token than number `seen`, once for any number of callers. If that
    /// fails, all callers that waited get the error, and the next caller fetches again.
    pub(crate) async fn refresh(&self, seen: u64) -> Result<RefreshOutcome, Diagnostic> {
        if !self.update_without_waiting()? {
            self.fetch_newer_than(seen).await?;
        }
        let since = self
            .0
            .header
            .with_current(|held| held.unchanged_since)
            .unwrap_or(0);
        Ok(if since > seen {
            RefreshOutcome::NewToken
        } else {
            RefreshOutcome::SameToken
        })
    }

    /// Adds the source of a refused token as a hint. Remote callers never see hints: this one may name
    /// a file of this machine.
    pub(crate) fn name_source_in(sent: Option<&Arc<Self>>, diagnostic: Diagnostic) -> Diagnostic {
        let is_refused = matches!(diagnostic.reason, Reason::Unauthorized | Reason::Forbidden);
        let Some(sent) = sent.filter(|sent| is_refused && sent.header().is_some()) else {
            return diagnostic;
        };
        let (server, from) = (&sent.0.server, &sent.0.source.secret);
        diagnostic.with_hint(format!(
            "the token that was sent comes from {from}: check that `{server}` accepts it"
        ))
    }

    async fn fetch_newer_than(&self, seen: u64) -> Result<(), Diagnostic> {
        let ask = || self.clone().fetch(seen);
        self.0.header.get_newer_than(seen, ask).await.map(drop)
    }

    /// Reads a source that needs no waiting; false for other sources.
    fn update_without_waiting(&self) -> Result<bool, Diagnostic> {
        let Some(found) = self.0.source.secret.read_now(&self.0.server) else {
            return Ok(false);
        };
        self.0.header.set_if_changed(self.cached_header(found)?);
        Ok(true)
    }

    async fn fetch(self, seen: u64) -> Result<CachedHeader, Diagnostic> {
        let asked = TokenRequest {
            server: &self.0.server,
            identity: self.0.identity.as_ref(),
            refresh: seen > 0,
        };
        let found = self.0.source.secret.fetch(asked).await;
        self.cached_header(found)
    }

    fn cached_header(&self, found: SecretResult) -> Result<CachedHeader, Diagnostic> {
        let token = match found {
            Ok(token) => token,
            Err(error) if error.is_missing && self.0.source.secret.optional => {
                return Ok(CachedHeader::EMPTY);
            },
            Err(error) => return Err(error.diagnostic),
        };
        let Some(value) = self.0.source.header.render(token.value.trim()) else {
            let what = format!("the credential of `{}` cannot be sent", self.0.server);
            return Err(
                credential_unavailable(what).with_cause("it holds characters no header can carry")
            );
        };
        Ok(CachedHeader::from_token(value, &token))
    }
}

impl HeaderSource for Credential {
    fn header(&self) -> Option<(HeaderName, HeaderValue)> {
        Self::header(self)
    }

    fn epoch(&self) -> u64 {
        Self::epoch(self)
    }

    fn renew(&self, refused: u64) -> RenewFuture<'_> {
        Box::pin(async move {
            self.can_refresh()
                && matches!(self.refresh(refused).await, Ok(RefreshOutcome::NewToken))
        })
    }
}

fn credential_id(
    source: &CredentialSource,
    identity: Option<&IdentityName>,
    vault: &Keyring,
) -> CredentialId {
    let marks = source.secret.digest_parts();
    let count = marks.len().to_be_bytes();
    let mut parts: Vec<&[u8]> = source.header.digest_parts().to_vec();
    parts.push(&count);
    parts.extend(marks.iter().map(|mark| mark.as_slice()));
    if let Some(identity) = identity {
        parts.extend(identity.parts());
    }
    CredentialId(vault.digest(Purpose::Credential, &parts))
}

impl CachedHeader {
    const EMPTY: Self = Self {
        value: None,
        renew_at: None,
        expires_at: None,
    };

    fn from_token(value: HeaderValue, token: &Token) -> Self {
        let (renew_at, expires_at) = match token.lifetime {
            TokenLifetime::UntilRefused => (None, None),
            TokenLifetime::RecheckAfter(time) => (None, Some(clock::after(time))),
            TokenLifetime::ExpiresIn(time) => {
                let margin = (time / 4).min(RENEWAL_MARGIN);
                let due = clock::after(time.saturating_sub(margin));
                (Some(due), Some(clock::after(time)))
            },
        };
        Self {
            value: Some(value),
            renew_at,
            expires_at,
        }
    }

    fn freshness_at(&self, now: Instant) -> TokenFreshness {
        let past = |moment: Option<Instant>| moment.is_some_and(|moment| moment <= now);
        match (past(self.renew_at), past(self.expires_at)) {
            (_, true) => TokenFreshness::Expired,
            (true, false) => TokenFreshness::RenewalDue,
            (false, false) => TokenFreshness::Fresh,
        }
    }
}

/// Two tokens are equal if they look the same to the server.
impl PartialEq for CachedHeader {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl std::fmt::Debug for CachedHeader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Shown(hidden)")
    }
}

/// A token is renewed this long before it expires, or a quarter of its lifetime if that is less.
const RENEWAL_MARGIN: std::time::Duration = std::time::Duration::from_secs(60);

#[cfg(test)]
mod tests;
