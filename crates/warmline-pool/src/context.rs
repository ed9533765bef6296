//! What all entries and spares of a pool share: the connector, the limits, and the tasks that run.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, Semaphore};
use warmline_core::exchange::Diagnostic;
use warmline_core::policy::EngineLimits;
use warmline_core::pool::EndReason;
use warmline_core::pool_key::{ConfigRevision, PoolKey, TargetKey};
use warmline_core::time::Tick;

use super::breakers::{BreakerTransitions, Breakers, Opener};
use super::permits::SessionPermits;
use super::{Connector, OpenRequest, PoolEvent, PoolEventKind, messages};
use crate::clock::{self, Instant};

/// Most sessions that are closed at the same time: each may need a connection.
const MAX_CONCURRENT_CLOSES: usize = 256;
/// Most sessions of one server that are opened at the same time. A thousand runs that begin at once
/// would otherwise take a thousand sockets, and none would be open any sooner.
const MAX_CONCURRENT_OPENS: usize = 64;

pub(super) struct PoolContext<C: Connector> {
    pub(super) connector: Arc<C>,
    pub(super) permits: Arc<SessionPermits>,
    pub(super) breakers: Arc<Breakers>,
    /// Openings wait for others of the same server only.
    open_limits: papaya::HashMap<(Arc<str>, ConfigRevision), Arc<Semaphore>>,
    close_limit: Semaphore,
    /// Notified when a task or an entry ends.
    pub(super) work_finished: Notify,
    drain_started: Notify,
    running_tasks: AtomicUsize,
    phase: AtomicU8,
    started: Instant,
    pub(super) next_entry_number: AtomicU64,
    pub(super) evict_after: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PoolPhase {
    Open,
    Draining,
    Closed,
}

impl<C: Connector> PoolContext<C> {
    pub(super) fn new(connector: Arc<C>, limits: EngineLimits) -> Arc<Self> {
        let started = clock::now();
        Arc::new(Self {
            connector,
            permits: SessionPermits::new(limits),
            breakers: Breakers::new(started),
            open_limits: papaya::HashMap::new(),
            close_limit: Semaphore::new(MAX_CONCURRENT_CLOSES),
            work_finished: Notify::new(),
            drain_started: Notify::new(),
            running_tasks: AtomicUsize::new(0),
            phase: AtomicU8::new(PoolPhase::Open as u8),
            started,
            next_entry_number: AtomicU64::new(0),
            evict_after: limits.evict_after,
        })
    }

    /// The present moment, as the core counts it.
    pub(super) fn tick(&self) -> Tick {
        Tick::from_start(clock::now().saturating_duration_since(self.started))
    }

    pub(super) fn advance_phase(&self, phase: PoolPhase) {
        self.phase.fetch_max(phase as u8, Ordering::SeqCst);
        self.drain_started.notify_waiters();
    }

