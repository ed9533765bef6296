//! What happened in the pool, told to metrics and events.
//!
//! A lease of a held session is counted with one atomic and told to nobody; everything else is
//! rare enough to be an event.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use warmline_core::code::{Code, Reason};
use warmline_core::exchange::Trouble;
use warmline_core::key::Key;
use warmline_core::key::{Identity, Owner};
use warmline_core::pool::breaker::{Blame, Change};
use warmline_core::pool::{Generation, Health, Origin, Why};

use super::{Connect, Line, Setup};
use crate::clock::{self, Instant};
use crate::engine::Who;
use crate::entry::Entry;
use crate::events::{Event, Fingerprint, ShortId, Which};
use crate::metrics::{
    Acquired, BreakerScope, BreakerState, CheckResult, ChildEnd, HealCause, OpenResult, Refusal,
    StoreOperation, StoreResult,
};
use crate::pool::{Changes, Happened, Heals, How, What};
use crate::store::Records;
use crate::upstream::{ChildEnded, ChildReport};

impl Connect {
    pub(super) fn tell(&self, setup: &Setup, happened: &Happened<'_>) {
        let metrics = &setup.entry.metrics;
        match happened.what {
            What::Leased { how, waited, .. } => {
                metrics.acquires.one_more(match how {
                    How::Hit => Acquired::Hit,
                    How::Miss => Acquired::Miss,
                    How::Waited => Acquired::Wait,
                    How::Once => Acquired::Ephemeral,
                });
                if how == How::Waited {
                    metrics.wait_time.took(waited);
                }
            },
            What::Refused { trouble, waited } => self.refused(setup, trouble, waited),
            What::Opened { origin, took } => Self::opened(setup, origin, took),
            What::Joined {
                generation,
                origin,
                took,
                heals,
            } => {
                // From here on it is found where it is looked for, and not before.
                setup.look_again();
                self.joined(happened, (generation, origin, took), heals);
            },
            What::SpareOpened { took } => self.shared.events.tell(Event::SpareOpened {
                server: Arc::clone(&setup.entry.name),
                took,
            }),
            What::OpenFailed { trouble, took, .. } => {
                self.open_failed(setup, happened, trouble, took);
            },
            What::Lost { generation, why } => {
                // Who only listens to it would not notice.
                setup.look_again();
                self.lost(setup, happened, generation, why);
            },
            What::Checked {
                generation,
                health,
                took,
            } => self.checked(setup, happened, (generation, health, took)),
            What::Closed { generation, why } => self.closed(setup, happened, generation, why),
            What::Breaker { scope, change } => {
                self.breaker(&setup.entry, happened.owner, scope, change);
            },
            What::KeyEnded => setup.look_again(),
            What::KeyForgotten => {
                setup.look_again();
                self.shared.metrics.engine.keys_evicted.one_more();
            },
            What::Waiting => {},
        }
    }

    fn refused(&self, setup: &Setup, trouble: &Trouble, waited: Duration) {
        let metrics = &setup.entry.metrics;
        metrics.acquires.one_more(Acquired::Refused);
        // An opening that failed is counted as one.
        let Some(refusal) = refusal_of(trouble.code) else {
            return;
        };
        metrics.refusals.one_more(refusal);
        if matches!(refusal, Refusal::PoolFull | Refusal::Deadline) {
            metrics.wait_timeouts.one_more();
            metrics.wait_time.took(waited);
        }
    }

    fn opened(setup: &Setup, origin: Origin, took: Duration) {
        let metrics = &setup.entry.metrics;
        metrics.open_time.took(took);
        metrics.opens.one_more(how(origin));
        setup.entry.note_opened();
        // What is taken from a shelf was started before, and counted then.
        if setup.is_process() && origin == Origin::Fresh {
            metrics.child_starts.one_more();
        }
    }

    fn joined(
        &self,
        happened: &Happened<'_>,
        (generation, origin, took): (Generation, Origin, Duration),
        heals: Option<Heals>,
    ) {
        if origin == Origin::Spare {
            self.shared.events.tell(Event::SpareTaken {
                session: which(happened, Some(generation)),
            });
        }
        if let Some(Heals { from, state_lost }) = heals {
            self.shared.events.tell(Event::Healed {
                session: which(happened, Some(generation)),
                from: from.number(),
                state_lost,
                took,
            });
        }
        self.shared.events.tell(Event::SessionOpened {
            session: which(happened, Some(generation)),
            how: how(origin),
            took,
        });
    }

    fn open_failed(
        &self,
        setup: &Setup,
        happened: &Happened<'_>,
        trouble: &Trouble,
        took: Duration,
    ) {
        let metrics = &setup.entry.metrics;
        metrics.open_time.took(took);
        metrics.opens.one_more(result_of(trouble.code));
        setup.entry.note_failure(trouble);
        self.shared.events.tell(Event::OpeningFailed {
            session: which(happened, None),
            code: trouble.code,
            reason: trouble.reason,
            what: in_one_line(trouble),
        });
    }

