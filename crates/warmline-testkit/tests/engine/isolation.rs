//! Isolation: what belongs to one run and one identity is seen by nobody else.

use crate::prelude::*;

use warmline_engine::events::ShortId;

/// Counts that often in a run, side by side, and gives the counts in order.
async fn counts(run: &Run, times: usize) -> Vec<i64> {
    let ledger = run.server(LEDGER).unwrap();
    let mut counts = join_all((0..times).map(|_| count(&ledger))).await;
    counts.sort_unstable();
    counts
}

fn up_to(times: i64) -> Vec<i64> {
    (1..=times).collect()
}

/// A15, A70, P96, reliability P2, reliability I3: two runs of one identity never see each
/// other's counter.
#[tokio::test]
async fn two_runs_of_one_identity_never_meet() {
    let world = World::new(Personality::legacy());
    let alice = world.warm.identity("alice");
    let runs = [alice.begin_run(), alice.named_run("chat").unwrap()];
    let counted = join_all(runs.iter().map(|run| counts(run, 20))).await;
    assert_eq!(counted, [up_to(20), up_to(20)]);
    world.finish().await;
}

/// A60, A68, A184, P95, reliability P1, reliability I2, reliability T1: two identities with equal
/// credentials and
/// the same name for their runs never see each other's counter.
#[tokio::test]
async fn two_identities_with_equal_credentials_and_run_names_never_meet() {
    let world = World::with(Personality::legacy().token("shared"), |server| {
        server.bearer(Secret::new("shared"))
    });
    let names = ["alice", "bob", "alice/", "Alice", ""];
    let runs: Vec<Run> = names
        .iter()
        .map(|name| world.warm.identity(name).named_run("thread-1").unwrap())
        .collect();
    for round in 1..=3 {
        let counted = join_all(runs.iter().map(|run| counts(run, 5))).await;
        let expected: Vec<i64> = (round * 5 - 4..=round * 5).collect();
        assert_eq!(counted, vec![expected; names.len()]);
    }
    assert_eq!(world.server.counts().sessions, 5);
    world.finish().await;
}

/// reliability P1: a run of another identity is like one that never was.
#[tokio::test]
async fn a_run_of_another_identity_is_like_none() {
    let world = World::new(Personality::legacy());
    let run = world.warm.identity("alice").named_run("secret").unwrap();
    count(&run.server(LEDGER).unwrap()).await;
    let bob = world.warm.identity("bob");
    let theirs = bob.join_run("secret").unwrap_err();
    let nobodys = bob.join_run("nobodys").unwrap_err();
    assert_eq!(theirs.code(), nobodys.code());
    let renamed = theirs.to_string().replace("secret", "nobodys");
    assert_eq!(renamed, nobodys.to_string());
    let own = bob.named_run("secret").unwrap();
    assert!(own.is_root());
    assert_eq!(count(&own.server(LEDGER).unwrap()).await, 1);
    own.end().await;
    assert_eq!(count(&run.server(LEDGER).unwrap()).await, 2);
    world.finish().await;
}

/// A runs' own word: inside the run of one identity another identity is outside of it.
#[tokio::test]
async fn a_current_run_is_its_own_identitys_alone() {
    let world = World::new(Personality::legacy());
    let alice = world.warm.identity("alice");
    let bob = world.warm.identity("bob");
    alice
        .run(async |run| {
            assert_eq!(count(&run.server(LEDGER).unwrap()).await, 1);
            assert_eq!(count(&alice.server(LEDGER).unwrap()).await, 2);
            // Bob has no run here: every call of his is on its own.
            assert_eq!(count(&bob.server(LEDGER).unwrap()).await, 1);
            assert_eq!(count(&bob.server(LEDGER).unwrap()).await, 1);
            let inner = bob
                .run(async |own| {
                    assert_ne!(own.name(), run.name());
                    count(&own.server(LEDGER).unwrap()).await
                })
                .await;
            assert_eq!(inner, 1);
            assert_eq!(count(&run.server(LEDGER).unwrap()).await, 3);
        })
        .await;
    world.finish().await;
}

/// A68, A70, P32: sessions are shared by identity or by everybody only where that is said by name.
#[tokio::test]
async fn sharing_is_said_by_name() {
    let side_by_side =
        |per| move |server: Server| server.session_per(per).calls(CallConcurrency::SideBySide);
    let identity = World::with(Personality::legacy(), side_by_side(SessionScope::Identity));
    let (alice, bob) = (
        identity.warm.identity("alice"),
        identity.warm.identity("bob"),
    );
    assert_eq!(count(&alice.server(LEDGER).unwrap()).await, 1);
    let run = alice.begin_run();
    assert_eq!(count(&run.server(LEDGER).unwrap()).await, 2);
    assert_eq!(count(&bob.server(LEDGER).unwrap()).await, 1);
    run.end().await;
    assert_eq!(count(&alice.server(LEDGER).unwrap()).await, 3);
    assert_eq!(identity.server.counts().sessions, 2);
    identity.finish().await;

    let everybody = World::with(Personality::legacy(), side_by_side(SessionScope::Server));
    for (number, name) in (1..).zip(["alice", "bob", "carol"]) {
        let who = everybody.warm.identity(name);
        assert_eq!(count(&who.server(LEDGER).unwrap()).await, number);
    }
    assert_eq!(everybody.handshakes(), 1);
    everybody.finish().await;
}

