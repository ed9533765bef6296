//! Finds out where a server is at its first call.
//!
//! A resolver is called at the first call and not before, once for any number of callers, and again
//! only after it failed, or after the server refused its token.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::header::AUTHORIZATION;
use http::{HeaderName, HeaderValue};
use tokio::task::JoinHandle;
use url::Url;
use warmline_core::error::code::{Code, Reason};
use warmline_core::exchange::Diagnostic;

use crate::single_flight::RefreshableValue;
use warmline_store::{BoxFuture, ServerDescriptor};

/// Finds out where a server is, at its first call.
pub trait ServerResolver: Send + Sync + fmt::Debug {
    /// Returns where the server is, and the headers of its requests.
    ///
    /// # Errors
    /// Says why that is not known; see [`resolve_failed`].
    fn resolve<'a>(
        &'a self,
        card: &'a ServerDescriptor,
    ) -> BoxFuture<'a, Result<ResolvedServer, Diagnostic>>;
}

/// Where a server is.
#[derive(Clone, PartialEq, Eq)]
pub struct ResolvedServer {
    pub(crate) url: Url,
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
}

impl ResolvedServer {
    /// A server at a URL.
    ///
    /// # Errors
    /// `resolve-failed`, if it is not a valid URL.
    pub fn from_url(url: impl AsRef<str>) -> Result<Self, Diagnostic> {
        let refused =
            |why: String| resolve_failed("the resolver returned no valid URL").with_cause(why);
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

    /// Adds a header to every request. Its value is a secret.
    #[must_use]
    pub fn header(mut self, name: HeaderName, mut value: HeaderValue) -> Self {
        value.set_sensitive(true);
        self.headers.push((name, value));
        self
    }

    /// The URL.
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// The headers of every request.
    pub fn headers(&self) -> &[(HeaderName, HeaderValue)] {
        &self.headers
    }
}

impl fmt::Debug for ResolvedServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = self.url.host_str().unwrap_or_default();
        write!(f, "Resolved({host}, {} headers)", self.headers.len())
    }
}

/// The error of a resolver that does not know.
pub fn resolve_failed(what: impl Into<String>) -> Diagnostic {
    Diagnostic::new(Reason::ResolveFailed, what)
}

#[derive(Clone, Debug)]
pub(crate) struct ServerLookup {
    descriptor: Arc<ServerDescriptor>,
    resolver: Arc<dyn ServerResolver>,
    resolved: Arc<RefreshableValue<ResolvedServer>>,
}

impl ServerLookup {
    pub(crate) fn new(resolver: Arc<dyn ServerResolver>, descriptor: ServerDescriptor) -> Self {
        let whom = format!("the resolver of `{}`", descriptor.name);
        Self {
            descriptor: Arc::new(descriptor),
            resolver,
            resolved: RefreshableValue::new(whom, Reason::ResolveFailed, RESOLVE_TIMEOUT),
        }
    }

    pub(crate) fn stop(&self) -> Option<JoinHandle<()>> {
        self.resolved.stop()
    }

    /// Where the server is, resolved at the first call, once for all callers.
    ///
    /// # Errors
    /// `resolve-failed`, for all callers that waited; the next caller tries again.
    pub(crate) async fn resolve(&self) -> Result<ResolvedServer, Diagnostic> {
        self.resolve_newer_than(0).await
    }

    /// The `Authorization` of the resolver, if any. After a refusal it is resolved again; the location
    /// stays the same.
    ///
    /// # Errors
    /// `resolve-failed`, also if the server moved: a token for another location is not sent to this
    /// one.
    pub(crate) async fn authorization(
        &self,
        refresh: bool,
    ) -> Result<Option<HeaderValue>, Diagnostic> {
        let known = self.resolved.current();
        let resolved = match &known {
            Some(known) if refresh => self.resolve_newer_than(known.epoch).await?,
            Some(_) | None => self.resolve().await?,
        };
        if let Some(known) = known
            && known.value.url != resolved.url
        {
            let what = format!(
                "the resolver says that `{}` has moved",
                self.descriptor.name
            );
            return Err(
                resolve_failed(what).with_hint("add the server again, to call it at its new place")
            );
        }
        let token = resolved
            .headers
            .into_iter()
            .find(|(name, _)| *name == AUTHORIZATION);
        Ok(token.map(|(_, value)| value))
    }

    async fn resolve_newer_than(&self, seen: u64) -> Result<ResolvedServer, Diagnostic> {
        let ask = || self.clone().call_resolver();
        let held = self.resolved.get_newer_than(seen, ask).await?;
        Ok(held.value.clone())
    }

    async fn call_resolver(self) -> Result<ResolvedServer, Diagnostic> {
        let answer = self.resolver.resolve(&self.descriptor).await;
        answer.map_err(|diagnostic| {
            if diagnostic.code == Code::ResolveFailed {
                return diagnostic;
            }
            let what = format!(
                "the resolver does not know where `{}` is",
                self.descriptor.name
            );
            resolve_failed(what).with_cause(diagnostic.message)
        })
    }
}

const RESOLVE_TIMEOUT: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests;
