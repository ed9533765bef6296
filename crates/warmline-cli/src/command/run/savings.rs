//! What holding sessions saved: openings that were not needed, by what those that were took.

use std::time::Duration;

use warmline::metrics::{Snapshot, Value};

/// What a run cost, and what it would have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Savings {
    /// Requests that were sent.
    pub(super) requests: u64,
    /// Sessions that were opened for them.
    pub(super) sessions: u64,
    /// What opening one for each of the others would have taken.
    pub(super) time: Duration,
}

impl Savings {
    /// By the numbers of all servers.
    pub(super) fn of(snapshot: &Snapshot) -> Self {
        let mut all = Self::default();
        for server in &snapshot.servers {
            let requests = server.count("attempts_total", &[]);
            let (opened, took) = server
                .numbers
                .iter()
                .find(|number| number.name == "open_seconds")
                .and_then(|number| match &number.value {
                    Value::Spread(spread) => Some((spread.count, spread.sum)),
                    Value::Count(_) | _ => None,
                })
                .unwrap_or_default();
            all.requests += requests;
            all.sessions += opened;
            let each = took.checked_div(opened).unwrap_or_default();
            all.time += Duration::from_micros(each * requests.saturating_sub(opened));
        }
        all
    }
}
