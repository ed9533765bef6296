//! All servers at once: what a changed configuration changes, whole or not at all.

use std::collections::BTreeMap;
use std::fmt;

use tokio::sync::watch;

use super::Engine;
use crate::error::Result;
use crate::server::Server;

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

/// Hears that servers are declared, decided anew or taken away.
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
        let entries = self.servers();
        let mut difference = ServerChanges::default();
        for (name, server) in named {
            let place = match entries.get(name.as_str()) {
                None => &mut difference.added,
                Some(known) if !known.has_same_target(server, &self.context().vault) => {
                    &mut difference.replaced
                },
                Some(known) if !known.has_same_settings(&server.settings) => {
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
