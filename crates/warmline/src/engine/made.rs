//! Every server that the engine ever made an entry for and somebody still has, declared or not.
//!
//! Asked by: the end of the engine, which ends what is still asked for any of them, and whoever
//! decides about a name, which runs may know by an older entry.

use std::sync::{Arc, Weak};

use crate::entry::Entry;
use crate::sync::Mutex;

/// The entries that somebody still has.
#[derive(Debug, Default)]
pub(crate) struct Made(Mutex<Vec<Weak<Entry>>>);

impl Made {
    /// One more.
    pub(crate) fn note(&self, entry: &Arc<Entry>) {
        let mut made = self.0.lock();
        // Only where the list would grow anyway, so that each is looked at a few times at most.
        if made.len() == made.capacity() {
            made.retain(|entry| entry.strong_count() > 0);
        }
        made.push(Arc::downgrade(entry));
    }

    /// Those that are or were declared by a name, the oldest first.
    pub(crate) fn of_name(&self, name: &str) -> Vec<Arc<Entry>> {
        let all = self.all().into_iter();
        all.filter(|entry| *entry.name == *name && !entry.is_undeclared())
            .collect()
    }

    /// All of them.
    pub(crate) fn all(&self) -> Vec<Arc<Entry>> {
        self.0.lock().iter().filter_map(Weak::upgrade).collect()
    }
}
