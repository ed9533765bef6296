//! The way of a call: route, lease, send, decide, heal.
//!
//! Asked by: everything that sends a request for a caller. There is no other way to a server, and
//! the one decision about sending again is [`warmline_core::delivery::decide`].
//!
//! What a call on a held session costs, beside its bytes on the wire: two looks into the run's own
//! table, two short locks of its cell (lease, settle) and two of its run (in, out), no lock that
//! an unrelated call also takes, no task, no JSON tree, no round trip of ours. The builder's box
//! is one allocation. `benches/lease.rs` and `tests/cost` hold the numbers.

mod asking;
mod failing;
mod hearing;
mod losing;
mod ordering;
mod refusing;
mod taking;
mod tool_name;

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use tokio::sync::SemaphorePermit;
use warmline_core::code::Reason;
use warmline_core::delivery::{Delivery, Repeat, SoFar};
use warmline_core::exchange::{Ending, Fate, Patience, Reply, Request, Trouble, Words};
use warmline_core::loss::Reaction;
use warmline_core::plan::Leg;
use warmline_core::pool::{Outcome, Want, Why};
use warmline_core::protocol::params::Params;
use warmline_core::repeat::{self, Asked};

use crate::clock::{self, Instant};
use crate::connect::{Connect, Meant};
use crate::engine::{self, Caller};
use crate::entry::Entry;
use crate::error::{At, Error, Result};
use crate::lease::Holder;
use crate::metrics::{CallOutcome, CallUnderWay, HealCause, HealResult, MethodWord, OwnTime};
use crate::pool::Lease;
use crate::route::Route;
use crate::upstream::{self, Listener};

pub(crate) use asking::{Fresh, facts, greeting, held, line, list, listed, take_alone, tools};
use asking::{whose, whose_so_far};
use failing::Failed;
use hearing::Hearing;
pub(crate) use ordering::take_back;
use ordering::{AsksFor, at_level};
use refusing::{protocol_error, unknown_tool};
use taking::acquired;
pub(crate) use tool_name::ToolName;

/// What a caller wants sent.
pub(crate) struct Job {
    pub(crate) method: Cow<'static, str>,
    pub(crate) params: Params,
    pub(crate) patience: Patience,
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    pub(crate) said: Option<repeat::Said>,
    pub(crate) call_id: Option<String>,
    pub(crate) tool: Option<ToolName>,
    pub(crate) listener: Option<Arc<dyn Listener>>,
    pub(crate) words: Words,
    /// Nobody gives it: it tells a server what nobody wants of it any more.
    pub(crate) takes_back: bool,
}

/// A result, and what is known of how it came about.
#[derive(Clone, Debug)]
pub struct Answered {
    pub(crate) result: Bytes,
    pub(crate) server: Arc<str>,
    pub(crate) tool: Option<ToolName>,
    pub(crate) attempts: u32,
    pub(crate) generation: u32,
    pub(crate) state_lost: bool,
    pub(crate) leg: Leg,
    /// The server says that it has no such tool.
    pub(crate) unknown_tool: Option<Box<Trouble>>,
}

impl Answered {
    pub(crate) fn at(&self) -> At {
        At {
            server: Some(self.server.to_string()),
            method: None,
            tool: self.tool.as_ref().map(ToString::to_string),
            run: None,
            generation: Some(self.generation),
            place: None,
        }
    }
}

/// Carries a call out, from its first attempt to its one ending: on the session that its caller
/// holds, or on one that the pool leases for it.
///
/// # Cancel safety
/// Dropping it cancels the call in the way of the server's era; the lease is settled, and the run
/// is left.
pub(crate) async fn carry(
    caller: &Caller,
    entry: &Arc<Entry>,
    held: Option<&Holder>,
    job: Job,
) -> Result<Answered> {
    let mut way = Way::begin(caller, entry, job)?;
    way.held = held;
    let present = caller.enter().map_err(|trouble| way.refused(trouble))?;
    let busy = held.map(Holder::busy);
    // Pinned here: whoever watches a call does not hold a copy of it.
    let went = caller
        .until_cut(OwnTime::of(std::pin::pin!(way.go())))
        .await;
    drop((present, busy));
    let Some((result, ran)) = went else {
        return Err(way.cut(caller.was_cut()));
    };
    entry.metrics.own_time.took(ran);
    result
}

