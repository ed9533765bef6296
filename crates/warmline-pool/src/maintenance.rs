//! Sweeping, ending and draining.

use std::sync::Arc;
use std::time::Duration;

use warmline_core::pool::{EndReason, Event, Generation};

use super::context::PoolPhase;
use super::{Connector, Pool, PoolEntry, PoolEventKind, SessionSnapshot};
use crate::clock::{self, Instant};

/// Entries that are swept before other tasks get a turn.
const SWEEP_BATCH: usize = 512;
/// Sessions in use are cut this long before the deadline of their end, so that closing them has time
/// too.
const CLOSE_RESERVE: Duration = Duration::from_secs(5);
/// How long an opening may still take when its entry has ended. One that is nearly open is completed
/// and closed: the server may have created its session already.
const OPENING_GRACE: Duration = Duration::from_secs(2);

/// A session that is to be checked while it is idle.
pub struct KeepAliveCheck<C: Connector> {
    entry: Arc<PoolEntry<C>>,
    generation: Generation,
    session: Arc<C::Session>,
}

impl<C: Connector> KeepAliveCheck<C> {
    /// For a session that may be gone.
    pub fn for_session(entry: &Arc<PoolEntry<C>>, snapshot: SessionSnapshot<C>) -> Self {
        Self {
            entry: Arc::clone(entry),
            generation: snapshot.generation,
            session: snapshot.session,
        }
    }

    pub fn server(&self) -> Arc<str> {
        Arc::clone(&self.entry.key.target.server)
    }

    pub async fn run(self) {
        let (entry, generation) = (&self.entry, self.generation);
        let health = entry.check_session(generation, &self.session).await;
        entry.dispatch(Event::KeepAliveFinished(generation, health));
    }
}

impl<C: Connector> Pool<C> {
    /// Closes old sessions, evicts empty keys, refills spares, and returns the sessions that are to
    /// be kept alive.
    pub async fn sweep(&self) -> Vec<KeepAliveCheck<C>> {
        let evict_after = self.context.evict_after;
        let mut due = Vec::new();
        for (at, entry) in self.entries().into_iter().enumerate() {
            if at % SWEEP_BATCH == SWEEP_BATCH - 1 {
                clock::yield_now().await;
            }
            let event = Event::MaintenanceTick(evict_after);
            let sessions = entry.with_inner(|inner, actions| {
                inner.apply_event(&entry, event, actions);
                actions.take_keep_alives()
            });
            let checks = sessions
                .into_iter()
                .map(|(generation, session)| KeepAliveCheck {
                    entry: Arc::clone(&entry),
                    generation,
                    session,
                });
            due.extend(checks);
        }
        self.spares().sweep();
        self.context.breakers.sweep();
        due
    }

    /// Ends a key: it refuses callers, closes idle sessions in the background, and those in use when
    /// they are settled.
    pub fn end_entry(&self, entry: &Arc<PoolEntry<C>>, reason: EndReason) {
        self.table.move_to_ending(entry);
        entry.dispatch(Event::EntryEnded(reason));
        entry.report(PoolEventKind::KeyEnded);
    }

    /// Ends one session of a key for an operator: the key continues with another.
    pub fn end_session(&self, entry: &Arc<PoolEntry<C>>, generation: Generation) {
        let reason = EndReason::ByOperator;
        entry.dispatch(Event::SessionEnded(generation, reason));
    }

    /// Ends the keys with these setups that belong to no run, and their spares.
    pub fn end_shared_with_setup(&self, matches: impl Fn(&C::Setup) -> bool, reason: EndReason) {
        for entry in self.entries() {
            if entry.key.run().is_none() && matches(&entry.setup) {
                self.end_entry(&entry, reason);
            }
        }
        self.spares().clear(reason, |_, setup| matches(setup));
    }

    /// Ends keys side by side, and waits until nothing is left of them. What is still in use shortly
    /// before the deadline is cut.
    pub async fn end_entries(&self, entries: &[Arc<PoolEntry<C>>], reason: EndReason, by: Instant) {
        for entry in entries {
            self.end_entry(entry, reason);
        }
        let cut_at = abort_deadline(by);
        let nearly_open = clock::after(OPENING_GRACE).min(cut_at);
        let mut ends: Vec<_> = entries
            .iter()
            .filter_map(|entry| entry.watch_end())
            .collect();
        for (end, cut) in [
            (nearly_open, Some(AbortScope::Openings)),
            (cut_at, Some(AbortScope::All)),
            (by, None),
        ] {
            let mut left = Vec::new();
            for mut watched in ends {
                if clock::timeout_at(end, &mut watched).await.is_err() {
                    left.push(watched);
                }
            }
            if left.is_empty() {
                return;
            }
            ends = left;
            if let Some(cut) = cut {
                for entry in entries {
                    entry.abort(cut);
                }
            }
        }
    }

    /// Refuses new work, ends everything, and waits until nothing is left or the deadline passes.
    pub async fn drain(&self, by: Instant) {
        self.context.advance_phase(PoolPhase::Draining);
        self.spares().clear(EndReason::Drained, |_, _| true);
        for entry in self.entries() {
            self.end_entry(&entry, EndReason::Drained);
        }
        let nearly_open = clock::after(OPENING_GRACE).min(abort_deadline(by));
        for (end, cut) in [
            (nearly_open, AbortScope::Openings),
            (abort_deadline(by), AbortScope::All),
        ] {
            if self.wait_until_idle(end).await {
                break;
            }
            for entry in self.table.all() {
                // An entry that was created since the drain began has not ended yet.
                self.end_entry(&entry, EndReason::Drained);
                entry.abort(cut);
            }
        }
        self.wait_until_idle(by).await;
        self.context.advance_phase(PoolPhase::Closed);
        let entries = self.table.all();
        let invalid_events: u32 = entries.iter().map(|entry| entry.counts().2).sum();
        if invalid_events > 0 {
            tracing::error!(
                mistakes = invalid_events,
                "the pool received events that make no sense"
            );
        }
    }

    /// False if the deadline passed before nothing was left.
    async fn wait_until_idle(&self, by: Instant) -> bool {
        loop {
            // Before the look, so that no notification is missed in between.
            let finished = self.context.work_finished.notified();
            for entry in self.entries() {
                self.end_entry(&entry, EndReason::Drained);
            }
            if self.table.ending.is_empty() && self.context.running_task_count() == 0 {
                return true;
            }
            if clock::timeout_at(by, finished).await.is_err() {
                return false;
            }
        }
    }
}

/// What is cut when an ended entry has no time left.
#[derive(Clone, Copy)]
enum AbortScope {
    /// Openings that no caller waits for.
    Openings,
    All,
}

impl<C: Connector> PoolEntry<C> {
    fn abort(self: &Arc<Self>, scope: AbortScope) {
        let (counts, ..) = self.counts();
        let is_due = match scope {
            AbortScope::Openings => counts.opening > 0 && counts.leases == 0,
            AbortScope::All => true,
        };
        if is_due {
            self.dispatch(Event::GraceExpired);
        }
    }
}

/// When to cut what is in use, so that it can be closed before the deadline.
fn abort_deadline(by: Instant) -> Instant {
    let now = clock::now();
    let left = by.saturating_duration_since(now);
    now + left.saturating_sub(CLOSE_RESERVE.min(left / 4))
}
