//! What a legacy client declares, and what its server asks by methods that only the two know.

use crate::prelude::*;

const RUN: &str = "/runs/together/servers/ledger/mcp";

/// What was declared to a server, greeting by greeting.
fn heard(server: &LedgerServer) -> Vec<Value> {
    let entries = server.ledger().entries();
    let greetings = entries.iter().filter(|it| it.method == "initialize");
    let mut heard: Vec<_> = greetings
        .map(|it| it.arguments["capabilities"].clone())
        .collect();
    heard.dedup();
    heard
}

/// What a server got for what it asked.
async fn answer_to(server: &LedgerServer) -> Value {
    let is_answer = |entries: &[LedgerEntry]| entries.iter().any(|it| it.method == "(response)");
    let waiting = server
        .ledger()
        .wait_until(Duration::from_secs(20), is_answer);
    assert!(waiting.await, "the server waits for ever");
    let entries = server.ledger().entries();
    let answer = entries.iter().find(|it| it.method == "(response)");
    answer.unwrap().arguments.clone()
}

async fn is_heard(server: &LedgerServer) {
    let control = server.control();
    streams_held(&control, 1).await;
}

/// DESIGN 4: a straight pair loses nothing, so a server hears all that its client declares, also what
/// we know nothing of, and hears it again where its session is opened anew.
#[tokio::test]
async fn what_a_client_declares_reaches_its_server_whole() {
    let world = World::new(Personality::legacy()).await;
    let able = json!({
        "roots": { "listChanged": true },
        "experimental": { "acme/pages": { "size": 7 } },
        "tasks": { "requests": { "sampling": { "createMessage": {} } } },
        "acme": [1, { "deep": null }],
    });
    let client = Legacy::greet(&world, PATH, NEWEST, able.clone()).await;
    assert_eq!(client.count().await, 1);
    assert_eq!(heard(&world.server), std::slice::from_ref(&able));
    world.control().forget_sessions();
    assert_eq!(client.count().await, 1);
    assert_eq!(heard(&world.server), [able]);
    world.finish_with(&client).await;
}

/// A client that says no more than the protocol names is told in the same words whoever it is, so
/// that what is shared and opened ahead fits all of them.
#[tokio::test]
async fn what_the_protocol_names_is_declared_in_the_same_words() {
    let world = World::new(Personality::legacy()).await;
    for able in [
        r#"{"roots":{},"sampling":{}}"#,
        r#"{ "sampling": {}, "roots": {} }"#,
    ] {
        let able = serde_json::from_str(able).unwrap();
        let client = Legacy::greet(&world, PATH, NEWEST, able).await;
        assert_eq!(client.count().await, 1);
        client.delete().await;
    }
    let found = heard(&world.server);
    assert_eq!(found, [json!({ "roots": {}, "sampling": {} })]);
    world.finish().await;
}

/// What clients share is kept apart by flags that every ticket holds: those that differ in what we
/// know nothing of have one session, and a client that only its ticket is left of finds it again.
#[tokio::test]
async fn a_shared_session_is_declared_by_what_the_protocol_names() {
    let world = World::shared(SessionScope::Server, &[]).await;
    for acme in ["a", "b"] {
        let able = json!({ "roots": {}, "experimental": { acme: {} } });
        let client = Legacy::greet(&world, PATH, NEWEST, able).await;
        client.count().await;
    }
    assert_eq!(heard(&world.server), [json!({ "roots": {} })]);
    assert_eq!(world.server.counts().open_sessions, 1);
    world.finish().await;
}

/// At the place of all servers we speak for the client: what only one server and one client know
/// of each other is not promised to all of them.
#[tokio::test]
async fn all_servers_in_one_hear_what_the_protocol_names() {
    let world = Merged::new(vec![("one", Personality::legacy())]).await;
    let able = json!({ "roots": {}, "tasks": {}, "experimental": { "acme": {} } });
    let client = world.greet("/mcp", able).await;
    let counted = client.call("one__counter", json!({})).await;
    assert!(counted["result"].is_object(), "{counted}");
    assert_eq!(heard(world.server("one")), [json!({ "roots": {} })]);
    world.finish_with(&client).await;
}

