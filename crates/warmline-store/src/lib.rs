//! Stores of session records: bring your own, or take one of ours.
//!
//! The engine uses a store through [`Records`] when a session is opened, used, lost or ended. There
//! is one store for all servers, or a [`StoreFactory`] chooses one per server.
//!
//! A store sees names and sealed bytes, never a session id, an identity or a server: what it holds is
//! worth nothing to a thief, and what it returns is checked as if a stranger had written it.

mod factory;
mod file;
pub mod keyring;
mod memory;
mod records;
mod sealed;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use warmline_core::pool_key::Digest;

pub use self::factory::{ServerDescriptor, StoreFactory, StoreFactoryFn, store_factory_fn};
pub use self::file::FileStore;
pub use self::memory::MemoryStore;
pub use self::records::{Records, ReplacedRecord, WriteOutcome};

/// A future in a box, so that traits with one can be objects.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What a method of a store returns.
pub type StoreFuture<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

/// The name under which a record is stored: a keyed digest of what the session belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RecordName(Digest);

impl RecordName {
    /// A name from its digest.
    pub const fn new(digest: Digest) -> Self {
        Self(digest)
    }

    /// The name that [`fmt::Display`] wrote; none for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        Digest::from_hex(text).map(Self)
    }

    /// Its sixteen bytes.
    pub const fn bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }
}

/// Thirty-two digits of `0-9a-f`: safe as the name of a file, a key or a part of a URL.
impl fmt::Display for RecordName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.to_hex())
    }
}

/// What a store holds under a name.
#[derive(Clone, PartialEq, Eq)]
pub struct StoredRecord {
    /// The number of this state of the record, which grows with every change. A store only compares
    /// it and returns it.
    pub edition: u64,
    /// The record, sealed.
    pub sealed: Vec<u8>,
}

impl fmt::Debug for StoredRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoredRecord")
            .field("edition", &self.edition)
            .field("bytes", &self.sealed.len())
            .finish()
    }
}

/// The outcome of a save.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SaveOutcome {
    /// It is stored.
    Saved,
    /// Something else is stored there than was expected: this, or nothing. Nothing was changed.
    Conflict(Option<StoredRecord>),
}

/// Why a store failed. Calls go on without it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreError {
    /// It cannot be used now.
    Unavailable(String),
    /// The record cannot be read, and must not be replaced: a later version wrote it, or it is not
    /// ours.
    Refused(String),
    /// The record is broken, and may be replaced.
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

/// Keeps records of sessions, in memory, in files, or in anything else that can compare and set (see
/// the example `http_store`).
///
/// A store needs no time limits: its callers give up after a while. A future that is dropped may or
/// may not have done its work, but never half of it.
pub trait SessionStore: Send + Sync + fmt::Debug {
    /// What is stored under a name.
    fn load(&self, name: RecordName) -> StoreFuture<'_, Option<StoredRecord>>;

    /// Stores a record if the stored one has the edition `expected`, or if there is none and none is
    /// expected. A broken record counts as none. This is atomic, also between processes.
    fn save(
        &self,
        name: RecordName,
        expected: Option<u64>,
        stored: StoredRecord,
    ) -> StoreFuture<'_, SaveOutcome>;

    /// Removes the record under a name if it has that edition, and says whether it had.
    fn clear(&self, name: RecordName, edition: u64) -> StoreFuture<'_, bool>;

    /// Every name with its edition. A store that cannot tell returns none; then nothing ends
    /// abandoned sessions.
    fn scan(&self) -> StoreFuture<'_, Vec<(RecordName, u64)>>;

    /// Whether the next process finds what is stored: then sessions of live runs are left to it
    /// instead of being ended.
    fn outlives_process(&self) -> bool;
}

impl<S: SessionStore + ?Sized> SessionStore for Arc<S> {
    fn load(&self, name: RecordName) -> StoreFuture<'_, Option<StoredRecord>> {
        (**self).load(name)
    }

    fn save(
        &self,
        name: RecordName,
        expected: Option<u64>,
        stored: StoredRecord,
    ) -> StoreFuture<'_, SaveOutcome> {
        (**self).save(name, expected, stored)
    }

    fn clear(&self, name: RecordName, edition: u64) -> StoreFuture<'_, bool> {
        (**self).clear(name, edition)
    }

    fn scan(&self) -> StoreFuture<'_, Vec<(RecordName, u64)>> {
        (**self).scan()
    }

    fn outlives_process(&self) -> bool {
        (**self).outlives_process()
    }
}

/// Opens a file to lock it, or makes it, readable by its owner alone.
fn open_lock_file(path: &std::path::Path) -> std::io::Result<std::fs::File> {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(false);
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

#[cfg(test)]
mod tests;
