//! How a record becomes something a store may see, and back: named by a keyed digest of its key,
//! sealed, and bound to its name and edition.
//!
//! Asked by: `records.rs`.

use std::sync::Arc;

use warmline_core::exchange::Trouble;
use warmline_core::key::{Key, Owner, Scope};
use warmline_core::record::{Record, Unreadable};

use super::{RecordName, Stored};
use crate::seal::{Purpose, Unsealable, Vault};

/// Why something stored is of no use.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Useless {
    pub(super) why: String,
    pub(super) kind: Kind,
}

/// What kind of thing is of no use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// It is of no use to anybody.
    Broken,
    /// It was sealed with other secrets than ours, or named by others.
    Foreign,
    /// Somebody else may need it: a later version wrote it, or it is no record.
    Needed,
}

impl Useless {
    /// Whether something that can be used may take its place.
    pub(super) fn may_be_replaced(&self) -> bool {
        self.kind != Kind::Needed
    }
}

/// Names, seals and opens records.
#[derive(Clone, Debug)]
pub(super) struct Sealer(pub(super) Arc<Vault>);

impl Sealer {
    /// The name under which the record of a key is stored.
    pub(super) fn name(&self, key: &Key) -> RecordName {
        let place = key.place();
        let owner = match key.owner() {
            Owner::Identity(identity) => Some(identity.0),
            Owner::Everybody => None,
        };
        let (kind, scope) = match key.scope() {
            Scope::Run(run) => ("run", run.0),
            Scope::Shared(declared) => ("shared", declared.0),
        };
        let credential = key.credential().0;
        let parts: [&[u8]; 8] = [
            place.server.as_bytes(),
            place.revision.0.bytes(),
            place.era.word().as_bytes(),
            place.transport.word().as_bytes(),
            owner.as_ref().map_or(&[], |digest| digest.bytes()),
            credential.bytes(),
            kind.as_bytes(),
            scope.bytes(),
        ];
        RecordName::new(self.0.digest(Purpose::RecordName, &parts))
    }

    /// A record as it is stored.
    pub(super) fn seal(&self, edition: u64, record: &Record) -> Result<Stored, Trouble> {
        let binding = binding(self.name(&record.key), edition);
        let plain = record.encode().map_err(|why| refusal(&why.to_string()))?;
        let sealed = self.0.seal(Purpose::Record, &binding, &plain)?;
        Ok(Stored { edition, sealed })
    }

    /// Reads what was stored, as if a stranger had written it.
    pub(super) fn open(&self, name: RecordName, stored: &Stored) -> Result<Record, Useless> {
        let useless = |why: String, kind| Useless { why, kind };
        let plain = self
            .0
            .unseal(
                Purpose::Record,
                &binding(name, stored.edition),
                &stored.sealed,
            )
            .map_err(|unsealable| {
                let kind = match unsealable {
                    Unsealable::UnknownKey => Kind::Foreign,
                    Unsealable::Changed | Unsealable::NotSealed => Kind::Broken,
                };
                useless(unsealable.to_string(), kind)
            })?;
        let record = Record::decode(&plain).map_err(|unreadable| {
            let kind = match unreadable {
                Unreadable::TooNew => Kind::Needed,
                Unreadable::Broken(_) => Kind::Broken,
            };
            useless(unreadable.to_string(), kind)
        })?;
        // A session is used by nobody but those it was made for.
        if self.name(&record.key) == name {
            Ok(record)
        } else {
            // Sealed under this very name, which our instance secret does not make of its key.
            Err(useless(
                "it belongs to another key".to_owned(),
                Kind::Foreign,
            ))
        }
    }
}

/// What a sealed record is bound to: it can neither be moved to another name nor be passed off as
/// another state.
fn binding(name: RecordName, edition: u64) -> Vec<u8> {
    [name.bytes().as_slice(), &edition.to_le_bytes()].concat()
}

/// The edition of a write over another one.
pub(super) fn next_edition(over: Option<u64>, generation: u32) -> u64 {
    match over.and_then(|over| over.checked_add(1)) {
        Some(next) if next >> 32 == u64::from(generation) => next,
        Some(_) | None => (u64::from(generation) << 32) | u64::from(fastrand::u32(1..1 << 31)),
    }
}

/// A record that is there, or was to be there, and is not used.
pub(super) fn refusal(why: &str) -> Trouble {
    Trouble::new(
        warmline_core::code::Reason::RecordRefused,
        "a session record was not used",
    )
    .because(why)
}
