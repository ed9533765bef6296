//! Errors: each says where it happened and why, and each call has one delivery that is counted.

use crate::prelude::*;

use std::collections::BTreeMap;

use warmline_testkit::ReplyCorruption;

/// What can go wrong with a call, by what the server does.
fn faults() -> Vec<Fault> {
    let error = Fault::Error {
        code: -32000,
        message: String::new(),
        data: json!(null),
    };
    vec![
        error,
        Fault::Reply(CannedReply::new(200, "").json()),
        Fault::Reply(CannedReply::new(200, "{").json()),
        Fault::Reply(CannedReply::new(400, "")),
        Fault::Reply(CannedReply::new(401, "")),
        Fault::Reply(CannedReply::new(403, "")),
        Fault::Reply(CannedReply::new(404, "")),
        Fault::Reply(CannedReply::new(413, "")),
        Fault::Reply(CannedReply::new(429, "").header("Retry-After", "1")),
        Fault::Reply(CannedReply::new(500, "")),
        Fault::Reply(CannedReply::new(503, "")),
        Fault::Reply(CannedReply::redirect(302, "http://127.0.0.1:9/")),
        Fault::Cut(CutPoint::BeforeExecuting, ConnectionEnd::Rst),
        Fault::Cut(CutPoint::AfterExecuting, ConnectionEnd::Fin),
        Fault::Cut(CutPoint::InHead, ConnectionEnd::Fin),
        Fault::Silence(FaultTiming::AfterExecuting),
        Fault::CorruptReply(ReplyCorruption::Truncated),
    ]
}

/// Server, phase and cause, in words that are there.
fn is_whole(error: &Error, when: &str) {
    let said = error.to_string();
    assert!(!said.trim().is_empty(), "{when}: nothing is said");
    assert!(said.contains(LEDGER), "{when}: {said}");
    assert!(!said.trim_end().ends_with(':'), "{when}: {said}");
    assert_eq!(error.server(), Some(LEDGER), "{when}");
    assert_eq!(error.method(), Some("tools/call"), "{when}");
    assert_eq!(error.tool(), Some("pay"), "{when}");
    assert!(!error.code().as_str().is_empty());
    let cause = error.cause().or(error.hint()).unwrap_or("");
    assert!(!cause.trim().is_empty(), "{when}: {error:?}");
}

/// P115, reliability I23: every error names its server, what was asked and why it failed; each call
/// is counted under the one delivery that its caller was told.
#[tokio::test]
async fn every_error_names_server_phase_and_cause() {
    let world = World::new(Personality::legacy());
    let mut told: BTreeMap<&str, u64> = BTreeMap::new();
    let (run, ledger) = world.new_run();
    count(&ledger).await;
    for (number, fault) in faults().into_iter().enumerate() {
        let when = format!("{fault:?}");
        world.inject(FaultRule::new(fault).on_tool("pay").always());
        let account = format!("account {number}");
        let call = ledger.call("pay", json!({ "amount": 1, "account": account }));
        let paid = call.timeout(Duration::from_millis(500)).await;
        world.control().clear_faults();
        let error = paid.unwrap_err();
        is_whole(&error, &when);
        *told.entry(error.delivery().as_str()).or_default() += 1;
        let executed = world.payments(&account);
        assert!(
            executed <= usize::from(!error.delivery().is_safe_to_retry()),
            "{when}"
        );
        ledger.call("echo", json!({})).await.unwrap().ok().unwrap();
        *told.entry(Delivery::Answered.as_str()).or_default() += 1;
    }
    run.end().await;
    // Whether a call that got no answer may run twice is read in the list.
    let lists = u64::try_from(world.received("tools/list")).unwrap();
    *told.entry(Delivery::Answered.as_str()).or_default() += lists;
    *told.entry(Delivery::Answered.as_str()).or_default() += 1;
    for (word, number) in told {
        assert_eq!(world.number("calls_total", &[word]), number, "{word}");
    }
    // The session that it said to have forgotten is still there.
    world.control().forget_sessions();
    world.finish().await;
}

/// P115: so does every opening that fails.
#[tokio::test]
async fn every_failed_opening_names_server_phase_and_cause() {
    let nobody = "http://127.0.0.1:9/mcp";
    let ways = [
        Server::http(LEDGER, nobody),
        Server::http(LEDGER, "http://no-such-host.invalid/mcp"),
        Server::http(LEDGER, nobody).bearer(Secret::env("WARMLINE_NOBODY_SETS_THIS")),
        Server::stdio(LEDGER, ["warmline-no-such-program"]),
        Server::stdio(LEDGER, ["false"]),
        Server::stdio(LEDGER, ["sleep", "60"]).times(warmline_upstream::Timeouts {
            start: Duration::from_millis(200),
            ..warmline_upstream::Timeouts::default()
        }),
    ];
    for way in ways {
        let when = format!("{way:?}");
        let warm = Warmline::builder().server(way).build().unwrap();
        let called = warm.server(LEDGER).unwrap().call("pay", json!({})).await;
        let error = called.unwrap_err();
        is_whole(&error, &when);
        assert_eq!(error.delivery(), Delivery::Unsent, "{when}");
        warm.close().await;
    }
}
