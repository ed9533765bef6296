//! `Warmline` and its builder: the handle that holds the sessions.
//!
//! Building one reads and connects nothing (A115); [`Builder::from_env`] is the only thing here
//! that looks at the environment, when it is asked to.

mod asking;
mod overseeing;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::AtomicU8;
use std::time::Duration;

use arc_swap::ArcSwap;
use http::HeaderMap;
use tokio::sync::watch;
use warmline_core::code::{Code, Reason};
use warmline_core::exchange::Trouble;
use warmline_core::policy::Ceilings;

use crate::clock;
use crate::connect::Connect;
use crate::engine::{Engine, Made, OPEN, Shared, Who, misconfigured};
use crate::entry::Said;
use crate::error::{Error, Result};
use crate::events::{Events, Subscription};
use crate::handle::ServerHandle;
use crate::identity::{HeaderRule, IdentityExtractor, IdentityName, identify};
use crate::keep;
use crate::lease::Register;
use crate::metrics::{Metrics, Snapshot};
use crate::pool::Pool;
use crate::run::Run;
use crate::run::places::RunPlaces;
use crate::seal::Vault;
use crate::server::Server;
use crate::servers::{Declarations, Difference};
use crate::settings::{self, EngineSettings, Group};
use crate::store::{FileStore, StoreFactory};
use crate::sync::Mutex;
use crate::upstream::{Declared, Upstream};

pub use self::asking::IdentityHandle;

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

    /// Limits of the whole engine. What is different afterwards counts before environment and files; a
    /// value that was the default already does not show that it was said.
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
    /// # Runtimes
    /// It may be called from several runtimes. What runs in the background runs in the one whose call
    /// began it: above all, a program is served by the runtime that it was started in. While nobody
    /// drives that one (a runtime of one thread between two `block_on`), calls to the program from
    /// another runtime end after some seconds, unsent. Sessions over HTTP do not depend on it.
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
            made: Made::default(),
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

    /// The run that `WARMLINE_RUN` names, if it names one. It is the run of whoever started this
    /// process: dropping the handle ends nothing, [`Run::end`] does.
    ///
    /// # Errors
    /// As [`IdentityHandle::named`]; `config-bad-value`, where the variable is no text.
    pub fn run_from_env(&self) -> Result<Option<Run>> {
        let Some(name) = settings::run_from_env().map_err(misconfigured)? else {
            return Ok(None);
        };
        let here = self.named(&name)?;
        let joined = here.clone();
        here.detach();
        Ok(Some(joined))
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

    /// Takes a server away. Its shared sessions are closed; runs keep theirs for as long as a drain
    /// takes, held to what may be called there now.
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

    /// Ends what the engine does for nobody: lists that it reads, and that whoever asked for them
    /// waits for no longer. For whoever waits for calls to end before it closes the engine.
    pub fn end_unwanted(&self) {
        self.engine.end_unwanted();
    }
}
