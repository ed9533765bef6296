//! What nobody came back for: sessions whose records were not renewed for as long as a run may
//! rest.
//!
//! Asked by: the keeper, which ends them with DELETE and then clears their records.
//!
//! The wall clock has no say in it: it may jump by a day, or be another machine's. A record counts
//! as left behind when *this process* saw it unchanged for that long on its own clock. Whoever
//! uses a session renews its record, so that what another process holds never looks like that.

use std::collections::BTreeMap;
use std::time::Duration;

use warmline_core::key::Key;
use warmline_core::record::Record;

use super::RecordName;
use super::records::{Fault, Inner, RENEW_EVERY, Records};
use crate::clock::{self, Instant};
use crate::sync::Mutex;

/// How long looking through a whole store may take; nobody waits for it.
const SCAN_WITHIN: Duration = Duration::from_secs(60);
/// Most records that one round takes up.
const AT_ONCE: usize = 256;

/// The editions that were seen, and since when.
#[derive(Debug, Default)]
pub(super) struct Watch(Mutex<BTreeMap<RecordName, Seen>>);

#[derive(Clone, Copy, Debug)]
struct Seen {
    edition: u64,
    since: Instant,
}

impl Watch {
    /// Takes note of what is stored now, and names what did not change for that long.
    fn unchanged(&self, stored: Vec<(RecordName, u64)>, least: Duration) -> Vec<RecordName> {
        let now = clock::now();
        let mut seen = self.0.lock();
        let mut next = BTreeMap::new();
        let mut unchanged = Vec::new();
        for (name, edition) in stored {
            let known = seen.get(&name).filter(|known| known.edition == edition);
            let since = known.map_or(now, |known| known.since);
            next.insert(name, Seen { edition, since });
            if now.saturating_duration_since(since) >= least {
                unchanged.push(name);
            }
        }
        *seen = next;
        unchanged
    }
}

impl Records {
    /// The records of sessions that nobody came back for within `idle`. What `is_held` says is held
    /// in this process is never among them.
    ///
    /// End each of them, then [clear](Records::clear) its record: if this process dies in between,
    /// the next one ends it again.
    pub async fn abandoned(
        &self,
        idle: Duration,
        is_held: impl Fn(&Key) -> bool + Send + Sync,
    ) -> Vec<Record> {
        let inner = self.inner();
        let Ok(stored) = inner.bounded(SCAN_WITHIN, inner.scan()).await else {
            return Vec::new();
        };
        // The last use may be that much later than the last renewal.
        let least = idle.saturating_add(RENEW_EVERY * 2);
        let mut left = Vec::new();
        for name in inner
            .watch
            .unchanged(stored, least)
            .into_iter()
            .take(AT_ONCE)
        {
            let found = inner.bounded(inner.timeout, inner.read(name)).await;
            if let Ok(Some((_, record))) = found
                && !is_held(&record.key)
            {
                left.push(record);
            }
        }
        left
    }
}

impl Inner {
    async fn scan(&self) -> Result<Vec<(RecordName, u64)>, Fault> {
        let found = self.store.scan().await;
        found.map_err(|error| Fault::Store(error.to_string()))
    }
}
