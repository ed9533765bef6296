//! A store in a folder, shared by any number of processes.
//!
//! One file per record, named by the record's name. A file appears whole or not at all (a draft is
//! renamed), and changes only under a lock that holds between processes. A crash leaves an old state,
//! a new one, or a draft that is swept. Nothing is synced: losing the last write costs one handshake.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use rustix::fs::{Mode, OFlags};
use tokio::sync::Semaphore;
use warmline_core::record::MAX_BYTES;
use warmline_platform::{clock, private_file};

use crate::{RecordName, SaveOutcome, SessionStore, StoreError, StoreFuture, StoredRecord};

/// Most threads that wait for the disk at once: a folder on a dead network drive holds no more.
const MAX_THREADS: usize = 8;
/// The pause after the first failed try to get the lock of a record, and the longest one.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const MAX_PAUSE: Duration = Duration::from_millis(32);

/// Drafts of this age belong to processes that died.
const DRAFT_LIFETIME: Duration = Duration::from_secs(60 * 60);
/// Most records; beyond, those that were written first are removed. Not by age: a wall clock that
/// jumps would remove them all.
const MAX_RECORDS: usize = 200_000;
const EXTENSION: &str = ".record";
const DRAFT_PREFIX: &str = ".draft-";

/// A file begins with these letters, the version of its form and the edition; the sealed record
/// follows.
const MAGIC: [u8; 3] = *b"WLR";
const FORMAT_VERSION: u8 = 1;
const HEADER_LEN: usize = 4 + 8;
/// No file of ours is larger; sealing adds less than 64 bytes.
const MAX_FILE_LEN: usize = HEADER_LEN + MAX_BYTES + 64;

/// How many lock files there are, each for a share of the names. They are never removed: a lock on a file
/// that can be replaced locks nothing. The system releases the lock of a process that dies.
const LOCK_FILES: usize = 16;

fn lock_index(name: RecordName) -> usize {
    usize::from(name.bytes()[0] >> 4)
}

/// Records in a folder. Clones share it, and so do other processes.
#[derive(Clone, Debug)]
pub struct FileStore {
    folder: Arc<RecordFolder>,
    threads: Arc<Semaphore>,
    /// Within this process, writers queue for each lock file: only the first of a thousand tries to get
    /// it.
    lock_queues: Arc<[Semaphore; LOCK_FILES]>,
}

impl FileStore {
    /// The store in a folder, which is made at the first save. Nothing is read now.
    pub fn in_folder(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: Arc::new(RecordFolder::new(folder.into())),
            threads: Arc::new(Semaphore::new(MAX_THREADS)),
            lock_queues: Arc::new(std::array::from_fn(|_| Semaphore::new(1))),
        }
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder.path
    }

    /// How often a file was no record of ours, or broken.
    pub fn ignored_files(&self) -> u64 {
        self.folder.ignored.load(Ordering::Relaxed)
    }

    /// Runs something on a thread that may wait for the disk.
    async fn on_disk<T: Send + 'static>(
        &self,
        work: impl FnOnce(&RecordFolder) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let permit = Arc::clone(&self.threads).acquire_owned().await;
        let permit = permit.map_err(|error| StoreError::Unavailable(error.to_string()))?;
        let folder = Arc::clone(&self.folder);
        let work = move || {
            let done = work(&folder);
            drop(permit);
            done
        };
        let done = clock::spawn_blocking("record file", work).await;
        done.unwrap_or_else(|error| Err(StoreError::Unavailable(error.to_string())))
    }

    /// Changes a record under its lock.
    async fn under_lock<T: Send + 'static>(
        &self,
        name: RecordName,
        work: impl FnOnce(&RecordFolder, &RecordLock) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let queue = self.lock_queues.get(lock_index(name));
        let _turn = match queue {
            Some(queue) => queue.acquire().await.ok(),
            None => None,
        };
        let mut pause = FIRST_PAUSE;
        loop {
            let lock = self.on_disk(move |folder| folder.try_lock(name)).await?;
            if let Some(lock) = lock {
                return self.on_disk(move |folder| work(folder, &lock)).await;
            }
            clock::sleep(pause).await;
            pause = (pause * 2).min(MAX_PAUSE);
        }
    }
}

impl SessionStore for FileStore {
    fn load(&self, name: RecordName) -> StoreFuture<'_, Option<StoredRecord>> {
        Box::pin(self.on_disk(move |folder| folder.read(name)))
    }

    fn save(
        &self,
        name: RecordName,
        expected: Option<u64>,
        stored: StoredRecord,
    ) -> StoreFuture<'_, SaveOutcome> {
        Box::pin(self.under_lock(name, move |folder, lock| {
            folder.compare_and_swap(lock, expected, &stored)
        }))
    }

    fn clear(&self, name: RecordName, edition: u64) -> StoreFuture<'_, bool> {
        Box::pin(self.under_lock(name, move |folder, lock| folder.remove(lock, edition)))
    }

    fn scan(&self) -> StoreFuture<'_, Vec<(RecordName, u64)>> {
        let now = clock::wall_seconds();
        Box::pin(self.on_disk(move |folder| folder.scan(now)))
    }

    fn outlives_process(&self) -> bool {
        true
    }
}

