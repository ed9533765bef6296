//! Calls on a lease: the rules of every call hold for them, and what they show is known to all.
//! Each of these histories was wrong once.

use crate::prelude::*;

use warmline::{Delivery, ExclusiveSession};
use warmline_engine::credentials::Secret;

async fn count_on(lease: &ExclusiveSession) -> i64 {
    counted(&lease.call("counter", json!({})).await.unwrap())
}

fn pay_on(lease: &ExclusiveSession, account: &str) -> warmline::CallBuilder<ToolResult> {
    lease.call("pay", json!({ "amount": 1, "account": account }))
}

/// Lets ten seconds pass at once, and whoever waited for them have a turn on the wire.
async fn some_time() {
    pass(secs(10)).await;
    tokio::time::sleep(Duration::from_millis(2)).await;
}

fn on_loss(reaction: StateLossPolicy) -> World {
    World::with(Personality::legacy(), |server| {
        server.on_state_loss(reaction)
    })
}

/// reliability P11: what was lost under a lease is told to whoever calls next.
#[tokio::test]
async fn what_is_lost_under_a_lease_is_told_to_the_next_call() {
    let world = World::new(Personality::legacy());
    let run = world.begin_run();
    let ledger = run.server(LEDGER).unwrap();
    let lease = run.lease(LEDGER).await.unwrap();
    count_on(&lease).await;
    world.control().forget_sessions();
    let error = lease.call("counter", json!({})).await.unwrap_err();
    assert_eq!(error.delivery(), Delivery::Refused, "{error:?}");
    let reply = ledger.call("counter", json!({})).await.unwrap();
    assert!(reply.state_lost(), "{reply:?}");
    let after = ledger.call("counter", json!({})).await.unwrap();
    assert!(!after.state_lost(), "it was told once");
    drop(lease);
    world.finish().await;
}

/// reliability P11: where nobody may go on without the state, nobody does: also not a sub-agent that
/// waited for the lease.
#[tokio::test]
async fn nobody_goes_on_without_what_was_lost_under_a_lease() {
    let world = on_loss(StateLossPolicy::Fail);
    let run = world.begin_run();
    let ledger = run.server(LEDGER).unwrap();
    let lease = run.lease(LEDGER).await.unwrap();
    count_on(&lease).await;
    world.control().forget_sessions();
    let waiting = tokio::spawn(ledger.call("counter", json!({})).into_future());
    until("it waits", || world.number("waiters", &[]) == 1).await;
    lease.call("counter", json!({})).await.unwrap_err();
    drop(lease);
    let error = waiting.await.unwrap().unwrap_err();
    assert_eq!(error.code().as_str(), "session-lost", "{error:?}");
    assert_eq!(count(&ledger).await, 1, "it was told");
    world.finish().await;
}

/// reliability P11: the loss of a lease ends the run where a loss does, and what is said of it is true.
#[tokio::test]
async fn a_loss_under_a_lease_ends_the_run_where_a_loss_does() {
    let world = on_loss(StateLossPolicy::EndRun);
    let run = world.warm.begin_run();
    let lease = run.lease(LEDGER).await.unwrap();
    count_on(&lease).await;
    world.control().forget_sessions();
    let error = lease.call("counter", json!({})).await.unwrap_err();
    assert!(error.hint().unwrap().contains("run ended"), "{error:?}");
    until("the run is over", || !run.is_live()).await;
    let ledger = run.server(LEDGER).unwrap();
    let error = ledger.call("counter", json!({})).await.unwrap_err();
    assert_eq!(error.code().as_str(), "run-ended");
    drop((lease, ledger, run));
    world.finish().await;
}

/// What a server repeats of a secret is struck out of the errors of a lease, too.
#[tokio::test]
async fn a_secret_is_struck_out_of_the_errors_of_a_lease() {
    let secret = "made-up-secret-0123456789";
    let world = World::with(Personality::legacy(), |server| {
        server.bearer(Secret::new(secret))
    });
    let run = world.begin_run();
    let lease = run.lease(LEDGER).await.unwrap();
    let body = format!("403: token {secret} may not do this");
    let forbidden = Fault::Reply(CannedReply::new(403, &body));
    world.inject(FaultRule::new(forbidden).on_tool("echo"));
    let error = lease.call("echo", json!({})).await.unwrap_err();
    let said = format!("{error} {error:#} {error:?}");
    assert!(said.contains("[redacted: authorization]"), "{said}");
    assert!(!said.contains(secret), "{said}");
    drop(lease);
    world.finish().await;
}

