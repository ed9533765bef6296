//! The folder of a file store, as the disk sees it. Everything here may wait for the disk.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use super::turn::Turn;
use super::{page, unavailable};
use crate::store::{RecordName, Saved, StoreError, Stored};

/// Drafts that old belong to nobody who lives.
const DRAFTS_LIVE: Duration = Duration::from_secs(60 * 60);
/// Records that nobody wrote for that long are forgotten. No server keeps a session so long, and
/// where the clock is wrong only the way back to a session is lost.
const RECORDS_LIVE: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// Most records that are looked through.
const MOST_RECORDS: usize = 200_000;
const ENDING: &str = ".record";
const DRAFT: &str = ".draft-";

/// A folder with records.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    ignored: AtomicU64,
}

impl Folder {
    pub(super) const fn new(path: PathBuf) -> Self {
        Self {
            path,
            ignored: AtomicU64::new(0),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn ignored(&self) -> u64 {
        self.ignored.load(Ordering::Relaxed)
    }

    fn file(&self, name: RecordName) -> PathBuf {
        self.path.join(format!("{name}{ENDING}"))
    }

    /// Takes the turn to change a record; none if somebody else has it.
    pub(super) fn try_turn(&self, name: RecordName) -> Result<Option<Turn>, StoreError> {
        match Turn::take(&self.path, name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                make_private_folder(&self.path)
                    .and_then(|()| Turn::take(&self.path, name))
                    .map_err(|error| unavailable("make", &self.path, &error))
            },
            other => other.map_err(|error| unavailable("write in", &self.path, &error)),
        }
    }

    /// What is stored under a name.
    pub(super) fn read(&self, name: RecordName) -> Result<Option<Stored>, StoreError> {
        let path = self.file(name);
        let Some(file) = self.open(&path)? else {
            return Ok(None);
        };
        let bytes = first_bytes(file, page::LARGEST + 1)
            .map_err(|error| unavailable("read", &path, &error))?;
        page::read(&bytes).map(Some).inspect_err(|_| self.ignore())
    }

    /// Stores a record if what is there now is what was expected.
    pub(super) fn swap(
        &self,
        turn: &Turn,
        expected: Option<u64>,
        stored: &Stored,
    ) -> Result<Saved, StoreError> {
        let now = match self.read(turn.name) {
            // What nobody can read is in nobody's way.
            Err(StoreError::Broken(_)) => None,
            other => other?,
        };
        if now.as_ref().map(|now| now.edition) != expected {
            return Ok(Saved::Lost(now));
        }
        let path = self.file(turn.name);
        self.replace(&path, &page::write(stored))
            .map_err(|error| unavailable("write", &path, &error))?;
        Ok(Saved::Done)
    }

    /// Puts a file in the place of another at one moment. Whatever fails, the old one stays.
    fn replace(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        // Readable by its owner alone; gone again when dropped.
        let mut draft = tempfile::Builder::new()
            .prefix(DRAFT)
            .tempfile_in(&self.path)?;
        draft.write_all(bytes)?;
        draft.persist(path).map_err(|lost| lost.error)?;
        Ok(())
    }

    /// Forgets a record if it has that edition.
    pub(super) fn remove(&self, turn: &Turn, edition: u64) -> Result<bool, StoreError> {
        let now = self.read(turn.name)?;
        if now.map(|now| now.edition) != Some(edition) {
            return Ok(false);
        }
        let path = self.file(turn.name);
        fs::remove_file(&path).map_err(|error| unavailable("remove", &path, &error))?;
        Ok(true)
    }

    /// Every name with its edition; what nobody needs any more is swept away on the way.
    pub(super) fn scan(&self, now: u64) -> Result<Vec<(RecordName, u64)>, StoreError> {
        let failed = |error: io::Error| unavailable("read", &self.path, &error);
        let entries = match fs::read_dir(&self.path) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed(error)),
        };
        let mut found = Vec::new();
        for entry in entries.take(MOST_RECORDS) {
            let path = entry.map_err(failed)?.path();
            let Some(file_name) = path.file_name().and_then(|name| name.to_str()) else {
                continue;
            };
            if file_name.starts_with(DRAFT) {
                sweep(&path, DRAFTS_LIVE, now);
                continue;
            }
            let name = file_name.strip_suffix(ENDING).and_then(RecordName::parse);
            let Some(name) = name else {
                continue;
            };
            if let Some(edition) = self.edition(&path) {
                found.push((name, edition));
            }
            if is_older(&path, RECORDS_LIVE, now) {
                self.forget(name, &path, now);
            }
        }
        Ok(found)
    }

    /// Forgets a record that nobody wrote for ages, unless somebody does so now.
    fn forget(&self, name: RecordName, path: &Path, now: u64) {
        if let Ok(Some(turn)) = Turn::take(&self.path, name) {
            sweep(path, RECORDS_LIVE, now);
            drop(turn);
        }
    }

    fn edition(&self, path: &Path) -> Option<u64> {
        let file = self.open(path).ok().flatten()?;
        let head = first_bytes(file, page::HEAD).ok()?;
        page::edition(&head).inspect_err(|_| self.ignore()).ok()
    }

    /// Opens a file of ours; none if there is none. A link, a pipe or a folder of that name is not
    /// ours, and opening it must not wait.
    fn open(&self, path: &Path) -> Result<Option<File>, StoreError> {
        let mut options = OpenOptions::new();
        options.read(true);
        #[cfg(unix)]
        unix::never_follow_or_wait(&mut options);
        let file = match options.open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) if is_link(path) => {
                self.ignore();
                return Err(StoreError::Broken(error.to_string()));
            },
            Err(error) => return Err(unavailable("read", path, &error)),
        };
        let meta = file
            .metadata()
            .map_err(|error| unavailable("read", path, &error))?;
        if meta.is_file() {
            return Ok(Some(file));
        }
        self.ignore();
        Err(StoreError::Refused(format!(
            "{} is no file",
            path.display()
        )))
    }

    fn ignore(&self) {
        self.ignored.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(unix)]
mod unix {
    use std::fs::OpenOptions;
    use std::os::unix::fs::OpenOptionsExt as _;

    use rustix::fs::OFlags;

    pub(super) fn never_follow_or_wait(options: &mut OpenOptions) {
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        if let Ok(flags) = i32::try_from(flags.bits()) {
            options.custom_flags(flags);
        }
    }
}

fn is_link(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|meta| meta.is_symlink())
}

fn first_bytes(file: File, most: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let most = u64::try_from(most).unwrap_or(u64::MAX);
    file.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Whether nobody wrote a file for that long, by the wall clock. One from the future is new.
fn is_older(path: &Path, age: Duration, now: u64) -> bool {
    let modified = fs::symlink_metadata(path).and_then(|meta| meta.modified());
    let Ok(modified) = modified else {
        return false;
    };
    let written = modified.duration_since(UNIX_EPOCH).unwrap_or_default();
    Duration::from_secs(now).saturating_sub(written) > age
}

fn sweep(path: &Path, age: Duration, now: u64) {
    if !is_older(path, age, now) {
        return;
    }
    if let Err(error) = fs::remove_file(path) {
        tracing::debug!(%error, "an old file of the store was not removed");
    }
}

fn make_private_folder(folder: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}
