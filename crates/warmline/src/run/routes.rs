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
use warmline_core::policy::SessionPer;
use warmline_core::pool::Loss;

use crate::connect::Connect;
use crate::entry::Entry;
use crate::pool::CellOf;

type Ways = SmallVec<[Way; 1]>;

/// One way.
#[derive(Clone)]
pub(super) struct Way {
    pub(super) server: Arc<Entry>,
    by: By,
    /// The last loss of the cell that the run was told of, or that was none of its own.
    heard: u16,
    /// It turned out wrong: nobody is led there until it is found again, or another takes its place.
    /// What the run has heard counts until then.
    is_wrong: bool,
    pub(super) cell: Arc<CellOf<Connect>>,
}

impl Way {
    pub(super) fn is_of(&self, server: &Entry, by: By) -> bool {
        self.leads_through(server) && self.by == by
    }

    pub(super) fn leads_through(&self, server: &Entry) -> bool {
        std::ptr::eq(&raw const *self.server, server)
    }

    pub(super) fn leads_to(&self, cell: &CellOf<Connect>) -> bool {
        std::ptr::eq(&raw const *self.cell, cell)
    }

    pub(super) fn is_at(&self, name: &str) -> bool {
        *self.server.name == *name
    }

    pub(super) fn knows_of(&self, loss: Loss) -> bool {
        loss.is_known_to(self.heard)
    }
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
    /// By a tool that has sessions of its own, held for this.
    Tool(SessionPer),
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
        (!way.is_wrong).then(|| Arc::clone(&way.cell))
    }

    /// The declared server of that name where the run has sessions of its own, if it has any.
    pub(crate) fn kept(&self, name: &str) -> Option<Arc<Entry>> {
        let ways = self.0.load();
        kept(ways.as_ref()?, name).cloned()
    }

    /// From now on that cell serves the server, unless the run keeps to another of its name. Where no
    /// way led there, it knows of losses up to that number.
    pub(super) fn insert(
        &self,
        server: &Arc<Entry>,
        by: By,
        cell: &Arc<CellOf<Connect>>,
        knows_of: impl FnOnce() -> u16,
    ) -> Inserted {
        let is_free = |ways: &Ways| {
            let other = kept(ways, &server.name).filter(|kept| !Arc::ptr_eq(kept, server));
            server.is_undeclared() || other.is_none()
        };
        // A tool that has sessions of its own is led there at every call.
        if self
            .find(server, by)
            .is_some_and(|known| Arc::ptr_eq(&known, cell))
        {
            return Inserted::Serves;
        }
        let so_far = knows_of();
        let before = self.change(|ways| {
            if !is_free(ways) {
                return;
            }
            let way = Way {
                server: Arc::clone(server),
                by,
                heard: heard(ways, cell).unwrap_or(so_far),
                is_wrong: false,
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
    pub(crate) fn forget(&self, server: &Entry, by: By) {
        self.change(|ways| {
            if let Ok(at) = place(ways, server, by) {
                ways[at].is_wrong = true;
            }
        });
    }

    /// Looks at each way.
    pub(super) fn each(&self, look: impl FnMut(&Way)) {
        let ways = self.0.load();
        ways.iter().flat_map(|ways| ways.iter()).for_each(look);
    }

    /// Takes these ways out. What is owed there was remembered before.
    pub(super) fn take_out(&self, is_meant: impl Fn(&Way) -> bool) {
        let ways = self.0.load();
        if ways.iter().any(|ways| ways.iter().any(&is_meant)) {
            self.change(|ways| ways.retain(|way| !is_meant(way)));
        }
    }

    /// The cells that serve a server.
    pub(crate) fn cells_of(&self, server: &Entry) -> SmallVec<[Arc<CellOf<Connect>>; 4]> {
        let mut cells = SmallVec::new();
        self.each(|way| {
            if way.leads_through(server) {
                cells.push(Arc::clone(&way.cell));
            }
        });
        cells
    }

    /// The last loss of a cell that the run knows of; none where no way leads there.
    pub(crate) fn heard(&self, cell: &CellOf<Connect>) -> Option<u16> {
        heard(self.0.load().as_ref()?, cell)
    }

    /// The run is told of a loss: whether it was not before, or none where no way leads there.
    pub(crate) fn hears(&self, cell: &CellOf<Connect>, loss: Loss) -> Option<bool> {
        self.heard(cell)?;
        let before = self.change(|ways| {
            let untold = |way: &&mut Way| way.leads_to(cell) && !way.knows_of(loss);
            for way in ways.iter_mut().filter(untold) {
                way.heard = loss.number;
            }
        });
        Some(!loss.is_known_to(heard(before.as_ref()?, cell)?))
    }

    /// Nothing is served any more.
    pub(crate) fn clear(&self) {
        self.0.store(None);
    }

    /// All cells.
    pub(crate) fn cells(&self) -> SmallVec<[Arc<CellOf<Connect>>; 4]> {
        let mut cells = SmallVec::new();
        self.each(|way| cells.push(Arc::clone(&way.cell)));
        cells
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

/// The last loss of a cell that is known on the ways there: on all of them the same.
fn heard(ways: &Ways, cell: &CellOf<Connect>) -> Option<u16> {
    let way = ways.iter().find(|way| way.leads_to(cell));
    way.map(|way| way.heard)
}

fn kept<'a>(ways: &'a Ways, name: &str) -> Option<&'a Arc<Entry>> {
    let is_kept = |way: &&Way| {
        let is_own = way.cell.key().run().is_some();
        way.is_at(name) && is_own && !way.is_wrong && !way.server.is_undeclared()
    };
    ways.iter().find(is_kept).map(|way| &way.server)
}
