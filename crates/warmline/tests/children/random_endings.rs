//! Runs of the engine on process trees, ended in every way and in any order: nothing is left.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::task::JoinSet;
use warmline::{Run, Server, ServerHandle, Warmline};
use warmline_core::era::Era;
use warmline_engine::admin::EngineAdmin as _;

use crate::owner_program::{SERVER, STUBBORN};
use crate::process_trees::{expect_gone, killed_owner};
use crate::{Story, alive_tasks, on_runtime, process_scan, until};

pub(crate) const ALL: &[Story] = &[
    // A47, A48, P27, reliability P33: a hundred runs, whoever ends them.
    (
        "a_hundred_runs_with_wrapper_trees_leave_nothing_5_s_after_the_last_end",
        hundred_cycles,
    ),
    // reliability O18: who outlives its server is killed, and counted.
    (
        "what_outlives_its_server_is_killed_and_counted",
        counted_orphans,
    ),
    // P33, reliability O1b: also of what has only begun to start.
    (
        "closing_waits_for_programs_whose_start_was_given_up",
        given_up_starts,
    ),
    // A49, P28, reliability P34: an embedding program that is killed.
    (
        "the_trees_of_runs_are_gone_within_3_s_after_kill_9_of_the_embedding_program",
        || killed_owner(HOLD_RUNS, 4),
    ),
];

/// `HOLD_RUNS mark count`: has runs on stubborn servers, says so, and waits to be killed.
pub(crate) const HOLD_RUNS: &str = "__hold_runs";

fn given_up_starts() {
    let mark = process_scan::fresh_mark();
    on_runtime(async {
        // At several moments of a start: of its warden, of its program, of its first word.
        for milliseconds in [1, 2, 3, 5, 8, 13, 21, 34, 55] {
            let script = "trap '' TERM; while :; do sleep 1; done";
            let server =
                Server::stdio("silent", ["sh", "-c", script]).env(process_scan::MARK, &*mark);
            let warm = Warmline::builder().server(server).build();
            let warm = warm.expect("an engine");
            let silent = warm.server("silent").expect("a server of ours");
            let met = tokio::time::timeout(Duration::from_millis(milliseconds), silent.info());
            assert!(met.await.is_err(), "nobody answers");
            warm.close_fast_within(Duration::from_secs(10)).await;
            expect_gone(&mark, Duration::ZERO).await;
        }
    });
}

const CYCLES: usize = 100;
/// So many runs are there at a time.
const TOGETHER: usize = 20;
const GONE_WITHIN: Duration = Duration::from_secs(5);

/// A shell that starts a server that starts a helper.
const WRAPPED: &str = r#"
( sleep 1000 & on_call='answer "\"result\":{\"content\":[]}"'; serve ); exit $?
"#;

/// The same with a helper that leaves its group and its session, and does not want to end.
const DETACHED: &str = r#"
( setsid sh -c 'trap "" TERM HUP; sleep 1000; :' & on_call='answer "\"result\":{\"content\":[]}"'; serve ); exit $?
"#;

/// The same with a server that is a program of Node.
const WRAPPED_NODE: &str = r#"
"$WARMLINE_TEST_NODE" -e '
require("child_process").spawn("sleep", ["1000"], { stdio: "ignore" });
require("readline").createInterface({ input: process.stdin }).on("line", (line) => {
  const { id, method } = JSON.parse(line);
  if (id === undefined) return;
  const result = method === "initialize"
    ? { protocolVersion: "2025-11-25", capabilities: { tools: {} }, serverInfo: { name: "node", version: "1" } }
    : { content: [] };
  process.stdout.write(JSON.stringify({ jsonrpc: "2.0", id, result }) + "\n");
});
'; exit $?
"#;

/// How a run ends.
#[derive(Clone, Copy, Debug)]
enum End {
    /// By its handle.
    Ended,
    /// By somebody who joined it, in another task.
    ByAnother,
    /// With its last handle.
    Dropped,
    /// With the task that it ran in.
    Aborted,
    /// By a panic in its body.
    Panicked,
}

const ENDS: [End; 5] = [
    End::Ended,
    End::ByAnother,
    End::Dropped,
    End::Aborted,
    End::Panicked,
];

fn server(name: &str, script: &str, mark: &str) -> Server {
    let words = ["sh", "-c", &format!("{SERVER}{script}")].map(str::to_owned);
    Server::stdio(name, words)
        .era(Era::Legacy)
        .env(process_scan::MARK, mark)
}

/// The pinned Node of the real parts, where they are installed.
fn node() -> Option<String> {
    let parts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/parts");
    let node = parts.join("node/node_modules/.bin/node");
    let node = node.canonicalize().ok()?;
    node.to_str().map(str::to_owned)
}

/// An engine with one server of each kind of tree, and the names of the servers.
fn engine(mark: &str) -> (Warmline, Vec<&'static str>) {
    let mut servers = vec![
        server("wrapped", WRAPPED, mark),
        server("detached", DETACHED, mark),
    ];
    let mut names = vec!["wrapped", "detached"];
    if let Some(node) = node() {
        let program = server("node", WRAPPED_NODE, mark).env("WARMLINE_TEST_NODE", node);
        servers.push(program);
        names.push("node");
    }
    let warm = Warmline::builder().servers(servers).limits(|limits| {
        limits.processes = 64;
        limits.processes_per_identity = 64;
    });
    (warm.build().expect("an engine"), names)
}

