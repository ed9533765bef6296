//! The status of one server, for people and for monitoring.

use std::sync::Arc;

use serde::Serialize;
use warmline_core::word_enum::word_enum;

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
