//! A run goes on in the next life of its program.

use warmline::{Delivery, SessionStore};
use warmline_core::era::Version;
use warmline_engine::events::RunEnd;
use warmline_engine::metrics::OpenResult;
use warmline_store::{FileStore, ServerDescriptor, store_factory_fn};

use super::*;
use crate::census::marked;
use crate::restarts::recording_store::Mood;

/// Names a story to the processes that it starts.
const MARK: &str = "WARMLINE_RESTARTS_STORY";

/// A203, A139, M3: after a restart the first call uses the stored session, with nothing on the wire
/// before it.
#[tokio::test]
async fn a_run_goes_on_with_its_session_after_a_restart() {
    let (server, folder) = (server(), tempfile::tempdir().unwrap());
    let life = || {
        Warmline::builder()
            .server(Server::http(LEDGER, server.url()))
            .vault(Keyring::in_folder(folder.path()).unwrap())
            .store(FileStore::in_folder(folder.path().join("sessions")))
            .build()
            .unwrap()
    };
    let first = life();
    assert_eq!(count_in(&first, "chat").await, 1);
    assert_eq!(count_in(&first, "chat").await, 2);
    first.close().await;
    drop(first);
    let before = server.counts();
    assert_eq!(before.open_sessions, 1, "it was left to its record");
    let second = life();
    let mut events = second.events();
    assert_eq!(count_in(&second, "chat").await, 3);
    let opened = loop {
        match events.next().await {
            Some(EventItem::Event(Event::SessionOpened { how, .. })) => break how,
            Some(_) => {},
            None => panic!("it was not told"),
        }
    };
    assert_eq!(opened, OpenResult::Resumed);
    let numbers = second.snapshot();
    let opens = |how| numbers.server(LEDGER).unwrap().count("opens_total", &[how]);
    assert_eq!((opens("resumed"), opens("opened")), (1, 0));
    let after = server.counts();
    assert_eq!(after.initializes, 1);
    assert_eq!(
        after.requests,
        before.requests + 1,
        "the call and nothing else"
    );
    // Once the run has ended there is nothing to come back to.
    second.named_run("chat").unwrap().end().await;
    let is_so = || server.counts().open_sessions == 0;
    until("the session was ended", is_so).await;
    second.close().await;
    let third = life();
    assert_eq!(count_in(&third, "chat").await, 1);
    third.close().await;
    assert_eq!(server.violations(), Vec::<String>::new());
}

/// What a close leaves to its record is not told as closed: the session stays open at the server,
/// and events and numbers say so.
#[tokio::test]
async fn a_close_tells_what_it_leaves_to_the_next_life() {
    let (server, store) = (server(), RecordingStore::new());
    let warm = life(&server, &store);
    count_in(&warm, "chat").await;
    let outside = warm.begin_run();
    count(&outside.server(LEDGER).unwrap()).await;
    outside.end().await;
    let mut events = warm.events();
    warm.close().await;
    assert_eq!(server.counts().open_sessions, 1);
    let closes = |why: &str| {
        let snapshot = warm.snapshot();
        snapshot
            .server(LEDGER)
            .unwrap()
            .count("closes_total", &[why])
    };
    assert_eq!(
        [closes("kept"), closes("drained"), closes("run-ended")],
        [1, 0, 1]
    );
    drop(warm);
    let (mut sessions, mut runs) = (Vec::new(), Vec::new());
    while let Some(heard) = events.next().await {
        match heard {
            EventItem::Event(Event::SessionClosed { why, .. }) => sessions.push(why.as_str()),
            EventItem::Event(Event::RunEnded { why, .. }) => runs.push(why),
            EventItem::Event(_) | EventItem::Missed(_) => {},
        }
    }
    assert_eq!(sessions, ["kept"]);
    assert_eq!(runs, [RunEnd::Detached]);
}

/// A140: an id that the server forgot is healed once, the loss is told, and the store holds the new
/// one.
#[tokio::test]
async fn a_stored_session_that_the_server_forgot_is_healed_once() {
    let (server, store) = (server(), RecordingStore::new());
    let first = life(&server, &store);
    assert_eq!(count_in(&first, "chat").await, 1);
    first.close().await;
    server.control().forget_sessions();
    let second = life(&server, &store);
    let run = second.named_run("chat").unwrap();
    let result = run.server(LEDGER).unwrap().call("counter", json!({})).await;
    let result = result.unwrap();
    assert!(result.state_lost(), "{}", result.text());
    assert_eq!(server.counts().initializes, 2);
    run.detach();
    second.close().await;
    let third = life(&server, &store);
    assert_eq!(count_in(&third, "chat").await, 2);
    assert_eq!(server.counts().initializes, 2);
    third.named_run("chat").unwrap().end().await;
    third.close().await;
}

