//! Reuse: what a warm call sends, and scopes of every kind around one session.

use crate::prelude::*;

/// A12, A105, P15, reliability P15: a call on a warm session sends one request and waits for one reply, over
/// the connection that is there; only the first one pays for meeting the server.
#[tokio::test]
async fn a_warm_call_is_one_request() {
    for personality in [
        Personality::legacy(),
        Personality::legacy_stateless(),
        Personality::modern(),
    ] {
        let world = World::new(personality);
        let late = Fault::Delay(20, FaultTiming::BeforeExecuting);
        world.inject(FaultRule::new(late).on_method("initialize").always());
        let ledger = world.in_run();
        ledger.call("echo", json!({})).await.unwrap().ok().unwrap();
        let met = world.server.counts();
        assert!(met.requests > 1, "a miss pays for the contact");
        for number in 1..=10 {
            ledger.call("echo", json!({})).await.unwrap().ok().unwrap();
            let seen = world.server.counts();
            assert_eq!(seen.requests, met.requests + number);
        }
        let seen = world.server.counts();
        assert_eq!(seen.connections, met.connections);
        assert_eq!(seen.initializes, met.initializes);
        world.finish().await;
    }
}

/// P51: in one run a server that keeps sessions, one that keeps none and a modern one are each
/// spoken to in their own way.
#[tokio::test]
async fn stateless_and_stateful_servers_live_side_by_side() {
    let stateless = LedgerServer::start(Personality::legacy_stateless()).unwrap();
    let modern = LedgerServer::start(Personality::modern()).unwrap();
    let world = World::with_engine(Personality::legacy(), |builder| {
        builder
            .server(Server::http("stateless", stateless.url()))
            .server(Server::http("modern", modern.url()))
    });
    let run = world.begin_run();
    for number in 1..=3 {
        assert_eq!(count(&run.server(LEDGER).unwrap()).await, number);
        for name in ["stateless", "modern"] {
            assert_eq!(count(&run.server(name).unwrap()).await, 1, "{name}");
        }
    }
    assert_eq!(world.server.counts().sessions, 1);
    for other in [&stateless, &modern] {
        assert_eq!(other.counts().sessions, 0);
        assert_eq!(other.violations(), Vec::<String>::new());
    }
    world.finish().await;
}

/// Describes what a server can do, and knows nothing of runs.
async fn describe(warm: &Warmline) -> usize {
    let ledger = warm.server(LEDGER).unwrap();
    ledger.forget_tools();
    ledger.ping().await.unwrap();
    ledger.info().await.unwrap();
    ledger.tools().await.unwrap().len()
}

/// P22: code that belongs to no agent has a scope as well, of one line, and pays once.
#[tokio::test]
async fn a_scope_without_an_agent_pays_once() {
    let world = World::new(Personality::legacy());
    let warm = world.warm.clone();
    world
        .warm
        .run(async |_| {
            for _ in 0..5 {
                assert!(describe(&warm).await > 5);
            }
        })
        .await;
    assert_eq!(world.handshakes(), 1);
    drop(warm);
    world.finish().await;
}
