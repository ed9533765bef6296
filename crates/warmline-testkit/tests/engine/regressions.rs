//! Histories that somebody found by attacking the engine: each was wrong once.

use crate::prelude::*;

use std::sync::atomic::AtomicU32;

use warmline::{CallBuilder, CredentialProvider, Delivery};
use warmline_engine::credentials::{BoxFuture, Token, TokenRequest};

const SOON: Duration = Duration::from_millis(50);

/// reliability P6, reliability P7: a payment that was made is never told to be unsent, also not if
/// its run ends while its tools are listed.
#[tokio::test]
async fn a_run_that_ends_while_hints_are_read_tells_no_executed_call_unsent() {
    let world = World::with_engine(Personality::legacy(), |builder| {
        builder.limits(|limits| limits.grace = SOON)
    });
    let (run, ledger) = world.new_run();
    count(&ledger).await;
    let cut = Fault::Cut(CutPoint::AfterExecuting, ConnectionEnd::Rst);
    world.inject(FaultRule::new(cut).on_tool("pay"));
    let silence = Fault::Silence(FaultTiming::BeforeExecuting);
    world.inject(FaultRule::new(silence).on_method("tools/list").always());
    let paying = tokio::spawn(async move {
        let arguments = json!({ "amount": 1, "account": "a" });
        ledger.call("pay", arguments).await
    });
    until("the tools are listed", || world.received("tools/list") > 0).await;
    run.end().await;
    let error = paying.await.unwrap().unwrap_err();
    assert_eq!(error.delivery(), Delivery::Unknown, "{error:?}");
    assert_eq!(world.payments("a"), 1);
}

/// A190: a tool is a tool however its call was built: rules and state loss hold for it.
#[tokio::test]
async fn a_raw_request_for_a_tool_is_a_call_of_that_tool() {
    let world = World::with(Personality::legacy(), |server| server.deny(["pay"]));
    let run = world.begin_run();
    let ledger = run.server(LEDGER).unwrap();
    let pay = || json!({ "name": "pay", "arguments": { "amount": 1, "account": "a" } });
    let raw = ledger.request("tools/call", pay()).await.unwrap_err();
    assert_eq!(raw.code().as_str(), "not-allowed");
    let lease = run.lease(LEDGER).await.unwrap();
    let raw = lease.request("tools/call", pay()).await.unwrap_err();
    assert_eq!(raw.code().as_str(), "not-allowed");
    drop(lease);
    assert_eq!(world.payments("a"), 0);

    let counter = json!({ "name": "counter", "arguments": {} });
    ledger.request("tools/call", counter).await.unwrap();
    world.control().forget_sessions();
    let reply = ledger.call("counter", json!({})).await.unwrap();
    assert!(reply.state_lost(), "{reply:?}");
    world.finish().await;
}

/// A38: a session that only one tool of the server holds for a run ends with it, too.
#[tokio::test]
async fn the_session_of_one_tool_ends_with_its_run() {
    let per_run = ToolPolicy {
        session_per: Some(SessionScope::Run),
        ..ToolPolicy::default()
    };
    let world = World::with(Personality::legacy(), |server| {
        server
            .session_per(SessionScope::Identity)
            .tool("counter", per_run)
    });
    let (run, ledger) = world.new_run();
    assert_eq!((count(&ledger).await, count(&ledger).await), (1, 2));
    run.end().await;
    let held = world.warm.snapshot().sessions;
    assert!(held.iter().all(|line| line.run.is_none()), "{held:?}");
    world.finish().await;
}

/// A9, reliability P2: a name that is taken again while its run still ends is another run.
#[tokio::test]
async fn a_name_that_is_taken_again_is_another_run() {
    let world = World::with_engine(Personality::legacy(), |builder| {
        builder.limits(|limits| limits.grace = secs(20))
    });
    let run = world.warm.named_run("x").unwrap();
    let ledger = run.server(LEDGER).unwrap();
    assert_eq!(count(&ledger).await, 1);
    let slow = tokio::spawn(ledger.call("slow", json!({ "ms": 400 })).into_future());
    let is_so = || world.received("tools/call") > 1;
    until("the slow call is under way", is_so).await;
    let ending = tokio::spawn(run.end());
    until("the run ends", || world.warm.join_run("x").is_err()).await;
    let again = world.warm.named_run("x").unwrap();
    assert!(again.is_root());
    let ledger = again.server(LEDGER).unwrap();
    assert_eq!(count(&ledger).await, 1, "nothing of the old run");
    slow.await.unwrap().unwrap().ok().unwrap();
    ending.await.unwrap();
    let found = count(&ledger).await;
    assert_eq!(found, 2, "and nothing of it ended the new one");
    drop(again);

    let third = world.warm.named_run("x").unwrap();
    assert!(third.is_root(), "what was dropped is not joined");
    assert_eq!(count(&third.server(LEDGER).unwrap()).await, 1);
    world.finish().await;
}

