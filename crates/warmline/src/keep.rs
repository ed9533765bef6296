//! The keeper: the one background task that sweeps, checks, keeps alive and refills.
//!
//! It begins with the first call and ends with the engine. What it does is decided elsewhere: the
//! core says which sessions are too old, which runs rest too long, which spares are missing; the
//! store says what nobody came back for.

mod showing;

use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream;
use tokio::sync::Notify;
use tokio::task::{AbortHandle, JoinHandle, JoinSet};
use warmline_core::key::{Identity, Key, Owner};
use warmline_core::plan;
use warmline_core::pool::Why;

use crate::clock::{self, Home, Instant};
use crate::connect::{Connect, Holds};
use crate::engine::Engine;
use crate::entry::Entry;
use crate::events::Event;
use crate::pool::KeepAlive;
use crate::route::told;
use crate::run::{self, LeftOver};
use crate::sync::Mutex;
use crate::upstream::Reach;

pub(crate) use showing::snapshot;

/// So many keep-alives go out at a time.
const SIDE_BY_SIDE: usize = 32;
/// Who holds a session alone for longer than this is named.
const HELD_LONG: Duration = Duration::from_secs(60);
/// How long a sealing key serves before a new one takes its place.
const KEYS_SERVE: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// How often the store is looked through for what nobody came back for.
const LOOK_THROUGH_STORE: Duration = Duration::from_secs(60);

/// Whether the keeper runs, where, and how to stop it.
#[derive(Debug, Default)]
pub(crate) struct Started {
    running: Arc<AtomicBool>,
    task: Mutex<Option<(AbortHandle, Home)>>,
    left: Arc<LeftOvers>,
    removed: Mutex<Vec<(Instant, Arc<Entry>)>>,
    switched_off: Mutex<Vec<(Instant, Arc<Entry>)>>,
}

/// Ends of runs that were dropped where nothing could carry them out.
#[derive(Debug, Default)]
struct LeftOvers {
    ends: Mutex<Vec<LeftOver>>,
    told: Notify,
}

impl LeftOvers {
    fn take(&self) -> Vec<LeftOver> {
        std::mem::take(&mut *self.ends.lock())
    }
}

impl Started {
    /// Starts the keeper unless it runs. Cheap when it does.
    pub(crate) fn start(&self, engine: &Arc<Engine>) {
        if self.running.load(Ordering::Relaxed) || self.running.swap(true, Ordering::AcqRel) {
            return;
        }
        let running = Running(Arc::clone(&self.running));
        let left = Arc::clone(&self.left);
        let task = clock::spawn("keeper", keep(Arc::downgrade(engine), left, running));
        let home = Home::here();
        *self.task.lock() = home.map(|home| (task.abort_handle(), home));
    }

    /// Takes over the end of a run that was dropped where nothing could carry it out. A keeper that
    /// starts later finds it too.
    pub(crate) fn hand_over(&self, left: LeftOver) {
        self.left.ends.lock().push(left);
        self.left.told.notify_one();
    }

    /// The ends that it was handed and has not begun: whoever takes them carries them out.
    pub(crate) fn left_over(&self) -> Vec<LeftOver> {
        self.left.take()
    }

    /// A server was taken away, whichever ways led to it; the last of these is how it was declared
    /// at the end. Runs that have sessions there keep them for as long as a drain takes, and no
    /// longer.
    pub(crate) fn was_removed(&self, entries: impl IntoIterator<Item = Arc<Entry>>) {
        let now = clock::now();
        let entries = entries.into_iter().map(|entry| (now, entry));
        self.removed.lock().extend(entries);
        self.left.told.notify_one();
    }

    /// A server was switched off, whichever ways lead to it. What runs have there goes when a drain
    /// is over, unless it was switched on again by then.
    pub(crate) fn was_switched_off(&self, entries: Vec<Arc<Entry>>) {
        let now = clock::now();
        let mut off = self.switched_off.lock();
        for entry in entries {
            if !off.iter().any(|(_, known)| Arc::ptr_eq(known, &entry)) {
                off.push((now, entry));
            }
        }
        drop(off);
        self.left.told.notify_one();
    }

