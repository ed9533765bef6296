//! One server as it stands, for people and for machines that watch.
//!
//! Asked by: status pages.  Told by: the engine, in a [`Snapshot`](super::Snapshot).

use std::sync::Arc;

use serde::Serialize;

use super::closed_set;

closed_set! {
    /// How a server stands.
    ServerState {
        /// Nobody has called it yet.
        Untried = "untried",
        /// It is being called for the first time, and has not answered yet.
        Trying = "trying",
        /// It works.
        Ok = "ok",
        /// It does not answer, or the last opening failed.
        Degraded = "degraded",
        /// Openings pause, because too many failed.
        BreakerOpen = "breaker-open",
        /// It is switched off.
        Off = "off",
    }
}

/// One server as it stands.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct ServerLine {
    /// Its name.
    pub server: Arc<str>,
    /// How it stands.
    pub state: ServerState,
    /// Whether a gateway is of no use without it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub required: bool,
    /// How its bytes travel, where that was found out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transport: Option<&'static str>,
    /// The eras in which it was met.
    pub eras: Vec<&'static str>,
    /// Whether it keeps a session for its callers, where that was found out.
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
    /// Identities whose openings pause there.
    pub identities_paused: u64,
    /// When an opening is tried again, where they pause.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_in_ms: Option<u64>,
    /// What went wrong last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_failure: Option<ServerFailure>,
}

/// What went wrong with a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ServerFailure {
    /// The stable name of the error.
    pub code: &'static str,
    /// The finer word beside it.
    pub reason: &'static str,
    /// When, in seconds since 1970.
    pub at: u64,
    /// How often since the last opening that worked; 0 once one did.
    pub in_a_row: u64,
    /// What happened, with names and numbers. A server may have a say in it: it is not for
    /// everybody.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub what: Arc<str>,
}

impl ServerLine {
    /// The same in words of ours alone, for pages that ask nobody who they are.
    #[must_use]
    pub fn in_words(mut self) -> Self {
        if let Some(failure) = &mut self.last_failure {
            failure.what = Arc::from("");
        }
        self
    }
}
