//! Checks whether an idle session or a server is still there, by a request without effects. A check
//! only reports.

use std::sync::Arc;
use std::time::Duration;

use warmline_core::era::Version;
use warmline_core::error::code::Reason;
use warmline_core::exchange::{AttemptResult, Deadlines, Diagnostic, Reply, Request};
use warmline_core::message::envelope::RpcError;
use warmline_core::message::params::Params;

use super::session::Session;
use crate::http::endpoint::RequestHeaders;
use crate::modern::ModernHttpSession;
use crate::target::ClientProfile;
use warmline_platform::clock;

/// A request without effects that shows whether a session lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HealthCheck {
    /// `ping`: the legacy era has it.
    Ping,
    /// `tools/list`: for legacy servers that do not know `ping`.
    ToolsList,
    /// `server/discover`: the modern era has it.
    Discover,
}

impl HealthCheck {
    pub const fn method(self) -> &'static str {
        match self {
            Self::Ping => "ping",
            Self::ToolsList => "tools/list",
            Self::Discover => "server/discover",
        }
    }
}

/// The result of a check.
#[derive(Clone, Debug)]
pub enum HealthCheckOutcome {
    /// The server answered on this session.
    Alive,
    /// It does not know the method: it is alive, and another check is better next time.
    UnknownMethod,
    /// The session is gone: the server said so, or its process or stream ended.
    Gone(Diagnostic),
    /// Nothing came in time.
    Silent,
    /// Nothing is known of the session: the server was not reached, or refused something else. The
    /// session may be alive.
    Unreachable(Diagnostic),
}

impl Session {
    /// Checks whether the session is alive, for at most that long.
    ///
    /// # Cancel safety
    /// Dropping it leaves nothing behind.
    pub async fn check_health(&self, probe: HealthCheck, within: Duration) -> HealthCheckOutcome {
        let deadlines = Deadlines {
            idle: within,
            total: within,
        };
        let request = Request::new(probe.method(), Params::empty()).with_deadlines(deadlines);
        match self.send(request, &()).await {
            AttemptResult::Answered(Reply::Error(error)) if is_unknown_method(&error) => {
                HealthCheckOutcome::UnknownMethod
            },
            AttemptResult::Answered(_) => HealthCheckOutcome::Alive,
            AttemptResult::Failed(failure) => self.read_failed_check(failure.diagnostic),
        }
    }

    fn read_failed_check(&self, diagnostic: Diagnostic) -> HealthCheckOutcome {
        if diagnostic.session_gone.is_some() || self.retired_reason().is_some() {
            return HealthCheckOutcome::Gone(diagnostic);
        }
        // A child that does not read is silent; a server that takes no connection is away.
        let unread = diagnostic.reason == Reason::TimeoutUnsent && self.child().is_some();
        let silence = diagnostic.reason == Reason::Timeout || unread;
        if silence {
            HealthCheckOutcome::Silent
        } else {
            HealthCheckOutcome::Unreachable(diagnostic)
        }
    }
}

/// Checks a server outside of any session. Any answer of its own counts, also a refusal; that of a
/// gateway which does not reach it does not.
pub(crate) async fn check_server(head: RequestHeaders, within: Duration) -> Result<(), Diagnostic> {
    let endpoint = Arc::clone(&head.endpoint);
    let modern = ModernHttpSession::new(head, (Version::NEWEST_MODERN, &ClientProfile::default()));
    let heard = match clock::timeout(within, modern.discover()).await {
        Ok(heard) => heard?,
        Err(clock::Elapsed) => return Err(endpoint.timeout_failure(true).diagnostic),
    };
    match heard.diagnostic {
        Some(diagnostic) if heard.message.is_none() && heard.status >= 500 => Err(diagnostic),
        Some(_) | None => Ok(()),
    }
}

fn is_unknown_method(error: &[u8]) -> bool {
    RpcError::parse(error).is_ok_and(|error| error.code == -32601)
}