/// The right to change a record, also between processes, until dropped.
#[derive(Debug)]
struct RecordLock {
    name: RecordName,
    _lock_file: File,
}

impl RecordLock {
    /// Takes the lock; none if somebody else has it.
    fn try_acquire(folder: &Path, name: RecordName) -> io::Result<Option<Self>> {
        let path = folder.join(format!(".lock-{:x}", lock_index(name)));
        let lock_file = crate::open_lock_file(&path)?;
        match lock_file.try_lock() {
            Ok(()) => Ok(Some(Self {
                name,
                _lock_file: lock_file,
            })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

/// The folder, and what is in its files. Everything here may wait for the disk.
#[derive(Debug)]
struct RecordFolder {
    path: PathBuf,
    max_records: usize,
    /// How often a file was no record of ours, or broken.
    ignored: AtomicU64,
}

/// A record as a scan finds it: when it was written by the wall clock of then, its name and edition.
type RecordFileEntry = (Duration, RecordName, u64);

impl RecordFolder {
    const fn new(path: PathBuf) -> Self {
        Self::with_max_records(path, MAX_RECORDS)
    }

    const fn with_max_records(path: PathBuf, max_records: usize) -> Self {
        Self {
            path,
            max_records,
            ignored: AtomicU64::new(0),
        }
    }

    fn record_path(&self, name: RecordName) -> PathBuf {
        self.path.join(format!("{name}{EXTENSION}"))
    }

    /// Takes the lock of a record; none if somebody else has it.
    fn try_lock(&self, name: RecordName) -> Result<Option<RecordLock>, StoreError> {
        match RecordLock::try_acquire(&self.path, name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                private_file::create_dir(&self.path)
                    .and_then(|()| RecordLock::try_acquire(&self.path, name))
                    .map_err(|error| unavailable("make", &self.path, &error))
            },
            other => other.map_err(|error| unavailable("write in", &self.path, &error)),
        }
    }

    fn read(&self, name: RecordName) -> Result<Option<StoredRecord>, StoreError> {
        let path = self.record_path(name);
        let Some(file) = self.open_file(&path)? else {
            return Ok(None);
        };
        let bytes = read_prefix(file, MAX_FILE_LEN + 1)
            .map_err(|error| unavailable("read", &path, &error))?;
        let stored = decode(&bytes).inspect_err(|_| self.count_ignored())?;
        Ok(Some(stored))
    }

    /// Stores a record if the one there is what was expected.
    fn compare_and_swap(
        &self,
        lock: &RecordLock,
        expected: Option<u64>,
        stored: &StoredRecord,
    ) -> Result<SaveOutcome, StoreError> {
        let now = match self.read(lock.name) {
            Err(StoreError::Broken(_)) => None,
            other => other?,
        };
        if now.as_ref().map(|now| now.edition) != expected {
            return Ok(SaveOutcome::Conflict(now));
        }
        let path = self.record_path(lock.name);
        self.replace_file(&path, &encode(stored))
            .map_err(|error| unavailable("write", &path, &error))?;
        Ok(SaveOutcome::Saved)
    }

    /// Replaces a file at one moment. If anything fails, the old one stays.
    fn replace_file(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        // Readable by its owner alone; removed when dropped.
        let mut draft = tempfile::Builder::new()
            .prefix(DRAFT_PREFIX)
            .tempfile_in(&self.path)?;
        draft.write_all(bytes)?;
        draft.persist(path).map_err(|lost| lost.error)?;
        Ok(())
    }

    /// Removes a record if it has that edition.
    fn remove(&self, lock: &RecordLock, edition: u64) -> Result<bool, StoreError> {
        let now = self.read(lock.name)?;
        if now.map(|now| now.edition) != Some(edition) {
            return Ok(false);
        }
        let path = self.record_path(lock.name);
        fs::remove_file(&path).map_err(|error| unavailable("remove", &path, &error))?;
        Ok(true)
    }

    /// Every name with its edition. Old drafts, and records beyond the limit, are removed.
    fn scan(&self, now: u64) -> Result<Vec<(RecordName, u64)>, StoreError> {
        let failed = |error: io::Error| unavailable("read", &self.path, &error);
        let files = match fs::read_dir(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            files => files.map_err(failed)?,
        };
        let mut found = Vec::new();
        for file in files {
            let path = file.map_err(failed)?.path();
            let Some(file_name) = path.file_name().and_then(|name| name.to_str()) else {
                continue;
            };
            if file_name.starts_with(DRAFT_PREFIX) {
                sweep_draft(&path, now);
                continue;
            }
            let name = file_name
                .strip_suffix(EXTENSION)
                .and_then(RecordName::parse);
            found.extend(name.and_then(|name| self.read_entry(name, &path)));
        }
        self.remove_excess(&mut found);
        let found = found.into_iter().map(|(_, name, edition)| (name, edition));
        Ok(found.collect())
    }

    fn read_entry(&self, name: RecordName, path: &Path) -> Option<RecordFileEntry> {
        let file = self.open_file(path).ok().flatten()?;
        let written_at = written_at(&file.metadata().ok()?);
        let head = read_prefix(file, HEADER_LEN).ok()?;
        let edition = decode_edition(&head).inspect_err(|_| self.count_ignored());
        Some((written_at, name, edition.ok()?))
    }

    fn remove_excess(&self, found: &mut Vec<RecordFileEntry>) {
        let beyond = found.len().saturating_sub(self.max_records);
        if beyond == 0 {
            return;
        }
        found.sort_by_key(|(written_at, ..)| *written_at);
        for (_, name, edition) in found.drain(..beyond) {
            let lock = RecordLock::try_acquire(&self.path, name);
            // Whoever holds the lock is about to write the record.
            if let Ok(Some(lock)) = lock
                && let Err(error) = self.remove(&lock, edition)
            {
                tracing::debug!(%error, "an old record was not removed");
            }
        }
        tracing::warn!(
            beyond,
            most = self.max_records,
            "the oldest session records are forgotten"
        );
    }

    /// Opens a file of ours, if there is one. A link, a pipe or a folder of that name is not ours,
    /// and opening it must not wait.
    fn open_file(&self, path: &Path) -> Result<Option<File>, StoreError> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = rustix::fs::open(path, flags, Mode::empty());
        let file = match opened.map_err(io::Error::from) {
            Ok(file) => File::from(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) if fs::symlink_metadata(path).is_ok_and(|meta| meta.is_symlink()) => {
                self.count_ignored();
                return Err(StoreError::Broken(error.to_string()));
            },
            Err(error) => return Err(unavailable("read", path, &error)),
        };
        let meta = file.metadata();
        if meta
            .map_err(|error| unavailable("read", path, &error))?
            .is_file()
        {
            return Ok(Some(file));
        }
        self.count_ignored();
        let why = format!("{} is not a file", path.display());
        Err(StoreError::Refused(why))
    }

    fn count_ignored(&self) {
        self.ignored.fetch_add(1, Ordering::Relaxed);
    }
}

fn encode(stored: &StoredRecord) -> Vec<u8> {
    let edition = stored.edition.to_le_bytes();
    [&MAGIC[..], &[FORMAT_VERSION], &edition, &stored.sealed].concat()
}

/// The edition of a file by its first bytes.
fn decode_edition(head: &[u8]) -> Result<u64, StoreError> {
    let broken = || StoreError::Broken("its file is half written, or no record".to_owned());
    let (&[a, b, c, version], rest) = head.split_first_chunk::<4>().ok_or_else(broken)?;
    if [a, b, c] != MAGIC || version == 0 {
        return Err(broken());
    }
    if version > FORMAT_VERSION {
        let why = format!("a later version of Warmline wrote its file (form {version})");
        return Err(StoreError::Refused(why));
    }
    let edition = rest.first_chunk::<8>().ok_or_else(broken)?;
    Ok(u64::from_le_bytes(*edition))
}

fn decode(bytes: &[u8]) -> Result<StoredRecord, StoreError> {
    let edition = decode_edition(bytes)?;
    if bytes.len() > MAX_FILE_LEN {
        return Err(StoreError::Broken("its file is too large".to_owned()));
    }
    let sealed = bytes.get(HEADER_LEN..).unwrap_or_default().to_vec();
    Ok(StoredRecord { edition, sealed })
}

fn read_prefix(file: File, most: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let most = u64::try_from(most).unwrap_or(u64::MAX);
    file.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn written_at(meta: &fs::Metadata) -> Duration {
    let modified = meta.modified().ok();
    let written = modified.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    written.unwrap_or_default()
}

/// Removes the draft of a process that died. A draft from the future is new; one that is removed by
/// mistake costs one write.
fn sweep_draft(path: &Path, now: u64) {
    let Ok(meta) = fs::symlink_metadata(path) else {
        return;
    };
    if Duration::from_secs(now).saturating_sub(written_at(&meta)) < DRAFT_LIFETIME {
        return;
    }
    if let Err(error) = fs::remove_file(path) {
        tracing::debug!(%error, "an old draft of a record was not removed");
    }
}

/// An error of the system, with the file it is about.
fn unavailable(action: &str, path: &Path, error: &io::Error) -> StoreError {
    StoreError::Unavailable(format!("cannot {action} {}: {error}", path.display()))
}

#[cfg(test)]
mod tests;
