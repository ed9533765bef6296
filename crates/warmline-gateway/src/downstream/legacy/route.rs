//! How a legacy client reaches a server: as which identity, and in which run.
//!
//! A client session has a route for its own run, and one for each run that its requests name.

use std::sync::Arc;

use warmline_core::era::Era;
use warmline_core::message::params::Params;
use warmline_core::pool_key::Digest;
use warmline_engine::admin::CallerAdmin as _;
use warmline_engine::relay::RelayHandle as _;
use warmline_engine::{Caller, Error, Run, ServerHandle};
use warmline_platform::clock;
use warmline_store::keyring::Purpose;
use warmline_upstream::ClientProfile;

use super::client_session::ClientSession;
use super::session_ticket::SessionTicket;
use crate::auth::{self, AnonymousScope, Subject};
use crate::downstream::RequestContext;
use crate::endpoint::RequestTarget;
use crate::response::rejection::RequestRejection;

/// A server as a client calls it, in a run or outside.
#[derive(Debug)]
pub(crate) struct ServerRoute {
    pub(crate) server: ServerHandle,
    run: Option<Run>,
}

impl ServerRoute {
    fn is_live(&self) -> bool {
        self.run.as_ref().is_none_or(Run::is_live)
    }
}

pub(super) type NamedRoute = (Option<Box<str>>, Arc<ServerRoute>);

const MAX_ROUTES: usize = 64;

impl ServerRoute {
    /// The same route with the credential that this request carries.
    fn for_request(self: Arc<Self>, context: &RequestContext<'_>) -> Arc<Self> {
        if !self.server.uses_caller_credential() {
            return self;
        }
        Arc::new(Self {
            server: self
                .server
                .clone()
                .with_caller_credential(context.head.headers),
            run: self.run.clone(),
        })
    }
}

impl ClientSession {
    /// The route of a request: in the run that it names, else in that of the ticket.
    pub(crate) fn route(
        &self,
        context: &RequestContext<'_>,
        params: Option<&Params>,
    ) -> Result<Arc<ServerRoute>, RequestRejection> {
        let named = context.named_run(params)?;
        let run = named.as_deref().or(self.run());
        let server = context.target.server.unwrap_or_default();
        let is_meant =
            |(name, route): &&NamedRoute| name.as_deref() == run && route.server.name() == server;
        let routes = self.routes.lock();
        let known = routes.iter().find(is_meant).map(|(_, route)| route);
        let known = known.filter(|route| route.is_live()).cloned();
        drop(routes);
        if let Some(known) = known {
            return Ok(known.for_request(context));
        }
        let own = self.own_run_name();
        let (route, entered) = self.find_route(context, run, |caller| match (run, &own) {
            // The client was in the run before: if the run is gone, its state is lost.
            (Some(run), _) if self.run() == Some(run) => caller.rejoin_run(run).map(Some),
            (Some(run), _) => caller.named_run(run).map(Some),
            (None, Some(own)) => caller.rejoin_run(own).map(Some),
            (None, None) => Ok(None),
        })?;
        // The run outlives this request.
        if let Some(entered) = entered {
            entered.detach();
        }
        Ok(route)
    }

    /// The route, and the handle that entered its run. A handle that began the run ends it, unless it is
    /// detached.
    pub(super) fn find_route(
        &self,
        context: &RequestContext<'_>,
        named: Option<&str>,
        enter: impl FnOnce(&Caller) -> Result<Option<Run>, Error>,
    ) -> Result<(Arc<ServerRoute>, Option<Run>), RequestRejection> {
        let identity = caller(context, named, self.ticket.as_ref());
        let entered = enter(&identity)?;
        let run = entered.clone();
        let name = context.target.server.unwrap_or_default();
        let server = match &run {
            Some(run) => run.server(name)?,
            None => identity.server(name)?,
        };
        let server = self.prepare_server(context, server);
        self.restore_log_level(&server);
        let route = Arc::new(ServerRoute { server, run });
        let mut routes = self.routes.lock();
        let is_other =
            |(run, route): &NamedRoute| run.as_deref() != named || route.server.name() != name;
        let was_dead = routes.iter().any(|known| !is_other(known));
        routes.retain(|known| is_other(known) && known.1.is_live());
        if routes.len() >= MAX_ROUTES {
            routes.remove(0);
        }
        routes.push((named.map(Box::from), Arc::clone(&route)));
        drop(routes);
        if was_dead {
            self.resubscribe_get_stream(named, &route.server);
        }
        Ok((route, entered))
    }

