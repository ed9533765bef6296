//! `Warmline` and its builder: the handle that holds the sessions.
//!
//! Building one reads and connects nothing (A115); [`Builder::from_env`] is the only thing here
//! that looks at the environment, when it is asked to.

mod overseeing;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU8;
use std::time::Duration;

use arc_swap::ArcSwap;
use http::HeaderMap;
use tokio::sync::watch;
use warmline_core::code::{Code, Reason};
use warmline_core::exchange::Trouble;
use warmline_core::key::{Digest, RunId};
use warmline_core::policy::Ceilings;

use crate::clock;
use crate::connect::Connect;
use crate::engine::{Caller, Engine, OPEN, Shared, Who, misconfigured};
use crate::entry::Said;
use crate::error::{Error, Result};
use crate::events::{Event, Events, Fingerprint, Subscription};
use crate::handle::ServerHandle;
use crate::identity::{HeaderRule, IdentityExtractor, IdentityName, identify};
use crate::keep;
use crate::lease::{Leased, Register};
use crate::metrics::{Metrics, Snapshot};
use crate::pool::Pool;
use crate::run::places::{RunPlaces, all_taken};
use crate::run::{self, Role, Run, RunShared};
use crate::seal::{Vault, random_bytes};
use crate::server::Server;
use crate::servers::{Declarations, Difference};
use crate::settings::{self, EngineSettings, Group};
use crate::store::{FileStore, StoreFactory};
use crate::sync::Mutex;
use crate::upstream::{Declared, Upstream};

/// Keeps sessions to MCP servers. Cheap to clone; all clones hold the same sessions.
#[derive(Clone, Debug)]
pub struct Warmline {
    engine: Arc<Engine>,
    me: Arc<Who>,
}

/// Makes a [`Warmline`].
#[derive(Debug, Default)]
pub struct Builder {
    servers: Vec<Server>,
    settings: EngineSettings,
    declared: Declared,
    vault: Option<Vault>,
    stores: Option<Arc<dyn StoreFactory>>,
    extractor: Option<Arc<dyn IdentityExtractor>>,
    allow: Vec<String>,
    from_env: bool,
}

/// Somebody who asks: what is called through it is never mixed with what others call.
#[derive(Clone, Debug)]
pub struct IdentityHandle {
    engine: Arc<Engine>,
    who: Arc<Who>,
}

impl Builder {
    /// One more server.
    #[must_use]
    pub fn server(mut self, server: Server) -> Self {
        self.servers.push(server);
        self
    }

    /// More servers.
    #[must_use]
    pub fn servers(mut self, servers: impl IntoIterator<Item = Server>) -> Self {
        self.servers.extend(servers);
        self
    }

    /// Limits of the whole engine.
    #[must_use]
    pub fn limits(mut self, change: impl FnOnce(&mut Ceilings)) -> Self {
        change(&mut self.settings.ceilings);
        self
    }

    /// Settings of the whole engine, as a configuration file has them.
    #[must_use]
    pub fn settings(mut self, settings: EngineSettings) -> Self {
        self.settings = settings;
        self
    }

    /// What we say of ourselves to servers.
    #[must_use]
    pub fn declared(mut self, declared: Declared) -> Self {
        self.declared = declared;
        self
    }

    /// Where session records are kept; in memory by default.
    #[must_use]
    pub fn store(mut self, stores: impl StoreFactory + 'static) -> Self {
        self.stores = Some(Arc::new(stores));
        self
    }

    /// The secrets of this instance. Without them they are made anew, and records of an earlier
    /// process cannot be read.
    #[must_use]
    pub fn vault(mut self, vault: Vault) -> Self {
        self.vault = Some(vault);
        self
    }

    /// A rule of your own for who is asking.
    #[must_use]
    pub fn identity_extractor(mut self, rule: impl IdentityExtractor + 'static) -> Self {
        self.extractor = Some(Arc::new(rule));
        self
    }

    /// The only servers that may be called; `*` stands for any characters.
    #[must_use]
    pub fn allow_servers(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.allow.extend(names.into_iter().map(Into::into));
        self
    }

