//! Secrets of an instance: keyed digests, and what is sealed so that only we can read it.
//!
//! Asked by: whoever makes a key (digests of identities, runs, credentials), the records, and
//! whatever gives sealed things to others.  Told by: the environment, a file, or the folder in
//! which the secrets are made at the first start.
//!
//! Two secrets with two lives. The *instance secret* makes digests; it is kept for good, because
//! everything is found by digests. The *sealing keys* are a ring: the first one seals, all of them
//! unseal, and a new one is put in front from time to time.
//!
//! | question | file |
//! |---|---|
//! | How are the secrets written down? | `text.rs` |
//! | Where are they made, and how do processes share them? | `folder.rs` |
//! | Which key seals, which ones unseal? | `ring.rs` |

mod folder;
mod ring;
mod text;

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use aws_lc_rs::hmac;
use warmline_core::code::{Code, Reason};
use warmline_core::exchange::Trouble;
use warmline_core::key::Digest;

use self::folder::Home;
use self::ring::Ring;
pub use self::ring::Unsealable;
use self::text::Secrets;
use crate::clock;
use crate::sync::Mutex;

/// What a digest or a sealed thing is for. One made for a purpose is good for no other.
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
    /// The digest of what was said of ourselves.
    Declared,
    /// The name under which a record is stored.
    RecordName,
    /// A sealed record.
    Record,
    /// A sealed session id for a legacy client.
    Ticket,
    /// A sealed state of a request that is parked.
    RequestState,
    /// The digest of a place of the gateway.
    Route,
    /// The digest of a token that lets somebody in.
    Token,
    /// The digest that stands in for a run where a record tells of a server.
    Contact,
    /// A sealed note on how a kept run is called, and where its server is.
    Note,
}

impl Purpose {
    /// The word that goes into digests and seals: never changed, or nothing is found again.
    const fn word(self) -> &'static str {
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
pub struct Vault {
    digests: hmac::Key,
    ring: ArcSwap<Ring>,
    /// Held by whoever turns the ring, so that no key is lost between two of them.
    turning: Mutex<()>,
    origin: Origin,
}

/// Where the secrets came from, and so who can change them.
enum Origin {
    /// Made for this process; they die with it.
    Process,
    /// Given by somebody, who also rotates them.
    Given,
    /// A folder that we write.
    Folder(Home),
}

impl fmt::Debug for Vault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let origin = match &self.origin {
            Origin::Process => "process",
            Origin::Given => "given",
            Origin::Folder(_) => "folder",
        };
        f.debug_struct("Vault")
            .field("origin", &origin)
            .field("keys", &self.ring.load().len())
            .finish_non_exhaustive()
    }
}

impl Vault {
    /// Secrets of this process alone: nothing it sealed can be read by the next one.
    ///
    /// # Errors
    /// The system gives no random bytes.
    pub fn ephemeral() -> Result<Self, Trouble> {
        Self::of(&Secrets::fresh(clock::wall_seconds())?, Origin::Process)
    }

    /// The secrets in a folder. They are made there at the first start, readable by their owner
    /// alone; any number of processes may start at once and get the same.
    ///
    /// # Errors
    /// `store-unavailable`: the folder cannot be used, or others can read the secrets.
    /// `config-bad-value`: the file is not what we write.
    pub fn in_folder(folder: &Path) -> Result<Self, Trouble> {
        let home = Home::new(folder);
        let secrets = home.read_or_make(clock::wall_seconds())?;
        Self::of(&secrets, Origin::Folder(home))
    }

    /// The secrets in a file that somebody else writes; the form is that of
    /// [`Vault::of_text`].
    ///
    /// # Errors
    /// `store-unavailable`: it cannot be read. `config-bad-value`: it holds something else.
    pub fn of_file(file: &Path) -> Result<Self, Trouble> {
        Self::of(&folder::read_given(file)?, Origin::Given)
    }

    /// Secrets written out, as in an environment variable: `instance=HEX seal=HEX`, where HEX is 64
    /// hexadecimal digits. More `seal=` may follow: the first one seals, the others only unseal.
    /// One HEX alone stands for both.
    ///
    /// # Errors
    /// `config-bad-value`, without a word of the text.
    pub fn of_text(text: &str) -> Result<Self, Trouble> {
        Self::of(&Secrets::parse(text)?, Origin::Given)
    }

    fn of(secrets: &Secrets, origin: Origin) -> Result<Self, Trouble> {
        Ok(Self {
            digests: hmac::Key::new(hmac::HMAC_SHA256, secrets.instance()),
            ring: ArcSwap::from_pointee(Ring::of(secrets)?),
            turning: Mutex::new(()),
            origin,
        })
    }

    /// Whether the next process can have the same secrets. What those of this process alone sealed,
    /// nobody opens afterwards.
    pub fn outlives_process(&self) -> bool {
        !matches!(self.origin, Origin::Process)
    }

