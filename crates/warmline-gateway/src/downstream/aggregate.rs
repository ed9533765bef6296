//! All servers as one, at an endpoint whose path names no server.
//!
//! It stores nothing about a client: a name says which server it belongs to, a cursor says where a list
//! goes on, and the engine caches what servers list.

pub(crate) mod absent;
mod lists;
pub(super) mod merged_get_stream;
pub(super) mod merged_listen;
mod names;
pub(super) mod requests;
mod resources;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use serde_json::{Map, Value, json};
use tokio::sync::watch;
use warmline_core::era::{Era, Version};
use warmline_core::message::params::Params;
use warmline_core::protocol::meta;
use warmline_engine::admin::EngineAdmin as _;
use warmline_engine::relay::RelayHandle as _;
use warmline_engine::{Error, ServerHandle, ServerSetWatcher};
use warmline_platform::clock;

use super::legacy::client_session::ClientSession;
use super::legacy::initialize::NewClientSession;
use super::modern::server_call::ModernCaller;
use super::{RequestContext, legacy};
use crate::GatewayState;
use crate::access::{self, AccessPolicy};
use crate::downstream::strip_run;
use crate::response::rejection::RequestRejection;

/// Answers `initialize`. It opens no session: instructions of servers are added as far as they are
/// cached.
pub(super) async fn initialize(
    context: &RequestContext<'_>,
    begun: &NewClientSession,
    params: &Params,
    version: Version,
) -> Result<String, RequestRejection> {
    begun.enter_run(context)?;
    let line = context.target_audit_line("initialize", params);
    line.finish(&Ok(Bytes::new()));
    let members = members(context, |server| {
        let route = begun.route(&context.for_server(server))?;
        Ok(route.server.clone())
    });
    let servers = recall_instructions(&members, Era::Legacy).await;
    Ok(initialize_result(version, &servers).to_string())
}

pub(super) async fn notify(
    context: &RequestContext<'_>,
    session: &ClientSession,
    (method, params): (&str, &Params),
) -> Result<(), RequestRejection> {
    context.named_run(Some(params))?;
    let members = session_members(context, session, Some(params));
    let params = strip_run(params.clone());
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

/// The servers as a modern client reaches them, where all are known to speak its era: it relies on that.
async fn modern_members(
    context: &RequestContext<'_>,
    caller: &ModernCaller,
) -> Result<Vec<AggregateMember>, RequestRejection> {
    let members = members(context, |server| Ok(caller.server(context, server)?));
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
    all.then_some(members)
        .ok_or_else(RequestRejection::legacy_only)
}

/// Reading the cache takes no time, unless the server must be resolved first.
const RECALL_TIMEOUT: Duration = Duration::from_millis(100);
const MAX_INSTRUCTION_CHARS: usize = 4_096;

async fn recall_instructions(
    members: &[AggregateMember],
    era: Era,
) -> Vec<(String, Option<String>)> {
    let recalling = members.iter().map(|member| async move {
        let recalled = async { member.handle.as_ref().ok()?.known_facts(era).await };
        let facts = clock::timeout(RECALL_TIMEOUT, recalled)
            .await
            .ok()
            .flatten();
        let instructions = facts.and_then(|facts| {
            let instructions = facts.instructions.as_ref()?;
            Some(instructions.chars().take(MAX_INSTRUCTION_CHARS).collect())
        });
        (member.name.clone(), instructions)
    });
    join_all(recalling).await
}

fn capabilities() -> Value {
    json!({
        "tools": { "listChanged": true },
        "resources": { "subscribe": true, "listChanged": true },
        "prompts": { "listChanged": true },
        "completions": {},
        "logging": {},
    })
}

fn server_info() -> Value {
    json!({ "name": "warmline", "title": "Warmline", "version": env!("CARGO_PKG_VERSION") })
}

fn server_meta() -> Map<String, Value> {
    Map::from_iter([(meta::SERVER_INFO.to_owned(), server_info())])
}

fn initialize_result(version: Version, servers: &[(String, Option<String>)]) -> Value {
    json!({
        "protocolVersion": version.as_str(),
        "capabilities": capabilities(),
        "serverInfo": server_info(),
        "instructions": instructions(servers),
    })
}

fn discover_result(servers: &[(String, Option<String>)]) -> Value {
    json!({
        "supportedVersions": [Version::NEWEST_MODERN.as_str()],
        "capabilities": capabilities(),
        "instructions": instructions(servers),
        "resultType": "complete",
        "ttlMs": 0,
        "cacheScope": "private",
        "_meta": server_meta(),
    })
}

fn instructions(servers: &[(String, Option<String>)]) -> String {
    if servers.is_empty() {
        return "No server can be reached here at this time.".to_owned();
    }
    let names: Vec<&str> = servers.iter().map(|(name, _)| &**name).collect();
    let mut all = format!(
        "This endpoint combines several servers. The name of a tool or a prompt begins with the name \
         of its server and two underscores. The servers: {}.",
        names.join(", ")
    );
    for (server, instructions) in servers {
        if let Some(instructions) = instructions {
            all.push_str(&format!("\n\nOf {server}: {instructions}"));
        }
    }
    all
}

/// Changes of the declared servers and of the rules, for streams that stay open.
struct AggregateChanges {
    shared: Arc<GatewayState>,
    declarations: ServerSetWatcher,
    policy_changes: watch::Receiver<()>,
    last_policy: Arc<AccessPolicy>,
}

impl AggregateChanges {
    fn new(shared: &Arc<GatewayState>) -> Self {
        Self {
            declarations: shared.warmline.watch_servers(),
            policy_changes: shared.access.changed.subscribe(),
            last_policy: shared.access.policy.load_full(),
            shared: Arc::clone(shared),
        }
    }

    /// Resolves when servers or rules have changed. Dropping it loses nothing.
    async fn changed(&mut self) {
        loop {
            tokio::select! {
                () = self.declarations.changed() => return,
                // Its sender lives as long as the gateway.
                _ = self.policy_changes.changed() => {},
            }
            let now = self.shared.access.policy.load_full();
            let is_other = now.rules != self.last_policy.rules;
            self.last_policy = now;
            // Most changes of the policy are of tokens, which do not matter here.
            if is_other {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_servers_want_models_to_know_stands_behind_their_names() {
        let words = |server: &str, instructions: Option<&str>| {
            (server.to_owned(), instructions.map(str::to_owned))
        };
        let all = instructions(&[words("a", Some("Be kind.")), words("b", None)]);
        assert!(
            all.ends_with("The servers: a, b.\n\nOf a: Be kind."),
            "{all}"
        );
        assert!(instructions(&[]).starts_with("No server"));
    }
}
