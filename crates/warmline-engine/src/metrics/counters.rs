//! Numbers that many tasks write at once: counters, gauges and histograms with fixed buckets. Writing
//! one takes an atomic addition or two, and no lock.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::Serialize;

use super::WordEnum;
use super::definitions::{MetricKind, Sampled};
use super::snapshot::{MetricSample, SampleValue};
use warmline_platform::clock::{self, Instant};

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds one.
    pub fn increment(&self) {
        self.add(1);
    }

    /// Adds a number.
    pub fn add(&self, number: u64) {
        self.0.fetch_add(number, Ordering::Relaxed);
    }

    /// Its value.
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A number that goes up and down, and never below zero.
#[derive(Debug, Default)]
pub struct Gauge(AtomicU64);

impl Gauge {
    /// Adds one.
    pub fn increment(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Subtracts one; false if it is zero, which means that something counted wrongly.
    pub fn decrement(&self) -> bool {
        self.0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |level| {
                level.checked_sub(1)
            })
            .is_ok()
    }

    /// Sets its value.
    pub fn set(&self, level: u64) {
        self.0.store(level, Ordering::Relaxed);
    }

    /// Its value.
    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// When something last happened, if it ever did.
#[derive(Debug)]
pub struct LastOccurrence {
    created_at: Instant,
    /// Milliseconds from creation to then, plus one; 0 if it never happened.
    last_ms: AtomicU64,
}

impl Default for LastOccurrence {
    fn default() -> Self {
        Self {
            created_at: clock::now(),
            last_ms: AtomicU64::new(0),
        }
    }
}

impl LastOccurrence {
    /// It happens now.
    pub fn record_now(&self) {
        let at = self.age_ms().saturating_add(1);
        self.last_ms.store(at, Ordering::Relaxed);
    }

    /// Whether it happened within that time.
    pub fn occurred_within(&self, time: Duration) -> bool {
        let at = self.last_ms.load(Ordering::Relaxed);
        let since = self.age_ms().saturating_add(1).saturating_sub(at);
        at > 0 && Duration::from_millis(since) < time
    }

    fn age_ms(&self) -> u64 {
        let age = clock::now().saturating_duration_since(self.created_at);
        u64::try_from(age.as_millis()).unwrap_or(u64::MAX)
    }
}

/// One number for each member of a closed set.
#[derive(Debug)]
pub struct Labeled<N, W> {
    numbers: Box<[N]>,
    words: PhantomData<W>,
}

/// One counter for each member of a set.
pub type LabeledCounter<W> = Labeled<Counter, W>;
/// One gauge for each member of a set.
pub type LabeledGauge<W> = Labeled<Gauge, W>;
/// One counter for each pair of members of two sets.
pub type TwoLabelCounter<V, W> = Labeled<Labeled<Counter, W>, V>;
/// One gauge for each pair of members of two sets.
pub type TwoLabelGauge<V, W> = Labeled<Labeled<Gauge, W>, V>;

impl<N: Default, W: WordEnum> Default for Labeled<N, W> {
    fn default() -> Self {
        Self {
            numbers: W::ALL.iter().map(|_| N::default()).collect(),
            words: PhantomData,
        }
    }
}

impl<N, W: WordEnum> Labeled<N, W> {
    fn of(&self, word: W) -> Option<&N> {
        self.numbers.get(word.index())
    }
}

impl<W: WordEnum> LabeledCounter<W> {
    /// Adds one.
    pub fn increment(&self, word: W) {
        if let Some(counter) = self.of(word) {
            counter.increment();
        }
    }

    /// The value of one label.
    pub fn count(&self, word: W) -> u64 {
        self.of(word).map_or(0, Counter::count)
    }

    /// The sum over all labels.
    pub fn total(&self) -> u64 {
        self.numbers.iter().map(Counter::count).sum()
    }
}

impl<V: WordEnum, W: WordEnum> TwoLabelCounter<V, W> {
    /// Adds one.
    pub fn increment(&self, first: V, second: W) {
        if let Some(row) = self.of(first) {
            row.increment(second);
        }
    }

    /// The value of one pair.
    pub fn count(&self, first: V, second: W) -> u64 {
        self.of(first).map_or(0, |row| row.count(second))
    }

    /// The sum over all pairs.
    pub fn total(&self) -> u64 {
        self.numbers.iter().map(LabeledCounter::total).sum()
    }
}

impl<W: WordEnum> LabeledGauge<W> {
    /// Sets the value of one label.
    pub fn set(&self, word: W, level: u64) {
        if let Some(gauge) = self.of(word) {
            gauge.set(level);
        }
    }
}

impl<V: WordEnum, W: WordEnum> TwoLabelGauge<V, W> {
    /// Sets the value of one pair.
    pub fn set(&self, first: V, second: W, level: u64) {
        if let Some(row) = self.of(first) {
            row.set(second, level);
        }
    }
}

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

impl Sampled for Counter {
    const KIND: MetricKind = MetricKind::Counter;

    /// A counter with labels appears once it was counted.
    fn push_samples(&self, name: &'static str, words: &[&'static str], to: &mut Vec<MetricSample>) {
        let count = self.count();
        if count > 0 || words.is_empty() {
            to.push(MetricSample::new(name, words, SampleValue::Count(count)));
        }
    }
}

impl Sampled for Gauge {
    const KIND: MetricKind = MetricKind::Gauge;

    fn push_samples(&self, name: &'static str, words: &[&'static str], to: &mut Vec<MetricSample>) {
        let value = SampleValue::Count(self.value());
        to.push(MetricSample::new(name, words, value));
    }
}

impl Sampled for Histogram {
    const KIND: MetricKind = MetricKind::Histogram;

    fn push_samples(&self, name: &'static str, words: &[&'static str], to: &mut Vec<MetricSample>) {
        let value = SampleValue::Histogram(self.snapshot());
        to.push(MetricSample::new(name, words, value));
    }
}

impl<N: Sampled, W: WordEnum> Sampled for Labeled<N, W> {
    const KIND: MetricKind = N::KIND;

    fn push_samples(&self, name: &'static str, words: &[&'static str], to: &mut Vec<MetricSample>) {
        for (word, number) in W::ALL.iter().zip(&self.numbers) {
            let words: Vec<_> = words.iter().copied().chain([word.as_str()]).collect();
            number.push_samples(name, &words, to);
        }
    }
}
