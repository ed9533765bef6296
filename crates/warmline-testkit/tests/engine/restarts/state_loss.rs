//! A loss that a process knew of, or could have known of, is told by the next one.

use super::*;

const POLICIES: [StateLossPolicy; 2] = [StateLossPolicy::Tell, StateLossPolicy::Fail];

fn life_under(then: StateLossPolicy, server: &LedgerServer, store: &RecordingStore) -> Warmline {
    life_of(
        Server::http(LEDGER, server.url()).on_state_loss(then),
        store,
    )
}

/// A server whose sessions all runs share.
fn shared(then: StateLossPolicy, server: &LedgerServer) -> Server {
    let declared = Server::http(LEDGER, server.url()).session_per(SessionScope::Identity);
    declared
        .calls(CallConcurrency::SideBySide)
        .on_state_loss(then)
}

/// Whether a call says that state was lost, in the way of its policy.
fn says_so(then: StateLossPolicy, called: &Result<ToolResult, Error>) -> bool {
    match (then, called) {
        (StateLossPolicy::Tell, Ok(result)) => result.state_lost(),
        (_, Err(error)) => error.code().as_str() == "session-lost",
        (_, Ok(_)) => false,
    }
}

/// A48, A140: a loss that nobody was told of yet is in the record of the session that took the place
/// of the lost one, or, where no other could be opened, in the one that was cleared: the next life
/// tells it, once.
#[tokio::test]
async fn a_loss_that_nobody_was_told_of_is_told_in_the_next_life() {
    let both = |then| [(then, true), (then, false)];
    for (then, heals) in POLICIES.into_iter().flat_map(both) {
        let (server, store) = (server(), RecordingStore::new());
        let first = life_under(then, &server, &store);
        let run = first.named_run("chat").unwrap();
        if heals {
            let ledger = run.server(LEDGER).unwrap();
            assert_eq!(count(&ledger).await, 1);
            server.control().forget_sessions();
            // It heals, and tells nobody.
            ledger.tools().await.unwrap();
            assert_eq!(ledger.current_session().unwrap().generation, 2);
        } else {
            forgotten(&server, &run).await;
        }
        run.detach();
        first.close().await;
        let second = life_under(then, &server, &store);
        let (run, ledger) = chat(&second);
        let reply = ledger.call("counter", json!({})).await;
        assert!(says_so(then, &reply), "{then:?}, {heals}: {reply:?}");
        let next = ledger.call("counter", json!({})).await.unwrap();
        assert!(!next.state_lost(), "{then:?}, {heals}: told once");
        run.detach();
        second.close().await;
        let third = life_under(then, &server, &store);
        let (run, ledger) = chat(&third);
        let next = ledger.call("counter", json!({})).await.unwrap();
        let holds = !next.state_lost();
        assert!(holds, "{then:?}, {heals}: told in the life before");
        run.end().await;
        third.close().await;
        if heals {
            assert_eq!(server.counts().initializes, 2);
        } else {
            assert_eq!(store.records().await, OF_THE_SERVER);
        }
    }
}

/// A48: two processes of a run share a session by its record. What one of them left there is lost
/// for the other as well.
#[tokio::test]
async fn what_another_process_left_in_a_session_is_lost_for_all() {
    for then in POLICIES {
        let (server, store) = (server(), RecordingStore::new());
        let lives = [(); 2].map(|()| life_under(then, &server, &store));
        let runs = lives.each_ref().map(|life| life.named_run("chat").unwrap());
        let [one, other] = runs.each_ref().map(|run| run.server(LEDGER).unwrap());
        for handle in [&one, &other] {
            let echoed = handle.call("echo", json!({})).repeatable().await;
            echoed.unwrap().ok().unwrap();
        }
        let ids = [&one, &other].map(|handle| handle.current_session().unwrap().id);
        assert_eq!(ids[0], ids[1]);
        store.asked();
        count(&one).await;
        until("its record says so", || store.asked().contains(&"save")).await;
        server.control().forget_sessions();
        for handle in [&other, &one] {
            let called = handle.call("counter", json!({})).await;
            assert!(says_so(then, &called), "{then:?}: {called:?}");
        }
        for run in runs {
            run.end().await;
        }
        for life in &lives {
            life.close().await;
        }
    }
}

