//! Ends: of runs, of the engine, in whatever way they come.

use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use futures_util::future::join_all;
use serde_json::json;
use warmline::core::delivery::Delivery;
use warmline::{Server, Warmline};
use warmline_testkit::{Canned, Fault, LedgerServer, Moment, Personality, Rule};

use super::census::until;
use super::world::{LEDGER, World, count, nothing_left, pass, payment, secs};

/// Hears of everything, and does nothing about it.
#[derive(Debug)]
struct Ear;

impl warmline::upstream::Notices for Ear {
    fn notice(&self, _: &str, _: &[u8]) {}
}

/// A38, A149: a run that ends closes its sessions, with DELETE, once each, and the stream that was
/// held for it.
#[tokio::test]
async fn the_end_of_a_run_closes_its_sessions() {
    let world = World::new(Personality::legacy());
    let control = world.server.control();
    let attending = world
        .warm
        .run(async |run| {
            let ledger = run.server(LEDGER).unwrap();
            count(&ledger).await;
            ledger.log_level("info").await.unwrap();
            let attending = ledger.attend(std::sync::Arc::new(Ear));
            until("a stream is held", || control.standing_streams() == 1).await;
            attending
        })
        .await;
    assert_eq!(world.server.ledger().received("DELETE"), 1);
    assert_eq!(world.server.counts().open_sessions, 0);
    assert!(world.warm.snapshot().sessions.is_empty());
    until("its stream has ended", || {
        control.standing_streams() == 0 && world.server.counts().open_connections <= 1
    })
    .await;
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
    assert_eq!(warmline::Run::current_name(), None);
    assert_eq!(world.server.ledger().received("DELETE"), 1);
    world.finish().await;
}

/// A40: a run that is cancelled, runs out of time or panics is closed all the same.
#[tokio::test]
async fn a_run_that_is_cut_short_is_closed() {
    let world = World::new(Personality::legacy());
    let forever = async |run: warmline::Run| {
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
        let run = warm.begin();
        let slow = run
            .server(LEDGER)
            .unwrap()
            .call("slow", json!({"ms": 60_000}));
        slow.await.unwrap().ok().unwrap();
    });
    let book = world.server.ledger().clone();
    until("the slow call is under way", || book.begun("slow") == 1).await;
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    // Panicked.
    let panicked = world.warm.run(async |run| {
        count(&run.server(LEDGER).unwrap()).await;
        panic!("on purpose");
    });
    AssertUnwindSafe(panicked).catch_unwind().await.unwrap_err();
    until("every session is closed", || {
        world.server.counts().open_sessions == 0
    })
    .await;
    assert_eq!(world.server.counts().sessions, 3);
    until("every run is over", || {
        world.warm.snapshot().runs.is_empty()
    })
    .await;
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
    let runs = names.map(|(who, name)| warm.identity(who).named(name).unwrap());
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
            let run = warm.identity(who).join(name).unwrap();
            assert!(count(&run.server("a").unwrap()).await > 1);
        }
    }
    warm.close().await;
    drop(warm);
    nothing_left().await;
}

/// A43, A44, A45, A192: sessions are closed side by side; one that cannot be closed delays and
/// spoils nothing.
#[tokio::test]
async fn sessions_are_closed_side_by_side() {
    let servers: Vec<LedgerServer> = (0..20)
        .map(|_| LedgerServer::start(Personality::legacy()).unwrap())
        .collect();
    let mut builder = Warmline::builder();
    for (number, server) in servers.iter().enumerate() {
        builder = builder.server(Server::http(format!("s{number}"), server.url()));
    }
    let warm = builder.build().unwrap();
    let run = warm.begin();
    let other = warm.begin();
    let handles: Vec<_> = (0..20)
        .map(|number| run.server(&format!("s{number}")).unwrap())
        .collect();
    join_all(handles.iter().map(count)).await;
    count(&other.server("s0").unwrap()).await;
    for server in &servers {
        let slow = Fault::Delay(1_000, Moment::BeforeExecuting);
        server.inject(Rule::new(slow).on("DELETE"));
    }
    let broken = Fault::Reply(Canned::new(500, "cannot"));
    servers[7].control().clear();
    servers[7].inject(Rule::new(broken).on("DELETE"));
    let began = Instant::now();
    let ending = run.clone();
    let ending = tokio::spawn(async move { ending.end().await });
    // It left the table first; other work goes on.
    until("nothing is let in any more", || !run.is_live()).await;
    assert_eq!(count(&other.server("s0").unwrap()).await, 2);
    ending.await.unwrap();
    let took = began.elapsed();
    assert!(took < secs(6), "20 s in a row, {took:?} side by side");
    for (number, server) in servers.iter().enumerate() {
        let left = u64::from(number == 7 || number == 0);
        assert_eq!(server.counts().open_sessions, left, "s{number}");
    }
    other.end().await;
    warm.close().await;
}

