//! Spares: sessions opened ahead, never used by anybody, given to one.

use crate::prelude::*;

use warmline_engine::metrics::OpenResult;

use super::named_credentials::Named;

fn spares(number: u32) -> impl FnOnce(Server) -> Server {
    move |server| server.spares(number)
}

/// From now on no handshake ever comes to an end.
fn stop_openings(world: &World) {
    let silence = Fault::Silence(FaultTiming::BeforeExecuting);
    world.inject(FaultRule::new(silence).on_method("initialize").always());
}

async fn there_are(world: &World, number: u64) {
    let is_so = || world.server.counts().open_sessions == number;
    until("the spares are there", is_so).await;
}

/// Waits until so many spares more lie ready.
async fn ready(events: &mut EventSubscription, number: usize) {
    let mut opened = 0;
    while opened < number {
        if let Some(EventItem::Event(Event::SpareOpened { .. })) = events.next().await {
            opened += 1;
        }
    }
}

/// P132: a fresh run takes a spare, and waits for no handshake.
#[tokio::test]
async fn a_fresh_run_begins_on_a_spare() {
    let world = World::with(Personality::legacy(), spares(2));
    let mut events = world.warm.events();
    let first = world.warm.begin_run();
    assert_eq!(count(&first.server(LEDGER).unwrap()).await, 1);
    ready(&mut events, 2).await;
    stop_openings(&world);
    let runs = [world.warm.begin_run(), world.warm.begin_run()];
    for run in &runs {
        let ledger = run.server(LEDGER).unwrap();
        assert_eq!((count(&ledger).await, count(&ledger).await), (1, 2));
    }
    world.finish().await;
}

/// A185, A186: the end that a server states of a spare counts from its opening.
#[tokio::test]
async fn a_spare_is_replaced_before_its_stated_expiry() {
    let world = World::with(Personality::legacy().advertised_expiry(100), spares(1));
    let mut events = world.warm.events();
    let first = world.warm.begin_run();
    count(&first.server(LEDGER).unwrap()).await;
    ready(&mut events, 1).await;
    first.end().await;
    pass(secs(50)).await;
    let ledger = world.in_run();
    let read = || ledger.call("get", json!({"key": "a"})).repeatable();
    assert_eq!(read().await.unwrap().generation(), 1);
    let sessions = world.warm.snapshot().sessions;
    let [session] = &sessions[..] else {
        panic!("{sessions:?}");
    };
    let lives = session.expires_at.unwrap() - session.opened_at;
    assert!((95..=101).contains(&lives), "{session:?}");
    pass(secs(45)).await;
    let next = read().await.unwrap();
    assert_eq!((next.generation(), next.attempts()), (2, 1));
    world.finish().await;
}

/// P132: a session that died is replaced by a spare at once.
#[tokio::test]
async fn a_spare_takes_the_place_of_a_lost_session() {
    let world = World::with(Personality::legacy(), spares(1));
    let mut events = world.warm.events();
    let ledger = world.in_counted_run().await;
    ready(&mut events, 1).await;
    // The server forgot this one alone.
    let gone = Fault::Reply(CannedReply::new(404, "Session not found"));
    world.inject(FaultRule::new(gone).on_tool("pay"));
    stop_openings(&world);
    let paid = world.pay(&ledger, "spare").await.unwrap();
    assert_eq!((paid.attempts(), paid.generation()), (2, 2));
    assert_eq!(world.payments("spare"), 1);
    world.control().clear_faults();
    // The one that was declared dead lives on at the server, for nobody.
    world.control().forget_sessions();
    world.finish().await;
}

/// A19: outside a run a call takes a spare, and the shelf is filled again.
#[tokio::test]
async fn outside_a_run_a_call_takes_a_spare() {
    let world = World::with(Personality::legacy(), spares(1));
    let mut events = world.warm.events();
    count(&world.ledger()).await;
    for _ in 0..3 {
        ready(&mut events, 1).await;
        let before = world.server.counts().sessions;
        assert_eq!(count(&world.ledger()).await, 1);
        // One more was opened at most: the next spare.
        assert!(world.server.counts().sessions <= before + 1);
    }
    world.finish().await;
}

