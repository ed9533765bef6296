//! Leases: the right to send on a session. A lease is settled exactly once: with an outcome, or by
//! dropping it.

use std::sync::Arc;

use warmline_core::pool::{EndReason, Event, Generation, LeaseOutcome, StateLoss};

use super::super::{AcquireKind, Connector};
use super::PoolEntry;

/// The right to send on a session, until it is settled.
#[must_use = "dropping a lease settles it as dropped"]
pub struct Lease<C: Connector> {
    entry: Arc<PoolEntry<C>>,
    pub session: Arc<C::Session>,
    pub generation: Generation,
    loss: Option<StateLoss>,
    /// None until its caller has it: dropped before, it was not used.
    kind: Option<AcquireKind>,
    settled: bool,
}

impl<C: Connector> Lease<C> {
    pub(super) fn new(
        entry: &Arc<PoolEntry<C>>,
        session: &Arc<C::Session>,
        generation: Generation,
        loss: Option<StateLoss>,
    ) -> Self {
        Self {
            entry: Arc::clone(entry),
            session: Arc::clone(session),
            generation,
            loss,
            kind: None,
            settled: false,
        }
    }

    /// The lease reached its caller.
    pub(in super::super) fn granted(mut self, kind: AcquireKind) -> Self {
        self.kind = Some(kind);
        self
    }

    pub fn kind(&self) -> AcquireKind {
        self.kind.unwrap_or(AcquireKind::Hit)
    }

    /// Whether its driver can still use the session.
    pub(in super::super) fn is_usable(&self) -> bool {
        self.entry.connector().is_usable(&self.session)
    }

    /// A lease for one call of the holder of an exclusive lease. None once the session is lost.
    pub fn sublease(&self) -> Option<Self> {
        let mut sublease = self.entry.lease_held_session(self.generation)?;
        // A loss from before this lease concerns its holder; a later one does not.
        sublease.loss = self.loss.map(|before| {
            let last = self.entry.last_loss();
            last.filter(|last| last.number == before.number)
                .unwrap_or(before)
        });
        Some(sublease.granted(AcquireKind::Hit))
    }

    /// The loss of state that was not reported to any caller before this lease began.
    pub fn unreported_loss(&self) -> Option<StateLoss> {
        self.loss.filter(|loss| !loss.is_reported)
    }

    /// Replaces what the key knows about reports by what the caller knows. `known` is asked only
    /// if there is a loss.
    pub fn set_known_loss(&mut self, known: impl FnOnce() -> Option<u16>) {
        if let Some(loss) = &mut self.loss
            && let Some(known) = known()
        {
            loss.is_reported = loss.is_known_to(known);
        }
    }

    /// Marks the loss as reported; false if there is none, or another caller reported it meanwhile.
    pub fn mark_loss_reported(&mut self) -> bool {
        let loss = self.unreported_loss();
        self.loss = None;
        loss.is_some_and(|loss| self.entry.mark_loss_reported(loss))
    }

    pub fn settle(mut self, outcome: LeaseOutcome) {
        self.settle_once(outcome);
    }

    /// Settles the lease, and says why its key ended, if it did meanwhile.
    pub fn settle_and_check_end(mut self, outcome: LeaseOutcome) -> Option<EndReason> {
        self.settle_once(outcome)
    }

    fn settle_once(&mut self, outcome: LeaseOutcome) -> Option<EndReason> {
        if std::mem::replace(&mut self.settled, true) {
            return None;
        }
        let generation = self.generation;
        if !matches!(outcome, LeaseOutcome::SessionEnded(_)) && !self.is_usable() {
            // First, so that no other caller gets it; what it answered still counts.
            let reason = EndReason::Gone;
            self.entry.dispatch(Event::SessionEnded(generation, reason));
        }
        let event = Event::LeaseReturned(generation, outcome);
        self.entry.with_inner(|inner, actions| {
            inner.apply_event(&self.entry, event, actions);
            inner.core.end_reason()
        })
    }
}

impl<C: Connector> Drop for Lease<C> {
    fn drop(&mut self) {
        self.settle_once(match self.kind {
            Some(_) => LeaseOutcome::Cancelled,
            None => LeaseOutcome::Unused,
        });
    }
}
