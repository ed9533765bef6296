//! Trust in configuration files that were found in a working folder.
//!
//! Asked by: [`config`](crate::config), before a declaration becomes a server.  Told by: a person,
//! through `warmline trust`.
//!
//! Trust is given to the bytes of one file at one place: a changed byte or another folder asks
//! anew. One small file per trusted path, so that two commands never overwrite each other.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

/// The SHA-256 of a file's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest([u8; 32]);

impl Digest {
    /// The digest of some bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// The digest in hexadecimal digits.
    pub fn hex(&self) -> String {
        self.0
            .iter()
            .fold(String::with_capacity(64), |mut out, byte| {
                // Writing into a String does not fail.
                if write!(out, "{byte:02x}").is_err() {
                    out.clear();
                }
                out
            })
    }
}

/// What has been trusted by this user. Kept in the state folder, readable by its owner alone.
#[derive(Clone, Debug)]
pub struct TrustStore {
    folder: Option<PathBuf>,
}

impl TrustStore {
    /// The store in Warmline's state folder. Without one nothing is trusted.
    pub fn in_state_folder(state: Option<&Path>) -> Self {
        Self {
            folder: state.map(|state| state.join("trust")),
        }
    }

    /// Whether exactly these bytes at exactly this place were trusted.
    pub fn holds(&self, file: &Path, digest: &Digest) -> bool {
        self.remembered(file)
            .is_some_and(|line| line == digest.hex())
    }

    /// Whether anything at this place was trusted before.
    pub fn knows(&self, file: &Path) -> bool {
        self.remembered(file).is_some()
    }

    /// Trusts these bytes at this place, and forgets what was trusted there before.
    ///
    /// # Errors
    /// The state folder is missing or cannot be written.
    pub fn trust(&self, file: &Path, digest: &Digest) -> std::io::Result<()> {
        let entry = self.entry(file)?;
        let folder = entry.parent().unwrap_or(Path::new("."));
        create_private_folder(folder)?;
        let draft = entry.with_extension(format!("{}.new", std::process::id()));
        let written = write_private(&draft, &format!("{}\n{}\n", digest.hex(), file.display()))
            .and_then(|()| std::fs::rename(&draft, &entry));
        if written.is_err() {
            // The draft is of no use to anybody; the error that matters is the first one.
            std::fs::remove_file(&draft).ok();
        }
        written
    }

    fn remembered(&self, file: &Path) -> Option<String> {
        let entry = self.entry(file).ok()?;
        if !is_private(&entry) {
            return None;
        }
        let text = std::fs::read_to_string(entry).ok()?;
        text.lines().next().map(str::to_owned)
    }

    fn entry(&self, file: &Path) -> std::io::Result<PathBuf> {
        let folder = self.folder.as_ref().ok_or_else(|| {
            std::io::Error::new(std::io::ErrorKind::NotFound, "there is no state folder")
        })?;
        let place = std::fs::canonicalize(file)?;
        let digest = Digest::of(place.as_os_str().as_encoded_bytes());
        Ok(folder.join(digest.hex()))
    }
}

#[cfg(unix)]
fn create_private_folder(folder: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
}

#[cfg(not(unix))]
fn create_private_folder(folder: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)
}

fn write_private(path: &Path, text: &str) -> std::io::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
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
