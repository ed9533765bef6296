//! The breaker: openings that fail again and again are not tried for a while, and nobody else
//! pays for it.

use crate::prelude::*;

use super::named_credentials::Named;

async fn failed(handle: &ServerHandle) -> Error {
    handle.call("counter", json!({})).await.unwrap_err()
}

fn refuse_openings(world: &World) {
    let refusal = Fault::Reply(CannedReply::new(500, "cannot"));
    world.inject(FaultRule::new(refusal).on_method("initialize").always());
}

fn asked(world: &World) -> usize {
    world.received("initialize")
}

/// The states that the breakers went through so far.
fn changes(events: &mut EventSubscription) -> Vec<String> {
    let mut changes = Vec::new();
    while let Some(Some(heard)) = futures_util::FutureExt::now_or_never(events.next()) {
        if let EventItem::Event(Event::BreakerChanged {
            server,
            scope,
            state,
            reason,
            ..
        }) = heard
        {
            let reason = reason.map(Reason::as_str);
            changes.push(json!([server, scope, state.as_str(), reason]).to_string());
        }
    }
    changes
}

/// A89, A90, A95, E16, P9, P10: five failures trip it; then nothing is tried for a while, then one.
#[tokio::test]
async fn five_failures_stop_openings_for_a_while() {
    let world = World::new(Personality::legacy());
    let mut events = world.warm.events();
    let ledger = world.in_run();
    refuse_openings(&world);
    for number in 1..=5 {
        let error = failed(&ledger).await;
        assert_ne!(error.code().as_str(), "breaker-open", "after {number}");
        assert_eq!(error.delivery(), Delivery::Unsent);
    }
    let before = asked(&world);
    let requests = world.server.counts().requests;
    let error = failed(&ledger).await;
    failed_as(&error, "breaker-open", Delivery::Unsent);
    let wait = error.retry_after().unwrap();
    assert!(wait > secs(8) && wait <= secs(11), "{wait:?}");
    assert_eq!(world.server.counts().requests, requests);

    // One of many is let through, and its failure makes the wait longer.
    pass(secs(11)).await;
    let calls = (0..20).map(|_| failed(&ledger));
    let errors = join_all(calls).await;
    assert_eq!(asked(&world), before + 1);
    let tripped = errors
        .iter()
        .filter(|error| error.code().as_str() == "breaker-open");
    assert!(tripped.count() < 20);
    let wait = failed(&ledger).await.retry_after().unwrap();
    assert!(wait > secs(15) && wait <= secs(22), "{wait:?}");

    // The next probe finds it well, and everybody is served.
    world.control().clear_faults();
    pass(secs(22)).await;
    let counts = join_all((0..20).map(|_| count(&ledger))).await;
    assert_eq!(counts.len(), 20);
    let tripped = ("tripped", json!("server-error"));
    let other = |word| (word, json!(null));
    let expected = [
        tripped.clone(),
        other("probing"),
        tripped,
        other("probing"),
        other("passing"),
    ];
    let line = |(state, reason)| json!([LEDGER, "server", state, reason]).to_string();
    assert_eq!(changes(&mut events), expected.map(line));
    world.finish().await;
}

/// A92, reliability P5, reliability T24: one tenant's bad token stops that tenant and nobody else.
#[tokio::test]
async fn a_bad_token_stops_its_own_tenant_alone() {
    let world = World::with(Personality::legacy().token("bob"), |server| {
        server.provider(Named)
    });
    let alice = world.warm.identity("alice").server(LEDGER).unwrap();
    let mut codes = Vec::new();
    for _ in 0..100 {
        codes.push(failed(&alice).await.code().as_str());
    }
    assert_eq!(codes[0], "credential-refused");
    assert_eq!(codes[99], "breaker-open");
    let bob = world.warm.identity("bob").server(LEDGER).unwrap();
    assert_eq!(count(&bob).await, 1);
    world.no_session_left().await;
    let requests = world.server.counts().requests;
    failed(&alice).await;
    assert_eq!(world.server.counts().requests, requests);
    world.finish().await;
}

/// A92: a server that is down is down for everybody.
#[tokio::test]
async fn a_server_that_is_down_is_down_for_everybody() {
    let world = World::new(Personality::legacy());
    world.server.stop();
    let who = |name: String| world.warm.identity(&name).server(LEDGER).unwrap();
    for number in 0..5 {
        let error = failed(&who(format!("tenant {number}"))).await;
        assert_eq!(error.code().as_str(), "cannot-reach", "{error:?}");
    }
    let error = failed(&who("another".to_owned())).await;
    assert_eq!(error.code().as_str(), "breaker-open", "{error:?}");
    world.server.start_again().unwrap();
    pass(secs(11)).await;
    assert_eq!(count(&who("another".to_owned())).await, 1);
    world.finish().await;
}

/// A93, A94: what fails in a call, or is not answered in time, does not count, and sessions that are
/// open go on.
#[tokio::test]
async fn open_sessions_go_on_while_openings_are_stopped() {
    let world = World::new(Personality::legacy());
    let ledger = world.in_run();
    for _ in 0..10 {
        assert!(ledger.call("fail", json!({})).await.unwrap().is_error());
        let unknown = ledger.call("nobody", json!({})).await.unwrap_err();
        assert_eq!(unknown.delivery(), Delivery::Answered);
        let late = ledger.call("slow", json!({"ms": 60_000}));
        let late = late.timeout(Duration::from_millis(20)).await.unwrap_err();
        assert_eq!(late.code().as_str(), "deadline", "{late:?}");
    }
    assert_eq!(
        world.number("breaker_changes_total", &["server", "tripped"]),
        0
    );
    assert_eq!(count(&world.ledger()).await, 1);
    refuse_openings(&world);
    let other = world.warm.begin_run();
    for _ in 0..6 {
        failed(&other.server(LEDGER).unwrap()).await;
    }
    let error = failed(&other.server(LEDGER).unwrap()).await;
    assert_eq!(error.code().as_str(), "breaker-open");
    assert_eq!(count(&ledger).await, 1);
    assert_eq!(count(&ledger).await, 2);
    world.finish().await;
}
