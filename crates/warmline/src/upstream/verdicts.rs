//! Verdicts: what is remembered of a server, so that it is asked once and not at every opening.
//!
//! Asked by: [`detect`](super::detect), before it probes.  Told by: every opening that ends well.
//!
//! A verdict belongs to how the server is reached, to whose credential speaks, and to what we
//! declare: what a server says of itself may depend on each. Which secret that is does not count,
//! only where it comes from: a token that was refreshed asks nothing anew. A verdict is forgotten
//! when an opening speaks against it, and after its horizon, however often it was used: a legacy
//! server that was upgraded still answers `initialize`, so a stale legacy verdict never fails by
//! itself.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use warmline_core::era::{Era, Version};
use warmline_core::key::Digest;
use warmline_core::policy::Sessions;

use super::facts::Facts;
use super::server::{Reach, Server};
use super::session::Declared;
use crate::clock::{self, Instant};
use crate::sync::Mutex;

/// How long a verdict holds.
const HORIZON: Duration = Duration::from_secs(24 * 60 * 60);
/// How long it is believed that a leg is missing, where no leg was ever seen: an answer of a proxy
/// reads the same.
const UNSEEN: Duration = Duration::from_secs(5 * 60);
/// How many are kept; the oldest goes first.
const MAX_VERDICTS: usize = 4096;

/// What is remembered of a server: the legs it was seen to speak on.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// What the legacy leg was like when it was last opened.
    pub legacy: Option<Arc<Facts>>,
    /// What the modern leg was like when it was last opened.
    pub modern: Option<Arc<Facts>>,
    /// The leg that was tried and is not there.
    pub lacks: Option<Era>,
}

impl Verdict {
    /// What is known of the leg of an era.
    pub fn leg(&self, era: Era) -> Option<&Arc<Facts>> {
        match era {
            Era::Legacy => self.legacy.as_ref(),
            Era::Modern => self.modern.as_ref(),
        }
    }

    /// Whether the legacy leg keeps something per session; none while nobody knows.
    pub fn keeps_sessions(&self) -> Option<bool> {
        match (&self.legacy, self.lacks) {
            (Some(legacy), _) => Some(legacy.keeps_session),
            (None, Some(Era::Legacy)) => Some(false),
            (None, Some(Era::Modern) | None) => None,
        }
    }

    /// The leg to take where nobody says which: the modern one, which costs least to open.
    pub(crate) fn preferred(&self) -> Option<&Arc<Facts>> {
        self.modern.as_ref().or(self.legacy.as_ref())
    }
}

/// A verdict that a session rests on.
#[derive(Debug)]
pub(crate) struct Held {
    verdicts: Arc<Verdicts>,
    key: Key,
}

impl Held {
    /// On the heap: most sessions rest on none.
    pub(crate) fn new(verdicts: &Arc<Verdicts>, server: &Server, declared: &Declared) -> Box<Self> {
        Box::new(Self {
            verdicts: Arc::clone(verdicts),
            key: Key::of(server, declared),
        })
    }

    /// Something spoke against it.
    pub(crate) fn forget(&self) {
        self.verdicts.0.lock().remove(&self.key);
    }
}

/// All that is remembered.
#[derive(Debug, Default)]
pub(crate) struct Verdicts(Mutex<HashMap<Key, (Verdict, Instant)>>);

/// What a verdict belongs to. No secret is in it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    server: String,
    reach: Reach,
    credential: Option<Digest>,
    dial: Option<String>,
    version: Option<Version>,
    sessions: Sessions,
    declared: Declared,
}

impl Key {
    fn of(server: &Server, declared: &Declared) -> Self {
        Self {
            server: server.name.clone(),
            reach: without_secrets(&server.reach),
            credential: server.credential_id,
            dial: server.dial.as_ref().map(|dial| dial.label().to_owned()),
            version: server.version,
            sessions: server.sessions,
            declared: declared.clone(),
        }
    }
}

