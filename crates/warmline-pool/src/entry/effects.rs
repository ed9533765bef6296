//! Carries out what the core decides. Under the lock of an entry each effect becomes an action that
//! holds its session and callers; afterwards each action is one branch.

use std::sync::Arc;

use smallvec::SmallVec;
use tokio::sync::oneshot;
use warmline_core::exchange::Diagnostic;
use warmline_core::pool::limits::PermitKind;
use warmline_core::pool::{
    Effect, EndCondition, EndReason, Event, Generation, HealthCheckResult, LeaseRefusal, Sharing,
};
use warmline_core::time::Tick;

use super::super::context::TaskGuard;
use super::super::permits::SessionPermit;
use super::super::{Connector, PoolEventKind, messages};
use super::lease::Lease;
use super::opening::{PermitSender, ReplacedSession};
use super::{
    LeaseFailure, LeaseSender, OpeningHandle, OpeningStage, PoolEntry, PoolEntryInner, SessionSlot,
};
use crate::clock::{self, RuntimeHandle};

pub(super) enum PendingAction<C: Connector> {
    /// Without a sender it is for the caller that asks right now.
    Grant(Option<LeaseSender<C>>, Lease<C>),
    Refuse(Option<LeaseSender<C>>, LeaseRefusal),
    /// Returned by the sweep.
    KeepAlive(Generation, Arc<C::Session>),
    /// Everything else is rare, and may cost an allocation.
    Run(Box<RareAction<C>>),
}

type RareAction<C> = dyn FnOnce(&Arc<PoolEntry<C>>);

impl<C: Connector> PendingAction<C> {
    pub(super) fn run(action: impl FnOnce(&Arc<PoolEntry<C>>) + 'static) -> Self {
        Self::Run(Box::new(action))
    }
}

/// What is to be done after the lock is released, in this order.
pub(in super::super) struct PendingActions<C: Connector> {
    /// The moment of what led to them.
    pub(super) now: Tick,
    pub(super) all: SmallVec<[PendingAction<C>; 2]>,
    pub(super) diagnostic: Option<Arc<Diagnostic>>,
}

impl<C: Connector> PendingActions<C> {
    /// The result for the caller that asks right now, if it need not wait.
    pub(super) fn take_caller_action(&mut self) -> Option<PendingAction<C>> {
        let is_for_caller = |action: &PendingAction<C>| {
            matches!(
                action,
                PendingAction::Grant(None, _) | PendingAction::Refuse(None, _)
            )
        };
        let at = self.all.iter().position(is_for_caller)?;
        Some(self.all.remove(at))
    }

    pub(in super::super) fn take_keep_alives(&mut self) -> Vec<(Generation, Arc<C::Session>)> {
        let mut due = Vec::new();
        self.all.retain(|action| {
            let PendingAction::KeepAlive(generation, session) = action else {
                return true;
            };
            due.push((*generation, Arc::clone(session)));
            false
        });
        due
    }
}

impl<C: Connector> PoolEntryInner<C> {
    /// Applies an event to the core, and gathers the actions that follow.
    pub(in super::super) fn apply_event(
        &mut self,
        entry: &Arc<PoolEntry<C>>,
        event: Event,
        actions: &mut PendingActions<C>,
    ) {
        for effect in self.core.handle_event(event, actions.now) {
            if let Effect::OpenUnneeded(generation) = effect {
                self.cancel_unneeded_opening(entry, generation, actions);
            } else if let Some(action) = self.action_for(entry, effect) {
                actions.all.push(action);
            }
        }
    }

    fn action_for(
        &mut self,
        entry: &Arc<PoolEntry<C>>,
        effect: Effect,
    ) -> Option<PendingAction<C>> {
        match effect {
            Effect::GrantLease {
                waiter,
                generation,
                loss,
            } => {
                let session = &self.slot_mut(generation)?.session;
                let lease = Lease::new(entry, session, generation, loss);
                Some(PendingAction::Grant(self.remove_waiter(waiter), lease))
            },
            Effect::RefuseLease(waiter, refusal) => {
                Some(PendingAction::Refuse(self.remove_waiter(waiter), refusal))
            },
            Effect::OpenSession(generation) => Some(self.register_opening(generation)),
            // Handled in `apply_event`.
            Effect::OpenUnneeded(..) => None,
            Effect::AbortOpen(generation) => {
                self.remove_opening(generation);
                None
            },
            Effect::Renumber { from, to } => {
                self.slot_mut(from)?.generation = to;
                None
            },
            Effect::CheckSession(generation) => {
                let session = Arc::clone(&self.slot_mut(generation)?.session);
                Some(PendingAction::run(move |entry| {
                    entry.start_check(generation, session);
                }))
            },
            Effect::KeepAlive(generation) => {
                let session = Arc::clone(&self.slot_mut(generation)?.session);
                Some(PendingAction::KeepAlive(generation, session))
            },
            Effect::SessionStable(..) => Some(PendingAction::run(|entry| entry.record_stable())),
            Effect::SessionShortLived(_, opened_at) => Some(PendingAction::run(move |entry| {
                entry.record_short_lived(opened_at);
            })),
            Effect::SessionLost(generation, reason) => {
                self.retain_for_replacement(entry, generation, reason);
                Some(PendingAction::run(move |entry| {
                    entry.report(PoolEventKind::Lost { generation, reason });
                }))
            },
            Effect::CloseSession(generation, reason) => self.register_closing(generation, reason),
            Effect::EvictEntry => Some(PendingAction::run(PoolEntry::evict)),
        }
    }

