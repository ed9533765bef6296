//! How long a server usually takes for an answer.
//!
//! Asked by: the decision about sending again, which must not begin what the time left cannot
//! cover (rule R2).  Told by: every call that was answered, with two atomic writes and no lock.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

/// So many of the last answers count. An odd number has one in its middle.
const LAST: usize = 31;
/// Fewer answers than this say nothing of what is usual.
const LEAST: usize = 5;

/// The times of a server's last answers.
#[derive(Debug, Default)]
pub(crate) struct AnswerTimes {
    /// In microseconds; none is zero, so that zero stands for an empty place.
    times: [AtomicU32; LAST],
    next: AtomicUsize,
}

impl AnswerTimes {
    /// An answer took that long.
    pub(crate) fn took(&self, time: Duration) {
        let micros = u32::try_from(time.as_micros()).unwrap_or(u32::MAX).max(1);
        let place = self.next.fetch_add(1, Ordering::Relaxed) % LAST;
        if let Some(slot) = self.times.get(place) {
            slot.store(micros, Ordering::Relaxed);
        }
    }

    /// The median of the last answers; zero while there are too few to tell.
    pub(crate) fn usual(&self) -> Duration {
        let read = self.times.iter().map(|time| time.load(Ordering::Relaxed));
        let mut known: Vec<u32> = read.filter(|micros| *micros > 0).collect();
        if known.len() < LEAST {
            return Duration::ZERO;
        }
        known.sort_unstable();
        let middle = known.get(known.len() / 2).copied().unwrap_or_default();
        Duration::from_micros(u64::from(middle))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// reliability R2: the median is measured, and follows a server that became slower.
    #[test]
    fn what_is_usual_is_the_median_of_the_last_answers() {
        let times = AnswerTimes::default();
        for known in [70, 10, 60, 20] {
            times.took(ms(known));
            assert_eq!(times.usual(), Duration::ZERO, "too few to tell");
        }
        times.took(ms(50_000));
        assert_eq!(times.usual(), ms(60), "one that is far off moves nothing");
        for _ in 0..LAST {
            times.took(ms(300));
        }
        assert_eq!(times.usual(), ms(300), "what was long ago is forgotten");
        for _ in 0..LAST {
            times.took(Duration::MAX);
        }
        assert_eq!(times.usual(), Duration::from_micros(u64::from(u32::MAX)));
        for _ in 0..LAST {
            times.took(Duration::ZERO);
        }
        assert_eq!(times.usual(), Duration::from_micros(1));
    }
}
