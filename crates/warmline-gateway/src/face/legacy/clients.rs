//! Legacy clients: those that are busy, and what is remembered of those that are not.
//!
//! Asked by: the legacy face, at every message.  A client that does nothing is forgotten; its
//! ticket says all that is needed to know it again. Everything here is bounded.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;

use http::HeaderValue;
use papaya::HashMap;
use parking_lot::Mutex;
use tokio::sync::watch;
use warmline::clock;
use warmline::core::key::Digest;

use super::client::Client;
pub(crate) use super::streams::MAX_BYTES as MAX_STREAM_BYTES;
use super::streams::Streams;
use crate::metrics::Undelivered;
use crate::{Shared, door};

/// So often it is looked who does nothing. Who was not seen for two rounds is forgotten.
const LOOK_EVERY: Duration = Duration::from_secs(30);
/// So many client sessions that were ended are remembered.
const MAX_ENDED: usize = 65_536;
/// From so many busy clients on, those that do nothing at this moment are forgotten at once.
const MAX_BUSY: usize = 100_000;

/// What is held of legacy clients.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    /// Those that are busy, by the ticket they carry.
    busy: HashMap<HeaderValue, Arc<Client>>,
    ended: Mutex<Ended>,
    pub(super) streams: Streams,
}

/// The client sessions that were ended, the newest of them.
#[derive(Debug, Default)]
struct Ended {
    names: HashSet<Digest>,
    in_order: VecDeque<Digest>,
}

impl Clients {
    /// The client that carries this ticket, if it is busy.
    pub(super) fn find(&self, ticket: &HeaderValue) -> Option<Arc<Client>> {
        let busy = self.busy.pin();
        let client = busy.get(ticket)?;
        client.seen();
        Some(Arc::clone(client))
    }

    /// A client is busy from now on. Where two requests of one client come at once, the first
    /// counts for both.
    pub(super) fn keep(&self, ticket: &HeaderValue, client: Arc<Client>) -> Arc<Client> {
        let busy = self.busy.pin();
        if busy.len() >= MAX_BUSY {
            busy.retain(|_, client| !client.is_at_rest());
        }
        Arc::clone(busy.get_or_insert(ticket.clone(), client))
    }

    /// Clients that are busy.
    pub(crate) fn len(&self) -> usize {
        self.busy.pin().len()
    }

    /// Streams that are held for clients that may come back.
    pub(crate) fn streams(&self) -> usize {
        self.streams.len()
    }

    /// What they weigh together.
    pub(crate) fn stream_bytes(&self) -> usize {
        self.streams.bytes()
    }

    /// A client session is over.
    pub(super) fn end(&self, ticket: &HeaderValue, name: Digest) {
        self.ended.lock().add(name);
        self.forget(ticket);
        self.streams.forget(name);
    }

    /// Nobody is found by this ticket any more.
    pub(super) fn forget(&self, ticket: &HeaderValue) {
        self.busy.pin().remove(ticket);
    }

    /// Whether a client ended its session.
    pub(super) fn has_ended(&self, client: &Client) -> bool {
        client.name().is_some_and(|name| self.was_ended(name))
    }

    /// Whether a client session was ended.
    pub(super) fn was_ended(&self, name: Digest) -> bool {
        self.ended.lock().names.contains(&name)
    }

    /// Forgets who does nothing, and streams that nobody came back for: says how many replies went
    /// with them.
    fn look(&self) -> u64 {
        self.busy.pin().retain(|_, client| client.was_seen_lately());
        self.streams.look()
    }
}

impl Ended {
    fn add(&mut self, name: Digest) {
        if !self.names.insert(name) {
            return;
        }
        self.in_order.push_back(name);
        if self.in_order.len() > MAX_ENDED
            && let Some(oldest) = self.in_order.pop_front()
        {
            self.names.remove(&oldest);
        }
    }
}

/// Looks after the clients of a gateway until it is told to stop.
pub(crate) async fn look_after(shared: Weak<Shared>, mut stopping: watch::Receiver<bool>) {
    loop {
        tokio::select! {
            () = clock::sleep(LOOK_EVERY) => {},
            () = door::stopped(&mut stopping) => {
                if let Some(shared) = shared.upgrade() {
                    shared.clients.streams.end_standing();
                }
                return;
            },
        }
        let Some(shared) = shared.upgrade() else {
            return;
        };
        for _ in 0..shared.clients.look() {
            shared.counts.undelivered.one_more(Undelivered::Expired);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_those_that_were_ended_the_newest_are_remembered() {
        let clients = Clients::default();
        let name = |number: usize| {
            let mut bytes = [0; 16];
            bytes[..8].copy_from_slice(&number.to_le_bytes());
            Digest::new(bytes)
        };
        let ticket = HeaderValue::from_static("t");
        for number in 0..=MAX_ENDED {
            clients.end(&ticket, name(number));
            clients.end(&ticket, name(number));
        }
        assert!(!clients.was_ended(name(0)));
        assert!(clients.was_ended(name(1)));
        assert!(clients.was_ended(name(MAX_ENDED)));
        assert_eq!(clients.ended.lock().names.len(), MAX_ENDED);
    }
}
