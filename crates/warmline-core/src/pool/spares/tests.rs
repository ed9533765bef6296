//! What a shelf wants, keeps and gives away.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn at(secs: u64) -> Tick {
    Tick::from_start(Duration::from_secs(secs))
}

fn shelf(transport: Transport, wanted: u32) -> SpareSet {
    let mut shelf = SpareSet::new(transport, at(0));
    shelf.record_use(wanted, at(0));
    shelf
}

#[test]
fn a_shelf_asks_for_what_is_missing_and_no_more() {
    let mut shelf = shelf(Transport::Stdio, 2);
    assert_eq!(shelf.plan_refill(at(0)).open, 2);
    assert_eq!(shelf.plan_refill(at(0)).open, 0, "they are on their way");
    assert!(shelf.on_opened(at(1)).is_some());
    shelf.on_open_abandoned();
    assert_eq!(shelf.plan_refill(at(1)).open, 1, "one failed");
    assert!(shelf.on_opened(at(2)).is_some());
    assert!(shelf.take_spare(at(3)).is_some());
    assert_eq!(shelf.plan_refill(at(3)).open, 1, "one was taken");
}

/// reliability P5: a shelf that cannot be filled is tried ever more seldom, one at a time, until one
/// is there.
#[test]
fn a_shelf_that_cannot_be_filled_is_tried_ever_more_seldom() {
    let mut shelf = shelf(Transport::Stdio, 2);
    assert_eq!(shelf.plan_refill(at(0)).open, 2);
    // Both were tried together: that is one failure.
    shelf.on_open_failed(Reason::Unavailable, at(0));
    shelf.on_open_failed(Reason::Unavailable, at(0));
    let mut now = 0;
    for pause in [10, 20, 40, 80, 160, 320, 600, 600] {
        shelf.record_use(2, at(now));
        assert_eq!(shelf.plan_refill(at(now + pause - 1)).open, 0, "{pause}");
        now += pause;
        assert_eq!(shelf.plan_refill(at(now)).open, 1, "{pause}");
        assert_eq!(
            shelf.plan_refill(at(now)).open,
            0,
            "{pause}: one is on its way"
        );
        shelf.on_open_failed(Reason::Unavailable, at(now));
    }
    now += 600;
    assert_eq!(shelf.plan_refill(at(now)).open, 1);
    assert!(shelf.on_opened(at(now)).is_some());
    assert_eq!(shelf.plan_refill(at(now)).open, 1, "as before");
    shelf.on_open_failed(Reason::Unavailable, at(now));
    assert_eq!(shelf.plan_refill(at(now + 10)).open, 1, "and the pause too");
}

/// E20: a server that holds one session has none to spare; that is remembered as long as anybody
/// comes.
#[test]
fn a_server_that_holds_one_session_is_asked_for_one_spare_only() {
    let mut shelf = shelf(Transport::Http, 1);
    assert_eq!(shelf.plan_refill(at(0)).open, 1);
    shelf.on_open_failed(Reason::SingleSession, at(0));
    for hour in 0..24 {
        let now = at(hour * 3_600);
        shelf.record_use(1, now);
        assert_eq!(shelf.plan_refill(now).open, 0);
        assert!(!shelf.is_evictable(now));
    }
    let end = at(23 * 3_600 + RECENT_USE.as_secs());
    assert!(shelf.is_evictable(end));
}

#[test]
fn the_freshest_is_given_away_and_tells_how_long_it_rested() {
    let mut shelf = shelf(Transport::Stdio, 2);
    assert_eq!(shelf.plan_refill(at(0)).open, 2);
    let first = shelf.on_opened(at(10));
    let second = shelf.on_opened(at(20));
    assert_eq!(
        shelf.take_spare(at(25)),
        second.map(|id| (id, Duration::from_secs(5)))
    );
    assert_eq!(
        shelf.take_spare(at(25)),
        first.map(|id| (id, Duration::from_secs(15)))
    );
    assert_eq!(shelf.take_spare(at(25)), None);
}

