//! What every store does, and how one is chosen.

use std::collections::BTreeMap;

use super::*;

/// One thing that is asked of a store, and what it answers.
enum StoreCall {
    Load(u8, Option<StoredRecord>),
    Save(u8, Option<u64>, StoredRecord, SaveOutcome),
    Clear(u8, u64, bool),
    Scan(&'static [(u8, u64)]),
}

async fn answers_as_told(store: impl SessionStore) {
    let (first, second) = (stored(5, "first"), stored(6, "second"));
    let lost = || SaveOutcome::Conflict(Some(stored(5, "first")));
    let steps = [
        StoreCall::Load(1, None),
        StoreCall::Scan(&[]),
        StoreCall::Clear(1, 5, false),
        StoreCall::Save(1, None, first.clone(), SaveOutcome::Saved),
        StoreCall::Load(1, Some(first.clone())),
        StoreCall::Load(2, None),
        StoreCall::Save(1, None, second.clone(), lost()),
        StoreCall::Save(1, Some(4), second.clone(), lost()),
        StoreCall::Save(2, Some(5), second.clone(), SaveOutcome::Conflict(None)),
        StoreCall::Load(1, Some(first)),
        StoreCall::Save(1, Some(5), second.clone(), SaveOutcome::Saved),
        StoreCall::Save(2, None, stored(1, "other"), SaveOutcome::Saved),
        StoreCall::Scan(&[(1, 6), (2, 1)]),
        StoreCall::Clear(1, 5, false),
        StoreCall::Load(1, Some(second)),
        StoreCall::Clear(1, 6, true),
        StoreCall::Load(1, None),
        StoreCall::Scan(&[(2, 1)]),
        StoreCall::Save(1, None, stored(7, ""), SaveOutcome::Saved),
        StoreCall::Load(1, Some(stored(7, ""))),
    ];
    for (at, step) in steps.into_iter().enumerate() {
        take(&store, at, step).await;
    }
}

async fn take(store: &impl SessionStore, at: usize, step: StoreCall) {
    match step {
        StoreCall::Load(of, expected) => {
            assert_eq!(store.load(name(of)).await, Ok(expected), "{at}");
        },
        StoreCall::Save(of, over, new, expected) => {
            assert_eq!(store.save(name(of), over, new).await, Ok(expected), "{at}");
        },
        StoreCall::Clear(of, edition, expected) => {
            assert_eq!(store.clear(name(of), edition).await, Ok(expected), "{at}");
        },
        StoreCall::Scan(expected) => {
            let mut found = store.scan().await.unwrap();
            found.sort();
            let expected: Vec<_> = expected.iter().map(|(of, it)| (name(*of), *it)).collect();
            assert_eq!(found, expected, "{at}");
        },
    }
}

/// A136: a store is a small trait; each of ours does what it says.
#[tokio::test]
async fn every_store_compares_and_sets() {
    answers_as_told(MemoryStore::new()).await;
    let folder = tempfile::tempdir().unwrap();
    answers_as_told(FileStore::in_folder(folder.path().join("not/there"))).await;
    let shared: Arc<dyn SessionStore> = Arc::new(MemoryStore::new());
    answers_as_told(shared).await;
}

#[tokio::test]
async fn a_memory_store_that_is_full_says_so_and_keeps_what_it_has() {
    let store = MemoryStore::with_max_records(1);
    assert_eq!(
        store.save(name(1), None, stored(1, "a")).await,
        Ok(SaveOutcome::Saved)
    );
    let full = store.save(name(2), None, stored(1, "b")).await;
    assert!(matches!(full, Err(StoreError::Unavailable(_))), "{full:?}");
    assert_eq!(
        store.save(name(1), Some(1), stored(2, "c")).await,
        Ok(SaveOutcome::Saved)
    );
}

/// A137, A138: the factory sees the whole description and chooses by it.
#[tokio::test]
async fn a_factory_chooses_by_what_it_sees_of_a_server() {
    let folder = tempfile::tempdir().unwrap();
    let kept: Arc<dyn SessionStore> = Arc::new(FileStore::in_folder(folder.path()));
    let factory = store_factory_fn(
        move |card: &ServerDescriptor| match card.label("execution") {
            Some("playground") => Some(Arc::clone(&kept)),
            Some("production") => Some(Arc::new(MemoryStore::new())),
            _ => None,
        },
    );
    let card = |execution: &str| ServerDescriptor {
        id: Some("17".to_owned()),
        slug: Some("browser".to_owned()),
        folder: Some("shared".to_owned()),
        url: Some("https://example.com/mcp?token=hunter2".to_owned()),
        labels: BTreeMap::from([("execution".to_owned(), execution.to_owned())]),
        ..ServerDescriptor::new("browser")
    };
    let outlives = |execution: &str| {
        let store = factory.store_for(&card(execution));
        store.map(|store| store.outlives_process())
    };
    assert_eq!(outlives("playground"), Some(true));
    assert_eq!(outlives("production"), Some(false));
    assert_eq!(outlives("elsewhere"), None);
    assert!(!format!("{:?}", card("playground")).contains("hunter2"));
}

/// A store is a factory of itself: every server gets the same.
#[tokio::test]
async fn a_store_alone_is_the_store_of_every_server() {
    let store = MemoryStore::new();
    let for_one = store.store_for(&ServerDescriptor::new("one")).unwrap();
    let for_other = store.store_for(&ServerDescriptor::new("other")).unwrap();
    assert_eq!(
        for_one.save(name(1), None, stored(1, "a")).await,
        Ok(SaveOutcome::Saved)
    );
    assert_eq!(for_other.load(name(1)).await, Ok(Some(stored(1, "a"))));
}

#[test]
fn the_name_of_a_record_reads_as_it_is_written() {
    let name = RecordName::new(Digest::new(*b"0123456789abcdef"));
    assert_eq!(RecordName::parse(&name.to_string()), Some(name));
    for text in [
        "",
        "00",
        "../../../../../../../etc/passwd.",
        &"A".repeat(32),
        &"é".repeat(16),
    ] {
        assert_eq!(RecordName::parse(text), None, "{text}");
    }
}
