//! All servers at once: what a changed configuration changes, whole or not at all.
//!
//! Asked by: whoever reads a configuration again while the engine runs.

use std::collections::BTreeMap;
use std::fmt;

use tokio::sync::watch;

use crate::engine::Engine;
use crate::error::Result;
use crate::server::Server;

/// What changed, by the names of servers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// Servers that are new.
    pub added: Vec<String>,
    /// Servers that are reached in another way: new runs use the new one.
    pub moved: Vec<String>,
    /// Servers about which something else was decided: their sessions stay.
    pub decided: Vec<String>,
    /// Servers that are gone.
    pub removed: Vec<String>,
    /// Servers that stay as they are.
    pub kept: Vec<String>,
}

impl Difference {
    /// Whether everything stays as it was.
    pub fn is_nothing(&self) -> bool {
        [&self.added, &self.moved, &self.decided, &self.removed]
            .iter()
            .all(|names| names.is_empty())
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_nothing() {
            return f.write_str("nothing changed");
        }
        let parts = [
            ("added", &self.added),
            ("reached otherwise", &self.moved),
            ("decided anew", &self.decided),
            ("removed", &self.removed),
        ];
        let mut first = true;
        for (what, names) in parts.into_iter().filter(|(_, names)| !names.is_empty()) {
            let between = if first { "" } else { "; " };
            write!(f, "{between}{what}: {}", names.join(", "))?;
            first = false;
        }
        write!(f, "; unchanged: {}", self.kept.len())
    }
}

/// Hears that servers are declared, decided anew or taken away.
#[derive(Clone, Debug)]
pub struct Declarations(watch::Receiver<u64>);

impl Declarations {
    pub(crate) fn of(engine: &Engine) -> Self {
        Self(engine.declared.subscribe())
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
    pub(crate) fn tell_declared(&self) {
        self.declared.send_modify(|number| *number += 1);
    }

    /// These servers and no others.
    pub(crate) fn declare(&self, servers: Vec<Server>) -> Result<Difference> {
        let mut named: BTreeMap<String, Server> = BTreeMap::new();
        for server in servers {
            let server = self.checked(server)?;
            named.insert(server.name.clone(), server);
        }
        let mut difference = self.difference(&named);
        for name in &difference.removed {
            self.remove(name);
        }
        let unchanged = |name: &String| difference.kept.contains(name);
        for (_, server) in named.into_iter().filter(|(name, _)| !unchanged(name)) {
            self.take_in(server);
        }
        difference.kept.sort();
        Ok(difference)
    }

    fn difference(&self, named: &BTreeMap<String, Server>) -> Difference {
        let entries = self.entries();
        let mut difference = Difference::default();
        for (name, server) in named {
            let place = match entries.get(name.as_str()) {
                None => &mut difference.added,
                Some(known) if !known.is_reached_as(server, &self.shared().vault) => {
                    &mut difference.moved
                },
                Some(known) if !known.is_decided_as(&server.settings) => &mut difference.decided,
                Some(_) => &mut difference.kept,
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
