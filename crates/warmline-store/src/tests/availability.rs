//! A store that fails or stays silent costs a caller no more than the store's timeout.

use std::sync::atomic::{AtomicU64, Ordering};

use tracing::span::{Attributes, Id, Record as Values};
use tracing::{Event, Level, Metadata, Subscriber};

use super::*;
use warmline_platform::clock;
use warmline_platform::lock::Mutex;

/// What a troubled store does with whatever it is asked.
#[derive(Clone, Copy, Debug)]
enum Mood {
    Works,
    Fails,
    StaysSilent,
}

/// A store that fails as told.
#[derive(Clone, Debug)]
struct Troubled {
    inside: MemoryStore,
    mood: Arc<Mutex<Mood>>,
    asked: Arc<AtomicU64>,
}

impl Troubled {
    fn new(mood: Mood) -> Self {
        Self {
            inside: MemoryStore::new(),
            mood: Arc::new(Mutex::new(mood)),
            asked: Arc::default(),
        }
    }

    fn is_now(&self, mood: Mood) {
        *self.mood.lock() = mood;
    }

    fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }

    async fn troubled<T>(
        &self,
        work: BoxFuture<'_, Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let mood = *self.mood.lock();
        match mood {
            Mood::Works => work.await,
            Mood::Fails => Err(StoreError::Unavailable(
                "no space left on device".to_owned(),
            )),
            Mood::StaysSilent => std::future::pending().await,
        }
    }
}

impl SessionStore for Troubled {
    fn load(&self, name: RecordName) -> BoxFuture<'_, Result<Option<StoredRecord>, StoreError>> {
        Box::pin(self.troubled(self.inside.load(name)))
    }

    fn save(
        &self,
        name: RecordName,
        expected: Option<u64>,
        stored: StoredRecord,
    ) -> BoxFuture<'_, Result<SaveOutcome, StoreError>> {
        Box::pin(self.troubled(self.inside.save(name, expected, stored)))
    }

    fn clear(&self, name: RecordName, edition: u64) -> BoxFuture<'_, Result<bool, StoreError>> {
        Box::pin(self.troubled(self.inside.clear(name, edition)))
    }

    fn scan(&self) -> BoxFuture<'_, Result<Vec<(RecordName, u64)>, StoreError>> {
        Box::pin(self.troubled(self.inside.scan()))
    }

    fn outlives_process(&self) -> bool {
        true
    }
}

/// Counts warnings.
#[derive(Clone, Default)]
struct Warnings(Arc<AtomicU64>);

impl Warnings {
    fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= &Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Values<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        assert_eq!(*event.metadata().level(), Level::WARN);
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// A141: a store that fails costs a warning, not a call.
#[tokio::test(start_paused = true)]
async fn a_store_that_fails_is_told_of_once_and_fails_nothing() {
    let warnings = Warnings::default();
    let _guard = tracing::subscriber::set_default(warnings.clone());
    let store = Troubled::new(Mood::Fails);
    let records = records(&store);
    let opened = record(&key(ALICE, 1), 1, "abc");
    for _ in 0..5 {
        let refused = records.load(&opened.key).await.unwrap_err();
        assert_eq!(refused.code.as_str(), "store-unavailable");
        assert!(refused.cause.unwrap().contains("no space"));
        trouble(records.save(&opened, None).await);
        trouble(records.touch(&opened).await);
        assert!(records.clear(&opened.key, 1, Some("abc")).await.is_none());
    }
    assert_eq!(warnings.count(), 1, "once per outage");
    assert!(records.is_down());
    assert_eq!(store.asked(), 20);
    store.is_now(Mood::Works);
    assert_done(&records.save(&opened, None).await);
    assert!(!records.is_down());
    store.is_now(Mood::Fails);
    trouble(records.touch(&record(&key(ALICE, 2), 1, "def")).await);
    assert_eq!(warnings.count(), 2, "another outage");
}

/// A141: nobody waits longer than the store's timeout, and not again and again.
#[tokio::test(start_paused = true)]
async fn a_store_that_stays_silent_costs_its_timeout_once_in_a_while() {
    let warnings = Warnings::default();
    let _guard = tracing::subscriber::set_default(warnings.clone());
    let store = Troubled::new(Mood::StaysSilent);
    let records = records(&store);
    let opened = record(&key(ALICE, 1), 1, "abc");
    let began = clock::now();
    let refused = records.load(&opened.key).await.unwrap_err();
    assert_eq!(refused.code.as_str(), "store-unavailable");
    assert_eq!(clock::now() - began, TIMEOUT);
    // From now on nobody waits, until it is time to look again.
    for _ in 0..100 {
        trouble(records.save(&opened, None).await);
    }
    assert_eq!(clock::now() - began, TIMEOUT);
    assert_eq!(store.asked(), 1);
    clock::sleep(Duration::from_secs(5)).await;
    let again = clock::now();
    let (one, other) = tokio::join!(records.load(&opened.key), records.load(&opened.key));
    assert!(one.is_err() && other.is_err());
    assert_eq!(clock::now() - again, TIMEOUT);
    assert_eq!(store.asked(), 2, "one looks for all");
    store.is_now(Mood::Works);
    clock::sleep(Duration::from_secs(5)).await;
    assert_done(&records.save(&opened, None).await);
    assert_eq!(warnings.count(), 1);
}

/// A heal during an outage: what stands in the store afterwards is known to be gone.
#[tokio::test(start_paused = true)]
async fn a_session_that_was_replaced_during_an_outage_is_replaced_in_the_store_later() {
    let store = Troubled::new(Mood::Works);
    let records = records(&store);
    let run = key(ALICE, 1);
    let first = record(&run, 1, "first");
    assert_done(&records.save(&first, None).await);
    store.is_now(Mood::Fails);
    let second = record(&run, 2, "second");
    trouble(records.save(&second, Some(&first)).await);
    let third = record(&run, 3, "third");
    trouble(records.save(&third, Some(&second)).await);
    store.is_now(Mood::Works);
    assert_done(&records.touch(&third).await);
    let there = records.load(&run).await.unwrap().unwrap();
    assert!(there.is_same_session(&third));
    // Only what is known to be gone is replaced like that.
    assert_eq!(winner(records.touch(&first).await), there);
}

/// reliability H3: whoever stops waiting for the store leaves it usable.
#[tokio::test(start_paused = true)]
async fn a_caller_who_gives_up_spoils_nothing() {
    let store = Troubled::new(Mood::StaysSilent);
    let records = records(&store);
    let opened = record(&key(ALICE, 1), 1, "abc");
    let gave_up = clock::timeout(Duration::from_millis(10), records.save(&opened, None)).await;
    assert!(gave_up.is_err());
    store.is_now(Mood::Works);
    assert_done(&records.save(&opened, None).await);
    assert!(!records.is_down());
}
