//! Methods for programs that operate an engine for others: gateway, command line and tests.
//!
//! The facade does not re-export this module.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderName;
use warmline_core::pool_key::Digest;

use super::{Caller, Warmline, WarmlineBuilder};
use crate::engine::{Engine, ServerChanges, ServerSetWatcher};
use crate::error::{Error, Result};
use crate::events::Fingerprint;
use crate::identity::IdentityName;
use crate::run::{Run, RunRole};
use crate::run_state::{RunOrigin, RunState};
use crate::server::Server;
use crate::settings::EngineSettings;

impl AsRef<Self> for Warmline {
    fn as_ref(&self) -> &Self {
        self
    }
}

impl EngineAdmin for Warmline {}

/// The methods of a [`Warmline`] for programs that operate it.
#[expect(
    async_fn_in_trait,
    reason = "implemented for one type, whose futures are Send"
)]
pub trait EngineAdmin: AsRef<Warmline> + Sync {
    /// A caller by a name of several parts, such as issuer and subject.
    fn identity_from_name(&self, name: IdentityName) -> Caller {
        Caller::new(&self.as_ref().engine, name)
    }

    /// Replaces all servers, as [`Warmline::add_server`] and [`Warmline::remove_server`] do it.
    /// Unchanged servers keep their sessions.
    ///
    /// # Errors
    /// `config-bad-value`: a server cannot be used. Then nothing changes.
    fn set_servers(&self, servers: Vec<Server>) -> Result<ServerChanges> {
        let engine = &self.as_ref().engine;
        let changes = engine.set_servers(servers)?;
        if !changes.is_empty() {
            engine.announce_server_changes();
        }
        Ok(changes)
    }

    /// Watches for servers that are declared, reconfigured or removed.
    fn watch_servers(&self) -> ServerSetWatcher {
        ServerSetWatcher::new(&self.as_ref().engine)
    }

    /// Closes as [`Warmline::close_within`] does, and kills programs after a moment instead of
    /// seconds.
    async fn close_fast_within(&self, within: Duration) {
        let engine = &self.as_ref().engine;
        engine.context.upstream.child_tracker.shorten_timeouts();
        engine.close_within(within).await;
    }

    /// Cancels list reads that no caller is waiting for.
    fn cancel_orphaned_reads(&self) {
        self.as_ref().engine.cancel_orphaned_reads();
    }

    /// Whether a server is declared, or was removed while live runs still use it.
    fn has_server(&self, name: &str) -> bool {
        let engine = &self.as_ref().engine;
        engine.servers.load().contains_key(name) || engine.maintenance.last_removed(name).is_some()
    }

    /// Checks that a server may be called: it is declared or live runs still use it, and it is
    /// enabled.
    ///
    /// # Errors
    /// `server-unknown` or `not-allowed`.
    fn check_server(&self, name: &str) -> Result<()> {
        let engine = &self.as_ref().engine;
        let is_declared = engine.servers.load().contains_key(name);
        let checked = match engine.maintenance.last_removed(name) {
            Some(last) if !is_declared => last.check_enabled(),
            Some(_) | None => engine.server(name).map(drop),
        };
        checked.map_err(Error::unsent)
    }

    /// Whether live runs still use a removed server of that name.
    fn has_removed_server(&self, name: &str) -> bool {
        self.as_ref()
            .engine
            .maintenance
            .last_removed(name)
            .is_some()
    }

    /// Whether the credential of a server comes from this header of a caller's request.
    fn reads_credentials_from(&self, header: &HeaderName) -> bool {
        let servers = self.as_ref().engine.servers.load();
        let mut sources = servers
            .values()
            .filter_map(|server| server.declaration.credential.as_ref());
        sources.any(|source| source.secret.reads_header(header))
    }

    /// The live run of that fingerprint, of any identity.
    fn run_by_fingerprint(&self, fingerprint: &str) -> Option<Run> {
        let is_meant = |run: &RunState| Fingerprint::from(run.id).to_string() == fingerprint;
        joined_runs(&self.as_ref().engine, is_meant).pop()
    }

    /// The live runs of that name: each identity can have one.
    fn runs_by_name(&self, name: &str) -> Vec<Run> {
        joined_runs(&self.as_ref().engine, |run| *run.name == *name)
    }

    /// Closes the sessions of a server, or only the one with this key number and generation, and
    /// returns their number. Calls on them finish first; the next call learns of the lost state.
    fn close_sessions(&self, server: &str, of: Option<(u64, u32)>) -> usize {
        let pool = &self.as_ref().engine.pool;
        let mut closed = 0;
        for entry in pool.entries() {
            if *entry.key.target.server != *server {
                continue;
            }
            for seen in entry.sessions() {
                let number = (entry.number, seen.generation.number());
                if of.is_none_or(|of| of == number) {
                    pool.end_session(&entry, seen.generation);
                    closed += 1;
                }
            }
        }
        closed
    }
}

/// The methods of a [`WarmlineBuilder`] for programs with a configuration file.
pub trait EngineSetup: Into<WarmlineBuilder> {
    /// Sets the settings of the whole engine.
    #[must_use]
    fn settings(self, settings: EngineSettings) -> WarmlineBuilder {
        let mut builder = self.into();
        builder.settings = settings;
        builder
    }
}

impl EngineSetup for WarmlineBuilder {}

impl AsRef<Self> for Caller {
    fn as_ref(&self) -> &Self {
        self
    }
}

/// The methods of a [`Caller`] for programs that serve several.
pub trait CallerAdmin: AsRef<Caller> {
    /// The digest that keeps its sessions apart.
    fn digest(&self) -> Digest {
        self.as_ref().identity.id.0
    }

    /// As [`Caller::named_run`] for a client that was there before: where the run is over without a
    /// record, the loss of its state is reported as any other.
    ///
    /// # Errors
    /// As [`Caller::named_run`].
    fn rejoin_run(&self, name: &str) -> Result<Run> {
        self.as_ref().begin_or_join(name, RunOrigin::Rejoined)
    }
}

impl CallerAdmin for Caller {}

impl Run {
    /// A short form of its id, as in events and snapshots.
    ///
    /// ```
    /// # fn example(run: &warmline::Run, snapshot: &warmline::metrics::Snapshot) {
    /// let own = run.fingerprint();
    /// let line = snapshot.runs.iter().find(|line| line.run.to_string() == own);
    /// # }
    /// ```
    pub fn fingerprint(&self) -> String {
        Fingerprint::from(self.state.id).to_string()
    }
}

impl Caller {
    /// Its live runs. Dropping one of these handles ends nothing.
    pub fn runs(&self) -> Vec<Run> {
        let is_own = |run: &RunState| run.identity.id == self.identity.id;
        joined_runs(&self.engine, is_own)
    }
}

fn joined_runs(engine: &Arc<Engine>, is_meant: impl Fn(&RunState) -> bool) -> Vec<Run> {
    let live = engine.live_runs().into_iter();
    live.filter(|run| run.is_live() && is_meant(run))
        .map(|run| Run::new(Arc::clone(engine), run, RunRole::Joined))
        .collect()
}
