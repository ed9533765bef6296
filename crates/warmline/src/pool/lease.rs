//! Leases: the right to send on a session, as values with a destructor.
//!
//! Exactly one of two things happens to a lease: it is settled with an outcome, or it is dropped,
//! which is an outcome too. A lease that reaches nobody goes back unused.

use std::sync::Arc;

use warmline_core::pool::{Event, Generation, Loss, Outcome, Why, Word};

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
    pub(crate) fn join(&self) -> Option<Self> {
        let mut handed = self.handed.cell.join(self.handed.generation)?;
        // What was lost before the holder came is its own loss; what was lost since then is not.
        handed.loss = self.handed.loss.map(|before| {
            let now = self.handed.cell.loss();
            now.filter(|now| now.number == before.number)
                .unwrap_or(before)
        });
        Some(Self::new(handed, How::Hit))
    }

    /// State of an earlier session died, and this caller was not told when its lease began.
    pub(crate) fn loss(&self) -> Option<Loss> {
        self.handed.loss.filter(|loss| loss.word == Word::Untold)
    }

    /// The caller remembers what it was told, and who else was does not matter to it. It is asked
    /// only where anything was lost: which loss does it know of?
    pub(crate) fn remembers(&mut self, heard: impl FnOnce() -> Option<u16>) {
        if let Some(loss) = &mut self.handed.loss
            && let Some(heard) = heard()
        {
            loss.word = match loss.is_known_to(heard) {
                true => Word::Told,
                false => Word::Untold,
            };
        }
    }

    /// This caller is told of it; false if there is nothing to tell, or somebody else was told
    /// meanwhile.
    pub(crate) fn told(&mut self) -> bool {
        let loss = self.loss();
        self.handed.loss = None;
        loss.is_some_and(|loss| self.handed.cell.told(loss))
    }

    /// How the caller came to it.
    pub(crate) fn how(&self) -> How {
        self.how
    }

    /// Gives it back.
    pub(crate) fn settle(self, outcome: Outcome) {
        self.settle_and_look(outcome);
    }

    /// The same, and says why its key ended, if it did meanwhile.
    pub(crate) fn settle_and_look(mut self, outcome: Outcome) -> Option<Why> {
        self.handed.settle(outcome)
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
    loss: Option<Loss>,
    settled: bool,
}

impl<C: Connector> Handed<C> {
    pub(super) fn new(
        cell: &Arc<CellOf<C>>,
        session: &Arc<C::Session>,
        generation: Generation,
        loss: Option<Loss>,
    ) -> Self {
        Self {
            cell: Arc::clone(cell),
            session: Arc::clone(session),
            generation,
            loss,
            settled: false,
        }
    }

    /// Whether its driver did not give the session up by itself.
    pub(super) fn is_usable(&self) -> bool {
        self.cell.connector().is_usable(&self.session)
    }

    fn settle(&mut self, outcome: Outcome) -> Option<Why> {
        if std::mem::replace(&mut self.settled, true) {
            return None;
        }
        let generation = self.generation;
        if !matches!(outcome, Outcome::Gone(_)) && !self.is_usable() {
            // First, so that nobody else gets it; what it answered still counts.
            let why = Why::Gone;
            self.cell.tell(Event::Gone { generation, why });
        }
        let event = Event::Settled {
            generation,
            outcome,
        };
        self.cell.enter(|inside, now, steps| {
            inside.take_in(&self.cell, event, now, steps);
            inside.core.ended_by()
        })
    }
}

impl<C: Connector> Drop for Handed<C> {
    fn drop(&mut self) {
        self.settle(Outcome::Unused);
    }
}
