//! The Inspector's command line: a process and a client session for every command.

use crate::prelude::*;

use super::client_process::{counts, output};
use super::fixture::{DUAL, LEGACY, World};

async fn inspect(url: &str, era: &str, arguments: &[&str]) -> Value {
    let inspector =
        "node/node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js";
    let mut command = Command::new(part("node/node_modules/.bin/node"));
    command
        .arg(part(inspector))
        .args(["--cli", url, "--transport", "http", "--protocol-era", era])
        .args(arguments);
    serde_json::from_str(&output(&mut command).await).unwrap()
}

async fn list(url: &str, era: &str) -> Value {
    inspect(url, era, &["--method", "tools/list"]).await
}

async fn count(url: &str) -> Vec<u64> {
    let call = ["--method", "tools/call", "--tool-name", "counter"];
    let result = inspect(url, "legacy", &call).await;
    counts(&[result["content"][0]["text"].as_str().unwrap().to_owned()])
}

#[tokio::test]
async fn the_inspector_lists_the_same_tools_in_both_eras() {
    let world = World::new().await;
    for era in ["legacy", "modern"] {
        let direct = list(&world.direct(DUAL), era).await;
        assert_eq!(list(&world.through(DUAL), era).await, direct, "{era}");
    }
    world.finish().await;
}

#[tokio::test]
async fn commands_of_the_inspector_share_a_run_that_they_name() {
    let world = World::new().await;
    assert_eq!(count(&world.through(LEGACY)).await, [1]);
    assert_eq!(count(&world.in_run("one", LEGACY)).await, [1]);
    assert_eq!(count(&world.in_run("one", LEGACY)).await, [2]);
    assert_eq!(count(&world.in_run("other", LEGACY)).await, [1]);
    world.finish().await;
}
