//! The 2024-11-05 transport: a stream for all that comes down, a place for all that goes up.

use crate::prelude::*;

use super::prometheus_text::Scraped;

const PATH: &str = "/servers/ledger/sse";
const VERSION: &str = "2024-11-05";

async fn world() -> World {
    World::with(Personality::legacy(), |options| GatewayOptions {
        sse: true,
        ..options
    })
    .await
}

/// The same, where Alice and Bob have tokens.
async fn world_of_alice() -> World {
    World::knowing(Personality::legacy(), |options, vault| {
        let token = |name: &str| BearerToken::from_text(vault, name, &format!("token-of-{name}"));
        GatewayOptions {
            sse: true,
            auth: Auth::tokens(vec![token("alice"), token("bob")]),
            ..options
        }
    })
    .await
}

/// A client with its stream.
struct Old {
    address: SocketAddr,
    stream: Response,
    place: String,
    shown: Option<String>,
}

impl Old {
    async fn open(world: &World, path: &str, shown: Option<&str>) -> Self {
        let address = world.gateway.address();
        let shown = shown.map(|name| format!("Bearer token-of-{name}"));
        let mut headers = vec![("Accept", "text/event-stream")];
        headers.extend(shown.as_deref().map(|shown| ("Authorization", shown)));
        let mut stream = request(address, "GET", path, &headers, "").await;
        assert_eq!(stream.status, 200);
        assert_eq!(stream.header("content-type"), Some("text/event-stream"));
        let first = stream.event().await.unwrap();
        assert_eq!(first.kind.as_deref(), Some("endpoint"));
        Self {
            address,
            stream,
            place: first.data,
            shown,
        }
    }

    /// Opens a stream, and greets on it.
    async fn greet(world: &World, path: &str, capabilities: Value) -> Self {
        let mut client = Self::open(world, path, None).await;
        let greeting = client.ask(&initialize(VERSION, capabilities)).await;
        assert_eq!(greeting["result"]["protocolVersion"], VERSION, "{greeting}");
        let told = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        assert_eq!(client.post(&told.to_string()).await.status, 202);
        client
    }

    async fn post(&self, body: &str) -> Response {
        self.post_at(&self.place, self.shown.as_deref(), body).await
    }

    async fn post_at(&self, place: &str, shown: Option<&str>, body: &str) -> Response {
        let mut headers = vec![("Content-Type", "application/json")];
        headers.extend(shown.map(|shown| ("Authorization", shown)));
        request(self.address, "POST", place, &headers, body).await
    }

    /// The next message of the stream.
    async fn heard(&mut self) -> Value {
        let event = self.stream.event().await.unwrap();
        assert_eq!(event.kind.as_deref(), Some("message"));
        event.message()
    }

    /// Leaves a message, and reads the next one.
    async fn ask(&mut self, message: &Value) -> Value {
        let mut response = self.post(&message.to_string()).await;
        assert_eq!(response.status, 202);
        assert_eq!(response.whole().await, "");
        self.heard().await
    }

    async fn count(&mut self) -> i64 {
        let answer = self.ask(&call(7, "counter", json!({}))).await;
        assert_eq!(answer["id"], 7);
        let count = &answer["result"]["structuredContent"]["count"];
        count.as_i64().unwrap_or_else(|| panic!("{answer}"))
    }
}

/// A stream is a session with a run of its own, which ends with it; a named run goes on.
#[tokio::test]
async fn a_session_lasts_as_long_as_its_stream() {
    let world = world().await;
    let control = world.control();
    let mut one = Old::greet(&world, PATH, json!({})).await;
    let mut other = Old::greet(&world, PATH, json!({})).await;
    for expected in 1..=2 {
        assert_eq!(one.count().await, expected);
        assert_eq!(other.count().await, expected);
    }
    drop(one);
    until("its session is ended", || control.session_ids().len() == 1).await;
    assert_eq!(other.count().await, 3);
    drop(other);
    until("no session is left", || control.session_ids().is_empty()).await;

    let named = "/runs/r1/servers/ledger/sse";
    for expected in 1..=2 {
        let mut client = Old::greet(&world, named, json!({})).await;
        assert!(
            client
                .place
                .starts_with("/runs/r1/servers/ledger/messages?")
        );
        assert_eq!(client.count().await, expected);
    }
    world.finish().await;
}

