//! Ending keys, draining, and what is left.

use std::time::Duration;

use warmline_core::code::Code;

use super::fake::{FINE, Setup, soon};
use super::*;

/// A38, A42, A43: the end of a run closes its sessions and touches no other.
#[tokio::test(start_paused = true)]
async fn the_end_of_a_run_closes_its_sessions_and_no_others() {
    let world = World::new();
    let (one, two) = (world.run("a", 1), world.run("a", 2));
    for cell in [&one, &two] {
        world.lease(cell).await.unwrap().settle(FINE);
    }
    world.pool.end(&one, Why::RunEnded);
    assert_eq!(world.pool.cells().len(), 1, "it left the table first");
    let census = world.settle().await;
    assert_eq!((census.present.counts.idle, census.rooms), (1, 1));
    assert_eq!(world.fake.ledger().closed, [(1, Why::RunEnded)]);
    let trouble = world.lease(&one).await.err().unwrap();
    assert_eq!(trouble.code, Code::RunEnded);
    assert_eq!(world.lease(&two).await.unwrap().session().id, 2);
}

/// A45: twenty sessions that take a second each are closed side by side.
#[tokio::test(start_paused = true)]
async fn twenty_slow_sessions_are_closed_side_by_side() {
    let world = World::new();
    world.server("a", |server| server.close_takes = Duration::from_secs(1));
    let cells: Vec<_> = (1..=20).map(|run| world.run("a", run)).collect();
    for cell in &cells {
        world.lease(cell).await.unwrap().settle(FINE);
    }
    let began = clock::now();
    world.pool.end_all_of(&cells, Why::RunEnded, soon()).await;
    assert_eq!(began.elapsed().as_secs(), 1);
    assert_eq!(world.fake.ledger().live.len(), 0);
    world.settle().await;
}

/// A47: what is in use is waited for, and cut when the time is over; nobody hangs.
#[tokio::test(start_paused = true)]
async fn what_is_in_use_is_waited_for_and_then_cut() {
    let world = World::new();
    let (short, long) = (world.run("a", 1), world.run("a", 2));
    let (done, stuck) = (
        world.lease(&short).await.unwrap(),
        world.lease(&long).await.unwrap(),
    );
    clock::spawn("done", async move {
        clock::sleep(Duration::from_secs(2)).await;
        done.settle(FINE);
    });
    let began = clock::now();
    let by = clock::after(Duration::from_secs(12));
    world
        .pool
        .end_all_of(&[short, long], Why::RunEnded, by)
        .await;
    assert!(began.elapsed() < Duration::from_secs(12));
    assert_eq!(world.fake.ledger().live.len(), 0);
    drop(stuck);
    assert_eq!(world.settle().await.present, Present::default());
}

/// Waiters are told when their run ends, also those whose session is being opened.
#[tokio::test(start_paused = true)]
async fn waiters_are_told_when_their_run_ends() {
    let world = World::new();
    let cell = world.run("a", 1);
    let asked = world.ask(&cell);
    clock::sleep(Duration::from_millis(5)).await;
    world.pool.end(&cell, Why::RunEnded);
    let trouble = asked.await.unwrap().err().unwrap();
    assert_eq!(trouble.code, Code::RunEnded);
    let census = world.settle().await;
    assert_eq!((census.present, census.rooms), (Present::default(), 0));
    assert_eq!(
        world.fake.ledger().closed,
        [(1, Why::RunEnded)],
        "opened all the same"
    );
}

/// A87, reliability P25, reliability I37: a drain lets calls end, closes everything, and nothing is taken
/// after it.
#[tokio::test(start_paused = true)]
async fn a_drain_ends_everything_in_time() {
    let world = World::new();
    world.server("a", |server| server.spares = 2);
    let cell = world.run("a", 1);
    let lease = world.lease(&cell).await.unwrap();
    drop(world.lease(&world.shared("b", 1)).await.unwrap());
    let (pool, by) = (world.pool.clone(), clock::after(Duration::from_secs(24)));
    let drained = clock::spawn("drain", async move { pool.drain(by).await });
    clock::sleep(Duration::from_secs(3)).await;
    let trouble = world.lease(&cell).await.err().unwrap();
    assert_eq!(trouble.code, Code::Draining);
    assert_eq!(world.once("a").await.err().unwrap().code, Code::Draining);
    assert!(!drained.is_finished(), "a call is under way");
    lease.settle(FINE);
    drained.await.unwrap();
    let census = world.settle().await;
    assert_eq!((census.present, census.rooms), (Present::default(), 0));
    assert_eq!(world.lease(&cell).await.err().unwrap().code, Code::Closed);
    assert_eq!(world.once("a").await.err().unwrap().code, Code::Closed);
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
    assert_eq!(world.pool.census().present.counts.sessions(), 0);
    assert_eq!(
        world.pool.census().present.closing,
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
    for cell in [&run, &other] {
        world.lease(cell).await.unwrap().settle(FINE);
    }
    let of_a = |setup: &Setup| setup.server == "a";
    world.pool.end_shared_of(of_a, Why::Reloaded);
    assert_eq!(world.settle().await.present.counts.retiring, 1);
    held.settle(FINE);
    world.settle().await;
    assert_eq!(world.fake.ledger().closed, [(1, Why::Reloaded)]);
    assert!(world.pool.holds(run.key()) && !world.pool.holds(shared.key()));
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
    let session = Arc::downgrade(lease.session());
    drop(world);
    lease.settle(FINE);
    assert!(session.upgrade().is_none());
}
