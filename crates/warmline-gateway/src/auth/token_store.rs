//! Stored bearer tokens: one small file each in the state folder.
//!
//! A file holds the digest of its token. The text is shown once, at its creation, and not stored;
//! that of the local machine token is, because its user has to read it.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use warmline_core::pool_key::Digest;
use warmline_engine::Run;
use warmline_platform::{clock, private_file};
use warmline_store::keyring::{Keyring, random_bytes};

pub use crate::auth::LOCAL_IDENTITY;
use crate::auth::{BearerToken, TokenSource};
use crate::timestamp;

/// The prefix of every token, so that a leaked one is recognised.
const TOKEN_PREFIX: &str = "wl_";
const MAX_IDENTITY_BYTES: usize = 256;

/// The tokens of a state folder.
#[derive(Clone, Debug)]
pub struct TokenStore {
    state: PathBuf,
}

/// A stored token, without its text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenInfo {
    /// Its name: that of the file.
    #[serde(skip)]
    pub name: String,
    /// The identity that it stands for.
    pub identity: String,
    /// In hexadecimal.
    digest: String,
    /// When it was created, in seconds of the Unix epoch.
    pub made_at: u64,
    /// When it expires, in seconds of the Unix epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<u64>,
}

impl TokenInfo {
    /// Whether it has expired.
    pub fn is_expired(&self) -> bool {
        self.expires_at
            .is_some_and(|end| end <= clock::wall_seconds())
    }

    /// When it expires, as `2026-07-28T12:34:56Z`.
    pub fn expires_at_text(&self) -> Option<String> {
        self.expires_at.map(timestamp::format_utc)
    }
}

/// Why a token was not created.
#[derive(Debug)]
#[non_exhaustive]
pub enum CreateTokenError {
    /// A token with this name exists.
    AlreadyExists,
    /// The name is not allowed.
    InvalidName,
    /// The identity is not allowed.
    InvalidIdentity,
    /// The identity is that of the local user, who has the local machine token.
    ReservedIdentity,
    /// It cannot be stored.
    Io(io::Error),
}

impl TokenStore {
    /// The tokens of a state folder.
    pub fn in_state_folder(state: &Path) -> Self {
        Self {
            state: state.to_owned(),
        }
    }

    /// Creates a token and returns its text, which is not stored.
    ///
    /// # Errors
    /// A token with this name exists, a name is not allowed, or it cannot be stored.
    pub fn create(
        &self,
        vault: &Keyring,
        name: &str,
        identity: &str,
        lifetime: Option<Duration>,
    ) -> Result<String, CreateTokenError> {
        if !is_valid_name(name) {
            return Err(CreateTokenError::InvalidName);
        }
        let is_plain = !identity.chars().any(char::is_control);
        if identity.is_empty() || identity.len() > MAX_IDENTITY_BYTES || !is_plain {
            return Err(CreateTokenError::InvalidIdentity);
        }
        // Its bearer would use the sessions of the local user, and see full errors.
        if identity == LOCAL_IDENTITY {
            return Err(CreateTokenError::ReservedIdentity);
        }
        let (text, now) = (generate_token(), clock::wall_seconds());
        let digest = BearerToken::from_text(vault, identity, &text).digest;
        let info = TokenInfo {
            name: name.to_owned(),
            identity: identity.to_owned(),
            digest: digest.to_hex(),
            made_at: now,
            expires_at: lifetime.map(|lifetime| now.saturating_add(lifetime.as_secs().max(1))),
        };
        let stored = serde_json::to_string(&info)
            .map_err(io::Error::from)
            .and_then(|line| private_file::create(&self.file(name), &format!("{line}\n")));
        match stored {
            Ok(()) => Ok(text),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Err(CreateTokenError::AlreadyExists)
            },
            Err(error) => Err(CreateTokenError::Io(error)),
        }
    }

    /// Revokes a token, and returns whether it existed.
    ///
    /// # Errors
    /// The file cannot be removed.
    pub fn revoke(&self, name: &str) -> io::Result<bool> {
        if !is_valid_name(name) {
            return Ok(false);
        }
        match std::fs::remove_file(self.file(name)) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Every token, sorted by name. Files that other users could write are ignored.
    pub fn list(&self) -> Vec<TokenInfo> {
        let files = std::fs::read_dir(self.folder());
        let mut all: Vec<TokenInfo> = files
            .into_iter()
            .flatten()
            .filter_map(|file| read_token_file(&file.ok()?.path()))
            .collect();
        all.sort_by(|one, other| one.name.cmp(&other.name));
        all
    }

    /// Every token, for a gateway.
    pub fn tokens(&self) -> Vec<BearerToken> {
        let stored = self.list().into_iter().filter_map(|stored| {
            // Only the local machine token stands for the local user.
            let is_local = stored.identity == LOCAL_IDENTITY;
            let digest = Digest::from_hex(&stored.digest).filter(|_| !is_local)?;
            Some(BearerToken {
                identity: stored.identity,
                digest,
                expires_at: stored.expires_at,
            })
        });
        stored.collect()
    }

    /// Every token, as a source that follows changes.
    pub fn source(&self) -> TokenSource {
        let store = self.clone();
        TokenSource::watching([self.folder()], move |_| store.tokens())
    }

    /// The same with the local machine token.
    pub fn source_with_local(&self) -> TokenSource {
        let store = self.clone();
        TokenSource::watching([self.folder(), self.local_token_file()], move |vault| {
            let local = store.existing_local_token();
            let local = local.map(|text| BearerToken::from_text(vault, LOCAL_IDENTITY, &text));
            store.tokens().into_iter().chain(local).collect()
        })
    }

    /// The text of the local machine token. Creates it at the first use.
    ///
    /// # Errors
    /// It can be neither read nor created.
    pub fn local_token(&self) -> io::Result<String> {
        let file = self.local_token_file();
        if let Some(text) = self.existing_local_token() {
            return Ok(text);
        }
        match private_file::create(&file, &format!("{}\n", generate_token())) {
            Ok(()) => {},
            // Another process was faster: its token counts.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {},
            Err(error) => return Err(error),
        }
        self.existing_local_token().ok_or_else(|| {
            let what = format!("{} is not private, or holds no token", file.display());
            io::Error::new(io::ErrorKind::PermissionDenied, what)
        })
    }

    /// The text of the local machine token, if it exists.
    pub fn existing_local_token(&self) -> Option<String> {
        let text = private_file::read(&self.local_token_file())?;
        let text = text.trim();
        text.starts_with(TOKEN_PREFIX).then(|| text.to_owned())
    }

    /// The file of the local machine token.
    pub fn local_token_file(&self) -> PathBuf {
        self.state.join("local-token")
    }

    fn folder(&self) -> PathBuf {
        self.state.join("tokens")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder().join(name)
    }
}