    /// Lets the environment speak: the settings named in the reference, under their own names and
    /// those of the systems people come from.
    #[must_use]
    pub fn from_env(mut self) -> Self {
        self.from_env = true;
        self
    }

    /// Checks what was declared: URLs and commands, names and whether one is there twice,
    /// credentials, limits. Connects nothing and looks nothing up; reads the environment only
    /// where [`Builder::from_env`] asked for it, the keys of a store only where one is named by
    /// its folder, and how much memory this machine has.
    ///
    /// # Errors
    /// `config-bad-value`, naming the server and what is wrong with it; `store-unavailable`, where
    /// the keys of the store cannot be read or made.
    pub fn build(self) -> Result<Warmline> {
        let mut settings = self.settings;
        settings.mark_built();
        if self.from_env {
            settings.take_process_environment().map_err(misconfigured)?;
        }
        settings.settle().map_err(misconfigured)?;
        let ceilings = settings.ceilings;
        one_of_each(&self.servers)?;
        let rule = HeaderRule::of(&settings.identity_headers).map_err(Error::unsent)?;
        let (vault, stores) = match (self.vault, self.stores, &settings.store) {
            (Some(vault), stores, _) => (Ok(vault), stores),
            (None, Some(stores), _) => (Vault::ephemeral(), Some(stores)),
            (None, None, Some(folder)) => {
                let store: Arc<dyn StoreFactory> = Arc::new(FileStore::in_folder(folder));
                (Vault::in_folder(folder), Some(store))
            },
            (None, None, None) => (Vault::ephemeral(), None),
        };
        let vault = Arc::new(vault.map_err(Error::unsent)?);
        let shared = Arc::new(Shared {
            upstream: Upstream::new(),
            stores,
            records: Mutex::default(),
            ceilings,
            events: Events::default(),
            metrics: Metrics::default(),
            start: clock::now(),
            vault: Arc::clone(&vault),
        });
        let said = Said::new(self.declared, &vault);
        let connect = Arc::new(Connect::new(Arc::clone(&shared)));
        let engine = Arc::new(Engine {
            entries: ArcSwap::default(),
            declared: watch::Sender::default(),
            runs: Mutex::default(),
            runs_to_join: papaya::HashMap::new(),
            run_places: RunPlaces::default(),
            pool: Pool::new(Arc::clone(&connect), ceilings),
            connect,
            extractor: self.extractor.unwrap_or_else(|| Arc::new(rule)),
            allow: self.allow,
            heeds_environment: self.from_env,
            phase: AtomicU8::new(OPEN),
            keeper: keep::Started::default(),
            said,
            leases: Register::default(),
            cuts: Default::default(),
            shared,
        });
        for server in self.servers {
            engine.add(server)?;
        }
        let me = engine.who(IdentityName::process());
        Ok(Warmline { engine, me })
    }
}

/// Two servers of one name cannot be told apart: whoever declares a list gets no half of it.
fn one_of_each(servers: &[Server]) -> Result<()> {
    let mut seen = HashSet::new();
    let twice = servers.iter().find(|server| !seen.insert(server.name()));
    let Some(twice) = twice else { return Ok(()) };
    let what = format!("`{}` is declared twice", twice.name());
    let trouble = Trouble::new(Reason::InvalidRequest, what)
        .coded(Code::ConfigBadValue)
        .because("a server is called by its name")
        .hint("give one of them another name, or take one out");
    Err(Error::unsent(trouble))
}

impl Warmline {
    /// Makes one.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The one of this process: the same on every call, with the settings of the environment.
    ///
    /// # Errors
    /// As [`Builder::build`], where the environment holds a bad value.
    pub fn process() -> Result<Self> {
        static PROCESS: std::sync::OnceLock<Result<Warmline>> = std::sync::OnceLock::new();
        PROCESS
            .get_or_init(|| Self::builder().from_env().build())
            .clone()
    }

    /// Somebody who asks, by a name of yours: a person, a tenant, a service.
    pub fn identity(&self, name: &str) -> IdentityHandle {
        self.handle(self.engine.who(IdentityName::named(name)))
    }

