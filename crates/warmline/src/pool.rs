//! The pool's shell: the map of cells, wake-ups, and effects carried out.

#![expect(dead_code, clippy::unused_async, reason = "signatures first")]

mod connector;

use std::sync::Arc;
use std::time::Duration;

use warmline_core::code::Reason;
use warmline_core::exchange::Trouble;
use warmline_core::key::{CredentialId, DeclaredId, Key, Owner, Place, Revision};
use warmline_core::policy::Ceilings;
pub(crate) use warmline_core::pool::{
    CellPolicy, Ends, Generation, Health, Loss, Outcome, Sharing, Want, Why,
};

use crate::clock::Instant;
pub(crate) use connector::{Connector, Happened, How, Opened, Order, Purpose, What};

/// All sessions of an engine.
pub(crate) struct Pool<C: Connector> {
    connector: Arc<C>,
}

/// All that is known of one key.
pub(crate) struct CellOf<C: Connector> {
    key: Key,
    setup: Arc<C::Setup>,
}

/// What spares are kept apart by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SpareKey {
    pub(crate) place: Place,
    pub(crate) credential: CredentialId,
    pub(crate) declared: DeclaredId,
}

/// The right to send on a session, until it is settled.
pub(crate) struct Lease<C: Connector> {
    session: Arc<C::Session>,
    generation: Generation,
    loss: Option<Loss>,
}

/// A session of a live run that rested and is to be asked whether it lives.
pub(crate) struct KeepAlive<C: Connector> {
    session: Arc<C::Session>,
}

/// What is there, by counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stats {}

/// What is there, counted anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Census {}

impl<C: Connector> Clone for Pool<C> {
    fn clone(&self) -> Self {
        Self {
            connector: Arc::clone(&self.connector),
        }
    }
}

impl<C: Connector> Pool<C> {
    pub(crate) fn new(connector: Arc<C>, _ceilings: Ceilings) -> Self {
        Self { connector }
    }
    pub(crate) fn cell(
        &self,
        key: &Key,
        _policy: impl FnOnce() -> CellPolicy,
        setup: impl FnOnce() -> C::Setup,
    ) -> Arc<CellOf<C>> {
        Arc::new(CellOf {
            key: key.clone(),
            setup: Arc::new(setup()),
        })
    }
    pub(crate) async fn lease(
        &self,
        _cell: &Arc<CellOf<C>>,
        _want: Want,
        _by: Instant,
    ) -> Result<Lease<C>, Trouble> {
        Err(Trouble::new(Reason::Internal, "not yet"))
    }
    pub(crate) async fn once(
        &self,
        _shelf: &SpareKey,
        _setup: &Arc<C::Setup>,
        _owner: Owner,
        _by: Instant,
    ) -> Result<Lease<C>, Trouble> {
        Err(Trouble::new(Reason::Internal, "not yet"))
    }
    /// Lays a session that nobody used on the shelf; closes it where no more spares are wanted.
    pub(crate) fn shelve(
        &self,
        _shelf: &SpareKey,
        _setup: &Arc<C::Setup>,
        _session: Arc<C::Session>,
    ) {
    }
    pub(crate) fn end(&self, _cell: &Arc<CellOf<C>>, _why: Why) {}
    pub(crate) async fn end_all_of(&self, _cells: &[Arc<CellOf<C>>], _why: Why, _by: Instant) {}
    pub(crate) fn sweep(&self) -> Vec<KeepAlive<C>> {
        Vec::new()
    }
    pub(crate) fn loss_seen(&self, _server: &str, _revision: Revision) {}
    pub(crate) async fn drain(&self, _by: Instant) {}
    pub(crate) fn stats(&self) -> Stats {
        Stats {}
    }
    pub(crate) fn census(&self) -> Census {
        Census {}
    }
    /// All cells there are: for snapshots.
    pub(crate) fn cells(&self) -> Vec<Arc<CellOf<C>>> {
        Vec::new()
    }
}

impl<C: Connector> CellOf<C> {
    /// Its key.
    pub(crate) fn key(&self) -> &Key {
        &self.key
    }
    /// How its sessions are opened.
    pub(crate) fn setup(&self) -> &Arc<C::Setup> {
        &self.setup
    }
    /// The policy is another now; it applies in place.
    pub(crate) fn reconfigure(&self, _policy: CellPolicy) {}
    /// News from outside a lease: that session is over.
    pub(crate) fn gone(&self, _generation: Generation, _why: Why) {}
}

impl<C: Connector> KeepAlive<C> {
    /// Asks, and tells the pool.
    pub(crate) async fn run(self) {}
}

impl<C: Connector> Lease<C> {
    pub(crate) fn session(&self) -> &Arc<C::Session> {
        &self.session
    }
    pub(crate) fn generation(&self) -> Generation {
        self.generation
    }
    /// State of an earlier generation died and nobody was told yet.
    pub(crate) fn loss(&self) -> Option<Loss> {
        self.loss
    }
    /// This caller was told.
    pub(crate) fn told(&mut self) {
        self.loss = None;
    }
    /// How it came to be: found, opened, waited for.
    pub(crate) fn how(&self) -> How {
        How::Hit
    }
    /// After how long.
    pub(crate) fn waited(&self) -> Duration {
        Duration::ZERO
    }
    pub(crate) fn settle(self, _outcome: Outcome) {}
}