fn read_token_file(path: &Path) -> Option<TokenInfo> {
    let name = path.file_name()?.to_str()?;
    if !is_valid_name(name) {
        return None;
    }
    let info: TokenInfo = serde_json::from_str(&private_file::read(path)?).ok()?;
    Digest::from_hex(&info.digest)?;
    Some(TokenInfo {
        name: name.to_owned(),
        ..info
    })
}

/// Whether a token can have this name. A file that begins with a dot may be a draft.
fn is_valid_name(name: &str) -> bool {
    Run::check_name(name).is_ok() && !name.starts_with('.')
}

/// A random token of 256 bits.
pub fn generate_token() -> String {
    let bytes = [random_bytes(), random_bytes()].concat();
    format!("{TOKEN_PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_stored_by_its_digest_alone() {
        let state = tempfile::tempdir().unwrap();
        let vault = Keyring::ephemeral().unwrap();
        let store = TokenStore::in_state_folder(state.path());
        let text = store.create(&vault, "laptop", "acme/alice", None).unwrap();
        assert!(text.len() > 40 && text.starts_with("wl_"));
        let file = std::fs::read_to_string(state.path().join("tokens/laptop")).unwrap();
        let secret = text.strip_prefix(TOKEN_PREFIX).unwrap();
        assert!(!file.contains(secret));
        let [kept] = store.list().try_into().unwrap();
        assert_eq!(
            (kept.name.as_str(), kept.identity.as_str()),
            ("laptop", "acme/alice")
        );
        assert_eq!(
            kept.digest,
            BearerToken::from_text(&vault, "", &text).digest.to_hex()
        );
        assert!(matches!(
            store.create(&vault, "laptop", "bob", None),
            Err(CreateTokenError::AlreadyExists)
        ));
        assert!(store.revoke("laptop").unwrap() && !store.revoke("laptop").unwrap());
        assert_eq!(store.list(), []);
    }

    #[test]
    fn no_name_leaves_the_folder() {
        let state = tempfile::tempdir().unwrap();
        let vault = Keyring::ephemeral().unwrap();
        let store = TokenStore::in_state_folder(state.path());
        for name in ["", "..", ".a", "a/b", "../x", "a b"] {
            assert!(
                matches!(
                    store.create(&vault, name, "x", None),
                    Err(CreateTokenError::InvalidName)
                ),
                "{name}"
            );
            assert!(!store.revoke(name).unwrap(), "{name}");
        }
        assert!(matches!(
            store.create(&vault, "a", LOCAL_IDENTITY, None),
            Err(CreateTokenError::ReservedIdentity)
        ));
        assert!(matches!(
            store.create(&vault, "a", "x\n", None),
            Err(CreateTokenError::InvalidIdentity)
        ));
    }

    #[test]
    fn the_local_token_is_created_once_and_is_private() {
        let state = tempfile::tempdir().unwrap();
        let store = TokenStore::in_state_folder(state.path());
        assert_eq!(store.existing_local_token(), None);
        let text = store.local_token().unwrap();
        assert_eq!(store.local_token().unwrap(), text);
        let mode = std::os::unix::fs::PermissionsExt::mode(
            &std::fs::metadata(store.local_token_file())
                .unwrap()
                .permissions(),
        );
        assert_eq!(mode & 0o777, 0o600);
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o622);
        std::fs::set_permissions(store.local_token_file(), open).unwrap();
        assert!(store.local_token().is_err(), "others could have written it");
    }
}
