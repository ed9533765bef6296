//! `initialize`: begins a client session, with the server's own result.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use warmline_core::era::{Era, Version};
use warmline_core::error::code::Reason;
use warmline_core::exchange::Diagnostic;
use warmline_core::message::envelope::Message;
use warmline_core::message::params::Params;
use warmline_core::pool_key::Digest;
use warmline_core::protocol::headers::SESSION_ID;
use warmline_engine::admin::CallerAdmin as _;
use warmline_engine::relay::RelayHandle as _;
use warmline_engine::{Caller, Error, Run, ServerHandle};
use warmline_platform::clock;
use warmline_store::keyring::random_bytes;
use warmline_upstream::ServerFacts;

use super::client_session::ClientSession;
use super::route::{ServerRoute, caller, route_digest};
use super::session_ticket::SessionTicket;
use crate::GatewayState;
use crate::downstream::legacy::session_ticket::{CapabilityFlags, capabilities_beyond_flags};
use crate::downstream::{RequestContext, aggregate};
use crate::response::rejection::{RequestRejection, RpcCode};
use crate::response::{self, ResponseBody};

/// The status line where the server speaks the modern era alone. Some clients show nothing else.
const MODERN_ONLY_PHRASE: &str =
    "Unsupported protocol version: this server speaks 2026-07-28 alone";

pub(super) async fn handle_initialize(
    context: &RequestContext<'_>,
    message: &Message,
    params: Params,
) -> Result<Response<ResponseBody>, RequestRejection> {
    let Some(offered) = requested_version(&params) else {
        let what = "Invalid params: `protocolVersion` is missing";
        return Err(RequestRejection::bad_request(RpcCode::Params, what));
    };
    let capabilities = params.member("capabilities").unwrap_or(b"{}");
    if !capabilities.starts_with(b"{") {
        let what = "Invalid params: `capabilities` must be an object";
        return Err(RequestRejection::bad_request(RpcCode::Params, what));
    }
    let begun = NewClientSession::new(context, &params, capabilities, offered)?;
    let (version, result) = match context.target.server {
        Some(_) => server_handshake(context, &begun, &params).await?,
        None => {
            let initializing = aggregate::initialize(context, &begun, &params, offered);
            (offered, Box::pin(initializing).await?)
        },
    };
    let ticket = begun
        .issue_ticket(context.shared, version)
        .map_err(|diagnostic| {
            let status = StatusCode::INTERNAL_SERVER_ERROR;
            RequestRejection::new(status, RpcCode::Internal, diagnostic.to_string())
        })?;
    let message = response::response_message(message.raw_id(), "result", result.as_bytes());
    let mut response = response::ok_json(message);
    response.headers_mut().insert(SESSION_ID, ticket);
    Ok(response)
}

async fn server_handshake(
    context: &RequestContext<'_>,
    begun: &NewClientSession,
    params: &Params,
) -> Result<(Version, String), RequestRejection> {
    let route = begun.route(context)?;
    let line = context.target_audit_line("initialize", params);
    let facts = route.server.cached_info().await;
    line.finish(&facts.as_ref().map(|_| Bytes::new()).map_err(Error::clone));
    let facts = match facts {
        Ok(facts) => facts,
        Err(error) => return Err(handshake_error(&route.server, params, error).await),
    };
    let mut result = initialize_result(&facts);
    if route.server.shares_session_state(&facts) {
        result = without_tasks(result);
    }
    Ok((facts.version, result))
}

/// Why there is no handshake. A server that does not speak this era says which versions it speaks.
async fn handshake_error(server: &ServerHandle, params: &Params, error: Error) -> RequestRejection {
    let modern = Version::NEWEST_MODERN.as_str();
    // It said so just now, or is known to.
    let names_it = error.cause().is_some_and(|why| why.contains(modern));
    let is_modern =
        error.reason() == Reason::Version && (names_it || server.lacks_era(Era::Legacy).await);
    if !is_modern {
        return RequestRejection::Failed(error);
    }
    let requested = params.member("protocolVersion");
    let requested = requested.and_then(|raw| serde_json::from_slice::<String>(raw).ok());
    let what = format!(
        "Unsupported protocol version: `{}` speaks {modern} alone, and nothing here translates yet; \
         use a client that speaks it, or a server that speaks older versions too",
        server.name()
    );
    RequestRejection::bad_request(RpcCode::Version, what)
        .with_data(json!({ "supported": [modern], "requested": requested }))
        .with_era_mismatch(Some(MODERN_ONLY_PHRASE))
}

