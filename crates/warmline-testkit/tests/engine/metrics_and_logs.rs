//! Numbers and log lines: what a call cost, and what there is, told as it was.

use crate::prelude::*;

use warmline_engine::metrics::Snapshot;

fn live(snapshot: &Snapshot) -> u64 {
    let states = ["idle", "active"];
    let of = |state: &&str| number(snapshot, LEDGER, "sessions", &[state]);
    states.iter().map(of).sum()
}

fn sum(snapshot: &Snapshot, name: &str) -> u64 {
    let numbers = &snapshot.server(LEDGER).unwrap().samples;
    let of_name = numbers.iter().filter(|one| one.name == name);
    of_name
        .map(|one| {
            snapshot
                .server(LEDGER)
                .unwrap()
                .count(name, &one.label_values)
        })
        .sum()
}

/// reliability I28: opened less closed is what lives, the gauges are what a recount gives, and both
/// are what the server sees.
#[tokio::test]
async fn gauges_agree_with_a_recount_at_every_quiet_moment() {
    let world = World::new(Personality::legacy());
    let agree = |expected: u64| {
        let snapshot = world.warm.snapshot();
        assert_eq!(live(&snapshot), expected);
        assert_eq!(snapshot.sessions.len() as u64, expected);
        let opened = number(&snapshot, LEDGER, "opens_total", &["opened"]);
        let closed = sum(&snapshot, "closes_total");
        assert_eq!(
            opened - closed,
            expected,
            "{opened} opened, {closed} closed"
        );
        let calls = sum(&snapshot, "calls_total");
        assert_eq!(calls, number(&snapshot, LEDGER, "call_seconds", &[]));
        assert_eq!(number(&snapshot, LEDGER, "calls_under_way", &[]), 0);
    };
    let mut runs = Vec::new();
    for number in 1..=5 {
        let run = world.warm.identity(&format!("user {number}")).begin_run();
        count(&run.server(LEDGER).unwrap()).await;
        runs.push(run);
        agree(number);
    }
    assert_eq!(world.server.counts().open_sessions, 5);
    world.control().forget_sessions();
    for run in &runs {
        run.server(LEDGER)
            .unwrap()
            .call("pay", json!({ "amount": 1 }))
            .await
            .unwrap()
            .ok()
            .unwrap();
    }
    agree(5);
    for (left, run) in (0..5).rev().zip(runs) {
        run.end().await;
        agree(left);
    }
    world.finish().await;
}
