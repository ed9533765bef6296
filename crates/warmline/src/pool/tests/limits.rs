//! Room, making room, and the breaker.

use std::time::Duration;

use warmline_core::code::{Code, Reason};
use warmline_core::key::{Digest, RunId, Scope, Transport};

use super::fake::{FINE, SCOPE, SHARED, key, soon};
use super::*;

fn few(sessions: u32) -> World {
    World::with(Ceilings {
        sessions,
        ..Ceilings::default()
    })
}

/// A83: the session that was unused longest is closed to make room, and never one of a run.
#[tokio::test(start_paused = true)]
async fn the_longest_unused_shared_session_makes_room() {
    let world = few(3);
    let run = world.run("a", 1);
    let (old, young) = (world.shared("b", 1), world.shared("c", 1));
    for cell in [&run, &old, &young] {
        world.lease(cell).await.unwrap().settle(FINE);
        clock::sleep(Duration::from_millis(10)).await;
    }
    assert!(world.lease(&world.shared("d", 1)).await.is_ok());
    let ledger = world.fake.ledger();
    assert_eq!(ledger.closed, [(2, Why::Evicted)]);
    assert_eq!(ledger.most_live, 3, "at every instant");
    assert_eq!(world.settle().await.rooms, 3);
}

/// A83: whoever finds a limit full behind another one has room made there too.
#[tokio::test(start_paused = true)]
async fn room_is_made_in_each_limit_that_stops_a_caller() {
    let world = World::with(Ceilings {
        sessions_per_identity: 1,
        ..Ceilings::default()
    });
    world.server("small", |server| server.max_sessions = Some(1));
    for cell in [world.shared("small", 2), world.shared("a", 1)] {
        world.lease(&cell).await.unwrap().settle(FINE);
    }
    assert!(world.lease(&world.shared("small", 1)).await.is_ok());
    let closed = world.fake.ledger().closed.clone();
    assert_eq!(closed, [(1, Why::Evicted), (2, Why::Evicted)]);
    assert_eq!(world.settle().await.rooms, 1);
}

/// A83: where nothing can go, a caller waits for room and is told at its deadline.
#[tokio::test(start_paused = true)]
async fn sessions_of_runs_are_not_closed_for_room() {
    let world = few(1);
    world.lease(&world.run("a", 1)).await.unwrap().settle(FINE);
    let trouble = world.lease(&world.run("a", 2)).await.err().unwrap();
    assert_eq!(trouble.code, Code::PoolFull);
    assert!(trouble.what.contains("no room"), "{}", trouble.what);
    assert_eq!(world.fake.ledger().opens, 1, "nothing went out");
    let census = world.settle().await;
    assert_eq!((census.rooms, census.present.counts.opening), (1, 0));
}

/// A84: room goes to whoever waited for it longest.
#[tokio::test(start_paused = true)]
async fn room_goes_to_whoever_waited_longest() {
    let world = few(1);
    let first = world.run("a", 1);
    let held = world.lease(&first).await.unwrap();
    let mut line = Vec::new();
    for who in 2..5 {
        line.push(world.ask(&world.run("a", who)));
        clock::sleep(Duration::from_millis(1)).await;
    }
    held.settle(FINE);
    world.pool.end(&first, Why::RunEnded);
    for (at, waiter) in line.into_iter().enumerate() {
        let lease = waiter.await.unwrap().unwrap();
        assert_eq!(lease.session().id as usize, at + 2);
        lease.settle(FINE);
        let cell = world.run("a", u8::try_from(at + 2).unwrap());
        world.pool.end(&cell, Why::RunEnded);
    }
    assert_eq!(world.fake.ledger().most_live, 1);
    assert_eq!(world.settle().await.rooms, 0);
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
    assert_eq!(waiter.await.unwrap().unwrap().session().id, 2);
    assert_eq!(world.fake.ledger().closed, [(1, Why::Evicted)]);
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
    world.pool.end(&first, Why::RunEnded);
    assert!(next.await.unwrap().is_ok());
    assert_eq!(
        world.fake.ledger().opens,
        2,
        "nothing was opened for the one who left"
    );
}

