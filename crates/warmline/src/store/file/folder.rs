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
/// Most records; beyond, those that were written first are forgotten. Not by age: a wall clock that
/// jumps would forget them all.
const MOST_RECORDS: usize = 200_000;
const ENDING: &str = ".record";
const DRAFT: &str = ".draft-";

/// A folder with records.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    most: usize,
    ignored: AtomicU64,
}

/// A record as the folder shows it.
struct Entry {
    name: RecordName,
    edition: u64,
    /// When it was written, by the wall clock of then.
    written: Duration,
}

impl Folder {
    pub(super) const fn new(path: PathBuf) -> Self {
        Self::of_at_most(path, MOST_RECORDS)
    }

    pub(super) const fn of_at_most(path: PathBuf, most: usize) -> Self {
        Self {
            path,
            most,
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
        let files = match fs::read_dir(&self.path) {
            Ok(files) => files,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed(error)),
        };
        let mut found = Vec::new();
        for file in files {
            let path = file.map_err(failed)?.path();
            let Some(file_name) = path.file_name().and_then(|name| name.to_str()) else {
                continue;
            };
            if file_name.starts_with(DRAFT) {
                sweep_draft(&path, now);
                continue;
            }
            let name = file_name.strip_suffix(ENDING).and_then(RecordName::parse);
            found.extend(name.and_then(|name| self.entry(name, &path)));
        }
        self.forget_beyond_most(&mut found);
        Ok(found.iter().map(|it| (it.name, it.edition)).collect())
    }

    fn entry(&self, name: RecordName, path: &Path) -> Option<Entry> {
        let file = self.open(path).ok().flatten()?;
        let written = written_at(&file.metadata().ok()?);
        let head = first_bytes(file, page::HEAD).ok()?;
        let edition = page::edition(&head).inspect_err(|_| self.ignore()).ok()?;
        Some(Entry {
            name,
            edition,
            written,
        })
    }

    fn forget_beyond_most(&self, found: &mut Vec<Entry>) {
        let beyond = found.len().saturating_sub(self.most);
        if beyond == 0 {
            return;
        }
        found.sort_by_key(|entry| entry.written);
        for oldest in found.drain(..beyond) {
            let turn = Turn::take(&self.path, oldest.name).ok().flatten();
            // Whoever has the turn is about to write it anew.
            if let Some(Err(error)) = turn.map(|turn| self.remove(&turn, oldest.edition)) {
                tracing::debug!(%error, "an old record was not removed");
            }
        }
        tracing::warn!(
            beyond,
            most = self.most,
            "the oldest session records are forgotten"
        );
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

fn written_at(meta: &fs::Metadata) -> Duration {
    let modified = meta.modified().ok();
    let written = modified.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    written.unwrap_or_default()
}

/// Removes what a process that died left behind. A draft from the future is new; one that was taken
/// away by mistake costs one write.
fn sweep_draft(path: &Path, now: u64) {
    let Ok(meta) = fs::symlink_metadata(path) else {
        return;
    };
    if Duration::from_secs(now).saturating_sub(written_at(&meta)) < DRAFTS_LIVE {
        return;
    }
    if let Err(error) = fs::remove_file(path) {
        tracing::debug!(%error, "an old draft of a record was not removed");
    }
}

fn make_private_folder(folder: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}
