//! Maintenance: the one background task of an engine. It sweeps, checks, keeps alive and refills.
//!
//! It starts with the first call and ends with the engine. Others decide what is due: the core says
//! which sessions are too old and which runs are idle, the store which records are abandoned.

use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream;
use tokio::sync::Notify;
use tokio::task::{AbortHandle, JoinSet};
use warmline_core::pool::EndReason;
use warmline_core::pool_key::{Identity, KeyOwner, PoolKey};

use super::{Engine, PendingRunEnd, end_if_idle, end_pending};
use crate::events::Event;
use crate::server_state::ServerState;
use crate::session_factory::{SessionFactory, is_server_record_key};
use warmline_platform::clock::{self, Instant, RuntimeHandle};
use warmline_platform::lock::Mutex;
use warmline_pool::KeepAliveCheck;
use warmline_upstream::TransportConfig;

const MAX_CONCURRENT_KEEP_ALIVES: usize = 32;
const LONG_LEASE: Duration = Duration::from_secs(60);
/// How long a sealing key serves before a new one takes its place.
const KEY_ROTATION_PERIOD: Duration = Duration::from_secs(30 * 24 * 60 * 60);
const STORE_SWEEP_INTERVAL: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(crate) struct Maintenance {
    pub(super) running: Arc<AtomicBool>,
    task: Mutex<Option<(AbortHandle, RuntimeHandle)>>,
    pub(super) pending_ends: Arc<PendingRunEnds>,
    draining: Mutex<Vec<DrainingServer>>,
}

/// A server that was removed or disabled. Runs keep their sessions there for as long as a drain may
/// take; its rules are in force until then.
#[derive(Clone, Debug)]
struct DrainingServer {
    since: Instant,
    server: Arc<ServerState>,
    is_removed: bool,
}

/// Ends of runs that were dropped outside of a runtime.
#[derive(Debug, Default)]
pub(super) struct PendingRunEnds {
    ends: Mutex<Vec<PendingRunEnd>>,
    wake: Notify,
}

impl PendingRunEnds {
    /// Takes the ends that have not begun; the caller carries them out.
    pub(super) fn take_all(&self) -> Vec<PendingRunEnd> {
        std::mem::take(&mut *self.ends.lock())
    }
}

impl Maintenance {
    pub(super) fn start(&self, engine: &Arc<Engine>) {
        if self.running.swap(true, Ordering::AcqRel) {
            return;
        }
        let running = RunningGuard(Arc::clone(&self.running));
        let left = Arc::clone(&self.pending_ends);
        let task = clock::spawn(
            "keeper",
            run_maintenance(Arc::downgrade(engine), left, running),
        );
        let home = RuntimeHandle::current();
        *self.task.lock() = home.map(|home| (task.abort_handle(), home));
    }

    /// Takes over the end of a run that was dropped outside of a runtime. A task that starts later
    /// finds it too.
    pub(crate) fn hand_over_run_end(&self, left: PendingRunEnd) {
        self.pending_ends.ends.lock().push(left);
        self.pending_ends.wake.notify_one();
    }

    /// A server was removed; the last of these is its latest declaration.
    pub(crate) fn note_removed(&self, servers: Vec<Arc<ServerState>>) {
        self.note_draining(servers, true);
    }

    /// A server was disabled. Runs lose their sessions there after a drain, unless it is enabled again
    /// by then.
    pub(crate) fn note_disabled(&self, mut servers: Vec<Arc<ServerState>>) {
        let draining = self.draining.lock();
        servers.retain(|server| {
            let is_it = |one: &DrainingServer| !one.is_removed && Arc::ptr_eq(&one.server, server);
            !draining.iter().any(is_it)
        });
        drop(draining);
        self.note_draining(servers, false);
    }

    fn note_draining(&self, servers: Vec<Arc<ServerState>>, is_removed: bool) {
        let since = clock::now();
        let draining = servers.into_iter().map(|server| DrainingServer {
            since,
            server,
            is_removed,
        });
        self.draining.lock().extend(draining);
        self.pending_ends.wake.notify_one();
    }

    /// The latest declaration of a removed server, until the drain is over.
    pub(crate) fn last_removed(&self, name: &str) -> Option<Arc<ServerState>> {
        let draining = self.draining.lock();
        let mut latest = draining.iter().rev();
        let last = latest.find(|one| one.is_removed && *one.server.name == *name)?;
        Some(Arc::clone(&last.server))
    }

    /// When the next drain of a removed or disabled server is over.
    fn next_cleanup_at(&self, after: Duration) -> Option<Instant> {
        let draining = self.draining.lock();
        let ends = draining
            .iter()
            .filter_map(|one| one.since.checked_add(after));
        ends.min()
    }

