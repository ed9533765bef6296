//! Turns: who may change a record now, also between processes.
//!
//! A few lock files, each for a share of the names. They stay for good: a lock on a file that can
//! be replaced locks nothing. The system takes a lock away from a process that dies.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::Path;
use std::time::Duration;

use crate::store::RecordName;

/// How long the second try waits, and the longest that any does.
pub(super) const FIRST_PAUSE: Duration = Duration::from_millis(1);
pub(super) const LONGEST_PAUSE: Duration = Duration::from_millis(32);

/// The right to change a record, until dropped.
#[derive(Debug)]
pub(super) struct Turn {
    pub(super) name: RecordName,
    _lock: File,
}

impl Turn {
    /// Takes a turn; none if somebody else has it.
    pub(super) fn take(folder: &Path, name: RecordName) -> io::Result<Option<Self>> {
        let share = name.bytes()[0] >> 4;
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let lock = options.open(folder.join(format!(".lock-{share:x}")))?;
        match lock.try_lock() {
            Ok(()) => Ok(Some(Self { name, _lock: lock })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}
