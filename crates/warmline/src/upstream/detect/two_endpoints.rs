//! Opening a session over the transport of 2024-11-05, where nothing takes our POST (row P11).

use std::sync::atomic::AtomicBool;

use bytes::Bytes;
use warmline_core::code::Reason;
use warmline_core::era::Version;
use warmline_core::exchange::{Ending, Patience, Reply, Request, Trouble};
use warmline_core::key::Transport;
use warmline_core::protocol::params::Params;

use super::Opening;
use crate::upstream::facts::Facts;
use crate::upstream::greeting;
use crate::upstream::hearing;
use crate::upstream::legacy::INITIALIZED;
use crate::upstream::server::HttpReach;
use crate::upstream::session::Driver;
use crate::upstream::two_endpoints::TwoEndpoints;

impl Opening<'_> {
    /// Looks whether a GET brings the `endpoint` event, and opens a session there. What the POST
    /// got stays the answer if it does not.
    pub(super) async fn or_two_endpoints(
        mut self,
        reach: &HttpReach,
        refused: Trouble,
    ) -> Result<(Driver, Facts), Trouble> {
        let head = self.upstream.letterhead(self.server, reach)?;
        let session = match TwoEndpoints::connect(head, &reach.url, hearing(self.server)).await {
            Some(session) => session?,
            None => return Err(refused),
        };
        self.note("GET", "an `endpoint` event: HTTP+SSE of 2024-11-05");
        let result = self.greet(&session).await?;
        let opened = greeting::read_initialize_result(&self.server.name, &result)?;
        session.notify(INITIALIZED, None).await?;
        let mut facts = opened.facts(Transport::HttpSse, true);
        facts.evidence = self.evidence;
        Ok((Driver::TwoEndpoints(Box::new(session)), facts))
    }

    async fn greet(&mut self, session: &TwoEndpoints) -> Result<Bytes, Trouble> {
        let id = session.next_id();
        let body = self.declared.initialize(id, Version::NEWEST_LEGACY);
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
