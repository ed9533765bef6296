//! Spares, and sessions for one call.

use std::time::Duration;

use warmline_core::error::code::Reason;

use super::fake::{FINE, FakeSession, soon};
use super::*;

/// DESIGN 5.1: a session for one call is closed in the background when the call is over.
#[tokio::test(start_paused = true)]
async fn a_session_for_one_call_is_closed_after_it() {
    let world = World::new();
    let lease = world.once("a").await.unwrap();
    assert_eq!(
        (lease.kind(), world.pool.count().gauges.counts.retiring),
        (AcquireKind::SingleCall, 1)
    );
    lease.settle(FINE);
    let census = world.settle().await;
    assert_eq!(
        (census.gauges, census.session_permits),
        (PoolGauges::default(), 0)
    );
    assert_eq!(world.fake.ledger().closed, [(1, EndReason::RunEnded)]);
}

/// DESIGN 11: the next spare is opened after whoever took the last one had time to call. To start
/// a process keeps the thread busy that the call needs.
#[tokio::test(start_paused = true)]
async fn who_takes_a_spare_goes_before_the_next_one_is_opened() {
    let world = World::new();
    world.server("a", |server| server.spares = 1);
    world.once("a").await.unwrap().settle(FINE);
    assert_eq!(world.settle().await.gauges.spares, 1);
    let before = world.fake.ledger().opens;
    let lease = world.once("a").await.unwrap();
    clock::sleep(Duration::from_millis(20)).await;
    assert_eq!(world.fake.ledger().opens, before, "while the call runs");
    lease.settle(FINE);
    assert_eq!(world.settle().await.gauges.spares, 1);
    assert_eq!(world.fake.ledger().opens, before + 1);
}

/// A spare that rested is checked before it is given away, and a dead one costs no error.
#[tokio::test(start_paused = true)]
async fn a_spare_that_rested_is_checked() {
    let world = World::new();
    world.server("a", |server| server.spares = 1);
    world.once("a").await.unwrap().settle(FINE);
    world.settle().await;
    clock::sleep(Duration::from_secs(61)).await;
    world.once("a").await.unwrap().settle(FINE);
    assert_eq!(world.fake.ledger().checks, 1);
    world.settle().await;
    clock::sleep(Duration::from_secs(61)).await;
    world.server("a", |server| server.health = HealthCheckResult::Gone);
    assert!(world.lease(&world.run("a", 1)).await.is_ok());
    world.settle().await;
}

/// At most so many spares in all, and only for credentials that are used.
#[tokio::test(start_paused = true)]
async fn spares_have_a_limit_and_an_end() {
    let world = World::with(EngineLimits {
        max_spares: 3,
        ..EngineLimits::default()
    });
    for server in ["a", "b"] {
        world.server(server, |manner| manner.spares = 2);
        world.once(server).await.unwrap().settle(FINE);
    }
    assert_eq!(world.settle().await.gauges.spares, 3);
    clock::sleep(Duration::from_secs(30 * 60)).await;
    world.pool.sweep().await;
    assert_eq!(world.settle().await.gauges.spares, 0);
}

/// reliability P5, reliability P13, E20: openings of spares that fail stop nobody who asks, however
/// long it goes on; and where openings pause, spares are not tried.
#[tokio::test(start_paused = true)]
async fn spares_that_fail_stop_nobody_who_asks() {
    for (reason, most) in [(Reason::Unavailable, 12), (Reason::SingleSession, 2)] {
        let world = World::new();
        world.server("a", |server| server.spares = 1);
        let entry = world.run("a", 1);
        let lease = world.lease(&entry).await.unwrap();
        world.server("a", |server| server.open_fails = Some(reason));
        for _ in 0..360 {
            clock::sleep(Duration::from_secs(10)).await;
            world.pool.sweep().await;
        }
        let opens = world.fake.ledger().opens;
        assert!(opens <= most, "{reason:?}: {opens} in an hour");
        world.server("a", |server| server.open_fails = None);
        lease.settle(LeaseOutcome::SessionEnded(EndReason::Gone));
        assert!(world.lease(&entry).await.is_ok(), "{reason:?}: healed");
    }
    let world = World::new();
    world.server("a", |server| server.open_fails = Some(Reason::Dns));
    for run in 1..6 {
        assert!(world.lease(&world.run("a", run)).await.is_err());
    }
    world.server("a", |server| server.spares = 1);
    let shelf = world.shelf("a");
    world.pool.spares().record_use(&shelf.0, &shelf.1, 1);
    world.settle().await;
    assert_eq!(world.fake.ledger().opens, 5, "openings pause");
}

/// The session of a first contact serves the call that made it; one that nobody takes is closed.
#[tokio::test(start_paused = true)]
async fn the_session_of_a_first_contact_serves_its_caller() {
    let world = World::new();
    let (shelf, setup) = world.shelf("a");
    let contact = |id: u32| {
        let mut ledger = world.fake.ledger.lock();
        ledger.live.insert(id);
        Arc::new(FakeSession {
            id,
            dead: false.into(),
        })
    };
    world
        .pool
        .spares()
        .add_first_contact(&shelf, &setup, contact(77), FirstContactInfo::default());
    let entry = world.run("a", 1);
    let lease = world.lease(&entry).await.unwrap();
    assert_eq!((lease.session.id, world.fake.ledger().opens), (77, 0));
    lease.settle(FINE);

    world
        .pool
        .spares()
        .add_first_contact(&shelf, &setup, contact(78), FirstContactInfo::default());
    world
        .pool
        .spares()
        .add_first_contact(&shelf, &setup, contact(79), FirstContactInfo::default());
    assert_eq!(world.settle().await.gauges.spares, 1, "one is enough");
    clock::sleep(Duration::from_secs(30)).await;
    world.pool.sweep().await;
    assert_eq!(world.settle().await.gauges.spares, 0);
    assert_eq!(world.fake.ledger().live.len(), 1, "the run's");
}

/// A call that is given up while its session is opened leaves a spare where one is wanted, and
/// nothing elsewhere.
#[tokio::test(start_paused = true)]
async fn a_call_given_up_leaves_a_spare_or_nothing() {
    for (spares, left) in [(0, 0), (1, 1)] {
        let world = World::new();
        world.server("a", |server| {
            server.spares = spares;
            server.open_takes = Duration::from_secs(1);
        });
        let (shelf, setup) = world.shelf("a");
        let pool = world.pool.clone();
        let call = clock::spawn("once", async move {
            pool.lease_for_single_call(&shelf, &setup, fake::owner(0), soon())
                .await
        });
        clock::sleep(Duration::from_millis(500)).await;
        call.abort();
        let census = world.settle().await;
        assert_eq!((census.gauges.spares, census.session_permits), (left, 0));
    }
}
