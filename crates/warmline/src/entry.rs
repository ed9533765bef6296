//! What the engine holds of one server: where it is, as whom we speak, what it turned out to be.
//!
//! Asked by: the engine, on the way of every call that has no session yet.  Nothing here is
//! looked up before the first call (A115), and each thing is looked up once for any number of
//! first callers.

mod ages;
mod answers;
mod contacts;
mod digests;
mod greetings;
mod health;
mod listed;
mod standing;
mod whose;

use std::collections::{BTreeMap, HashMap};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use http::{HeaderMap, HeaderName, HeaderValue};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use warmline_core::budget::{Budget, Cooldown};
use warmline_core::code::Reason;
use warmline_core::era::{Era, Version};
use warmline_core::exchange::{QuestionKind, Trouble};
use warmline_core::key::{CredentialId, Identity, Place, Revision, RunId};
use warmline_core::plan::Leg;
use warmline_core::policy::{Policy, Sessions};
use warmline_core::tick::Tick;

use crate::attend::Attendance;
use crate::credentials::{Credential, CredentialSource};
use crate::engine::Who;
use crate::events::{Event, Events};
use crate::flight::Flights;
use crate::identity::IdentityName;
use crate::metrics::ServerMetrics;
use crate::resolve::Lookup;
use crate::seal::Vault;
use crate::server::{Server, Whereabouts};
use crate::settings::ServerSettings;
use crate::sync::Mutex;
use crate::tools::ToolCache;
use crate::upstream::{self, HttpReach, Notices, Probe, Reach};

use ages::Ages;
use answers::AnswerTimes;
pub(crate) use contacts::{Contact, ContactKey, Together, Unmet, Wants};
use digests::revision;
pub(crate) use digests::{NO_CREDENTIAL, Said, transport_of};
pub(crate) use greetings::Greeter;
use greetings::Greetings;
use health::Health;
pub(crate) use listed::Items;
use listed::Listed;
use standing::Standing;
pub(crate) use standing::governing;
pub(crate) use whose::{ToolsOf, Whose};

/// What the engine holds of one server.
pub(crate) struct Entry {
    pub(crate) name: Arc<str>,
    pub(crate) server: Server,
    standing: Standing,
    /// What was decided about it; another decision applies in place.
    settings: ArcSwap<ServerSettings>,
    pub(crate) metrics: Arc<ServerMetrics>,
    events: Events,
    budget: Mutex<Budget>,
    pub(crate) tools: ToolCache<Whose>,
    pub(crate) listed: Listed,
    /// What was found out about it, by what may change the answer.
    contacts: papaya::HashMap<ContactKey, Arc<Contact>>,
    pub(crate) contacting: Flights<ContactKey, Result<Arc<Contact>, Unmet>>,
    /// Runs that come here for the first time.
    pub(crate) finding: Flights<Together, Result<(), Trouble>>,
    /// Raised when what was found out is forgotten.
    contacts_seen: AtomicU64,
    /// What it said of itself, by who greeted it.
    greetings: Greetings,
    found: Mutex<Option<Arc<Found>>>,
    lookup: Option<Lookup>,
    /// The probe that works, where `ping` does not.
    probe: AtomicU8,
    health: Health,
    ages: Ages,
    /// Whether anybody was asked to pause; most servers never ask.
    has_paused: AtomicBool,
    pauses: Mutex<HashMap<Identity, Cooldown>>,
    /// Calls that the budget of resends has not heard of yet.
    pub(crate) calls: AtomicU32,
    pub(crate) answers: AnswerTimes,
    /// Its share of the programs that are started at the same time.
    pub(crate) starts: Semaphore,
    credentials: Mutex<HashMap<Option<Identity>, Arc<Credential>>>,
    /// Those who hear what it says outside any call.
    pub(crate) attendance: Attendance,
    /// Those that callers handed in, by the keyed digests of their values.
    handed: Mutex<HashMap<CredentialId, Arc<Credential>>>,
}

/// Where a server is, and what that comes to.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) reach: Reach,
    pub(crate) revision: Revision,
}

/// So many programs of one server are started at the same time: others are not to wait for it.
const STARTS: usize = 16;
/// From so many pauses on, those that are over are forgotten.
const MAX_PAUSES: usize = 1_000;
/// From so many credentials on, those that nobody uses are forgotten.
const MAX_CREDENTIALS: usize = 10_000;

impl Drop for Entry {
    /// Nobody is left who would hear the answer.
    fn drop(&mut self) {
        self.stop_asking();
    }
}

