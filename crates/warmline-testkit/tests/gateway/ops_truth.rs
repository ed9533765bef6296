//! What the pages say of servers whose sessions died.

use std::time::Duration;

use serde_json::{Value, json};
use warmline_testkit::Personality;

use super::wire::{self, Legacy};
use super::world::{LEDGER, World};

const PATH: &str = "/servers/ledger/mcp";

/// How the one server stands, by the page that tells whether we are ready.
async fn stands(world: &World) -> String {
    let ops = world.gateway.ops_address().unwrap();
    let mut response = wire::request(ops, "GET", "/readyz", &[], "").await;
    let ready: Value = response.json().await;
    assert_eq!((response.status, &ready["ready"]), (200, &json!(true)));
    assert_eq!(ready["servers"][0]["server"], LEDGER);
    ready["servers"][0]["state"].as_str().unwrap().to_owned()
}

/// Lets time pass until the server stands like this, and no longer than a few checks of its health.
async fn comes_to_stand(world: &World, expected: &str) {
    for _ in 0..30 {
        if stands(world).await == expected {
            return;
        }
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(10)).await;
        tokio::time::resume();
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it never came to be {expected}");
}

/// P52: readiness says of each server how it really stands: one whose sessions all died is not shown
/// as well, though nobody calls it, and one that came back is.
#[tokio::test]
async fn readiness_tells_the_truth_about_sessions_that_died() {
    let world = World::with(Personality::legacy(), |mut options| {
        options.ops = Some(([127, 0, 0, 1], 0).into());
        options
    })
    .await;
    assert_eq!(stands(&world).await, "untried");
    let client = Legacy::greet(&world, PATH, "2025-11-25", json!({})).await;
    client.count().await;
    assert_eq!(stands(&world).await, "ok");
    world.server.stop();
    world.server.control().forget_sessions();
    comes_to_stand(&world, "degraded").await;
    world.server.start_again().unwrap();
    comes_to_stand(&world, "ok").await;
    assert_eq!(client.count().await, 1);
    client.delete().await;
    world.finish().await;
}
