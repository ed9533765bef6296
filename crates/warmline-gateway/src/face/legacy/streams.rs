//! Streams that a client may come back to with `Last-Event-ID`, also when their call is over.
//!
//! Told by: the legacy face, when a response becomes a stream, and every [`lane`](crate::lane) that
//! is held, whenever something is put into it.  Bounded in time, in number and in bytes. Where there
//! is too much, those go first who hold most.

use std::cmp::Reverse;
use std::collections::HashMap as Shares;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use papaya::HashMap;
use parking_lot::Mutex;
use warmline::clock::{self, Instant};
use warmline::core::key::Digest;

use crate::lane::{Holder, Lane, Load};

/// So long a stream is held that nobody reads and on which nothing comes any more.
const HELD_FOR: Duration = Duration::from_secs(5 * 60);
/// So many are held in all, beside standing streams that are read: each of these has a connection.
const MAX_HELD: usize = 1_024;
/// And so many bytes. An answer can be large, and a server may send all of them as streams.
pub(crate) const MAX_BYTES: usize = 64 << 20;
/// Where they are too heavy, so much is left, so that they are not weighed again at once.
const LIGHT: usize = MAX_BYTES / 8 * 7;

/// The streams that are held.
#[derive(Debug, Default)]
pub(super) struct Streams(Arc<Store>);

#[derive(Debug, Default)]
struct Store {
    calls: HashMap<Place, Held>,
    standing: HashMap<Place, Held>,
    /// What all of them weigh.
    bytes: AtomicUsize,
    /// Ends of calls that were let go before anybody took them.
    untaken: AtomicU64,
    /// One at a time makes room.
    making_room: Mutex<()>,
}

/// Of which client session it is, and which.
type Place = (Digest, u64);

#[derive(Clone, Debug)]
struct Held {
    lane: Arc<Lane>,
    since: Instant,
    kind: Kind,
    /// Who it is held for: of all client sessions together.
    owner: Digest,
}

/// What a stream is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// The answer to a call.
    Call,
    /// What belongs to no call.
    Standing,
}

/// Something that may go, in the order in which its owner loses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Spare {
    /// Whether something may still come on it.
    comes: bool,
    since: Instant,
    kind: Kind,
    place: Place,
    owner: Digest,
    weight: usize,
}

impl Streams {
    /// Holds a stream of a client.
    pub(super) fn hold(&self, owner: Digest, place: Place, lane: &Arc<Lane>, kind: Kind) {
        let store = &self.0;
        if store.shelf(kind).pin().len() >= MAX_HELD {
            store.make_room(kind);
        }
        let weak = Arc::downgrade(store);
        lane.held_by(weak);
        let held = Held {
            lane: Arc::clone(lane),
            since: clock::now(),
            kind,
            owner,
        };
        store.shelf(kind).pin().insert(place, held);
        store.lighten();
    }

    /// How many are held.
    pub(super) fn len(&self) -> usize {
        self.0.calls.pin().len() + self.0.standing.pin().len()
    }

    /// What they weigh.
    pub(super) fn bytes(&self) -> usize {
        self.0.bytes.load(Ordering::Relaxed)
    }

    /// The stream of that number, while it is held.
    pub(super) fn find(&self, whose: Digest, stream: u64) -> Option<(Arc<Lane>, Kind)> {
        [Kind::Call, Kind::Standing].into_iter().find_map(|kind| {
            let shelf = self.0.shelf(kind).pin();
            let found = shelf.get(&(whose, stream))?;
            Some((Arc::clone(&found.lane), kind))
        })
    }

    /// A client session is over, and nobody comes back to its streams.
    pub(super) fn forget(&self, whose: Digest) {
        for held in self.0.remove_where(|(of, _), _| *of == whose) {
            held.lane.let_go();
        }
    }

    /// Forgets streams that nobody came back for, and says how many ends of calls were left on
    /// those that are gone by now.
    pub(super) fn look(&self) -> u64 {
        let now = clock::now();
        let is_over = |held: &Held| {
            let resting = held.lane.resting();
            resting.is_some_and(|since| now.saturating_duration_since(since) >= HELD_FOR)
        };
        for held in self.0.remove_where(|_, held| is_over(held)) {
            self.0.let_go(&held);
        }
        self.0.untaken.swap(0, Ordering::Relaxed)
    }

