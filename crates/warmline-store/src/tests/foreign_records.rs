//! Secrets that were removed or replaced: it is noticed once, and what nobody can open goes in time.

use super::*;
use warmline_platform::clock;

const IDLE: Duration = Duration::from_secs(30 * 60);

/// The instance secret and the sealing key, as numbers.
type Numbers = (u8, u8);

/// Secrets by the numbers of their two parts.
fn secrets(instance: u8, seal: u8) -> Arc<Keyring> {
    let hex = |byte: u8| format!("{byte:02x}").repeat(32);
    let text = format!("instance={} seal={}", hex(instance), hex(seal));
    Arc::new(Keyring::from_text(&text).unwrap())
}

/// A store that outlives the process, as far as anybody can tell.
fn folder() -> (tempfile::TempDir, FileStore) {
    let folder = tempfile::tempdir().unwrap();
    let store = FileStore::in_folder(folder.path());
    (folder, store)
}

fn records_of(store: &FileStore, vault: Arc<Keyring>) -> Records {
    Records::new(Arc::new(store.clone()), vault, TIMEOUT)
}

/// DESIGN 5.4: whoever comes with other secrets learns that what is kept there is not for them.
#[tokio::test]
async fn a_store_that_was_sealed_with_other_secrets_is_told_once() {
    const OURS: Numbers = (1, 2);
    #[rustfmt::skip]
    let table: [(&[Numbers], bool, &str); 7] = [
        (&[],                false, "nothing is kept"),
        (&[OURS],            false, "they are the same"),
        (&[(3, 4)],          true,  "both were replaced"),
        (&[(3, 2)],          true,  "the instance secret was lost"),
        (&[(1, 4)],          true,  "the sealing key was replaced"),
        (&[(3, 4), (5, 6)],  true,  "both were replaced, twice"),
        (&[(3, 4), OURS],    false, "it was told before our first record was written"),
    ];
    for (before, expected, why) in table {
        let (_folder, store) = folder();
        for (run, (instance, seal)) in (1..).zip(before) {
            let theirs = records_of(&store, secrets(*instance, *seal));
            assert_done(&theirs.save(&record(&key(ALICE, run), 1, "abc"), None).await);
        }
        let ours = records_of(&store, secrets(OURS.0, OURS.1));
        assert_eq!(ours.are_all_foreign().await, expected, "{why}");
        assert!(!ours.are_all_foreign().await, "once: {why}");
    }
}

/// What is broken says nothing about secrets, and a store that dies with us has none to lose.
#[tokio::test]
async fn what_is_broken_or_our_own_is_no_sign_of_other_secrets() {
    let (_folder, store) = folder();
    store
        .save(name(1), None, stored(1, "garbage"))
        .await
        .unwrap();
    assert!(!records_of(&store, secrets(1, 2)).are_all_foreign().await);
    let store = MemoryStore::new();
    let theirs = Records::new(Arc::new(store.clone()), secrets(3, 4), TIMEOUT);
    assert_done(&theirs.save(&record(&key(ALICE, 1), 1, "abc"), None).await);
    let ours = Records::new(Arc::new(store), secrets(1, 2), TIMEOUT);
    assert!(!ours.are_all_foreign().await);
}

/// DESIGN 5.4: whoever lost the secrets has time to bring them back; then the keeper removes what
/// nobody can open, and nothing else.
#[tokio::test(start_paused = true)]
async fn what_nobody_can_open_is_removed_in_time() {
    let store = MemoryStore::new();
    let ours = records(&store);
    let theirs = Records::new(Arc::new(store.clone()), secrets(3, 4), TIMEOUT);
    let (lost, used) = (
        record(&key(ALICE, 1), 1, "lost"),
        record(&key(BOB, 1), 1, "used"),
    );
    assert_done(&theirs.save(&lost, None).await);
    assert_done(&ours.save(&used, None).await);
    let mut removed_after = None;
    for minutes in 0..600 {
        let left = ours.abandoned(IDLE, |_| true).await;
        assert_eq!(left, [], "nobody could end it");
        if removed_after.is_none() && store.scan().await.unwrap().len() == 1 {
            removed_after = Some(minutes);
        }
        clock::sleep(Duration::from_secs(60)).await;
    }
    assert!(removed_after.unwrap() >= 8 * 30, "{removed_after:?}");
    assert_eq!(ours.load(&used.key).await.unwrap(), Some(used));
    assert_eq!(store.scan().await.unwrap().len(), 1);
}
