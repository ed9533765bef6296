//! `initialize` and `server/discover` at the aggregate endpoint. They open no session.
//!
//! The instructions of servers are added as far as they are cached.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Map, Value, json};
use warmline_core::era::{Era, Version};
use warmline_core::protocol::meta;
use warmline_engine::relay::RelayHandle as _;
use warmline_platform::clock;

use super::AggregateMember;

/// Reading the cache takes no time, unless the server must be resolved first.
const RECALL_TIMEOUT: Duration = Duration::from_millis(100);
const MAX_INSTRUCTION_CHARS: usize = 4_096;

pub(super) async fn recall_instructions(
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

pub(super) fn server_meta() -> Map<String, Value> {
    Map::from_iter([(meta::SERVER_INFO.to_owned(), server_info())])
}

pub(super) fn initialize_result(version: Version, servers: &[(String, Option<String>)]) -> Value {
    json!({
        "protocolVersion": version.as_str(),
        "capabilities": capabilities(),
        "serverInfo": server_info(),
        "instructions": instructions(servers),
    })
}

pub(super) fn discover_result(servers: &[(String, Option<String>)]) -> Value {
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
