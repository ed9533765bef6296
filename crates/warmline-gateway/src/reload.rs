//! A configuration that changes while the gateway runs: whole or not at all.
//!
//! Asked by: whoever runs a gateway by a configuration file, when the file changed or somebody
//! asked for it. What cannot be used is told in one line, and what runs goes on.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use warmline::settings::{EngineSettings, GatewaySettings};
use warmline::{Difference, Result, Server};

use crate::Gateway;
use crate::metrics::Reloaded;

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
}

/// What is decided at the start, and stays until the next one.
#[derive(Clone, Debug)]
pub struct Fixed {
    engine: EngineSettings,
    gateway: GatewaySettings,
}

impl Fixed {
    /// What a configuration decides at the start.
    pub fn of(wanted: &Wanted) -> Self {
        Self {
            engine: wanted.engine.clone(),
            gateway: wanted.gateway.clone(),
        }
    }

    /// The settings that another configuration decides otherwise.
    fn differing(&self, wanted: &Wanted) -> Vec<&'static str> {
        let mut all = self.gateway.differing(&wanted.gateway);
        all.extend(self.engine.differing(&wanted.engine));
        all
    }
}

impl Gateway {
    /// Goes by another configuration from now on, and writes one line of what changed. Servers
    /// that stay as they are keep their sessions.
    ///
    /// # Errors
    /// One of the servers cannot be used. Then nothing has changed.
    pub fn reload(&self, wanted: Wanted, fixed: &Fixed) -> Result<Difference> {
        let waiting = fixed.differing(&wanted);
        let servers = self.shared.desk.handed.beside(wanted.servers);
        let difference = self.warm().declare(servers)?;
        self.shared.counts.reloads.one_more(Reloaded::Taken);
        if waiting.is_empty() {
            tracing::info!(changes = %difference, "configuration read again");
        } else {
            let at_next_start = waiting.join(", ");
            tracing::info!(changes = %difference, at_next_start, "configuration read again");
        }
        Ok(difference)
    }

    /// Counts a configuration that could not be read or used: what runs goes on.
    pub fn not_reloaded(&self) {
        self.shared.counts.reloads.one_more(Reloaded::Refused);
    }
}

/// Files and folders that are looked at for changes.
///
/// They are looked at and not listened to: that works on every file system, and through links that
/// are exchanged as a whole.
#[derive(Debug)]
pub struct Watch {
    paths: Vec<PathBuf>,
    seen: Vec<Stamp>,
}

/// What tells one content of a file from the next.
type Stamp = Option<(SystemTime, u64, u64)>;

impl Watch {
    /// Looks at these from now on; those that are not there may come.
    pub fn over(paths: Vec<PathBuf>) -> Self {
        let seen = paths.iter().map(|path| stamp(path)).collect();
        Self { paths, seen }
    }

    /// Ends when something changed and has come to rest: a file that is being written is not read.
    pub async fn changed(&mut self) {
        loop {
            warmline::clock::sleep(LOOK_EVERY).await;
            let now = self.look();
            if now == self.seen {
                continue;
            }
            warmline::clock::sleep(LOOK_EVERY / 5).await;
            if self.look() == now {
                self.seen = now;
                return;
            }
        }
    }

    fn look(&self) -> Vec<Stamp> {
        self.paths.iter().map(|path| stamp(path)).collect()
    }
}

fn stamp(path: &Path) -> Stamp {
    let meta = std::fs::metadata(path).ok()?;
    #[cfg(unix)]
    let number = std::os::unix::fs::MetadataExt::ino(&meta);
    #[cfg(not(unix))]
    let number = 0;
    Some((meta.modified().ok()?, meta.len(), number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_file_that_comes_changes_and_goes_is_seen_each_time() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("warmline.toml");
        let mut watch = Watch::over(vec![file.clone()]);
        let quiet = tokio::time::timeout(Duration::from_secs(60), watch.changed());
        assert!(quiet.await.is_err(), "nothing changed");
        std::fs::write(&file, "a").unwrap();
        watch.changed().await;
        std::fs::write(&file, "bb").unwrap();
        watch.changed().await;
        std::fs::remove_file(&file).unwrap();
        watch.changed().await;
    }
}