    fn lost(&self, setup: &Setup, happened: &Happened<'_>, generation: Generation, why: Why) {
        let cause = if why == Why::CheckFailed {
            HealCause::CheckFailed
        } else if setup.is_process() {
            HealCause::ChildExit
        } else {
            HealCause::NotFound
        };
        if setup.is_process() {
            setup.entry.metrics.child_restarts.one_more();
        }
        setup.entry.forget_lists();
        // The server said nothing: that it was closed, and by whom, is told when it is.
        if why == Why::ByOperator {
            return;
        }
        self.shared.events.tell(Event::SessionGone {
            session: which(happened, Some(generation)),
            cause,
        });
    }

    fn checked(
        &self,
        setup: &Setup,
        happened: &Happened<'_>,
        (generation, health, took): (Generation, Health, Duration),
    ) {
        let found = CheckResult::from(health);
        setup.entry.metrics.checks.one_more(found);
        setup.entry.metrics.check_time.took(took);
        if health != Health::Alive {
            self.shared.events.tell(Event::CheckFailed {
                session: which(happened, Some(generation)),
                found,
            });
        }
    }

    fn closed(
        &self,
        setup: &Setup,
        happened: &Happened<'_>,
        generation: Option<Generation>,
        why: Why,
    ) {
        // What is left to its record stays open at the server: nothing was closed.
        let why = match self.is_left_to_its_record(setup, happened.key, why) {
            true => Why::Kept,
            false => why,
        };
        setup.entry.metrics.closes.one_more(why);
        self.shared.events.tell(Event::SessionClosed {
            session: which(happened, generation),
            why,
        });
    }

    /// Tells of a session that its server may hold still. Nothing came of it within its time: none.
    pub(super) fn ended(
        &self,
        key: Option<&Key>,
        line: &Line,
        server: &Arc<str>,
        ended: Option<Result<(), Trouble>>,
    ) {
        let what = match ended {
            Some(Ok(())) => return,
            Some(Err(trouble)) => trouble.what,
            None => "it did not close in time".to_owned(),
        };
        let mut session = key.map_or_else(|| Which::of(Arc::clone(server)), Which::of_key);
        session.generation = Some(line.generation.load(Ordering::Relaxed));
        session.session = line.session_id().map(ShortId::of);
        let what = Arc::from(what);
        self.shared.events.tell(Event::NotEnded { session, what });
    }

    /// Counts how a child ended, and tells of one that ended by itself, or that had to be ended for
    /// what it did.
    pub(super) fn child_ended(&self, setup: &Setup, key: Option<&Key>, report: &ChildReport) {
        let how = match report.ended {
            None if report.lost.is_some() => ChildEnd::Failed,
            None => ChildEnd::Closed,
            Some(ChildEnded::Finished) => ChildEnd::Finished,
            Some(ChildEnded::Failed | ChildEnded::Untold) => ChildEnd::Failed,
            Some(ChildEnded::Killed) => ChildEnd::Killed,
        };
        setup.entry.metrics.child_ends.one_more(how);
        let ended = || Some(format!("{}: {}", report.exit.as_ref()?, report.stderr_tail));
        let Some(what) = report.lost.clone().or_else(ended) else {
            return;
        };
        self.shared.events.tell(Event::ChildExited {
            session: key.map_or_else(|| Which::of(Arc::clone(&setup.entry.name)), Which::of_key),
            how,
            what: Arc::from(what),
        });
    }

    /// Counts what a store was asked and what it did.
    pub(super) fn store_did(
        setup: &Setup,
        operation: StoreOperation,
        did: StoreResult,
        began: Instant,
    ) {
        let metrics = &setup.entry.metrics;
        metrics.store.one_more(operation, did);
        if matches!(did, StoreResult::Failed | StoreResult::TimedOut) {
            metrics.store_failed.is_now();
        }
        metrics
            .store_time
            .took(clock::now().saturating_duration_since(began));
    }

    /// A store did not do what it was asked, and the session goes on without it.
    pub(super) fn store_failed(&self, setup: &Setup, operation: StoreOperation, trouble: &Trouble) {
        let server = Arc::clone(&setup.entry.name);
        let what = Arc::from(trouble.why.as_deref().unwrap_or(&trouble.what));
        self.shared
            .events
            .tell(if trouble.code == Code::RecordRefused {
                Event::RecordRefused { server, what }
            } else {
                Event::StoreTrouble {
                    server,
                    operation,
                    what,
                }
            });
    }

    /// Nothing was found in a store: tells if that is because the secrets are others than before.
    pub(crate) async fn look_for_strangers(&self, entry: &Entry, records: &Records) {
        if records.are_all_strangers().await {
            self.shared.events.tell(Event::SecretsReplaced {
                server: Arc::clone(&entry.name),
            });
        }
    }

    /// A first contact was not tried, because the last openings failed.
    pub(crate) fn contact_blocked(&self, entry: &Entry, trouble: &Trouble) {
        entry.metrics.acquires.one_more(Acquired::Refused);
        if let Some(refusal) = refusal_of(trouble.code) {
            entry.metrics.refusals.one_more(refusal);
        }
    }

