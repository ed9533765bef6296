//! Records as the engine uses them: sealed, named by a keyed digest, bounded in time.
//!
//! Asked by: openings (load, save), the keeper (touch, abandoned), and whoever hears a server's
//! word that a session is gone or ends a run (clear).
//!
//! Nothing here fails a call. What cannot be read or written is counted and told once, and the
//! session goes on in memory (A141).
//!
//! Compare-and-set is on the *edition*: the generation in its upper half, so that a new session
//! replaces an old one, and a count in its lower half, so that of two processes that renew one
//! record neither undoes what the other wrote. The count begins anywhere: a record that was cleared
//! and made again is another one.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use warmline_core::exchange::Trouble;
use warmline_core::key::Key;
use warmline_core::record::Record;

use super::leftovers::Watch;
use super::outage::Outage;
use super::remembered::{Owed, Renewed};
use super::sealed::{Kind, Sealer, Useless, next_edition, refusal};
use super::strangers::Strangers;
use super::{RecordName, Saved, SessionStore, StoreError, Stored};
use crate::clock;
use crate::seal::Vault;

/// How stale the time of use in a record may get: a session in use is renewed no more often.
pub(super) const RENEW_EVERY: Duration = Duration::from_secs(60);
/// So many refused records are told at the level of warnings.
const TOLD_REFUSALS: u64 = 16;
/// How often a write is tried over what another process wrote in between.
const ROUNDS: u32 = 8;

/// Records of sessions in a store. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Records(Arc<Inner>);

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) store: Arc<dyn SessionStore>,
    pub(super) timeout: Duration,
    pub(super) watch: Watch,
    pub(super) sealer: Sealer,
    pub(super) strangers: Strangers,
    outage: Outage,
    owed: Owed,
    pub(super) renewed: Renewed,
    pub(super) counters: Counters,
    wall: fn() -> u64,
}

/// What became of a record that was to be written.
#[derive(Clone, Debug)]
pub enum Written {
    /// It stands in the store, in the place of what was there.
    Done(Replaced),
    /// The store holds another session of the key, which was there first. Take that one, and end
    /// your own.
    Lost(Box<Record>),
    /// It could not be written; the session goes on without a record.
    Not(Trouble),
}

/// What a record that was written took the place of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replaced {
    /// Nothing that anybody misses.
    Nothing,
    /// The record of another session, where state was left or a loss not told yet. Another process
    /// may have written so.
    State,
}

/// How often something happened to records, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Records that were found.
    pub loaded: u64,
    /// Records that were written, renewed ones included.
    pub saved: u64,
    /// Records that were cleared.
    pub cleared: u64,
    /// Writes that found another session there first.
    pub lost: u64,
    /// Records that were broken, foreign or too new, and ignored.
    pub refused: u64,
    /// Times that the store could not do what it was asked.
    pub failed: u64,
    /// Times that the store did not answer in time.
    pub slow: u64,
    /// Times that the store was not asked because it had not answered a moment ago.
    pub skipped: u64,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    loaded: AtomicU64,
    pub(super) saved: AtomicU64,
    pub(super) cleared: AtomicU64,
    lost: AtomicU64,
    refused: AtomicU64,
    failed: AtomicU64,
    slow: AtomicU64,
    skipped: AtomicU64,
}

/// Why something was not done.
pub(super) enum Fault {
    /// The store cannot be used.
    Store(String),
    /// What is stored cannot be used.
    Refused(Useless),
    /// What was to be stored cannot be.
    Unwritable(Trouble),
}

impl Records {
    /// Records in a store, sealed by a vault. Nothing waits for the store longer than `timeout`.
    pub fn new(store: Arc<dyn SessionStore>, vault: Arc<Vault>, timeout: Duration) -> Self {
        Self::with_wall_clock(store, vault, timeout, clock::wall_seconds)
    }

