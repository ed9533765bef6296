//! The way of a call: route, lease, send, decide, heal.
//!
//! Asked by: everything that sends a request for a caller. There is no other way to a server, and
//! the one decision about sending again is [`warmline_core::delivery::decide`].
//!
//! What a call on a held session costs, beside its bytes on the wire: one look into the run's own
//! table, two short locks of its cell (lease, settle) and two of its run (in, out), no lock that
//! an unrelated call also takes, no task, no JSON tree, no round trip of ours. The builder's box
//! is one allocation. `benches/lease.rs` and `tests/cost` hold the numbers.

use std::borrow::Cow;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use warmline_core::code::{Code, Reason};
use warmline_core::delivery::{
    Attempt, Delivery, First, Heard, Hurdle, Next, Purse, Renewal, Repeat, SoFar,
};
use warmline_core::era::Era;
use warmline_core::exchange::{
    Answer, Ending, Fate, News, Patience, Question, Reply, Request, Trouble,
};
use warmline_core::key::Transport;
use warmline_core::loss::{self, Notes, Reaction, Told};
use warmline_core::plan::Leg;
use warmline_core::pool::{Outcome, Want, Why};
use warmline_core::protocol::envelope::RpcError;
use warmline_core::protocol::gone::Remedy;
use warmline_core::protocol::params::Params;
use warmline_core::repeat::{self, Asked};

use crate::client::Caller;
use crate::clock::{self, Instant};
use crate::connect::Connect;
use crate::entry::Entry;
use crate::error::{At, Error, Result};
use crate::handle::HeldSession;
use crate::metrics::{CallOutcome, CallUnderWay, MethodWord};
use crate::pool::Lease;
use crate::route::{self, Route};
use crate::run;
use crate::tools::ToolList;
use crate::upstream::{Asked as Answering, Facts, List, Listener, Pages, is_usable};

/// What a caller wants sent.
pub(crate) struct Job {
    pub(crate) method: Cow<'static, str>,
    pub(crate) params: Params,
    pub(crate) patience: Patience,
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    pub(crate) said: Option<repeat::Said>,
    pub(crate) call_id: Option<String>,
    pub(crate) tool: Option<String>,
    pub(crate) listener: Option<Arc<dyn Listener>>,
}

/// A result, and what is known of how it came about.
#[derive(Clone, Debug)]
pub struct Answered {
    pub(crate) result: Bytes,
    pub(crate) server: Arc<str>,
    pub(crate) tool: Option<String>,
    pub(crate) attempts: u32,
    pub(crate) generation: u32,
    pub(crate) state_lost: bool,
    pub(crate) leg: Leg,
}

impl Answered {
    pub(crate) fn at(&self) -> At {
        At {
            server: Some(self.server.to_string()),
            method: None,
            tool: self.tool.clone(),
            run: None,
            generation: Some(self.generation),
        }
    }
}

/// Carries a call out, from its first attempt to its one ending.
///
/// # Cancel safety
/// Dropping it cancels the call in the way of the server's era; the lease is settled, and the run
/// is left.
pub(crate) async fn carry(caller: &Caller, entry: &Arc<Entry>, job: Job) -> Result<Answered> {
    let mut way = Way::begin(caller, entry, job)?;
    let Some(run) = &caller.run else {
        return way.go().await;
    };
    let present = run
        .admit(&caller.engine)
        .map_err(|trouble| way.over(trouble, Delivery::Unsent))?;
    let went = run.until_cut(way.go()).await;
    drop(present);
    went.unwrap_or_else(|| {
        let trouble = run::ended(&run.name);
        let delivery = way.when_cut();
        Err(way.over(trouble, delivery))
    })
}

/// What the rules say, before any byte leaves us.
pub(crate) fn allowed(caller: &Caller, entry: &Entry, job: &Job) -> Result<(), Trouble> {
    caller.engine.admit()?;
    let Some(tool) = &job.tool else {
        return Ok(());
    };
    if crate::tools::may_call(entry.policy(), tool) {
        return Ok(());
    }
    let what = format!("`{tool}` of `{}` may not be called", entry.name);
    Err(Trouble::new(Reason::NotAllowed, what))
}

