//! Metrics: closed sets, sums that agree, names that stand in the table.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use proptest::prelude::*;
use warmline_core::delivery::Delivery;
use warmline_core::error::code::{Code, Reason};
use warmline_core::pool::EndReason;
use warmline_core::pool::breaker::BreakerState;
use warmline_core::protocol::session_gone::SessionGoneForm;

use super::*;

/// Every word of a set has its own place and its own text.
fn check_set<W: WordEnum + std::fmt::Debug>() {
    let mut words = BTreeSet::new();
    for (place, member) in W::ALL.iter().enumerate() {
        assert_eq!(member.index(), place, "{member:?}");
        assert!(words.insert(member.as_str()), "two are {}", member.as_str());
        let fits = |letter: char| letter.is_ascii_alphanumeric() || "-/_".contains(letter);
        assert!(member.as_str().chars().all(fits), "{}", member.as_str());
    }
}

/// reliability T20: no label holds an identity, a run or a text of others.
#[test]
fn every_label_is_a_closed_set_of_different_words() {
    check_set::<AcquireOutcome>();
    check_set::<SessionState>();
    check_set::<OpenResult>();
    check_set::<HealCause>();
    check_set::<HealResult>();
    check_set::<CheckResult>();
    check_set::<BreakerScope>();
    check_set::<BreakerState>();
    check_set::<MethodLabel>();
    check_set::<CallOutcome>();
    check_set::<ChildEnd>();
    check_set::<StoreOperation>();
    check_set::<StoreResult>();
    check_set::<RefreshResult>();
    check_set::<Code>();
    check_set::<Reason>();
    check_set::<Delivery>();
    check_set::<CallDelivery>();
    check_set::<SessionGoneForm>();
    check_set::<EndReason>();
}

#[test]
fn every_method_word_is_the_method_it_stands_for() {
    for word in MethodLabel::ALL {
        assert_eq!(MethodLabel::from_method(word.as_str()), word);
    }
    assert_eq!(
        MethodLabel::from_method("acme/secret-method"),
        MethodLabel::Other
    );
}

#[test]
fn a_server_is_registered_once_and_shown_until_it_is_forgotten() {
    let metrics = Metrics::default();
    let first = metrics.server("github");
    first.attempts.increment();
    metrics.server("github").attempts.increment();
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
    metrics.forget_server("github");
    assert!(metrics.snapshot().server("github").is_none());
    first.attempts.increment();
}

