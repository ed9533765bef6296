//! The tools of the ledger server: what they do, and how they are listed.

mod ask;
mod catalogue;

use std::time::Duration;

use serde_json::{Value, json};

use crate::call::{Call, Era, Wanted};
use crate::message::{Outcome, RpcError, notification};

pub(crate) use self::catalogue::{catalogue, header_params};

/// Calls a tool: begins, acts, commits, answers.
pub(crate) async fn call(call: &Call) -> Outcome {
    let name = call.params["name"].as_str().unwrap_or_default();
    let known = catalogue(call.state.memory().tools_changed);
    let more = &call.state.personality.more_tools;
    let known =
        more.iter().any(|more| more == name) || known.iter().any(|tool| tool["name"] == name);
    if !known && !name.starts_with("extra_") {
        return Err(RpcError::invalid_params(format!("Unknown tool: {name}")));
    }
    if let Some(kind) = ask::Kind::of(name) {
        return ask::call(call, kind).await;
    }
    call.begin();
    let outcome = match name {
        "slow" => slow(call).await,
        "progress" => progress(call).await,
        "log" => log(call).await,
        "crash" => crash(call).await,
        _ => at_once(call, name),
    };
    call.commit();
    outcome
}

fn at_once(call: &Call, name: &str) -> Outcome {
    let arguments = &call.params["arguments"];
    match name {
        "counter" => Ok(counter(call)),
        "note_write" | "note_read" => note(call, name),
        "page_open" | "page_read" => page(call, name),
        "pay" => pay(call),
        "put" | "lie" => Ok(put(call)),
        "get" => {
            let key = text_of(arguments, "key");
            let value = call
                .state
                .memory()
                .values
                .get(&key)
                .cloned()
                .unwrap_or(Value::Null);
            Ok(structured(json!({"key": key, "value": value})))
        },
        "big" => {
            let size = usize::try_from(arguments["bytes"].as_u64().unwrap_or(1024)).unwrap_or(0);
            Ok(text("x".repeat(size.min(256 << 20))))
        },
        "fail" => Ok(
            json!({"content": [{"type": "text", "text": "this tool always fails"}], "isError": true}),
        ),
        "change_tools" => {
            change_tools(call);
            Ok(text("the tools have changed"))
        },
        "env" => Ok(environment()),
        "routed" | "echo" => Ok(structured(json!({"arguments": arguments}))),
        _ => Ok(text(format!("{name} ran"))),
    }
}

/// Counts the calls in this session: the plainest state that a lost session loses.
fn counter(call: &Call) -> Value {
    let count = call.with_drawer(|drawer| {
        drawer.counter += 1;
        drawer.counter
    });
    structured(json!({"count": count}))
}

fn note(call: &Call, name: &str) -> Outcome {
    let arguments = &call.params["arguments"];
    let title = text_of(arguments, "title");
    if name == "note_write" {
        let words = text_of(arguments, "text");
        call.with_drawer(|drawer| drawer.notes.insert(title, words));
        return Ok(text("written"));
    }
    match call.with_drawer(|drawer| drawer.notes.get(&title).cloned()) {
        Some(words) => Ok(text(words)),
        None => Ok(failed(format!("there is no note {title}"))),
    }
}

fn page(call: &Call, name: &str) -> Outcome {
    if name == "page_open" {
        let url = text_of(&call.params["arguments"], "url");
        call.with_drawer(|drawer| drawer.page = Some(url.clone()));
        return Ok(text(format!("opened {url}")));
    }
    match call.with_drawer(|drawer| drawer.page.clone()) {
        Some(url) => Ok(text(format!("this is {url}"))),
        None => Ok(failed("no page is open")),
    }
}

/// A payment: may not run twice, and its total is kept for the life of the process.
fn pay(call: &Call) -> Outcome {
    let arguments = &call.params["arguments"];
    let Some(amount) = arguments["amount"].as_i64() else {
        return Ok(failed("amount must be a whole number"));
    };
    let mut memory = call.state.memory();
    memory.paid += amount;
    Ok(structured(
        json!({"paid": amount, "account": arguments["account"], "total": memory.paid}),
    ))
}

fn put(call: &Call) -> Value {
    let arguments = &call.params["arguments"];
    let key = text_of(arguments, "key");
    call.state
        .memory()
        .values
        .insert(key.clone(), arguments["value"].clone());
    structured(json!({"key": key, "value": arguments["value"]}))
}

/// Says that the tools changed; before that, of resources that its caller names, that they did.
fn change_tools(call: &Call) {
    let updated = call.params["arguments"]["updated"].as_array();
    for uri in updated.into_iter().flatten() {
        let params = json!({ "uri": uri });
        call.stream
            .say(notification("notifications/resources/updated", &params));
    }
    call.state.tools_changed();
    let memory = call.state.memory();
    let session = call.session.as_ref().and_then(|id| memory.sessions.get(id));
    // Without a standing stream the call's own stream is the only way to say it.
    if call.era == Era::Legacy && session.is_none_or(|session| session.standing.is_none()) {
        call.stream
            .say(notification("notifications/tools/list_changed", &json!({})));
    }
}

/// The names of the environment, not the values: a ledger must not hold secrets.
fn environment() -> Value {
    let names: Vec<String> = std::env::vars_os()
        .map(|(name, _)| name.to_string_lossy().into_owned())
        .collect();
    structured(json!({"names": names}))
}

async fn slow(call: &Call) -> Outcome {
    let ms = call.params["arguments"]["ms"].as_u64().unwrap_or(100);
    tokio::time::sleep(Duration::from_millis(ms)).await;
    Ok(text(format!("took {ms} ms")))
}

async fn progress(call: &Call) -> Outcome {
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
        call.progress(step, steps, &padding);
        if pause > 0 {
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
    }
    Ok(text(format!("{steps} steps")))
}

async fn log(call: &Call) -> Outcome {
    let lines = call.params["arguments"]["lines"]
        .as_u64()
        .unwrap_or(3)
        .min(100_000);
    for line in 1..=lines {
        call.log("info", &json!(format!("line {line}")), Wanted::IfAsked);
        tokio::task::yield_now().await;
    }
    Ok(text(format!("{lines} lines")))
}

/// Ends the server before anything is done.
async fn crash(call: &Call) -> Outcome {
    call.state.crash.notify_one();
    std::future::pending().await
}

pub(crate) fn text(words: impl Into<String>) -> Value {
    json!({"content": [{"type": "text", "text": words.into()}]})
}

pub(crate) fn failed(words: impl Into<String>) -> Value {
    json!({"content": [{"type": "text", "text": words.into()}], "isError": true})
}

pub(crate) fn structured(value: Value) -> Value {
    json!({"content": [{"type": "text", "text": value.to_string()}], "structuredContent": value})
}

fn text_of(arguments: &Value, name: &str) -> String {
    arguments[name].as_str().unwrap_or_default().to_owned()
}