    /// Nothing new is taken any more: what stands for ever ends.
    pub(super) fn end_standing(&self) {
        for (_, held) in &self.0.standing.pin() {
            held.lane.end(None);
        }
    }
}

impl Store {
    const fn shelf(&self, kind: Kind) -> &HashMap<Place, Held> {
        match kind {
            Kind::Call => &self.calls,
            Kind::Standing => &self.standing,
        }
    }

    fn remove_where(&self, goes: impl Fn(&Place, &Held) -> bool) -> Vec<Held> {
        let mut gone = Vec::new();
        for shelf in [self.calls.pin(), self.standing.pin()] {
            let places: Vec<_> = shelf
                .iter()
                .filter(|(place, held)| goes(place, held))
                .collect();
            let removed = places.iter().filter_map(|(place, _)| shelf.remove(*place));
            gone.extend(removed.cloned());
        }
        gone
    }

    fn let_go(&self, held: &Held) {
        if held.kind == Kind::Call && held.lane.is_left_unread() {
            self.untaken.fetch_add(1, Ordering::Relaxed);
        }
        held.lane.let_go();
    }

    /// Lets an eighth go. A standing stream that is read is no burden: it has its connection.
    fn make_room(&self, kind: Kind) {
        let _alone = self.making_room.lock();
        let shelf = self.shelf(kind).pin();
        if shelf.len() < MAX_HELD {
            return;
        }
        let spare = spare(shelf.iter(), |_| 1);
        let spare = spare.iter().filter(|one| kind == Kind::Call || !one.comes);
        for one in spare.take(MAX_HELD / 8) {
            if let Some(held) = shelf.remove(&one.place) {
                self.let_go(held);
            }
        }
    }
}

impl Holder for Store {
    fn grew(&self, bytes: usize) -> Load {
        let before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        match before.saturating_add(bytes) > MAX_BYTES {
            true => Load::TooHeavy,
            false => Load::Fine,
        }
    }

