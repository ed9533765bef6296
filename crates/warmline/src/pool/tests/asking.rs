//! Asking for a session: one opening for all, errors for those who waited, nobody in the way of
//! another.

use std::time::Duration;

use warmline_core::code::{Code, Reason};
use warmline_core::pool::Turn;

use super::fake::{FINE, LEFT_STATE, soon};
use super::*;

/// A24, A73: a thousand first calls at the same moment open one session, and all succeed on it.
#[tokio::test(start_paused = true)]
async fn a_thousand_first_calls_open_one_session() {
    let world = World::new();
    let cell = world.run("a", 1);
    let asked: Vec<_> = (0..1_000).map(|_| world.ask(&cell)).collect();
    let mut leases = Vec::new();
    for ask in asked {
        leases.push(ask.await.unwrap().unwrap());
    }
    assert_eq!(world.fake.ledger().opens, 1);
    assert!(leases.iter().all(|lease| lease.session().id == 1));
    let stats = world.pool.stats();
    assert_eq!(stats.present.counts.leases, 1_000);
    assert_eq!((stats.misses, stats.waits), (1, 999));
    leases.into_iter().for_each(|lease| lease.settle(FINE));
    let lease = world.lease(&cell).await.unwrap();
    assert_eq!((lease.session().id, lease.how()), (1, How::Hit));
    drop(lease);
    assert_eq!(world.settle().await.present.counts.idle, 1);
}

/// A25, A28: when the one opening fails, all who waited get that error once, and the next tries
/// again; nothing is left of it.
#[tokio::test(start_paused = true)]
async fn a_failed_opening_is_told_to_all_who_waited() {
    let world = World::new();
    world.server("a", |server| {
        server.open_fails = Some(Reason::ConnectRefused);
    });
    let cell = world.run("a", 1);
    let asked: Vec<_> = (0..20).map(|_| world.ask(&cell)).collect();
    for ask in asked {
        let trouble = ask.await.unwrap().err().unwrap();
        assert_eq!(trouble.reason, Reason::ConnectRefused);
    }
    assert_eq!(world.fake.ledger().opens, 1);
    assert_eq!(world.settle().await.present.counts.sessions(), 0);
    world.server("a", |server| server.open_fails = None);
    assert!(world.lease(&cell).await.is_ok());
    assert_eq!(world.fake.ledger().opens, 2);
}

/// A26: the caller whose question began the opening leaves; the others are served by it.
#[tokio::test(start_paused = true)]
async fn an_opening_goes_on_without_the_caller_who_began_it() {
    let world = World::new();
    let cell = world.run("a", 1);
    let (first, second) = (world.ask(&cell), world.ask(&cell));
    clock::sleep(Duration::from_millis(5)).await;
    first.abort();
    assert!(second.await.unwrap().is_ok());
    assert_eq!(world.fake.ledger().opens, 1);
}

/// A26: also when all who waited leave; what was opened serves the next.
#[tokio::test(start_paused = true)]
async fn an_opening_that_all_left_serves_the_next() {
    let world = World::new();
    let cell = world.run("a", 1);
    let first = world.ask(&cell);
    clock::sleep(Duration::from_millis(5)).await;
    first.abort();
    world.settle().await;
    let lease = world.lease(&cell).await.unwrap();
    assert_eq!((lease.how(), world.fake.ledger().opens), (How::Hit, 1));
}

/// A27: a server that takes ten seconds to open is in nobody else's way.
#[tokio::test(start_paused = true)]
async fn a_slow_server_delays_nobody_else() {
    let world = World::new();
    world.server("slow", |server| server.open_takes = Duration::from_secs(10));
    let slow = world.ask(&world.run("slow", 1));
    clock::sleep(Duration::from_millis(1)).await;
    let began = clock::now();
    assert!(world.lease(&world.run("quick", 1)).await.is_ok());
    assert!(began.elapsed() < Duration::from_millis(100));
    assert!(slow.await.unwrap().is_ok());
}

/// reliability I35: an opening that panics is told like one that failed.
#[tokio::test(start_paused = true)]
async fn an_opening_that_panics_is_told() {
    let world = World::new();
    world.server("a", |server| server.panics = true);
    let trouble = world.lease(&world.run("a", 1)).await.err().unwrap();
    assert_eq!(trouble.code, Code::Bug);
    let census = world.settle().await;
    assert_eq!((census.present.counts.sessions(), census.rooms), (0, 0));
}

/// A86: a caller whose time is over hears that the opening is still under way.
#[tokio::test(start_paused = true)]
async fn a_caller_hears_when_an_opening_takes_too_long() {
    let world = World::new();
    world.server("a", |server| server.open_takes = Duration::from_secs(60));
    let trouble = world.lease(&world.run("a", 1)).await.err().unwrap();
    assert_eq!(trouble.code, Code::Deadline);
    assert_eq!(world.settle().await.present.counts.idle, 1);
}

