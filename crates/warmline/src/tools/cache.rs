//! Tool lists that were read, for those who may see them, until a horizon.
//!
//! One reading serves all who wait for it. What was read before the tools changed is not kept.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use warmline_core::code::Reason;
use warmline_core::exchange::Trouble;

use super::kept::{Age, KeptFor};
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
pub(crate) struct ToolCache<K: KeptFor> {
    shelf: Arc<Mutex<Shelf<K>>>,
    readings: Flights<(K, u64, u32), Result<Arc<ToolList>>>,
    horizon: Duration,
}

/// What is kept.
#[derive(Debug)]
struct Shelf<K: KeptFor> {
    kept: HashMap<K, Kept>,
    /// What tools said of themselves. It outlives the lists, and whatever session they came from.
    said: HashMap<K::Told, Said>,
    /// Raised when lists are dropped: what was asked for before is not kept afterwards.
    epoch: u64,
}

/// A list that is kept.
#[derive(Debug)]
struct Kept {
    tools: Arc<ToolList>,
    until: Instant,
    /// So long it is good by the word of its server, if that said anything.
    good_until: Option<Instant>,
    /// How many calls its session had when the reading began.
    calls: u32,
    used: Instant,
}

#[derive(Debug)]
struct Said {
    seen: Seen,
    used: Instant,
}

impl<K: KeptFor> ToolCache<K> {
    /// A cache whose lists hold for `horizon`.
    pub(crate) fn new(horizon: Duration) -> Self {
        Self {
            shelf: Arc::new(Mutex::new(Shelf {
                kept: HashMap::new(),
                said: HashMap::new(),
                epoch: 0,
            })),
            readings: Flights::default(),
            horizon,
        }
    }

    /// The list that holds now, if one does. Nothing is read.
    pub(crate) fn peek(&self, key: &K) -> Option<Arc<ToolList>> {
        self.shelf.lock().find(key, Age::ANY)
    }

    /// The list that holds now, or the one that `reading` brings: read once for all who ask. It is
    /// kept only if somebody may still ask for it then.
    ///
    /// # Errors
    /// What the reading failed with, told to all who waited for it; the next caller reads anew.
    pub(crate) async fn list<F>(
        &self,
        key: K,
        age: Age,
        is_wanted: impl Fn() -> bool + Send + 'static,
        reading: F,
    ) -> Result<Arc<ToolList>>
    where
        F: Future<Output = Result<ToolList>> + Send + 'static,
    {
        let epoch = {
            let mut shelf = self.shelf.lock();
            if let Some(list) = shelf.find(&key, age) {
                return Ok(list);
            }
            shelf.epoch
        };
        let (shelf, horizon) = (Arc::clone(&self.shelf), self.horizon);
        let work = move || async move {
            let mut list = reading.await?;
            let (list, changed) = {
                let mut shelf = shelf.lock();
                let changed = shelf.compare(key.told(), &mut list);
                let list = Arc::new(list);
                // Looked at while the shelf is locked: whoever clears it says so before.
                if epoch == shelf.epoch && !horizon.is_zero() && is_wanted() {
                    shelf.keep(key, age.calls, &list, horizon);
                }
                (list, changed)
            };
            for tool in changed {
                let server = list.server();
                tracing::warn!(server, tool, "tool says something else of its effects now");
            }
            Ok(list)
        };
        let flight = (key, epoch, age.calls);
        let read = self.readings.join("tool list", flight, work).await;
        read.unwrap_or_else(|| Err(Error::unsent(died())))
    }

    /// Ends readings that nobody waits for.
    pub(crate) fn end_unwanted(&self) {
        self.readings.end_unwanted();
    }

    /// Drops every list: the tools changed, a session was replaced, or somebody asks for it.
    pub(crate) fn forget_all(&self) {
        let mut shelf = self.shelf.lock();
        shelf.epoch += 1;
        shelf.kept.clear();
    }

    /// Drops the lists of somebody who is gone.
    pub(crate) fn forget(&self, is_gone: impl Fn(&K) -> bool) {
        self.shelf.lock().kept.retain(|key, _| !is_gone(key));
    }
}

impl<K: KeptFor> Shelf<K> {
    fn find(&mut self, key: &K, age: Age) -> Option<Arc<ToolList>> {
        let now = clock::now();
        let holds = |kept: &&mut Kept| kept.until > now && age.allows(kept.calls, kept.good_until);
        let kept = self.kept.get_mut(key).filter(holds)?;
        kept.used = now;
        Some(Arc::clone(&kept.tools))
    }

    /// Compares a list with what the same tools said before; gives the names of those that took it
    /// back.
    fn compare(&mut self, told: K::Told, list: &mut ToolList) -> Vec<String> {
        let now = clock::now();
        let said = self.said.entry(told).or_insert_with(|| Said {
            seen: Seen::new(),
            used: now,
        });
        said.used = now;
        let changed = list.compare(&mut said.seen);
        while self.said.len() > MOST_LISTS {
            let oldest = self.said.iter().min_by_key(|(_, said)| said.used);
            let Some(told) = oldest.map(|(told, _)| *told) else {
                break;
            };
            self.said.remove(&told);
        }
        changed
    }

    /// Keeps a list, and drops what was not asked for the longest until the rest is small enough.
    fn keep(&mut self, key: K, calls: u32, tools: &Arc<ToolList>, horizon: Duration) {
        let kept = Kept {
            tools: Arc::clone(tools),
            until: clock::after(horizon),
            good_until: tools.good_for().map(clock::after),
            calls,
            used: clock::now(),
        };
        self.kept.insert(key, kept);
        while self.kept.len() > 1 && (self.kept.len() > MOST_LISTS || self.bytes() > MOST_BYTES) {
            let oldest = self.kept.iter().min_by_key(|(_, kept)| kept.used);
            let Some(key) = oldest.map(|(key, _)| *key) else {
                return;
            };
            self.kept.remove(&key);
        }
    }

    fn bytes(&self) -> usize {
        self.kept.values().map(|kept| kept.tools.bytes()).sum()
    }
}

fn died() -> Trouble {
    Trouble::new(
        Reason::Internal,
        "the task that read a tool list ended without a word",
    )
}
