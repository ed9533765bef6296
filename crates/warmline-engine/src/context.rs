//! What the parts of one engine share: the client side, secrets, stores, limits, events and metrics.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use warmline_core::error::code::Reason;
use warmline_core::exchange::Diagnostic;
use warmline_core::policy::EngineLimits;
use warmline_core::time::Tick;

use crate::events::Events;
use crate::metrics::Metrics;
use crate::server_state::ServerState;
use warmline_platform::clock::{self, Instant};
use warmline_platform::lock::Mutex;
use warmline_store::keyring::Keyring;
use warmline_store::{Records, StoreFactory};
use warmline_upstream::Upstream;

#[derive(Debug)]
pub(crate) struct EngineContext {
    pub(crate) upstream: Upstream,
    pub(crate) vault: Arc<Keyring>,
    pub(crate) store_factory: Option<Arc<dyn StoreFactory>>,
    pub(crate) records: Mutex<HashMap<Arc<str>, Option<Arc<Records>>>>,
    pub(crate) limits: EngineLimits,
    pub(crate) events: Events,
    pub(crate) metrics: Metrics,
    pub(crate) started_at: Instant,
    pub(crate) phase: AtomicU8,
}

pub(crate) const OPEN: u8 = 0;
pub(crate) const DRAINING: u8 = 1;
pub(crate) const CLOSED: u8 = 2;

pub(crate) fn draining_diagnostic() -> Diagnostic {
    Diagnostic::new(Reason::Draining, "this engine is shutting down")
}

impl EngineContext {
    /// The reason why no call is admitted any more.
    pub(crate) fn closed_diagnostic(&self) -> Option<Diagnostic> {
        match self.phase.load(Ordering::Acquire) {
            OPEN => None,
            DRAINING => Some(draining_diagnostic()),
            _ => Some(Diagnostic::new(Reason::Closed, "this engine is closed")),
        }
    }

    pub(crate) fn tick(&self) -> Tick {
        Tick::from_start(clock::now().saturating_duration_since(self.started_at))
    }

    pub(crate) fn records_of(&self, entry: &ServerState) -> Option<Arc<Records>> {
        let stores = self.store_factory.as_ref()?;
        let mut known = self.records.lock();
        known
            .entry(Arc::clone(&entry.name))
            .or_insert_with(|| {
                let store = stores.store_for(&entry.declaration.card)?;
                let vault = Arc::clone(&self.vault);
                Some(Arc::new(Records::new(
                    store,
                    vault,
                    self.limits.store_timeout,
                )))
            })
            .clone()
    }
}
