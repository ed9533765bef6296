//! What an opening has in hand, and what becomes of it if the opening comes to nothing.
//!
//! Held by: openings, from their beginning until their session arrives.

use std::sync::Arc;
use std::time::Duration;

use warmline_core::pool::spares::SpareKey;
use warmline_core::pool::{Origin, Why};

use super::Connector;
use super::cell::CellOf;
use super::places::{Traces, UntilGone};
use super::rooms::Room;
use super::shelves::{self, Taken};
use super::tally::Seldom;

/// What an opening has in hand until it arrives. If it does not, because it fails, is stopped or
/// panics, the session is ended in order, and its room goes back then.
pub(super) struct Hand<'a, C: Connector> {
    cell: &'a Arc<CellOf<C>>,
    pub(super) shelf: &'a SpareKey,
    pub(super) session: Option<Arc<C::Session>>,
    pub(super) origin: Origin,
    pub(super) rested: Duration,
    /// How long its opening took, if a first contact opened it.
    pub(super) met: Option<Duration>,
    pub(super) room: Option<Room>,
    /// What it left on the wire, once it was there.
    pub(super) traces: Option<Traces>,
}

impl<'a, C: Connector> Hand<'a, C> {
    pub(super) fn empty(cell: &'a Arc<CellOf<C>>, shelf: &'a SpareKey) -> Self {
        Self {
            cell,
            shelf,
            session: None,
            origin: Origin::Fresh,
            rested: Duration::ZERO,
            met: None,
            room: None,
            traces: None,
        }
    }

    pub(super) fn hold(&mut self, taken: Taken<C>) {
        self.session = Some(taken.session);
        self.origin = Origin::Spare;
        self.rested = taken.rested;
        if let Some(met) = taken.met {
            self.met = Some(met.took);
            self.room = self.room.take().or(met.room);
        }
    }

    /// Ends what it holds, in the background.
    pub(super) fn let_go(&mut self) {
        let room = self.room.take();
        if let Some(session) = self.session.take() {
            if self.origin == Origin::Fresh {
                // Else it was counted when it came to its shelf.
                self.cell.ground.tally.seldom(Seldom::Opened);
            }
            let left = (session, Arc::clone(self.cell.setup()));
            shelves::close_session(&self.cell.ground, self.shelf, left, room, Why::Evicted);
        } else if let (Some(room), Some(traces)) = (room, self.traces.take()) {
            // A process that was started for nothing takes up room until it is gone.
            drop(UntilGone::new((room, self.cell.ground.errand()), traces));
        }
        (self.met, self.rested) = (None, Duration::ZERO);
    }
}

impl<C: Connector> Drop for Hand<'_, C> {
    fn drop(&mut self) {
        self.let_go();
    }
}