    /// The keyed digest of some parts. Where one part ends and the next begins counts.
    pub fn digest(&self, purpose: Purpose, parts: &[&[u8]]) -> Digest {
        let mut context = hmac::Context::with_key(&self.digests);
        for part in std::iter::once(&purpose.word().as_bytes()).chain(parts) {
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

    /// Seals some bytes for a purpose, bound to something that whoever unseals them must name.
    ///
    /// # Errors
    /// The system gives no random bytes.
    pub fn seal(
        &self,
        purpose: Purpose,
        bound_to: &[u8],
        plain: &[u8],
    ) -> Result<Vec<u8>, Trouble> {
        self.ring.load().seal(&context(purpose, bound_to), plain)
    }

    /// Opens what [`Vault::seal`] made for the same purpose and bound to the same thing.
    ///
    /// # Errors
    /// It was not, or a byte was changed, or the key is not (or no longer) in the ring.
    pub fn unseal(
        &self,
        purpose: Purpose,
        bound_to: &[u8],
        sealed: &[u8],
    ) -> Result<Vec<u8>, Unsealable> {
        let context = context(purpose, bound_to);
        let outcome = self.ring.load().unseal(&context, sealed);
        if outcome == Err(Unsealable::UnknownKey) && self.look_again() {
            return self.ring.load().unseal(&context, sealed);
        }
        outcome
    }

    /// Puts a new sealing key in front. Old ones go on unsealing for [`OLD_KEYS_LIVE`].
    ///
    /// # Errors
    /// `store-unavailable`: the folder cannot be written. `config-bad-value`: the secrets were
    /// given by somebody, who has to rotate them.
    pub fn rotate(&self) -> Result<(), Trouble> {
        self.rotate_if_older(Duration::ZERO).map(|_| ())
    }

    /// Puts a new sealing key in front if the one there was made that long ago, and says whether
    /// it did. Of any number of processes that share a folder one does it; the others take it over.
    ///
    /// # Errors
    /// As [`Vault::rotate`].
    pub fn rotate_if_older(&self, age: Duration) -> Result<bool, Trouble> {
        let now = clock::wall_seconds();
        let _turning = self.turning.lock();
        match &self.origin {
            Origin::Given => Err(Trouble::new(
                Reason::InvalidRequest,
                "the sealing keys were given to Warmline and cannot be rotated by it",
            )
            .coded(Code::ConfigBadValue)
            .hint("put a new `seal=` in front of the others where they are written")),
            Origin::Process => {
                if !self.ring.load().is_older(age, now) {
                    return Ok(false);
                }
                let ring = self.ring.load().with_new(&Secrets::fresh(now)?, now)?;
                self.ring.store(Arc::new(ring));
                Ok(true)
            },
            Origin::Folder(home) => {
                let (secrets, did) = home.rotate(age, now)?;
                if !self.is_made_of(&secrets) {
                    return Err(home.replaced());
                }
                self.ring.store(Arc::new(Ring::of(&secrets)?));
                Ok(did)
            },
        }
    }

    /// Whether these are the secrets of this instance, however its sealing keys were rotated.
    fn is_made_of(&self, secrets: &Secrets) -> bool {
        let other = hmac::Key::new(hmac::HMAC_SHA256, secrets.instance());
        let word = b"warmline instance";
        hmac::verify(&other, word, hmac::sign(&self.digests, word).as_ref()).is_ok()
    }

    /// Reads the folder again, where another process may have put a new key, and says whether it
    /// did. Not often: anybody can make up a key id.
    fn look_again(&self) -> bool {
        let Origin::Folder(home) = &self.origin else {
            return false;
        };
        let _turning = self.turning.lock();
        // Another instance's keys open nothing of ours: they are not taken over.
        let secrets = home.read_if_changed();
        let ours = secrets.filter(|secrets| self.is_made_of(secrets));
        let Some(Ok(ring)) = ours.map(|secrets| Ring::of(&secrets)) else {
            return false;
        };
        self.ring.store(Arc::new(ring));
        true
    }
}

/// How long a sealing key that was replaced goes on unsealing.
pub const OLD_KEYS_LIVE: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// What a seal is bound to beside its bytes.
fn context(purpose: Purpose, bound_to: &[u8]) -> Vec<u8> {
    let word = purpose.word().as_bytes();
    let mut out = Vec::with_capacity(8 + word.len() + bound_to.len());
    out.extend_from_slice(&length_prefix(word));
    out.extend_from_slice(word);
    out.extend_from_slice(bound_to);
    out
}

fn length_prefix(part: &[u8]) -> [u8; 8] {
    // No part is longer than what a machine can count.
    u64::try_from(part.len()).unwrap_or(u64::MAX).to_le_bytes()
}

/// 128 random bits.
pub fn random_bytes() -> [u8; 16] {
    let mut bytes = [0; 16];
    // Where the system has no randomness at all, names that differ are the best there is.
    if aws_lc_rs::rand::fill(&mut bytes).is_err() {
        fastrand::fill(&mut bytes);
    }
    bytes
}

/// The system has no random bytes: nothing can be sealed, and nothing is sealed badly.
fn no_dice() -> Trouble {
    Trouble::new(
        Reason::LocalResources,
        "the system gives no random bytes for secrets",
    )
}

#[cfg(test)]
mod tests;