async fn call(server: &ServerHandle) {
    let called = server.call("any", serde_json::json!({})).await;
    let answer = called.expect("a tree that was just started answers");
    assert!(!answer.is_error(), "{answer:?}");
}

/// Has one run and ends it.
#[expect(
    clippy::disallowed_methods,
    reason = "tasks of an embedding program, which has no clock of ours"
)]
async fn cycle(warm: Warmline, name: &'static str, end: End, number: usize) {
    let on = |run: &Run| run.server(name).expect("a server of ours");
    match end {
        End::Ended => {
            let run = warm.begin_run();
            call(&on(&run)).await;
            run.end().await;
        },
        End::ByAnother => {
            let run = warm.named_run(&format!("cycle-{number}")).expect("a name");
            call(&on(&run)).await;
            let joined = run.clone();
            let ending = tokio::spawn(async move { joined.end().await });
            drop(run);
            ending.await.expect("an end");
        },
        End::Dropped => {
            let run = warm.begin_run();
            call(&on(&run)).await;
            // In another task than it was begun in.
            tokio::spawn(async move { drop(run) })
                .await
                .expect("a drop");
        },
        End::Aborted => {
            let (tell, called) = tokio::sync::oneshot::channel();
            let task = tokio::spawn(async move {
                let body = async |run: Run| {
                    call(&on(&run)).await;
                    tell.send(()).ok();
                    std::future::pending::<()>().await;
                };
                warm.run(body).await;
            });
            called.await.expect("it was called");
            task.abort();
            expect_cancelled(task).await;
        },
        End::Panicked => {
            let task = tokio::spawn(async move {
                let body = async |run: Run| {
                    call(&on(&run)).await;
                    // Without the words of a panic, which would look like a failed test.
                    std::panic::resume_unwind(Box::new("on purpose"));
                };
                warm.run(body).await;
            });
            expect_cancelled(task).await;
        },
    }
}

async fn expect_cancelled(task: tokio::task::JoinHandle<()>) {
    let ended = task.await;
    assert!(ended.is_err(), "the task came to its end");
}

fn counted_orphans() {
    let mark = process_scan::fresh_mark();
    on_runtime(async {
        let (warm, _) = engine(&mark);
        let killed = |name: &str| {
            let snapshot = warm.snapshot();
            let numbers = snapshot.server(name);
            numbers.map_or(0, |numbers| numbers.count("orphans_killed_total", &[]))
        };
        let run = warm.begin_run();
        call(&run.server("detached").expect("a server of ours")).await;
        // The warden, the shell, the server in it, the helper and what it waits for.
        let stands = || process_scan::marked(&mark).len() >= 5;
        until("the tree stands", GONE_WITHIN, stands).await;
        assert_eq!(killed("detached"), 0, "nothing is counted before");
        run.end().await;
        let counted = || killed("detached") == 2;
        until("the helper and what it waits for", GONE_WITHIN, counted).await;
        warm.close().await;
        expect_gone(&mark, GONE_WITHIN).await;
    });
}

fn hundred_cycles() {
    let mark = process_scan::fresh_mark();
    on_runtime(async {
        let (warm, names) = engine(&mark);
        let mut order: Vec<usize> = (0..CYCLES).collect();
        fastrand::shuffle(&mut order);
        let mut cycles = JoinSet::new();
        let mut coming = order.into_iter();
        loop {
            while cycles.len() < TOGETHER
                && let Some(number) = coming.next()
            {
                let (name, end) = (names[number % names.len()], ENDS[number % ENDS.len()]);
                cycles.spawn(cycle(warm.clone(), name, end, number));
            }
            match cycles.join_next().await {
                Some(ended) => ended.expect("a cycle"),
                None => break,
            }
        }
        expect_gone(&mark, GONE_WITHIN).await;
        // The last tree is gone a moment before its run is.
        until("no run and no session is left", GONE_WITHIN, || {
            let snapshot = warm.snapshot();
            snapshot.runs.is_empty() && snapshot.sessions.is_empty()
        })
        .await;
        warm.close().await;
        until("no task is left", GONE_WITHIN, || alive_tasks() == 0).await;
    });
}

/// Has the runs and waits for ever.
pub(crate) fn hold_runs(mut arguments: impl Iterator<Item = String>) -> ExitCode {
    let mark = arguments.next().expect("a mark");
    let count = arguments.next().and_then(|count| count.parse().ok());
    let count: usize = count.expect("a count");
    on_runtime(async {
        let script = format!(
            r#"on_call='answer "\"result\":{{\"content\":[]}}"'
{STUBBORN}"#
        );
        let builder = Warmline::builder().server(server("stubborn", &script, &mark));
        let warm = builder.build().expect("an engine");
        let runs: Vec<Run> = (0..count).map(|_| warm.begin_run()).collect();
        let calls = runs.iter().map(|run| async {
            call(&run.server("stubborn").expect("a server of ours")).await;
        });
        join_all(calls).await;
        println!("ready");
        std::future::pending::<()>().await;
    });
    ExitCode::SUCCESS
}
