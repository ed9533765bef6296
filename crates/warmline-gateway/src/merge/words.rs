//! What the place of all servers says of itself: always the same, so that nothing is opened for it.
//!
//! What servers want models to know is told as far as it is remembered; nobody is asked for it.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Map, Value, json};
use warmline::clock;
use warmline::core::era::{Era, Version};
use warmline::core::protocol::meta;

use super::Member;

/// To remember takes no time, unless somebody has to look up where the server is.
const TO_REMEMBER: Duration = Duration::from_millis(100);
/// So many characters are told of what one server wants models to know.
const MAX_WORDS: usize = 4_096;

/// A server, and what it wants models to know.
#[derive(Debug)]
pub(crate) struct Words {
    server: String,
    said: Option<String>,
}

/// What is remembered of the words of servers.
pub(crate) async fn of_servers(members: &[Member], era: Era) -> Vec<Words> {
    let remembering = members.iter().map(|member| async move {
        let remembered = async { member.reached.as_ref().ok()?.remembered(era).await };
        let facts = clock::timeout(TO_REMEMBER, remembered).await.ok().flatten();
        let said = facts.and_then(|facts| facts.instructions.clone());
        Words {
            server: member.name.clone(),
            said: said.map(|said| said.chars().take(MAX_WORDS).collect()),
        }
    });
    join_all(remembering).await
}

/// What can be done here, whatever the servers can.
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

/// What `_meta` of a modern result says of us.
pub(super) fn server_meta() -> Map<String, Value> {
    Map::from_iter([(meta::SERVER_INFO.to_owned(), server_info())])
}

/// The result of `initialize`, for a client that speaks this version.
pub(crate) fn greeting(version: Version, servers: &[Words]) -> Value {
    json!({
        "protocolVersion": version.as_str(),
        "capabilities": capabilities(),
        "serverInfo": server_info(),
        "instructions": instructions(servers),
    })
}

/// The result of `server/discover`.
pub(crate) fn discovery(servers: &[Words]) -> Value {
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

/// What models need to know.
fn instructions(servers: &[Words]) -> String {
    if servers.is_empty() {
        return "No server is to be reached here at this time.".to_owned();
    }
    let names: Vec<&str> = servers.iter().map(|words| words.server.as_str()).collect();
    let mut all = format!(
        "Several servers are reached here. The name of a tool or a prompt begins with the name of \
         its server and two underscores. The servers: {}.",
        names.join(", ")
    );
    for Words { server, said } in servers {
        if let Some(said) = said {
            all.push_str(&format!("\n\nOf {server}: {said}"));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_servers_want_models_to_know_stands_behind_their_names() {
        let words = |server: &str, said: Option<&str>| Words {
            server: server.to_owned(),
            said: said.map(str::to_owned),
        };
        let all = instructions(&[words("a", Some("Be kind.")), words("b", None)]);
        assert!(
            all.ends_with("The servers: a, b.\n\nOf a: Be kind."),
            "{all}"
        );
        assert!(instructions(&[]).starts_with("No server"));
    }
}