/// Less than a close has time for, and more than anything takes that nobody waits for.
const AT_ONCE: Duration = Duration::from_millis(1_500);

/// A46, P73: what is dead already is closed at once, by any task, any number of times.
#[tokio::test]
async fn what_is_dead_is_closed_at_once() {
    let world = World::new(Personality::legacy());
    let run = world.warm.begin();
    count(&run.server(LEDGER).unwrap()).await;
    world.server.stop();
    world.server.control().forget_sessions();
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
        let run = world.warm.begin();
        let slow = run
            .server(LEDGER)
            .unwrap()
            .call("slow", json!({ "ms": ms }));
        (run, tokio::spawn(slow.into_future()))
    };
    let book = world.server.ledger().clone();
    let (run, short) = call(300);
    until("it is under way", || book.begun("slow") == 1).await;
    run.end().await;
    short.await.unwrap().unwrap().ok().unwrap();

    let (run, long) = call(60_000);
    until("it is under way", || book.begun("slow") == 2).await;
    let ledger = run.server(LEDGER).unwrap();
    let ending = tokio::spawn(async move { run.end().await });
    until("nothing is let in any more", || ledger.session().is_some()).await;
    tokio::task::yield_now().await;
    let error = ledger.call("echo", json!({})).await.unwrap_err();
    assert_eq!(error.code().word(), "run-ended", "{error:?}");
    assert_eq!(error.delivery(), Delivery::Unsent);
    pass(secs(6)).await;
    ending.await.unwrap();
    let error = long.await.unwrap().unwrap_err();
    assert_eq!(error.code().word(), "run-ended", "{error:?}");
    assert_eq!(error.delivery(), Delivery::Unknown);
    until("the server heard of it", || {
        book.received("notifications/cancelled") == 1
    })
    .await;
    assert_eq!(book.received("DELETE"), 2);
    world.finish().await;
}

/// A50: thousands of runs leave nothing behind.
#[tokio::test]
async fn many_runs_leave_nothing_behind() {
    let world = World::new(Personality::legacy());
    for round in 0..20 {
        let runs = (0..25).map(|_| {
            world.warm.run(async |run| {
                let ledger = run.server(LEDGER).unwrap();
                for number in 1..=5 {
                    assert_eq!(count(&ledger).await, number);
                }
            })
        });
        join_all(runs).await;
        let seen = world.warm.snapshot();
        assert!(seen.sessions.is_empty() && seen.runs.is_empty(), "{round}");
        assert_eq!(world.server.counts().open_sessions, 0);
    }
    assert_eq!(world.server.counts().sessions, 500);
    world.finish().await;
}

/// A87, P76, reliability P25, reliability P27: a close lets nothing in, waits for the grace, and is over in
/// time though servers do not answer.
#[tokio::test]
async fn a_close_is_over_in_time() {
    let world = World::new(Personality::legacy());
    let run = world.warm.begin();
    count(&run.server(LEDGER).unwrap()).await;
    let short = run.server(LEDGER).unwrap().call("slow", json!({"ms": 300}));
    let short = tokio::spawn(short.into_future());
    let book = world.server.ledger().clone();
    until("it is under way", || book.begun("slow") == 1).await;
    let silence = Fault::Silence(Moment::BeforeExecuting);
    world
        .server
        .inject(Rule::new(silence).on("DELETE").always());
    let closing = world.warm.clone();
    let closing = tokio::spawn(async move { closing.close().await });
    tokio::task::yield_now().await;
    let error = payment(&world.ledger(), "late").await.unwrap_err();
    assert!(
        ["draining", "closed"].contains(&error.code().word()),
        "{error:?}"
    );
    assert_eq!(error.delivery(), Delivery::Unsent);
    short.await.unwrap().unwrap().ok().unwrap();
    let began = Instant::now();
    closing.await.unwrap();
    assert!(began.elapsed() < secs(15), "{:?}", began.elapsed());
    let error = payment(&world.ledger(), "too late").await.unwrap_err();
    assert_eq!(error.code().word(), "closed", "{error:?}");
    assert_eq!(world.server.ledger().executions("pay"), 0);
    world.server.control().clear();
    world.server.control().forget_sessions();
    drop(run);
    world.finish().await;
}

/// A130, A131: what was closed can be closed again and begun again, and engines close alone.
#[tokio::test]
async fn what_was_ended_can_be_ended_again_and_begun_again() {
    let world = World::new(Personality::legacy());
    for _ in 0..2 {
        let run = world.warm.named("again").unwrap();
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
        warm.named("kept").unwrap().detach();
        let run = warm.join("kept").unwrap();
        count(&run.server(LEDGER).unwrap()).await;
    }
    let broken = Fault::Reply(Canned::new(500, "cannot"));
    world.server.inject(Rule::new(broken).on("DELETE"));
    join_all(others.iter().map(Warmline::close)).await;
    assert_eq!(world.server.counts().open_sessions, 1);
    world.server.control().forget_sessions();
    join_all(others.iter().map(Warmline::close)).await;
    drop(others);
    world.finish().await;
}

