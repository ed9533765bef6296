//! Whatever stands on a disk: it is a record of ours, or it is ignored, counted and named.

use std::fs;
use std::path::{Path, PathBuf};

use super::*;

struct Disk {
    folder: tempfile::TempDir,
    store: FileStore,
    records: Records,
    opened: Record,
}

impl Disk {
    /// A folder with one record in it.
    async fn with_a_record() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = FileStore::in_folder(folder.path());
        let records = records(&store);
        let opened = record(&key(ALICE, 1), 1, "the-session-id");
        assert_done(&records.save(&opened, None).await);
        Self {
            folder,
            store,
            records,
            opened,
        }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn file(&self) -> PathBuf {
        let [file] = files(self.path()).try_into().expect("one record");
        file
    }

    async fn refusal(&self) -> warmline_core::exchange::Diagnostic {
        self.records.load(&self.opened.key).await.unwrap_err()
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    entries
        .filter(|path| path.extension().is_some_and(|ending| ending == "record"))
        .collect()
}

/// A66, reliability T13, reliability P32: what a thief of the folder learns is how many records there are.
#[tokio::test]
async fn nothing_of_a_session_can_be_read_in_the_folder() {
    let disk = Disk::with_a_record().await;
    let bytes = fs::read(disk.file()).unwrap();
    let shown = format!(
        "{}{}",
        disk.file().display(),
        String::from_utf8_lossy(&bytes)
    );
    for secret in ["the-session-id", "browser", "tools", "warmline\"", "2025"] {
        assert!(!shown.contains(secret), "{secret}");
    }
    let identity = [ALICE; 16];
    assert!(!bytes.windows(16).any(|window| window == identity));
    {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = fs::metadata(disk.file()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}

/// reliability F45: cut at each byte, and one bit of each byte flipped: refused, counted, replaced.
#[tokio::test]
async fn a_file_that_was_cut_or_changed_is_refused_and_written_anew() {
    let disk = Disk::with_a_record().await;
    let whole = fs::read(disk.file()).unwrap();
    let file = disk.file();
    let mut refused = 0;
    for at in 0..whole.len() {
        let mut changed = whole.clone();
        changed[at] ^= 1 << (at % 8);
        for bytes in [&whole[..at], &changed] {
            fs::write(&file, bytes).unwrap();
            let diagnostic = disk.refusal().await;
            assert_eq!(
                diagnostic.code.as_str(),
                "record-refused",
                "{at}: {diagnostic:?}"
            );
            refused += 1;
            assert_eq!(disk.records.refusals(), refused);
        }
    }
    assert!(!disk.records.is_down(), "a broken record is no outage");
    let anew = record(&disk.opened.key, 1, "anew");
    assert_done(&disk.records.save(&anew, None).await);
    assert_eq!(disk.records.load(&anew.key).await.unwrap(), Some(anew));
}

/// reliability P32: a record moved to another name, or put back under a later edition, is refused.
#[tokio::test]
async fn a_record_of_another_key_is_not_used() {
    let disk = Disk::with_a_record().await;
    let bobs = record(&key(BOB, 1), 1, "bobs");
    let alices = disk.file();
    assert_done(&disk.records.save(&bobs, None).await);
    let bobs = files(disk.path())
        .into_iter()
        .find(|path| *path != alices)
        .unwrap();
    fs::copy(bobs, &alices).unwrap();
    assert_eq!(disk.refusal().await.code.as_str(), "record-refused");
}

/// reliability F47: sealed with another key, by an instance with the same digests.
#[tokio::test]
async fn a_record_sealed_with_another_key_is_refused_with_a_clear_text() {
    let folder = tempfile::tempdir().unwrap();
    let process = |sealing: &str| {
        let text = format!("instance={} seal={}", "0".repeat(64), sealing.repeat(64));
        let vault = Arc::new(Keyring::from_text(&text).unwrap());
        Records::new(
            Arc::new(FileStore::in_folder(folder.path())),
            vault,
            TIMEOUT,
        )
    };
    let opened = record(&key(ALICE, 1), 1, "abc");
    assert_done(&process("a").save(&opened, None).await);
    let other = process("b");
    let diagnostic = other.load(&opened.key).await.unwrap_err();
    assert_eq!(diagnostic.code.as_str(), "record-refused");
    assert_eq!(
        diagnostic.cause.as_deref(),
        Some("it was sealed with another key")
    );
    let anew = record(&opened.key, 1, "anew");
    assert_done(&other.save(&anew, None).await);
    assert_eq!(other.load(&opened.key).await.unwrap(), Some(anew));
}

/// reliability F47: what a later version wrote is neither used nor destroyed.
#[tokio::test]
async fn a_record_of_a_later_version_stays_as_it_is() {
    let disk = Disk::with_a_record().await;
    let file = disk.file();
    let mut later = fs::read(&file).unwrap();
    later[3] = 2;
    fs::write(&file, &later).unwrap();
    let refused = disk.refusal().await;
    assert_eq!(refused.code.as_str(), "record-refused");
    assert!(refused.cause.unwrap().contains("later version"));
    let refused = trouble(
        disk.records
            .save(&record(&disk.opened.key, 1, "anew"), None)
            .await,
    );
    assert_eq!(refused.code.as_str(), "record-refused");
    trouble(disk.records.touch(&disk.opened).await);
    assert!(
        disk.records
            .clear(&disk.opened.key, 1, disk.opened.session_id.as_deref())
            .await
            .is_none()
    );
    assert_eq!(fs::read(&file).unwrap(), later);
    assert_eq!(disk.store.scan().await.unwrap(), []);
    assert!(disk.store.ignored_files() > 0);
}

/// The same for a record whose inside is too new, under a seal that opens.
#[tokio::test]
async fn a_sealed_record_of_a_later_version_stays_as_it_is() {
    use crate::keyring::Purpose;
    let store = MemoryStore::new();
    let records = records(&store);
    let opened = record(&key(ALICE, 1), 1, "abc");
    assert_done(&records.save(&opened, None).await);
    let [(name, edition)] = store.scan().await.unwrap().try_into().unwrap();
    let mut plain = opened.encode().unwrap();
    plain[0] = 2;
    let binding = [name.bytes().as_slice(), &edition.to_le_bytes()].concat();
    let sealed = vault().seal(Purpose::Record, &binding, &plain).unwrap();
    let later = StoredRecord { edition, sealed };
    assert_eq!(
        store.save(name, Some(edition), later.clone()).await,
        Ok(SaveOutcome::Saved)
    );
    let refused = records.load(&opened.key).await.unwrap_err();
    assert_eq!(refused.code.as_str(), "record-refused");
    trouble(
        records
            .save(&record(&opened.key, 2, "anew"), Some(&opened))
            .await,
    );
    assert_eq!(store.load(name).await.unwrap(), Some(later));
}

#[tokio::test]
async fn files_that_are_none_of_ours_are_left_alone() {
    let disk = Disk::with_a_record().await;
    for name in [
        "notes.txt",
        "0123.record",
        "x.record",
        &format!("{}.record", "Z".repeat(32)),
    ] {
        fs::write(disk.path().join(name), "mine").unwrap();
    }
    fs::create_dir(disk.path().join("a-folder")).unwrap();
    assert_eq!(disk.store.scan().await.unwrap().len(), 1);
    assert_eq!(fs::read(disk.path().join("notes.txt")).unwrap(), b"mine");
}

/// A link, a pipe or a folder under a record's name: never followed, never waited for.
#[tokio::test]
async fn what_is_no_file_is_refused_at_once() {
    let disk = Disk::with_a_record().await;
    let file = disk.file();
    let elsewhere = disk.path().join("elsewhere");
    fs::rename(&file, &elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &file).unwrap();
    assert_eq!(disk.refusal().await.code.as_str(), "record-refused");
    let anew = record(&disk.opened.key, 1, "anew");
    assert_done(&disk.records.save(&anew, None).await);
    assert!(fs::symlink_metadata(&file).unwrap().is_file());
    assert!(elsewhere.exists(), "what the link led to is not ours");

    fs::remove_file(&file).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, &file, rustix::fs::Mode::RUSR).unwrap();
    assert_eq!(disk.refusal().await.code.as_str(), "record-refused");
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    assert_eq!(disk.refusal().await.code.as_str(), "record-refused");
    assert_eq!(
        trouble(disk.records.save(&anew, None).await).code.as_str(),
        "record-refused"
    );
}

/// An unreadable folder is an outage with the folder's name, and over when the folder is back.
#[tokio::test]
async fn a_folder_that_cannot_be_used_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let in_the_way = folder.path().join("state");
    fs::write(&in_the_way, "a file").unwrap();
    let records = records(&FileStore::in_folder(in_the_way.join("sessions")));
    let opened = record(&key(ALICE, 1), 1, "abc");
    let refused = trouble(records.save(&opened, None).await);
    assert_eq!(refused.code.as_str(), "store-unavailable");
    assert!(refused.cause.unwrap().contains("sessions"));
    let refused = records.load(&opened.key).await.unwrap_err();
    assert_eq!(refused.code.as_str(), "store-unavailable");
    assert!(records.is_down());
    assert_eq!(records.abandoned(Duration::ZERO, |_| false).await, []);
    fs::remove_file(&in_the_way).unwrap();
    assert_done(&records.save(&opened, None).await);
    assert!(!records.is_down());
}

/// reliability F48: a lock that somebody holds is waited for, and not longer than the timeout.
#[tokio::test]
async fn a_record_that_somebody_else_changes_is_waited_for() {
    let disk = Disk::with_a_record().await;
    let lock = |share: usize| {
        let options = fs::File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .clone();
        let file = options
            .open(disk.path().join(format!(".lock-{share:x}")))
            .unwrap();
        file.lock().unwrap();
        file
    };
    let held: Vec<_> = (0..16).map(lock).collect();
    let records = Records::new(
        Arc::new(disk.store.clone()),
        vault(),
        Duration::from_millis(50),
    );
    let healed = record(&disk.opened.key, 2, "healed");
    let refused = trouble(records.save(&healed, Some(&disk.opened)).await);
    assert_eq!(refused.code.as_str(), "store-unavailable");
    // Reading needs no turn.
    assert!(disk.records.load(&disk.opened.key).await.unwrap().is_some());
    let (written, ()) = tokio::join!(disk.records.save(&healed, Some(&disk.opened)), async move {
        tokio::task::yield_now().await;
        drop(held);
    });
    assert_done(&written);
}
