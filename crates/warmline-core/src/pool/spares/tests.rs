//! What a shelf wants, keeps and gives away.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn at(secs: u64) -> Tick {
    Tick::at(Duration::from_secs(secs))
}

fn shelf(transport: Transport, wanted: u32) -> Shelf {
    let mut shelf = Shelf::new(transport, at(0));
    shelf.used(wanted, at(0));
    shelf
}

#[test]
fn a_shelf_asks_for_what_is_missing_and_no_more() {
    let mut shelf = shelf(Transport::Stdio, 2);
    assert_eq!(shelf.look(at(0)).open, 2);
    assert_eq!(shelf.look(at(0)).open, 0, "they are on their way");
    assert!(shelf.opened(at(1)).is_some());
    shelf.gave_up();
    assert_eq!(shelf.look(at(1)).open, 1, "one failed");
    assert!(shelf.opened(at(2)).is_some());
    assert!(shelf.take(at(3)).is_some());
    assert_eq!(shelf.look(at(3)).open, 1, "one was taken");
}

/// reliability P5: a shelf that cannot be filled is tried ever more seldom, one at a time, until one
/// is there.
#[test]
fn a_shelf_that_cannot_be_filled_is_tried_ever_more_seldom() {
    let mut shelf = shelf(Transport::Stdio, 2);
    assert_eq!(shelf.look(at(0)).open, 2);
    // Both were tried together: that is one failure.
    shelf.failed(Reason::Unavailable, at(0));
    shelf.failed(Reason::Unavailable, at(0));
    let mut now = 0;
    for pause in [10, 20, 40, 80, 160, 320, 600, 600] {
        shelf.used(2, at(now));
        assert_eq!(shelf.look(at(now + pause - 1)).open, 0, "{pause}");
        now += pause;
        assert_eq!(shelf.look(at(now)).open, 1, "{pause}");
        assert_eq!(shelf.look(at(now)).open, 0, "{pause}: one is on its way");
        shelf.failed(Reason::Unavailable, at(now));
    }
    now += 600;
    assert_eq!(shelf.look(at(now)).open, 1);
    assert!(shelf.opened(at(now)).is_some());
    assert_eq!(shelf.look(at(now)).open, 1, "as before");
    shelf.failed(Reason::Unavailable, at(now));
    assert_eq!(shelf.look(at(now + 10)).open, 1, "and the pause too");
}

/// E20: a server that holds one session has none to spare; that is remembered as long as anybody
/// comes.
#[test]
fn a_server_that_holds_one_session_is_asked_for_one_spare_only() {
    let mut shelf = shelf(Transport::Http, 1);
    assert_eq!(shelf.look(at(0)).open, 1);
    shelf.failed(Reason::SingleSession, at(0));
    for hour in 0..24 {
        let now = at(hour * 3_600);
        shelf.used(1, now);
        assert_eq!(shelf.look(now).open, 0);
        assert!(!shelf.is_forgettable(now));
    }
    let end = at(23 * 3_600 + LATELY.as_secs());
    assert!(shelf.is_forgettable(end));
}

#[test]
fn the_freshest_is_given_away_and_tells_how_long_it_rested() {
    let mut shelf = shelf(Transport::Stdio, 2);
    assert_eq!(shelf.look(at(0)).open, 2);
    let first = shelf.opened(at(10));
    let second = shelf.opened(at(20));
    assert_eq!(
        shelf.take(at(25)),
        second.map(|id| (id, Duration::from_secs(5)))
    );
    assert_eq!(
        shelf.take(at(25)),
        first.map(|id| (id, Duration::from_secs(15)))
    );
    assert_eq!(shelf.take(at(25)), None);
}

/// DESIGN 5.2: spares are kept for credentials that were used lately, and for no others.
#[test]
fn nothing_is_kept_for_a_credential_that_nobody_uses() {
    let mut shelf = shelf(Transport::Stdio, 1);
    assert_eq!(shelf.look(at(0)).open, 1);
    assert!(shelf.opened(at(0)).is_some());
    let nearly = LATELY.as_secs() - 1;
    assert!(shelf.look(at(nearly)).close.is_empty());
    let need = shelf.look(at(nearly + 1));
    assert_eq!((need.close.len(), need.open), (1, 0));
    assert!(shelf.is_forgettable(at(nearly + 1)));
}

