//! A conversation inside a program that `warmline run` started, through the gateway around it:
//! what is opened there is the program's, and ends with it.

use std::sync::Arc;

use bytes::Bytes;
use http::header::AUTHORIZATION;
use url::Url;
use warmline::config::bearer;
use warmline::core::exchange::{Ending, Patience, Reply, Request};
use warmline::upstream::{Declared, Facts, List, Reach, Server, Session, Upstream};

use super::joined::Remark;
use super::line::{Unlisted, Unopened, unlisted};
use crate::ask::Person;
use crate::background::of_rpc_error;
use crate::problem::Problem;
use crate::run::{ChosenRun, Surrounding, Then};
use crate::target::{Target, TargetSource};

/// A server, as the program around us calls it.
#[derive(Debug)]
pub(super) struct Inside {
    session: Session,
    run: String,
}

impl Inside {
    /// Speaks with the gateway around us; none where there is none, or where it does not serve
    /// this server.
    pub(super) async fn open(
        target: &Target,
        chosen: &ChosenRun,
        declared: &Declared,
    ) -> Result<Option<(Self, Vec<Remark>)>, Unopened> {
        let Some(server) = chosen.inside().and_then(|around| at(target, around)) else {
            return Ok(None);
        };
        let opened = Upstream::new().open(&server, declared).await;
        let session = opened.map_err(|trouble| Unopened::There(Box::new(trouble)))?;
        let inside = Self {
            session,
            run: chosen.name.clone(),
        };
        let remark = (chosen.then == Then::Ends).then(|| Remark {
            code: None,
            what: format!("run `{}` goes on: it ends with its program", chosen.name),
            why: Some("`warmline run` began it, around the program".to_owned()),
            hint: None,
        });
        Ok(Some((inside, remark.into_iter().collect())))
    }

    pub(super) fn facts(&self) -> &Facts {
        self.session.facts()
    }

    /// The name of the run.
    pub(super) fn run(&self) -> &str {
        &self.run
    }

    pub(super) async fn call(
        &self,
        request: Request,
        person: &Arc<Person>,
    ) -> Result<Reply, Problem> {
        match self.session.call(request, &**person).await {
            Ending::Answered(Reply::Error(raw)) => match of_rpc_error(&raw) {
                Some(problem) => Err(problem),
                None => Ok(Reply::Error(raw)),
            },
            Ending::Answered(Reply::Result(raw)) => Ok(Reply::Result(raw)),
            Ending::Failed(failure) => Err(Problem::of_failure(&failure)),
        }
    }

    pub(super) async fn list(
        &self,
        list: List,
        patience: Patience,
    ) -> Result<Vec<Bytes>, Unlisted> {
        let listed = self.session.list(list, patience).await.map_err(unlisted);
        listed.map_err(|not_listed| match not_listed {
            Unlisted::SaidNo(raw) => match of_rpc_error(&raw) {
                Some(problem) => Unlisted::Failed(problem),
                None => Unlisted::SaidNo(raw),
            },
            Unlisted::Failed(problem) => Unlisted::Failed(problem),
        })
    }

    /// Leaves the server's session to the run.
    pub(super) async fn close(self) {
        self.session.close().await;
    }
}

/// The server as the gateway around us has it: it serves what it was started with, which need not
/// be all that is configured. None that was typed.
fn at(target: &Target, around: &Surrounding) -> Option<Server> {
    let TargetSource::Configured { .. } = target.source else {
        return None;
    };
    let name = &target.server.name;
    if !around.servers.contains(name) {
        return None;
    }
    let url = Url::parse(&format!("{}/servers/{name}/mcp", around.url)).ok()?;
    let mut server = Server::http(name.clone(), url);
    if let Reach::Http(http) = &mut server.reach {
        http.headers.push((AUTHORIZATION, bearer(&around.token)?));
    }
    server.era = target.server.era;
    server.times = target.server.times;
    server.sizes = target.server.sizes;
    Some(server)
}
