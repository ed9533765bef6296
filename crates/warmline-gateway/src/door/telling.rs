//! One line in the log for every request that is turned away or makes no sense.
//!
//! Told by: [`door`](crate::door) and whoever serves a client on a pipe, once for each.  Strangers can cause as many as they like: the
//! same reason is told once in ten seconds, with how often it was meanwhile, and each single one
//! stands among the lines for debugging.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::{Response, StatusCode};
use warmline::clock::{self, Instant};
use warmline::metrics::ClosedSet;

use crate::body::Body;
use crate::metrics::TurnedAwayFor;
use crate::reply::Told;
use crate::who::Peer;

/// So long the same reason is not told again.
const QUIET: Duration = Duration::from_secs(10);

/// What was told lately.
#[derive(Debug)]
pub(crate) struct Faults {
    begun: Instant,
    /// One for each reason of the door, and one for messages that a face refused.
    lately: Box<[Lately]>,
}

#[derive(Debug, Default)]
struct Lately {
    /// From when on it is told again, in milliseconds.
    quiet_until: AtomicU64,
    unsaid: AtomicU64,
}

impl Default for Faults {
    fn default() -> Self {
        let places = TurnedAwayFor::ALL.len() + 1;
        Self {
            begun: clock::now(),
            lately: (0..places).map(|_| Lately::default()).collect(),
        }
    }
}

impl Faults {
    /// Tells of a request that got this answer. A client that is answered well, and one that is
    /// told what a server of its era would say, did nothing wrong.
    pub(crate) fn tell(&self, why: Option<TurnedAwayFor>, peer: Peer, response: &Response<Body>) {
        let status = response.status();
        let told = response.extensions().get::<Told>();
        if why.is_none() && (told.is_none() || status < StatusCode::BAD_REQUEST) {
            return;
        }
        let reason = why.map_or("message", TurnedAwayFor::word);
        let place = why.map_or(TurnedAwayFor::ALL.len(), ClosedSet::place);
        let line = Line {
            reason,
            status: status.as_u16(),
            code: told.map(|told| told.code),
            what: told.map(|told| &*told.what),
            from: peer.shown(),
        };
        match self.due(place) {
            None => line.write_for_debugging(),
            Some(unsaid) => line.write(why, (unsaid > 0).then_some(unsaid)),
        }
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
        match self.due(why.place()) {
            None => line.write_for_debugging(),
            Some(unsaid) => line.write(Some(why), (unsaid > 0).then_some(unsaid)),
        }
    }

    /// How often it was not told before, if it is told now.
    fn due(&self, place: usize) -> Option<u64> {
        let lately = self.lately.get(place)?;
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
                | For::Host
                | For::Origin
                | For::UnknownToken
                | For::Strangers
                | For::NotAllowed
        )
    )
}
