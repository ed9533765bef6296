//! All servers as one, at an endpoint whose path names no server.
//!
//! It stores nothing about a client: a name says which server it belongs to, a cursor says where a list
//! goes on, and the engine caches what servers list.

pub(crate) mod absent;
mod changes;
mod cursor;
mod handshake;
mod listen_ack;
mod lists;
pub(super) mod merged_get_stream;
pub(super) mod merged_listen;
mod names;
pub(super) mod requests;
mod resources;

use bytes::Bytes;
use futures_util::future::join_all;
use warmline_core::era::{Era, Version};
use warmline_core::message::params::Params;
use warmline_engine::relay::RelayHandle as _;
use warmline_engine::{Error, ServerHandle};

use super::legacy::client_session::ClientSession;
use super::legacy::initialize::NewClientSession;
use super::modern::server_call::ModernCaller;
use super::{RequestContext, legacy};
use crate::response::rejection::RequestRejection;
use crate::{access, run_selector};

pub(super) async fn initialize(
    context: &RequestContext<'_>,
    begun: &NewClientSession,
    params: &Params,
    version: Version,
) -> Result<String, RequestRejection> {
    begun.enter_run(context)?;
    if let Some(line) = context.target_audit_line("initialize", params) {
        line.finish(&Ok(Bytes::new()));
    }
    let members = members(context, |server| {
        let route = begun.route(&context.for_server(server))?;
        Ok(route.server.clone())
    });
    let servers = handshake::recall_instructions(&members, Era::Legacy).await;
    Ok(handshake::initialize_result(version, &servers).to_string())
}

pub(super) async fn notify(
    context: &RequestContext<'_>,
    session: &ClientSession,
    (method, params): (&str, &Params),
) -> Result<(), RequestRejection> {
    context.named_run(Some(params))?;
    let members = session_members(context, session, Some(params));
    let params = run_selector::strip_run(params.clone());
    let servers = members.into_iter().filter_map(|member| member.handle.ok());
    let notified = servers.map(|server| {
        let params = params.raw();
        async move { legacy::notify_server(&server, method, params).await }
    });
    join_all(notified).await;
    Ok(())
}

struct AggregateMember {
    name: String,
    handle: Result<ServerHandle, Error>,
}

/// The servers that a caller may use, in the order of their names.
fn members(
    context: &RequestContext<'_>,
    reach: impl Fn(&str) -> Result<ServerHandle, RequestRejection>,
) -> Vec<AggregateMember> {
    let mut names = context.shared.warmline.server_names();
    names.retain(|name| access::may_use_server(context.shared, &context.subject, name));
    let all = names.into_iter().map(|name| AggregateMember {
        handle: reach(&name).map_err(RequestRejection::into_error),
        name,
    });
    all.collect()
}

fn session_members(
    context: &RequestContext<'_>,
    session: &ClientSession,
    params: Option<&Params>,
) -> Vec<AggregateMember> {
    members(context, |server| {
        let route = session.route(&context.for_server(server), params)?;
        Ok(route.server.clone())
    })
}

/// The servers as a modern client reaches them, where all are known to speak its era.
async fn modern_members(
    context: &RequestContext<'_>,
    caller: &ModernCaller,
) -> Result<Vec<AggregateMember>, RequestRejection> {
    let members = members(context, |server| Ok(caller.server(context, server)?));
    check_all_modern(context, &members).await?;
    Ok(members)
}

/// Checks that every server is known to speak the modern era: a modern client relies on that.
async fn check_all_modern(
    context: &RequestContext<'_>,
    members: &[AggregateMember],
) -> Result<(), RequestRejection> {
    let absences = &context.shared.absent_servers;
    let speaks = members.iter().map(|member| async {
        match &member.handle {
            Ok(server) => {
                server.lacks_era(Era::Legacy).await
                    || server.known_facts(Era::Modern).await.is_some()
                    || absences.is_modern_only(&member.name)
            },
            Err(_) => true,
        }
    });
    let all = !members.is_empty() && join_all(speaks).await.into_iter().all(|speaks| speaks);
    all.then_some(()).ok_or_else(RequestRejection::legacy_only)
}