/// DESIGN 4: methods that we do not know pass, in both directions. Between calls the client is asked
/// on its standing stream; its answer reaches the server as the client wrote it.
#[tokio::test]
async fn a_request_of_an_extension_reaches_the_client() {
    let world = World::new(Personality::legacy()).await;
    let able = json!({ "experimental": { "acme": {} } });
    let client = Legacy::greet(&world, PATH, NEWEST, able).await;
    client.count().await;
    let mut standing = client.get(None).await;
    is_heard(&world.server).await;
    let asked = json!({ "page": 3, "unknown": { "a": [null] } });
    world.control().send_server_request(r#"acme/"ask""#, &asked);
    let question = standing.heard(r#"acme/"ask""#).await;
    assert_eq!(question["params"], asked);
    let page = json!({ "page": "three", "more": null });
    let answer = json!({ "jsonrpc": "2.0", "id": question["id"], "result": page });
    assert_eq!(client.post(&answer).await.status, 202);
    assert_eq!(answer_to(&world.server).await, page);
    client.delete().await;
    drop(standing);
    world.finish().await;
}

/// The same in the middle of a call, on its stream; that the client knows no such method is its
/// own word.
#[tokio::test]
async fn a_client_says_itself_that_it_knows_no_such_method() {
    let world = World::new(Personality::legacy()).await;
    let able = json!({ "experimental": { "acme": {} } });
    let client = Legacy::greet(&world, PATH, NEWEST, able).await;
    let calling = client.clone();
    let lasting = call(1, "slow", json!({ "ms": 60_000 }));
    let lasting = tokio::spawn(async move { calling.post(&lasting).await });
    let ledger = world.server.ledger();
    until("it runs", || ledger.started_executions("slow") == 1).await;
    is_heard(&world.server).await;
    world
        .control()
        .send_server_request("tasks/get", &json!({ "taskId": "t" }));
    let mut stream = lasting.await.unwrap();
    let question = stream.heard("tasks/get").await;
    assert_eq!(question["params"]["taskId"], "t");
    let error = json!({ "code": -32601, "message": "no such thing", "data": { "a": 1 } });
    let answer = json!({ "jsonrpc": "2.0", "id": question["id"], "error": error });
    assert_eq!(client.post(&answer).await.status, 202);
    assert_eq!(answer_to(&world.server).await, error);
    drop(stream);
    world.finish_with(&client).await;
}

/// P77, P78: what could be of several clients is nobody's, whatever it is called.
#[tokio::test]
async fn a_request_of_an_extension_that_could_be_of_several_is_nobodys() {
    let world = World::new(Personality::legacy()).await;
    let able = || json!({ "experimental": { "acme": {} } });
    let first = Legacy::greet(&world, RUN, NEWEST, able()).await;
    let second = Legacy::greet(&world, RUN, NEWEST, able()).await;
    let calls = [&first, &second].map(|client| {
        let (client, lasting) = (client.clone(), call(1, "slow", json!({ "ms": 60_000 })));
        tokio::spawn(async move { client.post(&lasting).await })
    });
    let ledger = world.server.ledger();
    until("both run", || ledger.started_executions("slow") == 2).await;
    is_heard(&world.server).await;
    world.control().send_server_request("acme/ask", &json!({}));
    assert_eq!(answer_to(&world.server).await["code"], -32601);
    let snapshot = world.warm.snapshot();
    let numbers = snapshot.server(LEDGER).unwrap();
    assert_eq!(numbers.count("questions_refused_total", &[]), 1);
    for call in calls {
        assert!(!call.is_finished(), "somebody was asked");
        call.abort();
    }
    first.delete().await;
    world.finish_with(&second).await;
}
