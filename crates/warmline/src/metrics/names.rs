//! The names that metrics go by outside, as a table.
//!
//! Asked by: [`super::Snapshot`], and whoever writes the numbers out in Prometheus's form, where
//! each name gets the prefix `warmline_` and the label `server` besides its own.

/// What kind of number it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It only grows.
    Counter,
    /// It goes up and down.
    Gauge,
    /// It counts values by size.
    Histogram,
}

impl Kind {
    /// The word in Prometheus's form.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// One metric.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Metric {
    /// Its name, without the prefix.
    pub name: &'static str,
    /// What kind of number it is.
    pub kind: Kind,
    /// Its labels besides `server`.
    pub labels: &'static [&'static str],
    /// What it says.
    pub help: &'static str,
}

const fn counter(
    name: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
) -> Metric {
    Metric {
        name,
        kind: Kind::Counter,
        labels,
        help,
    }
}

const fn gauge(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Metric {
    Metric {
        name,
        kind: Kind::Gauge,
        labels,
        help,
    }
}

const fn histogram(name: &'static str, help: &'static str) -> Metric {
    Metric {
        name,
        kind: Kind::Histogram,
        labels: &[],
        help,
    }
}

/// Every metric.
pub const METRICS: &[Metric] = &[
    counter(
        "acquires_total",
        &["outcome"],
        "How calls came by their sessions",
    ),
    gauge("sessions", &["state"], "Sessions by what they are doing"),
    counter("opens_total", &["result"], "Openings by how they ended"),
    histogram("open_seconds", "How long openings took"),
    counter(
        "reinits_total",
        &["cause", "result"],
        "Healings by what showed the loss and how they ended",
    ),
    counter(
        "session_gone_total",
        &["dialect"],
        "Forms in which servers said that a session is gone",
    ),
    histogram(
        "session_gone_age_seconds",
        "Age at which servers dropped sessions",
    ),
    counter(
        "checks_total",
        &["result"],
        "Health checks by what they found",
    ),
    histogram("check_seconds", "How long health checks took"),
    counter("closes_total", &["why"], "Closed sessions by why"),
    gauge(
        "breaker_state",
        &["scope", "state"],
        "Breakers that are not passing",
    ),
    counter(
        "breaker_changes_total",
        &["scope", "state"],
        "Changes of breakers by the state they went to",
    ),
    gauge(
        "cooldown_seconds",
        &[],
        "Seconds until an opening is tried again where they pause for everybody, else 0",
    ),
    gauge("waiters", &[], "Callers in line for a session"),
    histogram("wait_seconds", "How long callers stood in line"),
    counter(
        "wait_timeouts_total",
        &[],
        "Callers whose time was over while they stood in line",
    ),
    counter(
        "refused_total",
        &["reason"],
        "Calls turned away before they were sent",
    ),
    gauge(
        "calls_under_way",
        &[],
        "Calls that began and have not ended",
    ),
    counter(
        "calls_total",
        &["delivery"],
        "Calls by what is known of them; `cancelled` are those that their callers gave up, and what they listened to",
    ),
    counter(
        "call_outcomes_total",
        &["method", "outcome"],
        "Calls by method and how they ended",
    ),
    counter(
        "call_failures_total",
        &["delivery", "code"],
        "Calls that ended with an error, by code",
    ),
    histogram(
        "call_seconds",
        "How long calls took, attempts and waiting included",
    ),
    histogram(
        "overhead_seconds",
        "How long our own code ran for a call, all waiting apart",
    ),
    counter("attempts_total", &[], "Requests handed to a session"),
    counter(
        "resends_total",
        &["reason"],
        "Attempts after the first of their call",
    ),
    counter(
        "questions_refused_total",
        &[],
        "Questions that could be of calls of several callers, and were refused",
    ),
    counter(
        "notices_withheld_total",
        &[],
        "Notices that could be of another identity's call, and were told to nobody",
    ),
    histogram("lease_seconds", "How long leases were held"),
    counter(
        "leases_over_warn_total",
        &[],
        "Leases held longer than anybody should",
    ),
    gauge("children", &[], "Child processes that live"),
    counter("child_starts_total", &[], "Child processes started"),
    counter(
        "child_restarts_total",
        &[],
        "Child processes started in place of one that ended by itself",
    ),
    counter("child_exits_total", &["how"], "Child processes that ended"),
    counter(
        "orphans_killed_total",
        &[],
        "Processes that outlived the child process that started them, and were killed",
    ),
    counter(
        "store_operations_total",
        &["op", "result"],
        "What was asked of the store, and what it did",
    ),
    histogram("store_seconds", "How long the store took"),
    gauge(
        "store_degraded",
        &[],
        "1 if the store failed or took too long in the last 150 seconds, else 0",
    ),
    counter(
        "credential_refreshes_total",
        &["result"],
        "What came of asking for a credential again",
    ),
    counter(
        "orphans_possible_total",
        &[],
        "Handshakes (`initialize`) that were sent and never answered: each may have left a session at the server",
    ),
    counter(
        "isolation_violation_total",
        &[],
        "Calls that met a session of another identity; must stay 0",
    ),
    gauge("runs", &[], "Runs that are live"),
    histogram("run_sessions", "Sessions that a run had when it ended"),
    gauge("keys", &[], "Keys the pool knows"),
    counter(
        "keys_evicted_total",
        &[],
        "Keys that were empty for long and forgotten",
    ),
    gauge("sessions_limit", &[], "HTTP sessions that there may be"),
    gauge("children_limit", &[], "Child processes that there may be"),
    counter(
        "invariant_failed_total",
        &[],
        "Promises that were broken; must stay 0",
    ),
    counter(
        "drift_total",
        &[],
        "Levels that were asked to go below zero; must stay 0",
    ),
];

impl Metric {
    /// A metric of somebody who counts on top of the engine.
    pub const fn of(
        kind: Kind,
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
