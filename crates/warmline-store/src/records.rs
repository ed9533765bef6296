//! Records as the engine uses them: sealed, named by a keyed digest, bounded in time.
//!
//! Nothing here fails a call. What cannot be read or written is counted and logged, and the session
//! goes on in memory (A141).
//!
//! Compare-and-set uses the *edition*: the generation in its upper half, so that a new session
//! replaces an old one, and a count in its lower half, so that of two processes that renew one record
//! neither undoes what the other wrote. The count starts at random: a record that was cleared and
//! made again is another one.

use std::collections::BTreeMap;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use warmline_core::exchange::Diagnostic;
use warmline_core::pool_key::PoolKey;
use warmline_core::record::Record;
use warmline_platform::clock;
use warmline_platform::lock::Mutex;

use self::abandoned::AbandonedWatch;
use self::availability::StoreAvailability;
use crate::keyring::Keyring;
use crate::sealed::{RecordSealer, UnusableKind, UnusableRecord, next_edition, record_refused};
use crate::{RecordName, SaveOutcome, SessionStore, StoreError};

mod abandoned;
mod availability;

const RENEW_INTERVAL: Duration = Duration::from_secs(60);
/// Most refused records that are logged as warnings.
const MAX_LOGGED_REFUSALS: u64 = 16;
/// Most tries of a write that other processes get in the way of.
const MAX_WRITE_ATTEMPTS: u32 = 8;
/// Most stale records that are remembered. Forgetting one costs a handshake.
const MAX_STALE: usize = 100_000;

/// Records of sessions in a store.
#[derive(Debug)]
pub struct Records {
    store: Arc<dyn SessionStore>,
    timeout: Duration,
    sealer: RecordSealer,
    pub(crate) wall_clock: fn() -> u64,
    availability: StoreAvailability,
    /// Records of sessions that are gone, which an outage kept from being replaced. The same record in
    /// the store later is not another process's.
    stale: Mutex<BTreeMap<RecordName, Box<Record>>>,
    abandoned: AbandonedWatch,
    checked_foreign: AtomicBool,
    refusals: AtomicU64,
}

/// The outcome of a write.
#[derive(Clone, Debug)]
pub enum WriteOutcome {
    /// It is stored, and replaced this.
    Written(ReplacedRecord),
    /// The store holds another session of the key, which was there first. Use that one, and end your
    /// own.
    Conflict(Box<Record>),
    /// It could not be written; the session goes on without a record.
    Failed(Diagnostic),
}

/// What a write replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplacedRecord {
    /// Nothing that is missed.
    Nothing,
    /// The record of another session, with state or with a loss that is not reported yet. Another
    /// process may have written so.
    State,
}

enum RecordError {
    /// The store cannot be used.
    Store(String),
    /// What is stored cannot be used.
    Refused(UnusableRecord),
    Unwritable(Diagnostic),
}

impl Records {
    /// Records in a store, sealed by a keyring. Nothing waits for the store longer than `timeout`.
    pub fn new(store: Arc<dyn SessionStore>, keyring: Arc<Keyring>, timeout: Duration) -> Self {
        Self {
            store,
            timeout,
            sealer: RecordSealer(keyring),
            wall_clock: clock::wall_seconds,
            availability: StoreAvailability::default(),
            stale: Mutex::default(),
            abandoned: AbandonedWatch::default(),
            checked_foreign: AtomicBool::default(),
            refusals: AtomicU64::new(0),
        }
    }

    /// Whether the next process finds what is stored, and can read it.
    pub fn outlives_process(&self) -> bool {
        self.store.outlives_process() && self.sealer.0.outlives_process()
    }

    /// Whether the last operation of the store failed.
    pub fn is_down(&self) -> bool {
        self.availability.is_down()
    }

    /// How many records were broken, foreign or too new, and ignored.
    pub fn refusals(&self) -> u64 {
        self.refusals.load(Ordering::Relaxed)
    }

    /// The record of a key. After an error a new session is to be opened, as if there were none.
    pub async fn load(&self, key: &PoolKey) -> Result<Option<Record>, Diagnostic> {
        let name = self.sealer.record_name(key);
        let found = self.run(self.load_record(name)).await?;
        Ok(found.map(|(_, record)| record))
    }

    /// Writes the record of a session that was just opened, before any call uses it. `replaces` is
    /// the record of the session that it follows, if there was one that could be used.
    pub async fn save(&self, record: &Record, replaces: Option<&Record>) -> WriteOutcome {
        let name = self.sealer.record_name(&record.key);
        let may_replace = |there: &Record| {
            let follows = replaces.is_some_and(|gone| gone.is_same_session(there));
            follows || there.is_loss_marker() || self.is_stale(name, there)
        };
        let put = self.put_record(record, None, may_replace);
        let written = self.write(name, put).await;
        if let (WriteOutcome::Failed(_), Some(gone)) = (&written, replaces) {
            let mut stale = self.stale.lock();
            // Only the first one is in the store: those after it were never written.
            if stale.len() < MAX_STALE {
                stale.entry(name).or_insert_with(|| Box::new(gone.clone()));
            }
        }
        written
    }

