//! A store that outlives engines, writes down what it was asked, and fails as told.

use crate::prelude::*;

use std::sync::atomic::AtomicU32;

use warmline_store::{BoxFuture, RecordName, SaveOutcome, SessionStore, StoreError, StoredRecord};

/// The secrets of every life.
pub(crate) fn vault() -> Keyring {
    Keyring::from_text(&"0f".repeat(32)).unwrap()
}

/// What a store takes that saves slowly.
const A_WHILE: Duration = Duration::from_millis(150);

/// What the store does with whatever it is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mood {
    Works,
    /// It does what it is asked, and takes its time for what it saves.
    SavesSlowly,
    Fails,
    Panics,
    StaysSilent,
}

/// A store that stands outside of the engines that use it. Clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct RecordingStore(Arc<Inside>);

struct Inside {
    records: MemoryStore,
    mood: Mutex<Mood>,
    asked: Mutex<Vec<&'static str>>,
    saving: AtomicU32,
    at_save: Mutex<Option<Box<dyn Fn() + Send>>>,
}

impl std::fmt::Debug for Inside {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Kept")
    }
}

impl RecordingStore {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Inside {
            records: MemoryStore::new(),
            mood: Mutex::new(Mood::Works),
            asked: Mutex::default(),
            saving: AtomicU32::new(0),
            at_save: Mutex::default(),
        }))
    }

    /// Changes what it does.
    pub(crate) fn is_now(&self, mood: Mood) {
        *self.0.mood.lock().unwrap() = mood;
    }

    /// What it was asked so far, and forgets it.
    pub(crate) fn asked(&self) -> Vec<&'static str> {
        std::mem::take(&mut self.0.asked.lock().unwrap())
    }

    /// How much it is saving, where it takes its time.
    pub(crate) fn saving(&self) -> u32 {
        self.0.saving.load(Ordering::SeqCst)
    }

    /// Looks at the world whenever something is saved.
    pub(crate) fn at_save(&self, look: impl Fn() + Send + 'static) {
        *self.0.at_save.lock().unwrap() = Some(Box::new(look));
    }

    /// How many records it holds.
    pub(crate) async fn records(&self) -> usize {
        self.0.records.scan().await.unwrap().len()
    }

    /// All that it holds, to be put back one day.
    pub(crate) async fn copy(&self) -> Vec<(RecordName, StoredRecord)> {
        let mut copy = Vec::new();
        for (name, _) in self.0.records.scan().await.unwrap() {
            copy.push((name, self.0.records.load(name).await.unwrap().unwrap()));
        }
        copy
    }

    /// Holds again what it held on an earlier day.
    pub(crate) async fn put_back(&self, copy: Vec<(RecordName, StoredRecord)>) {
        for (name, edition) in self.0.records.scan().await.unwrap() {
            self.0.records.clear(name, edition).await.unwrap();
        }
        for (name, stored) in copy {
            let saved = self.0.records.save(name, None, stored).await.unwrap();
            assert_eq!(saved, SaveOutcome::Saved);
        }
    }

    /// Waits until so many records are there.
    pub(crate) async fn comes_to(&self, expected: usize) {
        let waiting = async {
            while self.records().await != expected {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let waited = tokio::time::timeout(Duration::from_secs(20), waiting).await;
        let now = self.records().await;
        assert!(waited.is_ok(), "{now} records, not {expected}");
    }

    async fn asked_for<T>(
        &self,
        what: &'static str,
        work: BoxFuture<'_, Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        self.0.asked.lock().unwrap().push(what);
        let mood = *self.0.mood.lock().unwrap();
        match mood {
            Mood::SavesSlowly if what == "save" => {
                self.0.saving.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(A_WHILE).await;
                let done = work.await;
                self.0.saving.fetch_sub(1, Ordering::SeqCst);
                done
            },
            Mood::Works | Mood::SavesSlowly => work.await,
            Mood::Fails => Err(StoreError::Unavailable("it is down".to_owned())),
            Mood::Panics => panic!("the store of this story panics"),
            Mood::StaysSilent => std::future::pending().await,
        }
    }
}

impl SessionStore for RecordingStore {
    fn load(&self, name: RecordName) -> BoxFuture<'_, Result<Option<StoredRecord>, StoreError>> {
        Box::pin(self.asked_for("load", self.0.records.load(name)))
    }

    fn save(
        &self,
        name: RecordName,
        expected: Option<u64>,
        stored: StoredRecord,
    ) -> BoxFuture<'_, Result<SaveOutcome, StoreError>> {
        if let Some(look) = &*self.0.at_save.lock().unwrap() {
            look();
        }
        Box::pin(self.asked_for("save", self.0.records.save(name, expected, stored)))
    }

    fn clear(&self, name: RecordName, edition: u64) -> BoxFuture<'_, Result<bool, StoreError>> {
        Box::pin(self.asked_for("clear", self.0.records.clear(name, edition)))
    }

    fn scan(&self) -> BoxFuture<'_, Result<Vec<(RecordName, u64)>, StoreError>> {
        Box::pin(self.asked_for("scan", self.0.records.scan()))
    }

    fn outlives_process(&self) -> bool {
        true
    }
}
