//! Changes of the servers: all at once by a changed configuration, whole or not at all; and servers
//! without a declaration, which end with their last handle.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use tokio::sync::watch;
use warmline_core::pool::EndReason;
use warmline_core::pool_key::{ClientProfileId, Digest};

use super::Engine;
use crate::error::{Error, Result};
use crate::run_state::RunState;
use crate::server::Server;
use crate::server_state::ServerState;
use crate::session_factory::SessionSetup;
use warmline_platform::clock::RuntimeHandle;
use warmline_store::keyring::random_bytes;

/// What changed, by the names of servers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerChanges {
    /// Servers that are new.
    pub added: Vec<String>,
    /// Servers that are reached in another way: new runs use the new one.
    pub replaced: Vec<String>,
    /// Servers about which something else was decided: their sessions stay.
    pub reconfigured: Vec<String>,
    /// Servers that are gone.
    pub removed: Vec<String>,
    /// Servers that stay as they are.
    pub unchanged: Vec<String>,
}

impl ServerChanges {
    /// Whether everything stays as it was.
    pub fn is_empty(&self) -> bool {
        self.changes().all(|(_, names)| names.is_empty())
    }

    fn changes(&self) -> impl Iterator<Item = (&'static str, &Vec<String>)> {
        let changes = [
            ("added", &self.added),
            ("reached otherwise", &self.replaced),
            ("settings changed", &self.reconfigured),
            ("removed", &self.removed),
        ];
        changes.into_iter()
    }
}

impl fmt::Display for ServerChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("nothing changed");
        }
        for (what, names) in self.changes().filter(|(_, names)| !names.is_empty()) {
            write!(f, "{what}: {}; ", names.join(", "))?;
        }
        write!(f, "unchanged: {}", self.unchanged.len())
    }
}

/// Learns that servers are declared, changed or removed.
#[derive(Clone, Debug)]
pub struct ServerSetWatcher(watch::Receiver<u64>);

impl ServerSetWatcher {
    pub(crate) fn new(engine: &Engine) -> Self {
        Self(engine.server_changes.subscribe())
    }

    /// Ends when something was declared since it was heard of last; never, once the engine is
    /// gone.
    ///
    /// # Cancel safety
    /// Dropping it loses nothing.
    pub async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

impl Engine {
    pub(crate) fn announce_server_changes(&self) {
        self.server_changes.send_modify(|number| *number += 1);
    }

    /// These servers and no others.
    pub(crate) fn set_servers(&self, servers: Vec<Server>) -> Result<ServerChanges> {
        let mut named: BTreeMap<String, Server> = BTreeMap::new();
        for server in servers {
            let server = self.check_server(server)?;
            named.insert(server.name.clone(), server);
        }
        let mut difference = self.diff_servers(&named);
        for name in &difference.removed {
            self.remove_server(name);
        }
        let unchanged = |name: &String| difference.unchanged.contains(name);
        for (_, server) in named.into_iter().filter(|(name, _)| !unchanged(name)) {
            self.insert_server(server);
        }
        difference.unchanged.sort();
        Ok(difference)
    }

    fn diff_servers(&self, named: &BTreeMap<String, Server>) -> ServerChanges {
        let entries = self.servers.load();
        let mut difference = ServerChanges::default();
        for (name, server) in named {
            let place = match entries.get(name.as_str()) {
                None => &mut difference.added,
                Some(known) if !known.has_same_target(server, &self.context.vault) => {
                    &mut difference.replaced
                },
                Some(known) if !known.settings.load().has_same_values(&server.settings) => {
                    &mut difference.reconfigured
                },
                Some(_) => &mut difference.unchanged,
            };
            place.push(name.clone());
        }
        let gone = entries
            .keys()
            .filter(|name| !named.contains_key(name.as_ref()));
        difference.removed = gone.map(ToString::to_string).collect();
        difference.removed.sort();
        difference
    }
}

#[derive(Debug)]
pub(crate) struct UndeclaredServer {
    engine: Arc<Engine>,
    pub(crate) server: Arc<ServerState>,
    /// Keeps its shared sessions apart.
    pub(crate) sharing_id: ClientProfileId,
    run: Option<Arc<RunState>>,
}

impl UndeclaredServer {
    /// Registers a server. The rules for servers hold for it as well.
    pub(crate) fn register(
        engine: &Arc<Engine>,
        run: Option<Arc<RunState>>,
        server: Server,
    ) -> Result<Arc<Self>> {
        let server = engine.check_server(server)?;
        engine.check_allowed(server.name()).map_err(Error::unsent)?;
        let metrics = engine.context.metrics.acquire_undeclared(server.name());
        let entry = engine.new_server_state(server, metrics);
        entry.mark_undeclared();
        Ok(Arc::new(Self {
            engine: Arc::clone(engine),
            server: entry,
            sharing_id: ClientProfileId(Digest::new(random_bytes())),
            run,
        }))
    }
}

impl Drop for UndeclaredServer {
    fn drop(&mut self) {
        let (engine, name) = (&self.engine, &self.server.name);
        self.server.withdraw();
        engine.context.metrics.release_undeclared(name);
        if !engine.servers.load().contains_key(name) {
            engine.context.records.lock().remove(name);
        }
        let of_run = self.run.as_ref().map(|run| {
            let cells = run.session_table.entries_of(&self.server);
            run.remove_server(&self.server);
            cells
        });
        let (pool, server) = (engine.pool.clone(), Arc::clone(&self.server));
        let end = move || {
            let is_of_it = |setup: &SessionSetup| Arc::ptr_eq(&setup.server, &server);
            pool.end_shared_with_setup(is_of_it, EndReason::Evicted);
            for entry in of_run.into_iter().flatten() {
                pool.end_entry(&entry, EndReason::Evicted);
            }
        };
        if RuntimeHandle::current().is_some() {
            return end();
        }
        let end = async { end() };
        engine.maintenance.spawn_on_any_runtime("once-drop", end);
    }
}
