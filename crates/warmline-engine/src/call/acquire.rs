//! Acquires the session for a call: the caller's exclusive lease, or one from the pool.

use std::pin::pin;

use warmline_core::error::code::{Code, Reason};
use warmline_core::exchange::Diagnostic;
use warmline_core::pool::{LeaseMode, QueuePosition};
use warmline_core::pool_key::KeyOwner;

use super::route::{self, Route};
use super::{CallState, admit, run_until_stopped};
use crate::error::Result;
use crate::events::{self, Event, Fingerprint, SessionRef};
use crate::lease::LeaseHolder;
use crate::metrics::AcquireOutcome;
use crate::session_factory::SessionFactory;
use warmline_platform::clock;
use warmline_pool::{AcquireKind, Lease, LeaseDeadlines};

impl<'a> CallState<'a> {
    pub(super) async fn acquire_lease(&mut self) -> Result<(Route, Lease<SessionFactory>)> {
        loop {
            let seen = self.server.discovery_epoch();
            match self.try_acquire_lease().await {
                Ok((route, mut lease)) => {
                    self.note_acquired(&route, &mut lease);
                    return Ok((route, lease));
                },
                // The facts of the server or the cached route are outdated: resolve once more.
                Err(diagnostic)
                    if !self.rerouted
                        && self.exclusive.is_none()
                        && (self.server.discovery_epoch() != seen
                            || diagnostic.reason == Reason::Closed) =>
                {
                    self.rerouted = true;
                    route::forget_route(self.caller, self.server);
                },
                Err(diagnostic) => return Err(self.unsent_error(diagnostic)),
            }
        }
    }

    /// A lease that no request is sent on yet.
    pub(super) async fn acquire_without_request(
        &mut self,
    ) -> Result<(Route, Lease<SessionFactory>)> {
        let admitted = match admit(self.caller) {
            Ok(admitted) => admitted,
            Err(stopped) => return Err(self.stopped_error(stopped)),
        };
        let leased = run_until_stopped(self.caller, pin!(self.acquire_lease())).await;
        drop(admitted);
        leased.unwrap_or_else(|stopped| Err(self.stopped_error(stopped)))
    }

    async fn try_acquire_lease(&mut self) -> Result<(Route, Lease<SessionFactory>), Diagnostic> {
        if let Some(held) = self.exclusive {
            self.acquire_serial_permit(&held.holder).await?;
            self.wait_for_credential(&held.route).await?;
            return Ok((held.route.clone(), held.holder.join_lease()?));
        }
        let policy = &self.settings.policy;
        let tool = self.request.tool.as_deref();
        let per_tool = tool.and_then(|tool| policy.tools.get(tool)?.session_per);
        let route = route::find_route(self.caller, self.server, per_tool);
        let Ok(route) = clock::timeout_at(self.deadline, route).await else {
            return Err(self.timeout_diagnostic("while resolving the server"));
        };
        let route = match self.lease_mode {
            LeaseMode::Exclusive => route?.for_exclusive_use(self.caller),
            LeaseMode::Shared => route?,
        };
        self.wait_for_credential(&route).await?;
        // Resolving the route has other limits. A retry keeps its place in the queue.
        let position = match self.history.attempts() {
            1 => QueuePosition::Back,
            _ => QueuePosition::Front,
        };
        let wait = policy.wait;
        let queued = clock::after(self.remaining_wait());
        let deadlines = LeaseDeadlines {
            queued: queued.min(self.deadline),
            opening: clock::after(wait).min(self.deadline),
            connecting: clock::after(wait.max(self.server.open_time_limit())).min(self.deadline),
        };
        let pool = &self.caller.engine.pool;
        let leased = match &route {
            Route::Pooled(entry) => {
                pool.lease(entry, self.lease_mode, position, deadlines)
                    .await
            },
            Route::PerCall(own) => {
                pool.lease_for_single_call(&own.spare_key, &own.setup, own.owner, deadlines)
                    .await
            },
        };
        match leased {
            Ok(lease) => {
                if matches!(lease.kind(), AcquireKind::Waited) {
                    let left = queued.saturating_duration_since(clock::now());
                    self.queued_for = wait.saturating_sub(left);
                }
                Ok((route, lease))
            },
            // The deadline of the call passed, not the time to wait.
            Err(diagnostic)
                if diagnostic.code == Code::PoolFull && clock::now() >= self.deadline =>
            {
                Err(self.timeout_diagnostic("while waiting for a session"))
            },
            Err(diagnostic) => Err(diagnostic),
        }
    }

    /// Adds the losses that the run knows of to a lease, and logs where its session comes from.
    fn note_acquired(&mut self, route: &Route, lease: &mut Lease<SessionFactory>) {
        let run = self.caller.run.as_ref();
        lease.set_known_loss(|| run?.session_table.known_loss(route.pool_entry()?));
        let generation = lease.generation.number();
        self.generation = Some(generation);
        if self.metrics.is_some() {
            events::log_acquire(
                AcquireOutcome::from(lease.kind()),
                &self.server.name,
                run.map(|run| run.id),
                generation,
                lease.session.session_id(),
            );
        }
    }

    /// Waits for the other calls on the lease of a serial server.
    async fn acquire_serial_permit(&mut self, held: &'a LeaseHolder) -> Result<(), Diagnostic> {
        if self.serial_permit.is_none() && self.settings.policy.serial {
            let turn = clock::timeout_at(self.deadline, held.serial_permits.acquire()).await;
            let late = || self.timeout_diagnostic("while waiting for another call on the lease");
            // It is never closed.
            self.serial_permit = turn.map_err(|_| late())?.ok();
        }
        Ok(())
    }

    async fn wait_for_credential(&self, route: &Route) -> Result<(), Diagnostic> {
        let Some(credential) = &route.setup().credential else {
            return Ok(());
        };
        let ready = clock::timeout_at(self.deadline, credential.ensure_ready()).await;
        if let Ok(ready) = &ready {
            let factory = &self.caller.engine.session_factory;
            factory.record_credential_result(self.server, &self.caller.identity, ready);
        }
        ready.unwrap_or_else(|_| Err(self.timeout_diagnostic("while getting the credential")))
    }

    pub(super) fn timeout_diagnostic(&self, when: &str) -> Diagnostic {
        let what = format!("call to `{}` timed out", self.server.name);
        Diagnostic::new(Reason::TimeoutUnsent, what).with_cause(when)
    }

    /// Checks at the last moment that the session belongs to the caller.
    pub(super) fn check_isolation(&mut self, route: &Route) -> Result<()> {
        let Route::Pooled(entry) = route else {
            return Ok(());
        };
        let (key, caller) = (&entry.key, self.caller);
        let is_own = match key.owner {
            KeyOwner::Identity(owner) => owner == caller.identity.id,
            KeyOwner::AnyIdentity => true,
        };
        let run = key.run();
        if is_own && (run.is_none() || run == caller.run.as_ref().map(|run| run.id)) {
            return Ok(());
        }
        self.server.metrics.isolation_violations.increment();
        caller
            .engine
            .context
            .events
            .emit(Event::IsolationViolation {
                session: SessionRef::for_key(key),
                caller: Some(Fingerprint::from(caller.identity.id)),
            });
        let what = "the session belongs to another caller";
        Err(self.unsent_error(Diagnostic::new(Reason::Internal, what)))
    }
}