/// DESIGN 2: where fewer spares are decided on, those that are too many end at once.
#[tokio::test]
async fn fewer_spares_are_held_once_it_is_decided() {
    let world = World::with(Personality::legacy(), spares(2));
    let mut events = world.warm.events();
    let run = world.begin_run();
    count(&run.server(LEDGER).unwrap()).await;
    ready(&mut events, 2).await;
    for number in [1, 0] {
        let again = Server::http(LEDGER, world.server.url());
        world.add_server(again.spares(number));
        there_are(&world, 1 + u64::from(number)).await;
    }
    world.finish().await;
}

/// reliability P17: there are so many spares in all, whatever servers want.
#[tokio::test]
async fn there_are_so_many_spares_in_all() {
    let world = World::built(Personality::legacy(), spares(5), |builder| {
        builder.limits(|limits| limits.max_spares = 2)
    });
    count(&world.ledger()).await;
    there_are(&world, 2).await;
    for _ in 0..3 {
        pass(secs(10)).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(world.server.counts().open_sessions, 2);
    world.finish().await;
}

/// The numbers of openings and of what is open, by name.
fn numbers(warm: &Warmline, server: &str) -> [u64; 6] {
    let snapshot = warm.snapshot();
    let of = |name: &str, words: &[&str]| number(&snapshot, server, name, words);
    [
        of("opens_total", &["opened"]),
        of("opens_total", &["spare"]),
        of("sessions", &["spare"]),
        of("sessions", &["idle"]),
        of("child_starts_total", &[]),
        of("children", &[]),
    ]
}

/// M2, M3, reliability I28: what was opened ahead is counted once, shown while it lies there, and
/// told when somebody takes it; what a first contact opened is no spare.
#[tokio::test]
async fn a_spare_is_counted_once_and_told_when_it_is_taken() {
    let world = World::with(Personality::legacy(), spares(2));
    let mut events = world.warm.events();
    let first = world.warm.begin_run();
    count(&first.server(LEDGER).unwrap()).await;
    ready(&mut events, 2).await;
    assert_eq!(numbers(&world.warm, LEDGER), [3, 0, 2, 1, 0, 0]);
    assert_eq!(world.handshakes(), 3);
    let mut told = world.warm.events();
    let second = world.warm.begin_run();
    count(&second.server(LEDGER).unwrap()).await;
    ready(&mut events, 1).await;
    assert_eq!(numbers(&world.warm, LEDGER), [4, 1, 2, 2, 0, 0]);
    let mut kinds = Vec::new();
    while let Some(EventItem::Event(event)) = told.next().await {
        if matches!(event, Event::SpareOpened { .. }) {
            break;
        }
        if let Event::SpareTaken { session } = &event {
            assert!(session.run.is_some() && session.generation == Some(1));
            kinds.push(event.kind());
        }
        if let Event::SessionOpened { how, .. } = &event {
            assert_eq!(*how, OpenResult::Spare);
            kinds.push(event.kind());
        }
    }
    assert_eq!(kinds, ["spare-taken", "session-opened"]);
    world.finish().await;
}

/// A60, reliability P1: a spare that was opened with one credential serves no other.
#[tokio::test]
async fn a_spare_belongs_to_its_credential() {
    let world = World::with(Personality::legacy(), |server| {
        server.provider(Named).spares(2)
    });
    let mut events = world.warm.events();
    let runs = ["alice", "bob"].map(|name| (name, world.warm.identity(name).begin_run()));
    for (_, run) in &runs {
        count(&run.server(LEDGER).unwrap()).await;
    }
    ready(&mut events, 4).await;
    let more = ["alice", "bob", "alice"].map(|name| (name, world.warm.identity(name).begin_run()));
    for (_, run) in &more {
        assert_eq!(count(&run.server(LEDGER).unwrap()).await, 1);
    }
    let mut sessions = std::collections::BTreeMap::new();
    for entry in world.server.ledger().entries() {
        if entry.phase != ExecutionPhase::Received || entry.method == "server/discover" {
            continue;
        }
        let Some(session) = entry.session else {
            continue;
        };
        let credential = entry.credential.unwrap();
        let known = sessions
            .entry(session)
            .or_insert_with(|| credential.clone());
        assert_eq!(*known, credential, "a session saw two credentials");
    }
    for (_, run) in runs.into_iter().chain(more) {
        run.end().await;
    }
    world.finish().await;
}

/// A13, M11: a fresh run begins on a process that was started ahead, and is counted once.
#[tokio::test]
async fn a_fresh_run_begins_on_a_process_that_runs_already() {
    let program = Program::ledger(&["--personality", "legacy"]);
    let warm = Warmline::builder()
        .server(program.declared("child").spares(1))
        .build()
        .unwrap();
    let mut events = warm.events();
    let first = warm.begin_run();
    count(&first.server("child").unwrap()).await;
    ready(&mut events, 1).await;
    assert_eq!(program.starts(), 2);
    let second = warm.begin_run();
    let child = second.server("child").unwrap();
    let note = json!({"title": "a", "text": "b"});
    child.call("note_write", note).await.unwrap().ok().unwrap();
    assert_eq!(count(&child).await, 1);
    // The shelf is filled again, and everything ends with the engine.
    ready(&mut events, 1).await;
    assert_eq!(program.starts(), 3);
    assert_eq!(numbers(&warm, "child"), [3, 1, 1, 2, 3, 3]);
    first.end().await;
    second.end().await;
    warm.close().await;
    program.gone().await;
    assert_eq!(program.starts(), 3);
    agrees(&warm.snapshot());
}

/// P132: the death of one session delays its own calls alone: while its replacement is on its way
/// others of the same server are served.
#[tokio::test]
async fn the_death_of_one_session_delays_its_own_calls_alone() {
    let world = World::new(Personality::legacy());
    let runs = [world.warm.begin_run(), world.warm.begin_run()];
    let [dying, living] = runs.each_ref().map(|run| run.server(LEDGER).unwrap());
    count(&dying).await;
    count(&living).await;
    let gone = Fault::Reply(CannedReply::new(404, "Session not found"));
    world.inject(FaultRule::new(gone).on_tool("pay"));
    let late = Fault::Delay(1_500, FaultTiming::BeforeExecuting);
    world.inject(FaultRule::new(late).on_method("initialize"));
    let before = world.handshakes();
    let waiting = dying.clone();
    let waiting = tokio::spawn(async move { payment(&waiting, "late").await });
    let is_so = || world.received("initialize") as u64 > before;
    until("its session is replaced", is_so).await;
    for number in 2..12 {
        assert_eq!(count(&living).await, number);
    }
    assert!(!waiting.is_finished(), "nobody waited for the replacement");
    let paid = waiting.await.unwrap().unwrap();
    assert_eq!((paid.attempts(), paid.generation()), (2, 2));
    assert_eq!(world.payments("late"), 1);
    for run in runs {
        run.end().await;
    }
    // The one that was declared dead lives on at the server, for nobody.
    world.control().forget_sessions();
    world.finish().await;
}

/// reliability P5, reliability P13, E20: spares that a server has no room for are its callers' trouble
/// at no time: what a live run loses is replaced at once.
#[tokio::test]
async fn spares_that_find_no_room_keep_no_run_from_healing() {
    let full = CannedReply::new(503, "too many sessions");
    let single = r#"{"jsonrpc":"2.0","error":{"code":-32600,"message":"Invalid Request: Server already initialized"},"id":null}"#;
    let single = CannedReply::new(400, single).json();
    for (refusal, most) in [(full, 16), (single, 3)] {
        let world = World::with(Personality::legacy(), |server| {
            server.spares(1).with_policy(|policy| {
                policy.check_after = secs(100_000);
                policy.health_check_interval = secs(100_000);
                policy.keep_alive = Duration::ZERO;
            })
        });
        let rule = FaultRule::new(Fault::Reply(refusal)).on_method("initialize");
        world.inject(rule.skip(1).always());
        let run = world.begin_run();
        let ledger = run.server(LEDGER).unwrap();
        assert_eq!(count(&ledger).await, 1);
        for minute in 0..60 {
            for _ in 0..6 {
                pass(secs(10)).await;
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            // So that the run, and the wish for a spare, go on.
            assert_eq!(count(&ledger).await, minute + 2);
        }
        let tried = world.received("initialize");
        assert!(tried <= most, "{tried} in an hour");
        world.control().clear_faults();
        world.control().forget_sessions();
        let healed = ledger.call("counter", json!({})).await.unwrap();
        assert_eq!(healed.generation(), 2);
        world.finish().await;
    }
}
