//! Streams that a client may resume with `Last-Event-ID`, also after their call is over.
//!
//! The store is bounded in time, number and bytes. The owner that holds most loses streams first.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use warmline_core::pool_key::Digest;
use warmline_platform::clock::{self, Instant};

use super::event_queue::EventQueue;

const RETAIN_FOR: Duration = Duration::from_secs(5 * 60);
/// The most streams of each kind. A GET stream that is read has a connection, and is not evicted.
const MAX_STREAMS: usize = 1_024;
pub(crate) const MAX_REPLAY_BYTES: usize = 64 << 20;
/// An eviction leaves this much, so that the next is not due at once.
const EVICT_DOWN_TO: usize = MAX_REPLAY_BYTES / 8 * 7;

#[derive(Debug, Default)]
pub(crate) struct ReplayStore {
    /// Locked before any queue.
    streams: Mutex<RetainedStreams>,
    bytes: AtomicUsize,
    /// Final responses that were evicted unread.
    undelivered: AtomicU64,
}

#[derive(Debug, Default)]
struct RetainedStreams {
    calls: StreamMap,
    get_streams: StreamMap,
}

type StreamMap = HashMap<ReplayKey, RetainedStream>;

pub(crate) type ReplayKey = (Digest, u64);

#[derive(Debug)]
struct RetainedStream {
    queue: Arc<EventQueue>,
    since: Instant,
    kind: ReplayStreamKind,
    /// The identity, across its client sessions.
    owner: Digest,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ReplayStreamKind {
    Call,
    GetStream,
}

/// A stream that may be evicted. Its owner loses the smallest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct EvictionCandidate {
    /// Whether it may still get events.
    is_open: bool,
    since: Instant,
    kind: ReplayStreamKind,
    key: ReplayKey,
    owner: Digest,
    weight: usize,
}

impl ReplayStore {
    pub(crate) fn retain(
        self: &Arc<Self>,
        owner: Digest,
        key: ReplayKey,
        queue: &Arc<EventQueue>,
        kind: ReplayStreamKind,
    ) {
        queue.set_store(self);
        let held = RetainedStream {
            queue: Arc::clone(queue),
            since: clock::now(),
            kind,
            owner,
        };
        let mut streams = self.streams.lock();
        if streams.of_kind(kind).len() >= MAX_STREAMS {
            self.evict_by_count(streams.of_kind(kind), kind);
        }
        streams.of_kind(kind).insert(key, held);
        drop(streams);
        self.evict_excess();
    }

