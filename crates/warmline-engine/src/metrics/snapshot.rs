//! Snapshots: all metrics at one moment, with the sessions, runs and servers there were.
//!
//! Identities, runs and session ids appear as fingerprints: nothing in a snapshot opens anything.

use std::sync::Arc;

use serde::Serialize;
use warmline_core::word_enum::word_enum;

use super::{HistogramSnapshot, SessionState};
use crate::identity::{Fingerprint, ShortId};

/// The state of an engine at one moment.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Snapshot {
    /// Metrics that belong to no server.
    pub engine: Vec<MetricSample>,
    /// Metrics of each server, by name.
    pub servers: Vec<ServerSamples>,
    /// The status of each declared server, by name.
    #[serde(rename = "standing")]
    pub server_statuses: Vec<ServerStatus>,
    /// Open sessions.
    pub sessions: Vec<SessionStatus>,
    /// Live runs.
    pub runs: Vec<RunStatus>,
}

/// The metrics of one server.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct ServerSamples {
    /// The server's name.
    pub server: Arc<str>,
    /// Its metrics. A counter appears only for labels that were counted.
    #[serde(rename = "numbers")]
    pub samples: Vec<MetricSample>,
}

/// One value of a metric.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct MetricSample {
    /// The name of the metric.
    pub name: &'static str,
    /// The values of its labels, in the order of the metric.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[serde(rename = "words")]
    pub label_values: Vec<&'static str>,
    /// The value.
    pub value: SampleValue,
}

impl MetricSample {
    pub(super) fn new(name: &'static str, words: &[&'static str], value: SampleValue) -> Self {
        Self {
            name,
            label_values: words.to_vec(),
            value,
        }
    }
}

/// The value of a sample.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum SampleValue {
    /// Of a counter or a gauge.
    Count(u64),
    /// Of a histogram.
    Histogram(HistogramSnapshot),
}

/// One open session.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct SessionStatus {
    /// The server's name.
    pub server: Arc<str>,
    /// The server's id for it, as a short digest; none where there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<ShortId>,
    /// Its identity; none for a session that all identities share.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identity: Option<Fingerprint>,
    /// The run it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<Fingerprint>,
    /// The number of its pool key in this process.
    pub key: u64,
    /// Its number within the key.
    pub generation: u32,
    /// What it is doing.
    pub state: SessionState,
    /// Its transport.
    pub transport: &'static str,
    /// When it was opened, in seconds since 1970.
    pub opened_at: u64,
    /// When it was last used, in seconds since 1970.
    pub used_at: u64,
    /// When it expires, in seconds since 1970, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<u64>,
    /// Calls under way on it.
    pub calls: u32,
}

/// One live run.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct RunStatus {
    /// The run.
    pub run: Fingerprint,
    /// Its identity.
    pub identity: Fingerprint,
    /// When it began, in seconds since 1970.
    pub began_at: u64,
    /// When it was last used, in seconds since 1970.
    pub used_at: u64,
    /// Sessions it has.
    pub sessions: u32,
    /// Calls under way in it.
    pub calls: u32,
}

word_enum! {
    /// The condition of a server.
    #[non_exhaustive]
    pub enum ServerCondition {
        /// Nobody has called it yet.
        Untried = "untried",
        /// Its first call is under way.
        Trying = "trying",
        /// It works.
        Ok = "ok",
        /// It does not answer, or the last opening failed.
        Degraded = "degraded",
        /// Openings pause because too many failed.
        BreakerOpen = "breaker-open",
        /// It is disabled.
        Off = "off",
    }
}

/// The status of one server.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct ServerStatus {
    /// Its name.
    pub server: Arc<str>,
    /// Its condition.
    pub state: ServerCondition,
    /// Whether a gateway needs it to be ready.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub required: bool,
    /// Its transport, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transport: Option<&'static str>,
    /// The eras in which it answered.
    pub eras: Vec<&'static str>,
    /// Whether it keeps sessions, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keeps_session: Option<bool>,
    /// Open sessions, spares apart.
    pub sessions: u64,
    /// Sessions opened ahead.
    pub spares: u64,
    /// Child processes.
    pub children: u64,
    /// Calls under way.
    pub calls: u64,
    /// Callers in line for a session.
    pub waiters: u64,
    /// Identities whose openings pause.
    pub identities_paused: u64,
    /// The time until an opening is tried again, where they pause.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_in_ms: Option<u64>,
    /// Its last failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_failure: Option<ServerFailure>,
}

/// A failure of a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ServerFailure {
    /// The error code.
    pub code: &'static str,
    /// The detailed reason.
    pub reason: &'static str,
    /// When, in seconds since 1970.
    pub at: u64,
    /// Failures since the last opening that worked; 0 once one did.
    pub in_a_row: u64,
    /// What happened. It may hold words of the server, which are not for everybody.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub what: Arc<str>,
}

impl ServerStatus {
    /// The same without words of the server, for pages without authentication.
    #[must_use]
    pub fn without_details(mut self) -> Self {
        if let Some(failure) = &mut self.last_failure {
            failure.what = Arc::from("");
        }
        self
    }
}

impl Snapshot {
    /// The metrics of a server.
    pub fn server(&self, name: &str) -> Option<&ServerSamples> {
        self.servers.iter().find(|numbers| &*numbers.server == name)
    }

    /// A value of the engine; 0 if it was never counted.
    pub fn count(&self, name: &str, words: &[&str]) -> u64 {
        find_count(&self.engine, name, words)
    }
}

impl ServerSamples {
    /// A value; 0 if it was never counted.
    pub fn count(&self, name: &str, words: &[&str]) -> u64 {
        find_count(&self.samples, name, words)
    }
}

fn find_count(numbers: &[MetricSample], name: &str, words: &[&str]) -> u64 {
    let found = numbers
        .iter()
        .find(|number| number.name == name && number.label_values == words);
    match found.map(|number| &number.value) {
        Some(SampleValue::Count(count)) => *count,
        Some(SampleValue::Histogram(spread)) => spread.count,
        None => 0,
    }
}