    /// The same with a wall clock of its own.
    pub(super) fn with_wall_clock(
        store: Arc<dyn SessionStore>,
        vault: Arc<Vault>,
        timeout: Duration,
        wall: fn() -> u64,
    ) -> Self {
        Self(Arc::new(Inner {
            store,
            timeout,
            sealer: Sealer(vault),
            wall,
            watch: Watch::default(),
            strangers: Strangers::default(),
            outage: Outage::default(),
            owed: Owed::default(),
            renewed: Renewed::default(),
            counters: Counters::default(),
        }))
    }

    pub(super) fn inner(&self) -> &Inner {
        &self.0
    }

    /// Whether what is stored is there for the next process, and can be read by it.
    pub fn outlives_process(&self) -> bool {
        self.0.store.outlives_process() && self.0.sealer.0.outlives_process()
    }

    /// Whether the store is known not to work at the moment.
    pub fn is_down(&self) -> bool {
        self.0.outage.is_down()
    }

    /// How often something happened.
    pub fn counts(&self) -> Counts {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &self.0.counters;
        Counts {
            loaded: of(&counters.loaded),
            saved: of(&counters.saved),
            cleared: of(&counters.cleared),
            lost: of(&counters.lost),
            refused: of(&counters.refused),
            failed: of(&counters.failed),
            slow: of(&counters.slow),
            skipped: of(&counters.skipped),
        }
    }

    /// The record of a key; none if there is none.
    ///
    /// # Errors
    /// `record-refused`: there is one, and it cannot be used. `store-unavailable`: nobody knows.
    /// Either way a new session is to be opened, as if there were none.
    pub async fn load(&self, key: &Key) -> Result<Option<Record>, Trouble> {
        let name = self.0.sealer.name(key);
        // Whoever asks what stands there no longer takes it for granted.
        self.0.renewed.forget(name);
        let found = self.0.bounded(self.0.timeout, self.0.read(name)).await?;
        let Some((_, record)) = found else {
            return Ok(None);
        };
        self.0.counters.loaded.fetch_add(1, Ordering::Relaxed);
        Ok(Some(record))
    }

    /// Writes the record of a session that was just opened, before anybody gets it. `replaces` is
    /// the record of the session that it follows, none if there was none (or none that could be
    /// used).
    pub async fn save(&self, record: &Record, replaces: Option<&Record>) -> Written {
        let name = self.0.sealer.name(&record.key);
        let may = |there: &Record| {
            let follows = replaces.is_some_and(|gone| gone.is_same_session(there));
            follows || there.is_word_of_loss() || self.0.owed.has(name, there)
        };
        let written = self
            .write(name, record, self.0.put(record, None, may))
            .await;
        if let (Written::Not(_), Some(gone)) = (&written, replaces) {
            self.0.owed.add(name, gone);
        }
        written
    }

    /// Renews the record of a session that is in use: its time, and what changed in its life. Costs
    /// nothing where that was done a moment ago. A record that is not there (any more) is written.
    ///
    /// Not for the path of a call.
    pub async fn touch(&self, record: &Record) -> Written {
        let name = self.0.sealer.name(&record.key);
        if self.0.renewed.is_recent(name, record, RENEW_EVERY) {
            return Written::Done(Replaced::Nothing);
        }
        let mut record = record.clone();
        record.used_at = (self.0.wall)();
        let work = self.0.renew(name, &record);
        self.write(name, &record, work).await
    }

    /// Forgets the record of a session that is no more: the server said so, or it was ended. The
    /// record of any other session of the key stays. Says what was there.
    pub async fn clear(
        &self,
        key: &Key,
        generation: u32,
        session_id: Option<&str>,
    ) -> Option<Record> {
        self.clear_but(key, generation, session_id, |_| None).await
    }

    /// The same, but for what somebody has to be told of what was there: that stays in its place,
    /// until another session takes it or nobody came back for it.
    pub(crate) async fn clear_but(
        &self,
        key: &Key,
        generation: u32,
        session_id: Option<&str>,
        stays: impl Fn(&Record) -> Option<Record> + Send,
    ) -> Option<Record> {
        let name = self.0.sealer.name(key);
        self.0.renewed.forget(name);
        let is_it = |there: &Record| {
            there.generation == generation && there.session_id.as_deref() == session_id
        };
        let work = self.0.remove(name, is_it, stays);
        let had = self.0.bounded(self.0.timeout, work).await.unwrap_or(None);
        if had.is_some() {
            self.0.counters.cleared.fetch_add(1, Ordering::Relaxed);
        }
        had
    }

