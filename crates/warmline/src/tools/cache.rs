//! Tool lists that were read, for those who may see them, until a horizon.
//!
//! One reading serves all who wait for it. What was read before the tools changed is not kept.

use std::collections::HashMap;
use std::future::Future;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use warmline_core::code::Reason;
use warmline_core::exchange::Trouble;

use super::list::{Seen, ToolList};
use crate::clock::{self, Instant};
use crate::error::{Error, Result};
use crate::flight::Flights;
use crate::sync::Mutex;

/// Lists of one server are kept for at most this many who may see different ones.
const MOST_LISTS: usize = 1_024;
/// All lists of one server together are at most this large.
const MOST_BYTES: usize = 64 << 20;

/// The tool lists of one server, by whoever may see them.
#[derive(Debug)]
pub(crate) struct ToolCache<K> {
    shelf: Arc<Mutex<Shelf<K>>>,
    readings: Flights<(K, u64), Result<Arc<ToolList>>>,
    horizon: Duration,
}

/// What is kept.
#[derive(Debug)]
struct Shelf<K> {
    kept: HashMap<K, Kept>,
    /// Raised when lists are dropped: what was asked for before is not kept afterwards.
    epoch: u64,
}

/// What is kept for one key. What its tools said of themselves outlives the list.
#[derive(Debug)]
struct Kept {
    list: Option<Fresh>,
    seen: Seen,
    used: Instant,
}

#[derive(Debug)]
struct Fresh {
    tools: Arc<ToolList>,
    until: Instant,
}

impl<K> ToolCache<K>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
{
    /// A cache whose lists hold for `horizon`.
    pub(crate) fn new(horizon: Duration) -> Self {
        Self {
            shelf: Arc::new(Mutex::new(Shelf {
                kept: HashMap::new(),
                epoch: 0,
            })),
            readings: Flights::default(),
            horizon,
        }
    }

    /// The list that holds now, if one does. Nothing is read.
    pub(crate) fn peek(&self, key: &K) -> Option<Arc<ToolList>> {
        let now = clock::now();
        let mut shelf = self.shelf.lock();
        let kept = shelf.kept.get_mut(key)?;
        let fresh = kept.list.as_ref().filter(|fresh| fresh.until > now)?;
        kept.used = now;
        Some(Arc::clone(&fresh.tools))
    }

    /// The list that holds now, or the one that `reading` brings: read once for all who ask.
    ///
    /// # Errors
    /// What the reading failed with, told to all who waited for it; the next caller reads anew.
    pub(crate) async fn list<F>(&self, key: K, reading: F) -> Result<Arc<ToolList>>
    where
        F: Future<Output = Result<ToolList>> + Send + 'static,
    {
        if let Some(list) = self.peek(&key) {
            return Ok(list);
        }
        let epoch = self.shelf.lock().epoch;
        let (shelf, whose, horizon) = (Arc::clone(&self.shelf), key.clone(), self.horizon);
        let work = move || async move {
            let list = reading.await?;
            let (list, changed) = shelf.lock().keep(whose, epoch, list, horizon);
            for tool in changed {
                let server = list.server();
                tracing::warn!(server, tool, "tool says something else of its effects now");
            }
            Ok(list)
        };
        let read = self.readings.join("tool list", (key, epoch), work).await;
        read.unwrap_or_else(|| Err(Error::unsent(died())))
    }

    /// Drops every list: the tools changed, a session was replaced, or somebody asks for it.
    pub(crate) fn forget_all(&self) {
        let mut shelf = self.shelf.lock();
        shelf.epoch += 1;
        for kept in shelf.kept.values_mut() {
            kept.list = None;
        }
    }
}

impl<K: Clone + Eq + Hash> Shelf<K> {
    /// Keeps a list, unless lists were dropped since it was asked for. Gives it back with the
    /// names of the tools that took back what they said.
    fn keep(
        &mut self,
        key: K,
        epoch: u64,
        mut list: ToolList,
        horizon: Duration,
    ) -> (Arc<ToolList>, Vec<String>) {
        let now = clock::now();
        let kept = self.kept.entry(key).or_insert_with(|| Kept {
            list: None,
            seen: Seen::new(),
            used: now,
        });
        let changed = list.compare(&mut kept.seen);
        kept.used = now;
        let tools = Arc::new(list);
        if epoch == self.epoch && !horizon.is_zero() {
            kept.list = Some(Fresh {
                tools: Arc::clone(&tools),
                until: clock::after(horizon),
            });
        }
        self.make_room();
        (tools, changed)
    }

    /// Drops what was not asked for the longest, until the rest is small enough.
    fn make_room(&mut self) {
        while self.kept.len() > 1 && (self.kept.len() > MOST_LISTS || self.bytes() > MOST_BYTES) {
            let oldest = self.kept.iter().min_by_key(|(_, kept)| kept.used);
            let Some(key) = oldest.map(|(key, _)| key.clone()) else {
                return;
            };
            self.kept.remove(&key);
        }
    }

    fn bytes(&self) -> usize {
        let lists = self.kept.values().filter_map(|kept| kept.list.as_ref());
        lists.map(|fresh| fresh.tools.bytes()).sum()
    }
}

fn died() -> Trouble {
    Trouble::new(
        Reason::Internal,
        "the task that read a tool list ended without a word",
    )
}
