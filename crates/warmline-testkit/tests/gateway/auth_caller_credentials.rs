//! Credentials that callers hand in by a header of their own.

use crate::prelude::*;

use warmline_engine::credentials::CredentialSource;

use super::raw_client::{Reply, call, post, send};

const HEADER: &str = "X-Ledger-Token";

async fn ask(gateway: &Gateway, token: Option<&str>, message: &Value) -> Reply {
    let mut headers = vec![("Authorization", "Bearer for-us-alone")];
    headers.extend(token.map(|token| (HEADER, token)));
    let path = "/runs/r1/servers/ledger/mcp";
    send(gateway.address(), &post(path, &headers, message)).await
}

fn counted(reply: &Reply) -> i64 {
    let message = reply.json();
    let count = &message["result"]["structuredContent"]["count"];
    count.as_i64().unwrap_or_else(|| panic!("{reply:?}"))
}

/// A101, reliability T5: a header of the caller's request speaks for them where the server is
/// declared so; another value is another session, two values are none, and what was meant for us stays here.
#[tokio::test]
async fn a_header_of_the_caller_is_the_credential_where_it_is_declared_so() {
    let source = CredentialSource::bearer(Secret::header(HEADER).unwrap());
    let declare = |server: Server| server.credential(source);
    let world = World::declared(Personality::legacy(), declare, &[]).await;
    let (server, gateway) = (&world.server, &world.gateway);
    server.control().require_token("handed-in-1");
    let count = call("counter", &json!({}));
    let without = ask(gateway, None, &count).await.json();
    let told = &without["error"]["data"]["warmline"];
    assert_eq!(told["code"], "credential-unavailable");
    assert_eq!(told["reason"], "credential-not-sent");
    // Only the caller can mend that, so the caller is told how.
    let hint = format!("send `{HEADER}` with each request");
    assert_eq!(told["hint"], hint.to_ascii_lowercase());
    for expected in 1..=2 {
        let reply = ask(gateway, Some("handed-in-1"), &count).await;
        assert_eq!(counted(&reply), expected);
    }
    let refused = ask(gateway, Some("handed-in-2"), &count).await;
    assert!(refused.json()["error"].is_object(), "{refused:?}");
    server.control().require_token("handed-in-2");
    let other = ask(gateway, Some("handed-in-2"), &count).await;
    assert_eq!(counted(&other), 1, "another value is another session");
    server.control().require_token("handed-in-1");
    let first = ask(gateway, Some("handed-in-1"), &count).await;
    assert_eq!(counted(&first), 3, "and the first one is still there");
    let twice = [(HEADER, "handed-in-1"), (HEADER, "handed-in-2")];
    let before = server.counts().requests;
    for path in ["/runs/r1/servers/ledger/mcp", "/servers/ledger/mcp", "/mcp"] {
        let refused = send(gateway.address(), &post(path, &twice, &count)).await;
        assert_eq!(refused.status, 400, "{path}: {refused:?}");
        assert_eq!(refused.json()["error"]["code"], -32600, "{path}");
    }
    assert_eq!(server.counts().requests, before, "nothing reached it");
    let seen = format!("{:?}", server.ledger().entries());
    assert!(!seen.contains("for-us-alone"));
    assert!(Secret::header("Authorization").is_err());
    world.gateway.stop().await;
    world.warm.close().await;
}
