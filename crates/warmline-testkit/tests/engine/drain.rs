//! Ends: of runs, of the engine, in whatever way they come.

use crate::prelude::*;

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt as _;

/// Hears of everything, and does nothing about it.
#[derive(Debug)]
struct Ear;

impl warmline_upstream::UnsolicitedListener for Ear {
    fn on_notification(&self, _: &str, _: &[u8]) {}
}

/// A38, A149: a run that ends closes its sessions, with DELETE, once each, and the stream that was
/// held for it.
#[tokio::test]
async fn the_end_of_a_run_closes_its_sessions() {
    let world = World::new(Personality::legacy());
    let control = world.control();
    let attending = world
        .warm
        .run(async |run| {
            let ledger = run.server(LEDGER).unwrap();
            count(&ledger).await;
            ledger.set_log_level("info").await.unwrap();
            let attending = ledger.subscribe_shared(Arc::new(Ear), None);
            until("a stream is held", || control.open_get_streams() == 1).await;
            attending
        })
        .await;
    assert_eq!(world.received("DELETE"), 1);
    assert_eq!(world.server.counts().open_sessions, 0);
    assert!(world.warm.snapshot().sessions.is_empty());
    let is_so = || control.open_get_streams() == 0 && world.server.counts().open_connections <= 1;
    until("its stream has ended", is_so).await;
    drop(attending);
    world.finish().await;
}

/// A39: a body that fails is closed in the same way, and its error is what the caller gets.
#[tokio::test]
async fn a_body_that_fails_is_closed_and_its_error_comes_through() {
    let world = World::new(Personality::legacy());
    let outcome: Result<(), &str> = world
        .warm
        .run(async |run| {
            count(&run.server(LEDGER).unwrap()).await;
            Err("my own error")
        })
        .await;
    assert_eq!(outcome, Err("my own error"));
    assert_eq!(Run::current_name(), None);
    assert_eq!(world.received("DELETE"), 1);
    world.finish().await;
}

/// A40: a run that is cancelled, runs out of time or panics is closed all the same.
#[tokio::test]
async fn a_run_that_is_cut_short_is_closed() {
    let world = World::new(Personality::legacy());
    let forever = async |run: Run| {
        count(&run.server(LEDGER).unwrap()).await;
        std::future::pending::<()>().await;
    };
    // Out of time.
    let late = tokio::time::timeout(secs(600), world.warm.run(forever));
    let passing = async {
        let book = world.server.ledger();
        until("it has a session", || book.executions("counter") == 1).await;
        pass(secs(601)).await;
    };
    let (late, ()) = tokio::join!(late, passing);
    assert!(late.is_err());
    // Aborted, with a call under way.
    let warm = world.warm.clone();
    let task = tokio::spawn(async move {
        let run = warm.begin_run();
        let slow = run
            .server(LEDGER)
            .unwrap()
            .call("slow", json!({"ms": 60_000}));
        slow.await.unwrap().ok().unwrap();
    });
    let book = world.server.ledger().clone();
    let is_so = || book.started_executions("slow") == 1;
    until("the slow call is under way", is_so).await;
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    // Panicked.
    let panicked = world.warm.run(async |run| {
        count(&run.server(LEDGER).unwrap()).await;
        panic!("on purpose");
    });
    AssertUnwindSafe(panicked).catch_unwind().await.unwrap_err();
    world.no_session_left().await;
    assert_eq!(world.server.counts().sessions, 3);
    let is_so = || world.warm.snapshot().runs.is_empty();
    until("every run is over", is_so).await;
    world.finish().await;
}

/// A41, A42: of names that are parts of each other exactly the right ones are closed.
#[tokio::test]
async fn exactly_the_sessions_of_the_run_are_closed() {
    let others = ["a", "a-b", "b"].map(|name| {
        let server = LedgerServer::start(Personality::legacy()).unwrap();
        (name, server)
    });
    let mut builder = Warmline::builder();
    for (name, server) in &others {
        builder = builder.server(Server::http(*name, server.url()));
    }
    let warm = builder.build().unwrap();
    let names = [
        ("a", "b"),
        ("a:b", "b"),
        ("a", "a-b"),
        ("a:", "b"),
        ("a", "x.b"),
        ("b", "a"),
        ("a-b", "-b"),
    ];
    let runs = names.map(|(who, name)| warm.identity(who).named_run(name).unwrap());
    for run in &runs {
        for (name, _) in &others {
            count(&run.server(name).unwrap()).await;
        }
    }
    for (left, run) in (0..names.len()).rev().zip(runs) {
        run.end().await;
        for (name, server) in &others {
            let open = server.counts().open_sessions;
            assert_eq!(open, left as u64, "{name}");
        }
        for (who, name) in &names[names.len() - left..] {
            let run = warm.identity(who).join_run(name).unwrap();
            assert!(count(&run.server("a").unwrap()).await > 1);
        }
    }
    warm.close().await;
    drop(warm);
    nothing_left().await;
}

