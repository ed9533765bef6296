//! A lease: a session for one holder alone, until it is dropped. Begin … commit.
//!
//! What is lost with the session is lost for the holder: nothing is healed under a lease, because
//! half a transaction on a fresh session is worse than an error that says so.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use serde::Serialize;
use warmline_core::code::Reason;
use warmline_core::delivery::Delivery;
use warmline_core::exchange::{Ending, Fate, Reply, Request, Trouble};
use warmline_core::loss::{self, Notes, Reaction, Told};
use warmline_core::plan::Leg;
use warmline_core::pool::{Outcome, Want};
use warmline_core::protocol::params::Params;

use crate::call::{self, Answered, Job};
use crate::clock;
use crate::connect::{Connect, Line, Setup};
use crate::credentials::Refreshed;
use crate::engine::{self, Caller, HeldAlone};
use crate::entry::Entry;
use crate::error::{At, Error, Result};
use crate::events::Which;
use crate::handle::{Call, ToolResult, named_params};
use crate::metrics::CallOutcome;
use crate::pool::Lease;
use crate::sync::Mutex;
use crate::upstream::Listener;

/// The number of the next session that is held alone.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// A session that nobody else uses while it is held. Inside a run it is the run's own session: other
/// calls of the run wait until the lease is dropped.
#[must_use = "the session is given back when the lease is dropped"]
#[derive(Clone, Debug)]
pub struct Leased(Arc<Holder>);

struct Holder {
    caller: Caller,
    entry: Arc<Entry>,
    generation: u32,
    leg: Leg,
    /// Its number among the sessions that are held alone.
    number: u64,
    lease: Mutex<Option<Lease<Connect>>>,
    setup: Arc<Setup>,
    /// Whether state was lost before the lease began.
    lost: bool,
    /// What the calls of the holder tell the pool in the end.
    outcome: Mutex<Outcome>,
}

impl Holder {
    /// Notes what a call showed. State that was left stays left, whatever comes after.
    fn note(&self, outcome: Outcome) {
        let mut noted = self.outcome.lock();
        *noted = match (*noted, outcome) {
            (Outcome::Fine { left_state: true }, _) => Outcome::Fine { left_state: true },
            (_, outcome) => outcome,
        };
    }
}

impl std::fmt::Debug for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Leased")
            .field("server", &self.entry.name)
            .field("generation", &self.generation)
            .finish_non_exhaustive()
    }
}

impl Leased {
    pub(crate) async fn take(caller: &Caller, entry: &Arc<Entry>) -> Result<Self> {
        let (route, mut lease) = call::take(caller, entry, Want::Exclusive).await?;
        let reaction = match lease.loss() {
            Some(_) => loss::plan(entry.policy().state_loss(), "tools/call"),
            None => Reaction::Nothing,
        };
        if matches!(reaction, Reaction::Fail | Reaction::EndRun) {
            lease.told();
            lease.settle(Outcome::Unused);
            return Err(call::state_lost(caller, entry, reaction));
        }
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let held = HeldAlone {
            session: Which::of(Arc::clone(&entry.name)).generation(lease.generation().number()),
            metrics: Arc::clone(&entry.metrics),
            since: clock::now(),
            told: false,
        };
        caller.engine.alone.lock().insert(number, held);
        Ok(Self(Arc::new(Holder {
            number,
            caller: caller.clone(),
            entry: Arc::clone(entry),
            generation: lease.generation().number(),
            leg: route.setup().leg,
            setup: Arc::clone(route.setup()),
            lost: lease.loss().is_some(),
            lease: Mutex::new(Some(lease)),
            outcome: Mutex::new(Outcome::Unused),
        })))
    }

    /// The name of the server.
    pub fn server(&self) -> &str {
        &self.0.entry.name
    }

    /// The number of the session within its key.
    pub fn generation(&self) -> u32 {
        self.0.generation
    }

    /// Whether the session is still held: it is over when the server forgot it.
    pub fn is_held(&self) -> bool {
        self.0.lease.lock().is_some()
    }

