//! Secrets in a folder: made once, read by any number of processes, rotated by one at a time.
//!
//! The file appears whole or not at all, and never replaces one that is there: of processes that
//! start at once one makes it, and the others read that one. Replacing it happens under a lock.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use warmline_core::code::Reason;
use warmline_core::exchange::Trouble;
use zeroize::Zeroizing;

use super::ring;
use super::text::Secrets;
use crate::sync::Mutex;

/// A folder that holds secrets.
pub(super) struct Home {
    folder: PathBuf,
    /// What the file looked like when it was last read because somebody named a key that is not in
    /// the ring.
    seen: Mutex<Option<Look>>,
}

/// What a file looks like from outside; another one looks different.
type Look = (u64, Option<Duration>);

impl Home {
    pub(super) fn new(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
            seen: Mutex::new(None),
        }
    }

    fn file(&self) -> PathBuf {
        self.folder.join("secrets")
    }

    /// What is there, or new secrets if nothing is.
    pub(super) fn read_or_make(&self, now: u64) -> Result<Secrets, Trouble> {
        make_private_folder(&self.folder)
            .map_err(|error| cannot("make the folder", &self.folder, &error))?;
        if let Some(found) = self.read()? {
            return Ok(found);
        }
        let fresh = Secrets::fresh(now)?;
        let draft = self.draft(&fresh)?;
        match draft.persist_noclobber(self.file()) {
            Ok(_) => {
                self.make_durable();
                Ok(fresh)
            },
            // Another process was faster: its secrets are those of this instance.
            Err(lost) if lost.error.kind() == io::ErrorKind::AlreadyExists => {
                let gone = || io::Error::from(io::ErrorKind::NotFound);
                self.read()?
                    .ok_or_else(|| cannot("read", &self.file(), &gone()))
            },
            Err(lost) => Err(cannot("write", &self.file(), &lost.error)),
        }
    }

    /// Puts a new sealing key in front if the one there is old enough, and says whether it did.
    pub(super) fn rotate(&self, age: Duration, now: u64) -> Result<(Secrets, bool), Trouble> {
        let lock = self.folder.join("secrets.lock");
        let failed = |error: &io::Error| cannot("write", &lock, error);
        let held = open_private(&lock).map_err(|error| failed(&error))?;
        // Whoever holds it is about to do what we want.
        let is_ours = match held.try_lock() {
            Ok(()) => true,
            Err(fs::TryLockError::WouldBlock) => false,
            Err(fs::TryLockError::Error(error)) => return Err(failed(&error)),
        };
        let gone = || cannot("read", &self.file(), &io::ErrorKind::NotFound.into());
        let mut secrets = self.read()?.ok_or_else(gone)?;
        let made_at = secrets.sealing().first().map_or(0, |key| key.made_at);
        if !is_ours || !ring::is_due(made_at, age, now) {
            return Ok((secrets, false));
        }
        secrets.push_fresh(now, |newer, replaced_at| {
            ring::keeps(newer, replaced_at, now)
        })?;
        self.draft(&secrets)?
            .persist(self.file())
            .map_err(|lost| cannot("write", &self.file(), &lost.error))?;
        self.make_durable();
        drop(held);
        Ok((secrets, true))
    }

    /// The file holds the secrets of another instance by now.
    pub(super) fn replaced(&self) -> Trouble {
        let what = format!("{} was replaced", self.file().display());
        Trouble::new(Reason::StoreUnavailable, what)
            .because("it holds other secrets than those that this process began with")
            .hint("put the old file back, or start again: what the old secrets sealed is lost then")
    }

    /// What is there now, unless it still looks as it did the last time. Anybody can make up the
    /// name of a key, and must not make us read files by it.
    pub(super) fn read_if_changed(&self) -> Option<Secrets> {
        let meta = fs::metadata(self.file()).ok()?;
        let written = meta.modified().ok();
        let written = written.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
        let look = Some((identity(&meta), written));
        if *self.seen.lock() == look {
            return None;
        }
        let secrets = self.read().ok().flatten();
        *self.seen.lock() = look;
        secrets
    }

    fn read(&self) -> Result<Option<Secrets>, Trouble> {
        let path = self.file();
        let file = match open_to_read(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(cannot("read", &path, &error)),
        };
        check_private(&file, &path)?;
        let text = read_all(file).map_err(|error| cannot("read", &path, &error))?;
        Secrets::parse(&text)
            .map(Some)
            .map_err(|trouble| in_file(trouble, &path))
    }

    /// The secrets in a file that has no name yet.
    fn draft(&self, secrets: &Secrets) -> Result<tempfile::NamedTempFile, Trouble> {
        let failed = |error: &io::Error| cannot("write", &self.file(), error);
        // Readable by its owner alone from the first moment.
        let mut draft = tempfile::Builder::new()
            .prefix(".secrets-")
            .tempfile_in(&self.folder)
            .map_err(|error| failed(&error))?;
        draft
            .write_all(secrets.write().as_bytes())
            .and_then(|()| draft.as_file().sync_all())
            .map_err(|error| failed(&error))?;
        Ok(draft)
    }

    /// Losing the secrets would lose every record: the name is made to last too.
    fn make_durable(&self) {
        let synced = File::open(&self.folder).and_then(|folder| folder.sync_all());
        if let Err(error) = synced {
            tracing::debug!(%error, "the folder of the secrets was not synced");
        }
    }
}

