//! Orders: what a caller says to its session counts for the sessions that come after it too; and
//! what no caller says.

use crate::prelude::*;

use warmline::{CallBuilder, Delivery};

const NOTE: &str = "note://a";

/// An order, and the method that gives it.
type Order = (&'static str, fn(&ServerHandle) -> CallBuilder<Bytes>);

const ORDERS: [Order; 3] = [
    ("logging/setLevel", |ledger| ledger.set_log_level("debug")),
    ("resources/subscribe", |ledger| {
        ledger.request("resources/subscribe", json!({ "uri": NOTE }))
    }),
    ("resources/unsubscribe", |ledger| {
        ledger.request("resources/unsubscribe", json!({ "uri": NOTE }))
    }),
];

/// A129: the session that answers an order is replaced before it has done so. The order is given to
/// the new one as well, before its caller is told that all is well.
#[tokio::test]
async fn an_order_that_a_replaced_session_answered_is_given_to_the_new_one() {
    for (method, give) in ORDERS {
        let world = World::new(Personality::legacy());
        let ledger = world.in_counted_run().await;
        if method == "resources/unsubscribe" {
            ledger
                .request("resources/subscribe", json!({ "uri": NOTE }))
                .await
                .unwrap();
        }
        let late = Fault::Delay(600, FaultTiming::AfterExecuting);
        world.inject(FaultRule::new(late).on_method(method));
        let order = tokio::spawn(give(&ledger).into_future());
        let received = || world.received(method);
        until("it is under way", || received() == 1).await;
        world.control().forget_sessions();
        let healed = ledger.call("counter", json!({})).await.unwrap();
        assert_eq!(healed.generation(), 2);
        assert_eq!(received(), 1, "{method}: it is not answered yet");
        order.await.unwrap().unwrap();
        assert_eq!(received(), 2, "{method}: the new session has not heard it");
        world.finish().await;
    }
}

/// A session works though what is said to it again gets no answer: all of that has one limit
/// together, and then calls go on.
#[tokio::test]
async fn what_is_said_again_in_vain_holds_up_no_call_for_long() {
    let world = World::new(Personality::legacy());
    let ledger = world.in_counted_run().await;
    for number in 0..12 {
        ledger
            .request(
                "resources/subscribe",
                json!({ "uri": &format!("note://{number}") }),
            )
            .await
            .unwrap();
    }
    world.control().forget_sessions();
    let silence = Fault::Silence(FaultTiming::BeforeExecuting);
    let silence = FaultRule::new(silence)
        .on_method("resources/subscribe")
        .always();
    world.inject(silence);
    let call = tokio::spawn(ledger.call("counter", json!({})).into_future());
    let received = || world.received("resources/subscribe");
    until("it is tried side by side", || received() > 13).await;
    pass(secs(11)).await;
    let result = call.await.unwrap().unwrap();
    assert_eq!(result.generation(), 2);
    world.control().clear_faults();
    world.finish().await;
}

/// What belongs to the life of a session is not a caller's to say: it would open another session,
/// which nobody ends. It is refused before anything is sent; what only asks is passed on.
#[tokio::test]
async fn what_opens_a_session_is_refused_to_callers() {
    let world = World::new(Personality::legacy());
    let ledger = world.in_counted_run().await;
    let before = world.server.counts().requests;
    let hello = json!({
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": { "name": "x", "version": "1" },
    });
    for method in [
        "initialize",
        "notifications/initialized",
        "notifications/cancelled",
        "notifications/roots/list_changed",
    ] {
        let error = ledger.request(method, &hello).await.unwrap_err();
        let told = (error.code().as_str(), error.delivery());
        assert_eq!(told, ("bad-message", Delivery::Unsent), "{method}");
    }
    assert_eq!(world.server.counts().requests, before, "nothing was sent");
    ledger.ping().await.unwrap();
    let unknown = ledger.request("server/discover", json!({})).await;
    assert_eq!(unknown.unwrap_err().delivery(), Delivery::Answered);
    assert_eq!((count(&ledger).await, world.handshakes()), (2, 1));
    world.finish().await;
}
