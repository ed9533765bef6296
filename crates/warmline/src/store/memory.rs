//! A store in memory: the library's default. It dies with the process.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{RecordName, Saved, SessionStore, Stepping, StoreError, Stored};
use crate::sync::Mutex;

/// Records in memory. Clones share them.
#[derive(Clone, Debug)]
pub struct MemoryStore {
    records: Arc<Mutex<BTreeMap<RecordName, Stored>>>,
    most: usize,
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryStore {
    /// An empty one, for as many records as there may be sessions.
    pub fn new() -> Self {
        Self::of_at_most(MOST_RECORDS)
    }

    /// An empty one for that many records.
    pub fn of_at_most(most: usize) -> Self {
        Self {
            records: Arc::default(),
            most,
        }
    }

    fn swap(
        &self,
        name: RecordName,
        expected: Option<u64>,
        stored: Stored,
    ) -> Result<Saved, StoreError> {
        let mut records = self.records.lock();
        let now = records.get(&name);
        if now.map(|now| now.edition) != expected {
            return Ok(Saved::Lost(now.cloned()));
        }
        if now.is_none() && records.len() >= self.most {
            let why = format!("there are {} records already", self.most);
            return Err(StoreError::Unavailable(why));
        }
        records.insert(name, stored);
        Ok(Saved::Done)
    }

    fn remove(&self, name: RecordName, edition: u64) -> bool {
        let mut records = self.records.lock();
        let had = records.get(&name).map(|now| now.edition) == Some(edition);
        if had {
            records.remove(&name);
        }
        had
    }
}

/// As many as there may be sessions.
const MOST_RECORDS: usize = 100_000;

impl SessionStore for MemoryStore {
    fn load(&self, name: RecordName) -> Stepping<'_, Result<Option<Stored>, StoreError>> {
        Box::pin(async move { Ok(self.records.lock().get(&name).cloned()) })
    }

    fn save(
        &self,
        name: RecordName,
        expected: Option<u64>,
        stored: Stored,
    ) -> Stepping<'_, Result<Saved, StoreError>> {
        Box::pin(async move { self.swap(name, expected, stored) })
    }

    fn clear(&self, name: RecordName, edition: u64) -> Stepping<'_, Result<bool, StoreError>> {
        Box::pin(async move { Ok(self.remove(name, edition)) })
    }

    fn scan(&self) -> Stepping<'_, Result<Vec<(RecordName, u64)>, StoreError>> {
        Box::pin(async move {
            let records = self.records.lock();
            Ok(records
                .iter()
                .map(|(name, now)| (*name, now.edition))
                .collect())
        })
    }

    fn outlives_process(&self) -> bool {
        false
    }
}
