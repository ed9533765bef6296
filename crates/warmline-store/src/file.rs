//! A store in a folder, shared by any number of processes.
//!
//! One file per record, named by the record's name. A file appears whole or not at all (a draft is
//! renamed), and changes only under a lock that holds between processes. A crash leaves an old state,
//! a new one, or a draft that is swept. Nothing is synced: losing the last write costs one handshake.

mod folder;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::Semaphore;
use warmline_platform::clock;

use self::folder::{LOCK_FILES, RecordFolder, RecordLock, lock_index};
use crate::{RecordName, SaveOutcome, SessionStore, StoreError, StoreFuture, StoredRecord};

/// Most threads that wait for the disk at once: a folder on a dead network drive holds no more.
const MAX_THREADS: usize = 8;
/// The pause after the first failed try to get the lock of a record, and the longest one.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const MAX_PAUSE: Duration = Duration::from_millis(32);

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

#[cfg(test)]
mod tests;
