//! A caller: its runs, and the servers as it calls them.

use std::collections::HashMap;
use std::sync::Arc;

use warmline_core::error::code::Reason;
use warmline_core::exchange::Diagnostic;
use warmline_core::pool_key::{Digest, RunId};

use crate::call::server_handle::{CallerContext, ExclusiveSession, ServerHandle};
use crate::credentials::CallerIdentity;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::events::{Event, Fingerprint};
use crate::identity::IdentityName;
use crate::run::{Run, RunRole, new_run_name};
use crate::run_state::quota_exceeded;
use crate::run_state::{RunOrigin, RunState};
use crate::server::Server;
use warmline_store::keyring::random_bytes;

/// A caller. Its sessions are never shared with another one, unless a policy says so.
#[derive(Clone, Debug)]
pub struct Caller {
    pub(super) engine: Arc<Engine>,
    pub(super) identity: Arc<CallerIdentity>,
}

impl Caller {
    pub(super) fn new(engine: &Arc<Engine>, name: IdentityName) -> Self {
        Self {
            identity: engine.caller_identity(name),
            engine: Arc::clone(engine),
        }
    }

    /// Its name; none where a rule identified it, because that may be a secret.
    pub fn name(&self) -> Option<&str> {
        self.identity.name.name()
    }

    /// A short form of its digest, as in events and snapshots.
    pub fn fingerprint(&self) -> String {
        self.identity.id.0.fingerprint()
    }

    /// Runs a body in a new run, whose sessions live exactly as long. Inside another run of the same
    /// identity it joins that one and closes nothing.
    pub async fn run<T>(&self, body: impl AsyncFnOnce(Run) -> T) -> T {
        let is_ours = |run: &Run| run.belongs_to(&self.engine, &self.identity) && run.is_live();
        if let Some(outer) = Run::try_current().filter(is_ours) {
            // A clone: it joined.
            return body(outer).await;
        }
        let run = self.begin_run();
        let output = run.scope(body(run.lend())).await;
        run.end().await;
        output
    }

    /// Begins a run, which ends when the handle is ended or dropped. Above `limits.runs_per_identity` its
    /// calls are refused until another run ends.
    pub fn begin_run(&self) -> Run {
        let name = new_run_name();
        // Without quota its first call asks again.
        let has_quota = self.try_acquire_quota();
        let mut runs = self.engine.runs.lock();
        let run = self.register_run(&mut runs, &name, (has_quota, RunOrigin::New));
        drop(runs);
        self.announce_run(run)
    }

    /// Begins the run of that name, or joins it where it is live: for work with a name, such as a chat or
    /// a ticket. Dropping the handle that began the run ends it, unless it is [detached](Run::detach).
    /// Runs of two identities are never the same.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> warmline::Result<()> {
    /// # let warm = warmline::Warmline::builder().build()?;
    /// let alice = warm.identity("acme/alice");
    /// let chat = alice.named_run("chat-7")?;          // begins it
    /// let same = alice.named_run("chat-7")?;          // joins it: the same sessions
    /// assert!(chat.is_root() && !same.is_root());
    /// drop(same);                                 // ends nothing
    /// chat.end().await;                           // now its sessions are closed
    /// assert!(alice.join_run("chat-7").is_err());     // `join_run` never begins one
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `bad-message`, for an invalid name; `overloaded`, above `limits.runs_per_identity`.
    pub fn named_run(&self, name: &str) -> Result<Run> {
        self.begin_or_join(name, RunOrigin::Named)
    }

    /// Joins a live run.
    ///
    /// # Errors
    /// `run-unknown`, also for a run of another identity.
    pub fn join_run(&self, name: &str) -> Result<Run> {
        Run::check_name(name)?;
        let id = self.engine.run_id(&self.identity, name);
        let live = self.engine.live_run(id).ok_or_else(|| {
            let what = format!("no run `{name}` is live");
            Error::unsent(Diagnostic::new(Reason::RunUnknown, what))
        });
        Ok(self.join(live?))
    }

    pub(super) fn begin_or_join(&self, name: &str, origin: RunOrigin) -> Result<Run> {
        Run::check_name(name)?;
        let id = self.engine.run_id(&self.identity, name);
        if let Some(live) = self.engine.live_run(id) {
            return Ok(self.join(live));
        }
        let mut runs = self.engine.runs.lock();
        if let Some(live) = runs.get(&id).filter(|run| run.is_live()) {
            return Ok(self.join(Arc::clone(live)));
        }
        if !self.try_acquire_quota() {
            let most = self.engine.context.limits.runs_per_identity;
            return Err(Error::unsent(quota_exceeded(most)));
        }
        let run = self.register_run(&mut runs, name, (true, origin));
        drop(runs);
        Ok(self.announce_run(run))
    }

    fn join(&self, run: Arc<RunState>) -> Run {
        Run::new(Arc::clone(&self.engine), run, RunRole::Joined)
    }

    fn try_acquire_quota(&self) -> bool {
        let most = self.engine.context.limits.runs_per_identity;
        self.engine.run_quota.try_acquire(self.identity.id, most)
    }

    /// Registers a run under a name that no live run has.
    fn register_run(
        &self,
        runs: &mut HashMap<RunId, Arc<RunState>>,
        name: &str,
        (has_quota, origin): (bool, RunOrigin),
    ) -> Arc<RunState> {
        let name_id = self.engine.run_id(&self.identity, name);
        let (id, previous_closed) = match runs.get(&name_id) {
            // The old run is closing, and its sessions must not pass to the new one. With records, a
            // later process finds the new run's by name alone, so it waits.
            Some(closing) if self.engine.context.store_factory.is_some() => {
                (name_id, Some(Arc::clone(&closing.closed)))
            },
            Some(_) => (RunId(Digest::new(random_bytes())), None),
            None => (name_id, None),
        };
        let run = RunState::new(
            (name_id, id, previous_closed),
            Arc::from(name),
            Arc::clone(&self.identity),
            (has_quota, origin),
            self.engine.tick(),
        );
        runs.insert(name_id, Arc::clone(&run));
        let joinable = self.engine.joinable_runs.pin();
        joinable.insert(name_id, Arc::clone(&run));
        run
    }

    fn announce_run(&self, run: Arc<RunState>) -> Run {
        let context = &self.engine.context;
        context.metrics.engine.runs.increment();
        context.events.emit(Event::RunStarted {
            identity: Fingerprint::from(self.identity.id),
            run: Fingerprint::from(run.id),
        });
        Run::new(Arc::clone(&self.engine), run, RunRole::Owner)
    }

    /// A server as this caller calls it, in its current run if it has one.
    ///
    /// # Errors
    /// `server-unknown`, with the nearest name there is.
    pub fn server(&self, name: &str) -> Result<ServerHandle> {
        ServerHandle::for_server(self.context(), name)
    }

    /// A session for one holder alone, until it is dropped.
    ///
    /// # Errors
    /// As a call without a session.
    pub async fn lease(&self, server: &str) -> Result<ExclusiveSession> {
        self.server(server)?.lease().await
    }

    /// A server without a declaration, for as long as the handle lives.
    pub fn once(&self, server: Server) -> ServerHandle {
        ServerHandle::for_undeclared(self.context(), server)
    }

    fn context(&self) -> CallerContext {
        let run = Run::try_current()
            .filter(|run| run.belongs_to(&self.engine, &self.identity))
            .map(|run| Arc::clone(&run.state));
        CallerContext::new(Arc::clone(&self.engine), Arc::clone(&self.identity), run)
    }
}
