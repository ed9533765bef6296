//! Which cell serves which server of a run: found without building a key and without a lock.
//!
//! A run calls a few servers, and there may be very many runs: it is a short list in the order of
//! names, written anew when it changes.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use smallvec::SmallVec;
use warmline_core::era::Era;
use warmline_core::key::CredentialId;

use crate::connect::Connect;
use crate::pool::CellOf;

type Way = (Arc<str>, By, Arc<CellOf<Connect>>);
type Ways = SmallVec<[Way; 1]>;

/// By what a cell of a server was chosen. A run may have one for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum By {
    /// By the server alone.
    Server,
    /// By the era of the client that calls.
    Era(Era),
    /// By what the caller handed in, and the era.
    Handed(CredentialId, Option<Era>),
    /// By a tool that has a session of its own.
    Tool,
}

/// The ways of one run.
#[derive(Default)]
pub(crate) struct Routes(ArcSwapOption<Ways>);

impl Routes {
    /// The cell that serves a server, if one does.
    pub(crate) fn find(&self, server: &str, by: By) -> Option<Arc<CellOf<Connect>>> {
        let ways = self.0.load();
        let ways = ways.as_ref()?;
        let (_, _, cell) = ways.get(place(ways, server, by).ok()?)?;
        Some(Arc::clone(cell))
    }

    /// From now on that cell serves the server.
    pub(crate) fn insert(&self, server: &Arc<str>, by: By, cell: &Arc<CellOf<Connect>>) {
        self.change(|ways| {
            let way = (Arc::clone(server), by, Arc::clone(cell));
            match place(ways, server, by) {
                Ok(at) => ways[at] = way,
                Err(at) => ways.insert(at, way),
            }
        });
    }

    /// What served the server was the wrong one.
    pub(crate) fn remove(&self, server: &str, by: By) {
        self.change(|ways| {
            if let Ok(at) = place(ways, server, by) {
                ways.remove(at);
            }
        });
    }

    /// Nothing is served any more.
    pub(crate) fn clear(&self) {
        self.0.store(None);
    }

    /// All cells.
    pub(crate) fn cells(&self) -> SmallVec<[Arc<CellOf<Connect>>; 4]> {
        let ways = self.0.load();
        let ways = ways.iter().flat_map(|ways| ways.iter());
        ways.map(|(_, _, cell)| Arc::clone(cell)).collect()
    }

    fn change(&self, change: impl Fn(&mut Ways)) {
        self.0.rcu(|ways| {
            let mut ways = ways.as_deref().cloned().unwrap_or_default();
            change(&mut ways);
            Some(Arc::new(ways))
        });
    }
}

/// Where a server stands, or would.
fn place(ways: &Ways, server: &str, by: By) -> Result<usize, usize> {
    ways.binary_search_by(|(name, known, _)| (&**name, *known).cmp(&(server, by)))
}
