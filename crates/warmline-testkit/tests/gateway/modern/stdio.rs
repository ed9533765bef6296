//! A modern client on a pipe: it has no headers, and misses nothing by that.

use crate::prelude::*;

use std::io;

use tokio::io::{DuplexStream, Lines};

use super::raw_client::{call, request};

const LIMIT: Duration = Duration::from_secs(20);

/// The client's ends of the pipe.
struct Client {
    input: DuplexStream,
    output: Lines<BufReader<DuplexStream>>,
}

impl Client {
    async fn say(&mut self, message: &str) {
        self.input.write_all(message.as_bytes()).await.unwrap();
        self.input.write_all(b"\n").await.unwrap();
    }

    async fn hear(&mut self) -> Value {
        let line = tokio::time::timeout(LIMIT, self.output.next_line()).await;
        let line = line.expect("nothing comes").unwrap().expect("it is over");
        serde_json::from_str(&line).unwrap()
    }
}

/// A client in front of a server of this kind, and what serves it.
fn start(world: &World) -> (Client, JoinHandle<io::Result<()>>) {
    let (input, theirs) = tokio::io::duplex(1 << 16);
    let (ours, output) = tokio::io::duplex(1 << 16);
    let pipe = StdioClient::new(world.warm.clone(), GatewayOptions::default()).for_server(LEDGER);
    let client = Client {
        input,
        output: BufReader::new(output).lines(),
    };
    (client, tokio::spawn(pipe.serve(theirs, ours)))
}

fn cancel(id: &Value) -> String {
    let params = json!({ "requestId": id });
    json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params }).to_string()
}

/// reliability D130, mcp-spec X6: an id that is under way is not taken again, however it is
/// written; the first call goes on, and can be given up. After that its id is free.
#[tokio::test]
async fn an_id_under_way_is_not_taken_again() {
    for era in [Era::Legacy, Era::Modern] {
        let (personality, ask): (_, fn(&str, Value) -> Value) = match era {
            Era::Legacy => (Personality::legacy(), |tool, arguments| {
                json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call",
                    "params": { "name": tool, "arguments": arguments } })
            }),
            Era::Modern => (Personality::modern(), |tool, arguments| {
                serde_json::from_str(&call(tool, arguments).body).unwrap()
            }),
        };
        let world = World::new(personality).await;
        let (mut client, serving) = start(&world);
        if era == Era::Legacy {
            client
                .say(&initialize("2025-11-25", json!({})).to_string())
                .await;
            assert!(client.hear().await["result"].is_object());
        }
        let with_id = |mut message: Value| {
            message["id"] = json!("/");
            message.to_string()
        };
        let slow = with_id(ask("slow", json!({ "ms": 60_000 })));
        client.say(&slow).await;
        let ledger = world.server.ledger();
        let is_so = || ledger.started_executions("slow") == 1;
        until("the call is under way", is_so).await;
        let again = with_id(ask("counter", json!({})));
        for again in [again.clone(), again.replace(r#""/""#, r#""\u002f""#)] {
            client.say(&again).await;
            let answer = client.hear().await;
            let found = (&answer["id"], &answer["error"]["code"]);
            assert_eq!(found, (&json!("/"), &json!(-32600)));
        }
        assert_eq!(ledger.executions("counter"), 0, "{era:?}");
        client.say(&cancel(&json!("/"))).await;
        // Nothing is said of what was given up: the next to be heard is another call.
        let other = ask("counter", json!({}));
        client.say(&other.to_string()).await;
        let answer = client.hear().await;
        assert_eq!(answer["id"], other["id"], "{era:?}");
        assert!(answer["result"].is_object(), "{era:?}: {answer}");
        client.say(&again).await;
        assert!(client.hear().await["result"].is_object(), "{era:?}");
        assert_eq!(ledger.executions("counter"), 2, "{era:?}");
        drop(client.input);
        serving.await.unwrap().unwrap();
        world.finish().await;
    }
}

