//! Servers that are skipped in a list, and how long a request waits for each.
//!
//! All servers are asked at once, so one that hangs delays a list by its share. A late server is
//! probed in the background, and no request of the same caller waits for it again until it answers. A
//! server that hangs for one caller mostly hangs for all, so others wait less; but long enough that one
//! caller cannot keep a server from the others.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use warmline_core::era::{Era, Version};
use warmline_core::error::code::{Code, Reason};
use warmline_core::pool_key::Digest;
use warmline_engine::relay::RelayHandle as _;
use warmline_engine::{Error, ServerHandle};
use warmline_platform::clock::{self, Instant};
use warmline_upstream::ListKind;

use super::lists::{self, ListFreshness};
use super::resources;
use crate::downstream::RequestContext;
use crate::response::call_error::{self, ErrorDetail};
use crate::{GatewayState, shutdown};

/// The wait for a server that was late, or seems unreachable.
const SHORT_WAIT: Duration = Duration::from_millis(250);
/// The wait for a server that was late for another caller.
const REDUCED_WAIT: Duration = Duration::from_secs(2);
/// How long a server counts as skipped, and is not asked again in an era that it does not speak.
const ABSENCE_TTL: Duration = Duration::from_secs(60);
const PROBE_TIMEOUT: Duration = Duration::from_secs(60);
const MODERN_TTL: Duration = Duration::from_secs(60 * 60);
const MAX_ENTRIES: usize = 4_096;

#[derive(Clone, Debug)]
pub(super) enum SkipReason {
    /// It did not answer within its share of the time.
    Late,
    /// It is unreachable, or rejected the request.
    Failed(Error),
}

#[derive(Debug)]
pub(super) struct SkippedServer {
    pub(super) server: String,
    pub(super) reason: SkipReason,
}

impl SkipReason {
    /// Whether the server does not speak the era. Asking again would only start it again.
    fn is_other_era(&self) -> bool {
        matches!(self, Self::Failed(error) if error.code() == Code::EraUnknown)
    }

    fn is_modern_only(&self) -> bool {
        let modern = Version::NEWEST_MODERN.as_str();
        let names_modern = |error: &Error| error.cause().is_some_and(|why| why.contains(modern));
        self.is_other_era() && matches!(self, Self::Failed(error) if names_modern(error))
    }

    fn code(&self) -> Code {
        match self {
            Self::Late => Code::Deadline,
            Self::Failed(error) => error.code(),
        }
    }

    /// What happened, in the words of `describe` unless the server was late.
    fn describe(&self, describe: impl FnOnce(&Error) -> String) -> String {
        match self {
            Self::Late => "it did not answer in time".to_owned(),
            Self::Failed(error) => describe(error),
        }
    }
}

impl SkippedServer {
    pub(super) fn to_json(&self) -> Value {
        let Self { server, reason } = self;
        let modern = Version::NEWEST_MODERN.as_str();
        let what = reason.describe(|error| match reason.is_modern_only() {
            true => format!("`{server}` speaks {modern} alone"),
            false => call_error::summary(error, ErrorDetail::Limited),
        });
        json!({ "server": server, "code": reason.code().as_str(), "what": what })
    }
}

/// The servers that were skipped lately, by caller.
#[derive(Debug, Default)]
pub(crate) struct Absences {
    by_caller: Mutex<HashMap<AbsenceKey, HashMap<MemberRequest, Absence>>>,
    /// Servers that were late for any caller, until one answers the same request to any caller.
    late: Mutex<HashMap<(Era, String), (MemberRequest, Instant)>>,
    /// Servers that rejected a legacy client as modern, and when.
    modern: Mutex<HashMap<String, Instant>>,
}

type AbsenceKey = (Digest, Era, String);

/// A request to all servers. A server that hangs at one list may be quick with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum MemberRequest {
    List(ListKind),
    /// Its resources and their templates, to find who owns one.
    ResourceLookup,
    LogLevel,
}

#[derive(Debug)]
struct Absence {
    since: Instant,
    reason: SkipReason,
    is_probed: bool,
}

