//! A modern client on a pipe: it has no headers, and misses nothing by that.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, Lines};
use warmline_gateway::{Options, Pipe};
use warmline_testkit::Personality;

use super::wire::{call, request};
use crate::world::{LEDGER, World};

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

/// mcp-spec 4.3 R13: a client on a pipe says no arguments in headers; they are made for it. What changes is
/// told on the same pipe, under the id of its listen.
#[tokio::test]
async fn a_client_on_a_pipe_needs_no_headers_and_hears_what_changes() {
    let world = World::new(Personality::modern()).await;
    let (input, theirs) = tokio::io::duplex(1 << 16);
    let (ours, output) = tokio::io::duplex(1 << 16);
    let pipe = Pipe::new(world.warm.clone(), Options::default()).to(LEDGER);
    let serving = tokio::spawn(pipe.serve(theirs, ours));
    let mut client = Client {
        input,
        output: BufReader::new(output).lines(),
    };
    let routed = || call("routed", json!({ "level": 42, "region": "köln" }));
    // The server refuses the first, because nobody knew what the tool wants in headers.
    for refused in [true, false] {
        client.say(&routed().body).await;
        let answer = client.hear().await;
        assert_eq!(answer["result"]["resultType"], "complete", "{answer}");
        if refused {
            world.server.control().clear_violations();
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
    let cancel = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 7 } });
    client.say(&cancel.to_string()).await;
    let control = world.server.control();
    let ended = async {
        while control.listens() > 0 {
            tokio::task::yield_now().await;
        }
    };
    assert!(tokio::time::timeout(LIMIT, ended).await.is_ok());
    drop(client.input);
    serving.await.unwrap().unwrap();
    world.finish().await;
}
