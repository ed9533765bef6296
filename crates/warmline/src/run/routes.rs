//! Which cell serves which server of a run: found without building a key and without a lock.
//!
//! A run calls a few servers, and there may be very many runs: it is a short list in the order of
//! entries, written anew when it changes. Servers are told apart by their entries, not by their
//! names: one of the same name may take a server's place while the run goes on.
//!
//! A cell may serve several runs, and each of them is told what was lost there: so a way knows what
//! its run has heard.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use smallvec::SmallVec;
use warmline_core::era::Era;
use warmline_core::key::CredentialId;
use warmline_core::pool::Word;

use crate::connect::Connect;
use crate::entry::Entry;
use crate::pool::CellOf;

type Ways = SmallVec<[Way; 1]>;

/// One way.
#[derive(Clone)]
struct Way {
    server: Arc<Entry>,
    by: By,
    /// The last loss of the cell that the run was told of, or that was told before it came.
    heard: u16,
    cell: Arc<CellOf<Connect>>,
}

/// By what a cell of a server was chosen. A run may have one for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum By {
    /// By the server alone.
    Server,
    /// By the era of the client that calls.
    Era(Era),
    /// By what the caller handed in, and the era.
    Handed(Mark, Option<Era>),
    /// By a tool that has a session of its own.
    Tool,
}

/// The beginning of a keyed digest: enough to tell what callers handed in apart within one run,
/// and there may be very many runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Mark([u8; 5]);

impl Mark {
    pub(crate) const fn of(id: CredentialId) -> Self {
        let [a, b, c, d, e, ..] = *id.0.bytes();
        Self([a, b, c, d, e])
    }
}

/// What became of a cell that was to serve a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Inserted {
    /// It serves it.
    Serves,
    /// The run has sessions of its own at another server of that name: it keeps to that one.
    Elsewhere,
}

/// The ways of one run.
#[derive(Default)]
pub(crate) struct Routes(ArcSwapOption<Ways>);

impl Routes {
    /// The cell that serves a server, if one does.
    pub(crate) fn find(&self, server: &Entry, by: By) -> Option<Arc<CellOf<Connect>>> {
        let ways = self.0.load();
        let ways = ways.as_ref()?;
        let way = ways.get(place(ways, server, by).ok()?)?;
        Some(Arc::clone(&way.cell))
    }

    /// The declared server of that name where the run has sessions of its own, if it has any.
    pub(crate) fn kept(&self, name: &str) -> Option<Arc<Entry>> {
        let ways = self.0.load();
        kept(ways.as_ref()?, name).cloned()
    }

    /// From now on that cell serves the server, unless the run keeps to another of its name.
    pub(crate) fn insert(
        &self,
        server: &Arc<Entry>,
        by: By,
        cell: &Arc<CellOf<Connect>>,
    ) -> Inserted {
        let is_free = |ways: &Ways| {
            let other = kept(ways, &server.name).filter(|kept| !Arc::ptr_eq(kept, server));
            server.is_undeclared() || other.is_none()
        };
        let so_far = told_so_far(cell);
        let before = self.change(|ways| {
            if !is_free(ways) {
                return;
            }
            let way = Way {
                server: Arc::clone(server),
                by,
                heard: heard(ways, cell).unwrap_or(so_far),
                cell: Arc::clone(cell),
            };
            match place(ways, server, by) {
                Ok(at) => ways[at] = way,
                Err(at) => ways.insert(at, way),
            }
        });
        match before.as_deref().is_none_or(is_free) {
            true => Inserted::Serves,
            false => Inserted::Elsewhere,
        }
    }

    /// What served the server was the wrong one.
    pub(crate) fn remove(&self, server: &Entry, by: By) {
        self.change(|ways| {
            if let Ok(at) = place(ways, server, by) {
                ways.remove(at);
            }
        });
    }

    /// Nothing of a server is served any more; gives the cells that did.
    pub(crate) fn leave(&self, server: &Entry) -> SmallVec<[Arc<CellOf<Connect>>; 4]> {
        let is_of_it = |way: &Way| std::ptr::eq(&raw const *way.server, server);
        let has_any = self.0.load().iter().any(|ways| ways.iter().any(is_of_it));
        if !has_any {
            return SmallVec::new();
        }
        let before = self.change(|ways| ways.retain(|way| !is_of_it(way)));
        let before = before.iter().flat_map(|ways| ways.iter());
        before
            .filter(|way| is_of_it(way))
            .map(|way| Arc::clone(&way.cell))
            .collect()
    }

    /// The last loss of a cell that the run knows of; none where no way leads there.
    pub(crate) fn heard(&self, cell: &CellOf<Connect>) -> Option<u16> {
        heard(self.0.load().as_ref()?, cell)
    }

    /// The run is told of a loss: whether it was not before, or none where no way leads there.
    pub(crate) fn hears(&self, cell: &CellOf<Connect>, number: u16) -> Option<bool> {
        self.heard(cell)?;
        let before = self.change(|ways| {
            for way in ways.iter_mut().filter(|way| leads_to(way, cell)) {
                way.heard = way.heard.max(number);
            }
        });
        Some(heard(before.as_ref()?, cell)? < number)
    }

    /// Nothing is served any more.
    pub(crate) fn clear(&self) {
        self.0.store(None);
    }

    /// All cells.
    pub(crate) fn cells(&self) -> SmallVec<[Arc<CellOf<Connect>>; 4]> {
        let ways = self.0.load();
        let ways = ways.iter().flat_map(|ways| ways.iter());
        ways.map(|way| Arc::clone(&way.cell)).collect()
    }

    /// Changes the ways, and says what they were before.
    fn change(&self, change: impl Fn(&mut Ways)) -> Option<Arc<Ways>> {
        self.0.rcu(|ways| {
            let mut ways = ways.as_deref().cloned().unwrap_or_default();
            change(&mut ways);
            Some(Arc::new(ways))
        })
    }
}

/// Where a server stands, or would.
fn place(ways: &Ways, server: &Entry, by: By) -> Result<usize, usize> {
    let wanted: (*const Entry, By) = (server, by);
    ways.binary_search_by(|way| (Arc::as_ptr(&way.server), way.by).cmp(&wanted))
}

fn leads_to(way: &Way, cell: &CellOf<Connect>) -> bool {
    std::ptr::eq(&raw const *way.cell, cell)
}

/// The last loss of a cell that is known on the ways there: on all of them the same.
fn heard(ways: &Ways, cell: &CellOf<Connect>) -> Option<u16> {
    let way = ways.iter().find(|way| leads_to(way, cell));
    way.map(|way| way.heard)
}

/// The last loss of a cell that somebody was told of. Whoever comes now has lost nothing with it.
fn told_so_far(cell: &CellOf<Connect>) -> u16 {
    cell.loss().map_or(0, |loss| match loss.word {
        Word::Told => loss.number,
        Word::Untold => loss.number.saturating_sub(1),
    })
}

fn kept<'a>(ways: &'a Ways, name: &str) -> Option<&'a Arc<Entry>> {
    let is_kept = |way: &&Way| {
        let is_own = way.cell.key().run().is_some();
        *way.server.name == *name && is_own && !way.server.is_undeclared()
    };
    ways.iter().find(is_kept).map(|way| &way.server)
}
