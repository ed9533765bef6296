//! The state of one server: its location, its credentials, and what is known of it.
//!
//! Nothing is looked up before the first call (A115), and each thing once for any number of first
//! callers.

mod health;
mod known_facts;
mod location;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering, fence};
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use warmline_core::era::{Era, Version};
use warmline_core::error::code::Reason;
use warmline_core::exchange::{Diagnostic, ServerRequestKind};
use warmline_core::policy::SessionMode;
use warmline_core::pool_key::{CredentialId, Identity, RunId};
use warmline_core::retry::budget::{Cooldown, RetryBudget};
use warmline_core::session_plan::ServerProfile;
use warmline_core::time::Tick;

use crate::credentials::{Credential, CredentialSource};
use crate::events::{Event, Events};
use crate::list_cache::{ListCache, ListOwner};
use crate::metrics::ServerMetrics;
use crate::notifications::ServerSubscribers;
use crate::notifications::dedup::{LISTS, list_index};
use crate::server::{DeclaredEndpoint, Server};
use crate::server_resolver::ServerLookup;
use crate::settings::ServerSettings;
use crate::single_flight::SingleFlight;
use crate::tools::{AnnotationStore, ToolList};
use warmline_platform::lock::Mutex;
use warmline_upstream::ListKind;

use health::{LatencyWindow, ServerHealth, SessionAges};
use known_facts::HandshakeCache;
pub(crate) use known_facts::{
    DiscoveryError, DiscoveryGoal, DiscoveryKey, HandshakeKey, RouteFlightKey, profile_of,
};
pub(crate) use location::{
    KeyedClientProfile, NO_CREDENTIAL, ServerAccess, ServerLocation, transport_of,
};

pub(crate) struct ServerState {
    pub(crate) name: Arc<str>,
    pub(crate) declaration: Server,
    lifecycle: AtomicU8,
    /// Its settings in force; new settings apply in place.
    pub(crate) settings: ArcSwap<ServerSettings>,
    pub(crate) metrics: Arc<ServerMetrics>,
    events: Events,
    retry_budget: Mutex<RetryBudget>,
    pub(crate) tool_lists: ListCache<ListOwner, Arc<ToolList>>,
    pub(crate) tool_annotations: AnnotationStore,
    pub(crate) other_lists: ListCache<(ListOwner, ListKind), Arc<[Bytes]>>,
    discoveries: papaya::HashMap<DiscoveryKey, ServerProfile>,
    pub(crate) discovery_flights: SingleFlight<DiscoveryKey, Result<ServerProfile, DiscoveryError>>,
    /// Routes of runs that come for the first time.
    pub(crate) route_flights: SingleFlight<RouteFlightKey, Result<(), Diagnostic>>,
    /// Raised when results of first contacts are dropped.
    discovery_epoch: AtomicU64,
    handshakes: HandshakeCache,
    location: Mutex<Option<Arc<ServerLocation>>>,
    lookup: Option<ServerLookup>,
    /// `ping` was not answered, and a list was.
    pub(crate) checks_by_list: AtomicBool,
    health: ServerHealth,
    session_ages: SessionAges,
    /// Whether any identity was asked to pause; most servers never ask.
    has_cooldowns: AtomicBool,
    cooldowns: Mutex<HashMap<Identity, Cooldown>>,
    /// Calls that are not added to the retry budget yet.
    pub(crate) unbudgeted_calls: AtomicU32,
    pub(crate) latency: LatencyWindow,
    /// Its share of the programs that start at a time.
    pub(crate) start_permits: Semaphore,
    credentials: Mutex<HashMap<Option<Identity>, Arc<Credential>>>,
    /// Who receives what it says outside any call.
    pub(crate) subscribers: ServerSubscribers,
    /// Those that callers sent, by the keyed digests of their values.
    request_credentials: Mutex<HashMap<CredentialId, Arc<Credential>>>,
}

/// Programs of one server that start at a time, so that other servers need not wait.
const STARTS_PER_SERVER: usize = 16;
// Flags; a server without any is declared.

