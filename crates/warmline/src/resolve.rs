//! Where a server is, when nobody can say before the first call.
//!
//! Asked by: the engine, at the first call to a server that is looked up.  Told by: the embedding
//! program's [`ServerResolver`].
//!
//! When it is asked: at the first call and not before, once for any number of first callers, and
//!   again only after it failed, or after the server refused the token it gave.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::header::AUTHORIZATION;
use http::{HeaderName, HeaderValue};
use tokio::task::JoinHandle;
use url::Url;
use warmline_core::code::{Code, Reason};
use warmline_core::exchange::Trouble;

use crate::credentials::asking::Asking;
use crate::store::{ServerCard, Stepping};

/// Says where a server is, at its first call.
pub trait ServerResolver: Send + Sync + fmt::Debug {
    /// Where the server is, and which headers its requests carry.
    ///
    /// # Errors
    /// Says why it is not known; see [`unresolved`].
    fn resolve<'a>(&'a self, card: &'a ServerCard) -> Stepping<'a, Result<Resolved, Trouble>>;
}

/// Where a server is.
#[derive(Clone, PartialEq, Eq)]
pub struct Resolved {
    pub(crate) url: Url,
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
}

impl Resolved {
    /// A server at a URL.
    ///
    /// # Errors
    /// `resolve-failed`, if that is no URL of a server.
    pub fn at(url: impl AsRef<str>) -> Result<Self, Trouble> {
        let refused = |why: String| unresolved("what the resolver gave is no URL").because(why);
        let url = Url::parse(url.as_ref()).map_err(|error| refused(error.to_string()))?;
        match (url.scheme(), url.host()) {
            ("http" | "https", Some(_)) => Ok(Self {
                url,
                headers: Vec::new(),
            }),
            ("http" | "https", None) => Err(refused("it names no host".to_owned())),
            (other, _) => Err(refused(format!("`{other}` is not a scheme of MCP"))),
        }
    }

    /// The same with a header of every request. Its value counts as a secret.
    #[must_use]
    pub fn header(mut self, name: HeaderName, mut value: HeaderValue) -> Self {
        value.set_sensitive(true);
        self.headers.push((name, value));
        self
    }

    /// Where it is.
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// Headers of every request.
    pub fn headers(&self) -> &[(HeaderName, HeaderValue)] {
        &self.headers
    }
}

impl fmt::Debug for Resolved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = self.url.host_str().unwrap_or_default();
        write!(f, "Resolved({host}, {} headers)", self.headers.len())
    }
}

/// The error of a resolver that does not know.
pub fn unresolved(what: impl Into<String>) -> Trouble {
    Trouble::new(Reason::ResolveFailed, what)
}

/// One server's resolver and what it said.
#[derive(Clone, Debug)]
pub(crate) struct Lookup(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    card: ServerCard,
    resolver: Arc<dyn ServerResolver>,
    found: Arc<Asking<Resolved>>,
}

impl Lookup {
    /// A lookup that nobody has asked for yet.
    pub(crate) fn new(resolver: Arc<dyn ServerResolver>, card: ServerCard) -> Self {
        Self::within(resolver, card, RESOLVE_TIME)
    }

    /// The same with another limit on how long the resolver may take.
    pub(crate) fn within(
        resolver: Arc<dyn ServerResolver>,
        card: ServerCard,
        time: Duration,
    ) -> Self {
        let whom = format!("the resolver of `{}`", card.name);
        Self(Arc::new(Inner {
            card,
            resolver,
            found: Asking::new(whom, Reason::ResolveFailed, time),
        }))
    }

    /// Ends the asking under way: nobody will need its answer.
    pub(crate) fn stop(&self) -> Option<JoinHandle<()>> {
        self.0.found.stop()
    }

    /// Where the server is; asked for at the first call, once for all of them.
    ///
    /// # Errors
    /// `resolve-failed`; all who waited are told, and the next caller asks again.
    pub(crate) async fn resolved(&self) -> Result<Resolved, Trouble> {
        self.newer_than(0).await
    }

    /// The `Authorization` that the resolver gives, if it gives one. After a refusal it is asked
    /// again; where the server is stays as it was.
    ///
    /// # Errors
    /// `resolve-failed`, also if the server is elsewhere by now: what is meant for another place
    /// is not sent to this one.
    pub(crate) async fn authorization(
        &self,
        refresh: bool,
    ) -> Result<Option<HeaderValue>, Trouble> {
        let known = self.0.found.held();
        let resolved = match &known {
            Some(known) if refresh => self.newer_than(known.epoch).await?,
            Some(_) | None => self.resolved().await?,
        };
        if let Some(known) = known
            && known.value.url != resolved.url
        {
            let what = format!("the resolver says that `{}` has moved", self.0.card.name);
            return Err(unresolved(what).hint("add the server again, to call it at its new place"));
        }
        let token = resolved
            .headers
            .into_iter()
            .find(|(name, _)| *name == AUTHORIZATION);
        Ok(token.map(|(_, value)| value))
    }

    async fn newer_than(&self, seen: u64) -> Result<Resolved, Trouble> {
        let ask = || self.clone().ask();
        let held = self.0.found.newer_than(seen, ask).await?;
        Ok(held.value.clone())
    }

    async fn ask(self) -> Result<Resolved, Trouble> {
        let answer = self.0.resolver.resolve(&self.0.card).await;
        answer.map_err(|trouble| {
            if trouble.code == Code::ResolveFailed {
                return trouble;
            }
            let what = format!("the resolver does not know where `{}` is", self.0.card.name);
            unresolved(what).because(trouble.what)
        })
    }
}

/// How long a resolver may take.
const RESOLVE_TIME: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests;
