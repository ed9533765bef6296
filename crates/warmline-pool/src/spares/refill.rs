//! Refilling: spares are opened by tasks.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;
use warmline_core::exchange::Diagnostic;
use warmline_core::pool::spares::{RefillPlan, SpareKey, SpareSet};
use warmline_core::pool::{EndReason, Generation};
use warmline_core::pool_key::{KeyOwner, KeyScope, PoolKey};

use super::super::cleanup::{CleanupToken, HeldUntilCleanup};
use super::super::context::{PoolContext, TaskGuard};
use super::super::{Connector, OpenRequest, PoolEventKind};
use super::{KeySpares, Spare, Spares};
use crate::clock;

/// How long the opening of a spare may still take when the pool drains.
const OPENING_GRACE: Duration = Duration::from_secs(2);

/// How long the next spare waits for the call that took the last one. Starting a process blocks its
/// thread for milliseconds, and that call should not wait behind it.
const REFILL_DELAY: Duration = Duration::from_millis(25);

/// A spare that is being opened. However its task ends, the set of its key learns it.
struct Refill<C: Connector> {
    spares: Arc<Spares<C>>,
    key: SpareKey,
    serial: u64,
    setup: Arc<C::Setup>,
    is_pending: bool,
    _task: TaskGuard<C>,
}

impl<C: Connector> Spares<C> {
    pub(super) fn refill(self: &Arc<Self>, key: &SpareKey) {
        let (old, open, setup, serial) = {
            let mut table = self.by_key.lock();
            let Some(spares) = table.sets.get_mut(key) else {
                return;
            };
            let RefillPlan { close, open } = spares.set.plan_refill(self.context.tick());
            let old: Vec<Spare<C>> = close
                .into_iter()
                .filter_map(|id| spares.remove(id))
                .collect();
            (old, open, Arc::clone(&spares.setup), spares.serial)
        };
        for spare in old {
            self.close_spare(&key.target, spare, EndReason::MaxAge);
        }
        for _ in 0..open {
            let refill = Refill {
                spares: Arc::clone(self),
                key: key.clone(),
                serial,
                setup: Arc::clone(&setup),
                is_pending: true,
                _task: self.context.start_task(),
            };
            if self.context.is_open()
                && let Ok(quota_permit) = Arc::clone(&self.spare_quota).try_acquire_owned()
            {
                clock::spawn_if_running("spare", refill.run(quota_permit));
            }
        }
    }
}

impl<C: Connector> Refill<C> {
    async fn run(mut self, quota_permit: OwnedSemaphorePermit) {
        let context = Arc::clone(&self.spares.context);
        let drain = clock::timeout_at(clock::after(REFILL_DELAY), context.wait_for_drain());
        if drain.await.is_ok() {
            return;
        }
        let began = clock::now();
        let (token, watch) = CleanupToken::new();
        let quota_permit = HeldUntilCleanup::new((quota_permit, context.start_task()), watch);
        let opened = tokio::select! {
            biased;
            opened = self.open_session(token) => opened,
            () = wait_until_unwanted(&context) => return,
        };
        let Some(opened) = opened else { return };
        let took = clock::now().saturating_duration_since(began);
        self.is_pending = false;
        let target = &self.key.target;
        match opened {
            Ok(session) => {
                self.spares.report_opened(&self.key, &self.setup, took);
                let spare = Spare {
                    session,
                    setup: Arc::clone(&self.setup),
                    first_contact: None,
                    _quota_permit: quota_permit.into_inner().map(|(permit, _)| permit),
                };
                match self.insert(spare) {
                    Some(spare) => self.spares.close_spare(target, spare, EndReason::Evicted),
                    None => {
                        let kind = PoolEventKind::SpareOpened { took };
                        context.report_spare(&self.setup, target, kind);
                    },
                }
            },
            Err(diagnostic) => {
                self.update_set(|set| set.on_open_failed(diagnostic.reason, context.tick()));
                let diagnostic = &diagnostic;
                let kind = PoolEventKind::OpenFailed { diagnostic, took };
                context.report_spare(&self.setup, target, kind);
            },
        }
    }

    /// Opens a session that belongs to no identity yet; none while openings pause.
    async fn open_session(
        &self,
        token: CleanupToken,
    ) -> Option<Result<Arc<C::Session>, Diagnostic>> {
        let scope = KeyScope::Shared(self.key.client_profile);
        let (target, credential) = (self.key.target.clone(), self.key.credential);
        let key = PoolKey::new(target, KeyOwner::AnyIdentity, credential, scope);
        let request = OpenRequest {
            setup: Arc::clone(&self.setup),
            key: None,
            generation: Generation::FIRST,
            replaces: None,
            cleanup_token: token,
        };
        self.spares.context.open_spare(&request, &key).await
    }

    /// Keeps an open spare; returns it if it is no longer wanted.
    fn insert(&self, spare: Spare<C>) -> Option<Spare<C>> {
        let mut table = self.spares.by_key.lock();
        let is_open = self.spares.context.is_open();
        match table.sets.get_mut(&self.key) {
            Some(spares) if spares.serial == self.serial && is_open => {
                let id = spares.set.on_opened(self.spares.context.tick());
                spares.insert(id, spare)
            },
            Some(_) | None => Some(spare),
        }
    }

    fn update_set(&self, update: impl FnOnce(&mut SpareSet)) {
        let mut table = self.spares.by_key.lock();
        let spares: Option<&mut KeySpares<C>> = table.sets.get_mut(&self.key);
        if let Some(spares) = spares.filter(|spares| spares.serial == self.serial) {
            update(&mut spares.set);
        }
    }
}

impl<C: Connector> Drop for Refill<C> {
    fn drop(&mut self) {
        if self.is_pending {
            self.update_set(SpareSet::on_open_abandoned);
        }
    }
}

/// Waits until spares are no longer wanted. One that is nearly open is still opened and then closed:
/// the server may have created its session already.
async fn wait_until_unwanted<C: Connector>(context: &PoolContext<C>) {
    context.wait_for_drain().await;
    let never = std::future::pending::<()>();
    clock::timeout_at(clock::after(OPENING_GRACE), never)
        .await
        .ok();
}
