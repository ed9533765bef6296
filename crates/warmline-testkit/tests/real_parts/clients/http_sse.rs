//! Clients of the 2024-11-05 transport: a stream for each client, and nothing else of a session.

use super::client_process::visits;
use super::fixture::{DUAL, LEGACY, World};
use crate::real_parts::{Program, node, python};

/// A client lists and calls as by the newer transport, keeps its state for as long as its stream is
/// open, and two runs stay apart.
async fn is_served(client: Program, newer: Program) {
    let world = World::new().await;
    let newer = visits(&newer, &[], &[world.through(LEGACY), world.through(DUAL)]).await;
    let old = |url: String| url.replace("/mcp", "/sse");
    let urls = [
        old(world.through(LEGACY)),
        old(world.through(LEGACY)),
        old(world.in_run("one", LEGACY)),
        old(world.in_run("one", LEGACY)),
        old(world.through(DUAL)),
    ];
    let seen = visits(&client, &[], &urls).await;
    let counts: Vec<_> = seen.iter().map(|visit| visit.counts.clone()).collect();
    assert_eq!(counts, [[1, 2], [1, 2], [1, 2], [3, 4], [1, 2]]);
    for (visit, place) in seen.iter().zip([0, 0, 0, 0, 1]) {
        assert_eq!(visit.tools, newer[place].tools);
    }
    world.finish().await;
}

#[tokio::test]
async fn python_sdk_1_is_served_by_the_old_transport() {
    let newer = python("mcp1", "client_mcp1.py");
    is_served(python("mcp1", "client_mcp1_sse.py"), newer).await;
}

#[tokio::test]
async fn typescript_sdk_1_is_served_by_the_old_transport() {
    is_served(node("client-v1-sse.mjs"), node("client-v1.mjs")).await;
}
