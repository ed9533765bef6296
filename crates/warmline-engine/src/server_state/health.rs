//! What answers and failures show of a server: whether it is healthy, how fast it answers, how old its
//! sessions get, and the pauses that it asks for.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use warmline_core::error::code::Reason;
use warmline_core::exchange::Diagnostic;
use warmline_core::pool::observed_lifetimes::ObservedLifetimes;
use warmline_core::pool_key::Identity;
use warmline_core::time::Tick;

use super::ServerState;
use crate::metrics::ServerFailure;
use warmline_platform::clock::{self, Instant};
use warmline_platform::lock::Mutex;

#[derive(Debug, Default)]
pub(super) struct ServerHealth {
    is_unreachable: AtomicBool,
    /// Openings failed since the last one that worked. Most never do, and take no lock.
    is_failing: AtomicBool,
    /// The last attempt to get a credential failed.
    lacks_credential: AtomicBool,
    last_failure: Mutex<Option<ServerFailure>>,
    /// When the last check began. The token lives as long as it runs.
    last_check: Mutex<Option<(Instant, Weak<()>)>>,
}

/// The number of answers that count; odd, so that one is in the middle.
const WINDOW: usize = 31;
/// Fewer answers say nothing about the usual time.
const MIN_SAMPLES: usize = 5;

/// How long the server usually takes to answer (rule R2: no resend begins that the time left cannot
/// cover). Each answer costs two atomic writes and no lock.
#[derive(Debug, Default)]
pub(crate) struct LatencyWindow {
    /// In microseconds; zero is an empty place.
    samples: [AtomicU32; WINDOW],
    next: AtomicUsize,
}

impl LatencyWindow {
    pub(crate) fn record(&self, time: Duration) {
        let micros = u32::try_from(time.as_micros()).unwrap_or(u32::MAX).max(1);
        let place = self.next.fetch_add(1, Ordering::Relaxed) % WINDOW;
        if let Some(slot) = self.samples.get(place) {
            slot.store(micros, Ordering::Relaxed);
        }
    }

    /// The median of the last answers; zero while there are too few.
    pub(crate) fn median(&self) -> Duration {
        let read = self.samples.iter().map(|time| time.load(Ordering::Relaxed));
        let mut known: Vec<u32> = read.filter(|micros| *micros > 0).collect();
        if known.len() < MIN_SAMPLES {
            return Duration::ZERO;
        }
        known.sort_unstable();
        let middle = known.get(known.len() / 2).copied().unwrap_or_default();
        Duration::from_micros(u64::from(middle))
    }
}

/// The age at which the server drops its sessions, as it says or as it was seen, so that a session is
/// replaced a little before.
#[derive(Debug, Default)]
pub(super) struct SessionAges {
    lifetimes: Mutex<ObservedLifetimes>,
    /// The age in nanoseconds from which a live session contradicts the observation; zero if there is none.
    outlived_from: AtomicU64,
}

impl SessionAges {
    fn update_lifetimes(&self, learn: impl FnOnce(&mut ObservedLifetimes)) {
        let mut seen = self.lifetimes.lock();
        learn(&mut seen);
        let from = seen.survival_threshold().map_or(0, |from| from.as_nanos());
        let from = u64::try_from(from).unwrap_or(u64::MAX);
        self.outlived_from.store(from, Ordering::Relaxed);
    }
}

/// From this many pauses on, those that are over are dropped.
const MAX_COOLDOWNS: usize = 1_000;

impl ServerState {
    /// A call was answered after this time, on a session of this age.
    pub(crate) fn record_answer(&self, took: Duration, session_age: impl FnOnce() -> Duration) {
        self.latency.record(took);
        if self.health.is_unreachable.load(Ordering::Relaxed) {
            self.note_health(&Ok(()));
        }
        self.note_session_alive(session_age);
    }

    /// If a check is due, a token that the caller holds until it is over.
    pub(crate) fn begin_check(&self, every: Duration) -> Option<Arc<()>> {
        let mut last = self.health.last_check.lock();
        let is_over = |token: &Weak<()>| token.strong_count() == 0;
        let due = |(began, token): &(Instant, _)| began.elapsed() >= every && is_over(token);
        let token = last.as_ref().is_none_or(due).then(Arc::default)?;
        *last = Some((clock::now(), Arc::downgrade(&token)));
        Some(token)
    }

    /// Notes the result of a check; a change is logged once.
    pub(crate) fn note_health(&self, looked: &Result<(), Diagnostic>) {
        let is_gone = looked.is_err();
        if self.health.is_unreachable.swap(is_gone, Ordering::Relaxed) == is_gone {
            return;
        }
        match looked {
            Ok(()) => {
                if !self.health.is_failing.load(Ordering::Relaxed) {
                    self.reset_failures();
                }
                tracing::info!(server = %self.name, "the server answers again");
            },
            Err(diagnostic) => {
                // No opening failed: the next check that succeeds ends this.
                self.record_failure(diagnostic);
                tracing::warn!(server = %self.name, trouble = %diagnostic, "the server does not answer");
            },
        }
    }

    /// Whether openings failed since the last one that worked, or the last check failed.
    pub(crate) fn seems_unreachable(&self) -> bool {
        let health = &self.health;
        health.is_failing.load(Ordering::Relaxed) || health.is_unreachable.load(Ordering::Relaxed)
    }

