//! The survey: what a server does on each of its two legs, for people who want to know.

use warmline_core::code::{Code, Reason};
use warmline_core::era::Era;
use warmline_core::exchange::Trouble;

use super::Upstream;
use super::detect;
use super::facts::Facts;
use super::hidden::Hidden;
use super::server::Server;
use super::session::Declared;

/// What a server does on each leg.
#[derive(Debug)]
pub struct Survey {
    /// `initialize` and sessions.
    pub legacy: Leg,
    /// `server/discover` and no sessions.
    pub modern: Leg,
}

/// What one leg of a server does.
#[derive(Debug)]
pub enum Leg {
    /// It works, and this is what is known of it.
    Speaks(Box<Facts>),
    /// The server does not offer it, and said so.
    DoesNot(Trouble),
    /// It could not be found out.
    Failed(Trouble),
    /// It was not tried, because of what the other leg showed.
    NotTried,
}

impl Leg {
    /// What is known of the leg, where it works.
    pub fn facts(&self) -> Option<&Facts> {
        match self {
            Self::Speaks(facts) => Some(facts),
            Self::DoesNot(_) | Self::Failed(_) | Self::NotTried => None,
        }
    }
}

/// Opens and ends a session on each leg. A child is started for each.
pub(crate) async fn survey(upstream: &Upstream, server: &Server, declared: &Declared) -> Survey {
    let modern = leg(upstream, server, declared, Era::Modern).await;
    // A server that cannot be reached at all need not be asked twice.
    if let Leg::Failed(trouble) = &modern
        && trouble.code == Code::CannotReach
    {
        return Survey {
            legacy: Leg::NotTried,
            modern,
        };
    }
    let legacy = leg(upstream, server, declared, Era::Legacy).await;
    Survey { legacy, modern }
}

async fn leg(upstream: &Upstream, server: &Server, declared: &Declared, era: Era) -> Leg {
    match detect::ask(upstream, &server.in_era(era), declared).await {
        Ok(session) => {
            session.close().await;
            Leg::Speaks(Box::new(session.facts().clone()))
        },
        Err(trouble) => {
            let trouble = Hidden::of_server(server).struck(trouble);
            match trouble.reason == Reason::Version {
                true => Leg::DoesNot(trouble),
                false => Leg::Failed(trouble),
            }
        },
    }
}
