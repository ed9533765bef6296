//! The state of one server: its location, its credentials, and what is known of it.
//!
//! Nothing is looked up before the first call (A115), and each thing once for any number of first
//! callers.

mod credentials;
mod digests;
mod health;
mod known_facts;
mod latency;
mod lifecycle;
mod session_age;

use std::collections::{BTreeMap, HashMap};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use warmline_core::era::{Era, Version};
use warmline_core::error::code::Reason;
use warmline_core::exchange::{Diagnostic, ServerRequestKind};
use warmline_core::policy::{Policy, SessionMode};
use warmline_core::pool_key::{ConfigRevision, CredentialId, Identity, RunId, TargetKey};
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
use warmline_store::keyring::Keyring;
use warmline_upstream::{self, HttpConfig, ListKind, TransportConfig, UnsolicitedListener};

use digests::revision;
pub(crate) use digests::{KeyedClientProfile, NO_CREDENTIAL, transport_of};
use health::ServerHealth;
use known_facts::HandshakeCache;
pub(crate) use known_facts::{
    DiscoveryError, DiscoveryGoal, DiscoveryKey, HandshakeKey, RouteFlightKey, profile_of,
};
use latency::LatencyWindow;
use session_age::SessionAges;

pub(crate) struct ServerState {
    pub(crate) name: Arc<str>,
    pub(crate) declaration: Server,
    lifecycle: AtomicU8,
    /// Its settings in force; new settings apply in place.
    settings: ArcSwap<ServerSettings>,
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

#[derive(Debug)]
pub(crate) struct ServerLocation {
    pub(crate) transport: TransportConfig,
    pub(crate) revision: ConfigRevision,
}

/// Where a caller finds a server, and as whom it speaks there.
#[derive(Clone)]
pub(crate) struct ServerAccess {
    pub(crate) location: Arc<ServerLocation>,
    pub(crate) credential: Option<Arc<Credential>>,
}

impl ServerAccess {
    pub(crate) fn credential_id(&self) -> CredentialId {
        let credential = self.credential.as_ref();
        credential.map_or(NO_CREDENTIAL, |credential| credential.id())
    }
}

/// Programs of one server that start at a time, so that other servers need not wait.
const STARTS_PER_SERVER: usize = 16;
/// From this many pauses on, those that are over are dropped.
const MAX_COOLDOWNS: usize = 1_000;

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

