//! A lease: a session for one holder alone, until it is dropped. Begin … commit.
//!
//! Asked by: embedding programs.  What is called on it goes the way of every call
//! ([`call`](crate::call)), which takes the session from here instead of asking the pool.
//!
//! What is lost with the session is lost for the holder: nothing is healed under a lease, because
//! half a transaction on a fresh session is worse than an error that says so.

mod register;

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use serde::Serialize;
use tokio::sync::{Semaphore, SemaphorePermit};
use warmline_core::code::Reason;
use warmline_core::exchange::Trouble;
use warmline_core::pool::Outcome;
use warmline_core::protocol::params::Params;

use crate::call::{self, Answered, Job};
use crate::connect::Connect;
use crate::engine::Caller;
use crate::entry::Entry;
use crate::error::{Error, Result};
use crate::handle::{Call, ToolResult, named_params};
use crate::pool::Lease;
use crate::route::Route;
use crate::run::{self, Stay};
use crate::sync::Mutex;
pub(crate) use register::Register;

/// A session that nobody else uses while it is held. Inside a run it is the run's own session: other
/// calls of the run wait until the lease is dropped. The end of the run, or of the engine, ends it.
#[must_use = "the session is given back when the lease is dropped"]
#[derive(Clone, Debug)]
pub struct Leased(Arc<Holder>);

/// What all clones of a lease share.
pub(crate) struct Holder {
    caller: Caller,
    entry: Arc<Entry>,
    route: Route,
    generation: u32,
    /// Whether state was lost before the lease began.
    lost: bool,
    held: Mutex<Held>,
    /// One call at a time has it, where the server wants that.
    turn: Semaphore,
}

/// What the holder has, and what it does with it.
struct Held {
    /// None once it is over.
    lease: Option<Lease<Connect>>,
    /// Keeps the run from resting for as long as the lease lasts.
    stay: Option<Stay>,
    calls: u32,
}

impl Leased {
    pub(crate) async fn take(caller: &Caller, entry: &Arc<Entry>) -> Result<Self> {
        let (route, lease) = call::take_alone(caller, entry).await?;
        let stay = caller.run.as_ref().map(|run| run.hold(&caller.engine));
        let stay = stay.transpose().map_err(Error::unsent)?;
        let holder = Arc::new(Holder {
            caller: caller.clone(),
            entry: Arc::clone(entry),
            route,
            generation: lease.generation().number(),
            lost: lease.loss().is_some() || caller.has_lost_at(entry),
            held: Mutex::new(Held {
                lease: Some(lease),
                stay,
                calls: 0,
            }),
            turn: Semaphore::new(1),
        });
        caller.engine.leases.enter(&holder);
        // Whoever ends its run, or the engine, found it in the register, or is seen here.
        match holder.turns_away() {
            Some(trouble) => Err(Error::unsent(trouble)),
            None => Ok(Self(holder)),
        }
    }

    /// The name of the server.
    pub fn server(&self) -> &str {
        &self.0.entry.name
    }

    /// The number of the session within its key.
    pub fn generation(&self) -> u32 {
        self.0.generation
    }

    /// Whether the session is still held: it is over when the server forgot it, and when its run
    /// or the engine ended.
    pub fn is_held(&self) -> bool {
        self.0.held.lock().lease.is_some()
    }

    /// Whether what earlier calls left in the session was lost before this lease began.
    pub fn state_lost(&self) -> bool {
        self.0.began_with_a_loss()
    }

    /// Calls a tool on this session.
    pub fn call(&self, tool: impl Into<String>, arguments: impl Serialize) -> Call<ToolResult> {
        let params = named_params(&tool.into(), arguments);
        Call::on_lease(self.clone(), Cow::Borrowed("tools/call"), params)
    }

    /// Sends any request on this session and hands out its raw result.
    pub fn request(
        &self,
        method: impl Into<Cow<'static, str>>,
        params: impl Serialize,
    ) -> Call<Bytes> {
        let params = Params::of(&params).map_err(|malformed| malformed.to_string());
        Call::on_lease(self.clone(), method.into(), params)
    }

    pub(crate) fn entry(&self) -> &Arc<Entry> {
        &self.0.entry
    }

    pub(crate) async fn carry(&self, job: Job) -> Result<Answered> {
        let holder = &*self.0;
        call::carry(&holder.caller, &holder.entry, Some(holder), job).await
    }
}

impl Holder {
    pub(crate) fn route(&self) -> &Route {
        &self.route
    }

    /// Whether state was lost before the lease began.
    pub(crate) const fn began_with_a_loss(&self) -> bool {
        self.lost
    }

    /// Waits until no other call that wants to be alone is under way.
    pub(crate) async fn turn(&self) -> Option<SemaphorePermit<'_>> {
        // It is never closed.
        self.turn.acquire().await.ok()
    }

    /// The right to send on the session once.
    pub(crate) fn join(&self) -> Result<Lease<Connect>, Trouble> {
        let joined = self.held.lock().lease.as_ref().and_then(Lease::join);
        joined.ok_or_else(|| {
            // It may have been lost while nobody sent on it.
            self.let_go();
            self.turns_away().unwrap_or_else(|| self.lost())
        })
    }

    /// A call of the holder is under way until what it gets is dropped.
    pub(crate) fn busy(&self) -> Busy<'_> {
        self.held.lock().calls += 1;
        Busy(self)
    }

    /// The lease is over: the session was lost, or nothing can be sent on it any more.
    pub(crate) fn let_go(&self) {
        let (lease, stay) = {
            let mut held = self.held.lock();
            (held.lease.take(), held.stay.take())
        };
        if let Some(lease) = lease {
            // What its calls showed of the session was told by each of them.
            lease.settle(Outcome::Unused);
        }
        drop(stay);
    }

    /// The same, unless a call is under way: then it ends the lease itself.
    fn let_go_if_quiet(&self) {
        let quiet = self.held.lock().calls == 0;
        if quiet {
            self.let_go();
        }
    }

    /// What calls on it are told if none is let in any more.
    fn turns_away(&self) -> Option<Trouble> {
        let of_run = || {
            let run = self.caller.run.as_ref();
            run.filter(|run| !run.is_live())
                .map(|run| run::ended(&run.name))
        };
        self.caller.engine.turns_away().or_else(of_run)
    }

    fn lost(&self) -> Trouble {
        let what = format!(
            "the session of this lease with `{}` is gone",
            self.entry.name
        );
        Trouble::new(Reason::StateLost, what).hint(BEGIN_ANEW)
    }
}

/// What helps whoever lost the session of a lease.
pub(crate) const BEGIN_ANEW: &str = "this lease is over: take a new one and begin anew";

impl std::fmt::Debug for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Leased")
            .field("server", &self.entry.name)
            .field("generation", &self.generation)
            .finish_non_exhaustive()
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.caller.engine.leases.leave(self);
        self.let_go();
    }
}

/// A call on a lease that is under way.
pub(crate) struct Busy<'a>(&'a Holder);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        let quiet = {
            let mut held = self.0.held.lock();
            held.calls = held.calls.saturating_sub(1);
            held.calls == 0
        };
        if quiet && self.0.turns_away().is_some() {
            self.0.let_go();
        }
    }
}
