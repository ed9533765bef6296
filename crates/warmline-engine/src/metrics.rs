//! Metrics: how often things happened and how long they took, by server and never by identity.
//!
//! A server's metrics are looked up once, when the server becomes known ([`Metrics::server`]): a call
//! takes no lock and reads no map for them, and adds a few atomic additions. All labels are
//! [closed sets](WordEnum).

mod counters;
mod definitions;
mod labels;
mod snapshot;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

pub use counters::{
    Counter, Gauge, Histogram, HistogramSnapshot, HistogramUnit, Labeled, LabeledCounter,
    LabeledGauge, LastOccurrence, TwoLabelCounter, TwoLabelGauge,
};
pub use definitions::{EngineMetrics, METRICS, Metric, MetricKind, ServerMetrics};
pub use labels::{
    AcquireOutcome, BreakerScope, CallDelivery, CallOutcome, CheckResult, ChildEnd, HealCause,
    HealResult, MethodLabel, OpenResult, RefreshResult, SessionState, StoreOperation, StoreResult,
};
pub use snapshot::{
    MetricSample, RunStatus, SampleValue, ServerCondition, ServerFailure, ServerSamples,
    ServerStatus, SessionStatus, Snapshot,
};
use warmline_core::delivery::Delivery;
use warmline_core::error::code::Code;
pub use warmline_core::word_enum::WordEnum;

use warmline_platform::clock::{self, Instant};
use warmline_platform::lock::Mutex;

/// The metrics of one engine.
#[derive(Debug, Default)]
pub struct Metrics {
    servers: Mutex<BTreeMap<Arc<str>, ServerMetricsEntry>>,
    /// The metrics that belong to no server.
    pub engine: EngineMetrics,
}

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

/// A call in flight. It counts once, however it ends, so that calls are the sum of their outcomes
/// (I28). Dropped, it counts as cancelled.
#[derive(Debug)]
pub struct CallRecorder {
    metrics: Arc<ServerMetrics>,
    /// What was asked for.
    pub method: MethodLabel,
    started_at: Instant,
    /// How often it was sent.
    pub attempts: u32,
    /// The delivery if the caller gives up now.
    delivery_if_dropped: Delivery,
    is_finished: bool,
}

impl CallRecorder {
    /// Starts counting.
    pub fn start(metrics: &Arc<ServerMetrics>, method: &str) -> Self {
        metrics.calls_started.increment();
        Self {
            metrics: Arc::clone(metrics),
            method: MethodLabel::from_method(method),
            started_at: clock::now(),
            attempts: 0,
            delivery_if_dropped: Delivery::Unsent,
            is_finished: false,
        }
    }

    /// An attempt begins: from now on a dropped call may have been executed.
    pub fn record_attempt(&mut self) {
        self.attempts = self.attempts.saturating_add(1);
        self.metrics.attempts.increment();
        self.delivery_if_dropped = Delivery::Unknown;
    }

    /// The time since the start.
    pub fn elapsed(&self) -> Duration {
        clock::now().saturating_duration_since(self.started_at)
    }

    /// The call was answered.
    pub fn finish_answered(mut self, outcome: CallOutcome) {
        self.finish(outcome, Delivery::Answered, None);
    }

    /// The call ended with an error.
    pub fn finish_failed(mut self, delivery: Delivery, code: Code) {
        self.finish(call_outcome(delivery, code), delivery, Some(code));
    }

    fn finish(&mut self, outcome: CallOutcome, delivery: Delivery, code: Option<Code>) {
        self.is_finished = true;
        let metrics = &self.metrics;
        metrics.calls.increment(self.method, outcome);
        metrics
            .call_deliveries
            .increment(self.call_delivery(delivery, code));
        if let Some(code) = code {
            metrics.failures.increment(delivery, code);
        }
        metrics.call_time.record_time(self.elapsed());
    }

    /// The delivery that is counted. Whether a call ran that its caller gave up matters to nobody, and
    /// a request that only listens runs nothing.
    fn call_delivery(&self, delivery: Delivery, code: Option<Code>) -> CallDelivery {
        let is_given_up =
            code == Some(Code::Cancelled) || matches!(self.method, MethodLabel::Listen);
        if is_given_up && delivery == Delivery::Unknown {
            CallDelivery::Cancelled
        } else {
            CallDelivery::from_delivery(delivery)
        }
    }
}

impl Drop for CallRecorder {
    fn drop(&mut self) {
        if !self.is_finished {
            self.finish(
                CallOutcome::Cancelled,
                self.delivery_if_dropped,
                Some(Code::Cancelled),
            );
        }
    }
}

fn call_outcome(delivery: Delivery, code: Code) -> CallOutcome {
    if code == Code::Cancelled {
        CallOutcome::Cancelled
    } else if code == Code::Deadline {
        CallOutcome::Timeout
    } else {
        match delivery {
            Delivery::Unsent | Delivery::Refused => CallOutcome::NotExecuted,
            Delivery::Answered => CallOutcome::ProtocolError,
            Delivery::Unknown => CallOutcome::OutcomeUnknown,
        }
    }
}

impl MethodLabel {
    /// The label of a method.
    pub fn from_method(method: &str) -> Self {
        Self::parse(method).unwrap_or(Self::Other)
    }
}

impl CallDelivery {
    /// What is known of a call that its caller waited for.
    pub const fn from_delivery(delivery: Delivery) -> Self {
        match delivery {
            Delivery::Unsent => Self::Unsent,
            Delivery::Refused => Self::Refused,
            Delivery::Answered => Self::Answered,
            Delivery::Unknown => Self::Unknown,
        }
    }
}
