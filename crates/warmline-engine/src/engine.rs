//! The engine that all handles share. It owns the servers, the live runs and the pool.

pub(crate) mod maintenance;
mod server_changes;
mod shutdown;
mod snapshot;

use std::collections::HashMap;
use std::future::Future;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;
use tokio::sync::watch;
use warmline_core::error::code::Reason;
use warmline_core::exchange::Diagnostic;
use warmline_core::pool::EndReason;
use warmline_core::pool_key::{Digest, RunId};
use warmline_core::time::Tick;
use warmline_core::tool_names::matches_any_pattern;

use crate::context::{CLOSED, EngineContext};
use crate::credentials::CallerIdentity;
use crate::error::{Error, Result};
use crate::events::{Event, Fingerprint, RunEnd};
use crate::identity::{IdentityExtractor, IdentityName};
use crate::lease::LeaseRegistry;
use crate::metrics::ServerMetrics;
use crate::run_state::RunQuota;
use crate::run_state::{CancelSignal, RunState};
use crate::server::Server;
use crate::server_state::{KeyedClientProfile, ServerState};
use crate::session_factory::{SessionFactory, SessionSetup};
use crate::settings::{ConfigError, ServerSettings, SettingsGroup, closest_match};
use warmline_platform::clock;
use warmline_platform::lock::Mutex;
use warmline_pool::Pool;
use warmline_store::keyring::{Purpose, random_bytes};

pub(crate) use maintenance::Maintenance;
pub(crate) use server_changes::UndeclaredServer;
pub use server_changes::{ServerChanges, ServerSetWatcher};
use shutdown::{PendingRunEnd, end_if_idle, end_pending};
pub(crate) use shutdown::{end_in_background, end_run};
pub(crate) use snapshot::engine_snapshot;

pub(crate) struct Engine {
    pub(crate) servers: ArcSwap<HashMap<Arc<str>, Arc<ServerState>>>,
    /// All servers in use, also removed and undeclared ones.
    pub(crate) registry: ServerRegistry,
    pub(crate) server_changes: watch::Sender<u64>,
    pub(crate) runs: Mutex<HashMap<RunId, Arc<RunState>>>,
    /// The same runs for lookups without a lock.
    pub(crate) joinable_runs: papaya::HashMap<RunId, Arc<RunState>>,
    pub(crate) run_quota: RunQuota,
    pub(crate) pool: Pool<SessionFactory>,
    pub(crate) session_factory: Arc<SessionFactory>,
    pub(crate) context: Arc<EngineContext>,
    pub(crate) identity_extractor: Arc<dyn IdentityExtractor>,
    pub(crate) allowed_servers: Vec<String>,
    pub(crate) reads_environment: bool,
    pub(crate) maintenance: Maintenance,
    pub(crate) client_profile: Arc<KeyedClientProfile>,
    pub(crate) leases: Arc<LeaseRegistry>,
    /// Cancel calls outside runs. Several, so that unrelated calls share no lock.
    pub(crate) cancel_signals: [CancelSignal; 16],
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine")
            .field("servers", &self.servers.load().len())
            .finish_non_exhaustive()
    }
}

impl Engine {
    pub(crate) fn tick(&self) -> Tick {
        self.context.tick()
    }

    pub(crate) fn check_open(self: &Arc<Self>) -> Result<(), Diagnostic> {
        self.context.closed_diagnostic().map_or(Ok(()), Err)?;
        if !self.maintenance.running.load(Ordering::Relaxed) {
            self.maintenance.start(self);
        }
        Ok(())
    }

    /// The settings whose rules hold for a server: its own, or those of the latest server of its name. A
    /// removed server keeps the rules that were in force when it was removed.
    ///
    /// A handle keeps the server it was made with, and the server may be replaced meanwhile. Policy,
    /// cached tools and session come from one server: the hint of one never decides about a call to
    /// another. But the latest declaration of a name decides what may be called.
    pub(crate) fn ruling_settings(&self, server: &ServerState) -> Arc<ServerSettings> {
        if server.has_own_rules() {
            return server.settings.load_full();
        }
        if let Some(newest) = self.servers.load().get(&server.name) {
            return newest.settings.load_full();
        }
        let last = self.maintenance.last_removed(&server.name);
        last.map_or_else(
            || server.settings.load_full(),
            |last| last.settings.load_full(),
        )
    }

    pub(crate) fn check_usable(&self, server: &ServerState) -> Result<(), Diagnostic> {
        self.ruling_settings(server).check_enabled(&server.name)
    }

