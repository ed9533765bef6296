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
use warmline_core::plan::Leg;
use warmline_core::pool::{Outcome, Want};
use warmline_core::protocol::envelope::RpcError;
use warmline_core::protocol::params::Params;

use crate::call::{self, Answered, Job};
use crate::clock;
use crate::connect::Connect;
use crate::engine::{self, Caller, HeldAlone};
use crate::entry::Entry;
use crate::error::{At, Error, Result};
use crate::events::Which;
use crate::handle::{Call, ToolResult};
use crate::pool::Lease;
use crate::sync::Mutex;

/// The number of the next session that is held alone.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// A session that nobody else uses while it is held.
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
    /// What the calls of the holder tell the pool in the end.
    outcome: Mutex<Outcome>,
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
        // Whoever begins on a session of their own begins anew: an earlier loss is no news to them.
        lease.told();
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
        #[derive(Serialize)]
        struct Params_<'a, A> {
            name: &'a str,
            arguments: A,
        }
        let tool = tool.into();
        let params = Params::of(&Params_ {
            name: &tool,
            arguments,
        });
        let params = params.map_err(|malformed| malformed.to_string());
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
        let headers = job.headers.clone();
        let request = headers.into_iter().fold(
            Request::new(job.method.clone(), job.params.clone()).patient(job.patience),
            |request, (name, value)| request.header(name, value),
        );
        let nobody: &dyn crate::upstream::Listener = &();
        let listener = job.listener.as_deref().unwrap_or(nobody);
        let sending = session.call(request, listener);
        let ending = match &holder.caller.run {
            Some(run) => {
                let present = run
                    .admit(&holder.caller.engine)
                    .map_err(|trouble| self.error(trouble, Delivery::Unsent, &job))?;
                let ending = run.until_cut(std::pin::pin!(sending)).await;
                drop(present);
                ending.ok_or_else(|| {
                    self.error(crate::run::ended(&run.name), Delivery::Unknown, &job)
                })?
            },
            None => {
                let ending = holder
                    .caller
                    .engine
                    .until_cut(std::pin::pin!(sending))
                    .await;
                ending.ok_or_else(|| self.error(engine::going_down(), Delivery::Unknown, &job))?
            },
        };
        self.ended(ending, session.retired().is_some(), &job)
    }

    fn ended(&self, ending: Ending, retired: bool, job: &Job) -> Result<Answered> {
        let holder = &*self.0;
        match ending {
            Ending::Answered(reply) => {
                *holder.outcome.lock() = Outcome::Fine { left_state: true };
                match reply {
                    Reply::Result(result) => Ok(Answered {
                        result,
                        server: Arc::clone(&holder.entry.name),
                        tool: job.tool.clone(),
                        attempts: 1,
                        generation: holder.generation,
                        state_lost: false,
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
                    *holder.outcome.lock() = Outcome::Broken;
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

    fn protocol_error(&self, raw: &[u8], job: &Job) -> Error {
        let error = RpcError::parse(raw).unwrap_or_else(|_| RpcError {
            code: 0,
            message: "an error that cannot be read".to_owned(),
            data: None,
        });
        Error::answered(self.server(), &job.method, error)
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

fn lost(server: &str) -> Trouble {
    Trouble::new(
        Reason::StateLost,
        format!("the session of this lease with `{server}` is gone"),
    )
    .hint("take a new lease and begin anew")
}
