//! How long a server usually takes to answer (rule R2: no resend begins that the time left cannot
//! cover). Each answer costs two atomic writes and no lock.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

/// The number of answers that count; odd, so that one is in the middle.
const WINDOW: usize = 31;
/// Fewer answers say nothing about the usual time.
const MIN_SAMPLES: usize = 5;

#[derive(Debug, Default)]
pub(crate) struct LatencyWindow {
    /// In microseconds; zero is an empty place.
    samples: [AtomicU32; WINDOW],
    next: AtomicUsize,
}

impl LatencyWindow {
    pub(crate) fn record(&self, time: Duration) {
        let micros = u32::try_from(time.as_micros()).unwrap_or(u32::MAX).max(1);
        let place = self.next.fetch_add(1, Ordering::Relaxed) % WINDOW;
        if let Some(slot) = self.samples.get(place) {
            slot.store(micros, Ordering::Relaxed);
        }
    }

    /// The median of the last answers; zero while there are too few.
    pub(crate) fn median(&self) -> Duration {
        let read = self.samples.iter().map(|time| time.load(Ordering::Relaxed));
        let mut known: Vec<u32> = read.filter(|micros| *micros > 0).collect();
        if known.len() < MIN_SAMPLES {
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
        let times = LatencyWindow::default();
        for known in [70, 10, 60, 20] {
            times.record(ms(known));
            assert_eq!(times.median(), Duration::ZERO, "too few to tell");
        }
        times.record(ms(50_000));
        assert_eq!(times.median(), ms(60), "one that is far off moves nothing");
        for _ in 0..WINDOW {
            times.record(ms(300));
        }
        assert_eq!(times.median(), ms(300), "what was long ago is forgotten");
        for _ in 0..WINDOW {
            times.record(Duration::MAX);
        }
        assert_eq!(times.median(), Duration::from_micros(u64::from(u32::MAX)));
        for _ in 0..WINDOW {
            times.record(Duration::ZERO);
        }
        assert_eq!(times.median(), Duration::from_micros(1));
    }
}
