//! What nobody came back for: sessions whose records were not renewed for as long as a run may
//! rest.
//!
//! Asked by: the keeper, which takes their records out and then ends them with DELETE.
//!
//! The wall clock has no say in it: it may jump by a day, or be another machine's. A record counts
//! as left behind when *this process* saw it unchanged for that long on its own clock. Whoever
//! uses a session renews its record, so that what another process holds never looks like that.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use warmline_core::exchange::Trouble;
use warmline_core::key::Key;
use warmline_core::record::Record;

use super::records::{Fault, Inner, RENEW_EVERY, Records};
use super::sealed::Useless;
use super::{RecordName, Saved, Stored};
use crate::clock::{self, Instant};
use crate::sync::Mutex;

/// How long looking through a whole store may take: no call waits for it, but the keeper does.
const SCAN_WITHIN: Duration = Duration::from_secs(15);
/// Most records that one round takes up.
const AT_ONCE: usize = 256;

/// Most records that somebody is told of at once.
const AT_ONE_LOOK: usize = 4_096;

/// How often a store is looked through, at most: in so many parts of the time a session may rest,
/// and not more rarely than this.
const LOOKS: u32 = 8;
const LOOK_AT_LEAST_EVERY: Duration = Duration::from_secs(5 * 60);

/// So often it is tried to end a session, each time as long after the last as it may rest.
const TRIES: u32 = 8;

/// The editions that were seen, and since when.
#[derive(Debug, Default)]
pub(super) struct Watch(Mutex<Watched>);

#[derive(Debug, Default)]
struct Watched {
    looked: Option<Instant>,
    seen: BTreeMap<RecordName, Seen>,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    edition: u64,
    since: Instant,
    /// How often its server could not be told.
    tries: u32,
}

impl Watch {
    /// Whether it is time to look through the store; who asks does so.
    fn is_due(&self, idle: Duration) -> bool {
        let every = (idle / LOOKS).min(LOOK_AT_LEAST_EVERY);
        let now = clock::now();
        let mut watched = self.0.lock();
        let is_due = watched
            .looked
            .is_none_or(|at| now.saturating_duration_since(at) >= every);
        if is_due {
            watched.looked = Some(now);
        }
        is_due
    }

    /// Takes note of what is stored now, and names what did not change for that long. What is
    /// named waits as long to be named again, so that none stands in the way of others.
    fn unchanged(&self, stored: Vec<(RecordName, u64)>, least: Duration) -> Vec<(RecordName, u64)> {
        let now = clock::now();
        let mut watched = self.0.lock();
        let mut next = BTreeMap::new();
        let mut unchanged = Vec::new();
        for (name, edition) in stored {
            let known = watched.seen.get(&name);
            let known = known.filter(|known| known.edition == edition);
            let tries = known.map_or(0, |known| known.tries);
            let mut since = known.map_or(now, |known| known.since);
            let is_due = now.saturating_duration_since(since) >= least;
            if is_due && unchanged.len() < AT_ONCE {
                unchanged.push((name, edition));
                since = now;
            }
            let seen = Seen {
                edition,
                since,
                tries,
            };
            next.insert(name, seen);
        }
        watched.seen = next;
        unchanged
    }

    /// Counts a try that failed. What is not watched any more needs no other.
    fn may_try_again(&self, name: RecordName) -> bool {
        let mut watched = self.0.lock();
        watched.seen.get_mut(&name).is_some_and(|seen| {
            seen.tries = seen.tries.saturating_add(1);
            seen.tries < TRIES
        })
    }
}

/// A record that is out of its store while its session is ended.
#[derive(Debug)]
pub(crate) struct TakenOut {
    name: RecordName,
    stored: Stored,
}

impl Records {
    /// The records of sessions that nobody came back for within `idle`, but for those whose keys
    /// `spare` says to leave alone: what is held in this process, and servers of others that use
    /// the same store. The store is not looked through at every call.
    ///
    /// The record of each is taken out before its session is ended, so that nobody takes up what is
    /// about to end. What cannot be ended yet is put back, and named again after as long a time, as
    /// long as it is [kept](Records::keeps_for_another_try).
    pub async fn abandoned(
        &self,
        idle: Duration,
        spare: impl Fn(&Key) -> bool + Send + Sync,
    ) -> Vec<Record> {
        let inner = self.inner();
        if !inner.watch.is_due(idle) {
            return Vec::new();
        }
        let Ok(stored) = inner.bounded(SCAN_WITHIN, inner.scan()).await else {
            return Vec::new();
        };
        // The last use may be that much later than the last renewal.
        let least = idle.saturating_add(RENEW_EVERY * 2);
        let mut left = Vec::new();
        for (name, edition) in inner.watch.unchanged(stored, least) {
            let found = inner.bounded(inner.timeout, inner.look_at(name)).await;
            // Whoever came back in the meantime made another edition of it.
            match found {
                Ok(Some((now, Ok(record)))) if now == edition && !spare(&record.key) => {
                    left.push(record);
                },
                // Whoever can open it would have ended it by now.
                Ok(Some((now, Err(useless)))) if now == edition && useless.may_be_replaced() => {
                    inner.clear_useless(name, edition, &useless).await;
                },
                Ok(_) | Err(_) => {},
            }
        }
        left
    }

