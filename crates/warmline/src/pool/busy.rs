//! What a cell needs only while something happens to it: callers in line, openings, a loss, an end.
//!
//! Nearly all cells rest nearly always, and there may be very many: a cell at rest has none of it.

use std::collections::BTreeMap;

use tokio::sync::oneshot;
use warmline_core::pool::WaiterId;

use super::Connector;
use super::cell::{Answer, Flight, Kept};

/// What is under way in a cell.
pub(super) struct Busy<C: Connector> {
    pub(super) line: BTreeMap<WaiterId, oneshot::Sender<Answer<C>>>,
    pub(super) flights: Vec<Flight>,
    /// A lost session that waits to be replaced.
    pub(super) kept: Option<Kept<C>>,
    /// Who waits until nothing is left.
    pub(super) watchers: Vec<oneshot::Sender<()>>,
}

impl<C: Connector> Default for Busy<C> {
    fn default() -> Self {
        Self {
            line: BTreeMap::new(),
            flights: Vec::new(),
            kept: None,
            watchers: Vec::new(),
        }
    }
}

impl<C: Connector> Busy<C> {
    /// Whether nothing is under way any more.
    pub(super) fn is_over(&self) -> bool {
        self.line.is_empty()
            && self.flights.is_empty()
            && self.kept.is_none()
            && self.watchers.is_empty()
    }
}
