//! A caller that waits for a session. Dropping it leaves the queue; a lease that was on its way to
//! it goes to the next caller.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use warmline_core::pool::{Event, Generation, Sharing, WaiterId};

use super::super::{AcquireKind, Connector, messages};
use super::{LeaseFailure, LeaseResult, OpeningStage, PoolEntry, PoolEntryInner};
use crate::clock::{self, Instant, RuntimeHandle};

/// Until when a caller waits for its session.
#[derive(Clone, Copy, Debug)]
pub struct LeaseDeadlines {
    /// While it is queued.
    pub queued: Instant,
    /// While a session is being opened, which has its own limit: a caller that was queued for long
    /// may still have a lost session healed.
    pub opening: Instant,
    /// While the server is connecting, which has limits of its own: programs start slowly.
    pub connecting: Instant,
}

impl From<Instant> for LeaseDeadlines {
    fn from(by: Instant) -> Self {
        Self {
            queued: by,
            opening: by,
            connecting: by,
        }
    }
}

pub(in super::super) struct LeaseWaiter<C: Connector> {
    pub(super) entry: Arc<PoolEntry<C>>,
    pub(super) waiter: WaiterId,
    pub(super) receiver: oneshot::Receiver<LeaseResult<C>>,
    /// How it gets its session, if it gets one.
    pub(in super::super) kind: AcquireKind,
}

impl<C: Connector> LeaseWaiter<C> {
    /// Waits for a lease. If the opening runs in a runtime that stalls, it is given up and the
    /// caller asks again.
    pub(in super::super) async fn wait(
        &mut self,
        since: Instant,
        until: LeaseDeadlines,
    ) -> LeaseResult<C> {
        let Some((home, generation)) = self.opening_in_other_runtime() else {
            return self.wait_until_deadline(since, until).await;
        };
        tokio::select! {
            biased;
            result = self.wait_until_deadline(since, until) => return result,
            () = home.wait_until_stalled() => {
                self.entry.report_opener_lost(generation);
            },
        }
        self.wait_until_deadline(since, until).await
    }

    async fn wait_until_deadline(
        &mut self,
        since: Instant,
        until: LeaseDeadlines,
    ) -> LeaseResult<C> {
        let mut received = clock::timeout_at(until.queued, &mut self.receiver).await;
        if received.is_err()
            && until.queued < until.opening
            && !self
                .entry
                .with_inner(|inner, _| inner.openings().is_empty())
        {
            received = clock::timeout_at(until.opening, &mut self.receiver).await;
        }
        if received.is_err() && until.opening < until.connecting && self.is_connecting() {
            received = clock::timeout_at(until.connecting, &mut self.receiver).await;
        }
        match received {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(LeaseFailure::Requeue),
            Err(_) => self.time_out(clock::now().saturating_duration_since(since)),
        }
    }

    /// An opening of this key in another runtime than the caller's.
    fn opening_in_other_runtime(&self) -> Option<(RuntimeHandle, Generation)> {
        self.entry.with_inner(|inner, _| {
            inner.openings().iter().find_map(|one| {
                let home = one.runtime.clone().filter(|home| !home.is_current())?;
                Some((home, one.generation))
            })
        })
    }

    /// Whether the server is connecting the session that this caller will get. With one session for
    /// each caller, that is the session of the first in the queue.
    fn is_connecting(&self) -> bool {
        self.entry.with_inner(|inner, _| {
            let is_for_all = inner.core.policy().sharing == Sharing::SideBySide;
            (is_for_all || self.kind == AcquireKind::Miss) && inner.is_connecting()
        })
    }

    /// The deadline passed. A result that came at the same moment counts.
    fn time_out(&mut self, waited: Duration) -> LeaseResult<C> {
        let server = self.entry.server();
        // Before the entry is locked: two locks are never held at once.
        let server_max = self.entry.server_max();
        let permits = &self.entry.context.permits;
        let full = permits.blocking_limit_and_max(&self.entry.key, server_max);
        let diagnostic = self.entry.with_inner(|inner, _| {
            if inner.is_connecting() {
                return messages::open_timed_out(server, waited);
            }
            let (policy, counts) = (inner.core.policy(), inner.core.counts());
            messages::pool_full((server, waited), policy, &counts, full.as_ref())
        });
        self.leave_queue();
        self.receiver
            .try_recv()
            .unwrap_or_else(|_| Err(LeaseFailure::Diagnostic(Arc::new(diagnostic))))
    }

    fn leave_queue(&self) {
        let waiter = self.waiter;
        // The sender is dropped after the lock is released: it may wake a task.
        let sender = self.entry.with_inner(|inner, actions| {
            let sender = inner.remove_waiter(waiter)?;
            inner.apply_event(&self.entry, Event::WaiterLeft(waiter), actions);
            Some(sender)
        });
        drop(sender);
    }
}

impl<C: Connector> Drop for LeaseWaiter<C> {
    fn drop(&mut self) {
        self.leave_queue();
        // A lease that came meanwhile is dropped with the channel, and goes to the next caller.
    }
}

impl<C: Connector> PoolEntryInner<C> {
    fn is_connecting(&self) -> bool {
        let mut openings = self.openings().iter();
        openings.any(|one| one.stage == OpeningStage::Connecting)
    }
}
