//! Throttled log lines for rejected requests and connections.
//!
//! Strangers can cause any number of rejections. So each reason has one line in ten seconds, with
//! the number of those left out; every single one has a line at debug level.

use std::time::Duration;

use http::Response;
use parking_lot::Mutex;
use warmline_engine::metrics::WordEnum;
use warmline_platform::clock::{self, Instant};

use crate::auth::Peer;
use crate::metrics::RejectionReason;
use crate::response::body::ResponseBody;
use crate::response::error_response;
use crate::response::rejection::RpcCode;

/// The most characters of a message in the log.
const MAX_LOGGED_CHARS: usize = 200;
const THROTTLE_WINDOW: Duration = Duration::from_secs(10);

/// Slots behind those of the reasons: rejected messages, and stalled clients.
const MESSAGE_SLOT: usize = RejectionReason::ALL.len();
const STALLED_SLOT: usize = MESSAGE_SLOT + 1;

/// Logs rejections, throttled by reason.
#[derive(Debug, Default)]
pub(crate) struct RejectionLog {
    throttles: [LogThrottle; STALLED_SLOT + 1],
    /// The same for lines of the audit, by reason.
    audit_throttles: [LogThrottle; MESSAGE_SLOT],
}

#[derive(Debug, Default)]
struct LogThrottle(Mutex<ThrottleState>);

#[derive(Debug, Default)]
struct ThrottleState {
    quiet_until: Option<Instant>,
    suppressed: u64,
}

impl LogThrottle {
    /// The number of lines left out before this one, if it is due.
    fn check(&self) -> Option<u64> {
        let now = clock::now();
        let mut state = self.0.lock();
        if state.quiet_until.is_some_and(|until| now < until) {
            state.suppressed += 1;
            return None;
        }
        state.quiet_until = Some(now + THROTTLE_WINDOW);
        Some(std::mem::take(&mut state.suppressed))
    }
}

impl RejectionLog {
    /// Logs a response, if it rejects its request.
    pub(crate) fn log_response(
        &self,
        reason: Option<RejectionReason>,
        peer: Peer,
        response: &Response<ResponseBody>,
    ) {
        let details = error_response::rejection_details(response);
        let (word, slot) = match (reason, details.map(|details| details.is_era_mismatch)) {
            (Some(reason), _) => (reason.as_str(), Some(reason.index())),
            (None, Some(false)) => ("message", Some(MESSAGE_SLOT)),
            // A client of both eras begins with one of them: nothing is wrong.
            (None, Some(true)) => ("era", None),
            (None, None) => return,
        };
        let what = details.map(|details| details.message.chars());
        let what: Option<String> = what.map(|what| what.take(MAX_LOGGED_CHARS).collect());
        let line = RejectionLogLine {
            reason: word,
            status: response.status().as_u16(),
            code: details.and_then(|details| details.code.map(RpcCode::number)),
            what: what.as_deref(),
            from: peer.address_text(),
        };
        self.log(line, reason, slot);
    }

    pub(super) fn log_connection(
        &self,
        reason: RejectionReason,
        peer: Peer,
        status: u16,
        what: &str,
    ) {
        let line = RejectionLogLine {
            reason: reason.as_str(),
            status,
            code: None,
            what: Some(what),
            from: peer.address_text(),
        };
        self.log(line, Some(reason), Some(reason.index()));
    }

    pub(super) fn log_stalled(&self, peer: Peer) {
        let from = peer.address_text();
        match self
            .throttles
            .get(STALLED_SLOT)
            .and_then(LogThrottle::check)
        {
            None => tracing::debug!(from, "client stopped reading and was disconnected"),
            Some(suppressed) => {
                let more = (suppressed > 0).then_some(suppressed);
                tracing::info!(from, more, "client stopped reading and was disconnected");
            },
        }
    }

    /// Whether the audit gets a line for an unknown caller now: the number of lines left out before
    /// it.
    pub(super) fn check_audit_throttle(&self, reason: RejectionReason) -> Option<u64> {
        self.audit_throttles.get(reason.index())?.check()
    }

    fn log(&self, line: RejectionLogLine<'_>, why: Option<RejectionReason>, slot: Option<usize>) {
        let RejectionLogLine {
            reason,
            status,
            code,
            what,
            from,
        } = line;
        let from = from.as_deref();
        let throttle = slot.and_then(|slot| self.throttles.get(slot));
        let Some(suppressed) = throttle.and_then(LogThrottle::check) else {
            tracing::debug!(reason, status, code, what, from, "request refused");
            return;
        };
        let more = (suppressed > 0).then_some(suppressed);
        if is_warning(why) {
            tracing::warn!(reason, status, code, what, from, more, "request refused");
        } else {
            tracing::info!(reason, status, code, what, from, more, "request refused");
        }
    }
}

/// The fields of a line. Texts of clients are fields, so that they cannot end the line.
struct RejectionLogLine<'a> {
    reason: &'static str,
    status: u16,
    code: Option<i64>,
    what: Option<&'a str>,
    from: Option<String>,
}

/// Whether it may be an attack or an overload, rather than a mistake of one client.
fn is_warning(reason: Option<RejectionReason>) -> bool {
    matches!(
        reason,
        Some(
            RejectionReason::Connections
                | RejectionReason::Overloaded
                | RejectionReason::Quota
                | RejectionReason::Host
                | RejectionReason::Origin
                | RejectionReason::UnknownToken
                | RejectionReason::AuthFailures
                | RejectionReason::NotAllowed
        )
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Strangers cannot fill the audit: one line stands for many of a kind, and the next one counts
    /// those left out.
    #[tokio::test(start_paused = true)]
    async fn audit_lines_of_strangers_are_throttled_and_counted() {
        let log = RejectionLog::default();
        let due = |reason| log.check_audit_throttle(reason);
        assert_eq!(due(RejectionReason::NoToken), Some(0));
        for _ in 0..1000 {
            assert_eq!(due(RejectionReason::NoToken), None);
        }
        assert_eq!(due(RejectionReason::UnknownToken), Some(0), "another kind");
        tokio::time::advance(THROTTLE_WINDOW).await;
        assert_eq!(due(RejectionReason::NoToken), Some(1000));
        assert_eq!(due(RejectionReason::NoToken), None);
    }
}
