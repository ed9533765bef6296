//! Client sessions that nobody uses, too many of them, and requests that make none.

use crate::prelude::*;

/// Lets a minute pass at once, and the keeper look around.
async fn a_minute() {
    pass(Duration::from_secs(60)).await;
    tokio::time::sleep(Duration::from_millis(5)).await;
}

/// P37, P67: a client session that nobody uses ends by itself, also where no `DELETE` was sent; one
/// that is used goes on, though its client never holds a stream.
#[tokio::test]
async fn client_sessions_that_nobody_uses_end_by_themselves() {
    let world = World::new(Personality::legacy()).await;
    // Nothing of ours is under way when time passes.
    let quiet = Server::http(LEDGER, world.server.url()).with_policy(|policy| {
        policy.keep_alive = Duration::ZERO;
        policy.health_check_interval = Duration::from_secs(100 * 3600);
    });
    world.add_server(quiet);
    let control = world.control();
    let idle = Legacy::greet(&world, PATH, NEWEST, json!({})).await;
    let busy = Legacy::greet(&world, PATH, NEWEST, json!({})).await;
    idle.count().await;
    busy.count().await;
    for minute in 0..40 {
        a_minute().await;
        if minute % 10 == 9 {
            busy.count().await;
        }
    }
    until("the idle one is ended", || control.session_ids().len() == 1).await;
    assert_eq!(world.warm.snapshot().runs.len(), 1);
    assert_eq!(busy.count().await, 6);
    // Its id is good all the same, and says what is lost.
    let back = idle.call("counter", json!({})).await;
    assert_eq!(back["result"]["structuredContent"]["count"], 1, "{back}");
    assert_eq!(back["result"]["_meta"]["dev.warmline/stateLost"], true);
    idle.delete().await;
    world.finish_with(&busy).await;
}

fn bearer(name: &str) -> Vec<(String, String)> {
    vec![("Authorization".to_owned(), format!("Bearer {name}"))]
}

/// P37: client sessions are limited for each identity and in all. Who gets none is told so, others
/// are served, and a place that is left is free again.
#[tokio::test]
async fn client_sessions_are_limited_for_each_identity_and_in_all() {
    let server = LedgerServer::start(Personality::legacy()).unwrap();
    let declared = Server::http(LEDGER, server.url())
        .with_policy(|policy| policy.wait = Duration::from_millis(300));
    let builder = Warmline::builder().server(declared).limits(|limits| {
        limits.sessions_per_identity = 2;
        limits.sessions = 4;
    });
    let warm = builder.build().unwrap();
    let people = ["alice", "bob", "carol"];
    let options = GatewayOptions {
        auth: Auth::tokens(
            people
                .map(|name| BearerToken::from_text(warm.vault(), name, name))
                .to_vec(),
        ),
        ..local()
    };
    let gateway = Gateway::start(warm.clone(), options).await.unwrap();
    let mut clients = Vec::new();
    for name in ["alice", "alice", "alice", "bob", "carol", "carol"] {
        let at = gateway.address();
        clients.push(Legacy::greet_at(at, PATH, NEWEST, json!({}), bearer(name)).await);
    }
    let told = async |place: usize| {
        let answer = clients[place].call("counter", json!({})).await;
        let code = &answer["error"]["data"]["warmline"]["code"];
        code.as_str().map(str::to_owned)
    };
    let full = || Some("pool-full".to_owned());
    let served = [
        (0, None),
        (1, None),
        (2, full()),
        (3, None),
        (4, None),
        (5, full()),
    ];
    for (place, expected) in served {
        assert_eq!(told(place).await, expected, "client {place}");
    }
    assert_eq!(server.counts().open_sessions, 4);
    clients[0].delete().await;
    assert_eq!(told(5).await, None);
    assert_eq!(told(2).await, full(), "all places are taken again");
    for client in &clients[1..] {
        client.delete().await;
    }
    gateway.stop().await;
    warm.close().await;
    assert_eq!(server.violations(), Vec::<String>::new());
}

/// A path, headers, a body, and the status they get.
type Case<'a> = (&'a str, &'a [(&'a str, &'a str)], &'a str, u16);

/// P37: a request that is refused makes no session, no run, and nothing at the server.
#[tokio::test]
async fn a_refused_request_makes_nothing() {
    let world = World::of_alice(Personality::legacy()).await;
    let at = world.gateway.address();
    let alice = ("Authorization", "Bearer token-of-alice");
    let json_body = ("Content-Type", "application/json");
    let hello = initialize(NEWEST, json!({})).to_string();
    let nothing = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize" }).to_string();
    let cases: [Case<'_>; 7] = [
        (PATH, &[json_body], &hello, 401),
        (
            PATH,
            &[json_body, ("Authorization", "Bearer guess")],
            &hello,
            401,
        ),
        ("/servers/nobody/mcp", &[json_body, alice], "{", 404),
        (PATH, &[json_body, alice], "{", 400),
        (PATH, &[("Content-Type", "text/plain"), alice], &hello, 415),
        (
            PATH,
            &[json_body, alice, ("Accept", "image/png")],
            &hello,
            406,
        ),
        (
            PATH,
            &[json_body, alice, ("Mcp-Session-Id", "made-up")],
            "{}",
            400,
        ),
    ];
    for (path, headers, body, status) in cases {
        let response = request(at, "POST", path, headers, body).await;
        assert_eq!(response.status, status, "{headers:?} {body}");
    }
    let mut refused = request(at, "POST", PATH, &[json_body, alice], &nothing).await;
    let answer: Value = refused.json().await;
    assert!(answer["error"].is_object(), "{answer}");
    let snapshot = world.warm.snapshot();
    assert!(snapshot.runs.is_empty() && snapshot.sessions.is_empty());
    assert_eq!(world.server.ledger().entries().len(), 0);
    world.finish().await;
}
