//! Whether a session lives: what is asked, and what the answer says of it.
//!
//! Asked by: [`Connect`](super::Connect), when the pool has a session checked.  Only what the server
//! says itself counts against a session; the way to it may be broken while the session lives.

use warmline_core::code::Reason;
use warmline_core::era::Era;
use warmline_core::pool::Health;

use super::Setup;
use crate::upstream::{Probe, Probed, Session};

/// Asks a session whether it lives.
pub(super) async fn check(setup: &Setup, session: &Session) -> Health {
    let limit = setup.entry.policy().health_check_timeout;
    let first = match (setup.leg.era, setup.entry.probe()) {
        (Era::Modern, _) => Probe::Discover,
        (Era::Legacy, known) => known,
    };
    let keeps_state = setup.keeps_state();
    let probed = session.probe(first, limit).await;
    let health = health_of(&probed, keeps_state);
    // Some servers never answer `ping`: that is no sign of death. What works is remembered.
    if !matches!(probed, Probed::Silent) || first != Probe::Ping {
        return health;
    }
    let health = health_of(&session.probe(Probe::ToolsList, limit).await, keeps_state);
    if health == Health::Alive {
        setup.entry.learn_probe();
    }
    health
}

/// What a server says that is another than before: it takes no probe of this form.
const OF_ANOTHER_SERVER: [Reason; 3] = [Reason::Rejected, Reason::NotFound, Reason::Version];

/// What says nothing of a session: the way to its server is broken, or full, or we did not get so far.
const ON_THE_WAY: [Reason; 19] = [
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

/// What a probe says of the session that it was sent on. A server that answers, and not as it should,
/// may not know a session any more: some say so by an error of their own. One that keeps no session
/// cannot mean that.
fn health_of(probed: &Probed, keeps_state: bool) -> Health {
    match probed {
        Probed::Alive | Probed::NotUnderstood => Health::Alive,
        Probed::Gone(_) => Health::Gone,
        // Where the server keeps no session there is none that could have died.
        Probed::Silent if keeps_state => Health::Silent,
        Probed::Silent => Health::Unreachable,
        Probed::Unreachable(trouble) => {
            let is_theirs = match keeps_state {
                true => !ON_THE_WAY.contains(&trouble.reason),
                false => OF_ANOTHER_SERVER.contains(&trouble.reason),
            };
            match is_theirs {
                true => Health::Refused,
                false => Health::Unreachable,
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmline_core::exchange::Trouble;

    #[test]
    fn only_a_word_of_the_server_counts_against_a_session() {
        #[rustfmt::skip]
        let table = [
            (Reason::ConnectRefused, Health::Unreachable, Health::Unreachable),
            (Reason::ReplyLost,      Health::Unreachable, Health::Unreachable),
            (Reason::GatewayError,   Health::Unreachable, Health::Unreachable),
            (Reason::Unavailable,    Health::Unreachable, Health::Unreachable),
            (Reason::ServerError,    Health::Refused,     Health::Unreachable),
            (Reason::Conflict,       Health::Refused,     Health::Unreachable),
            (Reason::Unauthorized,   Health::Refused,     Health::Unreachable),
            (Reason::Rejected,       Health::Refused,     Health::Refused),
            (Reason::NotFound,       Health::Refused,     Health::Refused),
        ];
        for (reason, of_a_session, of_none) in table {
            let probed = Probed::Unreachable(Trouble::new(reason, "x"));
            assert_eq!(health_of(&probed, true), of_a_session, "{reason}");
            assert_eq!(health_of(&probed, false), of_none, "{reason}");
        }
        assert_eq!(health_of(&Probed::Silent, true), Health::Silent);
        assert_eq!(health_of(&Probed::Silent, false), Health::Unreachable);
    }
}
