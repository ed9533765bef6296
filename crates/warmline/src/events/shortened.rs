//! Names as they may be shown: enough to tell two apart, too little to use.
//!
//! Asked by: events, snapshots and log lines. Neither form is ever compared to find anything.

use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::LazyLock;

use serde::{Serialize, Serializer};
use warmline_core::key::{Digest, Identity, Owner, RunId};

/// A short one-way form of an identity or a run.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint([u8; 4]);

impl Fingerprint {
    /// The fingerprint of a keyed digest.
    pub const fn of(digest: &Digest) -> Self {
        let [a, b, c, d, ..] = *digest.bytes();
        Self([a, b, c, d])
    }

    /// The fingerprint of an owner; everybody has none.
    pub const fn of_owner(owner: Owner) -> Option<Self> {
        match owner {
            Owner::Identity(Identity(digest)) => Some(Self::of(&digest)),
            Owner::Everybody => None,
        }
    }
}

impl From<Identity> for Fingerprint {
    fn from(identity: Identity) -> Self {
        Self::of(&identity.0)
    }
}

impl From<RunId> for Fingerprint {
    fn from(run: RunId) -> Self {
        Self::of(&run.0)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d] = self.0;
        write!(f, "{a:02x}{b:02x}{c:02x}{d:02x}")
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Fingerprint {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Nobody outside of this process can make the short form of an id.
static SHORTENING: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// A short one-way form of a server's session id, the same as long as this process lives: whoever
/// knows an id, or the beginning of one, may use the session.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ShortId([u8; 4]);

impl ShortId {
    /// The short form of an id.
    pub fn of(session_id: &str) -> Self {
        let [a, b, c, d, ..] = SHORTENING.hash_one(session_id).to_be_bytes();
        Self([a, b, c, d])
    }
}

impl fmt::Display for ShortId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&Fingerprint(self.0), f)
    }
}

impl fmt::Debug for ShortId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for ShortId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
