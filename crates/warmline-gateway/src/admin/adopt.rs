//! `POST /admin/join`: adopts the server of a command, and opens its session in a run.
//!
//! The command then calls the server over MCP, at the path in the response.

use std::sync::Arc;

use bytes::Bytes;
use http::{Response, StatusCode};
use hyper::body::Incoming;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use warmline_config::ServerHandoff;
use warmline_core::era::Era;
use warmline_core::error::code::Code;
use warmline_engine::relay::RelayHandle as _;
use warmline_engine::{Result, ServerHandle};
use warmline_upstream::{ClientProfile, ServerFacts};

use super::{AdminError, VERSION, engine_error_response, json_response, local_caller};
use crate::GatewayState;
use crate::auth::AnonymousScope;
use crate::response::body::{self, ResponseBody};

#[derive(Deserialize)]
struct JoinRequest {
    version: String,
    run: String,
    server: ServerHandoff,
    /// The client capabilities of the command, as in MCP.
    capabilities: Box<RawValue>,
}

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
    let read = body::read_body(&mut body, shared.options.max_request, timeout).await;
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