/// A42: a server that is declared anew does not break the runs that use it.
#[tokio::test]
async fn a_run_goes_on_when_its_shared_server_is_replaced() {
    for kind in [Personality::legacy_stateless(), Personality::modern()] {
        let other = LedgerServer::start(kind.clone()).unwrap();
        let world = World::new(kind);
        let run = world.warm.begin_run();
        run.server(LEDGER)
            .unwrap()
            .call("echo", json!({}))
            .await
            .unwrap()
            .ok()
            .unwrap();
        world.add_server(Server::http(LEDGER, other.url()));
        for _ in 0..2 {
            let echo = run.server(LEDGER).unwrap().call("echo", json!({}));
            echo.await.unwrap().ok().unwrap();
        }
        run.end().await;
        world.warm.close().await;
    }
}

/// A170: of two runs that share what keeps nothing, both go on when the server wants sessions.
#[tokio::test]
async fn two_runs_go_on_when_a_server_begins_to_want_sessions() {
    let world = World::new(Personality::legacy_stateless());
    let (one, other) = (world.warm.begin_run(), world.warm.begin_run());
    for run in [&one, &other] {
        let echo = run.server(LEDGER).unwrap().call("echo", json!({}));
        echo.await.unwrap().ok().unwrap();
    }
    let body = r#"{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: Missing session ID"},"id":null}"#;
    let wants = Fault::Reply(CannedReply::new(400, body).json());
    world.inject(FaultRule::new(wants).on_tool("echo"));
    for run in [&one, &other] {
        let echo = run.server(LEDGER).unwrap().call("echo", json!({}));
        echo.await.unwrap().ok().unwrap();
    }
    one.end().await;
    other.end().await;
    world.warm.close().await;
}

/// reliability P10: a pause that the server asked for counts within the time of a call.
#[tokio::test]
async fn a_pause_counts_within_the_time_of_a_call() {
    let world = World::new(Personality::legacy());
    let (run, ledger) = world.new_run();
    count(&ledger).await;
    let busy = CannedReply::new(429, "").header("Retry-After", "1");
    world.inject(FaultRule::new(Fault::Reply(busy)).on_tool("echo"));
    let short = ledger.call("echo", json!({})).timeout(SOON);
    short.await.unwrap_err();
    let began = Instant::now();
    let slow = ledger
        .call("slow", json!({ "ms": 20_000 }))
        .timeout(secs(2));
    let error = slow.await.unwrap_err();
    assert_eq!(error.code().as_str(), "deadline", "{error:?}");
    // The pause and the wait together, not one after the other: a generous half more.
    assert!(began.elapsed() < secs(3), "{:?}", began.elapsed());
    run.end().await;
    world.warm.close().await;
}

/// reliability R2: what the server usually takes must fit into the time that is left, or the call
/// is not sent again.
#[tokio::test]
async fn a_call_is_not_sent_again_where_the_usual_time_is_not_left() {
    let world = World::new(Personality::legacy());
    let ledger = world.in_counted_run().await;
    let usual = || ledger.call("slow", json!({ "ms": 2_000 }));
    join_all((0..6).map(|_| async { usual().await.unwrap() })).await;
    world.control().forget_sessions();
    let short = payment(&ledger, "short").timeout(Duration::from_millis(1_500));
    let error = short.await.unwrap_err();
    assert_eq!(error.reason(), Reason::SessionGone, "{error:?}");
    assert_eq!((error.delivery(), error.attempts()), (Delivery::Refused, 1));
    assert_eq!((world.handshakes(), world.payments("short")), (1, 0));
    count(&ledger).await;
    world.control().forget_sessions();
    let long = payment(&ledger, "long").await.unwrap();
    assert_eq!((long.attempts(), world.payments("long")), (2, 1));
    world.finish().await;
}

/// A84, reliability P6, reliability P10: a call without time is not sent, on a lease neither, and is
/// told so.
#[tokio::test]
async fn a_call_without_time_is_not_sent() {
    let world = World::new(Personality::legacy());
    let ledger = world.in_counted_run().await;
    let arguments = || json!({ "amount": 1, "account": "none" });
    let without_time = async |call: CallBuilder<ToolResult>| {
        let error = call.timeout(Duration::ZERO).await.unwrap_err();
        failed_as(&error, "deadline", Delivery::Unsent);
    };
    for _ in 0..5 {
        without_time(ledger.call("pay", arguments())).await;
    }
    let lease = ledger.lease().await.unwrap();
    without_time(lease.call("pay", arguments())).await;
    done(lease.call("counter", json!({}))).await;
    drop(lease);
    assert_eq!(world.payments("none"), 0);
    world.finish().await;
}

#[derive(Debug, Default)]
struct Numbered(AtomicU32);

impl CredentialProvider for Numbered {
    fn fetch<'a>(&'a self, _: TokenRequest<'a>) -> BoxFuture<'a, Result<Token, Diagnostic>> {
        let number = self.0.fetch_add(1, Ordering::Relaxed);
        Box::pin(std::future::ready(Ok(Token::new(format!("t{number}")))))
    }

    fn label(&self) -> String {
        "numbered".to_owned()
    }
}