/// A call on its way.
struct Way<'a> {
    caller: &'a Caller,
    entry: &'a Arc<Entry>,
    job: Job,
    so_far: SoFar,
    /// Whether the attempt under way may have reached the server.
    under_way: bool,
    by: Instant,
    generation: Option<u32>,
    rerouted: bool,
    want: Want,
    counted: Option<CallUnderWay>,
}

/// How an attempt ended, and what goes on from there.
enum Step {
    Over(Result<Answered>),
    Again(Request),
}

impl<'a> Way<'a> {
    fn begin(caller: &'a Caller, entry: &'a Arc<Entry>, job: Job) -> Result<Self> {
        let by = clock::after(job.patience.total);
        let counted = CallUnderWay::begin(&entry.metrics, MethodWord::of(&job.method));
        let mut way = Self {
            caller,
            entry,
            job,
            so_far: SoFar::default(),
            under_way: false,
            by,
            generation: None,
            rerouted: false,
            want: Want::Shared,
            counted: Some(counted),
        };
        if let Err(trouble) = allowed(caller, entry, &way.job) {
            return Err(way.over(trouble, Delivery::Unsent));
        }
        entry.calls.fetch_add(1, Ordering::Relaxed);
        Ok(way)
    }

    async fn go(&mut self) -> Result<Answered> {
        let mut request = self.request();
        loop {
            let (route, lease) = self.lease().await?;
            self.generation = Some(lease.generation().number());
            match self.attempt(&route, lease, request).await {
                Step::Over(result) => return result,
                Step::Again(back) => request = back,
            }
        }
    }

    fn request(&self) -> Request {
        let params = match &self.job.call_id {
            Some(id) => repeat::marked(&self.job.params, id, 1),
            None if self.entry.policy().dedupe_by_call_id => {
                repeat::marked(&self.job.params, &fresh_call_id(), 1)
            },
            None => self.job.params.clone(),
        };
        let request = Request::new(self.job.method.clone(), params).patient(self.job.patience);
        self.job
            .headers
            .iter()
            .fold(request, |request, (name, value)| {
                request.header(name.clone(), value.clone())
            })
    }

    /// A lease on a session of this call's key.
    async fn lease(&mut self) -> Result<(Route, Lease<Connect>)> {
        loop {
            let seen = self.entry.contacts_seen();
            match self.try_lease().await {
                Ok(leased) => return Ok(leased),
                // What was known of the server turned out wrong: found out anew, once.
                Err(_) if !self.rerouted && self.entry.contacts_seen() != seen => {
                    self.rerouted = true;
                    route::forget(self.caller, self.entry);
                },
                Err(trouble) => {
                    let delivery = self.so_far.delivery(Delivery::Unsent);
                    return Err(self.over(trouble, delivery));
                },
            }
        }
    }

    async fn try_lease(&self) -> Result<(Route, Lease<Connect>), Trouble> {
        let by = clock::after(self.entry.policy().wait).min(self.by);
        let finding = route::route(self.caller, self.entry, self.job.tool.as_deref());
        let Ok(route) = clock::timeout_at(self.by, finding).await else {
            return Err(self.late("while the way to the server was looked for"));
        };
        let route = route?;
        if let Some(credential) = &route.setup().credential {
            credential.ready().await?;
        }
        let lease = route.lease(self.caller, self.want, by).await?;
        Ok((route, lease))
    }

    fn late(&self, when: &str) -> Trouble {
        let what = format!("the time for this call to `{}` was over", self.entry.name);
        Trouble::new(Reason::TimeoutUnsent, what).because(when)
    }