    pub(crate) fn note_failure(&self, diagnostic: &Diagnostic) {
        self.health.is_failing.store(true, Ordering::Relaxed);
        self.record_failure(diagnostic);
    }

    pub(crate) fn note_credential_result(&self, ready: &Result<(), Diagnostic>) {
        let lacks = &self.health.lacks_credential;
        match ready {
            Ok(()) if lacks.load(Ordering::Relaxed) => {
                lacks.store(false, Ordering::Relaxed);
                if self.is_healthy() {
                    self.reset_failures();
                }
            },
            Ok(()) => {},
            Err(diagnostic) => {
                lacks.store(true, Ordering::Relaxed);
                self.record_failure(diagnostic);
            },
        }
    }

    fn record_failure(&self, diagnostic: &Diagnostic) {
        let mut last = self.health.last_failure.lock();
        let before = last.as_ref().map_or(0, |last| last.in_a_row);
        *last = Some(ServerFailure {
            code: diagnostic.code.as_str(),
            reason: diagnostic.reason.as_str(),
            at: clock::wall_seconds(),
            in_a_row: before.saturating_add(1),
            what: Arc::from(diagnostic.message.as_str()),
        });
    }

    pub(crate) fn note_opened(&self) {
        if self.health.is_failing.swap(false, Ordering::Relaxed) {
            self.reset_failures();
        }
    }

    fn reset_failures(&self) {
        if let Some(last) = self.health.last_failure.lock().as_mut() {
            last.in_a_row = 0;
        }
    }

    /// The last failure, also if it is over.
    pub(crate) fn last_failure(&self) -> Option<ServerFailure> {
        self.health.last_failure.lock().clone()
    }

    /// The reason of the last failure, unless it is over.
    pub(crate) fn failure_reason(&self) -> Option<Reason> {
        let last = self.health.last_failure.lock();
        let word = last.as_ref().filter(|last| last.in_a_row > 0)?.reason;
        Reason::ALL
            .into_iter()
            .find(|reason| reason.as_str() == word)
    }

    /// Whether the last check and the last opening succeeded, and the credential is ready.
    pub(crate) fn is_healthy(&self) -> bool {
        !self.seems_unreachable() && !self.health.lacks_credential.load(Ordering::Relaxed)
    }

    pub(crate) fn note_session_lost(&self, age: Duration, now: Tick) {
        self.metrics.session_gone_age.record_time(age);
        self.session_ages
            .update_lifetimes(|seen| seen.record_end(age, now));
    }

    /// A session answered. Its age matters only where a lifetime was observed.
    fn note_session_alive(&self, age: impl FnOnce() -> Duration) {
        let from = self.session_ages.outlived_from.load(Ordering::Relaxed);
        if from > 0 {
            let age = age();
            if age >= Duration::from_nanos(from) {
                self.session_ages
                    .update_lifetimes(|seen| seen.record_survival(age));
            }
        }
    }

    /// When to replace a new session: a little before the lifetime that the server states, or that
    /// its last sessions had, if all ended at about the same age.
    pub(crate) fn renewal_after(&self, stated: Option<Duration>, now: Tick) -> Option<Duration> {
        let seen = self.session_ages.lifetimes.lock().expected_lifetime(now);
        let ends = match (stated, seen) {
            (Some(stated), Some(seen)) => stated.min(seen),
            (one, other) => one.or(other)?,
        };
        Some(ends - ends / 10)
    }

    pub(crate) fn start_cooldown(&self, whose: Identity, now: Tick, pause: Duration) {
        let mut pauses = self.cooldowns.lock();
        if pauses.len() >= MAX_COOLDOWNS {
            pauses.retain(|_, cooldown| cooldown.remaining(now).is_some());
        }
        pauses.entry(whose).or_default().extend(now, pause);
        self.has_cooldowns.store(true, Ordering::Relaxed);
    }

    pub(crate) fn cooldown_left(
        &self,
        whose: Identity,
        now: impl FnOnce() -> Tick,
    ) -> Option<Duration> {
        if !self.has_cooldowns.load(Ordering::Relaxed) {
            return None;
        }
        let now = now();
        let mut pauses = self.cooldowns.lock();
        let left = pauses
            .get(&whose)
            .and_then(|cooldown| cooldown.remaining(now));
        if left.is_none() && pauses.remove(&whose).is_some() && pauses.is_empty() {
            self.has_cooldowns.store(false, Ordering::Relaxed);
        }
        left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// reliability R2: the median is measured, and follows a server that became slower.
    #[test]
    fn what_is_usual_is_the_median_of_the_last_answers() {
        let times = LatencyWindow::default();
        for known in [70, 10, 60, 20] {
            times.record(ms(known));
            assert_eq!(times.median(), Duration::ZERO, "too few to tell");
        }
        times.record(ms(50_000));
        assert_eq!(times.median(), ms(60), "one that is far off moves nothing");
        for _ in 0..WINDOW {
            times.record(ms(300));
        }
        assert_eq!(times.median(), ms(300), "what was long ago is forgotten");
        for _ in 0..WINDOW {
            times.record(Duration::MAX);
        }
        assert_eq!(times.median(), Duration::from_micros(u64::from(u32::MAX)));
        for _ in 0..WINDOW {
            times.record(Duration::ZERO);
        }
        assert_eq!(times.median(), Duration::from_micros(1));
    }
}