    /// Somebody who asks, by a name of several parts, such as issuer and subject.
    pub fn identity_by(&self, name: IdentityName) -> IdentityHandle {
        self.handle(self.engine.who(name))
    }

    /// Somebody who asks, by the rule that was set for it, or by the usual headers.
    ///
    /// # Errors
    /// `identity-missing`, where nothing in the headers says who it is.
    pub fn identity_of(&self, headers: &HeaderMap) -> Result<IdentityHandle> {
        let name = identify(&*self.engine.extractor, headers).map_err(Error::unsent)?;
        Ok(self.handle(self.engine.who(name)))
    }

    fn handle(&self, who: Arc<Who>) -> IdentityHandle {
        IdentityHandle {
            engine: Arc::clone(&self.engine),
            who,
        }
    }

    fn mine(&self) -> IdentityHandle {
        self.handle(Arc::clone(&self.me))
    }

    /// As [`IdentityHandle::run`], for this process.
    pub async fn run<T>(&self, body: impl AsyncFnOnce(Run) -> T) -> T {
        self.mine().run(body).await
    }

    /// As [`IdentityHandle::begin`], for this process.
    pub fn begin(&self) -> Run {
        self.mine().begin()
    }

    /// As [`IdentityHandle::named`], for this process.
    ///
    /// # Errors
    /// As there.
    pub fn named(&self, name: &str) -> Result<Run> {
        self.mine().named(name)
    }

    /// As [`IdentityHandle::join`], for this process.
    ///
    /// # Errors
    /// As there.
    pub fn join(&self, name: &str) -> Result<Run> {
        self.mine().join(name)
    }

    /// The run that `WARMLINE_RUN` names, begun or joined, if it names one.
    ///
    /// # Errors
    /// As [`IdentityHandle::named`]; `config-bad-value`, where the variable is no text.
    pub fn run_from_env(&self) -> Result<Option<Run>> {
        let named = settings::run_from_env().map_err(misconfigured)?;
        named.map(|name| self.named(&name)).transpose()
    }

    /// A server, as this process calls it: in the current run where there is one, else outside.
    ///
    /// # Errors
    /// `server-unknown`, with the nearest name there is.
    pub fn server(&self, name: &str) -> Result<ServerHandle> {
        self.mine().server(name)
    }

    /// Call-with-session: a server that is declared nowhere, for as long as the handle lives.
    pub fn once(&self, server: Server) -> ServerHandle {
        self.mine().once(server)
    }

    /// One more server, from now on. A server of the same name is replaced: where it is reached as
    /// before, only what was decided about it changes, in place; else new runs use the new one and
    /// live ones keep what they began with.
    ///
    /// # Errors
    /// `config-bad-value`.
    pub fn add(&self, server: Server) -> Result<()> {
        self.engine.add(server)?;
        self.engine.tell_declared();
        Ok(())
    }

    /// Takes a server away. Its shared sessions are closed; runs keep theirs until they end.
    pub fn remove(&self, name: &str) -> bool {
        let was_there = self.engine.remove(name);
        self.engine.tell_declared();
        was_there
    }

    /// These servers and no others, from now on, as [`Warmline::add`] and [`Warmline::remove`]
    /// would do it, and says what changed. Servers that stay as they are keep their sessions.
    ///
    /// # Errors
    /// `config-bad-value`: one of them cannot be used. Then nothing at all has changed.
    pub fn declare(&self, servers: Vec<Server>) -> Result<Difference> {
        let difference = self.engine.declare(servers)?;
        if !difference.is_nothing() {
            self.engine.tell_declared();
        }
        Ok(difference)
    }

    /// Hears from now on that servers are declared, decided anew or taken away.
    pub fn declarations(&self) -> Declarations {
        Declarations::of(&self.engine)
    }

    /// The names of all servers, in order.
    pub fn servers(&self) -> Vec<String> {
        let mut names: Vec<String> = self
            .engine
            .entries
            .load()
            .keys()
            .map(ToString::to_string)
            .collect();
        names.sort();
        names
    }

    /// Hears what happens from now on.
    pub fn events(&self) -> Subscription {
        self.engine.shared.events.subscribe()
    }

