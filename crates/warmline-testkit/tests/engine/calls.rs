//! Calls: whose reply it is, when they end, and how often they are sent.

use crate::prelude::*;

/// More than a busy machine adds to a limit, and far less than the faults here last.
const BUSY: Duration = Duration::from_secs(5);

/// Calls that often side by side, all with the same key of their own, and each gets its own reply.
async fn echo_in(run: &Run, who: &str) {
    let ledger = run.server(LEDGER).unwrap();
    let calls = (0..50).map(|number| {
        let mine = json!({ "who": who, "number": number });
        let call = ledger.call("echo", &mine).call_id("1");
        async move { (mine, call.await.unwrap()) }
    });
    for (mine, told) in join_all(calls).await {
        assert!(told.text().contains(&mine.to_string()), "{told:?}");
    }
}

/// reliability P3: a reply reaches its own call, though callers of four runs choose the same keys
/// and the server answers in an order of its own.
#[tokio::test]
async fn every_reply_reaches_its_own_call() {
    for personality in [
        Personality::legacy(),
        Personality::dual(),
        Personality::modern(),
    ] {
        let world = World::new(personality);
        for lateness in [40, 5, 20] {
            let late = Fault::Delay(lateness, FaultTiming::AfterExecuting);
            world.inject(FaultRule::new(late).on_tool("echo").skip(10).times(30));
        }
        let names = ["alice", "alice", "bob", "carol"];
        let runs: Vec<Run> = names
            .iter()
            .map(|name| world.warm.identity(name).begin_run())
            .collect();
        join_all(runs.iter().zip(names).map(|(run, who)| echo_in(run, who))).await;
        world.finish().await;
    }
}

/// reliability P10: a call ends by its limit, whatever the server does with it.
#[tokio::test]
async fn every_call_ends_by_its_limit() {
    let faults = [
        Fault::Silence(FaultTiming::BeforeExecuting),
        Fault::Silence(FaultTiming::AfterExecuting),
        Fault::EndlessStream,
        Fault::EndlessBody,
        Fault::Reply(CannedReply::new(503, "later").header("Retry-After", "3600")),
    ];
    let limit = Duration::from_millis(300);
    for fault in faults {
        for method in ["tools/call", "initialize"] {
            let world = World::new(Personality::legacy());
            let (run, ledger) = world.new_run();
            if method == "tools/call" {
                ledger.ping().await.unwrap();
            }
            world.inject(FaultRule::new(fault.clone()).on_method(method).always());
            let began = Instant::now();
            let ended = ledger
                .call("get", json!({ "key": "a" }))
                .timeout(limit)
                .await;
            let took = began.elapsed();
            let error = ended.unwrap_err();
            let holds = took < limit + BUSY;
            assert!(holds, "{method}, {fault:?}: {took:?}, {error:?}");
            world.control().clear_faults();
            run.end().await;
            // A session whose answer was held back is known to its server alone.
            world.control().forget_sessions();
            world.finish().await;
        }
    }
}

/// P20: the one limit of a call spans all its attempts.
#[tokio::test]
async fn one_limit_spans_all_attempts_of_a_call() {
    let world = World::new(Personality::legacy());
    let ledger = world.in_run();
    ledger.tools().await.unwrap();
    let cut = Fault::Cut(CutPoint::AfterExecuting, ConnectionEnd::Fin);
    world.inject(FaultRule::new(cut).on_tool("slow").always());
    // Each attempt alone would have time enough.
    let call = ledger.call("slow", json!({ "ms": 600 }));
    let error = call.timeout(Duration::from_secs(1)).await.unwrap_err();
    assert_eq!(error.code(), Code::Deadline, "{error:?}");
    assert_eq!(error.delivery(), Delivery::Unknown);
    let seen = world.server.ledger();
    let executed = (seen.started_executions("slow"), seen.executions("slow"));
    assert_eq!(executed, (2, 1));
    world.finish().await;
}

/// P57: a trace that is given in `_meta` reaches the server with its own call and no other.
#[tokio::test]
async fn traces_in_meta_belong_to_their_call() {
    for personality in [Personality::legacy(), Personality::modern()] {
        let world = World::new(personality);
        let ledger = world.in_run();
        let calls = (0..100).map(|number| {
            let trace = format!("00-{number:032x}-{number:016x}-01");
            let params = json!({
                "name": "echo",
                "arguments": { "trace": trace },
                "_meta": { "traceparent": trace, "baggage": "kept=as-it-is" },
            });
            let call = ledger.request("tools/call", params);
            async move { call.header("traceparent", &trace).await.unwrap() }
        });
        join_all(calls).await;
        done(ledger.call("echo", json!({ "trace": null }))).await;
        let entries = world.server.ledger().entries();
        let sent: Vec<_> = entries
            .iter()
            .filter(|entry| entry.phase == ExecutionPhase::Received && entry.tool.is_some())
            .collect();
        assert_eq!(sent.len(), 101);
        for call in sent {
            let expected = &call.arguments["trace"];
            assert_eq!(&call.meta["traceparent"], expected, "{call:?}");
            let header = call.extra_headers.get("traceparent").map(String::as_str);
            assert_eq!(header, expected.as_str());
            if expected != &Value::Null {
                assert_eq!(call.meta["baggage"], "kept=as-it-is");
            }
        }
        world.finish().await;
    }
}

/// reliability P21: of calls that may run twice, against a server that answers none of them, no more
/// are sent again than a fifth of them and three a second.
#[tokio::test]
async fn a_server_in_trouble_is_not_stormed() {
    const CALLS: u64 = 300;
    let world = World::new(Personality::legacy());
    let ledger = world.in_run();
    ledger.tools().await.unwrap();
    let cut = Fault::Cut(CutPoint::AfterExecuting, ConnectionEnd::Rst);
    world.inject(FaultRule::new(cut).on_tool("get").always());
    let began = Instant::now();
    for _ in 0..CALLS / 50 {
        let calls = (0..50).map(|_| ledger.call("get", json!({ "key": "a" })).into_future());
        for called in join_all(calls).await {
            assert_eq!(called.unwrap_err().delivery(), Delivery::Unknown);
        }
    }
    let floor = 3 * (10 + began.elapsed().as_secs() + 1);
    let sent = u64::try_from(world.received("tools/call")).unwrap();
    let again = sent - CALLS;
    assert!(again > 0, "some are sent again");
    assert!(again <= CALLS / 5 + floor, "{again} were sent again");
    let found = world.number("attempts_total", &[]);
    assert_eq!(found, sent + 1, "with the list");
    world.control().clear_faults();
    world.finish().await;
}
