//! Metrics: closed sets, sums that agree, names that stand in the table.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use proptest::prelude::*;
use warmline_core::code::{Code, Reason};
use warmline_core::delivery::Delivery;
use warmline_core::pool::Why;
use warmline_core::protocol::gone::Dialect;

use super::*;

/// Every word of a set has its own place and its own text.
fn check_set<W: ClosedSet + std::fmt::Debug>() {
    let mut words = BTreeSet::new();
    for (place, member) in W::ALL.iter().enumerate() {
        assert_eq!(member.place(), place, "{member:?}");
        assert!(words.insert(member.word()), "two are {}", member.word());
        let fits = |letter: char| letter.is_ascii_alphanumeric() || "-/_".contains(letter);
        assert!(member.word().chars().all(fits), "{}", member.word());
    }
}

/// reliability T20: no label holds an identity, a run or a text of others.
#[test]
fn every_label_is_a_closed_set_of_different_words() {
    check_set::<Acquired>();
    check_set::<SessionState>();
    check_set::<OpenResult>();
    check_set::<HealCause>();
    check_set::<HealResult>();
    check_set::<CheckResult>();
    check_set::<BreakerScope>();
    check_set::<BreakerState>();
    check_set::<MethodWord>();
    check_set::<CallOutcome>();
    check_set::<ChildEnd>();
    check_set::<StoreOperation>();
    check_set::<StoreResult>();
    check_set::<RefreshResult>();
    check_set::<Refusal>();
    check_set::<Code>();
    check_set::<Reason>();
    check_set::<Delivery>();
    check_set::<CallFate>();
    check_set::<Dialect>();
    check_set::<Why>();
}

#[test]
fn every_dialect_is_a_cause_of_the_same_word() {
    for dialect in Dialect::ALL {
        assert_eq!(HealCause::of(dialect).word(), dialect.word());
    }
}

#[test]
fn every_method_word_is_the_method_it_stands_for() {
    for word in MethodWord::ALL {
        assert_eq!(MethodWord::of(word.word()), *word);
    }
    assert_eq!(MethodWord::of("acme/secret-method"), MethodWord::Other);
}

#[test]
fn a_server_is_registered_once_and_shown_until_it_is_forgotten() {
    let metrics = Metrics::default();
    let first = metrics.server("github");
    first.attempts.one_more();
    metrics.server("github").attempts.one_more();
    metrics.server("browser");
    let names: Vec<String> = metrics
        .snapshot()
        .servers
        .iter()
        .map(|numbers| numbers.server.to_string())
        .collect();
    assert_eq!(names, ["browser", "github"]);
    let github = metrics.snapshot();
    assert_eq!(
        github
            .server("github")
            .unwrap()
            .count("attempts_total", &[]),
        2
    );
    metrics.forget("github");
    assert!(metrics.snapshot().server("github").is_none());
    first.attempts.one_more();
}

/// Counts everything there is once, so that nothing is left out of a snapshot for being zero.
fn count_everything(metrics: &Metrics) {
    fn each<W: ClosedSet>(counters: &CountBy<W>) {
        W::ALL.iter().for_each(|word| counters.one_more(*word));
    }
    fn pairs<V: ClosedSet, W: ClosedSet>(counters: &CountByTwo<V, W>) {
        for first in V::ALL {
            W::ALL
                .iter()
                .for_each(|word| counters.one_more(*first, *word));
        }
    }
    let server = metrics.server("s");
    each(&server.acquires);
    each(&server.opens);
    pairs(&server.heals);
    each(&server.gone);
    each(&server.checks);
    each(&server.closes);
    pairs(&server.breaker_changes);
    each(&server.refusals);
    pairs(&server.calls);
    each(&server.fates);
    pairs(&server.failures);
    each(&server.resends);
    each(&server.child_ends);
    pairs(&server.store);
    each(&server.refreshes);
}