impl Entry {
    pub(crate) fn new(
        mut server: Server,
        metrics: Arc<ServerMetrics>,
        events: Events,
        horizon: Duration,
    ) -> Arc<Self> {
        let lookup = match &server.reach {
            Whereabouts::Said(_) => None,
            Whereabouts::LookedUp { resolver, .. } => {
                Some(Lookup::new(Arc::clone(resolver), server.card.clone()))
            },
        };
        if let Some(lookup) = &lookup {
            let token = || CredentialSource::of_resolver(lookup.clone());
            server.credential.get_or_insert_with(token);
        }
        Arc::new(Self {
            name: Arc::from(server.name.as_str()),
            tools: ToolCache::new(horizon),
            listed: Listed::new(horizon),
            settings: ArcSwap::from_pointee(server.settings.clone()),
            server,
            standing: Standing::default(),
            metrics,
            events,
            budget: Mutex::default(),
            contacts: papaya::HashMap::new(),
            contacting: Flights::default(),
            finding: Flights::default(),
            contacts_seen: AtomicU64::new(0),
            greetings: Greetings::new(),
            found: Mutex::new(None),
            probe: AtomicU8::new(0),
            health: Health::default(),
            ages: Ages::default(),
            has_paused: AtomicBool::new(false),
            pauses: Mutex::default(),
            calls: AtomicU32::new(0),
            answers: AnswerTimes::default(),
            starts: Semaphore::new(STARTS),
            lookup,
            credentials: Mutex::default(),
            attendance: Attendance::default(),
            handed: Mutex::default(),
        })
    }

    /// Another session may list something else.
    pub(crate) fn forget_lists(&self) {
        self.tools.forget_all();
        self.listed.forget_all();
    }

    /// A run is over, and what its sessions listed with it.
    pub(crate) fn forget_lists_of(&self, run: RunId) {
        self.tools.forget(|whose| whose.is_of_run(run));
        self.listed.forget(|whose| whose.is_of_run(run));
    }

    /// The server said that one of its lists changed: what is cached of it is dropped.
    pub(crate) fn list_changed(&self, list: &'static str) {
        if list == "tools" {
            self.tools.forget_all();
        } else {
            self.listed.forget_all();
        }
        self.events.tell(Event::ListChanged {
            server: Arc::clone(&self.name),
            list,
        });
    }

    /// The server asked something that could be of calls of several callers, and was refused.
    pub(crate) fn question_refused(&self, kind: QuestionKind) {
        self.metrics.questions_refused.one_more();
        self.events.tell(Event::QuestionRefused {
            server: Arc::clone(&self.name),
            method: kind.method().unwrap_or("other"),
        });
    }

    /// What is decided about it at this moment.
    pub(crate) fn policy(&self) -> Decided {
        Decided(self.settings.load())
    }

    /// Whether another declaration leads to the same server, as the same: then only what is
    /// decided about it differs.
    pub(crate) fn is_reached_as(&self, other: &Server, vault: &Vault) -> bool {
        let credential = |server: &Server| {
            let source = server.credential.clone()?;
            Some(Credential::new(source, &self.name, None, vault).id())
        };
        let dial = |server: &Server| server.dial.as_ref().map(|dial| dial.label().to_owned());
        let reach = match (&self.server.reach, &other.reach) {
            (Whereabouts::Said(one), Whereabouts::Said(other)) => one == other,
            (
                Whereabouts::LookedUp { resolver: one, .. },
                Whereabouts::LookedUp {
                    resolver: other, ..
                },
            ) => Arc::ptr_eq(one, other),
            (Whereabouts::Said(_), Whereabouts::LookedUp { .. })
            | (Whereabouts::LookedUp { .. }, Whereabouts::Said(_)) => false,
        };
        reach && dial(&self.server) == dial(other) && credential(&self.server) == credential(other)
    }

    /// Whether these settings decide what counts already.
    pub(crate) fn is_decided_as(&self, settings: &ServerSettings) -> bool {
        self.settings.load().decides_as(settings)
    }

    /// Another decision counts from now on, also for what was found out under the old one.
    pub(crate) fn decide(&self, settings: ServerSettings) {
        let met_as = |settings: &ServerSettings| {
            let policy = &settings.policy;
            (settings.era, policy.version, policy.sessions)
        };
        let now = met_as(&settings);
        let before = self.settings.swap(Arc::new(settings));
        if met_as(&before) != now {
            self.forget_contacts();
        }
        // Which of them may be called is decided when they are read.
        self.tools.forget_all();
    }

    /// Where the server is. A server that was declared with its place is found at once.
    pub(crate) async fn found(&self, vault: &Vault) -> Result<Arc<Found>, Trouble> {
        if let Some(found) = self.found.lock().clone() {
            return Ok(found);
        }
        let reach = self.reach().await?;
        let revision = revision(&reach, self, vault);
        let found = Arc::new(Found { reach, revision });
        Ok(Arc::clone(self.found.lock().get_or_insert(found)))
    }