/// Less than a close has time for, and more than anything takes that nobody waits for.
const AT_ONCE: Duration = Duration::from_millis(1_500);

/// A46, P73: what is dead already is closed at once, by any task, any number of times.
#[tokio::test]
async fn what_is_dead_is_closed_at_once() {
    let world = World::new(Personality::legacy());
    let run = world.warm.begin_run();
    count(&run.server(LEDGER).unwrap()).await;
    world.server.stop();
    world.control().forget_sessions();
    let began = Instant::now();
    let ends = (0..5).map(|_| {
        let run = run.clone();
        tokio::spawn(async move { run.end().await })
    });
    for ended in join_all(ends).await {
        ended.unwrap();
    }
    run.end().await;
    let took = began.elapsed();
    assert!(took < AT_ONCE, "{took:?}");
    world.server.start_again().unwrap();
    world.finish().await;
}

/// A47, P71, P72: the last call is awaited for the grace time, then cancelled, and told so.
#[tokio::test]
async fn the_last_call_has_a_grace_and_is_then_cut() {
    let world = World::new(Personality::legacy());
    let call = |ms: u64| {
        let run = world.warm.begin_run();
        let slow = run
            .server(LEDGER)
            .unwrap()
            .call("slow", json!({ "ms": ms }));
        (run, tokio::spawn(slow.into_future()))
    };
    let book = world.server.ledger().clone();
    let (run, short) = call(300);
    until("it is under way", || book.started_executions("slow") == 1).await;
    run.end().await;
    short.await.unwrap().unwrap().ok().unwrap();

    let (run, long) = call(60_000);
    until("it is under way", || book.started_executions("slow") == 2).await;
    let ledger = run.server(LEDGER).unwrap();
    let ending = tokio::spawn(async move { run.end().await });
    let is_so = || ledger.current_session().is_some();
    until("nothing is let in any more", is_so).await;
    tokio::task::yield_now().await;
    let error = ledger.call("echo", json!({})).await.unwrap_err();
    failed_as(&error, "run-ended", Delivery::Unsent);
    pass(secs(6)).await;
    ending.await.unwrap();
    let error = long.await.unwrap().unwrap_err();
    failed_as(&error, "run-ended", Delivery::Unknown);
    let is_so = || book.messages_received("notifications/cancelled") == 1;
    until("the server heard of it", is_so).await;
    assert_eq!(book.messages_received("DELETE"), 2);
    world.finish().await;
}

/// A130, A131: what was closed can be closed again and begun again, and engines close alone.
#[tokio::test]
async fn what_was_ended_can_be_ended_again_and_begun_again() {
    let world = World::new(Personality::legacy());
    for _ in 0..2 {
        let run = world.warm.named_run("again").unwrap();
        assert_eq!(count(&run.server(LEDGER).unwrap()).await, 1);
        let other = run.clone();
        run.end().await;
        other.end().await;
    }
    let others: Vec<Warmline> = (0..3)
        .map(|_| {
            let server = Server::http(LEDGER, world.server.url());
            Warmline::builder().server(server).build().unwrap()
        })
        .collect();
    for warm in &others {
        warm.named_run("kept").unwrap().detach();
        let run = warm.join_run("kept").unwrap();
        count(&run.server(LEDGER).unwrap()).await;
    }
    let broken = Fault::Reply(CannedReply::new(500, "cannot"));
    world.inject(FaultRule::new(broken).on_method("DELETE"));
    join_all(others.iter().map(Warmline::close)).await;
    assert_eq!(world.server.counts().open_sessions, 1);
    world.control().forget_sessions();
    join_all(others.iter().map(Warmline::close)).await;
    drop(others);
    world.finish().await;
}

