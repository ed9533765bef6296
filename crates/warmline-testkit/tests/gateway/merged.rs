//! All servers in one, for a legacy client.

use serde_json::{Value, json};
use warmline::Server;
use warmline_testkit::Personality;

use super::merged_world::{Merged, NEWEST, ask, each, list};
use super::wire::{Legacy, initialize};

/// A place where nobody listens.
async fn nobody() -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    format!("http://{}/mcp", listener.local_addr().unwrap())
}

async fn counted(client: &Legacy, tool: &str) -> i64 {
    let answer = client.call(tool, json!({})).await;
    let count = &answer["result"]["structuredContent"]["count"];
    count.as_i64().unwrap_or_else(|| panic!("{answer}"))
}

/// P111: two servers with the same tools stand in one list, under names that say whose they are,
/// in the same order each time, and each call reaches its own server in the session of its run.
#[tokio::test]
async fn two_servers_with_the_same_tools_are_told_apart_by_name() {
    let legacy = Personality::legacy;
    let world = Merged::new(vec![("beta", legacy()), ("alpha", legacy().page_size(3))]).await;
    let client = world.greet("/mcp", json!({})).await;
    // Nothing was opened for the greeting.
    for name in ["alpha", "beta"] {
        assert_eq!(world.server(name).ledger().received("initialize"), 0);
    }
    let tools = list(&client, "tools/list", json!({})).await;
    let names = each(&tools, "tools", "name");
    let (first, second) = names.split_at(names.len() / 2);
    let own = |names: &[&str], server: &str| -> Vec<String> {
        let own = names.iter().map(|name| name.strip_prefix(server).unwrap());
        own.map(str::to_owned).collect()
    };
    assert_eq!(own(first, "alpha__"), own(second, "beta__"));
    assert!(tools.get("nextCursor").is_none() && tools.get("_meta").is_none());
    assert_eq!(list(&client, "tools/list", json!({})).await, tools);

    for expected in 1..=2 {
        assert_eq!(counted(&client, "alpha__counter").await, expected);
    }
    assert_eq!(counted(&client, "beta__counter").await, 1);
    for (name, times) in [("alpha", 2), ("beta", 1)] {
        let ledger = world.server(name).ledger();
        assert_eq!(ledger.executions("counter"), times);
        assert_eq!(ledger.received("initialize"), 1, "{name}");
    }
    // Another client is another run.
    let other = world.greet("/mcp", json!({})).await;
    assert_eq!(counted(&other, "alpha__counter").await, 1);
    client.delete().await;
    other.delete().await;
    world.finish().await;
}

/// A run in the path is shared by all clients of it, at the place of all servers and at that of
/// one; clients that never send their id back are served as well.
#[tokio::test]
async fn a_run_in_the_path_is_the_same_at_every_place() {
    let world = Merged::new(vec![("alpha", Personality::legacy())]).await;
    let mut client = world.greet("/runs/r1/mcp", json!({})).await;
    assert_eq!(counted(&client, "alpha__counter").await, 1);
    let alone = world.greet("/runs/r1/servers/alpha/mcp", json!({})).await;
    assert_eq!(alone.count().await, 2);
    client.ticket = String::new();
    assert_eq!(counted(&client, "alpha__counter").await, 3);
    // A ticket is good at its own place alone.
    let strange = Legacy {
        ticket: alone.ticket.clone(),
        ..client
    };
    let message = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" });
    assert_eq!(strange.post(&message).await.status, 404);
    world.finish().await;
}

/// P101: a server that is dead is left out of the list and named, and the others are there.
#[tokio::test]
async fn a_dead_server_is_left_out_and_named() {
    let dead = Server::http("dead", nobody().await);
    let world = Merged::beside(
        vec![("alpha", Personality::legacy())],
        vec![dead],
        |options| options,
    )
    .await;
    let client = world.greet("/mcp", json!({})).await;
    let tools = list(&client, "tools/list", json!({})).await;
    let names = each(&tools, "tools", "name");
    assert!(!names.is_empty() && names.iter().all(|name| name.starts_with("alpha__")));
    let left_out = &tools["_meta"]["dev.warmline/leftOut"];
    assert_eq!(left_out[0]["server"], "dead", "{left_out}");
    assert_eq!(left_out[0]["code"], "cannot-reach");
    let answer = client.call("dead__anything", json!({})).await;
    assert_eq!(answer["error"]["code"], 7501, "{answer}");
    client.delete().await;
    world.finish().await;
}

/// mcp-spec 2.6.1: what is asked for and is nobody's has its code, and reaches no server.
#[tokio::test]
async fn what_is_nobodys_is_refused_here() {
    let world = Merged::new(vec![("alpha", Personality::legacy())]).await;
    let client = world.greet("/mcp", json!({})).await;
    let named = |name: &str| json!({ "name": name, "arguments": {} });
    let cases = [
        ("tools/call", named("counter"), -32602),
        ("tools/call", named("gone__counter"), -32602),
        ("tools/call", json!({}), -32602),
        ("tools/list", json!({ "cursor": "from-3" }), -32602),
        ("tools/list", json!({ "cursor": 3 }), -32602),
        ("tasks/list", json!({}), -32601),
        ("made/up", json!({}), -32601),
    ];
    for (method, params, code) in cases {
        let answer = ask(&client, method, params.clone()).await;
        assert_eq!(answer["error"]["code"], code, "{method} {params}: {answer}");
    }
    assert_eq!(ask(&client, "ping", json!({})).await["result"], json!({}));
    assert_eq!(world.server("alpha").ledger().entries().len(), 0);
    client.delete().await;
    world.finish().await;
}

/// The place says what it is in the version of its client, and always the same.
#[tokio::test]
async fn the_greeting_is_ours_and_opens_nothing() {
    let world = Merged::new(vec![("alpha", Personality::legacy())]).await;
    let client = world.greet("/mcp", json!({})).await;
    for (offered, agreed) in [
        (NEWEST, NEWEST),
        ("2024-11-05", "2024-11-05"),
        ("1999-01-01", NEWEST),
    ] {
        let mut response = client.post(&initialize(offered, json!({}))).await;
        assert!(response.header("mcp-session-id").is_some());
        let said: Value = response.answer().await["result"].clone();
        assert_eq!(said["protocolVersion"], agreed);
        assert_eq!(said["serverInfo"]["name"], "warmline");
        assert_eq!(said["capabilities"]["tools"]["listChanged"], true);
        assert!(said["instructions"].as_str().unwrap().contains("alpha"));
    }
    assert_eq!(world.server("alpha").ledger().entries().len(), 0);
    world.finish().await;
}