/// A134, A135: one look and one write when a session is opened, and nothing on the path of a call.
#[tokio::test]
async fn a_session_is_written_down_once_and_calls_do_not_ask_the_store() {
    let (server, store) = (server(), RecordingStore::new());
    let warm = life(&server, &store);
    // The first contact of a life asks the store as well: it may know what the server is.
    count_in(&warm, "before").await;
    warm.named_run("before").unwrap().end().await;
    store.asked();
    let run = warm.begin_run();
    let ledger = run.server(LEDGER).unwrap();
    let read = || ledger.call("get", json!({ "key": "a" })).repeatable();
    read().await.unwrap().ok().unwrap();
    assert_eq!(store.asked(), ["load", "save"]);
    for _ in 0..100 {
        read().await.unwrap().ok().unwrap();
    }
    assert_eq!(store.asked(), Vec::<&str>::new());
    run.end().await;
    warm.close().await;
}

/// reliability I39: the record stands in the store before anybody gets the session, and is gone
/// after it ended.
#[tokio::test]
async fn a_record_is_there_before_its_session_and_gone_after_it() {
    let (server, store) = (server(), RecordingStore::new());
    let server = Arc::new(server);
    let seen = Arc::clone(&server);
    store.at_save(move || {
        assert_eq!(seen.counts().initializes, 1);
        assert_eq!(seen.ledger().messages_received("tools/call"), 0);
    });
    let warm = life(&server, &store);
    let run = warm.begin_run();
    count(&run.server(LEDGER).unwrap()).await;
    store.at_save(|| {});
    assert_eq!(store.records().await, OF_THE_SERVER + 1);
    run.end().await;
    assert_eq!(server.ledger().messages_received("DELETE"), 1);
    assert_eq!(store.records().await, OF_THE_SERVER);
    warm.close().await;
}

/// reliability I39: the end of a run waits for what is being written of it, which would bring its
/// record back, and the next process with it to a session that was ended.
#[tokio::test]
async fn nothing_is_written_of_a_session_after_its_end() {
    let (server, store) = (server(), RecordingStore::new());
    let warm = life(&server, &store);
    let run = warm.begin_run();
    let ledger = run.server(LEDGER).unwrap();
    let read = ledger.call("get", json!({"key": "a"})).repeatable();
    read.await.unwrap().ok().unwrap();
    store.is_now(Mood::SavesSlowly);
    // From this call on there is something to lose, which is written down beside it.
    count(&ledger).await;
    until("it is being written", || store.saving() > 0).await;
    run.end().await;
    assert_eq!(store.saving(), 0);
    assert_eq!(store.records().await, OF_THE_SERVER);
    warm.close().await;
}

/// A143: every way of making a client uses the store.
#[tokio::test]
async fn every_way_to_a_session_uses_the_store() {
    let (server, store) = (server(), RecordingStore::new());
    let first = life(&server, &store);
    let alice = first.identity("alice");
    let run = alice.named_run("chat").unwrap();
    assert_eq!(count(&run.server(LEDGER).unwrap()).await, 1);
    run.detach();
    first.close().await;

    let second = life(&server, &store);
    let run = second.identity("alice").named_run("chat").unwrap();
    let leased = run.lease(LEDGER).await.unwrap();
    let result = leased.call("counter", json!({})).await.unwrap();
    assert_eq!(result.structured::<Value>().unwrap()["count"], 2);
    drop(leased);
    run.detach();
    second.close().await;

    let third = life(&server, &store);
    let run = third.identity("alice").named_run("chat").unwrap();
    let ambient = async {
        let run = Run::current().unwrap();
        count(&run.server(LEDGER).unwrap()).await
    };
    assert_eq!(run.scope(ambient).await, 3);
    let raw = run.server(LEDGER).unwrap();
    let raw = raw.request("tools/call", json!({ "name": "counter", "arguments": {} }));
    let raw: Value = serde_json::from_slice(&raw.await.unwrap()).unwrap();
    assert_eq!(raw["structuredContent"]["count"], 4);
    run.detach();
    third.close().await;

    let late = Warmline::builder()
        .vault(recording_store::vault())
        .store(store.clone())
        .build()
        .unwrap();
    late.add_server(Server::http(LEDGER, server.url())).unwrap();
    let run = late.identity("alice").named_run("chat").unwrap();
    assert_eq!(count(&run.server(LEDGER).unwrap()).await, 5);
    assert_eq!(server.counts().initializes, 1);
    run.end().await;
    late.close().await;
    let is_so = || server.counts().open_sessions == 0;
    until("the session was ended", is_so).await;
}