    pub(crate) fn len(&self) -> usize {
        let streams = self.streams.lock();
        streams.calls.len() + streams.get_streams.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn find(&self, key: ReplayKey) -> Option<(Arc<EventQueue>, ReplayStreamKind)> {
        let streams = self.streams.lock();
        let found = streams.calls.get(&key);
        let found = found.or_else(|| streams.get_streams.get(&key))?;
        Some((Arc::clone(&found.queue), found.kind))
    }

    pub(crate) fn remove_session(&self, session: Digest) {
        let streams = &mut *self.streams.lock();
        for streams in [&mut streams.calls, &mut streams.get_streams] {
            for (_, held) in streams.extract_if(|(of, _), _| *of == session) {
                held.queue.release_store();
            }
        }
    }

    /// Evicts idle streams. Returns how many final responses were evicted unread since the last call.
    pub(crate) fn evict_expired(&self) -> u64 {
        let now = clock::now();
        let is_over = |held: &RetainedStream| {
            let resting = held.queue.idle_since();
            resting.is_some_and(|since| now.saturating_duration_since(since) >= RETAIN_FOR)
        };
        let streams = &mut *self.streams.lock();
        for streams in [&mut streams.calls, &mut streams.get_streams] {
            for (_, held) in streams.extract_if(|_, held| is_over(held)) {
                self.release(&held);
            }
        }
        self.undelivered.swap(0, Ordering::Relaxed)
    }

    /// Ends all GET streams: the gateway stops.
    pub(crate) fn end_get_streams(&self) {
        // Ending a queue takes the lock again.
        let open: Vec<_> = {
            let streams = self.streams.lock();
            let open = streams.get_streams.values();
            open.map(|held| Arc::clone(&held.queue)).collect()
        };
        for queue in open {
            queue.finish(None);
        }
    }

    fn release(&self, held: &RetainedStream) {
        if held.kind == ReplayStreamKind::Call && held.queue.is_abandoned_unread() {
            self.undelivered.fetch_add(1, Ordering::Relaxed);
        }
        held.queue.release_store();
    }

    /// Evicts an eighth of the streams of a kind, but no GET stream that is read.
    fn evict_by_count(&self, streams: &mut StreamMap, kind: ReplayStreamKind) {
        let spare = eviction_order(streams.iter(), |_| 1).into_iter();
        let spare = spare.filter(|one| kind == ReplayStreamKind::Call || !one.is_open);
        for one in spare.take(MAX_STREAMS / 8) {
            if let Some(held) = streams.remove(&one.key) {
                self.release(&held);
            }
        }
    }

    /// A queue grew. The caller holds its lock.
    pub(super) fn add_bytes(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// A queue shrank. The caller holds its lock.
    pub(super) fn remove_bytes(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Evicts streams until few enough bytes are left. The caller holds no queue's lock. A current reader
    /// still gets the rest.
    pub(super) fn evict_excess(&self) {
        if self.bytes() <= MAX_REPLAY_BYTES {
            return;
        }
        let mut streams = self.streams.lock();
        // Another thread may have evicted meanwhile.
        if self.bytes() <= MAX_REPLAY_BYTES {
            return;
        }
        let all = streams.calls.iter().chain(&streams.get_streams);
        for one in eviction_order(all, |held| held.queue.retained_bytes()) {
            if self.bytes() <= EVICT_DOWN_TO {
                return;
            }
            let streams = streams.of_kind(one.kind);
            if one.kind == ReplayStreamKind::GetStream && one.is_open {
                // `end_get_streams` must still find it.
                if let Some(held) = streams.get(&one.key) {
                    held.queue.drop_read_events();
                }
            } else if let Some(held) = streams.remove(&one.key) {
                self.release(&held);
            }
        }
    }
}

impl RetainedStreams {
    fn of_kind(&mut self, kind: ReplayStreamKind) -> &mut StreamMap {
        match kind {
            ReplayStreamKind::Call => &mut self.calls,
            ReplayStreamKind::GetStream => &mut self.get_streams,
        }
    }
}

/// The streams in the order of their eviction: always from the owner that has most left, idle ones
/// first, and of those the oldest.
fn eviction_order<'h>(
    held: impl Iterator<Item = (&'h ReplayKey, &'h RetainedStream)>,
    weigh: impl Fn(&RetainedStream) -> usize,
) -> Vec<EvictionCandidate> {
    let mut all: Vec<_> = held
        .map(|(place, held)| {
            let resting = held.queue.idle_since();
            EvictionCandidate {
                is_open: resting.is_none(),
                since: resting.unwrap_or(held.since),
                kind: held.kind,
                key: *place,
                owner: held.owner,
                weight: weigh(held),
            }
        })
        .filter(|one| one.weight > 0)
        .collect();
    all.sort_unstable();
    // The weight of each stream and of all that its owner would keep longer.
    let mut shares: HashMap<Digest, usize> = HashMap::new();
    let mut by_share: Vec<_> = all
        .into_iter()
        .rev()
        .map(|one| {
            let share = shares.entry(one.owner).or_default();
            *share = share.saturating_add(one.weight);
            (Reverse(*share), one)
        })
        .collect();
    by_share.sort_unstable();
    by_share.into_iter().map(|(_, one)| one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::response::stream::AcceptedFormats;

    const WHOSE: Digest = Digest::new([7; 16]);
    const OTHER: Digest = Digest::new([8; 16]);

    fn lane() -> Arc<EventQueue> {
        Arc::default()
    }

    fn hold(streams: &Arc<ReplayStore>, whose: Digest, stream: u64, queue: &Arc<EventQueue>) {
        streams.retain(whose, (whose, stream), queue, ReplayStreamKind::Call);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_is_held_for_a_while_after_its_end() {
        let streams = Arc::<ReplayStore>::default();
        let (open, over) = (lane(), lane());
        hold(&streams, WHOSE, 1, &open);
        hold(&streams, WHOSE, 2, &over);
        over.finish(None);
        for (later, is_held) in [(0, true), (299, true), (1, false)] {
            clock::sleep(Duration::from_secs(later)).await;
            streams.evict_expired();
            assert_eq!(streams.find((WHOSE, 2)).is_some(), is_held);
            assert!(streams.find((WHOSE, 1)).is_some());
            assert!(streams.find((OTHER, 1)).is_none());
        }
        streams.remove_session(WHOSE);
        assert!(streams.find((WHOSE, 1)).is_none());
    }

    /// reliability 8.3: a server that answers everything with large streams does not fill the memory,
    /// not even until somebody looks. A reader gets all of it.
    #[tokio::test(start_paused = true)]
    async fn what_is_held_is_bounded_at_all_times() {
        let streams = Arc::<ReplayStore>::default();
        let large = bytes::Bytes::from(vec![b'x'; MAX_REPLAY_BYTES / 5]);
        let open = lane();
        hold(&streams, WHOSE, 0, &open);
        open.push_droppable("{}".into());
        for stream in 1..=60 {
            let over = lane();
            let reader = over.attach_reader(AcceptedFormats::Both);
            // Nothing is known of its weight when it is held.
            hold(&streams, WHOSE, stream, &over);
            over.finish(Some(large.clone()));
            let held: usize = {
                let held = streams.streams.lock();
                let held = held.calls.values();
                held.map(|one| one.queue.retained_bytes()).sum()
            };
            assert_eq!(streams.bytes(), held);
            assert!(held <= MAX_REPLAY_BYTES, "{held} after {stream}");
            assert_eq!(over.retained_bytes(), large.len(), "somebody reads it");
            over.detach_reader(reader);
            clock::sleep(Duration::from_millis(1)).await;
        }
        assert!(
            streams.find((WHOSE, 0)).is_some(),
            "something may come on it"
        );
        assert!(streams.find((WHOSE, 1)).is_none());
        assert!(streams.find((WHOSE, 60)).is_some());
        assert!(
            streams.evict_expired() >= 50,
            "they are counted as not taken"
        );
        streams.remove_session(WHOSE);
        assert_eq!(streams.bytes(), 0);
    }

    /// What alone is more than may be held is for who reads it now.
    #[test]
    fn an_end_that_is_too_large_is_read_and_not_held() {
        let streams = Arc::<ReplayStore>::default();
        let queue = lane();
        let reader = queue.attach_reader(AcceptedFormats::Both);
        hold(&streams, WHOSE, 1, &queue);
        queue.finish(Some(vec![b'x'; MAX_REPLAY_BYTES + 1].into()));
        assert_eq!((streams.len(), streams.bytes()), (0, 0));
        assert_eq!(queue.retained_bytes(), MAX_REPLAY_BYTES + 1);
        queue.detach_reader(reader);
        assert_eq!(queue.retained_bytes(), 0);
    }

    /// A session that streams much evicts its own streams, in number and in bytes, and no others.
    #[tokio::test(start_paused = true)]
    async fn where_there_is_too_much_those_lose_who_hold_most() {
        for weight in [1, MAX_REPLAY_BYTES / 16] {
            let streams = Arc::<ReplayStore>::default();
            let message = bytes::Bytes::from(vec![b'x'; weight]);
            let over = |whose, stream| {
                let queue = lane();
                hold(&streams, whose, stream, &queue);
                queue.finish(Some(message.clone()));
            };
            over(OTHER, 1);
            for stream in 1..=1_100 {
                clock::sleep(Duration::from_millis(1)).await;
                over(WHOSE, stream);
            }
            assert!(streams.len() <= MAX_STREAMS);
            assert!(streams.find((OTHER, 1)).is_some(), "{weight}");
            assert!(streams.find((WHOSE, 1)).is_none());
            assert!(streams.find((WHOSE, 1_100)).is_some());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn where_there_are_too_many_those_that_rest_go_first() {
        let streams = Arc::<ReplayStore>::default();
        let lanes: Vec<_> = (0..).map(|_| lane()).take(MAX_STREAMS).collect();
        for (stream, queue) in (0..).zip(&lanes) {
            hold(&streams, WHOSE, stream, queue);
            clock::sleep(Duration::from_millis(1)).await;
        }
        lanes[MAX_STREAMS - 1].finish(None);
        hold(&streams, WHOSE, 10_000, &lane());
        assert!(streams.len() <= MAX_STREAMS);
        assert!(streams.find((WHOSE, 0)).is_none());
        assert!(streams.find((WHOSE, MAX_STREAMS as u64 - 1)).is_none());
        assert!(streams.find((WHOSE, MAX_STREAMS as u64 - 2)).is_some());
        assert!(streams.find((WHOSE, 10_000)).is_some());
    }
}