    /// What is open, counted and known at this moment.
    pub fn snapshot(&self) -> Snapshot {
        self.engine.snapshot()
    }

    /// The secrets of this instance, for a program that has things of its own to seal.
    pub fn vault(&self) -> &Vault {
        &self.engine.shared.vault
    }

    /// Ends everything in bounded time: no new call, a grace for those under way, then every
    /// session is closed, in parallel. With a store that outlives the process, sessions of live
    /// runs are left to their records.
    ///
    /// Afterwards every call fails with `closed`, and nothing of this engine is left running.
    pub async fn close(&self) {
        self.engine.close().await;
    }

    /// The same for whoever has waited for calls already: those that are still under way are cut
    /// now, and told that nobody knows what became of them. Sessions are closed, and programs are
    /// gone, within this time; what is not done by then is left undone.
    ///
    /// It may be asked while a close is under way, which is over sooner then.
    pub async fn close_now(&self, within: Duration) {
        self.engine.close_now(within).await;
    }

    /// The same in a hurry: programs that do not end by themselves have a moment, not seconds,
    /// until they are killed.
    pub async fn close_in_a_hurry(&self, within: Duration) {
        self.engine.hurry();
        self.engine.close_now(within).await;
    }
}

/// Whether somebody was in a run before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Coming {
    Now,
    Back,
}

impl IdentityHandle {
    /// The name it was made with; none where a rule found it, because that may be a secret.
    pub fn name(&self) -> Option<&str> {
        self.who.said.name()
    }

    /// Its digest: what its sessions are kept apart by.
    pub fn digest(&self) -> Digest {
        self.who.id.0
    }

    /// A short form of its digest, as it stands in events and snapshots.
    pub fn fingerprint(&self) -> String {
        self.who.id.0.fingerprint()
    }

    /// Runs a body in a run of its own and returns what it returns. The run's sessions live
    /// exactly as long. Inside another run of the same identity it joins that one and closes
    /// nothing.
    pub async fn run<T>(&self, body: impl AsyncFnOnce(Run) -> T) -> T {
        let is_ours = |run: &Run| run.belongs_to(&self.engine, &self.who) && run.is_live();
        if let Some(outer) = Run::try_current().filter(is_ours) {
            // A clone: it joined.
            return body(outer).await;
        }
        let run = self.begin();
        let output = run.scope(body(run.lent())).await;
        run.end().await;
        output
    }

    /// Begins a run of its own; it ends when the handle is ended or dropped. Where as many of this
    /// identity are live as may be, its calls are refused until one of those ends.
    pub fn begin(&self) -> Run {
        let name = run::fresh_name();
        // Without a place it begins all the same, and asks for one with its first call.
        let has_place = self.take_place();
        let mut runs = self.engine.runs.lock();
        let shared = self.enlist(&mut runs, &name, (has_place, Coming::Now));
        drop(runs);
        self.began(shared)
    }

    /// Begins the run of that name, or joins it where it is live: for work that has a name
    /// already, such as a chat or a ticket, and whose parts do not know each other. The handle
    /// that began the run ends it when it is dropped, unless it is [detached](Run::detach); those
    /// that joined it do not. Another identity's run of the same name is another run.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> warmline::Result<()> {
    /// # let warm = warmline::Warmline::builder().build()?;
    /// let alice = warm.identity("acme/alice");
    /// let chat = alice.named("chat-7")?;          // begins it
    /// let same = alice.named("chat-7")?;          // joins it: the same sessions
    /// assert!(chat.is_root() && !same.is_root());
    /// drop(same);                                 // ends nothing
    /// chat.end().await;                           // now its sessions are closed
    /// assert!(alice.join("chat-7").is_err());     // `join` never begins one
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `bad-message`, for a name that no run may have; `overloaded`, where the run is to begin and
    /// as many of this identity are live as may be.
    pub fn named(&self, name: &str) -> Result<Run> {
        self.begin_or_join(name, Coming::Now)
    }

    /// The same for somebody who was there before: where the run is over and its sessions left no
    /// record, it is begun anew, and that its state is lost is told as any other loss.
    ///
    /// # Errors
    /// As [`IdentityHandle::named`].
    pub fn rejoin(&self, name: &str) -> Result<Run> {
        self.begin_or_join(name, Coming::Back)
    }

