//! Turns: who may change a record now, also between processes.
//!
//! A few lock files, each for a share of the names. They stay for good: a lock on a file that can
//! be replaced locks nothing. The system takes a lock away from a process that dies.
//!
//! Within one process writers stand in a line before each lock, so that a thousand of them do not
//! all knock at the same file: only the first of each line does.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::store::{RecordName, StoreError};

/// How many lock files there are.
const SHARES: usize = 16;

/// How long the second try waits, and the longest that any does.
pub(super) const FIRST_PAUSE: Duration = Duration::from_millis(1);
pub(super) const LONGEST_PAUSE: Duration = Duration::from_millis(32);

/// The right to change a record, until dropped.
#[derive(Debug)]
pub(super) struct Turn {
    pub(super) name: RecordName,
    _lock: File,
    /// Given back after the lock, so that the next of the line finds it free.
    _place: Option<OwnedSemaphorePermit>,
}

/// The lines before the lock files, first come, first served.
#[derive(Clone, Debug)]
pub(super) struct Lines(Arc<[Arc<Semaphore>; SHARES]>);

impl Default for Lines {
    fn default() -> Self {
        Self(Arc::new(std::array::from_fn(|_| {
            Arc::new(Semaphore::new(1))
        })))
    }
}

impl Lines {
    /// Waits until no other writer of this process is before the lock of that record.
    pub(super) async fn first_in_line(
        &self,
        name: RecordName,
    ) -> Result<OwnedSemaphorePermit, StoreError> {
        let place = Arc::clone(&self.0[share(name)]).acquire_owned().await;
        place.map_err(|_| StoreError::Unavailable("it was closed".to_owned()))
    }
}

/// Which lock file a record belongs to.
fn share(name: RecordName) -> usize {
    usize::from(name.bytes()[0] >> 4)
}

impl Turn {
    /// Holds its place in line as long as the turn itself.
    pub(super) fn with_place(self, place: OwnedSemaphorePermit) -> Self {
        Self {
            _place: Some(place),
            ..self
        }
    }

    /// Takes a turn; none if somebody else has it.
    pub(super) fn take(folder: &Path, name: RecordName) -> io::Result<Option<Self>> {
        let share = share(name);
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let lock = options.open(folder.join(format!(".lock-{share:x}")))?;
        match lock.try_lock() {
            Ok(()) => Ok(Some(Self {
                name,
                _lock: lock,
                _place: None,
            })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}