    /// One attempt on one lease.
    async fn attempt(
        &mut self,
        route: &Route,
        mut lease: Lease<Connect>,
        request: Request,
    ) -> Step {
        let reaction = match lease.loss() {
            Some(_) => loss::plan(self.entry.policy().state_loss(), &self.job.method),
            None => Reaction::Nothing,
        };
        if matches!(reaction, Reaction::Fail | Reaction::EndRun) {
            lease.told();
            lease.settle(Outcome::Unused);
            return Step::Over(Err(self.state_lost(reaction)));
        }
        let repeat = self.repeat(None);
        let copy = (repeat == Repeat::Safe).then(|| request.clone());
        let left = self.by.saturating_duration_since(clock::now());
        let patience = Patience {
            idle: self.job.patience.idle,
            total: left.min(self.job.patience.total),
        };
        let hearing = Hearing::new(self.job.listener.as_deref());
        let epoch = route.setup().credential.as_ref().map(|it| it.epoch());
        if let Err(trouble) = self.cooled().await {
            lease.settle(Outcome::Unused);
            let delivery = self.so_far.delivery(Delivery::Unsent);
            return Step::Over(Err(self.over(trouble, delivery)));
        }
        if let Some(counted) = &mut self.counted {
            counted.attempt();
        }
        self.under_way = true;
        let ending = lease
            .session()
            .call(request.patient(patience), &hearing)
            .await;
        self.under_way = false;
        match ending {
            Ending::Answered(reply) => self.answered(route, lease, reply, reaction, repeat),
            Ending::Failed(failure) => {
                let (delivery, back) = match failure.fate {
                    Fate::Unsent(request) => (Delivery::Unsent, Some(request)),
                    Fate::Refused(request) => (Delivery::Refused, Some(request)),
                    Fate::Unknown => (Delivery::Unknown, copy),
                };
                let failed = Failed {
                    delivery,
                    back,
                    trouble: failure.trouble,
                    heard: hearing.heard(),
                    epoch,
                    repeat,
                };
                self.failed(route, lease, failed).await
            },
        }
    }

    /// Waits until the server wants to hear from this identity again, if it asked for a pause.
    async fn cooled(&self) -> Result<(), Trouble> {
        let now = self.caller.engine.tick();
        let Some(left) = self.entry.cooling(self.caller.who.id, now) else {
            return Ok(());
        };
        let until = clock::after(left);
        if until >= self.by {
            let mut trouble = self.late("the server asked for a pause that is longer");
            trouble.retry_after = Some(left);
            return Err(trouble);
        }
        clock::sleep(left).await;
        Ok(())
    }

    fn repeat(&self, hints: Option<repeat::Hints>) -> Repeat {
        let cached = || {
            let tool = self.job.tool.as_ref()?;
            self.entry
                .tools
                .peek(&tools_of(self.caller, self.entry))?
                .hints(tool)
        };
        let asked = Asked {
            method: &self.job.method,
            params: &self.job.params,
            hints: hints.or_else(cached),
            said: self.job.said,
        };
        repeat::of(&asked, self.entry.policy())
    }

    fn answered(
        &mut self,
        route: &Route,
        mut lease: Lease<Connect>,
        reply: Reply,
        reaction: Reaction,
        repeat: Repeat,
    ) -> Step {
        let generation = lease.generation().number();
        let left_state = repeat == Repeat::Unsafe && self.job.tool.is_some();
        let result = match reply {
            Reply::Result(result) => result,
            Reply::Error(raw) => {
                lease.settle(Outcome::Fine { left_state });
                return Step::Over(Err(self.protocol_error(&raw)));
            },
        };
        let attempts = self.so_far.attempts();
        let state_lost = reaction != Reaction::Nothing;
        let notes = Notes {
            generation: (state_lost || attempts > 1).then_some(generation),
            state_lost,
            attempts,
        };
        let (result, told) = match reaction {
            Reaction::Tell => loss::tell(&result, &self.entry.name, &notes),
            Reaction::Meta | Reaction::Mention => (loss::annotate(&result, &notes), Told::NotYet),
            Reaction::Nothing | Reaction::Fail | Reaction::EndRun => {
                let result = if attempts > 1 {
                    loss::annotate(&result, &notes)
                } else {
                    result
                };
                (result, Told::NotYet)
            },
        };
        if told == Told::InText || reaction == Reaction::Meta {
            lease.told();
        }
        route.setup().note_order(&self.job.method, &self.job.params);
        lease.settle(Outcome::Fine { left_state });
        self.count(|counted| counted.answered(kind_of(&result)));
        Step::Over(Ok(Answered {
            result,
            server: Arc::clone(&self.entry.name),
            tool: self.job.tool.clone(),
            attempts,
            generation,
            state_lost,
            leg: route.setup().leg,
        }))
    }

