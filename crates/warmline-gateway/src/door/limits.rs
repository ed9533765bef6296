//! Limits of the door: what is counted before anybody has said who they are.
//!
//! Asked by: [`door`](crate::door), when a connection comes and when a request does. Over a limit
//! the answer is no, at once; whoever is known is not made to wait for those who are not. Once it is
//! known whose a request is, it counts as part of their [share](super::shares).

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use warmline::core::key::Digest;

use super::replies::Replies;
use super::shares::{Share, Shares, is_fair};
use super::strangers::Strangers;

/// What the door holds at a time, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections in all.
    pub connections: usize,
    /// Connections of one address (of one /64 of IPv6).
    pub connections_per_address: usize,
    /// Requests in all that have no answer yet, also where their client left and the call goes on.
    pub requests: usize,
    /// Bytes of all requests that are being read or answered, each counted twice: as it came, and
    /// as it goes on to its server. Of replies that clients have not read yet, as many.
    pub request_bytes: usize,
    /// Requests of one address in a minute that nobody was let in with. Above it, signatures of
    /// new tokens are not even looked at. Behind a proxy all callers come from one address.
    pub strangers_per_minute: u32,
    /// The head of a request, in bytes.
    pub head: usize,
    /// A client may take so long for the head of a request.
    pub head_within: Duration,
    /// A client may take so long for the body of a request.
    pub body_within: Duration,
    /// A client that reads nothing for so long is left.
    pub stalled_after: Duration,
    /// A connection on which nothing happens for so long is closed.
    pub idle_for: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 16_384,
            connections_per_address: 4_096,
            requests: 8_192,
            request_bytes: 512 << 20,
            strangers_per_minute: 300,
            head: 32 << 10,
            head_within: Duration::from_secs(15),
            body_within: Duration::from_secs(30),
            stalled_after: Duration::from_secs(30),
            idle_for: Duration::from_secs(120),
        }
    }
}

/// What is held at the door now.
pub(crate) struct Gate {
    /// Replaced when the configuration was read again. What is held stays held.
    limits: ArcSwap<Limits>,
    connections: AtomicUsize,
    by_address: Mutex<HashMap<IpAddr, usize>>,
    requests: AtomicUsize,
    bytes: AtomicUsize,
    pub(super) replies: Replies,
    shares: Shares,
    strangers: Strangers,
}

impl Gate {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits: ArcSwap::from_pointee(limits),
            connections: AtomicUsize::new(0),
            by_address: Mutex::default(),
            requests: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            replies: Replies::default(),
            shares: Shares::default(),
            strangers: Strangers::default(),
        }
    }

    pub(crate) fn limits(&self) -> Limits {
        **self.limits.load()
    }

    /// Holds to other limits from now on: requests at once, connections as they come.
    pub(crate) fn hold_to(&self, limits: Limits) {
        self.limits.store(Arc::new(limits));
    }

    /// Connections there are.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// Requests that have no answer yet.
    pub(crate) fn requests(&self) -> usize {
        self.requests.load(Ordering::Relaxed)
    }

    /// Bytes that are held of requests.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Bytes that are held of replies.
    pub(crate) fn reply_bytes(&self) -> usize {
        self.replies.bytes()
    }

    /// What somebody holds.
    pub(super) fn share(&self, whose: Digest) -> Arc<Share> {
        self.shares.of(whose)
    }

    /// Whether there is no room for another connection or request.
    pub(crate) fn is_full(&self) -> bool {
        let limits = self.limits.load();
        self.connections() >= limits.connections
            || self.requests() >= limits.requests
            || self.bytes() >= limits.request_bytes
    }

    /// A place for a connection, until it is dropped; none where there are too many.
    pub(crate) fn connection(self: &Arc<Self>, from: Option<IpAddr>) -> Option<Connected> {
        let limits = self.limits.load();
        let place = Counted::take(&self.connections, limits.connections)?;
        let address = from.map(network_of);
        if let Some(address) = address {
            let mut by_address = self.by_address.lock();
            let held = by_address.entry(address).or_default();
            if *held >= limits.connections_per_address {
                return None;
            }
            *held += 1;
        }
        place.keep();
        Some(Connected {
            gate: Arc::clone(self),
            address,
        })
    }

    /// A place for a request, until its burden is dropped; none where there are too many.
    pub(crate) fn request(self: &Arc<Self>) -> Option<Burden> {
        Counted::take(&self.requests, self.limits.load().requests)?.keep();
        let place = Some(Placed {
            gate: Arc::clone(self),
            share: None,
        });
        Some(Burden { place, room: None })
    }

    /// Counts a request as part of what somebody has under way.
    ///
    /// # Errors
    /// They have as much as they may have, and others shall find a place.
    pub(crate) fn claim(&self, burden: &Mutex<Burden>, whose: Digest) -> Result<(), NoRoom> {
        let mut burden = burden.lock();
        let Some(place) = &mut burden.place else {
            return Ok(());
        };
        let share = self.shares.of(whose);
        let theirs = share.requests.fetch_add(1, Ordering::Relaxed) + 1;
        place.share = Some(share);
        // This one stands among all of them already.
        let before = self.requests().saturating_sub(1);
        is_fair(theirs, before, self.limits.load().requests)
            .then_some(())
            .ok_or(NoRoom::OfTheirs)
    }

    /// Room for a body of so many bytes.
    ///
    /// # Errors
    /// There is none: too much is held already, of all or of whose request it is.
    pub(crate) fn room(
        self: &Arc<Self>,
        burden: &Mutex<Burden>,
        bytes: usize,
        room: Room,
    ) -> Result<(), NoRoom> {
        let most = self.limits.load().request_bytes;
        let bytes = bytes.saturating_mul(COPIES).min(most);
        let mut burden = burden.lock();
        let place = burden.place.as_ref().filter(|_| room == Room::OfShare);
        let share = place.and_then(|place| place.share.clone());
        let before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let theirs = share.as_ref().map(|share| {
            let theirs = share.bytes.fetch_add(bytes, Ordering::Relaxed);
            theirs.saturating_add(bytes)
        });
        // Given back by dropping it, also where there is none.
        let taken = Taken {
            gate: Arc::clone(self),
            share,
            bytes,
        };
        if before.saturating_add(bytes) > most {
            return Err(NoRoom::ForAnybody);
        }
        if theirs.is_some_and(|theirs| !is_fair(theirs, before, most)) {
            return Err(NoRoom::OfTheirs);
        }
        burden.room = Some(taken);
        Ok(())
    }

    /// Whether too many came from there without being let in.
    pub(crate) fn is_tired_of(&self, from: IpAddr) -> bool {
        self.strangers
            .are_many(network_of(from), self.limits.load().strangers_per_minute)
    }

    /// Somebody from there was not let in.
    pub(crate) fn stranger(&self, from: IpAddr) {
        self.strangers.note(network_of(from));
    }
}

