//! Somebody who asks: their runs, and the servers as they call them.
//!
//! Asked by: the program that embeds the engine, and the gateway for each of its clients.

use std::collections::HashMap;
use std::sync::Arc;

use warmline_core::code::Reason;
use warmline_core::exchange::Trouble;
use warmline_core::key::{Digest, RunId};

use crate::engine::{Caller, Engine, Who};
use crate::error::{Error, Result};
use crate::events::{Event, Fingerprint};
use crate::handle::ServerHandle;
use crate::lease::Leased;
use crate::run::places::all_taken;
use crate::run::{self, Coming, Role, Run, RunShared};
use crate::seal::random_bytes;
use crate::server::Server;

/// Somebody who asks: what is called through it is never mixed with what others call.
#[derive(Clone, Debug)]
pub struct IdentityHandle {
    pub(super) engine: Arc<Engine>,
    pub(super) who: Arc<Who>,
}

impl IdentityHandle {
    /// The name it was made with; none where a rule found it, because that may be a secret.
    pub fn name(&self) -> Option<&str> {
        self.who.said.name()
    }

    /// Its digest: what its sessions are kept apart by.
    pub fn digest(&self) -> Digest {
        self.who.id.0
    }

    /// A short form of its digest, as it stands in events and snapshots.
    pub fn fingerprint(&self) -> String {
        self.who.id.0.fingerprint()
    }

    /// Runs a body in a run of its own and returns what it returns. The run's sessions live
    /// exactly as long. Inside another run of the same identity it joins that one and closes
    /// nothing.
    pub async fn run<T>(&self, body: impl AsyncFnOnce(Run) -> T) -> T {
        let is_ours = |run: &Run| run.belongs_to(&self.engine, &self.who) && run.is_live();
        if let Some(outer) = Run::try_current().filter(is_ours) {
            // A clone: it joined.
            return body(outer).await;
        }
        let run = self.begin();
        let output = run.scope(body(run.lent())).await;
        run.end().await;
        output
    }

    /// Begins a run of its own; it ends when the handle is ended or dropped. Where as many of this
    /// identity are live as may be, its calls are refused until one of those ends.
    pub fn begin(&self) -> Run {
        let name = run::fresh_name();
        // Without a place it begins all the same, and asks for one with its first call.
        let has_place = self.take_place();
        let mut runs = self.engine.runs.lock();
        let shared = self.enlist(&mut runs, &name, (has_place, Coming::New));
        drop(runs);
        self.began(shared)
    }

    /// Begins the run of that name, or joins it where it is live: for work that has a name
    /// already, such as a chat or a ticket, and whose parts do not know each other. The handle
    /// that began the run ends it when it is dropped, unless it is [detached](Run::detach); those
    /// that joined it do not. Another identity's run of the same name is another run.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> warmline::Result<()> {
    /// # let warm = warmline::Warmline::builder().build()?;
    /// let alice = warm.identity("acme/alice");
    /// let chat = alice.named("chat-7")?;          // begins it
    /// let same = alice.named("chat-7")?;          // joins it: the same sessions
    /// assert!(chat.is_root() && !same.is_root());
    /// drop(same);                                 // ends nothing
    /// chat.end().await;                           // now its sessions are closed
    /// assert!(alice.join("chat-7").is_err());     // `join` never begins one
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `bad-message`, for a name that no run may have; `overloaded`, where the run is to begin and
    /// as many of this identity are live as may be.
    pub fn named(&self, name: &str) -> Result<Run> {
        self.begin_or_join(name, Coming::ByName)
    }

    /// The same for somebody who was there before: where the run is over and its sessions left no
    /// record, it is begun anew, and that its state is lost is told as any other loss.
    ///
    /// # Errors
    /// As [`IdentityHandle::named`].
    pub fn rejoin(&self, name: &str) -> Result<Run> {
        self.begin_or_join(name, Coming::Back)
    }

