//! Lists that servers gave, each for the callers that may see it, until they expire.
//!
//! One read serves all callers that wait for it. A list that was requested before a change is not
//! kept.

use std::collections::HashMap;
use std::future::Future;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use warmline_core::era::Era;
use warmline_core::error::code::Reason;
use warmline_core::exchange::Diagnostic;
use warmline_core::pool_key::{CredentialId, Identity, KeyScope, RunId};

use crate::error::{Error, Result};
use crate::single_flight::SingleFlight;
use warmline_platform::clock::{self, Instant};
use warmline_platform::lock::Mutex;

const MAX_LISTS: usize = 1_024;
const MAX_BYTES: usize = 64 << 20;

/// The identity and the credential that a server is called with.
pub(crate) type ServerPrincipal = (Identity, CredentialId);

/// Whose list it is. Each session may list something else, so a list that was read on the session
/// of a run belongs to that run alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ListOwner {
    pub(crate) principal: ServerPrincipal,
    /// The session that answers: that of a run, or a shared one.
    pub(crate) scope: KeyScope,
    pub(crate) era: Option<Era>,
}

impl ListOwner {
    pub(crate) fn is_of_run(&self, run: RunId) -> bool {
        self.scope == KeyScope::Run(run)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct FetchedList<V> {
    pub(crate) value: V,
    pub(crate) bytes: usize,
    pub(crate) server_ttl: Option<Duration>,
}

impl<V> FetchedList<V> {
    pub(crate) fn map<W>(self, convert: impl FnOnce(V) -> W) -> FetchedList<W> {
        FetchedList {
            value: convert(self.value),
            bytes: self.bytes,
            server_ttl: self.server_ttl,
        }
    }
}

/// How old a list may be, besides the expiry of the cache. A call may have changed what its session
/// lists, so a list keeps the number of calls that its session had when the read began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ListAgeLimit {
    /// The calls that the session had by now.
    pub(crate) call_count: u32,
    /// Whether a call since the read invalidates the list: the server reports no changes.
    pub(crate) is_invalidated_by_calls: bool,
    pub(crate) honors_server_ttl: bool,
}

impl ListAgeLimit {
    /// Any list that the cache still holds.
    pub(crate) const ANY: Self = Self {
        call_count: 0,
        is_invalidated_by_calls: false,
        honors_server_ttl: false,
    };
    /// Any list that has not expired by the word of its server.
    pub(crate) const WITHIN_SERVER_TTL: Self = Self {
        honors_server_ttl: true,
        ..Self::ANY
    };
}

#[derive(Debug)]
pub(crate) struct ListCache<K, V> {
    entries: Arc<Mutex<ListCacheEntries<K, V>>>,
    flights: SingleFlight<(K, u64, u32), Result<V>>,
    ttl: Duration,
}

#[derive(Debug)]
struct ListCacheEntries<K, V> {
    lists: HashMap<K, CachedList<V>>,
    /// Raised when lists are dropped: a read that began before that is not kept.
    epoch: u64,
}

#[derive(Debug)]
struct CachedList<V> {
    list: FetchedList<V>,
    expires_at: Instant,
    server_expires_at: Option<Instant>,
    /// The calls that its session had when the read began.
    call_count: u32,
    last_used: Instant,
}

impl<K, V> ListCache<K, V>
where
    K: Copy + Eq + Hash + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    pub(crate) fn new(ttl: Duration) -> Self {
        let entries = ListCacheEntries {
            lists: HashMap::new(),
            epoch: 0,
        };
        Self {
            entries: Arc::new(Mutex::new(entries)),
            flights: SingleFlight::default(),
            ttl,
        }
    }

    /// The cached list, if there is one. Nothing is read.
    pub(crate) fn peek(&self, key: &K) -> Option<V> {
        self.entries.lock().find(key, ListAgeLimit::ANY)
    }

    /// The cached list, or the one that `read` brings, once for all callers. It is kept only if
    /// `is_wanted` holds after the read.
    /// An error of `read` is that of all callers that waited; the next caller reads again.
    pub(crate) async fn get_or_read<F>(
        &self,
        key: K,
        age: ListAgeLimit,
        is_wanted: impl Fn() -> bool + Send + 'static,
        read: F,
    ) -> Result<V>
    where
        F: Future<Output = Result<FetchedList<V>>> + Send + 'static,
    {
        let epoch = {
            let mut entries = self.entries.lock();
            if let Some(list) = entries.find(&key, age) {
                return Ok(list);
            }
            entries.epoch
        };
        let (entries, ttl) = (Arc::clone(&self.entries), self.ttl);
        let work = move || async move {
            let list = read.await?;
            let value = list.value.clone();
            let mut entries = entries.lock();
            // Under the lock: a run that ends is marked before its lists are dropped.
            if epoch == entries.epoch && !ttl.is_zero() && is_wanted() {
                entries.insert(key, age.call_count, list, ttl);
            }
            Ok(value)
        };
        let flight = (key, epoch, age.call_count);
        let list = self.flights.join_or_start("list", flight, work).await;
        list.unwrap_or_else(|| {
            let what = "the task that read a list ended without a result";
            Err(Error::unsent(Diagnostic::new(Reason::Internal, what)))
        })
    }

    pub(crate) fn cancel_orphaned_reads(&self) {
        self.flights.cancel_orphaned();
    }

    /// Drops every list: one changed, or a session was replaced.
    pub(crate) fn forget_all(&self) {
        let mut entries = self.entries.lock();
        entries.epoch += 1;
        entries.lists.clear();
    }

    /// Drops the lists of owners that are gone.
    pub(crate) fn forget_where(&self, is_gone: impl Fn(&K) -> bool) {
        self.entries.lock().lists.retain(|key, _| !is_gone(key));
    }
}

impl<K: Copy + Eq + Hash, V: Clone> ListCacheEntries<K, V> {
    fn find(&mut self, key: &K, age: ListAgeLimit) -> Option<V> {
        let now = clock::now();
        let is_valid = |cached: &&mut CachedList<V>| {
            cached.expires_at > now
                && (!age.is_invalidated_by_calls || cached.call_count == age.call_count)
                && (!age.honors_server_ttl || cached.server_expires_at.is_none_or(|at| now < at))
        };
        let cached = self.lists.get_mut(key).filter(is_valid)?;
        cached.last_used = now;
        Some(cached.list.value.clone())
    }

    /// Keeps a list. Drops the least recently used ones until the rest is small enough.
    fn insert(&mut self, key: K, call_count: u32, list: FetchedList<V>, ttl: Duration) {
        let cached = CachedList {
            expires_at: clock::after(ttl),
            server_expires_at: list.server_ttl.map(clock::after),
            call_count,
            last_used: clock::now(),
            list,
        };
        self.lists.insert(key, cached);
        let mut bytes: usize = self.lists.values().map(|cached| cached.list.bytes).sum();
        while self.lists.len() > 1 && (self.lists.len() > MAX_LISTS || bytes > MAX_BYTES) {
            let oldest = self.lists.iter().min_by_key(|(_, cached)| cached.last_used);
            let Some(key) = oldest.map(|(key, _)| *key) else {
                return;
            };
            let dropped = self.lists.remove(&key);
            bytes -= dropped.map_or(0, |cached| cached.list.bytes);
        }
    }
}

#[cfg(test)]
mod tests;
