//! Going down: nothing new is taken, what is under way may end, and then nothing is left.

use crate::prelude::*;

/// A87, reliability P27: nothing new is taken, calls under way end, sessions are ended.
#[tokio::test]
async fn going_down_takes_nothing_new_and_lets_calls_end() {
    let world = World::with(Personality::legacy(), |server| {
        server.session_per(SessionScope::Identity)
    });
    let ledger = world.ledger();
    let (_run, inside) = world.new_run();
    let (one, two) = (ledger.clone(), inside.clone());
    let calls = [one, two]
        .map(|handle| tokio::spawn(async move { handle.call("slow", json!({"ms": 400})).await }));
    world.under_way("slow", 2).await;
    let sessions = world.server.counts().sessions;
    let warm = world.warm.clone();
    let closing = tokio::spawn(async move { warm.close().await });
    tokio::task::yield_now().await;
    for handle in [&ledger, &inside] {
        let error = payment(handle, "too late").await.unwrap_err();
        failed_as(&error, "draining", Delivery::Unsent);
    }
    assert!(!closing.is_finished());
    for call in calls {
        assert_eq!(call.await.unwrap().unwrap().text(), "took 400 ms");
    }
    closing.await.unwrap();
    assert_eq!(world.received("DELETE") as u64, sessions);
    assert_eq!(world.payments("too late"), 0);
    world.finish().await;
}

/// A87, P76, reliability P27: it ends in its time, although neither calls nor servers answer; what
/// was under way may have been done, and says so.
#[tokio::test]
async fn going_down_is_bounded_whatever_servers_do() {
    let world = World::with(Personality::legacy(), |server| {
        server.session_per(SessionScope::Identity)
    });
    let mute = || Fault::Silence(FaultTiming::AfterExecuting);
    world.inject(FaultRule::new(mute()).on_tool("pay").always());
    world.inject(FaultRule::new(mute()).on_method("DELETE").always());
    let run = world.warm.begin_run();
    let handles = [world.ledger(), run.server(LEDGER).unwrap()];
    let calls = handles.map(|handle| tokio::spawn(async move { payment(&handle, "stuck").await }));
    until("both are under way", || world.payments("stuck") == 2).await;
    let warm = world.warm.clone();
    let closing = tokio::spawn(async move { warm.close().await });
    tokio::task::yield_now().await;
    for _ in 0..24 {
        pass(secs(1)).await;
        tokio::task::yield_now().await;
    }
    let closed = tokio::time::timeout(secs(2), closing).await;
    closed.expect("24 seconds are enough").unwrap();
    for call in calls {
        let error = call.await.unwrap().unwrap_err();
        assert_eq!(error.delivery(), Delivery::Unknown, "{error:?}");
    }
    world.control().clear_faults();
    world.control().forget_sessions();
    world.finish().await;
}

/// reliability P25, reliability I37: after `close` nothing is left, and whatever is asked fails at
/// once.
#[tokio::test]
async fn after_close_everything_fails_at_once_and_nothing_is_left() {
    let world = World::with(Personality::legacy(), |server| server.spares(1));
    let program = Program::ledger(&["--personality", "legacy"]);
    world.add_server(program.declared("child").spares(1));
    let run = world.warm.begin_run();
    let (ledger, child) = (run.server(LEDGER).unwrap(), run.server("child").unwrap());
    count(&ledger).await;
    count(&child).await;
    count(&world.ledger()).await;
    let lease = run.lease(LEDGER).await.unwrap();
    done(lease.call("counter", json!({}))).await;
    drop(lease);
    tokio::join!(world.warm.close(), world.warm.close());
    program.gone().await;

    let before = world.server.counts().requests;
    let url = world.server.url();
    let fresh = world.warm.identity("new").begin_run();
    let mut errors = vec![
        payment(&ledger, "after").await.unwrap_err(),
        child.ping().await.unwrap_err(),
        world.ledger().ping().await.unwrap_err(),
        ledger.lease().await.unwrap_err(),
        ledger.tools().await.unwrap_err(),
        ledger.list(ListKind::Prompts).await.unwrap_err(),
        fresh.server(LEDGER).unwrap().info().await.unwrap_err(),
    ];
    let once = world.warm.once(Server::http("once", url));
    errors.push(once.ping().await.unwrap_err());
    for error in errors {
        failed_as(&error, "closed", Delivery::Unsent);
    }
    assert_eq!(world.server.counts().requests, before);
    fresh.end().await;
    drop((run, ledger, child, once));
    world.finish().await;
}

/// P76, reliability P25: whoever forgets to close leaves nothing either.
#[tokio::test]
async fn an_engine_that_is_only_dropped_leaves_nothing() {
    let program = Program::ledger(&["--personality", "legacy"]);
    let server = LedgerServer::start(Personality::legacy()).unwrap();
    let warm = Warmline::builder()
        .server(program.declared("child"))
        .server(Server::http(LEDGER, server.url()).session_per(SessionScope::Identity))
        .build()
        .unwrap();
    let run = warm.begin_run();
    count(&run.server("child").unwrap()).await;
    count(&run.server(LEDGER).unwrap()).await;
    drop((warm, run));
    program.gone().await;
    let is_so = || server.counts().open_sessions == 0;
    until("its session is ended", is_so).await;
    pass(secs(20)).await;
    nothing_left().await;
}
