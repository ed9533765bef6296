//! Bearer tokens as they are kept: one small file each in the state folder, by its digest.
//!
//! Asked by: the command line, which makes and revokes them, and whoever starts a gateway, for
//! those that count. The text of a token is shown once, when it is made, and kept nowhere; only
//! the token of this machine is, because its own user has to read it.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use warmline::core::key::Digest;
use warmline::seal::random_bytes;
use warmline::{Run, Vault, clock, private};

use crate::audit::time;
use crate::who::{Token, TokenSource};

pub use crate::who::LOCAL;

/// What every token begins with, so that it is known where it is found by accident.
const MARK: &str = "wl_";
/// Nobody has a longer name.
const MAX_IDENTITY: usize = 256;

/// The tokens of a state folder.
#[derive(Clone, Debug)]
pub struct TokenStore {
    state: PathBuf,
}

/// A token as it is listed: its text is not known any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Its name.
    pub name: String,
    /// Whom it stands for.
    pub identity: String,
    /// When it was made, in seconds of the Unix epoch.
    pub made_at: u64,
    /// When its time is over, in seconds of the Unix epoch; none has no end.
    pub expires_at: Option<u64>,
    digest: Digest,
}

impl Kept {
    /// Whether its time is over.
    pub fn is_over(&self) -> bool {
        self.expires_at
            .is_some_and(|end| end <= clock::wall_seconds())
    }

    /// When its time is over, as people and machines both read it.
    pub fn expires(&self) -> Option<String> {
        self.expires_at.map(time::written)
    }
}

/// What a file holds.
#[derive(Serialize, Deserialize)]
struct Written {
    identity: String,
    digest: String,
    made_at: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires_at: Option<u64>,
}

/// Why a token was not made.
#[derive(Debug)]
#[non_exhaustive]
pub enum NotMade {
    /// There is one of that name.
    Exists,
    /// No token can be called so.
    Name,
    /// Nobody can be called so.
    Identity,
    /// It would stand for our own user, who has a token already.
    Local,
    /// It cannot be kept.
    Unkept(io::Error),
}

impl TokenStore {
    /// Those of a state folder.
    pub fn in_state_folder(state: &Path) -> Self {
        Self {
            state: state.to_owned(),
        }
    }

    /// Makes a token for somebody, for a time or for good. Its text is given out once, here.
    ///
    /// # Errors
    /// There is one of that name, or it cannot be kept.
    pub fn make(
        &self,
        vault: &Vault,
        name: &str,
        identity: &str,
        lasts: Option<Duration>,
    ) -> Result<String, NotMade> {
        if !may_be_called(name) {
            return Err(NotMade::Name);
        }
        let is_plain = !identity.chars().any(char::is_control);
        if identity.is_empty() || identity.len() > MAX_IDENTITY || !is_plain {
            return Err(NotMade::Identity);
        }
        // Whoever shows it would have the sessions of whoever runs the gateway, and read its errors.
        if identity == LOCAL {
            return Err(NotMade::Local);
        }
        let (text, now) = (fresh(), clock::wall_seconds());
        let written = Written {
            identity: identity.to_owned(),
            digest: Token::of(vault, identity, &text).digest.hex(),
            made_at: now,
            expires_at: lasts.map(|lasts| now.saturating_add(lasts.as_secs().max(1))),
        };
        let line =
            serde_json::to_string(&written).map_err(|error| NotMade::Unkept(error.into()))?;
        match private::create(&self.file(name), &format!("{line}\n")) {
            Ok(()) => Ok(text),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(NotMade::Exists),
            Err(error) => Err(NotMade::Unkept(error)),
        }
    }

