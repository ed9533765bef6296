//! The engine: what all handles share, and the doors to it.
//!
//! Asked by: the handles people hold, and the way of a call.  It owns the servers, the live runs
//! and the pool; nothing here decides about a session.

mod closing;
mod made;
mod undeclared;

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use arc_swap::ArcSwap;
use tokio::sync::watch;
use warmline_core::code::Reason;
use warmline_core::era::Era;
use warmline_core::exchange::Trouble;
use warmline_core::key::{Digest, Identity, RunId};
use warmline_core::plan;
use warmline_core::policy::Ceilings;
use warmline_core::pool::Why;
use warmline_core::tick::Tick;

use crate::clock::{self, Home, Instant};
use crate::connect::{Connect, Holds, Setup};
use crate::credentials::Credential;
use crate::entry::{Entry, Said};
use crate::error::{Error, Result};
use crate::events::{Event, Events, Fingerprint, RunEnd};
use crate::identity::{IdentityExtractor, IdentityName};
use crate::keep;
use crate::lease::Register;
use crate::metrics::{Metrics, ServerMetrics, Snapshot};
use crate::pool::Pool;
use crate::run::places::RunPlaces;
use crate::run::{self, Cut, Presence, RunShared};
use crate::seal::{Purpose, Vault, random_bytes};
use crate::server::Server;
use crate::settings::{ConfigError, Group, ServerSettings, nearest};
use crate::store::{Records, StoreFactory};
use crate::sync::Mutex;
use crate::upstream::Upstream;

pub(crate) use made::Made;
pub(crate) use undeclared::Undeclared;

/// Who is asking: a name for people and a digest for keys.
#[derive(Debug)]
pub(crate) struct Who {
    pub(crate) said: IdentityName,
    pub(crate) id: Identity,
    /// What they handed in for one server.
    pub(crate) handed: Option<Arc<Credential>>,
}

/// What all handles share.
pub(crate) struct Engine {
    pub(crate) entries: ArcSwap<HashMap<Arc<str>, Arc<Entry>>>,
    /// Those that were taken away or are declared nowhere among them.
    pub(crate) made: Made,
    /// Tells that servers were declared, decided anew or taken away.
    pub(crate) declared: watch::Sender<u64>,
    pub(crate) runs: Mutex<HashMap<RunId, Arc<RunShared>>>,
    /// The same runs for those who only look: calls that name their run take no lock for it.
    pub(crate) runs_to_join: papaya::HashMap<RunId, Arc<RunShared>>,
    /// How many of them each identity has.
    pub(crate) run_places: RunPlaces,
    pub(crate) pool: Pool<Connect>,
    pub(crate) connect: Arc<Connect>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) extractor: Arc<dyn IdentityExtractor>,
    pub(crate) allow: Vec<String>,
    /// Whether the environment is asked for settings of servers.
    pub(crate) heeds_environment: bool,
    pub(crate) phase: AtomicU8,
    pub(crate) keeper: keep::Started,
    pub(crate) said: Arc<Said>,
    /// Sessions that somebody holds alone.
    pub(crate) leases: Register,
    /// Tells calls outside of runs that their time is over. Several, so that calls that have
    /// nothing to do with each other share no lock.
    pub(crate) cuts: [Cut; 16],
}

/// What the engine and its connector both need.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) upstream: Upstream,
    pub(crate) vault: Arc<Vault>,
    pub(crate) stores: Option<Arc<dyn StoreFactory>>,
    pub(crate) records: Mutex<HashMap<Arc<str>, Option<Arc<Records>>>>,
    pub(crate) ceilings: Ceilings,
    pub(crate) events: Events,
    pub(crate) metrics: Metrics,
    pub(crate) start: Instant,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine")
            .field("servers", &self.entries.load().len())
            .finish_non_exhaustive()
    }
}

pub(crate) const OPEN: u8 = 0;
const DRAINING: u8 = 1;
const CLOSED: u8 = 2;

/// Who calls: an identity, and its run if there is one.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) engine: Arc<Engine>,
    pub(crate) who: Arc<Who>,
    pub(crate) run: Option<Arc<RunShared>>,
    pub(crate) said: Arc<Said>,
    /// The era to speak with a server that has both; none takes the leg that serves best.
    pub(crate) era: Option<Era>,
}

