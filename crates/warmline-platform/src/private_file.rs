//! Small files. Those of one user are written whole or not at all, and read only if nobody else could
//! have written them. Files that people name (configurations, keys, certificates) are read without
//! blocking and up to a limit.

use std::io::{self, Read as _, Write as _};
use std::path::Path;

/// Creates a folder that only its owner may read, and its missing parents.
///
/// # Errors
/// What the system says.
pub fn create_dir(folder: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
}

/// Writes a file that only its owner may read, and replaces an old one.
///
/// # Errors
/// What the system says; the old file is untouched then.
pub fn replace(path: &Path, text: &str) -> io::Result<()> {
    write_via_temp_file(path, text, |draft| std::fs::rename(draft, path))
}

/// Writes a file that only its owner may read, if there is none yet.
///
/// # Errors
/// What the system says; `AlreadyExists` if there is one.
pub fn create(path: &Path, text: &str) -> io::Result<()> {
    write_via_temp_file(path, text, |draft| std::fs::hard_link(draft, path))
}

fn write_via_temp_file(
    path: &Path,
    text: &str,
    publish: impl FnOnce(&Path) -> io::Result<()>,
) -> io::Result<()> {
    create_dir(path.parent().unwrap_or(Path::new(".")))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let draft = path.with_file_name(format!(".{name}.{}.new", std::process::id()));
    let written = write_new(&draft, text).and_then(|()| publish(&draft));
    // After a link and after an error the draft is of no use; the first error matters.
    std::fs::remove_file(&draft).ok();
    written
}

fn write_new(path: &Path, text: &str) -> io::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// Reads a file that somebody named, of at most `limit` bytes.
///
/// # Errors
/// What the system says; also if it is larger, or a pipe, whose content may never come.
pub fn read_limited(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let file = open_nonblocking(path)?;
    let mut bytes = Vec::new();
    match file.take(limit.saturating_add(1)).read_to_end(&mut bytes) {
        Ok(_) if bytes.len() as u64 > limit => {
            let most = limit >> 10;
            Err(io::Error::other(format!("it is larger than {most} KiB")))
        },
        Ok(_) => Ok(bytes),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(not_a_regular_file()),
        Err(error) => Err(error),
    }
}

/// Opens a file for reading, without waiting for a pipe that nobody writes to. A folder or a pipe is refused.
pub fn open_nonblocking(path: &Path) -> io::Result<std::fs::File> {
    use rustix::fs::{Mode, OFlags};
    use std::os::unix::fs::FileTypeExt as _;
    // Without `NONBLOCK` opening a pipe waits for a writer. Files ignore it.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = std::fs::File::from(rustix::fs::open(path, flags, Mode::empty())?);
    let kind = file.metadata()?.file_type();
    if kind.is_dir() {
        return Err(io::Error::other("it is a folder, not a file"));
    }
    match kind.is_fifo() {
        true => Err(not_a_regular_file()),
        false => Ok(file),
    }
}

fn not_a_regular_file() -> io::Error {
    io::Error::other("it is a pipe or a terminal, not a file")
}

/// The text of a file that only this user could have written, if there is one.
pub fn read(path: &Path) -> Option<String> {
    is_private(path)
        .then(|| std::fs::read_to_string(path).ok())
        .flatten()
}

fn is_private(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let owner = rustix::process::geteuid().as_raw();
    std::fs::symlink_metadata(path)
        .is_ok_and(|meta| meta.is_file() && meta.uid() == owner && meta.mode() & 0o022 == 0)
}