    async fn write(
        &self,
        name: RecordName,
        record: &Record,
        work: impl Future<Output = Result<Put, Fault>> + Send,
    ) -> Written {
        let inner = &self.0;
        let put = match inner.bounded(inner.timeout, work).await {
            Ok(put) => put,
            Err(trouble) => return Written::Not(trouble),
        };
        inner.owed.settle(name);
        let replaced = match put {
            Put::Lost(winner) => {
                inner.renewed.forget(name);
                inner.counters.lost.fetch_add(1, Ordering::Relaxed);
                return Written::Lost(winner);
            },
            Put::Done(replaced) => {
                inner.counters.saved.fetch_add(1, Ordering::Relaxed);
                replaced
            },
            Put::Fresh => Replaced::Nothing,
        };
        inner.renewed.note(name, record, RENEW_EVERY);
        Written::Done(replaced)
    }
}

fn panicked() -> Fault {
    Fault::Store("it panicked".to_owned())
}

/// What became of a write.
enum Put {
    Done(Replaced),
    /// Nothing had to be written.
    Fresh,
    Lost(Box<Record>),
}

impl Inner {
    /// Runs something for at most that long, and keeps book on the store's health.
    pub(super) async fn bounded<T>(
        &self,
        limit: Duration,
        work: impl Future<Output = Result<T, Fault>> + Send,
    ) -> Result<T, Trouble> {
        if let Err(trouble) = self.outage.may_ask(limit) {
            self.counters.skipped.fetch_add(1, Ordering::Relaxed);
            return Err(trouble);
        }
        // A store is somebody else's program: its panics are failures of its own.
        let work = AssertUnwindSafe(work).catch_unwind();
        let work = async { work.await.unwrap_or_else(|_| Err(panicked())) };
        match clock::timeout(limit, work).await {
            Ok(Ok(done)) => {
                self.outage.answered();
                Ok(done)
            },
            Ok(Err(Fault::Store(why))) => {
                self.counters.failed.fetch_add(1, Ordering::Relaxed);
                Err(self.outage.failed(&why))
            },
            Ok(Err(Fault::Refused(useless))) => {
                self.outage.answered();
                Err(refusal(&useless.why))
            },
            Ok(Err(Fault::Unwritable(trouble))) => Err(trouble),
            Err(clock::Elapsed) => {
                self.counters.slow.fetch_add(1, Ordering::Relaxed);
                Err(self.outage.stayed_silent(limit))
            },
        }
    }

    /// What is stored under a name, with its edition.
    pub(super) async fn read(&self, name: RecordName) -> Result<Option<(u64, Record)>, Fault> {
        let stored = match self.store.load(name).await {
            Ok(stored) => stored,
            Err(error) => return Err(self.fault(name, error)),
        };
        let Some(stored) = stored else {
            return Ok(None);
        };
        let record = self.open(name, &stored)?;
        Ok(Some((stored.edition, record)))
    }

    /// Puts a record over what is stored at edition `over`, and over what `may_replace` says.
    async fn put(
        &self,
        record: &Record,
        mut over: Option<u64>,
        may_replace: impl Fn(&Record) -> bool + Send,
    ) -> Result<Put, Fault> {
        let name = self.sealer.name(&record.key);
        let mut record = record.clone();
        let mut replaced = Replaced::Nothing;
        for _ in 0..ROUNDS {
            let edition = next_edition(over, record.generation);
            let sealed = self.sealer.seal(edition, &record);
            let stored = sealed.map_err(Fault::Unwritable)?;
            let now = match self.store.save(name, over, stored).await {
                Ok(Saved::Done) => return Ok(Put::Done(replaced)),
                Ok(Saved::Lost(now)) => now,
                Err(error) => return Err(self.fault(name, error)),
            };
            let Some(now) = now else {
                over = None;
                continue;
            };
            match self.open(name, &now) {
                // Ours: an earlier write got through after all, or another process renewed it.
                Ok(there) if there.is_same_session(&record) => {
                    record.left_state |= there.left_state;
                },
                Ok(there) if may_replace(&there) => {
                    if there.has_something_to_lose() {
                        replaced = Replaced::State;
                    }
                },
                Ok(there) => return Ok(Put::Lost(Box::new(there))),
                Err(Fault::Refused(useless)) if useless.may_be_replaced() => {},
                Err(fault) => return Err(fault),
            }
            over = Some(now.edition);
        }
        Err(Fault::Store(
            "others write the same record all the time".to_owned(),
        ))
    }