impl Caller {
    pub(crate) fn new(engine: Arc<Engine>, who: Arc<Who>, run: Option<Arc<RunShared>>) -> Self {
        let said = Arc::clone(&engine.said);
        Self {
            engine,
            who,
            run,
            said,
            era: None,
        }
    }

    /// Lets a call into its run, if it has one, or says that the run is over.
    pub(crate) fn enter(&self) -> Result<Option<Presence>, Trouble> {
        let run = self.run.as_ref();
        run.map(|run| run.admit(&self.engine)).transpose()
    }

    /// Runs a call until it ends, or its run or the engine cuts it.
    pub(crate) async fn until_cut<F: Future>(&self, call: F) -> Option<F::Output> {
        match &self.run {
            Some(run) => run.until_cut(call).await,
            None => self.engine.until_cut(call).await,
        }
    }

    /// Whether its run lost something at a server with what is no more, and was not told yet.
    pub(crate) fn has_lost_at(&self, entry: &Entry) -> bool {
        let run = self.run.as_ref();
        run.is_some_and(|run| run.has_lost(&entry.name))
    }

    /// The trouble of a call that was cut.
    pub(crate) fn was_cut(&self) -> Trouble {
        match &self.run {
            Some(run) if self.engine.turns_away().is_none() => run::ended(&run.name),
            Some(_) | None => going_down(),
        }
    }
}

impl Engine {
    pub(crate) fn tick(&self) -> Tick {
        self.shared.tick()
    }

    pub(crate) fn pool(&self) -> &Pool<Connect> {
        &self.pool
    }

    pub(crate) fn events(&self) -> &Events {
        &self.shared.events
    }