/// Counts everything there is once, so that nothing is left out of a snapshot for being zero.
fn count_everything(metrics: &Metrics) {
    fn each<W: WordEnum>(counters: &LabeledCounter<W>) {
        W::ALL.iter().for_each(|word| counters.increment(*word));
    }
    fn pairs<V: WordEnum, W: WordEnum>(counters: &TwoLabelCounter<V, W>) {
        for first in V::ALL {
            W::ALL
                .iter()
                .for_each(|word| counters.increment(*first, *word));
        }
    }
    let server = metrics.server("s");
    each(&server.acquires);
    each(&server.opens);
    pairs(&server.heals);
    each(&server.session_gone);
    each(&server.checks);
    each(&server.closes);
    pairs(&server.breaker_changes);
    each(&server.refusals);
    pairs(&server.calls);
    each(&server.call_deliveries);
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
        .chain(&snapshot.server("s").unwrap().samples);
    let mut names = BTreeSet::new();
    for number in shown {
        let metric = Metric::find(number.name).unwrap_or_else(|| panic!("{}", number.name));
        assert_eq!(
            number.label_values.len(),
            metric.labels.len(),
            "{}",
            number.name
        );
        let is_spread = matches!(number.value, SampleValue::Histogram(_));
        assert_eq!(
            is_spread,
            metric.kind == MetricKind::Histogram,
            "{}",
            number.name
        );
        assert_eq!(
            number.name.ends_with("_total"),
            metric.kind == MetricKind::Counter
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
    metrics
        .server("github")
        .acquires
        .increment(AcquireOutcome::Hit);
    metrics
        .server("github")
        .open_time
        .record_time(Duration::from_millis(3));
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
enum SimulatedCall {
    Answered,
    Failed(Delivery, Code),
    DroppedBeforeSending,
    DroppedAfterSending,
}

fn fates() -> impl Strategy<Value = SimulatedCall> {
    prop_oneof![
        Just(SimulatedCall::Answered),
        Just(SimulatedCall::Failed(Delivery::Unsent, Code::PoolFull)),
        Just(SimulatedCall::Failed(Delivery::Refused, Code::SessionLost)),
        Just(SimulatedCall::Failed(Delivery::Unknown, Code::AnswerLost)),
        Just(SimulatedCall::Failed(Delivery::Unknown, Code::Deadline)),
        Just(SimulatedCall::DroppedBeforeSending),
        Just(SimulatedCall::DroppedAfterSending),
    ]
}

fn live(metrics: &Arc<ServerMetrics>, fate: SimulatedCall) -> CallDelivery {
    let mut call = CallRecorder::start(metrics, "tools/call");
    match fate {
        SimulatedCall::DroppedBeforeSending => CallDelivery::Unsent,
        SimulatedCall::DroppedAfterSending => {
            call.record_attempt();
            CallDelivery::Cancelled
        },
        SimulatedCall::Answered => {
            call.record_attempt();
            call.finish_answered(CallOutcome::Ok);
            CallDelivery::Answered
        },
        SimulatedCall::Failed(delivery, code) => {
            call.finish_failed(delivery, code);
            CallDelivery::from_delivery(delivery)
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
            expected[live(&metrics, *fate).index()] += 1;
        }
        let fates = CallDelivery::ALL.iter().map(|word| metrics.call_deliveries.count(*word));
        prop_assert_eq!(fates.collect::<Vec<_>>(), expected);
        let calls = u64::try_from(lives.len()).unwrap();
        prop_assert_eq!(metrics.calls_started.count(), calls);
        prop_assert_eq!(metrics.call_deliveries.total(), calls);
        prop_assert_eq!(metrics.calls.total(), calls);
        prop_assert_eq!(metrics.call_time.count(), calls);
        let failed = calls - metrics.call_deliveries.count(CallDelivery::Answered);
        prop_assert_eq!(metrics.failures.total(), failed);
    }

    #[test]
    fn a_spread_loses_no_value(values in proptest::collection::vec(0_u64..4_000_000_000, 0..80)) {
        let spread = Histogram::new(HistogramUnit::Time);
        values.iter().for_each(|value| spread.record(*value));
        let read = spread.snapshot();
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
    let call = CallRecorder::start(&server, "tools/call");
    let under_way = || {
        metrics
            .snapshot()
            .server("s")
            .unwrap()
            .count("calls_under_way", &[])
    };
    assert_eq!(under_way(), 1);
    call.finish_failed(Delivery::Unsent, Code::Deadline);
    assert_eq!(under_way(), 0);
    let timeouts = server
        .calls
        .count(MethodLabel::ToolsCall, CallOutcome::Timeout);
    assert_eq!(timeouts, 1);
}

#[test]
fn the_bound_of_a_share_is_the_first_that_holds_it() {
    let spread = Histogram::new(HistogramUnit::Count);
    for value in [0, 0, 2, 5, 500] {
        spread.record(value);
    }
    let read = spread.snapshot();
    assert_eq!(read.quantile_bound(0.5), Some(2));
    assert_eq!(read.quantile_bound(0.8), Some(6));
    assert_eq!(read.quantile_bound(0.99), None, "above the last bound");
    let empty = Histogram::default().snapshot();
    assert_eq!(empty.quantile_bound(0.5), None, "nothing there");
}

/// reliability I29: no level goes below zero, and who asks for that hears it.
#[test]
fn levels_never_go_below_zero() {
    let level = Gauge::default();
    assert!(!level.decrement());
    assert_eq!(level.value(), 0);
}

#[test]
fn many_threads_lose_no_count() {
    let metrics = Metrics::default().server("s");
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..5000 {
                    metrics.acquires.increment(AcquireOutcome::Hit);
                    metrics.waiters.increment();
                    metrics.lease_time.record_time(Duration::from_micros(5));
                    assert!(metrics.waiters.decrement());
                }
            });
        }
    });
    assert_eq!(metrics.acquires.count(AcquireOutcome::Hit), 20_000);
    assert_eq!(metrics.lease_time.count(), 20_000);
    assert_eq!(metrics.waiters.value(), 0);
}