    async fn failed(&mut self, route: &Route, lease: Lease<Connect>, failed: Failed) -> Step {
        let retired = lease.session().retired();
        let hurdle = repeat::hurdle(&failed.trouble, retired);
        let mut repeat = failed.repeat;
        // Nobody listed the tools so far: now that it matters, the tool's own word is asked for.
        if failed.delivery == Delivery::Unknown
            && repeat == Repeat::Unsafe
            && failed.heard == Heard::Nothing
            && hurdle != Hurdle::Final
        {
            lease.settle(outcome(&failed.trouble, retired));
            repeat = self.repeat(self.hints_now().await);
        } else {
            lease.settle(outcome(&failed.trouble, retired));
        }
        self.learn(route, &failed.trouble);
        let credential = route.setup().credential.as_ref();
        let attempt = Attempt {
            delivery: failed.delivery,
            repeat,
            hurdle,
            retry_after: failed.trouble.retry_after,
            so_far: self.so_far,
            heals_allowed: self.entry.policy().heals_per_call,
            heard: failed.heard,
            renewal: match credential {
                Some(credential) if credential.can_refresh() => Renewal::Possible,
                _ => Renewal::Pointless,
            },
            left: self.by.saturating_duration_since(clock::now()),
            typical: Duration::ZERO,
            // Said by the budget itself, when it decides.
            purse: Purse::Empty,
            dice: fastrand::u32(..),
        };
        let now = self.caller.engine.tick();
        let next = self
            .entry
            .with_budget(now, |budget| budget.decide(&attempt, now));
        let Next::SendAgain { first, pause, .. } = next else {
            return Step::Over(Err(self.surface(failed)));
        };
        let again = failed.back.clone().unwrap_or_else(|| self.request());
        if first == First::RenewCredential
            && let (Some(credential), Some(epoch)) = (credential, failed.epoch)
            && let Err(trouble) = credential.refresh(epoch).await
        {
            tracing::debug!(server = %self.entry.name, %trouble, "no fresh credential");
            return Step::Over(Err(self.surface(failed)));
        }
        self.so_far.note(failed.delivery, first);
        tracing::debug!(server = %self.entry.name, method = %self.job.method, delivery = %failed.delivery,
            reason = %failed.trouble.reason, attempt = self.so_far.attempts(), "sent again");
        clock::sleep(pause).await;
        let id = self.job.call_id.clone().unwrap_or_else(fresh_call_id);
        let marked = repeat::marked(again.params(), &id, self.so_far.attempts());
        Step::Again(again.with_params(marked))
    }

    /// What a failure says of the server itself.
    fn learn(&self, route: &Route, trouble: &Trouble) {
        let busy = [Reason::RateLimited, Reason::Unavailable];
        if let Some(pause) = trouble.retry_after
            && busy.contains(&trouble.reason)
        {
            let now = self.caller.engine.tick();
            self.entry.cool(self.caller.who.id, now, pause);
        }
        let Some(dialect) = trouble.gone else { return };
        if matches!(dialect.remedy(), Remedy::Open | Remedy::GoStateless) {
            // It keeps sessions after all, or none any more: whoever shares what was held before
            // would share a session that is not theirs.
            self.entry.forget_contacts();
            route::forget(self.caller, self.entry);
            if let Route::Held(cell) = route {
                self.caller.engine.pool().end(cell, Why::Gone);
            }
        }
        self.entry.tools.forget_all();
    }

    /// The hints of the tool that was called, from a list that is read now.
    async fn hints_now(&self) -> Option<repeat::Hints> {
        let tool = self.job.tool.as_ref()?;
        if !self.entry.policy().trust_read_only_hint
            && self.entry.policy().trust_idempotent_hint.is_empty()
        {
            return None;
        }
        let listing = tools(self.caller, self.entry);
        let listed = clock::timeout_at(self.by, listing).await.ok()?;
        listed.ok()?.hints(tool)
    }

    fn surface(&mut self, failed: Failed) -> Error {
        let delivery = self.so_far.delivery(failed.delivery);
        let mut trouble = failed.trouble;
        if delivery == Delivery::Unknown && trouble.code.usual_delivery() != Some(delivery) {
            trouble.code = match trouble.code {
                kept @ (Code::Deadline | Code::BadAnswer | Code::AnswerLost) => kept,
                _ => Code::AnswerLost,
            };
        }
        self.over(trouble, delivery)
    }

