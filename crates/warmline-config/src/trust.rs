//! Trust in configuration files that were found in a working folder.
//!
//! A person trusts the bytes of one file at one place with `warmline trust`; a changed byte or
//! another folder needs it again. Each trusted path has its own small file, so that two commands
//! never overwrite each other.

use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use warmline_platform::private_file;

/// The SHA-256 of some bytes in hexadecimal digits.
pub(crate) fn sha256_hex(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What this user trusts. Kept in the state folder, readable by its owner alone.
#[derive(Clone, Debug)]
pub struct TrustStore {
    folder: Option<PathBuf>,
}

impl TrustStore {
    /// The store in a state folder. Without one nothing is trusted.
    pub fn in_state_folder(state: Option<&Path>) -> Self {
        Self {
            folder: state.map(|state| state.join("trust")),
        }
    }

    /// Whether exactly the bytes with this SHA-256 (hexadecimal) are trusted at this place.
    pub fn is_trusted(&self, file: &Path, digest: &str) -> bool {
        self.trusted_digest(file).is_some_and(|line| line == digest)
    }

    /// Whether anything at this place was trusted before.
    pub fn was_trusted_before(&self, file: &Path) -> bool {
        self.trusted_digest(file).is_some()
    }

    /// Trusts these bytes at this place, instead of those trusted there before.
    ///
    /// # Errors
    /// The state folder is missing or cannot be written.
    pub fn trust(&self, file: &Path, digest: &str) -> std::io::Result<()> {
        let entry = self.entry_path(file)?;
        let text = format!("{digest}\n{}\n", file.display());
        private_file::replace(&entry, &text)
    }

    fn trusted_digest(&self, file: &Path) -> Option<String> {
        let entry = self.entry_path(file).ok()?;
        let text = private_file::read(&entry)?;
        text.lines().next().map(str::to_owned)
    }

    fn entry_path(&self, file: &Path) -> std::io::Result<PathBuf> {
        let folder = self.folder.as_ref().ok_or_else(|| {
            std::io::Error::new(std::io::ErrorKind::NotFound, "there is no state folder")
        })?;
        let place = std::fs::canonicalize(file)?;
        Ok(folder.join(sha256_hex(place.as_os_str().as_encoded_bytes())))
    }
}