/// The session of a live run is kept alive while somebody holds it, and while that is so the run
/// does not rest.
#[tokio::test]
async fn a_lease_keeps_its_session_and_its_run_alive() {
    let world = World::built(
        Personality::legacy(),
        |server| server.with_policy(|policy| policy.keep_alive = secs(30)),
        |builder| {
            builder.limits(|limits| {
                limits.sweep_every = secs(10);
                limits.run_idle = secs(300);
            })
        },
    );
    let run = world.warm.begin_run();
    let lease = run.lease(LEDGER).await.unwrap();
    assert_eq!(count_on(&lease).await, 1);
    let pings = || world.received("ping");
    let mut passed = secs(0);
    // Longer than the run may rest, and as long as it takes.
    while passed < secs(400) || (pings() < 3 && passed < secs(40_000)) {
        passed += secs(10);
        some_time().await;
        assert!(run.is_live(), "it was cut under its lease");
    }
    assert!(pings() >= 3, "it was kept alive {} times", pings());
    assert_eq!(count_on(&lease).await, 2);
    drop(lease);
    for _ in 0..35 {
        some_time().await;
    }
    until("the run rested too long", || !run.is_live()).await;
    drop(run);
    world.finish().await;
}

/// A lease on which nothing is sent does not hold up the end of its run, nor that of the engine.
#[tokio::test]
async fn an_end_does_not_wait_for_a_lease_without_a_call() {
    let per = |per| World::with(Personality::legacy(), move |server| server.session_per(per));
    let patience = secs(4);
    for session_per in [
        SessionScope::Run,
        SessionScope::Identity,
        SessionScope::Call,
    ] {
        let world = per(session_per);
        let run = world.warm.begin_run();
        let ended = run.clone();
        let lease = run.lease(LEDGER).await.unwrap();
        count_on(&lease).await;
        tokio::time::timeout(patience, run.end()).await.unwrap();
        assert!(!lease.is_held() && !ended.is_live());
        let error = lease.call("counter", json!({})).await.unwrap_err();
        assert_eq!(error.code().as_str(), "run-ended");
        drop(lease);

        let lease = world.ledger().lease().await.unwrap();
        count_on(&lease).await;
        tokio::time::timeout(patience, world.warm.close())
            .await
            .unwrap();
        assert_eq!(world.server.counts().open_sessions, 0, "{session_per:?}");
        let error = lease.call("counter", json!({})).await.unwrap_err();
        assert_eq!(error.code().as_str(), "closed");
        drop((lease, ended));
        world.finish().await;
    }
}

/// A call on a lease that is under way when its run ends has the grace of every call.
#[tokio::test]
async fn a_call_on_a_lease_has_the_grace_of_its_run() {
    let world = World::new(Personality::legacy());
    let run = world.warm.begin_run();
    let lease = run.lease(LEDGER).await.unwrap();
    let slow = tokio::spawn(lease.call("slow", json!({ "ms": 300 })).into_future());
    until("it is under way", || world.received("tools/call") == 1).await;
    tokio::time::timeout(secs(4), run.end()).await.unwrap();
    slow.await.unwrap().unwrap().ok().unwrap();
    assert!(!lease.is_held());
    drop(lease);
    world.finish().await;
}

/// reliability I28: calls on a lease are counted, and what is no call is not.
#[tokio::test]
async fn calls_on_a_lease_are_counted_and_taking_it_is_none() {
    let world = World::new(Personality::legacy());
    let ledger = world.in_run();
    ledger.info().await.unwrap();
    let lease = ledger.lease().await.unwrap();
    for _ in 0..3 {
        count_on(&lease).await;
    }
    let failure = Fault::Reply(CannedReply::new(403, "no"));
    world.inject(FaultRule::new(failure).on_tool("echo"));
    lease.call("echo", json!({})).await.unwrap_err();
    drop(lease);
    let counted = |delivery| world.number("calls_total", &[delivery]);
    assert_eq!(counted("answered"), 3);
    assert_eq!(counted("refused"), 1);
    assert_eq!((counted("unsent"), counted("unknown")), (0, 0));
    world.finish().await;
}

