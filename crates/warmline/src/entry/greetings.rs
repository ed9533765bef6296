//! Greetings: what a server said of itself in a handshake, remembered for whoever greets it alike.
//!
//! Asked by: whoever answers for a server without opening a session.  Told by: the handshakes.
//! Dropped with what was found out of the server, and when a session of it had to be replaced. The
//! newest handshake counts, whatever it was made for: the server may be another one by now.

use std::sync::Arc;
use std::time::Duration;

use warmline_core::era::Era;
use warmline_core::key::{CredentialId, DeclaredId, Identity, Owner};

use super::Entry;
use crate::clock::{self, Instant};
use crate::upstream::Facts;

/// So long a greeting is taken for what the server would say now.
const GOOD_FOR: Duration = Duration::from_secs(600);
/// From so many on, all are forgotten.
const MAX_GREETINGS: usize = 10_000;

/// Who greets: what a handshake depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Greeter {
    pub(crate) identity: Identity,
    pub(crate) credential: CredentialId,
    pub(crate) declared: DeclaredId,
    pub(crate) era: Option<Era>,
}

/// The greetings of one server.
pub(super) type Greetings = papaya::HashMap<Greeter, (Instant, Arc<Facts>)>;

impl Entry {
    /// What the server said to such a greeter, if that is not long ago.
    pub(crate) fn greeting(&self, greeter: &Greeter) -> Option<Arc<Facts>> {
        let known = self.greetings.pin();
        let (since, facts) = known.get(greeter)?;
        (since.elapsed() < GOOD_FOR).then(|| Arc::clone(facts))
    }

    /// The server said this to such a greeter.
    pub(crate) fn greeted(&self, greeter: Greeter, facts: &Arc<Facts>) {
        let known = self.greetings.pin();
        if known.len() >= MAX_GREETINGS {
            known.clear();
        }
        known.insert(greeter, (clock::now(), Arc::clone(facts)));
    }

    /// A handshake was made with this credential and these words, for an owner or for whoever comes:
    /// what is remembered of those who greet so is what the server said now. Whom nobody greeted
    /// for is not remembered for that.
    pub(crate) fn shook_hands(
        &self,
        owner: Owner,
        (credential, declared): (CredentialId, DeclaredId),
        facts: &Arc<Facts>,
    ) {
        let known = self.greetings.pin();
        let said = (clock::now(), Arc::clone(facts));
        let says = |before: &(Instant, Arc<Facts>)| {
            let is_its_era = before.1.era == facts.era;
            let newest = if is_its_era { &said } else { before };
            newest.clone()
        };
        let greeter = |identity, era| Greeter {
            identity,
            credential,
            declared,
            era,
        };
        match owner {
            Owner::Identity(identity) => {
                for era in [Some(facts.era), None] {
                    known.update(greeter(identity, era), says);
                }
            },
            Owner::Everybody => {
                for (one, _) in &known {
                    if *one == greeter(one.identity, one.era) {
                        known.update(*one, says);
                    }
                }
            },
        }
    }

    /// The server may have become another one.
    pub(crate) fn forget_greetings(&self) {
        self.greetings.pin().clear();
    }
}
