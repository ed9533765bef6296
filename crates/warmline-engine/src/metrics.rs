//! Metrics: how often things happened and how long they took, by server and never by identity.
//!
//! A server's metrics are looked up once, when the server becomes known ([`Metrics::server`]): a call
//! takes no lock and reads no map for them, and adds a few atomic additions. All labels are
//! [closed sets](WordEnum).

mod call_recorder;
mod counters;
mod definitions;
mod histogram;
mod labels;
mod server_status;
mod snapshot;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use call_recorder::CallRecorder;
pub use counters::{
    Counter, Gauge, Labeled, LabeledCounter, LabeledGauge, LastOccurrence, TwoLabelCounter,
    TwoLabelGauge,
};
pub use definitions::{EngineMetrics, METRICS, Metric, MetricKind, ServerMetrics};
pub use histogram::{Histogram, HistogramSnapshot, HistogramUnit};
pub use labels::{
    AcquireOutcome, BreakerScope, CallDelivery, CallOutcome, CheckResult, ChildEnd, HealCause,
    HealResult, MethodLabel, OpenResult, RefreshResult, SessionState, StoreOperation, StoreResult,
};
pub use server_status::{ServerCondition, ServerFailure, ServerStatus};
pub use snapshot::{MetricSample, RunStatus, SampleValue, ServerSamples, SessionStatus, Snapshot};
pub use warmline_core::word_enum::WordEnum;

use warmline_platform::lock::Mutex;

/// The metrics of one engine.
#[derive(Debug, Default)]
pub struct Metrics {
    servers: Mutex<BTreeMap<Arc<str>, ServerMetricsEntry>>,
    /// The metrics that belong to no server.
    pub engine: EngineMetrics,
}

/// The metrics of a server, which are shown while anybody uses them.
#[derive(Debug)]
struct ServerMetricsEntry {
    metrics: Arc<ServerMetrics>,
    is_declared: bool,
    /// The users of undeclared servers of that name.
    undeclared_users: usize,
}

impl Metrics {
    /// The metrics of a declared server. Keep them: this takes a lock.
    pub fn server(&self, name: &str) -> Arc<ServerMetrics> {
        self.get_or_create(name, |entry| entry.is_declared = true)
    }

    /// The metrics of an undeclared server, until [`release_undeclared`](Self::release_undeclared).
    pub(crate) fn acquire_undeclared(&self, name: &str) -> Arc<ServerMetrics> {
        self.get_or_create(name, |entry| entry.undeclared_users += 1)
    }

    fn get_or_create(
        &self,
        name: &str,
        note: impl FnOnce(&mut ServerMetricsEntry),
    ) -> Arc<ServerMetrics> {
        let mut servers = self.servers.lock();
        let name: Arc<str> = name.into();
        let entry = servers
            .entry(Arc::clone(&name))
            .or_insert_with(|| ServerMetricsEntry {
                metrics: Arc::new(ServerMetrics::new(name)),
                is_declared: false,
                undeclared_users: 0,
            });
        note(entry);
        Arc::clone(&entry.metrics)
    }

    /// Hides the metrics of a removed server. Those that hold them may go on counting.
    pub fn forget_server(&self, name: &str) {
        self.update_and_prune(name, |entry| entry.is_declared = false);
    }

    /// A user of an undeclared server is done with it.
    pub(crate) fn release_undeclared(&self, name: &str) {
        self.update_and_prune(name, |entry| {
            entry.undeclared_users = entry.undeclared_users.saturating_sub(1);
        });
    }

    fn update_and_prune(&self, name: &str, note: impl FnOnce(&mut ServerMetricsEntry)) {
        let mut servers = self.servers.lock();
        let Some(entry) = servers.get_mut(name) else {
            return;
        };
        note(entry);
        if !entry.is_declared && entry.undeclared_users == 0 {
            servers.remove(name);
        }
    }

    /// All values now. The engine fills in sessions, runs and servers.
    pub fn snapshot(&self) -> Snapshot {
        let servers = self.servers.lock();
        let servers = servers.values().map(|entry| ServerSamples {
            server: Arc::clone(entry.metrics.server()),
            samples: entry.metrics.samples(),
        });
        Snapshot {
            servers: servers.collect(),
            engine: self.engine.samples(),
            ..Snapshot::default()
        }
    }
}