/// What tells one file from another of the same name.
fn identity(meta: &fs::Metadata) -> u64 {
    #[cfg(unix)]
    return std::os::unix::fs::MetadataExt::ino(meta);
    #[cfg(not(unix))]
    return meta.len();
}

/// The secrets in a file that somebody else writes.
pub(super) fn read_given(path: &Path) -> Result<Secrets, Trouble> {
    let text = open_to_read(path)
        .and_then(read_all)
        .map_err(|error| cannot("read", path, &error))?;
    Secrets::parse(&text).map_err(|trouble| in_file(trouble, path))
}

fn read_all(file: File) -> io::Result<Zeroizing<String>> {
    // One byte more than the largest form, which the parser then refuses.
    let mut bytes = Zeroizing::new(Vec::with_capacity(32 << 10));
    file.take(17 << 10).read_to_end(&mut bytes)?;
    let text = str::from_utf8(&bytes).map_err(io::Error::other)?;
    Ok(Zeroizing::new(text.to_owned()))
}

/// A file, and nothing else: a pipe that nobody writes to would hold up whoever opens it for ever.
fn open_to_read(path: &Path) -> io::Result<File> {
    let mut options = fs::OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    {
        let flags = rustix::fs::OFlags::NONBLOCK.bits();
        let flags = i32::try_from(flags).map_err(io::Error::other)?;
        std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, flags);
    }
    let file = options.open(path)?;
    if file.metadata()?.is_file() {
        return Ok(file);
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no file"))
}

fn open_private(path: &Path) -> io::Result<File> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Makes a folder that its owner alone can enter; one that is there stays as it is.
pub(super) fn make_private_folder(folder: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

/// Secrets that others can read, or could have written, are none.
#[cfg(unix)]
fn check_private(file: &File, path: &Path) -> Result<(), Trouble> {
    use std::os::unix::fs::MetadataExt as _;
    let meta = file
        .metadata()
        .map_err(|error| cannot("read", path, &error))?;
    let owner = rustix::process::geteuid().as_raw();
    if meta.mode() & 0o077 == 0 && meta.uid() == owner {
        return Ok(());
    }
    let what = format!("the secrets in {} are not private", path.display());
    Err(Trouble::new(Reason::StoreUnavailable, what)
        .because(format!(
            "its mode is {:03o} and its owner {}",
            meta.mode() & 0o777,
            meta.uid()
        ))
        .hint(format!(
            "`chmod 600 {}`, if nobody else can have read it",
            path.display()
        )))
}

#[cfg(not(unix))]
fn check_private(_file: &File, _path: &Path) -> Result<(), Trouble> {
    Ok(())
}

fn cannot(action: &str, path: &Path, error: &io::Error) -> Trouble {
    let what = format!("cannot {action} {}", path.display());
    Trouble::new(Reason::StoreUnavailable, what).because(error.to_string())
}

fn in_file(trouble: Trouble, path: &Path) -> Trouble {
    let what = format!("{} in {}", trouble.what, path.display());
    Trouble { what, ..trouble }
}
