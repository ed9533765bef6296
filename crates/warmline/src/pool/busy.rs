//! What a cell needs only while something happens to it: callers in line, openings, a loss, an end.
//!
//! Nearly all cells rest nearly always, and there may be very many: a cell at rest has none of it.

use std::collections::BTreeMap;

use tokio::sync::oneshot;
use warmline_core::pool::{Generation, WaiterId};

use super::Connector;
use super::cell::{Answer, Flight};
use super::inheriting::{Heir, Kept};

/// What is under way in a cell.
pub(super) struct Busy<C: Connector> {
    pub(super) line: BTreeMap<WaiterId, oneshot::Sender<Answer<C>>>,
    pub(super) flights: Vec<Flight>,
    /// A lost session that waits to be replaced.
    pub(super) kept: Option<Kept<C>>,
    /// Who gets the room of a lost session once that is closed. Nobody waits for it but the
    /// replacement.
    pub(super) heir: Option<(Generation, Heir)>,
    /// Who waits until nothing is left.
    pub(super) watchers: Vec<oneshot::Sender<()>>,
}

impl<C: Connector> Default for Busy<C> {
    fn default() -> Self {
        Self {
            line: BTreeMap::new(),
            flights: Vec::new(),
            kept: None,
            heir: None,
            watchers: Vec::new(),
        }
    }
}

impl<C: Connector> Busy<C> {
    /// Who gets the room of that session.
    pub(super) fn heir_of(&mut self, generation: Generation) -> Option<Heir> {
        let of_it = self.heir.take_if(|(of, _)| *of == generation);
        of_it.map(|(_, heir)| heir)
    }

    /// Whether nothing is under way any more.
    pub(super) fn is_over(&self) -> bool {
        self.line.is_empty()
            && self.flights.is_empty()
            && self.kept.is_none()
            && self.watchers.is_empty()
    }
}