    /// The server of that name, if it may be called.
    pub(crate) fn server(&self, name: &str) -> Result<Arc<ServerState>, Diagnostic> {
        let entries = self.servers.load();
        let Some(entry) = entries.get(name) else {
            let what = format!("no server `{}` is declared", name.escape_debug());
            let diagnostic = Diagnostic::new(Reason::ServerUnknown, what);
            let near = closest_match(name, entries.keys().map(|name| &**name));
            return Err(match near {
                Some(near) => diagnostic.with_hint(format!("did you mean `{near}`?")),
                None => diagnostic,
            });
        };
        entry.check_enabled()?;
        self.check_allowed(name)?;
        Ok(Arc::clone(entry))
    }

    fn check_allowed(&self, name: &str) -> Result<(), Diagnostic> {
        if self.allowed_servers.is_empty() || matches_any_pattern(&self.allowed_servers, name) {
            return Ok(());
        }
        let what = format!("`{name}` is not among the servers that may be called");
        Err(Diagnostic::new(Reason::NotAllowed, what))
    }

    /// Checks a declaration, and applies the environment where the builder asked for it.
    pub(crate) fn check_server(&self, mut server: Server) -> Result<Server> {
        if let Some(problem) = server.problem() {
            return Err(Error::unsent(problem.clone()));
        }
        let name = &server.name;
        let settings = &mut server.settings;
        settings.mark_changes_as_builder();
        if self.reads_environment {
            let taken = settings.apply_process_environment();
            taken.map_err(|error| server_config_error(name, error))?;
        }
        let settled = settings.normalize();
        settled.map_err(|error| server_config_error(name, error))?;
        Ok(server)
    }

    fn new_server_state(&self, server: Server, metrics: Arc<ServerMetrics>) -> Arc<ServerState> {
        let events = self.context.events.clone();
        let entry = ServerState::new(server, metrics, events, self.context.limits.list_horizon);
        self.registry.insert(&entry);
        entry
    }

    pub(crate) fn add_server(&self, server: Server) -> Result<()> {
        let server = self.check_server(server)?;
        self.insert_server(server);
        Ok(())
    }

    /// Adds a checked server, or applies its settings to the one that is there.
    pub(crate) fn insert_server(&self, server: Server) {
        let known = self.servers.load().get(server.name()).cloned();
        if let Some(known) = known
            && known.has_same_target(&server, &self.context.vault)
        {
            return self.apply_settings(&known, server.settings);
        }
        let metrics = self.context.metrics.server(server.name());
        let entry = self.new_server_state(server, metrics);
        let old = self.servers.rcu(|entries| {
            let mut entries = HashMap::clone(entries);
            entries.insert(Arc::clone(&entry.name), Arc::clone(&entry));
            entries
        });
        if let Some(old) = old.get(&entry.name) {
            old.withdraw();
            self.end_shared_sessions(old);
            // The store depends on the server's descriptor, which may have changed.
            self.context.records.lock().remove(&old.name);
        }
        self.forget_tools(&entry.name);
        if entry.check_enabled().is_err() {
            self.schedule_disabled_cleanup(&entry.name);
        }
    }

    /// Closes the sessions that runs have at a disabled server after the time of a drain.
    fn schedule_disabled_cleanup(&self, name: &str) {
        self.maintenance.note_disabled(self.registry.by_name(name));
    }

    /// Drops the tool lists of a name whose rules changed, also those of replaced servers.
    fn forget_tools(&self, name: &str) {
        for entry in self.registry.by_name(name) {
            entry.tool_lists.forget_all();
        }
    }

    /// Applies other settings to a server; its sessions stay.
    fn apply_settings(&self, entry: &Arc<ServerState>, settings: ServerSettings) {
        entry.apply_settings(settings);
        self.forget_tools(&entry.name);
        if entry.check_enabled().is_err() {
            self.end_shared_sessions(entry);
            self.schedule_disabled_cleanup(&entry.name);
        }
        let most = entry.settings.load().policy.max_sessions;
        self.pool.set_server_max_sessions(&entry.name, most);
        self.pool
            .spares()
            .update_wanted(|setup| Arc::ptr_eq(&setup.server, entry));
        let waiters = self.context.limits.waiters_per_key;
        for cell in self.pool.entries() {
            let setup = &cell.setup;
            if !Arc::ptr_eq(&setup.server, entry) {
                continue;
            }
            match setup.current_policy(waiters) {
                // No route leads there any more.
                Some((_, true)) if cell.key.run().is_none() => {
                    self.pool.end_entry(&cell, EndReason::Reloaded);
                },
                Some((policy, _)) => cell.reconfigure(policy),
                None => {},
            }
        }
    }

    pub(crate) fn remove_server(&self, name: &str) -> bool {
        let Some(old) = self.servers.load().get(name).cloned() else {
            return false;
        };
        // Runs may still use older servers of this name. The last rules count for all of them.
        let mut all = self.registry.by_name(name);
        all.retain(|older| !Arc::ptr_eq(older, &old));
        all.push(Arc::clone(&old));
        self.maintenance.note_removed(all);
        self.servers.rcu(|entries| {
            let mut entries = HashMap::clone(entries);
            entries.remove(name);
            entries
        });
        old.withdraw();
        self.end_shared_sessions(&old);
        self.context.records.lock().remove(name);
        self.context.metrics.forget_server(name);
        true
    }

