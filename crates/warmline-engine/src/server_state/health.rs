//! Whether a server is healthy, and its last failure.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use warmline_core::error::code::Reason;
use warmline_core::exchange::Diagnostic;

use super::ServerState;
use crate::metrics::ServerFailure;
use warmline_platform::clock::{self, Instant};
use warmline_platform::lock::Mutex;

#[derive(Debug, Default)]
pub(super) struct ServerHealth {
    /// The last check failed.
    is_unreachable: AtomicBool,
    /// Openings failed since the last one that worked. Most never do, and take no lock.
    is_failing: AtomicBool,
    /// The last attempt to get a credential failed.
    lacks_credential: AtomicBool,
    last_failure: Mutex<Option<ServerFailure>>,
    /// When the last check began. The token lives as long as it runs.
    last_check: Mutex<Option<(Instant, Weak<()>)>>,
}

impl ServerState {
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

    /// A call could not reach the server. The next call, check or opening that does ends this.
    pub(crate) fn note_unreachable(&self, diagnostic: &Diagnostic) {
        self.note_health(&Err(diagnostic.clone()));
    }

    /// A call was answered.
    pub(crate) fn note_answered(&self) {
        if self.health.is_unreachable.load(Ordering::Relaxed) {
            self.note_health(&Ok(()));
        }
    }

    /// Whether openings failed since the last one that worked, or the last check failed.
    pub(crate) fn seems_unreachable(&self) -> bool {
        let health = &self.health;
        health.is_failing.load(Ordering::Relaxed) || health.is_unreachable.load(Ordering::Relaxed)
    }

    /// An opening failed.
    pub(crate) fn note_failure(&self, diagnostic: &Diagnostic) {
        self.health.is_failing.store(true, Ordering::Relaxed);
        self.record_failure(diagnostic);
    }

    /// Notes whether the shared credential is ready.
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

    /// A session was opened.
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
}
