//! Stores, left half-way: what is there afterwards is the old or the new, never half of it.

use std::sync::Arc;

use tempfile::TempDir;
use warmline_core::pool_key::Digest;
use warmline_store::{FileStore, MemoryStore, RecordName, SaveOutcome, SessionStore, StoredRecord};
use warmline_testkit::sweep::{TaskTermination, sweep_future, sweep_task};
use warmline_testkit::{Census, Personality};

use super::super::fixture::play;
use super::{Acting, Afterwards, Stage, Stand, echo, nothing, settles};

const NAME: RecordName = RecordName::new(Digest::new([7; 16]));

fn stored(edition: u64) -> StoredRecord {
    StoredRecord {
        edition,
        sealed: vec![u8::try_from(edition).unwrap_or_default(); 4_000],
    }
}

/// Loads what is there and checks that it is whole.
async fn whole(store: &dyn SessionStore, when: &str) -> Option<u64> {
    let found = store
        .load(NAME)
        .await
        .unwrap_or_else(|error| panic!("{when}: {error}"));
    let found = found?;
    assert_eq!(found, stored(found.edition), "{when}");
    Some(found.edition)
}

/// Saves what follows, whatever is there.
async fn follow(store: Arc<dyn SessionStore>) {
    let there = whole(&*store, "before").await;
    let next = there.map_or(1, |edition| edition % 200 + 1);
    let saved = store.save(NAME, there, stored(next)).await.unwrap();
    assert_eq!(saved, SaveOutcome::Saved);
    store.scan().await.unwrap();
}

async fn clear(store: Arc<dyn SessionStore>) {
    follow(Arc::clone(&store)).await;
    let there = whole(&*store, "before clearing").await.unwrap();
    assert!(store.clear(NAME, there).await.unwrap());
}

async fn is_swept(story: &str, store: Arc<dyn SessionStore>) {
    let quiet = Census::take();
    let after = async |when: String| {
        settles(&quiet, &when).await;
        whole(&*store, &when).await;
        follow(Arc::clone(&store)).await;
        settles(&quiet, &when).await;
    };
    let saving = || follow(Arc::clone(&store));
    sweep_future(saving, async |point| {
        after(format!("{story}, saving left at {point:?}")).await;
    })
    .await;
    let clearing = || clear(Arc::clone(&store));
    sweep_future(clearing, async |point| {
        after(format!("{story}, clearing left at {point:?}")).await;
    })
    .await;
    for way in [TaskTermination::Abort, TaskTermination::Panic] {
        sweep_task(way, clearing, async |polls| {
            after(format!("{story}, {way:?} after {polls} polls")).await;
        })
        .await;
    }
}

/// reliability P26, A139: what a store is asked may be left anywhere.
#[test]
fn what_a_store_is_asked_may_be_left_anywhere() {
    play(async {
        let folder = TempDir::new().unwrap();
        let stores: [(&str, Arc<dyn SessionStore>); 2] = [
            ("memory", Arc::new(MemoryStore::new())),
            ("files", Arc::new(FileStore::in_folder(folder.path()))),
        ];
        for (story, store) in stores {
            is_swept(story, store).await;
        }
    });
}

fn run_with_a_record(stand: Stand) -> Acting {
    Box::pin(async move {
        echo(&stand.ledger).await;
        stand.run.end().await;
    })
}

/// reliability P26, A139: a run whose sessions are kept on record may be left anywhere.
#[test]
fn a_run_with_records_may_be_left_anywhere() {
    play(async {
        let folder = TempDir::new().unwrap();
        let then = Afterwards::AnotherRun;
        let stage = Stage::http(Personality::legacy()).stored(MemoryStore::new());
        Box::pin(stage.fresh("in memory", nothing, run_with_a_record, then)).await;
        drop(stage);
        let store = FileStore::in_folder(folder.path());
        let stage = Stage::http(Personality::legacy()).stored(store);
        Box::pin(stage.fresh("in files", nothing, run_with_a_record, then)).await;
    });
}
