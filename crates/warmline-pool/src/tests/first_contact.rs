//! First contacts: what they open has room like any other session.

use std::time::Duration;

use warmline_core::error::code::Code;
use warmline_core::policy::EngineLimits;
use warmline_core::pool_key::{Digest, KeyOwner, RunId, Transport};

use super::fake::{FINE, FakeSession, SCOPE};
use super::*;

fn nobodys(server: &str) -> Arc<PoolKey> {
    let key = fake::key(server, 0, SCOPE, Transport::Http);
    let place = key.target.clone();
    Arc::new(PoolKey::new(
        place,
        KeyOwner::AnyIdentity,
        key.credential,
        SCOPE,
    ))
}

impl World {
    fn few(sessions: u32) -> Self {
        Self::with(EngineLimits {
            sessions,
            ..EngineLimits::default()
        })
    }

    /// Makes a first contact, and lays its session on the shelf.
    async fn meet(&self, server: &str, id: u32, run: Option<RunId>) -> Result<(), Code> {
        let by = clock::after(Duration::from_millis(100));
        let room = self
            .pool
            .permit_for_first_contact(&nobodys(server), None, by)
            .await;
        let room = room.map_err(|diagnostic| diagnostic.code)?;
        self.fake.ledger.lock().live.insert(id);
        let session = Arc::new(FakeSession {
            id,
            dead: false.into(),
        });
        let (shelf, setup) = self.shelf(server);
        let met = FirstContactInfo {
            permit: room,
            run,
            ..FirstContactInfo::default()
        };
        self.pool
            .spares()
            .add_first_contact(&shelf, &setup, session, met);
        Ok(())
    }
}

/// reliability I22: what a first contact opened passes its room on to the key that takes it.
#[tokio::test(start_paused = true)]
async fn a_first_contact_passes_its_room_on() {
    let world = World::few(1);
    world.meet("a", 77, None).await.unwrap();
    assert_eq!(world.pool.count().session_permits, 1, "on the shelf");
    let entry = world.run("a", 1);
    let lease = world.lease(&entry).await.unwrap();
    assert_eq!(
        (lease.session.id, world.pool.count().session_permits),
        (77, 1)
    );
    assert_eq!(world.meet("b", 78, None).await, Err(Code::PoolFull));
    lease.settle(FINE);
    world.pool.end_entry(&entry, EndReason::RunEnded);
    assert_eq!(world.settle().await.session_permits, 0);
}

/// A spare is wanted as soon as the session of a first contact was taken, not at the next sweep.
#[tokio::test(start_paused = true)]
async fn a_first_contact_that_is_taken_makes_way_for_a_spare() {
    let world = World::new();
    world.server("a", |server| server.spares = 1);
    world.meet("a", 77, None).await.unwrap();
    let lease = world.lease(&world.run("a", 1)).await.unwrap();
    assert_eq!(lease.session.id, 77);
    assert_eq!(world.settle().await.gauges.spares, 1);
    lease.settle(FINE);
}

/// reliability I22: whoever needs room gets that of a first contact nobody came for, and that of
/// a shared session that rests.
#[tokio::test(start_paused = true)]
async fn room_is_made_of_first_contacts_that_nobody_came_for() {
    let world = World::few(1);
    world.meet("a", 77, None).await.unwrap();
    let lease = world.lease(&world.shared("b", 1)).await.unwrap();
    assert_eq!(world.fake.ledger().closed, [(77, EndReason::Evicted)]);
    lease.settle(FINE);
    world.meet("c", 78, None).await.unwrap();
    let census = world.settle().await;
    assert_eq!((census.session_permits, census.gauges.spares), (1, 1));
    assert_eq!(world.fake.ledger().most_live, 1);
}

/// reliability I22: an identity that has no room left does not take that of its first contact.
#[tokio::test(start_paused = true)]
async fn a_first_contact_gives_an_identity_no_more_than_its_own() {
    let world = World::with(EngineLimits {
        sessions_per_identity: 1,
        ..EngineLimits::default()
    });
    let held = world.lease(&world.run("a", 1)).await.unwrap();
    world.meet("b", 77, None).await.unwrap();
    let by = clock::after(Duration::from_millis(100));
    let full = world
        .pool
        .lease(
            &world.run("b", 1),
            LeaseMode::Shared,
            QueuePosition::Back,
            by,
        )
        .await;
    assert_eq!(full.err().unwrap().code, Code::PoolFull);
    assert_eq!(world.settle().await.session_permits, 1, "the one it has");
    held.settle(FINE);
}

/// What was opened for a run that has ended goes with it, and nobody else's.
#[tokio::test(start_paused = true)]
async fn what_first_contacts_opened_ends_with_its_run() {
    let world = World::new();
    let run = |number: u8| Some(RunId(Digest::new([number; 16])));
    world.meet("a", 77, run(1)).await.unwrap();
    world.meet("b", 78, run(2)).await.unwrap();
    world
        .pool
        .spares()
        .end_first_contacts_of_run(run(1).unwrap());
    assert_eq!(world.settle().await.session_permits, 1);
    assert_eq!(world.fake.ledger().closed, [(77, EndReason::RunEnded)]);
}

/// An opening that panics with a session in hand ends it.
#[tokio::test(start_paused = true)]
async fn an_opening_that_panics_leaves_no_session() {
    let world = World::new();
    world.server("a", |server| server.panics_moving_in = true);
    assert!(world.lease(&world.run("a", 1)).await.is_err());
    assert_eq!(world.settle().await.session_permits, 0);
    assert_eq!(world.fake.ledger().closed.len(), 1);
}
