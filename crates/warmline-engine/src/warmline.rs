//! `Warmline`, which holds the sessions, and its builder.
//!
//! Building one reads and connects nothing (A115); [`WarmlineBuilder::from_env`] is the only thing here
//! that reads the environment.

pub mod admin;
mod caller;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::AtomicU8;
use std::time::Duration;

use arc_swap::ArcSwap;
use http::HeaderMap;
use tokio::sync::watch;
use warmline_core::error::code::{Code, Reason};
use warmline_core::exchange::Diagnostic;
use warmline_core::policy::EngineLimits;

use crate::call::server_handle::ServerHandle;
use crate::context::{EngineContext, OPEN};
use crate::engine::{Engine, Maintenance, ServerRegistry, config_error, engine_snapshot};
use crate::error::{Error, Result};
use crate::events::{EventSubscription, Events};
use crate::identity::{HeaderRule, IdentityExtractor, IdentityName, identify};
use crate::metrics::{Metrics, Snapshot};
use crate::run::Run;
use crate::run_state::RunQuota;
use crate::server::Server;
use crate::server_state::KeyedClientProfile;
use crate::session_factory::SessionFactory;
use crate::settings::{self, EngineSettings, SettingsGroup};
use warmline_platform::clock;
use warmline_platform::lock::Mutex;
use warmline_pool::Pool;
use warmline_store::keyring::Keyring;
use warmline_store::{FileStore, StoreFactory};
use warmline_upstream::{ClientProfile, Upstream};

pub use self::caller::Caller;

/// Keeps sessions to MCP servers. Cheap to clone; clones share the sessions.
#[derive(Clone, Debug)]
pub struct Warmline {
    engine: Arc<Engine>,
    process: Caller,
}

/// Builds a [`Warmline`].
#[derive(Debug, Default)]
pub struct WarmlineBuilder {
    servers: Vec<Server>,
    settings: EngineSettings,
    client_profile: ClientProfile,
    vault: Option<Keyring>,
    store_factory: Option<Arc<dyn StoreFactory>>,
    extractor: Option<Arc<dyn IdentityExtractor>>,
    allowed_servers: Vec<String>,
    from_env: bool,
}

impl WarmlineBuilder {
    /// Adds a server.
    #[must_use]
    pub fn server(mut self, server: Server) -> Self {
        self.servers.push(server);
        self
    }

    /// Adds servers.
    #[must_use]
    pub fn servers(mut self, servers: impl IntoIterator<Item = Server>) -> Self {
        self.servers.extend(servers);
        self
    }

    /// Changes the limits of the engine. Values that differ afterwards take precedence over environment
    /// and files.
    #[must_use]
    pub fn limits(mut self, change: impl FnOnce(&mut EngineLimits)) -> Self {
        change(&mut self.settings.limits);
        self
    }

    /// The name, version and capabilities that servers are told.
    #[must_use]
    pub fn client_profile(mut self, declared: ClientProfile) -> Self {
        self.client_profile = declared;
        self
    }

    /// The store of session records; in memory by default.
    #[must_use]
    pub fn store(mut self, stores: impl StoreFactory + 'static) -> Self {
        self.store_factory = Some(Arc::new(stores));
        self
    }

    /// The keys of this instance. Without them new ones are made, and records of an earlier process
    /// cannot be read.
    #[must_use]
    pub fn vault(mut self, vault: Keyring) -> Self {
        self.vault = Some(vault);
        self
    }

    /// Identifies callers by their request headers.
    #[must_use]
    pub fn identity_extractor(mut self, rule: impl IdentityExtractor + 'static) -> Self {
        self.extractor = Some(Arc::new(rule));
        self
    }

    /// Allows these servers only; `*` stands for any characters.
    #[must_use]
    pub fn allow_servers(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.allowed_servers
            .extend(names.into_iter().map(Into::into));
        self
    }

    /// Reads settings from environment variables, also under the names that other programs use.
    #[must_use]
    pub fn from_env(mut self) -> Self {
        self.from_env = true;
        self
    }

