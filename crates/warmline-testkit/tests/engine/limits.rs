//! Limits: how many sessions there are, who waits for one, and what whoever gets none is told.

use crate::prelude::*;

use std::collections::BTreeSet;

fn per_identity(most: u32) -> impl FnOnce(Server) -> Server {
    move |server| server.session_per(SessionScope::Identity).max_per_key(most)
}

/// Most executions that were under way at the same time in one session.
fn most_at_once(server: &LedgerServer) -> usize {
    let mut running = std::collections::HashMap::<String, usize>::new();
    let mut most = 0;
    for entry in server.ledger().entries() {
        let Some(session) = entry.session.filter(|_| entry.tool.is_some()) else {
            continue;
        };
        let count = running.entry(session).or_default();
        match entry.phase {
            ExecutionPhase::Begin => *count += 1,
            ExecutionPhase::Commit | ExecutionPhase::Abandoned => *count = count.saturating_sub(1),
            ExecutionPhase::Received => {},
        }
        most = most.max(*count);
    }
    most
}

/// A73: a session that is given back serves the next one of its key.
#[tokio::test]
async fn a_session_that_is_given_back_serves_the_next() {
    let world = World::with(Personality::legacy(), per_identity(10));
    let ledger = world.ledger();
    for number in 1..=3 {
        assert_eq!(count(&ledger).await, number);
        let seen = world.warm.snapshot().sessions;
        assert_eq!(seen.len(), 1);
        assert_eq!(seen[0].calls, 0);
    }
    let slow = ledger.call("slow", json!({"ms": 60_000}));
    let slow = tokio::spawn(slow.into_future());
    world.under_way("slow", 1).await;
    assert_eq!(world.warm.snapshot().sessions[0].calls, 1);
    slow.abort();
    drop(slow.await);
    assert_eq!(world.handshakes(), 1);
    world.finish().await;
}

/// A74, A82, reliability I22: so many sessions at most, one call at a time on each.
#[tokio::test]
async fn one_call_at_a_time_on_so_many_sessions() {
    let world = World::with(Personality::legacy(), per_identity(3));
    let most = AtomicU64::new(0);
    let ledger = world.ledger();
    let calls = (0..30).map(|_| async {
        done(ledger.call("slow", json!({"ms": 10}))).await;
        most.fetch_max(world.server.counts().open_sessions, Ordering::Relaxed);
    });
    join_all(calls).await;
    assert_eq!(most.into_inner(), 3);
    assert_eq!(world.handshakes(), 3);
    assert_eq!(most_at_once(&world.server), 1);
    world.finish().await;
}

/// A106: ten thousand calls of one identity, many at a time, need no more handshakes and no more
/// connections than it may have sessions.
#[tokio::test]
async fn ten_thousand_calls_need_no_more_sessions_than_there_may_be() {
    const MOST: u64 = 10;
    let world = World::with(Personality::legacy(), |server| {
        server.session_per(SessionScope::Identity)
    });
    let ledger = world.ledger();
    for _ in 0..100 {
        let calls = (0..100).map(|_| async { ledger.call("echo", json!({})).await.unwrap() });
        join_all(calls).await;
    }
    let seen = world.server.counts();
    assert_eq!(world.server.ledger().executions("echo"), 10_000);
    assert_eq!((seen.initializes, seen.sessions), (MOST, MOST));
    // Whoever looks whether the server is there connects too, and asks nothing.
    let entries = world.server.ledger().entries();
    let used: BTreeSet<u64> = entries.iter().map(|entry| entry.connection).collect();
    assert!(used.len() as u64 <= MOST, "{used:?}");
    world.finish().await;
}

/// A74: side by side, all calls share one session.
#[tokio::test]
async fn calls_side_by_side_share_one_session() {
    let world = World::with(Personality::legacy(), |server| {
        per_identity(3)(server).calls(CallConcurrency::SideBySide)
    });
    let ledger = world.ledger();
    join_all((0..10).map(|_| async { ledger.call("slow", json!({"ms": 100})).await.unwrap() }))
        .await;
    assert_eq!(world.handshakes(), 1);
    assert!(most_at_once(&world.server) > 1);
    world.finish().await;
}

