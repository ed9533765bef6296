//! Whether another `serve` runs on the same state folder.
//!
//! Two of them tidy up one store: what the one holds the other may find abandoned. It is said and
//! not refused, because whoever replaces a gateway may want both for a moment. The system holds the
//! lock, so that a file of a gateway that died says nothing.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// What a gateway has while it is the one of its state folder.
#[derive(Debug)]
pub(super) struct Place(#[expect(dead_code, reason = "the lock is held by being there")] File);

/// Takes the place in a state folder. Where another has it, what is known of that one is said; where
/// nobody can tell, nothing is.
pub(super) fn take_place(state: &Path) -> Result<Option<Place>, String> {
    let opened = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(state.join("serve.lock"));
    let Ok(mut file) = opened else {
        return Ok(None);
    };
    match file.try_lock() {
        Ok(()) => {
            // For people alone: without it the place is taken all the same.
            let written = file.set_len(0).and_then(|()| file.rewind());
            drop(written.and_then(|()| writeln!(file, "{}", std::process::id())));
            Ok(Some(Place(file)))
        },
        Err(TryLockError::WouldBlock) => Err(said_of(&mut file, state)),
        Err(TryLockError::Error(error)) => {
            tracing::debug!(%error, "whether another gateway has the state folder is not known");
            Ok(None)
        },
    }
}

fn said_of(file: &mut File, state: &Path) -> String {
    let mut text = String::new();
    // It is read by hand, and may be anything.
    let pid: Option<u32> = match file.take(LONGEST).read_to_string(&mut text) {
        Ok(_) => text.trim().parse().ok(),
        Err(_) => None,
    };
    let pid = pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default();
    format!(
        "another `warmline serve`{pid} runs on the state folder {}: each may end sessions that the \
         other holds. Stop one of them, or give it a folder of its own with --state-dir",
        state.display()
    )
}

/// More than the number of a process has.
const LONGEST: u64 = 32;
