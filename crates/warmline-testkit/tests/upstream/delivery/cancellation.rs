//! Calls that nobody waits for any more: each era is told in its own way, and nothing of the old
//! call reaches a new one.

use crate::prelude::*;

use std::task::Poll;

use warmline_testkit::LedgerEntry;

use super::fixture::Expected::{Result, Unknown};
use super::recording_listener::Ear;

fn settings(era: Era) -> Vec<Setting> {
    let personality = personality_of(era);
    let streaming = personality
        .clone()
        .reply(ReplyFormat::Sse(SseFormat::plain()));
    vec![Setting::new(personality, era), Setting::new(streaming, era)]
}

/// Starts a call and drops it when the server has begun to work on it.
async fn drop_in_the_middle(setting: &Setting, request: Request, tool: &str) {
    let session = setting.session().await;
    let ledger = setting.server.ledger();
    let before = ledger.started_executions(tool);
    let begun = |entries: &[LedgerEntry]| {
        let fits = |one: &&LedgerEntry| {
            one.phase == ExecutionPhase::Begin && one.tool.as_deref() == Some(tool)
        };
        entries.iter().filter(fits).count() > before
    };
    tokio::select! {
        ending = session.call(request, &()) => panic!("it ended: {ending:?}"),
        came = ledger.wait_until(Duration::from_secs(5), begun) => assert!(came),
    }
}

/// The id of the last call of this tool.
fn id_of(setting: &Setting, tool: &str) -> Value {
    let entries = setting.server.ledger().entries();
    let last = entries
        .iter()
        .rfind(|entry| entry.tool.as_deref() == Some(tool));
    last.unwrap().id.clone()
}

fn abandoned(setting: &Setting, id: &Value) -> usize {
    let ledger = setting.server.ledger();
    ledger.count(|entry| entry.phase == ExecutionPhase::Abandoned && entry.id == *id)
}

/// A187, P71, P80, P135, reliability I18: a cancel names its own request, and the session goes on.
#[tokio::test]
async fn a_dropped_legacy_call_is_cancelled_by_a_notice_with_its_id() {
    for setting in settings(Era::Legacy) {
        let slow = tool("slow", &json!({"ms": 30_000}));
        drop_in_the_middle(&setting, slow, "slow").await;
        let ledger = setting.server.ledger();
        within(Duration::from_secs(5), || {
            ledger.messages_received("notifications/cancelled") == 1
        })
        .await;
        let id = id_of(&setting, "slow");
        let told = |entry: &LedgerEntry| entry.arguments["requestId"] == id;
        assert_eq!(
            ledger.count(|one| one.phase == ExecutionPhase::Received && told(one)),
            1
        );
        within(Duration::from_secs(5), || abandoned(&setting, &id) == 1).await;
        assert_eq!(ledger.executions("slow"), 0);
        assert_eq!(setting.pay("next", &()).await.ended, Result);
        setting.finish().await;
    }
}

/// P71, P80, reliability I18: in the modern era the closed connection is the cancel.
#[tokio::test]
async fn a_dropped_modern_call_is_cancelled_by_its_closed_connection() {
    for setting in settings(Era::Modern) {
        let slow = tool("slow", &json!({"ms": 30_000}));
        drop_in_the_middle(&setting, slow, "slow").await;
        let id = id_of(&setting, "slow");
        within(Duration::from_secs(5), || abandoned(&setting, &id) == 1).await;
        assert_eq!(setting.server.ledger().executions("slow"), 0);
        assert_eq!(
            setting
                .server
                .ledger()
                .messages_received("notifications/cancelled"),
            0
        );
        assert_eq!(setting.pay("next", &()).await.ended, Result);
        setting.finish().await;
    }
}

#[tokio::test]
async fn a_modern_call_whose_time_is_over_is_cancelled_too() {
    for setting in settings(Era::Modern) {
        let session = setting.session().await;
        let slow = tool("slow", &json!({"ms": 30_000, "account": "late"}));
        let ending = session
            .call(slow.with_deadlines(within_ms(200, 200)), &())
            .await;
        assert_eq!(setting.told("late", ending).ended, Unknown(Reason::Timeout));
        let id = id_of(&setting, "slow");
        within(Duration::from_secs(5), || abandoned(&setting, &id) == 1).await;
        setting.finish().await;
    }
}

