//! Histograms with fixed buckets, written with two atomic additions and no lock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::Serialize;

use super::counters::Counter;

/// Bounds of time, in microseconds: from what a warm call adds to the longest call there is.
const TIME_BOUNDS: &[u64] = &[
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

/// Bounds for short times, in microseconds: our own share of a call.
const SHORT_TIME_BOUNDS: &[u64] = &[
    10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 100_000, 1_000_000,
];

/// Bounds of small numbers: sessions of a run.
const COUNT_BOUNDS: &[u64] = &[0, 1, 2, 3, 4, 6, 8, 12, 16, 32, 64, 128];

/// What a histogram counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HistogramUnit {
    /// Microseconds; shown as seconds.
    Time,
    /// The same, in finer buckets.
    ShortTime,
    /// Things.
    Count,
}

impl HistogramUnit {
    /// Its bounds: a value belongs to the first that is not smaller.
    pub const fn bounds(self) -> &'static [u64] {
        match self {
            Self::Time => TIME_BOUNDS,
            Self::ShortTime => SHORT_TIME_BOUNDS,
            Self::Count => COUNT_BOUNDS,
        }
    }
}

/// A histogram with fixed buckets.
#[derive(Debug)]
pub struct Histogram {
    unit: HistogramUnit,
    /// One per bound, and one above the last bound.
    buckets: Box<[Counter]>,
    sum: AtomicU64,
}

/// An empty histogram of times.
impl Default for Histogram {
    fn default() -> Self {
        Self::new(HistogramUnit::Time)
    }
}

impl Histogram {
    /// An empty one.
    pub fn new(unit: HistogramUnit) -> Self {
        Self {
            unit,
            buckets: (0..=unit.bounds().len())
                .map(|_| Counter::default())
                .collect(),
            sum: AtomicU64::new(0),
        }
    }

    /// Records a time.
    pub fn record_time(&self, time: Duration) {
        self.record(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
    }

    /// Records a value.
    pub fn record(&self, value: u64) {
        let place = self.unit.bounds().partition_point(|bound| *bound < value);
        if let Some(bucket) = self.buckets.get(place) {
            bucket.increment();
        }
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    /// How many values there were.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(Counter::count).sum()
    }

    /// Its contents now.
    pub fn snapshot(&self) -> HistogramSnapshot {
        let buckets: Vec<u64> = self.buckets.iter().map(Counter::count).collect();
        HistogramSnapshot {
            count: buckets.iter().sum(),
            sum: self.sum.load(Ordering::Relaxed),
            buckets,
            unit: self.unit,
        }
    }
}

/// The contents of a histogram at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct HistogramSnapshot {
    /// How many values there were.
    pub count: u64,
    /// Their sum, in microseconds where they are times.
    pub sum: u64,
    /// The number of values in each bucket: one per bound, and one above the last bound.
    pub buckets: Vec<u64>,
    #[serde(skip)]
    unit: HistogramUnit,
}

impl HistogramSnapshot {
    /// The bounds of its buckets; the last bucket has none.
    pub const fn bounds(&self) -> &'static [u64] {
        self.unit.bounds()
    }

    /// Its unit.
    pub const fn unit(&self) -> HistogramUnit {
        self.unit
    }

    /// The bound that this share of the values does not exceed (0.5 for the median); none without
    /// values, or if it lies above the last bound.
    pub fn quantile_bound(&self, share: f64) -> Option<u64> {
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