/// reliability D130: the same holds of requests in batches, among each other and beside others.
#[tokio::test]
async fn an_id_under_way_is_not_taken_again_in_a_batch() {
    let world = World::new(Personality::legacy()).await;
    let (mut client, serving) = start(&world);
    let ledger = world.server.ledger();
    client
        .say(&initialize("2025-03-26", json!({})).to_string())
        .await;
    assert!(client.hear().await["result"].is_object());
    let slow = |id: u32| raw_http::call(id.into(), "slow", json!({ "ms": 60_000 }));
    let count = |id: u32| raw_http::call(id.into(), "counter", json!({}));
    let refused = |id: Value, answer: &Value| {
        let found = (&answer["id"], &answer["error"]["code"]);
        assert_eq!(found, (&id, &json!(-32600)), "{answer}");
    };
    // Nobody could tell the answers of two apart: nothing of such a batch is done.
    client.say(&json!([count(5), count(5)]).to_string()).await;
    refused(Value::Null, &client.hear().await);
    client.say(&slow(6).to_string()).await;
    let is_so = || ledger.started_executions("slow") == 1;
    until("the call is under way", is_so).await;
    client.say(&json!([count(6), count(7)]).to_string()).await;
    let together = client.hear().await;
    refused(json!(6), &together[0]);
    assert_eq!(together[1]["id"], 7, "{together}");
    client.say(&json!([slow(8), slow(9)]).to_string()).await;
    let is_so = || ledger.started_executions("slow") == 3;
    until("they are under way", is_so).await;
    client.say(&count(9).to_string()).await;
    refused(json!(9), &client.hear().await);
    assert_eq!(ledger.executions("counter"), 1);
    for id in [6, 8, 9] {
        client.say(&cancel(&json!(id))).await;
    }
    client.say(&count(9).to_string()).await;
    assert!(client.hear().await["result"].is_object());
    drop(client.input);
    serving.await.unwrap().unwrap();
    world.finish().await;
}

/// mcp-spec 2.1.2, 3.4.6: what is no JSON is told so, however it begins.
#[tokio::test]
async fn a_line_is_read_before_it_is_judged() {
    let world = World::new(Personality::modern()).await;
    let (mut client, serving) = start(&world);
    for (line, code) in [
        ("[not JSON", -32700),
        ("{", -32700),
        ("[1]", -32600),
        (r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#, -32600),
    ] {
        client.say(line).await;
        let answer = client.hear().await;
        assert_eq!(answer["error"]["code"], code, "{line}: {answer}");
        assert_eq!(answer["id"], Value::Null, "{line}");
    }
    drop(client.input);
    serving.await.unwrap().unwrap();
    world.finish().await;
}

/// mcp-spec 4.3 R13: a client on a pipe says no arguments in headers; they are made for it. What changes is
/// told on the same pipe, under the id of its listen.
#[tokio::test]
async fn a_client_on_a_pipe_needs_no_headers_and_hears_what_changes() {
    let world = World::new(Personality::modern()).await;
    let (mut client, serving) = start(&world);
    let routed = || call("routed", json!({ "level": 42, "region": "köln" }));
    // The server refuses the first, because nobody knew what the tool wants in headers.
    for refused in [true, false] {
        client.say(&routed().body).await;
        let answer = client.hear().await;
        assert_eq!(answer["result"]["resultType"], "complete", "{answer}");
        if refused {
            world.control().clear_violations();
        }
    }
    assert_eq!(world.server.ledger().executions("routed"), 2);
    let wanted = json!({ "notifications": { "toolsListChanged": true } });
    let listen = request("subscriptions/listen", wanted).changed(|body| body["id"] = json!(7));
    client.say(&listen.body).await;
    let first = client.hear().await;
    assert_eq!(first["method"], "notifications/subscriptions/acknowledged");
    client.say(&call("change_tools", json!({})).body).await;
    let mut told = [client.hear().await, client.hear().await];
    told.sort_by_key(|one| one["method"].is_null());
    assert_eq!(told[0]["method"], "notifications/tools/list_changed");
    let meta = &told[0]["params"]["_meta"];
    assert_eq!(meta["io.modelcontextprotocol/subscriptionId"], 7);
    client.say(&cancel(&json!(7))).await;
    let is_so = || world.control().open_listens() == 0;
    until("no listen is left", is_so).await;
    drop(client.input);
    serving.await.unwrap().unwrap();
    world.finish().await;
}

/// A client that says it is ready before it knows what the server said is told what belongs to no
/// call all the same.
#[tokio::test]
async fn a_client_that_is_ready_before_it_was_answered_has_its_stream() {
    let world = World::new(Personality::legacy()).await;
    let control = world.control();
    let (mut client, serving) = start(&world);
    let hello = initialize("2025-11-25", json!({})).to_string();
    let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }).to_string();
    client.say(&format!("{hello}\n{ready}")).await;
    assert!(client.hear().await["result"].is_object());
    let ask = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": { "name": "counter", "arguments": {} } });
    client.say(&ask.to_string()).await;
    assert!(client.hear().await["result"].is_object());
    streams_held(&control, 1).await;
    control.change_tools();
    let told = client.hear().await;
    assert_eq!(told["method"], "notifications/tools/list_changed", "{told}");
    drop(client.input);
    serving.await.unwrap().unwrap();
    world.finish().await;
}
