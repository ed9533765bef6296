//! Servers that commands of the local user declared, each under one name.
//!
//! A program starts in the folder and with the environment of the command that first used it in its
//! run; later commands of the run share the process. Commands of other runs with another folder or
//! environment get another process, under another name.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};
use hyper::body::Incoming;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use warmline_config::{ServerHandoff, normalize_name};
use warmline_core::era::Era;
use warmline_core::error::code::{Code, Reason};
use warmline_core::exchange::Diagnostic;
use warmline_core::pool_key::Digest;
use warmline_engine::relay::RelayHandle as _;
use warmline_engine::{Caller, Error, Result, Server, ServerHandle, Warmline};
use warmline_upstream::{ClientProfile, ServerFacts};

use crate::GatewayState;
use crate::admin::{AdminError, VERSION, engine_error_response, json_response, local_caller};
use crate::auth::AnonymousScope;
use crate::response::{self, ResponseBody};

const MAX_ADOPTED: usize = 256;

#[derive(Default)]
pub(crate) struct AdoptedServers(Mutex<Vec<AdoptedServer>>);

struct AdoptedServer {
    /// Commands that are about to use it hold a clone.
    name: Arc<str>,
    target_digest: Digest,
    declaration_digest: Digest,
    settings_digest: Digest,
    server: Server,
}

impl AdoptedServers {
    /// Adds the adopted servers. They win over configured ones of the same name.
    pub(crate) fn merged_with(&self, configured: Vec<Server>) -> Vec<Server> {
        let all = self.0.lock();
        let own = all.iter().map(|adopted| adopted.server.clone());
        let is_free = |server: &Server| all.iter().all(|adopted| *adopted.name != *server.name());
        let mut servers: Vec<Server> = configured.into_iter().filter(is_free).collect();
        servers.extend(own);
        servers
    }

    /// Adopts the server of a run, unless it is known, and returns its name. The server stays while
    /// the name is held.
    pub(crate) fn adopt(
        &self,
        handoff: &ServerHandoff,
        run: &str,
        (warm, caller): (&Warmline, &Caller),
    ) -> Result<Arc<str>> {
        let mut all = self.0.lock();
        let target = handoff.server_digest(warm.vault());
        let whole = handoff.full_digest(warm.vault());
        let is_same = |adopted: &AdoptedServer| adopted.declaration_digest == whole;
        let known = find_used_by_run(&all, target, run, caller);
        let known = known.or_else(|| all.iter().position(is_same));
        if let Some(adopted) = known.and_then(|at| all.get_mut(at)) {
            adopted.update_settings(handoff, whole, warm)?;
            return Ok(Arc::clone(&adopted.name));
        }
        evict_unused(&mut all, warm)?;
        let name: Arc<str> = free_name(&all, handoff, target, warm).into();
        let server = build_server(&name, handoff)?;
        warm.add_server(server.clone())?;
        all.retain(|adopted| adopted.name != name);
        all.push(AdoptedServer {
            name: Arc::clone(&name),
            target_digest: target,
            declaration_digest: whole,
            settings_digest: handoff.settings_digest(warm.vault()),
            server,
        });
        Ok(name)
    }
}

impl AdoptedServer {
    fn is_pending(&self) -> bool {
        Arc::strong_count(&self.name) > 1
    }

    /// A later command may change the settings of the same declaration. A command with another
    /// folder or environment joins the running program, and changes nothing.
    fn update_settings(
        &mut self,
        handoff: &ServerHandoff,
        whole: Digest,
        warm: &Warmline,
    ) -> Result<()> {
        let settings = handoff.settings_digest(warm.vault());
        if self.declaration_digest == whole && self.settings_digest != settings {
            self.server = build_server(&self.name, handoff)?;
            warm.add_server(self.server.clone())?;
            self.settings_digest = settings;
        }
        Ok(())
    }
}

fn build_server(name: &str, handoff: &ServerHandoff) -> Result<Server> {
    let configured = handoff.to_target();
    let mut configured = configured.map_err(|error| Error::from(Diagnostic::from(error)))?;
    name.clone_into(&mut configured.target.name);
    Ok(Server::from(configured))
}

/// The server with this target that a live run has a session with.
fn find_used_by_run(
    all: &[AdoptedServer],
    target: Digest,
    run: &str,
    caller: &Caller,
) -> Option<usize> {
    let run = caller.join_run(run).ok()?;
    let is_open = |name: &str| {
        run.server(name)
            .is_ok_and(|server| server.current_session().is_some())
    };
    all.iter()
        .position(|adopted| adopted.target_digest == target && is_open(&adopted.name))
}

/// The name of the declaration, with a number if another server has it.
fn free_name(
    all: &[AdoptedServer],
    handoff: &ServerHandoff,
    target: Digest,
    warm: &Warmline,
) -> String {
    let plain = normalize_name(&handoff.name).unwrap_or_else(|| "server".to_owned());
    let another = |number: usize| {
        let short: String = plain.chars().take(20).collect();
        format!("{short}-{number}")
    };
    let declared = warm.server_names();
    let in_use = servers_in_use(warm);
    let is_free = |name: &String| {
        if !declared.contains(name) {
            return true;
        }
        let adopted = all.iter().find(|adopted| *adopted.name == **name);
        let is_same =
            adopted.is_none_or(|adopted| adopted.target_digest == target && !adopted.is_pending());
        is_same && !in_use.contains(name)
    };
    let mut names = std::iter::once(plain.clone()).chain((2..=MAX_ADOPTED + 1).map(another));
    names.find(is_free).unwrap_or(plain)
}