    fn state_lost(&mut self, reaction: Reaction) -> Error {
        if reaction == Reaction::EndRun
            && let Some(run) = &self.caller.run
        {
            let end = run::end_state_lost(Arc::clone(&self.caller.engine), Arc::clone(run));
            clock::spawn_if_running("run-end", end);
        }
        let notes = Notes {
            generation: self.generation,
            state_lost: true,
            attempts: self.so_far.attempts(),
        };
        let trouble = loss::refusal(&self.entry.name, &notes);
        let delivery = self.so_far.delivery(Delivery::Refused);
        self.over(trouble, delivery)
    }

    fn protocol_error(&mut self, raw: &[u8]) -> Error {
        self.count(|counted| counted.answered(CallOutcome::ProtocolError));
        let error = RpcError::parse(raw).unwrap_or_else(|_| RpcError {
            code: 0,
            message: "an error that cannot be read".to_owned(),
            data: None,
        });
        Error::answered(&self.entry.name, &self.job.method, error)
            .at(self.at())
            .after(self.so_far.attempts())
    }

    /// What is known of a call that its run cut.
    fn when_cut(&self) -> Delivery {
        if self.under_way {
            Delivery::Unknown
        } else {
            self.so_far.delivery(Delivery::Unsent)
        }
    }

    fn error(&self, trouble: Trouble, delivery: Delivery) -> Error {
        Error::new(trouble, delivery)
            .at(self.at())
            .after(self.so_far.attempts())
    }

    /// The same, counted: the call is over with it.
    fn over(&mut self, trouble: Trouble, delivery: Delivery) -> Error {
        let code = trouble.code;
        self.count(|counted| counted.failed(delivery, code));
        self.error(trouble, delivery)
    }

    fn count(&mut self, tell: impl FnOnce(CallUnderWay)) {
        if let Some(counted) = self.counted.take() {
            tell(counted);
        }
    }

    fn at(&self) -> At {
        At {
            server: Some(self.entry.name.to_string()),
            method: Some(self.job.method.to_string()),
            tool: self.job.tool.clone(),
            run: self.caller.run.as_ref().map(|run| run.name.to_string()),
            generation: self.generation,
        }
    }
}

/// An attempt that brought no answer.
struct Failed {
    delivery: Delivery,
    back: Option<Request>,
    trouble: Trouble,
    heard: Heard,
    epoch: Option<u64>,
    repeat: Repeat,
}

/// What a failure says of the session.
fn outcome(trouble: &Trouble, retired: Option<Reason>) -> Outcome {
    if trouble.gone.is_some() || trouble.reason == Reason::SessionGone {
        return Outcome::Gone(Why::Gone);
    }
    match retired {
        // A child that ended, a stream that is the session: the server's word in its own way.
        Some(_) => Outcome::Gone(Why::Gone),
        None => Outcome::Broken,
    }
}

/// Whether a result says of itself that the tool failed. Only a result that holds the word is
/// looked at more closely.
fn kind_of(result: &[u8]) -> CallOutcome {
    #[derive(serde::Deserialize)]
    struct Said {
        #[serde(default, rename = "isError")]
        is_error: bool,
    }
    let named = memchr::memmem::find(result, b"\"isError\"").is_some();
    let failed = named && serde_json::from_slice::<Said>(result).is_ok_and(|said| said.is_error);
    if failed {
        CallOutcome::ToolError
    } else {
        CallOutcome::Ok
    }
}

/// A key for the repeats of one call.
fn fresh_call_id() -> String {
    crate::client::random_hex()
}

/// Notes whether anything reached the caller's listener.
struct Hearing<'a> {
    listener: Option<&'a dyn Listener>,
    something: AtomicBool,
}

impl<'a> Hearing<'a> {
    const fn new(listener: Option<&'a dyn Listener>) -> Self {
        Self {
            listener,
            something: AtomicBool::new(false),
        }
    }

    fn heard(&self) -> Heard {
        if self.something.load(Ordering::Relaxed) {
            Heard::Something
        } else {
            Heard::Nothing
        }
    }
}

