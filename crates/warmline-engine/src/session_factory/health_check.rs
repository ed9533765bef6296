//! Checks whether a session lives.
//!
//! Only what the server itself says counts against a session: the way to it may be broken while the
//! session lives.

use std::sync::atomic::Ordering;

use warmline_core::era::Era;
use warmline_core::error::code::Reason;
use warmline_core::pool::HealthCheckResult;

use super::SessionSetup;
use warmline_upstream::{HealthCheck, HealthCheckOutcome, Session};

pub(super) async fn check_session(setup: &SessionSetup, session: &Session) -> HealthCheckResult {
    let limit = setup.server.settings.load().policy.health_check_timeout;
    let checks_by_list = &setup.server.checks_by_list;
    let first = match setup.server_profile.era {
        Era::Modern => HealthCheck::Discover,
        Era::Legacy if checks_by_list.load(Ordering::Relaxed) => HealthCheck::ToolsList,
        Era::Legacy => HealthCheck::Ping,
    };
    let keeps_state = setup.keeps_state();
    let probed = session.check_health(first, limit).await;
    let health = check_result_of(&probed, keeps_state);
    // Some servers never answer `ping`. The check that works is remembered.
    if !matches!(probed, HealthCheckOutcome::Silent) || first != HealthCheck::Ping {
        return health;
    }
    let health = check_result_of(
        &session.check_health(HealthCheck::ToolsList, limit).await,
        keeps_state,
    );
    if health == HealthCheckResult::Alive {
        checks_by_list.store(true, Ordering::Relaxed);
    }
    health
}

/// Reasons that show a changed server: it does not know this check any more.
const SERVER_CHANGED_REASONS: [Reason; 3] = [Reason::Rejected, Reason::NotFound, Reason::Version];

/// Reasons that say nothing about a session: the way to its server is broken or full, or nothing was sent.
const TRANSPORT_REASONS: [Reason; 19] = [
    Reason::Dns,
    Reason::ConnectRefused,
    Reason::ConnectTimeout,
    Reason::Unreachable,
    Reason::Tls,
    Reason::TlsClosed,
    Reason::Proxy,
    Reason::LocalResources,
    Reason::WriteFailed,
    Reason::ReplyLost,
    Reason::TimeoutUnsent,
    Reason::GatewayError,
    Reason::Unavailable,
    Reason::RateLimited,
    Reason::TooEarly,
    Reason::CredentialUnavailable,
    Reason::CredentialNotSent,
    Reason::Cancelled,
    Reason::Closed,
];

/// What a check says about its session. A server that answers with an error may have lost the session:
/// some report that with an error of their own. A server without sessions cannot mean that.
fn check_result_of(probed: &HealthCheckOutcome, keeps_state: bool) -> HealthCheckResult {
    match probed {
        HealthCheckOutcome::Alive | HealthCheckOutcome::UnknownMethod => HealthCheckResult::Alive,
        HealthCheckOutcome::Gone(_) => HealthCheckResult::Gone,
        // Without sessions, none can have died.
        HealthCheckOutcome::Silent if keeps_state => HealthCheckResult::TimedOut,
        HealthCheckOutcome::Silent => HealthCheckResult::Unreachable,
        HealthCheckOutcome::Unreachable(diagnostic) => {
            let is_theirs = match keeps_state {
                true => !TRANSPORT_REASONS.contains(&diagnostic.reason),
                false => SERVER_CHANGED_REASONS.contains(&diagnostic.reason),
            };
            match is_theirs {
                true => HealthCheckResult::Refused,
                false => HealthCheckResult::Unreachable,
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmline_core::exchange::Diagnostic;

    #[test]
    fn only_a_word_of_the_server_counts_against_a_session() {
        #[rustfmt::skip]
        let table = [
            (Reason::ConnectRefused, HealthCheckResult::Unreachable, HealthCheckResult::Unreachable),
            (Reason::ReplyLost,      HealthCheckResult::Unreachable, HealthCheckResult::Unreachable),
            (Reason::GatewayError,   HealthCheckResult::Unreachable, HealthCheckResult::Unreachable),
            (Reason::Unavailable,    HealthCheckResult::Unreachable, HealthCheckResult::Unreachable),
            (Reason::ServerError,    HealthCheckResult::Refused,     HealthCheckResult::Unreachable),
            (Reason::Conflict,       HealthCheckResult::Refused,     HealthCheckResult::Unreachable),
            (Reason::Unauthorized,   HealthCheckResult::Refused,     HealthCheckResult::Unreachable),
            (Reason::Rejected,       HealthCheckResult::Refused,     HealthCheckResult::Refused),
            (Reason::NotFound,       HealthCheckResult::Refused,     HealthCheckResult::Refused),
        ];
        for (reason, of_a_session, of_none) in table {
            let probed = HealthCheckOutcome::Unreachable(Diagnostic::new(reason, "x"));
            assert_eq!(check_result_of(&probed, true), of_a_session, "{reason}");
            assert_eq!(check_result_of(&probed, false), of_none, "{reason}");
        }
        assert_eq!(
            check_result_of(&HealthCheckOutcome::Silent, true),
            HealthCheckResult::TimedOut
        );
        assert_eq!(
            check_result_of(&HealthCheckOutcome::Silent, false),
            HealthCheckResult::Unreachable
        );
    }
}