    /// Checks all declarations: URLs, commands, names, credentials and limits. Connects nothing. Reads
    /// the environment only after [`WarmlineBuilder::from_env`], keys only of a store that is named by its
    /// folder, and the memory size of this machine.
    ///
    /// # Runtimes
    /// Calls may come from several runtimes. A background task runs in the runtime whose call started it;
    /// above all, a stdio server is served by the runtime that started it. While that runtime is not
    /// driven (a single-threaded one between two `block_on`), calls to the server from another runtime
    /// fail after some seconds, unsent. Sessions over HTTP do not depend on it.
    ///
    /// # Errors
    /// `config-bad-value` names the server and the problem; `store-unavailable`, where the keys of the
    /// store cannot be read or made.
    pub fn build(self) -> Result<Warmline> {
        let mut settings = self.settings;
        settings.mark_changes_as_builder();
        if self.from_env {
            settings.apply_process_environment().map_err(config_error)?;
        }
        settings.normalize().map_err(config_error)?;
        let ceilings = settings.limits;
        check_unique_names(&self.servers)?;
        let rule = HeaderRule::from_names(&settings.identity_headers).map_err(Error::unsent)?;
        let (vault, stores) = match (self.vault, self.store_factory, &settings.store) {
            (Some(vault), stores, _) => (Ok(vault), stores),
            (None, Some(stores), _) => (Keyring::ephemeral(), Some(stores)),
            (None, None, Some(folder)) => {
                let store: Arc<dyn StoreFactory> = Arc::new(FileStore::in_folder(folder));
                (Keyring::in_folder(folder), Some(store))
            },
            (None, None, None) => (Keyring::ephemeral(), None),
        };
        let vault = Arc::new(vault.map_err(Error::unsent)?);
        let shared = Arc::new(EngineContext {
            upstream: Upstream::new(),
            store_factory: stores,
            records: Mutex::default(),
            limits: ceilings,
            events: Events::default(),
            metrics: Metrics::default(),
            started_at: clock::now(),
            phase: AtomicU8::new(OPEN),
            vault: Arc::clone(&vault),
        });
        let said = KeyedClientProfile::new(self.client_profile, &vault);
        let connect = Arc::new(SessionFactory::new(Arc::clone(&shared)));
        let engine = Arc::new(Engine {
            servers: ArcSwap::default(),
            registry: ServerRegistry::default(),
            server_changes: watch::Sender::default(),
            runs: Mutex::default(),
            joinable_runs: papaya::HashMap::new(),
            run_quota: RunQuota::default(),
            pool: Pool::new(Arc::clone(&connect), ceilings),
            session_factory: connect,
            identity_extractor: self.extractor.unwrap_or_else(|| Arc::new(rule)),
            allowed_servers: self.allowed_servers,
            reads_environment: self.from_env,
            maintenance: Maintenance::default(),
            client_profile: said,
            leases: Arc::default(),
            cancel_signals: Default::default(),
            context: shared,
        });
        for server in self.servers {
            engine.add_server(server)?;
        }
        Ok(Warmline {
            process: Caller::new(&engine, IdentityName::process()),
            engine,
        })
    }
}

fn check_unique_names(servers: &[Server]) -> Result<()> {
    let mut seen = HashSet::new();
    let twice = servers.iter().find(|server| !seen.insert(server.name()));
    let Some(twice) = twice else { return Ok(()) };
    let what = format!("`{}` is declared twice", twice.name());
    let diagnostic = Diagnostic::new(Reason::InvalidRequest, what)
        .with_code(Code::ConfigBadValue)
        .with_cause("a server is called by its name")
        .with_hint("give one of them another name, or take one out");
    Err(Error::unsent(diagnostic))
}

impl Warmline {
    /// Starts a builder.
    ///
    /// ```
    /// # fn example() -> warmline::Result<()> {
    /// let warm = warmline::Warmline::builder()
    ///     .server(warmline::Server::http("github", "https://example.com/mcp"))
    ///     .build()?;
    /// # Ok(()) }
    /// ```
    pub fn builder() -> WarmlineBuilder {
        WarmlineBuilder::default()
    }

