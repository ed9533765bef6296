//! A configuration that changes while the gateway runs: whole or not at all.
//!
//! Asked by: whoever runs a gateway by a configuration file, when the file changed or somebody
//! asked for it. What cannot be used is told in one line, and what runs goes on.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::JoinHandle;
use warmline::clock;
use warmline::config::ConfigError;
use warmline::settings::{EngineSettings, GatewaySettings};
use warmline::{Difference, Error, Server};

use crate::look::Look;
use crate::metrics::Reloaded;
use crate::settings::{ANYBODY_SHARES, Accesses, NOBODY_IS_ASKED};
use crate::{Auth, Gateway, Options};

/// How often files are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// What a configuration wants.
#[derive(Debug)]
pub struct Wanted {
    /// The servers.
    pub servers: Vec<Server>,
    /// What is decided for all of them together.
    pub engine: EngineSettings,
    /// What is decided about the gateway.
    pub gateway: GatewaySettings,
    /// Rules about callers, by server.
    pub accesses: Accesses,
}

/// What is decided at the start, and stays until the next one; and what counts now.
#[derive(Debug)]
pub struct Fixed {
    engine: EngineSettings,
    gateway: GatewaySettings,
    latest: Mutex<(GatewaySettings, Accesses)>,
}

/// Settings of the gateway that count at once when a file changed; tables end in a dot.
const AT_ONCE: &[&str] = &[
    "gateway.auth",
    "gateway.body_timeout",
    "gateway.head_timeout",
    "gateway.hosts",
    "gateway.idle_timeout",
    "gateway.jwt.",
    "gateway.max_connections",
    "gateway.max_connections_per_address",
    "gateway.max_head",
    "gateway.max_request",
    "gateway.max_request_bytes",
    "gateway.max_requests",
    "gateway.max_strangers_per_minute",
    "gateway.origins",
    "gateway.proxy_header",
    "gateway.resource.",
    "gateway.run_from",
    "gateway.stall_timeout",
    "gateway.trusted_proxies",
];

fn counts_at_once(key: &str) -> bool {
    AT_ONCE
        .iter()
        .any(|known| *known == key || (known.ends_with('.') && key.starts_with(known)))
}

/// Why a configuration does not count: nothing has changed.
#[derive(Debug)]
pub enum NotReloaded {
    /// What is decided about the gateway cannot be used.
    Gateway(Box<ConfigError>),
    /// One of the servers cannot be used.
    Server(Error),
}

impl Fixed {
    /// What a configuration decides at the start.
    pub fn of(wanted: &Wanted) -> Self {
        Self {
            engine: wanted.engine.clone(),
            gateway: wanted.gateway.clone(),
            latest: Mutex::new((wanted.gateway.clone(), wanted.accesses.clone())),
        }
    }

    /// The settings that another configuration decides otherwise, and that wait for a start.
    fn waiting(&self, wanted: &Wanted) -> Vec<&'static str> {
        let mut all = self.gateway.differing(&wanted.gateway);
        all.retain(|key| !counts_at_once(key));
        all.extend(self.engine.differing(&wanted.engine));
        all
    }

    /// What counts otherwise from now on: settings by their keys, rules by their servers.
    fn renew(&self, settings: GatewaySettings, accesses: Accesses) -> Vec<String> {
        let mut latest = self.latest.lock();
        let keys = latest.0.differing(&settings).into_iter();
        let keys = keys.filter(|key| counts_at_once(key)).map(str::to_owned);
        let old = &latest.1;
        let names = old
            .keys()
            .chain(accesses.keys().filter(|name| !old.contains_key(*name)));
        let other = names.filter(|name| old.get(*name) != accesses.get(*name));
        let told = keys
            .chain(other.map(|name| format!("rules of {name}")))
            .collect();
        *latest = (settings, accesses);
        told
    }
}

