//! Streams that a client may come back to with `Last-Event-ID`, also when their call is over.
//!
//! Told by: the legacy face, when a response becomes a stream.  Bounded in time, in number and in
//! bytes: of each by the [`lane`](crate::lane), of all of them here.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use papaya::HashMap;
use warmline::clock::{self, Instant};
use warmline::core::key::Digest;

use crate::lane::Lane;

/// So long a stream is held that nobody reads and on which nothing comes any more.
const HELD_FOR: Duration = Duration::from_secs(5 * 60);
/// So many are held in all.
const MAX_HELD: usize = 1_024;
/// And so many bytes. An answer can be large, and a server may send all of them as streams.
const MAX_BYTES: usize = 64 << 20;
/// They are weighed when so many more were held.
const WEIGHED_EVERY: u64 = 64;

/// The streams that are held.
#[derive(Debug, Default)]
pub(super) struct Streams {
    held: HashMap<Place, Held>,
    /// How many were ever held.
    count: AtomicU64,
}

/// Whose stream it is, and which.
type Place = (Digest, u64);

#[derive(Clone, Debug)]
struct Held {
    lane: Arc<Lane>,
    since: Instant,
    kind: Kind,
}

/// What a stream is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The answer to a call.
    Call,
    /// What belongs to no call.
    Standing,
}

impl Streams {
    /// Holds a stream of a client.
    pub(super) fn hold(&self, whose: Digest, stream: u64, lane: &Arc<Lane>, kind: Kind) {
        let held = self.held.pin();
        if held.len() >= MAX_HELD {
            self.make_room();
        }
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        if count.is_multiple_of(WEIGHED_EVERY) {
            self.grow_lighter();
        }
        let lane = Arc::clone(lane);
        let since = clock::now();
        held.insert((whose, stream), Held { lane, since, kind });
    }

    /// How many are held.
    pub(super) fn len(&self) -> usize {
        self.held.pin().len()
    }

    /// The stream of that number, while it is held.
    pub(super) fn find(&self, whose: Digest, stream: u64) -> Option<(Arc<Lane>, Kind)> {
        let held = self.held.pin();
        let found = held.get(&(whose, stream))?;
        Some((Arc::clone(&found.lane), found.kind))
    }

    /// A client session is over, and nobody comes back to its streams.
    pub(super) fn forget(&self, whose: Digest) {
        self.held.pin().retain(|(of, _), _| *of != whose);
    }

    /// Forgets streams that nobody came back for, and says on how many of them an end of a call
    /// was left.
    pub(super) fn look(&self) -> u64 {
        let mut untaken = 0;
        let now = clock::now();
        let is_wanted = |held: &Held| {
            let resting = held.lane.resting();
            resting.is_none_or(|since| now.saturating_duration_since(since) < HELD_FOR)
        };
        self.held.pin().retain(|_, held| {
            let is_wanted = is_wanted(held);
            if !is_wanted && held.kind == Kind::Call && held.lane.has_unread() {
                untaken += 1;
            }
            is_wanted
        });
        untaken
    }

    /// Nothing new is taken any more: what stands for ever ends.
    pub(super) fn end_standing(&self) {
        for (_, held) in &self.held.pin() {
            if held.kind == Kind::Standing {
                held.lane.end(None);
            }
        }
    }

    /// Forgets an eighth: those that rest first, then the oldest.
    fn make_room(&self) {
        let held = self.held.pin();
        for (_, _, place) in self.by_age().iter().take(MAX_HELD / 8) {
            held.remove(place);
        }
    }

    /// Forgets what is too much in bytes, of those on which nothing comes any more.
    fn grow_lighter(&self) {
        let held = self.held.pin();
        let mut bytes: usize = held.values().map(|held| held.lane.bytes()).sum();
        if bytes <= MAX_BYTES {
            return;
        }
        for (comes, _, place) in self.by_age() {
            if comes || bytes <= MAX_BYTES {
                break;
            }
            let gone = held.remove(&place).map(|held| held.lane.bytes());
            bytes = bytes.saturating_sub(gone.unwrap_or(0));
        }
    }

    /// All places, those that rest first, the oldest first.
    fn by_age(&self) -> Vec<(bool, Instant, Place)> {
        let held = self.held.pin();
        let mut by_age: Vec<_> = held
            .iter()
            .map(|(place, held)| {
                let resting = held.lane.resting();
                (resting.is_none(), resting.unwrap_or(held.since), *place)
            })
            .collect();
        by_age.sort_unstable();
        by_age
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lane::Keep;

    const WHOSE: Digest = Digest::new([7; 16]);

    fn lane() -> Arc<Lane> {
        Arc::new(Lane::new(Keep::Written))
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_is_held_for_a_while_after_its_end() {
        let streams = Streams::default();
        let (open, over) = (lane(), lane());
        streams.hold(WHOSE, 1, &open, Kind::Call);
        streams.hold(WHOSE, 2, &over, Kind::Call);
        over.end(None);
        for (later, is_held) in [(0, true), (299, true), (1, false)] {
            clock::sleep(Duration::from_secs(later)).await;
            streams.look();
            assert_eq!(streams.find(WHOSE, 2).is_some(), is_held);
            assert!(streams.find(WHOSE, 1).is_some());
            assert!(streams.find(Digest::new([8; 16]), 1).is_none());
        }
        streams.forget(WHOSE);
        assert!(streams.find(WHOSE, 1).is_none());
    }

    /// A server that answers everything with large streams does not fill the memory.
    #[tokio::test(start_paused = true)]
    async fn where_they_are_too_heavy_the_oldest_that_rest_go() {
        let streams = Streams::default();
        let large = bytes::Bytes::from(vec![b'x'; MAX_BYTES / 16]);
        let open = lane();
        open.tell("{}".into());
        streams.hold(WHOSE, 0, &open, Kind::Call);
        for stream in 1..=WEIGHED_EVERY {
            let over = lane();
            streams.hold(WHOSE, stream, &over, Kind::Call);
            over.end(Some(large.clone()));
            clock::sleep(Duration::from_millis(1)).await;
        }
        streams.grow_lighter();
        let bytes: usize = streams
            .held
            .pin()
            .values()
            .map(|one| one.lane.bytes())
            .sum();
        assert!(bytes <= MAX_BYTES, "{bytes}");
        assert!(streams.find(WHOSE, 0).is_some(), "something may come on it");
        assert!(streams.find(WHOSE, 1).is_none());
        assert!(streams.find(WHOSE, WEIGHED_EVERY).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn where_there_are_too_many_those_that_rest_go_first() {
        let streams = Streams::default();
        let lanes: Vec<_> = (0..).map(|_| lane()).take(MAX_HELD).collect();
        for (stream, lane) in (0..).zip(&lanes) {
            streams.hold(WHOSE, stream, lane, Kind::Call);
            clock::sleep(Duration::from_millis(1)).await;
        }
        lanes[MAX_HELD - 1].end(None);
        streams.hold(WHOSE, 10_000, &lane(), Kind::Call);
        assert!(streams.held.pin().len() <= MAX_HELD);
        assert!(streams.find(WHOSE, 0).is_none());
        assert!(streams.find(WHOSE, MAX_HELD as u64 - 1).is_none());
        assert!(streams.find(WHOSE, MAX_HELD as u64 - 2).is_some());
        assert!(streams.find(WHOSE, 10_000).is_some());
    }
}
