//! Records that no process uses any more: those of abandoned sessions, and those that were sealed
//! with other secrets.
//!
//! The wall clock does not decide which sessions are abandoned: it may jump by a day, or be another
//! machine's. A record counts as abandoned when *this process* saw it unchanged for as long as a run
//! may be idle. Every process renews the records of its sessions, so theirs never look like that.

use std::collections::BTreeMap;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::FutureExt as _;
use warmline_core::exchange::Diagnostic;
use warmline_core::pool_key::PoolKey;
use warmline_core::record::Record;
use warmline_platform::clock::{self, Instant};
use warmline_platform::lock::Mutex;

use super::{RENEW_INTERVAL, RecordError, Records};
use crate::sealed::{UnusableKind, UnusableRecord};
use crate::{RecordName, SaveOutcome, StoredRecord};

/// Limit of a scan: no call waits for it, but maintenance does.
const SCAN_TIMEOUT: Duration = Duration::from_secs(15);
const MAX_PER_ROUND: usize = 256;
const MAX_LISTED: usize = 4_096;
/// Records that are opened to find out whether all are foreign. Names are digests, so any will do.
const SAMPLE_SIZE: usize = 256;

/// A store is scanned this often while a session may be idle, but no less often than every
/// [`MAX_SCAN_INTERVAL`].
const SCANS_PER_IDLE_TIME: u32 = 8;
const MAX_SCAN_INTERVAL: Duration = Duration::from_secs(5 * 60);

/// Most tries to end a session, with the idle time between them.
const MAX_END_ATTEMPTS: u32 = 8;

/// The editions that scans found, and since when.
#[derive(Debug, Default)]
pub(super) struct AbandonedWatch(Mutex<AbandonedWatchState>);

#[derive(Debug, Default)]
struct AbandonedWatchState {
    last_scan: Option<Instant>,
    editions: BTreeMap<RecordName, SeenEdition>,
}

#[derive(Clone, Copy, Debug)]
struct SeenEdition {
    edition: u64,
    first_seen: Instant,
    failed_attempts: u32,
}

impl AbandonedWatch {
    /// Whether the store is to be scanned now; the caller does it then.
    fn is_due(&self, idle: Duration) -> bool {
        let every = (idle / SCANS_PER_IDLE_TIME).min(MAX_SCAN_INTERVAL);
        let now = clock::now();
        let mut watched = self.0.lock();
        let is_recent = |at| now.saturating_duration_since(at) < every;
        if watched.last_scan.is_some_and(is_recent) {
            return false;
        }
        watched.last_scan = Some(now);
        true
    }

    /// Remembers the editions that are stored now, and gives those that did not change for `least`.
    /// Each of them waits as long until it is given again, so that none hides others.
    fn unchanged(&self, stored: Vec<(RecordName, u64)>, least: Duration) -> Vec<(RecordName, u64)> {
        let now = clock::now();
        let mut watched = self.0.lock();
        let before = std::mem::take(&mut watched.editions);
        let mut unchanged = Vec::new();
        for (name, edition) in stored {
            let known = before.get(&name).filter(|seen| seen.edition == edition);
            let mut seen = known.copied().unwrap_or(SeenEdition {
                edition,
                first_seen: now,
                failed_attempts: 0,
            });
            let is_due = now.saturating_duration_since(seen.first_seen) >= least;
            if is_due && unchanged.len() < MAX_PER_ROUND {
                unchanged.push((name, edition));
                seen.first_seen = now;
            }
            watched.editions.insert(name, seen);
        }
        unchanged
    }

    /// Counts a failed try, and says whether another one may follow.
    fn count_failed_attempt(&self, name: RecordName) -> bool {
        let mut watched = self.0.lock();
        watched.editions.get_mut(&name).is_some_and(|seen| {
            seen.failed_attempts = seen.failed_attempts.saturating_add(1);
            seen.failed_attempts < MAX_END_ATTEMPTS
        })
    }
}

impl Records {
    /// The records of sessions that nobody used for `idle`, except those whose keys are to be
    /// spared: those of this process, and of servers that are not its own. Most calls scan nothing.
    ///
    /// A record that stays is given again after the same time.
    pub async fn abandoned(
        &self,
        idle: Duration,
        is_spared: impl Fn(&PoolKey) -> bool + Send + Sync,
    ) -> Vec<Record> {
        if !self.abandoned.is_due(idle) {
            return Vec::new();
        }
        let Ok(stored) = self.scan().await else {
            return Vec::new();
        };
        // The last use may be that much later than the last renewal.
        let least = idle.saturating_add(RENEW_INTERVAL * 2);
        let mut abandoned = Vec::new();
        for (name, edition) in self.abandoned.unchanged(stored, least) {
            let found = self.run(self.load_any(name)).await;
            // A record that was renewed meanwhile has another edition.
            match found {
                Ok(Some((now, Ok(record)))) if now == edition && !is_spared(&record.key) => {
                    abandoned.push(record);
                },
                // A process that can open it would have ended it by now.
                Ok(Some((now, Err(unusable)))) if now == edition && unusable.may_be_replaced() => {
                    self.clear_unusable(name, edition, &unusable).await;
                },
                Ok(_) | Err(_) => {},
            }
        }
        abandoned
    }

