//! Rules of a server that is reached otherwise, taken away or declared again while a run uses it:
//! those that were said last count.

use crate::prelude::*;

/// What a call of the counter is told; `ok` where it is done.
async fn told(handle: &ServerHandle) -> &'static str {
    match handle.call("counter", json!({})).await {
        Ok(_) => "ok",
        Err(error) => error.code().as_str(),
    }
}

/// P106: a run keeps the server that it began with, and is held to the rules that were said last
/// about its name.
#[tokio::test]
async fn rules_that_come_with_another_way_to_a_server_hold_for_live_runs() {
    let world = World::new(Personality::legacy());
    let other = LedgerServer::start(Personality::legacy()).unwrap();
    let at = |server: &LedgerServer| Server::http(LEDGER, server.url());
    let run = world.begin_run();
    let ledger = run.server(LEDGER).unwrap();
    assert_eq!(count(&ledger).await, 1);
    ledger.tools().await.unwrap();
    let steps = [
        ("replaced", at(&other).deny(["counter"]), "not-allowed"),
        ("settings changed", at(&other), "ok"),
        (
            "settings changed",
            at(&other).allow(["echo"]),
            "not-allowed",
        ),
        ("replaced", at(&world.server), "ok"),
        ("replaced", at(&other).enabled(false), "not-allowed"),
        ("replaced", at(&world.server).allow(["counter"]), "ok"),
    ];
    for (how, server, expected) in steps {
        let is_on = server.policy().enabled;
        world.add_server(server);
        assert_eq!(told(&ledger).await, expected, "{how}");
        assert_eq!(run.server(LEDGER).is_ok(), is_on, "{how}");
        if is_on {
            let listed = ledger.tools().await.unwrap();
            assert_eq!(listed.find("counter").is_ok(), expected == "ok", "{how}");
        }
    }
    assert_eq!(count(&ledger).await, 5, "all of it in one session");
    assert_eq!(other.counts().initializes, 0);
    world.finish().await;
}

/// P106: what was taken away is held to what counted then, also where a run keeps an older way to
/// it, until it is declared again; and it goes on time, however seldom the keeper looks.
#[tokio::test]
async fn rules_of_a_removed_server_hold_until_it_is_declared_again() {
    let world = World::with_engine(Personality::legacy(), |builder| {
        builder.limits(|limits| limits.sweep_every = secs(3_600))
    });
    let other = LedgerServer::start(Personality::legacy()).unwrap();
    let ledger = world.in_run();
    assert_eq!(count(&ledger).await, 1);
    let moved = || Server::http(LEDGER, other.url());
    world.add_server(moved().deny(["counter"]));
    world.warm.set_servers(Vec::new()).unwrap();
    assert_eq!(told(&ledger).await, "not-allowed");
    assert!(ledger.tools().await.unwrap().find("counter").is_err());
    world.add_server(moved());
    assert_eq!(count(&ledger).await, 2, "the session is still there");
    world.add_server(moved().allow(["echo"]));
    assert_eq!(told(&ledger).await, "not-allowed");
    world.warm.set_servers(Vec::new()).unwrap();
    assert_eq!(told(&ledger).await, "not-allowed");
    pass(secs(24)).await;
    world.no_session_left().await;
    assert_eq!(told(&ledger).await, "server-unknown");
    world.finish().await;
}