/// A104: a token that is refused on a lease is renewed, as everywhere.
#[tokio::test]
async fn a_lease_renews_a_refused_token() {
    let world = World::with(Personality::legacy(), |server| {
        server.provider(Numbered::default())
    });
    let run = world.begin_run();
    let lease = run.lease(LEDGER).await.unwrap();
    done(lease.call("counter", json!({}))).await;
    world.control().require_token("t1");
    let result = lease.call("counter", json!({})).await.unwrap();
    assert_eq!(counted(&result), 2);
    drop(lease);
    world.finish().await;
}

/// P102: neither a first contact nor any other opening is cut by the wait for a free session, however
/// long it takes: each has a limit of its own.
#[tokio::test]
async fn a_slow_opening_is_not_cut_by_the_wait_for_a_session() {
    let world = World::with(Personality::legacy(), |server| {
        server.with_policy(|policy| policy.wait = Duration::from_millis(300))
    });
    for _ in ["the first contact", "another opening"] {
        let slow = Fault::Delay(900, FaultTiming::BeforeExecuting);
        world.inject(FaultRule::new(slow).on_method("initialize"));
        assert_eq!(count(&world.in_run()).await, 1);
    }
    world.finish().await;
}

/// A42, P24: the end of one run does not end the list that another waits for.
#[tokio::test]
async fn the_end_of_a_run_does_not_end_what_another_waits_for() {
    let world = World::with_engine(Personality::legacy(), |builder| {
        builder.limits(|limits| limits.grace = SOON)
    });
    let (one, other) = (world.warm.begin_run(), world.warm.begin_run());
    let (first, second) = (one.server(LEDGER).unwrap(), other.server(LEDGER).unwrap());
    count(&first).await;
    count(&second).await;
    let slow = Fault::Delay(800, FaultTiming::BeforeExecuting);
    world.inject(FaultRule::new(slow).on_method("tools/list"));
    let reading = tokio::spawn(async move { first.tools().await.map(drop) });
    until("the list is read", || world.received("tools/list") > 0).await;
    let waiting = tokio::spawn(async move { second.tools().await.map(drop) });
    tokio::task::yield_now().await;
    one.end().await;
    reading.await.unwrap().ok();
    waiting.await.unwrap().unwrap();
    other.end().await;
    world.warm.close().await;
}

/// reliability P11: where the policy forbids going on, no call that saw the loss goes on.
#[tokio::test]
async fn no_call_that_saw_the_loss_goes_on_where_it_may_not() {
    let world = World::with(Personality::legacy(), |server| {
        server.on_state_loss(StateLossPolicy::Fail)
    });
    let ledger = world.in_counted_run().await;
    world.control().forget_sessions();
    let calls: Vec<_> = (0..5)
        .map(|number| {
            let ledger = ledger.clone();
            let account = format!("a{number}");
            tokio::spawn(async move {
                let arguments = json!({ "amount": 1, "account": account });
                ledger.call("pay", arguments).await.map(drop)
            })
        })
        .collect();
    let mut refused = 0;
    for call in calls {
        if let Err(error) = call.await.unwrap() {
            failed_as(&error, "session-lost", Delivery::Refused);
            refused += 1;
        }
    }
    assert_eq!(refused, 5);
    assert_eq!(count(&ledger).await, 1, "the next one works");
    world.finish().await;
}

/// A29: arguments that are no object are refused before anything is sent, and none are none.
#[tokio::test]
async fn arguments_are_an_object_or_nothing() {
    let world = World::new(Personality::legacy());
    let ledger = world.in_run();
    for wrong in [json!(5), json!([1, 2]), json!("{}")] {
        let error = ledger.call("echo", wrong).await.unwrap_err();
        failed_as(&error, "bad-message", Delivery::Unsent);
    }
    assert_eq!(world.server.counts().requests, 0);
    let result = ledger.call("counter", ()).await.unwrap();
    assert_eq!(counted(&result), 1);
    world.finish().await;
}

/// P127: one loss is one, however many calls meet it: an age is learnt from several.
#[tokio::test]
async fn one_loss_that_many_calls_meet_teaches_no_age() {
    let world = World::new(Personality::legacy());
    let (run, other) = (world.warm.begin_run(), world.warm.begin_run());
    let ledger = run.server(LEDGER).unwrap();
    let echo = |ledger: &ServerHandle| ledger.call("echo", json!({}));
    echo(&ledger).await.unwrap().ok().unwrap();
    pass(secs(20)).await;
    world.control().forget_sessions();
    for echoed in join_all((0..10).map(|_| async { echo(&ledger).await })).await {
        echoed.unwrap().ok().unwrap();
    }
    let ledger = other.server(LEDGER).unwrap();
    echo(&ledger).await.unwrap().ok().unwrap();
    let before = world.handshakes();
    for _ in 0..3 {
        pass(secs(19)).await;
        echo(&ledger).await.unwrap().ok().unwrap();
    }
    assert_eq!(world.handshakes(), before, "no session was lost");
    world.finish().await;
}