    /// A first contact failed: nothing is known of the server yet, but that it could not be met.
    pub(crate) fn contact_failed(
        &self,
        entry: &Entry,
        whose: Identity,
        trouble: &Trouble,
        took: Duration,
    ) {
        entry.metrics.open_time.took(took);
        entry.metrics.opens.one_more(result_of(trouble.code));
        entry.note_failure(trouble);
        let mut session = Which::of(Arc::clone(&entry.name));
        session.identity = Some(Fingerprint::from(whose));
        self.shared.events.tell(Event::OpeningFailed {
            session,
            code: trouble.code,
            reason: trouble.reason,
            what: in_one_line(trouble),
        });
    }

    /// What came of asking for the credential that a caller speaks with. What callers hand in
    /// themselves is their own affair, and what one of them lacks says nothing of the server.
    pub(crate) fn credential_asked(&self, entry: &Entry, who: &Who, asked: &Result<(), Trouble>) {
        if who.handed.is_some() {
            return;
        }
        if !entry.speaks_per_identity() {
            entry.note_credential(asked);
        }
        if let Err(trouble) = asked
            && trouble.code == Code::CredentialUnavailable
        {
            let mut session = Which::of(Arc::clone(&entry.name));
            session.identity = Some(Fingerprint::from(who.id));
            self.shared.events.tell(Event::OpeningFailed {
                session,
                code: trouble.code,
                reason: trouble.reason,
                what: in_one_line(trouble),
            });
        }
    }

    /// What a first contact did to breakers.
    pub(crate) fn breakers_changed(&self, entry: &Entry, whose: Identity, changes: Changes) {
        for (scope, change) in changes {
            self.breaker(entry, Some(Owner::Identity(whose)), scope, change);
        }
    }

    fn breaker(&self, entry: &Entry, owner: Option<Owner>, scope: Blame, change: Change) {
        let (scope, identity) = match scope {
            Blame::Identity => (
                BreakerScope::Identity,
                owner.and_then(Fingerprint::of_owner),
            ),
            Blame::Server | Blame::Nobody => (BreakerScope::Server, None),
        };
        let state = BreakerState::from(change);
        let retry_in = match change {
            Change::Tripped(pause) => Some(pause),
            Change::Passing | Change::Probing => None,
        };
        entry.metrics.breaker_changes.one_more(scope, state);
        self.shared.events.tell(Event::BreakerChanged {
            server: Arc::clone(&entry.name),
            scope,
            identity,
            state,
            reason: retry_in.and_then(|_| entry.failing_for()),
            retry_in,
        });
    }
}

/// How an opening is told that ended well.
const fn how(origin: Origin) -> OpenResult {
    match origin {
        Origin::Fresh => OpenResult::Opened,
        Origin::Spare => OpenResult::Spare,
        Origin::Restored => OpenResult::Resumed,
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the others are failures")]
const fn refusal_of(code: Code) -> Option<Refusal> {
    Some(match code {
        Code::PoolFull => Refusal::PoolFull,
        Code::Overloaded => Refusal::Overloaded,
        Code::BreakerOpen => Refusal::BreakerOpen,
        Code::Draining => Refusal::Draining,
        Code::Closed => Refusal::Closed,
        Code::RunEnded => Refusal::RunEnded,
        Code::Deadline => Refusal::Deadline,
        _ => return None,
    })
}

#[expect(clippy::wildcard_enum_match_arm, reason = "most failures count alike")]
const fn result_of(code: Code) -> OpenResult {
    match code {
        Code::CannotReach => OpenResult::Unreachable,
        Code::CredentialRefused => OpenResult::CredentialRefused,
        Code::Deadline => OpenResult::TimedOut,
        _ => OpenResult::Failed,
    }
}

/// What a store did that could not do what it was asked.
pub(super) fn failure_of(trouble: &Trouble) -> StoreResult {
    if trouble.code == Code::RecordRefused {
        StoreResult::Refused
    } else if trouble.reason == Reason::Timeout {
        StoreResult::TimedOut
    } else {
        StoreResult::Failed
    }
}

/// What happened and the last that is known of why. Callers hear less of it, so it stands here.
fn in_one_line(trouble: &Trouble) -> Arc<str> {
    // Where a program was looked for fills a page, and `doctor` says it.
    let is_short = trouble.reason != Reason::ProgramMissing;
    let why = trouble.why.as_deref().filter(|_| is_short);
    let mut line = trouble.what.clone();
    if let Some(why) = why.and_then(|why| why.lines().last()) {
        line = format!("{line}: {why}");
    }
    // Whose token was refused can be found out nowhere else.
    let is_refused = matches!(trouble.reason, Reason::Unauthorized | Reason::Forbidden);
    if let Some(hint) = trouble.hint.as_deref().filter(|_| is_refused) {
        line = format!("{line}; {hint}");
    }
    Arc::from(line)
}

fn which(happened: &Happened<'_>, generation: Option<Generation>) -> Which {
    let which = match happened.key {
        Some(key) => Which::of_key(key),
        None => Which::of(Arc::clone(&happened.place.server)),
    };
    match generation {
        Some(generation) => which.generation(generation.number()),
        None => which,
    }
}