/// What the rules say, before any byte leaves us.
fn allowed(caller: &Caller, entry: &Entry, job: &Job) -> Result<(), Trouble> {
    caller.engine.admit()?;
    entry.may_be_used(&caller.engine)?;
    let what = match &job.tool {
        Some(tool) if !entry.may_call(&caller.engine, tool) => {
            format!("`{tool}` of `{}` may not be called", entry.name)
        },
        // Its server might read a name into it, and that name might be a denied one.
        None if tool_name::is_call(&job.method) && entry.chooses_tools(&caller.engine) => {
            format!("a call of `{}` has to name its tool by a text", entry.name)
        },
        Some(_) | None => return Ok(()),
    };
    Err(Trouble::new(Reason::NotAllowed, what))
}

/// The request of a job.
fn request_of(entry: &Entry, job: &Job) -> Request {
    let params = match &job.call_id {
        Some(id) => repeat::marked(&job.params, id, 1),
        None if entry.policy().dedupe_by_call_id => {
            repeat::marked(&job.params, &fresh_call_id(), 1)
        },
        None => job.params.clone(),
    };
    let request = Request::new(job.method.clone(), params)
        .patient(job.patience)
        .in_words(job.words);
    job.headers.iter().fold(request, |request, (name, value)| {
        request.header(name.clone(), value.clone())
    })
}

/// A call on its way.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own that only grows truer"
)]
struct Way<'a> {
    caller: &'a Caller,
    entry: &'a Arc<Entry>,
    job: Job,
    so_far: SoFar,
    /// Whether the attempt under way may have reached the server.
    under_way: bool,
    by: Instant,
    /// How long it stood in line for the sessions it had so far, and waited because its server
    /// asked for a pause.
    in_line: Duration,
    generation: Option<u32>,
    rerouted: bool,
    /// What showed the loss that this call was sent again after.
    healing: Option<HealCause>,
    /// State died with a key that is no more, and the caller has no run: nobody else will be told.
    state_is_gone: bool,
    /// This call saw a session go that had state: by the server's word, or with its process.
    saw_it_go: bool,
    /// What is known of the last attempt, until the next one begins.
    last: Option<Delivery>,
    want: Want,
    /// Who holds the session that the call goes on, if its caller does.
    held: Option<&'a Holder>,
    /// Its turn there, where calls go one after the other.
    turn: Option<SemaphorePermit<'a>>,
    /// What it asks to hear of.
    asks_for: Option<Box<AsksFor>>,
    counted: Option<CallUnderWay>,
}

/// How an attempt ended, and what goes on from there.
enum Step {
    Over(Result<Answered>),
    Again(Request),
}

impl<'a> Way<'a> {
    fn begin(caller: &'a Caller, entry: &'a Arc<Entry>, job: Job) -> Result<Self> {
        let counted = CallUnderWay::begin(&entry.metrics, MethodWord::of(&job.method));
        let way = Self::set_out(caller, entry, job, Some(counted))?;
        entry.calls.fetch_add(1, Ordering::Relaxed);
        Ok(way)
    }

    /// The same for what is no call of anybody, and not counted as one.
    fn set_out(
        caller: &'a Caller,
        entry: &'a Arc<Entry>,
        job: Job,
        counted: Option<CallUnderWay>,
    ) -> Result<Self> {
        let by = clock::after(job.patience.total);
        let mut way = Self {
            caller,
            entry,
            job,
            so_far: SoFar::default(),
            under_way: false,
            by,
            in_line: Duration::ZERO,
            generation: None,
            rerouted: false,
            healing: None,
            state_is_gone: false,
            saw_it_go: false,
            last: None,
            want: Want::Shared,
            held: None,
            turn: None,
            asks_for: None,
            counted,
        };
        if let Err(trouble) = allowed(caller, entry, &way.job) {
            return Err(way.refused(trouble));
        }
        if way.job.patience.total.is_zero() {
            let trouble = way.late("there was none to begin with");
            return Err(way.refused(trouble));
        }
        Ok(way)
    }

    /// The error of a call that is not even tried.
    fn refused(&mut self, trouble: Trouble) -> Error {
        self.over(trouble, Delivery::Unsent).after(0)
    }

