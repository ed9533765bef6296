//! Health: sessions of live runs are kept alive, and nothing but death is taken for death.

use crate::prelude::*;

fn received(world: &World, method: &str) -> usize {
    world.received(method)
}

/// Lets that much time pass, a round of the keeper at a time.
async fn rest(time: Duration) {
    for _ in 0..time.as_secs() / 10 {
        pass(secs(10)).await;
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Lets pass what a keep-alive may take, after which the server was asked so often.
///
/// In one step, and not before it answered the last time: the server lives in real time, and what
/// is under way while time passes is late.
async fn asked_within(world: &World, method: &str, times: usize) {
    let answered = || world.number("checks_total", &["alive"]);
    until("it answered before", || answered() + 1 >= times as u64).await;
    pass(secs(142)).await;
    until("it is asked in time", || received(world, method) == times).await;
}

/// P64: while a call is under way nobody asks whether its session lives.
#[tokio::test]
async fn nothing_is_checked_while_a_call_is_under_way() {
    let world = World::new(Personality::legacy());
    let ledger = world.in_counted_run().await;
    let ignored = Fault::Silence(FaultTiming::BeforeExecuting);
    world.inject(FaultRule::new(ignored).on_method("ping").always());
    let slow = ledger.call("slow", json!({"ms": 600})).into_future();
    let slow = tokio::spawn(slow);
    world.under_way("slow", 1).await;
    rest(secs(200)).await;
    assert_eq!(received(&world, "ping") + received(&world, "tools/list"), 0);
    let done = slow.await.unwrap().unwrap();
    assert_eq!((done.attempts(), done.generation()), (1, 1));
    assert_eq!((count(&ledger).await, world.handshakes()), (2, 1));
    world.finish().await;
}

/// A77, P65: a server that never answers `ping` is asked for something else from then on, and its
/// sessions stay.
#[tokio::test]
async fn a_server_that_ignores_ping_is_remembered_as_such() {
    let world = World::new(Personality::legacy());
    let ignored = Fault::Silence(FaultTiming::BeforeExecuting);
    world.inject(FaultRule::new(ignored).on_method("ping").always());
    let ledger = world.in_counted_run().await;
    asked_within(&world, "ping", 1).await;
    pass(secs(10)).await;
    let is_so = || received(&world, "tools/list") == 1;
    until("it is asked otherwise", is_so).await;
    for round in 2..6 {
        asked_within(&world, "tools/list", round).await;
    }
    assert_eq!(received(&world, "ping"), 1);
    assert_eq!((count(&ledger).await, world.handshakes()), (2, 1));
    world.finish().await;
}

/// P66: `ping` comes first, so the size of a list decides nothing; and silence that is heard once
/// is no death.
#[tokio::test]
async fn the_size_of_a_list_decides_nothing() {
    let world = World::new(Personality::legacy());
    let huge = FaultRule::new(Fault::ManyTools(50_000)).on_method("tools/list");
    world.inject(huge.always());
    let ledger = world.in_counted_run().await;
    for round in 1..5 {
        asked_within(&world, "ping", round).await;
    }
    assert_eq!(received(&world, "tools/list"), 0);
    // Neither is answered once: too slow today, and no verdict.
    world.control().clear_faults();
    for method in ["ping", "tools/list"] {
        let late = Fault::Silence(FaultTiming::BeforeExecuting);
        world.inject(FaultRule::new(late).on_method(method));
    }
    asked_within(&world, "ping", 5).await;
    pass(secs(10)).await;
    let is_so = || received(&world, "tools/list") == 1;
    until("it is asked otherwise", is_so).await;
    pass(secs(10)).await;
    assert_eq!((count(&ledger).await, world.handshakes()), (2, 1));
    world.finish().await;
}

/// P14, P61: a connection that died at rest and says nothing costs at most the time of a check.
#[tokio::test]
async fn a_stale_connection_costs_at_most_a_check() {
    let server = LedgerServer::start(Personality::legacy()).unwrap();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let url = proxy.proxied_url(&server.url());
    let checked_soon =
        move |_| Server::http(LEDGER, &url).with_policy(|policy| policy.check_after = secs(10));
    let world = World::around(server, checked_soon, |builder| builder);
    let ledger = world.in_counted_run().await;
    pass(secs(12)).await;
    let lost = warmline_testkit::proxy::LinkConditions::default()
        .swallow()
        .once();
    proxy.set_conditions(warmline_testkit::proxy::Direction::Up, lost);
    let before = proxy.traffic().bytes_up;
    let call = tokio::spawn(async move { count(&ledger).await });
    let is_so = || proxy.traffic().connections > 0 && !call.is_finished();
    until("it is asked whether it lives", is_so).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!((received(&world, "ping"), call.is_finished()), (0, false));
    pass(secs(10)).await;
    assert_eq!(call.await.unwrap(), 2);
    assert_eq!(world.handshakes(), 1);
    assert!(proxy.traffic().bytes_up > before);
    world.finish().await;
}

/// A98: where health requests are switched on, each look is one request, and bounded.
#[tokio::test]
async fn a_look_at_a_silent_server_is_bounded() {
    let world = World::with(Personality::legacy(), |server| {
        server.with_policy(|policy| {
            policy.explicit_health_rpc = true;
            policy.keep_alive = Duration::ZERO;
        })
    });
    let run = world.begin_run();
    count(&run.server(LEDGER).unwrap()).await;
    let requests = || world.server.counts().requests;
    let silent = FaultRule::new(Fault::Silence(FaultTiming::BeforeExecuting)).always();
    world.inject(silent);
    let before = requests();
    for look in 1..4 {
        // A minute between two looks, and ten seconds for one that gets no answer.
        for _ in 0..9 {
            pass(secs(10)).await;
            tokio::time::sleep(Duration::from_millis(10)).await;
            if requests() > before + look - 1 {
                break;
            }
        }
        until("it is looked at", || requests() == before + look).await;
    }
    pass(secs(10)).await;
    world.control().clear_faults();
    assert_eq!(count(&run.server(LEDGER).unwrap()).await, 2);
    world.finish().await;
}

/// A server that hangs does not hold up the keeper: the sessions of others are kept alive.
#[tokio::test]
async fn a_server_that_hangs_holds_up_no_keep_alive_of_others() {
    let hanging = LedgerServer::start(Personality::legacy()).unwrap();
    let world = World::with_engine(Personality::legacy(), |builder| {
        let hangs = Server::http("hangs", hanging.url()).with_policy(|policy| {
            policy.explicit_health_rpc = true;
            policy.health_check_interval = secs(10);
            policy.health_check_timeout = secs(3_000);
        });
        builder.server(hangs)
    });
    let run = world.begin_run();
    count(&run.server(LEDGER).unwrap()).await;
    count(&run.server("hangs").unwrap()).await;
    hanging.inject(FaultRule::new(Fault::Silence(FaultTiming::BeforeExecuting)).always());
    rest(secs(30)).await;
    let before = received(&world, "ping");
    for _ in 0..3 {
        asked_within(&world, "ping", received(&world, "ping") + 1).await;
    }
    assert!(received(&world, "ping") >= before + 3);
    hanging.control().clear_faults();
    world.finish().await;
}
