//! One line in the log for every request that is turned away or makes no sense.
//!
//! Told by: [`door`](crate::door) and whoever serves a client on a pipe, once for each.  Strangers can cause as many as they like: the
//! same reason is told once in ten seconds, with how often it was meanwhile, and each single one
//! stands among the lines for debugging.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::Response;
use warmline::clock::{self, Instant};
use warmline::metrics::ClosedSet;

use crate::body::Body;
use crate::metrics::TurnedAwayFor;
use crate::reply::{self, Matter};
use crate::who::Peer;

/// So long the same reason is not told again.
const QUIET: Duration = Duration::from_secs(10);

/// The places of what is no reason of the door.
const MESSAGE: usize = TurnedAwayFor::ALL.len();
const STALLED: usize = MESSAGE + 1;

/// What was told lately.
#[derive(Debug)]
pub(crate) struct Faults {
    begun: Instant,
    /// One for each reason of the door, one for messages that a face refused, and one for clients
    /// that were left.
    lately: Box<[Lately]>,
    /// The same for lines of the audit: one for each reason of the door.
    audited: Box<[Lately]>,
}

#[derive(Debug, Default)]
struct Lately {
    /// From when on it is told again, in milliseconds.
    quiet_until: AtomicU64,
    unsaid: AtomicU64,
}

impl Default for Faults {
    fn default() -> Self {
        let quiet = |places: usize| (0..places).map(|_| Lately::default()).collect();
        Self {
            begun: clock::now(),
            audited: quiet(TurnedAwayFor::ALL.len()),
            lately: quiet(STALLED + 1),
        }
    }
}

impl Faults {
    /// Tells of a request that got this answer. A client that is answered well did nothing wrong;
    /// one that only tried another era than its server's stands among the lines for debugging.
    pub(crate) fn tell(&self, why: Option<TurnedAwayFor>, peer: Peer, response: &Response<Body>) {
        let status = response.status();
        let told = reply::told(response);
        let (reason, place) = match (why, told.map(|told| told.matter)) {
            (Some(why), _) => (why.word(), Some(why.place())),
            (None, Some(Matter::Message)) => ("message", Some(MESSAGE)),
            (None, Some(Matter::Era)) => ("era", None),
            (None, None) => return,
        };
        let line = Line {
            reason,
            status: status.as_u16(),
            code: told.and_then(|told| told.code),
            what: told.map(|told| &*told.what),
            from: peer.shown(),
        };
        // Whoever speaks both eras begins with one of them: nothing is wrong.
        let due = || self.due(self.lately.get(place?));
        match due() {
            None => line.write_for_debugging(),
            Some(unsaid) => line.write(why, (unsaid > 0).then_some(unsaid)),
        }
    }

    /// How many who were turned away for the same the audit was not told of before, if it is told
    /// now. This is for those of whom nobody knows who they are.
    pub(super) fn due_in_audit(&self, why: TurnedAwayFor) -> Option<u64> {
        self.due(self.audited.get(why.place()))
    }

    /// Somebody was left out before there was a request.
    pub(super) fn tell_of_connection(&self, why: TurnedAwayFor, peer: Peer, what: &str) {
        let line = Line {
            reason: why.word(),
            status: 0,
            code: None,
            what: Some(what),
            from: peer.shown(),
        };
        match self.due(self.lately.get(why.place())) {
            None => line.write_for_debugging(),
            Some(unsaid) => line.write(Some(why), (unsaid > 0).then_some(unsaid)),
        }
    }

    /// A client that took nothing of what was written for it was left.
    pub(super) fn tell_of_stalled(&self, peer: Peer) {
        let from = peer.shown();
        match self.due(self.lately.get(STALLED)) {
            None => tracing::debug!(from, "a client that reads nothing was left"),
            Some(unsaid) => {
                let more = (unsaid > 0).then_some(unsaid);
                tracing::info!(from, more, "a client that reads nothing was left");
            },
        }
    }

    /// How often it was not told before, if it is told now.
    fn due(&self, lately: Option<&Lately>) -> Option<u64> {
        let lately = lately?;
        let age = clock::now().saturating_duration_since(self.begun);
        let now = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
        let next = now.saturating_add(u64::try_from(QUIET.as_millis()).unwrap_or(u64::MAX));
        let until = lately.quiet_until.load(Ordering::Relaxed);
        let is_due = now >= until
            && lately
                .quiet_until
                .compare_exchange(until, next, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if is_due {
            return Some(lately.unsaid.swap(0, Ordering::Relaxed));
        }
        lately.unsaid.fetch_add(1, Ordering::Relaxed);
        None
    }
}

/// What a line holds. Texts are fields, so that nothing in them ends the line.
struct Line<'a> {
    reason: &'static str,
    status: u16,
    code: Option<i64>,
    what: Option<&'a str>,
    from: Option<String>,
}

impl Line<'_> {
    fn write(&self, why: Option<TurnedAwayFor>, more: Option<u64>) {
        let Self {
            reason,
            status,
            code,
            what,
            from,
        } = self;
        let from = from.as_deref();
        if is_worth_a_look(why) {
            tracing::warn!(reason, status, code, what, from, more, "request refused");
        } else {
            tracing::info!(reason, status, code, what, from, more, "request refused");
        }
    }

    fn write_for_debugging(&self) {
        let Self {
            reason,
            status,
            code,
            what,
            from,
        } = self;
        let from = from.as_deref();
        tracing::debug!(reason, status, code, what, from, "request refused");
    }
}

/// Whether somebody tries what they may not, or we cannot keep up. Others only made a mistake, or
/// look for the way in.
fn is_worth_a_look(why: Option<TurnedAwayFor>) -> bool {
    use TurnedAwayFor as For;
    matches!(
        why,
        Some(
            For::Connections
                | For::Overloaded
                | For::Share
                | For::Host
                | For::Origin
                | For::UnknownToken
                | For::Strangers
                | For::NotAllowed
        )
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Strangers cannot fill the audit: of many that come alike one has a line, and the next line
    /// says how many had none.
    #[tokio::test(start_paused = true)]
    async fn strangers_that_are_left_out_of_the_audit_are_counted() {
        let faults = Faults::default();
        let due = |why| faults.due_in_audit(why);
        assert_eq!(due(TurnedAwayFor::NoToken), Some(0));
        for _ in 0..1000 {
            assert_eq!(due(TurnedAwayFor::NoToken), None);
        }
        assert_eq!(due(TurnedAwayFor::UnknownToken), Some(0), "another kind");
        tokio::time::advance(QUIET).await;
        assert_eq!(due(TurnedAwayFor::NoToken), Some(1000));
        assert_eq!(due(TurnedAwayFor::NoToken), None);
    }
}