#[test]
fn every_number_of_a_snapshot_stands_in_the_table_and_the_other_way_round() {
    let metrics = Metrics::default();
    count_everything(&metrics);
    let snapshot = metrics.snapshot();
    let shown = snapshot
        .engine
        .iter()
        .chain(&snapshot.server("s").unwrap().numbers);
    let mut names = BTreeSet::new();
    for number in shown {
        let metric = Metric::find(number.name).unwrap_or_else(|| panic!("{}", number.name));
        assert_eq!(number.words.len(), metric.labels.len(), "{}", number.name);
        let is_spread = matches!(number.value, Value::Spread(_));
        assert_eq!(is_spread, metric.kind == Kind::Histogram, "{}", number.name);
        assert_eq!(
            number.name.ends_with("_total"),
            metric.kind == Kind::Counter
        );
        names.insert(number.name);
    }
    let table: BTreeSet<&str> = METRICS.iter().map(|metric| metric.name).collect();
    assert_eq!(names, table);
    assert_eq!(table.len(), METRICS.len(), "a name stands there twice");
}

#[test]
fn a_snapshot_is_json_that_says_only_words_of_ours() {
    let metrics = Metrics::default();
    metrics.server("github").acquires.one_more(Acquired::Hit);
    metrics
        .server("github")
        .open_time
        .took(Duration::from_millis(3));
    let json = serde_json::to_value(metrics.snapshot()).unwrap();
    let numbers = json["servers"][0]["numbers"].as_array().unwrap();
    let hit = serde_json::json!({"name": "acquires_total", "words": ["hit"], "value": 1});
    assert!(numbers.contains(&hit), "{json}");
    let spread = numbers
        .iter()
        .find(|number| number["name"] == "open_seconds");
    assert_eq!(spread.unwrap()["value"]["sum"], 3000);
    assert_eq!(json["sessions"], serde_json::json!([]));
}

/// One thing that can become of a call.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Answered,
    Failed(Delivery, Code),
    DroppedBeforeSending,
    DroppedAfterSending,
    DroppedBetweenAttempts,
}

fn fates() -> impl Strategy<Value = Fate> {
    prop_oneof![
        Just(Fate::Answered),
        Just(Fate::Failed(Delivery::Unsent, Code::PoolFull)),
        Just(Fate::Failed(Delivery::Refused, Code::SessionLost)),
        Just(Fate::Failed(Delivery::Unknown, Code::AnswerLost)),
        Just(Fate::Failed(Delivery::Unknown, Code::Deadline)),
        Just(Fate::DroppedBeforeSending),
        Just(Fate::DroppedAfterSending),
        Just(Fate::DroppedBetweenAttempts),
    ]
}

fn live(metrics: &Arc<ServerMetrics>, fate: Fate) -> CallFate {
    let mut call = CallUnderWay::begin(metrics, MethodWord::ToolsCall);
    match fate {
        Fate::DroppedBeforeSending => CallFate::Unsent,
        Fate::DroppedAfterSending => {
            call.attempt();
            CallFate::Cancelled
        },
        Fate::DroppedBetweenAttempts => {
            call.attempt();
            call.known_so_far(Delivery::Refused);
            CallFate::Refused
        },
        Fate::Answered => {
            call.attempt();
            call.answered(CallOutcome::Ok);
            CallFate::Answered
        },
        Fate::Failed(delivery, code) => {
            call.failed(delivery, code);
            CallFate::of(delivery)
        },
    }
}

proptest! {
    /// reliability I28: calls are the sum of what became of them, also of those that were dropped.
    #[test]
    fn calls_are_the_sum_of_what_became_of_them(lives in proptest::collection::vec(fates(), 0..60)) {
        let metrics = Metrics::default().server("s");
        let mut expected = [0_u64; 5];
        for fate in &lives {
            expected[live(&metrics, *fate).place()] += 1;
        }
        let fates = CallFate::ALL.iter().map(|word| metrics.fates.count(*word));
        prop_assert_eq!(fates.collect::<Vec<_>>(), expected);
        let calls = u64::try_from(lives.len()).unwrap();
        prop_assert_eq!(metrics.calls_begun.count(), calls);
        prop_assert_eq!(metrics.fates.total(), calls);
        prop_assert_eq!(metrics.calls.total(), calls);
        prop_assert_eq!(metrics.call_time.count(), calls);
        let failed = calls - metrics.fates.count(CallFate::Answered);
        prop_assert_eq!(metrics.failures.total(), failed);
    }

    #[test]
    fn a_spread_loses_no_value(values in proptest::collection::vec(0_u64..4_000_000_000, 0..80)) {
        let spread = Spread::of(Unit::Time);
        values.iter().for_each(|value| spread.add(*value));
        let read = spread.read();
        prop_assert_eq!(read.count, u64::try_from(values.len()).unwrap());
        prop_assert_eq!(read.sum, values.iter().sum::<u64>());
        let mut below = 0;
        for (bound, bucket) in read.bounds().iter().zip(&read.buckets) {
            below += bucket;
            let counted = values.iter().filter(|value| *value <= bound).count();
            prop_assert_eq!(below, u64::try_from(counted).unwrap());
        }
    }
}

