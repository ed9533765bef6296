//! Snapshots: all metrics at one moment, with the sessions, runs and servers there were.
//!
//! Identities, runs and session ids appear as fingerprints: nothing in a snapshot opens anything.

use std::sync::Arc;

use serde::Serialize;

use super::histogram::HistogramSnapshot;
use super::{ServerStatus, SessionState};
use crate::fingerprint::{Fingerprint, ShortId};

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
