//! The eras that each server speaks, so that a server is probed once and not at every opening.
//!
//! The key is how the server is reached, the source of the credential, and what we declare: the
//! server's answer may depend on each. The secret itself does not count, so a refreshed token needs
//! no new probe. An entry ends when an opening contradicts it, and after its TTL, however often it was
//! used: an upgraded legacy server still answers `initialize`, so a stale entry never fails by itself.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use warmline_core::era::{Era, Version};
use warmline_core::policy::SessionMode;
use warmline_core::pool_key::Digest;

use crate::server_facts::ServerFacts;
use crate::target::{ClientProfile, ServerTarget, TransportConfig};
use warmline_platform::clock::{self, Instant};
use warmline_platform::lock::Mutex;

const TTL: Duration = Duration::from_secs(24 * 60 * 60);
/// The TTL if an era is missing and none was seen: an answer of a proxy reads the same.
const MISSING_TTL: Duration = Duration::from_secs(5 * 60);
/// More entries evict the oldest.
const MAX_ENTRIES: usize = 4096;

/// The eras that a server was seen to speak.
#[derive(Clone, Debug, Default)]
pub struct KnownEras {
    pub legacy: Option<Arc<ServerFacts>>,
    pub modern: Option<Arc<ServerFacts>>,
    pub missing: Option<Era>,
}

impl KnownEras {
    pub fn facts_of(&self, era: Era) -> Option<&Arc<ServerFacts>> {
        match era {
            Era::Legacy => self.legacy.as_ref(),
            Era::Modern => self.modern.as_ref(),
        }
    }

    fn facts_mut(&mut self, era: Era) -> &mut Option<Arc<ServerFacts>> {
        match era {
            Era::Legacy => &mut self.legacy,
            Era::Modern => &mut self.modern,
        }
    }

    /// Whether it keeps state per legacy session, if known.
    pub fn keeps_sessions(&self) -> Option<bool> {
        match (&self.legacy, self.missing) {
            (Some(legacy), _) => Some(legacy.keeps_session),
            (None, Some(Era::Legacy)) => Some(false),
            (None, Some(Era::Modern) | None) => None,
        }
    }

    /// The era to use if none is configured: the modern one, which costs least to open.
    pub(crate) fn preferred_facts(&self) -> Option<&Arc<ServerFacts>> {
        self.modern.as_ref().or(self.legacy.as_ref())
    }
}

/// What is known of one server, as one client reaches it.
#[derive(Clone, Debug)]
pub(crate) struct KnownErasEntry {
    cache: Arc<KnownErasCache>,
    key: KnownErasKey,
}

#[derive(Debug, Default)]
pub(crate) struct KnownErasCache(Mutex<HashMap<KnownErasKey, (KnownEras, Instant)>>);

/// Holds no secret.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct KnownErasKey {
    server: String,
    transport: TransportConfig,
    credential: Option<Digest>,
    dial: Option<String>,
    version: Option<Version>,
    sessions: SessionMode,
    profile: ClientProfile,
}

/// The names of the secrets stay, their values do not.
fn without_secrets(reach: &TransportConfig) -> TransportConfig {
    let mut reach = reach.clone();
    match &mut reach {
        TransportConfig::Http(http) => {
            let secrets = http.headers.iter_mut().map(|(_, value)| value);
            for value in secrets.filter(|value| value.is_sensitive()) {
                *value = HeaderValue::from_static("");
            }
        },
        // Any variable may hold a secret.
        TransportConfig::Stdio(stdio) => stdio.env.values_mut().for_each(String::clear),
    }
    reach
}

impl KnownErasEntry {
    pub(crate) fn new(
        cache: &Arc<KnownErasCache>,
        server: &ServerTarget,
        profile: &ClientProfile,
    ) -> Self {
        Self {
            cache: Arc::clone(cache),
            key: KnownErasKey {
                server: server.name.clone(),
                transport: without_secrets(&server.transport),
                credential: server.credential_id,
                dial: server.dial.as_ref().map(|dial| dial.label().to_owned()),
                version: server.version,
                sessions: server.sessions,
                profile: profile.clone(),
            },
        }
    }

    pub(crate) fn get(&self) -> Option<KnownEras> {
        let mut known = self.cache.0.lock();
        let (eras, until) = known.get(&self.key)?;
        if clock::now() < *until {
            return Some(eras.clone());
        }
        known.remove(&self.key);
        None
    }

    /// A session was opened after a probe.
    pub(crate) fn record_facts(&self, facts: &Arc<ServerFacts>) {
        self.confirm_facts(facts);
        if let Some((_, until)) = self.cache.0.lock().get_mut(&self.key) {
            *until = clock::after(TTL);
        }
    }

