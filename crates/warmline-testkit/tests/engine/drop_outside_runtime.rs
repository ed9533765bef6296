//! Runs and engines that are dropped where nothing runs: what they had is ended all the same.

use crate::prelude::*;

use std::thread;

use futures_util::FutureExt;
use tokio::runtime::Runtime;
use warmline_engine::events::RunEnd;

/// A run with a session, in a runtime that goes on.
fn begun(runtime: &Runtime, world: &World) -> Run {
    runtime.block_on(async {
        let run = world.warm.begin_run();
        assert_eq!(count(&run.server(LEDGER).unwrap()).await, 1);
        run
    })
}

/// Runs something on a thread that belongs to no runtime.
fn elsewhere<T: Send>(work: impl FnOnce() -> T + Send) -> thread::Result<T> {
    thread::scope(|scope| scope.spawn(work).join())
}

fn waits_for(runtime: &Runtime, what: &str, holds: impl FnMut() -> bool) {
    runtime.block_on(until(what, holds));
}

/// Why runs ended, as it was told so far.
fn ends(told: &mut EventSubscription) -> Vec<RunEnd> {
    let mut ends = Vec::new();
    while let Some(heard) = told.next().now_or_never().flatten() {
        if let EventItem::Event(Event::RunEnded { why, .. }) = heard {
            ends.push(why);
        }
    }
    ends
}

/// A40, P73: a run that is dropped by a thread without a runtime, or by one that panics, is ended
/// by the engine's keeper: at once, and not when it rested too long.
#[test]
fn a_run_that_is_dropped_outside_of_every_runtime_is_ended() {
    let runtime = Runtime::new().unwrap();
    let world = World::new(Personality::legacy());
    let mut told = world.warm.events();
    let (quiet, panicked) = (begun(&runtime, &world), begun(&runtime, &world));
    elsewhere(|| drop(quiet)).unwrap();
    let thrown = elsewhere(move || {
        let _run = panicked;
        panic!("this thread was to fail");
    });
    thrown.unwrap_err();
    waits_for(&runtime, "both sessions are ended", || {
        world.server.counts().open_sessions == 0
    });
    waits_for(&runtime, "both runs are over", || {
        world.warm.snapshot().runs.is_empty()
    });
    assert_eq!(ends(&mut told), [RunEnd::Dropped; 2]);
    runtime.block_on(world.finish());
}

/// A run that never had a session is over as soon as it is dropped, with no keeper at all.
#[test]
fn a_run_without_sessions_is_over_as_soon_as_it_is_dropped() {
    let warm = Warmline::builder().build().unwrap();
    let mut told = warm.events();
    drop(warm.begin_run());
    assert!(warm.snapshot().runs.is_empty());
    assert_eq!(ends(&mut told), [RunEnd::Dropped]);
}

/// A runtime that ends with runs in it leaves none behind in an engine that goes on in another.
#[test]
fn an_engine_that_outlives_a_runtime_ends_the_runs_of_that_one() {
    let world = World::new(Personality::legacy());
    let first = Runtime::new().unwrap();
    let run = begun(&first, &world);
    first.spawn(async move {
        let _run = run;
        std::future::pending::<()>().await;
    });
    drop(first);
    let second = Runtime::new().unwrap();
    let _other = begun(&second, &world);
    waits_for(&second, "what the first runtime left is ended", || {
        world.server.counts().open_sessions == 1
    });
    waits_for(&second, "its run is over", || {
        world.warm.snapshot().runs.len() == 1
    });
    second.block_on(async {
        world.finish().await;
    });
}

/// P73: whoever drops the last handle of an engine outside of every runtime leaves nothing open.
#[test]
fn an_engine_that_is_dropped_outside_of_every_runtime_leaves_no_session() {
    let runtime = Runtime::new().unwrap();
    let world = World::new(Personality::legacy());
    let run = begun(&runtime, &world);
    let World { server, warm, .. } = world;
    elsewhere(move || drop((warm, run))).unwrap();
    waits_for(&runtime, "the session is ended", || {
        server.counts().open_sessions == 0
    });
    assert_eq!(server.violations(), Vec::<String>::new());
}

/// P75: a session does not depend on the runtime that opened it: when that is gone, another one goes
/// on with it.
#[test]
fn a_session_outlives_the_runtime_that_opened_it() {
    let world = World::new(Personality::legacy());
    let opener = Runtime::new().unwrap();
    let run = begun(&opener, &world);
    drop(opener);
    let next = Runtime::new().unwrap();
    next.block_on(async {
        let ledger = run.server(LEDGER).unwrap();
        assert_eq!((count(&ledger).await, count(&ledger).await), (2, 3));
        assert_eq!(world.handshakes(), 1);
        run.end().await;
        world.warm.close().await;
    });
    assert_eq!(world.server.counts().open_sessions, 0);
    assert_eq!(world.server.violations(), Vec::<String>::new());
}

/// A session whose closing dies with its runtime is counted as ended all the same.
#[test]
fn sessions_that_are_closed_as_their_runtime_ends_are_counted() {
    let world = World::new(Personality::legacy());
    let ending = Runtime::new().unwrap();
    let run = begun(&ending, &world);
    world.inject(FaultRule::new(Fault::Silence(FaultTiming::BeforeExecuting)).on_method("DELETE"));
    ending.spawn(async move { run.end().await });
    waits_for(&ending, "it is being closed", || {
        world.received("DELETE") > 0
    });
    ending.shutdown_timeout(Duration::from_secs(5));
    let staying = Runtime::new().unwrap();
    staying.block_on(async {
        world.warm.close().await;
        agrees(&world.warm.snapshot());
    });
}

/// Whose runtime ends while it does something for others leaves it to one of those who wait in
/// another: the first contact, and the opening of a session.
#[test]
fn the_baton_of_a_runtime_that_ends_is_passed_on() {
    let first_contact = ("server/discover", false, "calls_under_way");
    for (method, has_met, others) in [first_contact, ("initialize", true, "waiters")] {
        let world = World::new(Personality::legacy());
        let staying = Runtime::new().unwrap();
        if has_met {
            let run = begun(&staying, &world);
            staying.block_on(run.end());
        }
        let silence =
            FaultRule::new(Fault::Silence(FaultTiming::BeforeExecuting)).on_method(method);
        world.inject(silence.times(1));
        let (_run, ledger) = world.new_run();
        let asked = world.received(method);
        let ending = Runtime::new().unwrap();
        let first = ledger.clone();
        ending.spawn(async move { count(&first).await });
        waits_for(&staying, "the first one is on its way", || {
            world.received(method) > asked
        });
        let waiting: Vec<_> = (0..10)
            .map(|_| {
                let ledger = ledger.clone();
                staying.spawn(async move { count(&ledger).await })
            })
            .collect();
        waits_for(&staying, "the others wait for it", || {
            world.number(others, &[]) == 11
        });
        ending.shutdown_timeout(Duration::from_secs(5));
        let mut counts: Vec<i64> = staying.block_on(async {
            let mut counts = Vec::new();
            for one in waiting {
                counts.push(one.await.unwrap());
            }
            counts
        });
        counts.sort_unstable();
        assert_eq!(counts, (1..=10).collect::<Vec<_>>(), "{method}");
        staying.block_on(async {
            world.finish().await;
        });
    }
}
