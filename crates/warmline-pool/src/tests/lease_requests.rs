//! Asking for a session: one opening for all, errors for those who waited, nobody in the way of
//! another.

use std::time::Duration;

use warmline_core::error::code::Code;

use super::fake::{FINE, LEFT_STATE};
use super::*;

/// A26: also when all who waited leave; what was opened serves the next.
#[tokio::test(start_paused = true)]
async fn an_opening_that_all_left_serves_the_next() {
    let world = World::new();
    let entry = world.run("a", 1);
    let first = world.ask(&entry);
    clock::sleep(Duration::from_millis(5)).await;
    first.abort();
    world.settle().await;
    let lease = world.lease(&entry).await.unwrap();
    assert_eq!(
        (lease.kind(), world.fake.ledger().opens),
        (AcquireKind::Hit, 1)
    );
}

/// reliability I35: an opening that panics is told like one that failed.
#[tokio::test(start_paused = true)]
async fn an_opening_that_panics_is_told() {
    let world = World::new();
    world.server("a", |server| server.panics = true);
    let diagnostic = world.lease(&world.run("a", 1)).await.err().unwrap();
    assert_eq!(diagnostic.code, Code::Bug);
    let census = world.settle().await;
    assert_eq!(
        (census.gauges.counts.sessions(), census.session_permits),
        (0, 0)
    );
}

/// A86: a caller whose time is over hears that the opening is still under way.
#[tokio::test(start_paused = true)]
async fn a_caller_hears_when_an_opening_takes_too_long() {
    let world = World::new();
    world.server("a", |server| server.open_takes = Duration::from_secs(60));
    let diagnostic = world.lease(&world.run("a", 1)).await.err().unwrap();
    assert_eq!(diagnostic.code, Code::Deadline);
    assert_eq!(world.settle().await.gauges.counts.idle, 1);
}

/// A session whose driver gave it up is given to nobody, and its caller sees no error.
#[tokio::test(start_paused = true)]
async fn a_dead_session_is_given_to_nobody() {
    let world = World::new();
    for entry in [world.run("a", 1), world.one_each("b", 1, 2)] {
        let lease = world.lease(&entry).await.unwrap();
        let (dead, id) = (Arc::clone(&lease.session), lease.session.id);
        lease.settle(LEFT_STATE);
        dead.die();
        let lease = world.lease(&entry).await.unwrap();
        assert_ne!(lease.session.id, id);
        assert!(lease.unreported_loss().is_some());
        lease.session.die();
        lease.settle(LEFT_STATE);
        let lease = world.lease(&entry).await.unwrap();
        assert_eq!(
            lease.unreported_loss().map(|loss| loss.generation.number()),
            Some(2),
            "answered, then died"
        );
        drop(lease);
    }
    world.settle().await;
}

/// DESIGN 2: when a server lost sessions, the others are checked before their next use.
#[tokio::test(start_paused = true)]
async fn sessions_of_a_server_that_lost_some_are_checked() {
    let world = World::new();
    let (one, two, other) = (world.run("a", 1), world.run("a", 2), world.run("b", 1));
    for entry in [&one, &two, &other] {
        world.lease(entry).await.unwrap().settle(FINE);
    }
    let place = &one.key.target;
    world.pool.record_server_loss(&place.server, place.revision);
    for entry in [&one, &two, &other, &one] {
        world.lease(entry).await.unwrap().settle(FINE);
    }
    assert_eq!(
        world.fake.ledger().checks,
        2,
        "once each, and not those of another server"
    );
}
