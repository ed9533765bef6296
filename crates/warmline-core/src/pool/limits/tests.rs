//! Limits as a table, and under any order of claims and releases.

use proptest::prelude::*;

use super::*;
use crate::pool_key::{ClientProfileId, ConfigRevision, CredentialId, Digest, KeyScope};

fn identity(number: u8) -> Identity {
    Identity(Digest::new([number; 16]))
}

fn key(server: &str, owner: KeyOwner, transport: Transport, era: Era) -> PoolKey {
    let place = TargetKey {
        server: Arc::from(server),
        revision: ConfigRevision(Digest::new([0; 16])),
        era,
        transport,
    };
    let declared = KeyScope::Shared(ClientProfileId(Digest::new([0; 16])));
    PoolKey::new(place, owner, CredentialId(Digest::new([0; 16])), declared)
}

fn claim(server: &str, who: u8, transport: Transport, server_max: Option<u32>) -> PermitClaim {
    let owner = KeyOwner::Identity(identity(who));
    PermitClaim::for_key(&key(server, owner, transport, Era::Legacy), server_max)
        .expect("it needs room")
}

fn ceilings() -> EngineLimits {
    EngineLimits {
        sessions: 3,
        processes: 2,
        sessions_per_identity: 2,
        processes_per_identity: 1,
        ..EngineLimits::default()
    }
}

fn granted(claimed: &ClaimOutcome) -> bool {
    matches!(claimed, ClaimOutcome::Granted)
}

/// A204: what is held for nobody takes no room.
#[test]
fn stateless_sessions_need_no_room() {
    let who = KeyOwner::AnyIdentity;
    let table = [
        (Transport::Http, Era::Modern, None),
        (Transport::Http, Era::Legacy, Some(PermitKind::Session)),
        (Transport::HttpSse, Era::Legacy, Some(PermitKind::Session)),
        (Transport::Stdio, Era::Legacy, Some(PermitKind::Process)),
        (Transport::Stdio, Era::Modern, Some(PermitKind::Process)),
    ];
    for (transport, era, kind) in table {
        let key = key("a", who, transport, era);
        assert_eq!(
            PermitKind::for_target(&key.target),
            kind,
            "{transport:?} {era:?}"
        );
        assert_eq!(PermitClaim::for_key(&key, None).is_some(), kind.is_some());
    }
}

/// Room is made once for each who waits, not once for each who could make it.
#[test]
fn no_more_room_is_made_than_somebody_waits_for() {
    let mut limits = SessionLimits::new(EngineLimits {
        sessions: 2,
        ..ceilings()
    });
    let of = |who| claim("a", who, Transport::Http, None);
    assert!(granted(&limits.claim(of(1))));
    assert!(granted(&limits.claim(of(2))));
    assert!(!limits.is_needed(&of(1)), "nobody waits");
    assert!(!granted(&limits.claim(of(3))));
    assert!(limits.is_needed(&of(1)));
    limits.announce_release(&of(1));
    assert!(!limits.is_needed(&of(2)), "somebody makes it already");
    assert_eq!(limits.release(&of(1), true).len(), 1);
    assert!(!limits.is_needed(&of(2)));
}

/// reliability I14: lowered limits are seen by whoever holds room; raised ones let in who waits.
#[test]
fn changed_limits_count_at_once() {
    let mut limits = SessionLimits::new(ceilings());
    let of = |who| claim("a", who, Transport::Http, None);
    for who in [1, 2, 3] {
        assert!(granted(&limits.claim(of(who))));
    }
    assert!(!granted(&limits.claim(of(4))));
    let with = |sessions| EngineLimits {
        sessions,
        ..ceilings()
    };
    assert!(limits.reconfigure(with(2)).is_empty());
    assert!(limits.is_over_limit(&of(1)));
    assert_eq!(limits.reconfigure(with(4)).len(), 1);
    assert!(!limits.is_over_limit(&of(1)));
}

