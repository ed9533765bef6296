//! What a run lost, and was not told of yet.
//!
//! Asked by: calls, and whoever takes a server away.  What was lost with a key that serves on, its
//! leases tell; a run remembers what goes with keys and servers.

use std::sync::Arc;

use warmline_core::pool::Word;

use super::RunShared;
use crate::connect::Connect;
use crate::pool::CellOf;

impl RunShared {
    /// A server was taken away, and what it knew of this run with it.
    pub(crate) fn loses(&self, server: &Arc<str>) {
        let mut lost = self.lost_at.lock();
        if !lost.contains(server) {
            *lost = lost.iter().chain([server]).cloned().collect();
        }
    }

    /// Whether what the run had at a server of that name was lost with it, and nobody was told yet.
    pub(crate) fn has_lost(&self, server: &str) -> bool {
        self.lost_at.lock().iter().any(|lost| **lost == *server)
    }

    /// A session takes the place of what was lost there, and tells it.
    pub(crate) fn comes_back_to(&self, server: &str) {
        let mut lost = self.lost_at.lock();
        if !lost.is_empty() {
            let others = lost.iter().filter(|lost| ***lost != *server);
            *lost = others.cloned().collect();
        }
    }

    /// Whether something died with a key, and this run was not told yet.
    pub(crate) fn waits_for_word_of(&self, cell: &CellOf<Connect>) -> bool {
        let heard = self.routes.heard(cell);
        cell.loss().is_some_and(|loss| match heard {
            Some(heard) => loss.number > heard,
            None => loss.word == Word::Untold,
        })
    }
}
