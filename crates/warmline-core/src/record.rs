//! Records: what is stored of a session, so that it can be used again after a restart. A record is
//! a hint: the server may have forgotten the session.
//!
//! The format has a version of its own. A record is that byte and then fields in rising order of
//! their tags, each a tag, a length and so many bytes. A reader refuses an unknown tag below 128,
//! and skips others: earlier versions can read what later ones only add.
//! `docs/reference/records.md` lists the tags.

mod fields;

use std::time::Duration;

use ::bytes::Bytes;

use crate::era::Version;
use crate::pool_key::{PoolKey, Transport};

pub const FORMAT_VERSION: u8 = 1;

/// Nothing larger is written or read.
pub const MAX_BYTES: usize = 256 << 10;

/// What is stored of one session.
///
/// Times are seconds of the Unix epoch by some machine's wall clock: they may be wrong
/// by any amount, so that [`Record::idle_time_at`] and [`Record::expires_in`] are the only ways to read
/// them.
#[derive(Clone, PartialEq, Eq)]
pub struct Record {
    /// What the session belongs to. It is used for nothing else.
    pub key: PoolKey,
    /// The number of the session within its key.
    pub generation: u32,
    /// The server's name for the session. None for a process, which cannot be used again, and where
    /// the server forgot it: such a record tells that its state died.
    pub session_id: Option<String>,
    /// The version of the protocol that both sides agreed on.
    pub version: Version,
    pub client_profile: StoredClientProfile,
    /// The capabilities of the server, a raw JSON object.
    pub capabilities: Bytes,
    /// The name and version of the server, a raw JSON object.
    pub server_info: Option<Bytes>,
    /// What the server wants models to know.
    pub instructions: Option<String>,
    pub log_level: Option<String>,
    pub subscriptions: Vec<String>,
    /// Whether it answered a call that was not repeatable: the server may remember something.
    pub stateful: bool,
    /// Whether state was lost with an earlier session, and not reported to any caller.
    pub unreported_loss: bool,
    /// When it was opened. For a loss marker: when the loss happened.
    pub opened_at: u64,
    pub last_used_at: u64,
    pub expires_at: Option<u64>,
}

/// Without the session id: it is enough to use the session.
impl std::fmt::Debug for Record {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Record")
            .field("key", &self.key)
            .field("generation", &self.generation)
            .field("has_session_id", &self.session_id.is_some())
            .field("version", &self.version)
            .field("left_state", &self.stateful)
            .field("untold_loss", &self.unreported_loss)
            .field("opened_at", &self.opened_at)
            .field("used_at", &self.last_used_at)
            .field("expires_at", &self.expires_at)
            .finish_non_exhaustive()
    }
}

/// What the client declared in `initialize`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredClientProfile {
    pub client_name: String,
    pub client_version: String,
    /// Its capabilities, a raw JSON object.
    pub capabilities: Bytes,
}

/// Why stored bytes are no record that can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordDecodeError {
    /// A later version of Warmline wrote it.
    TooNew,
    /// No version writes it; the word says where.
    Corrupt(&'static str),
}

impl std::fmt::Display for RecordDecodeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TooNew => f.write_str("a later version of Warmline wrote it"),
            Self::Corrupt(place) => write!(f, "it is broken ({place})"),
        }
    }
}

/// The part of a session that cannot be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordEncodeError(pub &'static str);

impl std::fmt::Display for RecordEncodeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "its {} cannot be stored", self.0)
    }
}

impl Record {
    /// Whether both are records of the same session: the same number of the same key, and the same
    /// id on the server.
    pub fn is_same_session(&self, other: &Self) -> bool {
        self.key == other.key
            && self.generation == other.generation
            && self.session_id == other.session_id
    }

    /// Whether a loss has to be reported if another session takes its place.
    pub const fn has_state_to_lose(&self) -> bool {
        self.stateful || self.unreported_loss
    }

    /// The record of its loss at the wall clock time `now`, not reported yet.
    #[must_use]
    pub fn to_loss_marker(&self, now: u64) -> Self {
        Self {
            session_id: None,
            stateful: false,
            unreported_loss: true,
            opened_at: now,
            ..self.clone()
        }
    }

    /// Whether it only records a loss: the next session of the key replaces it.
    pub fn is_loss_marker(&self) -> bool {
        let has_no_session = self.session_id.is_none() && !self.stateful;
        // A process that lives has no id either.
        has_no_session && self.unreported_loss && self.key.target.transport == Transport::Http
    }

    /// How long it was idle at the wall clock time `now`. A use in the future counts as one of this
    /// moment.
    pub const fn idle_time_at(&self, now: u64) -> Duration {
        Duration::from_secs(now.saturating_sub(self.last_used_at))
    }

    /// Its age at the wall clock time `now`.
    pub const fn age_at(&self, now: u64) -> Duration {
        Duration::from_secs(now.saturating_sub(self.opened_at))
    }

    /// How long the server keeps it from the wall clock time `now`; never longer than it promised at
    /// the opening. None if it promised nothing.
    pub fn expires_in(&self, now: u64) -> Option<Duration> {
        let expires_at = self.expires_at?;
        let left = expires_at.saturating_sub(now);
        let promised = expires_at.saturating_sub(self.opened_at);
        Some(Duration::from_secs(left.min(promised)))
    }

    /// Applies what changes during a session from a later record. State in the server stays.
    pub fn update_from(&mut self, later: &Self) {
        self.stateful |= later.stateful;
        self.unreported_loss = later.unreported_loss;
        self.last_used_at = later.last_used_at;
        self.expires_at = later.expires_at;
        self.log_level.clone_from(&later.log_level);
        self.subscriptions.clone_from(&later.subscriptions);
    }
}

#[cfg(test)]
mod tests;