    /// A call was answered after this time, on a session of this age.
    pub(crate) fn record_answer(&self, took: Duration, session_age: impl FnOnce() -> Duration) {
        self.latency.record(took);
        self.note_answered();
        self.note_session_alive(session_age);
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

    pub(crate) fn settings(&self) -> Arc<ServerSettings> {
        self.settings.load_full()
    }

    pub(crate) fn policy(&self) -> PolicyGuard {
        PolicyGuard(self.settings.load())
    }

    /// Whether another declaration leads to the same server with the same credential: then only its
    /// settings differ.
    pub(crate) fn has_same_target(&self, other: &Server, vault: &Keyring) -> bool {
        let credential = |server: &Server| {
            let source = server.credential.clone()?;
            Some(Credential::new(source, &self.name, None, vault).id())
        };
        let dial = |server: &Server| server.dial.as_ref().map(|dial| dial.label().to_owned());
        let reach = match (&self.declaration.endpoint, &other.endpoint) {
            (DeclaredEndpoint::Static(one), DeclaredEndpoint::Static(other)) => one == other,
            (
                DeclaredEndpoint::Resolver { resolver: one, .. },
                DeclaredEndpoint::Resolver {
                    resolver: other, ..
                },
            ) => Arc::ptr_eq(one, other),
            (DeclaredEndpoint::Static(_), DeclaredEndpoint::Resolver { .. })
            | (DeclaredEndpoint::Resolver { .. }, DeclaredEndpoint::Static(_)) => false,
        };
        reach
            && dial(&self.declaration) == dial(other)
            && credential(&self.declaration) == credential(other)
    }

    pub(crate) fn has_same_settings(&self, settings: &ServerSettings) -> bool {
        self.settings.load().has_same_values(settings)
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

    /// Where the server is; resolved once, unless the declaration says it.
    pub(crate) async fn locate(&self, vault: &Keyring) -> Result<Arc<ServerLocation>, Diagnostic> {
        if let Some(found) = self.location.lock().clone() {
            return Ok(found);
        }
        let reach = self.resolve_transport().await?;
        let revision = revision(&reach, self, vault);
        let found = Arc::new(ServerLocation {
            transport: reach,
            revision,
        });
        Ok(Arc::clone(self.location.lock().get_or_insert(found)))
    }

    async fn resolve_transport(&self) -> Result<TransportConfig, Diagnostic> {
        let (headers, ca_file) = match &self.declaration.endpoint {
            DeclaredEndpoint::Static(reach) => return Ok(reach.clone()),
            DeclaredEndpoint::Resolver {
                headers, ca_file, ..
            } => (headers, ca_file),
        };
        let Some(lookup) = &self.lookup else {
            return Err(Diagnostic::new(
                Reason::Internal,
                "a server has no resolver",
            ));
        };
        let resolved = lookup.resolve().await?;
        let mut all: Vec<(HeaderName, HeaderValue)> = headers.clone();
        // The resolver overrides declared headers.
        for (name, value) in &resolved.headers {
            all.retain(|(known, _)| known != name);
            all.push((name.clone(), value.clone()));
        }
        Ok(TransportConfig::Http(HttpConfig {
            url: resolved.url.clone(),
            headers: all,
            ca_file: ca_file.clone(),
            substituted: BTreeMap::new(),
        }))
    }

    pub(crate) fn known_location(&self) -> Option<Arc<ServerLocation>> {
        self.location.lock().clone()
    }

    /// Where the server is, for people: a URL without its query, or a program.
    pub(crate) fn display_location(&self) -> Option<String> {
        let found = self.known_location()?;
        Some(match &found.transport {
            TransportConfig::Http(reach) => warmline_upstream::display_url(reach),
            TransportConfig::Stdio(reach) => reach.redact_substituted(reach.program.clone()),
        })
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

    pub(crate) fn start_cooldown(&self, whose: Identity, now: Tick, pause: Duration) {
        let mut pauses = self.cooldowns.lock();
        if pauses.len() >= MAX_COOLDOWNS {
            pauses.retain(|_, cooldown| cooldown.remaining(now).is_some());
        }
        pauses.entry(whose).or_default().extend(now, pause);
        self.has_cooldowns.store(true, Ordering::Relaxed);
    }

    pub(crate) fn cooldown_left(
        &self,
        whose: Identity,
        now: impl FnOnce() -> Tick,
    ) -> Option<Duration> {
        if !self.has_cooldowns.load(Ordering::Relaxed) {
            return None;
        }
        let now = now();
        let mut pauses = self.cooldowns.lock();
        let left = pauses
            .get(&whose)
            .and_then(|cooldown| cooldown.remaining(now));
        if left.is_none() && pauses.remove(&whose).is_some() && pauses.is_empty() {
            self.has_cooldowns.store(false, Ordering::Relaxed);
        }
        left
    }

    /// Stops lookups of resolvers and credential sources. Their tasks can be waited for.
    pub(crate) fn stop_lookups(&self) -> Vec<JoinHandle<()>> {
        let lookup = self.lookup.as_ref().and_then(ServerLookup::stop);
        let credentials = self.credentials.lock();
        let credentials = credentials.values().filter_map(|asked| asked.stop());
        lookup.into_iter().chain(credentials).collect()
    }

    pub(crate) fn target_key(&self, found: &ServerLocation, leg: ServerProfile) -> TargetKey {
        TargetKey {
            server: Arc::clone(&self.name),
            revision: found.revision,
            era: leg.era,
            transport: leg.transport,
        }
    }

    pub(crate) fn upstream_target(
        &self,
        found: &ServerLocation,
        credential: Option<&Arc<Credential>>,
        era: Option<Era>,
        notices: Option<Arc<dyn UnsolicitedListener>>,
    ) -> warmline_upstream::ServerTarget {
        let settings = self.settings.load();
        let policy = &settings.policy;
        warmline_upstream::ServerTarget {
            name: self.name.to_string(),
            transport: found.transport.clone(),
            era: era.or(settings.era),
            version: policy.version,
            sessions: policy.sessions,
            session_gone_matching: policy.dialects,
            credential: credential.map(|credential| Arc::clone(credential) as Arc<_>),
            credential_id: credential.map(|credential| credential.id().0),
            unsolicited_listener: notices,
            dial: self.declaration.dial.clone(),
            lifetime_token: None,
            metrics: Some(Arc::<ServerMetrics>::clone(&self.metrics)),
            timeouts: settings.timeouts,
            size_limits: settings.size_limits,
        }
    }

    pub(crate) fn open_time_limit(&self) -> Duration {
        let settings = self.settings.load();
        let times = &settings.timeouts;
        let before = match self.declaration.is_program() {
            true => times.start,
            false => times.connect.saturating_add(times.handshake),
        };
        let within = before.saturating_add(times.handshake);
        settings.policy.create.unwrap_or(within)
    }

    /// The configured era: set directly, or by a version.
    pub(crate) fn configured_era(&self) -> Option<Era> {
        let settings = self.settings.load();
        settings.era.or(settings.policy.version.map(Version::era))
    }

    /// What a first contact has to find out for a caller.
    pub(crate) fn discovery_goal(&self, inside_run: bool, era: Option<Era>) -> DiscoveryGoal {
        if let Some(era) = era {
            DiscoveryGoal::Era(era)
        } else if inside_run || self.policy().sessions == SessionMode::Always {
            DiscoveryGoal::Stateful
        } else {
            DiscoveryGoal::Any
        }
    }
}

pub(crate) struct PolicyGuard(arc_swap::Guard<Arc<ServerSettings>>);

impl Deref for PolicyGuard {
    type Target = Policy;

    fn deref(&self) -> &Policy {
        &self.0.policy
    }
}

impl std::fmt::Debug for ServerState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Entry")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
