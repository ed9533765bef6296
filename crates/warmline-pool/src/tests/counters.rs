//! What a pool holds at one moment, for tests.

use warmline_core::pool::SessionCounts;
use warmline_core::pool::limits::PermitKind;

use super::{Connector, Pool};

/// What there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PoolGauges {
    /// Sessions by state, leases and waiting callers.
    pub(crate) counts: SessionCounts,
    /// Sessions being closed.
    pub(crate) closing: u32,
    /// Idle spares.
    pub(crate) spares: u32,
    /// Spares being opened.
    pub(crate) spares_opening: u32,
    /// Keys in the table.
    pub(crate) keys: u32,
}

/// What there is, with what it takes up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PoolCount {
    pub(crate) gauges: PoolGauges,
    /// Permits held by HTTP sessions.
    pub(crate) session_permits: u32,
    /// Permits held by processes.
    pub(crate) process_permits: u32,
    /// Tasks of the pool that are running.
    pub(crate) running_tasks: u32,
    /// Events that an entry could not make sense of. Always zero, or there is a bug.
    pub(crate) invalid_events: u32,
}

impl<C: Connector> Pool<C> {
    /// Counts what the pool holds now.
    pub(crate) fn count(&self) -> PoolCount {
        let mut count = PoolCount::default();
        for entry in self.table.all() {
            let (counts, closing, invalid_events) = entry.counts();
            count.gauges.counts.merge(&counts);
            count.gauges.closing += closing;
            count.invalid_events += invalid_events;
        }
        for spares in self.spares().counts() {
            count.gauges.spares += spares.idle;
            count.gauges.spares_opening += spares.opening;
        }
        count.gauges.keys = u32::try_from(self.key_count()).unwrap_or(u32::MAX);
        let permits = self.context.permits.table.lock();
        count.session_permits = permits.limits.used_permits(PermitKind::Session);
        count.process_permits = permits.limits.used_permits(PermitKind::Process);
        count.running_tasks = u32::try_from(self.context.running_task_count()).unwrap_or(u32::MAX);
        count
    }
}
