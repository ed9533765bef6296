//! Keeping: how long sessions are held, when they are looked at, and what ends them by itself.

use crate::prelude::*;

fn shared(server: Server) -> Server {
    server
        .session_per(SessionScope::Identity)
        .calls(CallConcurrency::SideBySide)
}

/// Lets that much time pass in steps, so that the keeper looks around in between.
pub(crate) async fn keep(rounds: u32, step: Duration) {
    for _ in 0..rounds {
        pass(step).await;
        // What the keeper sends takes its real time.
        tokio::time::sleep(Duration::from_millis(15)).await;
    }
}

/// A51, S28: a session of a run is replaced between two calls at the age an operator named.
#[tokio::test]
async fn a_session_of_a_run_ages_only_where_it_is_said() {
    let usual = World::new(Personality::legacy());
    let run = usual.warm.begin_run();
    assert_eq!(count(&run.server(LEDGER).unwrap()).await, 1);
    for number in 2..5 {
        pass(secs(600)).await;
        assert_eq!(count(&run.server(LEDGER).unwrap()).await, number);
    }
    run.end().await;
    usual.finish().await;

    let aged = World::with(Personality::legacy(), |server| {
        server.with_policy(|policy| policy.run_max_age = Some(secs(100)))
    });
    let run = aged.warm.begin_run();
    let ledger = run.server(LEDGER).unwrap();
    assert_eq!((count(&ledger).await, count(&ledger).await), (1, 2));
    pass(secs(120)).await;
    let reply = ledger.call("counter", json!({})).await.unwrap();
    assert_eq!(reply.generation(), 2);
    assert!(reply.state_lost(), "the loss is told, whoever ended it");
    run.end().await;
    aged.finish().await;
}

/// A52, A76, A77, reliability P16: a session that rested is looked at before it is used; a fresh
/// one is not.
#[tokio::test]
async fn a_session_that_rested_is_looked_at_before_its_next_use() {
    let world = World::new(Personality::legacy());
    let ledger = world.in_counted_run().await;
    pass(secs(50)).await;
    count(&ledger).await;
    assert_eq!(world.received("ping"), 0);
    pass(secs(61)).await;
    let before = world.server.ledger().methods().len();
    assert_eq!(count(&ledger).await, 3);
    let after = world.server.ledger().methods();
    assert_eq!(after[before..], ["ping", "tools/call"]);
    // One that died meanwhile is replaced, and the caller sees no error.
    world.control().forget_sessions();
    pass(secs(61)).await;
    let paid = world.pay(&ledger, "after a rest").await.unwrap();
    assert_eq!((paid.attempts(), paid.generation()), (1, 2));
    world.finish().await;
}

/// A78, reliability P23: a shared session that is too old is not used again, and no call is cut by
/// that.
#[tokio::test]
async fn a_shared_session_ages_between_calls() {
    let world = World::with(Personality::legacy(), |server| {
        shared(server).with_policy(|policy| policy.max_age = Some(secs(100)))
    });
    let ledger = world.ledger();
    assert_eq!(count(&ledger).await, 1);
    let slow = tokio::spawn(ledger.call("slow", json!({"ms": 400})).into_future());
    world.under_way("slow", 1).await;
    pass(secs(150)).await;
    assert_eq!(count(&ledger).await, 1, "on a new one");
    slow.await.unwrap().unwrap().ok().unwrap();
    let is_so = || world.server.counts().open_sessions == 1;
    until("the old one is closed", is_so).await;
    assert_eq!(world.handshakes(), 2);
    world.finish().await;
}

/// A79: without any traffic, what is too old or rested too long is closed.
#[tokio::test]
async fn the_keeper_closes_what_nobody_asks_for() {
    for idle in [None, Some(secs(60))] {
        let world = World::with(Personality::legacy(), |server| {
            shared(server).with_policy(|policy| policy.max_idle = idle)
        });
        count(&world.ledger()).await;
        let time = idle.map_or(340, |_| 80);
        keep(time / 10, secs(10)).await;
        until("it is closed", || world.server.counts().open_sessions == 0).await;
        assert_eq!(world.received("DELETE"), 1);
        world.finish().await;
    }
}

/// A80: sessions that were opened together are not replaced together.
#[tokio::test]
async fn ages_are_spread() {
    let world = World::with(Personality::legacy(), shared);
    for number in 0..30 {
        let who = world.warm.identity(&format!("tenant {number}"));
        count(&who.server(LEDGER).unwrap()).await;
    }
    keep(26, secs(10)).await;
    let mut left = vec![world.server.counts().open_sessions];
    for _ in 0..8 {
        keep(1, secs(10)).await;
        left.push(world.server.counts().open_sessions);
    }
    assert_eq!(left.first(), Some(&30), "{left:?}");
    world.no_session_left().await;
    let steps = left.windows(2).filter(|pair| pair[0] != pair[1]).count();
    assert!(steps >= 3, "{left:?}");
    world.finish().await;
}