/// P122: a server that mixes up its callers is `serial` and shared by all: it is never used by two
/// at once, whoever they are, inside runs and outside.
#[tokio::test]
async fn a_serial_server_that_all_share_is_never_used_by_two_callers_at_once() {
    let world = World::with(Personality::legacy(), |server| {
        server.session_per(SessionScope::Server).serial()
    });
    let people = ["alice", "bob", "carol"].map(|name| world.warm.identity(name));
    let runs = people.each_ref().map(|who| who.begin_run());
    let inside = runs.iter().map(|run| run.server(LEDGER).unwrap());
    let outside = people.iter().map(|who| who.server(LEDGER).unwrap());
    let handles: Vec<_> = inside.chain(outside).collect();
    let calls = handles.iter().cycle().take(24);
    let calls = calls.map(|handle| async { handle.call("slow", json!({"ms": 5})).await.unwrap() });
    join_all(calls).await;
    let entries = world.server.ledger().entries().into_iter();
    let done =
        entries.filter(|entry| entry.phase == ExecutionPhase::Commit && entry.tool.is_some());
    let sessions: Vec<_> = done.map(|entry| entry.session).collect();
    assert_eq!(sessions.len(), 24);
    let holds = sessions.iter().all(|one| *one == sessions[0]);
    assert!(holds, "{sessions:?}");
    assert_eq!(most_at_once(&world.server), 1);
    world.finish().await;
}

/// A16, P108, P122: `serial` lets one call at a time on the session of a run.
#[tokio::test]
async fn serial_lets_one_call_at_a_time() {
    let world = World::with(Personality::legacy(), |server| server.serial());
    let ledger = world.in_run();
    join_all((0..10).map(|_| async { ledger.call("slow", json!({"ms": 5})).await.unwrap() })).await;
    assert_eq!(world.handshakes(), 1);
    assert_eq!(most_at_once(&world.server), 1);
    world.finish().await;
}

/// A75: whoever holds a lease is alone; when it is dropped, in the middle or not, the next
/// one goes on.
#[tokio::test]
async fn a_lease_is_for_one_holder_and_is_given_back_however_it_ends() {
    let world = World::new(Personality::legacy());
    let ledger = world.in_run();
    let lease = ledger.lease().await.unwrap();
    done(lease.call("counter", json!({}))).await;
    let waiting = {
        let ledger = ledger.clone();
        tokio::spawn(async move { count(&ledger).await })
    };
    done(lease.call("counter", json!({}))).await;
    tokio::task::yield_now().await;
    assert!(!waiting.is_finished());
    drop(lease);
    assert_eq!(waiting.await.unwrap(), 3);

    // One that dies in the middle of its call.
    let holder = {
        let ledger = ledger.clone();
        tokio::spawn(async move {
            let lease = ledger.lease().await.unwrap();
            done(lease.call("slow", json!({"ms": 60_000}))).await;
        })
    };
    world.under_way("slow", 1).await;
    holder.abort();
    drop(holder.await);
    assert_eq!(count(&ledger).await, 4);
    world.finish().await;
}

/// A83, reliability I14: to make room, the session that rested longest is closed.
#[tokio::test]
async fn the_session_that_rested_longest_makes_room() {
    let world = World::built(Personality::legacy(), per_identity(2), |builder| {
        builder.limits(|limits| limits.sessions = 2)
    });
    let who = |name: &str| world.warm.identity(name).server(LEDGER).unwrap();
    assert_eq!(count(&who("alice")).await, 1);
    pass(secs(1)).await;
    assert_eq!(count(&who("bob")).await, 1);
    pass(secs(1)).await;
    assert_eq!(count(&who("carol")).await, 1);
    until("there are two", || world.server.counts().open_sessions == 2).await;
    assert_eq!(count(&who("bob")).await, 2);
    assert_eq!(count(&who("carol")).await, 2);
    assert_eq!(count(&who("alice")).await, 1);
    world.finish().await;
}