/// What comes during a call, what belongs to none, and questions: all of it on the one stream.
#[tokio::test]
async fn all_that_comes_down_comes_on_the_stream() {
    let world = world().await;
    let control = world.control();
    let mut client = Old::greet(&world, PATH, json!({ "elicitation": {} })).await;
    let mut asked = call(1, "progress", json!({ "steps": 2, "pause_ms": 1 }));
    asked["params"]["_meta"] = json!({ "progressToken": "p" });
    assert_eq!(client.ask(&asked).await["params"]["progress"], 1);
    assert_eq!(client.heard().await["params"]["progress"], 2);
    assert_eq!(client.heard().await["id"], 1);

    streams_held(&control, 1).await;
    control.change_tools();
    assert_eq!(
        client.heard().await["method"],
        "notifications/tools/list_changed"
    );
    control.send_server_request(
        "elicitation/create",
        &json!({ "message": "?", "requestedSchema": {} }),
    );
    let question = client.heard().await;
    assert_eq!(question["method"], "elicitation/create");
    let answer = json!({
        "jsonrpc": "2.0", "id": question["id"], "result": { "action": "decline" },
    });
    assert_eq!(client.post(&answer.to_string()).await.status, 202);
    let ledger = world.server.ledger();
    let answered =
        |entries: &[LedgerEntry]| entries.iter().any(|entry| entry.method == "(response)");
    let soon = Duration::from_secs(5);
    assert!(ledger.wait_until(soon, answered).await);
    drop(client);
    let is_so = || control.open_get_streams() == 0 && control.session_ids().is_empty();
    until("nothing is held any more", is_so).await;
    world.finish().await;
}

/// A call that is under way when its client leaves is given up.
#[tokio::test]
async fn a_client_that_leaves_gives_its_calls_up() {
    let world = world().await;
    let control = world.control();
    let client = Old::greet(&world, PATH, json!({})).await;
    let slow = call(1, "slow", json!({ "ms": 60_000 }));
    assert_eq!(client.post(&slow.to_string()).await.status, 202);
    let ledger = world.server.ledger();
    let is_so = || ledger.started_executions("slow") == 1;
    until("the call is under way", is_so).await;
    drop(client);
    until("the server is told", || {
        ledger.messages_received("notifications/cancelled") == 1 && control.session_ids().is_empty()
    })
    .await;
    world.finish().await;
}