/// The server forgets the session of a run that left state there, says so, and opens no other: the
/// word of it reaches nobody in this life.
pub(crate) async fn forgotten(server: &LedgerServer, run: &Run) {
    let ledger = run.server(LEDGER).unwrap();
    assert_eq!(count(&ledger).await, 1);
    server.control().forget_sessions();
    let away = FaultRule::new(Fault::Reply(CannedReply::new(503, "{}").json()));
    server.inject(away.on_method("initialize").always());
    let failed = ledger.call("counter", json!({})).await.unwrap_err();
    assert_ne!(failed.code().as_str(), "session-lost");
    server.control().clear_faults();
}

/// A48: who heals in the life in which the loss happened is told there, and the next life is not.
#[tokio::test]
async fn a_loss_that_is_told_after_all_is_not_told_again() {
    for then in POLICIES {
        let (server, store) = (server(), RecordingStore::new());
        let first = life_under(then, &server, &store);
        let run = first.named_run("chat").unwrap();
        forgotten(&server, &run).await;
        let ledger = run.server(LEDGER).unwrap();
        let reply = ledger.call("counter", json!({})).await;
        assert!(says_so(then, &reply), "{then:?}: {reply:?}");
        let expected = count(&ledger).await;
        run.detach();
        first.close().await;
        let second = life_under(then, &server, &store);
        let (run, ledger) = chat(&second);
        let next = ledger.call("counter", json!({})).await.unwrap();
        let count = next.structured::<Value>().unwrap()["count"].as_i64();
        assert_eq!((count, next.state_lost()), (Some(expected + 1), false));
        run.end().await;
        second.close().await;
    }
}

/// A run that ends takes the word of its losses with it: who takes its name lost nothing.
#[tokio::test]
async fn nothing_is_told_of_a_run_that_ended() {
    let (server, store) = (server(), RecordingStore::new());
    let first = life(&server, &store);
    let run = first.named_run("chat").unwrap();
    forgotten(&server, &run).await;
    run.end().await;
    first.close().await;
    assert_eq!(store.records().await, OF_THE_SERVER);
    let second = life(&server, &store);
    let (run, ledger) = chat(&second);
    let begun = ledger.call("counter", json!({})).await.unwrap();
    assert!(!begun.state_lost());
    run.end().await;
    second.close().await;
}

/// A144: two processes share a session; one hears that it is gone and cannot open another. The
/// other one opens it, tells the loss, and leaves its session to its record.
#[tokio::test]
async fn a_loss_that_another_process_heard_of_first_is_told_by_each() {
    for then in POLICIES {
        let (server, store) = (server(), RecordingStore::new());
        let lives = [(); 2].map(|()| life_under(then, &server, &store));
        let runs = lives.each_ref().map(|life| life.named_run("chat").unwrap());
        let [one, other] = runs.each_ref().map(|run| run.server(LEDGER).unwrap());
        let echoed = other.call("echo", json!({})).repeatable().await;
        echoed.unwrap().ok().unwrap();
        forgotten(&server, &runs[0]).await;
        for handle in [&other, &one] {
            let called = handle.call("counter", json!({})).await;
            assert!(says_so(then, &called), "{then:?}: {called:?}");
        }
        let ids = [&one, &other].map(|handle| handle.current_session().unwrap().id);
        assert_eq!(ids[0], ids[1], "{then:?}: by its record");
        for run in runs {
            run.end().await;
        }
        for life in &lives {
            life.close().await;
        }
    }
}

