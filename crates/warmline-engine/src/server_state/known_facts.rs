//! What first contacts and handshakes found out about a server, and for which callers it holds.

use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use warmline_core::era::Era;
use warmline_core::exchange::Diagnostic;
use warmline_core::pool_key::{ClientProfileId, CredentialId, Identity, KeyOwner};
use warmline_core::session_plan::ServerProfile;

use super::ServerState;
use warmline_platform::clock::{self, Instant};
use warmline_upstream::ServerFacts;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct DiscoveryKey {
    pub(crate) credential: CredentialId,
    pub(crate) client_profile_id: ClientProfileId,
    pub(crate) goal: DiscoveryGoal,
}

/// The callers whose routes are looked for together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RouteFlightKey {
    pub(crate) run_address: usize,
    pub(crate) credential: CredentialId,
    pub(crate) era: Option<Era>,
}

/// What a caller needs to know of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum DiscoveryGoal {
    Any,
    /// The era in which it keeps state.
    Stateful,
    Era(Era),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct HandshakeKey {
    pub(crate) identity: Identity,
    pub(crate) credential: CredentialId,
    pub(crate) client_profile_id: ClientProfileId,
    pub(crate) era: Option<Era>,
}

/// What a server said about itself in handshakes, by who asked. The latest handshake wins, whatever it
/// was made for: the server may be another one by now.
pub(super) type HandshakeCache = papaya::HashMap<HandshakeKey, (Instant, Arc<ServerFacts>)>;

#[derive(Clone, Debug)]
pub(crate) enum DiscoveryError {
    Failed(Diagnostic),
    /// The run that made it ended. Others that waited make another one.
    RunEnded,
}

pub(crate) fn profile_of(facts: &ServerFacts) -> ServerProfile {
    ServerProfile {
        era: facts.era,
        transport: facts.transport,
        has_sessions: facts.keeps_session,
    }
}

/// How long a handshake is taken for what the server would say now.
const HANDSHAKE_TTL: Duration = Duration::from_secs(600);
/// From this many results of one kind on, all are dropped.
const MAX_RESULTS: usize = 10_000;

fn insert_bounded<K: Eq + Hash, V>(known: &papaya::HashMap<K, V>, key: K, value: V) {
    let known = known.pin();
    if known.len() >= MAX_RESULTS {
        known.clear();
    }
    known.insert(key, value);
}

impl ServerState {
    /// The result for such a caller, also of a contact with another goal that must find the same.
    pub(crate) fn discovered_profile(&self, key: &DiscoveryKey) -> Option<ServerProfile> {
        let known = self.discoveries.pin();
        if let Some(profile) = known.get(key) {
            return Some(*profile);
        }
        let other = |goal| known.get(&DiscoveryKey { goal, ..*key }).copied();
        match key.goal {
            // Both eras were tried, and neither keeps state.
            DiscoveryGoal::Any => other(DiscoveryGoal::Stateful).filter(|it| !it.has_sessions),
            // A server that answers in the legacy era has no other.
            DiscoveryGoal::Stateful => other(DiscoveryGoal::Any).filter(|it| it.era == Era::Legacy),
            DiscoveryGoal::Era(_) => None,
        }
    }

    pub(crate) fn record_discovery(&self, key: DiscoveryKey, profile: ServerProfile) {
        insert_bounded(&self.discoveries, key, profile);
    }

    /// Drops all results: something contradicts them.
    pub(crate) fn forget_discoveries(&self) {
        self.discoveries.pin().clear();
        self.handshakes.pin().clear();
        self.discovery_epoch.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn known_server_profiles(&self) -> Vec<ServerProfile> {
        self.discoveries.pin().values().copied().collect()
    }

    /// What the server said to such a client, if that is recent.
    pub(crate) fn cached_handshake(&self, greeter: &HandshakeKey) -> Option<Arc<ServerFacts>> {
        let known = self.handshakes.pin();
        let (since, facts) = known.get(greeter)?;
        (since.elapsed() < HANDSHAKE_TTL).then(|| Arc::clone(facts))
    }

    pub(crate) fn cache_handshake(&self, greeter: HandshakeKey, facts: &Arc<ServerFacts>) {
        let handshake = (clock::now(), Arc::clone(facts));
        insert_bounded(&self.handshakes, greeter, handshake);
    }

    /// A handshake was made with this credential and profile. It replaces the cached ones of the
    /// same kind, and adds none for other identities.
    pub(crate) fn update_handshakes(
        &self,
        owner: KeyOwner,
        (credential, declared): (CredentialId, ClientProfileId),
        facts: &Arc<ServerFacts>,
    ) {
        let known = self.handshakes.pin();
        let said = (clock::now(), Arc::clone(facts));
        let says = |before: &(Instant, Arc<ServerFacts>)| match before.1.era == facts.era {
            true => said.clone(),
            false => before.clone(),
        };
        let greeter = |identity, era| HandshakeKey {
            identity,
            credential,
            client_profile_id: declared,
            era,
        };
        match owner {
            KeyOwner::Identity(identity) => {
                for era in [Some(facts.era), None] {
                    known.update(greeter(identity, era), says);
                }
            },
            KeyOwner::AnyIdentity => {
                for (one, _) in &known {
                    if *one == greeter(one.identity, one.era) {
                        known.update(*one, says);
                    }
                }
            },
        }
    }

    /// Drops all handshakes: the server may be another one by now.
    pub(crate) fn forget_handshakes(&self) {
        self.handshakes.pin().clear();
    }
}

#[cfg(test)]
mod tests;