#[test]
fn an_old_http_session_is_replaced_and_given_to_nobody() {
    let mut shelf = shelf(Transport::Http, 1);
    assert_eq!(shelf.look(at(0)).open, 1);
    assert!(shelf.opened(at(0)).is_some());
    let old = at(HTTP_AGE.as_secs());
    assert_eq!(shelf.clone().take(old), None);
    let need = shelf.look(old);
    assert_eq!((need.close.len(), need.open), (1, 1));
}

#[test]
fn the_session_of_a_first_contact_waits_a_moment_for_whoever_made_it() {
    let mut shelf = shelf(Transport::Http, 0);
    assert!(shelf.put(at(0)).is_none(), "no spare is wanted");
    assert!(shelf.put_first(at(0)).is_some());
    assert!(shelf.put_first(at(0)).is_none(), "one is enough");
    let soon = FIRST_CONTACT.as_secs() - 1;
    assert!(shelf.look(at(soon)).close.is_empty());
    assert_eq!(shelf.look(at(soon + 1)).close.len(), 1);
}

/// DESIGN 2: a number that was decided anew counts at once, also for what was laid down just now,
/// but not where spares were never wanted.
#[test]
fn a_smaller_number_ends_spares_at_once() {
    let mut shelf = shelf(Transport::Stdio, 3);
    assert_eq!(shelf.look(at(0)).open, 3);
    for _ in 0..3 {
        assert!(shelf.opened(at(1)).is_some());
    }
    for (wanted, ended) in [(2, 1), (0, 2)] {
        shelf.decide(wanted);
        let need = shelf.look(at(2));
        assert_eq!((need.close.len(), need.open), (ended, 0));
    }
    shelf.decide(2);
    assert_eq!(shelf.look(at(2)).open, 0, "nobody came since");
    assert!(shelf.is_forgettable(at(2)));
}

#[test]
fn a_cleared_shelf_wants_nothing() {
    let mut shelf = shelf(Transport::Stdio, 3);
    assert_eq!(shelf.look(at(0)).open, 3);
    assert!(shelf.opened(at(0)).is_some());
    assert_eq!(shelf.clear().len(), 1);
    assert!(shelf.opened(at(1)).is_none(), "it came too late");
    shelf.gave_up();
    assert_eq!(shelf.look(at(1)).open, 0);
}

#[derive(Clone, Copy, Debug)]
enum Move {
    Take,
    Look,
    Opened,
    GaveUp,
    Put,
    PutFirst,
    Wait(u64),
    Used(u32),
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let one = prop_oneof![
        Just(Move::Take),
        Just(Move::Look),
        Just(Move::Opened),
        Just(Move::GaveUp),
        Just(Move::Put),
        Just(Move::PutFirst),
        (1_u64..600).prop_map(Move::Wait),
        (0_u32..4).prop_map(Move::Used),
    ];
    proptest::collection::vec(one, 0..80)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// reliability I32: no spare is given away twice, or closed after it was given away.
    #[test]
    fn a_spare_is_given_away_once(moves in moves()) {
        let (mut shelf, mut now, mut opening) = (shelf(Transport::Http, 2), 0, 0);
        let (mut laid, mut left) = (BTreeSet::new(), BTreeSet::new());
        for one in moves {
            let put = match one {
                Move::Take => {
                    let taken = shelf.take(at(now));
                    prop_assert!(taken.is_none_or(|(id, _)| left.insert(id)), "given twice");
                    None
                },
                Move::Look => {
                    let need = shelf.look(at(now));
                    opening += need.open;
                    for id in need.close {
                        prop_assert!(left.insert(id), "closed after it was given away");
                    }
                    prop_assert!(shelf.resting() + opening >= shelf.wanted_now(at(now)));
                    None
                },
                Move::Opened if opening > 0 => {
                    opening -= 1;
                    shelf.opened(at(now))
                },
                Move::GaveUp if opening > 0 => {
                    opening -= 1;
                    shelf.gave_up();
                    None
                },
                Move::Put => shelf.put(at(now)),
                Move::PutFirst => shelf.put_first(at(now)),
                Move::Wait(secs) => {
                    now += secs;
                    None
                },
                Move::Used(wanted) => {
                    shelf.used(wanted, at(now));
                    None
                },
                Move::Opened | Move::GaveUp => None,
            };
            prop_assert!(put.is_none_or(|id| laid.insert(id)), "a number was given twice");
            prop_assert_eq!(shelf.opening(), opening);
            prop_assert_eq!(shelf.resting() as usize, laid.len() - left.len());
        }
    }
}