/// A log level that was said on a lease is said again to the session that replaces the one it was
/// said to.
#[tokio::test]
async fn a_log_level_that_was_said_on_a_lease_is_said_again() {
    let world = World::new(Personality::legacy());
    let run = world.begin_run();
    let lease = run.lease(LEDGER).await.unwrap();
    let level = json!({ "level": "debug" });
    lease.request("logging/setLevel", level).await.unwrap();
    drop(lease);
    world.control().forget_sessions();
    count(&run.server(LEDGER).unwrap()).await;
    assert_eq!(world.received("logging/setLevel"), 2);
    world.finish().await;
}

/// A session whose wire broke under a lease is checked before its next use, also if it has state.
#[tokio::test]
async fn a_session_that_broke_under_a_lease_is_checked() {
    let world = World::new(Personality::legacy());
    let run = world.begin_run();
    let lease = run.lease(LEDGER).await.unwrap();
    count_on(&lease).await;
    let cut = Fault::Cut(CutPoint::AfterExecuting, ConnectionEnd::Rst);
    world.inject(FaultRule::new(cut).on_tool("pay"));
    let error = pay_on(&lease, "cut").await.unwrap_err();
    assert_eq!(error.delivery(), Delivery::Unknown, "{error:?}");
    drop(lease);
    let before = world.received("ping");
    assert_eq!(count(&run.server(LEDGER).unwrap()).await, 2);
    assert_eq!(world.received("ping"), before + 1);
    assert_eq!(world.payments("cut"), 1);
    world.finish().await;
}

/// A7: a run inside of one that has ended is another: it does not join the dead.
#[tokio::test]
async fn a_run_inside_of_one_that_has_ended_is_another() {
    let world = World::new(Personality::legacy());
    let alice = world.warm.identity("alice");
    let counted = alice
        .run(async |outer| {
            outer.clone().end().await;
            alice
                .run(async |inner| {
                    assert!(inner.is_root());
                    count(&inner.server(LEDGER).unwrap()).await
                })
                .await
        })
        .await;
    assert_eq!(counted, 1);
    world.finish().await;
}

/// reliability P5: where servers keep nothing per session, a lease is in nobody's way.
#[tokio::test]
async fn a_lease_where_nothing_is_kept_holds_up_nobody() {
    for personality in [Personality::modern(), Personality::legacy_stateless()] {
        let world = World::new(personality);
        let who = |name: &str| world.warm.identity(name).server(LEDGER).unwrap();
        let (alice, bob) = (who("alice"), who("bob"));
        let leases = [alice.lease().await.unwrap(), alice.lease().await.unwrap()];
        for handle in [&alice, &bob] {
            let echo = handle.call("echo", json!({})).timeout(secs(5));
            assert!(echo.await.is_ok());
        }
        for lease in &leases {
            assert!(lease.call("echo", json!({})).await.is_ok());
        }
        drop((leases, alice, bob));
        world.finish().await;
    }
}

/// P108: `serial` holds for calls on a lease too.
#[tokio::test]
async fn calls_on_a_lease_of_a_serial_server_go_one_after_the_other() {
    let world = World::with(Personality::legacy(), |server| server.serial());
    let run = world.begin_run();
    let lease = run.lease(LEDGER).await.unwrap();
    let slow = |ms: u64| lease.call("slow", json!({ "ms": ms })).into_future();
    let first = tokio::spawn(slow(60_000));
    let book = world.server.ledger().clone();
    until("one is under way", || book.started_executions("slow") == 1).await;
    let hasty = lease.call("slow", json!({ "ms": 1 }));
    let error = hasty.timeout(Duration::from_millis(200)).await.unwrap_err();
    assert_eq!(error.delivery(), Delivery::Unsent, "{error:?}");
    let second = tokio::spawn(slow(1));
    first.abort();
    assert!(second.await.unwrap().is_ok());
    assert_eq!(book.started_executions("slow"), 2);
    drop(lease);
    world.finish().await;
}
