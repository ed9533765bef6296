//! Permits: each session in a limit holds one, until it is closed.
//!
//! A dropped permit goes to the longest waiter. All limits are under one short lock that only
//! openings and closings take, never a call on an open session.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{Notify, oneshot};
use warmline_core::policy::EngineLimits;
use warmline_core::pool::limits::{
    ClaimId, ClaimOutcome, GrantedClaims, PermitClaim, SessionLimit, SessionLimits,
};
use warmline_core::pool_key::PoolKey;

use crate::lock::Mutex;

pub(super) struct SessionPermits {
    pub(super) table: Mutex<PermitTable>,
    waiter_count: AtomicUsize,
}

pub(super) struct PermitTable {
    pub(super) limits: SessionLimits,
    waiters: BTreeMap<ClaimId, PermitNotifier>,
}

struct PermitNotifier {
    key: Arc<PoolKey>,
    sender: oneshot::Sender<SessionPermit>,
    /// Notified when another limit blocks it.
    requeued: Arc<Notify>,
}

/// The permit of one session. Dropping it releases it.
#[must_use = "dropping a permit releases it"]
pub struct SessionPermit {
    permits: Arc<SessionPermits>,
    key: Arc<PoolKey>,
    is_release_announced: bool,
}

pub(super) enum PermitOutcome {
    /// The server holds nothing per session.
    NotNeeded,
    Granted(SessionPermit),
    Queued(PermitWaiter),
}

/// A queued claim. Dropping it leaves the queue.
pub(super) struct PermitWaiter {
    permits: Arc<SessionPermits>,
    claim: ClaimId,
    blocking_limit: SessionLimit,
    receiver: oneshot::Receiver<SessionPermit>,
    requeued: Arc<Notify>,
}

impl SessionPermits {
    pub(super) fn new(ceilings: EngineLimits) -> Arc<Self> {
        Arc::new(Self {
            table: Mutex::new(PermitTable {
                limits: SessionLimits::new(ceilings),
                waiters: BTreeMap::new(),
            }),
            waiter_count: AtomicUsize::new(0),
        })
    }

    pub(super) fn claim(
        self: &Arc<Self>,
        key: &Arc<PoolKey>,
        server_max: Option<u32>,
    ) -> PermitOutcome {
        let Some(claim) = PermitClaim::for_key(key, server_max) else {
            return PermitOutcome::NotNeeded;
        };
        let mut table = self.table.lock();
        let (claim, blocking_limit) = match table.limits.claim(claim) {
            ClaimOutcome::Granted => return PermitOutcome::Granted(self.permit(Arc::clone(key))),
            ClaimOutcome::Queued(claim, full) => (claim, full),
        };
        let (sender, receiver) = oneshot::channel();
        let requeued = Arc::<Notify>::default();
        let notifier = PermitNotifier {
            key: Arc::clone(key),
            sender,
            requeued: Arc::clone(&requeued),
        };
        table.waiters.insert(claim, notifier);
        self.count_waiters(&table);
        PermitOutcome::Queued(PermitWaiter {
            permits: Arc::clone(self),
            claim,
            blocking_limit,
            receiver,
            requeued,
        })
    }

    fn permit(self: &Arc<Self>, key: Arc<PoolKey>) -> SessionPermit {
        SessionPermit {
            permits: Arc::clone(self),
            key,
            is_release_announced: false,
        }
    }

    fn count_waiters(&self, table: &PermitTable) {
        let waiters = table.limits.queued_claims();
        self.waiter_count.store(waiters, Ordering::Relaxed);
    }

    /// Whether closing a session of this key would help a waiter.
    pub(super) fn is_wanted(&self, key: &PoolKey) -> bool {
        // There is rarely a waiter, and without one no lock is taken.
        if self.waiter_count.load(Ordering::Relaxed) == 0 {
            return false;
        }
        PermitClaim::for_key(key, None)
            .is_some_and(|claim| self.table.lock().limits.is_needed(&claim))
    }

    /// The limit that blocks a session of this key now, and its maximum.
    pub(super) fn blocking_limit_and_max(
        &self,
        key: &PoolKey,
        server_max: Option<u32>,
    ) -> Option<(SessionLimit, u32)> {
        let claim = PermitClaim::for_key(key, server_max)?;
        self.table.lock().limits.blocking_limit_and_max(&claim)
    }