/// reliability P11: a record knows of state that was left by a call which was answered with an error
/// of the protocol.
#[tokio::test]
async fn a_record_knows_of_state_left_by_a_call_that_ended_in_an_error() {
    let (server, store) = (server(), RecordingStore::new());
    let first = life(&server, &store);
    let (run, ledger) = chat(&first);
    let failure = Fault::Error {
        code: -32000,
        message: "half of it was done".to_owned(),
        data: Value::Null,
    };
    server.inject(FaultRule::new(failure).on_tool("counter"));
    let error = ledger.call("counter", json!({})).await.unwrap_err();
    assert_eq!(error.delivery(), Delivery::Answered);
    run.detach();
    first.close().await;

    server.control().forget_sessions();
    let second = life(&server, &store);
    let (run, ledger) = chat(&second);
    let reply = ledger.call("counter", json!({})).await.unwrap();
    assert!(reply.state_lost(), "{reply:?}");
    run.end().await;
    second.close().await;
}

/// A137, A138: playground runs keep their session over restarts and production runs do not.
#[tokio::test]
async fn a_factory_decides_which_runs_survive() {
    for (execution, expected) in [("playground", 2), ("production", 1)] {
        let (server, store) = (server(), RecordingStore::new());
        let life = || {
            let kept: Arc<dyn SessionStore> = Arc::new(store.clone());
            let choose = move |card: &ServerDescriptor| match card.label("execution") {
                Some("playground") => Some(Arc::clone(&kept)),
                _ => Some(Arc::new(MemoryStore::new()) as Arc<dyn SessionStore>),
            };
            let declared = Server::http(LEDGER, server.url()).card(|card| {
                let label = ("execution".to_owned(), execution.to_owned());
                card.labels.extend([label]);
            });
            Warmline::builder()
                .server(declared)
                .vault(recording_store::vault())
                .store(store_factory_fn(choose))
                .build()
                .unwrap()
        };
        let first = life();
        assert_eq!(count_in(&first, "chat").await, 1);
        first.close().await;
        let second = life();
        assert_eq!(count_in(&second, "chat").await, expected, "{execution}");
        second.named_run("chat").unwrap().end().await;
        second.close().await;
        until("no session is left", || server.counts().open_sessions == 0).await;
    }
}

/// A process cannot be taken up again: the next life is told that its state is gone, once.
#[tokio::test]
async fn a_process_that_ended_with_its_program_is_told_of() {
    let store = RecordingStore::new();
    let life = || {
        let program = env!("CARGO_BIN_EXE_warmline-ledger");
        let command = [program, "--stdio", "--personality", "legacy"];
        life_of(Server::stdio(LEDGER, command).env(MARK, "told-of"), &store)
    };
    let first = life();
    assert_eq!(count_in(&first, "chat").await, 1);
    first.close().await;
    assert_eq!(store.records().await, OF_THE_SERVER + 1);
    let second = life();
    let (run, ledger) = chat(&second);
    let reply = ledger.call("counter", json!({})).await.unwrap();
    assert!(reply.state_lost(), "{}", reply.text());
    assert_eq!(reply.structured::<Value>().unwrap()["count"], 1);
    let next = ledger.call("counter", json!({})).await.unwrap();
    assert!(!next.state_lost());
    run.end().await;
    assert_eq!(store.records().await, OF_THE_SERVER);
    second.close().await;
    let mark = format!("{MARK}=told-of");
    until("no process is left", || marked(&mark).is_empty()).await;
}

