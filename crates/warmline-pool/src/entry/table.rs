//! The table of all entries, and eviction for claimants of a permit.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use warmline_core::pool::limits::{PermitClaim, SessionLimit};
use warmline_core::pool::{Event, Generation};
use warmline_core::pool_key::{ConfigRevision, PoolKey};
use warmline_core::time::Tick;

use super::super::Connector;
use super::super::spares::Spares;
use super::PoolEntry;
use crate::lock::Mutex;

/// Most eviction candidates that are remembered from one pass over all entries.
const MAX_EVICTION_CANDIDATES: usize = 64;

/// All entries. Only handles of the pool own it: entries point to it weakly.
pub(in super::super) struct EntryTable<C: Connector> {
    /// Those that take callers.
    pub(in super::super) entries: papaya::HashMap<Arc<PoolKey>, Arc<PoolEntry<C>>>,
    /// Those that ended, and those of single calls, until nothing is left of them.
    pub(in super::super) ending: papaya::HashMap<u64, Arc<PoolEntry<C>>>,
    pub(in super::super) spares: Arc<Spares<C>>,
    servers: papaya::HashMap<(Arc<str>, ConfigRevision), Arc<ServerEntries<C>>>,
    /// The least recently used first. A hint: each is checked again before it is evicted.
    candidates: Mutex<Vec<EvictionCandidate<C>>>,
}

/// What all entries of one server share. One pointer in each entry: there may be many.
pub(super) struct ServerEntries<C: Connector> {
    /// None once the last handle of the pool is dropped.
    pub(super) table: Weak<EntryTable<C>>,
    /// When the server was last known to lose sessions, in nanoseconds. Always current.
    pub(super) last_loss: AtomicU64,
}

type EvictionCandidate<C> = (Tick, Generation, Weak<PoolEntry<C>>);

impl<C: Connector> EntryTable<C> {
    pub(in super::super) fn new(spares: Arc<Spares<C>>) -> Self {
        Self {
            entries: papaya::HashMap::new(),
            ending: papaya::HashMap::new(),
            spares,
            servers: papaya::HashMap::new(),
            candidates: Mutex::new(Vec::new()),
        }
    }

    pub(super) fn server_entries(self: &Arc<Self>, key: &PoolKey) -> Arc<ServerEntries<C>> {
        let target = &key.target;
        let server = (Arc::clone(&target.server), target.revision);
        let servers = self.servers.pin();
        Arc::clone(servers.get_or_insert_with(server, || {
            Arc::new(ServerEntries {
                table: Arc::downgrade(self),
                last_loss: AtomicU64::default(),
            })
        }))
    }

    pub(in super::super) fn record_server_loss(
        &self,
        server: &str,
        revision: ConfigRevision,
        now: Tick,
    ) {
        let servers = self.servers.pin();
        if let Some(entries) = servers.get(&(Arc::from(server), revision)) {
            let nanos = u64::try_from(now.since_start().as_nanos()).unwrap_or(u64::MAX);
            entries.last_loss.fetch_max(nanos, Ordering::Relaxed);
        }
    }

    pub(in super::super) fn move_to_ending(&self, entry: &Arc<PoolEntry<C>>) {
        self.ending.pin().insert(entry.number, Arc::clone(entry));
        self.remove(entry);
    }

    /// Removes an entry, unless its key has another one by now.
    pub(super) fn remove(&self, entry: &Arc<PoolEntry<C>>) {
        let entries = self.entries.pin();
        entries
            .remove_if(&entry.key, |_, current| Arc::ptr_eq(current, entry))
            .ok();
    }

    pub(in super::super) fn all(&self) -> Vec<Arc<PoolEntry<C>>> {
        let (entries, ending) = (self.entries.pin(), self.ending.pin());
        entries.values().chain(ending.values()).cloned().collect()
    }

    /// Closes the least recently used idle session whose end helps the claimant.
    pub(in super::super) fn evict_for(&self, claimant: &PoolKey, full: &SessionLimit) {
        // A candidate may be in use again by now; then the next one is tried.
        for _ in 0..MAX_EVICTION_CANDIDATES {
            let Some((used, generation, entry)) = self.least_recently_used(claimant, full) else {
                return self.spares.evict_first_contact(claimant, full);
            };
            if let Some(entry) = entry.upgrade()
                && entry.eviction_candidate() == Some((generation, used))
            {
                return entry.dispatch(Event::PermitNeeded(generation));
            }
        }
    }

    /// The least recently used session whose end helps the claimant. One pass over all entries
    /// finds many candidates; the others are remembered for the next claimants.
    fn least_recently_used(
        &self,
        claimant: &PoolKey,
        full: &SessionLimit,
    ) -> Option<EvictionCandidate<C>> {
        let helps = |entry: &PoolEntry<C>| {
            PermitClaim::for_key(claimant, None)
                .is_some_and(|claim| claim.is_unblocked_by_closing(full, &entry.key))
        };
        let is_remembered = matches!(full, SessionLimit::All(_));
        if is_remembered {
            let mut candidates = std::mem::take(&mut *self.candidates.lock());
            let helpful = |(_, _, entry): &EvictionCandidate<C>| {
                entry.upgrade().is_some_and(|entry| helps(&entry))
            };
            if let Some(at) = candidates.iter().position(helpful) {
                let first = candidates.remove(at);
                *self.candidates.lock() = candidates;
                return Some(first);
            }
        }
        let mut found: Vec<EvictionCandidate<C>> = Vec::new();
        for entry in self.entries.pin().values().filter(|entry| helps(entry)) {
            if let Some((generation, used)) = entry.eviction_candidate() {
                found.push((used, generation, Arc::downgrade(entry)));
            }
        }
        found.sort_unstable_by_key(|(used, ..)| *used);
        let mut found = found.into_iter().take(MAX_EVICTION_CANDIDATES);
        let first = found.next();
        if is_remembered {
            *self.candidates.lock() = found.collect();
        }
        first
    }
}