    /// A session was opened that relied on the entry and did not contradict it.
    pub(crate) fn confirm_facts(&self, facts: &Arc<ServerFacts>) {
        self.update(|known| {
            *known.facts_mut(facts.era) = Some(Arc::clone(facts));
            known.missing = known.missing.filter(|era| *era != facts.era);
        });
    }

    pub(crate) fn record_missing(&self, era: Era) {
        self.update(|known| {
            known.missing = Some(era);
            *known.facts_mut(era) = None;
        });
    }

    fn update(&self, change: impl FnOnce(&mut KnownEras)) {
        let mut known = self.cache.0.lock();
        if known.len() >= MAX_ENTRIES && !known.contains_key(&self.key) {
            let oldest = known.iter().min_by_key(|(_, (_, until))| *until);
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                known.remove(&oldest);
            }
        }
        let (eras, until) = known
            .entry(self.key.clone())
            .or_insert_with(|| (KnownEras::default(), clock::after(MISSING_TTL)));
        let was_seen = eras.preferred_facts().is_some();
        change(eras);
        if eras.preferred_facts().is_some() && !was_seen {
            *until = clock::after(TTL);
        }
    }

    /// An opening or a call contradicted it.
    pub(crate) fn forget(&self) {
        self.cache.0.lock().remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderName;
    use warmline_core::pool_key::Transport;

    use super::*;

    fn server() -> ServerTarget {
        ServerTarget::http("one", "http://127.0.0.1/mcp".parse().unwrap())
    }

    fn entry(cache: &Arc<KnownErasCache>, server: &ServerTarget) -> KnownErasEntry {
        KnownErasEntry::new(cache, server, &ClientProfile::default())
    }

    fn facts(era: Era) -> Arc<ServerFacts> {
        Arc::new(ServerFacts {
            era,
            keeps_session: era == Era::Legacy,
            ..ServerFacts::assumed(Version::NEWEST_LEGACY, Transport::Http)
        })
    }

    #[tokio::test(start_paused = true)]
    async fn a_verdict_ends_at_its_horizon_however_often_it_was_used() {
        let known = entry(&Arc::default(), &server());
        known.record_facts(&facts(Era::Legacy));
        for _ in 0..3 {
            clock::sleep(TTL / 4).await;
            assert!(known.get().is_some());
            known.confirm_facts(&facts(Era::Legacy));
        }
        clock::sleep(TTL / 4).await;
        assert!(known.get().is_none());
    }

    #[tokio::test]
    async fn a_verdict_belongs_to_the_source_of_a_secret_and_not_to_its_value() {
        let with_header = |value: &'static str, sensitive: bool| {
            let mut server = server();
            let mut value = HeaderValue::from_static(value);
            value.set_sensitive(sensitive);
            if let TransportConfig::Http(reach) = &mut server.transport {
                reach
                    .headers
                    .push((HeaderName::from_static("x-key"), value));
            }
            server
        };
        let of = |digest: u8| ServerTarget {
            credential_id: Some(Digest::new([digest; 16])),
            ..server()
        };
        let in_version = ServerTarget {
            version: Some(Version::V2024_11_05),
            ..server()
        };
        let never = ServerTarget {
            sessions: SessionMode::Never,
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
        for (one, other, same) in rows {
            let cache = Arc::default();
            entry(&cache, &one).record_facts(&facts(Era::Legacy));
            let known = entry(&cache, &other).get();
            assert_eq!(known.is_some(), same, "{one:?} {other:?}");
        }
    }

    /// An answer of a proxy reads like that of a legacy server: where no leg was seen, it is not
    /// believed for long.
    #[tokio::test(start_paused = true)]
    async fn a_missing_leg_of_a_server_that_nobody_saw_is_soon_looked_for_again() {
        let known = entry(&Arc::default(), &server());
        let lacks = || known.get().and_then(|it| it.missing);
        known.record_missing(Era::Modern);
        assert_eq!(lacks(), Some(Era::Modern));
        clock::sleep(MISSING_TTL).await;
        assert_eq!(lacks(), None);
        known.record_missing(Era::Modern);
        known.record_facts(&facts(Era::Legacy));
        clock::sleep(MISSING_TTL).await;
        assert_eq!(lacks(), Some(Era::Modern), "the other one was seen");
    }

    #[tokio::test]
    async fn a_leg_that_is_missing_is_remembered_until_it_is_there() {
        let known = entry(&Arc::default(), &server());
        let recall = || known.get().unwrap();
        known.record_facts(&facts(Era::Modern));
        assert_eq!(recall().keeps_sessions(), None);
        known.record_missing(Era::Legacy);
        let eras = recall();
        assert_eq!(
            (eras.missing, eras.keeps_sessions()),
            (Some(Era::Legacy), Some(false))
        );
        known.record_facts(&facts(Era::Legacy));
        let eras = recall();
        assert_eq!((eras.missing, eras.keeps_sessions()), (None, Some(true)));
    }
}
