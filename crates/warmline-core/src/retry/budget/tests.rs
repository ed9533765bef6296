//! The budget holds over any ten seconds, and pauses are kept.

use proptest::prelude::*;

use super::*;
use crate::delivery::{Delivery, Idempotency};
use crate::retry::{AttemptHistory, FailureClass};

fn at(millis: u64) -> Tick {
    Tick::from_start(Duration::from_millis(millis))
}

/// reliability R5, reliability P21: a quiet server gets its second try, a busy one a fifth of its calls.
#[test]
fn the_budget_is_a_floor_and_a_share_of_the_calls() {
    #[rustfmt::skip]
    let table = [
        // calls   resends that are paid
        (0,        30),
        (4,        30),
        (5,        31),
        (1_000,    230),
    ];
    for (calls, most) in table {
        let mut budget = RetryBudget::default();
        budget.record_calls(at(500), calls);
        let paid = (0..10_000)
            .take_while(|_| {
                let is_full = budget.allows_retry(at(600));
                budget.record_retry(at(600));
                is_full
            })
            .count();
        assert_eq!(paid, most, "{calls} calls");
    }
}

#[test]
fn a_spent_budget_comes_back() {
    let mut budget = RetryBudget::default();
    for _ in 0..30 {
        budget.record_retry(at(900));
    }
    #[rustfmt::skip]
    let table = [
        (900, false), (10_999, false), (11_000, true), (3_600_000, true),
    ];
    for (millis, allowed) in table {
        assert_eq!(budget.allows_retry(at(millis)), allowed, "{millis} ms");
    }
}

/// reliability R5: what is decided is paid, and what is free is not.
#[test]
fn a_decision_that_costs_is_paid_with_it() {
    let attempt = |hurdle| Attempt {
        delivery: Delivery::Refused,
        idempotency: Idempotency::Idempotent,
        failure: hurdle,
        retry_after: None,
        history: AttemptHistory::default(),
        max_session_replacements: 1,
        has_streamed: false,
        can_refresh_credential: false,
        time_left: Duration::from_secs(60),
        max_retry_after: Duration::from_secs(30),
        typical_latency: Duration::ZERO,
        has_budget: false,
        random: 0,
    };
    let mut budget = RetryBudget::default();
    let is_again = |next| matches!(next, RetryDecision::Retry { .. });
    for _ in 0..1_000 {
        assert!(is_again(
            budget.decide_retry(&attempt(FailureClass::SessionGone), at(0))
        ));
    }
    let sent =
        (0..1_000).filter(|_| is_again(budget.decide_retry(&attempt(FailureClass::Busy), at(0))));
    assert_eq!(sent.count(), 30);
}

#[test]
fn calls_of_a_long_time_count_by_their_share() {
    #[rustfmt::skip]
    let table = [
        // noted at    calls     resends that are paid
        (5_000,        1_000,    230),
        (10_000,       1_000,    230),
        (20_000,       1_000,    130),
        (3_600_000,    36_000,   50),
        (3_600_000,    1,        30),
    ];
    for (noted, calls, most) in table {
        let mut budget = RetryBudget::default();
        budget.record_calls(at(noted), calls);
        let mut paid = 0;
        while budget.allows_retry(at(noted)) {
            budget.record_retry(at(noted));
            paid += 1;
        }
        assert_eq!(paid, most, "{calls} calls in {noted} ms");
    }
}

proptest! {
    /// reliability P21: no order and no pace of calls gets more resends out of ten seconds.
    #[test]
    fn no_ten_seconds_hold_more_resends_than_the_budget(
        moves in prop::collection::vec((0..400_u64, any::<bool>()), 0..600),
    ) {
        let mut budget = RetryBudget::default();
        let (mut calls, mut resends, mut now) = (Vec::new(), Vec::new(), 0);
        for (pause, is_call) in moves {
            now += pause;
            if is_call {
                budget.record_calls(at(now), 1);
                calls.push(now);
            } else if budget.allows_retry(at(now)) {
                budget.record_retry(at(now));
                resends.push(now);
                let since = |times: &[u64]| times.iter().filter(|time| **time + 10_000 > now).count();
                prop_assert!(since(&resends) <= since(&calls) / 5 + 30, "at {now} ms");
            }
        }
    }
}

/// reliability R6, reliability I36: a server that asks for a pause gets it, up to an hour.
#[test]
fn a_pause_that_a_server_asked_for_is_kept() {
    let mut cooldown = Cooldown::default();
    assert_eq!(cooldown.remaining(at(0)), None);
    cooldown.extend(at(1_000), Duration::from_secs(2));
    // A shorter one that comes later does not shorten it.
    cooldown.extend(at(1_500), Duration::from_millis(10));
    #[rustfmt::skip]
    let table = [
        (1_500, Some(1_500)), (2_999, Some(1)), (3_000, None), (9_000, None),
    ];
    for (now, left) in table {
        assert_eq!(
            cooldown.remaining(at(now)),
            left.map(Duration::from_millis),
            "{now} ms"
        );
    }
    cooldown.extend(at(9_000), Duration::MAX);
    assert_eq!(cooldown.remaining(at(9_000)), Some(MAX_COOLDOWN));
}
