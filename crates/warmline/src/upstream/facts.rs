//! Facts: what is known of a session since it was opened, kept once for all sessions alike.
//!
//! Told by: every opening.  Asked by: whoever wants to know what a server is and can do.
//!
//! A server may have very many sessions that differ in nothing but their id. So facts that are
//! equal to the last letter are shared, whoever opened the session: equal words tell nobody
//! anything new.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use warmline_core::era::{Era, Version};
use warmline_core::key::Transport;

use crate::clock::Instant;
use crate::sync::Mutex;

/// What is known of a session since it was opened.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The era it speaks.
    pub era: Era,
    /// The version both sides agreed on.
    pub version: Version,
    /// How bytes travel.
    pub transport: Transport,
    /// Whether the server keeps something for this session: an id was issued, or it is a process.
    pub keeps_session: bool,
    /// What the server says it is, as raw JSON. Self-declared: for display only.
    pub server_info: Option<Bytes>,
    /// What the server says it can do, as raw JSON.
    pub capabilities: Bytes,
    /// What the server wants models to know.
    pub instructions: Option<String>,
    /// What was asked to find this out, and what came back.
    pub evidence: Vec<Evidence>,
    /// How long the opening took that found this out.
    pub opened_in: Duration,
    /// How long the server keeps the session, where it says so.
    pub expires_in: Option<Duration>,
    /// The whole result of the handshake, as the server wrote it; none where it was not read in
    /// this life of the program.
    pub said: Option<Bytes>,
    /// When it said so first, word for word.
    pub heard: Option<Instant>,
}

/// One step of opening a session and what the server made of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Evidence {
    /// What was sent.
    pub step: &'static str,
    /// What came back, in a few words.
    pub answer: String,
}

/// All that is needed to take a session up again, without a word on the wire.
#[derive(Clone)]
pub struct Kept {
    /// The id the server issued. Whoever has it has the session.
    pub session_id: String,
    /// What is known of the session.
    pub facts: Arc<Facts>,
}

impl fmt::Debug for Kept {
    /// Without the id, which is as good as the session.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kept")
            .field("facts", &self.facts)
            .finish_non_exhaustive()
    }
}

impl Facts {
    /// How long ago the server said this; none where that is not known.
    pub fn age(&self) -> Option<Duration> {
        self.heard.map(|heard| heard.elapsed())
    }

    /// Everything but the time that it took.
    fn content(&self) -> impl Hash + PartialEq + '_ {
        let Self {
            era,
            version,
            transport,
            keeps_session,
            server_info,
            capabilities,
            instructions,
            evidence,
            opened_in: _,
            expires_in,
            said,
            heard: _,
        } = self;
        (
            (era, version, transport, keeps_session, expires_in),
            (server_info, capabilities, instructions, evidence, said),
        )
    }
}

/// Facts that somebody holds, to be shared with the next that has the same.
#[derive(Debug, Default)]
pub(crate) struct SharedFacts {
    hashes: RandomState,
    held: Mutex<HashMap<u64, Weak<Facts>>>,
}

impl SharedFacts {
    /// These facts, or equal ones that are held already.
    pub(crate) fn share(&self, facts: Arc<Facts>) -> Arc<Facts> {
        let hash = self.hashes.hash_one(facts.content());
        let mut held = self.held.lock();
        let known = held.get(&hash).and_then(Weak::upgrade);
        if let Some(known) = known.filter(|known| known.content() == facts.content()) {
            return known;
        }
        if held.len() >= SWEEP_AT && held.len() == held.capacity() {
            held.retain(|_, facts| facts.strong_count() > 0);
        }
        held.insert(hash, Arc::downgrade(&facts));
        facts
    }
}

/// From so many on, what nobody holds any more is swept out before the map grows.
const SWEEP_AT: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(name: &str) -> Arc<Facts> {
        Arc::new(Facts {
            era: Era::Legacy,
            version: Version::NEWEST_LEGACY,
            transport: Transport::Http,
            keeps_session: true,
            server_info: Some(Bytes::from(format!(r#"{{"name":"{name}"}}"#))),
            capabilities: Bytes::from_static(b"{}"),
            instructions: None,
            evidence: vec![Evidence {
                step: "initialize",
                answer: "a result".to_owned(),
            }],
            opened_in: Duration::from_millis(name.len() as u64),
            expires_in: None,
            said: None,
            heard: None,
        })
    }

    #[test]
    fn equal_facts_are_held_once_and_others_apart() {
        let shared = SharedFacts::default();
        let first = shared.share(facts("one"));
        let again = shared.share(facts("one"));
        assert!(Arc::ptr_eq(&first, &again));
        assert!(!Arc::ptr_eq(&first, &shared.share(facts("two"))));
    }

    #[test]
    fn a_kept_session_does_not_show_its_id() {
        let kept = Kept {
            session_id: "as-good-as-the-session".to_owned(),
            facts: facts("one"),
        };
        assert!(!format!("{kept:?}").contains("as-good"), "{kept:?}");
    }

    #[test]
    fn facts_that_nobody_holds_are_swept_out() {
        let shared = SharedFacts::default();
        for number in 0..10_000 {
            drop(shared.share(facts(&number.to_string())));
        }
        assert!(shared.held.lock().len() <= 4 * SWEEP_AT);
    }
}
