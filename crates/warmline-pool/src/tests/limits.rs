//! Room, making room, and the breaker.

use std::time::Duration;

use warmline_core::error::code::{Code, Reason};
use warmline_core::pool_key::Transport;

use super::fake::{FINE, SCOPE, key, soon};
use super::*;

fn few(sessions: u32) -> World {
    World::with(EngineLimits {
        sessions,
        ..EngineLimits::default()
    })
}

/// A83: whoever finds a limit full behind another one has room made there too.
#[tokio::test(start_paused = true)]
async fn room_is_made_in_each_limit_that_stops_a_caller() {
    let world = World::with(EngineLimits {
        sessions_per_identity: 1,
        ..EngineLimits::default()
    });
    world.server("small", |server| server.max_sessions = Some(1));
    for entry in [world.shared("small", 2), world.shared("a", 1)] {
        world.lease(&entry).await.unwrap().settle(FINE);
    }
    assert!(world.lease(&world.shared("small", 1)).await.is_ok());
    let closed = world.fake.ledger().closed.clone();
    assert_eq!(closed, [(1, EndReason::Evicted), (2, EndReason::Evicted)]);
    assert_eq!(world.settle().await.session_permits, 1);
}

/// A83: where nothing can go, a caller waits for room and is told at its deadline.
#[tokio::test(start_paused = true)]
async fn sessions_of_runs_are_not_closed_for_room() {
    let world = few(1);
    world.lease(&world.run("a", 1)).await.unwrap().settle(FINE);
    let diagnostic = world.lease(&world.run("a", 2)).await.err().unwrap();
    assert_eq!(diagnostic.code, Code::PoolFull);
    assert!(
        diagnostic.message.contains("no room"),
        "{}",
        diagnostic.message
    );
    assert_eq!(world.fake.ledger().opens, 1, "nothing went out");
    let census = world.settle().await;
    assert_eq!(
        (census.session_permits, census.gauges.counts.opening),
        (1, 0)
    );
}

/// A session in use is not closed for room; as soon as it rests, it is.
#[tokio::test(start_paused = true)]
async fn a_shared_session_makes_room_as_soon_as_it_rests() {
    let world = few(1);
    let held = world.lease(&world.shared("a", 1)).await.unwrap();
    let waiter = world.ask(&world.shared("b", 1));
    clock::sleep(Duration::from_secs(1)).await;
    assert!(!waiter.is_finished());
    held.settle(FINE);
    assert_eq!(waiter.await.unwrap().unwrap().session.id, 2);
    assert_eq!(world.fake.ledger().closed, [(1, EndReason::Evicted)]);
    assert_eq!(world.fake.ledger().most_live, 1);
}

/// A85: a caller who leaves while its opening waits for room takes its place in line with it.
#[tokio::test(start_paused = true)]
async fn an_opening_that_waits_for_room_leaves_with_its_caller() {
    let world = few(1);
    let first = world.run("a", 1);
    let held = world.lease(&first).await.unwrap();
    let (gone, next) = (world.ask(&world.run("a", 2)), world.ask(&world.run("a", 3)));
    clock::sleep(Duration::from_millis(1)).await;
    gone.abort();
    clock::sleep(Duration::from_millis(1)).await;
    held.settle(FINE);
    world.pool.end_entry(&first, EndReason::RunEnded);
    assert!(next.await.unwrap().is_ok());
    assert_eq!(
        world.fake.ledger().opens,
        2,
        "nothing was opened for the one who left"
    );
}

/// reliability I14: a limit that was lowered while a session was opened counts.
#[tokio::test(start_paused = true)]
async fn a_limit_lowered_while_a_session_is_opened_counts() {
    let world = few(2);
    world.lease(&world.run("a", 1)).await.unwrap().settle(FINE);
    let asked = world.ask(&world.run("a", 2));
    clock::sleep(Duration::from_millis(5)).await;
    world.server("a", |server| server.max_sessions = Some(1));
    let diagnostic = asked.await.unwrap().err().unwrap();
    assert_eq!(diagnostic.code, Code::PoolFull);
    assert_eq!(world.settle().await.session_permits, 1);
    assert_eq!(world.fake.ledger().closed, [(2, EndReason::Evicted)]);
}

