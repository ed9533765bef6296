//! What each method answers, in either era.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::faults::personality::LegacySupport;
use crate::server::call::{Call, Era};
use crate::server::message::{RpcError, RpcResult};
use crate::server::state::OpenListen;
use crate::server::tools;

/// The methods served in an era.
pub(crate) fn is_known_method(era: Era, method: &str) -> bool {
    let both = [
        "tools/list",
        "tools/call",
        "resources/list",
        "resources/templates/list",
        "resources/read",
        "prompts/list",
        "prompts/get",
        "completion/complete",
    ];
    let own: &[&str] = match era {
        Era::Legacy => &[
            "initialize",
            "ping",
            "logging/setLevel",
            "resources/subscribe",
            "resources/unsubscribe",
        ],
        Era::Modern => &["server/discover", "subscriptions/listen"],
    };
    both.contains(&method) || own.contains(&method)
}

/// Executes a request and writes its effect to the ledger.
pub(crate) async fn handle_request(call: &Call) -> RpcResult {
    if call.method == "tools/call" {
        return tools::call_tool(call)
            .await
            .map(|result| add_modern_members(call, result));
    }
    if !is_known_method(call.era, &call.method) {
        return Err(RpcError::new(
            -32601,
            format!("Method not found: {}", call.method),
        ));
    }
    call.record_begin();
    let outcome = match call.method.as_str() {
        "subscriptions/listen" => listen(call).await,
        _ => handle_plain_request(call),
    };
    call.record_commit();
    outcome.map(|result| add_modern_members(call, result))
}

fn handle_plain_request(call: &Call) -> RpcResult {
    match call.method.as_str() {
        "initialize" => Ok(initialize(call)),
        "server/discover" => Ok(discover(call)),
        "tools/list" => list_tools(call),
        "resources/list" => list_page(call, "resources", resource_list(call)),
        "resources/templates/list" => {
            list_page(call, "resourceTemplates", resource_templates(call))
        },
        "resources/read" => read_resource(call),
        "resources/subscribe" | "resources/unsubscribe" => subscribe(call),
        "prompts/list" => list_page(call, "prompts", prompt_list()),
        "prompts/get" => get_prompt(call),
        "completion/complete" => Ok(json!({"completion": {"values": ["one", "two"], "total": 2}})),
        "logging/setLevel" => set_log_level(call),
        _ => Ok(json!({})),
    }
}

/// Adds what every modern result must carry.
fn add_modern_members(call: &Call, mut result: Value) -> Value {
    if call.era == Era::Legacy {
        return result;
    }
    if result.get("resultType").is_none() {
        result["resultType"] = json!("complete");
    }
    result["_meta"]["io.modelcontextprotocol/serverInfo"] = server_info(call);
    let cacheable = [
        "server/discover",
        "tools/list",
        "prompts/list",
        "resources/list",
    ];
    let others = ["resources/templates/list", "resources/read"];
    let is_complete = result["resultType"] == "complete";
    if is_complete
        && cacheable
            .iter()
            .chain(&others)
            .any(|&method| method == call.method)
    {
        result["ttlMs"] = json!(0);
        result["cacheScope"] = json!("private");
    }
    result
}

fn server_info(call: &Call) -> Value {
    json!({"name": call.state.personality.name, "version": env!("CARGO_PKG_VERSION")})
}

fn capabilities() -> Value {
    json!({
        "tools": {"listChanged": true},
        "resources": {"subscribe": true, "listChanged": true},
        "prompts": {"listChanged": true},
        "logging": {},
        "completions": {},
    })
}

fn initialize(call: &Call) -> Value {
    let mut greeting = json!({
        "protocolVersion": negotiated_version(call),
        "capabilities": capabilities(),
        "serverInfo": server_info(call),
        "instructions": "A server that writes down what it does.",
    });
    if let Some(told_of) = &call.state.personality.notification_kinds {
        for list in ["tools", "resources", "prompts"] {
            let kind = format!("{list}ListChanged");
            if let Some(told) = greeting["capabilities"][list].as_object_mut()
                && !told_of.contains(&kind)
            {
                told.remove("listChanged");
            }
        }
    }
    if let Some(seconds) = call.state.personality.advertised_expiry {
        greeting["_meta"] = json!({ "expiresIn": seconds });
    }
    greeting
}

/// The version a client gets: its own if it is served, else our newest; or what a fault says.
pub(crate) fn negotiated_version(call: &Call) -> String {
    if let Some(version) = &call.overrides.version {
        return version.clone();
    }
    let served = &call.state.personality.legacy_versions;
    let asked = call.params["protocolVersion"].as_str().unwrap_or_default();
    let same = served.iter().find(|version| version.as_str() == asked);
    same.or_else(|| served.first()).cloned().unwrap_or_default()
}

fn discover(call: &Call) -> Value {
    json!({
        "supportedVersions": call.state.personality.advertised_versions,
        "capabilities": capabilities(),
        "instructions": "A server that writes down what it does.",
    })
}

fn list_tools(call: &Call) -> RpcResult {
    let mut tools = tools::tool_definitions(call.state.memory().tool_changes);
    let more = call.state.personality.extra_tools.iter();
    tools.extend(more.map(|name| json!({"name": name, "inputSchema": {"type": "object"}})));
    tools.extend((0..call.overrides.extra_tools).map(
        |number| json!({"name": format!("extra_{number}"), "inputSchema": {"type": "object"}}),
    ));
    list_page(call, "tools", tools)
}