/// No name leads to it. It keeps this flag when it is withdrawn.
const UNDECLARED: u8 = 1;
const WITHDRAWN: u8 = 2;
const REMOVED: u8 = 4;

impl Drop for ServerState {
    /// Nobody needs the results of lookups any more.
    fn drop(&mut self) {
        self.stop_lookups();
    }
}

impl ServerState {
    pub(crate) fn new(
        mut server: Server,
        metrics: Arc<ServerMetrics>,
        events: Events,
        horizon: Duration,
    ) -> Arc<Self> {
        let lookup = match &server.endpoint {
            DeclaredEndpoint::Static(_) => None,
            DeclaredEndpoint::Resolver { resolver, .. } => {
                Some(ServerLookup::new(Arc::clone(resolver), server.card.clone()))
            },
        };
        if let Some(lookup) = &lookup {
            let token = || CredentialSource::from_resolver(lookup.clone());
            server.credential.get_or_insert_with(token);
        }
        Arc::new(Self {
            name: Arc::from(server.name.as_str()),
            tool_lists: ListCache::new(horizon),
            tool_annotations: AnnotationStore::default(),
            other_lists: ListCache::new(horizon),
            settings: ArcSwap::from_pointee(server.settings.clone()),
            declaration: server,
            lifecycle: AtomicU8::new(0),
            metrics,
            events,
            retry_budget: Mutex::default(),
            discoveries: papaya::HashMap::new(),
            discovery_flights: SingleFlight::default(),
            route_flights: SingleFlight::default(),
            discovery_epoch: AtomicU64::new(0),
            handshakes: HandshakeCache::new(),
            location: Mutex::new(None),
            checks_by_list: AtomicBool::new(false),
            health: ServerHealth::default(),
            session_ages: SessionAges::default(),
            has_cooldowns: AtomicBool::new(false),
            cooldowns: Mutex::default(),
            unbudgeted_calls: AtomicU32::new(0),
            latency: LatencyWindow::default(),
            start_permits: Semaphore::new(STARTS_PER_SERVER),
            lookup,
            credentials: Mutex::default(),
            subscribers: ServerSubscribers::default(),
            request_credentials: Mutex::default(),
        })
    }

    /// No name leads to this server: only its handles know it.
    pub(crate) fn mark_undeclared(&self) {
        self.lifecycle.fetch_or(UNDECLARED, Ordering::Release);
    }

