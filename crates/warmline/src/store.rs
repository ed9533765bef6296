//! Where records of sessions are kept: bring your own storage, or take one of ours.
//!
//! Asked by: the engine, through [`Records`], when a session is opened, used, lost or ended.  Told
//! by: whoever chose the store: one for all servers, or a [`StoreFactory`] that sees each server.
//!
//! | question | file |
//! |---|---|
//! | What does the engine do with a store? | `records.rs` |
//! | What does a store get to see? | `sealed.rs` |
//! | What is not asked or written twice? | `remembered.rs` |
//! | What if the store is slow or down? | `outage.rs` |
//! | What did nobody come back for? | `leftovers.rs` |
//! | Were the secrets replaced? | `strangers.rs` |
//! | Which store belongs to a server? | `factory.rs` |
//! | In memory | `memory.rs` |
//! | In a folder, shared by processes | `file.rs`, `file/` |
//!
//! A store sees names and sealed bytes, never a session id, an identity or a server: what it holds
//! is worth nothing to a thief, and what it gives back is checked as if a stranger had written it.

mod factory;
mod file;
mod leftovers;
mod memory;
mod outage;
mod records;
mod remembered;
mod sealed;
mod strangers;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use warmline_core::key::Digest;

pub use self::factory::{ByServer, ServerCard, StoreFactory, by_server};
pub use self::file::FileStore;
pub use self::memory::MemoryStore;
pub use self::records::{Counts, Records, Replaced, Written};

/// A future in a box, so that traits with one can be objects.
pub type Stepping<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The name under which a record is stored: a keyed digest of what the session belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RecordName(Digest);

impl RecordName {
    /// A name that was made elsewhere.
    pub const fn new(digest: Digest) -> Self {
        Self(digest)
    }

    /// The name that [`fmt::Display`] wrote; none for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.as_bytes();
        let mut bytes = [0; 16];
        if digits.len() != 32 {
            return None;
        }
        for (to, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
            for digit in pair {
                let value = match digit {
                    b'0'..=b'9' => digit - b'0',
                    b'a'..=b'f' => digit - b'a' + 10,
                    _ => return None,
                };
                *to = (*to << 4) | value;
            }
        }
        Some(Self(Digest::new(bytes)))
    }

    /// Its sixteen bytes.
    pub const fn bytes(&self) -> &[u8; 16] {
        self.0.bytes()
    }
}

/// Thirty-two digits of `0-9a-f`: safe as the name of a file, a key or a part of a URL.
impl fmt::Display for RecordName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.hex())
    }
}

/// What a store holds under a name.
#[derive(Clone, PartialEq, Eq)]
pub struct Stored {
    /// The number of this state of the record; every change of it has a higher one. A store
    /// compares it and gives it back, nothing else.
    pub edition: u64,
    /// The record, sealed.
    pub sealed: Vec<u8>,
}

impl fmt::Debug for Stored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stored")
            .field("edition", &self.edition)
            .field("bytes", &self.sealed.len())
            .finish()
    }
}

/// What became of a record that was to be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Saved {
    /// It is stored.
    Done,
    /// Something else is stored there than was expected: this, or nothing. Nothing was changed.
    Lost(Option<Stored>),
}

/// Why a store did not do what it was asked. Calls go on without it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreError {
    /// It cannot be used now.
    Unavailable(String),
    /// What it holds under that name is nothing it can give back, and is not to be replaced: a
    /// later version wrote it, or it is not ours.
    Refused(String),
    /// What it holds under that name is broken and may be replaced.
    Broken(String),
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unavailable(why) | Self::Refused(why) | Self::Broken(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for StoreError {}

/// Keeps records of sessions. Memory and files are here; anything that can compare and set can be
/// made one (see the example `http_store`).
///
/// Nothing has to be bounded in time: whoever asks gives up after a while. A future that is
/// dropped may or may not have done its work, but never half of it.
pub trait SessionStore: Send + Sync + fmt::Debug {
    /// What is stored under a name; none if nothing is.
    fn load(&self, name: RecordName) -> Stepping<'_, Result<Option<Stored>, StoreError>>;

    /// Stores a record if what is stored now has the edition `expected`, or if nothing is stored
    /// now and none is expected. What is broken counts as nothing. Between processes this happens
    /// at one moment.
    fn save(
        &self,
        name: RecordName,
        expected: Option<u64>,
        stored: Stored,
    ) -> Stepping<'_, Result<Saved, StoreError>>;

    /// Forgets what is stored under a name if it has that edition, and says whether it had.
    fn clear(&self, name: RecordName, edition: u64) -> Stepping<'_, Result<bool, StoreError>>;

    /// Every name with the edition stored under it. A store that cannot tell gives none: then
    /// nobody ends what was left behind.
    fn scan(&self) -> Stepping<'_, Result<Vec<(RecordName, u64)>, StoreError>>;

    /// Whether what is stored is there for the next process: then sessions of live runs are left
    /// to it instead of being ended.
    fn outlives_process(&self) -> bool;
}

impl<S: SessionStore + ?Sized> SessionStore for Arc<S> {
    fn load(&self, name: RecordName) -> Stepping<'_, Result<Option<Stored>, StoreError>> {
        (**self).load(name)
    }

    fn save(
        &self,
        name: RecordName,
        expected: Option<u64>,
        stored: Stored,
    ) -> Stepping<'_, Result<Saved, StoreError>> {
        (**self).save(name, expected, stored)
    }

    fn clear(&self, name: RecordName, edition: u64) -> Stepping<'_, Result<bool, StoreError>> {
        (**self).clear(name, edition)
    }

    fn scan(&self) -> Stepping<'_, Result<Vec<(RecordName, u64)>, StoreError>> {
        (**self).scan()
    }

    fn outlives_process(&self) -> bool {
        (**self).outlives_process()
    }
}

#[cfg(test)]
mod tests;
