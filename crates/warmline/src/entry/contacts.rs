//! What was found out about a server at first contacts, and whom it serves.
//!
//! Asked by: routes, before they meet a server.  Told by: first contacts, and by whatever speaks
//! against what was found out.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use warmline_core::era::Era;
use warmline_core::exchange::Trouble;
use warmline_core::key::{CredentialId, DeclaredId};
use warmline_core::plan::Leg;

use super::Entry;
use crate::upstream::Facts;

/// What a first contact depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ContactKey {
    pub(crate) credential: CredentialId,
    pub(crate) declared: DeclaredId,
    pub(crate) wants: Wants,
}

/// For whom the way to a server is looked for at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Together {
    /// Where the run is that they belong to.
    pub(crate) run: usize,
    pub(crate) credential: CredentialId,
    pub(crate) era: Option<Era>,
}

/// What a caller needs to know of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Wants {
    /// Any way to it.
    Any,
    /// The way on which it keeps state.
    State,
    /// The way of this era.
    Era(Era),
}

/// What a first contact found out.
#[derive(Debug)]
pub(crate) struct Contact {
    pub(crate) leg: Leg,
}

/// Why a first contact came to nothing.
#[derive(Clone, Debug)]
pub(crate) enum Unmet {
    /// It failed.
    Failed(Trouble),
    /// The run that it was made for is over. Whoever else waits for it makes another.
    RunEnded,
}

impl Contact {
    pub(crate) fn of(facts: &Facts) -> Arc<Self> {
        Arc::new(Self {
            leg: Leg {
                era: facts.era,
                transport: facts.transport,
                keeps_session: facts.keeps_session,
            },
        })
    }
}

/// From so many findings on, all are found out anew.
const MAX_CONTACTS: usize = 10_000;

impl Entry {
    /// What was found out for such a caller, or for the other kind where both find the same.
    pub(crate) fn contact(&self, key: &ContactKey) -> Option<Arc<Contact>> {
        let known = self.contacts.pin();
        if let Some(contact) = known.get(key) {
            return Some(Arc::clone(contact));
        }
        let wants = match key.wants {
            Wants::Any => Wants::State,
            Wants::State => Wants::Any,
            Wants::Era(_) => return None,
        };
        let other = known.get(&ContactKey { wants, ..*key })?;
        let is_same = match wants {
            // Both legs were tried, and neither keeps anything.
            Wants::State => !other.leg.keeps_session,
            // A server that is met in the legacy era has no other.
            Wants::Any => other.leg.era == Era::Legacy,
            Wants::Era(_) => false,
        };
        is_same.then(|| Arc::clone(other))
    }

    pub(crate) fn learn(&self, key: ContactKey, contact: Arc<Contact>) {
        let contacts = self.contacts.pin();
        if contacts.len() >= MAX_CONTACTS {
            contacts.clear();
        }
        contacts.insert(key, contact);
    }

    /// Something spoke against what was found out; the next call finds out anew.
    pub(crate) fn forget_contacts(&self) {
        self.contacts.pin().clear();
        self.forget_greetings();
        self.contacts_seen.fetch_add(1, Ordering::AcqRel);
    }

    /// Every way on which it was met.
    pub(crate) fn known_legs(&self) -> Vec<Leg> {
        let known = self.contacts.pin();
        known.values().map(|contact| contact.leg).collect()
    }

    /// Changes whenever what was found out is forgotten.
    pub(crate) fn contacts_seen(&self) -> u64 {
        self.contacts_seen.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests;
