//! The tools of the ledger server: what they do, and how they are listed.

mod definitions;
mod server_requests;

use std::time::Duration;

use serde_json::{Value, json};

use crate::server::call::{Call, Era, LogDelivery};
use crate::server::message::{RpcError, RpcResult, notification};

pub(crate) use self::definitions::{header_params, tool_definitions};

/// Calls a tool: begins, acts, commits, answers.
pub(crate) async fn call_tool(call: &Call) -> RpcResult {
    let name = call.params["name"].as_str().unwrap_or_default();
    let known = tool_definitions(call.state.memory().tool_changes);
    let more = &call.state.personality.extra_tools;
    let known =
        more.iter().any(|more| more == name) || known.iter().any(|tool| tool["name"] == name);
    if !known && !name.starts_with("extra_") {
        return Err(RpcError::invalid_params(format!("Unknown tool: {name}")));
    }
    if let Some(kind) = server_requests::RequestTool::from_tool_name(name) {
        return server_requests::call_request_tool(call, kind).await;
    }
    call.record_begin();
    let outcome = match name {
        "slow" => slow(call).await,
        "progress" => progress(call).await,
        "log" => log(call).await,
        "crash" => crash(call).await,
        _ => run_immediate_tool(call, name),
    };
    call.record_commit();
    outcome
}

fn run_immediate_tool(call: &Call, name: &str) -> RpcResult {
    let arguments = &call.params["arguments"];
    match name {
        "counter" => Ok(counter(call)),
        "note_write" | "note_read" => note(call, name),
        "page_open" | "page_read" => page(call, name),
        "pay" => pay(call),
        "put" | "lie" => Ok(put(call)),
        "get" => {
            let key = string_argument(arguments, "key");
            let value = call
                .state
                .memory()
                .values
                .get(&key)
                .cloned()
                .unwrap_or(Value::Null);
            Ok(structured_result(json!({"key": key, "value": value})))
        },
        "big" => {
            let size = usize::try_from(arguments["bytes"].as_u64().unwrap_or(1024)).unwrap_or(0);
            Ok(text_result("x".repeat(size.min(256 << 20))))
        },
        "fail" => Ok(
            json!({"content": [{"type": "text", "text": "this tool always fails"}], "isError": true}),
        ),
        "change_tools" => {
            change_tools(call);
            Ok(text_result("the tools have changed"))
        },
        "env" => Ok(environment()),
        "routed" | "echo" => Ok(structured_result(json!({"arguments": arguments}))),
        _ => Ok(text_result(format!("{name} ran"))),
    }
}

/// Counts the calls in this session: the plainest state that a lost session loses.
fn counter(call: &Call) -> Value {
    let count = call.with_tool_state(|drawer| {
        drawer.counter += 1;
        drawer.counter
    });
    structured_result(json!({"count": count}))
}

fn note(call: &Call, name: &str) -> RpcResult {
    let arguments = &call.params["arguments"];
    let title = string_argument(arguments, "title");
    if name == "note_write" {
        let words = string_argument(arguments, "text");
        call.with_tool_state(|drawer| drawer.notes.insert(title, words));
        return Ok(text_result("written"));
    }
    match call.with_tool_state(|drawer| drawer.notes.get(&title).cloned()) {
        Some(words) => Ok(text_result(words)),
        None => Ok(error_result(format!("there is no note {title}"))),
    }
}

fn page(call: &Call, name: &str) -> RpcResult {
    if name == "page_open" {
        let url = string_argument(&call.params["arguments"], "url");
        call.with_tool_state(|drawer| drawer.page = Some(url.clone()));
        return Ok(text_result(format!("opened {url}")));
    }
    match call.with_tool_state(|drawer| drawer.page.clone()) {
        Some(url) => Ok(text_result(format!("this is {url}"))),
        None => Ok(error_result("no page is open")),
    }
}