/// The version to open the server's session in: the client's, or the newest legacy one.
fn requested_version(params: &Params) -> Option<Version> {
    let raw = params.member("protocolVersion")?;
    let stated: String = serde_json::from_slice(raw).ok()?;
    let known = Version::parse(&stated).filter(|version| version.era() == Era::Legacy);
    Some(known.unwrap_or(Version::NEWEST_LEGACY))
}

/// The result without the capability `tasks`: every client would see all tasks (mcp-spec 5.7).
fn without_tasks(result: String) -> String {
    let parsed = serde_json::from_str::<Value>(&result).ok();
    let stripped = parsed.and_then(|mut result| {
        let capabilities = result.get_mut("capabilities")?.as_object_mut()?;
        capabilities.remove("tasks")?;
        Some(result.to_string())
    });
    stripped.unwrap_or(result)
}

/// The server's result, in its own bytes where they are cached.
fn initialize_result(facts: &ServerFacts) -> String {
    if let Some(result) = facts
        .handshake_result
        .as_deref()
        .and_then(|result| std::str::from_utf8(result).ok())
    {
        return result.to_owned();
    }
    let raw = |bytes: &[u8]| {
        let text = std::str::from_utf8(bytes).unwrap_or("{}").to_owned();
        RawValue::from_string(text).ok()
    };
    let mut result = json!({
        "protocolVersion": facts.version.as_str(),
        "capabilities": raw(&facts.capabilities),
        "serverInfo": facts.server_info.as_deref().and_then(raw),
    });
    if let (Some(instructions), Some(result)) = (&facts.instructions, result.as_object_mut()) {
        result.insert("instructions".to_owned(), instructions.clone().into());
    }
    result.to_string()
}

/// A client session whose client has no ticket yet.
pub(crate) struct NewClientSession {
    session: ClientSession,
    ticket: SessionTicket,
    /// The run that began for this session. It ends unless the ticket is issued: no client could come
    /// back to it.
    own_run: OnceLock<Run>,
}

impl NewClientSession {
    fn new(
        context: &RequestContext<'_>,
        params: &Params,
        capabilities: &[u8],
        version: Version,
    ) -> Result<Self, RequestRejection> {
        let run = context.named_run(Some(params))?;
        let mut ticket = SessionTicket {
            identity: Digest::new([0; 16]),
            route: route_digest(context),
            run: run.as_deref().map(Box::from),
            session_key: Digest::new(random_bytes()),
            version,
            capabilities: CapabilityFlags::from_capabilities(capabilities),
            issued_at: clock::wall_seconds(),
        };
        ticket.identity = caller(context, None, Some(&ticket)).digest();
        let mut session = ClientSession::new(context, Some(ticket.clone()));
        if context.target.server.is_some() {
            session.capabilities = capabilities_beyond_flags(capabilities);
        }
        Ok(Self {
            session,
            ticket,
            own_run: OnceLock::new(),
        })
    }

    /// The route to the server of `context`, in a run that begins now unless it exists.
    pub(crate) fn route(
        &self,
        context: &RequestContext<'_>,
    ) -> Result<Arc<ServerRoute>, RequestRejection> {
        let run = self.session.run();
        let enter = |caller: &Caller| self.begin_run(caller).map(Some);
        let (route, entered) = self.session.find_route(context, run, enter)?;
        self.keep_run(entered);
        Ok(route)
    }

    /// Begins the run without a route to any server.
    pub(crate) fn enter_run(&self, context: &RequestContext<'_>) -> Result<(), RequestRejection> {
        let caller = caller(context, self.session.run(), Some(&self.ticket));
        self.keep_run(Some(self.begin_run(&caller)?));
        Ok(())
    }

    fn begin_run(&self, caller: &Caller) -> Result<Run, Error> {
        match self.session.run() {
            Some(run) => caller.named_run(run),
            None => caller.named_run(&self.ticket.own_run_name()),
        }
    }

    fn keep_run(&self, entered: Option<Run>) {
        let Some(run) = entered else { return };
        if self.session.run().is_some() {
            run.detach();
        } else if let Err(joined) = self.own_run.set(run) {
            joined.detach();
        }
    }

    /// Seals the ticket for the client, and keeps the session in memory.
    fn issue_ticket(
        mut self,
        shared: &GatewayState,
        version: Version,
    ) -> Result<HeaderValue, Diagnostic> {
        self.ticket.version = version;
        if let Some(own) = self.own_run.take() {
            own.detach();
        }
        let sealed = self.ticket.seal(shared.warmline.vault())?;
        let text = HeaderValue::try_from(sealed)
            .map_err(|error| Diagnostic::new(Reason::Internal, error.to_string()))?;
        self.session.ticket = Some(self.ticket);
        shared.clients.insert(&text, Arc::new(self.session));
        Ok(text)
    }
}
