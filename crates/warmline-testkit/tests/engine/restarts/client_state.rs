//! Orders and records: what was said to a session is known in the next life, and by a session that
//! was being written down when it was said.

use super::*;
use crate::restarts::recording_store::Mood;

const LEVEL: &str = "logging/setLevel";
const SUBSCRIBE: &str = "resources/subscribe";

/// A129, A203: a process dies without a word. What it ordered is in its record, so that the next one
/// says it again when the session has to be replaced.
#[tokio::test]
async fn what_was_ordered_is_written_down_before_a_crash() {
    let (server, store) = (server(), RecordingStore::new());
    let first = life(&server, &store);
    let (_run, ledger) = chat(&first);
    assert_eq!(count(&ledger).await, 1);
    store.is_now(Mood::SavesSlowly);
    store.asked();
    for number in 0..20 {
        let uri = format!("note://{number}");
        ledger
            .request("resources/subscribe", json!({ "uri": &uri }))
            .await
            .unwrap();
    }
    ledger.set_log_level("debug").await.unwrap();
    let mut asked = Vec::new();
    until("it is written", || {
        asked.extend(store.asked());
        asked.contains(&"save") && store.saving() == 0
    })
    .await;
    let saves = asked.iter().filter(|what| **what == "save").count();
    assert!(saves < 20, "{saves}: one writing serves many orders");
    store.is_now(Mood::Works);

    // Whatever the first one would do from here on, it does not do it any more.
    let second = life(&server, &store);
    let (again, ledger_again) = chat(&second);
    assert_eq!(count(&ledger_again).await, 2);
    server.control().forget_sessions();
    assert_eq!(count(&ledger_again).await, 1);
    let received = |method| server.ledger().messages_received(method);
    assert_eq!((received(LEVEL), received(SUBSCRIBE)), (2, 40));
    again.end().await;
    second.close().await;
    first.close().await;
}

/// A129: an order is answered by the lost session while the new one is being written down, and
/// nobody has that yet. It hears of it as soon as it is there.
#[tokio::test]
async fn what_is_ordered_while_a_session_is_written_down_reaches_it() {
    let (server, store) = (server(), RecordingStore::new());
    let warm = life(&server, &store);
    let (run, ledger) = chat(&warm);
    assert_eq!(count(&ledger).await, 1);
    store.is_now(Mood::SavesSlowly);
    let late = Fault::Delay(60, FaultTiming::AfterExecuting);
    server.inject(FaultRule::new(late).on_method(SUBSCRIBE));
    let order = tokio::spawn(
        ledger
            .request("resources/subscribe", json!({ "uri": "note://a" }))
            .into_future(),
    );
    let is_so = || server.ledger().messages_received(SUBSCRIBE) == 1;
    until("it is under way", is_so).await;
    server.control().forget_sessions();
    let healed = ledger.call("counter", json!({})).await.unwrap();
    assert_eq!(healed.generation(), 2);
    order.await.unwrap().unwrap();
    let is_so = || server.ledger().messages_received(SUBSCRIBE) == 2;
    until("the new session heard it", is_so).await;
    run.end().await;
    warm.close().await;
}
