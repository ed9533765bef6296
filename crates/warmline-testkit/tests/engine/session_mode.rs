//! What a server needs: sessions or none, found out once, or said.

use crate::prelude::*;

use warmline_core::policy::SessionMode;

/// A170, A172, E4, E9: a server that was taken for one without sessions asks for one.
#[tokio::test]
async fn a_call_that_is_told_it_needs_a_session_gets_one() {
    let rows = ["b1", "b2", "b3", "b3c", "b4", "b7", "b8", "b9", "b10"];
    let rows = rows.map(|row| (row, Fault::Dialect(row.to_owned())));
    let plain = Fault::Reply(CannedReply::new(400, "Invalid session ID"));
    for (dialect, fault) in rows.into_iter().chain([("E4", plain)]) {
        let world = World::new(Personality::legacy_stateless());
        let ledger = world.in_run();
        ledger.call("echo", json!({})).await.unwrap().ok().unwrap();
        let before = world.handshakes();
        world.inject(FaultRule::new(fault).on_tool("pay"));
        let paid = world.pay(&ledger, dialect).await;
        let paid = paid.unwrap_or_else(|error| panic!("{dialect}: {error:?}"));
        assert_eq!(paid.attempts(), 2, "{dialect}");
        assert_eq!(world.payments(dialect), 1, "{dialect}");
        assert_eq!(world.handshakes(), before + 1, "{dialect}");
        world.finish().await;
    }
}

/// A172: a 400 that says something else is passed on, and not repeated.
#[tokio::test]
async fn an_unrelated_400_is_passed_on() {
    let world = World::new(Personality::legacy());
    let ledger = world.in_counted_run().await;
    let canned = CannedReply::new(400, "Bad Request: the amount is missing");
    world.inject(FaultRule::new(Fault::Reply(canned)).on_tool("pay"));
    let error = world.pay(&ledger, "400").await.unwrap_err();
    assert_eq!((error.delivery(), error.attempts()), (Delivery::Refused, 1));
    assert_eq!(world.handshakes(), 1);
    assert_eq!(count(&ledger).await, 2);
    world.finish().await;
}

/// A167: with `sessions = "never"` there is no handshake and no session id.
#[tokio::test]
async fn never_means_no_handshake_and_no_session_id() {
    let world = World::with(Personality::legacy_stateless(), |server| {
        server.sessions(SessionMode::Never)
    });
    let ledger = world.in_run();
    for _ in 0..3 {
        ledger.call("echo", json!({})).await.unwrap().ok().unwrap();
    }
    let fault = Fault::Dialect("b4".to_owned());
    world.inject(FaultRule::new(fault).on_tool("pay").always());
    let error = world.pay(&ledger, "never").await.unwrap_err();
    assert_eq!(error.delivery(), Delivery::Refused, "{error:?}");
    let methods = world.server.ledger().methods();
    assert!(!methods.contains(&"initialize".to_owned()), "{methods:?}");
    let with_id = world.server.ledger().count(|entry| entry.session.is_some());
    assert_eq!(with_id, 0);
    world.finish().await;
}

/// A168: with `sessions = "always"` the handshake comes first.
#[tokio::test]
async fn always_means_the_handshake_comes_first() {
    for personality in [Personality::legacy(), Personality::dual()] {
        let world = World::with(personality, |server| server.sessions(SessionMode::Always));
        let ledger = world.in_run();
        assert_eq!((count(&ledger).await, count(&ledger).await), (1, 2));
        assert_eq!(world.handshakes(), 1);
        let methods = world.server.ledger().methods();
        let place = |name: &str| methods.iter().position(|method| method == name).unwrap();
        assert!(place("initialize") < place("tools/call"), "{methods:?}");
        world.finish().await;
    }
}

/// A169, A171, A173: what a server needs is found out once, and never by calling a tool.
#[tokio::test]
async fn what_a_server_needs_is_found_out_once() {
    let kinds = [
        ("legacy", Personality::legacy_stateless()),
        ("modern", Personality::modern()),
        ("dual", Personality::dual_stateless()),
    ];
    for (kind, personality) in kinds {
        let world = World::new(personality);
        let ledger = world.in_run();
        ledger.call("echo", json!({})).await.unwrap().ok().unwrap();
        let methods = world.server.ledger().methods();
        assert_eq!(methods.last().unwrap(), "tools/call", "{kind}");
        let calls = methods.iter().filter(|method| *method == "tools/call");
        assert_eq!(calls.count(), 1, "{kind}: {methods:?}");
        let before = methods.len();
        for _ in 0..5 {
            ledger.call("echo", json!({})).await.unwrap().ok().unwrap();
            done(world.ledger().call("echo", json!({}))).await;
        }
        let after = world.server.ledger().methods();
        let holds = after[before..].iter().all(|method| method == "tools/call");
        assert!(holds, "{kind}: {after:?}");
        let with_id = world.server.ledger().count(|entry| entry.session.is_some());
        assert_eq!(with_id, 0, "{kind}");
        world.finish().await;
    }
}
