//! Limits as a table, and under any order of claims and releases.

use proptest::prelude::*;

use super::*;
use crate::key::{CredentialId, DeclaredId, Digest, Revision, Scope};

fn identity(number: u8) -> Identity {
    Identity(Digest::new([number; 16]))
}

fn key(server: &str, owner: Owner, transport: Transport, era: Era) -> Key {
    let place = Place {
        server: Arc::from(server),
        revision: Revision(Digest::new([0; 16])),
        era,
        transport,
    };
    let declared = Scope::Shared(DeclaredId(Digest::new([0; 16])));
    Key::of(place, owner, CredentialId(Digest::new([0; 16])), declared)
}

fn claim(server: &str, who: u8, transport: Transport, server_max: Option<u32>) -> Claim {
    let owner = Owner::Identity(identity(who));
    Claim::of(&key(server, owner, transport, Era::Legacy), server_max).expect("it needs room")
}

fn ceilings() -> Ceilings {
    Ceilings {
        sessions: 3,
        processes: 2,
        sessions_per_identity: 2,
        processes_per_identity: 1,
        ..Ceilings::default()
    }
}

fn granted(claimed: &Claimed) -> bool {
    matches!(claimed, Claimed::Granted)
}

/// A204: what is held for nobody takes no room.
#[test]
fn stateless_sessions_need_no_room() {
    let who = Owner::Everybody;
    let table = [
        (Transport::Http, Era::Modern, None),
        (Transport::Http, Era::Legacy, Some(Kind::Session)),
        (Transport::HttpSse, Era::Legacy, Some(Kind::Session)),
        (Transport::Stdio, Era::Legacy, Some(Kind::Process)),
        (Transport::Stdio, Era::Modern, Some(Kind::Process)),
    ];
    for (transport, era, kind) in table {
        let key = key("a", who, transport, era);
        assert_eq!(Kind::of(key.place()), kind, "{transport:?} {era:?}");
        assert_eq!(Claim::of(&key, None).is_some(), kind.is_some());
    }
}

/// A83, A201, reliability I22: each limit holds by itself, and processes are counted apart.
#[test]
fn each_limit_holds_by_itself() {
    use Transport::{Http, Stdio};
    let mut limits = Limits::new(ceilings());
    assert!(granted(&limits.claim(claim("a", 1, Http, None))));
    assert!(granted(&limits.claim(claim("b", 1, Http, None))));
    let third = limits.claim(claim("c", 1, Http, None));
    let of_identity = Limit::Identity(identity(1), Kind::Session);
    assert!(matches!(third, Claimed::InLine(_, full) if full == of_identity));
    assert!(
        granted(&limits.claim(claim("c", 2, Http, None))),
        "another identity"
    );
    let fourth = limits.claim(claim("d", 3, Http, None));
    assert!(matches!(
        fourth,
        Claimed::InLine(_, Limit::All(Kind::Session))
    ));
    assert!(
        granted(&limits.claim(claim("p", 1, Stdio, None))),
        "processes apart"
    );
    let second = limits.claim(claim("p", 2, Stdio, Some(1)));
    assert!(matches!(second, Claimed::InLine(_, Limit::Server(server)) if *server == *"p"));
}

/// A84: first come, first served; and a claim that its own identity stops, stops nobody else.
#[test]
fn room_goes_to_whoever_waited_longest_and_can_use_it() {
    use Transport::Http;
    let mut limits = Limits::new(ceilings());
    let of = |who| claim("a", who, Http, None);
    for who in [1, 1, 2] {
        assert!(granted(&limits.claim(of(who))));
    }
    let Claimed::InLine(same, _) = limits.claim(of(1)) else {
        panic!("its identity has two");
    };
    let Claimed::InLine(other, _) = limits.claim(of(3)) else {
        panic!("there are three in all");
    };
    let called = limits.release(&of(2), Was::Taken);
    assert_eq!(called[..], [other], "the first in line may not");
    assert!(limits.release(&of(3), Was::Taken).is_empty());
    assert_eq!(limits.release(&of(1), Was::Taken)[..], [same]);
    assert_eq!(limits.waiting(), 0);
}

/// A85: who leaves the line is not called; who was called before it left gives the room back.
#[test]
fn who_leaves_the_line_is_not_called() {
    let mut limits = Limits::new(Ceilings {
        sessions: 1,
        ..ceilings()
    });
    let of = |who| claim("a", who, Transport::Http, None);
    assert!(granted(&limits.claim(of(1))));
    let tickets: Vec<Ticket> = [2, 3]
        .map(|who| match limits.claim(of(who)) {
            Claimed::InLine(ticket, _) => ticket,
            Claimed::Granted => panic!("it is full"),
        })
        .to_vec();
    assert!(limits.leave(tickets[0]));
    assert_eq!(limits.release(&of(1), Was::Taken)[..], tickets[1..]);
    assert!(!limits.leave(tickets[1]), "it has room by now");
}

