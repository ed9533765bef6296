//! What every store does, and how one is chosen.

use std::collections::BTreeMap;

use super::*;

async fn keeps_what_it_is_given(store: impl SessionStore) {
    assert_eq!(store.load(name(1)).await, Ok(None));
    assert_eq!(store.scan().await, Ok(vec![]));
    assert_eq!(store.clear(name(1), 5).await, Ok(false));

    let first = stored(5, "first");
    assert_eq!(
        store.save(name(1), None, first.clone()).await,
        Ok(Saved::Done)
    );
    assert_eq!(store.load(name(1)).await, Ok(Some(first.clone())));
    assert_eq!(store.load(name(2)).await, Ok(None));

    let lost = Ok(Saved::Lost(Some(first.clone())));
    assert_eq!(store.save(name(1), None, stored(6, "second")).await, lost);
    assert_eq!(
        store.save(name(1), Some(4), stored(6, "second")).await,
        lost
    );
    let lost = Ok(Saved::Lost(None));
    assert_eq!(
        store.save(name(2), Some(5), stored(6, "second")).await,
        lost
    );
    assert_eq!(store.load(name(1)).await, Ok(Some(first)));

    assert_eq!(
        store.save(name(1), Some(5), stored(6, "second")).await,
        Ok(Saved::Done)
    );
    assert_eq!(
        store.save(name(2), None, stored(1, "other")).await,
        Ok(Saved::Done)
    );
    let mut names = store.scan().await.unwrap();
    names.sort();
    assert_eq!(names, [(name(1), 6), (name(2), 1)]);

    assert_eq!(store.clear(name(1), 5).await, Ok(false));
    assert_eq!(store.load(name(1)).await, Ok(Some(stored(6, "second"))));
    assert_eq!(store.clear(name(1), 6).await, Ok(true));
    assert_eq!(store.load(name(1)).await, Ok(None));
    assert_eq!(
        store.save(name(1), None, stored(7, "")).await,
        Ok(Saved::Done)
    );
    assert_eq!(store.load(name(1)).await, Ok(Some(stored(7, ""))));
}

/// A136: a store is a small trait; each of ours does what it says.
#[tokio::test]
async fn every_store_compares_and_sets() {
    keeps_what_it_is_given(MemoryStore::new()).await;
    let folder = tempfile::tempdir().unwrap();
    keeps_what_it_is_given(FileStore::in_folder(folder.path().join("not/there"))).await;
    let shared: Arc<dyn SessionStore> = Arc::new(MemoryStore::new());
    keeps_what_it_is_given(shared).await;
}

#[tokio::test]
async fn a_memory_store_that_is_full_says_so_and_keeps_what_it_has() {
    let store = MemoryStore::of_at_most(1);
    assert_eq!(
        store.save(name(1), None, stored(1, "a")).await,
        Ok(Saved::Done)
    );
    let full = store.save(name(2), None, stored(1, "b")).await;
    assert!(matches!(full, Err(StoreError::Unavailable(_))), "{full:?}");
    assert_eq!(
        store.save(name(1), Some(1), stored(2, "c")).await,
        Ok(Saved::Done)
    );
}

/// A137, A138: the factory sees the whole description and chooses by it.
#[tokio::test]
async fn a_factory_chooses_by_what_it_sees_of_a_server() {
    let folder = tempfile::tempdir().unwrap();
    let kept: Arc<dyn SessionStore> = Arc::new(FileStore::in_folder(folder.path()));
    let factory = by_server(move |card: &ServerCard| match card.label("execution") {
        Some("playground") => Some(Arc::clone(&kept)),
        Some("production") => Some(Arc::new(MemoryStore::new())),
        _ => None,
    });
    let card = |execution: &str| ServerCard {
        id: Some("17".to_owned()),
        slug: Some("browser".to_owned()),
        folder: Some("shared".to_owned()),
        url: Some("https://example.com/mcp?token=hunter2".to_owned()),
        labels: BTreeMap::from([("execution".to_owned(), execution.to_owned())]),
        ..ServerCard::new("browser")
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
    let for_one = store.store_for(&ServerCard::new("one")).unwrap();
    let for_other = store.store_for(&ServerCard::new("other")).unwrap();
    assert_eq!(
        for_one.save(name(1), None, stored(1, "a")).await,
        Ok(Saved::Done)
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
