//! Servers that are programs: their processes, their handles, their last words.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt as _;
use serde_json::{Value, json};
use warmline::core::delivery::Delivery;
use warmline::events::{Event, Heard};
use warmline::{Server, ServerHandle, Warmline};

use super::census::until;
use super::program::Program;
use super::storm::kill_all;
use super::world::{agrees, count, counted, nothing_left};

fn engine(server: Server) -> Warmline {
    Warmline::builder().server(server).build().unwrap()
}

async fn get(child: &ServerHandle, key: &str) -> Value {
    let got = child.call("get", json!({ "key": key })).await.unwrap();
    got.structured::<Value>().unwrap()["value"].clone()
}

/// A206: a modern program keeps handles for its identity, over runs; another has another process.
#[tokio::test]
async fn handles_of_a_modern_program_outlive_a_run() {
    let program = Program::ledger(&["--personality", "modern"]);
    let warm = engine(program.declared("child"));
    let alice = warm.identity("alice");
    alice
        .run(async |run| {
            let child = run.server("child").unwrap();
            child
                .call("put", json!({"key": "h", "value": 7}))
                .await
                .unwrap()
                .ok()
                .unwrap();
        })
        .await;
    let second = alice
        .run(async |run| get(&run.server("child").unwrap(), "h").await)
        .await;
    assert_eq!(second, 7);
    let bob = warm.identity("bob").begin();
    assert_eq!(get(&bob.server("child").unwrap(), "h").await, Value::Null);
    bob.end().await;
    // A process for each, and one that was asked whether it has another leg.
    let lives = program.lives();
    let served = lives.iter().filter(|life| {
        let is_call = |line: &Value| line["phase"] == "commit" && !line["tool"].is_null();
        life.iter().any(is_call)
    });
    assert_eq!(served.count(), 2);
    assert!(lives.len() <= 3, "{}", lives.len());
    warm.close().await;
    program.gone().await;
}

/// A35, A28, P115: a program that dies during its start is told with its last words.
#[tokio::test]
async fn a_program_that_dies_at_its_start_is_told_with_its_last_words() {
    let script = r"printf 'no license \377 found\n' >&2; exit 3";
    let warm = engine(Server::stdio("broken", ["sh", "-c", script]));
    let mut events = warm.events();
    let error = warm
        .server("broken")
        .unwrap()
        .call("any", json!({}))
        .await
        .unwrap_err();
    let words = format!("{error:?}");
    for word in ["broken", "exit status 3", "no license \u{fffd} found"] {
        assert!(words.contains(word), "{words}");
    }
    assert_eq!(error.delivery(), Delivery::Unsent);
    // Every event is a line of the log, with the name of its server.
    let Some(Some(Heard::Event(Event::OpeningFailed { session, what, .. }))) =
        events.next().now_or_never()
    else {
        panic!("an opening that failed is told");
    };
    assert_eq!(&*session.server, "broken");
    assert!(what.contains("exit status 3"), "{what}");
    drop(events);
    warm.close().await;
    agrees(&warm.snapshot());
    drop(warm);
    nothing_left().await;
}

/// A46: the end of a run whose program is dead already waits for nothing.
#[tokio::test]
async fn what_died_before_its_run_is_closed_at_once() {
    let program = Program::ledger(&["--personality", "legacy"]);
    let warm = engine(program.declared("child"));
    let run = warm.begin();
    count(&run.server("child").unwrap()).await;
    kill_all(&program);
    program.gone().await;
    let began = std::time::Instant::now();
    run.end().await;
    // A program that lives has two seconds to end by itself.
    assert!(began.elapsed() < Duration::from_millis(1_500));
    assert_eq!(program.starts(), 1);
    warm.close().await;
    agrees(&warm.snapshot());
}

/// A29, E12: a program that is not named, or not there, is told before or at its first call.
#[tokio::test]
async fn a_declaration_without_its_place_is_an_error_by_name() {
    let bad = [
        Server::stdio("nameless", Vec::<String>::new()),
        Server::stdio("blank", [" "]),
        Server::http("no-url", ""),
        Server::http("half-url", "example.com"),
        Server::http("Bad Name", "http://127.0.0.1:9/"),
    ];
    for server in bad {
        let name = server.name().to_owned();
        let built = Warmline::builder().server(server.clone()).build();
        let error = built.unwrap_err();
        assert_eq!(error.code().word(), "config-bad-value", "{name}");
        assert!(format!("{error:?}").contains(&name), "{error:?}");
        let late = Warmline::builder().build().unwrap();
        assert_eq!(late.add(server).unwrap_err().code(), error.code());
    }
    let warm = engine(Server::stdio("missing", ["no-such-program-anywhere"]));
    let missing = warm.server("missing").unwrap();
    let error = missing.call("any", json!({})).await.unwrap_err();
    assert!(format!("{error:?}").contains("no-such-program-anywhere"));
    assert_eq!(error.delivery(), Delivery::Unsent);
    warm.close().await;
}