impl Gateway {
    /// Goes by another configuration from now on, and writes one line of what changed. Servers
    /// that stay as they are keep their sessions. `options` says what it means for callers.
    ///
    /// # Errors
    /// Something in it cannot be used. Then nothing has changed.
    pub fn reload(
        &self,
        mut wanted: Wanted,
        fixed: &Fixed,
        options: impl FnOnce(&Wanted) -> Result<Options, ConfigError>,
    ) -> Result<Difference, NotReloaded> {
        let waiting = fixed.waiting(&wanted).join(", ");
        // It goes on listening where it does, and must ask there.
        wanted.gateway.listen = self.address();
        let options = options(&wanted).map_err(|error| NotReloaded::Gateway(Box::new(error)))?;
        let servers = self.shared.desk.handed.beside(wanted.servers);
        let declared = self.go_by(&options, || self.warm().declare(servers));
        let difference = declared.map_err(NotReloaded::Server)?;
        self.shared.counts.reloads.one_more(Reloaded::Taken);
        let at_once = fixed.renew(wanted.gateway, wanted.accesses);
        let asks_nobody = matches!(options.auth, Auth::None);
        let is_other = at_once.iter().any(|key| key == "gateway.auth");
        let at_once = at_once.join(", ");
        // Of servers nothing is said where something else is.
        let changes = (!difference.is_nothing() || at_once.is_empty()).then_some(&difference);
        let some = |text: String| (!text.is_empty()).then_some(text);
        tracing::info!(
            changes = changes.map(tracing::field::display),
            at_once = some(at_once),
            at_next_start = some(waiting),
            "configuration read again"
        );
        if asks_nobody && is_other {
            tracing::warn!("{NOBODY_IS_ASKED}: `auth = \"none\"`. {ANYBODY_SHARES}");
        }
        Ok(difference)
    }

    /// Counts a configuration that could not be read or used: what runs goes on.
    pub fn not_reloaded(&self) {
        self.shared.counts.reloads.one_more(Reloaded::Refused);
    }
}

/// Files and folders that are looked at for changes. A disk may not answer, so that is done by
/// threads for which nobody else waits.
#[derive(Debug)]
pub struct Watch {
    paths: Arc<[PathBuf]>,
    seen: Option<Look>,
    /// A look that is under way.
    looking: Option<JoinHandle<Look>>,
}

/// What files looked like.
#[derive(Debug)]
pub struct Seen(Look);

impl Watch {
    /// Looks at these; those that are not there may come.
    pub fn over(paths: Vec<PathBuf>) -> Self {
        Self {
            paths: paths.into(),
            seen: None,
            looking: None,
        }
    }

    /// What they look like, for whoever reads them next: to be asked where a disk may be waited
    /// for.
    pub fn look(&self) -> impl FnOnce() -> Seen + Send + 'static {
        let paths = Arc::clone(&self.paths);
        move || Seen(Look::at(&paths))
    }

    /// They were read as they looked then: only what came later has changed.
    pub fn saw(&mut self, seen: Seen) {
        self.seen = Some(seen.0);
    }

    /// Ends when something changed and has come to rest: a file that is being written is not read.
    ///
    /// # Cancel safety
    /// Dropping it loses nothing.
    pub async fn changed(&mut self) {
        loop {
            clock::sleep(LOOK_EVERY).await;
            let now = self.now().await;
            if *self.seen.get_or_insert_with(|| now.clone()) == now {
                continue;
            }
            clock::sleep(LOOK_EVERY / 5).await;
            if self.now().await == now {
                self.seen = Some(now);
                return;
            }
        }
    }

    /// What they look like now. A look that was begun is not begun again.
    async fn now(&mut self) -> Look {
        let paths = &self.paths;
        let looking = self.looking.get_or_insert_with(|| {
            let paths = Arc::clone(paths);
            clock::spawn_blocking("look", move || Look::at(&paths))
        });
        let looked = looking.await;
        self.looking = None;
        looked.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_file_that_comes_changes_and_goes_is_seen_each_time() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("warmline.toml");
        let mut watch = Watch::over(vec![file.clone()]);
        watch.saw(watch.look()());
        let quiet = tokio::time::timeout(Duration::from_secs(60), watch.changed());
        assert!(quiet.await.is_err(), "nothing changed");
        std::fs::write(&file, "a").unwrap();
        watch.changed().await;
        std::fs::write(&file, "bb").unwrap();
        watch.changed().await;
        std::fs::remove_file(&file).unwrap();
        watch.changed().await;
        // What somebody read for another reason is not read once more.
        std::fs::write(&file, "ccc").unwrap();
        watch.saw(watch.look()());
        let quiet = tokio::time::timeout(Duration::from_secs(60), watch.changed());
        assert!(quiet.await.is_err(), "it was read already");
    }
}