    /// Joins a run that must be live already.
    ///
    /// # Errors
    /// `run-unknown`, also for a run of another identity.
    pub fn join(&self, name: &str) -> Result<Run> {
        run::check_name(name)?;
        let id = self.engine.run_id(&self.who, name);
        match self.engine.live_run(id) {
            Some(shared) => Ok(Run::new(Arc::clone(&self.engine), shared, Role::Joined)),
            None => Err(Error::unsent(Trouble::new(
                Reason::RunUnknown,
                format!("no run `{name}` is live"),
            ))),
        }
    }

    fn begin_or_join(&self, name: &str, coming: Coming) -> Result<Run> {
        run::check_name(name)?;
        let named = self.engine.run_id(&self.who, name);
        if let Some(live) = self.engine.live_run(named) {
            return Ok(Run::new(Arc::clone(&self.engine), live, Role::Joined));
        }
        let mut runs = self.engine.runs.lock();
        if let Some(live) = runs.get(&named).filter(|run| run.is_live()) {
            return Ok(Run::new(
                Arc::clone(&self.engine),
                Arc::clone(live),
                Role::Joined,
            ));
        }
        if !self.take_place() {
            return Err(Error::unsent(all_taken(self.most_runs())));
        }
        let shared = self.enlist(&mut runs, name, (true, coming));
        drop(runs);
        Ok(self.began(shared))
    }

    fn most_runs(&self) -> u32 {
        self.engine.ceilings().runs_per_identity
    }

    fn take_place(&self) -> bool {
        let most = self.most_runs();
        self.engine.run_places.take(self.who.id, most)
    }

    /// Puts the run of a name that no live run has among the others.
    fn enlist(
        &self,
        runs: &mut HashMap<RunId, Arc<RunShared>>,
        name: &str,
        (has_place, coming): (bool, Coming),
    ) -> Arc<RunShared> {
        let named = self.engine.run_id(&self.who, name);
        let (id, after) = match runs.get(&named) {
            // The old one is closing, and what it had must not become the new one's. Where records
            // are kept, a later process finds the new one's by its name alone: it waits.
            Some(closing) if self.engine.shared.stores.is_some() => (named, Some(closing.over())),
            Some(_) => (RunId(Digest::new(random_bytes())), None),
            None => (named, None),
        };
        let shared = RunShared::new(
            (named, id, after),
            Arc::from(name),
            Arc::clone(&self.who),
            (has_place, coming),
            &self.engine,
        );
        runs.insert(named, Arc::clone(&shared));
        let to_join = &self.engine.runs_to_join;
        to_join.pin().insert(named, Arc::clone(&shared));
        shared
    }

    fn began(&self, shared: Arc<RunShared>) -> Run {
        self.engine.shared.metrics.engine.runs.up();
        self.engine.shared.events.tell(Event::RunBegan {
            identity: Fingerprint::from(self.who.id),
            run: Fingerprint::from(shared.id),
        });
        Run::new(Arc::clone(&self.engine), shared, Role::Began)
    }

    /// A server, as this identity calls it: in the current run where it has one, else outside.
    ///
    /// # Errors
    /// `server-unknown`, with the nearest name there is.
    pub fn server(&self, name: &str) -> Result<ServerHandle> {
        ServerHandle::of(self.caller(), name)
    }

    /// A session for one holder alone, until it is dropped.
    ///
    /// # Errors
    /// As a call on a session that cannot be had.
    pub async fn lease(&self, server: &str) -> Result<Leased> {
        self.server(server)?.lease().await
    }

    /// Call-with-session: a server that is declared nowhere, for as long as the handle lives.
    pub fn once(&self, server: Server) -> ServerHandle {
        ServerHandle::undeclared(self.caller(), server)
    }

    fn caller(&self) -> Caller {
        let run = Run::try_current()
            .filter(|run| run.belongs_to(&self.engine, &self.who))
            .map(|run| Arc::clone(&run.shared));
        Caller::new(Arc::clone(&self.engine), Arc::clone(&self.who), run)
    }
}