impl Absence {
    fn is_fresh(&self) -> bool {
        self.since.elapsed() < ABSENCE_TTL
    }
}

impl Absences {
    /// How long to wait for a server, at most `most`. An error if it does not speak the era, and said
    /// so lately.
    fn wait_limit(&self, key: &AbsenceKey, most: Duration) -> Result<Duration, Error> {
        if let Some(absences) = self.by_caller.lock().get(key) {
            for absence in absences.values().filter(|absence| absence.is_fresh()) {
                if let SkipReason::Failed(error) = &absence.reason
                    && absence.reason.is_other_era()
                {
                    return Err(error.clone());
                }
            }
            let mut reasons = absences.values().map(|absence| &absence.reason);
            if reasons.any(|reason| matches!(reason, SkipReason::Late)) {
                return Ok(most.min(SHORT_WAIT));
            }
        }
        let late = self.late.lock();
        let late = late.get(&(key.1, key.2.clone()));
        Ok(match late {
            Some((_, since)) if since.elapsed() < ABSENCE_TTL => most.min(REDUCED_WAIT),
            Some(_) | None => most,
        })
    }

    /// Records a skipped server. The first time is logged.
    fn record_skipped(&self, key: &AbsenceKey, request: MemberRequest, reason: &SkipReason) {
        let (_, era, server) = key;
        let now = clock::now();
        if reason.is_modern_only() {
            insert_bounded(&mut self.modern.lock(), server.clone(), now);
        }
        if matches!(reason, SkipReason::Late) {
            let key = (*era, server.clone());
            insert_bounded(&mut self.late.lock(), key, (request, now));
        }
        let mut by_caller = self.by_caller.lock();
        if by_caller.len() >= MAX_ENTRIES {
            by_caller.clear();
        }
        let absences = by_caller.entry(key.clone()).or_default();
        if let Some(absence) = absences.get_mut(&request) {
            // A fresh other era means that it was not asked again.
            if !absence.reason.is_other_era() || !absence.is_fresh() {
                (absence.since, absence.reason) = (now, reason.clone());
            }
            return;
        }
        let absence = Absence {
            since: now,
            reason: reason.clone(),
            is_probed: false,
        };
        absences.insert(request, absence);
        drop(by_caller);
        if request != MemberRequest::LogLevel {
            let code = reason.code();
            let what = reason.describe(|error| match error.reason() == Reason::ProgramMissing {
                // `doctor` names the folders that were searched.
                true => error.to_string(),
                false => format!("{error:#}"),
            });
            tracing::warn!(server, %code, what, "skipped in the list of all servers");
        }
    }

    /// Sets whether an absent server is being probed. Returns what it was before.
    fn set_probed(&self, key: &AbsenceKey, request: MemberRequest, now: bool) -> Option<bool> {
        let mut by_caller = self.by_caller.lock();
        let absence = by_caller.get_mut(key)?.get_mut(&request)?;
        Some(std::mem::replace(&mut absence.is_probed, now))
    }

    pub(crate) fn recently_skipped(&self) -> HashMap<String, &'static str> {
        let mut skipped = HashMap::new();
        for ((_, _, server), absences) in &*self.by_caller.lock() {
            for (request, absence) in absences {
                if !absence.is_fresh() || *request == MemberRequest::LogLevel {
                    continue;
                }
                let reason = match &absence.reason {
                    SkipReason::Late => "late",
                    reason if reason.is_other_era() => "other-era",
                    SkipReason::Failed(_) => "failed",
                };
                skipped.insert(server.clone(), reason);
            }
        }
        skipped
    }

    pub(super) fn is_modern_only(&self, server: &str) -> bool {
        let modern = self.modern.lock();
        let rejected_at = modern.get(server);
        rejected_at.is_some_and(|at| at.elapsed() < MODERN_TTL)
    }

    fn record_present(&self, key: &AbsenceKey, request: MemberRequest) {
        let (_, era, server) = key;
        let late_key = (*era, server.clone());
        let mut late = self.late.lock();
        if late.get(&late_key).is_some_and(|(at, _)| *at == request) {
            late.remove(&late_key);
        }
        drop(late);
        let mut by_caller = self.by_caller.lock();
        let Some(absences) = by_caller.get_mut(key) else {
            return;
        };
        let was_absent = absences.remove(&request).is_some();
        // A server that answers anything takes a log level as well.
        absences.remove(&MemberRequest::LogLevel);
        if absences.is_empty() {
            by_caller.remove(key);
        }
        drop(by_caller);
        if was_absent && request != MemberRequest::LogLevel {
            tracing::info!(server, "back in the list of all servers");
        }
    }
}

