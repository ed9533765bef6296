//! A client that gives a call up says why, and its server hears it.

use crate::prelude::*;

/// What a client says of a call that it gives up.
fn words(id: &Value) -> Value {
    json!({
        "reason": "because \"ä\"", "requestId": id,
        "_meta": { "example.com/own": [1, null] }, "more": 1.5,
    })
}

fn notice(id: &Value) -> Value {
    let params = words(id);
    json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params })
}

fn slow(id: i64) -> Value {
    call(id, "slow", json!({ "ms": 60_000 }))
}

/// What the server was told of calls that were given up, with the ids of those calls, in order.
fn told(entries: &[LedgerEntry]) -> (Vec<Value>, Vec<Value>) {
    let received = |entry: &&LedgerEntry| entry.phase == ExecutionPhase::Received;
    let such = |method: &'static str| {
        let all = entries.iter().filter(received);
        all.filter(move |entry| entry.method == method)
    };
    let notices = such("notifications/cancelled").map(|entry| entry.arguments.clone());
    let calls = such("tools/call").map(|entry| entry.id.clone());
    (notices.collect(), calls.collect())
}

/// mcp-spec T18, P80: the server hears the client's own words, under the id that it knows; where a
/// client left without any it hears ours.
#[tokio::test]
async fn a_cancel_reaches_the_server_in_the_words_of_the_client() {
    let world = World::new(Personality::legacy()).await;
    let ledger = world.server.ledger();
    let heard = |count: usize| move |entries: &[LedgerEntry]| told(entries).0.len() == count;
    let client = Legacy::greet(&world, PATH, "2025-03-26", json!({})).await;
    for (count, message) in [(1, slow(77)), (2, json!([slow(77)]))] {
        let (given_up, ()) = tokio::join!(client.post(&message), async {
            let is_so = || ledger.started_executions("slow") == count;
            until("it is called", is_so).await;
            let notice = notice(&json!(77));
            assert_eq!(client.post(&notice).await.status, 202);
        });
        assert_eq!(given_up.status, 202);
        assert!(ledger.wait_until(SOON, heard(count)).await);
        let (notices, calls) = told(&ledger.entries());
        assert_eq!(notices.last(), calls.last().map(words).as_ref());
    }
    let last = slow(78);
    let (_, ended) = tokio::join!(client.post(&last), async {
        until("it is called", || ledger.started_executions("slow") == 3).await;
        client.delete().await
    });
    assert_eq!(ended.status, 204);
    assert!(ledger.wait_until(SOON, heard(3)).await);
    let (notices, calls) = told(&ledger.entries());
    let ours = json!({ "requestId": calls[2], "reason": "the caller no longer waits" });
    assert_eq!(notices[2], ours);
    world.finish().await;
}

const SOON: Duration = Duration::from_secs(20);

/// The words that the only call of a program was given up with, once it heard them.
async fn heard_by(program: &Program) {
    let lines = || program.lives().concat();
    let said = |method: &'static str| {
        let mut lines = lines().into_iter();
        lines.rfind(move |line| line["method"] == method && line["phase"] == "received")
    };
    let is_so = || said("notifications/cancelled").is_some();
    until("the program is told", is_so).await;
    let notice = said("notifications/cancelled").unwrap();
    let id = said("tools/call").unwrap()["id"].clone();
    assert_eq!(notice["arguments"], words(&id));
}

fn is_called(program: &Program) -> bool {
    let lines = program.lives().concat();
    let begun = |line: &Value| line["phase"] == "begin" && line["tool"] == "slow";
    lines.iter().any(begun)
}

/// mcp-spec T18, X1: the same for a server that is a program.
#[tokio::test]
async fn a_cancel_reaches_a_program_in_the_words_of_the_client() {
    let program = Program::ledger(&["--personality", "legacy"]);
    let warm = Warmline::builder().server(program.declared("ledger"));
    let warm = warm.build().unwrap();
    let gateway = Gateway::start(warm.clone(), local()).await.unwrap();
    let at = gateway.address();
    let client = Legacy::greet_at(at, PATH, NEWEST, json!({}), Vec::new()).await;
    let slow = slow(77);
    let (given_up, ()) = tokio::join!(client.post(&slow), async {
        until("it is called", || is_called(&program)).await;
        let notice = notice(&json!(77));
        assert_eq!(client.post(&notice).await.status, 202);
    });
    assert_eq!(given_up.status, 202);
    heard_by(&program).await;
    client.delete().await;
    gateway.stop().await;
    warm.close().await;
}

/// mcp-spec T18, X1: on a pipe clients of both eras give a call up by a message.
#[tokio::test]
async fn a_cancel_on_a_pipe_reaches_a_program_in_the_words_of_the_client() {
    for (personality, slow) in [("legacy", slow(77)), ("modern", modern_slow())] {
        let program = Program::ledger(&["--personality", personality]);
        let warm = Warmline::builder().server(program.declared("ledger"));
        let warm = warm.build().unwrap();
        let (mut input, theirs) = tokio::io::duplex(1 << 16);
        let (ours, output) = tokio::io::duplex(1 << 16);
        let pipe = StdioClient::new(warm.clone(), GatewayOptions::default()).for_server("ledger");
        let serving = tokio::spawn(pipe.serve(theirs, ours));
        let mut lines = BufReader::new(output).lines();
        if personality == "legacy" {
            let hello = format!("{}\n", initialize(NEWEST, json!({})));
            input.write_all(hello.as_bytes()).await.unwrap();
            assert!(lines.next_line().await.unwrap().is_some());
        }
        input
            .write_all(format!("{slow}\n").as_bytes())
            .await
            .unwrap();
        until("it is called", || is_called(&program)).await;
        let notice = format!("{}\n", notice(&slow["id"]));
        input.write_all(notice.as_bytes()).await.unwrap();
        heard_by(&program).await;
        drop(input);
        serving.await.unwrap().unwrap();
        warm.close().await;
    }
}

fn modern_slow() -> Value {
    let slow = modern::call("slow", json!({ "ms": 60_000 }));
    serde_json::from_str(&slow.body).unwrap()
}
