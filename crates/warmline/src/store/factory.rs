//! Which store belongs to a server: chosen by whoever sees the server's whole description.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::SessionStore;

/// A server's description, for those who decide by it: factories of stores, resolvers of
/// addresses.
#[derive(Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerCard {
    /// The name by which it is called here.
    pub name: String,
    /// Its id in the catalogue it comes from.
    pub id: Option<String>,
    /// Its short name there.
    pub slug: Option<String>,
    /// The folder it belongs to there.
    pub folder: Option<String>,
    /// Where it is reached, if it is reached over HTTP and somebody said so already.
    pub url: Option<String>,
    /// Whatever else was said of it.
    pub labels: BTreeMap<String, String>,
}

impl ServerCard {
    /// The card of a server of which only the name is known.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            ..Self::default()
        }
    }

    /// What a label says.
    pub fn label(&self, name: &str) -> Option<&str> {
        self.labels.get(name).map(String::as_str)
    }
}

/// Without the query of the URL, in which some people keep tokens.
impl fmt::Debug for ServerCard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let url = self.url.as_deref();
        let url = url.and_then(|url| url.split(['?', '#']).next());
        f.debug_struct("ServerCard")
            .field("name", &self.name)
            .field("id", &self.id)
            .field("slug", &self.slug)
            .field("folder", &self.folder)
            .field("url", &url)
            .field("labels", &self.labels)
            .finish()
    }
}

/// Chooses where the records of a server are kept. Asked once per server.
pub trait StoreFactory: Send + Sync + fmt::Debug {
    /// The store for a server; none keeps no records of its sessions.
    fn store_for(&self, server: &ServerCard) -> Option<Arc<dyn SessionStore>>;
}

/// A store is a factory that gives itself to every server.
impl<S: SessionStore + Clone + 'static> StoreFactory for S {
    fn store_for(&self, _server: &ServerCard) -> Option<Arc<dyn SessionStore>> {
        Some(Arc::new(self.clone()))
    }
}

/// A factory out of a function.
#[derive(Clone)]
pub struct ByServer<F>(F);

/// Chooses a store for each server by a function.
pub const fn by_server<F>(choose: F) -> ByServer<F>
where
    F: Fn(&ServerCard) -> Option<Arc<dyn SessionStore>> + Send + Sync,
{
    ByServer(choose)
}

impl<F> fmt::Debug for ByServer<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ByServer")
    }
}

impl<F> StoreFactory for ByServer<F>
where
    F: Fn(&ServerCard) -> Option<Arc<dyn SessionStore>> + Send + Sync,
{
    fn store_for(&self, server: &ServerCard) -> Option<Arc<dyn SessionStore>> {
        (self.0)(server)
    }
}
