//! Many runs, one after the other and side by side: the table is empty in the end, and memory is
//! where it was.
//!
//! The server is a process of its own, so that what is measured here is ours alone; one test,
//! because a second one beside it would be measured too. `WARMLINE_RUNS` says how many runs there
//! are: `make soak` has five times as many.

use serde_json::{Value, json};
use warmline::{Server, Warmline};

use crate::ledger_process::{Apart, resident_kib};

const RUNS: usize = 2_000;
const CALLS: i64 = 5;
/// So many runs are there at a time.
const TOGETHER: usize = 8;
/// What an allocator keeps for itself is no leak.
const SLACK_KIB: usize = 1024;

/// How many runs there are.
fn runs() -> usize {
    let asked = std::env::var("WARMLINE_RUNS").ok();
    asked.map_or(RUNS, |asked| asked.parse().unwrap())
}

fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// One run of a few calls, which count in its own session.
async fn one(warm: Warmline) {
    warm.run(async |run| {
        let server = run.server("ledger").unwrap();
        for number in 1..=CALLS {
            let result = server.call("counter", json!({})).await.unwrap();
            let reply: Value = result.structured().unwrap();
            assert_eq!(reply["count"], number, "another run's counter");
        }
    })
    .await;
}

async fn many(warm: &Warmline, runs: usize) {
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..runs {
        if tasks.len() == TOGETHER {
            tasks.join_next().await.unwrap().unwrap();
        }
        tasks.spawn(one(warm.clone()));
    }
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
}

/// A50: memory after all runs is within 5 % of that after a tenth of them.
#[test]
fn memory_stays_flat_over_thousands_of_runs() {
    crate::play_alone(async {
        let program = Apart::start(&["--personality", "legacy"]);
        let server = Server::http("ledger", &program.url);
        let warm = Warmline::builder().server(server).build().unwrap();
        let runs = runs();
        many(&warm, runs / 10).await;
        let (early, files) = (resident_kib(), open_files());
        many(&warm, runs - runs / 10).await;
        let late = resident_kib();
        println!("{runs} runs: {early} KiB after a tenth of them, {late} KiB after all");
        let most = early + early / 20 + SLACK_KIB;
        assert!(late <= most, "{early} KiB, then {late} KiB");
        assert!(open_files() <= files + TOGETHER, "{files} files at first");
        let snapshot = warm.snapshot();
        assert!(snapshot.sessions.is_empty(), "{:?}", snapshot.sessions);
        assert!(snapshot.runs.is_empty(), "{:?}", snapshot.runs);
        assert_eq!(snapshot.count("keys", &[]), 0, "keys are left");
        assert_eq!(snapshot.count("drift_total", &[]), 0);
        warm.close().await;
    });
}
