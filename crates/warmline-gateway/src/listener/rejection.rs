//! Rejections before a message is parsed: their responses, and their lines in the log and the audit.
//!
//! Each has a [`RejectionReason`] for counter, log and audit. A response to a request that was not
//! read to its end closes the connection, and says so.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, RETRY_AFTER, TRANSFER_ENCODING, WWW_AUTHENTICATE};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use hyper::body::Incoming;
use parking_lot::Mutex;
use warmline_engine::Error;
use warmline_engine::metrics::WordEnum;
use warmline_platform::clock::{self, Instant};

use crate::GatewayState;
use crate::access::AccessPolicy;
use crate::auth::{AuthError, Peer, protected_resource};
use crate::limits::LimitExceeded;
use crate::metrics::{RejectionReason, RequestEra, StatusClass};
use crate::response::call_error::{self, ErrorDetail};
use crate::response::rejection::RpcCode;
use crate::response::{self, ReadBodyError, ResponseBody};

pub(super) struct Rejection {
    pub(super) reason: RejectionReason,
    pub(super) response: Box<Response<ResponseBody>>,
    /// Whether it has a line in the audit, with the name of the caller.
    pub(super) is_audited: bool,
}

impl RejectionReason {
    pub(super) fn with_response(self, response: Response<ResponseBody>) -> Rejection {
        Rejection {
            reason: self,
            response: Box::new(response),
            is_audited: false,
        }
    }

    pub(super) fn with_error(self, status: StatusCode, what: &str) -> Rejection {
        self.with_response(response::rpc_error(status, None, RpcCode::Invalid, what))
    }
}

pub(super) fn set_connection_close(response: &mut Response<ResponseBody>) {
    let close = HeaderValue::from_static("close");
    response.headers_mut().insert(CONNECTION, close);
}

