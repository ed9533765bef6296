//! The cancel sweep: every operation is polled some times and dropped, at every number of polls,
//! and nothing is left behind.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use super::fake::{FINE, soon};
use super::*;

/// Polls a future so many times, then drops it. True if it was done before.
async fn drop_after<F: Future>(polls: u32, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut polled = 0;
    poll_fn(|context| {
        if polled == polls {
            return Poll::Ready(None);
        }
        polled += 1;
        future.as_mut().poll(context).map(Some)
    })
    .await
}

/// Drops an operation at every point it can be dropped at, in a world of its own each time.
async fn sweep<F>(
    operation: impl Fn(Arc<World>) -> F,
    prepare: impl AsyncFn(&World),
    after: impl AsyncFn(&World),
) where
    F: Future,
{
    for polls in 0..100 {
        let world = Arc::new(World::with(EngineLimits {
            sessions: 4,
            ..EngineLimits::default()
        }));
        prepare(&world).await;
        let done = drop_after(polls, operation(Arc::clone(&world)))
            .await
            .is_some();
        after(&world).await;
        let census = world.settle().await;
        assert_eq!(census.gauges.counts.leases, 0, "after {polls} polls");
        assert_eq!(census.gauges.counts.waiting, 0, "after {polls} polls");
        let held = census.gauges.counts.sessions();
        assert_eq!(census.session_permits, held, "after {polls} polls");
        if done {
            assert!(polls > 0);
            return;
        }
    }
    panic!("it is never done");
}

/// A26, A85, reliability P26, reliability I16: a lease that has to be opened first.
#[tokio::test(start_paused = true)]
async fn a_lease_dropped_while_it_is_opened_leaves_nothing() {
    let operation = |world: Arc<World>| async move {
        drop(world.lease(&world.run("a", 1)).await);
    };
    sweep(operation, async |_| {}, async |_| {}).await;
}

#[tokio::test(start_paused = true)]
async fn a_lease_dropped_while_it_is_there_leaves_nothing() {
    let operation = |world: Arc<World>| async move {
        let lease = world.lease(&world.run("a", 1)).await;
        clock::sleep(Duration::from_millis(1)).await;
        drop(lease);
    };
    let prepare = async |world: &World| {
        world.lease(&world.run("a", 1)).await.unwrap().settle(FINE);
    };
    sweep(operation, prepare, async |_| {}).await;
}

/// A waiter that is dropped at any point, also after its session was handed to it, blocks nobody.
#[tokio::test(start_paused = true)]
async fn a_waiter_dropped_at_any_point_blocks_nobody() {
    let operation = |world: Arc<World>| async move {
        let entry = world.one_each("a", 1, 1);
        let held = world.lease(&entry).await.unwrap();
        let first = world.lease(&entry);
        let second = async {
            clock::sleep(Duration::from_millis(3)).await;
            held.settle(FINE);
        };
        drop(tokio::join!(first, second));
    };
    let after = async |world: &World| {
        let entry = world.one_each("a", 1, 1);
        world.lease(&entry).await.unwrap().settle(FINE);
    };
    sweep(operation, async |_| {}, after).await;
}

#[tokio::test(start_paused = true)]
async fn a_lease_dropped_while_it_is_checked_leaves_nothing() {
    let operation = |world: Arc<World>| async move {
        drop(world.lease(&world.run("a", 1)).await);
    };
    let prepare = async |world: &World| {
        world.lease(&world.run("a", 1)).await.unwrap().settle(FINE);
        clock::sleep(Duration::from_secs(60)).await;
    };
    sweep(operation, prepare, async |_| {}).await;
}

#[tokio::test(start_paused = true)]
async fn a_lease_dropped_while_it_waits_for_room_leaves_nothing() {
    let operation = |world: Arc<World>| async move {
        drop(world.lease(&world.shared("a", 9)).await);
    };
    let prepare = async |world: &World| {
        for who in 0..4 {
            let lease = world.lease(&world.shared("a", who)).await.unwrap();
            let settle = async move {
                clock::sleep(Duration::from_millis(50)).await;
                lease.settle(FINE);
            };
            drop(clock::spawn("settle", settle));
        }
    };
    let after = async |_: &World| clock::sleep(Duration::from_millis(100)).await;
    sweep(operation, prepare, after).await;
}

#[tokio::test(start_paused = true)]
async fn a_single_call_dropped_at_any_point_leaves_nothing() {
    for spares in [0, 1] {
        let operation = |world: Arc<World>| async move {
            let lease = world.once("a").await;
            clock::sleep(Duration::from_millis(1)).await;
            drop(lease);
        };
        let prepare = async |world: &World| {
            world.server("a", |server| server.spares = spares);
            world.once("a").await.unwrap().settle(FINE);
        };
        sweep(operation, prepare, async |_| {}).await;
    }
}

/// reliability P26: ending and draining may be dropped too; what they began goes on.
#[tokio::test(start_paused = true)]
async fn an_end_dropped_at_any_point_ends_all_the_same() {
    let operation = |world: Arc<World>| async move {
        let cells = [world.run("a", 1), world.run("a", 2)];
        let by = clock::after(Duration::from_secs(5));
        world
            .pool
            .end_entries(&cells, EndReason::RunEnded, by)
            .await;
    };
    let prepare = async |world: &World| {
        let held = world.lease(&world.run("a", 1)).await.unwrap();
        world.lease(&world.run("a", 2)).await.unwrap().settle(FINE);
        let settle = async move {
            clock::sleep(Duration::from_millis(20)).await;
            held.settle(FINE);
        };
        drop(clock::spawn("settle", settle));
    };
    let after = async |_: &World| clock::sleep(Duration::from_millis(100)).await;
    sweep(operation, prepare, after).await;
}

#[tokio::test(start_paused = true)]
async fn a_drain_dropped_at_any_point_can_be_done_again() {
    let operation = |world: Arc<World>| async move {
        world.pool.drain(soon()).await;
    };
    let prepare = async |world: &World| {
        world.server("a", |server| server.spares = 1);
        let held = world.lease(&world.run("a", 1)).await.unwrap();
        let settle = async move {
            clock::sleep(Duration::from_millis(20)).await;
            held.settle(FINE);
        };
        drop(clock::spawn("settle", settle));
    };
    let after = async |world: &World| {
        world.pool.drain(soon()).await;
        assert_eq!(world.pool.count().gauges, PoolGauges::default());
    };
    sweep(operation, prepare, after).await;
}
