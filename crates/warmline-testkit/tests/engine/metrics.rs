//! The numbers of a server after a life of which everything is known.

use crate::prelude::*;

use std::sync::atomic::AtomicBool;

use warmline_store::{BoxFuture, RecordName, SaveOutcome, SessionStore, StoreError, StoredRecord};

/// M1, M2, M3, M6, M9, M10, M14, reliability I28: a plain run is counted as it was.
#[tokio::test]
async fn a_plain_run_is_counted_as_it_was() {
    let world = World::new(Personality::legacy());
    let (run, ledger) = world.new_run();
    for _ in 0..3 {
        count(&ledger).await;
    }
    ledger
        .call("fail", json!({}))
        .await
        .unwrap()
        .ok()
        .unwrap_err();
    ledger
        .request("no/such/method", json!({}))
        .await
        .unwrap_err();
    let snapshot = world.warm.snapshot();
    let of = |name: &str, words: &[&str]| number(&snapshot, LEDGER, name, words);
    assert_eq!(of("acquires_total", &["miss"]), 1);
    assert_eq!(of("acquires_total", &["hit"]), 4);
    assert_eq!(of("opens_total", &["opened"]), 1);
    assert_eq!(of("sessions", &["idle"]), 1);
    assert_eq!(of("call_outcomes_total", &["tools/call", "ok"]), 3);
    assert_eq!(of("call_outcomes_total", &["tools/call", "tool-error"]), 1);
    assert_eq!(of("call_outcomes_total", &["other", "protocol-error"]), 1);
    assert_eq!(of("calls_total", &["answered"]), 5);
    assert_eq!(of("call_seconds", &[]), 5);
    assert_eq!(of("overhead_seconds", &[]), 5);
    assert_eq!(of("cooldown_seconds", &[]), 0);
    assert_eq!(of("store_degraded", &[]), 0);
    assert_eq!(snapshot.count("runs", &[]), 1);
    assert_eq!(snapshot.count("keys", &[]), 1);
    assert_eq!(snapshot.runs.len(), 1);
    run.end().await;
    let snapshot = world.warm.snapshot();
    assert_eq!(number(&snapshot, LEDGER, "closes_total", &["run-ended"]), 1);
    assert_eq!(snapshot.count("runs", &[]), 0);
    assert_eq!(snapshot.count("run_sessions", &[]), 1);
    world.finish().await;
}

/// M1, M3: a call outside a run is ephemeral, and a second one, too.
#[tokio::test]
async fn calls_outside_a_run_are_ephemeral() {
    let world = World::new(Personality::legacy());
    for _ in 0..2 {
        count(&world.ledger()).await;
    }
    assert_eq!(world.number("acquires_total", &["ephemeral"]), 2);
    assert_eq!(world.handshakes(), 2);
    world.finish().await;
}

/// M4, M10: a healing is counted by what showed the loss, and so is the call that was sent again.
#[tokio::test]
async fn a_healing_is_counted_by_its_cause() {
    let world = World::new(Personality::legacy());
    let mut events = world.warm.events();
    let ledger = world.in_counted_run().await;
    world.control().forget_sessions();
    count(&ledger).await;
    let snapshot = world.warm.snapshot();
    let numbers = snapshot.server(LEDGER).unwrap();
    let heals: Vec<&[&str]> = numbers
        .samples
        .iter()
        .filter(|number| number.name == "reinits_total")
        .map(|number| number.label_values.as_slice())
        .collect();
    assert_eq!(heals.len(), 1, "{heals:?}");
    assert_eq!(heals[0].last(), Some(&"healed"));
    assert_eq!(numbers.count("resends_total", &["session-gone"]), 1);
    assert_eq!(numbers.count("attempts_total", &[]), 3);
    loop {
        let Some(EventItem::Event(event)) = events.next().await else {
            panic!("events were lost");
        };
        if let Event::SessionHealed {
            from, state_lost, ..
        } = event
        {
            assert_eq!((from, state_lost), (1, true));
            break;
        }
    }
    world.finish().await;
}