    pub(crate) fn ceilings(&self) -> &Ceilings {
        &self.shared.ceilings
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Whether calls are let in; what tells them otherwise.
    pub(crate) fn admit(self: &Arc<Self>) -> Result<(), Trouble> {
        self.turns_away().map_or(Ok(()), Err)?;
        self.keeper.start(self);
        Ok(())
    }

    /// What calls are told that are not let in any more.
    pub(crate) fn turns_away(&self) -> Option<Trouble> {
        match self.phase.load(Ordering::Acquire) {
            OPEN => None,
            DRAINING => Some(going_down()),
            _ => Some(Trouble::new(Reason::Closed, "this engine was closed")),
        }
    }

    /// The entry of a server, if its name is known and it may be called.
    pub(crate) fn entry(&self, name: &str) -> Result<Arc<Entry>, Trouble> {
        let entries = self.entries.load();
        let Some(entry) = entries.get(name) else {
            let what = format!("no server `{}` is declared", name.escape_debug());
            let trouble = Trouble::new(Reason::ServerUnknown, what);
            let near = nearest(name, entries.keys().map(|name| &**name));
            return Err(match near {
                Some(near) => trouble.hint(format!("did you mean `{near}`?")),
                None => trouble,
            });
        };
        entry.check_enabled()?;
        self.check_allowed(name)?;
        Ok(Arc::clone(entry))
    }

    /// Whether a server of that name may be called.
    fn check_allowed(&self, name: &str) -> Result<(), Trouble> {
        if self.allow.is_empty() || crate::tools::is_listed(&self.allow, name) {
            return Ok(());
        }
        let what = format!("`{name}` is not among the servers that may be called");
        Err(Trouble::new(Reason::NotAllowed, what))
    }

    /// A server that can be used as it is declared, with what the environment says of it where that
    /// was asked for.
    ///
    /// # Errors
    /// `config-bad-value`, naming the server, what is wrong with it and what to do.
    pub(crate) fn checked(&self, mut server: Server) -> Result<Server> {
        if let Some(problem) = server.problem() {
            return Err(Error::unsent(problem.clone()));
        }
        let name = &server.name;
        let settings = &mut server.settings;
        settings.mark_built();
        if self.heeds_environment {
            let taken = settings.take_process_environment();
            taken.map_err(|error| misconfigured_at(name, error))?;
        }
        let settled = settings.settle();
        settled.map_err(|error| misconfigured_at(name, error))?;
        Ok(server)
    }

    fn new_entry(&self, server: Server, metrics: Arc<ServerMetrics>) -> Arc<Entry> {
        let events = self.shared.events.clone();
        let entry = Entry::new(server, metrics, events, self.ceilings().list_horizon);
        self.made.note(&entry);
        entry
    }

    pub(crate) fn add(&self, server: Server) -> Result<()> {
        let server = self.checked(server)?;
        self.take_in(server);
        Ok(())
    }

    /// One more server that can be used, or another decision about one that is there.
    pub(crate) fn take_in(&self, server: Server) {
        let known = self.entries.load().get(server.name()).cloned();
        if let Some(known) = known
            && known.is_reached_as(&server, &self.shared.vault)
        {
            return self.decide_anew(&known, server.settings);
        }
        let metrics = self.shared.metrics.server(server.name());
        let entry = self.new_entry(server, metrics);
        let old = self.entries.rcu(|entries| {
            let mut entries = HashMap::clone(entries);
            entries.insert(Arc::clone(&entry.name), Arc::clone(&entry));
            entries
        });
        if let Some(old) = old.get(&entry.name) {
            old.withdraw();
            self.end_shared_of(old);
            // The store is chosen by the server's card, which may be another now.
            self.shared.records.lock().remove(&old.name);
        }
        self.forget_tools_of(&entry.name);
        if entry.check_enabled().is_err() {
            self.let_run_out(&entry.name);
        }
    }

    /// A server is switched off: what runs have there is closed when a drain is over.
    fn let_run_out(&self, name: &str) {
        self.keeper.was_switched_off(self.made.of_name(name));
    }

    /// Other rules count for a name: what was listed by the old ones is read again, also where
    /// runs keep to a server that was replaced.
    fn forget_tools_of(&self, name: &str) {
        for entry in self.made.of_name(name) {
            entry.tools.forget_all();
        }
    }

    /// The server is the same, and something else was decided about it: sessions stay, and what
    /// holds for them changes in place.
    fn decide_anew(&self, entry: &Arc<Entry>, settings: ServerSettings) {
        entry.decide(settings);
        self.forget_tools_of(&entry.name);
        if entry.check_enabled().is_err() {
            self.end_shared_of(entry);
            self.let_run_out(&entry.name);
        }
        let most = entry.policy().max_sessions;
        self.pool.decide_room(&entry.name, most);
        self.pool
            .decide_spares(|setup| Arc::ptr_eq(&setup.entry, entry));
        let waiters = self.ceilings().waiters_per_key;
        for cell in self.pool.cells() {
            let setup = cell.setup();
            if !Arc::ptr_eq(&setup.entry, entry) {
                continue;
            }
            match setup.holding() {
                // Nobody is led there any more.
                Some(Holds::NoMore(_)) if cell.key().run().is_none() => {
                    self.pool.end(&cell, Why::Reloaded);
                },
                Some(Holds::So(holding) | Holds::NoMore(holding)) => {
                    let policy = plan::cell_policy(setup.leg, holding, &entry.policy(), waiters);
                    cell.reconfigure(policy);
                },
                None => {},
            }
        }
    }

    pub(crate) fn remove(&self, name: &str) -> bool {
        let Some(old) = self.entries.load().get(name).cloned() else {
            return false;
        };
        // Runs may still be where it was before that. What was decided last counts for them all,
        // and is never missing.
        let mut all = self.made.of_name(name);
        all.retain(|older| !Arc::ptr_eq(older, &old));
        all.push(Arc::clone(&old));
        self.keeper.was_removed(all);
        self.entries.rcu(|entries| {
            let mut entries = HashMap::clone(entries);
            entries.remove(name);
            entries
        });
        old.withdraw();
        self.end_shared_of(&old);
        self.shared.records.lock().remove(name);
        self.shared.metrics.forget(name);
        true
    }

    /// Ends what is shared of a server, and not of another that has its name. Each live run that has
    /// state there is told by its next call, which finds its way ended.
    fn end_shared_of(&self, entry: &Arc<Entry>) {
        let is_of_it = |setup: &Setup| Arc::ptr_eq(&setup.entry, entry);
        self.pool.end_shared_of(is_of_it, Why::Reloaded);
    }

    pub(crate) fn who(&self, said: IdentityName) -> Arc<Who> {
        let id = said.digest(&self.shared.vault);
        Arc::new(Who {
            said,
            id,
            handed: None,
        })
    }

    pub(crate) fn run_id(&self, who: &Who, name: &str) -> RunId {
        let parts: [&[u8]; 2] = [who.id.0.bytes(), name.as_bytes()];
        RunId(self.shared.vault.digest(Purpose::Run, &parts))
    }

    /// The run of that id, if calls are let into it.
    pub(crate) fn live_run(&self, id: RunId) -> Option<Arc<RunShared>> {
        let runs = self.runs_to_join.pin();
        runs.get(&id).filter(|run| run.is_live()).cloned()
    }

    /// A run is over: the same name begins another.
    pub(crate) fn forget_run(&self, run: &Arc<RunShared>) {
        let mut runs = self.runs.lock();
        if runs
            .get(&run.named)
            .is_some_and(|known| Arc::ptr_eq(known, run))
        {
            runs.remove(&run.named);
            self.runs_to_join.pin().remove(&run.named);
        }
    }

    /// Tells that a run is over.
    pub(crate) fn run_ended(&self, run: &RunShared, why: RunEnd, sessions: u32) {
        let metrics = &self.shared.metrics.engine;
        if !metrics.runs.down() {
            metrics.drift.one_more();
        }
        metrics.sessions_per_run.add(u64::from(sessions));
        self.shared.events.tell(Event::RunEnded {
            identity: Fingerprint::from(run.who.id),
            run: Fingerprint::from(run.id),
            why,
            sessions,
        });
    }

    pub(crate) fn connector(&self) -> &Arc<Connect> {
        &self.connect
    }

    pub(crate) fn live_runs(&self) -> Vec<Arc<RunShared>> {
        self.runs.lock().values().cloned().collect()
    }

    pub(crate) fn entries(&self) -> arc_swap::Guard<Arc<HashMap<Arc<str>, Arc<Entry>>>> {
        self.entries.load()
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        keep::snapshot(self)
    }

    /// Runs a call that belongs to no run until it ends or the engine cuts it.
    pub(crate) async fn until_cut<F: Future>(&self, call: F) -> Option<F::Output> {
        match self.cuts.get(fastrand::usize(..self.cuts.len())) {
            Some(cut) => cut.until(call).await,
            None => Some(call.await),
        }
    }
}

/// Whoever forgets to close an engine, or gives up while it closes, leaves no session at a server
/// either, as long as something runs that can tell the servers.
impl Drop for Engine {
    fn drop(&mut self) {
        if self.phase.load(Ordering::Acquire) != CLOSED {
            let (pool, time) = (self.pool.clone(), self.shared.ceilings.drain);
            let drain = async move { pool.drain(clock::after(time)).await };
            match Home::here() {
                Some(here) => here.spawn("engine-drop", drain),
                None => self.keeper.spawn_at_home("engine-drop", drain),
            }
        }
    }
}

impl Shared {
    pub(crate) fn tick(&self) -> Tick {
        Tick::at(clock::now().saturating_duration_since(self.start))
    }

