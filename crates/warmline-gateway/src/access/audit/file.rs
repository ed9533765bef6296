//! The file that an audit is written to.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;

#[derive(Debug)]
pub(super) struct AuditFile {
    path: PathBuf,
    file: File,
}

impl AuditFile {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self {
            file: open_for_append(path)?,
            path: path.to_owned(),
        })
    }

    /// Appends whole lines. Creates the file again if it was moved away or removed.
    pub(super) fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        let own = self.file.metadata()?;
        let is_same =
            |found: &std::fs::Metadata| (found.dev(), found.ino()) == (own.dev(), own.ino());
        if !std::fs::metadata(&self.path).is_ok_and(|found| is_same(&found)) {
            self.file = open_for_append(&self.path)?;
        }
        self.file.write_all(lines)
    }
}

fn open_for_append(path: &Path) -> io::Result<File> {
    // Opening a pipe would wait for its reader.
    let nonblocking = i32::try_from(OFlags::NONBLOCK.bits()).map_err(io::Error::other)?;
    let file = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .custom_flags(nonblocking)
        .open(path)
        .map_err(|error| match Errno::from_io_error(&error) {
            Some(Errno::NXIO) => io::Error::other("the pipe has no reader"),
            Some(_) | None => error,
        })?;
    // Writes wait for a slow reader: half a line is no line.
    fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_pipe_without_a_reader_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        let (kind, mode) = (rustix::fs::FileType::Fifo, 0o600.into());
        rustix::fs::mknodat(rustix::fs::CWD, &path, kind, mode, 0).unwrap();
        let error = AuditFile::open(&path).unwrap_err();
        assert_eq!(error.to_string(), "the pipe has no reader");
        let reader = rustix::fs::open(&path, OFlags::RDONLY | OFlags::NONBLOCK, 0o600.into());
        let mut reader = File::from(reader.unwrap());
        AuditFile::open(&path).unwrap().append(b"one\n").unwrap();
        assert_eq!(io::read_to_string(&mut reader).unwrap(), "one\n");
    }

    #[test]
    fn a_file_that_was_moved_away_is_created_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        let mut output = AuditFile::open(&path).unwrap();
        output.append(b"one\n").unwrap();
        std::fs::rename(&path, folder.path().join("old")).unwrap();
        output.append(b"two\n").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"two\n");
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        AuditFile::open(&path).unwrap().append(b"three\n").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"two\nthree\n");
    }
}
