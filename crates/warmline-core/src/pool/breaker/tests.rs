//! When a breaker trips, for how long, and who is let through.

use super::*;

const POLICY: BreakerPolicy = BreakerPolicy {
    threshold: 5,
    reset: Duration::from_secs(10),
    longest: Duration::from_secs(60),
};

/// Dice that leave a pause whole.
const WHOLE: u32 = u32::MAX;

fn at(secs: u64) -> Tick {
    Tick::from_start(Duration::from_secs(secs))
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn ask(breaker: &mut Breaker, now: u64) -> BreakerDecision {
    breaker.try_acquire(at(now), &POLICY).0
}

fn open(breaker: &mut Breaker, now: u64) -> Option<BreakerTransition> {
    breaker.on_opened(at(now), &POLICY)
}

fn fail(breaker: &mut Breaker, now: u64) -> Option<BreakerTransition> {
    breaker.on_open_failed(at(now), &POLICY, WHOLE)
}

fn tripped(now: Tick) -> Breaker {
    let mut breaker = Breaker::new();
    for _ in 0..5 {
        breaker.on_open_failed(now, &POLICY, WHOLE);
    }
    breaker
}

/// A89: five failures in a row trip it, and then it says when trying makes sense.
#[test]
fn five_failures_in_a_row_trip_it() {
    let mut breaker = Breaker::new();
    for _ in 0..4 {
        assert_eq!(fail(&mut breaker, 0), None);
        assert_eq!(ask(&mut breaker, 0), BreakerDecision::Allow);
    }
    assert_eq!(
        fail(&mut breaker, 0),
        Some(BreakerTransition::Opened(secs(10)))
    );
    assert_eq!(
        breaker.try_acquire(at(4), &POLICY),
        (BreakerDecision::Deny(secs(6)), None)
    );
    assert_eq!(breaker.remaining_pause(at(4)), Some(secs(6)));
}

/// A90, reliability I21: exactly one is let through, and its failure doubles the pause up to a cap.
#[test]
fn one_probe_at_a_time_and_longer_pauses() {
    let mut breaker = tripped(at(0));
    let mut now = 10;
    for pause in [20, 40, 60, 60] {
        assert_eq!(
            breaker.try_acquire(at(now), &POLICY),
            (BreakerDecision::Probe, Some(BreakerTransition::HalfOpened))
        );
        assert!(
            matches!(ask(&mut breaker, now), BreakerDecision::Deny(_)),
            "one is enough"
        );
        let change = fail(&mut breaker, now);
        assert_eq!(change, Some(BreakerTransition::Opened(secs(pause))));
        now += pause;
    }
    assert_eq!(ask(&mut breaker, now), BreakerDecision::Probe);
    assert_eq!(open(&mut breaker, now), Some(BreakerTransition::Closed));
    assert_eq!(ask(&mut breaker, now), BreakerDecision::Allow);
}

/// A91: a session that serves takes all failures back.
#[test]
fn a_session_that_serves_starts_the_count_anew() {
    let mut breaker = Breaker::new();
    for _ in 0..4 {
        fail(&mut breaker, 0);
    }
    assert_eq!(open(&mut breaker, 0), None);
    assert_eq!(breaker.on_session_stable(), None);
    assert!(breaker.is_evictable(at(0)));
    assert_eq!(fail(&mut breaker, 0), None);
}

/// A126: a server that forgets every session at once trips it, although every opening succeeds.
#[test]
fn sessions_lost_before_they_served_count_as_failed_openings() {
    let mut breaker = Breaker::new();
    let mut changes = Vec::new();
    for _ in 0..5 {
        assert_eq!(open(&mut breaker, 0), None);
        changes.extend(fail(&mut breaker, 0));
    }
    assert_eq!(changes, [BreakerTransition::Opened(secs(10))]);
    // The probe opens one, and that is lost too: the pause grows.
    assert_eq!(ask(&mut breaker, 10), BreakerDecision::Probe);
    assert_eq!(open(&mut breaker, 10), Some(BreakerTransition::Closed));
    assert_eq!(
        fail(&mut breaker, 10),
        Some(BreakerTransition::Opened(secs(20)))
    );
}

/// reliability P35, reliability I34: five that were opened in vain within a minute of one another
/// trip it, and the pause grows as long as they go on; what lies further apart says nothing.
#[test]
fn what_was_opened_in_vain_counts_while_it_goes_on() {
    let (apart, mut close, mut far) = (61, Breaker::new(), Breaker::new());
    for round in 0..5 {
        assert_eq!(open(&mut close, round * 60), None);
        let tripped = fail(&mut close, round * 60).is_some();
        assert_eq!(tripped, round == 4);
    }
    for round in 0..20 {
        assert_eq!(open(&mut far, round * apart), None);
        assert_eq!(fail(&mut far, round * apart), None);
    }
    // After a pause of ten seconds: one more within the time, and one long after.
    assert_eq!(ask(&mut close, 250), BreakerDecision::Probe);
    assert_eq!(open(&mut close, 250), Some(BreakerTransition::Closed));
    let mut healed = close;
    assert_eq!(
        fail(&mut close, 290),
        Some(BreakerTransition::Opened(secs(20)))
    );
    assert_eq!(open(&mut healed, 311), None);
    assert_eq!(
        healed,
        Breaker {
            state: CircuitState::Closed { failures: 0 },
            last_pause: Duration::ZERO,
            ..healed
        }
    );
    // Without a single opening between them they are in a row, however far apart (A89).
    let mut silent = Breaker::new();
    let changes = (0..5).filter_map(|round| fail(&mut silent, round * 300));
    assert_eq!(changes.count(), 1);
}

/// reliability P5, reliability P14: one restart that takes many sessions is one failure, however
/// many they are and whenever it is noticed; what was opened since, and is over too, is another.
#[test]
fn a_restart_that_takes_many_sessions_is_one_failure() {
    let mut breaker = Breaker::new();
    for seen in 0..100 {
        let change = breaker.on_session_short_lived(at(9), at(10 + seen), &POLICY, WHOLE);
        assert_eq!(change, None, "{seen}");
    }
    let again = (1..5).map(|round| {
        let round = at(10 + round);
        breaker.on_session_short_lived(round, round, &POLICY, WHOLE)
    });
    let tripped = Some(BreakerTransition::Opened(secs(10)));
    assert_eq!(again.collect::<Vec<_>>(), [None, None, None, tripped]);
}

/// A probe that is given up lets the next one through at once.
#[test]
fn a_probe_that_is_given_up_blocks_nobody() {
    let mut breaker = tripped(at(0));
    assert_eq!(ask(&mut breaker, 10), BreakerDecision::Probe);
    assert!(breaker.on_probe_abandoned(at(11)).is_some());
    assert_eq!(ask(&mut breaker, 11), BreakerDecision::Probe);
}

/// What was begun before it tripped makes the pause no longer.
#[test]
fn late_failures_say_nothing_new() {
    let mut breaker = tripped(at(0));
    assert_eq!(fail(&mut breaker, 5), None);
    assert_eq!(breaker.remaining_pause(at(5)), Some(secs(5)));
    assert_eq!(breaker.on_probe_abandoned(at(5)), None, "nothing was tried");
}

/// A81: what failed long ago is forgotten, also where nobody came back.
#[test]
fn old_failures_are_forgotten() {
    let mut once = Breaker::new();
    fail(&mut once, 100);
    assert!(!once.is_evictable(at(699)) && once.is_evictable(at(700)));
    let mut breaker = tripped(at(100));
    assert!(!breaker.is_evictable(at(709)) && breaker.is_evictable(at(710)));
    assert_eq!(ask(&mut breaker, 110), BreakerDecision::Probe);
    assert!(!breaker.is_evictable(at(9_999)), "somebody is finding out");
}

/// A92, A93: who is blamed for a failed opening.
#[test]
fn the_server_is_blamed_for_what_all_will_meet_and_an_identity_for_its_own() {
    #[rustfmt::skip]
    let table = [
        (Reason::ConnectRefused,        Blame::Server),
        (Reason::Dns,                   Blame::Server),
        (Reason::Tls,                   Blame::Server),
        (Reason::Unreachable,           Blame::Server),
        (Reason::SilentServer,          Blame::Server),
        (Reason::ProgramMissing,        Blame::Server),
        (Reason::ServerError,           Blame::Server),
        (Reason::TimeoutUnsent,         Blame::Server),
        (Reason::Unauthorized,          Blame::Identity),
        (Reason::Forbidden,             Blame::Identity),
        (Reason::RateLimited,           Blame::Identity),
        (Reason::CredentialUnavailable, Blame::Identity),
        (Reason::LocalResources,        Blame::Nobody),
        (Reason::Cancelled,             Blame::Nobody),
        (Reason::PoolFull,              Blame::Nobody),
        (Reason::Internal,              Blame::Nobody),
    ];
    for (reason, expected) in table {
        assert_eq!(blame(reason.code(), reason), expected, "{reason}");
    }
    let refused = blame(Code::CredentialRefused, Reason::Rejected);
    assert_eq!(
        refused,
        Blame::Identity,
        "the code says more than the reason"
    );
}

/// P10: pauses grow to a cap, and are spread: no two processes come back at the same moment.
#[test]
fn pauses_are_spread_below_what_was_said() {
    let mut pauses = std::collections::BTreeSet::new();
    for step in 0..=100_u32 {
        let mut breaker = Breaker::new();
        let dice = step * (u32::MAX / 100);
        let trip = (0..5).find_map(|_| breaker.on_open_failed(at(0), &POLICY, dice));
        let Some(BreakerTransition::Opened(pause)) = trip else {
            panic!("five failures trip it: {trip:?}");
        };
        assert!(
            (POLICY.reset * 19 / 20..=POLICY.reset).contains(&pause),
            "{pause:?}"
        );
        assert_eq!(breaker.remaining_pause(at(0)), Some(pause));
        pauses.insert(pause);
    }
    assert!(pauses.len() > 90, "{pauses:?}");
}