/// M8, M7, A95: who waits too long is counted, and so is a breaker that trips.
#[tokio::test]
async fn waiting_and_breakers_are_counted() {
    let world = World::with(Personality::legacy(), |server| {
        server
            .session_per(SessionScope::Identity)
            .max_per_key(1)
            .with_policy(|policy| policy.wait = Duration::from_millis(30))
    });
    let alice = world.warm.identity("alice");
    let held = alice.lease(LEDGER).await.unwrap();
    let refused = alice
        .server(LEDGER)
        .unwrap()
        .call("counter", json!({}))
        .await;
    assert_eq!(refused.unwrap_err().code().as_str(), "pool-full");
    drop(held);
    assert_eq!(world.number("wait_timeouts_total", &[]), 1);
    assert_eq!(world.number("refused_total", &["pool-full"]), 1);
    world.finish().await;

    let server = LedgerServer::start(Personality::legacy()).unwrap();
    let url = server.url();
    drop(server);
    let warm = Warmline::builder()
        .server(Server::http(LEDGER, url))
        .build()
        .unwrap();
    for _ in 0..6 {
        let nobody = warm
            .server(LEDGER)
            .unwrap()
            .call("counter", json!({}))
            .await;
        nobody.unwrap_err();
    }
    let snapshot = warm.snapshot();
    let tripped = number(
        &snapshot,
        LEDGER,
        "breaker_changes_total",
        &["server", "tripped"],
    );
    assert_eq!(tripped, 1);
    let pause = number(&snapshot, LEDGER, "cooldown_seconds", &[]);
    assert!((1..=60).contains(&pause), "{pause}");
    let found = number(&snapshot, LEDGER, "orphans_possible_total", &[]);
    assert_eq!(found, 0, "nobody heard of these openings");
    warm.close().await;
}

/// reliability D119, reliability O16: an `initialize` that was sent and never answered may have left
/// a session. One that could not be sent has not, and neither has a question of the other era.
#[tokio::test]
async fn a_greeting_without_an_answer_may_have_left_a_session() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = silent.local_addr().unwrap();
    let hangs = format!("http://{at}/mcp");
    // Nobody answers the handshake of TLS: nothing is sent through it.
    let never_met = format!("https://{at}/mcp");
    let table = [
        (&hangs, Some(Era::Legacy), 1),
        (&hangs, Some(Era::Modern), 0),
        (&hangs, None, 0),
        (&never_met, Some(Era::Legacy), 0),
    ];
    for (url, era, expected) in table {
        let declared = Server::http(LEDGER, url.as_str())
            .with_policy(|policy| policy.create = Some(Duration::from_millis(200)));
        let declared = match era {
            Some(era) => declared.era(era),
            None => declared,
        };
        let warm = Warmline::builder().server(declared).build().unwrap();
        let called = warm.server(LEDGER).unwrap().call("counter", json!({}));
        called.await.unwrap_err();
        let snapshot = warm.snapshot();
        let possible = number(&snapshot, LEDGER, "orphans_possible_total", &[]);
        assert_eq!(possible, expected, "{url} {era:?}");
        warm.close().await;
    }
}

/// M5: a check before reuse is counted by what it found.
#[tokio::test]
async fn checks_are_counted() {
    let world = World::new(Personality::legacy());
    let ledger = world.in_counted_run().await;
    pass(secs(61)).await;
    count(&ledger).await;
    assert_eq!(world.number("checks_total", &["alive"]), 1);
    assert_eq!(world.number("check_seconds", &[]), 1);
    world.finish().await;
}

/// M12: what is asked of a store is counted, and what it did.
#[tokio::test]
async fn the_store_is_counted() {
    let world = World::with_engine(Personality::legacy(), |builder| {
        builder.store(MemoryStore::default())
    });
    let run = world.warm.begin_run();
    count(&run.server(LEDGER).unwrap()).await;
    let found = world.number("store_operations_total", &["load", "missing"]);
    assert_eq!(found, 1);
    assert!(world.number("store_operations_total", &["save", "done"]) >= 1);
    run.end().await;
    let found = world.number("store_operations_total", &["clear", "done"]);
    assert_eq!(found, 1);
    world.finish().await;
}

/// A store that reads and cannot write, while the disk is full.
#[derive(Clone, Debug, Default)]
struct FullDisk {
    kept: MemoryStore,
    is_full: Arc<AtomicBool>,
}

