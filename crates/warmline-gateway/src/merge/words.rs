//! What the place of all servers says of itself: always the same, so that nothing is opened for it.

use serde_json::{Value, json};
use warmline::core::era::Version;

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

/// The result of `initialize`, for a client that speaks this version.
pub(crate) fn greeting(version: Version, servers: &[String]) -> Value {
    json!({
        "protocolVersion": version.as_str(),
        "capabilities": capabilities(),
        "serverInfo": server_info(),
        "instructions": instructions(servers),
    })
}

/// What models need to know.
fn instructions(servers: &[String]) -> String {
    match servers {
        [] => "No server is to be reached here at this time.".to_owned(),
        servers => format!(
            "Several servers are reached here. The name of a tool or a prompt begins with the \
             name of its server and two underscores. The servers: {}.",
            servers.join(", ")
        ),
    }
}
