//! Messages without an id: what asks for something is no notice, and no way around the rules.

use crate::prelude::*;

use warmline_gateway::AccessRule as Allowing;

use super::modern::raw_client::call as modern_call;

fn rules(of_tools: Option<&[&str]>) -> DeclaredAccess {
    let named = |tools: &[&str]| tools.iter().map(|tool| (*tool).to_owned()).collect();
    let rule = Allowing {
        subject: AccessSubject::Everyone,
        tools: of_tools.map(named),
    };
    let (allow, deny) = match of_tools {
        Some(_) => (vec![rule], Vec::new()),
        None => (Vec::new(), vec![rule]),
    };
    DeclaredAccess { allow, deny }
}

/// A call that nobody could be told the end of.
fn without_id(mut message: Value) -> Value {
    message.as_object_mut().unwrap().remove("id");
    message
}

fn notice(method: &str) -> Value {
    json!({ "jsonrpc": "2.0", "method": method })
}

/// DESIGN 7, mcp-spec 3.4.6: a request without an id is malformed at every place; no server hears
/// of it, whatever the rules say, and the audit does.
#[tokio::test]
async fn a_request_without_an_id_is_no_notice_and_reaches_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("audit.jsonl");
    let world = World::with(Personality::legacy(), |options| GatewayOptions {
        rules: AccessRules::none().with_server(LEDGER, rules(Some(&["echo"]))),
        audit: Some(audit_into(file.clone())),
        ..options
    })
    .await;
    let asked = [
        call(1, "counter", json!({})),
        call(1, "echo", json!({})),
        json!({ "jsonrpc": "2.0", "id": 1, "method": "resources/list" }),
        json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" }),
        json!({ "jsonrpc": "2.0", "id": 1, "method": "made/up" }),
    ];
    for path in [PATH, "/mcp"] {
        let client = Legacy::greet(&world, path, NEWEST, json!({})).await;
        for message in &asked {
            let mut response = client.post(&without_id(message.clone())).await;
            assert_eq!(response.status, 400, "{path} {message}");
            let told = response.json().await;
            assert_eq!(told["error"]["code"], -32600, "{told}");
            assert_eq!(told["id"], Value::Null, "{told}");
        }
    }
    let older = Legacy::greet(&world, PATH, "2025-03-26", json!({})).await;
    let batch = json!([call(1, "echo", json!({})), without_id(asked[0].clone())]);
    assert_eq!(older.post(&batch).await.status, 400);
    let modern = modern_call("counter", json!({})).changed(|body| *body = without_id(body.take()));
    assert_eq!(modern.send(&world).await.refusal(), (400, -32600));

    assert_eq!(older.call("echo", json!({})).await["id"], 1);
    let seen = world.server.ledger().methods();
    let foreign: Vec<_> = seen
        .iter()
        .filter(|method| !method.starts_with("notifications/") && *method != "initialize")
        .collect();
    assert_eq!(foreign, ["tools/call"], "the one with an id");
    world.finish().await;
    let lines = fs::read_to_string(&file).unwrap();
    let refused = lines.lines().filter(|line| line.contains("\"refused\""));
    assert_eq!(refused.count(), 2 * asked.len() + 2, "{lines}");
}

/// The same for clients that are told all on one stream, or over a pair of pipes.
#[tokio::test]
async fn a_request_without_an_id_reaches_nobody_by_the_old_transport_or_a_pipe() {
    let world = World::with(Personality::legacy(), |options| GatewayOptions {
        sse: true,
        ..options
    })
    .await;
    let address = world.gateway.address();
    let events = [("Accept", "text/event-stream")];
    let mut stream = request(address, "GET", "/servers/ledger/sse", &events, "").await;
    let place = stream.event().await.unwrap().data;
    let json_body = [("Content-Type", "application/json")];
    let say = |message: Value| {
        let place = place.clone();
        async move { request(address, "POST", &place, &json_body, &message.to_string()).await }
    };
    say(initialize("2024-11-05", json!({}))).await;
    assert!(stream.message().await.unwrap()["result"].is_object());
    let stray = without_id(call(1, "counter", json!({})));
    assert_eq!(say(stray.clone()).await.status, 400);

    let (mut input, theirs) = tokio::io::duplex(1 << 16);
    let (ours, output) = tokio::io::duplex(1 << 16);
    let pipe = StdioClient::new(world.warm.clone(), GatewayOptions::default()).for_server(LEDGER);
    let serving = tokio::spawn(pipe.serve(theirs, ours));
    let mut output = BufReader::new(output).lines();
    for message in [initialize(NEWEST, json!({})), stray] {
        let line = format!("{message}\n");
        input.write_all(line.as_bytes()).await.unwrap();
        let told = output.next_line().await.unwrap().unwrap();
        let told: Value = serde_json::from_str(&told).unwrap();
        let is_greeting = message["method"] == "initialize";
        assert_eq!(told["result"].is_object(), is_greeting, "{told}");
    }
    drop(input);
    serving.await.unwrap().unwrap();
    assert_eq!(world.received("tools/call"), 0);
    world.finish().await;
}

/// DESIGN 7: what somebody may not use hears nothing from them, neither calls nor notices; at the
/// place of all servers the others do.
#[tokio::test]
async fn a_notice_to_a_server_that_is_denied_goes_no_further() {
    const CHANGED: &str = "notifications/roots/list_changed";
    let world = World::new(Personality::legacy()).await;
    let denied = GatewayOptions {
        rules: AccessRules::none().with_server(LEDGER, rules(None)),
        ..GatewayOptions::default()
    };
    let (mut input, theirs) = tokio::io::duplex(1 << 16);
    let (ours, output) = tokio::io::duplex(1 << 16);
    let pipe = StdioClient::new(world.warm.clone(), denied).for_server(LEDGER);
    let serving = tokio::spawn(pipe.serve(theirs, ours));
    let mut output = BufReader::new(output).lines();
    let asked = call(1, "counter", json!({}));
    for (message, code) in [
        (initialize(NEWEST, json!({})), None),
        (asked, Some(7501)),
        (notice(CHANGED), Some(7501)),
    ] {
        let line = format!("{message}\n");
        input.write_all(line.as_bytes()).await.unwrap();
        let told = output.next_line().await.unwrap().unwrap();
        let told: Value = serde_json::from_str(&told).unwrap();
        assert_eq!(told["error"]["code"].as_i64(), code, "{told}");
    }
    drop(input);
    serving.await.unwrap().unwrap();
    assert_eq!(world.received(CHANGED), 0);
    world.finish().await;

    let servers = ["a", "b"].map(|name| (name, Personality::legacy()));
    let world = Merged::beside(servers.to_vec(), Vec::new(), |options| GatewayOptions {
        rules: AccessRules::none().with_server("b", rules(None)),
        ..options
    })
    .await;
    let client = world
        .greet("/mcp", json!({ "roots": { "listChanged": true } }))
        .await;
    client.call("a__counter", json!({})).await;
    assert_eq!(client.post(&notice(CHANGED)).await.status, 202);
    let is_so = || world.server("a").ledger().messages_received(CHANGED) == 1;
    until("the one that may be used heard it", is_so).await;
    assert_eq!(world.server("b").ledger().entries().len(), 0);
    world.finish().await;
}