    async fn reach(&self) -> Result<Reach, Trouble> {
        let (headers, ca_file) = match &self.server.reach {
            Whereabouts::Said(reach) => return Ok(reach.clone()),
            Whereabouts::LookedUp {
                headers, ca_file, ..
            } => (headers, ca_file),
        };
        let Some(lookup) = &self.lookup else {
            return Err(Trouble::new(Reason::Internal, "a server has no resolver"));
        };
        let resolved = lookup.resolved().await?;
        let mut all: Vec<(HeaderName, HeaderValue)> = headers.clone();
        // What the resolver says is fresher than what was declared.
        for (name, value) in &resolved.headers {
            all.retain(|(known, _)| known != name);
            all.push((name.clone(), value.clone()));
        }
        Ok(Reach::Http(HttpReach {
            url: resolved.url.clone(),
            headers: all,
            ca_file: ca_file.clone(),
            filled: BTreeMap::new(),
        }))
    }

    /// The credential that speaks for this identity, if the server has one.
    pub(crate) fn credential(&self, who: &Who, vault: &Vault) -> Option<Arc<Credential>> {
        if let Some(handed) = &who.handed {
            return Some(Arc::clone(handed));
        }
        let source = self.server.credential.as_ref()?;
        let whose = source.splits_by_identity().then_some(who.id);
        Some(self.credential_of(whose, source, Some(&who.said), vault))
    }

    /// Whether callers hand in what it is called with.
    pub(crate) fn is_of_caller(&self) -> bool {
        let source = self.server.credential.as_ref();
        source.is_some_and(CredentialSource::is_of_caller)
    }

    /// Somebody with what the headers of their request hold for this server; none where it takes
    /// nothing from there.
    pub(crate) fn handed(&self, who: &Who, headers: &HeaderMap, vault: &Vault) -> Option<Who> {
        let source = self.server.credential.as_ref()?;
        if !source.is_of_caller() {
            return None;
        }
        let source = source.clone().of_caller(headers);
        let made = Credential::new(source, &self.name, Some(&who.said), vault);
        let mut held = self.handed.lock();
        if held.len() >= MAX_CREDENTIALS {
            held.retain(|_, credential| Arc::strong_count(credential) > 1);
        }
        let kept = held.entry(made.id()).or_insert_with(|| Arc::new(made));
        Some(Who {
            said: who.said.clone(),
            id: who.id,
            handed: Some(Arc::clone(kept)),
        })
    }

    fn credential_of(
        &self,
        whose: Option<Identity>,
        source: &CredentialSource,
        name: Option<&IdentityName>,
        vault: &Vault,
    ) -> Arc<Credential> {
        let mut held = self.credentials.lock();
        if let Some(known) = held.get(&whose) {
            return Arc::clone(known);
        }
        let made = Arc::new(Credential::new(source.clone(), &self.name, name, vault));
        // Those that no session uses are made anew when they are needed.
        if held.len() >= MAX_CREDENTIALS {
            held.retain(|_, credential| Arc::strong_count(credential) > 1);
        }
        held.insert(whose, Arc::clone(&made));
        made
    }

    /// The probe that this server answers.
    pub(crate) fn probe(&self) -> Probe {
        match self.probe.load(Ordering::Relaxed) {
            0 => Probe::Ping,
            _ => Probe::ToolsList,
        }
    }

    /// `ping` was not answered, and a list was.
    pub(crate) fn learn_probe(&self) {
        self.probe.store(1, Ordering::Relaxed);
    }

    /// Where the server is, if anybody looked already.
    pub(crate) fn known_place(&self) -> Option<Arc<Found>> {
        self.found.lock().clone()
    }

    /// Where the server is, as people may see it: a URL without its query, or a program.
    pub(crate) fn shown_place(&self) -> Option<String> {
        let found = self.known_place()?;
        Some(match &found.reach {
            Reach::Http(reach) => upstream::shown_url(reach),
            Reach::Stdio(reach) => reach.without_filled(reach.program.clone()),
        })
    }

    /// The budget of resends, with the calls it has not heard of yet.
    pub(crate) fn with_budget<T>(&self, now: Tick, act: impl FnOnce(&mut Budget) -> T) -> T {
        let calls = self.calls.swap(0, Ordering::Relaxed);
        let mut budget = self.budget.lock();
        budget.calls(now, calls);
        act(&mut budget)
    }

    /// The server asked an identity for a pause.
    pub(crate) fn cool(&self, whose: Identity, now: Tick, pause: Duration) {
        let mut pauses = self.pauses.lock();
        if pauses.len() >= MAX_PAUSES {
            pauses.retain(|_, cooldown| cooldown.left(now).is_some());
        }
        pauses.entry(whose).or_default().cool(now, pause);
        self.has_paused.store(true, Ordering::Relaxed);
    }