    /// The records of a server, where it has a store.
    pub(crate) fn records_of(&self, entry: &Entry) -> Option<Arc<Records>> {
        let stores = self.stores.as_ref()?;
        let mut known = self.records.lock();
        known
            .entry(Arc::clone(&entry.name))
            .or_insert_with(|| {
                let store = stores.store_for(&entry.server.card)?;
                let vault = Arc::clone(&self.vault);
                Some(Arc::new(Records::new(
                    store,
                    vault,
                    self.ceilings.store_timeout,
                )))
            })
            .clone()
    }
}

/// The trouble of a call when nothing new is taken any more.
pub(crate) fn going_down() -> Trouble {
    Trouble::new(Reason::Draining, "this engine is going down")
}

/// A bad setting, as every other error of ours.
pub(crate) fn misconfigured(error: ConfigError) -> Error {
    Error::unsent(error.into())
}

/// The same, naming the server it is about.
pub(crate) fn misconfigured_at(server: &str, error: ConfigError) -> Error {
    let mut trouble: Trouble = error.into();
    trouble.what = format!("`{server}`: {}", trouble.what);
    Error::unsent(trouble)
}

/// 128 random bits, in hexadecimal.
pub(crate) fn random_hex() -> String {
    Digest::new(random_bytes()).hex()
}
