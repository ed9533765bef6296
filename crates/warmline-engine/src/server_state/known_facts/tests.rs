//! What was found out about a server is used for whoever finds the same, and for nobody else.

use warmline_core::pool_key::{Digest, Transport};

use super::*;
use crate::events::Events;
use crate::metrics::Metrics;
use crate::server::Server;

fn entry() -> Arc<ServerState> {
    let metrics = Metrics::default().server("ledger");
    let server = Server::http("ledger", "http://127.0.0.1:1/mcp");
    ServerState::new(server, metrics, Events::default(), Duration::ZERO)
}

fn key(number: usize, wants: DiscoveryGoal) -> DiscoveryKey {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&(number as u64).to_be_bytes());
    DiscoveryKey {
        credential: CredentialId(Digest::new(bytes)),
        client_profile_id: ClientProfileId(Digest::new([0; 16])),
        goal: wants,
    }
}

fn contact(era: Era, has_sessions: bool) -> ServerProfile {
    ServerProfile {
        era,
        transport: Transport::Http,
        has_sessions,
    }
}

/// A first contact for one kind of caller spares the other kind its own where both find the same:
/// in the legacy era, which has one leg, and where neither leg keeps anything.
#[test]
fn a_contact_serves_the_other_kind_of_caller_where_both_find_the_same() {
    let (any, state, legacy) = (
        DiscoveryGoal::Any,
        DiscoveryGoal::Stateful,
        DiscoveryGoal::Era(Era::Legacy),
    );
    // Who made the contact, what it found, and whom else it serves.
    let table: [(DiscoveryGoal, Era, bool, &[DiscoveryGoal]); 7] = [
        (any, Era::Legacy, true, &[state]),
        (any, Era::Legacy, false, &[state]),
        // Its legacy leg may keep state: nobody looked.
        (any, Era::Modern, false, &[]),
        // Outside of a run the modern leg comes first.
        (state, Era::Legacy, true, &[]),
        (state, Era::Modern, false, &[any]),
        (state, Era::Legacy, false, &[any]),
        // Whoever wants an era speaks for nobody else.
        (legacy, Era::Legacy, true, &[]),
    ];
    for (made, era, keeps_session, serves) in table {
        let entry = entry();
        entry.record_discovery(key(1, made), contact(era, keeps_session));
        for wants in [any, state, legacy] {
            let row = (made, era, keeps_session, wants);
            let found = entry.discovered_profile(&key(1, wants)).is_some();
            assert_eq!(found, wants == made || serves.contains(&wants), "{row:?}");
            let foreign = entry.discovered_profile(&key(2, wants));
            assert!(foreign.is_none(), "another credential may find another");
        }
    }
}

/// What was forgotten is found out anew, and whoever used it can tell that it was.
#[test]
fn forgotten_contacts_are_found_out_anew() {
    let entry = entry();
    entry.record_discovery(key(1, DiscoveryGoal::Any), contact(Era::Legacy, true));
    let seen = entry.discovery_epoch();
    entry.forget_discoveries();
    assert!(
        entry
            .discovered_profile(&key(1, DiscoveryGoal::Any))
            .is_none()
    );
    assert_ne!(entry.discovery_epoch(), seen);
}

/// However many credentials come by, what is remembered of them is bounded.
#[test]
fn contacts_are_bounded() {
    let entry = entry();
    for number in 0..=MAX_RESULTS {
        entry.record_discovery(key(number, DiscoveryGoal::Any), contact(Era::Legacy, true));
        assert!(
            entry
                .discovered_profile(&key(number, DiscoveryGoal::Any))
                .is_some()
        );
    }
    assert!(entry.discoveries.pin().len() <= MAX_RESULTS);
}
