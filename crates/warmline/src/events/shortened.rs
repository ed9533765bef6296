//! Names as they may be shown: enough to tell two apart, too little to use.
//!
//! Asked by: events, snapshots and log lines. Neither form is ever compared to find anything.

use std::fmt;

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

/// Most characters of a session id that are shown.
const SHOWN: usize = 6;

/// The beginning of a server's session id: at most six characters, and at most a quarter of it,
/// because whoever knows the whole id may use the session.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ShortId {
    shown: [u8; SHOWN],
    length: u8,
}

impl ShortId {
    /// The short form of an id.
    pub fn of(session_id: &str) -> Self {
        let mut short = Self {
            shown: [0; SHOWN],
            length: 0,
        };
        let quarter = session_id.len() / 4;
        for (place, byte) in short.shown.iter_mut().zip(session_id.bytes().take(quarter)) {
            *place = if byte.is_ascii_graphic() { byte } else { b'?' };
            short.length += 1;
        }
        short
    }
}

impl fmt::Display for ShortId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.shown.iter().take(usize::from(self.length)) {
            write!(f, "{}", char::from(*byte))?;
        }
        f.write_str("…")
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
