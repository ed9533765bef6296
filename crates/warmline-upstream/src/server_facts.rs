//! What a server said when a session was opened. Sessions with equal facts share them: a server may
//! have very many sessions that differ only in their id.

pub(crate) mod known_eras;

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use warmline_core::era::{Era, Version};
use warmline_core::error::code::Reason;
use warmline_core::exchange::Diagnostic;
use warmline_core::pool_key::Transport;

use warmline_platform::clock::Instant;
use warmline_platform::lock::Mutex;

/// What a server said when a session was opened.
#[derive(Clone, Debug)]
pub struct ServerFacts {
    /// The era it speaks.
    pub era: Era,
    /// The version both sides agreed on.
    pub version: Version,
    /// How bytes travel.
    pub transport: Transport,
    /// Whether the server keeps state for this session: it issued an id, or it is a process.
    pub keeps_session: bool,
    /// Its name and version, as raw JSON. Self-declared: for display only.
    pub server_info: Option<Bytes>,
    /// Its capabilities, as raw JSON.
    pub capabilities: Bytes,
    /// Its instructions for models.
    pub instructions: Option<String>,
    /// What was sent to detect this, and what came back.
    pub evidence: Vec<Evidence>,
    /// How long that opening took.
    pub open_duration: Duration,
    /// How long the server keeps the session, if it says so.
    pub expires_in: Option<Duration>,
    /// The raw result of the handshake; none if this process did not read it.
    pub handshake_result: Option<Bytes>,
    /// When the server first said exactly this.
    pub learned_at: Option<Instant>,
}

/// One step of opening a session.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Evidence {
    /// What was sent.
    pub step: &'static str,
    /// What came back, in a few words.
    pub answer: String,
}

/// What is needed to resume a session without a request.
#[derive(Clone)]
pub struct ResumableSession {
    /// The id that the server issued. It gives access to the session.
    pub session_id: String,
    /// The facts of the session.
    pub facts: Arc<ServerFacts>,
}

impl fmt::Debug for ResumableSession {
    /// Without the id, which gives access to the session.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kept")
            .field("facts", &self.facts)
            .finish_non_exhaustive()
    }
}

impl ServerFacts {
    /// The facts of a server that said nothing of itself.
    pub fn assumed(version: Version, transport: Transport) -> Self {
        Self {
            era: version.era(),
            version,
            transport,
            keeps_session: transport == Transport::Stdio,
            server_info: None,
            capabilities: Bytes::from_static(b"{}"),
            instructions: None,
            evidence: Vec::new(),
            open_duration: Duration::ZERO,
            expires_in: None,
            handshake_result: None,
            learned_at: None,
        }
    }

    /// How long ago the server said this, if known.
    pub fn age(&self) -> Option<Duration> {
        self.learned_at.map(|heard| heard.elapsed())
    }

    fn comparable_fields(&self) -> impl Hash + PartialEq + '_ {
        let Self {
            era,
            version,
            transport,
            keeps_session,
            server_info,
            capabilities,
            instructions,
            evidence,
            open_duration: _,
            expires_in,
            handshake_result,
            learned_at: _,
        } = self;
        (
            (era, version, transport, keeps_session, expires_in),
            (
                server_info,
                capabilities,
                instructions,
                evidence,
                handshake_result,
            ),
        )
    }
}

#[derive(Debug, Default)]
pub(crate) struct FactsInterner {
    hashes: RandomState,
    facts: Mutex<HashMap<u64, Weak<ServerFacts>>>,
}

impl FactsInterner {
    pub(crate) fn intern(&self, facts: Arc<ServerFacts>) -> Arc<ServerFacts> {
        let hash = self.hashes.hash_one(facts.comparable_fields());
        let mut held = self.facts.lock();
        let known = held.get(&hash).and_then(Weak::upgrade);
        if let Some(known) =
            known.filter(|known| known.comparable_fields() == facts.comparable_fields())
        {
            return known;
        }
        if held.len() >= SWEEP_THRESHOLD && held.len() == held.capacity() {
            held.retain(|_, facts| facts.strong_count() > 0);
        }
        held.insert(hash, Arc::downgrade(&facts));
        facts
    }
}

/// From this size on, unused facts are removed before the map grows.
const SWEEP_THRESHOLD: usize = 64;

pub(crate) fn not_resumable(server: &str, why: &str) -> Diagnostic {
    let what = format!("the stored session with `{server}` cannot be resumed");
    Diagnostic::new(Reason::RecordRefused, what).with_cause(why)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(name: &str) -> Arc<ServerFacts> {
        Arc::new(ServerFacts {
            server_info: Some(Bytes::from(format!(r#"{{"name":"{name}"}}"#))),
            open_duration: Duration::from_millis(name.len() as u64),
            ..ServerFacts::assumed(Version::NEWEST_LEGACY, Transport::Http)
        })
    }

    #[test]
    fn equal_facts_are_held_once_and_others_apart() {
        let shared = FactsInterner::default();
        let first = shared.intern(facts("one"));
        let again = shared.intern(facts("one"));
        assert!(Arc::ptr_eq(&first, &again));
        assert!(!Arc::ptr_eq(&first, &shared.intern(facts("two"))));
    }

    #[test]
    fn a_kept_session_does_not_show_its_id() {
        let kept = ResumableSession {
            session_id: "as-good-as-the-session".to_owned(),
            facts: facts("one"),
        };
        assert!(!format!("{kept:?}").contains("as-good"), "{kept:?}");
    }

    #[test]
    fn facts_that_nobody_holds_are_swept_out() {
        let shared = FactsInterner::default();
        for number in 0..10_000 {
            drop(shared.intern(facts(&number.to_string())));
        }
        assert!(shared.facts.lock().len() <= 4 * SWEEP_THRESHOLD);
    }
}
