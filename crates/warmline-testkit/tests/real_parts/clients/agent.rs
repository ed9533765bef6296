//! An agent that nobody changed, and whose framework opens a session for every call.

use crate::prelude::*;

use super::client_process::{counts, run};
use super::fixture::{LEGACY, World};

/// One line is changed, the URL: then state lives over calls that each open a client session.
#[tokio::test]
async fn a_langchain_agent_keeps_its_state_in_a_run_and_loses_it_without_us() {
    let world = World::new().await;
    let agent = python("langchain", "agent_langchain.py");
    let urls = [world.direct(LEGACY), world.in_run("thread-7", LEGACY)];
    let said = run("counter", &agent, &[], &urls).await;
    let counted: Vec<_> = said.lines().map(counted).collect();
    assert_eq!(counted, [[1, 1, 1], [1, 2, 3]]);
    world.finish().await;
}

fn counted(line: &str) -> Vec<u64> {
    let seen: Value = serde_json::from_str(line).unwrap();
    let said: Vec<String> = serde_json::from_value(seen["said"].clone()).unwrap();
    counts(&said)
}