    /// The instance of this process, the same on every call, with the settings of the environment.
    ///
    /// ```
    /// # fn example() -> warmline::Result<()> {
    /// let warm = warmline::Warmline::process()?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`WarmlineBuilder::build`], where the environment holds a bad value.
    pub fn process() -> Result<Self> {
        static PROCESS: std::sync::OnceLock<Result<Warmline>> = std::sync::OnceLock::new();
        PROCESS
            .get_or_init(|| Self::builder().from_env().build())
            .clone()
    }

    /// A caller by a name of yours: a person, a tenant, a service.
    ///
    /// ```
    /// # async fn example(warm: warmline::Warmline) -> warmline::Result<()> {
    /// let alice = warm.identity("acme/alice");
    /// alice.server("github")?.call("search", ()).await?.ok()?;
    /// # Ok(()) }
    /// ```
    pub fn identity(&self, name: &str) -> Caller {
        Caller::new(&self.engine, IdentityName::named(name))
    }

    /// A caller by request headers, with the builder's rule or the usual headers.
    ///
    /// ```
    /// # fn example(warm: &warmline::Warmline, headers: &http::HeaderMap) -> warmline::Result<()> {
    /// let caller = warm.identity_from_headers(headers)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `identity-missing`, where the headers name nobody.
    pub fn identity_from_headers(&self, headers: &HeaderMap) -> Result<Caller> {
        let name = identify(&*self.engine.identity_extractor, headers).map_err(Error::unsent)?;
        Ok(Caller::new(&self.engine, name))
    }

    /// As [`Caller::run`], for this process.
    ///
    /// ```
    /// # async fn example(warm: warmline::Warmline) -> warmline::Result<()> {
    /// warm.run(async |run| run.server("browser")?.call("snapshot", ()).await?.ok()).await?;
    /// # Ok(()) }
    /// ```
    pub async fn run<T>(&self, body: impl AsyncFnOnce(Run) -> T) -> T {
        self.process.run(body).await
    }

    /// As [`Caller::begin_run`], for this process.
    ///
    /// ```
    /// # async fn example(warm: warmline::Warmline) -> warmline::Result<()> {
    /// let run = warm.begin_run();
    /// run.server("browser")?.call("snapshot", ()).await?.ok()?;
    /// run.end().await;
    /// # Ok(()) }
    /// ```
    pub fn begin_run(&self) -> Run {
        self.process.begin_run()
    }

    /// As [`Caller::named_run`], for this process.
    ///
    /// ```
    /// # async fn example(warm: warmline::Warmline) -> warmline::Result<()> {
    /// let chat = warm.named_run("chat-7")?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As there.
    pub fn named_run(&self, name: &str) -> Result<Run> {
        self.process.named_run(name)
    }

    /// As [`Caller::join_run`], for this process.
    ///
    /// ```
    /// # async fn example(warm: warmline::Warmline) -> warmline::Result<()> {
    /// let chat = warm.join_run("chat-7")?; // never begins it
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As there.
    pub fn join_run(&self, name: &str) -> Result<Run> {
        self.process.join_run(name)
    }

    /// The run that `WARMLINE_RUN` names. It belongs to the parent process: dropping the handle ends
    /// nothing, [`Run::end`] does.
    ///
    /// ```
    /// # async fn example(warm: warmline::Warmline) -> warmline::Result<()> {
    /// if let Some(run) = warm.run_from_env()? {
    ///     run.server("browser")?.call("snapshot", ()).await?.ok()?;
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Caller::named_run`]; `config-bad-value`, where the variable is not UTF-8.
    pub fn run_from_env(&self) -> Result<Option<Run>> {
        let Some(name) = settings::run_from_env().map_err(config_error)? else {
            return Ok(None);
        };
        let here = self.named_run(&name)?;
        let joined = here.clone();
        here.detach();
        Ok(Some(joined))
    }

    /// A server as this process calls it, in the current run if there is one.
    ///
    /// ```
    /// # async fn example(warm: warmline::Warmline) -> warmline::Result<()> {
    /// warm.server("github")?.call("search", ()).await?.ok()?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `server-unknown`, with the nearest name there is.
    pub fn server(&self, name: &str) -> Result<ServerHandle> {
        self.process.server(name)
    }

