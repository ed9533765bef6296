//! Reload of a changed configuration: whole, or not at all.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::JoinHandle;
use warmline_config::ConfigError;
use warmline_config::gateway_settings::GatewaySettings;
use warmline_engine::admin::EngineAdmin as _;
use warmline_engine::settings::{EngineSettings, SettingsGroup as _};
use warmline_engine::{Error, Server, ServerChanges};
use warmline_platform::clock;

pub use crate::auth::FileStamps;
use crate::metrics::ReloadResult;
use crate::options::{AccessByServer, NO_AUTH_EXPLANATION, NO_AUTH_SUMMARY};
use crate::{Auth, Gateway, GatewayOptions};

const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// A configuration as it was loaded.
#[derive(Debug)]
pub struct LoadedConfiguration {
    /// The servers.
    pub servers: Vec<Server>,
    /// The settings of the engine.
    pub engine: EngineSettings,
    /// The settings of the gateway.
    pub gateway: GatewaySettings,
    /// The rules of servers about their callers.
    pub access: AccessByServer,
}

/// The configuration of the start, and the reloadable part that is in force now.
#[derive(Debug)]
pub struct RunningConfiguration {
    engine: EngineSettings,
    gateway: GatewaySettings,
    applied: Mutex<(GatewaySettings, AccessByServer)>,
}

fn is_reloadable(key: &str) -> bool {
    GatewaySettings::setting(key).is_some_and(|setting| setting.is_reloadable)
}

/// Why a configuration was rejected. The running one stays.
#[derive(Debug)]
pub enum ReloadError {
    /// A setting of the gateway.
    Gateway(Box<ConfigError>),
    /// One of the servers.
    Server(Error),
}

impl RunningConfiguration {
    /// The configuration of the start.
    pub fn new(wanted: &LoadedConfiguration) -> Self {
        Self {
            engine: wanted.engine.clone(),
            gateway: wanted.gateway.clone(),
            applied: Mutex::new((wanted.gateway.clone(), wanted.access.clone())),
        }
    }

    fn needs_restart(&self, wanted: &LoadedConfiguration) -> Vec<&'static str> {
        let mut all = self.gateway.changed_keys(&wanted.gateway);
        all.retain(|key| !is_reloadable(key));
        all.extend(self.engine.changed_keys(&wanted.engine));
        all
    }

    /// Puts settings and rules in force, and returns what changed: keys, and servers with other
    /// rules.
    fn apply(&self, settings: GatewaySettings, accesses: AccessByServer) -> Vec<String> {
        let mut applied = self.applied.lock();
        let keys = applied.0.changed_keys(&settings).into_iter();
        let keys = keys.filter(|key| is_reloadable(key)).map(str::to_owned);
        let old = &applied.1;
        let names = old
            .keys()
            .chain(accesses.keys().filter(|name| !old.contains_key(*name)));
        let changed = names.filter(|name| old.get(*name) != accesses.get(*name));
        let changes = keys
            .chain(changed.map(|name| format!("rules of {name}")))
            .collect();
        *applied = (settings, accesses);
        changes
    }
}