    /// The records of sessions that can be taken up again, as many as one look finds: for people
    /// who want to know what is kept.
    ///
    /// # Errors
    /// `store-unavailable`: nobody knows.
    pub async fn kept(&self) -> Result<Vec<Record>, Trouble> {
        let inner = self.inner();
        let stored = inner.bounded(SCAN_WITHIN, inner.scan()).await?;
        let mut kept = Vec::new();
        for (name, _) in stored.into_iter().take(AT_ONE_LOOK) {
            let found = inner.bounded(inner.timeout, inner.look_at(name)).await?;
            // What cannot be opened is somebody else's, or was told elsewhere.
            let record = found.and_then(|(_, record)| record.ok());
            kept.extend(record.filter(|record| record.session_id.is_some()));
        }
        Ok(kept)
    }

    /// Takes out the record of an abandoned session: nobody takes that session up any more. None
    /// where it is not what was found (whoever came back renewed it), or where the store fails.
    pub(crate) async fn take_out(&self, record: &Record) -> Option<TakenOut> {
        let inner = self.inner();
        let name = inner.sealer.name(&record.key);
        inner.renewed.forget(name);
        let taking = async {
            let stored = inner.store.load(name).await;
            let stored = stored.map_err(|error| inner.fault(name, error))?;
            let is_it = |stored: &Stored| {
                let there = inner.sealer.open(name, stored);
                there.is_ok_and(|there| there == *record)
            };
            let Some(stored) = stored.filter(is_it) else {
                return Ok(None);
            };
            let cleared = inner.store.clear(name, stored.edition).await;
            let cleared = cleared.map_err(|error| inner.fault(name, error))?;
            Ok(cleared.then_some(TakenOut { name, stored }))
        };
        let taken = inner.bounded(inner.timeout, taking).await.ok().flatten();
        if taken.is_some() {
            inner.counters.cleared.fetch_add(1, Ordering::Relaxed);
        }
        taken
    }

    /// Puts back what was taken out, as it was: it counts as unchanged. Whoever wrote another
    /// record meanwhile keeps it.
    pub(crate) async fn put_back(&self, taken: TakenOut) {
        let inner = self.inner();
        let TakenOut { name, stored } = taken;
        let putting = async {
            let saved = inner.store.save(name, None, stored).await;
            saved.map_err(|error| inner.fault(name, error))
        };
        match inner.bounded(inner.timeout, putting).await {
            Ok(Saved::Done) => {
                inner.counters.saved.fetch_add(1, Ordering::Relaxed);
            },
            Ok(Saved::Lost(_)) => {},
            Err(trouble) => {
                tracing::warn!(record = %name, %trouble, "a session is left to its server: its record could not be put back");
            },
        }
    }

    /// Whether the record of an abandoned session that could not be ended stays for another try; it
    /// does a few times.
    pub fn keeps_for_another_try(&self, record: &Record) -> bool {
        let inner = self.inner();
        inner.watch.may_try_again(inner.sealer.name(&record.key))
    }
}

impl Inner {
    /// What is stored under a name, of use or not.
    async fn look_at(
        &self,
        name: RecordName,
    ) -> Result<Option<(u64, Result<Record, Useless>)>, Fault> {
        let stored = self.store.load(name).await;
        let stored = stored.map_err(|error| self.fault(name, error))?;
        Ok(stored.map(|stored| (stored.edition, self.sealer.open(name, &stored))))
    }

    /// Forgets a record that nobody here can open, once it has lain there for as long as one that
    /// could not be ended would: whoever lost the secrets has time to bring them back.
    async fn clear_useless(&self, name: RecordName, edition: u64, useless: &Useless) {
        if self.watch.may_try_again(name) {
            return;
        }
        let clearing = async {
            let cleared = self.store.clear(name, edition).await;
            cleared.map_err(|error| self.fault(name, error))
        };
        let cleared = self.bounded(self.timeout, clearing).await;
        if cleared.unwrap_or(false) {
            self.counters.cleared.fetch_add(1, Ordering::Relaxed);
            let why = &useless.why;
            tracing::info!(record = %name, why, "a session record that nobody can open is removed");
        }
    }

    pub(super) async fn scan(&self) -> Result<Vec<(RecordName, u64)>, Fault> {
        let found = self.store.scan().await;
        found.map_err(|error| Fault::Store(error.to_string()))
    }
}