    /// The servers whose drain is over. Those that were disabled are returned once.
    fn take_drained(&self, after: Duration) -> Vec<DrainingServer> {
        let now = clock::now();
        let mut draining = self.draining.lock();
        let is_over = |one: &DrainingServer| now.saturating_duration_since(one.since) >= after;
        let drained = draining
            .iter()
            .filter(|one| is_over(one))
            .cloned()
            .collect();
        draining.retain(|one| one.is_removed || !is_over(one));
        drained
    }

    /// No run uses these any more.
    fn forget_removed(&self, servers: &[DrainingServer]) {
        let is_it = |one: &DrainingServer, gone: &DrainingServer| {
            one.is_removed && Arc::ptr_eq(&one.server, &gone.server)
        };
        let mut draining = self.draining.lock();
        draining.retain(|one| !servers.iter().any(|gone| is_it(one, gone)));
    }

    /// Spawns a task on this runtime, or from outside of any on that of the maintenance task: a handle
    /// dropped there closes its sessions, too.
    pub(crate) fn spawn_on_any_runtime<F>(&self, name: &'static str, work: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let home = || Some(self.task.lock().as_ref()?.1.clone());
        if let Some(runtime) = RuntimeHandle::current().or_else(home) {
            runtime.spawn(name, work);
        }
    }

    pub(crate) fn stop(&self) {
        if let Some((task, _)) = self.task.lock().take() {
            task.abort();
        }
    }
}

impl Drop for Maintenance {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Notes the end of the task, also when its runtime ends. The next call starts it again.
struct RunningGuard(Arc<AtomicBool>);

impl Drop for RunningGuard {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

async fn run_maintenance(engine: Weak<Engine>, left: Arc<PendingRunEnds>, running: RunningGuard) {
    let mut background = BackgroundJobs::default();
    while let Some(every) = engine
        .upgrade()
        .map(|engine| engine.context.limits.sweep_every)
    {
        wait_for_round(clock::after(every), &engine, &left).await;
        // Held for one round only, so that a dropped engine ends between two.
        let Some(engine) = engine.upgrade() else {
            break;
        };
        run_round(&engine, &mut background).await;
    }
    drop(running);
}

/// Waits for the next round, and does what cannot wait that long.
async fn wait_for_round(next: Instant, engine: &Weak<Engine>, left: &PendingRunEnds) {
    loop {
        let due = engine.upgrade().and_then(|engine| {
            let drain = engine.context.limits.drain;
            engine.maintenance.next_cleanup_at(drain)
        });
        let until = due.map_or(next, |due| due.min(next));
        match clock::timeout_at(until, left.wake.notified()).await {
            Ok(()) => end_pending_runs(engine, left),
            Err(_) if until == next => return,
            Err(_) => {
                if let Some(engine) = engine.upgrade() {
                    end_removed_servers(&engine);
                }
            },
        }
    }
}

fn end_pending_runs(engine: &Weak<Engine>, left: &PendingRunEnds) {
    if let Some(engine) = engine.upgrade() {
        for end in left.take_all() {
            let end = end_pending(Arc::clone(&engine), end);
            drop(clock::spawn("run-end", end));
        }
    }
}

async fn run_round(engine: &Arc<Engine>, background: &mut BackgroundJobs) {
    hold_processes_of_live_runs(engine);
    let due = engine.pool.sweep().await;
    background.start_keep_alives(due);
    let idle = engine.context.limits.run_idle;
    for rested in engine.live_runs() {
        end_if_idle(engine, &rested, idle);
    }
    end_removed_servers(engine);
    report_long_leases(engine);
    background.start_server_checks(engine);
    background.start_store_sweep(engine);
}

/// Ends the sessions that live runs still have at servers whose drain is over.
fn end_removed_servers(engine: &Engine) {
    let drain = engine.context.limits.drain;
    let drained = engine.maintenance.take_drained(drain);
    let (removed, disabled): (Vec<_>, Vec<_>) = drained.into_iter().partition(|one| one.is_removed);
    for one in &removed {
        // Either a call that looks for a route sees this, or we see the entry that it added.
        one.server.mark_removed();
        end_run_sessions(engine, &one.server);
    }
    // Only now: their rules are in force as long as anybody may use them.
    engine.maintenance.forget_removed(&removed);
    for one in disabled {
        if engine.check_usable(&one.server).is_err() {
            end_run_sessions(engine, &one.server);
        }
    }
}

/// Ends the sessions that live runs have at a server. Their next call reports lost state.
fn end_run_sessions(engine: &Engine, entry: &Arc<ServerState>) {
    for run in engine.live_runs() {
        for cell in run.session_table.entries_of(entry) {
            if cell.key.run().is_some() {
                engine.pool.end_entry(&cell, EndReason::Reloaded);
            }
        }
        run.remove_server(entry);
    }
}

/// A process that the runs of an identity share does not become idle while one of them is live.
fn hold_processes_of_live_runs(engine: &Engine) {
    let has_programs = engine
        .servers
        .load()
        .values()
        .any(|entry| entry.declaration.is_program());
    if !has_programs {
        return;
    }
    let live: HashSet<Identity> = engine
        .live_runs()
        .iter()
        .map(|run| run.identity.id)
        .collect();
    for cell in engine.pool.entries() {
        let (key, setup) = (&cell.key, &cell.setup);
        let (KeyOwner::Identity(owner), None, true) = (key.owner, key.run(), setup.is_process())
        else {
            continue;
        };
        let Some((mut policy, _)) = setup.current_policy(engine.context.limits.waiters_per_key)
        else {
            continue;
        };
        if live.contains(&owner) {
            policy.max_idle = None;
        }
        cell.reconfigure(policy);
    }
}

fn report_long_leases(engine: &Engine) {
    for (session, held) in engine.leases.take_long_held(LONG_LEASE) {
        engine.context.events.emit(Event::LongLease {
            session,
            method: None,
            held,
        });
    }
}

/// What runs beside the rounds, and ends with the task.
#[derive(Default)]
struct BackgroundJobs {
    checks: JoinSet<()>,
    store_sweep: JoinSet<()>,
    stores_swept_at: Option<Instant>,
}

impl BackgroundJobs {
    /// Keeps sessions alive, server by server: one that hangs delays no other.
    fn start_keep_alives(&mut self, due: Vec<KeepAliveCheck<SessionFactory>>) {
        while self.checks.try_join_next().is_some() {}
        let mut by_server: HashMap<Arc<str>, Vec<KeepAliveCheck<SessionFactory>>> = HashMap::new();
        for one in due {
            by_server.entry(one.server()).or_default().push(one);
        }
        for due in by_server.into_values() {
            let asked =
                stream::iter(due).for_each_concurrent(MAX_CONCURRENT_KEEP_ALIVES, |due| due.run());
            clock::spawn_in("keep-alive", &mut self.checks, asked);
        }
    }

