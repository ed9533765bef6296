//! How the pool opens, checks and ends sessions: the pool's door to `upstream`.
//!
//! Asked by: the pool's tasks.  Here a session meets its record: one that is stored is taken up
//! again with nothing on the wire, a new one is stored before it is handed out, and what a
//! process took with it is told instead of hidden.

use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use warmline_core::code::Reason;
use warmline_core::era::Era;
use warmline_core::exchange::Trouble;
use warmline_core::key::{CredentialId, DeclaredId, Key, Owner, Transport};
use warmline_core::plan::{self, Asking, Holding, Leg, Ownership, Plan};
use warmline_core::policy::BreakerPolicy;
use warmline_core::pool::Sharing;
use warmline_core::pool::{Health, Why};
use warmline_core::protocol::params::Params;

use self::recorded::Book;
use crate::attend::{Audience, Told};
use crate::clock;
use crate::credentials::Credential;
use crate::engine::Shared;
use crate::entry::{Entry, Found, NO_CREDENTIAL, Said, Wants};
use crate::pool::{Connector, Happened, Opened, Order, Trace};
use crate::route::Speaking;
use crate::store::Records;
use crate::sync::Mutex;
use crate::upstream::{self, Legs, Notices, Session, Verdict};
use line::LiveIds;
pub(crate) use line::{FirstContact, Line};
use starts::Starts;

mod abandoned;
mod checking;
mod line;
mod orders;
mod recorded;
mod saying;
mod starts;
mod telling;

pub(crate) use orders::{AskedFor, Giver, Meant, Orders, updated};
pub(crate) use saying::Said as SaidAgain;

/// Closing a session takes no longer than this, whatever the server does.
const CLOSE_WITHIN: Duration = Duration::from_secs(6);

/// Opens, checks and ends sessions for the pool.
#[derive(Debug)]
pub(crate) struct Connect {
    shared: Arc<Shared>,
    starts: Starts,
    live: LiveIds,
}

/// All that is needed to open a session of a cell again.
#[derive(Debug)]
pub(crate) struct Setup {
    pub(crate) entry: Arc<Entry>,
    pub(crate) found: Arc<Found>,
    pub(crate) credential: Option<Arc<Credential>>,
    pub(crate) said: Arc<Said>,
    pub(crate) leg: Leg,
    /// What was asked for by whoever made its key, and how the key held sessions then; none where
    /// no key does.
    held: Option<(Asking, Holding)>,
    /// What is written of its sessions; none where nothing is.
    book: Option<Box<Book>>,
    left_state: AtomicBool,
    /// Whether state was lost that nobody was told of: the record says so.
    untold_loss: AtomicBool,
    /// How many calls its sessions had: each may have changed what they list.
    calls: AtomicU32,
    /// Whether a session of it was there before, as somebody knows who comes back to it.
    was_there: AtomicBool,
    /// What most keys never have.
    aside: OnceLock<Box<Aside>>,
}

/// What a key has only if somebody ordered something on it, or attends it.
#[derive(Debug, Default)]
pub(crate) struct Aside {
    orders: Mutex<Orders>,
    /// What was said to the session that moves in, until it is there.
    told: Mutex<Option<(Weak<Line>, Orders)>>,
    /// Those who hear what its sessions say outside any call.
    pub(crate) audience: Arc<Audience>,
}

/// Counts a call when it is over.
pub(crate) struct CountsCall<'a>(&'a Setup);

impl Drop for CountsCall<'_> {
    fn drop(&mut self) {
        self.0.calls.fetch_add(1, Ordering::AcqRel);
    }
}

/// How a key holds sessions by what is decided now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holds {
    /// So.
    So(Holding),
    /// It would be made no more: calls are led to another key, or to none. It did so before.
    NoMore(Holding),
}

impl Setup {
    /// Sees to it that what no caller asked for shows a token that is good by now: a session may
    /// have rested for longer than its token lasts.
    async fn freshen(&self) {
        if let Some(credential) = &self.credential
            && let Err(trouble) = credential.ready().await
        {
            tracing::debug!(server = %self.entry.name, %trouble, "no fresh credential");
        }
    }