/// A83: a limit of one server holds for all identities together.
#[tokio::test]
async fn a_server_has_a_limit_of_its_own() {
    let world = World::with(Personality::legacy(), |server| {
        server.with_policy(|policy| {
            policy.max_sessions = Some(1);
            policy.wait = secs(1);
        })
    });
    let alice = world.warm.identity("alice").begin_run();
    count(&alice.server(LEDGER).unwrap()).await;
    let bob = world.warm.identity("bob").begin_run();
    let ledger = bob.server(LEDGER).unwrap();
    let call = ledger.call("counter", json!({}));
    let waiting = tokio::spawn(call.into_future());
    let is_so = || world.number("waiters", &[]) == 1 || waiting.is_finished();
    until("somebody waits", is_so).await;
    pass(secs(2)).await;
    // A session of a live run is never taken away to make room.
    let error = waiting.await.unwrap().unwrap_err();
    failed_as(&error, "pool-full", Delivery::Unsent);
    assert_eq!(count(&alice.server(LEDGER).unwrap()).await, 2);
    alice.end().await;
    assert_eq!(count(&ledger).await, 1);
    world.finish().await;
}

/// A84, E17, reliability P12, reliability I13: whoever waits is served in order, or told after how long
/// there was nothing.
#[tokio::test]
async fn waiters_are_served_in_order_or_told_why_not() {
    let world = World::with(Personality::legacy(), |server| {
        per_identity(1)(server).with_policy(|policy| policy.wait = secs(30))
    });
    let ledger = world.ledger();
    let lease = ledger.lease().await.unwrap();
    let order = Mutex::new(Vec::new());
    let waiters = async {
        let order = &order;
        join_all((0..8).map(|number| {
            let call = ledger.call("echo", json!({}));
            async move {
                call.await.unwrap().ok().unwrap();
                order.lock().unwrap().push(number);
            }
        }))
        .await;
    };
    let holder = async {
        until("all wait", || world.number("waiters", &[]) == 8).await;
        drop(lease);
    };
    tokio::join!(waiters, holder);
    assert_eq!(order.into_inner().unwrap(), (0..8).collect::<Vec<_>>());

    let lease = ledger.lease().await.unwrap();
    let late = tokio::spawn(ledger.call("echo", json!({})).into_future());
    until("it waits", || world.number("waiters", &[]) == 1).await;
    pass(secs(31)).await;
    let error = late.await.unwrap().unwrap_err();
    failed_as(&error, "pool-full", Delivery::Unsent);
    assert!(error.to_string().contains("within 31"), "{error}");
    assert!(error.to_string().contains(LEDGER));
    drop(lease);
    count(&ledger).await;
    world.finish().await;
}

/// A85, reliability I16: a waiter that leaves loses nothing for the others.
#[tokio::test]
async fn a_waiter_that_leaves_gives_its_place_up() {
    let world = World::with(Personality::legacy(), per_identity(1));
    let ledger = world.ledger();
    let lease = ledger.lease().await.unwrap();
    let waiting = || tokio::spawn(ledger.call("echo", json!({})).into_future());
    let (first, second, third) = (waiting(), waiting(), waiting());
    until("all wait", || world.number("waiters", &[]) == 3).await;
    first.abort();
    third.abort();
    until("two have left", || world.number("waiters", &[]) == 1).await;
    drop(lease);
    second.await.unwrap().unwrap().ok().unwrap();
    assert_eq!(count(&ledger).await, 1);
    assert_eq!(world.handshakes(), 1);
    world.finish().await;
}

/// reliability P18: when the line is full, the next one is told at once.
#[tokio::test]
async fn a_full_line_is_told_at_once() {
    let world = World::built(Personality::legacy(), per_identity(1), |builder| {
        builder.limits(|limits| limits.waiters_per_key = 2)
    });
    let ledger = world.ledger();
    let lease = ledger.lease().await.unwrap();
    let waiting = || tokio::spawn(ledger.call("echo", json!({})).into_future());
    let line = [waiting(), waiting()];
    until("the line is full", || world.number("waiters", &[]) == 2).await;
    let error = ledger.call("echo", json!({})).await.unwrap_err();
    failed_as(&error, "overloaded", Delivery::Unsent);
    drop(lease);
    for call in line {
        call.await.unwrap().unwrap().ok().unwrap();
    }
    world.finish().await;
}