impl Listener for Hearing<'_> {
    fn news(&self, news: News) {
        if let Some(listener) = self.listener {
            self.something.store(true, Ordering::Relaxed);
            listener.news(news);
        }
    }

    fn question(&self, question: Question) -> Answering<'_> {
        match self.listener {
            Some(listener) => {
                self.something.store(true, Ordering::Relaxed);
                listener.question(question)
            },
            None => Box::pin(std::future::ready(Answer::Declined)),
        }
    }
}

/// Whose tool list it is.
fn tools_of(caller: &Caller, entry: &Entry) -> crate::entry::ToolsOf {
    let vault = &caller.engine.shared().vault;
    let credential = entry.credential(&caller.who, vault);
    let id = credential.map_or(crate::entry::NO_CREDENTIAL, |credential| credential.id());
    (caller.who.id, id)
}

/// The tools that may be called: from the cache, or read now, once for all who ask.
///
/// On the heap and under a type of its own, because a call may list tools, and listing is a call.
pub(crate) fn tools<'a>(caller: &'a Caller, entry: &'a Arc<Entry>) -> Listing<'a> {
    Box::pin(async move {
        let whose = tools_of(caller, entry);
        if let Some(known) = entry.tools.peek(&whose) {
            return Ok(known);
        }
        let (caller, listed) = (caller.clone(), Arc::clone(entry));
        let work = async move {
            let items = list(&caller, &listed, List::Tools).await?;
            Ok(ToolList::of(&listed.server.card, items, listed.policy()))
        };
        entry.tools.list(whose, work).await
    })
}

type Listing<'a> = Pin<Box<dyn Future<Output = Result<Arc<ToolList>>> + Send + 'a>>;

/// A list with all its pages, over the session that a call of this caller would use.
pub(crate) async fn list(caller: &Caller, entry: &Arc<Entry>, list: List) -> Result<Vec<Bytes>> {
    let job = |params: Params| Job {
        method: Cow::Borrowed(list.method()),
        params,
        patience: entry.policy().patience,
        headers: Vec::new(),
        said: None,
        call_id: None,
        tool: None,
        listener: None,
    };
    let mut pages = Pages::new(list, &entry.name);
    let mut leg = None;
    while let Some(params) = pages.next() {
        let page = Box::pin(carry(caller, entry, job(params))).await?;
        pages
            .take(&page.result)
            .map_err(|trouble| Error::new(trouble, Delivery::Answered).at(page.at()))?;
        leg = Some(page.leg);
    }
    let mut items = pages.into_items();
    if leg.is_some_and(|leg| leg.era == Era::Modern && leg.transport != Transport::Stdio) {
        items.retain(|item| is_usable(list, item));
    }
    Ok(items)
}

/// What the server said of itself when the session of this caller was opened.
pub(crate) async fn facts(caller: &Caller, entry: &Arc<Entry>) -> Result<Arc<Facts>> {
    let lease = take(caller, entry, Want::Shared).await?.1;
    let facts = Arc::clone(lease.session().shared_facts());
    lease.settle(Outcome::Unused);
    Ok(facts)
}

/// A lease for a holder of a session.
pub(crate) async fn take(
    caller: &Caller,
    entry: &Arc<Entry>,
    want: Want,
) -> Result<(Route, Lease<Connect>)> {
    let job = Job {
        method: Cow::Borrowed("lease"),
        params: Params::empty(),
        patience: entry.policy().patience,
        headers: Vec::new(),
        said: None,
        call_id: None,
        tool: None,
        listener: None,
    };
    let mut way = Way::begin(caller, entry, job)?;
    way.counted = None;
    way.want = want;
    let Some(run) = &caller.run else {
        return way.lease().await;
    };
    let present = run
        .admit(&caller.engine)
        .map_err(|trouble| way.error(trouble, Delivery::Unsent))?;
    let taken = run.until_cut(way.lease()).await;
    drop(present);
    taken.unwrap_or_else(|| Err(Error::unsent(run::ended(&run.name))))
}

/// The session that is held for this caller, if one is. Asking changes nothing.
pub(crate) fn held(caller: &Caller, entry: &Arc<Entry>) -> Option<HeldSession> {
    let cell = route::remembered(caller, entry)?;
    let newest = cell.sessions().into_iter().max_by_key(|seen| seen.generation)?;
    Some(HeldSession {
        id: newest.session.session_id().map(str::to_owned),
        generation: newest.generation.number(),
    })
}
