//! What a run lost, and was not told of yet.
//!
//! Asked by: calls, and whoever looks for a way or takes one away.
//!
//! What was lost with a key that serves on, its leases tell, and the way there knows what the run has
//! heard. A way that goes leaves what it owes here, whatever became of its key: there is no other
//! place where a word could get lost.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use warmline_core::pool::{Loss, Why};

use super::routes::{By, Inserted, Way};
use super::{Coming, RunShared};
use crate::connect::Connect;
use crate::entry::Entry;
use crate::pool::CellOf;

/// Servers where a run lost something that it was not told of, by name: whoever comes to one of that
/// name is told. Nearly always none, and asked without a lock.
#[derive(Default)]
pub(super) struct LostAt(ArcSwapOption<Vec<Arc<str>>>);

impl LostAt {
    fn has(&self, server: &str) -> bool {
        let lost = self.0.load();
        lost.as_ref().is_some_and(|lost| is_among(lost, server))
    }

    fn add(&self, server: &Arc<str>) {
        self.0.rcu(|lost| {
            let mut lost = lost.as_deref().cloned().unwrap_or_default();
            if !is_among(&lost, server) {
                lost.push(Arc::clone(server));
            }
            Some(Arc::new(lost))
        });
    }

    /// Takes a server out; false if somebody else did.
    fn take(&self, server: &str) -> bool {
        if !self.has(server) {
            return false;
        }
        let before = self.0.rcu(|lost| {
            let mut lost = lost.as_deref().cloned().unwrap_or_default();
            lost.retain(|name| **name != *server);
            (!lost.is_empty()).then(|| Arc::new(lost))
        });
        before.is_some_and(|before| is_among(&before, server))
    }
}

fn is_among(lost: &[Arc<str>], server: &str) -> bool {
    lost.iter().any(|name| **name == *server)
}

impl RunShared {
    /// Whether something was lost at a server of that name, and the run was not told yet.
    pub(crate) fn has_lost(&self, server: &str) -> bool {
        self.lost_at.has(server)
    }

    /// The run is told what it lost at a server of that name; false if it was told before.
    pub(crate) fn hears_of_loss_at(&self, server: &str) -> bool {
        self.lost_at.take(server)
    }

    /// A call left state in a key that ended under it.
    pub(crate) fn left_state_in(&self, cell: &CellOf<Connect>, ended: Why) {
        let setup = cell.setup();
        if takes_state_with_it(ended) && setup.has_something_to_lose() {
            self.lost_at.add(&setup.entry.name);
        }
    }

    /// From now on that cell serves the server, unless the run keeps to another of its name.
    pub(crate) fn goes_to(
        &self,
        server: &Arc<Entry>,
        by: By,
        cell: &Arc<CellOf<Connect>>,
    ) -> Inserted {
        self.remembers_what_is_owed(|way| way.is_of(server, by) && !way.leads_to(cell));
        self.routes.insert(server, by, cell, || self.knows_of(cell))
    }

    /// Up to which number the losses of a cell are none of this run, which comes there now. On a
    /// session that it shares it had nothing yet, unless it was there before it was over, or in an
    /// earlier process: it is told once too often then rather than not at all.
    fn knows_of(&self, cell: &CellOf<Connect>) -> u16 {
        if cell.key().run().is_some() {
            return Loss::NONE;
        }
        let last = cell.loss().map(|loss| loss.number);
        match self.coming {
            Coming::New => last.unwrap_or(Loss::FROM_BEFORE),
            Coming::ByName if !cell.setup().was_left_by_others() => last.unwrap_or(Loss::NONE),
            Coming::ByName | Coming::Back => Loss::NONE,
        }
    }

    /// Lets go of ways to what ended, at servers of that name: another way is looked for.
    pub(crate) fn gives_up_what_ended(&self, name: &str) {
        let ended = |way: &Way| way.is_at(name) && way.cell.ended_by().is_some();
        self.remembers_what_is_owed(ended);
        self.routes.take_out(ended);
    }

    /// Nothing of a server is served any more. What was the run's own has ended by now.
    pub(crate) fn leaves(&self, server: &Entry) {
        let is_of_it = |way: &Way| way.leads_through(server);
        self.remembers_what_is_owed(is_of_it);
        self.routes.take_out(is_of_it);
    }

    /// Comes before such ways go: nobody finds another one, and goes on untold.
    fn remembers_what_is_owed(&self, goes: impl Fn(&Way) -> bool) {
        self.routes.each(|way| {
            if goes(way) && owes_word(way) {
                self.lost_at.add(&way.server.name);
            }
        });
    }
}

/// Whether something died with the key at the end of a way, and the run was not told yet.
fn owes_word(way: &Way) -> bool {
    let setup = way.cell.setup();
    let loss = way.cell.loss();
    let untold = loss.is_some_and(|loss| !way.knows_of(loss));
    // Of a key that runs share, nobody may have been told while this one lost nothing.
    let is_own = way.cell.key().run().is_some();
    let unsaid = setup.has_untold_loss() && (is_own || loss.is_none());
    let took_state = way.cell.ended_by().is_some_and(takes_state_with_it);
    untold || unsaid || (took_state && setup.has_something_to_lose())
}

/// Whether a key that ends so ends for runs that go on. Whoever shares a session knows that limits
/// end it.
const fn takes_state_with_it(ended: Why) -> bool {
    match ended {
        Why::Gone | Why::Reloaded => true,
        Why::Aged
        | Why::IdleTooLong
        | Why::RunEnded
        | Why::Evicted
        | Why::ByOperator
        | Why::Drained
        | Why::Kept
        | Why::OpenFailed
        | Why::CheckFailed
        | Why::CredentialRefused
        | Why::Expired
        | Why::Bug => false,
    }
}