    /// Renews the record of a session that is in use: its time, and what changed in its life. Does
    /// nothing if that happened a moment ago. Writes a record that is missing.
    ///
    /// Not for the path of a call.
    pub async fn touch(&self, record: &Record) -> WriteOutcome {
        let name = self.sealer.record_name(&record.key);
        let mut record = record.clone();
        record.last_used_at = (self.wall_clock)();
        self.write(name, self.renew_record(name, &record)).await
    }

    /// Removes the record of a session that is gone: the server said so, or it was ended. The record
    /// of any other session of the key stays. Returns what was removed.
    pub async fn clear(
        &self,
        key: &PoolKey,
        generation: u32,
        session_id: Option<&str>,
    ) -> Option<Record> {
        self.clear_or_replace(key, generation, session_id, |_| None)
            .await
    }

    /// The same, but leaves what `replacement` makes of the record: a loss that is to be reported
    /// stays until another session takes its place or the record is abandoned.
    pub async fn clear_or_replace(
        &self,
        key: &PoolKey,
        generation: u32,
        session_id: Option<&str>,
        replacement: impl Fn(&Record) -> Option<Record> + Send,
    ) -> Option<Record> {
        let name = self.sealer.record_name(key);
        let is_it = |there: &Record| {
            there.generation == generation && there.session_id.as_deref() == session_id
        };
        let remove = self.remove_record(name, is_it, replacement);
        self.run(remove).await.ok().flatten()
    }

    fn is_stale(&self, name: RecordName, there: &Record) -> bool {
        let stale = self.stale.lock();
        let gone = stale.get(&name);
        gone.is_some_and(|gone| gone.is_same_session(there))
    }

    async fn write(
        &self,
        name: RecordName,
        work: impl Future<Output = Result<WriteOutcome, RecordError>> + Send,
    ) -> WriteOutcome {
        let written = self.run(work).await;
        if written.is_ok() {
            // The store answered: what it holds now is not the stale record.
            self.stale.lock().remove(&name);
        }
        written.unwrap_or_else(WriteOutcome::Failed)
    }

    /// Runs an operation within the usual time, and notes whether the store works.
    async fn run<T>(
        &self,
        work: impl Future<Output = Result<T, RecordError>> + Send,
    ) -> Result<T, Diagnostic> {
        self.run_bounded(self.timeout, work).await
    }

    async fn run_bounded<T>(
        &self,
        limit: Duration,
        work: impl Future<Output = Result<T, RecordError>> + Send,
    ) -> Result<T, Diagnostic> {
        self.availability.check_available(limit)?;
        // The store may be anyone's code: a panic is a failure of the store.
        let work = AssertUnwindSafe(work).catch_unwind();
        let done = match clock::timeout(limit, work).await {
            Ok(Ok(done)) => done,
            Ok(Err(_)) => Err(RecordError::Store("it panicked".to_owned())),
            Err(clock::Elapsed) => {
                let why = format!("it did not answer within {} ms", limit.as_millis());
                return Err(self.availability.mark_down(&why, true));
            },
        };
        match done {
            Ok(done) => {
                self.availability.mark_up();
                Ok(done)
            },
            Err(RecordError::Store(why)) => Err(self.availability.mark_down(&why, false)),
            Err(RecordError::Refused(unusable)) => {
                self.availability.mark_up();
                Err(record_refused(&unusable.why))
            },
            Err(RecordError::Unwritable(diagnostic)) => Err(diagnostic),
        }
    }

    async fn load_record(&self, name: RecordName) -> Result<Option<(u64, Record)>, RecordError> {
        let Some((edition, record)) = self.load_any(name).await? else {
            return Ok(None);
        };
        let record = record.map_err(|unusable| self.refuse_record(name, unusable))?;
        Ok(Some((edition, record)))
    }

