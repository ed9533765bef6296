//! Numbers that many tasks write at once: counters, levels, and one number per word of a set.
//!
//! Asked by: `snapshot.rs`.  Told by: the engine, with one atomic addition each and no lock.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::ClosedSet;
use crate::clock::{self, Instant};

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// One more.
    pub fn one_more(&self) {
        self.more(1);
    }

    /// That many more.
    pub fn more(&self, number: u64) {
        self.0.fetch_add(number, Ordering::Relaxed);
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A number that goes up and down, and never below zero.
#[derive(Debug, Default)]
pub struct Level(AtomicU64);

impl Level {
    /// One more.
    pub fn up(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// One less. Says whether there was one: a level that is asked to go below zero stays there,
    /// and somebody counted wrongly.
    pub fn down(&self) -> bool {
        self.0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |level| {
                level.checked_sub(1)
            })
            .is_ok()
    }

    /// What it is now, said by somebody who counted.
    pub fn set(&self, level: u64) {
        self.0.store(level, Ordering::Relaxed);
    }

    /// What it is now.
    pub fn level(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// When something last happened, if it ever did.
#[derive(Debug)]
pub struct LastTime {
    born: Instant,
    /// Milliseconds since then, and one; 0 if it never happened.
    at: AtomicU64,
}

impl Default for LastTime {
    fn default() -> Self {
        Self {
            born: clock::now(),
            at: AtomicU64::new(0),
        }
    }
}

impl LastTime {
    /// It happens now.
    pub fn is_now(&self) {
        let at = self.age_ms().saturating_add(1);
        self.at.store(at, Ordering::Relaxed);
    }

    /// Whether it happened within that time.
    pub fn was_within(&self, time: Duration) -> bool {
        let at = self.at.load(Ordering::Relaxed);
        let since = self.age_ms().saturating_add(1).saturating_sub(at);
        at > 0 && Duration::from_millis(since) < time
    }

    fn age_ms(&self) -> u64 {
        let age = clock::now().saturating_duration_since(self.born);
        u64::try_from(age.as_millis()).unwrap_or(u64::MAX)
    }
}

/// One counter for each word of a set.
#[derive(Debug)]
pub struct CountBy<W> {
    counters: Box<[Counter]>,
    words: PhantomData<W>,
}

impl<W: ClosedSet> Default for CountBy<W> {
    fn default() -> Self {
        Self {
            counters: W::ALL.iter().map(|_| Counter::default()).collect(),
            words: PhantomData,
        }
    }
}

impl<W: ClosedSet> CountBy<W> {
    /// One more of these.
    pub fn one_more(&self, word: W) {
        if let Some(counter) = self.counters.get(word.place()) {
            counter.one_more();
        }
    }

    /// How many of these there were.
    pub fn count(&self, word: W) -> u64 {
        self.counters.get(word.place()).map_or(0, Counter::count)
    }

    /// How many there were of all of them.
    pub fn total(&self) -> u64 {
        self.counters.iter().map(Counter::count).sum()
    }
}

/// One counter for each pair of words of two sets.
#[derive(Debug)]
pub struct CountByTwo<V, W> {
    rows: Box<[CountBy<W>]>,
    words: PhantomData<V>,
}

impl<V: ClosedSet, W: ClosedSet> Default for CountByTwo<V, W> {
    fn default() -> Self {
        Self {
            rows: V::ALL.iter().map(|_| CountBy::default()).collect(),
            words: PhantomData,
        }
    }
}

impl<V: ClosedSet, W: ClosedSet> CountByTwo<V, W> {
    /// One more of these.
    pub fn one_more(&self, first: V, second: W) {
        if let Some(row) = self.rows.get(first.place()) {
            row.one_more(second);
        }
    }

    /// How many of these there were.
    pub fn count(&self, first: V, second: W) -> u64 {
        self.rows
            .get(first.place())
            .map_or(0, |row| row.count(second))
    }

    /// How many had this first word.
    pub fn count_of(&self, first: V) -> u64 {
        self.rows.get(first.place()).map_or(0, CountBy::total)
    }

    /// How many there were of all of them.
    pub fn total(&self) -> u64 {
        self.rows.iter().map(CountBy::total).sum()
    }
}

/// One level for each word of a set.
#[derive(Debug)]
pub struct LevelBy<W> {
    levels: Box<[Level]>,
    words: PhantomData<W>,
}

impl<W: ClosedSet> Default for LevelBy<W> {
    fn default() -> Self {
        Self {
            levels: W::ALL.iter().map(|_| Level::default()).collect(),
            words: PhantomData,
        }
    }
}

impl<W: ClosedSet> LevelBy<W> {
    /// One left the first word for the second; none stands for outside. Says whether the level it
    /// left held it.
    pub fn moved(&self, from: Option<W>, to: Option<W>) -> bool {
        if let Some(level) = to.and_then(|word| self.levels.get(word.place())) {
            level.up();
        }
        from.and_then(|word| self.levels.get(word.place()))
            .is_none_or(Level::down)
    }

    /// What a level is now, said by somebody who counted.
    pub fn set(&self, word: W, level: u64) {
        if let Some(kept) = self.levels.get(word.place()) {
            kept.set(level);
        }
    }

    /// What a level is now.
    pub fn level(&self, word: W) -> u64 {
        self.levels.get(word.place()).map_or(0, Level::level)
    }
}
