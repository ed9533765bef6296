//! Real clients at the place of all servers.

use super::client_process::visits_with;
use super::fixture::{DUAL, LEGACY, MODERN, World};
use crate::real_parts::{Program, node, python};

/// A client lists the tools of all servers of its era and calls one of them, by itself and in a
/// run. One that asks for the modern era first is told to begin with `initialize`, because not all
/// servers here speak it.
async fn is_served(client: Program, variables: &[(&str, &str)], alone: [u64; 2]) {
    let world = World::new().await;
    let urls = [
        world.merged(),
        world.merged_in_run("one"),
        world.merged_in_run("one"),
    ];
    let tool = format!("{LEGACY}__counter");
    let visits = visits_with(&tool, &client, variables, &urls).await;
    let counts: Vec<_> = visits.iter().map(|visit| visit.counts.clone()).collect();
    let expected = [alone.to_vec(), vec![1, 2], vec![3, 4]];
    assert_eq!(counts, expected, "{client:?}");
    for visit in visits {
        let has = |server: &str| {
            let before = format!("{server}__");
            visit.tools.iter().any(|tool| tool.starts_with(&before))
        };
        let holds = has(LEGACY) && has(DUAL) && !has(MODERN);
        assert!(holds, "{:?}", visit.tools);
    }
    world.finish().await;
}

/// The last one opens a session for every call: what it counts is kept by the run alone.
#[tokio::test]
async fn clients_see_all_servers_in_one() {
    let asks = [("WARMLINE_PARTS_ERA", "auto")];
    is_served(python("mcp1", "client_mcp1.py"), &[], [1, 2]).await;
    is_served(python("mcp2", "client_mcp2.py"), &[], [1, 2]).await;
    is_served(node("client-v1.mjs"), &[], [1, 2]).await;
    is_served(node("client-v2.mjs"), &asks, [1, 2]).await;
    is_served(python("langchain", "client_langchain.py"), &[], [1, 1]).await;
}