    /// Calls a tool on this session.
    pub fn call(&self, tool: impl Into<String>, arguments: impl Serialize) -> Call<ToolResult> {
        let tool = tool.into();
        let params = named_params(&tool, arguments);
        Call::on_lease(
            self.clone(),
            Cow::Borrowed("tools/call"),
            params,
            Some(tool),
        )
    }

    /// Sends any request on this session and hands out its raw result.
    pub fn request(
        &self,
        method: impl Into<Cow<'static, str>>,
        params: impl Serialize,
    ) -> Call<Bytes> {
        let params = Params::of(&params).map_err(|malformed| malformed.to_string());
        Call::on_lease(self.clone(), method.into(), params, None)
    }

    pub(crate) fn entry(&self) -> &Arc<Entry> {
        &self.0.entry
    }

    /// One attempt on the session that is held.
    pub(crate) async fn carry(&self, job: Job) -> Result<Answered> {
        let holder = &*self.0;
        call::allowed(&holder.caller, &holder.entry, &job)
            .map_err(|trouble| self.error(trouble, Delivery::Unsent, &job))?;
        let session = holder
            .lease
            .lock()
            .as_ref()
            .map(|lease| Arc::clone(lease.session()));
        let Some(session) = session else {
            return Err(self.error(lost(self.server()), Delivery::Unsent, &job));
        };
        let request = call::request_of(&holder.entry, &job);
        let nobody: &dyn Listener = &();
        let listener = job.listener.as_deref().unwrap_or(nobody);
        let present = match &holder.caller.run {
            Some(run) => Some(
                run.admit(&holder.caller.engine)
                    .map_err(|trouble| self.error(trouble, Delivery::Unsent, &job))?,
            ),
            None => None,
        };
        let sending = std::pin::pin!(self.send(&session, request, listener, &job));
        let ending = match &holder.caller.run {
            Some(run) => run.until_cut(sending).await,
            None => holder.caller.engine.until_cut(sending).await,
        };
        drop(present);
        let Some(ending) = ending else {
            let trouble = match &holder.caller.run {
                Some(run) => crate::run::ended(&run.name),
                None => engine::going_down(),
            };
            return Err(self.error(trouble, Delivery::Unknown, &job));
        };
        self.ended(ending, session.retired().is_some(), &job)
    }

    /// One attempt, and one more with a fresh credential where the server did not take ours.
    async fn send(
        &self,
        session: &Line,
        request: Request,
        listener: &dyn Listener,
        job: &Job,
    ) -> Ending {
        let by = clock::after(job.patience.total);
        let credential = self.0.setup.credential.as_ref();
        if let Some(credential) = credential {
            match clock::timeout_at(by, credential.ready()).await {
                Ok(Ok(())) => {},
                Ok(Err(trouble)) => return trouble.unsent(request),
                Err(_) => return late(self.server()).unsent(request),
            }
        }
        let epoch = credential.map(|credential| credential.epoch());
        let ending = session.call(request, listener).await;
        let (Ending::Failed(failure), Some(credential), Some(epoch)) = (&ending, credential, epoch)
        else {
            return ending;
        };
        if failure.trouble.reason != Reason::Unauthorized || !credential.can_refresh() {
            return ending;
        }
        let renewed = clock::timeout_at(by, credential.refresh(epoch)).await;
        match (ending, renewed) {
            (Ending::Failed(failure), Ok(Ok(Refreshed::New))) => match failure.fate {
                Fate::Refused(again) | Fate::Unsent(again) => session.call(again, listener).await,
                Fate::Unknown => failure.trouble.unknown(),
            },
            (ending, _) => ending,
        }
    }

