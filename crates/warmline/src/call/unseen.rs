//! State that a run lost without a call that saw it: the shared session that it was in was ended
//! because its server was declared anew, or taken away.
//!
//! A session of the run's own tells that itself; here it is told on any other.

use super::Way;
use crate::route::Route;

impl Way<'_> {
    /// Whether the run of this call lost what it had on a session that others shared, and was not
    /// told yet.
    pub(super) fn was_lost_unseen(&self, route: &Route) -> bool {
        let is_own = route.cell().is_some_and(|cell| cell.key().run().is_some());
        let run = self.caller.run.as_ref().filter(|_| !is_own);
        run.is_some_and(|run| run.has_lost(&self.entry.name))
    }

    /// The run of this call is told.
    pub(super) fn heard_of_loss(&self) {
        if let Some(run) = self.caller.run.as_ref().filter(|_| self.state_is_gone) {
            run.comes_back_to(&self.entry.name);
        }
    }
}