/// A88, S1: without the pool every call has a session of its own, with the same results.
#[tokio::test]
async fn without_the_pool_every_call_has_its_own_session() {
    let world = World::with_engine(Personality::legacy(), |builder| {
        builder.limits(|limits| limits.pool_enabled = false)
    });
    let run = world.begin_run();
    for _ in 0..3 {
        assert_eq!(count(&run.server(LEDGER).unwrap()).await, 1);
    }
    assert_eq!(world.server.counts().sessions, 3);
    world.finish().await;
}

/// A54, S27: reuse is switched off for one tool or one server, and for that alone.
#[tokio::test]
async fn one_tool_may_have_a_session_of_its_own() {
    let other = LedgerServer::start(Personality::legacy()).unwrap();
    let world = World::built(
        Personality::legacy(),
        |server| {
            let apart = ToolPolicy {
                session_per: Some(SessionScope::Call),
                ..ToolPolicy::default()
            };
            server.tool("page_open", apart)
        },
        |builder| {
            let apart = Server::http("apart", other.url()).session_per(SessionScope::Call);
            builder.server(apart)
        },
    );
    let run = world.begin_run();
    let ledger = run.server(LEDGER).unwrap();
    assert_eq!(count(&ledger).await, 1);
    for sessions in 1..=2 {
        assert_eq!(count(&run.server("apart").unwrap()).await, 1);
        assert_eq!(other.counts().sessions, sessions);
    }
    done(ledger.call("page_open", json!({"url": "u"}))).await;
    let read = ledger.call("page_read", json!({})).await.unwrap();
    assert!(read.is_error(), "the page was opened in this session");
    assert_eq!(count(&ledger).await, 2);
    assert_eq!(world.server.counts().sessions, 2);
    world.finish().await;
}

/// A201: the sessions of a run count among those of its identity, and of nobody else.
#[tokio::test]
async fn sessions_of_runs_count_for_their_identity() {
    let world = World::built(
        Personality::legacy(),
        |server| server.with_policy(|policy| policy.wait = Duration::from_millis(500)),
        |builder| builder.limits(|limits| limits.sessions_per_identity = 2),
    );
    let alice = world.warm.identity("alice");
    let runs = [alice.begin_run(), alice.begin_run(), alice.begin_run()];
    for run in &runs[..2] {
        count(&run.server(LEDGER).unwrap()).await;
    }
    let third = runs[2].server(LEDGER).unwrap();
    let error = third.call("counter", json!({})).await.unwrap_err();
    assert_eq!(error.code().as_str(), "pool-full", "{error:?}");
    let bob = world.warm.identity("bob").begin_run();
    assert_eq!(count(&bob.server(LEDGER).unwrap()).await, 1);
    bob.end().await;
    let [first, ..] = runs;
    first.end().await;
    assert_eq!(count(&third).await, 1);
    drop(alice);
    world.finish().await;
}

/// A202: healing does not double a place.
#[tokio::test]
async fn healing_keeps_its_place() {
    let world = World::built(
        Personality::legacy(),
        |server| server.with_policy(|policy| policy.wait = Duration::from_millis(500)),
        |builder| builder.limits(|limits| limits.sessions = 1),
    );
    let ledger = world.in_run();
    for number in 1..=5 {
        assert_eq!(count(&ledger).await, 1);
        assert_eq!(ledger.current_session().unwrap().generation, number);
        world.control().forget_sessions();
    }
    world.finish().await;
}

/// A204: a server that keeps no sessions takes no place of those who do.
#[tokio::test]
async fn a_stateless_server_takes_no_place() {
    let stateless = LedgerServer::start(Personality::legacy_stateless()).unwrap();
    let modern = LedgerServer::start(Personality::modern()).unwrap();
    let world = World::built(
        Personality::legacy(),
        |server| server.with_policy(|policy| policy.wait = Duration::from_millis(500)),
        |builder| {
            builder
                .limits(|limits| limits.sessions = 1)
                .server(Server::http("stateless", stateless.url()))
                .server(Server::http("modern", modern.url()))
        },
    );
    let run = world.begin_run();
    for name in ["stateless", "modern", LEDGER, "modern", "stateless"] {
        let server = run.server(name).unwrap();
        server.call("echo", json!({})).await.unwrap().ok().unwrap();
    }
    world.finish().await;
}