/// A number that is held for as long as this lives.
pub(crate) struct Counted<'a>(Option<&'a AtomicUsize>);

impl<'a> Counted<'a> {
    fn take(number: &'a AtomicUsize, most: usize) -> Option<Self> {
        let held = Self(Some(number));
        // Given back by dropping it, also where there is no place.
        (number.fetch_add(1, Ordering::Relaxed) < most).then_some(held)
    }

    /// Somebody else gives it back.
    fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.0 {
            number.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// What there is no room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoRoom {
    /// One more of anybody.
    ForAnybody,
    /// One more of theirs: others shall find room.
    OfTheirs,
}

/// A request is held as it came, for as long as it may have to be sent again, and as it is written
/// to its server.
const COPIES: usize = 2;

/// Whether room is part of somebody's share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// It is, and there is none where they have too much.
    OfShare,
    /// It is not: what little they send is for others' good as well.
    BesideShare,
}

/// Room that is taken for the bytes of a request, until it is dropped.
struct Taken {
    gate: Arc<Gate>,
    share: Option<Arc<Share>>,
    bytes: usize,
}

impl Taken {
    fn give_back(&mut self, bytes: usize) {
        self.bytes -= bytes;
        self.gate.bytes.fetch_sub(bytes, Ordering::Relaxed);
        if let Some(share) = &self.share {
            share.bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.give_back(self.bytes);
    }
}

/// What a request takes up until its call is over, whether or not its client is still there: a
/// place among those under way, and room for its bytes.
#[derive(Default)]
pub(crate) struct Burden {
    place: Option<Placed>,
    room: Option<Taken>,
}

/// What a request takes up that did not come by the door.
pub(crate) static NO_BURDEN: Mutex<Burden> = Mutex::new(Burden {
    place: None,
    room: None,
});

impl Burden {
    /// It was read, and has so many bytes: fewer than there had to be room for.
    pub(crate) fn has_read(&mut self, bytes: usize) {
        if let Some(room) = &mut self.room {
            let too_much = room.bytes.saturating_sub(bytes.saturating_mul(COPIES));
            room.give_back(too_much);
        }
    }