/// A83, A201, reliability P5: one identity's limit stops that identity alone; a server's limit that server.
#[tokio::test(start_paused = true)]
async fn each_limit_stops_only_its_own() {
    let world = World::with(Ceilings {
        sessions_per_identity: 2,
        processes_per_identity: 1,
        ..Ceilings::default()
    });
    world.server("small", |server| server.max_sessions = Some(1));
    let mut held = Vec::new();
    for server in ["a", "b"] {
        held.push(world.lease(&world.run(server, 1)).await.unwrap());
    }
    let pool = &world.pool;
    let full = |cell: Arc<CellOf<Fake>>| async move {
        let by = clock::after(Duration::from_millis(100));
        let trouble = pool.lease(&cell, Want::Shared, by).await.err();
        let trouble = trouble.unwrap();
        assert_eq!(trouble.code, Code::PoolFull);
        // Whoever could do something about it is told which limit it is.
        let hint = trouble.hint.unwrap();
        let (_, setting) = hint.split_once('`').unwrap();
        setting.to_owned()
    };
    assert_eq!(
        full(world.run("c", 1)).await,
        "limits.sessions_per_identity` (now 2)"
    );
    held.push(world.lease(&world.run("small", 2)).await.unwrap());
    assert_eq!(full(world.run("small", 3)).await, "max_sessions` (now 1)");
    let process = |who| world.cell(&key("p", who, SCOPE, Transport::Stdio), SHARED);
    held.push(world.lease(&process(1)).await.unwrap());
    let other = world.cell(&key("q", 1, SCOPE, Transport::Stdio), SHARED);
    assert_eq!(full(other).await, "limits.processes_per_identity` (now 1)");
    held.push(world.lease(&process(2)).await.unwrap());
    let census = world.pool.census();
    assert_eq!((census.rooms, census.processes), (3, 2));
}

/// A204: a server that turns out to hold nothing takes no room.
#[tokio::test(start_paused = true)]
async fn what_holds_nothing_takes_no_room() {
    let world = few(1);
    world.server("a", |server| server.holds_room = false);
    let mut leases = Vec::new();
    for who in 1..5 {
        leases.push(world.lease(&world.shared("a", who)).await.unwrap());
    }
    assert_eq!(world.pool.census().rooms, 0);
}

/// reliability I14: a limit that was lowered while a session was opened counts.
#[tokio::test(start_paused = true)]
async fn a_limit_lowered_while_a_session_is_opened_counts() {
    let world = few(2);
    world.lease(&world.run("a", 1)).await.unwrap().settle(FINE);
    let asked = world.ask(&world.run("a", 2));
    clock::sleep(Duration::from_millis(5)).await;
    world.server("a", |server| server.max_sessions = Some(1));
    let trouble = asked.await.unwrap().err().unwrap();
    assert_eq!(trouble.code, Code::PoolFull);
    assert_eq!(world.settle().await.rooms, 1);
    assert_eq!(world.fake.ledger().closed, [(2, Why::Evicted)]);
}