    /// Renews what is stored, if it is due.
    async fn renew(&self, name: RecordName, record: &Record) -> Result<Put, Fault> {
        let may = |there: &Record| {
            let is_older = there.is_word_of_loss() && there.generation < record.generation;
            is_older || self.owed.has(name, there)
        };
        let (edition, there) = match self.read(name).await {
            Ok(Some(found)) => found,
            Ok(None) => return self.put(record, None, may).await,
            // `put` finds it again, and writes over it.
            Err(Fault::Refused(useless)) if useless.may_be_replaced() => {
                return self.put(record, None, may).await;
            },
            Err(fault) => return Err(fault),
        };
        if !there.is_same_session(record) {
            return if may(&there) {
                self.put(record, Some(edition), may).await
            } else {
                Ok(Put::Lost(Box::new(there)))
            };
        }
        let mut renewed = there.clone();
        renewed.renew(record);
        let is_recent =
            there.used_at <= record.used_at && there.idle_at(record.used_at) < RENEW_EVERY;
        // But for the time of its use, nothing is new.
        let same = Record {
            used_at: there.used_at,
            ..renewed.clone()
        } == there;
        if is_recent && same {
            return Ok(Put::Fresh);
        }
        self.put(&renewed, Some(edition), may).await
    }

    /// Forgets what is stored under a name if it is what `is_it` wants, but for what stays of it.
    async fn remove(
        &self,
        name: RecordName,
        is_it: impl Fn(&Record) -> bool + Send,
        stays: impl Fn(&Record) -> Option<Record> + Send,
    ) -> Result<Option<Record>, Fault> {
        for _ in 0..ROUNDS {
            let Some((edition, there)) = self.read(name).await? else {
                return Ok(None);
            };
            if !is_it(&there) {
                return Ok(None);
            }
            let done = match stays(&there) {
                Some(rest) => {
                    let next = next_edition(Some(edition), rest.generation);
                    let sealed = self.sealer.seal(next, &rest);
                    let stored = sealed.map_err(Fault::Unwritable)?;
                    let saved = self.store.save(name, Some(edition), stored).await;
                    saved.map(|saved| matches!(saved, Saved::Done))
                },
                None => self.store.clear(name, edition).await,
            };
            match done {
                Ok(true) => return Ok(Some(there)),
                Ok(false) => {},
                Err(error) => return Err(self.fault(name, error)),
            }
        }
        Ok(None)
    }

    fn open(&self, name: RecordName, stored: &Stored) -> Result<Record, Fault> {
        self.sealer
            .open(name, stored)
            .map_err(|useless| self.refused(name, useless))
    }

    pub(super) fn fault(&self, name: RecordName, error: StoreError) -> Fault {
        let (why, kind) = match error {
            StoreError::Unavailable(why) => return Fault::Store(why),
            StoreError::Refused(why) => (why, Kind::Needed),
            StoreError::Broken(why) => (why, Kind::Broken),
        };
        self.refused(name, Useless { why, kind })
    }

    fn refused(&self, name: RecordName, useless: Useless) -> Fault {
        let before = self.counters.refused.fetch_add(1, Ordering::Relaxed);
        let why = &useless.why;
        // A few are worth a line each; a folder full of them is not worth a thousand.
        if before < TOLD_REFUSALS {
            tracing::warn!(code = "record-refused", record = %name, why, "a session record is ignored");
        } else {
            tracing::debug!(code = "record-refused", record = %name, why, "ignored");
        }
        Fault::Refused(useless)
    }
}