/// DESIGN 2: a changed limit of a server applies in place, to those who wait as well.
#[test]
fn a_changed_limit_of_a_server_counts_for_those_who_wait() {
    let mut limits = SessionLimits::new(ceilings());
    let of = |server, who, most| claim(server, who, Transport::Http, most);
    assert!(granted(&limits.claim(of("a", 1, Some(1)))));
    assert!(!granted(&limits.claim(of("a", 2, Some(1)))));
    assert!(!granted(&limits.claim(of("a", 3, Some(1)))));
    assert!(limits.set_server_max("b", Some(9)).is_empty());
    assert_eq!(limits.set_server_max("a", Some(2)).len(), 1);
    assert_eq!(limits.queued_claims(), 1);
    // Lowered again, it holds for who still waits.
    assert!(limits.set_server_max("a", Some(1)).is_empty());
    assert!(limits.release(&of("a", 1, None), false).is_empty());
    assert_eq!(limits.set_server_max("a", None).len(), 1);
    assert_eq!(limits.used_permits(PermitKind::Session), 2);
}

#[derive(Clone, Copy, Debug)]
enum Move {
    Claim(u8, u8, bool),
    Release(usize),
    Leave(usize),
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let one = prop_oneof![
        4 => (0_u8..3, 0_u8..4, any::<bool>()).prop_map(|(s, w, p)| Move::Claim(s, w, p)),
        3 => any::<usize>().prop_map(Move::Release),
        1 => any::<usize>().prop_map(Move::Leave),
    ];
    proptest::collection::vec(one, 0..80)
}

/// A model that looks through everybody in line whenever anything changes.
#[derive(Default)]
struct Model {
    held: Vec<PermitClaim>,
    line: Vec<(ClaimId, PermitClaim)>,
}

impl Model {
    fn fits(&self, one: &PermitClaim) -> bool {
        let limits = SessionLimits::new(ceilings());
        one.limits().all(|limit| {
            let counted = |held: &&PermitClaim| held.limits().any(|its| its == limit);
            let taken = self.held.iter().filter(counted).count();
            taken < limits.max_for(&limit, one) as usize
        })
    }

    fn call(&mut self) -> Vec<ClaimId> {
        let mut called = Vec::new();
        while let Some(at) = self.line.iter().position(|(_, claim)| self.fits(claim)) {
            let (ticket, claim) = self.line.remove(at);
            self.held.push(claim);
            called.push(ticket);
        }
        called
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// A83, A84, reliability I22: no order of claims and releases passes a limit, and nobody waits
    /// who could be let in, or is overtaken by somebody who came later and needs the same.
    #[test]
    fn rooms_are_given_as_a_look_through_the_whole_line_would(moves in moves()) {
        let mut limits = SessionLimits::new(ceilings());
        let mut model = Model::default();
        for one in moves {
            match one {
                Move::Claim(server, who, process) => {
                    let transport = if process { Transport::Stdio } else { Transport::Http };
                    let server_max = (server == 0).then_some(2);
                    let claim = claim(&format!("server-{server}"), who, transport, server_max);
                    let fits = model.fits(&claim);
                    match limits.claim(claim.clone()) {
                        ClaimOutcome::Granted => {
                            prop_assert!(fits);
                            model.held.push(claim);
                        },
                        ClaimOutcome::Queued(ticket, _) => {
                            prop_assert!(!fits);
                            model.line.push((ticket, claim));
                        },
                    }
                },
                Move::Release(n) => {
                    let Some(at) = n.checked_rem(model.held.len()) else { continue };
                    let claim = model.held.remove(at);
                    let called = limits.release(&claim, false);
                    let mut called = called.to_vec();
                    let mut expected = model.call();
                    called.sort_unstable();
                    expected.sort_unstable();
                    prop_assert_eq!(called, expected);
                },
                Move::Leave(n) => {
                    let Some(at) = n.checked_rem(model.line.len()) else { continue };
                    let (ticket, _) = model.line.remove(at);
                    prop_assert!(limits.cancel_claim(ticket));
                },
            }
            prop_assert_eq!(limits.queued_claims(), model.line.len());
        }
        for claim in std::mem::take(&mut model.held) {
            limits.release(&claim, false);
        }
    }
}