    /// Ends the shared sessions of this server. The next call of a run with state there learns of the
    /// loss, because its route has ended.
    fn end_shared_sessions(&self, entry: &Arc<ServerState>) {
        let is_of_it = |setup: &SessionSetup| Arc::ptr_eq(&setup.server, entry);
        self.pool
            .end_shared_with_setup(is_of_it, EndReason::Reloaded);
    }

    pub(crate) fn caller_identity(&self, said: IdentityName) -> Arc<CallerIdentity> {
        let id = said.digest(&self.context.vault);
        Arc::new(CallerIdentity {
            name: said,
            id,
            request_credential: None,
        })
    }

    pub(crate) fn run_id(&self, who: &CallerIdentity, name: &str) -> RunId {
        let parts: [&[u8]; 2] = [who.id.0.as_bytes(), name.as_bytes()];
        RunId(self.context.vault.digest(Purpose::Run, &parts))
    }

    pub(crate) fn live_run(&self, id: RunId) -> Option<Arc<RunState>> {
        let runs = self.joinable_runs.pin();
        runs.get(&id).filter(|run| run.is_live()).cloned()
    }

    /// Forgets a run that is over: its name begins another.
    pub(crate) fn forget_run(&self, run: &Arc<RunState>) {
        let mut runs = self.runs.lock();
        if runs
            .get(&run.name_id)
            .is_some_and(|known| Arc::ptr_eq(known, run))
        {
            runs.remove(&run.name_id);
            self.joinable_runs.pin().remove(&run.name_id);
        }
    }

    pub(crate) fn record_run_end(&self, run: &RunState, why: RunEnd, sessions: u32) {
        let metrics = &self.context.metrics.engine;
        if !metrics.runs.decrement() {
            metrics.gauge_underflows.increment();
        }
        metrics.sessions_per_run.record(u64::from(sessions));
        self.context.events.emit(Event::RunEnded {
            identity: Fingerprint::from(run.identity.id),
            run: Fingerprint::from(run.id),
            why,
            sessions,
        });
    }

    pub(crate) fn live_runs(&self) -> Vec<Arc<RunState>> {
        self.runs.lock().values().cloned().collect()
    }

    /// Runs a call outside runs until its result, or until the engine cancels it.
    pub(crate) async fn run_until_cancelled<F: Future>(&self, call: F) -> Option<F::Output> {
        match self
            .cancel_signals
            .get(fastrand::usize(..self.cancel_signals.len()))
        {
            Some(cut) => cut.run_until_set(call).await,
            None => Some(call.await),
        }
    }
}

/// All servers in use, declared or not: to end their lookups with the engine, and to apply rules to
/// older servers of a name that runs still use.
#[derive(Debug, Default)]
pub(crate) struct ServerRegistry(Mutex<Vec<Weak<ServerState>>>);

impl ServerRegistry {
    pub(crate) fn insert(&self, entry: &Arc<ServerState>) {
        let mut made = self.0.lock();
        // Cleaned up before the list grows, so that each is checked a few times at most.
        if made.len() == made.capacity() {
            made.retain(|entry| entry.strong_count() > 0);
        }
        made.push(Arc::downgrade(entry));
    }

    /// Those declared under a name, the oldest first.
    pub(crate) fn by_name(&self, name: &str) -> Vec<Arc<ServerState>> {
        let all = self.all().into_iter();
        all.filter(|entry| *entry.name == *name && !entry.is_undeclared())
            .collect()
    }

    pub(crate) fn all(&self) -> Vec<Arc<ServerState>> {
        self.0.lock().iter().filter_map(Weak::upgrade).collect()
    }
}

/// Closes the sessions of an engine that was not closed, while a runtime can do it.
impl Drop for Engine {
    fn drop(&mut self) {
        if self.context.phase.load(Ordering::Acquire) != CLOSED {
            let (pool, time) = (self.pool.clone(), self.context.limits.drain);
            let drain = async move { pool.drain(clock::after(time)).await };
            self.maintenance.spawn_on_any_runtime("engine-drop", drain);
        }
    }
}

pub(crate) fn config_error(error: ConfigError) -> Error {
    Error::unsent(error.into())
}

pub(crate) fn server_config_error(server: &str, error: ConfigError) -> Error {
    let mut diagnostic: Diagnostic = error.into();
    diagnostic.message = format!("`{server}`: {}", diagnostic.message);
    Error::unsent(diagnostic)
}

pub(crate) fn random_hex() -> String {
    Digest::new(random_bytes()).to_hex()
}