/// A63, A65, A200, P106: what changes how a server is reached changes the session; what is
/// decided about it does not.
#[tokio::test]
async fn another_way_to_a_server_is_another_session() {
    let other = LedgerServer::start(Personality::legacy()).unwrap();
    let shared = |server: Server| {
        server
            .session_per(SessionScope::Identity)
            .calls(CallConcurrency::SideBySide)
    };
    let world = World::with(Personality::legacy(), shared);
    let url = world.server.url();
    let as_it_was = || shared(Server::http(LEDGER, &url));
    assert_eq!(count(&world.ledger()).await, 1);

    // The same again, and another decision about it: the session stays.
    world.add_server(as_it_was());
    assert_eq!(count(&world.ledger()).await, 2);
    let decided = as_it_was().deadlines(secs(20), secs(40));
    world.add_server(decided);
    assert_eq!(count(&world.ledger()).await, 3);

    let ways = [
        as_it_was().header("X-Static", "1"),
        as_it_was().header("X-Static", "2"),
        as_it_was().ca_file("/nowhere/ca.pem"),
        shared(Server::http(LEDGER, format!("{url}?query"))),
        as_it_was().bearer(Secret::new("token")),
        shared(Server::http(LEDGER, other.url())),
    ];
    for way in ways {
        let shown = format!("{way:?}");
        world.add_server(way);
        let called = world.ledger().call("counter", json!({})).await;
        let called = called.unwrap_or_else(|error| panic!("{shown}: {error:?}"));
        assert_eq!(counted(&called), 1, "{shown}");
    }
    world.finish().await;
}

/// A185: a session's id as a short digest, its start, its last use and its state can be seen.
#[tokio::test]
async fn a_snapshot_shows_sessions_without_their_ids() {
    let world = World::new(Personality::legacy());
    let run = world.warm.identity("alice@example.com").begin_run();
    let ledger = run.server(LEDGER).unwrap();
    assert!(ledger.current_session().is_none());
    count(&ledger).await;
    let id = ledger.current_session().unwrap().id.unwrap();
    let snapshot = world.warm.snapshot();
    let [line] = snapshot.sessions.as_slice() else {
        panic!("{:?}", snapshot.sessions);
    };
    assert_eq!((line.generation, line.transport), (1, "http"));
    assert!(line.opened_at > 0 && line.used_at >= line.opened_at);
    assert_eq!(snapshot.runs.len(), 1);
    let shown = serde_json::to_string(&snapshot).unwrap();
    for hidden in [id.as_str(), "alice", run.name()] {
        assert!(!shown.contains(hidden), "{hidden} is shown in {shown}");
    }
    assert_eq!(line.session, Some(ShortId::from_session_id(&id)));
    world.finish().await;
}

/// A132: whether a session is held, and which, can be asked at any time without effect.
#[tokio::test]
async fn asking_for_the_session_changes_nothing() {
    let world = World::new(Personality::legacy());
    let (run, ledger) = world.new_run();
    for _ in 0..3 {
        assert_eq!(ledger.current_session(), None);
    }
    assert_eq!(world.server.counts().requests, 0);
    count(&ledger).await;
    let held = ledger.current_session().unwrap();
    assert_eq!(held.generation, 1);
    assert_eq!(world.control().session_ids(), [held.id.unwrap()]);
    let requests = world.server.counts().requests;
    ledger.current_session();
    assert_eq!(world.server.counts().requests, requests);
    run.end().await;
    assert_eq!(ledger.current_session(), None);
    world.finish().await;
}

/// reliability D122, reliability F74: a server that gives everybody the same session id puts nobody
/// into the session of another.
#[tokio::test]
async fn a_session_id_that_lives_is_given_to_nobody_else() {
    let world = World::new(Personality::legacy());
    let same = FaultRule::new(Fault::SessionId("same".to_owned()));
    world.inject(same.on_method("initialize").always());
    let (alice, bob) = (world.warm.identity("alice"), world.warm.identity("bob"));
    let run = alice.begin_run();
    assert_eq!(counts(&run, 3).await, up_to(3));
    // Another identity, and another run of the same one.
    for other in [bob.begin_run(), alice.begin_run()] {
        let ledger = other.server(LEDGER).unwrap();
        let error = ledger.call("counter", json!({})).await.unwrap_err();
        assert_eq!(error.reason().as_str(), "bad-session-id", "{error:?}");
        assert_eq!(error.delivery(), Delivery::Unsent);
        other.end().await;
    }
    // With that id the server would end the session that lives.
    assert_eq!(world.received("DELETE"), 0);
    // After a restart of the server the same id is that of another session.
    world.control().forget_sessions();
    assert_eq!(count(&run.server(LEDGER).unwrap()).await, 1);
    // The lost one is closed by now, and its id lives on in the one that took its place.
    until("the lost session is closed", || {
        let numbers = world.warm.snapshot();
        let numbers = numbers.server(LEDGER).unwrap();
        numbers.count("sessions", &["closing"]) == 0
            && numbers.count("closes_total", &["gone"]) == 1
    })
    .await;
    let other = bob.begin_run();
    let call = other.server(LEDGER).unwrap().call("counter", json!({}));
    assert_eq!(call.await.unwrap_err().reason().as_str(), "bad-session-id");
    other.end().await;
    assert_eq!(world.received("DELETE"), 0);
    assert_eq!(count(&run.server(LEDGER).unwrap()).await, 1);
    run.end().await;
    let next = bob.begin_run();
    assert_eq!(count(&next.server(LEDGER).unwrap()).await, 1);
    next.end().await;
    world.warm.close().await;
}
