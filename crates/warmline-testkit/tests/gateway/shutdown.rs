//! What clients hear of a gateway that goes down: new calls are told so, those under way end.

use crate::prelude::*;

async fn world(personality: Personality) -> World {
    World::with(personality, |options| GatewayOptions {
        sse: true,
        ..options
    })
    .await
}

/// A call that was not sent, and may be made again where the client is sent next.
async fn is_told(mut refused: Response, id: Value) {
    assert_eq!(refused.status, 503);
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(refused.header("connection"), Some("close"));
    let said = refused.json().await;
    assert_eq!((&said["id"], &said["error"]["code"]), (&id, &json!(7501)));
    let known = &said["error"]["data"]["warmline"];
    assert_eq!(known["code"], "draining", "{said}");
    assert_eq!(known["delivery"], "unsent", "{said}");
    assert_eq!(known["retryAfterMs"], 1000, "{said}");
    let sentence = said["error"]["message"].as_str().unwrap();
    assert!(sentence.contains("not executed, safe to call again"));
}

/// reliability O1, reliability P27: who asks for something new is told `draining`, which was not
/// sent, and when to come back; calls under way end, also those that wait for an answer of their
/// client.
#[tokio::test]
async fn new_calls_are_told_and_calls_under_way_end() {
    let world = world(Personality::legacy()).await;
    let ledger = world.server.ledger();
    let client = Legacy::greet(&world, PATH, "2025-11-25", json!({ "elicitation": {} })).await;
    let batching = Legacy::greet(&world, PATH, "2025-03-26", json!({})).await;
    let mut asking = client.post(&call(1, "ask_form", json!({}))).await;
    let question = asking.heard("elicitation/create").await;
    world.gateway.drain();
    is_told(client.post(&call(2, "counter", json!({}))).await, json!(2)).await;
    let greeting = initialize("2025-11-25", json!({}));
    is_told(client.post(&greeting).await, json!("hello")).await;
    let batch = json!([call(3, "counter", json!({}))]);
    is_told(batching.post(&batch).await, Value::Null).await;
    assert_eq!(ledger.executions("counter"), 0);
    let accepted = json!({ "action": "accept", "content": {} });
    let answer = json!({ "jsonrpc": "2.0", "id": question["id"], "result": accepted });
    assert_eq!(client.post(&answer).await.status, 202);
    let answer = asking.answer().await;
    assert_eq!(answer["id"], 1, "{answer}");
    assert!(answer["result"].is_object(), "{answer}");
    assert_eq!(batching.delete().await.status, 204);
    world.gateway.drained().await;
    let address = world.gateway.address();
    world.finish().await;
    let is_so = || std::net::TcpStream::connect(address).is_err();
    until("nobody is heard any more", is_so).await;
}

/// reliability O1: the same for clients of the other era and of the old transport.
#[tokio::test]
async fn clients_of_every_kind_are_told() {
    let modern = world(Personality::modern()).await;
    modern.gateway.drain();
    let back = modern::call("counter", json!({})).send(&modern).await;
    assert_eq!(back.refusal(), (503, 7501), "{back:?}");
    assert_eq!(modern.server.ledger().executions("counter"), 0);
    modern.finish().await;

    let legacy = world(Personality::legacy()).await;
    let address = legacy.gateway.address();
    let events = [("Accept", "text/event-stream")];
    let mut stream = request(address, "GET", "/servers/ledger/sse", &events, "").await;
    let place = stream.event().await.unwrap().data;
    let post = async |message: Value| raw_http::post(address, &place, &[], &message).await;
    assert_eq!(post(initialize("2024-11-05", json!({}))).await.status, 202);
    stream.event().await.unwrap();
    let slow = call(1, "slow", json!({ "ms": 300 }));
    assert_eq!(post(slow).await.status, 202);
    legacy.under_way("slow", 1).await;
    legacy.gateway.drain();
    is_told(post(call(2, "counter", json!({}))).await, json!(2)).await;
    assert_eq!(stream.event().await.unwrap().message()["id"], 1);
    assert_eq!(legacy.server.ledger().executions("counter"), 0);
    legacy.gateway.drained().await;
    legacy.finish().await;
}
