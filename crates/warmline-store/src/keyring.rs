//! Secrets of an instance: keyed digests, and seals that only this instance opens.
//!
//! There are two secrets. The *instance secret* makes digests; it is kept for good, because everything
//! is found by digests. The *sealing keys* are a ring: the first one seals, all of them unseal, and a
//! new one is put in front from time to time.
//!
//! `keyring/secrets.rs` reads, writes and rotates the secrets, `keyring/folder.rs` keeps them in a
//! folder that processes share.
//!
//! A seal is a byte for the form, four for the key, twelve for the nonce, the ciphertext and its tag
//! (AES-256-GCM-SIV: a nonce that comes twice by chance reveals only that two texts are equal, so any
//! number of processes may draw nonces).

mod folder;
mod secrets;

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use aws_lc_rs::aead::{AES_256_GCM_SIV, Aad, Nonce, RandomizedNonceKey};
use aws_lc_rs::hmac;
use warmline_core::error::code::{Code, Reason};
use warmline_core::exchange::Diagnostic;
use warmline_core::pool_key::Digest;
use warmline_platform::clock;
use warmline_platform::lock::Mutex;

use self::folder::SecretsFolder;
use self::secrets::{SealingKeySecret, Secrets};

/// The purpose of a digest or a seal. One made for a purpose is good for no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Purpose {
    /// The digest of an identity.
    Identity,
    /// The digest of a run's name, inside its identity.
    Run,
    /// The digest of the source of a credential.
    Credential,
    /// The digest of how a server is reached.
    Revision,
    /// The digest of the profile of a client.
    Declared,
    /// The name under which a record is stored.
    RecordName,
    /// A sealed record.
    Record,
    /// A sealed session id for a legacy client.
    Ticket,
    /// The sealed state of a request that waits for its client.
    RequestState,
    /// The digest of a route of the gateway.
    Route,
    /// The digest of a token of a caller.
    Token,
    /// The digest in place of a run in a record of facts about a server.
    Contact,
    /// A sealed note with the name of a run that outlives its command, and its server.
    Note,
}

impl Purpose {
    /// The word in digests and seals. Nothing is found again if it changes.
    const fn as_str(self) -> &'static str {
        match self {
            Self::Identity => "identity",
            Self::Run => "run",
            Self::Credential => "credential",
            Self::Revision => "revision",
            Self::Declared => "declared",
            Self::RecordName => "record-name",
            Self::Record => "record",
            Self::Ticket => "ticket",
            Self::RequestState => "request-state",
            Self::Route => "route",
            Self::Token => "token",
            Self::Contact => "contact",
            Self::Note => "note",
        }
    }
}

/// The secrets of an instance, ready for use. Cannot be printed.
pub struct Keyring {
    digest_key: hmac::Key,
    sealing_keys: ArcSwap<SealingKeys>,
    source: SecretsSource,
}

/// Where the secrets come from, and so who rotates them. Whoever rotates them holds the lock, so that
/// no key is lost.
enum SecretsSource {
    /// Made for this process, and gone with it.
    Process(Mutex<Secrets>),
    /// Given from outside.
    External,
    /// A folder that we write.
    Folder(Mutex<SecretsFolder>),
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let source = match &self.source {
            SecretsSource::Process(_) => "process",
            SecretsSource::External => "given",
            SecretsSource::Folder(_) => "folder",
        };
        f.debug_struct("Keyring")
            .field("source", &source)
            .field("keys", &self.sealing_keys.load().0.len())
            .finish_non_exhaustive()
    }
}

impl Keyring {
    /// Secrets of this process alone: no other process can read what they seal.
    ///
    /// # Errors
    /// The system gives no random bytes.
    pub fn ephemeral() -> Result<Self, Diagnostic> {
        Self::new(Secrets::generate(clock::wall_seconds())?, |secrets| {
            SecretsSource::Process(Mutex::new(secrets))
        })
    }

    /// The secrets in a folder. The first start makes them, readable by their owner alone; any number
    /// of processes may start at once and get the same.
    ///
    /// # Errors
    /// `store-unavailable`: the folder cannot be used, or others can read the secrets.
    /// `config-bad-value`: the file holds something else.
    pub fn in_folder(folder: &Path) -> Result<Self, Diagnostic> {
        let folder = SecretsFolder::new(folder);
        let secrets = folder.read_or_create(clock::wall_seconds())?;
        Self::new(secrets, |_| SecretsSource::Folder(Mutex::new(folder)))
    }

    /// The secrets in a file that somebody else writes, in the form of [`Keyring::from_text`].
    ///
    /// # Errors
    /// `store-unavailable`: it cannot be read. `config-bad-value`: it holds something else.
    pub fn from_file(file: &Path) -> Result<Self, Diagnostic> {
        Self::new(folder::read_external(file)?, |_| SecretsSource::External)
    }