/// How a server is reached, with the names of its secrets and not their values.
fn without_secrets(reach: &Reach) -> Reach {
    let mut reach = reach.clone();
    match &mut reach {
        Reach::Http(http) => {
            let secrets = http.headers.iter_mut().map(|(_, value)| value);
            for value in secrets.filter(|value| value.is_sensitive()) {
                *value = HeaderValue::from_static("");
            }
        },
        // Whether a variable holds a secret, nobody can tell.
        Reach::Stdio(stdio) => stdio.env.values_mut().for_each(String::clear),
    }
    reach
}

/// How something about a server was learnt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Learnt {
    /// By asking anew.
    Asked,
    /// By an opening that rested on what was known, and did not speak against it.
    Confirmed,
}

impl Verdicts {
    /// What is known of a server, while it holds.
    pub(crate) fn recall(&self, server: &Server, declared: &Declared) -> Option<Verdict> {
        let key = Key::of(server, declared);
        let mut known = self.0.lock();
        let (verdict, until) = known.get(&key)?;
        if clock::now() < *until {
            return Some(verdict.clone());
        }
        known.remove(&key);
        None
    }

    /// A leg of a server was opened and is like this.
    pub(crate) fn learn(
        &self,
        server: &Server,
        declared: &Declared,
        facts: &Arc<Facts>,
        learnt: Learnt,
    ) {
        self.note(server, declared, learnt, |verdict| {
            let leg = match facts.era {
                Era::Legacy => &mut verdict.legacy,
                Era::Modern => &mut verdict.modern,
            };
            *leg = Some(Arc::clone(facts));
            verdict.lacks = verdict.lacks.filter(|era| *era != facts.era);
        });
    }

    /// A leg of a server was tried and is not there.
    pub(crate) fn learn_missing(&self, server: &Server, declared: &Declared, era: Era) {
        self.note(server, declared, Learnt::Confirmed, |verdict| {
            verdict.lacks = Some(era);
            match era {
                Era::Legacy => verdict.legacy = None,
                Era::Modern => verdict.modern = None,
            }
        });
    }

    fn note(
        &self,
        server: &Server,
        declared: &Declared,
        learnt: Learnt,
        change: impl FnOnce(&mut Verdict),
    ) {
        let key = Key::of(server, declared);
        let mut known = self.0.lock();
        if known.len() >= MAX_VERDICTS && !known.contains_key(&key) {
            let oldest = known
                .iter()
                .min_by_key(|(_, (_, until))| *until)
                .map(|(k, _)| k.clone());
            if let Some(oldest) = oldest {
                known.remove(&oldest);
            }
        }
        let (verdict, until) = known
            .entry(key)
            .or_insert_with(|| (Verdict::default(), clock::after(UNSEEN)));
        let was_seen = verdict.preferred().is_some();
        change(verdict);
        if verdict.preferred().is_some() && !was_seen {
            *until = clock::after(HORIZON);
        }
        if learnt == Learnt::Asked {
            *until = clock::after(HORIZON);
        }
    }

