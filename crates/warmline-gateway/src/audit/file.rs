//! The file that an audit is written to.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

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
    OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

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
