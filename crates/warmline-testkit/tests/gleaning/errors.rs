//! Errors: each says where it happened and why, and each call has one delivery that is counted.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;
use warmline::core::delivery::Delivery;
use warmline::{Error, Secret, Server, Warmline};
use warmline_testkit::{Canned, CutAt, End, Fault, Moment, Personality, Rule, Spoil};

use super::world::{LEDGER, World, count};

/// What can go wrong with a call, by what the server does.
fn faults() -> Vec<Fault> {
    let error = Fault::Error {
        code: -32000,
        message: String::new(),
        data: json!(null),
    };
    vec![
        error,
        Fault::Reply(Canned::new(200, "").json()),
        Fault::Reply(Canned::new(200, "{").json()),
        Fault::Reply(Canned::new(400, "")),
        Fault::Reply(Canned::new(401, "")),
        Fault::Reply(Canned::new(403, "")),
        Fault::Reply(Canned::new(404, "")),
        Fault::Reply(Canned::new(413, "")),
        Fault::Reply(Canned::new(429, "").header("Retry-After", "1")),
        Fault::Reply(Canned::new(500, "")),
        Fault::Reply(Canned::new(503, "")),
        Fault::Reply(Canned::redirect(302, "http://127.0.0.1:9/")),
        Fault::Cut(CutAt::BeforeExecuting, End::Rst),
        Fault::Cut(CutAt::AfterExecuting, End::Fin),
        Fault::Cut(CutAt::InHead, End::Fin),
        Fault::Silence(Moment::AfterExecuting),
        Fault::Spoil(Spoil::Truncated),
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
    assert!(!error.code().word().is_empty());
    let cause = error.why().or(error.hint()).unwrap_or("");
    assert!(!cause.trim().is_empty(), "{when}: {error:?}");
}

/// P115, reliability I23: every error names its server, what was asked and why it failed; each call
/// is counted under the one delivery that its caller was told.
#[tokio::test]
async fn every_error_names_server_phase_and_cause() {
    let world = World::new(Personality::legacy());
    let mut told: BTreeMap<&str, u64> = BTreeMap::new();
    let run = world.warm.begin();
    let ledger = run.server(LEDGER).unwrap();
    count(&ledger).await;
    for (number, fault) in faults().into_iter().enumerate() {
        let when = format!("{fault:?}");
        world
            .server
            .inject(Rule::new(fault).on_tool("pay").always());
        let account = format!("account {number}");
        let call = ledger.call("pay", json!({ "amount": 1, "account": account }));
        let paid = call.timeout(Duration::from_millis(500)).await;
        world.server.control().clear();
        let error = paid.unwrap_err();
        is_whole(&error, &when);
        *told.entry(error.delivery().word()).or_default() += 1;
        let executed = world.payments(&account);
        assert!(
            executed <= usize::from(!error.delivery().is_safe()),
            "{when}"
        );
        ledger.call("echo", json!({})).await.unwrap().ok().unwrap();
        *told.entry(Delivery::Answered.word()).or_default() += 1;
    }
    run.end().await;
    // Whether a call that got no answer may run twice is read in the list.
    let lists = u64::try_from(world.server.ledger().received("tools/list")).unwrap();
    *told.entry(Delivery::Answered.word()).or_default() += lists;
    *told.entry(Delivery::Answered.word()).or_default() += 1;
    for (word, number) in told {
        assert_eq!(world.number("calls_total", &[word]), number, "{word}");
    }
    // The session that it said to have forgotten is still there.
    world.server.control().forget_sessions();
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
        Server::stdio(LEDGER, ["sleep", "60"]).times(warmline::upstream::Times {
            start: Duration::from_millis(200),
            ..warmline::upstream::Times::default()
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
