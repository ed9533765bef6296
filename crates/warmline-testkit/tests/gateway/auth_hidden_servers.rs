//! What somebody may not use is like what is not there.

use crate::prelude::*;

use super::raw_client::{Reply, call, initialize, post, request, send};

/// A gateway whose one server is for alice alone.
async fn for_alice() -> World {
    World::knowing(Personality::legacy(), |options, vault| {
        let alice = AccessRule {
            subject: AccessSubject::Identity("alice".to_owned()),
            tools: None,
        };
        let rules = DeclaredAccess {
            allow: vec![alice],
            deny: Vec::new(),
        };
        GatewayOptions {
            rules: AccessRules::none().with_server(LEDGER, rules),
            ..known(options, vault, &["alice", "eve"])
        }
    })
    .await
}

/// DESIGN 13: nobody can find out by any request whether a server that they may not use is there.
#[tokio::test]
async fn a_server_that_may_not_be_used_is_like_one_that_is_not_there() {
    let world = for_alice().await;
    let at = world.gateway.address();
    let eve = ("Authorization", "Bearer token-of-eve");
    let modern = ("MCP-Protocol-Version", "2026-07-28");
    let ticket = ("Mcp-Session-Id", "none-of-ours");
    let ask = async |server: &str, text: &str| -> Reply {
        let mut reply = send(at, &text.replace("SERVER", server)).await;
        let head = reply.head.lines().filter(|line| !line.starts_with("date"));
        reply.head = head.collect::<Vec<_>>().join(" ");
        reply
    };
    let path = "/servers/SERVER/mcp";
    let in_run = "/runs/trip/servers/SERVER/mcp";
    let unfinished = post(path, &[eve], &json!("x".repeat(200)));
    let texts = [
        post(path, &[eve], &initialize()),
        post(in_run, &[eve], &initialize()),
        post(path, &[eve, ticket], &call("echo", &json!({}))),
        post(
            path,
            &[eve, modern],
            &request("server/discover", &json!({})),
        ),
        post(path, &[eve], &json!("no message")),
        post(path, &[eve], &json!([])),
        unfinished
            .replace("Connection: close\r\n", "")
            .replace("xxx\"", ""),
        post(path, &[eve], &initialize()).replace("POST", "GET"),
        post(path, &[eve, ticket], &initialize()).replace("POST", "DELETE"),
        post(path, &[eve], &initialize()).replace("POST", "PUT"),
    ];
    for text in texts {
        let (hidden, missing) = (ask("ledger", &text).await, ask("nobody", &text).await);
        let found = (hidden.status, &hidden.body);
        assert_eq!(found, (404, &missing.body), "{text}");
        assert_eq!(hidden.head, missing.head, "{text}");
        assert!(!hidden.body.contains("ledger"), "{hidden:?}");
    }
    let alice = [("Authorization", "Bearer token-of-alice")];
    let greeting = post("/servers/ledger/mcp", &alice, &initialize());
    assert_eq!(send(at, &greeting).await.status, 200);
    world.finish().await;
}
