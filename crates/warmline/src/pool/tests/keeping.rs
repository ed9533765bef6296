//! The keeper's round: ages, keeping alive, forgetting.

use std::time::Duration;

use super::fake::{LEFT_STATE, SCOPE, SHARED, key};
use super::*;
use warmline_core::key::Transport;

/// A79, A80: what rests too long or is too old is closed by the sweep, with nobody asking.
#[tokio::test(start_paused = true)]
async fn the_sweep_closes_what_is_too_old() {
    let world = World::new();
    for who in 0..50 {
        let policy = CellPolicy {
            max_age: Some(Duration::from_secs(300)),
            ..SHARED
        };
        let cell = world.cell(&key("a", who, SCOPE, Transport::Http), policy);
        drop(world.lease(&cell).await.unwrap());
    }
    let mut left = Vec::new();
    for _ in 0..8 {
        clock::sleep(Duration::from_secs(10)).await;
        world.pool.sweep().await;
        left.push(world.settle().await.present.counts.idle);
    }
    assert!(
        left.iter().all(|idle| *idle == 50),
        "not before 270 s: {left:?}"
    );
    clock::sleep(Duration::from_secs(200)).await;
    world.pool.sweep().await;
    let some = world.settle().await.present.counts.idle;
    assert!(0 < some && some < 50, "they do not end together: {some}");
    clock::sleep(Duration::from_secs(60)).await;
    world.pool.sweep().await;
    assert_eq!(world.settle().await.present.counts.idle, 0);
}

/// A81: 100 000 rotating keys leave nothing behind.
#[tokio::test(start_paused = true)]
async fn empty_keys_are_forgotten() {
    let world = World::new();
    let cell = world.shared("a", 1);
    drop(world.lease(&cell).await.unwrap());
    world.pool.end(&cell, Why::Evicted);
    for who in 0..100 {
        for server in 0..1_000 {
            world.shared(&format!("server-{server}"), who);
        }
    }
    let stale = world.shared("server-7", 7);
    assert_eq!(world.pool.stats().present.keys, 100_000);
    clock::sleep(Duration::from_secs(600)).await;
    world.pool.sweep().await;
    assert_eq!(world.settle().await.present.keys, 0);
    assert_eq!(world.pool.stats().forgotten, 100_000);
    assert!(
        world.lease(&stale).await.is_ok(),
        "whoever still had it in hand is served"
    );
    assert_eq!(world.pool.stats().present.keys, 1);
}

/// DESIGN 5.2: the resting session of a live run is kept alive; a verdict ends it.
#[tokio::test(start_paused = true)]
async fn resting_sessions_of_runs_are_kept_alive() {
    let world = World::new();
    let cell = world.run("a", 1);
    cell.reconfigure(CellPolicy {
        keep_alive: Some(Duration::from_secs(120)),
        ..cell.policy()
    });
    world.lease(&cell).await.unwrap().settle(LEFT_STATE);
    assert!(world.pool.sweep().await.is_empty());
    for (health, alive) in [
        (Health::Alive, true),
        (Health::Unreachable, true),
        (Health::Gone, false),
    ] {
        world.server("a", |server| server.health = health);
        clock::sleep(Duration::from_secs(140)).await;
        let due = world.pool.sweep().await;
        assert_eq!(due.len(), 1);
        for one in due {
            one.run().await;
        }
        assert_eq!(
            world.settle().await.present.counts.idle == 1,
            alive,
            "{health:?}"
        );
    }
    world.server("a", |server| server.health = Health::Alive);
    assert!(world.lease(&cell).await.unwrap().loss().is_some());
}

/// What is seen of sessions from outside.
#[tokio::test(start_paused = true)]
async fn sessions_are_seen_with_their_times() {
    let world = World::new();
    let cell = world.run("a", 1);
    let lease = world.lease(&cell).await.unwrap();
    clock::sleep(Duration::from_secs(5)).await;
    let seen = cell.sessions();
    let [one] = &seen[..] else {
        panic!("one session");
    };
    assert_eq!(
        (one.leases, one.generation.number(), one.session.id),
        (1, 1, 1)
    );
    assert_eq!(world.pool.tick().since(one.opened).as_secs(), 5);
    assert!(one.expires.is_none() && one.used <= world.pool.tick());
    drop(lease);
}

/// DESIGN 11: what the pool itself keeps for a held session.
#[test]
fn a_cell_is_small() {
    let bytes = size_of::<CellOf<Fake>>() + size_of::<Key>() + 16;
    assert!(bytes <= 640, "{bytes}");
}