    /// How a server of that name was declared when it was taken away, until its time is over.
    pub(crate) fn last_removed(&self, name: &str) -> Option<Arc<Entry>> {
        let removed = self.removed.lock();
        let mut latest = removed.iter().rev().map(|(_, entry)| entry);
        latest.find(|entry| *entry.name == *name).cloned()
    }

    /// When the time of the next server that was taken away or switched off is over.
    fn puts_away_at(&self, after: Duration) -> Option<Instant> {
        let next_of = |all: &Mutex<Vec<(Instant, Arc<Entry>)>>| {
            let all = all.lock();
            let ends = all.iter().filter_map(|(since, _)| since.checked_add(after));
            ends.min()
        };
        let next = [next_of(&self.removed), next_of(&self.switched_off)];
        next.into_iter().flatten().min()
    }

    /// Whether a server of that name was taken away, and its time is not over.
    pub(crate) fn still_keeps(&self, name: &str) -> bool {
        let removed = self.removed.lock();
        removed.iter().any(|(_, entry)| *entry.name == *name)
    }

    /// The servers whose time is over.
    fn over(&self, after: Duration) -> Vec<Arc<Entry>> {
        let now = clock::now();
        let removed = self.removed.lock();
        let is_over = |since: Instant| now.saturating_duration_since(since) >= after;
        let over = removed.iter().filter(|(since, _)| is_over(*since));
        over.map(|(_, entry)| Arc::clone(entry)).collect()
    }

    /// The same of those that were switched off, which are looked at once.
    fn off_for_long(&self, after: Duration) -> Vec<Arc<Entry>> {
        let now = clock::now();
        let mut off = self.switched_off.lock();
        let is_over =
            |(since, _): &mut (Instant, Arc<Entry>)| now.saturating_duration_since(*since) >= after;
        let over = off.extract_if(.., is_over);
        over.map(|(_, entry)| entry).collect()
    }

    /// No run has these any more.
    fn was_put_away(&self, entries: &[Arc<Entry>]) {
        let mut removed = self.removed.lock();
        removed.retain(|(_, entry)| !entries.iter().any(|gone| Arc::ptr_eq(gone, entry)));
    }

    /// Starts a task where the keeper lives, for whoever is elsewhere.
    pub(crate) fn spawn_at_home<F>(&self, name: &'static str, work: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let home = self.task.lock().as_ref().map(|(_, home)| home.clone());
        if let Some(home) = home {
            home.spawn(name, work);
        }
    }

