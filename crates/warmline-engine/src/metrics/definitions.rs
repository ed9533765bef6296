//! Every metric, declared once: field, type, name, labels and help.
//!
//! Prometheus output adds the prefix `warmline_` to each name and the label `server` to the metrics
//! of servers.

use std::sync::Arc;
use std::time::Duration;

use super::counters::{
    Counter, Gauge, Histogram, HistogramUnit, LabeledCounter, LabeledGauge, LastOccurrence,
    TwoLabelCounter, TwoLabelGauge,
};
use super::labels::{
    AcquireOutcome, BreakerScope, CallDelivery, CallOutcome, CheckResult, ChildEnd, HealCause,
    HealResult, MethodLabel, OpenResult, RefreshResult, SessionState, StoreOperation, StoreResult,
};
use super::snapshot::MetricSample;
use warmline_core::delivery::Delivery;
use warmline_core::error::code::{Code, Reason};
use warmline_core::pool::EndReason;
use warmline_core::pool::breaker::BreakerState;
use warmline_core::protocol::session_gone::SessionGoneForm;
use warmline_core::word_enum::word_enum;

/// A store counts as degraded for this long after a failure: records are renewed once a minute, so a
/// store that still fails reports that again.
const STORE_DEGRADED_FOR: Duration = Duration::from_secs(150);

word_enum! {
    /// The kind of a metric, with its word in Prometheus output.
    pub enum MetricKind {
        /// It only grows.
        Counter = "counter",
        /// It goes up and down.
        Gauge = "gauge",
        /// It counts values by size.
        Histogram = "histogram",
    }
}

/// One metric.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Metric {
    /// Its name, without the prefix.
    pub name: &'static str,
    /// Its kind.
    pub kind: MetricKind,
    /// Its labels besides `server`.
    pub labels: &'static [&'static str],
    /// What it says.
    pub help: &'static str,
}

impl Metric {
    /// A metric, also of a program that counts on top of the engine.
    pub const fn new(
        kind: MetricKind,
        name: &'static str,
        labels: &'static [&'static str],
        help: &'static str,
    ) -> Self {
        Self {
            name,
            kind,
            labels,
            help,
        }
    }

    /// The metric of that name.
    pub fn find(name: &str) -> Option<&'static Self> {
        METRICS.iter().find(|metric| metric.name == name)
    }
}

pub(super) trait Sampled {
    const KIND: MetricKind;

    /// Appends its samples; `words` are the values of labels so far.
    fn push_samples(&self, name: &'static str, words: &[&'static str], to: &mut Vec<MetricSample>);
}

