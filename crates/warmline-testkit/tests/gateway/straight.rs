//! Clients and servers of one era, with the gateway between them: nothing is lost.

use serde_json::json;
use warmline::List;
use warmline::core::era::Era;
use warmline_testkit::Personality;

use super::world::{LEDGER, World, count};

/// reliability T15: a client of each era lists and calls through the gateway, and is told what it
/// would be told
/// without it.
#[tokio::test]
async fn a_client_lists_and_calls_as_if_there_were_no_gateway() {
    for (personality, era) in [
        (Personality::legacy(), Era::Legacy),
        (Personality::modern(), Era::Modern),
    ] {
        let world = World::new(personality).await;
        let client = world.client("/servers/ledger/mcp");
        let run = client.begin();
        let through = run.server("through").unwrap();
        assert_eq!(through.facts().await.unwrap().era, era);
        let direct = world.warm.server(LEDGER).unwrap();
        let direct = direct.list(List::Tools).await.unwrap();
        let listed = through.list(List::Tools).await.unwrap();
        assert_eq!(listed, direct, "{era:?}");
        let echoed = through.call("echo", json!({ "a": [1, "ä"] })).await;
        assert!(echoed.unwrap().ok().unwrap().text().contains("ä"));
        let failed = through.call("fail", json!({})).await.unwrap();
        failed.ok().unwrap_err();
        run.end().await;
        client.close().await;
        world.finish().await;
    }
}

/// A legacy client session is a run of its own: its calls share a session, and no other's do.
#[tokio::test]
async fn a_client_session_keeps_its_state_to_itself() {
    let world = World::new(Personality::legacy()).await;
    let client = world.client("/servers/ledger/mcp");
    let (one, other) = (client.begin(), client.begin());
    let (first, second) = (
        one.server("through").unwrap(),
        other.server("through").unwrap(),
    );
    for expected in 1..=3 {
        assert_eq!(count(&first).await, expected);
        assert_eq!(count(&second).await, expected);
    }
    one.end().await;
    other.end().await;
    client.close().await;
    world.finish().await;
}

/// P120: a run that the path names is shared by all client sessions that name it, and outlives them.
#[tokio::test]
async fn a_run_in_the_path_outlives_client_sessions() {
    let world = World::new(Personality::legacy()).await;
    let same = world.client("/runs/r1/servers/ledger/mcp");
    for expected in 1..=3 {
        // Outside a run of its own, every call of this client opens a session and ends it.
        assert_eq!(count(&same.server("through").unwrap()).await, expected);
    }
    let another = world.client("/runs/r2/servers/ledger/mcp");
    assert_eq!(count(&another.server("through").unwrap()).await, 1);
    same.close().await;
    another.close().await;
    world.finish().await;
}