/// The bytes of the response to a request head that did not arrive in time. Counts, logs and
/// audits it.
pub(super) fn late_head_response(shared: &GatewayState, peer: Peer) -> Bytes {
    let what = "Request Timeout: the request head did not arrive in time";
    let mut rejection = RejectionReason::TooSlow.with_error(StatusCode::REQUEST_TIMEOUT, what);
    record_rejection(shared, peer, None, &rejection);
    let body = match rejection.response.body_mut() {
        ResponseBody::Full(bytes) => bytes.take().unwrap_or_default(),
        ResponseBody::Empty | ResponseBody::Events(_) | ResponseBody::Stream(_) => Bytes::new(),
    };
    let head = format!(
        "HTTP/1.1 408 Request Timeout\r\ncontent-length: {}\r\ncontent-type: application/json\r\n\
         connection: close\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), &body].concat().into()
}

/// Counts, logs and audits a request head that hyper could not parse. Hyper has answered it, unless
/// the client speaks HTTP/2.
pub(super) fn record_unparsed_head(shared: &GatewayState, peer: Peer, error: &hyper::Error) {
    let (status, what) = if error.is_parse_version_h2() {
        (0, "connection does not speak HTTP/1.1")
    } else if error.is_parse_too_large() {
        (431, "request head is larger than the limit")
    } else {
        (400, "not the head of an HTTP/1.1 request")
    };
    if let Ok(status) = StatusCode::from_u16(status) {
        count_response(shared, RequestEra::None, status);
    }
    record_rejected_connection(shared, peer, status, (RejectionReason::Head, what));
}

/// Counts, logs and audits a connection that was rejected before it carried a request. `status` is
/// 0 if its client got no response.
pub(super) fn record_rejected_connection(
    shared: &GatewayState,
    peer: Peer,
    status: u16,
    (reason, what): (RejectionReason, &str),
) {
    shared.counters.rejected.increment(reason);
    audit_anonymous_rejection(shared, None, reason);
    shared
        .rejection_log
        .log_connection(reason, peer, status, what);
}

/// Rejects a request that two readers could frame differently: an intermediary may have seen
/// another request. Nothing that follows on the connection is read.
pub(super) fn reject_ambiguous_framing(
    shared: &GatewayState,
    request: &Request<Incoming>,
    is_ambiguous: bool,
    peer: Peer,
) -> Option<Response<ResponseBody>> {
    let mut codings = request.headers().get_all(TRANSFER_ENCODING).iter();
    let is_plain = codings.all(|coding| coding.as_bytes().eq_ignore_ascii_case(b"chunked"));
    if is_plain && !is_ambiguous {
        return None;
    }
    let what = "Bad Request: the length of this request is ambiguous";
    let mut rejection = RejectionReason::Head.with_error(StatusCode::BAD_REQUEST, what);
    set_connection_close(&mut rejection.response);
    record_rejection(shared, peer, Some(request.uri().path()), &rejection);
    let response = *rejection.response;
    Some(response::reuse_header_map(response, HeaderMap::new()))
}

pub(super) fn record_rejection(
    shared: &GatewayState,
    peer: Peer,
    path: Option<&str>,
    rejection: &Rejection,
) {
    let Rejection {
        reason, response, ..
    } = rejection;
    if !rejection.is_audited {
        audit_anonymous_rejection(shared, path, *reason);
    }
    shared.counters.rejected.increment(*reason);
    let log = &shared.rejection_log;
    log.log_response(Some(*reason), peer, response);
    count_response(shared, RequestEra::None, response.status());
}

pub(super) fn count_response(shared: &GatewayState, era: RequestEra, status: StatusCode) {
    let class = match status.as_u16() / 100 {
        5 => StatusClass::ServerError,
        4 => StatusClass::ClientError,
        3 => StatusClass::Redirect,
        _ => StatusClass::Success,
    };
    shared.counters.requests.increment(era, class);
}

/// Audits the rejection of an unknown caller. Repeated ones are throttled and counted.
pub(super) fn audit_anonymous_rejection(
    shared: &GatewayState,
    path: Option<&str>,
    reason: RejectionReason,
) {
    if let Some(audit) = &shared.audit
        && let Some(suppressed) = shared.rejection_log.check_audit_throttle(reason)
    {
        audit.write_rejection((path, None), ("nobody", reason.as_str()), suppressed);
    }
}

pub(super) fn unauthorized(policy: &AccessPolicy, head: &Parts, error: AuthError) -> Rejection {
    let (reason, what) = match error {
        AuthError::Missing if !policy.authenticators.accepts_tokens() => (
            RejectionReason::NoToken,
            "Unauthorized: requests must come through a trusted proxy that names the caller",
        ),
        AuthError::Missing => (
            RejectionReason::NoToken,
            "Unauthorized: a bearer token is needed",
        ),
        AuthError::Unknown => (
            RejectionReason::UnknownToken,
            "Unauthorized: this token is not known here",
        ),
    };
    let mut rejection = reason.with_error(StatusCode::UNAUTHORIZED, what);
    let resource = policy.protected_resource.as_ref();
    let challenge = protected_resource::bearer_challenge(resource, head.uri.path(), error);
    let headers = rejection.response.headers_mut();
    headers.insert(WWW_AUTHENTICATE, challenge);
    rejection
}

pub(super) fn engine_error_response(
    status: StatusCode,
    id: &[u8],
    error: &Error,
    detail: ErrorDetail,
) -> Response<ResponseBody> {
    let summary = call_error::summary(error, detail);
    let message = call_error::call_error_message(id, error, detail);
    response::rejection(status, (error.code().as_str(), &*summary), message)
}

pub(super) fn too_many_auth_failures_response() -> Response<ResponseBody> {
    let what = "Too Many Requests: too many requests from this address without a valid token";
    let status = StatusCode::TOO_MANY_REQUESTS;
    let mut response = response::rpc_error(status, None, RpcCode::Invalid, what);
    let after = HeaderValue::from_static("60");
    response.headers_mut().insert(RETRY_AFTER, after);
    response
}

pub(super) fn limit_exceeded(limit: LimitExceeded) -> Rejection {
    match limit {
        LimitExceeded::Total => RejectionReason::Overloaded.with_response(response::overloaded()),
        LimitExceeded::Identity => RejectionReason::Quota.with_response(response::quota_exceeded()),
    }
}

pub(super) fn body_read_failed(error: ReadBodyError) -> Rejection {
    let (reason, status, what) = match error {
        ReadBodyError::TooLarge => (
            RejectionReason::TooLarge,
            StatusCode::PAYLOAD_TOO_LARGE,
            "the message is too large",
        ),
        ReadBodyError::TooSlow => (
            RejectionReason::TooSlow,
            StatusCode::REQUEST_TIMEOUT,
            "the message did not arrive in time",
        ),
        ReadBodyError::Broken => (
            RejectionReason::Truncated,
            StatusCode::BAD_REQUEST,
            "the message is incomplete",
        ),
    };
    reason.with_error(status, what)
}

/// The most characters of a message in the log.
const MAX_LOGGED_CHARS: usize = 200;
const THROTTLE_WINDOW: Duration = Duration::from_secs(10);

/// Slots behind those of the reasons: rejected messages, and stalled clients.
const MESSAGE_SLOT: usize = RejectionReason::ALL.len();
const STALLED_SLOT: usize = MESSAGE_SLOT + 1;

/// Logs rejections. Strangers can cause any number of them, so each reason has one line in ten seconds,
/// with the number of those left out; every single one has a line at debug level.
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
        let details = response::rejection_details(response);
        let (word, slot) = match (reason, details.map(|details| details.is_era_mismatch)) {
            (Some(reason), _) => (reason.as_str(), Some(reason.index())),
            (None, Some(false)) => ("message", Some(MESSAGE_SLOT)),
            // A client of both eras begins with one of them: nothing is wrong.
            (None, Some(true)) => ("era", None),
            (None, None) => return,
        };
        let what = details.map(|details| details.message.chars());
        let what: Option<String> = what.map(|what| what.take(MAX_LOGGED_CHARS).collect());
        let code = details.and_then(|details| details.code.map(RpcCode::number));
        let status = (response.status().as_u16(), code);
        self.log((word, slot), reason, status, what.as_deref(), peer);
    }

    pub(super) fn log_connection(
        &self,
        reason: RejectionReason,
        peer: Peer,
        status: u16,
        what: &str,
    ) {
        let slot = (reason.as_str(), Some(reason.index()));
        self.log(slot, Some(reason), (status, None), Some(what), peer);
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

    /// Texts of clients are fields, so that they cannot end the line.
    fn log(
        &self,
        (reason, slot): (&'static str, Option<usize>),
        why: Option<RejectionReason>,
        (status, code): (u16, Option<i64>),
        what: Option<&str>,
        peer: Peer,
    ) {
        let from = peer.address_text();
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