/// DESIGN 5.2: spares are kept for credentials that were used lately, and for no others.
#[test]
fn nothing_is_kept_for_a_credential_that_nobody_uses() {
    let mut shelf = shelf(Transport::Stdio, 1);
    assert_eq!(shelf.plan_refill(at(0)).open, 1);
    assert!(shelf.on_opened(at(0)).is_some());
    let nearly = RECENT_USE.as_secs() - 1;
    assert!(shelf.plan_refill(at(nearly)).close.is_empty());
    let need = shelf.plan_refill(at(nearly + 1));
    assert_eq!((need.close.len(), need.open), (1, 0));
    assert!(shelf.is_evictable(at(nearly + 1)));
}

#[test]
fn an_old_http_session_is_replaced_and_given_to_nobody() {
    let mut shelf = shelf(Transport::Http, 1);
    assert_eq!(shelf.plan_refill(at(0)).open, 1);
    assert!(shelf.on_opened(at(0)).is_some());
    let old = at(MAX_HTTP_AGE.as_secs());
    assert_eq!(shelf.clone().take_spare(old), None);
    let need = shelf.plan_refill(old);
    assert_eq!((need.close.len(), need.open), (1, 1));
}

#[test]
fn the_session_of_a_first_contact_waits_a_moment_for_whoever_made_it() {
    let mut shelf = shelf(Transport::Http, 0);
    assert!(shelf.add_unused(at(0)).is_none(), "no spare is wanted");
    assert!(shelf.add_first_contact(at(0)).is_some());
    assert!(shelf.add_first_contact(at(0)).is_none(), "one is enough");
    let soon = FIRST_CONTACT_TTL.as_secs() - 1;
    assert!(shelf.plan_refill(at(soon)).close.is_empty());
    assert_eq!(shelf.plan_refill(at(soon + 1)).close.len(), 1);
}

/// DESIGN 2: a number that was decided anew counts at once, also for what was laid down just now,
/// but not where spares were never wanted.
#[test]
fn a_smaller_number_ends_spares_at_once() {
    let mut shelf = shelf(Transport::Stdio, 3);
    assert_eq!(shelf.plan_refill(at(0)).open, 3);
    for _ in 0..3 {
        assert!(shelf.on_opened(at(1)).is_some());
    }
    for (wanted, ended) in [(2, 1), (0, 2)] {
        shelf.set_wanted(wanted);
        let need = shelf.plan_refill(at(2));
        assert_eq!((need.close.len(), need.open), (ended, 0));
    }
    shelf.set_wanted(2);
    assert_eq!(shelf.plan_refill(at(2)).open, 0, "nobody came since");
    assert!(shelf.is_evictable(at(2)));
}

#[test]
fn a_cleared_shelf_wants_nothing() {
    let mut shelf = shelf(Transport::Stdio, 3);
    assert_eq!(shelf.plan_refill(at(0)).open, 3);
    assert!(shelf.on_opened(at(0)).is_some());
    assert_eq!(shelf.clear().len(), 1);
    assert!(shelf.on_opened(at(1)).is_none(), "it came too late");
    shelf.on_open_abandoned();
    assert_eq!(shelf.plan_refill(at(1)).open, 0);
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
                    let taken = shelf.take_spare(at(now));
                    prop_assert!(taken.is_none_or(|(id, _)| left.insert(id)), "given twice");
                    None
                },
                Move::Look => {
                    let need = shelf.plan_refill(at(now));
                    opening += need.open;
                    for id in need.close {
                        prop_assert!(left.insert(id), "closed after it was given away");
                    }
                    prop_assert!(shelf.idle_count() + opening >= shelf.wanted_now(at(now)));
                    None
                },
                Move::Opened if opening > 0 => {
                    opening -= 1;
                    shelf.on_opened(at(now))
                },
                Move::GaveUp if opening > 0 => {
                    opening -= 1;
                    shelf.on_open_abandoned();
                    None
                },
                Move::Put => shelf.add_unused(at(now)),
                Move::PutFirst => shelf.add_first_contact(at(now)),
                Move::Wait(secs) => {
                    now += secs;
                    None
                },
                Move::Used(wanted) => {
                    shelf.record_use(wanted, at(now));
                    None
                },
                Move::Opened | Move::GaveUp => None,
            };
            prop_assert!(put.is_none_or(|id| laid.insert(id)), "a number was given twice");
            prop_assert_eq!(shelf.opening_count(), opening);
            prop_assert_eq!(shelf.idle_count() as usize, laid.len() - left.len());
        }
    }
}