    pub(crate) fn new(
        entry: Arc<Entry>,
        speaking: &Speaking,
        said: Arc<Said>,
        leg: Leg,
        records: Option<Arc<Records>>,
    ) -> Self {
        Self {
            entry,
            found: Arc::clone(&speaking.found),
            credential: speaking.credential.clone(),
            said,
            leg,
            held: None,
            book: records.map(Book::new),
            left_state: AtomicBool::new(false),
            untold_loss: AtomicBool::new(false),
            calls: AtomicU32::new(0),
            was_there: AtomicBool::new(false),
            aside: OnceLock::new(),
        }
    }

    /// The same for a key that somebody comes back to: where nothing is left of its session, its
    /// state is lost.
    pub(crate) fn come_back_to(self) -> Self {
        self.was_there
            .store(self.leg.keeps_session, Ordering::Relaxed);
        self
    }

    /// The same for sessions that a key holds so. Where it holds several, each is its holder's alone:
    /// there is one record per key, and whoever read it would have a session that somebody else has.
    pub(crate) fn held(mut self, asking: Asking, holding: Holding) -> Self {
        if holding.sharing == Sharing::OneEach {
            self.book = None;
        }
        self.held = Some((asking, holding));
        self
    }

    /// How its key holds sessions by what is decided now; none where no key does.
    pub(crate) fn holding(&self) -> Option<Holds> {
        let (asking, began) = self.held?;
        Some(match plan::plan(self.leg, &self.entry.policy(), asking) {
            Plan::Held(now) if (now.owner, now.reach) == (began.owner, began.reach) => {
                Holds::So(now)
            },
            Plan::Held(_) | Plan::Once => Holds::NoMore(began),
        })
    }

    /// Remembers what has to be said again to the session that replaces this one. The record says
    /// so in the background.
    pub(crate) fn note_order(self: &Arc<Self>, giver: Giver, method: &str, params: &Params) {
        if Orders::are_given_by(method) {
            let aside = self.aside();
            aside.orders.lock().note(giver, method, params);
            aside.audience.changed();
            self.renews();
        }
    }

    /// How calls share its sessions, where a key holds them.
    pub(crate) fn sharing(&self) -> Option<Sharing> {
        self.held.map(|(_, holding)| holding.sharing)
    }

    /// Whether identities share its sessions.
    pub(crate) fn is_everybodys(&self) -> bool {
        self.held
            .is_some_and(|(_, holding)| holding.owner == Ownership::Everybody)
    }

    fn credential_id(&self) -> CredentialId {
        let credential = self.credential.as_ref();
        credential.map_or(NO_CREDENTIAL, |credential| credential.id())
    }

    pub(crate) fn is_process(&self) -> bool {
        self.leg.transport == Transport::Stdio
    }

    /// Whether its session answered a call that was not repeatable.
    pub(crate) fn has_left_state(&self) -> bool {
        self.left_state.load(Ordering::Relaxed)
    }

    /// Whether its server can remember something by the session: otherwise there is none to lose.
    pub(crate) fn keeps_state(&self) -> bool {
        self.leg.keeps_session || self.is_process()
    }

    /// Whether what its session knows would be lost with it.
    pub(crate) fn has_something_to_lose(&self) -> bool {
        self.keeps_state() && self.has_left_state()
    }

    /// Whether state was lost, and nobody was told of that yet.
    pub(crate) fn has_untold_loss(&self) -> bool {
        self.untold_loss.load(Ordering::Relaxed)
    }

    /// How many calls its sessions had.
    pub(crate) fn calls(&self) -> u32 {
        self.calls.load(Ordering::Acquire)
    }