/// A48, A140: runs share a session, one of them is told of a loss, and the process is killed. The
/// others come back by their names and are told; who begins in the next life lost nothing.
#[tokio::test]
async fn each_run_of_a_killed_life_is_told_what_was_lost_for_all() {
    for then in POLICIES {
        let (server, store) = (server(), RecordingStore::new());
        let life = || life_of(shared(then, &server), &store);
        let killed = life();
        let names = ["one", "two", "three"];
        let runs = names.map(|name| killed.named_run(name).unwrap());
        for run in &runs {
            count(&run.server(LEDGER).unwrap()).await;
        }
        server.control().forget_sessions();
        let first = runs[0].server(LEDGER).unwrap();
        let reply = first.call("echo", json!({})).repeatable().await;
        assert!(says_so(then, &reply), "{then:?}: {reply:?}");
        store.asked();
        count(&first).await;
        until("its record says so", || store.asked().contains(&"save")).await;
        let next = life();
        let late = next.begin_run();
        let begun = late
            .server(LEDGER)
            .unwrap()
            .call("counter", json!({}))
            .await;
        assert!(!begun.unwrap().state_lost(), "{then:?}: it lost nothing");
        for name in ["two", "three"] {
            let run = next.named_run(name).unwrap();
            let ledger = run.server(LEDGER).unwrap();
            let reply = ledger.call("counter", json!({})).await;
            assert!(says_so(then, &reply), "{then:?}, {name}: {reply:?}");
            let after = ledger.call("counter", json!({})).await.unwrap();
            assert!(!after.state_lost(), "{then:?}, {name}: told once");
            run.end().await;
        }
        late.end().await;
        next.close().await;
        killed.close().await;
    }
}

/// A48: who begins on a shared session after a loss lost nothing, also where the session ends under
/// it before anybody was told.
#[tokio::test]
async fn who_begins_after_a_loss_is_not_told_when_its_server_is_declared_anew() {
    for then in POLICIES {
        let (server, store) = (server(), RecordingStore::new());
        let declared = |value: &str| shared(then, &server).header("X-Declared", value);
        let warm = life_of(declared("1"), &store);
        let run = warm.begin_run();
        count(&run.server(LEDGER).unwrap()).await;
        server.control().forget_sessions();
        run.server(LEDGER)
            .unwrap()
            .request("tools/list", json!({}))
            .await
            .unwrap();
        let late = warm.begin_run();
        let ledger = late.server(LEDGER).unwrap();
        done(ledger.call("echo", json!({})).repeatable()).await;
        warm.add_server(declared("2")).unwrap();
        let ledger = late.server(LEDGER).unwrap();
        let next = ledger.call("counter", json!({})).await.unwrap();
        assert!(!next.state_lost(), "{then:?}");
        let reply = run.server(LEDGER).unwrap().call("counter", json!({})).await;
        assert!(says_so(then, &reply), "{then:?}: {reply:?}");
        for run in [run, late] {
            run.end().await;
        }
        warm.close().await;
    }
}

/// A48, A140: how long a shared session had lived says nothing of how long ago it was lost: who comes
/// back in a moment is told, also where the session was older than a run may rest.
#[tokio::test]
async fn the_loss_of_an_old_session_is_no_old_loss() {
    const MAY_REST: Duration = Duration::from_secs(2);
    for then in POLICIES {
        let (server, store) = (server(), RecordingStore::new());
        let life = || {
            let builder = Warmline::builder()
                .server(shared(then, &server))
                .vault(recording_store::vault());
            let builder = builder.limits(|limits| limits.run_idle = MAY_REST);
            builder.store(store.clone()).build().unwrap()
        };
        let killed = life();
        let (_run, ledger) = chat(&killed);
        let opened = Instant::now();
        // The wall clock counts here, which nobody can advance.
        while opened.elapsed() <= MAY_REST + Duration::from_secs(1) {
            count(&ledger).await;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        server.control().forget_sessions();
        let away = FaultRule::new(Fault::Reply(CannedReply::new(503, "{}").json()));
        server.inject(away.on_method("initialize").always());
        ledger.call("counter", json!({})).await.unwrap_err();
        server.control().clear_faults();
        let next = life();
        let run = next.named_run("chat").unwrap();
        let reply = run.server(LEDGER).unwrap().call("counter", json!({})).await;
        assert!(says_so(then, &reply), "{then:?}: {reply:?}");
        run.end().await;
        next.close().await;
        killed.close().await;
    }
}
