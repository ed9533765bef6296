//! The file that an audit is written to.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;

/// A file to which lines are added.
#[derive(Debug)]
pub(super) struct Output {
    path: PathBuf,
    file: File,
}

impl Output {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self {
            file: open(path)?,
            path: path.to_owned(),
        })
    }

    /// Adds whole lines. A file that was moved away or removed is made anew first.
    pub(super) fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        let held = self.file.metadata()?;
        let is_same =
            |seen: &std::fs::Metadata| (seen.dev(), seen.ino()) == (held.dev(), held.ino());
        if !std::fs::metadata(&self.path).is_ok_and(|seen| is_same(&seen)) {
            self.file = open(&self.path)?;
        }
        self.file.write_all(lines)
    }
}

fn open(path: &Path) -> io::Result<File> {
    // Without this whoever opens a pipe waits for somebody who reads it. Files do not mind.
    let without_waiting = i32::try_from(OFlags::NONBLOCK.bits()).map_err(io::Error::other)?;
    let file = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .custom_flags(without_waiting)
        .open(path)
        .map_err(|error| match Errno::from_io_error(&error) {
            Some(Errno::NXIO) => io::Error::other("it is a pipe that nobody reads"),
            Some(_) | None => error,
        })?;
    // A reader that is only slow is waited for: what is half written would be no line.
    fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    /// It would be waited for before anybody could say stop.
    #[test]
    fn a_pipe_that_nobody_reads_is_an_error_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        let (kind, mode) = (rustix::fs::FileType::Fifo, 0o600.into());
        rustix::fs::mknodat(rustix::fs::CWD, &path, kind, mode, 0).unwrap();
        let error = Output::open(&path).unwrap_err();
        assert_eq!(error.to_string(), "it is a pipe that nobody reads");
        let reader = rustix::fs::open(&path, OFlags::RDONLY | OFlags::NONBLOCK, 0o600.into());
        let mut reader = File::from(reader.unwrap());
        Output::open(&path).unwrap().write(b"one\n").unwrap();
        assert_eq!(io::read_to_string(&mut reader).unwrap(), "one\n");
    }

    #[test]
    fn a_file_that_was_moved_away_is_made_anew() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        let mut output = Output::open(&path).unwrap();
        output.write(b"one\n").unwrap();
        std::fs::rename(&path, folder.path().join("old")).unwrap();
        output.write(b"two\n").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"two\n");
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        // What is there already stays.
        Output::open(&path).unwrap().write(b"three\n").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"two\nthree\n");
    }
}
