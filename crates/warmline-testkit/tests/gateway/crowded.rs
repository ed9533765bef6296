//! As many runs of one identity as may be: who comes next is told at the door, others are not
//! concerned, and a place that is given back is one for the next.

use serde_json::{Value, json};
use warmline::{Server, Warmline};
use warmline_gateway::{Auth, Gateway, Options, Token};
use warmline_testkit::{Canned, Fault, LedgerServer, Personality, Rule};

use super::wire::{Legacy, call, initialize, request};
use super::world::{LEDGER, World};

const PATH: &str = "/servers/ledger/mcp";
const AS_ALICE: (&str, &str) = ("Authorization", "Bearer token-of-alice");

/// A world in which Alice may have two runs at a time.
async fn world() -> World {
    let server = LedgerServer::start(Personality::legacy()).unwrap();
    let warm = Warmline::builder()
        .server(Server::http(LEDGER, server.url()))
        .limits(|limits| limits.runs_per_identity = 2)
        .build()
        .unwrap();
    let token = Token::of(warm.vault(), "alice", "token-of-alice");
    let options = Options {
        listen: ([127, 0, 0, 1], 0).into(),
        auth: Auth::tokens(vec![token]),
        ..Options::default()
    };
    let gateway = Gateway::start(warm.clone(), options).await.unwrap();
    World {
        server,
        warm,
        gateway,
    }
}

async fn post(world: &World, path: &str, message: &Value) -> Value {
    let headers = [
        AS_ALICE,
        ("Accept", "application/json, text/event-stream"),
        ("Content-Type", "application/json"),
    ];
    let address = world.gateway.address();
    let body = message.to_string();
    let mut response = request(address, "POST", path, &headers, &body).await;
    response.answer().await
}

async fn greeted(world: &World, path: &str) -> Value {
    post(world, path, &initialize("2025-11-25", json!({}))).await
}

/// DESIGN 10.1: a client beyond the limit is refused when it comes, not with each of its calls
/// later; and not any more once another has gone.
#[tokio::test]
async fn a_client_too_many_is_refused_at_its_greeting() {
    let world = world().await;
    let [first, second]: [Legacy; 2] = [
        world.greet_as_alice(PATH).await,
        world.greet_as_alice(PATH).await,
    ];
    let named = format!("/runs/chat{PATH}");
    for path in [PATH, &named] {
        let refused = greeted(&world, path).await;
        assert_eq!(refused["error"]["code"], 7501, "{refused}");
        assert!(refused.to_string().contains("overloaded"), "{refused}");
    }
    let refused = post(&world, &named, &call(1, "counter", json!({}))).await;
    assert_eq!(refused["error"]["code"], 7501, "{refused}");
    assert_eq!((first.count().await, second.count().await), (1, 1));
    assert_eq!(first.delete().await.status, 204);
    let counted = post(&world, &named, &call(1, "counter", json!({}))).await;
    assert_eq!(counted["result"]["structuredContent"]["count"], 1);
    assert_eq!(world.warm.snapshot().runs.len(), 2);
    world.finish().await;
}

/// A greeting that fails leaves no run behind that would count.
#[tokio::test]
async fn a_greeting_that_fails_takes_no_place() {
    let world = world().await;
    let away = Fault::Reply(Canned::new(500, "away"));
    world
        .server
        .inject(Rule::new(away).on("initialize").always());
    for _ in 0..4 {
        let failed = greeted(&world, PATH).await;
        assert!(!failed.to_string().contains("overloaded"), "{failed}");
        assert!(failed["error"].is_object(), "{failed}");
    }
    assert_eq!(world.warm.snapshot().runs.len(), 0);
    world.server.control().clear();
    assert_eq!(world.greet_as_alice(PATH).await.count().await, 1);
    world.finish().await;
}