    /// A call of a tool is counted when this is dropped: then it is over, or nobody waits for it.
    pub(crate) fn counts_call(&self) -> CountsCall<'_> {
        CountsCall(self)
    }

    /// Whether anything is ordered that its sessions tell.
    pub(crate) fn has_orders(&self) -> bool {
        let aside = self.aside.get();
        aside.is_some_and(|aside| !aside.orders.lock().is_empty())
    }

    pub(crate) fn orders(&self) -> Orders {
        let aside = self.aside.get();
        aside.map_or_else(Orders::default, |aside| aside.orders.lock().clone())
    }

    /// Whether somebody comes back to a session of it, or ordered something that only one tells.
    pub(crate) fn is_missed(&self) -> bool {
        self.was_there.load(Ordering::Relaxed) || self.has_orders()
    }

    /// Those who attend its sessions, if anybody ever did.
    pub(crate) fn audience(&self) -> Option<Arc<Audience>> {
        Some(Arc::clone(&self.aside.get()?.audience))
    }

    /// Something is different for those who attend its sessions.
    fn look_again(&self) {
        if let Some(audience) = self.audience() {
            audience.changed();
        }
    }

    pub(crate) fn aside(&self) -> &Aside {
        self.aside.get_or_init(Box::default)
    }

    /// A session moves in: what it tells from now on is for this key.
    fn is_served_by(self: &Arc<Self>, line: &Line) {
        if let Some(told) = &line.told {
            told.serve(self);
        }
    }

    /// How the server is met for a session that tells what it says outside calls to this.
    fn target(&self, era: Option<Era>, tells: Arc<dyn Notices>) -> upstream::Server {
        let credential = self.credential.as_ref();
        self.entry.target(&self.found, credential, era, Some(tells))
    }
}

/// Drops a cached list when the server says that it changed.
impl Notices for Entry {
    fn notice(&self, method: &str, _params: &[u8]) {
        let changed = ["tools", "prompts", "resources"]
            .into_iter()
            .find(|list| method == format!("notifications/{list}/list_changed"));
        if let Some(list) = changed {
            self.list_changed(list);
        }
    }
}