fn servers_in_use(warm: &Warmline) -> Vec<String> {
    let snapshot = warm.snapshot();
    let sessions = snapshot.sessions.iter();
    sessions.map(|session| session.server.to_string()).collect()
}

fn evict_unused(all: &mut Vec<AdoptedServer>, warm: &Warmline) -> Result<()> {
    if all.len() < MAX_ADOPTED {
        return Ok(());
    }
    let in_use = servers_in_use(warm);
    all.retain(|adopted| {
        let stays = adopted.is_pending() || in_use.iter().any(|name| **name == *adopted.name);
        if !stays {
            warm.remove_server(&adopted.name);
        }
        stays
    });
    if all.len() < MAX_ADOPTED {
        return Ok(());
    }
    let what = format!("commands use {MAX_ADOPTED} servers already");
    let mut diagnostic = Diagnostic::new(Reason::Overloaded, what)
        .with_hint("end runs that you no longer need: `warmline ps`");
    diagnostic.retry_after = Some(Duration::from_secs(1));
    Err(Error::from(diagnostic))
}

#[derive(Deserialize)]
struct JoinRequest {
    version: String,
    run: String,
    server: ServerHandoff,
    /// The client capabilities of the command, as in MCP.
    capabilities: Box<RawValue>,
}

/// Answers `POST /admin/join`: adopts the server of a command, and opens its session in a run. The
/// command then calls the server over MCP, at the path in the response.
pub(super) async fn serve_join(
    shared: &Arc<GatewayState>,
    body: Incoming,
) -> Response<ResponseBody> {
    let request = match parse_request(shared, body).await {
        Ok(request) => request,
        Err(error) => return error.into_response(),
    };
    shared.admin.record_use();
    match join_run(shared, &request).await {
        Ok(joined) => json_response(&joined),
        Err(error) => engine_error_response(&error),
    }
}

async fn parse_request(
    shared: &GatewayState,
    mut body: Incoming,
) -> std::result::Result<JoinRequest, AdminError> {
    let timeout = shared.limiter.limits().body_timeout;
    let read = response::read_body(&mut body, shared.options.max_request, timeout).await;
    let read = read.map_err(|error| {
        let what = format!("cannot read the message: {error:?}");
        AdminError::new(StatusCode::BAD_REQUEST, Code::BadMessage, what)
    })?;
    let mismatch = |what: &str| {
        AdminError::new(StatusCode::CONFLICT, Code::BadMessage, what).with_hint(
            "restart the gateway in the version of the command: `warmline down`, `warmline up`",
        )
    };
    // The error is left out: the request may hold secrets.
    let request: JoinRequest = serde_json::from_slice(&read)
        .map_err(|_| mismatch("this is not the join request of a command"))?;
    if request.version != VERSION {
        let version = &request.version;
        let what = format!("this gateway is of version {VERSION}, not {version}");
        return Err(mismatch(&what));
    }
    if *shared.stopping.borrow() {
        let what = "this gateway is shutting down";
        return Err(
            AdminError::new(StatusCode::SERVICE_UNAVAILABLE, Code::Draining, what)
                .with_hint("start another one once it has stopped: `warmline up`"),
        );
    }
    Ok(request)
}

async fn join_run(shared: &Arc<GatewayState>, joining: &JoinRequest) -> Result<Value> {
    let caller = local_caller(shared, AnonymousScope::Run(&joining.run));
    let run = caller.named_run(&joining.run)?;
    let joined = run.clone();
    // The run outlives this request: it ends when it idles, or on request.
    run.detach();
    let adopted =
        shared
            .admin
            .adopted
            .adopt(&joining.server, &joining.run, (&shared.warmline, &caller))?;
    let mut server = joined.server(&adopted)?;
    // Modern requests state their capabilities themselves, and all clients share one session.
    if !server.lacks_era(Era::Legacy).await {
        server = server.with_client_profile(ClientProfile {
            capabilities: Bytes::copy_from_slice(joining.capabilities.get().as_bytes()),
            ..ClientProfile::default()
        });
    }
    let was_open = server.current_session().is_some();
    let facts = server.info().await?;
    Ok(join_response(&server, &joining.run, &facts, was_open))
}

fn join_response(server: &ServerHandle, run: &str, facts: &ServerFacts, was_open: bool) -> Value {
    let evidence = facts.evidence.iter();
    let evidence: Vec<Value> = evidence
        .map(|one| json!({ "step": one.step, "answer": one.answer }))
        .collect();
    let name = server.name();
    json!({
        "server": name,
        "path": format!("/runs/{run}/servers/{name}/mcp"),
        "warm": was_open || (facts.keeps_session && facts.open_duration.is_zero()),
        "generation": server.current_session().map(|held| held.generation),
        "era": facts.era.as_str(),
        "version": facts.version.as_str(),
        "transport": facts.transport.as_str(),
        "keeps_session": facts.keeps_session,
        "opened_in_us": u64::try_from(facts.open_duration.as_micros()).unwrap_or(u64::MAX),
        "evidence": evidence,
    })
}