/// Log level and subscriptions are part of what a session is.
#[tokio::test]
async fn a_healed_session_of_an_earlier_life_hears_what_was_ordered_there() {
    let (server, store) = (server(), RecordingStore::new());
    let first = life(&server, &store);
    let (run, ledger) = chat(&first);
    count(&ledger).await;
    ledger.set_log_level("debug").await.unwrap();
    // The record is renewed in the background.
    done(ledger.call("counter", json!({}))).await;
    run.detach();
    first.close().await;
    server.control().forget_sessions();
    let second = life(&server, &store);
    count_in(&second, "chat").await;
    let levels = server.ledger().count(|entry| {
        entry.phase == ExecutionPhase::Received && entry.method == "logging/setLevel"
    });
    assert_eq!(levels, 2, "{:?}", server.ledger().methods());
    second.named_run("chat").unwrap().end().await;
    second.close().await;
}

/// A9, A139: a run whose name was taken again while the old one still ended is found by its name
/// after a restart, and has nothing of the old one.
#[tokio::test]
async fn a_name_that_was_taken_again_while_its_run_ended_is_found_after_a_restart() {
    let (server, store) = (server(), RecordingStore::new());
    let first = life(&server, &store);
    let (old, ledger) = chat(&first);
    assert_eq!(count(&ledger).await, 1);
    let slow = tokio::spawn(async move { ledger.call("slow", json!({ "ms": 300 })).await });
    let is_so = || server.ledger().messages_received("tools/call") > 1;
    until("the slow call is under way", is_so).await;
    let ending = tokio::spawn(old.end());
    until("the old run ends", || first.join_run("chat").is_err()).await;
    // One that ends at once in between changes nothing.
    drop(first.named_run("chat").unwrap());
    assert_eq!(count_in(&first, "chat").await, 1);
    assert_eq!(count_in(&first, "chat").await, 2);
    slow.await.unwrap().unwrap().ok().unwrap();
    ending.await.unwrap();
    first.close().await;
    let second = life(&server, &store);
    assert_eq!(count_in(&second, "chat").await, 3);
    let run = second.named_run("chat").unwrap();
    run.end().await;
    second.close().await;
    assert_eq!(server.counts().open_sessions, 0);
}

/// A137: a factory sees all that is known of a server.
#[tokio::test]
async fn a_factory_sees_the_whole_description_of_a_server() {
    let server = server();
    let seen: Arc<Mutex<Option<ServerDescriptor>>> = Arc::default();
    let shown = Arc::clone(&seen);
    let choose = move |card: &ServerDescriptor| {
        *shown.lock().unwrap() = Some(card.clone());
        None
    };
    let declared = Server::http(LEDGER, server.url()).card(|card| {
        card.id = Some("17".to_owned());
        card.slug = Some("browser".to_owned());
        card.folder = Some("Shared".to_owned());
        card.labels.insert("team".to_owned(), "lamp".to_owned());
    });
    let builder = Warmline::builder()
        .server(declared)
        .vault(recording_store::vault());
    let warm = builder.store(store_factory_fn(choose)).build().unwrap();
    assert_eq!(count_in(&warm, "chat").await, 1);
    let card = seen.lock().unwrap().take().unwrap();
    let said = (&*card.name, card.id.as_deref(), card.slug.as_deref());
    assert_eq!(said, (LEDGER, Some("17"), Some("browser")));
    let place = (card.folder.as_deref(), card.url.as_deref());
    assert_eq!(place, (Some("Shared"), Some(&*server.url())));
    assert_eq!(card.label("team"), Some("lamp"));
    warm.named_run("chat").unwrap().end().await;
    warm.close().await;
}

/// A139: the version and the capabilities come from the record too, with nothing on the wire.
#[tokio::test]
async fn what_was_agreed_on_is_known_after_a_restart() {
    let personality = Personality::legacy().legacy_versions(&["2025-06-18"]);
    let server = LedgerServer::start(personality).unwrap();
    let store = RecordingStore::new();
    let first = life(&server, &store);
    assert_eq!(count_in(&first, "chat").await, 1);
    let run = first.named_run("chat").unwrap();
    let met = run.server(LEDGER).unwrap().info().await.unwrap();
    assert_eq!(met.version, Version::V2025_06_18);
    run.detach();
    first.close().await;
    let before = server.counts().requests;
    let second = life(&server, &store);
    assert_eq!(count_in(&second, "chat").await, 2);
    let run = second.named_run("chat").unwrap();
    let known = run.server(LEDGER).unwrap().info().await.unwrap();
    let found = (known.version, &known.capabilities, &known.server_info);
    assert_eq!(found, (met.version, &met.capabilities, &met.server_info));
    assert_eq!(server.counts().requests, before + 1, "the call alone");
    run.end().await;
    second.close().await;
    assert_eq!(server.violations(), Vec::<String>::new());
}