impl Connect {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            starts: Starts::default(),
            live: LiveIds::default(),
        }
    }

    /// The first contact with a server: the session on the leg that serves the caller best, and
    /// what the other leg was like where it was tried.
    pub(crate) async fn first_contact(
        &self,
        entry: &Arc<Entry>,
        speaking: &Speaking,
        said: &Said,
        (wants, legs): (Wants, Legs),
        trace: Trace,
    ) -> Result<FirstContact, Trouble> {
        let told = Told::new(entry);
        let notices: Arc<dyn Notices> = Arc::<Told>::clone(&told);
        let credential = speaking.credential.as_ref();
        let era = match wants {
            Wants::Era(era) => Some(era),
            Wants::State | Wants::Any => None,
        };
        let mut target = entry.target(&speaking.found, credential, era, Some(notices));
        target.tether = Some(Arc::new(trace));
        let contact = || async {
            let upstream = &self.shared.upstream;
            // Opening is rare, and its future is large.
            let contacting = Box::pin(upstream.first_contact(&target, &said.declared, legs));
            let contacting = within(entry, contacting);
            self.starts.in_turn(entry, &target.reach, contacting).await
        };
        let met = with_fresh_credential(credential, contact).await?;
        Ok(FirstContact {
            line: self.line((entry, &speaking.found), (met.session, Some(told)), None)?,
            other: met.other,
            beside: met.beside,
        })
    }

    /// What is remembered of a server, for somebody who says this of itself.
    pub(crate) fn remembered(
        &self,
        entry: &Entry,
        speaking: &Speaking,
        said: &Said,
    ) -> Option<Verdict> {
        let target = entry.target(&speaking.found, speaking.credential.as_ref(), None, None);
        self.shared.upstream.verdict(&target, &said.declared)
    }

    /// Opens a session on the leg that the setup names.
    async fn open_fresh(
        &self,
        order: &Order<Self>,
    ) -> Result<(Session, Option<Arc<Told>>), Trouble> {
        let setup = &order.setup;
        // A spare serves nobody yet.
        let told = order.key.is_none().then(|| Told::new(&setup.entry));
        let tells: Arc<dyn Notices> = match &told {
            Some(told) => Arc::<Told>::clone(told),
            None => Arc::<Setup>::clone(setup),
        };
        let mut target = setup.target(Some(setup.leg.era), tells);
        target.tether = Some(Arc::new(order.trace.clone()));
        let open = || async {
            let opening = self.shared.upstream.open(&target, &setup.said.declared);
            let (entry, opening) = (&setup.entry, Box::pin(opening));
            let opening = within(entry, opening);
            self.starts.in_turn(entry, &target.reach, opening).await
        };
        let opened = with_fresh_credential(setup.credential.as_ref(), open).await;
        let opened = match (opened, &order.replaces) {
            // It holds one session, and it is ours: we end it and try once more, and only once.
            (Err(trouble), Some(old)) if trouble.reason == Reason::SingleSession => {
                clock::timeout(CLOSE_WITHIN, old.close()).await.ok();
                open().await
            },
            (opened, _) => opened,
        };
        Ok((opened?, told))
    }

    /// Checks that what was opened is what the key says it is.
    async fn expected(setup: &Setup, session: Session) -> Result<Session, Trouble> {
        let (facts, leg) = (session.facts(), setup.leg);
        let is_so = facts.era == leg.era
            && facts.transport == leg.transport
            && facts.keeps_session == leg.keeps_session;
        if is_so {
            return Ok(session);
        }
        // Under this key it might be shared with somebody whose session it is not.
        clock::timeout(CLOSE_WITHIN, session.close()).await.ok();
        setup.entry.forget_contacts();
        let what = format!("`{}` is not any more what it was", setup.entry.name);
        Err(Trouble::new(Reason::Version, what))
    }

    /// Whether a server answers, without touching its sessions.
    pub(crate) async fn is_there(&self, entry: &Arc<Entry>, found: &Found) -> Result<(), Trouble> {
        let target = entry.target(found, None, None, None);
        let limit = entry.policy().health_check_timeout;
        if entry.policy().explicit_health_rpc {
            self.shared.upstream.answers(&target, limit).await
        } else {
            self.shared.upstream.reachable(&target, limit).await
        }
    }
}

impl Connector for Connect {
    type Session = Line;
    type Setup = Setup;

    async fn restore(&self, order: &Order<Self>) -> Option<Opened<Line>> {
        self.take_up(order).await
    }

    async fn open(&self, order: &Order<Self>) -> Result<Arc<Line>, Trouble> {
        let opened = self.open_fresh(order).await;
        if let Err(trouble) = &opened
            && speaks_of_the_server(trouble)
        {
            order.setup.entry.forget_contacts();
        }
        let (session, told) = opened?;
        let setup = &order.setup;
        let session = Self::expected(setup, session).await?;
        let whose = (&*setup.entry, &*setup.found);
        let line = self.line(whose, (session, told), order.replaces.as_ref())?;
        // What belongs to no key yet is for whoever comes.
        let owner = order.key.as_ref().map_or(Owner::Everybody, Key::owner);
        let by = (setup.credential_id(), setup.said.id);
        setup.entry.shook_hands(owner, by, line.shared_facts());
        Ok(line)
    }

    async fn move_in(&self, order: &Order<Self>, line: Arc<Line>) -> Opened<Line> {
        line.generation
            .store(order.generation.number(), Ordering::Relaxed);
        order.setup.moves_on(order.key.as_ref());
        saying::say_again(&order.setup, &line).await;
        if order.replaces.is_some() {
            order.setup.entry.forget_greetings();
        }
        order.setup.is_served_by(&line);
        if let Some(key) = &order.key {
            self.moves_in(&order.setup, key, &line);
        }
        let mut opened = self.write_down(order, line).await;
        opened.lost_state |= order.setup.was_there.swap(false, Ordering::Relaxed);
        opened
    }

    fn joined(&self, line: &Arc<Line>, setup: &Arc<Setup>) {
        saying::catch_up(setup, line);
    }

