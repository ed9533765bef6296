//! A store in memory, which is the default. It ends with the process.

use std::collections::BTreeMap;
use std::sync::Arc;

use warmline_platform::lock::Mutex;

use crate::{RecordName, SaveOutcome, SessionStore, StoreError, StoreFuture, StoredRecord};

/// Records in memory. Clones share them.
#[derive(Clone, Debug)]
pub struct MemoryStore {
    records: Arc<Mutex<BTreeMap<RecordName, StoredRecord>>>,
    max_records: usize,
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryStore {
    /// An empty store for as many records as there may be sessions.
    pub fn new() -> Self {
        Self::with_max_records(MAX_RECORDS)
    }

    /// An empty store for that many records.
    pub fn with_max_records(max_records: usize) -> Self {
        Self {
            records: Arc::default(),
            max_records,
        }
    }

    fn compare_and_swap(
        &self,
        name: RecordName,
        expected: Option<u64>,
        stored: StoredRecord,
    ) -> Result<SaveOutcome, StoreError> {
        let mut records = self.records.lock();
        let now = records.get(&name);
        if now.map(|now| now.edition) != expected {
            return Ok(SaveOutcome::Conflict(now.cloned()));
        }
        if now.is_none() && records.len() >= self.max_records {
            let why = format!("there are {} records already", self.max_records);
            return Err(StoreError::Unavailable(why));
        }
        records.insert(name, stored);
        Ok(SaveOutcome::Saved)
    }
}

/// As many as there may be sessions.
const MAX_RECORDS: usize = 100_000;

impl SessionStore for MemoryStore {
    fn load(&self, name: RecordName) -> StoreFuture<'_, Option<StoredRecord>> {
        Box::pin(async move { Ok(self.records.lock().get(&name).cloned()) })
    }

    fn save(
        &self,
        name: RecordName,
        expected: Option<u64>,
        stored: StoredRecord,
    ) -> StoreFuture<'_, SaveOutcome> {
        Box::pin(async move { self.compare_and_swap(name, expected, stored) })
    }

    fn clear(&self, name: RecordName, edition: u64) -> StoreFuture<'_, bool> {
        Box::pin(async move {
            let mut records = self.records.lock();
            let has_edition = records.get(&name).is_some_and(|now| now.edition == edition);
            Ok(has_edition && records.remove(&name).is_some())
        })
    }

    fn scan(&self) -> StoreFuture<'_, Vec<(RecordName, u64)>> {
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