/// A81, S12: keys that are empty for long are forgotten.
#[tokio::test]
async fn empty_keys_are_forgotten() {
    let world = World::with(Personality::legacy(), |server| {
        shared(server).with_policy(|policy| policy.max_age = Some(secs(10)))
    });
    for number in 0..50 {
        let who = world.warm.identity(&format!("tenant {number}"));
        count(&who.server(LEDGER).unwrap()).await;
    }
    assert_eq!(world.warm.snapshot().count("keys", &[]), 50);
    keep(4, secs(10)).await;
    world.no_session_left().await;
    assert_eq!(world.warm.snapshot().count("keys", &[]), 50);
    keep(3, secs(610)).await;
    let snapshot = world.warm.snapshot();
    assert_eq!(snapshot.count("keys", &[]), 0);
    assert_eq!(snapshot.count("keys_evicted_total", &[]), 50);
    world.finish().await;
}

/// A98, S13: a look at a server makes a request only where that is asked for.
#[tokio::test]
async fn a_look_at_a_server_costs_no_request_unless_asked() {
    for explicit in [false, true] {
        let world = World::with(Personality::legacy(), |server| {
            shared(server).with_policy(|policy| policy.explicit_health_rpc = explicit)
        });
        count(&world.ledger()).await;
        let before = world.server.counts().requests;
        keep(15, secs(10)).await;
        let more = world.server.counts().requests - before;
        if explicit {
            assert!((1..=3).contains(&more), "{more}");
        } else {
            assert_eq!(more, 0);
        }
        world.control().clear_violations();
        world.finish().await;
    }
}

/// A99, P2: with a check that comes far too late the call itself heals.
#[tokio::test]
async fn a_dead_session_is_not_seen_though_nobody_checked() {
    let world = World::with(Personality::legacy(), |server| {
        server.with_policy(|policy| {
            policy.check_after = secs(100_000);
            policy.keep_alive = Duration::ZERO;
        })
    });
    let ledger = world.in_run();
    for number in 1..=10 {
        assert_eq!(count(&ledger).await, 1);
        assert_eq!(ledger.current_session().unwrap().generation, number);
        world.control().forget_sessions();
        pass(secs(60)).await;
    }
    world.finish().await;
}

/// A193, P89: the session of a live run is kept alive, and that is no use of the run.
#[tokio::test]
async fn sessions_of_live_runs_are_kept_alive() {
    let world = World::with(Personality::legacy(), |server| {
        server.with_policy(|policy| policy.check_after = secs(100_000))
    });
    let (run, ledger) = world.new_run();
    assert_eq!(count(&ledger).await, 1);
    keep(60, secs(10)).await;
    let pings = world.received("ping");
    assert!((3..=6).contains(&pings), "{pings} in ten minutes");
    assert_eq!(count(&ledger).await, 2);
    // What keeps it alive does not keep the run.
    let joined = run.clone();
    keep(190, secs(10)).await;
    until("the run is over", || !joined.is_live()).await;
    drop(run);
    world.finish().await;
}

/// P12: a loss that one session showed makes its siblings be looked at first.
#[tokio::test]
async fn a_loss_makes_siblings_be_looked_at_first() {
    let world = World::new(Personality::legacy());
    let runs = [world.begin_run(), world.begin_run()];
    for run in &runs {
        count(&run.server(LEDGER).unwrap()).await;
    }
    world.control().forget_sessions();
    assert_eq!(count(&runs[0].server(LEDGER).unwrap()).await, 1);
    let before = world.server.ledger().methods().len();
    let paid = world.pay(&runs[1].server(LEDGER).unwrap(), "sibling").await;
    assert_eq!(paid.unwrap().attempts(), 1);
    assert_eq!(
        world.server.ledger().methods()[before],
        "ping",
        "the payment was not risked"
    );
    world.finish().await;
}

/// A97, P63: a tool that takes long and shows progress is not cut off; one that shows none is.
#[tokio::test]
async fn a_long_call_lives_by_its_progress() {
    let world = World::with(Personality::legacy(), |server| {
        server.deadlines(Duration::from_millis(400), secs(30))
    });
    let ledger = world.in_run();
    let steps = json!({"steps": 10, "pause_ms": 100});
    ledger.call("progress", steps).await.unwrap().ok().unwrap();
    let error = ledger
        .call("slow", json!({"ms": 60_000}))
        .await
        .unwrap_err();
    failed_as(&error, "deadline", Delivery::Unknown);
    let total = ledger.call("slow", json!({"ms": 60_000}));
    let error = total.timeout(Duration::from_millis(100)).await.unwrap_err();
    assert_eq!(error.code().as_str(), "deadline", "{error:?}");
    count(&ledger).await;
    world.finish().await;
}

