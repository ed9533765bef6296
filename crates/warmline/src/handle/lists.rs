//! Whose is what a server holds? Its lists, for whoever hears of their changes for several callers
//! at once, and what it keeps for a session.

use std::sync::Arc;

use warmline_core::key::Digest;
use warmline_core::policy::SessionPer;

use super::{Entered, ServerHandle};
use crate::upstream::Facts;

/// Whose lists they are, and of which server. Two are equal where one who hears of changes hears
/// of them for both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ListsOf {
    who: Digest,
    /// Where its entry is: a server that is reached otherwise after a reload has another.
    server: usize,
}

impl ServerHandle {
    /// The same server outside any run, for whoever hears of changes of its lists, and whose lists
    /// these are. None where the lists may be others in each run, or for each caller: where a run
    /// has sessions of its own, and where callers hand in what the server is called with.
    pub fn of_lists(&self) -> Option<(ListsOf, Self)> {
        let Entered::Known(entry) = &self.entry else {
            return None;
        };
        let is_per_run = entry.policy().session_per == Some(SessionPer::Run);
        if entry.is_of_caller() || (is_per_run && self.caller.run.is_some()) {
            return None;
        }
        let lists = ListsOf {
            who: self.caller.who.id.0,
            server: Arc::as_ptr(entry).addr(),
        };
        let mut outside = self.clone();
        outside.caller.run = None;
        Some((lists, outside))
    }

    /// Whether what a session of this server holds may be everybody's who calls it: no id was
    /// issued for it, or all callers share it.
    pub fn keeps_nothing_apart(&self, facts: &Facts) -> bool {
        let shares_all = match &self.entry {
            Entered::Known(entry) => entry.policy().session_per == Some(SessionPer::Server),
            Entered::Bad(_) => false,
        };
        shares_all || !facts.keeps_session
    }
}
