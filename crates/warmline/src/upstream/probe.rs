//! A look at an idle session: is it still there?
//!
//! Asked by: whoever holds a session that rested, before it is used again.  A probe is a request
//! without effects, with a limit of its own. What it found is said, never acted upon.

use std::time::Duration;

use warmline_core::code::Reason;
use warmline_core::exchange::{Ending, Patience, Reply, Request, Trouble};
use warmline_core::protocol::envelope::RpcError;
use warmline_core::protocol::params::Params;

use super::session::Session;

/// A request without effects that shows whether a session lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Probe {
    /// `ping`: the legacy era has it.
    Ping,
    /// `tools/list`: for legacy servers that do not know `ping`.
    ToolsList,
    /// `server/discover`: the modern era has it.
    Discover,
}

impl Probe {
    /// The method it sends.
    pub const fn method(self) -> &'static str {
        match self {
            Self::Ping => "ping",
            Self::ToolsList => "tools/list",
            Self::Discover => "server/discover",
        }
    }
}

/// What a probe found.
#[derive(Clone, Debug)]
pub enum Probed {
    /// The server answered on this session.
    Alive,
    /// It answered that it does not know the method: alive, and another probe is better next time.
    NotUnderstood,
    /// It said that the session is gone; or the process or the stream that was the session ended.
    Gone(Trouble),
    /// Nothing came within the limit.
    Silent,
    /// There was no answer about the session: the way to the server failed, or something else was
    /// refused. The session may well be alive.
    Unreachable(Trouble),
}

impl Session {
    /// Asks whether the session is alive, for at most that long.
    ///
    /// # Cancel safety
    /// Dropping it leaves nothing behind.
    pub async fn probe(&self, probe: Probe, within: Duration) -> Probed {
        let patience = Patience {
            idle: within,
            total: within,
        };
        let request = Request::new(probe.method(), Params::empty()).patient(patience);
        match self.send(request, &()).await {
            Ending::Answered(Reply::Error(error)) if is_unknown_method(&error) => {
                Probed::NotUnderstood
            },
            Ending::Answered(_) => Probed::Alive,
            Ending::Failed(failure) => self.read_failed_probe(failure.trouble),
        }
    }

    fn read_failed_probe(&self, trouble: Trouble) -> Probed {
        if trouble.gone.is_some() || self.retired().is_some() {
            return Probed::Gone(trouble);
        }
        // A child that does not read is silent; a server that takes no connection is away.
        let unread = trouble.reason == Reason::TimeoutUnsent && self.child().is_some();
        let silence = trouble.reason == Reason::Timeout || unread;
        if silence {
            Probed::Silent
        } else {
            Probed::Unreachable(trouble)
        }
    }
}

fn is_unknown_method(error: &[u8]) -> bool {
    RpcError::parse(error).is_ok_and(|error| error.code == -32601)
}
