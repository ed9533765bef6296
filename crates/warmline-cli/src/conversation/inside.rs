//! A conversation inside a program that `warmline run` started, through the gateway around it:
//! what is opened there is the program's, and ends with it.

use std::sync::Arc;

use bytes::Bytes;
use warmline::core::era::Era;
use warmline::core::exchange::{Patience, Reply, Request};
use warmline::upstream::{Declared, Facts, List, Session, Upstream};

use super::joined::Remark;
use super::line::{Unlisted, Unopened};
use super::relayed;
use crate::ask::Person;
use crate::problem::Problem;
use crate::run::{ChosenRun, Then};
use crate::target::{Target, TargetSource};

/// A server, as the program around us calls it.
#[derive(Debug)]
pub(super) struct Inside {
    session: Session,
    run: String,
}

impl Inside {
    /// Speaks with the gateway around us; none where the target is not one of its servers.
    pub(super) async fn open(
        target: &Target,
        chosen: &ChosenRun,
        declared: &Declared,
    ) -> Result<Option<(Self, Vec<Remark>)>, Unopened> {
        let TargetSource::Around = target.source else {
            return Ok(None);
        };
        let session = met(target, declared).await?;
        let inside = Self {
            session,
            run: chosen.name.clone(),
        };
        let remark = (chosen.then == Then::Ends).then(|| Remark {
            code: None,
            what: format!("run `{}` goes on: whoever began it ends it", chosen.name),
            why: Some("a `warmline run` is around this program".to_owned()),
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
        relayed::call(&self.session, request, person).await
    }

    pub(super) async fn list(
        &self,
        list: List,
        patience: Patience,
    ) -> Result<Vec<Bytes>, Unlisted> {
        relayed::list(&self.session, list, patience).await
    }

    /// Leaves the server's session to the run.
    pub(super) async fn close(self) {
        self.session.close().await;
    }
}

/// A session there. Where the gateway could speak both eras, the one that has sessions is meant: by
/// it the program's commands share what the server keeps.
async fn met(target: &Target, declared: &Declared) -> Result<Session, Unopened> {
    let upstream = Upstream::new();
    if target.server.era.is_none() {
        let mut legacy = target.server.clone();
        legacy.era = Some(Era::Legacy);
        if let Ok(session) = upstream.open(&legacy, declared).await {
            return Ok(session);
        }
    }
    let opened = upstream.open(&target.server, declared).await;
    opened.map_err(|trouble| Unopened::There(Box::new(trouble)))
}
