//! Records as a store sees them: named by a keyed digest of their key, sealed, and bound to their name
//! and edition.

use std::sync::Arc;

use warmline_core::error::code::Reason;
use warmline_core::exchange::Diagnostic;
use warmline_core::pool_key::{KeyOwner, KeyScope, PoolKey};
use warmline_core::record::{Record, RecordDecodeError};

use crate::keyring::{Keyring, Purpose, UnsealError};
use crate::{RecordName, StoredRecord};

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct UnusableRecord {
    pub(crate) why: String,
    pub(crate) kind: UnusableKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnusableKind {
    /// Nobody can use it.
    Broken,
    /// It was sealed or named with other secrets.
    Foreign,
    /// Somebody else may need it: a later version wrote it, or it is no record.
    Protected,
}

impl UnusableRecord {
    pub(crate) fn may_be_replaced(&self) -> bool {
        self.kind != UnusableKind::Protected
    }
}

#[derive(Clone, Debug)]
pub(crate) struct RecordSealer(pub(crate) Arc<Keyring>);

impl RecordSealer {
    pub(crate) fn record_name(&self, key: &PoolKey) -> RecordName {
        let target = &key.target;
        let owner = match key.owner {
            KeyOwner::Identity(identity) => Some(identity.0),
            KeyOwner::AnyIdentity => None,
        };
        let (kind, scope) = match key.scope {
            KeyScope::Run(run) => ("run", run.0),
            KeyScope::Shared(profile) => ("shared", profile.0),
        };
        let credential = key.credential.0;
        let parts: [&[u8]; 8] = [
            target.server.as_bytes(),
            target.revision.0.as_bytes(),
            target.era.as_str().as_bytes(),
            target.transport.as_str().as_bytes(),
            owner.as_ref().map_or(&[], |digest| digest.as_bytes()),
            credential.as_bytes(),
            kind.as_bytes(),
            scope.as_bytes(),
        ];
        RecordName::new(self.0.digest(Purpose::RecordName, &parts))
    }

    pub(crate) fn seal(&self, edition: u64, record: &Record) -> Result<StoredRecord, Diagnostic> {
        let plain = record.encode();
        let plain = plain.map_err(|why| record_refused(&why.to_string()))?;
        let binding = binding(self.record_name(&record.key), edition);
        let sealed = self.0.seal(Purpose::Record, &binding, &plain)?;
        Ok(StoredRecord { edition, sealed })
    }

    /// Opens a stored record, and trusts nothing in it.
    pub(crate) fn open(
        &self,
        name: RecordName,
        stored: &StoredRecord,
    ) -> Result<Record, UnusableRecord> {
        let unusable = |why: String, kind| UnusableRecord { why, kind };
        let binding = binding(name, stored.edition);
        let plain = self.0.unseal(Purpose::Record, &binding, &stored.sealed);
        let plain = plain.map_err(|error| {
            let kind = match error {
                UnsealError::UnknownKey => UnusableKind::Foreign,
                UnsealError::Changed | UnsealError::NotSealed => UnusableKind::Broken,
            };
            unusable(error.to_string(), kind)
        })?;
        let record = Record::decode(&plain).map_err(|error| {
            let kind = match error {
                RecordDecodeError::TooNew => UnusableKind::Protected,
                RecordDecodeError::Corrupt(_) => UnusableKind::Broken,
            };
            unusable(error.to_string(), kind)
        })?;
        // Only the owner of a key uses its session. With our instance secret, this name is not that
        // of the key.
        match self.record_name(&record.key) == name {
            true => Ok(record),
            false => {
                let why = "it belongs to another key".to_owned();
                Err(unusable(why, UnusableKind::Foreign))
            },
        }
    }
}

/// A sealed record is bound to its name and edition, so that it can neither be moved nor be passed
/// off as another state.
fn binding(name: RecordName, edition: u64) -> Vec<u8> {
    [name.bytes().as_slice(), &edition.to_le_bytes()].concat()
}

/// The edition of a write over another one.
pub(crate) fn next_edition(over: Option<u64>, generation: u32) -> u64 {
    match over.and_then(|over| over.checked_add(1)) {
        Some(next) if next >> 32 == u64::from(generation) => next,
        Some(_) | None => (u64::from(generation) << 32) | u64::from(fastrand::u32(1..1 << 31)),
    }
}

/// A record cannot be read or written.
pub(crate) fn record_refused(why: &str) -> Diagnostic {
    Diagnostic::new(Reason::RecordRefused, "a session record was not used").with_cause(why)
}
