//! Spreads: how long things took, or how many there were, in fixed buckets.
//!
//! Asked by: `snapshot.rs`.  Told by: the engine, with two atomic additions each and no lock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::Serialize;

use super::numbers::Counter;

/// Bounds of time, in microseconds: from what a warm call adds to the longest call there is.
const TIMES: &[u64] = &[
    100,
    250,
    500,
    1_000,
    2_500,
    5_000,
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    30_000_000,
    60_000_000,
    300_000_000,
    3_600_000_000,
];

/// The same for what should be short: our own share of a call.
const SHORT_TIMES: &[u64] = &[
    10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 100_000, 1_000_000,
];

/// Bounds of small numbers: sessions of a run.
const NUMBERS: &[u64] = &[0, 1, 2, 3, 4, 6, 8, 12, 16, 32, 64, 128];

/// What a spread counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Microseconds; shown as seconds.
    Time,
    /// The same, in finer buckets.
    ShortTime,
    /// Things.
    Number,
}

impl Unit {
    /// Its bounds: a value belongs to the first that is not below it.
    pub const fn bounds(self) -> &'static [u64] {
        match self {
            Self::Time => TIMES,
            Self::ShortTime => SHORT_TIMES,
            Self::Number => NUMBERS,
        }
    }
}

/// A histogram with fixed buckets.
#[derive(Debug)]
pub struct Spread {
    unit: Unit,
    /// One for each bound, and one for what is above the last.
    buckets: Box<[Counter]>,
    sum: AtomicU64,
}

impl Spread {
    /// An empty one.
    pub fn of(unit: Unit) -> Self {
        Self {
            unit,
            buckets: (0..=unit.bounds().len())
                .map(|_| Counter::default())
                .collect(),
            sum: AtomicU64::new(0),
        }
    }

    /// An empty one for times.
    pub fn of_time() -> Self {
        Self::of(Unit::Time)
    }

    /// Something took that long.
    pub fn took(&self, time: Duration) {
        self.add(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
    }

    /// There were that many.
    pub fn add(&self, value: u64) {
        let place = self.unit.bounds().partition_point(|bound| *bound < value);
        if let Some(bucket) = self.buckets.get(place) {
            bucket.one_more();
        }
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    /// How many values there were.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(Counter::count).sum()
    }

    /// What it holds now.
    pub fn read(&self) -> SpreadRead {
        let buckets: Vec<u64> = self.buckets.iter().map(Counter::count).collect();
        SpreadRead {
            count: buckets.iter().sum(),
            sum: self.sum.load(Ordering::Relaxed),
            buckets,
            unit: self.unit,
        }
    }
}

/// What a spread held when it was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SpreadRead {
    /// How many values there were.
    pub count: u64,
    /// Their sum, in microseconds where they are times.
    pub sum: u64,
    /// How many fell into each bucket: one for each bound, and one for what is above the last.
    pub buckets: Vec<u64>,
    #[serde(skip)]
    unit: Unit,
}

impl SpreadRead {
    /// The bounds of its buckets; the last bucket has none.
    pub const fn bounds(&self) -> &'static [u64] {
        self.unit.bounds()
    }

    /// What is counted.
    pub const fn unit(&self) -> Unit {
        self.unit
    }

    /// The bound that this share of the values does not pass (0.5 for the median); none without
    /// values, or if it lies above the last bound.
    pub fn bound_of(&self, share: f64) -> Option<u64> {
        let mut seen = 0_u64;
        for (bound, bucket) in self.bounds().iter().zip(&self.buckets) {
            seen = seen.saturating_add(*bucket);
            if seen > 0 && seen as f64 >= share * self.count as f64 {
                return Some(*bound);
            }
        }
        None
    }
}