/// A28, A133, P11: an opening that fails at any step leaves nothing that blocks the next.
#[tokio::test]
async fn a_failed_opening_leaves_nothing_at_any_step() {
    use warmline_testkit::{ConnectionEnd, CutPoint};
    let faults = [
        Fault::Reply(CannedReply::new(500, "no")),
        Fault::Reply(CannedReply::new(200, "no JSON").json()),
        Fault::Cut(CutPoint::BeforeExecuting, ConnectionEnd::Rst),
        Fault::Cut(CutPoint::InHead, ConnectionEnd::Fin),
        Fault::Version("1999-01-01".to_owned()),
        Fault::SessionId("not a good id\u{7f}".to_owned()),
    ];
    for (number, fault) in faults.into_iter().enumerate() {
        let world = World::new(Personality::legacy());
        world.inject(FaultRule::new(fault).on_method("initialize").always());
        let ledger = world.in_run();
        let error = ledger.call("counter", json!({})).await.unwrap_err();
        assert_eq!(error.delivery(), Delivery::Unsent, "{number}: {error:?}");
        assert!(world.warm.snapshot().sessions.is_empty(), "{number}");
        world.control().clear_faults();
        // What the server opened and nobody learned of is not ours to end.
        world.control().forget_sessions();
        assert_eq!(count(&ledger).await, 1, "{number}");
        world.finish().await;
    }
}

/// A87, P76, reliability P25: a close waits for nothing that is only being opened, and for callers
/// who wait for that no longer than their grace.
#[tokio::test]
async fn a_close_does_not_wait_for_openings() {
    for (callers, most) in [(0, secs(6)), (1, secs(12))] {
        let world = World::with(Personality::legacy(), |server| server.spares(2));
        let run = world.warm.begin_run();
        count(&run.server(LEDGER).unwrap()).await;
        let silence = Fault::Silence(FaultTiming::BeforeExecuting);
        world.inject(FaultRule::new(silence).on_method("initialize").always());
        // Those whose sessions are opened, while others are opened ahead.
        let others = (0..callers).map(|_| {
            let run = world.warm.begin_run();
            let call = run.server(LEDGER).unwrap().call("counter", json!({}));
            (run, tokio::spawn(call.into_future()))
        });
        let others: Vec<_> = others.collect();
        let book = world.server.ledger().clone();
        let is_so = || book.messages_received("initialize") >= 2;
        until("openings are under way", is_so).await;
        let began = Instant::now();
        world.warm.close().await;
        let took = began.elapsed();
        assert!(took < most, "{took:?}");
        for (_, other) in others {
            if let Err(error) = other.await.unwrap() {
                assert_eq!(error.delivery(), Delivery::Unsent, "{error:?}");
            }
        }
        run.end().await;
        world.control().clear_faults();
        world.finish().await;
        assert!(began.elapsed() < most + secs(4), "{:?}", began.elapsed());
    }
}

/// A45: the end of a run waits for no opening that nobody waits for.
#[tokio::test]
async fn the_end_of_a_run_does_not_wait_for_an_opening() {
    let world = World::new(Personality::legacy());
    let (run, ledger) = world.new_run();
    count(&ledger).await;
    world.control().forget_sessions();
    let silence = Fault::Silence(FaultTiming::BeforeExecuting);
    world.inject(FaultRule::new(silence).on_method("initialize").always());
    let given_up = ledger.call("counter", json!({}));
    let given_up = given_up.timeout(Duration::from_millis(300)).await;
    assert_eq!(given_up.unwrap_err().delivery(), Delivery::Unsent);
    let began = Instant::now();
    run.end().await;
    assert!(began.elapsed() < secs(8), "{:?}", began.elapsed());
    world.control().clear_faults();
    world.finish().await;
}

/// A87, reliability P25: a first contact that nobody waits for ends with the engine.
#[tokio::test]
async fn a_first_contact_ends_with_the_engine() {
    let world = World::new(Personality::legacy());
    let silence = Fault::Silence(FaultTiming::BeforeExecuting);
    world.inject(FaultRule::new(silence).always());
    let waiting = world.ledger().call("counter", json!({}));
    let waiting = tokio::spawn(waiting.into_future());
    let book = world.server.ledger().clone();
    until("it is being met", || !book.methods().is_empty()).await;
    let began = Instant::now();
    world.warm.close().await;
    let error = waiting.await.unwrap().unwrap_err();
    assert_eq!(error.delivery(), Delivery::Unsent, "{error:?}");
    let is_so = || world.server.counts().open_connections == 0;
    until("it is left alone", is_so).await;
    assert!(began.elapsed() < secs(8), "{:?}", began.elapsed());
    world.control().clear_faults();
    world.finish().await;
}