    /// Secrets as text, as in an environment variable: `instance=HEX seal=HEX`, where HEX is 64
    /// hexadecimal digits. More `seal=` may follow: the first one seals, the others only unseal. One
    /// HEX alone stands for both.
    ///
    /// # Errors
    /// `config-bad-value`, without a word of the text.
    pub fn from_text(text: &str) -> Result<Self, Diagnostic> {
        Self::new(Secrets::parse(text)?, |_| SecretsSource::External)
    }

    fn new(
        secrets: Secrets,
        source: impl FnOnce(Secrets) -> SecretsSource,
    ) -> Result<Self, Diagnostic> {
        Ok(Self {
            digest_key: hmac::Key::new(hmac::HMAC_SHA256, secrets.instance.as_ref()),
            sealing_keys: ArcSwap::from_pointee(SealingKeys::from_secrets(&secrets)?),
            source: source(secrets),
        })
    }

    /// Whether the next process can have the same secrets, and open what is sealed now.
    pub fn outlives_process(&self) -> bool {
        !matches!(self.source, SecretsSource::Process(_))
    }

    /// The keyed digest of some parts. It also depends on where one part ends and the next begins.
    pub fn digest(&self, purpose: Purpose, parts: &[&[u8]]) -> Digest {
        let mut context = hmac::Context::with_key(&self.digest_key);
        for part in std::iter::once(&purpose.as_str().as_bytes()).chain(parts) {
            context.update(&length_prefix(part));
            context.update(part);
        }
        let mut digest = [0; 16];
        // The tag has 32 bytes; half of them make a digest.
        for (to, from) in digest.iter_mut().zip(context.sign().as_ref()) {
            *to = *from;
        }
        Digest::new(digest)
    }

    /// Seals some bytes for a purpose, bound to something that unsealing has to name.
    ///
    /// # Errors
    /// The system gives no random bytes.
    pub fn seal(
        &self,
        purpose: Purpose,
        bound_to: &[u8],
        plain: &[u8],
    ) -> Result<Vec<u8>, Diagnostic> {
        let keys = self.sealing_keys.load();
        keys.seal(&binding_context(purpose, bound_to), plain)
    }

    /// Opens what [`Keyring::seal`] made for the same purpose and bound to the same thing.
    ///
    /// # Errors
    /// It was made for something else, or changed, or its key is not in the ring.
    pub fn unseal(
        &self,
        purpose: Purpose,
        bound_to: &[u8],
        sealed: &[u8],
    ) -> Result<Vec<u8>, UnsealError> {
        let context = binding_context(purpose, bound_to);
        let outcome = self.sealing_keys.load().unseal(&context, sealed);
        if outcome == Err(UnsealError::UnknownKey) && self.reload_keys() {
            return self.sealing_keys.load().unseal(&context, sealed);
        }
        outcome
    }

    /// Puts a new sealing key in front. Old ones go on unsealing for [`OLD_KEY_LIFETIME`].
    ///
    /// # Errors
    /// `store-unavailable`: the folder cannot be written. `config-bad-value`: the secrets were given
    /// from outside, and are rotated there.
    pub fn rotate(&self) -> Result<(), Diagnostic> {
        self.rotate_if_older(Duration::ZERO).map(|_| ())
    }

    /// Puts a new sealing key in front if the first one is that old, and says whether it did. Of all
    /// processes that share a folder one does it; the others read the new key.
    ///
    /// # Errors
    /// As [`Keyring::rotate`].
    pub fn rotate_if_older(&self, age: Duration) -> Result<bool, Diagnostic> {
        let now = clock::wall_seconds();
        match &self.source {
            SecretsSource::External => Err(Diagnostic::new(
                Reason::InvalidRequest,
                "the sealing keys were given to Warmline and cannot be rotated by it",
            )
            .with_code(Code::ConfigBadValue)
            .with_hint("put a new `seal=` in front of the others where they are written")),
            SecretsSource::Process(secrets) => {
                let mut secrets = secrets.lock();
                let is_rotated = secrets.rotate_if_older(age, now)?;
                self.use_sealing_keys(&secrets)?;
                Ok(is_rotated)
            },
            SecretsSource::Folder(folder) => {
                let folder = folder.lock();
                let (secrets, is_rotated) = folder.rotate_if_older(age, now)?;
                if !self.has_same_instance(&secrets) {
                    return Err(folder.replaced_error());
                }
                self.use_sealing_keys(&secrets)?;
                Ok(is_rotated)
            },
        }
    }

    fn use_sealing_keys(&self, secrets: &Secrets) -> Result<(), Diagnostic> {
        let keys = SealingKeys::from_secrets(secrets)?;
        self.sealing_keys.store(Arc::new(keys));
        Ok(())
    }

