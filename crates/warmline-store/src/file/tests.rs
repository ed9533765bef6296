//! What is swept out of a folder.

use warmline_core::pool_key::Digest;

use super::*;

fn name(byte: u8) -> RecordName {
    RecordName::new(Digest::new([byte; 16]))
}

/// reliability F46: what a process that was killed left half done is swept away.
#[tokio::test]
async fn drafts_of_the_dead_are_removed_and_those_of_the_living_are_not() {
    let folder = tempfile::tempdir().unwrap();
    let (old, new) = (
        folder.path().join(".draft-old"),
        folder.path().join(".draft-new"),
    );
    fs::write(&old, "half").unwrap();
    fs::write(&new, "half").unwrap();
    let disk = RecordFolder::with_max_records(folder.path().to_owned(), 10);
    let now = clock::wall_seconds();
    disk.scan(now + 30 * 60).unwrap();
    assert!(old.exists() && new.exists());
    fs::remove_file(&new).unwrap();
    disk.scan(now + 2 * 60 * 60).unwrap();
    assert!(!old.exists());
    disk.scan(0).unwrap();
}

#[tokio::test]
async fn beyond_the_most_records_the_oldest_are_forgotten() {
    let folder = tempfile::tempdir().unwrap();
    let store = FileStore::in_folder(folder.path());
    let disk = RecordFolder::with_max_records(folder.path().to_owned(), 2);
    let stored = StoredRecord {
        edition: 1,
        sealed: b"x".to_vec(),
    };
    for byte in 1..=3 {
        assert_eq!(
            store.save(name(byte), None, stored.clone()).await,
            Ok(SaveOutcome::Saved)
        );
        let path = folder.path().join(format!("{}.record", name(byte)));
        let file = File::options().write(true).open(path).unwrap();
        let written = UNIX_EPOCH + Duration::from_secs(u64::from(byte));
        file.set_modified(written).unwrap();
    }
    let mut left = disk.scan(0).unwrap();
    left.sort();
    assert_eq!(left, [(name(2), 1), (name(3), 1)]);
    assert_eq!(store.load(name(1)).await, Ok(None));
}
