//! What a child says that is no answer (rows D108 to D113): skipped, counted, never misrouted.

use crate::prelude::*;

use warmline_upstream::SizeLimits;

use super::child_session::{Child, ERAS, error, failed, result};

fn on_pay(fault: &str) -> String {
    format!(r#"{{"tool":"pay","fault":{fault}}}"#)
}

/// P114: noise is skipped and counted.
#[tokio::test]
async fn lines_that_are_no_messages_are_skipped_and_counted() {
    for era in ERAS {
        let greetings = [
            "--greeting",
            "Starting up...",
            "--greeting",
            "{\"level\":30}",
            "--greeting",
            "[]",
        ];
        let fault =
            on_pay(r#"{"spoil":{"garbage-first":"paying \u0000 now\nand \u001b[31mred\r\n{"}}"#);
        let child = Child::ledger(era, &[&greetings[..], &["--fault", &fault]].concat()).await;
        child.works().await;
        assert_eq!(child.session.child().unwrap().skipped_lines, 3, "{era}");
        result(child.call("pay", json!({"amount": 5})).await);
        assert_eq!(child.session.child().unwrap().skipped_lines, 6, "{era}");
        child.works().await;
        child.ends().await;
    }
}

/// P114, reliability P19: noise without end is no loop.
#[tokio::test]
async fn a_child_that_says_nothing_but_noise_is_ended() {
    let lines = "hear; i=0; while [ $i -lt 100 ]; do echo noise; i=$((i+1)); done; exec sleep 600";
    let bytes = "hear; i=0; while [ $i -lt 60 ]; do printf '%020000d\\n' 0; i=$((i+1)); done; exec sleep 600";
    for script in [lines, bytes] {
        let child = Child::script(script).await;
        let ending = child.call("noise", json!({})).await;
        failed(ending, Delivery::Unknown, Reason::BadReply);
        child.program.gone().await;
        child.ends().await;
    }
}

/// A spoilt reply is nobody's: the call waits for a good one, and the next call is not harmed.
#[tokio::test]
async fn a_reply_that_cannot_be_read_is_no_reply() {
    let spoilt = [
        r#""string-twin""#,
        r#""float-twin""#,
        r#""no-id""#,
        r#""result-and-error""#,
        r#""duplicate-member""#,
        r#""truncated""#,
        r#""invalid-utf8""#,
        r#""batch""#,
        r#"{"id":null}"#,
        r#"{"id":4}"#,
    ];
    let faults: Vec<String> = spoilt
        .iter()
        .map(|one| on_pay(&format!(r#"{{"spoil":{one}}}"#)))
        .collect();
    for era in ERAS {
        let args: Vec<&str> = faults.iter().flat_map(|fault| ["--fault", fault]).collect();
        let child = Child::ledger(era, &args).await;
        for (paid, spoil) in spoilt.iter().enumerate() {
            let ending = child.call_within(120, "pay", json!({"amount": 5})).await;
            failed(ending, Delivery::Unknown, Reason::Timeout);
            child.works().await;
            assert_eq!(child.executions("pay"), paid + 1, "{era} {spoil}");
        }
        child.ends().await;
    }
}

#[tokio::test]
async fn a_result_of_any_depth_is_passed_on_as_it_is() {
    let fault = on_pay(r#"{"spoil":{"depth":100000}}"#);
    let child = Child::ledger(Era::Legacy, &["--fault", &fault]).await;
    let ending = child.call("pay", json!({"amount": 5})).await;
    let AttemptResult::Answered(Reply::Result(raw)) = ending else {
        panic!("{:?}", ending.delivery());
    };
    assert_eq!(raw.iter().filter(|byte| **byte == b'[').count(), 100_000);
    child.ends().await;
}

#[tokio::test]
async fn replies_to_nothing_we_asked_are_dropped_and_the_first_reply_wins() {
    for era in ERAS {
        for spoil in [r#""twice""#, r#""stranger-first""#, r#""next-first""#] {
            let fault = on_pay(&format!(r#"{{"spoil":{spoil}}}"#));
            let child = Child::ledger(era, &["--fault", &fault]).await;
            let paid = result(child.call("pay", json!({"amount": 5})).await);
            assert_eq!(paid["structuredContent"]["paid"], 5, "{era} {spoil}");
            child.works().await;
            child.ends().await;
        }
    }
}

#[tokio::test]
async fn a_child_that_keeps_answering_nothing_is_ended() {
    let always = r#"{"tool":"pay","times":null,"fault":{"spoil":"twice"}}"#;
    for era in ERAS {
        let child = Child::ledger(era, &["--fault", always]).await;
        let mut answered = 0;
        let last = loop {
            let ending = child.call("pay", json!({"amount": 1})).await;
            if ending.delivery() != Delivery::Answered {
                break ending;
            }
            answered += 1;
            assert!(answered < 20, "16 strays are enough");
        };
        assert!(answered >= 15, "{answered}");
        assert_ne!(last.delivery(), Delivery::Refused);
        assert_eq!(child.session.retired_reason(), Some(Reason::BadReply));
        child.program.gone().await;
        child.ends().await;
    }
}

/// P69, reliability I25: a line is bounded.
#[tokio::test]
async fn a_line_over_the_limit_fails_its_call_alone() {
    for era in ERAS {
        let program = Program::ledger(&["--fault", &on_pay(r#"{"giant":300000}"#)]);
        let sizes = SizeLimits {
            line: 100_000,
            ..SizeLimits::default()
        };
        let server = ServerTarget {
            era: Some(era),
            size_limits: sizes,
            ..program.server()
        };
        let child = Child::of(program, server).await;
        let beside = child.call("slow", json!({"ms": 300}));
        let (ending, beside) = tokio::join!(child.call("pay", json!({"amount": 5})), beside);
        let failure = failed(ending, Delivery::Unknown, Reason::ReplyTooLarge);
        let holds = failure.diagnostic.message.contains("100000");
        assert!(holds, "{}", failure.diagnostic);
        result(beside);
        assert_eq!(child.session.retired_reason(), None);
        child.works().await;
        child.ends().await;
    }
}

#[tokio::test]
async fn a_line_over_the_limit_that_names_no_call_is_a_timeout() {
    let body = format!(
        r#"{{\"jsonrpc\":\"2.0\",\"result\":{{\"text\":\"{}\"}},\"id\":$ID}}"#,
        "x".repeat(120_000)
    );
    let program = Program::ledger(&[
        "--fault",
        &on_pay(&format!(r#"{{"reply":{{"body":"{body}"}}}}"#)),
    ]);
    let sizes = SizeLimits {
        line: 100_000,
        ..SizeLimits::default()
    };
    let server = ServerTarget {
        era: Some(Era::Legacy),
        size_limits: sizes,
        ..program.server()
    };
    let child = Child::of(program, server).await;
    let ending = child.call_within(200, "pay", json!({"amount": 5})).await;
    failed(ending, Delivery::Unknown, Reason::Timeout);
    child.works().await;
    child.ends().await;
}

#[tokio::test]
async fn an_error_without_an_id_belongs_to_a_call_that_is_alone() {
    let body = r#"{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32700,\"message\":\"Parse error\"}}"#;
    let always =
        format!(r#"{{"tool":"pay","times":null,"fault":{{"reply":{{"body":"{body}"}}}}}}"#);
    for era in ERAS {
        let child = Child::ledger(era, &["--fault", &always]).await;
        assert_eq!(
            error(&child.call("pay", json!({})).await)["code"],
            -32700,
            "{era}"
        );

        let beside = child.call("slow", json!({"ms": 400}));
        let (ending, beside) = tokio::join!(child.call_within(200, "pay", json!({})), beside);
        failed(ending, Delivery::Unknown, Reason::Timeout);
        result(beside);
        child.ends().await;
    }
}

/// P70: stderr is drained, its end kept.
#[tokio::test]
async fn a_flood_on_stderr_stops_nobody_and_only_its_end_is_kept() {
    for era in ERAS {
        let child = Child::ledger(era, &["--stderr-bytes", "1048576"]).await;
        child.works().await;
        assert!(child.said().contains("this is a line on stderr"));
        assert!(child.said().len() < 64 << 10);
        child.ends().await;
    }
    // And in the middle of a call.
    let script = "hear; head -c 1048576 /dev/zero | tr '\\0' x >&2; echo >&2; echo last >&2; reply '{}'; hear";
    let child = Child::script(script).await;
    result(child.call("flood", json!({})).await);
    child.until_said("last").await;
    child.ends().await;
}