    fn register_opening(&mut self, generation: Generation) -> PendingAction<C> {
        let (stop, stopped) = oneshot::channel();
        let activity = self.activity_mut();
        activity.openings.push(OpeningHandle {
            generation,
            stage: OpeningStage::WaitingForPermit,
            runtime: RuntimeHandle::current(),
            _stop: stop,
        });
        let replaced = activity.to_replace.take();
        PendingAction::run(move |entry| entry.start_opening(generation, replaced, stopped))
    }

    /// Takes the session out of its slot, with the receiver of its permit.
    fn register_closing(
        &mut self,
        generation: Generation,
        reason: EndReason,
    ) -> Option<PendingAction<C>> {
        let mut slots = self.slots.iter();
        let at = slots.position(|slot| slot.generation == generation)?;
        self.closing += 1;
        let activity = self.activity.as_mut();
        let sender = activity.and_then(|activity| {
            let sender = &mut activity.permit_sender;
            sender.take_if(|(of, _)| *of == generation)
        });
        let sender = sender.map(|(_, sender)| sender);
        let slot = self.slots.remove(at);
        Some(PendingAction::run(move |entry| {
            entry.start_close(slot, reason, sender);
        }))
    }

    /// Keeps a lost session for the opening that replaces it.
    fn retain_for_replacement(
        &mut self,
        entry: &PoolEntry<C>,
        generation: Generation,
        reason: EndReason,
    ) {
        let policy = *self.core.policy();
        if policy.sharing == Sharing::OnePerCaller {
            return;
        }
        let keeps_permit = policy.end_condition == EndCondition::WithRunEnd;
        // A server that says so holds nothing any more. A process that ends is still there.
        let is_over = reason == EndReason::Gone
            && PermitKind::for_target(&entry.key.target) == Some(PermitKind::Session);
        let Some(slot) = self.slot_mut(generation) else {
            return;
        };
        let session = Arc::clone(&slot.session);
        let has_permit = keeps_permit && slot.permit.is_some();
        let permit = slot.permit.take_if(|_| keeps_permit && is_over);
        let (sender, receiver) = oneshot::channel();
        let activity = self.activity_mut();
        match permit {
            Some(permit) => drop(sender.send(permit)),
            None if has_permit => activity.permit_sender = Some((generation, sender)),
            None => {},
        }
        activity.to_replace = Some(ReplacedSession {
            generation,
            session,
            permit: has_permit.then_some(receiver),
        });
    }

    /// No caller waits for this opening any more. If it has sent nothing yet, it is stopped.
    fn cancel_unneeded_opening(
        &mut self,
        entry: &Arc<PoolEntry<C>>,
        generation: Generation,
        actions: &mut PendingActions<C>,
    ) {
        let is_waiting = |opening: &OpeningHandle| {
            opening.generation == generation && opening.stage == OpeningStage::WaitingForPermit
        };
        if self.openings().iter().any(is_waiting) {
            self.remove_opening(generation);
            self.apply_event(entry, Event::OpenCancelled(generation), actions);
        }
    }

    /// Gathers what follows when an entry that ended has nothing left.
    pub(super) fn finish_if_over(&mut self, actions: &mut PendingActions<C>) {
        if self.core.is_live() {
            return;
        }
        let activity = self.activity.as_mut();
        if let Some(replaced) = activity.and_then(|activity| activity.to_replace.take()) {
            actions.all.push(PendingAction::run(|_| drop(replaced)));
        }
        if self.is_finished() {
            let activity = self.activity.as_mut();
            let watchers = activity.map(|activity| std::mem::take(&mut activity.end_watchers));
            let watchers = watchers.unwrap_or_default();
            let finish = PendingAction::run(|entry| entry.finish(watchers));
            actions.all.push(finish);
        }
    }
}

impl<C: Connector> PoolEntry<C> {
    pub(super) fn run_actions(self: &Arc<Self>, actions: PendingActions<C>) {
        let diagnostic = actions.diagnostic;
        for action in actions.all {
            match action {
                // A lease that reaches no caller is dropped with the channel, and goes back unused.
                PendingAction::Grant(Some(sender), lease) => drop(sender.send(Ok(lease))),
                PendingAction::Grant(None, lease) => drop(lease),
                PendingAction::Refuse(Some(sender), LeaseRefusal::OpenerLost) => {
                    drop(sender.send(Err(LeaseFailure::Requeue)));
                },
                PendingAction::Refuse(Some(sender), refusal) => {
                    let diagnostic = self.refusal_diagnostic(refusal, diagnostic.as_ref());
                    drop(sender.send(Err(LeaseFailure::Diagnostic(diagnostic))));
                },
                PendingAction::Refuse(None, _) | PendingAction::KeepAlive(..) => {},
                PendingAction::Run(action) => action(self),
            }
        }
    }

