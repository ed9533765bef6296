//! Opening a session over the transport of 2024-11-05, where nothing takes our POST (row P11).

use std::sync::atomic::AtomicBool;

use bytes::Bytes;
use warmline_core::code::Reason;
use warmline_core::exchange::{Ending, Patience, Reply, Request, Trouble};
use warmline_core::key::Transport;
use warmline_core::protocol::params::Params;

use super::Opening;
use crate::upstream::facts::Facts;
use crate::upstream::greeting::{self, Offer};
use crate::upstream::hearing;
use crate::upstream::legacy::INITIALIZED;
use crate::upstream::server::HttpReach;
use crate::upstream::session::Driver;
use crate::upstream::two_endpoints::TwoEndpoints;

impl Opening<'_> {
    /// Looks whether a GET brings the `endpoint` event, and opens a session there; none where it
    /// does not.
    pub(super) async fn two_endpoints(
        &mut self,
        reach: &HttpReach,
    ) -> Option<Result<(Driver, Facts), Trouble>> {
        let head = match self.upstream.letterhead(self.server, reach) {
            Ok(head) => head,
            Err(trouble) => return Some(Err(trouble)),
        };
        let connecting = TwoEndpoints::connect(head, &reach.url, hearing(self.server));
        Some(match connecting.await? {
            Ok(session) => self.open_there(session).await,
            Err(trouble) => Err(trouble),
        })
    }

    async fn open_there(&mut self, session: TwoEndpoints) -> Result<(Driver, Facts), Trouble> {
        self.note("GET", "an `endpoint` event: HTTP+SSE of 2024-11-05");
        let offer = self.offer(None);
        let result = self.greet(&session, offer).await;
        let result = result.map_err(|trouble| offer.explain(trouble))?;
        let opened = greeting::read_initialize_result(&self.server.name, &result);
        let opened = opened.map_err(|trouble| offer.explain(trouble))?;
        offer.accepts(&self.server.name, opened.version)?;
        session.speak(opened.version);
        let told = session.notify(INITIALIZED, None).await;
        told.map_err(|lost| lost.trouble)?;
        let mut facts = opened.facts(Transport::HttpSse, true);
        facts.evidence = std::mem::take(&mut self.evidence);
        Ok((Driver::TwoEndpoints(Box::new(session)), facts))
    }

    async fn greet(&mut self, session: &TwoEndpoints, offer: Offer) -> Result<Bytes, Trouble> {
        let id = session.next_id();
        let body = self.declared.initialize(id, offer.version());
        let limit = self.server.times.handshake;
        let request = Request::new("initialize", Params::empty()).patient(Patience {
            idle: limit,
            total: limit,
        });
        let issued = AtomicBool::new(false);
        let asked = session.ask((id, body), request, &(), &issued);
        match asked.await {
            Ending::Answered(Reply::Result(result)) => {
                self.note("initialize", "a result");
                Ok(result)
            },
            Ending::Answered(Reply::Error(error)) => Err(greeting::refused_handshake(
                &self.server.name,
                "initialize",
                &error,
            )),
            Ending::Failed(failure) => {
                let trouble = failure.trouble;
                Err(if trouble.reason == Reason::Timeout {
                    Trouble::new(Reason::SilentServer, trouble.what)
                } else {
                    trouble
                })
            },
        }
    }
}