    pub(super) async fn wait_for_drain(&self) {
        let mut draining = std::pin::pin!(self.drain_started.notified());
        // Before the look, so that no notification is missed in between.
        draining.as_mut().enable();
        if self.is_open() {
            draining.await;
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.phase.load(Ordering::SeqCst) == PoolPhase::Open as u8
    }

    /// Why the pool takes no new work, if so.
    pub(super) fn rejection(&self, server: &str) -> Option<Diagnostic> {
        match self.phase.load(Ordering::SeqCst) {
            open if open == PoolPhase::Open as u8 => None,
            draining if draining == PoolPhase::Draining as u8 => {
                Some(messages::entry_ended(server, EndReason::Drained))
            },
            _ => Some(messages::pool_closed(server)),
        }
    }

    /// Counts a task until the guard is dropped.
    pub(super) fn start_task(self: &Arc<Self>) -> TaskGuard<C> {
        self.running_tasks.fetch_add(1, Ordering::SeqCst);
        TaskGuard(Arc::clone(self))
    }

    pub(super) fn running_task_count(&self) -> usize {
        self.running_tasks.load(Ordering::SeqCst)
    }

    /// Reports an event of a key; `pooled_key` is none for a single call.
    pub(super) fn report(
        &self,
        setup: &C::Setup,
        key: &PoolKey,
        pooled_key: Option<&PoolKey>,
        kind: PoolEventKind<'_>,
    ) {
        let event = PoolEvent {
            target: &key.target,
            owner: Some(key.owner),
            key: pooled_key,
            kind,
        };
        self.connector.report(setup, &event);
    }

    pub(super) fn report_spare(
        &self,
        setup: &C::Setup,
        target: &TargetKey,
        kind: PoolEventKind<'_>,
    ) {
        let event = PoolEvent {
            target,
            owner: None,
            key: None,
            kind,
        };
        self.connector.report(setup, &event);
    }

    pub(super) fn report_breaker_transitions(
        &self,
        setup: &C::Setup,
        key: &PoolKey,
        transitions: BreakerTransitions,
    ) {
        for (scope, transition) in transitions {
            let kind = PoolEventKind::BreakerChanged { scope, transition };
            self.report(setup, key, None, kind);
        }
    }

    /// Opens a fresh session, if the breakers allow it.
    pub(super) async fn open_session(
        &self,
        request: &OpenRequest<C>,
        key: &PoolKey,
    ) -> Result<Arc<C::Session>, Diagnostic> {
        let limit = self.open_limit(key);
        // The semaphore is never closed.
        let turn = limit.acquire().await.ok();
        let setup = &request.setup;
        let policy = self.connector.breaker_policy(setup);
        let (permit, transitions) = self.breakers.try_acquire(Opener::for_key(key), policy)?;
        self.report_breaker_transitions(setup, key, transitions);
        let opened = self.connector.open(request).await;
        let transitions = match &opened {
            Ok(_) => permit.succeeded(),
            Err(diagnostic) => permit.failed(diagnostic),
        };
        drop(turn);
        self.report_breaker_transitions(setup, key, transitions);
        opened
    }

    /// Opens a spare. Its result counts in no breaker; while openings pause it is not tried.
    pub(super) async fn open_spare(
        &self,
        request: &OpenRequest<C>,
        key: &PoolKey,
    ) -> Option<Result<Arc<C::Session>, Diagnostic>> {
        let limit = self.open_limit(key);
        let _turn = limit.acquire().await.ok();
        let pause = self.breakers.remaining_pause(&Opener::for_key(key));
        match pause {
            Some(_) => None,
            None => Some(self.connector.open(request).await),
        }
    }

    fn open_limit(&self, key: &PoolKey) -> Arc<Semaphore> {
        let target = &key.target;
        let server = (Arc::clone(&target.server), target.revision);
        let limits = self.open_limits.pin();
        let new = || Arc::new(Semaphore::new(MAX_CONCURRENT_OPENS));
        Arc::clone(limits.get_or_insert_with(server, new))
    }

    /// Closes a session in the background. `closed` is dropped when that ended, however it ended.
    pub(super) fn close_session<T: Send + 'static>(
        self: &Arc<Self>,
        session: Arc<C::Session>,
        setup: Arc<C::Setup>,
        key: Option<Arc<PoolKey>>,
        reason: EndReason,
        closed: T,
    ) {
        // Fields drop in this order: the task counts until everything else is done.
        let guard = (closed, self.start_task());
        clock::spawn_if_running("close", async move {
            let (_, TaskGuard(context)) = &guard;
            let turn = context.close_limit.acquire().await.ok();
            let connector = &context.connector;
            connector
                .close(session, &setup, key.as_deref(), reason)
                .await;
            drop(turn);
        });
    }
}

/// A task that the pool waits for before it has drained.
pub(super) struct TaskGuard<C: Connector>(pub(super) Arc<PoolContext<C>>);

impl<C: Connector> Drop for TaskGuard<C> {
    fn drop(&mut self) {
        self.0.running_tasks.fetch_sub(1, Ordering::SeqCst);
        self.0.work_finished.notify_waiters();
    }
}