    /// Something spoke against what is known of a server.
    pub(crate) fn forget(&self, server: &Server, declared: &Declared) {
        self.0.lock().remove(&Key::of(server, declared));
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::HeaderName;
    use warmline_core::key::Transport;

    use super::*;

    fn server() -> Server {
        Server::http("one", "http://127.0.0.1/mcp".parse().unwrap())
    }

    fn facts(era: Era) -> Arc<Facts> {
        Arc::new(Facts {
            era,
            version: Version::NEWEST_LEGACY,
            transport: Transport::Http,
            keeps_session: era == Era::Legacy,
            server_info: None,
            capabilities: Bytes::from_static(b"{}"),
            instructions: None,
            evidence: Vec::new(),
            opened_in: Duration::ZERO,
            expires_in: None,
            said: None,
            heard: None,
        })
    }

    #[tokio::test(start_paused = true)]
    async fn a_verdict_ends_at_its_horizon_however_often_it_was_used() {
        let (verdicts, declared) = (Verdicts::default(), Declared::default());
        verdicts.learn(&server(), &declared, &facts(Era::Legacy), Learnt::Asked);
        for _ in 0..3 {
            clock::sleep(HORIZON / 4).await;
            assert!(verdicts.recall(&server(), &declared).is_some());
            let confirmed = Learnt::Confirmed;
            verdicts.learn(&server(), &declared, &facts(Era::Legacy), confirmed);
        }
        clock::sleep(HORIZON / 4).await;
        assert!(verdicts.recall(&server(), &declared).is_none());
    }

    #[tokio::test]
    async fn a_verdict_belongs_to_the_source_of_a_secret_and_not_to_its_value() {
        let with_header = |value: &'static str, sensitive: bool| {
            let mut server = server();
            let mut value = HeaderValue::from_static(value);
            value.set_sensitive(sensitive);
            if let Reach::Http(reach) = &mut server.reach {
                reach
                    .headers
                    .push((HeaderName::from_static("x-key"), value));
            }
            server
        };
        let of = |digest: u8| Server {
            credential_id: Some(Digest::new([digest; 16])),
            ..server()
        };
        let in_version = Server {
            version: Some(Version::V2024_11_05),
            ..server()
        };
        let never = Server {
            sessions: Sessions::Never,
            ..server()
        };
        let rows = [
            (with_header("a", true), with_header("b", true), true),
            (with_header("a", false), with_header("b", false), false),
            (with_header("a", true), server(), false),
            (of(1), of(1), true),
            (of(1), of(2), false),
            (of(1), server(), false),
            (in_version, server(), false),
            (never, server(), false),
        ];
        let declared = Declared::default();
        for (one, other, same) in rows {
            let verdicts = Verdicts::default();
            verdicts.learn(&one, &declared, &facts(Era::Legacy), Learnt::Asked);
            let known = verdicts.recall(&other, &declared);
            assert_eq!(known.is_some(), same, "{one:?} {other:?}");
        }
    }

    /// An answer of a proxy reads like that of a legacy server: where no leg was seen, it is not
    /// believed for long.
    #[tokio::test(start_paused = true)]
    async fn a_missing_leg_of_a_server_that_nobody_saw_is_soon_looked_for_again() {
        let (verdicts, declared) = (Verdicts::default(), Declared::default());
        let lacks = || {
            verdicts
                .recall(&server(), &declared)
                .and_then(|it| it.lacks)
        };
        verdicts.learn_missing(&server(), &declared, Era::Modern);
        assert_eq!(lacks(), Some(Era::Modern));
        clock::sleep(UNSEEN).await;
        assert_eq!(lacks(), None);
        verdicts.learn_missing(&server(), &declared, Era::Modern);
        verdicts.learn(&server(), &declared, &facts(Era::Legacy), Learnt::Asked);
        clock::sleep(UNSEEN).await;
        assert_eq!(lacks(), Some(Era::Modern), "the other one was seen");
    }

    #[tokio::test]
    async fn a_leg_that_is_missing_is_remembered_until_it_is_there() {
        let (verdicts, declared) = (Verdicts::default(), Declared::default());
        let recall = || verdicts.recall(&server(), &declared).unwrap();
        verdicts.learn(&server(), &declared, &facts(Era::Modern), Learnt::Asked);
        assert_eq!(recall().keeps_sessions(), None);
        verdicts.learn_missing(&server(), &declared, Era::Legacy);
        let known = recall();
        assert_eq!(
            (known.lacks, known.keeps_sessions()),
            (Some(Era::Legacy), Some(false))
        );
        verdicts.learn(&server(), &declared, &facts(Era::Legacy), Learnt::Asked);
        let known = recall();
        assert_eq!((known.lacks, known.keeps_sessions()), (None, Some(true)));
    }
}
