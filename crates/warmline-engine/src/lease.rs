//! An exclusive lease: the session that one holder uses alone until the lease is dropped.
//!
//! A lost session is not replaced under a lease: half a transaction on a fresh session is worse than
//! an error.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::Semaphore;
use warmline_core::error::code::Reason;
use warmline_core::exchange::Diagnostic;
use warmline_core::pool::LeaseOutcome;

use crate::context::EngineContext;
use crate::events::SessionRef;
use crate::run_state::{self, RunGuard, RunState, RunUse};
use crate::server_state::ServerState;
use crate::session_factory::SessionLease;
use warmline_platform::clock::{self, Instant};
use warmline_platform::lock::Mutex;
use warmline_pool::Lease;

/// The leases that an engine's callers hold, by address: to report long ones and to end them with a run
/// or the engine.
#[derive(Default)]
pub(crate) struct LeaseRegistry(Mutex<HashMap<usize, Weak<LeaseHolder>>>);

pub(crate) struct LeaseHolder {
    registry: Arc<LeaseRegistry>,
    context: Arc<EngineContext>,
    run: Option<Arc<RunState>>,
    pub(crate) server: Arc<ServerState>,
    pub(crate) generation: u32,
    /// Whether state was lost before the lease began.
    pub(crate) began_after_loss: bool,
    held_since: Instant,
    is_reported: AtomicBool,
    state: Mutex<LeaseHolderState>,
    /// Orders the calls of a serial server.
    pub(crate) serial_permits: Semaphore,
}

struct LeaseHolderState {
    lease: Option<SessionLease>,
    /// Keeps the run from becoming idle.
    run_guard: Option<RunGuard>,
    calls: u32,
}

impl LeaseHolder {
    /// Holds a session for a caller.
    ///
    /// # Errors
    /// `run-ended`, `draining` or `closed`, where the run or the engine ended meanwhile.
    pub(crate) fn hold(
        registry: &Arc<LeaseRegistry>,
        context: &Arc<EngineContext>,
        run: Option<&Arc<RunState>>,
        server: &Arc<ServerState>,
        lease: SessionLease,
    ) -> Result<Arc<Self>, Diagnostic> {
        let run_guard = run.map(|run| run.admit(context, RunUse::Session));
        let has_pending_loss = run.is_some_and(|run| run.has_pending_loss(&server.name));
        let holder = Arc::new(Self {
            registry: Arc::clone(registry),
            context: Arc::clone(context),
            run: run.cloned(),
            server: Arc::clone(server),
            generation: lease.generation.number(),
            began_after_loss: lease.unreported_loss().is_some() || has_pending_loss,
            held_since: clock::now(),
            is_reported: AtomicBool::new(false),
            state: Mutex::new(LeaseHolderState {
                run_guard: run_guard.transpose()?,
                lease: Some(lease),
                calls: 0,
            }),
            serial_permits: Semaphore::new(1),
        });
        let address = Arc::as_ptr(&holder).addr();
        registry.0.lock().insert(address, Arc::downgrade(&holder));
        // The end of the run or the engine either found it in the registry or is seen here.
        holder.closed_diagnostic().map_or(Ok(holder), Err)
    }

    pub(crate) fn is_held(&self) -> bool {
        self.state.lock().lease.is_some()
    }

    pub(crate) fn join_lease(&self) -> Result<SessionLease, Diagnostic> {
        let joined = self.state.lock().lease.as_ref().and_then(Lease::sublease);
        joined.ok_or_else(|| {
            // The session may have been lost between two calls.
            self.release();
            self.closed_diagnostic().unwrap_or_else(|| {
                let server = &self.server.name;
                let what = format!("the session of this lease with `{server}` is gone");
                Diagnostic::new(Reason::StateLost, what).with_hint(LEASE_OVER_HINT)
            })
        })
    }

    pub(crate) fn begin_call(&self) -> LeaseCallGuard<'_> {
        self.state.lock().calls += 1;
        LeaseCallGuard(self)
    }

    /// Ends the lease: the session is lost, or no call is admitted any more.
    pub(crate) fn release(&self) {
        let (lease, run_guard) = {
            let mut held = self.state.lock();
            (held.lease.take(), held.run_guard.take())
        };
        if let Some(lease) = lease {
            // Each call has reported what it saw of the session.
            lease.settle(LeaseOutcome::Unused);
        }
        drop(run_guard);
    }

    /// The reason why no call is admitted any more.
    fn closed_diagnostic(&self) -> Option<Diagnostic> {
        self.context.closed_diagnostic().or_else(|| {
            let ended = self.run.as_ref().filter(|run| !run.is_live())?;
            Some(run_state::ended_diagnostic(&ended.name))
        })
    }
}

pub(crate) const LEASE_OVER_HINT: &str = "this lease is over: take a new one and start over";

impl Drop for LeaseHolder {
    fn drop(&mut self) {
        let address = std::ptr::from_ref(self).addr();
        if self.registry.0.lock().remove(&address).is_some() {
            let time = clock::now().saturating_duration_since(self.held_since);
            self.server.metrics.lease_time.record_time(time);
        }
        self.release();
    }
}

pub(crate) struct LeaseCallGuard<'a>(&'a LeaseHolder);

impl Drop for LeaseCallGuard<'_> {
    fn drop(&mut self) {
        let is_idle = {
            let mut held = self.0.state.lock();
            held.calls = held.calls.saturating_sub(1);
            held.calls == 0
        };
        if is_idle && self.0.closed_diagnostic().is_some() {
            self.0.release();
        }
    }
}

impl LeaseRegistry {
    fn all(&self) -> Vec<Arc<LeaseHolder>> {
        self.0.lock().values().filter_map(Weak::upgrade).collect()
    }

    /// The leases held for longer than this, each reported once, with the time.
    pub(crate) fn take_long_held(&self, most: Duration) -> Vec<(SessionRef, Duration)> {
        let now = clock::now();
        let long = self.all().into_iter().filter_map(|holder| {
            let time = now.saturating_duration_since(holder.held_since);
            if time < most || holder.is_reported.swap(true, Ordering::Relaxed) {
                return None;
            }
            holder.server.metrics.long_leases.increment();
            let session = SessionRef::for_server(Arc::clone(&holder.server.name));
            Some((session.with_generation(holder.generation), time))
        });
        long.collect()
    }

    /// Ends the leases of one run, or all. A lease with a call in flight ends after the call.
    pub(crate) fn release(&self, run: Option<&RunState>) {
        for holder in self.all() {
            let is_meant = run.is_none_or(|run| {
                let own = holder.run.as_deref();
                own.is_some_and(|own| std::ptr::eq(own, run))
            });
            let is_idle = holder.state.lock().calls == 0;
            if is_meant && is_idle {
                holder.release();
            }
        }
    }
}