    fn shrank(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Lets go what is too much. Who reads it at this moment still gets it to its end.
    fn lighten(&self) {
        let weight = || self.bytes.load(Ordering::Relaxed);
        if weight() <= MAX_BYTES {
            return;
        }
        let _alone = self.making_room.lock();
        if weight() <= MAX_BYTES {
            return;
        }
        let (calls, standing) = (self.calls.pin(), self.standing.pin());
        let all = calls.iter().chain(standing.iter());
        for one in spare(all, |held| held.lane.bytes()) {
            if weight() <= LIGHT {
                return;
            }
            match one.kind {
                Kind::Standing if one.comes => {
                    // It must be found when all of them are to end.
                    if let Some(held) = standing.get(&one.place) {
                        held.lane.forget_what_was_read();
                    }
                },
                Kind::Standing => drop(standing.remove(&one.place).map(|held| self.let_go(held))),
                Kind::Call => drop(calls.remove(&one.place).map(|held| self.let_go(held))),
            }
        }
    }
}

/// What may go, in the order in which it goes: always of whoever has most left. They lose first what
/// rests, and of that the oldest.
fn spare<'h>(
    held: impl Iterator<Item = (&'h Place, &'h Held)>,
    weigh: impl Fn(&Held) -> usize,
) -> Vec<Spare> {
    let mut all: Vec<_> = held
        .map(|(place, held)| {
            let resting = held.lane.resting();
            Spare {
                comes: resting.is_none(),
                since: resting.unwrap_or(held.since),
                kind: held.kind,
                place: *place,
                owner: held.owner,
                weight: weigh(held),
            }
        })
        .filter(|one| one.weight > 0)
        .collect();
    all.sort_unstable();
    // What each of them has together with all that its owner would keep longer.
    let mut shares: Shares<Digest, usize> = Shares::new();
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
    use crate::lane::{Hears, Keep};

    const WHOSE: Digest = Digest::new([7; 16]);
    const OTHER: Digest = Digest::new([8; 16]);

    fn lane() -> Arc<Lane> {
        Arc::new(Lane::new(Keep::Written))
    }

    fn hold(streams: &Streams, whose: Digest, stream: u64, lane: &Arc<Lane>) {
        streams.hold(whose, (whose, stream), lane, Kind::Call);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_is_held_for_a_while_after_its_end() {
        let streams = Streams::default();
        let (open, over) = (lane(), lane());
        hold(&streams, WHOSE, 1, &open);
        hold(&streams, WHOSE, 2, &over);
        over.end(None);
        for (later, is_held) in [(0, true), (299, true), (1, false)] {
            clock::sleep(Duration::from_secs(later)).await;
            streams.look();
            assert_eq!(streams.find(WHOSE, 2).is_some(), is_held);
            assert!(streams.find(WHOSE, 1).is_some());
            assert!(streams.find(OTHER, 1).is_none());
        }
        streams.forget(WHOSE);
        assert!(streams.find(WHOSE, 1).is_none());
    }

    /// reliability 8.3: a server that answers everything with large streams does not fill the memory,
    /// not even until somebody looks. Whoever reads gets all of it.
    #[tokio::test(start_paused = true)]
    async fn what_is_held_is_bounded_at_all_times() {
        let streams = Streams::default();
        let large = bytes::Bytes::from(vec![b'x'; MAX_BYTES / 5]);
        let open = lane();
        hold(&streams, WHOSE, 0, &open);
        open.tell("{}".into());
        for stream in 1..=60 {
            let over = lane();
            let reader = over.attach(Hears::All);
            // Nothing is known of its weight when it is held.
            hold(&streams, WHOSE, stream, &over);
            over.end(Some(large.clone()));
            let held: usize = streams
                .0
                .calls
                .pin()
                .values()
                .map(|one| one.lane.bytes())
                .sum();
            assert_eq!(streams.bytes(), held);
            assert!(held <= MAX_BYTES, "{held} after {stream}");
            assert_eq!(over.bytes(), large.len(), "somebody reads it");
            over.leave(reader);
            clock::sleep(Duration::from_millis(1)).await;
        }
        assert!(streams.find(WHOSE, 0).is_some(), "something may come on it");
        assert!(streams.find(WHOSE, 1).is_none());
        assert!(streams.find(WHOSE, 60).is_some());
        assert!(streams.look() >= 50, "they are counted as not taken");
        streams.forget(WHOSE);
        assert_eq!(streams.bytes(), 0);
    }

    /// What alone is more than may be held is for who reads it now.
    #[test]
    fn an_end_that_is_too_large_is_read_and_not_held() {
        let streams = Streams::default();
        let lane = lane();
        let reader = lane.attach(Hears::All);
        hold(&streams, WHOSE, 1, &lane);
        lane.end(Some(vec![b'x'; MAX_BYTES + 1].into()));
        assert_eq!((streams.len(), streams.bytes()), (0, 0));
        assert_eq!(lane.bytes(), MAX_BYTES + 1);
        lane.leave(reader);
        assert_eq!(lane.bytes(), 0);
    }

    /// Whoever streams much pushes out their own, in number and in bytes, and nobody else's.
    #[tokio::test(start_paused = true)]
    async fn where_there_is_too_much_those_lose_who_hold_most() {
        for weight in [1, MAX_BYTES / 16] {
            let streams = Streams::default();
            let message = bytes::Bytes::from(vec![b'x'; weight]);
            let over = |whose, stream| {
                let lane = lane();
                hold(&streams, whose, stream, &lane);
                lane.end(Some(message.clone()));
            };
            over(OTHER, 1);
            for stream in 1..=1_100 {
                clock::sleep(Duration::from_millis(1)).await;
                over(WHOSE, stream);
            }
            assert!(streams.len() <= MAX_HELD);
            assert!(streams.find(OTHER, 1).is_some(), "{weight}");
            assert!(streams.find(WHOSE, 1).is_none());
            assert!(streams.find(WHOSE, 1_100).is_some());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn where_there_are_too_many_those_that_rest_go_first() {
        let streams = Streams::default();
        let lanes: Vec<_> = (0..).map(|_| lane()).take(MAX_HELD).collect();
        for (stream, lane) in (0..).zip(&lanes) {
            hold(&streams, WHOSE, stream, lane);
            clock::sleep(Duration::from_millis(1)).await;
        }
        lanes[MAX_HELD - 1].end(None);
        hold(&streams, WHOSE, 10_000, &lane());
        assert!(streams.len() <= MAX_HELD);
        assert!(streams.find(WHOSE, 0).is_none());
        assert!(streams.find(WHOSE, MAX_HELD as u64 - 1).is_none());
        assert!(streams.find(WHOSE, MAX_HELD as u64 - 2).is_some());
        assert!(streams.find(WHOSE, 10_000).is_some());
    }
}