    /// Checks every HTTP server that is in use, without touching its sessions. One that hangs delays
    /// no other.
    fn start_server_checks(&mut self, engine: &Engine) {
        for entry in engine.servers.load().values() {
            let every = entry.settings.load().policy.health_check_interval;
            let Some(found) = entry.known_location() else {
                continue;
            };
            if every.is_zero() || !matches!(found.transport, TransportConfig::Http(_)) {
                continue;
            }
            let Some(token) = entry.begin_check(every) else {
                continue;
            };
            let (connector, entry) = (Arc::clone(&engine.session_factory), Arc::clone(entry));
            clock::spawn_in("server-check", &mut self.checks, async move {
                let answers = connector.check_reachable(&entry, &found).await;
                entry.note_health(&answers);
                drop(token);
            });
        }
    }

    /// Sweeps the stores, one sweep at a time: a slow store must not delay the rounds.
    fn start_store_sweep(&mut self, engine: &Arc<Engine>) {
        while self.store_sweep.try_join_next().is_some() {}
        let last = self.stores_swept_at;
        let is_due = last.is_none_or(|at| at.elapsed() >= STORE_SWEEP_INTERVAL);
        if is_due && self.store_sweep.is_empty() && engine.context.store_factory.is_some() {
            self.stores_swept_at = Some(clock::now());
            let sweep = sweep_stores(Arc::clone(engine));
            clock::spawn_in("store-round", &mut self.store_sweep, sweep);
        }
    }
}

/// Ends abandoned sessions, and renews the records of those in use.
async fn sweep_stores(engine: Arc<Engine>) {
    let shared = &engine.context;
    if let Err(diagnostic) = shared.vault.rotate_if_older(KEY_ROTATION_PERIOD) {
        tracing::warn!(trouble = %diagnostic, "the sealing keys could not be rotated");
    }
    for cell in engine.pool.entries() {
        engine.session_factory.renew_record(&cell).await;
    }
    let entries: Vec<Arc<ServerState>> = engine.servers.load().values().cloned().collect();
    for entry in entries {
        let Some(records) = shared.records_of(&entry) else {
            continue;
        };
        let left = records
            // A store may be shared: no server may learn the session id of another.
            .abandoned(shared.limits.run_idle, |key| {
                key.target.server != entry.name
                    || engine.pool.has_sessions(key)
                    || is_current_fact(&entry, key)
            })
            .await;
        for record in left {
            // Checked for each: while one is ended, a client comes back for another.
            let is_held = |key: &PoolKey| engine.pool.has_sessions(key);
            engine
                .session_factory
                .end_abandoned(&entry, &records, record, is_held)
                .await;
        }
    }
}

/// A record about a server is valid as long as the location stays the same.
fn is_current_fact(entry: &ServerState, key: &PoolKey) -> bool {
    let reached = entry.known_location();
    is_server_record_key(key) && reached.is_none_or(|found| found.revision == key.target.revision)
}
