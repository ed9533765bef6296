//! A store that fails or stays silent: calls go on, in bounded time.

use super::recording_store::Mood;
use super::*;

/// A141, A142: a store that fails costs nothing but the way back.
#[tokio::test]
async fn calls_go_on_while_the_store_fails() {
    let (server, store) = (server(), RecordingStore::new());
    store.is_now(Mood::Fails);
    let warm = life(&server, &store);
    for expected in 1..=3 {
        assert_eq!(count_in(&warm, "chat").await, expected);
    }
    server.control().forget_sessions();
    assert_eq!(count_in(&warm, "chat").await, 1, "healing needs no store");
    warm.named_run("chat").unwrap().end().await;
    warm.close().await;
    until("no session is left", || server.counts().open_sessions == 0).await;
}

/// A141: no call waits longer than the store's timeout, and not each of them.
#[tokio::test]
async fn no_call_waits_for_a_silent_store_longer_than_its_timeout() {
    let (server, store) = (server(), RecordingStore::new());
    store.is_now(Mood::StaysSilent);
    let timeout = Duration::from_millis(300);
    let warm = Warmline::builder()
        .server(Server::http(LEDGER, server.url()))
        .vault(recording_store::vault())
        .store(store.clone())
        .limits(|limits| limits.store_timeout = timeout)
        .build()
        .unwrap();
    let began = Instant::now();
    assert_eq!(count_in(&warm, "first").await, 1);
    assert!(began.elapsed() >= timeout, "it was asked");
    for run in 0..20 {
        assert_eq!(count_in(&warm, &format!("run-{run}")).await, 1);
    }
    assert_eq!(store.asked(), ["load"], "and then it was left alone");
    store.is_now(Mood::Works);
    warm.close().await;
}

/// A141: what could not be written down is written once the store is back.
#[tokio::test]
async fn a_store_that_comes_back_gets_what_it_missed() {
    let (server, store) = (server(), RecordingStore::new());
    store.is_now(Mood::Fails);
    let first = life(&server, &store);
    assert_eq!(count_in(&first, "chat").await, 1);
    store.is_now(Mood::Works);
    assert_eq!(store.records().await, 0);
    // The keeper renews the records of what is held.
    tokio::time::pause();
    for _ in 0..20 {
        tokio::time::advance(Duration::from_secs(5)).await;
        tokio::task::yield_now().await;
    }
    tokio::time::resume();
    let there = async {
        while store.records().await == 0 {
            tokio::task::yield_now().await;
        }
    };
    let there = tokio::time::timeout(Duration::from_secs(30), there);
    there.await.expect("a record");
    first.close().await;
    let second = life(&server, &store);
    assert_eq!(count_in(&second, "chat").await, 2);
    second.named_run("chat").unwrap().end().await;
    second.close().await;
}

/// A141: a store that fails costs nobody the session that a record in it leads to, whether it works
/// again at the end or not. What has no record by then is ended: nobody could come back to it.
#[tokio::test]
async fn a_store_that_fails_costs_no_session_that_it_has_a_record_of() {
    for at_the_end in [Mood::Works, Mood::Fails] {
        let (server, store) = (server(), RecordingStore::new());
        let first = life(&server, &store);
        assert_eq!(count_in(&first, "written").await, 1);
        store.is_now(Mood::Fails);
        assert_eq!(count_in(&first, "not-written").await, 1);
        store.is_now(at_the_end);
        first.close().await;
        // A store that works again may have got what it missed.
        let kept = server.counts().open_sessions;
        let holds = kept == 1 || (kept, at_the_end) == (2, Mood::Works);
        assert!(holds, "{kept}");
        store.is_now(Mood::Works);
        let second = life(&server, &store);
        assert_eq!(count_in(&second, "written").await, 2, "{at_the_end:?}");
        let after = i64::try_from(kept).unwrap();
        assert_eq!(count_in(&second, "not-written").await, after);
        for name in ["written", "not-written"] {
            second.named_run(name).unwrap().end().await;
        }
        second.close().await;
        until("no session is left", || server.counts().open_sessions == 0).await;
    }
}

/// A141: a store that panics is one that fails: the panic reaches no caller, and no session is
/// left at the server.
#[tokio::test]
async fn calls_go_on_while_the_store_panics() {
    let (server, store) = (server(), RecordingStore::new());
    store.is_now(Mood::Panics);
    let warm = life(&server, &store);
    for expected in 1..=3 {
        assert_eq!(count_in(&warm, "chat").await, expected);
    }
    assert_eq!(server.counts().open_sessions, 1);
    warm.named_run("chat").unwrap().end().await;
    warm.close().await;
    until("no session is left", || server.counts().open_sessions == 0).await;
}

/// A141: a store that comes back as it was on an earlier day fails no call: what it holds is older
/// than the session that is replaced, so nobody else was there first.
#[tokio::test]
async fn a_store_from_an_earlier_day_fails_no_call() {
    let (server, store) = (server(), RecordingStore::new());
    let warm = life(&server, &store);
    assert_eq!(count_in(&warm, "chat").await, 1);
    let earlier = store.copy().await;
    server.control().forget_sessions();
    assert_eq!(count_in(&warm, "chat").await, 1);
    store.put_back(earlier).await;
    assert_eq!(count_in(&warm, "chat").await, 2);
    server.control().forget_sessions();
    assert_eq!(count_in(&warm, "chat").await, 1, "it is healed as ever");
    assert_eq!(count_in(&warm, "chat").await, 2);
    assert_eq!(server.counts().open_sessions, 1);
    warm.named_run("chat").unwrap().end().await;
    warm.close().await;
    until("no session is left", || server.counts().open_sessions == 0).await;
}
