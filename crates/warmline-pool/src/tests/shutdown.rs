//! Ending keys, draining, and what is left.

use std::time::Duration;

use warmline_core::error::code::Code;

use super::fake::{FINE, Setup};
use super::*;

/// Waiters are told when their run ends, also those whose session is being opened.
#[tokio::test(start_paused = true)]
async fn waiters_are_told_when_their_run_ends() {
    let world = World::new();
    let entry = world.run("a", 1);
    let asked = world.ask(&entry);
    clock::sleep(Duration::from_millis(5)).await;
    world.pool.end_entry(&entry, EndReason::RunEnded);
    let diagnostic = asked.await.unwrap().err().unwrap();
    assert_eq!(diagnostic.code, Code::RunEnded);
    let census = world.settle().await;
    assert_eq!(
        (census.gauges, census.session_permits),
        (PoolGauges::default(), 0)
    );
    assert_eq!(
        world.fake.ledger().closed,
        [(1, EndReason::RunEnded)],
        "opened all the same"
    );
}

/// A87: also when calls do not end and servers do not answer.
#[tokio::test(start_paused = true)]
async fn a_drain_ends_when_its_time_is_over() {
    let world = World::new();
    world.server("slow", |server| {
        server.open_takes = Duration::from_secs(600);
    });
    world.server("mute", |server| {
        server.close_takes = Duration::from_secs(600);
    });
    let held = world.lease(&world.run("a", 1)).await.unwrap();
    drop(world.lease(&world.run("mute", 1)).await.unwrap());
    let opening = world.ask(&world.run("slow", 1));
    clock::sleep(Duration::from_millis(1)).await;
    let began = clock::now();
    world
        .pool
        .drain(clock::after(Duration::from_secs(24)))
        .await;
    assert_eq!(began.elapsed().as_secs(), 24);
    assert!(opening.await.unwrap().is_err());
    assert_eq!(world.pool.count().gauges.counts.sessions(), 0);
    assert_eq!(
        world.pool.count().gauges.closing,
        1,
        "the one that does not answer"
    );
    drop(held);
    world.settle().await;
}

/// reliability P28: a reloaded server ends its shared sessions after use, and leaves those of runs.
#[tokio::test(start_paused = true)]
async fn a_reload_ends_the_shared_sessions_of_a_server() {
    let world = World::new();
    let (run, shared, other) = (
        world.run("a", 1),
        world.shared("a", 1),
        world.shared("b", 1),
    );
    let held = world.lease(&shared).await.unwrap();
    for entry in [&run, &other] {
        world.lease(entry).await.unwrap().settle(FINE);
    }
    let of_a = |setup: &Setup| setup.server == "a";
    world.pool.end_shared_with_setup(of_a, EndReason::Reloaded);
    assert_eq!(world.settle().await.gauges.counts.retiring, 1);
    held.settle(FINE);
    world.settle().await;
    assert_eq!(world.fake.ledger().closed, [(1, EndReason::Reloaded)]);
    assert!(world.pool.has_sessions(&run.key) && !world.pool.has_sessions(&shared.key));
    assert_eq!(world.lease(&shared).await.err().unwrap().code, Code::Closed);
    assert!(
        world.lease(&world.shared("a", 1)).await.is_ok(),
        "a new cell for the same key"
    );
}

/// A pool whose last handle is dropped leaves nothing behind, although leases are out.
#[tokio::test(start_paused = true)]
async fn a_dropped_pool_leaves_nothing_behind() {
    let World { fake, pool } = World::new();
    let world = World {
        fake: Arc::clone(&fake),
        pool,
    };
    let lease = world.lease(&world.run("a", 1)).await.unwrap();
    drop(world.lease(&world.run("a", 2)).await.unwrap());
    let session = Arc::downgrade(&lease.session);
    drop(world);
    lease.settle(FINE);
    assert!(session.upgrade().is_none());
}