    async fn go(&mut self) -> Result<Answered> {
        let mut request = self.request();
        loop {
            let (route, lease) = self.lease().await?;
            self.generation = Some(lease.generation().number());
            acquired(&route, self.caller.run.as_ref().map(|run| run.id), &lease);
            if let Err(error) = self.isolated(&route) {
                lease.settle(Outcome::Gone(Why::Bug));
                return Err(error);
            }
            if let Err(trouble) = self.asks(&route) {
                lease.settle(Outcome::Unused);
                let delivery = self.so_far.delivery(Delivery::Unsent);
                return Err(self.over(trouble, delivery));
            }
            match self.meant(&route) {
                Meant::AsSaid => {},
                Meant::Level(level) => request = at_level(request, level),
                Meant::Granted => return Ok(self.granted(&route, lease)),
            }
            let ordered = self.ordered_so_far(&route);
            match self.attempt(&route, lease, request).await {
                Step::Over(result) => {
                    if let Some(ordered) = ordered {
                        self.tell_siblings(&route, *ordered);
                    }
                    return result;
                },
                Step::Again(back) => request = back,
            }
        }
    }

    fn request(&self) -> Request {
        request_of(self.entry, &self.job)
    }

    /// One attempt on one lease.
    async fn attempt(&mut self, route: &Route, lease: Lease<Connect>, request: Request) -> Step {
        let reaction = self.reaction(&lease);
        if matches!(reaction, Reaction::Fail | Reaction::EndRun) {
            return Step::Over(Err(self.goes_no_further(route, lease, reaction)));
        }
        let repeat = self.repeat(route, None);
        let copy = (repeat == Repeat::Safe).then(|| request.clone());
        if let Err(trouble) = self.cooled().await {
            lease.settle(Outcome::Unused);
            let delivery = self.so_far.delivery(Delivery::Unsent);
            return Step::Over(Err(self.over(trouble, delivery)));
        }
        // After the pause: a token that was renewed meanwhile is the one that is sent.
        let epoch = route.setup().credential.as_ref().map(|it| it.epoch());
        let hearing = Hearing::of(&self.job, self.caller.who.id, route.setup());
        let began = clock::now();
        let left = self.by.saturating_duration_since(began);
        let patience = Patience {
            idle: self.job.patience.idle,
            total: left.min(self.job.patience.total),
        };
        if let Some(counted) = &mut self.counted {
            counted.attempt();
        }
        self.last = None;
        self.under_way = true;
        let counts = self.job.tool.as_ref().map(|_| route.setup().counts_call());
        let request = request.patient(patience);
        let ending = lease.session().call(request, &hearing).await;
        drop(counts);
        self.under_way = false;
        match ending {
            Ending::Answered(reply) => {
                let took = clock::now().saturating_duration_since(began);
                self.entry.answers.took(took);
                self.answered(route, lease, reply, reaction, repeat)
            },
            Ending::Failed(failure) => {
                let (delivery, back) = match failure.fate {
                    Fate::Unsent(request) => (Delivery::Unsent, Some(request)),
                    Fate::Refused(request) => (Delivery::Refused, Some(request)),
                    Fate::Unknown => (Delivery::Unknown, copy),
                };
                // Whatever happens from here on: this much is known.
                self.last = Some(delivery);
                self.saw_it_go |= losing::ended_with_state(&lease, &failure.trouble);
                let failed = Failed {
                    delivery,
                    back,
                    trouble: failure.trouble,
                    heard: hearing.heard(),
                    epoch,
                    repeat,
                };
                // On the heap: a call that fails may well pay for it.
                Box::pin(self.failed(route, lease, failed)).await
            },
        }
    }

    /// Waits until the server wants to hear from this identity again, if it asked for a pause: for
    /// as long as a caller waits for a session, and not longer.
    async fn cooled(&mut self) -> Result<(), Trouble> {
        let now = self.caller.engine.tick();
        let Some(left) = self.entry.cooling(self.caller.who.id, now) else {
            return Ok(());
        };
        let patience = self.patience();
        let mut trouble = if left > patience {
            let what = format!(
                "`{}` asked for a pause, which lasts another {} s: longer than a call waits",
                self.entry.name,
                left.as_secs_f64().ceil()
            );
            Trouble::new(Reason::Overloaded, what)
                .hint("come back when the pause is over; `wait` says how long a call waits for one")
        } else if clock::after(left) >= self.by {
            self.late("the server asked for a pause that is longer")
        } else {
            clock::sleep(left).await;
            self.in_line = self.in_line.saturating_add(left);
            return Ok(());
        };
        trouble.retry_after = Some(left);
        Err(trouble)
    }

    /// How long this call still waits until it may be sent.
    fn patience(&self) -> Duration {
        self.entry.policy().wait.saturating_sub(self.in_line)
    }