    /// Whether these are the secrets of this instance, whatever its sealing keys are.
    fn has_same_instance(&self, secrets: &Secrets) -> bool {
        let other = hmac::Key::new(hmac::HMAC_SHA256, secrets.instance.as_ref());
        let word = b"warmline instance";
        hmac::verify(&other, word, hmac::sign(&self.digest_key, word).as_ref()).is_ok()
    }

    /// Reads the sealing keys again if another process may have put a new one in front, and says
    /// whether it did. Keys of another instance are not used.
    fn reload_keys(&self) -> bool {
        let SecretsSource::Folder(folder) = &self.source else {
            return false;
        };
        let mut folder = folder.lock();
        let secrets = folder.read_if_changed();
        let ours = secrets.filter(|secrets| self.has_same_instance(secrets));
        ours.is_some_and(|secrets| self.use_sealing_keys(&secrets).is_ok())
    }
}

/// How long a sealing key that was replaced goes on unsealing.
pub const OLD_KEY_LIFETIME: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// What a seal is bound to.
fn binding_context(purpose: Purpose, bound_to: &[u8]) -> Vec<u8> {
    let word = purpose.as_str().as_bytes();
    [&length_prefix(word), word, bound_to].concat()
}

fn length_prefix(part: &[u8]) -> [u8; 8] {
    // No part is longer than what a machine can count.
    u64::try_from(part.len()).unwrap_or(u64::MAX).to_le_bytes()
}

/// 128 random bits.
pub fn random_bytes() -> [u8; 16] {
    let mut bytes = [0; 16];
    // Without randomness of the system, names that differ are the best there is.
    if aws_lc_rs::rand::fill(&mut bytes).is_err() {
        fastrand::fill(&mut bytes);
    }
    bytes
}

/// The system has no random bytes: nothing can be sealed, and nothing is sealed badly.
fn no_randomness() -> Diagnostic {
    let what = "the system gives no random bytes for secrets";
    Diagnostic::new(Reason::LocalResources, what)
}

/// The form that is written.
const FORMAT_VERSION: u8 = 1;

/// Why a seal cannot be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UnsealError {
    /// Its key is not in the ring.
    UnknownKey,
    /// A byte was changed, or it was sealed for something else.
    Changed,
    /// It is no seal.
    NotSealed,
}

impl fmt::Display for UnsealError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UnknownKey => "it was sealed with another key",
            Self::Changed => "it was changed, or sealed for something else",
            Self::NotSealed => "it was never sealed",
        })
    }
}

impl std::error::Error for UnsealError {}

/// The sealing keys, ready for use. The first one seals; there is always one.
struct SealingKeys(Vec<SealingKey>);

struct SealingKey {
    id: [u8; 4],
    key: RandomizedNonceKey,
}

impl SealingKey {
    fn from_secret(written: &SealingKeySecret) -> Result<Self, Diagnostic> {
        let secret = written.secret.as_ref();
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
        let tag = hmac::sign(&key, b"warmline sealing key id");
        let mut id = [0; 4];
        for (to, from) in id.iter_mut().zip(tag.as_ref()) {
            *to = *from;
        }
        let key = RandomizedNonceKey::new(&AES_256_GCM_SIV, secret).map_err(|_| no_randomness())?;
        Ok(Self { id, key })
    }
}

impl SealingKeys {
    fn from_secrets(secrets: &Secrets) -> Result<Self, Diagnostic> {
        let keys = secrets.sealing.iter().map(SealingKey::from_secret);
        Ok(Self(keys.collect::<Result<_, _>>()?))
    }

    fn seal(&self, context: &[u8], plain: &[u8]) -> Result<Vec<u8>, Diagnostic> {
        let first = self.0.first().ok_or_else(no_randomness)?;
        let mut text = Vec::with_capacity(plain.len() + 16);
        text.extend_from_slice(plain);
        let nonce = first
            .key
            .seal_in_place_append_tag(Aad::from(context), &mut text)
            .map_err(|_| no_randomness())?;
        Ok([&[FORMAT_VERSION], &first.id[..], nonce.as_ref(), &text].concat())
    }

    fn unseal(&self, context: &[u8], sealed: &[u8]) -> Result<Vec<u8>, UnsealError> {
        let Some((&[FORMAT_VERSION, ref id @ ..], rest)) = sealed.split_first_chunk::<5>() else {
            return Err(UnsealError::NotSealed);
        };
        let (nonce, text) = rest
            .split_first_chunk::<12>()
            .ok_or(UnsealError::NotSealed)?;
        let mut outcome = Err(UnsealError::UnknownKey);
        for key in self.0.iter().filter(|key| &key.id == id) {
            let mut text = text.to_vec();
            let nonce = Nonce::assume_unique_for_key(*nonce);
            match key.key.open_in_place(nonce, Aad::from(context), &mut text) {
                Ok(plain) => return Ok(plain.to_vec()),
                Err(_) => outcome = Err(UnsealError::Changed),
            }
        }
        outcome
    }
}

#[cfg(test)]
mod tests;
