//! A store in a folder, shared by any number of processes.
//!
//! One file per record, named by the record's name. A file appears whole or not at all (a draft is
//! renamed), and changes only under a lock that holds between processes. What a crash leaves behind
//! is an old state, a new one, or a draft that is swept away. Nothing is synced: losing the last
//! write costs one handshake.
//!
//! | question | file |
//! |---|---|
//! | What stands in a file? | `file/page.rs` |
//! | Who may write now? | `file/turn.rs` |
//! | How is the folder read and written? | `file/folder.rs` |

mod folder;
mod page;
mod turn;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use self::folder::Folder;
use self::turn::{Lines, Turn};
use super::{RecordName, Saved, SessionStore, Stepping, StoreError, Stored};
use crate::clock;

/// Most threads that wait for the disk at once: a folder on a dead network drive holds no more.
const AT_ONCE: usize = 8;

/// Records in a folder. Clones share it, and so do other processes.
#[derive(Clone, Debug)]
pub struct FileStore {
    folder: Arc<Folder>,
    threads: Arc<Semaphore>,
    lines: Lines,
}

impl FileStore {
    /// The store in a folder, which is made when something is stored first. Nothing is read now.
    pub fn in_folder(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: Arc::new(Folder::new(folder.into())),
            threads: Arc::new(Semaphore::new(AT_ONCE)),
            lines: Lines::default(),
        }
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// How many files were no records of ours, or broken, each time they were met.
    pub fn ignored(&self) -> u64 {
        self.folder.ignored()
    }

    async fn permit(&self) -> Result<OwnedSemaphorePermit, StoreError> {
        let permit = Arc::clone(&self.threads).acquire_owned().await;
        permit.map_err(|_| StoreError::Unavailable("it was closed".to_owned()))
    }

    /// Runs something on a thread that may wait for the disk.
    async fn on_disk<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Folder) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let permit = self.permit().await?;
        let folder = Arc::clone(&self.folder);
        let work = move || {
            let done = work(&folder);
            drop(permit);
            done
        };
        let done = clock::spawn_blocking("record file", work).await;
        done.unwrap_or_else(|error| Err(StoreError::Unavailable(error.to_string())))
    }

    /// Waits until nobody else changes the record, and says so by holding a lock.
    async fn turn(&self, name: RecordName) -> Result<Turn, StoreError> {
        let place = self.lines.first_in_line(name).await?;
        let mut pause = turn::FIRST_PAUSE;
        loop {
            let turn = self.on_disk(move |folder| folder.try_turn(name)).await?;
            if let Some(turn) = turn {
                return Ok(turn.with_place(place));
            }
            clock::sleep(pause).await;
            pause = (pause * 2).min(turn::LONGEST_PAUSE);
        }
    }
}

impl SessionStore for FileStore {
    fn load(&self, name: RecordName) -> Stepping<'_, Result<Option<Stored>, StoreError>> {
        Box::pin(self.on_disk(move |folder| folder.read(name)))
    }

    fn save(
        &self,
        name: RecordName,
        expected: Option<u64>,
        stored: Stored,
    ) -> Stepping<'_, Result<Saved, StoreError>> {
        Box::pin(async move {
            let turn = self.turn(name).await?;
            self.on_disk(move |folder| folder.swap(&turn, expected, &stored))
                .await
        })
    }

    fn clear(&self, name: RecordName, edition: u64) -> Stepping<'_, Result<bool, StoreError>> {
        Box::pin(async move {
            let turn = self.turn(name).await?;
            self.on_disk(move |folder| folder.remove(&turn, edition))
                .await
        })
    }

    fn scan(&self) -> Stepping<'_, Result<Vec<(RecordName, u64)>, StoreError>> {
        let now = clock::wall_seconds();
        Box::pin(self.on_disk(move |folder| folder.scan(now)))
    }

    fn outlives_process(&self) -> bool {
        true
    }
}

/// What the system says, with the file it says it of.
fn unavailable(action: &str, path: &Path, error: &io::Error) -> StoreError {
    StoreError::Unavailable(format!("cannot {action} {}: {error}", path.display()))
}

#[cfg(test)]
mod tests;
