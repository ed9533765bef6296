//! Servers that are programs: how long they live, what they remember, and how they are counted.

use crate::prelude::*;

use super::log_capture::Logbook;

const CHILD: &str = "child";

/// A number of the program.
fn of(warm: &Warmline, name: &str, words: &[&str]) -> u64 {
    number(&warm.snapshot(), CHILD, name, words)
}

/// Nothing of the program and of the engine is left.
async fn finish(program: &Program, warm: Warmline) {
    warm.close().await;
    agrees(&warm.snapshot());
    program.gone().await;
    drop(warm);
    nothing_left().await;
}

/// M11: processes are counted: how many live, were started, were started in the place of one that
/// died, and ended how.
#[tokio::test]
async fn processes_are_counted() {
    let program = Program::ledger(&["--personality", "legacy"]);
    let warm = program.engine();
    let run = warm.begin_run();
    let child = run.server(CHILD).unwrap();
    count(&child).await;
    assert_eq!(of(&warm, "children", &[]), 1);
    assert_eq!(of(&warm, "child_starts_total", &[]), 1);
    let crashed = child.call("crash", json!({})).await.unwrap_err();
    assert_eq!(crashed.delivery(), Delivery::Unknown);
    count(&child).await;
    assert_eq!(of(&warm, "children", &[]), 1);
    assert_eq!(of(&warm, "child_starts_total", &[]), 2);
    assert_eq!(of(&warm, "child_restarts_total", &[]), 1);
    let is_so = || of(&warm, "child_exits_total", &["failed"]) == 1;
    until("the end of the first is counted", is_so).await;
    run.end().await;
    assert_eq!(of(&warm, "children", &[]), 0);
    let is_so = || of(&warm, "child_exits_total", &["closed"]) == 1;
    until("the end of the second is counted", is_so).await;
    assert_eq!(program.starts(), 2);
    finish(&program, warm).await;
}

/// A server that answers its first call with nothing but noise, and goes on.
const NOISY: &str = r#"
read line
id=$(echo "$line" | sed 's/.*"id":\([0-9]*\).*/\1/')
said='"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"1"}'
echo "{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":{$said}}"
read line
read line
yes noise | head -200
sleep 60
"#;

/// reliability O24, reliability O25: a program that ends again and again is one line of the log, beside
/// the one that says what became of a call. One that had to be ended says so too.
#[tokio::test]
async fn the_end_of_a_program_is_one_line_of_the_log() {
    let (book, _guard) = Logbook::open();
    let noisy = Server::stdio("noisy", ["/bin/sh", "-c", NOISY]).era(Era::Legacy);
    let program = Program::ledger(&["--personality", "legacy"]);
    let warm = Warmline::builder()
        .server(program.declared(CHILD))
        .server(noisy)
        .build()
        .unwrap();
    let run = warm.begin_run();
    let child = run.server(CHILD).unwrap();
    for ended in 1..=3 {
        count(&child).await;
        child.call("crash", json!({})).await.unwrap_err();
        let is_so = || of(&warm, "child_exits_total", &["failed"]) == ended;
        until("its end is counted", is_so).await;
    }
    let noisy = run.server("noisy").unwrap();
    noisy.call("anything", json!({})).await.unwrap_err();
    let is_so = || number(&warm.snapshot(), "noisy", "child_exits_total", &["failed"]) > 0;
    until("it was ended", is_so).await;
    run.end().await;
    let warned = |server: &str| -> Vec<String> {
        let about = format!("server=\"{server}\"");
        let lines = book.lines_with(&about).into_iter();
        lines.filter(|line| line.starts_with("WARN")).collect()
    };
    for server in [CHILD, "noisy"] {
        until("both lines are there", || warned(server).len() >= 2).await;
    }
    for (server, says) in [
        (CHILD, "ended with"),
        (
            "noisy",
            "its output has a line that is no message: \\\"noise\\\"",
        ),
    ] {
        let warned = warned(server);
        let [first, second] = warned.as_slice() else {
            panic!("{:#?}", book.lines())
        };
        let (call, end) = match first.contains("call failed") {
            true => (first, second),
            false => (second, first),
        };
        assert!(call.contains("call failed"), "{call}");
        assert!(end.contains("child exited") && end.contains(says), "{end}");
    }
    finish(&program, warm).await;
}

async fn put(handle: &ServerHandle, key: &str, value: &str) {
    let put = handle.call("put", json!({ "key": key, "value": value }));
    put.await.unwrap().ok().unwrap();
}

async fn held(handle: &ServerHandle, key: &str) -> Value {
    let got = handle.call("get", json!({ "key": key })).await.unwrap();
    let got: Value = got.ok().unwrap().structured().unwrap();
    got["value"].clone()
}

/// A206: what a modern program handed out in one run works in the next one of the same identity;
/// another identity has another process, and knows nothing of it.
#[tokio::test]
async fn handles_of_a_modern_program_outlive_a_run() {
    let program = Program::ledger(&["--personality", "modern"]);
    let warm = program.engine();
    let (alice, bob) = (warm.identity("alice"), warm.identity("bob"));
    let first = alice.begin_run();
    put(&first.server(CHILD).unwrap(), "handle-1", "of alice").await;
    first.end().await;
    let met = program.starts();
    let second = alice.begin_run();
    let found = held(&second.server(CHILD).unwrap(), "handle-1").await;
    assert_eq!(found, "of alice");
    assert_eq!(program.starts(), met);
    let other = bob.begin_run();
    let found = held(&other.server(CHILD).unwrap(), "handle-1").await;
    assert_eq!(found, Value::Null);
    assert_eq!(program.starts(), met + 1);
    other.end().await;
    second.end().await;
    finish(&program, warm).await;
}

/// P21: what one call wrote is there in the next, as long as the run lasts; then the process ends
/// with it.
#[tokio::test]
async fn a_process_lives_as_long_as_its_run() {
    let program = Program::ledger(&["--personality", "legacy"]);
    let warm = program.engine();
    for (start, value) in (1..).zip(["first", "second"]) {
        let run = warm.begin_run();
        let child = run.server(CHILD).unwrap();
        let found = held(&child, "file").await;
        assert_eq!(found, Value::Null, "nothing of an earlier run");
        put(&child, "file", value).await;
        assert_eq!(held(&child, "file").await, value);
        assert_eq!(program.starts(), start);
        run.end().await;
        program.gone().await;
    }
    finish(&program, warm).await;
}

/// A36, S25, S29: how long an answer of a program may take is said for the server, and for a single call.
#[tokio::test]
async fn the_read_limit_of_a_program_is_said_for_the_server_and_for_a_call() {
    let program = Program::ledger(&["--personality", "legacy"]);
    let short = Duration::from_millis(200);
    let declared = program.declared(CHILD).deadlines(short, secs(60));
    let warm = Warmline::builder().server(declared).build().unwrap();
    let run = warm.begin_run();
    let child = run.server(CHILD).unwrap();
    count(&child).await;
    let slow = |ms: u64| child.call("slow", json!({ "ms": ms })).not_repeatable();
    let error = slow(30_000).await.unwrap_err();
    assert_eq!(error.code(), Code::Deadline, "{error:?}");
    slow(600)
        .idle_timeout(secs(30))
        .await
        .unwrap()
        .ok()
        .unwrap();
    let error = slow(30_000).idle_timeout(secs(30)).timeout(short).await;
    assert_eq!(error.unwrap_err().code(), Code::Deadline);
    assert_eq!(count(&child).await, 2, "the process is the same");
    assert_eq!(program.starts(), 1);
    run.end().await;
    finish(&program, warm).await;
}
