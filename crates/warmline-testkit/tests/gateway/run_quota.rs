//! As many runs of one identity as may be: who comes next is told at the door, others are not
//! concerned, and a place that is given back is one for the next.

use crate::prelude::*;

/// A world in which Alice may have two runs at a time.
async fn world() -> World {
    let server = LedgerServer::start(Personality::legacy()).unwrap();
    let warm = Warmline::builder()
        .server(Server::http(LEDGER, server.url()))
        .limits(|limits| limits.runs_per_identity = 2)
        .build()
        .unwrap();
    World::around(server, warm, |options, vault| {
        known(options, vault, &["alice"])
    })
    .await
}

async fn post(world: &World, path: &str, message: &Value) -> Value {
    let alice = Legacy::nameless(world.gateway.address(), "alice", path);
    alice.post(message).await.answer().await
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

async fn nothing_is_left(world: &World) {
    let runs = || world.warm.snapshot().runs.len();
    until("no run is left", || runs() == 0).await;
}

/// Who leaves before they are greeted never gets a ticket, and nobody comes back to their run.
#[tokio::test]
async fn who_leaves_before_they_are_greeted_takes_no_place() {
    let world = world().await;
    let hangs = Fault::Silence(FaultTiming::BeforeExecuting);
    world.inject(FaultRule::new(hangs).on_method("initialize").always());
    let both_wait = || {
        let asked = world.received("initialize");
        asked > 0 && world.warm.snapshot().runs.len() == 2
    };
    let hung: Vec<_> = (0..2)
        .map(|_| greeted(&world, PATH))
        .map(Box::pin)
        .collect();
    let both = futures_util::future::join_all(hung);
    tokio::select! {
        _ = both => panic!("nobody answers"),
        () = until("both wait", both_wait) => {},
    }
    nothing_is_left(&world).await;
    world.control().clear_faults();
    assert_eq!(world.greet_as_alice(PATH).await.count().await, 1);
    world.finish().await;
}

/// mcp-spec 3.3: who ends a session while a call of it is under way is told that it is over.
#[tokio::test]
async fn a_call_of_a_session_that_is_ended_gets_the_status_of_one() {
    let world = world().await;
    let client = world.greet_as_alice(PATH).await;
    let slow = call(1, "slow", json!({ "ms": 60_000 }));
    let calling = client.post(&slow);
    let ending = async {
        world.under_way("slow", 1).await;
        client.delete().await.status
    };
    let (called, ended) = tokio::join!(calling, ending);
    assert_eq!((called.status, ended), (404, 204));
    world.finish().await;
}

/// A greeting that fails leaves no run behind that would count.
#[tokio::test]
async fn a_greeting_that_fails_takes_no_place() {
    let world = world().await;
    let away = Fault::Reply(CannedReply::new(500, "away"));
    world.inject(FaultRule::new(away).on_method("initialize").always());
    for _ in 0..4 {
        let failed = greeted(&world, PATH).await;
        assert!(!failed.to_string().contains("overloaded"), "{failed}");
        assert!(failed["error"].is_object(), "{failed}");
    }
    nothing_is_left(&world).await;
    world.control().clear_faults();
    assert_eq!(world.greet_as_alice(PATH).await.count().await, 1);
    world.finish().await;
}

/// A world in which nine requests may be under way, of Alice and Bob together.
async fn narrow() -> World {
    World::knowing(Personality::legacy(), |options, vault| GatewayOptions {
        limits: ListenerLimits {
            max_requests: 9,
            ..ListenerLimits::default()
        },
        ..known(options, vault, &["alice", "bob"])
    })
    .await
}

/// reliability T16, reliability F60: who floods the gateway is told to wait, and somebody else finds
/// it open; when the flood is over both do.
#[tokio::test]
async fn one_who_floods_the_gateway_leaves_room_for_others() {
    let world = narrow().await;
    let alice = world.greet_as_alice(PATH).await;
    let slow = call(1, "slow", json!({ "ms": 60_000 }));
    let mut flood: Vec<_> = (0..12).map(|_| Box::pin(alice.post(&slow))).collect();
    let mut refused = Vec::new();
    while refused.len() < 4 {
        let (mut response, _, rest) = futures_util::future::select_all(flood).await;
        flood = rest;
        let wait = response.header("retry-after").map(str::to_owned);
        refused.push((response.status, wait));
        let said = response.answer().await.to_string();
        assert!(said.contains("safe to call again"), "{said}");
    }
    assert_eq!(refused, vec![(429, Some("1".to_owned())); 4]);
    let under_way = futures_util::future::select_all(flood);
    tokio::select! {
        _ = under_way => panic!("nobody answers"),
        () = async {
            world.under_way("slow", 8).await;
            let shown = bearer("bob");
            let bob = Legacy::greet_with(&world, PATH, "2025-11-25", json!({}), shown).await;
            assert_eq!((bob.count().await, bob.count().await), (1, 2));
            assert_eq!(alice.post(&slow).await.status, 429, "still too many");
        } => {},
    }
    // What is given up and what answers is heard, also of somebody who has too much under way.
    let over = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 1 } });
    for message in [over, json!({ "jsonrpc": "2.0", "id": 7, "result": {} })] {
        assert_eq!(alice.post(&message).await.status, 202);
    }
    assert_eq!(alice.delete().await.status, 204);
    assert_eq!(world.greet_as_alice(PATH).await.count().await, 1);
    world.finish().await;
}
