//! The tally: how many of everything there are, without asking every cell.
//!
//! Told by: whoever told a cell something, after its lock was let go.  Asked by: metrics.  Counters
//! are spread over a few shards, so that calls of unrelated keys do not fight for one line of
//! memory. When the pool is quiet they agree with a recount exactly (reliability I28).

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

use warmline_core::pool::Counts;

use super::How;

const SHARDS: usize = 16;

/// What there is at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Present {
    /// Sessions by state, leases, and callers in line.
    pub(crate) counts: Counts,
    /// Sessions being closed.
    pub(crate) closing: u32,
    /// Spares on the shelf.
    pub(crate) spares: u32,
    /// Spares being opened.
    pub(crate) spares_opening: u32,
    /// Keys in the table.
    pub(crate) keys: u32,
}

/// What there is by the counters, and what happened so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stats {
    /// What there is.
    pub(crate) present: Present,
    /// Sessions opened, restored ones and spares included.
    pub(crate) opened: u64,
    /// Openings that failed.
    pub(crate) open_failed: u64,
    /// Sessions whose closing began.
    pub(crate) closed: u64,
    /// Leases of sessions that were there.
    pub(crate) hits: u64,
    /// Leases of sessions that had to be opened.
    pub(crate) misses: u64,
    /// Leases that were waited for.
    pub(crate) waits: u64,
    /// Leases for one call.
    pub(crate) once: u64,
    /// Callers who got none.
    pub(crate) refused: u64,
    /// Keys forgotten.
    pub(crate) forgotten: u64,
}

/// What there is, counted anew in every cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Census {
    /// What there is.
    pub(crate) present: Present,
    /// Rooms taken by HTTP sessions.
    pub(crate) rooms: u32,
    /// Rooms taken by processes.
    pub(crate) processes: u32,
    /// Tasks of the pool that are under way.
    pub(crate) errands: u32,
    /// Events that made no sense to a cell. Never anything but zero.
    pub(crate) mistakes: u32,
}

impl Census {
    pub(super) fn count(&mut self, cell: Counts, closing: u32, mistakes: u32) {
        let all = &mut self.present.counts;
        all.opening += cell.opening;
        all.idle += cell.idle;
        all.leased += cell.leased;
        all.retiring += cell.retiring;
        all.leases += cell.leases;
        all.waiting += cell.waiting;
        self.present.closing += closing;
        self.mistakes += mistakes;
    }
}

#[derive(Default)]
#[repr(align(128))]
struct Shard {
    opening: AtomicI64,
    idle: AtomicI64,
    leased: AtomicI64,
    retiring: AtomicI64,
    leases: AtomicI64,
    waiting: AtomicI64,
    hits: AtomicU64,
    others: [AtomicU64; 3],
}

/// Things that happen seldom, counted in one place.
#[derive(Clone, Copy, Debug)]
pub(super) enum Seldom {
    Opened,
    OpenFailed,
    Closed,
    Refused,
    Forgotten,
}

#[derive(Default)]
pub(super) struct Tally {
    shards: [Shard; SHARDS],
    closing: AtomicI64,
    spares: AtomicI64,
    spares_opening: AtomicI64,
    seldom: [AtomicU64; 5],
}

impl Tally {
    /// A cell changed.
    pub(super) fn changed(&self, cell: u64, before: &Counts, after: &Counts) {
        let shard = self.shard(cell);
        let change = |counter: &AtomicI64, before: u32, after: u32| {
            if before != after {
                counter.fetch_add(i64::from(after) - i64::from(before), Relaxed);
            }
        };
        change(&shard.opening, before.opening, after.opening);
        change(&shard.idle, before.idle, after.idle);
        change(&shard.leased, before.leased, after.leased);
        change(&shard.retiring, before.retiring, after.retiring);
        change(&shard.leases, before.leases, after.leases);
        change(&shard.waiting, before.waiting, after.waiting);
    }

    /// A caller got a lease.
    pub(super) fn leased(&self, cell: u64, how: How) {
        let shard = self.shard(cell);
        let [misses, waits, once] = &shard.others;
        let counter = match how {
            How::Hit => &shard.hits,
            How::Miss => misses,
            How::Waited => waits,
            How::Once => once,
        };
        counter.fetch_add(1, Relaxed);
    }

    pub(super) fn seldom(&self, what: Seldom) {
        let [opened, open_failed, closed, refused, forgotten] = &self.seldom;
        let counter = match what {
            Seldom::Opened => opened,
            Seldom::OpenFailed => open_failed,
            Seldom::Closed => closed,
            Seldom::Refused => refused,
            Seldom::Forgotten => forgotten,
        };
        counter.fetch_add(1, Relaxed);
    }

    pub(super) fn closing(&self, more: i64) {
        self.closing.fetch_add(more, Relaxed);
    }

    pub(super) fn spares(&self, more: i64) {
        self.spares.fetch_add(more, Relaxed);
    }

    pub(super) fn spares_opening(&self, more: i64) {
        self.spares_opening.fetch_add(more, Relaxed);
    }

    pub(super) fn stats(&self, keys: usize) -> Stats {
        let gauge = |of: fn(&Shard) -> &AtomicI64| {
            whole(
                self.shards
                    .iter()
                    .map(|shard| of(shard).load(Relaxed))
                    .sum(),
            )
        };
        let total = |of: fn(&Shard) -> &AtomicU64| {
            self.shards
                .iter()
                .map(|shard| of(shard).load(Relaxed))
                .sum()
        };
        let [opened, open_failed, closed, refused, forgotten] =
            self.seldom.each_ref().map(|one| one.load(Relaxed));
        Stats {
            present: Present {
                counts: Counts {
                    opening: gauge(|shard| &shard.opening),
                    idle: gauge(|shard| &shard.idle),
                    leased: gauge(|shard| &shard.leased),
                    retiring: gauge(|shard| &shard.retiring),
                    leases: gauge(|shard| &shard.leases),
                    waiting: gauge(|shard| &shard.waiting),
                },
                closing: whole(self.closing.load(Relaxed)),
                spares: whole(self.spares.load(Relaxed)),
                spares_opening: whole(self.spares_opening.load(Relaxed)),
                keys: u32::try_from(keys).unwrap_or(u32::MAX),
            },
            opened,
            open_failed,
            closed,
            hits: total(|shard| &shard.hits),
            misses: total(|shard| &shard.others[0]),
            waits: total(|shard| &shard.others[1]),
            once: total(|shard| &shard.others[2]),
            refused,
            forgotten,
        }
    }

    fn shard(&self, cell: u64) -> &Shard {
        let at = usize::try_from(cell % SHARDS as u64).unwrap_or(0);
        let [first, ..] = &self.shards;
        self.shards.get(at).unwrap_or(first)
    }
}

/// Between two changes a gauge may stand below zero for a moment; nobody is shown that.
fn whole(sum: i64) -> u32 {
    u32::try_from(sum.max(0)).unwrap_or(u32::MAX)
}
