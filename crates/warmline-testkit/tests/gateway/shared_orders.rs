//! Orders of clients that share a session: what one of them takes back, another may still want.

use serde_json::{Value, json};
use warmline_testkit::{Personality, Phase};

use super::merged_world::{NEWEST, ask};
use super::wire::Legacy;
use super::world::{World, until};

const PATH: &str = "/runs/r/servers/ledger/mcp";
const URI: &str = "note:///a";
const LOG: &str = "notifications/message";

/// What the server was told by these requests, in order.
fn told(world: &World, method: &str, member: &str) -> Vec<Value> {
    let entries = world.server.ledger().entries().into_iter();
    let received = entries.filter(|entry| entry.phase == Phase::Received);
    let asked = received.filter(|entry| entry.method == method);
    asked.map(|entry| entry.arguments[member].clone()).collect()
}

async fn order(client: &Legacy, method: &str, params: Value) {
    let answer = ask(client, method, params).await;
    assert_eq!(answer["result"], json!({}), "{answer}");
}

async fn two(world: &World) -> (Legacy, Legacy) {
    let greet = || Legacy::greet(world, PATH, NEWEST, json!({}));
    (greet().await, greet().await)
}

/// mcp-spec T16: a subscription ends at the server when the last client that wants it takes it
/// back, or leaves.
#[tokio::test]
async fn a_subscription_lasts_while_any_client_of_the_session_wants_it() {
    let world = World::new(Personality::legacy()).await;
    let (one, other) = two(&world).await;
    let only_one = "note:///b";
    for client in [&one, &other] {
        order(client, "resources/subscribe", json!({ "uri": URI })).await;
    }
    order(&one, "resources/subscribe", json!({ "uri": only_one })).await;
    let mut heard = other.get(None).await;
    until("a stream is held", || {
        world.server.control().standing_streams() == 1
    })
    .await;
    order(&one, "resources/unsubscribe", json!({ "uri": URI })).await;
    let ended = || told(&world, "resources/unsubscribe", "uri");
    assert_eq!(ended(), Vec::<Value>::new());
    world.server.control().update_resource(URI);
    let news = heard.heard("notifications/resources/updated").await;
    assert_eq!(news["params"]["uri"], URI);
    order(&other, "resources/unsubscribe", json!({ "uri": URI })).await;
    assert_eq!(ended(), [json!(URI)]);
    // Whoever leaves wants nothing any more.
    assert_eq!(one.delete().await.status, 204);
    until("it is taken back", || ended() == [URI, only_one]).await;
    drop(heard);
    other.delete().await;
    world.finish().await;
}

/// mcp-spec T17: the server tells as much as any of its clients wants to hear, and each of them
/// hears what it asked for.
#[tokio::test]
async fn a_server_logs_for_the_one_who_wants_most_and_each_hears_its_own_level() {
    let world = World::new(Personality::legacy()).await;
    let (one, other) = two(&world).await;
    let level = |client: Legacy, level: &'static str| async move {
        order(&client, "logging/setLevel", json!({ "level": level })).await;
    };
    let steps = [
        (&one, "debug", vec!["debug"]),
        (&other, "error", vec!["debug"]),
        (&one, "warning", vec!["debug", "warning"]),
        (&one, "emergency", vec!["debug", "warning", "error"]),
        (&one, "info", vec!["debug", "warning", "error", "info"]),
    ];
    for (client, said, expected) in steps {
        level(client.clone(), said).await;
        assert_eq!(
            told(&world, "logging/setLevel", "level"),
            expected,
            "{said}"
        );
    }
    let (mut ones, mut others) = (one.get(None).await, other.get(None).await);
    until("a stream is held", || {
        world.server.control().standing_streams() == 1
    })
    .await;
    let log = |level: &str| {
        let params = json!({ "level": level, "data": level });
        world
            .server
            .control()
            .say(&json!({ "jsonrpc": "2.0", "method": LOG, "params": params }));
    };
    for level in ["debug", "info", "error"] {
        log(level);
    }
    for (stream, expected) in [(&mut ones, "info"), (&mut others, "error")] {
        let line = stream.heard(LOG).await;
        assert_eq!(line["params"]["level"], expected);
    }
    drop((ones, others));
    world.finish().await;
}
