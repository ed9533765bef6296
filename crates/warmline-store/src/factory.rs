//! The store of a server, chosen by its description.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::SessionStore;

/// The description of a server, for store factories and server resolvers.
#[derive(Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerDescriptor {
    /// Its name here.
    pub name: String,
    /// Its id in the catalogue it comes from.
    pub id: Option<String>,
    /// Its short name there.
    pub slug: Option<String>,
    /// The folder it belongs to there.
    pub folder: Option<String>,
    /// Its URL, if it has one and that is known already.
    pub url: Option<String>,
    /// More about it, by name.
    pub labels: BTreeMap<String, String>,
}

impl ServerDescriptor {
    /// The description of a server of which only the name is known.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            ..Self::default()
        }
    }

    /// The value of a label.
    pub fn label(&self, name: &str) -> Option<&str> {
        self.labels.get(name).map(String::as_str)
    }
}

/// Without the query of the URL, in which some people keep tokens.
impl fmt::Debug for ServerDescriptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let url = self
            .url
            .as_deref()
            .and_then(|url| url.split(['?', '#']).next());
        f.debug_struct("ServerDescriptor")
            .field("name", &self.name)
            .field("id", &self.id)
            .field("slug", &self.slug)
            .field("folder", &self.folder)
            .field("url", &url)
            .field("labels", &self.labels)
            .finish()
    }
}

/// Chooses where the records of a server are kept, once per server.
pub trait StoreFactory: Send + Sync + fmt::Debug {
    /// The store of a server; without one its sessions have no records.
    fn store_for(&self, server: &ServerDescriptor) -> Option<Arc<dyn SessionStore>>;
}

/// A store is a factory that gives itself to every server.
impl<S: SessionStore + Clone + 'static> StoreFactory for S {
    fn store_for(&self, _server: &ServerDescriptor) -> Option<Arc<dyn SessionStore>> {
        Some(Arc::new(self.clone()))
    }
}

/// A store factory that is a function.
#[derive(Clone)]
pub struct StoreFactoryFn<F>(F);

/// Makes a store factory of a function.
pub const fn store_factory_fn<F>(choose: F) -> StoreFactoryFn<F>
where
    F: Fn(&ServerDescriptor) -> Option<Arc<dyn SessionStore>> + Send + Sync,
{
    StoreFactoryFn(choose)
}

impl<F> fmt::Debug for StoreFactoryFn<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StoreFactoryFn")
    }
}

impl<F> StoreFactory for StoreFactoryFn<F>
where
    F: Fn(&ServerDescriptor) -> Option<Arc<dyn SessionStore>> + Send + Sync,
{
    fn store_for(&self, server: &ServerDescriptor) -> Option<Arc<dyn SessionStore>> {
        (self.0)(server)
    }
}