    /// How long an identity still has to wait, because the server asked for it.
    pub(crate) fn cooling(&self, whose: Identity, now: Tick) -> Option<Duration> {
        if !self.has_paused.load(Ordering::Relaxed) {
            return None;
        }
        let mut pauses = self.pauses.lock();
        let left = pauses.get(&whose).and_then(|cooldown| cooldown.left(now));
        if left.is_none() && pauses.remove(&whose).is_some() && pauses.is_empty() {
            self.has_paused.store(false, Ordering::Relaxed);
        }
        left
    }

    /// Ends what is being asked of resolvers and sources of credentials, and gives what can be
    /// waited for until nothing of it is left.
    pub(crate) fn stop_asking(&self) -> Vec<JoinHandle<()>> {
        let lookup = self.lookup.as_ref().and_then(Lookup::stop);
        let credentials = self.credentials.lock();
        let credentials = credentials.values().filter_map(|asked| asked.stop());
        lookup.into_iter().chain(credentials).collect()
    }

    /// The credential that a session was opened with, if somebody here speaks with it.
    pub(crate) fn credential_with(
        &self,
        id: CredentialId,
        vault: &Vault,
    ) -> Option<Arc<Credential>> {
        let own = self.own_credential(vault);
        let known = || {
            self.credentials
                .lock()
                .values()
                .cloned()
                .collect::<Vec<_>>()
        };
        let mut all = own.into_iter().chain(known());
        all.find(|credential| credential.id() == id)
    }

    /// Whether each identity speaks with a credential of its own.
    pub(crate) fn speaks_per_identity(&self) -> bool {
        let source = self.server.credential.as_ref();
        source.is_some_and(CredentialSource::splits_by_identity)
    }

    /// The credential that speaks for everybody, if the server has such a one.
    pub(crate) fn own_credential(&self, vault: &Vault) -> Option<Arc<Credential>> {
        let source = self.server.credential.as_ref()?;
        if source.splits_by_identity() {
            return None;
        }
        Some(self.credential_of(None, source, None, vault))
    }

    /// The place a leg leads to.
    pub(crate) fn place(&self, found: &Found, leg: Leg) -> Place {
        Place {
            server: Arc::clone(&self.name),
            revision: found.revision,
            era: leg.era,
            transport: leg.transport,
        }
    }

    /// The server as `upstream` opens it.
    pub(crate) fn target(
        &self,
        found: &Found,
        credential: Option<&Arc<Credential>>,
        era: Option<Era>,
        notices: Option<Arc<dyn Notices>>,
    ) -> upstream::Server {
        let settings = self.settings.load();
        let policy = &settings.policy;
        let mut target = match &found.reach {
            Reach::Http(reach) => upstream::Server::http(&*self.name, reach.url.clone()),
            Reach::Stdio(reach) => {
                upstream::Server::stdio(&*self.name, &reach.program, reach.args.clone())
            },
        };
        target.reach = found.reach.clone();
        target.era = era.or(settings.era);
        target.times = settings.times;
        target.sizes = settings.sizes;
        target.dialects = policy.dialects;
        target.version = policy.version;
        target.sessions = policy.sessions;
        target.credential_id = credential.map(|credential| credential.id().0);
        target.credential = credential.map(|credential| Arc::clone(credential) as Arc<_>);
        target.on_notice = notices;
        target.counts = Some(Arc::clone(&self.metrics));
        target.dial = self.server.dial.clone();
        target
    }

    /// The longest that its server may take to open a session.
    pub(crate) fn opens_within(&self) -> Duration {
        let settings = self.settings.load();
        let times = &settings.times;
        let before = match self.server.is_a_program() {
            true => times.start,
            false => times.connect.saturating_add(times.handshake),
        };
        let within = before.saturating_add(times.handshake);
        settings.policy.create.unwrap_or(within)
    }

    /// The era that is decided for this server: by its word, or by a version of it.
    pub(crate) fn decided_era(&self) -> Option<Era> {
        let settings = self.settings.load();
        settings.era.or(settings.policy.version.map(Version::era))
    }

    /// What a caller inside or outside a run needs to know.
    pub(crate) fn wants(&self, inside_run: bool, era: Option<Era>) -> Wants {
        if let Some(era) = era {
            Wants::Era(era)
        } else if inside_run || self.policy().sessions == Sessions::Always {
            Wants::State
        } else {
            Wants::Any
        }
    }
}

/// What is decided about a server, as it was when somebody looked.
pub(crate) struct Decided(arc_swap::Guard<Arc<ServerSettings>>);

impl Deref for Decided {
    type Target = Policy;

    fn deref(&self) -> &Policy {
        &self.0.policy
    }
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Entry")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
