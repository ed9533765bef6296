//! Leases: the right to send on a session, as values with a destructor.
//!
//! Exactly one of two things happens to a lease: it is settled with an outcome, or it is dropped,
//! which is an outcome too. A lease that reaches nobody goes back unused.

use std::sync::Arc;

use warmline_core::pool::{Event, Generation, Loss, Outcome, Why};

use super::cell::CellOf;
use super::{Connector, How};

/// The right to send on a session, until it is settled.
#[must_use = "dropping a lease settles it as dropped"]
pub(crate) struct Lease<C: Connector> {
    handed: Handed<C>,
    how: How,
}

impl<C: Connector> Lease<C> {
    pub(super) fn new(handed: Handed<C>, how: How) -> Self {
        Self { handed, how }
    }

    /// The session.
    pub(crate) fn session(&self) -> &Arc<C::Session> {
        &self.handed.session
    }

    /// Its number.
    pub(crate) fn generation(&self) -> Generation {
        self.handed.generation
    }

    /// The right of its holder, who has the session alone, to send on it once. None where the
    /// session was lost meanwhile.
    pub(crate) fn join(&mut self) -> Option<Self> {
        let mut handed = self.handed.cell.join(self.handed.generation)?;
        handed.untold = handed.untold.or(self.handed.untold.take());
        Some(Self::new(handed, How::Hit))
    }

    /// State of an earlier session died, and nobody was told yet.
    pub(crate) fn loss(&self) -> Option<Loss> {
        self.handed.untold
    }

    /// This caller was told.
    pub(crate) fn told(&mut self) {
        self.handed.untold = None;
    }

    /// How the caller came to it.
    pub(crate) fn how(&self) -> How {
        self.how
    }

    /// Gives it back.
    pub(crate) fn settle(mut self, outcome: Outcome) {
        self.handed.settle(outcome);
    }
}

impl<C: Connector> Drop for Lease<C> {
    fn drop(&mut self) {
        self.handed.settle(Outcome::Dropped);
    }
}

/// A lease on its way to its caller.
pub(super) struct Handed<C: Connector> {
    cell: Arc<CellOf<C>>,
    session: Arc<C::Session>,
    generation: Generation,
    untold: Option<Loss>,
    settled: bool,
}

impl<C: Connector> Handed<C> {
    pub(super) fn new(
        cell: &Arc<CellOf<C>>,
        session: &Arc<C::Session>,
        generation: Generation,
        untold: Option<Loss>,
    ) -> Self {
        Self {
            cell: Arc::clone(cell),
            session: Arc::clone(session),
            generation,
            untold,
            settled: false,
        }
    }

    /// Whether its driver did not give the session up by itself.
    pub(super) fn is_usable(&self) -> bool {
        self.cell.connector().is_usable(&self.session)
    }

    fn settle(&mut self, outcome: Outcome) {
        if std::mem::replace(&mut self.settled, true) {
            return;
        }
        let generation = self.generation;
        if !matches!(outcome, Outcome::Gone(_)) && !self.is_usable() {
            // First, so that nobody else gets it; what it answered still counts.
            let why = Why::Gone;
            self.cell.tell(Event::Gone { generation, why });
        }
        self.cell.tell(Event::Settled {
            generation,
            outcome,
            untold: self.untold.take(),
        });
    }
}

impl<C: Connector> Drop for Handed<C> {
    fn drop(&mut self) {
        self.settle(Outcome::Unused);
    }
}
