//! Limits of the door: what is counted before anybody has said who they are.
//!
//! Asked by: [`door`](crate::door), when a connection comes and when a request does. Over a limit
//! the answer is no, at once; whoever is known is not made to wait for those who are not.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::{Mutex, RwLock};
use warmline::clock::{self, Instant};

/// What the door holds at a time, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections in all.
    pub connections: usize,
    /// Connections of one address (of one /64 of IPv6).
    pub connections_per_address: usize,
    /// Requests in all that have no answer yet, also where their client left and the call goes on.
    pub requests: usize,
    /// Bytes of all requests that are being read or answered.
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
        let place = Some(Placed(Arc::clone(self)));
        Some(Burden { place, room: None })
    }

    /// Room for a body of so many bytes; none where too much is held already.
    pub(crate) fn room(self: &Arc<Self>, bytes: usize) -> Option<Room> {
        let most = self.limits.load().request_bytes;
        let bytes = bytes.min(most);
        let room = Room {
            gate: Arc::clone(self),
            bytes,
        };
        let before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        // Given back by dropping it, also where there is none.
        (before.saturating_add(bytes) <= most).then_some(room)
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

/// Room for the bytes of a request, until it is dropped.
pub(crate) struct Room {
    gate: Arc<Gate>,
    bytes: usize,
}

impl Drop for Room {
    fn drop(&mut self) {
        self.gate.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// What a request takes up until its call is over, whether or not its client is still there: a
/// place among those under way, and room for its bytes.
#[derive(Default)]
pub(crate) struct Burden {
    place: Option<Placed>,
    room: Option<Room>,
}

/// What a request takes up that did not come by the door.
pub(crate) static NO_BURDEN: Mutex<Burden> = Mutex::new(Burden {
    place: None,
    room: None,
});

impl Burden {
    /// There is room for its bytes.
    pub(crate) fn takes(&mut self, room: Room) {
        self.room = Some(room);
    }

    /// Its bytes alone: a stream that stands is no call under way.
    pub(crate) fn bytes_alone(mut self) -> Self {
        self.place = None;
        self
    }
}

/// A place among the requests under way.
struct Placed(Arc<Gate>);

impl Drop for Placed {
    fn drop(&mut self) {
        self.0.requests.fetch_sub(1, Ordering::Relaxed);
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

/// Addresses from which requests came that nobody was let in with.
struct Strangers {
    begun: Instant,
    /// How many there are, so that most requests need no lock.
    known: AtomicUsize,
    /// When all of them are over, in milliseconds since the beginning.
    over_at: AtomicU64,
    by_address: RwLock<HashMap<IpAddr, Seen>>,
}

struct Seen {
    since: Instant,
    times: u32,
}

const MINUTE: Duration = Duration::from_mins(1);
/// So many addresses are remembered.
const MAX_ADDRESSES: usize = 10_000;

impl Default for Strangers {
    fn default() -> Self {
        Self {
            begun: clock::now(),
            known: AtomicUsize::new(0),
            over_at: AtomicU64::new(0),
            by_address: RwLock::default(),
        }
    }
}

impl Strangers {
    fn are_many(&self, from: IpAddr, most: u32) -> bool {
        if self.known.load(Ordering::Relaxed) == 0 {
            return false;
        }
        if self.millis(Duration::ZERO) >= self.over_at.load(Ordering::Relaxed) {
            self.sweep();
        }
        let by_address = self.by_address.read();
        by_address
            .get(&from)
            .is_some_and(|seen| !seen.is_over() && seen.times >= most)
    }

    /// Forgets those that are over.
    fn sweep(&self) {
        let mut by_address = self.by_address.write();
        by_address.retain(|_, seen| !seen.is_over());
        self.known.store(by_address.len(), Ordering::Relaxed);
    }

    /// What the clock will show after this time.
    fn millis(&self, after: Duration) -> u64 {
        let age = clock::now().saturating_duration_since(self.begun) + after;
        u64::try_from(age.as_millis()).unwrap_or(u64::MAX)
    }

    fn note(&self, from: IpAddr) {
        let mut by_address = self.by_address.write();
        if by_address.len() >= MAX_ADDRESSES {
            by_address.retain(|_, seen| !seen.is_over());
        }
        // So many at once is no guessing at tokens of one of them.
        if by_address.len() >= MAX_ADDRESSES {
            by_address.clear();
        }
        let seen = by_address.entry(from).or_insert_with(Seen::now);
        if seen.is_over() {
            *seen = Seen::now();
        }
        seen.times = seen.times.saturating_add(1);
        self.known.store(by_address.len(), Ordering::Relaxed);
        self.over_at.store(self.millis(MINUTE), Ordering::Relaxed);
    }
}

impl Seen {
    fn now() -> Self {
        Self {
            since: clock::now(),
            times: 0,
        }
    }

    fn is_over(&self) -> bool {
        clock::now().saturating_duration_since(self.since) >= MINUTE
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
        let gate = gate(|limits| limits.request_bytes = 100);
        let room = gate.room(60).unwrap();
        assert!(gate.room(60).is_none(), "no room");
        assert_eq!(gate.bytes(), 60);
        gate.hold_to(Limits {
            request_bytes: 150,
            requests: 0,
            ..Limits::default()
        });
        let more = gate.room(60).unwrap();
        assert!(gate.request().is_none() && gate.is_full());
        gate.hold_to(Limits {
            request_bytes: 100,
            ..Limits::default()
        });
        assert!(gate.room(1).is_none(), "more is held than may be");
        drop((room, more));
        assert_eq!(gate.bytes(), 0);
        assert!(gate.room(1_000).is_some(), "one may have all there is");
    }

    #[tokio::test(start_paused = true)]
    async fn strangers_are_forgotten_after_a_minute() {
        let gate = gate(|limits| limits.strangers_per_minute = 2);
        gate.stranger(HERE);
        assert!(!gate.is_tired_of(HERE));
        gate.stranger(HERE);
        assert!(gate.is_tired_of(HERE));
        assert!(!gate.is_tired_of(IpAddr::from([192, 0, 2, 2])));
        tokio::time::advance(MINUTE).await;
        assert!(!gate.is_tired_of(HERE));
        let known = gate.strangers.known.load(Ordering::Relaxed);
        assert_eq!(known, 0, "nobody takes a lock for those who are over");
    }

    #[tokio::test]
    async fn addresses_that_are_remembered_have_an_end() {
        let gate = gate(|_| {});
        for number in 0..30_000_u32 {
            gate.stranger(IpAddr::from(number.to_be_bytes()));
        }
        assert!(gate.strangers.by_address.read().len() <= MAX_ADDRESSES);
    }

    #[test]
    fn a_network_of_ipv6_counts_as_one_address() {
        let of = |text: &str| network_of(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::2:3"));
        assert_ne!(of("2001:db8:0:1::1"), of("2001:db8:0:2::1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
    }
}