    pub(super) fn set_server_max(self: &Arc<Self>, server: &str, most: Option<u32>) {
        self.update_limits(|limits| limits.set_server_max(server, most));
    }

    /// Changes the limits, and hands permits to the waiters that this unblocks.
    fn update_limits(self: &Arc<Self>, change: impl FnOnce(&mut SessionLimits) -> GrantedClaims) {
        let granted: Vec<PermitNotifier> = {
            let mut table = self.table.lock();
            let granted = change(&mut table.limits);
            self.count_waiters(&table);
            for claim in table.limits.take_requeued() {
                if let Some(notifier) = table.waiters.get(&claim) {
                    notifier.requeued.notify_one();
                }
            }
            let notifiers = granted
                .iter()
                .filter_map(|claim| table.waiters.remove(claim));
            notifiers.collect()
        };
        for PermitNotifier { key, sender, .. } in granted {
            // If the waiter just left, the permit is dropped with the channel.
            drop(sender.send(self.permit(key)));
        }
    }
}

impl SessionPermit {
    /// The permit will be released as soon as its session is closed.
    pub(super) fn announce_release(&mut self) {
        if !self.is_release_announced
            && let Some(claim) = PermitClaim::for_key(&self.key, None)
        {
            self.is_release_announced = true;
            self.permits.table.lock().limits.announce_release(&claim);
        }
    }

    /// Assigns a permit of no identity to a key; false if the identity of the key is at its limit.
    pub(super) fn transfer_to(&mut self, key: &Arc<PoolKey>, server_max: Option<u32>) -> bool {
        let Some(claim) = PermitClaim::for_key(key, server_max) else {
            return false;
        };
        let is_assigned = self.permits.table.lock().limits.assign_to_identity(&claim);
        if is_assigned {
            self.key = Arc::clone(key);
        }
        is_assigned
    }

    pub(super) fn is_wanted(&self) -> bool {
        self.permits.is_wanted(&self.key)
    }

    /// Whether releasing it makes room in a limit that blocks this claimant.
    pub(super) fn unblocks(&self, claimant: &PoolKey, full: &SessionLimit) -> bool {
        PermitClaim::for_key(claimant, None)
            .is_some_and(|claim| claim.is_unblocked_by_closing(full, &self.key))
    }

    /// Whether a limit was lowered below the permits in use.
    pub(super) fn is_over_limit(&self, server_max: Option<u32>) -> bool {
        PermitClaim::for_key(&self.key, server_max)
            .is_some_and(|claim| self.permits.table.lock().limits.is_over_limit(&claim))
    }
}

impl Drop for SessionPermit {
    fn drop(&mut self) {
        if let Some(claim) = PermitClaim::for_key(&self.key, None) {
            let was_announced = self.is_release_announced;
            self.permits
                .update_limits(|limits| limits.release(&claim, was_announced));
        }
    }
}

impl PermitWaiter {
    /// Waits for the permit, and calls `evict` for each limit that blocks it, one after the other.
    /// None only if the pool is being torn down.
    pub(super) async fn wait(&mut self, evict: impl Fn(&SessionLimit)) -> Option<SessionPermit> {
        loop {
            evict(&self.blocking_limit);
            tokio::select! {
                biased;
                permit = &mut self.receiver => return permit.ok(),
                () = self.requeued.notified() => {},
            }
            match self.queued_limit() {
                Some(full) => self.blocking_limit = full,
                None => return (&mut self.receiver).await.ok(),
            }
        }
    }

    fn queued_limit(&self) -> Option<SessionLimit> {
        let table = self.permits.table.lock();
        table.limits.queued_limit(self.claim).cloned()
    }
}

impl Drop for PermitWaiter {
    fn drop(&mut self) {
        let notifier = {
            let mut table = self.permits.table.lock();
            table.limits.cancel_claim(self.claim);
            self.permits.count_waiters(&table);
            table.waiters.remove(&self.claim)
        };
        drop(notifier);
        // A permit that came meanwhile is dropped with the channel.
    }
}
