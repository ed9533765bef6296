//! One credential of a server: the token of now, and who asks for the next.
//!
//! Asked by: the HTTP drivers, through [`header`](Credential::header), for every request; the
//! engine, through [`ready`](Credential::ready) before a call and
//! [`refresh`](Credential::refresh) after a 401.
//!
//! What a look costs: one atomic load. Nothing is locked unless a token is asked for.
//! When it is renewed: ahead of its end, in the background, while the old one still serves; by
//!   the caller who comes after its end, who waits; and after a 401.

use std::sync::Arc;

use http::{HeaderName, HeaderValue};
use tokio::task::JoinHandle;
use warmline_core::code::Reason;
use warmline_core::exchange::Trouble;
use warmline_core::key::CredentialId;

use super::asking::Asking;
use super::source::Found;
use super::{Asked, CredentialSource, Lasts, Token, unavailable};
use crate::clock::{self, Instant};
use crate::identity::IdentityName;
use crate::seal::{Purpose, Vault};
use crate::upstream::{HeaderSource, Renewing};

/// One credential of a server, for one identity where it splits by identity.
#[derive(Clone, Debug)]
pub(crate) struct Credential(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    server: Arc<str>,
    source: CredentialSource,
    /// Only where the source splits by identity.
    identity: Option<IdentityName>,
    id: CredentialId,
    tokens: Arc<Asking<Shown>>,
}

/// What a refresh brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refreshed {
    /// Another token than the one that was refused.
    New,
    /// The same token again: sending it again is of no use.
    Same,
}

/// A token as it is sent.
struct Shown {
    /// None: there is no secret, and there need be none.
    value: Option<HeaderValue>,
    /// From here on it is renewed in the background.
    due: Option<Instant>,
    /// From here on it is not used any more.
    over: Option<Instant>,
}

/// What a token is worth at a moment.
enum Worth {
    Good,
    Due,
    Over,
}

impl Credential {
    /// Ends the asking under way: nobody will need its answer.
    pub(crate) fn stop(&self) -> Option<JoinHandle<()>> {
        self.0.tokens.stop()
    }

    /// The credential of a server, for somebody where it splits by identity.
    pub(crate) fn new(
        source: CredentialSource,
        server: &str,
        identity: Option<&IdentityName>,
        vault: &Vault,
    ) -> Self {
        let identity = identity.filter(|_| source.splits_by_identity()).cloned();
        let id = id_of(&source, identity.as_ref(), vault);
        let whom = format!("the credential of `{server}`");
        let tokens = Asking::new(whom, Reason::CredentialUnavailable, source.within);
        Self(Arc::new(Inner {
            server: server.into(),
            source,
            identity,
            id,
            tokens,
        }))
    }

    /// What tells it from other credentials: its source, and never a token.
    pub(crate) fn id(&self) -> CredentialId {
        self.0.id
    }

    /// The header to send now; none where there is nothing to show.
    pub(crate) fn header(&self) -> Option<(HeaderName, HeaderValue)> {
        let value = self.0.tokens.with_held(|held| held.value.value.clone())??;
        Some((self.0.source.form.name().clone(), value))
    }

    /// The number of the token of now; 0 before the first. A caller remembers it, to say after a
    /// 401 which one was refused.
    pub(crate) fn epoch(&self) -> u64 {
        self.0.tokens.epoch()
    }

    /// Whether asking its source again may bring another token.
    pub(crate) fn can_refresh(&self) -> bool {
        !self.0.source.secret.is_fixed()
    }

    /// Sees to it that there is a token that can be sent: one asking for any number of callers.
    ///
    /// # Errors
    /// `credential-unavailable`.
    pub(crate) async fn ready(&self) -> Result<(), Trouble> {
        if self.read_now()? {
            return Ok(());
        }
        let now = clock::now();
        let held = |held: &super::asking::Held<Shown>| (held.epoch, held.value.worth(now));
        match self.0.tokens.with_held(held) {
            Some((_, Worth::Good)) => Ok(()),
            Some((seen, Worth::Due)) => {
                self.0.tokens.ask_ahead(seen, || self.clone().fetch(seen));
                Ok(())
            },
            Some((seen, Worth::Over)) => self.newer_than(seen).await,
            None => self.newer_than(0).await,
        }
    }

    /// After a 401: another token than number `seen`, asked for once for any number of callers.
    ///
    /// # Errors
    /// `credential-unavailable`; all who waited are told, and the next caller asks again.
    pub(crate) async fn refresh(&self, seen: u64) -> Result<Refreshed, Trouble> {
        if !self.read_now()? {
            self.newer_than(seen).await?;
        }
        let since = self.0.tokens.with_held(|held| held.since).unwrap_or(0);
        Ok(if since > seen {
            Refreshed::New
        } else {
            Refreshed::Same
        })
    }