/// A97: with nothing decided, a tool that works for longer than the idle limit and shows progress
/// ends well, and one that shows none is given up after it.
#[tokio::test]
async fn a_tool_that_shows_progress_for_minutes_ends_well_by_default() {
    const STEPS: u64 = 10;
    let world = World::new(Personality::legacy());
    let ledger = world.in_counted_run().await;
    let heard = Arc::new(AtomicU64::new(0));
    let hearing = Arc::clone(&heard);
    let steps = json!({"steps": STEPS, "pause_ms": 100});
    let call = ledger.call("progress", steps).on_notification(move |_| {
        hearing.fetch_add(1, Ordering::Relaxed);
    });
    let call = tokio::spawn(call.into_future());
    for step in 1..=STEPS {
        let is_so = || heard.load(Ordering::Relaxed) >= step;
        until("it shows progress", is_so).await;
        pass(secs(40)).await;
    }
    let worked = call.await.unwrap().unwrap();
    assert_eq!((worked.attempts(), worked.generation()), (1, 1));

    let silent = ledger.call("slow", json!({"ms": 60_000}));
    let silent = tokio::spawn(silent.into_future());
    world.under_way("slow", 1).await;
    pass(secs(301)).await;
    let error = silent.await.unwrap().unwrap_err();
    assert_eq!(error.code().as_str(), "deadline", "{error:?}");
    world.finish().await;
}

/// reliability I31: a server that asks for a pause gets one, and so does everybody of that identity.
#[tokio::test]
async fn a_server_that_asks_for_a_pause_gets_it() {
    let world = World::new(Personality::legacy());
    let ledger = world.in_counted_run().await;
    let busy = CannedReply::new(429, "slow down").header("Retry-After", "1");
    world.inject(FaultRule::new(Fault::Reply(busy)).on_tool("pay"));
    let began = Instant::now();
    let paid = world.pay(&ledger, "patient").await.unwrap();
    assert_eq!(paid.attempts(), 2);
    assert!(began.elapsed() >= Duration::from_millis(900));
    assert_eq!(world.payments("patient"), 1);
    world.finish().await;
}

/// reliability F25, reliability P10: a pause that is longer than anybody waits for a session is told
/// at once, to the call that met it and to all that come while it lasts. Others are served, and when
/// it is over everybody is.
#[tokio::test]
async fn a_long_pause_is_told_and_not_waited_out() {
    for (status, met) in [(429, Delivery::Refused), (503, Delivery::Unknown)] {
        let world = World::new(Personality::legacy());
        let (alice, bob) = (world.warm.identity("alice"), world.warm.identity("bob"));
        let runs = (alice.begin_run(), bob.begin_run());
        let ledger = runs.0.server(LEDGER).unwrap();
        count(&ledger).await;
        let busy = CannedReply::new(status, "later").header("Retry-After", "600");
        let rule = FaultRule::new(Fault::Reply(busy)).on_tool("pay").times(1);
        world.inject(rule);
        let began = tokio::time::Instant::now();
        let error = world.pay(&ledger, "impatient").await.unwrap_err();
        assert_eq!((error.delivery(), error.attempts()), (met, 1), "{error:?}");
        assert_eq!(error.retry_after(), Some(secs(600)), "{error:?}");
        for error in [
            ledger.call("counter", json!({})).await.unwrap_err(),
            ledger.ping().await.unwrap_err(),
            ledger
                .request("resources/list", json!({}))
                .await
                .unwrap_err(),
        ] {
            let told = (error.code().as_str(), error.delivery());
            assert_eq!(told, ("overloaded", Delivery::Unsent), "{error:?}");
            let wait = error.retry_after().unwrap();
            assert!((secs(500)..=secs(600)).contains(&wait), "{error:?}");
        }
        assert_eq!(count(&runs.1.server(LEDGER).unwrap()).await, 1);
        assert!(began.elapsed() < secs(20), "nobody waited");
        pass(secs(600)).await;
        assert_eq!(count(&ledger).await, 2);
        runs.0.end().await;
        runs.1.end().await;
        world.finish().await;
    }
}

/// P2: a server whose idle timer drops sessions after 2 s is called for an hour, after pauses that
/// its timer survives and after pauses that it does not; no caller sees an error, and no payment is
/// made twice.
#[tokio::test]
async fn an_hour_with_a_server_that_drops_idle_sessions_shows_no_error() {
    let timer = secs(2);
    let world = World::new(Personality::legacy());
    let ledger = world.in_run();
    let pauses = [secs(1), secs(5)].into_iter().cycle().take(1200);
    let (mut drops, mut hour) = (0, Duration::ZERO);
    for (number, pause) in pauses.enumerate() {
        let paid = world.pay(&ledger, &number.to_string()).await;
        paid.and_then(ToolResult::ok)
            .unwrap_or_else(|error| panic!("call {number}: {error:?}"));
        pass(pause).await;
        hour += pause;
        if pause > timer {
            world.control().forget_sessions();
            drops += 1;
        }
    }
    assert_eq!((hour, drops), (secs(3600), 600));
    assert_eq!(world.handshakes(), drops);
    for number in 0..1200 {
        assert_eq!(world.payments(&number.to_string()), 1);
    }
    world.finish().await;
}
