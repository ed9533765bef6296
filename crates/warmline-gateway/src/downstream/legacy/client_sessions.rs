//! Legacy client sessions in memory. An idle one is evicted; its ticket is enough to restore it.
//! Everything here is bounded.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;

use http::HeaderValue;
use papaya::HashMap;
use parking_lot::Mutex;
use tokio::sync::watch;
use warmline_core::pool_key::Digest;
use warmline_platform::clock;

use super::client_session::ClientSession;
use crate::metrics::UndeliveredReason;
use crate::response::replay_store::ReplayStore;
use crate::{GatewayState, shutdown};

/// A session that is unused for two sweeps is evicted.
const SWEEP_INTERVAL: Duration = Duration::from_secs(30);
const MAX_ENDED: usize = 65_536;
/// From this many sessions on, idle ones are evicted at once.
const MAX_ACTIVE: usize = 100_000;

#[derive(Debug, Default)]
pub(crate) struct ClientSessions {
    /// By ticket.
    pub(super) active: HashMap<HeaderValue, Arc<ClientSession>>,
    ended: Mutex<EndedSessions>,
    /// Streams that clients may resume.
    pub(crate) replay: Arc<ReplayStore>,
}

/// The keys of ended sessions, the newest of them.
#[derive(Debug, Default)]
struct EndedSessions {
    keys: HashSet<Digest>,
    in_order: VecDeque<Digest>,
}

impl ClientSessions {
    /// Adds a session. Of two concurrent requests of one client, both use the first session.
    pub(super) fn insert(
        &self,
        ticket: &HeaderValue,
        client: Arc<ClientSession>,
    ) -> Arc<ClientSession> {
        let busy = self.active.pin();
        if busy.len() >= MAX_ACTIVE {
            busy.retain(|_, client| !client.is_idle());
        }
        Arc::clone(busy.get_or_insert(ticket.clone(), client))
    }

    pub(crate) fn len(&self) -> usize {
        self.active.pin().len()
    }

    pub(super) fn end_session(&self, ticket: &HeaderValue, name: Digest) {
        self.ended.lock().insert(name);
        self.active.pin().remove(ticket);
        self.replay.remove_session(name);
    }

    /// Whether the session of this key was ended.
    pub(crate) fn is_ended(&self, key: Option<Digest>) -> bool {
        key.is_some_and(|key| self.ended.lock().keys.contains(&key))
    }
}

impl EndedSessions {
    fn insert(&mut self, name: Digest) {
        if !self.keys.insert(name) {
            return;
        }
        self.in_order.push_back(name);
        if self.in_order.len() > MAX_ENDED
            && let Some(oldest) = self.in_order.pop_front()
        {
            self.keys.remove(&oldest);
        }
    }
}

pub(crate) async fn run_maintenance(
    shared: Weak<GatewayState>,
    mut stopping: watch::Receiver<bool>,
) {
    loop {
        tokio::select! {
            () = clock::sleep(SWEEP_INTERVAL) => {},
            () = shutdown::wait_for_stop(&mut stopping) => {
                if let Some(shared) = shared.upgrade() {
                    shared.clients.replay.end_get_streams();
                }
                return;
            },
        }
        let Some(shared) = shared.upgrade() else {
            return;
        };
        let ClientSessions { active, replay, .. } = &shared.clients;
        active.pin().retain(|_, client| client.take_recently_used());
        for _ in 0..replay.evict_expired() {
            let undelivered = &shared.counters.undelivered;
            undelivered.increment(UndeliveredReason::Expired);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_those_that_were_ended_the_newest_are_remembered() {
        let clients = ClientSessions::default();
        let name = |number: usize| {
            let mut bytes = [0; 16];
            bytes[..8].copy_from_slice(&number.to_le_bytes());
            Digest::new(bytes)
        };
        let ticket = HeaderValue::from_static("t");
        for number in 0..=MAX_ENDED {
            clients.end_session(&ticket, name(number));
            clients.end_session(&ticket, name(number));
        }
        assert!(!clients.is_ended(Some(name(0))));
        assert!(clients.is_ended(Some(name(1))));
        assert!(clients.is_ended(Some(name(MAX_ENDED))));
        assert_eq!(clients.ended.lock().keys.len(), MAX_ENDED);
    }
}