    /// Joins a run that must be live already.
    ///
    /// # Errors
    /// `run-unknown`, also for a run of another identity.
    pub fn join(&self, name: &str) -> Result<Run> {
        run::check_name(name)?;
        let id = self.engine.run_id(&self.who, name);
        match self.engine.live_run(id) {
            Some(shared) => Ok(Run::new(Arc::clone(&self.engine), shared, Role::Joined)),
            None => Err(Error::unsent(Trouble::new(
                Reason::RunUnknown,
                format!("no run `{name}` is live"),
            ))),
        }
    }

    fn begin_or_join(&self, name: &str, coming: Coming) -> Result<Run> {
        run::check_name(name)?;
        let named = self.engine.run_id(&self.who, name);
        if let Some(live) = self.engine.live_run(named) {
            return Ok(Run::new(Arc::clone(&self.engine), live, Role::Joined));
        }
        let mut runs = self.engine.runs.lock();
        if let Some(live) = runs.get(&named).filter(|run| run.is_live()) {
            return Ok(Run::new(
                Arc::clone(&self.engine),
                Arc::clone(live),
                Role::Joined,
            ));
        }
        if !self.take_place() {
            return Err(Error::unsent(all_taken(self.most_runs())));
        }
        let shared = self.enlist(&mut runs, name, (true, coming));
        drop(runs);
        Ok(self.began(shared))
    }

    fn most_runs(&self) -> u32 {
        self.engine.ceilings().runs_per_identity
    }

    fn take_place(&self) -> bool {
        let most = self.most_runs();
        self.engine.run_places.take(self.who.id, most)
    }

    /// Puts the run of a name that no live run has among the others.
    fn enlist(
        &self,
        runs: &mut HashMap<RunId, Arc<RunShared>>,
        name: &str,
        (has_place, coming): (bool, Coming),
    ) -> Arc<RunShared> {
        let named = self.engine.run_id(&self.who, name);
        let (id, after) = match runs.get(&named) {
            // The old one is closing, and what it had must not become the new one's. Where records
            // are kept, a later process finds the new one's by its name alone: it waits.
            Some(closing) if self.engine.shared.stores.is_some() => (named, Some(closing.over())),
            Some(_) => (RunId(Digest::new(random_bytes())), None),
            None => (named, None),
        };
        let shared = RunShared::new(
            (named, id, after),
            Arc::from(name),
            Arc::clone(&self.who),
            (has_place, coming == Coming::Back),
            &self.engine,
        );
        runs.insert(named, Arc::clone(&shared));
        let to_join = &self.engine.runs_to_join;
        to_join.pin().insert(named, Arc::clone(&shared));
        shared
    }

    fn began(&self, shared: Arc<RunShared>) -> Run {
        self.engine.shared.metrics.engine.runs.up();
        self.engine.shared.events.tell(Event::RunBegan {
            identity: Fingerprint::from(self.who.id),
            run: Fingerprint::from(shared.id),
        });
        Run::new(Arc::clone(&self.engine), shared, Role::Began)
    }

    /// A server, as this identity calls it: in the current run where it has one, else outside.
    ///
    /// # Errors
    /// `server-unknown`, with the nearest name there is.
    pub fn server(&self, name: &str) -> Result<ServerHandle> {
        ServerHandle::of(self.caller(), name)
    }

    /// A session for one holder alone, until it is dropped.
    ///
    /// # Errors
    /// As a call on a session that cannot be had.
    pub async fn lease(&self, server: &str) -> Result<Leased> {
        self.server(server)?.lease().await
    }

    /// Call-with-session: a server that is declared nowhere, for as long as the handle lives.
    pub fn once(&self, server: Server) -> ServerHandle {
        ServerHandle::undeclared(self.caller(), server)
    }

    fn caller(&self) -> Caller {
        let run = Run::try_current()
            .filter(|run| run.belongs_to(&self.engine, &self.who))
            .map(|run| Arc::clone(&run.shared));
        Caller::new(Arc::clone(&self.engine), Arc::clone(&self.who), run)
    }
}