    /// The server was replaced or removed: only sessions of runs stay open there.
    pub(crate) fn withdraw(&self) {
        self.lifecycle.fetch_or(WITHDRAWN, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// The drain after a removal is over: runs lose their sessions there too.
    pub(crate) fn mark_removed(&self) {
        self.lifecycle.fetch_or(REMOVED, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    pub(crate) fn is_removed(&self) -> bool {
        self.lifecycle.load(Ordering::SeqCst) & REMOVED != 0
    }

    pub(crate) fn is_undeclared(&self) -> bool {
        self.lifecycle.load(Ordering::Relaxed) & UNDECLARED != 0
    }

    pub(crate) fn is_withdrawn(&self) -> bool {
        self.lifecycle.load(Ordering::SeqCst) & WITHDRAWN != 0
    }

    /// Whether the rules of its own declaration hold, not those of a later one.
    pub(crate) fn has_own_rules(&self) -> bool {
        self.lifecycle.load(Ordering::SeqCst) & (UNDECLARED | WITHDRAWN) != WITHDRAWN
    }

    pub(crate) fn check_enabled(&self) -> Result<(), Diagnostic> {
        self.settings.load().check_enabled(&self.name)
    }

    pub(crate) fn uses_caller_credential(&self) -> bool {
        let source = self.declaration.credential.as_ref();
        source.is_some_and(|source| source.secret.is_caller_header())
    }

    /// Changes whenever results are dropped.
    pub(crate) fn discovery_epoch(&self) -> u64 {
        self.discovery_epoch.load(Ordering::Acquire)
    }

    /// Drops all lists: another session may list something else.
    pub(crate) fn forget_lists(&self) {
        self.tool_lists.forget_all();
        self.other_lists.forget_all();
    }

    pub(crate) fn forget_run_lists(&self, run: RunId) {
        self.tool_lists.forget_where(|owner| owner.is_of_run(run));
        self.other_lists
            .forget_where(|(owner, _)| owner.is_of_run(run));
    }

    /// Drops the cached list that a notification says has changed.
    pub(crate) fn invalidate_changed_list(&self, method: &str) {
        let Some(list) = list_index(method).and_then(|index| LISTS.get(index)) else {
            return;
        };
        if *list == "tools" {
            self.tool_lists.forget_all();
        } else {
            self.other_lists.forget_all();
        }
        self.events.emit(Event::ListChanged {
            server: Arc::clone(&self.name),
            list,
        });
    }

    /// Records a server request that was refused because it may belong to several callers.
    pub(crate) fn record_refused_request(&self, kind: ServerRequestKind) {
        self.metrics.server_requests_refused.increment();
        self.events.emit(Event::ServerRequestRefused {
            server: Arc::clone(&self.name),
            method: kind.method().unwrap_or("other"),
        });
    }

    /// Puts settings in force, and drops what was found out under others.
    pub(crate) fn apply_settings(&self, settings: ServerSettings) {
        let met_as = |settings: &ServerSettings| {
            let policy = &settings.policy;
            (settings.era, policy.version, policy.sessions)
        };
        let now = met_as(&settings);
        let before = self.settings.swap(Arc::new(settings));
        if met_as(&before) != now {
            self.forget_discoveries();
        }
        // Tool rules apply when a list is read.
        self.tool_lists.forget_all();
    }

    /// Runs `act` on the retry budget, after adding the calls since the last time.
    pub(crate) fn with_retry_budget<T>(
        &self,
        now: Tick,
        act: impl FnOnce(&mut RetryBudget) -> T,
    ) -> T {
        let calls = self.unbudgeted_calls.swap(0, Ordering::Relaxed);
        let mut budget = self.retry_budget.lock();
        budget.record_calls(now, calls);
        act(&mut budget)
    }

    /// Stops lookups of resolvers and credential sources. Their tasks can be waited for.
    pub(crate) fn stop_lookups(&self) -> Vec<JoinHandle<()>> {
        let lookup = self.lookup.as_ref().and_then(ServerLookup::stop);
        let credentials = self.credentials.lock();
        let credentials = credentials.values().filter_map(|asked| asked.stop());
        lookup.into_iter().chain(credentials).collect()
    }

    pub(crate) fn open_time_limit(&self, is_process: bool) -> Duration {
        let settings = self.settings.load();
        let times = &settings.timeouts;
        let before = match is_process {
            true => times.start,
            false => times.connect.saturating_add(times.handshake),
        };
        let within = before.saturating_add(times.handshake);
        settings.policy.create.unwrap_or(within)
    }

    pub(crate) fn configured_era(&self) -> Option<Era> {
        let settings = self.settings.load();
        settings.era.or(settings.policy.version.map(Version::era))
    }

    /// What a first contact has to find out for a caller.
    pub(crate) fn discovery_goal(&self, inside_run: bool, era: Option<Era>) -> DiscoveryGoal {
        if let Some(era) = era {
            DiscoveryGoal::Era(era)
        } else if inside_run || self.settings.load().policy.sessions == SessionMode::Always {
            DiscoveryGoal::Stateful
        } else {
            DiscoveryGoal::Any
        }
    }
}

impl ServerSettings {
    pub(crate) fn check_enabled(&self, server: &str) -> Result<(), Diagnostic> {
        if self.policy.enabled {
            return Ok(());
        }
        let what = format!("`{server}` is switched off");
        Err(Diagnostic::new(Reason::NotAllowed, what))
    }
}

impl std::fmt::Debug for ServerState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Entry")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