/// reliability P17: a thousand runs that begin at once do not open a thousand sessions at once.
#[tokio::test(start_paused = true)]
async fn openings_of_one_server_have_a_limit() {
    let world = World::new();
    world.server("a", |server| server.open_takes = Duration::from_secs(1));
    let asked: Vec<_> = (0..200)
        .map(|run| world.ask(&world.run("a", run)))
        .collect();
    clock::sleep(Duration::from_millis(500)).await;
    assert_eq!(world.fake.ledger().opens, 64);
    let began = clock::now();
    assert!(world.lease(&world.run("b", 1)).await.is_ok());
    assert!(
        began.elapsed() < Duration::from_millis(100),
        "another server"
    );
    for ask in asked {
        ask.await.unwrap().unwrap().settle(FINE);
    }
    assert_eq!(world.fake.ledger().opens, 201);
}

/// A90, A92: whoever has nothing to show to a server finds out nothing of it: the next one probes.
#[tokio::test(start_paused = true)]
async fn a_missing_credential_says_nothing_of_a_dead_server() {
    let world = World::new();
    let fails = |reason| world.server("a", |server| server.open_fails = Some(reason));
    fails(Reason::ConnectRefused);
    for who in 1..=5 {
        world.lease(&world.run("a", who)).await.err().unwrap();
    }
    clock::sleep(Duration::from_secs(10)).await;
    fails(Reason::CredentialUnavailable);
    world.lease(&world.run("a", 6)).await.err().unwrap();
    fails(Reason::ConnectRefused);
    let opens = world.fake.ledger().opens;
    let asked: Vec<_> = (7..17).map(|who| world.ask(&world.run("a", who))).collect();
    for one in asked {
        one.await.unwrap().err().unwrap();
    }
    assert_eq!(world.fake.ledger().opens, opens + 1, "one probe");
}

/// reliability P5, reliability P35: sessions that one identity opens in vain stop that identity
/// alone; those of several stop everybody.
#[tokio::test(start_paused = true)]
async fn what_one_identity_opens_in_vain_stops_no_other() {
    let world = World::new();
    let in_vain = async |who| match world.lease(&world.run("a", who)).await {
        Ok(lease) => lease.settle(LeaseOutcome::SessionEnded(EndReason::Gone)),
        Err(diagnostic) => assert_eq!(diagnostic.code, Code::BreakerOpen),
    };
    for _ in 0..100 {
        in_vain(1).await;
    }
    assert_eq!(world.fake.ledger().opens, 5);
    assert!(world.lease(&world.run("a", 2)).await.is_ok(), "at once");
    for _ in 0..100 {
        in_vain(2).await;
        in_vain(3).await;
    }
    assert!(
        world.fake.ledger().opens <= 12,
        "{}",
        world.fake.ledger().opens
    );
    let diagnostic = world.lease(&world.run("a", 4)).await.err().unwrap();
    assert_eq!(diagnostic.code, Code::BreakerOpen);
}

/// A probe whose caller gave up while it waited is not lost: the next one probes.
#[tokio::test(start_paused = true)]
async fn first_contacts_ask_the_breaker_too() {
    let world = World::new();
    let key = key("a", 1, SCOPE, Transport::Http);
    let server = &key.target.server;
    let pass = || {
        let policy = BreakerPolicy::default();
        let (revision, owner) = (key.target.revision, key.owner);
        world
            .pool
            .acquire_breaker_permit(server, revision, owner, key.credential, policy)
    };
    let failed = Diagnostic::new(Reason::Dns, "nowhere");
    for _ in 0..5 {
        pass().unwrap().0.failed(&failed);
    }
    assert_eq!(pass().err().unwrap().code, Code::BreakerOpen);
    clock::sleep(Duration::from_secs(10)).await;
    let probe = pass().unwrap();
    assert!(pass().is_err(), "one at a time");
    drop(probe);
    pass().unwrap().0.succeeded();
    assert!(pass().is_ok() && pass().is_ok());
    drop(
        world
            .pool
            .lease(
                &world.shared("a", 1),
                LeaseMode::Shared,
                QueuePosition::Back,
                soon(),
            )
            .await,
    );
}