    async fn check(&self, line: &Arc<Line>, setup: &Arc<Setup>) -> Health {
        setup.freshen().await;
        checking::check(setup, line).await
    }

    async fn close(&self, line: Arc<Line>, setup: &Arc<Setup>, key: Option<&Key>, why: Why) {
        if self.is_left_to_its_record(setup, key, why) {
            line.cancels_heard().await;
            self.give_back(setup, &line);
            self.leave_to_record(setup).await;
            return;
        }
        // Asked before it is ended: from then on nobody can tell who ended it.
        if let Some(report) = line.child() {
            self.child_ended(setup, key, &report);
        }
        // What the server itself does not know any more it need not be asked to delete: a heal
        // costs no request more than it must.
        let is_over = (why == Why::Gone && line.facts().transport == Transport::Http)
            || self.ends_another(setup, &line);
        let closing = async {
            setup.freshen().await;
            line.end().await
        };
        if !is_over {
            let ended = clock::timeout(CLOSE_WITHIN, closing).await;
            self.ended(key, &line, &setup.entry.name, ended.ok());
        }
        if let Some(report) = line.child() {
            let left = u64::from(report.left_behind);
            setup.entry.metrics.orphans_killed.more(left);
        }
        self.give_back(setup, &line);
        self.cross_out(setup, key, &line, why).await;
    }

    fn is_usable(&self, line: &Line) -> bool {
        line.retired().is_none()
    }

    fn happened(&self, setup: &Setup, happened: &Happened<'_>) {
        self.tell(setup, happened);
    }

    fn declared(&self, setup: &Setup) -> DeclaredId {
        setup.said.shared_by
    }

    fn spares(&self, setup: &Setup) -> u32 {
        if setup.leg.keeps_session && !setup.entry.is_withdrawn() {
            setup.entry.policy().spares
        } else {
            0
        }
    }

    fn max_sessions(&self, setup: &Setup) -> Option<u32> {
        setup.entry.policy().max_sessions
    }

    fn breaker(&self, setup: &Setup) -> BreakerPolicy {
        setup.entry.policy().breaker
    }

    fn holds_room(&self, line: &Line) -> bool {
        line.facts().keeps_session
    }
}

/// Whether a failed opening says that what we knew of the server is no longer true.
fn speaks_of_the_server(trouble: &Trouble) -> bool {
    let reasons = [
        Reason::Version,
        Reason::Handshake,
        Reason::NotMcp,
        Reason::Rejected,
        Reason::NotFound,
    ];
    reasons.contains(&trouble.reason)
}

/// Bounded by the operator's limit for opening, where there is one.
async fn within<T>(
    entry: &Entry,
    opening: impl Future<Output = Result<T, Trouble>>,
) -> Result<T, Trouble> {
    let Some(limit) = entry.policy().create else {
        return opening.await;
    };
    clock::timeout(limit, opening).await.unwrap_or_else(|_| {
        let what = format!(
            "`{}` did not open a session within {} s",
            entry.name,
            limit.as_secs_f64()
        );
        Err(Trouble::new(Reason::TimeoutUnsent, what)
            .hint("raise `create_timeout` for this server"))
    })
}

/// Once more with a fresh credential, if the server did not take the one we had.
async fn with_fresh_credential<T, F>(
    credential: Option<&Arc<Credential>>,
    open: impl Fn() -> F,
) -> Result<T, Trouble>
where
    F: Future<Output = Result<T, Trouble>>,
{
    let epoch = credential.map(|credential| credential.epoch());
    let opened = match (open().await, credential, epoch) {
        (Err(trouble), Some(credential), Some(epoch))
            if trouble.reason == Reason::Unauthorized && credential.can_refresh() =>
        {
            match credential.refresh(epoch).await {
                Ok(_) => open().await,
                Err(_) => Err(trouble),
            }
        },
        (opened, _, _) => opened,
    };
    opened.map_err(|trouble| Credential::named_in(credential, trouble))
}
