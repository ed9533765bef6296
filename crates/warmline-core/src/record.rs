//! Records: what is stored of a session, so that it can be used again after a restart.
//!
//! Asked by: the store's side of the shell, which seals what [`Record::encode`] gives and reads
//! what was sealed with [`Record::decode`].  Told by: whoever opened, used or lost the session.
//!
//! A record is a hint and never proof: the server may have forgotten the session long ago.
//!
//! The format has a version of its own. A record is that byte and then fields in rising order of
//! their tags, each a tag, a length and so many bytes. A reader refuses a tag below 128 that it
//! does not know, and skips one from there on: what a later version only adds, an earlier one can
//! still read. The tags stand in `docs/reference/records.md`.

mod bytes;
mod fields;

use std::time::Duration;

use ::bytes::Bytes;

use crate::era::Version;
use crate::key::{Key, Transport};

/// The version of the format that is written.
pub const FORMAT: u8 = 1;

/// Nothing larger is written or read.
pub const MAX_BYTES: usize = 256 << 10;

/// What is stored of one session.
///
/// Times are seconds of the Unix epoch as some machine's wall clock told them: they may be wrong
/// by any amount, so that [`Record::idle_at`] and [`Record::expires_in`] are the only ways to read
/// them.
#[derive(Clone, PartialEq, Eq)]
pub struct Record {
    /// What the session belongs to. It is used for nothing else.
    pub key: Key,
    /// The number of the session within its key.
    pub generation: u32,
    /// The server's name for the session. None for a process, which cannot be used again, and where
    /// the server forgot it: such a record tells that its state died.
    pub session_id: Option<String>,
    /// The version of the protocol that both sides agreed on.
    pub version: Version,
    /// What was said of ourselves when it was opened.
    pub declared: Declared,
    /// What the server says it can do, a raw JSON object.
    pub capabilities: Bytes,
    /// What the server says it is, a raw JSON object.
    pub server_info: Option<Bytes>,
    /// What the server wants models to know.
    pub instructions: Option<String>,
    /// The log level that was set on it.
    pub log_level: Option<String>,
    /// The resources that were subscribed to on it.
    pub subscriptions: Vec<String>,
    /// Whether it answered a call that was not repeatable: the server may remember something.
    pub left_state: bool,
    /// Whether state was lost with a session before it, and nobody was told of that yet.
    pub untold_loss: bool,
    /// When it was opened. Of one that only tells of a loss: when that was.
    pub opened_at: u64,
    /// When it was last used.
    pub used_at: u64,
    /// When the server said that it would end.
    pub expires_at: Option<u64>,
}

/// Without the session id: who knows it can speak in the session.
impl std::fmt::Debug for Record {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Record")
            .field("key", &self.key)
            .field("generation", &self.generation)
            .field("has_session_id", &self.session_id.is_some())
            .field("version", &self.version)
            .field("left_state", &self.left_state)
            .field("untold_loss", &self.untold_loss)
            .field("opened_at", &self.opened_at)
            .field("used_at", &self.used_at)
            .field("expires_at", &self.expires_at)
            .finish_non_exhaustive()
    }
}

/// What was said of ourselves in `initialize`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declared {
    /// The name of the program.
    pub client_name: String,
    /// Its version.
    pub client_version: String,
    /// What it can answer, a raw JSON object.
    pub capabilities: Bytes,
}

/// Why stored bytes are no record that can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// A later version of Warmline wrote it.
    TooNew,
    /// It is not what any version writes; the word says where.
    Broken(&'static str),
}

impl std::fmt::Display for Unreadable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TooNew => f.write_str("a later version of Warmline wrote it"),
            Self::Broken(place) => write!(f, "it is broken ({place})"),
        }
    }
}

/// Why a session cannot be written down; the word says which part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unstorable(pub &'static str);

impl std::fmt::Display for Unstorable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "its {} cannot be stored", self.0)
    }
}

impl Record {
    /// Whether both speak of the same session: the same number of the same key, and the same name
    /// on the server.
    pub fn is_same_session(&self, other: &Self) -> bool {
        self.key == other.key
            && self.generation == other.generation
            && self.session_id == other.session_id
    }

    /// Whether somebody has to be told of a loss if another session takes its place.
    pub const fn has_something_to_lose(&self) -> bool {
        self.left_state || self.untold_loss
    }

    /// What stays of it when its session is gone, by a wall clock that says `now`, and nobody was
    /// told of that yet.
    #[must_use]
    pub fn word_of_loss(&self, now: u64) -> Self {
        Self {
            session_id: None,
            left_state: false,
            untold_loss: true,
            opened_at: now,
            ..self.clone()
        }
    }

    /// Whether it tells of a loss and of nothing else: whoever opens a session takes its place.
    pub fn is_word_of_loss(&self) -> bool {
        let has_no_session = self.session_id.is_none() && !self.left_state;
        // A process that lives has no id either.
        has_no_session && self.untold_loss && self.key.place().transport == Transport::Http
    }

    /// How long nobody used it, by a wall clock that says `now`. A use in the future counts as
    /// one of this moment.
    pub const fn idle_at(&self, now: u64) -> Duration {
        Duration::from_secs(now.saturating_sub(self.used_at))
    }

    /// How old it is, by a wall clock that says `now`.
    pub const fn age_at(&self, now: u64) -> Duration {
        Duration::from_secs(now.saturating_sub(self.opened_at))
    }

    /// How long the server will keep it, by a wall clock that says `now`; never longer than it
    /// promised at the opening. None where it promised nothing.
    pub fn expires_in(&self, now: u64) -> Option<Duration> {
        let expires_at = self.expires_at?;
        let left = expires_at.saturating_sub(now);
        let promised = expires_at.saturating_sub(self.opened_at);
        Some(Duration::from_secs(left.min(promised)))
    }

    /// Takes over what changes in the life of a session from a later word on it. What was left in
    /// the server stays left there, whoever says otherwise.
    pub fn renew(&mut self, later: &Self) {
        self.left_state |= later.left_state;
        self.untold_loss = later.untold_loss;
        self.used_at = later.used_at;
        self.expires_at = later.expires_at;
        self.log_level.clone_from(&later.log_level);
        self.subscriptions.clone_from(&later.subscriptions);
    }

    /// The record as bytes.
    ///
    /// # Errors
    /// It is larger than [`MAX_BYTES`], or holds what no session has.
    pub fn encode(&self) -> Result<Vec<u8>, Unstorable> {
        fields::write(self)
    }

    /// Reads what [`Record::encode`] wrote.
    ///
    /// # Errors
    /// For anything else.
    pub fn decode(raw: &[u8]) -> Result<Self, Unreadable> {
        fields::read(raw)
    }
}

#[cfg(test)]
mod tests;