    fn repeat(&self, route: &Route, hints: Option<repeat::Hints>) -> Repeat {
        let cached = || {
            let tool = self.job.tool.as_ref()?;
            let whose = match route.cell() {
                Some(cell) => whose(self.caller, self.entry, Some(cell)),
                // The list is read on another session.
                None => whose_so_far(self.caller, self.entry),
            };
            self.entry.tools.peek(&whose)?.hints(tool)
        };
        let asked = Asked {
            method: &self.job.method,
            params: &self.job.params,
            hints: hints.or_else(cached),
            said: self.job.said,
        };
        repeat::of(&asked, &self.entry.policy())
    }

    fn answered(
        &mut self,
        route: &Route,
        mut lease: Lease<Connect>,
        reply: Reply,
        reaction: Reaction,
        repeat: Repeat,
    ) -> Step {
        self.entry.note_answered();
        self.entry
            .note_lives(|| lease.session().age(self.caller.engine.tick()));
        let generation = lease.generation().number();
        let left_state =
            repeat == Repeat::Unsafe && self.job.tool.is_some() && route.setup().keeps_state();
        if left_state {
            // Whatever it was answered with.
            lease.session().leaves_state();
            route.setup().leaves_state();
        }
        let result = match reply {
            Reply::Result(result) => result,
            Reply::Error(raw) => {
                self.gives_back(route, lease, left_state);
                return Step::Over(Err(self.protocol_error(&raw)));
            },
        };
        let (result, state_lost) = self.told((route, &mut lease), result, reaction);
        if let Some(cause) = self.healing.take() {
            self.entry.metrics.heals.one_more(cause, HealResult::Healed);
        }
        let (method, params) = (&self.job.method, &self.job.params);
        route.setup().note_order(self.giver(route), method, params);
        let session = Arc::clone(lease.session());
        self.gives_back(route, lease, left_state);
        if self.is_ordered_in_vain(route, &session) {
            return Step::Again(self.request());
        }
        let kind = kind_of(&result);
        self.count(|counted| counted.answered(kind));
        let unknown_tool = (kind == CallOutcome::ToolError)
            .then(|| unknown_tool(self.caller, self.entry, &self.job, &result))
            .flatten();
        Step::Over(Ok(Answered {
            unknown_tool,
            result,
            server: Arc::clone(&self.entry.name),
            tool: self.job.tool.clone(),
            attempts: self.so_far.attempts(),
            generation,
            state_lost,
            leg: route.setup().leg,
        }))
    }

    /// Gives a lease back after an answer. What a run left in a key that ended meanwhile is lost.
    fn gives_back(&self, route: &Route, lease: Lease<Connect>, left_state: bool) {
        let ended = lease.settle_and_look(Outcome::Fine { left_state });
        let run = self.caller.run.as_ref().zip(route.cell());
        if let (true, Some(ended), Some((run, cell))) = (left_state, ended, run) {
            run.left_state_in(cell, ended);
        }
    }

    fn protocol_error(&mut self, raw: &Bytes) -> Error {
        self.count(|counted| counted.answered(CallOutcome::ProtocolError));
        protocol_error(self.caller, self.entry, &self.job, raw)
            .at(self.at())
            .after(self.so_far.attempts())
    }

    /// The error of a call that was cut: its run, or the engine, has ended.
    fn cut(&mut self, trouble: Trouble) -> Error {
        if self.counted.as_ref().map(CallUnderWay::method) == Some(MethodWord::Listen) {
            // It ends as its caller's own end would end it: nothing failed.
            self.counted = None;
        }
        let last = self.last.unwrap_or(Delivery::Unsent);
        let delivery = if self.under_way {
            Delivery::Unknown
        } else {
            self.so_far.delivery(last)
        };
        self.over(trouble, delivery)
    }

    fn error(&self, trouble: Trouble, delivery: Delivery) -> Error {
        // What only this call carried its session does not know.
        let trouble = upstream::without_headers(&self.job.headers, trouble);
        Error::new(trouble, delivery)
            .at(self.at())
            .after(self.so_far.attempts())
    }

    /// The same, counted: the call is over with it.
    fn over(&mut self, trouble: Trouble, delivery: Delivery) -> Error {
        let code = trouble.code;
        if trouble.reason == Reason::Internal {
            self.tell_broken();
        }
        if let Some(counted) = self.counted.take() {
            self.tell_failed(&counted, &trouble, delivery);
            counted.failed(delivery, code);
        }
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
            tool: self.job.tool.as_ref().map(ToString::to_string),
            run: self.caller.run.as_ref().map(|run| run.name.to_string()),
            generation: self.generation,
            place: self.entry.shown_place(),
        }
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
    engine::random_hex()
}
