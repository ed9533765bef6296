//! Short one-way forms of identities, runs and session ids, for events, snapshots and log lines.
//!
//! They tell two apart and open nothing. The engine never looks anything up by them.

use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::LazyLock;

use serde::{Serialize, Serializer};
use warmline_core::pool_key::{Digest, Identity, KeyOwner, RunId};

/// A short one-way form of an identity or a run.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint([u8; 4]);

impl Fingerprint {
    /// The fingerprint of a keyed digest.
    pub const fn from_digest(digest: &Digest) -> Self {
        let [a, b, c, d, ..] = *digest.as_bytes();
        Self([a, b, c, d])
    }

    /// The fingerprint of an owner; everybody has none.
    pub const fn from_owner(owner: KeyOwner) -> Option<Self> {
        match owner {
            KeyOwner::Identity(Identity(digest)) => Some(Self::from_digest(&digest)),
            KeyOwner::AnyIdentity => None,
        }
    }
}

impl From<Identity> for Fingerprint {
    fn from(identity: Identity) -> Self {
        Self::from_digest(&identity.0)
    }
}

impl From<RunId> for Fingerprint {
    fn from(run: RunId) -> Self {
        Self::from_digest(&run.0)
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
static HASH_STATE: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// A short one-way form of a server's session id, the same for the lifetime of this process: a
/// caller that knows an id, or the beginning of one, may use the session.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct ShortId(Fingerprint);

impl ShortId {
    /// The short form of an id.
    pub fn from_session_id(session_id: &str) -> Self {
        let [a, b, c, d, ..] = HASH_STATE.hash_one(session_id).to_be_bytes();
        Self(Fingerprint([a, b, c, d]))
    }
}

impl fmt::Display for ShortId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for ShortId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}