/// P72, reliability I18, reliability P3: late replies are dropped.
#[tokio::test]
async fn an_answer_to_a_dropped_call_reaches_nobody() {
    for era in [Era::Legacy, Era::Modern] {
        for setting in settings(era) {
            let session = setting.session().await;
            for round in 0..10 {
                let late = Fault::Delay(20, FaultTiming::AfterExecuting);
                setting.inject(FaultRule::new(late).on_tool("pay"));
                let dropped = format!("dropped {round}");
                let call = session.call(payment(&dropped), &());
                let done = || setting.executions(&dropped) == 1;
                tokio::select! {
                    ending = call => panic!("it ended: {ending:?}"),
                    () = within(Duration::from_secs(5), done) => {},
                }
                let next = format!("next {round}");
                let outcome = setting.told(&next, session.call(payment(&next), &()).await);
                outcome.ends(Result);
                assert_eq!(outcome.account(), next);
            }
            assert_eq!(session.retired_reason(), None);
            setting.finish().await;
        }
    }
}

/// A187: a cancel is for a request in flight alone.
#[tokio::test]
async fn a_call_that_was_dropped_before_it_was_sent_is_not_cancelled() {
    let mut setting = Setting::legacy();
    setting.known_as.timeouts.connection_idle = Duration::ZERO;
    let session = setting.session().await;
    {
        let mut call = std::pin::pin!(session.call(payment("never"), &()));
        // Once: that begins a connection, and nothing more.
        std::future::poll_fn(|cx| {
            assert!(call.as_mut().poll(cx).is_pending());
            Poll::Ready(())
        })
        .await;
    }
    assert_eq!(setting.pay("next", &()).await.ended, Result);
    let ledger = setting.server.ledger().clone();
    setting.finish().await;
    assert_eq!(ledger.messages_received("notifications/cancelled"), 0);
    assert_eq!(ledger.messages_received("tools/call"), 1);
}

/// A187: a cancel is for a request in flight alone.
#[tokio::test]
async fn a_call_that_came_to_its_end_is_not_cancelled() {
    for setting in settings(Era::Legacy) {
        for (account, status) in [("answered", 200), ("refused", 400), ("unknown", 500)] {
            if status != 200 {
                let canned = CannedReply::new(status, "");
                setting.inject(FaultRule::new(Fault::Reply(canned)).on_tool("pay"));
            }
            setting.pay(account, &()).await;
        }
        let ledger = setting.server.ledger().clone();
        setting.finish().await;
        assert_eq!(ledger.messages_received("notifications/cancelled"), 0);
    }
}

/// A16, P71, reliability I18: a cancel concerns its own call.
#[tokio::test]
async fn one_of_many_calls_is_dropped_and_the_others_go_on() {
    for era in [Era::Legacy, Era::Modern] {
        for setting in settings(era) {
            let session = setting.session().await;
            let ear = Ear::default();
            let steps = tool(
                "progress",
                &json!({"steps": 5, "pause_ms": 20, "account": "kept"}),
            );
            let kept = session.call(steps, &ear);
            let slow = tool("slow", &json!({"ms": 30_000}));
            let (ending, ()) = tokio::join!(kept, drop_in_the_middle(&setting, slow, "slow"));
            let outcome = setting.told("kept", ending);
            outcome.ends(Result);
            assert_eq!(ear.progress(), [1, 2, 3, 4, 5]);
            setting.finish().await;
        }
    }
}

/// P71: the end of a session does not overtake the cancel of its last call.
#[tokio::test]
async fn a_session_ends_after_its_cancels() {
    let setting = Setting::legacy();
    let ledger = setting.server.ledger();
    for round in 1..=20 {
        let session = setting.session().await;
        let slow = tool("slow", &json!({"ms": 30_000}));
        let begun = |entries: &[LedgerEntry]| {
            let fits = |one: &&LedgerEntry| {
                one.phase == ExecutionPhase::Begin && one.tool.as_deref() == Some("slow")
            };
            entries.iter().filter(fits).count() == round
        };
        tokio::select! {
            ending = session.call(slow, &()) => panic!("it ended: {ending:?}"),
            came = ledger.wait_until(Duration::from_secs(5), begun) => assert!(came),
        }
        session.close().await;
        assert_eq!(ledger.messages_received("notifications/cancelled"), round);
    }
    assert_eq!(setting.server.violations(), Vec::<String>::new());
}
