//! What happens often is told once in a while: the same line at most once in ten seconds for each
//! server, with how often it was meanwhile (reliability O25).
//!
//! Asked by: the log, for lines that callers can cause as often as they like.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::{self, Instant};
use crate::sync::Mutex;

/// So long the same line is not repeated.
const QUIET: Duration = Duration::from_secs(10);
/// So many lines are told apart; words and servers are few.
const MAX_KNOWN: usize = 4_096;

/// Lines that were told lately.
#[derive(Debug, Default)]
pub(super) struct Often(Mutex<HashMap<About, Told>>);

/// What a line is about: its server, and two words.
type About = (Arc<str>, &'static str, &'static str);

#[derive(Clone, Copy, Debug)]
struct Told {
    since: Instant,
    unsaid: u64,
}

/// Whether a line is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// Yes, and so many were not told before it.
    After(u64),
    /// No: it was told a moment ago.
    Not,
}

impl Often {
    /// Something happened once more.
    pub(super) fn again(&self, about: About) -> Due {
        let now = clock::now();
        let mut known = self.0.lock();
        if known.len() >= MAX_KNOWN {
            known.retain(|_, told| now.saturating_duration_since(told.since) < QUIET);
        }
        match known.get_mut(&about) {
            Some(told) if now.saturating_duration_since(told.since) < QUIET => {
                told.unsaid += 1;
                Due::Not
            },
            Some(told) => {
                let unsaid = std::mem::take(&mut told.unsaid);
                told.since = now;
                Due::After(unsaid)
            },
            None => {
                if known.len() < MAX_KNOWN {
                    let told = Told {
                        since: now,
                        unsaid: 0,
                    };
                    known.insert(about, told);
                }
                Due::After(0)
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
        let often = Often::default();
        let one = || (Arc::from("one"), "unknown", "timeout");
        assert_eq!(often.again(one()), Due::After(0));
        for _ in 0..100 {
            assert_eq!(often.again(one()), Due::Not);
        }
        assert_eq!(
            often.again((Arc::from("two"), "unknown", "timeout")),
            Due::After(0)
        );
        clock::sleep(QUIET).await;
        assert_eq!(often.again(one()), Due::After(100));
        assert_eq!(often.again(one()), Due::Not);
    }
}
