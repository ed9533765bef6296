//! How a server does: what a look at it found, and what last went wrong with it.
//!
//! Asked by: snapshots, for people who look at it now.  Told by: openings, first contacts, calls
//! that find nobody, and the keeper's looks at the server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use warmline_core::code::Reason;
use warmline_core::exchange::Trouble;

use super::Entry;
use crate::clock;
use crate::metrics::ServerFailure;
use crate::sync::Mutex;

/// How a server does.
#[derive(Debug)]
pub(super) struct Health {
    /// What the last look at the server found.
    is_there: AtomicBool,
    /// Whether openings failed since the last that worked: most never do, and take no lock.
    is_failing: AtomicBool,
    /// Whether there was nothing to speak with when somebody last looked.
    lacks_credential: AtomicBool,
    last: Mutex<Option<ServerFailure>>,
}

impl Default for Health {
    fn default() -> Self {
        Self {
            is_there: AtomicBool::new(true),
            is_failing: AtomicBool::new(false),
            lacks_credential: AtomicBool::new(false),
            last: Mutex::default(),
        }
    }
}

impl Entry {
    /// What a look at the server found: a change is told once.
    pub(crate) fn note_health(&self, looked: &Result<(), Trouble>) {
        let is_there = looked.is_ok();
        if self.health.is_there.swap(is_there, Ordering::Relaxed) == is_there {
            return;
        }
        match looked {
            Ok(()) => {
                if !self.health.is_failing.load(Ordering::Relaxed) {
                    self.forgive();
                }
                tracing::info!(server = %self.name, "the server answers again");
            },
            Err(trouble) => {
                // No opening failed: the next look that finds it is the end of this.
                self.remember(trouble);
                tracing::warn!(server = %self.name, %trouble, "the server does not answer");
            },
        }
    }

    /// A call found nobody there. The next call, look or opening that finds it is the end of this.
    pub(crate) fn note_absent(&self, trouble: &Trouble) {
        self.note_health(&Err(trouble.clone()));
    }

    /// A call was answered.
    pub(crate) fn note_answered(&self) {
        if !self.health.is_there.load(Ordering::Relaxed) {
            self.note_health(&Ok(()));
        }
    }

    /// Whether openings failed since the last that worked, or a look found nobody.
    pub(crate) fn seems_absent(&self) -> bool {
        let health = &self.health;
        health.is_failing.load(Ordering::Relaxed) || !health.is_there.load(Ordering::Relaxed)
    }

    /// Something went wrong with the server itself.
    pub(crate) fn note_failure(&self, trouble: &Trouble) {
        self.health.is_failing.store(true, Ordering::Relaxed);
        self.remember(trouble);
    }

    /// What became of the credential that everybody speaks with.
    pub(crate) fn note_credential(&self, ready: &Result<(), Trouble>) {
        let lacks = &self.health.lacks_credential;
        match ready {
            Ok(()) if lacks.load(Ordering::Relaxed) => {
                lacks.store(false, Ordering::Relaxed);
                if self.does_well() {
                    self.forgive();
                }
            },
            Ok(()) => {},
            Err(trouble) => {
                lacks.store(true, Ordering::Relaxed);
                self.remember(trouble);
            },
        }
    }

    /// Keeps what went wrong last, to be shown.
    fn remember(&self, trouble: &Trouble) {
        let mut last = self.health.last.lock();
        let before = last.as_ref().map_or(0, |last| last.in_a_row);
        *last = Some(ServerFailure {
            code: trouble.code.word(),
            reason: trouble.reason.word(),
            at: clock::wall_seconds(),
            in_a_row: before.saturating_add(1),
            what: Arc::from(trouble.what.as_str()),
        });
    }

    /// A session was opened: whatever went wrong before is over.
    pub(crate) fn note_opened(&self) {
        if self.health.is_failing.swap(false, Ordering::Relaxed) {
            self.forgive();
        }
    }

    /// What went wrong last is over.
    fn forgive(&self) {
        if let Some(last) = self.health.last.lock().as_mut() {
            last.in_a_row = 0;
        }
    }

    /// What went wrong last, if anything did.
    pub(crate) fn last_failure(&self) -> Option<ServerFailure> {
        self.health.last.lock().clone()
    }

    /// The finer word for what went wrong last.
    pub(crate) fn failing_for(&self) -> Option<Reason> {
        let last = self.health.last.lock();
        let word = last.as_ref().filter(|last| last.in_a_row > 0)?.reason;
        Reason::ALL.into_iter().find(|reason| reason.word() == word)
    }

    /// Whether the last look found it, the last opening worked, and there is something to speak with.
    pub(crate) fn does_well(&self) -> bool {
        self.health.is_there.load(Ordering::Relaxed)
            && !self.health.is_failing.load(Ordering::Relaxed)
            && !self.health.lacks_credential.load(Ordering::Relaxed)
    }
}