    /// Takes a token away; whether there was one.
    ///
    /// # Errors
    /// What the system says.
    pub fn revoke(&self, name: &str) -> io::Result<bool> {
        if !may_be_called(name) {
            return Ok(false);
        }
        match std::fs::remove_file(self.file(name)) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Every token, by name. Files that others could have written are no tokens.
    pub fn list(&self) -> Vec<Kept> {
        let files = std::fs::read_dir(self.folder());
        let mut all: Vec<Kept> = files
            .into_iter()
            .flatten()
            .filter_map(|file| kept(&file.ok()?.path()))
            .collect();
        all.sort_by(|one, other| one.name.cmp(&other.name));
        all
    }

    /// Those that were made, as a gateway asks for them.
    pub fn tokens(&self) -> Vec<Token> {
        // Our own user has a token already: one of another name would show its bearer too much.
        let all = self.list().into_iter();
        let all = all.filter(|kept| kept.identity != LOCAL);
        all.map(|kept| Token {
            identity: kept.identity,
            digest: kept.digest,
            expires_at: kept.expires_at,
        })
        .collect()
    }

    /// The same, for a gateway that asks at every request whether they still count.
    pub fn source(&self) -> TokenSource {
        let store = self.clone();
        TokenSource::watching([self.folder()], move || store.tokens())
    }

    /// The same, with the token of this machine, as it is kept at that moment.
    pub fn source_with_local(&self) -> TokenSource {
        let store = self.clone();
        TokenSource::digesting([self.folder(), self.local_file()], move |vault| {
            let local = store.local_if_made();
            let local = local.map(|text| Token::of(vault, LOCAL, &text));
            store.tokens().into_iter().chain(local).collect()
        })
    }

    /// The text of the token of this machine, made at the first use.
    ///
    /// # Errors
    /// It can be neither read nor made.
    pub fn local(&self) -> io::Result<String> {
        let file = self.local_file();
        if let Some(text) = self.local_if_made() {
            return Ok(text);
        }
        match private::create(&file, &format!("{}\n", fresh())) {
            Ok(()) => {},
            // Somebody else was faster: theirs counts.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {},
            Err(error) => return Err(error),
        }
        self.local_if_made().ok_or_else(|| {
            let what = format!("{} is not private, or holds no token", file.display());
            io::Error::new(io::ErrorKind::PermissionDenied, what)
        })
    }

    /// The text of the token of this machine, if it was made.
    pub fn local_if_made(&self) -> Option<String> {
        let text = private::read(&self.local_file())?;
        let text = text.trim();
        text.starts_with(MARK).then(|| text.to_owned())
    }

    /// Where the token of this machine is kept.
    pub fn local_file(&self) -> PathBuf {
        self.state.join("local-token")
    }

    fn folder(&self) -> PathBuf {
        self.state.join("tokens")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder().join(name)
    }
}

fn kept(path: &Path) -> Option<Kept> {
    let name = path.file_name()?.to_str()?;
    if !may_be_called(name) {
        return None;
    }
    let written: Written = serde_json::from_str(&private::read(path)?).ok()?;
    Some(Kept {
        name: name.to_owned(),
        digest: digest_of(&written.digest)?,
        identity: written.identity,
        made_at: written.made_at,
        expires_at: written.expires_at,
    })
}

/// Whether a token can have this name. One that begins with a dot may be the draft of another.
fn may_be_called(name: &str) -> bool {
    Run::check_name(name).is_ok() && !name.starts_with('.')
}

/// A digest from its hexadecimal digits.
fn digest_of(hex: &str) -> Option<Digest> {
    let (pairs, rest) = hex.as_bytes().as_chunks::<2>();
    let byte = |pair: &[u8; 2]| {
        let text = std::str::from_utf8(pair).ok()?;
        u8::from_str_radix(text, 16).ok()
    };
    let bytes: Vec<u8> = pairs.iter().map(byte).collect::<Option<_>>()?;
    let bytes = <[u8; 16]>::try_from(bytes).ok()?;
    rest.is_empty().then(|| Digest::new(bytes))
}

/// A token that nobody can guess: 256 bits.
pub fn fresh() -> String {
    let bytes = [random_bytes(), random_bytes()].concat();
    format!("{MARK}{}", URL_SAFE_NO_PAD.encode(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_kept_by_its_digest_and_its_text_nowhere() {
        let state = tempfile::tempdir().unwrap();
        let vault = Vault::ephemeral().unwrap();
        let store = TokenStore::in_state_folder(state.path());
        let text = store.make(&vault, "laptop", "acme/alice", None).unwrap();
        assert!(text.len() > 40 && text.starts_with("wl_"));
        let file = std::fs::read_to_string(state.path().join("tokens/laptop")).unwrap();
        let secret = text.strip_prefix(MARK).unwrap();
        assert!(!file.contains(secret));
        let [kept] = store.list().try_into().unwrap();
        assert_eq!(
            (kept.name.as_str(), kept.identity.as_str()),
            ("laptop", "acme/alice")
        );
        assert_eq!(kept.digest, Token::of(&vault, "", &text).digest);
        assert!(matches!(
            store.make(&vault, "laptop", "bob", None),
            Err(NotMade::Exists)
        ));
        assert!(store.revoke("laptop").unwrap() && !store.revoke("laptop").unwrap());
        assert_eq!(store.list(), []);
    }

    #[test]
    fn no_name_leads_out_of_the_folder() {
        let state = tempfile::tempdir().unwrap();
        let vault = Vault::ephemeral().unwrap();
        let store = TokenStore::in_state_folder(state.path());
        for name in ["", "..", ".a", "a/b", "../x", "a b"] {
            assert!(
                matches!(store.make(&vault, name, "x", None), Err(NotMade::Name)),
                "{name}"
            );
            assert!(!store.revoke(name).unwrap(), "{name}");
        }
        assert!(matches!(
            store.make(&vault, "a", LOCAL, None),
            Err(NotMade::Local)
        ));
        assert!(matches!(
            store.make(&vault, "a", "x\n", None),
            Err(NotMade::Identity)
        ));
    }

    #[test]
    fn the_token_of_this_machine_is_made_once_and_is_private() {
        let state = tempfile::tempdir().unwrap();
        let store = TokenStore::in_state_folder(state.path());
        assert_eq!(store.local_if_made(), None);
        let text = store.local().unwrap();
        assert_eq!(store.local().unwrap(), text);
        let mode = std::os::unix::fs::PermissionsExt::mode(
            &std::fs::metadata(store.local_file()).unwrap().permissions(),
        );
        assert_eq!(mode & 0o777, 0o600);
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o622);
        std::fs::set_permissions(store.local_file(), open).unwrap();
        assert!(store.local().is_err(), "others could have written it");
    }
}