/// A payment: may not run twice, and its total is kept for the life of the process.
fn pay(call: &Call) -> RpcResult {
    let arguments = &call.params["arguments"];
    let Some(amount) = arguments["amount"].as_i64() else {
        return Ok(error_result("amount must be a whole number"));
    };
    let mut memory = call.state.memory();
    memory.total_paid += amount;
    Ok(structured_result(
        json!({"paid": amount, "account": arguments["account"], "total": memory.total_paid}),
    ))
}

fn put(call: &Call) -> Value {
    let arguments = &call.params["arguments"];
    let key = string_argument(arguments, "key");
    call.state
        .memory()
        .values
        .insert(key.clone(), arguments["value"].clone());
    structured_result(json!({"key": key, "value": arguments["value"]}))
}

/// Says that the tools changed; before that, of resources that its caller names, that they did.
fn change_tools(call: &Call) {
    let updated = call.params["arguments"]["updated"].as_array();
    for uri in updated.into_iter().flatten() {
        let params = json!({ "uri": uri });
        call.stream
            .push(notification("notifications/resources/updated", &params));
    }
    call.state.notify_tools_changed();
    let memory = call.state.memory();
    let session = call.session.as_ref().and_then(|id| memory.sessions.get(id));
    // Without a standing stream the call's own stream is the only way to say it.
    if call.era == Era::Legacy && session.is_none_or(|session| session.get_stream.is_none()) {
        call.stream
            .push(notification("notifications/tools/list_changed", &json!({})));
    }
}

/// The names of the environment, not the values: a ledger must not hold secrets.
fn environment() -> Value {
    let names: Vec<String> = std::env::vars_os()
        .map(|(name, _)| name.to_string_lossy().into_owned())
        .collect();
    structured_result(json!({"names": names}))
}

async fn slow(call: &Call) -> RpcResult {
    let ms = call.params["arguments"]["ms"].as_u64().unwrap_or(100);
    tokio::time::sleep(Duration::from_millis(ms)).await;
    Ok(text_result(format!("took {ms} ms")))
}

async fn progress(call: &Call) -> RpcResult {
    let steps = call.params["arguments"]["steps"]
        .as_u64()
        .unwrap_or(3)
        .min(100_000);
    let arguments = &call.params["arguments"];
    let pause = arguments["pause_ms"].as_u64().unwrap_or(1);
    // A burst of large reports comes without a pause.
    let padding = usize::try_from(arguments["bytes"].as_u64().unwrap_or(0)).unwrap_or(0);
    let padding = ".".repeat(padding.min(1 << 20));
    for step in 1..=steps {
        call.send_progress(step, steps, &padding);
        if pause > 0 {
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
    }
    Ok(text_result(format!("{steps} steps")))
}

async fn log(call: &Call) -> RpcResult {
    let lines = call.params["arguments"]["lines"]
        .as_u64()
        .unwrap_or(3)
        .min(100_000);
    for line in 1..=lines {
        call.send_log_message(
            "info",
            &json!(format!("line {line}")),
            LogDelivery::IfRequested,
        );
        tokio::task::yield_now().await;
    }
    Ok(text_result(format!("{lines} lines")))
}

/// Ends the server before anything is done.
async fn crash(call: &Call) -> RpcResult {
    call.state.crash_signal.notify_one();
    std::future::pending().await
}

pub(crate) fn text_result(words: impl Into<String>) -> Value {
    json!({"content": [{"type": "text", "text": words.into()}]})
}

pub(crate) fn error_result(words: impl Into<String>) -> Value {
    json!({"content": [{"type": "text", "text": words.into()}], "isError": true})
}

pub(crate) fn structured_result(value: Value) -> Value {
    json!({"content": [{"type": "text", "text": value.to_string()}], "structuredContent": value})
}

fn string_argument(arguments: &Value, name: &str) -> String {
    arguments[name].as_str().unwrap_or_default().to_owned()
}