impl SessionStore for FullDisk {
    fn load(&self, name: RecordName) -> BoxFuture<'_, Result<Option<StoredRecord>, StoreError>> {
        self.kept.load(name)
    }

    fn save(
        &self,
        name: RecordName,
        expected: Option<u64>,
        stored: StoredRecord,
    ) -> BoxFuture<'_, Result<SaveOutcome, StoreError>> {
        if self.is_full.load(Ordering::Relaxed) {
            return Box::pin(std::future::ready(Err(StoreError::Unavailable(
                "the disk is full".to_owned(),
            ))));
        }
        self.kept.save(name, expected, stored)
    }

    fn clear(&self, name: RecordName, edition: u64) -> BoxFuture<'_, Result<bool, StoreError>> {
        self.kept.clear(name, edition)
    }

    fn scan(&self) -> BoxFuture<'_, Result<Vec<(RecordName, u64)>, StoreError>> {
        self.kept.scan()
    }

    fn outlives_process(&self) -> bool {
        false
    }
}

/// reliability O21, reliability O27: a store that failed lately is degraded, also while it answers
/// other questions; mended, it is well after a while.
#[tokio::test]
async fn a_store_that_fails_is_degraded_until_it_has_not_failed_for_a_while() {
    let store = FullDisk::default();
    store.is_full.store(true, Ordering::Relaxed);
    let built = store.clone();
    let world = World::with_engine(Personality::legacy(), |builder| builder.store(built));
    let run = world.begin_run();
    count(&run.server(LEDGER).unwrap()).await;
    let found = world.number("store_operations_total", &["load", "missing"]);
    assert_eq!(found, 1);
    assert!(world.number("store_operations_total", &["save", "failed"]) >= 1);
    assert_eq!(world.number("store_degraded", &[]), 1);
    store.is_full.store(false, Ordering::Relaxed);
    pass(secs(160)).await;
    assert_eq!(world.number("store_degraded", &[]), 0);
    world.finish().await;
}

/// M13: a credential that is asked for again is counted.
#[tokio::test]
async fn refreshes_of_credentials_are_counted() {
    use std::sync::atomic::{AtomicU32, Ordering};
    use warmline::CredentialProvider;
    use warmline_core::exchange::Diagnostic;
    use warmline_engine::credentials::{BoxFuture, Token, TokenRequest};

    #[derive(Debug, Default)]
    struct Counting(AtomicU32);
    impl CredentialProvider for Counting {
        fn fetch<'a>(&'a self, _: TokenRequest<'a>) -> BoxFuture<'a, Result<Token, Diagnostic>> {
            let number = self.0.fetch_add(1, Ordering::Relaxed);
            Box::pin(std::future::ready(Ok(Token::new(format!(
                "token-{number}"
            )))))
        }
        fn label(&self) -> String {
            "counting".to_owned()
        }
    }

    let world = World::with(Personality::legacy(), |server| {
        server.provider(Counting::default())
    });
    let ledger = world.in_counted_run().await;
    world.control().require_token("token-1");
    assert_eq!(count(&ledger).await, 2, "the session is kept");
    assert_eq!(world.number("credential_refreshes_total", &["renewed"]), 1);
    world.finish().await;
}

/// reliability P24: a session that somebody holds alone for long is named, once.
#[tokio::test]
async fn a_session_that_is_held_alone_for_long_is_named() {
    let world = World::new(Personality::legacy());
    let mut events = world.warm.events();
    let run = world.begin_run();
    let held = run.lease(LEDGER).await.unwrap();
    held.call("counter", json!({})).await.unwrap().ok().unwrap();
    for _ in 0..8 {
        pass(secs(10)).await;
        tokio::task::yield_now().await;
    }
    let is_so = || world.number("leases_over_warn_total", &[]) == 1;
    until("the lease is named", is_so).await;
    let named = async {
        loop {
            if let Some(EventItem::Event(event)) = events.next().await
                && matches!(event, Event::LongLease { .. })
            {
                break;
            }
        }
    };
    tokio::time::timeout(secs(20), named).await.unwrap();
    drop(held);
    world.finish().await;
}
