//! Small files. Those that belong to one user alone are written whole or not at all, and read only
//! where nobody else could have written them. All others are read by one door, which is never
//! waited at.
//!
//! Asked by: whoever keeps something in the state folder: trust, and the tokens of a gateway; and
//! whoever reads what people name: configurations, keys, certificates, tokens.

use std::io::{self, Read as _, Write as _};
use std::path::Path;

/// Makes a folder that only its owner may look into, and those around it that are missing.
///
/// # Errors
/// What the system says.
#[cfg(unix)]
pub fn create_folder(folder: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
}

/// Makes a folder, and those around it that are missing.
///
/// # Errors
/// What the system says.
#[cfg(not(unix))]
pub fn create_folder(folder: &Path) -> io::Result<()> {
    std::fs::create_dir_all(folder)
}

/// Writes a file that only its owner may read, in the place of one that may be there.
///
/// # Errors
/// What the system says; the old file is untouched then.
pub fn replace(path: &Path, text: &str) -> io::Result<()> {
    with_draft(path, text, |draft| std::fs::rename(draft, path))
}

/// Writes a file that only its owner may read, where there is none yet.
///
/// # Errors
/// What the system says; `AlreadyExists` where there is one.
pub fn create(path: &Path, text: &str) -> io::Result<()> {
    with_draft(path, text, |draft| std::fs::hard_link(draft, path))
}

fn with_draft(
    path: &Path,
    text: &str,
    publish: impl FnOnce(&Path) -> io::Result<()>,
) -> io::Result<()> {
    create_folder(path.parent().unwrap_or(Path::new(".")))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let draft = path.with_file_name(format!(".{name}.{}.new", std::process::id()));
    let written = write(&draft, text).and_then(|()| publish(&draft));
    // After a link it is one name too many; after an error it is of no use to anybody, and the
    // error that matters is the first one.
    std::fs::remove_file(&draft).ok();
    written
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// What a file holds that somebody named, at most `limit` bytes of it.
///
/// # Errors
/// What the system says; also where it is larger, or no file but a pipe: what comes out of that may
/// never come.
pub fn read_named(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let file = open_without_waiting(path)?;
    let mut bytes = Vec::new();
    match file.take(limit.saturating_add(1)).read_to_end(&mut bytes) {
        Ok(_) if bytes.len() as u64 > limit => {
            let most = limit >> 10;
            Err(io::Error::other(format!("it is larger than {most} KiB")))
        },
        Ok(_) => Ok(bytes),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(would_be_waited_for()),
        Err(error) => Err(error),
    }
}

#[cfg(unix)]
fn open_without_waiting(path: &Path) -> io::Result<std::fs::File> {
    use rustix::fs::{Mode, OFlags};
    use std::os::unix::fs::FileTypeExt as _;
    // Without this whoever opens a pipe waits for somebody who writes to it. Files do not mind.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = std::fs::File::from(rustix::fs::open(path, flags, Mode::empty())?);
    let kind = file.metadata()?.file_type();
    if kind.is_dir() {
        return Err(io::Error::other("it is no file, but a folder"));
    }
    match kind.is_fifo() {
        true => Err(would_be_waited_for()),
        false => Ok(file),
    }
}

#[cfg(not(unix))]
fn open_without_waiting(path: &Path) -> io::Result<std::fs::File> {
    std::fs::File::open(path)
}

fn would_be_waited_for() -> io::Error {
    io::Error::other("it is no file, but a pipe or a terminal, and would have to be waited for")
}

/// The text of a file that nobody but this user could have written; none where there is no such
/// file.
pub fn read(path: &Path) -> Option<String> {
    is_private(path)
        .then(|| std::fs::read_to_string(path).ok())
        .flatten()
}

/// Whether nobody but its owner could have written it. A file that others may write proves
/// nothing.
#[cfg(unix)]
fn is_private(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let owner = rustix::process::geteuid().as_raw();
    std::fs::symlink_metadata(path)
        .is_ok_and(|meta| meta.is_file() && meta.uid() == owner && meta.mode() & 0o022 == 0)
}

#[cfg(not(unix))]
fn is_private(path: &Path) -> bool {
    path.is_file()
}