/// Inserts an entry, and clears the table first where it is full.
fn insert_bounded<K: Eq + Hash, V>(table: &mut HashMap<K, V>, key: K, value: V) {
    if table.len() >= MAX_ENTRIES {
        table.clear();
    }
    table.insert(key, value);
}

#[derive(Clone)]
pub(super) struct MemberQuery {
    pub(super) shared: Arc<GatewayState>,
    /// All anonymous callers share one.
    caller: Digest,
    era: Era,
}

impl MemberQuery {
    pub(super) fn new(context: &RequestContext<'_>, era: Era) -> Self {
        let caller = context.identity;
        Self {
            shared: Arc::clone(context.shared),
            caller: caller.unwrap_or(Digest::new([0; 16])),
            era,
        }
    }

    fn key(&self, server: &str) -> AbsenceKey {
        (self.caller, self.era, server.to_owned())
    }

    pub(super) fn wait_limit(&self, server: &ServerHandle) -> Result<Duration, Error> {
        let share = self.shared.options.list_share;
        let most = if server.seems_unreachable() {
            share.min(SHORT_WAIT)
        } else {
            share
        };
        let key = self.key(server.name());
        self.shared.absent_servers.wait_limit(&key, most)
    }

    /// Asks a server within its share of the time. A late one is recorded, and probed in the
    /// background.
    pub(super) async fn ask<T>(
        &self,
        server: &ServerHandle,
        request: MemberRequest,
        asking: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, SkipReason> {
        let wait_limit = self.wait_limit(server).map_err(SkipReason::Failed)?;
        match clock::timeout(wait_limit, asking).await {
            Ok(Ok(answer)) => {
                let key = self.key(server.name());
                self.shared.absent_servers.record_present(&key, request);
                Ok(answer)
            },
            Ok(Err(error)) => Err(SkipReason::Failed(error)),
            Err(_) => {
                self.record_skipped(server.name(), request, &SkipReason::Late);
                self.spawn_probe(server.clone(), request);
                Err(SkipReason::Late)
            },
        }
    }

    pub(super) fn record_skipped(&self, server: &str, request: MemberRequest, reason: &SkipReason) {
        let absences = &self.shared.absent_servers;
        absences.record_skipped(&self.key(server), request, reason);
    }

    /// Probes a late server in the background. Once it answers, requests wait for it again.
    fn spawn_probe(&self, server: ServerHandle, request: MemberRequest) {
        let key = self.key(server.name());
        if self.shared.absent_servers.set_probed(&key, request, true) != Some(false) {
            return;
        }
        let mut stopping = self.shared.stopping.clone();
        let shared = Arc::downgrade(&self.shared);
        drop(clock::spawn("probe-server", async move {
            let probing = async {
                match request {
                    MemberRequest::List(list) => {
                        let listed = lists::list_items(&server, list, ListFreshness::Current);
                        listed.await.is_ok()
                    },
                    MemberRequest::ResourceLookup => {
                        let listing = resources::load_listing(&server).await;
                        listing.is_ok_and(|listing| listing.is_some())
                    },
                    MemberRequest::LogLevel => server.cached_info().await.is_ok(),
                }
            };
            let answered = tokio::select! {
                answered = clock::timeout(PROBE_TIMEOUT, probing) => answered,
                () = shutdown::wait_for_stop(&mut stopping) => return,
            };
            let Some(shared) = shared.upgrade() else {
                return;
            };
            if answered.unwrap_or_default() {
                shared.absent_servers.record_present(&key, request);
            } else {
                shared.absent_servers.set_probed(&key, request, false);
            }
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmline_core::exchange::Diagnostic;

    const MOST: Duration = Duration::from_secs(10);

    fn failed(reason: Reason) -> SkipReason {
        let diagnostic = Diagnostic::new(reason, "no").with_cause("it speaks 2026-07-28");
        SkipReason::Failed(Error::from(diagnostic))
    }

    fn of(era: Era) -> AbsenceKey {
        (Digest::new([0; 16]), era, "a".to_owned())
    }

    const TOOLS: MemberRequest = MemberRequest::List(ListKind::Tools);
    const PROMPTS: MemberRequest = MemberRequest::List(ListKind::Prompts);

    #[tokio::test(start_paused = true)]
    async fn who_was_late_is_not_waited_for_again_until_it_answers() {
        let absences = Absences::default();
        let here = of(Era::Legacy);
        let share = || absences.wait_limit(&here, MOST).ok();
        assert_eq!(share(), Some(MOST));
        absences.record_skipped(&here, TOOLS, &SkipReason::Late);
        assert_eq!(share(), Some(SHORT_WAIT));
        assert_eq!(absences.wait_limit(&of(Era::Modern), MOST).ok(), Some(MOST));
        absences.record_present(&here, PROMPTS);
        assert_eq!(share(), Some(SHORT_WAIT), "it is quick with prompts alone");
        clock::sleep(ABSENCE_TTL * 10).await;
        assert_eq!(share(), Some(SHORT_WAIT), "nobody heard of it since");
        absences.record_present(&here, TOOLS);
        assert_eq!(share(), Some(MOST));
        absences.record_skipped(&here, TOOLS, &failed(Reason::Dns));
        assert_eq!(share(), Some(MOST), "it was quick");
    }

    /// Others wait less for a server that was late for somebody, for a while, or until it answers
    /// to anybody; and never so little that it could be kept from them.
    #[tokio::test(start_paused = true)]
    async fn who_was_late_for_one_is_waited_for_less_by_others() {
        let absences = Absences::default();
        let somebody = |number: u8| (Digest::new([number; 16]), Era::Legacy, "a".to_owned());
        let (one, other) = (somebody(1), somebody(2));
        let share = |whom: &AbsenceKey| absences.wait_limit(whom, MOST).unwrap();
        absences.record_skipped(&one, TOOLS, &SkipReason::Late);
        assert_eq!((share(&one), share(&other)), (SHORT_WAIT, REDUCED_WAIT));
        absences.record_present(&other, PROMPTS);
        assert_eq!(
            share(&other),
            REDUCED_WAIT,
            "it is quick with prompts alone"
        );
        absences.record_present(&other, TOOLS);
        assert_eq!((share(&one), share(&other)), (SHORT_WAIT, MOST));
        absences.record_skipped(&one, TOOLS, &SkipReason::Late);
        clock::sleep(ABSENCE_TTL).await;
        assert_eq!(share(&other), MOST, "it was long ago");
    }

    #[tokio::test(start_paused = true)]
    async fn who_speaks_another_era_is_not_asked_again_for_a_while() {
        let absences = Absences::default();
        let here = of(Era::Legacy);
        let other = failed(Reason::Version);
        for _ in 0..3 {
            // That nobody asked it meanwhile makes the while no longer.
            absences.record_skipped(&here, TOOLS, &other);
            assert!(absences.wait_limit(&here, MOST).is_err());
            clock::sleep(ABSENCE_TTL / 3).await;
        }
        assert_eq!(absences.wait_limit(&here, MOST).ok(), Some(MOST));
        assert!(absences.is_modern_only("a") && !absences.is_modern_only("b"));
        clock::sleep(MODERN_TTL).await;
        assert!(!absences.is_modern_only("a"));
    }
}