    pub(in super::super) fn refusal_diagnostic(
        &self,
        refusal: LeaseRefusal,
        open_failure: Option<&Arc<Diagnostic>>,
    ) -> Arc<Diagnostic> {
        let server = self.server();
        Arc::new(match (refusal, open_failure) {
            (LeaseRefusal::OpenFailed, Some(diagnostic)) => return Arc::clone(diagnostic),
            (LeaseRefusal::OpenFailed, None) | (LeaseRefusal::OpenerLost, _) => {
                messages::opening_aborted(server)
            },
            (LeaseRefusal::QueueFull, _) => messages::queue_full(server, self.policy().max_waiters),
            (LeaseRefusal::EntryEnded(reason), _) => messages::entry_ended(server, reason),
        })
    }

    pub(in super::super) fn report(&self, kind: PoolEventKind<'_>) {
        self.context
            .report(&self.setup, &self.key, self.pooled_key(), kind);
    }

    fn record_stable(&self) {
        let transitions = self.context.breakers.record_stable(&self.opener());
        self.context
            .report_breaker_transitions(&self.setup, &self.key, transitions);
    }

    fn record_short_lived(&self, opened_at: Tick) {
        let policy = self.connector().breaker_policy(&self.setup);
        let breakers = &self.context.breakers;
        let transitions = breakers.record_short_lived(&self.opener(), opened_at, &policy);
        self.context
            .report_breaker_transitions(&self.setup, &self.key, transitions);
    }

    fn start_check(self: &Arc<Self>, generation: Generation, session: Arc<C::Session>) {
        let mut check = CheckGuard {
            entry: Arc::clone(self),
            generation,
            health: HealthCheckResult::Unreachable,
            _task: self.context.start_task(),
        };
        clock::spawn_if_running("check", async move {
            let entry = Arc::clone(&check.entry);
            check.health = entry.check_session(generation, &session).await;
            drop(check);
        });
    }

    pub(in super::super) async fn check_session(
        &self,
        generation: Generation,
        session: &Arc<C::Session>,
    ) -> HealthCheckResult {
        let began = clock::now();
        let health = self.connector().check(session, &self.setup).await;
        self.report(PoolEventKind::Checked {
            generation,
            health,
            took: clock::now().saturating_duration_since(began),
        });
        health
    }

    /// Closes a session in the background. Its permit is released after it, or goes to the session
    /// that replaces it.
    pub(super) fn start_close(
        self: &Arc<Self>,
        slot: SessionSlot<C>,
        reason: EndReason,
        permit_sender: Option<PermitSender>,
    ) {
        let SessionSlot {
            generation,
            session,
            mut permit,
        } = slot;
        if reason == EndReason::Evicted
            && let Some(permit) = &mut permit
        {
            permit.announce_release();
        }
        let closed = ClosedSession {
            entry: Arc::clone(self),
            generation,
            reason,
            permit,
            permit_sender,
        };
        let key = self.is_pooled.then(|| Arc::clone(&self.key));
        let setup = Arc::clone(&self.setup);
        self.context
            .close_session(session, setup, key, reason, closed);
    }

    fn evict(self: &Arc<Self>) {
        if let Some(table) = self.table() {
            table.remove(self);
        }
        self.report(PoolEventKind::KeyEvicted);
    }

    fn finish(&self, watchers: Vec<oneshot::Sender<()>>) {
        if let Some(table) = self.table() {
            table.ending.pin().remove(&self.number);
        }
        for watcher in watchers {
            watcher.send(()).ok();
        }
        self.context.work_finished.notify_waiters();
    }
}

/// A check in progress. However its task ends, the entry gets a result.
struct CheckGuard<C: Connector> {
    entry: Arc<PoolEntry<C>>,
    generation: Generation,
    health: HealthCheckResult,
    _task: TaskGuard<C>,
}

impl<C: Connector> Drop for CheckGuard<C> {
    fn drop(&mut self) {
        self.entry
            .dispatch(Event::CheckFinished(self.generation, self.health));
    }
}

/// A session that is being closed. However its task ends, even with its runtime, the end is
/// reported, the permit is passed on, and the entry learns it.
struct ClosedSession<C: Connector> {
    entry: Arc<PoolEntry<C>>,
    generation: Generation,
    reason: EndReason,
    permit: Option<SessionPermit>,
    permit_sender: Option<PermitSender>,
}

impl<C: Connector> Drop for ClosedSession<C> {
    fn drop(&mut self) {
        self.entry.report(PoolEventKind::Closed {
            generation: Some(self.generation),
            reason: self.reason,
        });
        match (self.permit.take(), self.permit_sender.take()) {
            // If the receiver is gone, the permit is dropped with the channel.
            (Some(permit), Some(sender)) => drop(sender.send(permit)),
            (permit, _) => drop(permit),
        }
        self.entry
            .with_inner(|inner, _| inner.closing = inner.closing.saturating_sub(1));
    }
}