impl Gateway {
    /// Puts a configuration in force, and logs what changed. Unchanged servers keep their sessions.
    /// `options` derives the gateway's options.
    ///
    /// # Errors
    /// A setting or a server cannot be used. Nothing has changed then.
    pub fn reload(
        &self,
        mut loaded: LoadedConfiguration,
        running: &RunningConfiguration,
        options: impl FnOnce(&LoadedConfiguration) -> Result<GatewayOptions, ConfigError>,
    ) -> Result<ServerChanges, ReloadError> {
        let waiting = running.needs_restart(&loaded).join(", ");
        // It keeps its address, which may need authentication.
        loaded.gateway.listen = self.address();
        let options = options(&loaded).map_err(|error| ReloadError::Gateway(Box::new(error)))?;
        let (shared, warm) = (&self.shared, self.warmline());
        let servers = shared.admin.adopted.merged_with(loaded.servers);
        let set_servers = || warm.set_servers(servers);
        let applied = shared
            .access
            .replace(&options, self.address, warm, set_servers);
        let difference = applied.map_err(ReloadError::Server)?;
        shared.limiter.set_limits(options.limits);
        let reloads = &shared.counters.reloads;
        reloads.increment(ReloadResult::Applied);
        let at_once = running.apply(loaded.gateway, loaded.access);
        let has_no_auth = matches!(options.auth, Auth::None);
        let is_new = at_once.iter().any(|key| key == "gateway.auth");
        let at_once = at_once.join(", ");
        // Unchanged servers are mentioned only if nothing else changed.
        let changes = (!difference.is_empty() || at_once.is_empty()).then_some(&difference);
        let some = |text: String| (!text.is_empty()).then_some(text);
        tracing::info!(
            changes = changes.map(tracing::field::display),
            at_once = some(at_once),
            at_next_start = some(waiting),
            "configuration reloaded"
        );
        if has_no_auth && is_new {
            tracing::warn!("{NO_AUTH_SUMMARY}: `auth = \"none\"`. {NO_AUTH_EXPLANATION}");
        }
        Ok(difference)
    }

    /// Counts a configuration that could not be read or used.
    pub fn record_reload_failure(&self) {
        let reloads = &self.shared.counters.reloads;
        reloads.increment(ReloadResult::Rejected);
    }
}

/// Polls files and folders for changes, on blocking threads: a remote disk may hang.
#[derive(Debug)]
pub struct FileWatch {
    paths: Arc<[PathBuf]>,
    last_stamps: Option<FileStamps>,
    pending_check: Option<JoinHandle<FileStamps>>,
}

impl FileWatch {
    /// Watches these paths. They need not exist.
    pub fn new(paths: Vec<PathBuf>) -> Self {
        Self {
            paths: paths.into(),
            last_stamps: None,
            pending_check: None,
        }
    }

    /// Takes the stamps before the files are read. Call the result on a blocking thread.
    pub fn snapshot(&self) -> impl FnOnce() -> FileStamps + Send + 'static {
        let paths = Arc::clone(&self.paths);
        move || FileStamps::read(paths.iter())
    }

    /// The files were read after this snapshot: only later changes count.
    pub fn mark_read(&mut self, state: FileStamps) {
        self.last_stamps = Some(state);
    }

    /// Resolves when a file has changed and is no longer being written.
    ///
    /// # Cancel safety
    /// Dropping it loses nothing.
    pub async fn changed(&mut self) {
        loop {
            clock::sleep(POLL_INTERVAL).await;
            let now = self.current_stamps().await;
            if *self.last_stamps.get_or_insert_with(|| now.clone()) == now {
                continue;
            }
            clock::sleep(POLL_INTERVAL / 5).await;
            if self.current_stamps().await == now {
                self.last_stamps = Some(now);
                return;
            }
        }
    }

    async fn current_stamps(&mut self) -> FileStamps {
        let paths = &self.paths;
        let check = self.pending_check.get_or_insert_with(|| {
            let paths = Arc::clone(paths);
            clock::spawn_blocking("file-watch", move || FileStamps::read(paths.iter()))
        });
        let checked = check.await;
        self.pending_check = None;
        checked.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn each_change_of_a_file_is_seen_once() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("warmline.toml");
        let mut watch = FileWatch::new(vec![file.clone()]);
        watch.mark_read(watch.snapshot()());
        let quiet = tokio::time::timeout(Duration::from_secs(60), watch.changed());
        assert!(quiet.await.is_err(), "nothing changed");
        std::fs::write(&file, "a").unwrap();
        watch.changed().await;
        std::fs::write(&file, "bb").unwrap();
        watch.changed().await;
        std::fs::remove_file(&file).unwrap();
        watch.changed().await;
        // A file that was read for another reason is not read again.
        std::fs::write(&file, "ccc").unwrap();
        watch.mark_read(watch.snapshot()());
        let quiet = tokio::time::timeout(Duration::from_secs(60), watch.changed());
        assert!(quiet.await.is_err(), "read already");
    }
}
