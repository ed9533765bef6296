//! What is known of a call when its child fails it (rows D100, D104 to D107, D114, D115, D118).

use crate::prelude::*;

use rustix::process::Signal;
use warmline_core::exchange::DeliveryFailure;

use super::child_session::{Child, ERAS, failed, result};

fn on_pay(fault: &str) -> String {
    format!(r#"{{"tool":"pay","fault":{fault}}}"#)
}

/// P60, reliability P10: a child's end fails its calls at once.
#[tokio::test]
async fn a_child_that_exits_in_a_call_fails_it_at_once_and_the_ledger_agrees() {
    for era in ERAS {
        for (moment, executions) in [("before-executing", 0), ("after-executing", 1)] {
            let fault = on_pay(&format!(r#"{{"crash":"{moment}"}}"#));
            let child = Child::ledger(era, &["--fault", &fault]).await;
            let ending = child.call("pay", json!({"amount": 5})).await;
            let failure = failed(ending, Delivery::Unknown, Reason::ChildExit);
            let holds = failure.diagnostic.message.contains("exit status 70");
            assert!(holds, "{}", failure.diagnostic);
            assert_eq!(child.executions("pay"), executions, "{era} {moment}");
            assert_eq!(child.session.retired_reason(), Some(Reason::ChildExit));
            child.ends().await;
        }
    }
}

/// A35, P60: status and last words are in the error.
#[tokio::test]
async fn the_last_words_of_a_child_are_in_the_error() {
    let child =
        Child::script("hear; echo 'Traceback:' >&2; echo 'no such table: notes' >&2; exit 9").await;
    let ending = child.call("notes", json!({})).await;
    let failure = failed(ending, Delivery::Unknown, Reason::ChildExit);
    let holds = failure.diagnostic.message.contains("exit status 9");
    assert!(holds, "{}", failure.diagnostic);
    assert!(
        failure
            .diagnostic
            .cause
            .unwrap()
            .contains("no such table: notes")
    );
    child.ends().await;
}

/// reliability P7: what no child took was not executed.
#[tokio::test]
async fn a_call_after_the_end_is_given_back_unsent() {
    for script in ["exit 0", "exec 0<&-; echo deaf >&2; exec sleep 600"] {
        let child = Child::script(script).await;
        if script.starts_with("exit") {
            until("it ended", || child.session.child().unwrap().exit.is_some()).await;
        } else {
            child.until_said("deaf").await;
        }
        for round in 0..2 {
            let ending = child.call("echo", json!({"round": round})).await;
            let reason = if round == 0 {
                Reason::ChildExit
            } else {
                Reason::Closed
            };
            let failure = failed(ending, Delivery::Unsent, reason);
            let DeliveryFailure::Unsent(request) = failure.delivery_failure else {
                panic!("{script}: the request must come back");
            };
            let given = std::str::from_utf8(request.params.raw()).unwrap();
            assert!(given.contains(&format!(r#""round":{round}"#)), "{given}");
        }
        child.ends().await;
    }
}

#[tokio::test]
async fn a_child_that_stops_reading_loses_what_was_not_written_and_no_more() {
    let child = Child::script("hear; exec 0<&-; echo deaf >&2; exec sleep 600").await;
    let second = async {
        child.until_said("deaf").await;
        child.call("second", json!({})).await
    };
    let (first, second) = tokio::join!(child.call("first", json!({})), second);
    failed(first, Delivery::Unknown, Reason::ChildExit);
    failed(second, Delivery::Unsent, Reason::ChildExit);
    child.ends().await;
}

/// reliability P7: a part of a message cannot be executed.
#[tokio::test]
async fn a_part_of_a_message_is_unsent() {
    let child = Child::script("head -c 1000 >/dev/null; exec 0<&-; exec sleep 600").await;
    let ending = child
        .call("large", json!({"filler": "x".repeat(300_000)}))
        .await;
    failed(ending, Delivery::Unsent, Reason::ChildExit);
    child.ends().await;
}

#[tokio::test]
async fn a_child_that_closes_its_output_and_lives_is_ended() {
    for era in ERAS {
        for (place, executions) in [
            (r#""before-executing""#, 0),
            (r#""after-executing""#, 1),
            (r#"{"in-body":10}"#, 1),
        ] {
            let fault = on_pay(&format!(r#"{{"cut":[{place},"fin"]}}"#));
            let child = Child::ledger(era, &["--fault", &fault]).await;
            let ending = child.call("pay", json!({"amount": 5})).await;
            failed(ending, Delivery::Unknown, Reason::ReplyLost);
            assert_eq!(child.executions("pay"), executions, "{era} {place}");
            child.program.gone().await;
            child.ends().await;
        }
    }
}

/// A187, P71, reliability P10: a call that is given up costs its server nothing.
#[tokio::test]
async fn a_call_that_runs_out_of_time_is_unknown_and_told_to_the_server() {
    for era in ERAS {
        for (moment, executions) in [("before-executing", 0), ("after-executing", 1)] {
            let fault = on_pay(&format!(r#"{{"silence":"{moment}"}}"#));
            let child = Child::ledger(era, &["--fault", &fault]).await;
            let ending = child.call_within(150, "pay", json!({"amount": 5})).await;
            failed(ending, Delivery::Unknown, Reason::Timeout);
            child
                .until_line("it was told", |line| {
                    line["method"] == "notifications/cancelled"
                })
                .await;
            assert_eq!(child.executions("pay"), executions, "{era} {moment}");
            assert_eq!(child.session.retired_reason(), None);
            child.works().await;
            child.ends().await;
        }
    }
}

/// P72, reliability I18: late replies are dropped.
#[tokio::test]
async fn a_reply_after_the_time_is_dropped() {
    for era in ERAS {
        let fault = on_pay(r#"{"delay":[400,"after-executing"]}"#);
        let child = Child::ledger(era, &["--fault", &fault]).await;
        let ending = child.call_within(100, "pay", json!({"amount": 5})).await;
        failed(ending, Delivery::Unknown, Reason::Timeout);
        // This one is answered after the late reply has come.
        result(child.call("slow", json!({"ms": 600})).await);
        child.works().await;
        assert_eq!(child.session.child().unwrap().skipped_lines, 0);
        child.ends().await;
    }
}

#[tokio::test]
async fn a_child_that_is_stopped_costs_a_call_and_goes_on_later() {
    for era in ERAS {
        let child = Child::ledger(era, &[]).await;
        child.works().await;
        child.signal(Signal::STOP);
        let ending = child.call_within(150, "pay", json!({"amount": 5})).await;
        failed(ending, Delivery::Unknown, Reason::Timeout);
        child.signal(Signal::CONT);
        child.works().await;
        child.ends().await;
    }
}

#[tokio::test]
async fn closing_in_the_middle_of_a_call_ends_it_at_once() {
    for era in ERAS {
        let child = Child::ledger(era, &[]).await;
        let closing = async {
            child
                .until_line("the call began", |line| {
                    line["phase"] == "begin" && line["tool"] == "slow"
                })
                .await;
            child.session.close().await;
        };
        let (ending, ()) = tokio::join!(child.call("slow", json!({"ms": 600_000})), closing);
        failed(ending, Delivery::Unknown, Reason::Closed);
        failed(
            child.call("echo", json!({})).await,
            Delivery::Unsent,
            Reason::Closed,
        );
        child.ends().await;
    }
}