/// A36: what was declared reaches the program exactly.
#[tokio::test]
async fn environment_and_folder_reach_the_program() {
    let program = Program::ledger(&["--personality", "legacy"]);
    let declared = program
        .declared("child")
        .env("STORY_TOKEN", "x")
        .env_pass("CARGO_PKG_NAME");
    let warm = engine(declared);
    let child = warm.server("child").unwrap();
    let named = child.call("env", json!({})).await.unwrap();
    let named: Value = named.structured().unwrap();
    let names: Vec<&str> = named["names"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(Value::as_str)
        .collect();
    assert!(names.contains(&"STORY_TOKEN"), "{names:?}");
    assert!(names.contains(&"PATH"), "{names:?}");
    assert!(!names.contains(&"CARGO_MANIFEST_DIR"), "{names:?}");
    warm.close().await;
    program.gone().await;
}

/// A40, A46, P26, P27, reliability P33: a hundred runs with trees of processes, ended in every way: nothing
/// is left.
#[tokio::test]
async fn a_hundred_runs_with_trees_of_processes_leave_nothing() {
    let program = Program::ledger(&["--personality", "legacy", "--grandchildren", "1"]);
    // Twenty of them end by themselves, on purpose.
    let declared = program.declared("child");
    let warm = engine(declared.with_policy(|policy| policy.breaker.threshold = 100));
    for round in 0..100 {
        match round % 5 {
            // Ended from another task.
            0 => {
                let run = warm.begin();
                count(&run.server("child").unwrap()).await;
                tokio::spawn(async move { run.end().await }).await.unwrap();
            },
            // Dropped.
            1 => {
                let run = warm.begin();
                count(&run.server("child").unwrap()).await;
                drop(run);
            },
            // Aborted while the process starts, or a little later.
            2 => {
                let warm = warm.clone();
                let task = tokio::spawn(async move {
                    let run = warm.begin();
                    count(&run.server("child").unwrap()).await;
                    std::future::pending::<()>().await;
                });
                for _ in 0..round {
                    tokio::task::yield_now().await;
                }
                task.abort();
                drop(task.await);
            },
            // Panicked.
            3 => {
                let panicked = warm.run(async |run| {
                    count(&run.server("child").unwrap()).await;
                    panic!("on purpose");
                });
                AssertUnwindSafe(panicked).catch_unwind().await.unwrap_err();
            },
            // Ended by the program itself.
            _ => {
                let run = warm.begin();
                let crash = run.server("child").unwrap().call("crash", json!({}));
                assert_eq!(crash.await.unwrap_err().delivery(), Delivery::Unknown);
                run.end().await;
            },
        }
    }
    until("every run is over", || warm.snapshot().runs.is_empty()).await;
    program.gone().await;
    warm.close().await;
    agrees(&warm.snapshot());
    drop(warm);
    nothing_left().await;
}

/// P101: one program that does not start stops nobody else.
#[tokio::test]
async fn a_program_that_does_not_start_stops_nobody_else() {
    let program = Program::ledger(&["--personality", "legacy"]);
    let warm = Warmline::builder()
        .server(Server::stdio("broken", ["false"]))
        .server(program.declared("child"))
        .build()
        .unwrap();
    let run = warm.begin();
    let broken = run.server("broken").unwrap();
    let child = run.server("child").unwrap();
    let (failed, counted) = tokio::join!(broken.call("x", json!({})).into_future(), count(&child));
    assert!(failed.is_err());
    assert_eq!(counted, 1);
    run.end().await;
    warm.close().await;
    program.gone().await;
}

/// reliability D9: the task that serves a program dies with its runtime. What was not sent goes to
/// another process, and the loss is told.
#[test]
fn a_call_goes_on_when_the_task_of_its_program_died_with_its_runtime() {
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(1).enable_all().build().unwrap()
    };
    let program = Program::ledger(&["--personality", "legacy"]);
    let warm = engine(program.declared("child"));
    let first = runtime();
    let run = first.block_on(async {
        let run = warm.begin();
        assert_eq!(count(&run.server("child").unwrap()).await, 1);
        run
    });
    first.shutdown_timeout(Duration::from_secs(5));
    runtime().block_on(async {
        let child = run.server("child").unwrap();
        let result = child.call("counter", json!({})).await.unwrap();
        assert!(result.state_lost());
        assert_eq!((counted(&result), program.starts()), (1, 2));
        run.end().await;
        warm.close().await;
        program.gone().await;
    });
}

/// Hangs at its start unless it is told to be well, and notes each process that starts while
/// another one of it is alive.
const HANGS: &str = r#"
for other in "$WARMLINE_STAGE"/*.pid; do
    [ -f "$other" ] && kill -0 "$(basename "$other" .pid)" 2>/dev/null && echo "$$" >> "$WARMLINE_STAGE/beside"
done
: > "$WARMLINE_STAGE/$$.pid"
[ -f "$WARMLINE_STAGE/well" ] && exec "$0" --stdio "$@"
sleep 60
"#;

/// reliability I22: a start that is given up, at a first contact and later, takes up room until
/// its process is gone: where one process has room there are never two.
#[tokio::test]
async fn a_start_that_is_given_up_has_room_until_its_process_is_gone() {
    let ledger = env!("CARGO_BIN_EXE_warmline-ledger");
    let program = Program::of(["-c", HANGS, ledger, "--personality", "legacy"].into_iter());
    let place = std::path::PathBuf::from(program.place());
    let starts = || {
        let files = std::fs::read_dir(&place).unwrap().flatten();
        files
            .filter(|file| file.path().extension().is_some_and(|end| end == "pid"))
            .count()
    };
    let warm = Warmline::builder()
        .server(program.declared("child"))
        .limits(|ceilings| ceilings.processes = 1)
        .build()
        .unwrap();
    for when in ["at the first contact", "at a later opening"] {
        let before = starts();
        let given_up = warm.begin();
        let child = given_up.server("child").unwrap();
        let call = tokio::spawn(async move { child.call("counter", json!({})).await });
        until("the process hangs", || starts() > before).await;
        given_up.end().await;
        assert!(call.await.unwrap().is_err(), "{when}");
        std::fs::write(place.join("well"), "").unwrap();
        let run = warm.begin();
        assert_eq!(count(&run.server("child").unwrap()).await, 1, "{when}");
        run.end().await;
        assert!(!place.join("beside").exists(), "two processes, {when}");
        std::fs::remove_file(place.join("well")).unwrap();
    }
    warm.close().await;
    program.gone().await;
}