/// reliability D130: all answers come on one stream, so an id that is under way is not taken again,
/// however it is written. The first call goes on; once it was given up its id is free.
#[tokio::test]
async fn an_id_under_way_is_not_taken_again() {
    let world = world().await;
    let ledger = world.server.ledger();
    let mut client = Old::greet(&world, PATH, json!({})).await;
    let with_id = |mut message: Value| {
        message["id"] = json!("/");
        message.to_string()
    };
    let slow = with_id(call(1, "slow", json!({ "ms": 60_000 })));
    assert_eq!(client.post(&slow).await.status, 202);
    let is_so = || ledger.started_executions("slow") == 1;
    until("the call is under way", is_so).await;
    let again = with_id(call(1, "counter", json!({})));
    let written_otherwise = again.replace(r#""/""#, r#""\u002f""#);
    let ping = with_id(json!({ "jsonrpc": "2.0", "method": "ping" }));
    for message in [&again, &written_otherwise, &ping] {
        assert_eq!(client.post(message).await.status, 202);
        let answer = client.heard().await;
        let found = (&answer["id"], &answer["error"]["code"]);
        assert_eq!(found, (&json!("/"), &json!(-32600)), "{message}: {answer}");
    }
    assert_eq!(ledger.executions("counter"), 0);
    let given_up = json!({ "requestId": "/" });
    let cancel =
        json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": given_up });
    assert_eq!(client.post(&cancel.to_string()).await.status, 202);
    assert_eq!(client.post(&again).await.status, 202);
    assert!(client.heard().await["result"].is_object());
    drop(client);
    world.finish().await;
}

/// P124: bad requests are told where they came, or on the stream where they have an id there.
#[tokio::test]
async fn what_is_wrong_is_refused() {
    let world = world().await;
    let address = world.gateway.address();
    for (method, path, headers, status) in [
        (
            "POST",
            PATH,
            vec![("Content-Type", "application/json")],
            405,
        ),
        ("DELETE", PATH, vec![], 405),
        ("GET", PATH, vec![("Accept", "application/json")], 406),
        ("GET", "/servers/ledger/messages", vec![], 405),
        ("POST", "/servers/ledger/messages", vec![], 404),
        ("POST", "/servers/ledger/messages?session=", vec![], 404),
        (
            "POST",
            "/servers/ledger/messages",
            vec![("Content-Type", "text/plain")],
            415,
        ),
    ] {
        let response = request(address, method, path, &headers, "{}").await;
        assert_eq!(response.status, status, "{method} {path} {headers:?}");
    }
    let mut client = Old::open(&world, PATH, None).await;
    for body in ["", "{", "1", "{\"jsonrpc\":\"2.0\",\"id\":1}"] {
        assert_eq!(client.post(body).await.status, 400, "{body}");
    }
    assert_eq!(client.post("[").await.status, 400, "no JSON");
    // Several messages in one are no request that could be told where they came.
    assert_eq!(client.post("[1]").await.status, 202);
    assert_eq!(client.heard().await["error"]["code"], -32600);
    let elsewhere = client.place.replace("ledger", "other");
    let list = json!({ "jsonrpc": "2.0", "id": 3, "method": "tools/list" });
    let moved = client.post_at(&elsewhere, None, &list.to_string()).await;
    assert_eq!(moved.status, 404);

    // Before the greeting nothing but a ping is answered; after it there is no other greeting.
    let error = client.ask(&list).await["error"].clone();
    assert_eq!(error["code"], -32600);
    assert!(error["message"].as_str().unwrap().contains("initialize"));
    let ping = json!({ "jsonrpc": "2.0", "id": 4, "method": "ping" });
    assert_eq!(client.ask(&ping).await["result"], json!({}));
    let hello = initialize(VERSION, json!({}));
    assert!(client.ask(&hello).await["result"].is_object());
    assert_eq!(client.ask(&hello).await["error"]["code"], -32600);
    assert_eq!(client.count().await, 1);
    // The other era does not come this way.
    let mut probe = list.clone();
    probe["params"] =
        json!({ "_meta": { "io.modelcontextprotocol/protocolVersion": "2026-07-28" } });
    assert_eq!(client.ask(&probe).await["error"]["code"], -32600);

    let place = client.place.clone();
    drop(client);
    let is_so = || world.control().session_ids().is_empty();
    until("its session is ended", is_so).await;
    let gone = request(address, "POST", &place, &[], &list.to_string()).await;
    assert_eq!(gone.status, 404);
    world.finish().await;
}

/// Whoever knows the place of a stream is not let in by that: each message shows who it is of.
#[tokio::test]
async fn another_cannot_speak_on_a_stream() {
    let world = world_of_alice().await;
    let address = world.gateway.address();
    let nobody = request(address, "GET", PATH, &[], "").await;
    assert_eq!(nobody.status, 401);
    let mut alice = Old::open(&world, PATH, Some("alice")).await;
    let hello = initialize(VERSION, json!({})).to_string();
    for (shown, status) in [(None, 401), (Some("Bearer token-of-bob"), 404)] {
        let response = alice.post_at(&alice.place, shown, &hello).await;
        assert_eq!(response.status, status, "{shown:?}");
    }
    let greeting = alice.ask(&initialize(VERSION, json!({}))).await;
    assert!(greeting["result"].is_object(), "{greeting}");
    assert_eq!(alice.count().await, 1);
    // Who is not let in any more is turned out of the stream.
    world.gateway.set_auth(Auth::tokens(Vec::new()));
    while alice.stream.event().await.is_some() {}
    world.finish().await;
}

/// Unless it is switched on there is nothing at its paths.
#[tokio::test]
async fn nothing_is_there_unless_it_is_switched_on() {
    let world = World::new(Personality::legacy()).await;
    let address = world.gateway.address();
    for (method, path) in [("GET", PATH), ("POST", "/servers/ledger/messages")] {
        let response = request(address, method, path, &[], "").await;
        assert_eq!(response.status, 404, "{path}");
    }
    world.finish().await;
}

/// A gateway that stops ends a stream once nothing is under way on it.
#[tokio::test]
async fn a_stream_ends_when_the_gateway_stops_but_not_before_its_calls() {
    let world = world().await;
    let mut client = Old::greet(&world, PATH, json!({})).await;
    let slow = call(1, "slow", json!({ "ms": 300 }));
    assert_eq!(client.post(&slow.to_string()).await.status, 202);
    let ledger = world.server.ledger();
    let is_so = || ledger.started_executions("slow") == 1;
    until("the call is under way", is_so).await;
    world.gateway.drain();
    assert_eq!(client.heard().await["id"], 1);
    assert_eq!(client.stream.event().await, None);
    world.gateway.drained().await;
    world.finish().await;
}

/// Nothing is held for a client that cannot come back: all it hears comes on one stream.
#[tokio::test]
async fn a_client_with_one_stream_has_none_of_its_calls_held() {
    let world = World::with(Personality::legacy(), |options| GatewayOptions {
        sse: true,
        ops: Some(([127, 0, 0, 1], 0).into()),
        ..options
    })
    .await;
    let mut client = Old::greet(&world, PATH, json!({})).await;
    let mut asked = call(1, "progress", json!({ "steps": 1, "pause_ms": 1 }));
    asked["params"]["_meta"] = json!({ "progressToken": 1 });
    for _ in 0..3 {
        assert_eq!(client.ask(&asked).await["method"], "notifications/progress");
        assert_eq!(client.heard().await["id"], 1);
    }
    let ops = world.gateway.ops_address().unwrap();
    let mut page = request(ops, "GET", "/metrics", &[], "").await;
    let page = Scraped::read(&page.whole().await);
    // What belongs to no call has a stream behind the client's own.
    assert_eq!(page.number("warmline_gateway_streams", &[]), 1.0);
    drop(client);
    world.finish().await;
}