    fn ended(&self, ending: Ending, retired: bool, job: &Job) -> Result<Answered> {
        let holder = &*self.0;
        match ending {
            Ending::Answered(reply) => {
                let left_state = call::leaves_state(&holder.entry, job);
                holder.note(Outcome::Fine { left_state });
                if left_state {
                    holder.setup.leaves_state();
                }
                match reply {
                    Reply::Result(result) => Ok(Answered {
                        unknown_tool: self.unknown_tool(&result, job),
                        result: self.with_loss(result, job),
                        server: Arc::clone(&holder.entry.name),
                        tool: job.tool.clone(),
                        attempts: 1,
                        generation: holder.generation,
                        state_lost: self.state_lost(),
                        leg: holder.leg,
                    }),
                    Reply::Error(raw) => Err(self.protocol_error(&raw, job)),
                }
            },
            Ending::Failed(failure) => {
                let gone = retired
                    || failure.trouble.gone.is_some()
                    || failure.trouble.reason == Reason::SessionGone;
                if gone {
                    let outcome = Outcome::Gone(warmline_core::pool::Why::Gone);
                    if let Some(lease) = holder.lease.lock().take() {
                        lease.settle(outcome);
                    }
                } else {
                    holder.note(Outcome::Broken);
                }
                let delivery = match failure.fate {
                    Fate::Unsent(_) => Delivery::Unsent,
                    Fate::Refused(_) => Delivery::Refused,
                    Fate::Unknown => Delivery::Unknown,
                };
                Err(self.error(failure.trouble, delivery, job))
            },
        }
    }

    /// Whether what earlier calls left in the session was lost before this lease began.
    pub fn state_lost(&self) -> bool {
        self.0.lost
    }

    /// The first result of a tool says that state was lost, if it was.
    fn with_loss(&self, result: Bytes, job: &Job) -> Bytes {
        let mut lease = self.0.lease.lock();
        let Some(lease) = lease.as_mut().filter(|lease| lease.loss().is_some()) else {
            return result;
        };
        let notes = Notes {
            generation: Some(self.0.generation),
            state_lost: true,
            attempts: 1,
        };
        match loss::plan(self.0.entry.policy().state_loss(), &job.method) {
            Reaction::Tell => {
                let (told, how) = loss::tell(&result, self.server(), &notes);
                if how == Told::InText {
                    lease.told();
                }
                told
            },
            Reaction::Meta => {
                lease.told();
                loss::annotate(&result, &notes)
            },
            Reaction::Nothing | Reaction::Mention | Reaction::Fail | Reaction::EndRun => result,
        }
    }

    fn unknown_tool(&self, result: &[u8], job: &Job) -> Option<Box<Trouble>> {
        if call::kind_of(result) != CallOutcome::ToolError {
            return None;
        }
        call::unknown_tool(&self.0.caller, &self.0.entry, job, result)
    }

    fn protocol_error(&self, raw: &Bytes, job: &Job) -> Error {
        call::protocol_error(&self.0.caller, &self.0.entry, job, raw)
            .at(self.at(job))
            .after(1)
    }

    fn error(&self, trouble: Trouble, delivery: Delivery, job: &Job) -> Error {
        Error::new(trouble, delivery).at(self.at(job)).after(1)
    }

    fn at(&self, job: &Job) -> At {
        At {
            server: Some(self.server().to_owned()),
            method: Some(job.method.to_string()),
            tool: job.tool.clone(),
            run: self.0.caller.run.as_ref().map(|run| run.name.to_string()),
            generation: Some(self.0.generation),
            place: self.0.entry.shown_place(),
        }
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        if let Some(held) = self.caller.engine.alone.lock().remove(&self.number) {
            let time = clock::now().saturating_duration_since(held.since);
            held.metrics.lease_time.took(time);
        }
        let outcome = *self.outcome.lock();
        if let Some(lease) = self.lease.lock().take() {
            lease.settle(outcome);
        }
    }
}

fn late(server: &str) -> Trouble {
    let what = format!("the time for this call to `{server}` was over");
    Trouble::new(Reason::TimeoutUnsent, what)
        .because("while the source of the credential was asked")
}

fn lost(server: &str) -> Trouble {
    Trouble::new(
        Reason::StateLost,
        format!("the session of this lease with `{server}` is gone"),
    )
    .hint("take a new lease and begin anew")
}
