//! Trust in configuration files that were found in a working folder.
//!
//! Asked by: [`config`](crate::config), before a declaration becomes a server.  Told by: a person,
//! through `warmline trust`.
//!
//! Trust is given to the bytes of one file at one place: a changed byte or another folder asks
//! anew. One small file per trusted path, so that two commands never overwrite each other.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use crate::private;

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
        private::replace(&entry, &format!("{}\n{}\n", digest.hex(), file.display()))
    }

    fn remembered(&self, file: &Path) -> Option<String> {
        let entry = self.entry(file).ok()?;
        let text = private::read(&entry)?;
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