    /// A trouble that says where the token came from that a server did not take. It stands in the
    /// hint, which callers from elsewhere never read: it may name a file of this machine.
    pub(crate) fn named_in(sent: Option<&Arc<Self>>, trouble: Trouble) -> Trouble {
        let is_refused = matches!(trouble.reason, Reason::Unauthorized | Reason::Forbidden);
        let Some(sent) = sent.filter(|sent| is_refused && sent.header().is_some()) else {
            return trouble;
        };
        let (server, from) = (&sent.0.server, &sent.0.source.secret);
        trouble.hint(format!(
            "the token that was sent comes from {from}: see that it is one that `{server}` accepts"
        ))
    }

    async fn newer_than(&self, seen: u64) -> Result<(), Trouble> {
        let ask = || self.clone().fetch(seen);
        self.0.tokens.newer_than(seen, ask).await.map(drop)
    }

    /// Takes in what can be read without waiting; says whether this source is such.
    fn read_now(&self) -> Result<bool, Trouble> {
        let Some(found) = self.0.source.secret.read_now(&self.0.server) else {
            return Ok(false);
        };
        self.0.tokens.put(self.shown(found?)?);
        Ok(true)
    }

    async fn fetch(self, seen: u64) -> Result<Shown, Trouble> {
        let asked = Asked {
            server: &self.0.server,
            identity: self.0.identity.as_ref(),
            refresh: seen > 0,
        };
        let found = self.0.source.secret.ask(asked).await?;
        self.shown(found)
    }

    fn shown(&self, found: Found) -> Result<Shown, Trouble> {
        let token = match found {
            Found::Token(token) => token,
            Found::Missing(_) if self.0.source.secret.optional => return Ok(Shown::NOTHING),
            Found::Missing(trouble) => return Err(trouble),
        };
        let Some(value) = self.0.source.form.value(token.value.trim()) else {
            let what = format!("the credential of `{}` cannot be sent", self.0.server);
            return Err(unavailable(what).because("it holds characters no header can carry"));
        };
        Ok(Shown::of(value, &token))
    }
}

impl HeaderSource for Credential {
    fn header(&self) -> Option<(HeaderName, HeaderValue)> {
        Self::header(self)
    }

    fn epoch(&self) -> u64 {
        Self::epoch(self)
    }

    fn renewed(&self, refused: u64) -> Renewing<'_> {
        Box::pin(async move {
            self.can_refresh() && matches!(self.refresh(refused).await, Ok(Refreshed::New))
        })
    }
}

fn id_of(
    source: &CredentialSource,
    identity: Option<&IdentityName>,
    vault: &Vault,
) -> CredentialId {
    let marks = source.secret.marks();
    let count = marks.len().to_be_bytes();
    let mut parts: Vec<&[u8]> = source.form.marks().to_vec();
    parts.push(&count);
    parts.extend(marks.iter().map(|mark| mark.as_slice()));
    if let Some(identity) = identity {
        parts.extend(identity.parts());
    }
    CredentialId(vault.digest(Purpose::Credential, &parts))
}

impl Shown {
    const NOTHING: Self = Self {
        value: None,
        due: None,
        over: None,
    };

    fn of(value: HeaderValue, token: &Token) -> Self {
        let (due, over) = match token.lasts {
            Lasts::UntilRefused => (None, None),
            Lasts::LookAgainAfter(time) => (None, Some(clock::after(time))),
            Lasts::For(time) => {
                let margin = (time / 4).min(MARGIN);
                let due = clock::after(time.saturating_sub(margin));
                (Some(due), Some(clock::after(time)))
            },
        };
        Self {
            value: Some(value),
            due,
            over,
        }
    }

    fn worth(&self, now: Instant) -> Worth {
        let past = |moment: Option<Instant>| moment.is_some_and(|moment| moment <= now);
        match (past(self.due), past(self.over)) {
            (_, true) => Worth::Over,
            (true, false) => Worth::Due,
            (false, false) => Worth::Good,
        }
    }
}

/// Two tokens are the same if they look the same to the server.
impl PartialEq for Shown {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl std::fmt::Debug for Shown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Shown(hidden)")
    }
}

/// How long before its end a token is renewed, or a quarter of its time where that is less.
const MARGIN: std::time::Duration = std::time::Duration::from_secs(60);

#[cfg(test)]
mod tests;