/// Room is made once for each who waits, not once for each who could make it.
#[test]
fn no_more_room_is_made_than_somebody_waits_for() {
    let mut limits = Limits::new(Ceilings {
        sessions: 2,
        ..ceilings()
    });
    let of = |who| claim("a", who, Transport::Http, None);
    assert!(granted(&limits.claim(of(1))));
    assert!(granted(&limits.claim(of(2))));
    assert!(!limits.is_needed(&of(1)), "nobody waits");
    assert!(!granted(&limits.claim(of(3))));
    assert!(limits.is_needed(&of(1)));
    limits.promise(&of(1));
    assert!(!limits.is_needed(&of(2)), "somebody makes it already");
    assert_eq!(limits.release(&of(1), Was::Promised).len(), 1);
    assert!(!limits.is_needed(&of(2)));
}

/// reliability I14: lowered limits are seen by whoever holds room; raised ones let in who waits.
#[test]
fn changed_limits_count_at_once() {
    let mut limits = Limits::new(ceilings());
    let of = |who| claim("a", who, Transport::Http, None);
    for who in [1, 2, 3] {
        assert!(granted(&limits.claim(of(who))));
    }
    assert!(!granted(&limits.claim(of(4))));
    let with = |sessions| Ceilings {
        sessions,
        ..ceilings()
    };
    assert!(limits.reconfigure(with(2)).is_empty());
    assert!(limits.is_over(&of(1)));
    assert_eq!(limits.reconfigure(with(4)).len(), 1);
    assert!(!limits.is_over(&of(1)));
}

/// DESIGN 2: a changed limit of a server applies in place, to those who wait as well.
#[test]
fn a_changed_limit_of_a_server_counts_for_those_who_wait() {
    let mut limits = Limits::new(ceilings());
    let of = |server, who, most| claim(server, who, Transport::Http, most);
    assert!(granted(&limits.claim(of("a", 1, Some(1)))));
    assert!(!granted(&limits.claim(of("a", 2, Some(1)))));
    assert!(!granted(&limits.claim(of("a", 3, Some(1)))));
    assert!(limits.decide("b", Some(9)).is_empty());
    assert_eq!(limits.decide("a", Some(2)).len(), 1);
    assert_eq!(limits.waiting(), 1);
    // Lowered again, it holds for who still waits.
    assert!(limits.decide("a", Some(1)).is_empty());
    assert!(limits.release(&of("a", 1, None), Was::Taken).is_empty());
    assert_eq!(limits.decide("a", None).len(), 1);
    assert_eq!(limits.taken(Kind::Session), 2);
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
    held: Vec<Claim>,
    line: Vec<(Ticket, Claim)>,
}

impl Model {
    fn fits(&self, one: &Claim) -> bool {
        let limits = Limits::new(ceilings());
        one.limits().all(|limit| {
            let counted = |held: &&Claim| held.limits().any(|its| its == limit);
            let taken = self.held.iter().filter(counted).count();
            taken < limits.most(&limit, one) as usize
        })
    }

    fn call(&mut self) -> Vec<Ticket> {
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
        let mut limits = Limits::new(ceilings());
        let mut model = Model::default();
        for one in moves {
            match one {
                Move::Claim(server, who, process) => {
                    let transport = if process { Transport::Stdio } else { Transport::Http };
                    let server_max = (server == 0).then_some(2);
                    let claim = claim(&format!("server-{server}"), who, transport, server_max);
                    let fits = model.fits(&claim);
                    match limits.claim(claim.clone()) {
                        Claimed::Granted => {
                            prop_assert!(fits);
                            model.held.push(claim);
                        },
                        Claimed::InLine(ticket, _) => {
                            prop_assert!(!fits);
                            model.line.push((ticket, claim));
                        },
                    }
                },
                Move::Release(n) => {
                    let Some(at) = n.checked_rem(model.held.len()) else { continue };
                    let claim = model.held.remove(at);
                    let called = limits.release(&claim, Was::Taken);
                    let mut called = called.to_vec();
                    let mut expected = model.call();
                    called.sort_unstable();
                    expected.sort_unstable();
                    prop_assert_eq!(called, expected);
                },
                Move::Leave(n) => {
                    let Some(at) = n.checked_rem(model.line.len()) else { continue };
                    let (ticket, _) = model.line.remove(at);
                    prop_assert!(limits.leave(ticket));
                },
            }
            prop_assert_eq!(limits.waiting(), model.line.len());
        }
        for claim in std::mem::take(&mut model.held) {
            limits.release(&claim, Was::Taken);
        }
    }
}
