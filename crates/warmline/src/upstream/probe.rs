//! A look at an idle session or at a server: is it still there?
//!
//! Asked by: whoever holds a session that rested, before it is used again, and by whoever looks
//! after servers in the background.  A probe is a request without effects, with a limit of its
//! own. What it found is said, never acted upon.

use std::sync::Arc;
use std::time::Duration;

use warmline_core::code::Reason;
use warmline_core::era::Version;
use warmline_core::exchange::{Ending, Patience, Reply, Request, Trouble};
use warmline_core::protocol::envelope::RpcError;
use warmline_core::protocol::params::Params;

use super::letterhead::Letterhead;
use super::modern::ModernHttp;
use super::session::{Declared, Session};
use crate::clock;

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

/// Asks a server something without effects, outside any session. Whatever it says itself counts
/// as an answer, a refusal too; what stands before it failing to reach it does not.
pub(crate) async fn ask(head: Letterhead, within: Duration) -> Result<(), Trouble> {
    let way = Arc::clone(&head.way);
    let modern = ModernHttp::new(head, (Version::NEWEST_MODERN, &Declared::default()));
    let heard = match clock::timeout(within, modern.discover()).await {
        Ok(heard) => heard?,
        Err(clock::Elapsed) => return Err(way.endpoint.late(true).trouble),
    };
    match heard.trouble {
        Some(trouble) if heard.message.is_none() && heard.status >= 500 => Err(trouble),
        Some(_) | None => Ok(()),
    }
}

fn is_unknown_method(error: &[u8]) -> bool {
    RpcError::parse(error).is_ok_and(|error| error.code == -32601)
}
