//! What nobody came back for is ended; what somebody holds is not.

use super::*;

/// How long a server that has a connection may take for what is on it, between two jumps of time.
const ANSWERS_WITHIN: Duration = Duration::from_millis(10);

/// Lets the keeper work through that much time.
async fn pass(server: &LedgerServer, minutes: u32) {
    for _ in 0..minutes * 6 {
        step(server).await;
    }
}

/// The same for ten seconds.
async fn step(server: &LedgerServer) {
    crate::fixture::pass(Duration::from_secs(10)).await;
    // The server answers on a thread of its own, in real time.
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
    tokio::time::sleep(Duration::from_millis(1)).await;
    let quiet = async {
        while server.counts().open_connections > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(ANSWERS_WITHIN, quiet).await.ok();
}

/// A49, reliability P29: the sessions of a life that ended without a word are ended with DELETE.
#[tokio::test]
async fn a_session_that_nobody_came_back_for_is_ended() {
    let (server, store) = (server(), RecordingStore::new());
    let first = life(&server, &store);
    count_in(&first, "left").await;
    count_in(&first, "taken-up").await;
    first.close().await;
    assert_eq!(server.counts().open_sessions, 2);
    let second = life(&server, &store);
    assert_eq!(count_in(&second, "taken-up").await, 2);
    let held = second.named_run("taken-up").unwrap();
    for _ in 0..5 {
        pass(&server, 10).await;
        // A run in use is not one that nobody came back for.
        let expected = count(&held.server(LEDGER).unwrap()).await;
        assert!(expected > 2);
    }
    assert_eq!(server.counts().open_sessions, 1);
    assert_eq!(server.ledger().messages_received("DELETE"), 1);
    // The record goes after the session, which the server ends on a thread of its own.
    store.comes_to(OF_THE_SERVER + 1).await;
    held.end().await;
    second.close().await;
    assert_eq!(server.violations(), Vec::<String>::new());
}

/// A49: who comes back while the sessions of others are ended keeps the session,
/// or gets a new one: none is ended under a live run.
#[tokio::test]
async fn nobody_loses_a_session_while_those_of_others_are_ended() {
    let (server, store) = (server(), RecordingStore::new());
    let first = life(&server, &store);
    let names = ["one", "two", "three"];
    for name in names {
        count_in(&first, name).await;
    }
    first.close().await;
    let second = life(&server, &store);
    // Somebody has to call, so that there is a keeper.
    let run = second.begin_run();
    count(&run.server(LEDGER).unwrap()).await;
    run.end().await;
    let before = server.ledger().messages_received("DELETE");
    let deletes = || server.ledger().messages_received("DELETE") - before;
    server.inject(
        FaultRule::new(Fault::Delay(1_000, FaultTiming::BeforeExecuting)).on_method("DELETE"),
    );
    for _ in 0..60 * 6 {
        // No further than that: whoever ends a session does not wait for ever.
        if deletes() == 0 {
            step(&server).await;
        }
    }
    assert_eq!(deletes(), 1, "the first of them is being ended");
    let runs = names.map(|name| second.named_run(name).unwrap());
    let mut came_back = Vec::new();
    for run in &runs {
        came_back.push(count(&run.server(LEDGER).unwrap()).await);
    }
    came_back.sort_unstable();
    assert_eq!(came_back, [1, 2, 2], "two of them find theirs");
    // The one that was being ended is gone, and no other.
    until("it is ended", || server.counts().open_sessions == 3).await;
    pass(&server, 5).await;
    let mut later = Vec::new();
    for run in runs {
        later.push(count(&run.server(LEDGER).unwrap()).await);
        run.end().await;
    }
    later.sort_unstable();
    assert_eq!((later.as_slice(), deletes()), (&[2, 3, 3][..], 1 + 3));
    second.close().await;
    assert_eq!(server.violations(), Vec::<String>::new());
}

/// A49: a server that could not be told, or would not, is told again; one that lets nobody end a
/// session is not.
#[tokio::test]
async fn a_session_that_could_not_be_ended_is_tried_again() {
    // What it answers at first, the tries it takes, and whether the session is there afterwards.
    for (status, tries, open) in [(503, 2, 0), (401, 2, 0), (405, 1, 1)] {
        let (server, store) = (server(), RecordingStore::new());
        let first = life(&server, &store);
        count_in(&first, "left").await;
        first.close().await;
        let second = life(&server, &store);
        let deletes = || server.ledger().messages_received("DELETE");
        // Somebody has to call, so that there is a keeper.
        let run = second.begin_run();
        count(&run.server(LEDGER).unwrap()).await;
        run.end().await;
        let before = deletes();
        let deletes = || deletes() - before;
        let answer = Fault::Reply(CannedReply::new(status, "not now"));
        server.inject(FaultRule::new(answer).on_method("DELETE"));
        pass(&server, 45).await;
        assert_eq!(deletes(), 1, "{status}");
        assert_eq!(store.records().await, OF_THE_SERVER + tries - 1, "{status}");
        pass(&server, 45).await;
        assert_eq!(deletes(), tries, "{status}");
        assert_eq!(store.records().await, OF_THE_SERVER, "{status}");
        assert_eq!(server.counts().open_sessions, open, "{status}");
        second.close().await;
        assert_eq!(server.violations(), Vec::<String>::new());
    }
}

/// A store that is shared by servers: nobody's session id goes to another server.
#[tokio::test]
async fn a_session_is_ended_at_its_own_server() {
    let (mine, other, store) = (server(), server(), RecordingStore::new());
    let life = |names: &[(&str, &LedgerServer)]| {
        let servers = names
            .iter()
            .map(|(name, server)| Server::http(*name, server.url()));
        Warmline::builder()
            .servers(servers)
            .vault(recording_store::vault())
            .store(store.clone())
            .build()
            .unwrap()
    };
    let first = life(&[("mine", &mine)]);
    let run = first.named_run("left").unwrap();
    count(&run.server("mine").unwrap()).await;
    run.detach();
    first.close().await;
    // This life knows another server only, which is called now and then.
    let second = life(&[("other", &other)]);
    let run = second.named_run("here").unwrap();
    for _ in 0..5 {
        count(&run.server("other").unwrap()).await;
        pass(&other, 10).await;
    }
    assert_eq!(other.ledger().messages_received("DELETE"), 0);
    assert_eq!(mine.counts().open_sessions, 1);
    run.end().await;
    second.close().await;
    assert_eq!(other.violations(), Vec::<String>::new());
}

/// A49: a session is spoken of to its server by nobody but who opened it: not under another
/// credential, and not under none. What somebody opened with a credential of its own is ended when
/// that one is here again, and its record stays until then.
#[tokio::test]
async fn a_session_is_ended_by_whoever_opened_it() {
    let folder = tempfile::tempdir().unwrap();
    for who in ["alice", "bob"] {
        std::fs::write(folder.path().join(who), format!("token-of-{who}")).unwrap();
    }
    let personal = || Secret::file(folder.path().join("{identity}"));
    let shared = |token: &str| Secret::new(token.to_owned());
    // As whom it is opened and found, and how many sessions are open then, and whether the server was told.
    let rows = [
        (personal(), personal(), "bob", (1, false)),
        (personal(), personal(), "alice", (0, true)),
        (
            shared("token-one"),
            shared("token-two"),
            "alice",
            (1, false),
        ),
    ];
    for (opened_with, found_with, who, ended) in rows {
        let (server, store) = (server(), RecordingStore::new());
        let life =
            |secret: Secret| life_of(Server::http(LEDGER, server.url()).bearer(secret), &store);
        let first = life(opened_with);
        let run = first.identity("alice").named_run("left").unwrap();
        count(&run.server(LEDGER).unwrap()).await;
        run.detach();
        first.close().await;
        let second = life(found_with);
        let run = second.identity(who).begin_run();
        count(&run.server(LEDGER).unwrap()).await;
        run.end().await;
        let (before, left) = (
            server.ledger().messages_received("DELETE"),
            store.records().await,
        );
        // Long enough for two tries: time jumps here, and the first may be cut off by that.
        for _ in 0..2 {
            pass(&server, 45).await;
        }
        let open = server.counts().open_sessions;
        let told = server.ledger().messages_received("DELETE") > before;
        assert_eq!((open, told), ended, "{who}");
        // The record goes after the session, in a later round if time jumped over this one.
        let expected = left - usize::from(open == 0);
        for _ in 0..5 {
            if store.records().await != expected {
                pass(&server, 45).await;
            }
        }
        store.comes_to(expected).await;
        second.close().await;
    }
}

/// A48, A49: the word of a loss that nobody came back for is forgotten as a session would be.
#[tokio::test]
async fn a_loss_that_nobody_came_back_for_is_forgotten() {
    let (server, store) = (server(), RecordingStore::new());
    let first = life(&server, &store);
    let run = first.named_run("left").unwrap();
    state_loss::forgotten(&server, &run).await;
    run.detach();
    first.close().await;
    store.comes_to(OF_THE_SERVER + 1).await;
    let second = life(&server, &store);
    let held = second.named_run("held").unwrap();
    for _ in 0..5 {
        count(&held.server(LEDGER).unwrap()).await;
        pass(&server, 10).await;
    }
    held.end().await;
    store.comes_to(OF_THE_SERVER).await;
    second.close().await;
    assert_eq!(server.violations(), Vec::<String>::new());
}
