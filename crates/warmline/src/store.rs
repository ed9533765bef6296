//! Records of sessions, so that a run finds its sessions again after a restart, and lookups of
//! servers in a catalogue.

/// ```no_run
/// use std::path::Path;
/// use warmline::Warmline;
/// use warmline::store::{FileStore, Keyring};
///
/// let folder = Path::new("/var/lib/agent");
/// let warm = Warmline::builder()
///     .vault(Keyring::in_folder(folder).expect("keys"))
///     .store(FileStore::in_folder(folder))
///     .build()?;
/// # Ok::<_, warmline::Error>(())
/// ```
#[doc(inline)]
pub use warmline_store::{FileStore, keyring::Keyring};

/// ```
/// use warmline::SessionStore;
/// use warmline::store::{
///     BoxFuture, MemoryStore, RecordName, SaveOutcome, StoreError, StoredRecord,
/// };
///
/// #[derive(Debug, Default)]
/// struct Audited(MemoryStore);
///
/// impl SessionStore for Audited {
///     fn load(&self, name: RecordName) -> BoxFuture<'_, Result<Option<StoredRecord>, StoreError>> {
///         println!("loading {name}");
///         self.0.load(name)
///     }
///
///     fn save(
///         &self,
///         name: RecordName,
///         expected: Option<u64>,
///         record: StoredRecord,
///     ) -> BoxFuture<'_, Result<SaveOutcome, StoreError>> {
///         self.0.save(name, expected, record)
///     }
///
///     fn clear(&self, name: RecordName, edition: u64) -> BoxFuture<'_, Result<bool, StoreError>> {
///         self.0.clear(name, edition)
///     }
///
///     fn scan(&self) -> BoxFuture<'_, Result<Vec<(RecordName, u64)>, StoreError>> {
///         self.0.scan()
///     }
///
///     fn outlives_process(&self) -> bool {
///         false
///     }
/// }
/// ```
#[doc(inline)]
pub use warmline_store::{
    BoxFuture, MemoryStore, RecordName, SaveOutcome, StoreError, StoredRecord,
};

/// ```
/// use std::sync::Arc;
/// use warmline::SessionStore;
/// use warmline::store::{MemoryStore, ServerDescriptor, StoreFactory};
///
/// #[derive(Debug)]
/// struct OnlyLabelled(Arc<MemoryStore>);
///
/// impl StoreFactory for OnlyLabelled {
///     fn store_for(&self, server: &ServerDescriptor) -> Option<Arc<dyn SessionStore>> {
///         server.label("keep").map(|_| -> Arc<dyn SessionStore> { self.0.clone() })
///     }
/// }
/// ```
#[doc(inline)]
pub use warmline_store::{ServerDescriptor, StoreFactory, store_factory_fn};

/// ```
/// use warmline::error::Diagnostic;
/// use warmline::store::{BoxFuture, ResolvedServer, ServerDescriptor};
/// use warmline::{Server, ServerResolver};
///
/// #[derive(Debug)]
/// struct Catalogue;
///
/// impl ServerResolver for Catalogue {
///     fn resolve<'a>(
///         &'a self,
///         server: &'a ServerDescriptor,
///     ) -> BoxFuture<'a, Result<ResolvedServer, Diagnostic>> {
///         let url = format!("https://{}.example.com/mcp", server.name);
///         Box::pin(async move { ResolvedServer::from_url(url) })
///     }
/// }
///
/// let search = Server::resolved("search", Catalogue);
/// ```
#[doc(inline)]
pub use warmline_engine::server_resolver::{ResolvedServer, resolve_failed};
