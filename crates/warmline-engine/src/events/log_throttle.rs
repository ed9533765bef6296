//! Limits repeated log lines: the same line at most once in ten seconds per server, with the number of
//! those that were suppressed (reliability O25).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use warmline_platform::clock::{self, Instant};
use warmline_platform::lock::Mutex;

/// The same line is not repeated for this long.
const REPEAT_INTERVAL: Duration = Duration::from_secs(10);
/// At most this many lines are tracked; words and servers are few.
const MAX_TRACKED_LINES: usize = 4_096;

/// The lines that were written lately.
#[derive(Debug, Default)]
pub(super) struct LogThrottle(Mutex<HashMap<RepeatKey, ThrottledLine>>);

/// A line: its server, its kind, and two words.
type RepeatKey = (Arc<str>, &'static str, [&'static str; 2]);

#[derive(Clone, Copy, Debug)]
struct ThrottledLine {
    written_at: Instant,
    suppressed: u64,
}

impl LogThrottle {
    /// The number of lines that were suppressed before this one; none if it is suppressed too, for it
    /// was written a moment ago.
    pub(super) fn check(&self, about: RepeatKey) -> Option<u64> {
        let now = clock::now();
        let mut known = self.0.lock();
        if known.len() >= MAX_TRACKED_LINES {
            known
                .retain(|_, told| now.saturating_duration_since(told.written_at) < REPEAT_INTERVAL);
        }
        match known.get_mut(&about) {
            Some(told) if now.saturating_duration_since(told.written_at) < REPEAT_INTERVAL => {
                told.suppressed += 1;
                None
            },
            Some(told) => {
                told.written_at = now;
                Some(std::mem::take(&mut told.suppressed))
            },
            None => {
                if known.len() < MAX_TRACKED_LINES {
                    let told = ThrottledLine {
                        written_at: now,
                        suppressed: 0,
                    };
                    known.insert(about, told);
                }
                Some(0)
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// reliability O25: the same once in ten seconds, with a count; another one at once.
    #[tokio::test(start_paused = true)]
    async fn what_happens_often_is_told_once_in_a_while() {
        let often = LogThrottle::default();
        let one = || (Arc::from("one"), "call-failed", ["unknown", "timeout"]);
        assert_eq!(often.check(one()), Some(0));
        for _ in 0..100 {
            assert_eq!(often.check(one()), None);
        }
        assert_eq!(
            often.check((Arc::from("two"), "call-failed", ["unknown", "timeout"])),
            Some(0)
        );
        clock::sleep(REPEAT_INTERVAL).await;
        assert_eq!(often.check(one()), Some(100));
        assert_eq!(often.check(one()), None);
    }
}