#[test]
fn a_call_is_under_way_until_it_ends() {
    let metrics = Metrics::default();
    let server = metrics.server("s");
    let call = CallUnderWay::begin(&server, MethodWord::ToolsCall);
    let under_way = || {
        metrics
            .snapshot()
            .server("s")
            .unwrap()
            .count("calls_under_way", &[])
    };
    assert_eq!(under_way(), 1);
    call.failed(Delivery::Unsent, Code::Deadline);
    assert_eq!(under_way(), 0);
    let timeouts = server
        .calls
        .count(MethodWord::ToolsCall, CallOutcome::Timeout);
    assert_eq!(timeouts, 1);
}

#[test]
fn the_bound_of_a_share_is_the_first_that_holds_it() {
    let spread = Spread::of(Unit::Number);
    for value in [0, 0, 2, 5, 500] {
        spread.add(value);
    }
    let read = spread.read();
    assert_eq!(read.bound_of(0.5), Some(2));
    assert_eq!(read.bound_of(0.8), Some(6));
    assert_eq!(read.bound_of(0.99), None, "above the last bound");
    assert_eq!(
        Spread::of_time().read().bound_of(0.5),
        None,
        "nothing there"
    );
}

/// reliability I29: no level goes below zero, and who asks for that hears it.
#[test]
fn levels_never_go_below_zero() {
    let level = Level::default();
    assert!(!level.down());
    assert_eq!(level.level(), 0);
    let levels = LevelBy::<SessionState>::default();
    assert!(levels.moved(None, Some(SessionState::Opening)));
    assert!(levels.moved(Some(SessionState::Opening), Some(SessionState::Idle)));
    assert!(
        !levels.moved(Some(SessionState::Opening), None),
        "it left before"
    );
    assert_eq!(levels.level(SessionState::Idle), 1);
}

#[test]
fn breakers_that_pass_are_not_counted_as_being_in_a_state() {
    let metrics = Metrics::default();
    let server = metrics.server("s");
    let state = |scope, state| {
        metrics
            .snapshot()
            .server("s")
            .unwrap()
            .count("breaker_state", &[scope, state])
    };
    let go = |from, to| assert!(server.breaker_moved(BreakerScope::Identity, from, to));
    go(BreakerState::Passing, BreakerState::Tripped);
    assert_eq!(state("identity", "tripped"), 1);
    assert_eq!(state("server", "tripped"), 0);
    go(BreakerState::Tripped, BreakerState::Probing);
    go(BreakerState::Probing, BreakerState::Passing);
    assert_eq!(
        state("identity", "tripped") + state("identity", "probing"),
        0
    );
    assert_eq!(server.breaker_changes.count_of(BreakerScope::Identity), 3);
}

#[test]
fn many_threads_lose_no_count() {
    let metrics = Metrics::default().server("s");
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..5000 {
                    metrics.acquires.one_more(Acquired::Hit);
                    metrics.waiters.up();
                    metrics.lease_time.took(Duration::from_micros(5));
                    assert!(metrics.waiters.down());
                }
            });
        }
    });
    assert_eq!(metrics.acquires.count(Acquired::Hit), 20_000);
    assert_eq!(metrics.lease_time.count(), 20_000);
    assert_eq!(metrics.waiters.level(), 0);
}
