//! What this process remembers of records, so that it neither asks nor loses more than it must.
//!
//! Asked by: `records.rs`.  *Owed*: sessions that are known to be gone and whose records could not
//! be replaced, because the store was down; what stands there later is not somebody else's.
//! *Renewed*: what was renewed a moment ago needs no second look at the store.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use warmline_core::record::Record;

use super::RecordName;
use crate::clock::{self, Instant};
use crate::sync::Mutex;

/// Most records that are remembered of each kind; forgetting one costs a look or a handshake.
const MOST: usize = 100_000;

/// Sessions that are gone and stand in the store all the same.
#[derive(Debug, Default)]
pub(super) struct Owed(Mutex<BTreeMap<RecordName, Box<Record>>>);

impl Owed {
    /// The record of a session that is gone could not be replaced. The first one is what stands
    /// there: those after it were never written.
    pub(super) fn add(&self, name: RecordName, gone: &Record) {
        let mut owed = self.0.lock();
        if owed.len() < MOST {
            owed.entry(name).or_insert_with(|| Box::new(gone.clone()));
        }
    }

    /// The store was heard: whatever stands there now, it is not what was owed.
    pub(super) fn settle(&self, name: RecordName) {
        self.0.lock().remove(&name);
    }

    /// Whether that is a session that is known to be gone.
    pub(super) fn has(&self, name: RecordName, there: &Record) -> bool {
        let owed = self.0.lock();
        owed.get(&name)
            .is_some_and(|gone| gone.is_same_session(there))
    }
}

/// What was renewed lately.
#[derive(Debug, Default)]
pub(super) struct Renewed(Mutex<BTreeMap<RecordName, (Instant, u64)>>);

impl Renewed {
    /// Whether exactly this was written less than `every` ago.
    pub(super) fn is_recent(&self, name: RecordName, record: &Record, every: Duration) -> bool {
        let renewed = self.0.lock();
        renewed.get(&name).is_some_and(|(at, said)| {
            *said == what_is_said(record) && clock::now().saturating_duration_since(*at) < every
        })
    }

    /// It was written now.
    pub(super) fn note(&self, name: RecordName, record: &Record, every: Duration) {
        let now = clock::now();
        let mut renewed = self.0.lock();
        if renewed.len() >= MOST {
            renewed.retain(|_, (at, _)| now.saturating_duration_since(*at) < every);
        }
        if renewed.len() < MOST {
            renewed.insert(name, (now, what_is_said(record)));
        }
    }

    /// It is not there any more, or somebody else's is.
    pub(super) fn forget(&self, name: RecordName) {
        self.0.lock().remove(&name);
    }
}

/// All of a record that changes in the life of a session, but for the time of its use.
fn what_is_said(record: &Record) -> u64 {
    let mut hasher = DefaultHasher::new();
    record.generation.hash(&mut hasher);
    record.session_id.hash(&mut hasher);
    record.left_state.hash(&mut hasher);
    record.untold_loss.hash(&mut hasher);
    record.log_level.hash(&mut hasher);
    record.subscriptions.hash(&mut hasher);
    record.expires_at.hash(&mut hasher);
    hasher.finish()
}