    /// Its bytes alone: a stream that stands is no call under way.
    pub(crate) fn bytes_alone(mut self) -> Self {
        self.place = None;
        self
    }
}

/// A place among the requests under way.
struct Placed {
    gate: Arc<Gate>,
    /// Of those of whose it is, once that is known.
    share: Option<Arc<Share>>,
}

impl Drop for Placed {
    fn drop(&mut self) {
        self.gate.requests.fetch_sub(1, Ordering::Relaxed);
        if let Some(share) = &self.share {
            share.requests.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// A connection that has its place.
pub(crate) struct Connected {
    gate: Arc<Gate>,
    address: Option<IpAddr>,
}

impl Drop for Connected {
    fn drop(&mut self) {
        self.gate.connections.fetch_sub(1, Ordering::Relaxed);
        let Some(address) = self.address else { return };
        let mut by_address = self.gate.by_address.lock();
        if let Some(held) = by_address.get_mut(&address) {
            *held -= 1;
            if *held == 0 {
                by_address.remove(&address);
            }
        }
    }
}

/// What counts as one address: somebody with IPv6 has a whole network of them.
fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let bits = u128::from(address) & !u128::from(u64::MAX);
            // Loopback is one machine, and stays itself.
            if address.is_loopback() {
                return IpAddr::V6(address);
            }
            IpAddr::V6(Ipv6Addr::from(bits))
        },
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(change: impl FnOnce(&mut Limits)) -> Arc<Gate> {
        let mut limits = Limits::default();
        change(&mut limits);
        Arc::new(Gate::new(limits))
    }

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

    #[tokio::test]
    async fn places_come_back_when_they_are_left() {
        let gate = gate(|limits| {
            limits.connections = 3;
            limits.connections_per_address = 2;
            limits.requests = 1;
        });
        for _ in 0..3 {
            let one = gate.connection(Some(HERE)).unwrap();
            let two = gate.connection(Some(HERE)).unwrap();
            assert!(gate.connection(Some(HERE)).is_none(), "of this address");
            let three = gate.connection(None).unwrap();
            assert!(gate.connection(None).is_none(), "in all");
            drop((one, two, three));
            let request = gate.request().unwrap();
            assert!(gate.request().is_none());
            drop(request);
        }
        assert!(gate.by_address.lock().is_empty());
    }

    #[test]
    fn other_limits_count_at_once_and_what_is_held_stays_held() {
        let gate = gate(|limits| limits.request_bytes = 200);
        let [first, second, third] = [(); 3].map(|()| Mutex::new(gate.request().unwrap()));
        gate.room(&first, 60, Room::OfShare).unwrap();
        assert_eq!(
            gate.room(&second, 60, Room::OfShare),
            Err(NoRoom::ForAnybody)
        );
        assert_eq!(gate.bytes(), 120);
        gate.hold_to(Limits {
            request_bytes: 300,
            requests: 0,
            ..Limits::default()
        });
        gate.room(&second, 60, Room::OfShare).unwrap();
        assert!(gate.request().is_none() && gate.is_full());
        gate.hold_to(Limits {
            request_bytes: 200,
            ..Limits::default()
        });
        let no_room = gate.room(&third, 1, Room::OfShare);
        assert_eq!(no_room, Err(NoRoom::ForAnybody), "more is held than may be");
        first.lock().has_read(10);
        assert_eq!(gate.bytes(), 140, "what was not needed is given back");
        drop((first, second));
        assert_eq!(gate.bytes(), 0);
        assert!(
            gate.room(&third, 1_000, Room::OfShare).is_ok(),
            "one may have all"
        );
    }

    /// Somebody who has nearly all of it is refused, and somebody else is not, by number and by
    /// bytes; and what is over is over for both.
    #[test]
    fn nobody_takes_all_there_is_from_others() {
        let gate = gate(|limits| {
            limits.requests = 20;
            limits.request_bytes = 20_000;
        });
        let (greedy, other) = (Digest::new([1; 16]), Digest::new([2; 16]));
        let come = |whose, bytes| {
            let burden = Mutex::new(gate.request().ok_or(NoRoom::ForAnybody)?);
            gate.claim(&burden, whose)?;
            gate.room(&burden, bytes, Room::OfShare)?;
            Ok(burden)
        };
        for bytes in [1, 600] {
            let mut held: Vec<_> = std::iter::from_fn(|| come(greedy, bytes).ok()).collect();
            assert!(held.len() >= 14, "{}", held.len());
            assert_eq!(come(greedy, bytes).err(), Some(NoRoom::OfTheirs));
            held.push(come(other, bytes).unwrap());
            held.clear();
            assert_eq!((gate.requests(), gate.bytes()), (0, 0));
            for whose in [greedy, other] {
                let share = gate.shares.of(whose);
                for held in [&share.requests, &share.bytes] {
                    assert_eq!(held.load(Ordering::Relaxed), 0);
                }
            }
        }
    }

    #[test]
    fn a_network_of_ipv6_counts_as_one_address() {
        let of = |text: &str| network_of(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::2:3"));
        assert_ne!(of("2001:db8:0:1::1"), of("2001:db8:0:2::1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
    }
}