/// One page of a list.
fn list_page(call: &Call, name: &str, all: Vec<Value>) -> RpcResult {
    let cursor = &call.params["cursor"];
    let from = match cursor
        .as_str()
        .map(|text| text.strip_prefix("from-").map(str::parse))
    {
        None => 0,
        Some(Some(Ok(from))) if from <= all.len() => from,
        Some(_) => return Err(RpcError::invalid_params("Invalid cursor")),
    };
    if call.overrides.cursor_loop {
        return Ok(json!({name: all, "nextCursor": "from-1"}));
    }
    let size = call.state.personality.page_size.unwrap_or(usize::MAX);
    let total = all.len();
    let page: Vec<Value> = all.into_iter().skip(from).take(size).collect();
    let next = from + page.len();
    let mut result = json!({name: page});
    if next < total {
        result["nextCursor"] = json!(format!("from-{next}"));
    }
    Ok(result)
}

fn resource_list(call: &Call) -> Vec<Value> {
    let scheme = &call.state.personality.uri_scheme;
    (1..=3)
        .map(|number| json!({"uri": format!("{scheme}://page/{number}"), "name": format!("page {number}")}))
        .collect()
}

fn resource_templates(call: &Call) -> Vec<Value> {
    let scheme = &call.state.personality.uri_scheme;
    vec![json!({"uriTemplate": format!("{scheme}://page/{{number}}"), "name": "page"})]
}

fn read_resource(call: &Call) -> RpcResult {
    let uri = call.params["uri"].as_str().unwrap_or_default();
    let own = format!("{}://", call.state.personality.uri_scheme);
    if !uri.starts_with(&own) {
        let code = if call.era == Era::Legacy {
            -32002
        } else {
            -32602
        };
        return Err(RpcError::with_data(
            code,
            "Resource not found",
            json!({"uri": uri}),
        ));
    }
    Ok(
        json!({"contents": [{"uri": uri, "mimeType": "text/plain", "text": format!("this is {uri}")}]}),
    )
}

fn subscribe(call: &Call) -> RpcResult {
    let uri = call.params["uri"].as_str().unwrap_or_default().to_owned();
    let mut memory = call.state.memory();
    let session = call
        .session
        .as_ref()
        .and_then(|id| memory.sessions.get_mut(id));
    let Some(session) = session else {
        return Err(RpcError::new(
            -32603,
            "there is no session to keep a subscription in",
        ));
    };
    if call.method == "resources/subscribe" {
        session.subscriptions.insert(uri);
    } else {
        session.subscriptions.remove(&uri);
    }
    Ok(json!({}))
}

fn prompt_list() -> Vec<Value> {
    vec![
        json!({"name": "greet", "description": "Greets", "arguments": [{"name": "who", "required": true}]}),
        json!({"name": "plain", "description": "Says nothing of note"}),
    ]
}

fn get_prompt(call: &Call) -> RpcResult {
    let text = match call.params["name"].as_str() {
        Some("greet") => {
            format!(
                "Greet {}.",
                call.params["arguments"]["who"].as_str().unwrap_or("them")
            )
        },
        Some("plain") => "Go on.".to_owned(),
        _ => return Err(RpcError::invalid_params("Unknown prompt")),
    };
    Ok(json!({"messages": [{"role": "user", "content": {"type": "text", "text": text}}]}))
}

fn set_log_level(call: &Call) -> RpcResult {
    let level = call.params["level"].as_str().unwrap_or_default();
    let known = [
        "debug",
        "info",
        "notice",
        "warning",
        "error",
        "critical",
        "alert",
        "emergency",
    ];
    if !known.contains(&level) {
        return Err(RpcError::invalid_params("Unknown log level"));
    }
    let mut memory = call.state.memory();
    if let Some(session) = call
        .session
        .as_ref()
        .and_then(|id| memory.sessions.get_mut(id))
    {
        session.log_level = Some(level.to_owned());
    }
    Ok(json!({}))
}

/// Stays open until the client leaves or the server is told to end it.
async fn listen(call: &Call) -> RpcResult {
    let mut wanted = call.params["notifications"].clone();
    if let (Some(kinds), Some(wanted)) = (
        &call.state.personality.notification_kinds,
        wanted.as_object_mut(),
    ) {
        wanted.retain(|kind, _| kinds.contains(kind));
    }
    let listen = OpenListen {
        id: call.id.clone(),
        filter: wanted.clone(),
        stream: Arc::clone(&call.stream),
    };
    listen.notify(
        "notifications/subscriptions/acknowledged",
        json!({"notifications": wanted}),
    );
    let ended = {
        let mut memory = call.state.memory();
        memory.open_listens.push(listen);
        Arc::clone(&memory.end_listens_signal)
    };
    let _left = ListenGuard { call };
    ended.notified().await;
    Ok(json!({"_meta": {"io.modelcontextprotocol/subscriptionId": call.id}}))
}

/// Takes a listen out of the books however it ends.
struct ListenGuard<'a> {
    call: &'a Call,
}

impl Drop for ListenGuard<'_> {
    fn drop(&mut self) {
        let stream = &self.call.stream;
        let id = &self.call.id;
        let mut memory = self.call.state.memory();
        memory
            .open_listens
            .retain(|one| !(Arc::ptr_eq(&one.stream, stream) && one.id == *id));
    }
}

/// Whether `initialize` is served at all.
pub(crate) fn initialize_error(call: &Call) -> Option<RpcError> {
    let personality = &call.state.personality;
    (personality.legacy == LegacySupport::Refused).then(|| {
        let requested = &call.params["protocolVersion"];
        let data = json!({"supported": personality.modern_versions, "requested": requested});
        RpcError::with_data(-32022, "Unsupported protocol version", data)
    })
}
