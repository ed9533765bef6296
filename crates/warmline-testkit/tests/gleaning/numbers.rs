//! Numbers and log lines: what a call cost, and what there is, told as it was.

use serde_json::json;
use warmline::core::policy::SessionPer;
use warmline::metrics::Snapshot;
use warmline_testkit::Personality;

use super::census::until;
use super::logbook::Logbook;
use super::world::{LEDGER, World, count, number};

/// A53: each call writes one line that says how it came by its session, with server, run and the
/// shortened session, and is counted so.
#[tokio::test]
async fn each_call_logs_how_it_came_by_its_session() {
    // The first to reach a line of the log decides who is asked about it, and other stories run
    // beside this one: it is reached once before the book is opened.
    let before = World::new(Personality::legacy());
    count(&before.ledger()).await;
    before.finish().await;
    let (book, _guard) = Logbook::open();
    let world = World::with(Personality::legacy(), |server| server.max_per_key(1));
    let run = world.warm.begin();
    let ledger = run.server(LEDGER).unwrap();
    for _ in 0..3 {
        count(&ledger).await;
    }
    let id = ledger.session().unwrap().id.unwrap();
    run.end().await;
    count(&world.ledger()).await;
    for (word, times) in [("miss", 1), ("hit", 2), ("ephemeral", 1)] {
        assert_eq!(world.number("acquires_total", &[word]), times, "{word}");
    }
    world.finish().await;
    wait_for_a_session().await;

    let lines = book.with("session acquired");
    let how = |word: &str| -> Vec<&String> {
        let word = format!("how=\"{word}\"");
        lines.iter().filter(|line| line.contains(&word)).collect()
    };
    for (word, times) in [("miss", 1), ("hit", 2), ("ephemeral", 1), ("wait", 1)] {
        assert_eq!(how(word).len(), times, "{word}: {lines:#?}");
    }
    for line in how("miss").into_iter().chain(how("hit")) {
        assert!(line.starts_with("DEBUG "), "{line}");
        for field in ["server=", "run=", "session="] {
            assert!(line.contains(field), "no {field} in {line}");
        }
        assert!(!line.contains(&id), "the whole id stands in {line}");
    }
    for line in how("ephemeral") {
        for field in ["server=", "session="] {
            assert!(line.contains(field), "no {field} in {line}");
        }
    }
}

/// A call has to wait until somebody else is done.
async fn wait_for_a_session() {
    let world = World::with(Personality::legacy(), |server| {
        server.session_per(SessionPer::Identity).max_per_key(1)
    });
    let alice = world.warm.identity("alice");
    let lease = alice.lease(LEDGER).await.unwrap();
    let waiting = alice.server(LEDGER).unwrap();
    let waiting = tokio::spawn(async move { count(&waiting).await });
    until("somebody waits", || world.number("waiters", &[]) == 1).await;
    drop(lease);
    waiting.await.unwrap();
    assert_eq!(world.number("acquires_total", &["wait"]), 1);
    drop(alice);
    world.finish().await;
}

fn live(snapshot: &Snapshot) -> u64 {
    let states = ["idle", "active"];
    let of = |state: &&str| number(snapshot, LEDGER, "sessions", &[state]);
    states.iter().map(of).sum()
}

fn sum(snapshot: &Snapshot, name: &str) -> u64 {
    let numbers = &snapshot.server(LEDGER).unwrap().numbers;
    let of_name = numbers.iter().filter(|one| one.name == name);
    of_name
        .map(|one| snapshot.server(LEDGER).unwrap().count(name, &one.words))
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
        let run = world.warm.identity(&format!("user {number}")).begin();
        count(&run.server(LEDGER).unwrap()).await;
        runs.push(run);
        agree(number);
    }
    assert_eq!(world.server.counts().open_sessions, 5);
    world.server.control().forget_sessions();
    for run in &runs {
        run.server(LEDGER)
            .unwrap()
            .call("pay", json!({}))
            .await
            .unwrap();
    }
    agree(5);
    for (left, run) in (0..5).rev().zip(runs) {
        run.end().await;
        agree(left);
    }
    world.finish().await;
}