/// Declares the metrics of the engine and of servers. Derived metrics are gauges that a snapshot
/// computes; hidden fields are only counted for them.
macro_rules! metrics {
    (
        engine { $($efield:ident: $etype:ty $(= $einit:expr)?,
            $ename:literal $elabels:tt $ehelp:literal;)+ }
        server { $($sfield:ident: $stype:ty $(= $sinit:expr)?,
            $sname:literal $slabels:tt $shelp:literal;)+ }
        derived { $($dname:literal $dhelp:literal $derive:expr;)+ }
        hidden { $(#[doc = $hdoc:literal] $hfield:ident: $htype:ty;)+ }
    ) => {
        /// Every metric.
        pub const METRICS: &[Metric] = &[
            $(Metric::new(<$stype as Sampled>::KIND, $sname, &$slabels, $shelp),)+
            $(Metric::new(MetricKind::Gauge, $dname, &[], $dhelp),)+
            $(Metric::new(<$etype as Sampled>::KIND, $ename, &$elabels, $ehelp),)+
        ];

        /// The metrics that belong to no server.
        #[derive(Debug)]
        pub struct EngineMetrics {
            $(#[doc = $ehelp] pub $efield: $etype,)+
        }

        impl Default for EngineMetrics {
            fn default() -> Self {
                Self { $($efield: metrics!(@init $($einit)?),)+ }
            }
        }

        impl EngineMetrics {
            pub(super) fn samples(&self) -> Vec<MetricSample> {
                let mut samples = Vec::new();
                $(self.$efield.push_samples($ename, &[], &mut samples);)+
                samples
            }
        }

        /// The metrics of one server.
        #[derive(Debug)]
        pub struct ServerMetrics {
            server: Arc<str>,
            $(#[doc = $shelp] pub $sfield: $stype,)+
            $(#[doc = $hdoc] pub $hfield: $htype,)+
        }

        impl ServerMetrics {
            pub(super) fn new(server: Arc<str>) -> Self {
                Self {
                    server,
                    $($sfield: metrics!(@init $($sinit)?),)+
                    $($hfield: Default::default(),)+
                }
            }

            pub(super) fn samples(&self) -> Vec<MetricSample> {
                let mut samples = Vec::new();
                $(self.$sfield.push_samples($sname, &[], &mut samples);)+
                $({
                    let gauge = Gauge::default();
                    let derive: fn(&Self) -> u64 = $derive;
                    gauge.set(derive(self));
                    gauge.push_samples($dname, &[], &mut samples);
                })+
                samples
            }
        }
    };
    (@init) => { Default::default() };
    (@init $init:expr) => { $init };
}

// M-numbers are those of the acceptance cases.
metrics! {
    engine {
        // M14
        runs: Gauge, "runs" [] "Runs that are live";
        sessions_per_run: Histogram = Histogram::new(HistogramUnit::Count),
            "run_sessions" [] "Sessions that a run had when it ended";
        // M9
        keys: Gauge, "keys" [] "Keys the pool knows";
        keys_evicted: Counter, "keys_evicted_total" []
            "Keys that were empty for long and forgotten";
        sessions_limit: Gauge, "sessions_limit" [] "HTTP sessions that there may be";
        children_limit: Gauge, "children_limit" [] "Child processes that there may be";
        invariant_failures: Counter, "invariant_failed_total" []
            "Promises that were broken; must stay 0";
        gauge_underflows: Counter, "drift_total" []
            "Levels that were asked to go below zero; must stay 0";
    }
    server {
        // M1, M2
        acquires: LabeledCounter<AcquireOutcome>, "acquires_total" ["outcome"]
            "How calls came by their sessions";
        sessions: LabeledGauge<SessionState>, "sessions" ["state"]
            "Sessions by what they are doing";
        // M3
        opens: LabeledCounter<OpenResult>, "opens_total" ["result"] "Openings by how they ended";
        open_time: Histogram, "open_seconds" [] "How long openings took";
        // M4
        heals: TwoLabelCounter<HealCause, HealResult>, "reinits_total" ["cause", "result"]
            "Healings by what showed the loss and how they ended";
        session_gone: LabeledCounter<SessionGoneForm>, "session_gone_total" ["dialect"]
            "Forms in which servers said that a session is gone";
        session_gone_age: Histogram, "session_gone_age_seconds" []
            "Age at which servers dropped sessions";
        // M5
        checks: LabeledCounter<CheckResult>, "checks_total" ["result"]
            "Health checks by what they found";
        check_time: Histogram, "check_seconds" [] "How long health checks took";
        // M6
        closes: LabeledCounter<EndReason>, "closes_total" ["why"] "Closed sessions by why";
        // M7
        breakers: TwoLabelGauge<BreakerScope, BreakerState>, "breaker_state" ["scope", "state"]
            "Breakers that are not passing";
        breaker_changes: TwoLabelCounter<BreakerScope, BreakerState>,
            "breaker_changes_total" ["scope", "state"]
            "Changes of breakers by the state they went to";
        breaker_pause: Gauge, "cooldown_seconds" []
            "Seconds until an opening is tried again where they pause for everybody, else 0";
        // M8
        waiters: Gauge, "waiters" [] "Callers in line for a session";
        wait_time: Histogram, "wait_seconds" [] "How long callers stood in line";
        wait_timeouts: Counter, "wait_timeouts_total" []
            "Callers whose time was over while they stood in line";
        refusals: LabeledCounter<Code>, "refused_total" ["reason"]
            "Calls turned away before they were sent";
        // M10
        call_deliveries: LabeledCounter<CallDelivery>, "calls_total" ["delivery"]
            "Calls by what is known of them; `cancelled` are those that their callers gave up, and what they listened to";
        calls: TwoLabelCounter<MethodLabel, CallOutcome>,
            "call_outcomes_total" ["method", "outcome"] "Calls by method and how they ended";
        failures: TwoLabelCounter<Delivery, Code>, "call_failures_total" ["delivery", "code"]
            "Calls that ended with an error, by code";
        call_time: Histogram, "call_seconds" []
            "How long calls took, attempts and waiting included";
        overhead_time: Histogram = Histogram::new(HistogramUnit::ShortTime),
            "overhead_seconds" [] "How long our own code ran for a call, all waiting apart";
        attempts: Counter, "attempts_total" [] "Requests handed to a session";
        resends: LabeledCounter<Reason>, "resends_total" ["reason"]
            "Attempts after the first of their call";
        server_requests_refused: Counter, "questions_refused_total" []
            "Questions that could be of calls of several callers, and were refused";
        notifications_withheld: Counter, "notices_withheld_total" []
            "Notices that could be of another identity's call, and were told to nobody";
        lease_time: Histogram, "lease_seconds" [] "How long leases were held";
        long_leases: Counter, "leases_over_warn_total" []
            "Leases held longer than anybody should";
        // M11
        children: Gauge, "children" [] "Child processes that live";
        child_starts: Counter, "child_starts_total" [] "Child processes started";
        child_restarts: Counter, "child_restarts_total" []
            "Child processes started in place of one that ended by itself";
        child_ends: LabeledCounter<ChildEnd>, "child_exits_total" ["how"]
            "Child processes that ended";
        orphans_killed: Counter, "orphans_killed_total" []
            "Processes that outlived the child process that started them, and were killed";
        // M12
        store: TwoLabelCounter<StoreOperation, StoreResult>,
            "store_operations_total" ["op", "result"]
            "What was asked of the store, and what it did";
        store_time: Histogram, "store_seconds" [] "How long the store took";
        // M13
        refreshes: LabeledCounter<RefreshResult>, "credential_refreshes_total" ["result"]
            "What came of asking for a credential again";
        possible_orphans: Counter, "orphans_possible_total" []
            "Handshakes (`initialize`) that were sent and never answered: each may have left a session at the server";
        isolation_violations: Counter, "isolation_violation_total" []
            "Calls that met a session of another identity; must stay 0";
    }
    derived {
        "calls_under_way" "Calls that began and have not ended" |metrics| metrics.calls_under_way();
        "store_degraded" "1 if the store failed or took too long in the last 150 seconds, else 0"
            |metrics| u64::from(metrics.last_store_failure.occurred_within(STORE_DEGRADED_FOR));
    }
    hidden {
        /// Calls that began.
        calls_started: Counter;
        /// When the store last failed, or took too long.
        last_store_failure: LastOccurrence;
    }
}

impl ServerMetrics {
    /// The server's name.
    pub fn server(&self) -> &Arc<str> {
        &self.server
    }

    /// Calls that began and have not ended.
    pub(crate) fn calls_under_way(&self) -> u64 {
        // Ends are read first: a call in between must not make the difference negative.
        let ended = self.call_deliveries.total();
        self.calls_started.count().saturating_sub(ended)
    }
}

impl warmline_upstream::HandshakeObserver for ServerMetrics {
    fn initialize_lost(&self) {
        self.possible_orphans.increment();
    }
}
