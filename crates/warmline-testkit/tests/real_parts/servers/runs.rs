//! Runs on real servers that keep state: a run keeps it for its agent and all its sub-agents,
//! outside a run nothing is kept, and no run meets another.

use crate::prelude::*;
use futures_util::future::join_all;
use warmline::InCurrentRun as _;

use super::stateful_server::{REAL, Remembers, Stateful};

/// A sub-agent, built from nothing: it finds the run by itself.
async fn sub_agent(remembers: Remembers) -> u64 {
    let run = Run::current().unwrap();
    remembers.step(&run.server(REAL).unwrap()).await
}

/// The whole story, on one server.
async fn state_lives_exactly_as_long_as_a_run(stateful: Stateful) {
    let remembers = stateful.remembers;
    for _ in 0..2 {
        assert_eq!(stateful.step().await, 1, "outside a run nothing is kept");
    }
    let seen = stateful
        .warm
        .run(async |run: Run| {
            let root = stateful.step_in(&run).await;
            let inner = stateful.warm.run(async |_| stateful.step().await).await;
            let child = sub_agent(remembers).await;
            let spawned = tokio::spawn(sub_agent(remembers).in_current_run()).await;
            [root, inner, child, spawned.unwrap()]
        })
        .await;
    assert_eq!(seen, [1, 2, 3, 4], "agent and sub-agents share one session");
    assert_eq!(stateful.step().await, 1, "what the run knew ended with it");
    runs_are_apart(&stateful).await;
    stateful.finish().await;
}

/// Two runs of one identity, and one of the same name of another, by turns.
async fn runs_are_apart(stateful: &Stateful) {
    let warm = &stateful.warm;
    let runs = [
        warm.named_run("monday").unwrap(),
        warm.named_run("tuesday").unwrap(),
        warm.identity("somebody-else").named_run("monday").unwrap(),
    ];
    for wanted in 1..=3 {
        for run in &runs {
            assert_eq!(stateful.step_in(run).await, wanted, "{run:?}");
        }
    }
    for run in runs {
        run.end().await;
    }
}

/// A12, A13, A15, A19, A55, P15, reliability P2: over stdio, a planning server remembers what one run
/// thought, and a counter what one run counted. `FastMCP` 4 speaks both eras and keeps state on one of
/// them; inside a run that one is spoken.
#[tokio::test]
async fn servers_over_stdio_keep_state_for_a_run() {
    for (program, remembers) in [
        (official("sequential-thinking"), Remembers::Thoughts),
        (node("counter-v1.mjs"), Remembers::Count),
        (python("fastmcp3", "counter_fastmcp.py"), Remembers::Count),
        (python("fastmcp4", "counter_fastmcp.py"), Remembers::Count),
    ] {
        let stateful = Stateful::program(&program, remembers);
        state_lives_exactly_as_long_as_a_run(stateful).await;
    }
}

/// A13, A16, A24, A38: parallel first calls of one turn share one process, which ends with the run.
#[tokio::test]
async fn parallel_thoughts_of_one_run_are_one_process() {
    let stateful = Stateful::program(&official("sequential-thinking"), Remembers::Thoughts);
    let mut seen = stateful
        .warm
        .run(async |run: Run| {
            let seen = join_all((0..8).map(|_| stateful.step_in(&run))).await;
            stateful.has_processes(1).await;
            seen
        })
        .await;
    seen.sort_unstable();
    assert_eq!(seen, [1, 2, 3, 4, 5, 6, 7, 8]);
    stateful.has_processes(0).await;
    stateful.finish().await;
}

/// A12, A15, A19, A55, P15, reliability P2: the same over HTTP, where a session is kept.
#[tokio::test]
async fn servers_over_http_keep_state_for_a_run() {
    for program in [
        node("counter-v1.mjs"),
        python("mcp1", "counter_mcp1.py"),
        python("fastmcp3", "counter_fastmcp.py"),
        python("fastmcp4", "counter_fastmcp.py"),
    ] {
        let running = Running::announced(&program.with("http"));
        let stateful = Stateful::running(&running, Remembers::Count);
        state_lives_exactly_as_long_as_a_run(stateful).await;
    }
}

/// A12, A15, A19, P15: the same over two endpoints, where the stream is the session.
#[tokio::test]
async fn a_server_of_two_endpoints_keeps_state_for_a_run() {
    let mut running = Running::announced(&python("mcp1", "counter_mcp1.py").with("sse"));
    running.url = running.url.replace("/mcp", "/sse");
    let stateful = Stateful::running(&running, Remembers::Count);
    state_lives_exactly_as_long_as_a_run(stateful).await;
}
