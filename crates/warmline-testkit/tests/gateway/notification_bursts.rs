//! Bursts of notices: a client that reads hears all of them, however they come.

use crate::prelude::*;

const PROGRESS: &str = "notifications/progress";
const TOLD: &str = "notifications/acme/told";
/// More than is held for a client that does not read, several times over.
const NOTICES: u64 = 1_000;
const BYTES: u64 = 5_000;

/// A call that reports all at once.
fn burst() -> Value {
    let mut asked = call(
        1,
        "progress",
        json!({ "steps": NOTICES, "bytes": BYTES, "pause_ms": 0 }),
    );
    asked["params"]["_meta"] = json!({ "progressToken": "mine" });
    asked
}

/// Reads the stream of that call to its end: each report, in order, and the answer.
async fn hears_all(mut stream: Response) {
    for step in 1..=NOTICES {
        let news = stream.message().await.unwrap();
        assert_eq!(news["method"], PROGRESS, "{step}");
        assert_eq!(news["params"]["progress"], step);
    }
    assert_eq!(stream.message().await.unwrap()["id"], 1);
}

/// mcp-spec T30: a server that reports faster than its client reads is read no faster than that.
#[tokio::test]
async fn a_burst_on_the_stream_of_a_call_is_heard_whole() {
    let world = World::new(Personality::legacy()).await;
    let client = Legacy::greet(&world, PATH, NEWEST, json!({})).await;
    hears_all(client.post(&burst()).await).await;
    world.finish_with(&client).await;
}

/// mcp-spec T30: the same for a program, whose calls come on one pipe.
#[tokio::test]
async fn a_burst_of_a_program_is_heard_whole() {
    const CHILD: &str = "/servers/child/mcp";
    let world = World::new(Personality::legacy()).await;
    let ledger = env!("CARGO_BIN_EXE_warmline-ledger");
    let child = Server::stdio("child", [ledger, "--stdio", "--personality", "legacy"]);
    world.add_server(child);
    let client = Legacy::greet(&world, CHILD, NEWEST, json!({})).await;
    hears_all(client.post(&burst()).await).await;
    world.finish_with(&client).await;
}

/// mcp-spec T30: the same for what belongs to no call, on a standing stream.
#[tokio::test]
async fn a_burst_on_a_standing_stream_is_heard_whole() {
    let world = World::new(Personality::legacy()).await;
    let control = world.control();
    let client = Legacy::greet(&world, PATH, NEWEST, json!({})).await;
    client.count().await;
    let mut standing = client.get(None).await;
    streams_held(&control, 1).await;
    let padding = ".".repeat(usize::try_from(BYTES).unwrap());
    for number in 0..NOTICES {
        let params = json!({ "number": number, "padding": padding });
        control.send_on_get_streams(&json!({ "jsonrpc": "2.0", "method": TOLD, "params": params }));
    }
    for number in 0..NOTICES {
        let news = standing.heard(TOLD).await;
        assert_eq!(news["params"]["number"], number);
    }
    world.finish_with(&client).await;
}
