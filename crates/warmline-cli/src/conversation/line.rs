//! The line a conversation is held on: a session of its own.

use std::sync::Arc;

use bytes::Bytes;
use warmline::core::code::Reason;
use warmline::core::delivery::Delivery;
use warmline::core::exchange::{Ending, Patience, Reply, Request};
use warmline::upstream::{ChildReport, Facts, List, Session};

use crate::ask::Person;
use crate::problem::Problem;

/// How the server is spoken to.
#[derive(Debug)]
pub(super) enum Line {
    /// A session for this command alone.
    Own(Session),
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
        }
    }

    pub(super) fn child(&self) -> Option<ChildReport> {
        match self {
            Self::Own(session) => session.child(),
        }
    }

    /// Sends a request; news and questions go to the person.
    pub(super) async fn call(
        &self,
        request: Request,
        person: &Arc<Person>,
    ) -> Result<Reply, Problem> {
        match self {
            Self::Own(session) => match session.call(request, &**person).await {
                Ending::Answered(reply) => Ok(reply),
                Ending::Failed(failure) => Err(Problem::of_failure(&failure)),
            },
        }
    }

    /// A list with all its pages.
    pub(super) async fn list(
        &self,
        list: List,
        patience: Patience,
    ) -> Result<Vec<Bytes>, Unlisted> {
        match self {
            Self::Own(session) => session.list(list, patience).await.map_err(unlisted),
        }
    }

    /// Ends the session.
    pub(super) async fn close(self) {
        match self {
            Self::Own(session) => session.close().await,
        }
    }
}

fn unlisted(ending: Ending) -> Unlisted {
    match ending {
        Ending::Answered(Reply::Error(raw) | Reply::Result(raw)) => Unlisted::SaidNo(raw),
        Ending::Failed(failure) => {
            let problem = Problem::of_failure(&failure);
            // An answer came; it is of no use.
            Unlisted::Failed(match failure.trouble.reason {
                Reason::BadReply => problem.delivered(Delivery::Answered),
                _ => problem,
            })
        },
    }
}