    fn prepare_server(&self, context: &RequestContext<'_>, server: ServerHandle) -> ServerHandle {
        // Shared sessions are keyed by the declared capabilities. Their flags are the same after a restart,
        // and for clients that differ only in unknown capabilities.
        let words = self.capabilities.clone();
        let words = words.filter(|_| server.has_session_per_run());
        let profile = match &self.ticket {
            Some(ticket) => ClientProfile {
                capabilities: words.unwrap_or_else(|| ticket.capabilities.to_capabilities()),
                version: Some(ticket.version),
                ..ClientProfile::default()
            },
            None => ClientProfile {
                version: context.head.legacy_version(),
                ..ClientProfile::default()
            },
        };
        server
            .with_caller_credential(context.head.headers)
            .with_client_profile(profile)
            .with_era(Era::Legacy)
    }

    /// Removes the client from sessions that outlive it, in the background: those of named runs, and
    /// shared ones.
    pub(super) fn release_shared_sessions(&self, context: &RequestContext<'_>) {
        let Some(name) = self.session_key() else {
            return;
        };
        let routes = self.routes.lock();
        let mut servers: Vec<_> = routes
            .iter()
            .map(|(run, route)| (run.is_some(), route.server.clone()))
            .collect();
        drop(routes);
        // A session that was evicted meanwhile has lost its routes.
        let named = context.named_run(None).ok().flatten();
        let named = named.as_deref().or(self.run());
        if !servers
            .iter()
            .any(|(is_named, _)| *is_named == named.is_some())
        {
            let there = self.servers_in_run(context, named).into_iter();
            servers.extend(there.map(|server| (named.is_some(), server)));
        }
        for (is_named, server) in servers {
            if is_named || server.shares_session() {
                drop(clock::spawn("client-leaving", server.remove_client(name)));
            }
        }
    }

    /// The servers of a named run, or of the client's own, if it still exists.
    fn servers_in_run(
        &self,
        context: &RequestContext<'_>,
        named: Option<&str>,
    ) -> Vec<ServerHandle> {
        let own = self.own_run_name();
        let Some(name) = named.or(own.as_deref()) else {
            return Vec::new();
        };
        let identity = caller(context, named, self.ticket.as_ref());
        let Ok(run) = identity.join_run(name) else {
            return Vec::new();
        };
        let names = match context.target.server {
            Some(server) => vec![server.to_owned()],
            None => context.shared.warmline.server_names(),
        };
        let reached = names.iter().filter_map(|name| run.server(name).ok());
        reached
            .map(|server| self.prepare_server(context, server))
            .collect()
    }
}

pub(super) fn caller(
    context: &RequestContext<'_>,
    run: Option<&str>,
    ticket: Option<&SessionTicket>,
) -> Caller {
    if let Subject::Authenticated(known) = &context.subject {
        return known.identity.clone();
    }
    let own_run = ticket.map(SessionTicket::own_run_name);
    let scope = match (run, &own_run) {
        (Some(run), _) => AnonymousScope::Run(run),
        (None, Some(own_run)) => AnonymousScope::ClientSession(own_run),
        (None, None) => AnonymousScope::Request,
    };
    auth::caller_for(&context.shared.warmline, &context.subject, scope)
}

/// The digest of the server and the run in the path. A ticket is valid only there.
pub(super) fn route_digest(context: &RequestContext<'_>) -> Digest {
    let RequestTarget { run, server } = context.target;
    let vault = context.shared.warmline.vault();
    let part = |text: Option<&'static str>| text.unwrap_or_default();
    let (has_run, run) = (part(run.map(|_| "run")), run.unwrap_or_default());
    let (has_server, server) = (part(server.map(|_| "server")), server.unwrap_or_default());
    let parts = [has_run, run, has_server, server].map(str::as_bytes);
    vault.digest(Purpose::Route, &parts)
}
