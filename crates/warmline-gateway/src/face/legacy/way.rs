//! The way of a legacy client to its server: as whom, and in which run.
//!
//! Asked by: the legacy face, at every request that goes on to a server.  A client has one for its
//! own run, and one for each run that its requests name.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use warmline::core::era::{Era, Version};
use warmline::core::key::Digest;
use warmline::core::protocol::headers::PROTOCOL_VERSION;
use warmline::core::protocol::params::Params;
use warmline::seal::Purpose;
use warmline::{Declared, IdentityHandle, Run, ServerHandle, clock};

use super::client::Client;
use super::refusal::Refusal;
use crate::face::Visit;
use crate::path::Target;
use crate::ticket::Ticket;
use crate::which;
use crate::who::{self, Split};

/// The way of a client to its server: in a run, or outside.
#[derive(Debug)]
pub(crate) struct Way {
    pub(crate) server: ServerHandle,
    run: Option<Run>,
}

impl Way {
    fn is_good(&self) -> bool {
        self.run.as_ref().is_none_or(Run::is_live)
    }
}

/// A way, by the run that was named for it.
pub(super) type NamedWay = (Option<Box<str>>, Arc<Way>);

/// More ways than these are not remembered of one client.
const MAX_WAYS: usize = 64;

/// How a client comes to its run.
#[derive(Clone, Copy, Debug)]
pub(super) enum Coming<'a> {
    /// Outside any.
    Alone,
    /// It names it, and may be the first to.
    ByName(&'a str),
    /// It was there before: where the run is not any more, what it held is lost.
    Back(&'a str),
}

impl Way {
    /// The same for another request: what it hands in for the server counts for it alone.
    fn of_request(self: Arc<Self>, visit: &Visit<'_>) -> Arc<Self> {
        if !self.server.is_of_caller() {
            return self;
        }
        Arc::new(Self {
            server: self.server.clone().of_caller(&visit.head.headers),
            run: self.run.clone(),
        })
    }
}

impl Client {
    /// The way of a request to the server: in the run that it names, else in that of the ticket,
    /// which was named at `initialize` or is the client's own.
    pub(crate) fn way(
        &self,
        visit: &Visit<'_>,
        params: Option<&Params>,
    ) -> Result<Arc<Way>, Refusal> {
        let said = named_run(visit, params)?;
        let run = said.as_deref().or(self.run.as_deref());
        let server = visit.target.server.unwrap_or_default();
        if let Some(known) = self.known_way(run, server) {
            return Ok(known.of_request(visit));
        }
        let own = self.ticket.as_ref().map(Ticket::run_name);
        let coming = match (run, &self.ticket) {
            (Some(run), Some(ticket)) if ticket.run.name() == Some(run) => Coming::Back(run),
            (Some(run), _) => Coming::ByName(run),
            (None, _) => own.as_deref().map_or(Coming::Alone, Coming::Back),
        };
        let (way, entered) = self.find_way(visit, run, coming)?;
        // The run goes on without this request.
        if let Some(entered) = entered {
            entered.detach();
        }
        Ok(way)
    }

    fn known_way(&self, run: Option<&str>, server: &str) -> Option<Arc<Way>> {
        let ways = self.ways.lock();
        let is_meant =
            |(name, way): &&NamedWay| name.as_deref() == run && way.server.name() == server;
        let (_, way) = ways.iter().find(is_meant)?;
        way.is_good().then(|| Arc::clone(way))
    }

    /// The way, and the handle that came to its run: where it began the run, it ends it unless it
    /// is detached.
    pub(super) fn find_way(
        &self,
        visit: &Visit<'_>,
        named: Option<&str>,
        coming: Coming<'_>,
    ) -> Result<(Arc<Way>, Option<Run>), Refusal> {
        let identity = identity(visit, named, self.ticket.as_ref());
        let entered = enter(&identity, coming)?;
        let run = entered.clone();
        let name = visit.target.server.unwrap_or_default();
        let server = match &run {
            Some(run) => run.server(name)?,
            None => identity.server(name)?,
        };
        let server = self.meet(visit, server);
        self.comes_back_to(&server);
        let way = Arc::new(Way { server, run });
        let mut ways = self.ways.lock();
        let is_other = |(run, way): &NamedWay| run.as_deref() != named || way.server.name() != name;
        let led_nowhere = ways.iter().any(|known| !is_other(known));
        ways.retain(|known| is_other(known) && known.1.is_good());
        if ways.len() >= MAX_WAYS {
            ways.remove(0);
        }
        ways.push((named.map(Box::from), Arc::clone(&way)));
        drop(ways);
        if led_nowhere {
            self.hear_anew(named, &way.server);
        }
        Ok((way, entered))
    }

    /// The server as this client speaks with it.
    fn meet(&self, visit: &Visit<'_>, server: ServerHandle) -> ServerHandle {
        // Sessions that others share are kept apart by what was declared. There the flags of the
        // ticket count, which are the same after a restart and for clients that differ only in what
        // we know nothing of.
        let words = self.words.clone().filter(|_| server.is_held_for_runs());
        server
            .of_caller(&visit.head.headers)
            .declaring(self.declared(visit, words))
            .in_era(Era::Legacy)
    }

    /// Takes back what it wanted of sessions that go on without it: those of runs that were named,
    /// and those that are no run's own. Nobody waits for that.
    pub(super) fn leave(&self, visit: &Visit<'_>) {
        let Some(name) = self.name() else { return };
        let ways = self.ways.lock();
        let known = ways.iter();
        let mut servers: Vec<_> = known
            .map(|(run, way)| (run.is_some(), way.server.clone()))
            .collect();
        drop(ways);
        // One that was forgotten meanwhile does not know its ways any more.
        let said = named_run(visit, None).ok().flatten();
        let named = said.as_deref().or(self.run.as_deref());
        if !servers
            .iter()
            .any(|(is_named, _)| *is_named == named.is_some())
        {
            let there = self.servers_in(visit, named).into_iter();
            servers.extend(there.map(|server| (named.is_some(), server)));
        }
        for (is_named, server) in servers {
            if is_named || server.shares_session() {
                drop(clock::spawn("client-leaving", server.leave(name)));
            }
        }
    }

    /// The servers of a run that was named, or of the client's own, if that is still there.
    fn servers_in(&self, visit: &Visit<'_>, named: Option<&str>) -> Vec<ServerHandle> {
        let own = self.ticket.as_ref().map(Ticket::run_name);
        let Some(name) = named.or(own.as_deref()) else {
            return Vec::new();
        };
        let identity = identity(visit, named, self.ticket.as_ref());
        let Ok(run) = identity.join(name) else {
            return Vec::new();
        };
        let names = match visit.target.server {
            Some(server) => vec![server.to_owned()],
            None => visit.shared.warm.servers(),
        };
        let reached = names.iter().filter_map(|name| run.server(name).ok());
        reached.map(|server| self.meet(visit, server)).collect()
    }

    /// What is said of the client where a session is opened for it.
    fn declared(&self, visit: &Visit<'_>, words: Option<Bytes>) -> Declared {
        match &self.ticket {
            Some(ticket) => Declared {
                capabilities: words.unwrap_or_else(|| ticket.answers.capabilities()),
                version: Some(ticket.version),
                ..Declared::default()
            },
            None => Declared {
                version: stated_version(visit),
                ..Declared::default()
            },
        }
    }
}

/// The run that a client comes to.
pub(super) fn enter(identity: &IdentityHandle, coming: Coming<'_>) -> Result<Option<Run>, Refusal> {
    match coming {
        Coming::Alone => Ok(None),
        Coming::ByName(run) => Ok(Some(identity.named(run)?)),
        Coming::Back(run) => Ok(Some(identity.rejoin(run)?)),
    }
}

/// The version that the header names, if it is one of this era.
fn stated_version(visit: &Visit<'_>) -> Option<Version> {
    let stated = visit.head.headers.get(PROTOCOL_VERSION)?.to_str().ok()?;
    Version::parse(stated).filter(|version| version.era() == Era::Legacy)
}

/// The run that a request names, if it names one.
pub(super) fn named_run<'a>(
    visit: &Visit<'a>,
    params: Option<&Params>,
) -> Result<Option<Cow<'a, str>>, Refusal> {
    let terms = visit.shared.terms.load();
    let run_from = &terms.run_from;
    let vault = visit.shared.warm.vault();
    which::run(visit.target.run, visit.head, params, run_from, vault).map_err(Refusal::BadRun)
}

/// Whom a request speaks for.
pub(super) fn identity(
    visit: &Visit<'_>,
    run: Option<&str>,
    ticket: Option<&Ticket>,
) -> IdentityHandle {
    let split = match (run, ticket) {
        (Some(run), _) => Split::Run(run),
        (None, Some(ticket)) => Split::Ticket(ticket),
        (None, None) => Split::Once,
    };
    who::identity(&visit.shared.warm, &visit.subject, split)
}

/// The digest of where a ticket is good: a server, in the run that the path names.
pub(super) fn route(visit: &Visit<'_>) -> Digest {
    let Target { run, server } = visit.target;
    let vault = visit.shared.warm.vault();
    let part = |text: Option<&'static str>| text.unwrap_or_default();
    let (has_run, run) = (part(run.map(|_| "run")), run.unwrap_or_default());
    let (has_server, server) = (part(server.map(|_| "server")), server.unwrap_or_default());
    let parts = [has_run, run, has_server, server].map(str::as_bytes);
    vault.digest(Purpose::Route, &parts)
}