/// A74: calls side by side share one session; one who wants to be alone is.
#[tokio::test(start_paused = true)]
async fn one_who_wants_to_be_alone_is() {
    let world = World::new();
    let cell = world.run("a", 1);
    let (one, two) = (
        world.lease(&cell).await.unwrap(),
        world.lease(&cell).await.unwrap(),
    );
    let pool = world.pool.clone();
    let of = Arc::clone(&cell);
    let alone = clock::spawn("alone", async move {
        pool.lease(&of, Want::Exclusive, soon()).await
    });
    clock::sleep(Duration::from_millis(1)).await;
    let later = world.ask(&cell);
    clock::sleep(Duration::from_millis(1)).await;
    one.settle(FINE);
    clock::sleep(Duration::from_millis(1)).await;
    assert!(!alone.is_finished() && !later.is_finished());
    two.settle(FINE);
    let alone = alone.await.unwrap().unwrap();
    clock::sleep(Duration::from_millis(1)).await;
    assert!(!later.is_finished(), "nobody beside it");
    alone.settle(FINE);
    assert!(later.await.unwrap().is_ok());
    assert_eq!(world.fake.ledger().opens, 1);
}

/// A82, A84, A106: the eleventh waits and gets the first that comes back, in order of arrival.
#[tokio::test(start_paused = true)]
async fn callers_are_served_in_order_of_arrival() {
    let world = World::new();
    let cell = world.one_each("a", 1, 10);
    let mut held = Vec::new();
    for _ in 0..10 {
        held.push(world.lease(&cell).await.unwrap());
    }
    let mut line = Vec::new();
    for _ in 0..5 {
        line.push(world.ask(&cell));
        clock::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(world.fake.ledger().most_live, 10);
    for (lease, waiter) in held.into_iter().zip(line) {
        let id = lease.session().id;
        lease.settle(FINE);
        let served = waiter.await.unwrap().unwrap();
        assert_eq!((served.session().id, served.how()), (id, How::Waited));
        drop(served);
    }
    assert_eq!(world.fake.ledger().opens, 10);
}

/// A84: who waited in vain reads how long, how many are in use, and what to do.
#[tokio::test(start_paused = true)]
async fn who_waited_in_vain_is_told_why() {
    let world = World::new();
    let cell = world.one_each("a", 1, 1);
    let held = world.lease(&cell).await.unwrap();
    let began = clock::now();
    let trouble = world.lease(&cell).await.err().unwrap();
    assert_eq!(began.elapsed().as_secs(), 30);
    assert_eq!(trouble.code, Code::PoolFull);
    assert!(
        trouble.what.contains("within 30 s: 1 of 1"),
        "{}",
        trouble.what
    );
    assert!(trouble.hint.unwrap().contains("max_per_key"));
    held.settle(FINE);
    assert!(world.lease(&cell).await.is_ok(), "its place was given up");
}

/// reliability I24: a line has an end, and whoever comes after it is told at once.
#[tokio::test(start_paused = true)]
async fn a_full_line_is_said_at_once() {
    let world = World::new();
    let cell = world.one_each("a", 1, 1);
    cell.reconfigure(CellPolicy {
        waiters: 2,
        ..cell.policy()
    });
    let held = world.lease(&cell).await.unwrap();
    let line = [world.ask(&cell), world.ask(&cell)];
    clock::sleep(Duration::from_millis(1)).await;
    let trouble = world.lease(&cell).await.err().unwrap();
    assert_eq!(trouble.code, Code::Overloaded);
    drop(held);
    for waiter in line {
        drop(waiter.await.unwrap().unwrap());
    }
}

/// A123, A124, A202, reliability I12: a hundred who see one session gone make one new one.
#[tokio::test(start_paused = true)]
async fn a_hundred_failures_make_one_new_session() {
    let world = World::new();
    let cell = world.run("a", 1);
    let mut leases = Vec::new();
    for _ in 0..100 {
        leases.push(world.lease(&cell).await.unwrap());
    }
    leases.pop().unwrap().settle(LEFT_STATE);
    for lease in leases {
        lease.settle(Outcome::Gone(Why::Gone));
        let healed = world.lease(&cell).await.unwrap();
        assert_eq!(healed.generation().number(), 2);
        healed.settle(FINE);
    }
    let ledger = world.fake.ledger();
    assert_eq!((ledger.opens, &ledger.replaced[..]), (2, &[1][..]));
    let census = world.settle().await;
    assert_eq!((census.present.counts.idle, census.rooms), (1, 1));
}

/// A loss is told to one caller; one who was cancelled before it was told leaves it to the next,
/// and of those side by side the first who tells it does.
#[tokio::test(start_paused = true)]
async fn a_loss_is_told_once() {
    let world = World::new();
    let cell = world.run("a", 1);
    world.lease(&cell).await.unwrap().settle(LEFT_STATE);
    let lease = world.lease(&cell).await.unwrap();
    lease.settle(Outcome::Gone(Why::Gone));
    let healed = world.lease(&cell).await.unwrap();
    assert_eq!(
        healed.loss().map(|loss| loss.generation),
        Some(Generation::FIRST)
    );
    drop(healed);
    let mut beside = world.lease(&cell).await.unwrap();
    let mut again = world.lease(&cell).await.unwrap();
    assert!(again.loss().is_some() && beside.loss().is_some());
    assert!(again.told(), "it was not told");
    assert!(!beside.told(), "it was");
    again.settle(FINE);
    beside.settle(FINE);
    assert!(world.lease(&cell).await.unwrap().loss().is_none());
}

/// A session whose driver gave it up is given to nobody, and its caller sees no error.
#[tokio::test(start_paused = true)]
async fn a_dead_session_is_given_to_nobody() {
    let world = World::new();
    for cell in [world.run("a", 1), world.one_each("b", 1, 2)] {
        let lease = world.lease(&cell).await.unwrap();
        let (dead, id) = (Arc::clone(lease.session()), lease.session().id);
        lease.settle(LEFT_STATE);
        dead.die();
        let lease = world.lease(&cell).await.unwrap();
        assert_ne!(lease.session().id, id);
        assert!(lease.loss().is_some());
        lease.session().die();
        lease.settle(LEFT_STATE);
        let lease = world.lease(&cell).await.unwrap();
        assert_eq!(
            lease.loss().map(|loss| loss.generation.number()),
            Some(2),
            "answered, then died"
        );
        drop(lease);
    }
    world.settle().await;
}

/// A76, A77, reliability I31: a rested session is checked, and a failed check costs no error.
#[tokio::test(start_paused = true)]
async fn a_rested_session_is_checked_before_use() {
    let world = World::new();
    let cell = world.shared("a", 1);
    world.lease(&cell).await.unwrap().settle(FINE);
    clock::sleep(Duration::from_secs(59)).await;
    world.lease(&cell).await.unwrap().settle(FINE);
    assert_eq!(world.fake.ledger().checks, 0);
    clock::sleep(Duration::from_secs(60)).await;
    let asked = [world.ask(&cell), world.ask(&cell)];
    for ask in asked {
        ask.await.unwrap().unwrap().settle(FINE);
    }
    assert_eq!(
        (world.fake.ledger().checks, world.fake.ledger().opens),
        (1, 1)
    );
    world.server("a", |server| server.health = Health::Silent);
    clock::sleep(Duration::from_secs(60)).await;
    assert_eq!(world.lease(&cell).await.unwrap().session().id, 2);
    world.settle().await;
    assert_eq!(world.fake.ledger().closed, [(1, Why::CheckFailed)]);
}

/// DESIGN 2: when a server lost sessions, the others are checked before their next use.
#[tokio::test(start_paused = true)]
async fn sessions_of_a_server_that_lost_some_are_checked() {
    let world = World::new();
    let (one, two, other) = (world.run("a", 1), world.run("a", 2), world.run("b", 1));
    for cell in [&one, &two, &other] {
        world.lease(cell).await.unwrap().settle(FINE);
    }
    let place = one.key().place();
    world.pool.loss_seen(&place.server, place.revision);
    for cell in [&one, &two, &other, &one] {
        world.lease(cell).await.unwrap().settle(FINE);
    }
    assert_eq!(
        world.fake.ledger().checks,
        2,
        "once each, and not those of another server"
    );
}

/// reliability I15, reliability P12: who had a lease on a session that was dead is the next again, in
/// the order of those who had one, and no line is too full for it.
#[tokio::test(start_paused = true)]
async fn who_found_its_session_dead_keeps_its_place_in_a_full_line() {
    let world = World::new();
    let cell = world.one_each("a", 1, 2);
    cell.reconfigure(CellPolicy {
        waiters: 2,
        ..cell.policy()
    });
    let had = [
        world.lease(&cell).await.unwrap(),
        world.lease(&cell).await.unwrap(),
    ];
    let order = Arc::new(crate::sync::Mutex::new(Vec::new()));
    let ask = |name: &'static str, turn| {
        let (pool, cell, order) = (world.pool.clone(), Arc::clone(&cell), Arc::clone(&order));
        clock::spawn("ask", async move {
            let lease = pool
                .lease_in_turn(&cell, Want::Shared, turn, soon().into())
                .await;
            let lease = lease.unwrap_or_else(|trouble| panic!("{name}: {trouble:?}"));
            order.lock().push(name);
            clock::sleep(Duration::from_secs(1)).await;
            lease.settle(FINE);
        })
    };
    let mut line = vec![ask("third", Turn::Last), ask("fourth", Turn::Last)];
    clock::sleep(Duration::from_millis(1)).await;
    for lease in had {
        lease.settle(Outcome::Gone(Why::Gone));
    }
    line.extend([ask("first", Turn::First), ask("second", Turn::First)]);
    for one in line {
        one.await.unwrap();
    }
    assert_eq!(*order.lock(), ["first", "second", "third", "fourth"]);
}