    /// The records of sessions that can be resumed, at most as many as one scan finds: for people.
    pub async fn list(&self) -> Result<Vec<Record>, Diagnostic> {
        let stored = self.scan().await?;
        let mut records = Vec::new();
        for (name, _) in stored.into_iter().take(MAX_LISTED) {
            let found = self.run(self.load_any(name)).await?;
            let record = found.and_then(|(_, record)| record.ok());
            records.extend(record.filter(|record| record.session_id.is_some()));
        }
        Ok(records)
    }

    /// Ends an abandoned session with its record out of the store, so that no process resumes it
    /// meanwhile. If `end` says that the record is to stay, it is put back as it was, and counts as
    /// unchanged. Does nothing if another process renewed it, or if the store fails.
    pub async fn end_abandoned(&self, record: &Record, end: impl Future<Output = bool> + Send) {
        let name = self.sealer.record_name(&record.key);
        let remove = async {
            let stored = self.store.load(name).await;
            let stored = stored.map_err(|error| self.record_error(name, error))?;
            let is_it = |stored: &StoredRecord| {
                let there = self.sealer.open(name, stored);
                there.is_ok_and(|there| there == *record)
            };
            let Some(stored) = stored.filter(is_it) else {
                return Ok(None);
            };
            let is_cleared = self.clear_edition(name, stored.edition).await?;
            Ok(is_cleared.then_some(stored))
        };
        let Ok(Some(stored)) = self.run(remove).await else {
            return;
        };
        if !end.await {
            return;
        }
        let restore = async {
            let saved = self.store.save(name, None, stored).await;
            saved.map_err(|error| self.record_error(name, error))
        };
        match self.run(restore).await {
            // Or another process wrote one meanwhile.
            Ok(SaveOutcome::Saved | SaveOutcome::Conflict(_)) => {},
            Err(diagnostic) => {
                tracing::warn!(record = %name, trouble = %diagnostic, "a session is left to its server: its record could not be put back");
            },
        }
    }

    /// Counts a failed try to end an abandoned session, and says whether its record stays for
    /// another one.
    pub fn has_attempts_left(&self, record: &Record) -> bool {
        let name = self.sealer.record_name(&record.key);
        self.abandoned.count_failed_attempt(name)
    }

    /// Whether there are records, and all of them were sealed with other secrets; true at most once.
    ///
    /// Records are found by our secrets alone: where these were removed or replaced, nothing is
    /// found, and a run would lose its state without a word. So the engine asks this when it finds
    /// no record, before it writes its first one. False if the store is down, slow or cannot tell.
    pub async fn are_all_foreign(&self) -> bool {
        if !self.outlives_process()
            || self.is_down()
            || self.checked_foreign.swap(true, Ordering::AcqRel)
        {
            return false;
        }
        // A large store takes long, so this counts as no outage. The store may be anyone's code, and
        // panic.
        let check = AssertUnwindSafe(self.holds_only_foreign_records()).catch_unwind();
        let checked = clock::timeout(self.timeout, check).await;
        matches!(checked, Ok(Ok(true)))
    }

    /// What is stored under a name, usable or not.
    pub(super) async fn load_any(
        &self,
        name: RecordName,
    ) -> Result<Option<(u64, Result<Record, UnusableRecord>)>, RecordError> {
        let stored = self.store.load(name).await;
        let stored = stored.map_err(|error| self.record_error(name, error))?;
        Ok(stored.map(|stored| (stored.edition, self.sealer.open(name, &stored))))
    }

    pub(super) async fn clear_edition(
        &self,
        name: RecordName,
        edition: u64,
    ) -> Result<bool, RecordError> {
        let cleared = self.store.clear(name, edition).await;
        cleared.map_err(|error| self.record_error(name, error))
    }

    /// Removes a record that nobody here can open, after as many tries as to end a session: there is
    /// time to bring lost secrets back.
    async fn clear_unusable(&self, name: RecordName, edition: u64, unusable: &UnusableRecord) {
        if self.abandoned.count_failed_attempt(name) {
            return;
        }
        if let Ok(true) = self.run(self.clear_edition(name, edition)).await {
            let why = &unusable.why;
            tracing::info!(record = %name, why, "a session record that nobody can open is removed");
        }
    }

    async fn holds_only_foreign_records(&self) -> bool {
        let stored = self.store.scan().await.unwrap_or_default();
        let mut has_foreign = false;
        for (name, _) in stored.into_iter().take(SAMPLE_SIZE) {
            let Ok(Some(stored)) = self.store.load(name).await else {
                continue;
            };
            let opened = self.sealer.open(name, &stored);
            match opened.map_err(|unusable| unusable.kind) {
                Ok(_) | Err(UnusableKind::Protected) => return false,
                Err(UnusableKind::Foreign) => has_foreign = true,
                Err(UnusableKind::Broken) => {},
            }
        }
        has_foreign
    }

    async fn scan(&self) -> Result<Vec<(RecordName, u64)>, Diagnostic> {
        // Asked inside, so that a panic of the store is caught too.
        let scan = async {
            let found = self.store.scan().await;
            found.map_err(|error| RecordError::Store(error.to_string()))
        };
        self.run_bounded(SCAN_TIMEOUT, scan).await
    }
}