/// A run that loses its session keeps its room: it is healed also when everything is full.
#[tokio::test(start_paused = true)]
async fn a_run_keeps_its_room_while_it_is_healed() {
    let world = few(1);
    let cell = world.run("a", 1);
    let lease = world.lease(&cell).await.unwrap();
    let rival = world.ask(&world.run("a", 2));
    clock::sleep(Duration::from_millis(1)).await;
    lease.settle(Outcome::Gone(Why::Gone));
    clock::sleep(Duration::from_secs(1)).await;
    let healed = world.lease(&cell).await.unwrap();
    assert_eq!(healed.generation().number(), 2);
    assert!(!rival.is_finished());
    healed.settle(FINE);
    world.pool.end(&cell, Why::RunEnded);
    assert!(rival.await.unwrap().is_ok());
    assert_eq!(world.settle().await.rooms, 1);
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

/// A89, A90, A91, A94, A95: five failures pause openings; one probe ends the pause; sessions that
/// are open serve all the time; each change is told once.
#[tokio::test(start_paused = true)]
async fn openings_pause_after_five_failures_and_begin_with_one_probe() {
    let world = World::new();
    let held = world.run("a", 9);
    world.lease(&held).await.unwrap().settle(FINE);
    world.server("a", |server| {
        server.open_fails = Some(Reason::ConnectRefused);
    });
    for run in 1..6 {
        world.lease(&world.run("a", run)).await.err().unwrap();
    }
    let opens = world.fake.ledger().opens;
    let began = clock::now();
    let trouble = world.lease(&world.run("a", 6)).await.err().unwrap();
    assert_eq!(trouble.code, Code::BreakerOpen);
    assert!(trouble.retry_after.unwrap() <= Duration::from_secs(10));
    assert!(
        trouble.what.ends_with("(connect-refused)"),
        "{}",
        trouble.what
    );
    let why = trouble.why.unwrap();
    assert!(why.starts_with("the last time: "), "{why}");
    assert_eq!(
        (began.elapsed(), world.fake.ledger().opens),
        (Duration::ZERO, opens)
    );
    world.lease(&held).await.unwrap().settle(FINE);
    assert!(
        world.lease(&world.run("b", 1)).await.is_ok(),
        "another server"
    );

    clock::sleep(Duration::from_secs(10)).await;
    world.server("a", |server| server.open_fails = None);
    let probes = [world.ask(&world.run("a", 7)), world.ask(&world.run("a", 8))];
    let mut served = 0;
    for probe in probes {
        served += u32::from(probe.await.unwrap().is_ok());
    }
    assert_eq!(served, 1, "one probe");
    assert!(
        world.lease(&world.run("a", 6)).await.is_ok(),
        "and then all"
    );
    let news = world.fake.ledger().news;
    let changes = news.iter().filter(|news| news.starts_with("Breaker"));
    assert_eq!(changes.count(), 3, "tripped, probing, passing");
}

/// A92: a bad credential pauses its own identity, and nobody else.
#[tokio::test(start_paused = true)]
async fn a_refused_credential_pauses_its_identity_alone() {
    let world = World::new();
    world.server("a", |server| server.open_fails = Some(Reason::Unauthorized));
    for _ in 0..100 {
        world.lease(&world.run("a", 1)).await.err().unwrap();
    }
    assert_eq!(world.fake.ledger().opens, 5);
    world.server("a", |server| server.open_fails = None);
    assert!(world.lease(&world.run("a", 2)).await.is_ok(), "at once");
    let trouble = world.lease(&world.run("a", 1)).await.err().unwrap();
    assert_eq!(trouble.code, Code::BreakerOpen);
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

/// A126: a server that ends every session at once trips the breaker, although openings succeed.
#[tokio::test(start_paused = true)]
async fn sessions_that_die_before_they_serve_trip_the_breaker() {
    let world = World::new();
    let cell = world.run("a", 1);
    let mut troubles = Vec::new();
    for _ in 0..8 {
        match world.lease(&cell).await {
            Ok(lease) => lease.settle(Outcome::Gone(Why::Gone)),
            Err(trouble) => troubles.push(trouble.code),
        }
    }
    assert_eq!(world.fake.ledger().opens, 5);
    assert_eq!(troubles, [Code::BreakerOpen; 3]);
}

/// reliability P5, reliability P35: sessions that one identity opens in vain stop that identity
/// alone; those of several stop everybody.
#[tokio::test(start_paused = true)]
async fn what_one_identity_opens_in_vain_stops_no_other() {
    let world = World::new();
    let in_vain = async |who| match world.lease(&world.run("a", who)).await {
        Ok(lease) => lease.settle(Outcome::Gone(Why::Gone)),
        Err(trouble) => assert_eq!(trouble.code, Code::BreakerOpen),
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
    let trouble = world.lease(&world.run("a", 4)).await.err().unwrap();
    assert_eq!(trouble.code, Code::BreakerOpen);
}

/// reliability P5, reliability P14: a server that restarts once takes all its sessions, and nobody is
/// stopped for it, whosever they were and whether or not they were used: what was opened since says
/// whether openings are in vain. Nor is anybody stopped for what an operator closes.
#[tokio::test(start_paused = true)]
async fn one_restart_that_takes_many_sessions_stops_nobody() {
    for (rested, why) in [(1, Why::Gone), (600_000, Why::Gone), (1, Why::ByOperator)] {
        for of_one in [true, false] {
            let world = World::new();
            let cell = |run: u8| {
                let who = if of_one { 0 } else { run };
                let scope = Scope::Run(RunId(Digest::new([run; 16])));
                world.cell(&key("a", who, scope, Transport::Http), SHARED)
            };
            let cells: Vec<_> = (0..12).map(cell).collect();
            let mut leases = Vec::new();
            for cell in &cells {
                leases.push(world.lease(cell).await.unwrap());
            }
            clock::sleep(Duration::from_millis(rested)).await;
            for (cell, lease) in cells.iter().zip(leases) {
                let generation = lease.generation();
                if why == Why::ByOperator {
                    world.pool.end_session(cell, generation);
                } else {
                    lease.settle(Outcome::Gone(why));
                }
            }
            for cell in &cells {
                let lease = world.lease(cell).await;
                assert!(lease.is_ok(), "{rested} ms, {why}, of one: {of_one}");
            }
        }
    }
}

/// A probe whose caller gave up while it waited is not lost: the next one probes.
#[tokio::test(start_paused = true)]
async fn first_contacts_ask_the_breaker_too() {
    let world = World::new();
    let key = key("a", 1, SCOPE, Transport::Http);
    let server = &key.place().server;
    let pass = || {
        let policy = BreakerPolicy::default();
        let (revision, owner) = (key.place().revision, key.owner());
        world
            .pool
            .pass(server, revision, owner, key.credential(), policy)
    };
    let failed = Trouble::new(Reason::Dns, "nowhere");
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
            .lease(&world.shared("a", 1), Want::Shared, soon())
            .await,
    );
}