    /// A server without a declaration, for as long as the handle lives.
    ///
    /// ```
    /// # async fn example(warm: warmline::Warmline) -> warmline::Result<()> {
    /// let server = warmline::Server::http("docs", "https://example.com/mcp");
    /// warm.once(server).call("search", ()).await?.ok()?;
    /// # Ok(()) }
    /// ```
    pub fn once(&self, server: Server) -> ServerHandle {
        self.process.once(server)
    }

    /// Adds a server, or replaces the one of its name. With the same endpoint only its policy changes, in
    /// place; otherwise new runs use the new one and live runs keep the old one.
    ///
    /// ```
    /// # async fn example(warm: warmline::Warmline) -> warmline::Result<()> {
    /// warm.add_server(warmline::Server::http("docs", "https://example.com/mcp"))?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `config-bad-value`.
    pub fn add_server(&self, server: Server) -> Result<()> {
        self.engine.add_server(server)?;
        self.engine.announce_server_changes();
        Ok(())
    }

    /// Removes a server. Its shared sessions are closed; runs keep theirs for the time of a drain, under
    /// the current rules. False if there was none.
    ///
    /// ```
    /// # async fn example(warm: warmline::Warmline) -> warmline::Result<()> {
    /// assert!(warm.remove_server("docs"));
    /// # Ok(()) }
    /// ```
    pub fn remove_server(&self, name: &str) -> bool {
        let was_there = self.engine.remove_server(name);
        self.engine.announce_server_changes();
        was_there
    }

    /// The names of all servers, in order.
    ///
    /// ```
    /// let warm = warmline::Warmline::builder().build().unwrap();
    /// assert!(warm.server_names().is_empty());
    /// ```
    pub fn server_names(&self) -> Vec<String> {
        let mut names: Vec<String> = self
            .engine
            .servers
            .load()
            .keys()
            .map(ToString::to_string)
            .collect();
        names.sort();
        names
    }

    /// Subscribes to the events of the engine.
    ///
    /// ```
    /// # async fn example(warm: warmline::Warmline) -> warmline::Result<()> {
    /// let mut events = warm.events();
    /// while let Some(event) = events.next().await {
    ///     println!("{event:?}");
    /// }
    /// # Ok(()) }
    /// ```
    pub fn events(&self) -> EventSubscription {
        self.engine.context.events.subscribe()
    }

    /// All sessions, runs and numbers at this moment.
    ///
    /// ```
    /// let warm = warmline::Warmline::builder().build().unwrap();
    /// assert!(warm.snapshot().sessions.is_empty());
    /// ```
    pub fn snapshot(&self) -> Snapshot {
        engine_snapshot(&self.engine)
    }

    /// The keys of this instance, for a program that seals data of its own.
    ///
    /// ```
    /// # fn example(warm: &warmline::Warmline) {
    /// let survives_restart = warm.vault().outlives_process();
    /// # }
    /// ```
    pub fn vault(&self) -> &Keyring {
        &self.engine.context.vault
    }

    /// Closes the engine in bounded time: no new call, a grace for calls in flight, then all sessions are
    /// closed in parallel. With a store that outlives the process, sessions of live runs stay open for
    /// their records.
    ///
    /// Afterwards every call fails with `closed`, and nothing of this engine runs.
    ///
    /// ```
    /// # async fn example(warm: warmline::Warmline) -> warmline::Result<()> {
    /// warm.close().await;
    /// # Ok(()) }
    /// ```
    pub async fn close(&self) {
        self.engine.close().await;
    }

    /// Closes the engine without a grace: calls in flight are cancelled now with delivery `unknown`, and
    /// sessions are closed and programs ended within this time. It also shortens a close that is running.
    ///
    /// ```
    /// # async fn example(warm: warmline::Warmline) -> warmline::Result<()> {
    /// warm.close_within(std::time::Duration::from_secs(2)).await;
    /// # Ok(()) }
    /// ```
    pub async fn close_within(&self, within: Duration) {
        self.engine.close_within(within).await;
    }
}
