//! Secrets in a folder: made once, read by any number of processes, rotated by one at a time.
//!
//! The file appears whole or not at all, and does not replace one that is there: of processes that
//! start at once one makes it, and the others read it. It is replaced under a lock.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use tempfile::NamedTempFile;
use warmline_core::error::code::Reason;
use warmline_core::exchange::Diagnostic;
use warmline_platform::private_file;
use zeroize::Zeroizing;

use super::secrets::Secrets;
use crate::open_lock_file;

pub(super) struct SecretsFolder {
    folder: PathBuf,
    file: PathBuf,
    /// The file when it was last read for a key that is not in the ring.
    last_stamp: Option<FileStamp>,
}

/// Tells one file from another of the same name.
type FileStamp = (u64, Option<Duration>);

impl SecretsFolder {
    pub(super) fn new(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
            file: folder.join("secrets"),
            last_stamp: None,
        }
    }

    /// The secrets that are there, or else new ones.
    pub(super) fn read_or_create(&self, now: u64) -> Result<Secrets, Diagnostic> {
        private_file::create_dir(&self.folder)
            .map_err(|error| io_error("make the folder", &self.folder, &error))?;
        if let Some(found) = self.read()? {
            return Ok(found);
        }
        let fresh = Secrets::generate(now)?;
        match self.write_draft(&fresh)?.persist_noclobber(&self.file) {
            Ok(_) => {
                self.sync();
                Ok(fresh)
            },
            // Another process was faster: its secrets are those of this instance.
            Err(lost) if lost.error.kind() == io::ErrorKind::AlreadyExists => self.read_existing(),
            Err(lost) => Err(io_error("write", &self.file, &lost.error)),
        }
    }

    /// Puts a new sealing key in front if the first one is that old, and says whether it did. A
    /// process that does not get the lock leaves it to the one that has it.
    pub(super) fn rotate_if_older(
        &self,
        age: Duration,
        now: u64,
    ) -> Result<(Secrets, bool), Diagnostic> {
        let path = self.folder.join("secrets.lock");
        let failed = |error: io::Error| io_error("write", &path, &error);
        let lock = open_lock_file(&path).map_err(failed)?;
        let is_locked = match lock.try_lock() {
            Ok(()) => true,
            Err(fs::TryLockError::WouldBlock) => false,
            Err(fs::TryLockError::Error(error)) => return Err(failed(error)),
        };
        let mut secrets = self.read_existing()?;
        let is_rotated = is_locked && secrets.rotate_if_older(age, now)?;
        if is_rotated {
            let written = self.write_draft(&secrets)?.persist(&self.file);
            written.map_err(|lost| io_error("write", &self.file, &lost.error))?;
            self.sync();
        }
        drop(lock);
        Ok((secrets, is_rotated))
    }

    /// The file holds the secrets of another instance by now.
    pub(super) fn replaced_error(&self) -> Diagnostic {
        let what = format!("{} was replaced", self.file.display());
        Diagnostic::new(Reason::StoreUnavailable, what)
            .with_cause("it holds other secrets than those that this process began with")
            .with_hint(
                "put the old file back, or restart: what the old secrets sealed is lost then",
            )
    }

    /// The secrets, unless the file is the same as the last time. Anybody can make up the name of a
    /// key, and must not make us read the file each time.
    pub(super) fn read_if_changed(&mut self) -> Option<Secrets> {
        let meta = fs::metadata(&self.file).ok()?;
        let written = meta.modified().ok();
        let written = written.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
        let stamp = Some((meta.ino(), written));
        if self.last_stamp == stamp {
            return None;
        }
        self.last_stamp = stamp;
        self.read().ok().flatten()
    }

    fn read_existing(&self) -> Result<Secrets, Diagnostic> {
        let gone = || io_error("read", &self.file, &io::ErrorKind::NotFound.into());
        self.read()?.ok_or_else(gone)
    }

    fn read(&self) -> Result<Option<Secrets>, Diagnostic> {
        let file = match private_file::open_nonblocking(&self.file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file.map_err(|error| io_error("read", &self.file, &error))?,
        };
        check_private(&file, &self.file)?;
        parse(file, &self.file).map(Some)
    }

    /// The secrets in a file that has no name yet, readable by its owner alone.
    fn write_draft(&self, secrets: &Secrets) -> Result<NamedTempFile, Diagnostic> {
        let mut draft = tempfile::Builder::new();
        let draft = draft.prefix(".secrets-").tempfile_in(&self.folder);
        let draft = draft.and_then(|mut draft| {
            draft.write_all(secrets.to_text().as_bytes())?;
            draft.as_file().sync_all()?;
            Ok(draft)
        });
        draft.map_err(|error| io_error("write", &self.file, &error))
    }

    /// Losing the secrets would lose every record, so the name of the file must last as well.
    fn sync(&self) {
        let synced = File::open(&self.folder).and_then(|folder| folder.sync_all());
        if let Err(error) = synced {
            tracing::debug!(%error, "the folder of the secrets was not synced");
        }
    }
}

/// The secrets in a file that somebody else writes.
pub(super) fn read_external(path: &Path) -> Result<Secrets, Diagnostic> {
    let file =
        private_file::open_nonblocking(path).map_err(|error| io_error("read", path, &error))?;
    parse(file, path)
}

fn parse(file: File, path: &Path) -> Result<Secrets, Diagnostic> {
    // One byte more than the longest text, which the parser then refuses. A buffer that grows leaves
    // copies of itself behind.
    let mut bytes = Zeroizing::new(Vec::with_capacity(32 << 10));
    let read = file.take(17 << 10).read_to_end(&mut bytes);
    let text = read.and_then(|_| str::from_utf8(&bytes).map_err(io::Error::other));
    let text = text.map_err(|error| io_error("read", path, &error))?;
    Secrets::parse(text).map_err(|mut diagnostic| {
        diagnostic.message = format!("{} in {}", diagnostic.message, path.display());
        diagnostic
    })
}

/// Secrets that others can read, or could have written, are none.
fn check_private(file: &File, path: &Path) -> Result<(), Diagnostic> {
    let meta = file.metadata();
    let meta = meta.map_err(|error| io_error("read", path, &error))?;
    let (mode, owner) = (meta.mode() & 0o777, meta.uid());
    if mode & 0o077 == 0 && owner == rustix::process::geteuid().as_raw() {
        return Ok(());
    }
    let path = path.display();
    let what = format!("the secrets in {path} are not private");
    Err(Diagnostic::new(Reason::StoreUnavailable, what)
        .with_cause(format!("its mode is {mode:03o} and its owner {owner}"))
        .with_hint(format!(
            "`chmod 600 {path}`, if nobody else can have read it"
        )))
}

fn io_error(action: &str, path: &Path, error: &io::Error) -> Diagnostic {
    let what = format!("cannot {action} {}", path.display());
    Diagnostic::new(Reason::StoreUnavailable, what).with_cause(error.to_string())
}