    /// Stops it.
    pub(crate) fn stop(&self) {
        if let Some((task, _)) = self.task.lock().take() {
            task.abort();
        }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Notes the end of the task, however it comes: with its runtime, too. The next call starts it
/// again.
struct Running(Arc<AtomicBool>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

async fn keep(engine: Weak<Engine>, left: Arc<LeftOvers>, running: Running) {
    let mut background = Background::default();
    while let Some(every) = engine.upgrade().map(|engine| engine.ceilings().sweep_every) {
        wait_for(clock::after(every), &engine, &left).await;
        // Held for one round only: an engine that everybody dropped ends between two.
        let Some(engine) = engine.upgrade() else {
            break;
        };
        round(&engine, &mut background).await;
    }
    drop(running);
}

/// Waits until the next round, and does what cannot wait for it.
async fn wait_for(next: Instant, engine: &Weak<Engine>, left: &LeftOvers) {
    loop {
        let due = engine.upgrade().and_then(|engine| {
            let drain = engine.ceilings().drain;
            engine.keeper.puts_away_at(drain)
        });
        let until = due.map_or(next, |due| due.min(next));
        match clock::timeout_at(until, left.told.notified()).await {
            Ok(()) => end_left_over(engine, left),
            Err(_) if until == next => return,
            Err(_) => {
                if let Some(engine) = engine.upgrade() {
                    end_removed(&engine);
                }
            },
        }
    }
}

/// Ends the runs that were dropped where nothing could do that.
fn end_left_over(engine: &Weak<Engine>, left: &LeftOvers) {
    if let Some(engine) = engine.upgrade() {
        for end in left.take() {
            let end = run::end_left_over(Arc::clone(&engine), end);
            drop(clock::spawn("run-end", end));
        }
    }
}

async fn round(engine: &Arc<Engine>, background: &mut Background) {
    hold_processes_of_live_runs(engine);
    let due = engine.pool().sweep().await;
    keep_alive(&mut background.pings, due);
    let idle = engine.ceilings().run_idle;
    for rested in engine.live_runs() {
        run::end_if_idle(engine, rested, idle);
    }
    end_removed(engine);
    name_long_leases(engine);
    background.checks.begin_those_due(engine);
    background.stores.begin_if_due(engine);
}

/// Ends what live runs still have of servers that were taken away, or switched off, long enough
/// ago.
fn end_removed(engine: &Engine) {
    let drain = engine.ceilings().drain;
    let over = engine.keeper.over(drain);
    for entry in &over {
        // Whoever is on the way there sees it, or we see the cell they put there.
        entry.put_away();
        end_in_runs(engine, entry);
    }
    // Only now: as long as anybody could use them, what was decided about them counts.
    engine.keeper.was_put_away(&over);
    for entry in engine.keeper.off_for_long(drain) {
        if entry.may_be_used(engine).is_err() {
            end_in_runs(engine, &entry);
        }
    }
}

/// Ends what live runs have of a server; those that had state there are told by their next call.
fn end_in_runs(engine: &Engine, entry: &Arc<Entry>) {
    for run in engine.live_runs() {
        for cell in run.routes.cells_of(entry) {
            if cell.key().run().is_some() {
                engine.pool().end(&cell, Why::Reloaded);
            }
        }
        run.leaves(entry);
    }
}

/// A process that an identity shares over its runs does not idle away while one of them is live.
fn hold_processes_of_live_runs(engine: &Engine) {
    let has_programs = engine
        .entries()
        .values()
        .any(|entry| entry.server.is_a_program());
    if !has_programs {
        return;
    }
    let live: HashSet<Identity> = engine.live_runs().iter().map(|run| run.who.id).collect();
    for cell in engine.pool().cells() {
        let (key, setup) = (cell.key(), cell.setup());
        let (Owner::Identity(owner), None, true) = (key.owner(), key.run(), setup.is_process())
        else {
            continue;
        };
        let Some(Holds::So(holding) | Holds::NoMore(holding)) = setup.holding() else {
            continue;
        };
        let waiters = engine.ceilings().waiters_per_key;
        let mut policy = plan::cell_policy(setup.leg, holding, &setup.entry.policy(), waiters);
        if live.contains(&owner) {
            policy.max_idle = None;
        }
        cell.reconfigure(policy);
    }
}

/// Names sessions that somebody holds alone for longer than anybody should, once each.
fn name_long_leases(engine: &Engine) {
    for (session, held) in engine.leases.held_longer_than(HELD_LONG) {
        engine.events().tell(Event::LeaseHeldLong {
            session,
            method: None,
            held,
        });
    }
}

/// Keeps sessions alive, each server's apart: one that hangs holds up nobody else's.
fn keep_alive(pings: &mut JoinSet<()>, due: Vec<KeepAlive<Connect>>) {
    while pings.try_join_next().is_some() {}
    let mut by_server: HashMap<Arc<str>, Vec<KeepAlive<Connect>>> = HashMap::new();
    for one in due {
        by_server.entry(one.server()).or_default().push(one);
    }
    for due in by_server.into_values() {
        let asked = stream::iter(due).for_each_concurrent(SIDE_BY_SIDE, |due| due.run());
        clock::spawn_in("keep-alive", pings, asked);
    }
}

/// What the keeper does beside its rounds; it ends with the keeper.
#[derive(Default)]
struct Background {
    stores: StoreRounds,
    pings: JoinSet<()>,
    checks: ServerChecks,
}

/// Looks at HTTP servers, each in a task of its own: one that hangs holds up nobody.
#[derive(Default)]
struct ServerChecks {
    /// When each was last looked at, and whether somebody still does.
    begun: HashMap<Arc<str>, (Instant, Arc<()>)>,
    under_way: JoinSet<()>,
}

impl ServerChecks {
    /// Looks at every HTTP server that is in use, without touching its sessions.
    fn begin_those_due(&mut self, engine: &Engine) {
        while self.under_way.try_join_next().is_some() {}
        let entries = engine.entries();
        self.begun.retain(|name, _| entries.contains_key(name));
        let now = clock::now();
        for entry in entries.values() {
            let every = entry.policy().health_check_interval;
            let is_due = self.begun.get(&entry.name).is_none_or(|(last, looking)| {
                let is_over = Arc::strong_count(looking) == 1;
                is_over && now.saturating_duration_since(*last) >= every
            });
            let Some(found) = entry.known_place() else {
                continue;
            };
            if every.is_zero() || !is_due || !matches!(found.reach, Reach::Http(_)) {
                continue;
            }
            let looking = Arc::new(());
            let begun = (now, Arc::clone(&looking));
            self.begun.insert(Arc::clone(&entry.name), begun);
            let (connector, entry) = (Arc::clone(engine.connector()), Arc::clone(entry));
            clock::spawn_in("server-check", &mut self.under_way, async move {
                let answers = connector.is_there(&entry, &found).await;
                entry.note_health(&answers);
                drop(looking);
            });
        }
    }
}

/// Rounds through the stores, one at a time. A slow store must not hold up the keeper.
#[derive(Default)]
struct StoreRounds {
    began: Option<Instant>,
    under_way: Option<JoinHandle<()>>,
}

impl StoreRounds {
    fn begin_if_due(&mut self, engine: &Arc<Engine>) {
        let due = self
            .began
            .is_none_or(|at| at.elapsed() >= LOOK_THROUGH_STORE);
        let free = self.under_way.as_ref().is_none_or(JoinHandle::is_finished);
        if !due || !free || engine.shared().stores.is_none() {
            return;
        }
        self.began = Some(clock::now());
        let engine = Arc::clone(engine);
        self.under_way = Some(clock::spawn("store-round", async move {
            look_through_stores(&engine).await;
        }));
    }
}

impl Drop for StoreRounds {
    fn drop(&mut self) {
        if let Some(under_way) = &self.under_way {
            under_way.abort();
        }
    }
}

/// Ends what nobody came back for, and renews the time of what is used.
async fn look_through_stores(engine: &Arc<Engine>) {
    let shared = engine.shared();
    if let Err(trouble) = shared.vault.rotate_if_older(KEYS_SERVE) {
        tracing::warn!(%trouble, "the sealing keys could not be rotated");
    }
    for cell in engine.pool().cells() {
        engine.connector().renew_record(&cell).await;
    }
    let entries: Vec<Arc<Entry>> = engine.entries().values().cloned().collect();
    for entry in entries {
        let Some(records) = shared.records_of(&entry) else {
            continue;
        };
        let left = records
            // Another server's session id is not for this one: a store may be shared.
            .abandoned(shared.ceilings.run_idle, |key| {
                key.place().server != entry.name
                    || engine.pool().holds(key)
                    || is_still_true(&entry, key)
            })
            .await;
        for record in left {
            // Asked again for each: while one is ended, somebody comes back for another.
            let is_held = |key: &Key| engine.pool().holds(key);
            engine
                .connector()
                .end_abandoned(&entry, &records, record, is_held)
                .await;
        }
    }
}

/// What a record tells of a server holds as long as the server is reached the same way.
fn is_still_true(entry: &Entry, key: &Key) -> bool {
    let reached = entry.known_place();
    told::is_of_a_server(key) && reached.is_none_or(|found| found.revision == key.place().revision)
}
