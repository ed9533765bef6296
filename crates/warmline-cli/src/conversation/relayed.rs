//! Asking a server on a session, which may lead to a gateway of ours: what a gateway itself says is
//! a problem, with what it knows of the call; what the server says is its answer.
//!
//! Asked by: the lines that are a session of the command's own, or lead through a gateway.

use std::sync::Arc;

use bytes::Bytes;
use warmline::core::exchange::{Ending, Patience, Reply, Request};
use warmline::upstream::{List, Session};

use super::line::{Unlisted, unlisted};
use crate::ask::Person;
use crate::background::of_rpc_error;
use crate::problem::Problem;

/// Sends a request; news and questions go to the person.
pub(super) async fn call(
    session: &Session,
    request: Request,
    person: &Arc<Person>,
) -> Result<Reply, Problem> {
    match session.call(request, &**person).await {
        Ending::Answered(Reply::Error(raw)) => match of_rpc_error(&raw) {
            Some(problem) => Err(problem),
            None => Ok(Reply::Error(raw)),
        },
        Ending::Answered(Reply::Result(raw)) => Ok(Reply::Result(raw)),
        Ending::Failed(failure) => Err(Problem::of_failure(&failure)),
    }
}

/// A list with all its pages.
pub(super) async fn list(
    session: &Session,
    list: List,
    patience: Patience,
) -> Result<Vec<Bytes>, Unlisted> {
    let listed = session.list(list, patience).await.map_err(unlisted);
    listed.map_err(|not_listed| match not_listed {
        Unlisted::SaidNo(raw) => match of_rpc_error(&raw) {
            Some(problem) => Unlisted::Failed(problem),
            None => Unlisted::SaidNo(raw),
        },
        Unlisted::Failed(problem) => Unlisted::Failed(problem),
    })
}