/// A28, A133, P11: an opening that fails at any step leaves nothing that blocks the next.
#[tokio::test]
async fn a_failed_opening_leaves_nothing_at_any_step() {
    use warmline_testkit::{CutAt, End};
    let faults = [
        Fault::Reply(Canned::new(500, "no")),
        Fault::Reply(Canned::new(200, "no JSON").json()),
        Fault::Cut(CutAt::BeforeExecuting, End::Rst),
        Fault::Cut(CutAt::InHead, End::Fin),
        Fault::Version("1999-01-01".to_owned()),
        Fault::SessionId("not a good id\u{7f}".to_owned()),
    ];
    for (number, fault) in faults.into_iter().enumerate() {
        let world = World::new(Personality::legacy());
        world
            .server
            .inject(Rule::new(fault).on("initialize").always());
        let run = world.warm.begin();
        let ledger = run.server(LEDGER).unwrap();
        let error = ledger.call("counter", json!({})).await.unwrap_err();
        assert_eq!(error.delivery(), Delivery::Unsent, "{number}: {error:?}");
        assert!(world.warm.snapshot().sessions.is_empty(), "{number}");
        world.server.control().clear();
        // What the server opened and nobody learned of is not ours to end.
        world.server.control().forget_sessions();
        assert_eq!(count(&ledger).await, 1, "{number}");
        run.end().await;
        world.finish().await;
    }
}

/// A87, P76, reliability P25: a close waits for nothing that is only being opened, and for callers
/// who wait for that no longer than their grace.
#[tokio::test]
async fn a_close_does_not_wait_for_openings() {
    for (callers, most) in [(0, secs(6)), (1, secs(12))] {
        let world = World::with(Personality::legacy(), |server| server.spares(2));
        let run = world.warm.begin();
        count(&run.server(LEDGER).unwrap()).await;
        let silence = Fault::Silence(Moment::BeforeExecuting);
        world
            .server
            .inject(Rule::new(silence).on("initialize").always());
        // Those whose sessions are opened, while others are opened ahead.
        let others = (0..callers).map(|_| {
            let run = world.warm.begin();
            let call = run.server(LEDGER).unwrap().call("counter", json!({}));
            (run, tokio::spawn(call.into_future()))
        });
        let others: Vec<_> = others.collect();
        let book = world.server.ledger().clone();
        until("openings are under way", || {
            book.received("initialize") >= 2
        })
        .await;
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
        world.server.control().clear();
        world.finish().await;
        assert!(began.elapsed() < most + secs(4), "{:?}", began.elapsed());
    }
}

/// A45: the end of a run waits for no opening that nobody waits for.
#[tokio::test]
async fn the_end_of_a_run_does_not_wait_for_an_opening() {
    let world = World::new(Personality::legacy());
    let run = world.warm.begin();
    let ledger = run.server(LEDGER).unwrap();
    count(&ledger).await;
    world.server.control().forget_sessions();
    let silence = Fault::Silence(Moment::BeforeExecuting);
    world
        .server
        .inject(Rule::new(silence).on("initialize").always());
    let given_up = ledger.call("counter", json!({}));
    let given_up = given_up.timeout(Duration::from_millis(300)).await;
    assert_eq!(given_up.unwrap_err().delivery(), Delivery::Unsent);
    let began = Instant::now();
    run.end().await;
    assert!(began.elapsed() < secs(8), "{:?}", began.elapsed());
    world.server.control().clear();
    world.finish().await;
}

/// A87, reliability P25: a first contact that nobody waits for ends with the engine.
#[tokio::test]
async fn a_first_contact_ends_with_the_engine() {
    let world = World::new(Personality::legacy());
    let silence = Fault::Silence(Moment::BeforeExecuting);
    world.server.inject(Rule::new(silence).always());
    let waiting = world.ledger().call("counter", json!({}));
    let waiting = tokio::spawn(waiting.into_future());
    let book = world.server.ledger().clone();
    until("it is being met", || !book.methods().is_empty()).await;
    let began = Instant::now();
    world.warm.close().await;
    let error = waiting.await.unwrap().unwrap_err();
    assert_eq!(error.delivery(), Delivery::Unsent, "{error:?}");
    until("it is left alone", || {
        world.server.counts().open_connections == 0
    })
    .await;
    assert!(began.elapsed() < secs(8), "{:?}", began.elapsed());
    world.server.control().clear();
    world.finish().await;
}