    /// Puts a record over the edition `over`, and over records that it may replace.
    async fn put_record(
        &self,
        record: &Record,
        mut over: Option<u64>,
        may_replace: impl Fn(&Record) -> bool + Send,
    ) -> Result<WriteOutcome, RecordError> {
        let name = self.sealer.record_name(&record.key);
        let mut record = record.clone();
        let mut replaced = ReplacedRecord::Nothing;
        for _ in 0..MAX_WRITE_ATTEMPTS {
            let now = match self.save_sealed(name, over, &record).await? {
                SaveOutcome::Saved => {
                    return Ok(WriteOutcome::Written(replaced));
                },
                SaveOutcome::Conflict(now) => now,
            };
            over = now.as_ref().map(|now| now.edition);
            let Some(now) = now else {
                continue;
            };
            match self.sealer.open(name, &now) {
                // Ours: an earlier write succeeded after all, or another process renewed it.
                Ok(there) if there.is_same_session(&record) => record.stateful |= there.stateful,
                Ok(there) if may_replace(&there) => {
                    if there.has_state_to_lose() {
                        replaced = ReplacedRecord::State;
                    }
                },
                Ok(there) => return Ok(WriteOutcome::Conflict(Box::new(there))),
                Err(unusable) => {
                    let may_be_replaced = unusable.may_be_replaced();
                    let refused = self.refuse_record(name, unusable);
                    if !may_be_replaced {
                        return Err(refused);
                    }
                },
            }
        }
        let why = "other processes write the same record all the time";
        Err(RecordError::Store(why.to_owned()))
    }

    async fn save_sealed(
        &self,
        name: RecordName,
        over: Option<u64>,
        record: &Record,
    ) -> Result<SaveOutcome, RecordError> {
        let edition = next_edition(over, record.generation);
        let sealed = self.sealer.seal(edition, record);
        let stored = sealed.map_err(RecordError::Unwritable)?;
        let saved = self.store.save(name, over, stored).await;
        saved.map_err(|error| self.record_error(name, error))
    }

    async fn renew_record(
        &self,
        name: RecordName,
        record: &Record,
    ) -> Result<WriteOutcome, RecordError> {
        let may_replace = |there: &Record| {
            let is_older = there.is_loss_marker() && there.generation < record.generation;
            is_older || self.is_stale(name, there)
        };
        let (edition, there) = match self.load_record(name).await {
            Ok(Some(found)) => found,
            Ok(None) => return self.put_record(record, None, may_replace).await,
            // `put_record` finds it as well, and replaces it.
            Err(RecordError::Refused(unusable)) if unusable.may_be_replaced() => {
                return self.put_record(record, None, may_replace).await;
            },
            Err(error) => return Err(error),
        };
        if !there.is_same_session(record) {
            return match may_replace(&there) {
                true => self.put_record(record, Some(edition), may_replace).await,
                false => Ok(WriteOutcome::Conflict(Box::new(there))),
            };
        }
        let mut renewed = there.clone();
        renewed.update_from(record);
        let is_recent = there.last_used_at <= record.last_used_at
            && there.idle_time_at(record.last_used_at) < RENEW_INTERVAL;
        let mut unchanged = renewed.clone();
        unchanged.last_used_at = there.last_used_at;
        if is_recent && unchanged == there {
            return Ok(WriteOutcome::Written(ReplacedRecord::Nothing));
        }
        self.put_record(&renewed, Some(edition), may_replace).await
    }

    /// Removes what is stored under a name if it is the right record, and leaves its replacement.
    async fn remove_record(
        &self,
        name: RecordName,
        is_it: impl Fn(&Record) -> bool + Send,
        replacement: impl Fn(&Record) -> Option<Record> + Send,
    ) -> Result<Option<Record>, RecordError> {
        for _ in 0..MAX_WRITE_ATTEMPTS {
            let found = self.load_record(name).await?;
            let Some((edition, there)) = found.filter(|(_, there)| is_it(there)) else {
                return Ok(None);
            };
            let is_done = match replacement(&there) {
                Some(rest) => {
                    self.save_sealed(name, Some(edition), &rest).await? == SaveOutcome::Saved
                },
                None => self.clear_edition(name, edition).await?,
            };
            if is_done {
                return Ok(Some(there));
            }
        }
        Ok(None)
    }

    fn record_error(&self, name: RecordName, error: StoreError) -> RecordError {
        let (why, kind) = match error {
            StoreError::Unavailable(why) => return RecordError::Store(why),
            StoreError::Refused(why) => (why, UnusableKind::Protected),
            StoreError::Broken(why) => (why, UnusableKind::Broken),
        };
        self.refuse_record(name, UnusableRecord { why, kind })
    }

    fn refuse_record(&self, name: RecordName, unusable: UnusableRecord) -> RecordError {
        let why = &unusable.why;
        if self.refusals.fetch_add(1, Ordering::Relaxed) < MAX_LOGGED_REFUSALS {
            tracing::warn!(code = "record-refused", record = %name, why, "a session record is ignored");
        } else {
            tracing::debug!(code = "record-refused", record = %name, why, "ignored");
        }
        RecordError::Refused(unusable)
    }
}
