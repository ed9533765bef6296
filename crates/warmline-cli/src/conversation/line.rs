//! The line a conversation is held on: a session of its own, or that of a run.

use std::sync::Arc;

use bytes::Bytes;
use warmline::core::code::Reason;
use warmline::core::delivery::Delivery;
use warmline::core::exchange::{Ending, Patience, Reply, Request, Trouble};
use warmline::upstream::{ChildReport, Facts, List, Session};

use super::inside::Inside;
use super::joined::{Joined, Remark};
use super::relayed;
use super::through::Through;
use crate::ask::Person;
use crate::problem::Problem;

/// How the server is spoken to.
#[derive(Debug)]
pub(super) enum Line {
    /// A session for this command alone.
    Own(Session),
    /// The session of a run, which other commands use too.
    Joined(Box<Joined>),
    /// The same, held by the background gateway.
    Through(Box<Through>),
    /// The same, held by the gateway around the program that started this command.
    Inside(Box<Inside>),
}

/// Why there is no line.
#[derive(Debug)]
pub(super) enum Unopened {
    /// Something on this side is not as it should be.
    Here(Problem),
    /// The server could not be met.
    There(Box<Trouble>),
}

/// Why there is no list.
#[derive(Debug)]
pub(super) enum Unlisted {
    Failed(Problem),
    /// The server answered with an error: its raw JSON.
    SaidNo(Bytes),
}

impl Line {
    pub(super) fn facts(&self) -> &Facts {
        match self {
            Self::Own(session) => session.facts(),
            Self::Joined(joined) => joined.facts(),
            Self::Through(through) => through.facts(),
            Self::Inside(inside) => inside.facts(),
        }
    }

    pub(super) fn child(&self) -> Option<ChildReport> {
        match self {
            Self::Own(session) => session.child(),
            // The engine keeps its children to itself.
            Self::Joined(_) | Self::Through(_) | Self::Inside(_) => None,
        }
    }

    /// Sends a request; news and questions go to the person.
    pub(super) async fn call(
        &self,
        request: Request,
        person: &Arc<Person>,
    ) -> Result<Reply, Problem> {
        match self {
            Self::Own(session) => relayed::call(session, request, person).await,
            Self::Joined(joined) => joined.call(&request, person).await,
            Self::Through(through) => through.call(request, person).await,
            Self::Inside(inside) => inside.call(request, person).await,
        }
    }

    /// A list with all its pages.
    pub(super) async fn list(
        &self,
        list: List,
        patience: Patience,
    ) -> Result<Vec<Bytes>, Unlisted> {
        match self {
            Self::Own(session) => relayed::list(session, list, patience).await,
            Self::Joined(joined) => joined.list(list).await,
            Self::Through(through) => through.list(list, patience).await,
            Self::Inside(inside) => inside.list(list, patience).await,
        }
    }

    /// The run it belongs to, if there is one.
    pub(super) fn run(&self) -> Option<&str> {
        match self {
            Self::Own(_) => None,
            Self::Joined(joined) => Some(joined.run()),
            Self::Through(through) => Some(through.run()),
            Self::Inside(inside) => Some(inside.run()),
        }
    }

    /// Whether the session was there before this command.
    pub(super) fn is_warm(&self) -> bool {
        match self {
            // The gateway around us does not say whether it was.
            Self::Own(_) | Self::Inside(_) => false,
            Self::Joined(joined) => joined.is_warm(),
            Self::Through(through) => through.is_warm(),
        }
    }

    /// The number of the session within its run.
    pub(super) fn generation(&self) -> Option<u32> {
        match self {
            Self::Own(_) | Self::Inside(_) => None,
            Self::Joined(joined) => joined.generation(),
            Self::Through(through) => through.generation(),
        }
    }

    /// Ends the session, or leaves it to the run; what is left to say is handed back.
    pub(super) async fn close(self) -> Vec<Remark> {
        match self {
            Self::Own(session) => {
                session.close().await;
                Vec::new()
            },
            Self::Joined(joined) => joined.close().await,
            Self::Through(through) => through.close().await,
            Self::Inside(inside) => {
                inside.close().await;
                Vec::new()
            },
        }
    }
}

pub(super) fn unlisted(ending: Ending) -> Unlisted {
    match ending {
        Ending::Answered(Reply::Error(raw) | Reply::Result(raw)) => Unlisted::SaidNo(raw),
        Ending::Failed(failure) => {
            let problem = Problem::of_failure(&failure);
            // An answer came; it is of no use.
            if failure.trouble.reason == Reason::BadReply {
                return Unlisted::Failed(problem.delivered(Delivery::Answered));
            }
            Unlisted::Failed(problem)
        },
    }
}
