//! The keeper's round: ages, keeping alive, forgetting.

use std::time::Duration;

use super::fake::LEFT_STATE;
use super::*;

/// DESIGN 5.2: the resting session of a live run is kept alive; a verdict ends it.
#[tokio::test(start_paused = true)]
async fn resting_sessions_of_runs_are_kept_alive() {
    let world = World::new();
    let entry = world.run("a", 1);
    entry.reconfigure(EntryPolicy {
        keep_alive: Some(Duration::from_secs(120)),
        ..entry.policy()
    });
    world.lease(&entry).await.unwrap().settle(LEFT_STATE);
    assert!(world.pool.sweep().await.is_empty());
    for (health, alive) in [
        (HealthCheckResult::Alive, true),
        (HealthCheckResult::Unreachable, true),
        (HealthCheckResult::Gone, false),
    ] {
        world.server("a", |server| server.health = health);
        clock::sleep(Duration::from_secs(140)).await;
        let due = world.pool.sweep().await;
        assert_eq!(due.len(), 1);
        for one in due {
            one.run().await;
        }
        assert_eq!(
            world.settle().await.gauges.counts.idle == 1,
            alive,
            "{health:?}"
        );
    }
    world.server("a", |server| server.health = HealthCheckResult::Alive);
    assert!(
        world
            .lease(&entry)
            .await
            .unwrap()
            .unreported_loss()
            .is_some()
    );
}

/// What is seen of sessions from outside.
#[tokio::test(start_paused = true)]
async fn sessions_are_seen_with_their_times() {
    let world = World::new();
    let entry = world.run("a", 1);
    let lease = world.lease(&entry).await.unwrap();
    clock::sleep(Duration::from_secs(5)).await;
    let seen = entry.sessions();
    let [one] = &seen[..] else {
        panic!("one session");
    };
    assert_eq!(
        (one.leases, one.generation.number(), one.session.id),
        (1, 1, 1)
    );
    assert_eq!(world.pool.tick().duration_since(one.opened_at).as_secs(), 5);
    assert!(one.expires_at.is_none() && one.last_used <= world.pool.tick());
    drop(lease);
}

/// DESIGN 11: what the pool itself keeps for a held session.
#[test]
fn a_cell_is_small() {
    let bytes = size_of::<PoolEntry<Fake>>() + size_of::<PoolKey>() + 16;
    assert!(bytes <= 640, "{bytes}");
}
