//! The client that the official conformance suite drives: Warmline's side towards servers, and a
//! table from the suite's scenarios to calls.
//!
//! The suite starts it with the URL of its own server as the last argument, and says in
//! `MCP_CONFORMANCE_SCENARIO` what to do, in `MCP_CONFORMANCE_PROTOCOL_VERSION` which version the
//! scenario is about, and in `MCP_CONFORMANCE_CONTEXT` what else there is to know.

use std::process::ExitCode;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use warmline_core::era::Version;
use warmline_core::exchange::{
    AttemptResult, Reply, Request, ServerRequest, ServerRequestKind, ServerRequestReply,
};
use warmline_core::message::params::Params;
use warmline_core::protocol::headers::ParamHeaders;
use warmline_upstream::{ClientProfile, Listener, ReplyFuture, ServerTarget, Session, Upstream};

type Outcome<T> = Result<T, String>;

#[tokio::main(flavor = "current_thread")]
#[expect(clippy::print_stderr, reason = "the suite shows what its client says")]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        },
    }
}

async fn run() -> Outcome<()> {
    let scenario = variable("MCP_CONFORMANCE_SCENARIO")?;
    let url = std::env::args().next_back().ok_or("the URL is missing")?;
    let url = url.parse().map_err(|error| format!("{url}: {error}"))?;
    let mut server = ServerTarget::http("suite", url);
    server.era = variable("MCP_CONFORMANCE_PROTOCOL_VERSION")
        .ok()
        .and_then(|date| Version::parse(&date))
        .map(Version::era);
    let session = Upstream::new()
        .open(&server, &declared(&scenario))
        .await
        .map_err(|trouble| format!("{trouble}: {:?}", trouble.cause))?;
    let outcome = play(&scenario, &session).await;
    session.close().await;
    outcome
}

/// What we say we can answer. A scenario about what is declared gets all of it.
fn declared(scenario: &str) -> ClientProfile {
    let capabilities: &[u8] = match scenario {
        "request-metadata" => br#"{"elicitation":{},"roots":{},"sampling":{}}"#,
        _ => br#"{"elicitation":{"applyDefaults":true}}"#,
    };
    ClientProfile {
        capabilities: Bytes::from_static(capabilities),
        ..ClientProfile::default()
    }
}

async fn play(scenario: &str, session: &Session) -> Outcome<()> {
    let tools = list_tools(session).await?;
    match scenario {
        "initialize" | "request-metadata" | "json-schema-ref-no-deref" => Ok(()),
        "tools_call" => call(session, "add_numbers", json!({ "a": 5, "b": 3 })).await,
        "sse-retry" => call(session, "test_reconnection", json!({})).await,
        "elicitation-sep1034-client-defaults" => {
            call(session, "test_client_elicitation_defaults", json!({})).await
        },
        "json-schema-2020-12-preservation" => give_schema_back(session, &tools).await,
        "sep-2322-client-request-state" => answer_in_rounds(session).await,
        "http-standard-headers" => use_every_named_thing(session, &tools).await,
        "http-custom-headers" => call_what_the_context_says(session).await,
        "http-invalid-tool-headers" => call_each(session, &tools).await,
        // Without a token these end before they get here, as the list of expected failures says.
        other if other.starts_with("auth/") => Ok(()),
        other => Err(format!("no calls for the scenario `{other}`")),
    }
}

/// A tool as listed; its schema stays as it was written.
#[derive(Debug, Deserialize)]
struct Tool {
    name: String,
    #[serde(rename = "inputSchema")]
    schema: Box<RawValue>,
}

/// The tools that may be called: those whose headers make no sense are left out.
async fn list_tools(session: &Session) -> Outcome<Vec<Tool>> {
    #[derive(Deserialize)]
    struct Listed {
        tools: Vec<Tool>,
    }
    let raw = ask(session, "tools/list", json!({})).await?;
    let listed: Listed = serde_json::from_slice(&raw).map_err(|error| error.to_string())?;
    let usable = |tool: &Tool| ParamHeaders::from_schema(tool.schema.get().as_bytes()).is_ok();
    Ok(listed.tools.into_iter().filter(usable).collect())
}

async fn give_schema_back(session: &Session, tools: &[Tool]) -> Outcome<()> {
    let tool = tools.first().ok_or("no tool is listed")?;
    let params = format!(
        r#"{{"name":"json_schema_echo","arguments":{{"schema":{}}}}}"#,
        tool.schema.get()
    );
    ask_raw(session, "tools/call", Bytes::from(params))
        .await
        .map(drop)
}

/// Two calls side by side: the rounds of one must not leak into the other.
async fn answer_in_rounds(session: &Session) -> Outcome<()> {
    let (first, second) = tokio::join!(
        Box::pin(call(session, "test_mrtr_echo_state", json!({}))),
        Box::pin(call(session, "test_mrtr_unrelated", json!({}))),
    );
    first.and(second)?;
    call(session, "test_mrtr_no_state", json!({})).await?;
    call(session, "test_mrtr_no_result_type", json!({})).await
}

async fn use_every_named_thing(session: &Session, tools: &[Tool]) -> Outcome<()> {
    call_each(session, tools).await?;
    for (list, key, name, read) in [
        ("resources/list", "resources", "uri", "resources/read"),
        ("prompts/list", "prompts", "name", "prompts/get"),
    ] {
        let raw = ask(session, list, json!({})).await?;
        let listed: Value = serde_json::from_slice(&raw).map_err(|error| error.to_string())?;
        for thing in listed[key].as_array().into_iter().flatten() {
            ask(session, read, json!({ name: thing[name] })).await?;
        }
    }
    Ok(())
}

async fn call_what_the_context_says(session: &Session) -> Outcome<()> {
    let context = variable("MCP_CONFORMANCE_CONTEXT")?;
    let context: Value = serde_json::from_str(&context).map_err(|error| error.to_string())?;
    for wanted in context["toolCalls"].as_array().into_iter().flatten() {
        let name = wanted["name"].as_str().ok_or("a call without a name")?;
        call(session, name, wanted["arguments"].clone()).await?;
    }
    Ok(())
}

/// Calls every tool, with a text for each argument that it requires.
async fn call_each(session: &Session, tools: &[Tool]) -> Outcome<()> {
    for tool in tools {
        let schema: Value =
            serde_json::from_str(tool.schema.get()).map_err(|error| error.to_string())?;
        let required = schema["required"].as_array().into_iter().flatten();
        let arguments: Map<String, Value> = required
            .filter_map(Value::as_str)
            .map(|name| (name.to_owned(), json!("a")))
            .collect();
        call(session, &tool.name, Value::Object(arguments)).await?;
    }
    Ok(())
}

async fn call(session: &Session, tool: &str, arguments: Value) -> Outcome<()> {
    ask(
        session,
        "tools/call",
        json!({ "name": tool, "arguments": arguments }),
    )
    .await
    .map(drop)
}

async fn ask(session: &Session, method: &'static str, params: Value) -> Outcome<Bytes> {
    ask_raw(session, method, Bytes::from(params.to_string())).await
}

async fn ask_raw(session: &Session, method: &'static str, params: Bytes) -> Outcome<Bytes> {
    let params = Params::parse(params).map_err(|error| error.to_string())?;
    match session.call(Request::new(method, params), &Obliging).await {
        AttemptResult::Answered(Reply::Result(raw)) => Ok(raw),
        AttemptResult::Answered(Reply::Error(raw)) => {
            Err(format!("{method}: {}", String::from_utf8_lossy(&raw)))
        },
        AttemptResult::Failed(failure) => Err(format!("{method}: {failure:?}")),
    }
}

/// Accepts every form, with the default of each field; a question of yes or no gets a yes.
struct Obliging;

impl Listener for Obliging {
    fn on_request(&self, question: ServerRequest) -> ReplyFuture<'_> {
        let answer = match question.kind {
            ServerRequestKind::Elicitation => filled_in(&question.params),
            ServerRequestKind::Sampling | ServerRequestKind::Roots | ServerRequestKind::Other => {
                ServerRequestReply::Declined
            },
        };
        Box::pin(std::future::ready(answer))
    }
}

fn filled_in(params: &[u8]) -> ServerRequestReply {
    let Ok(params) = serde_json::from_slice::<Value>(params) else {
        return ServerRequestReply::Declined;
    };
    let fields = params["requestedSchema"]["properties"]
        .as_object()
        .into_iter()
        .flatten();
    let content: Map<String, Value> = fields
        .filter_map(|(name, field)| {
            let yes = (field["type"] == "boolean").then_some(Value::Bool(true));
            field
                .get("default")
                .cloned()
                .or(yes)
                .map(|value| (name.clone(), value))
        })
        .collect();
    ServerRequestReply::Result(Bytes::from(
        json!({ "action": "accept", "content": content }).to_string(),
    ))
}

fn variable(name: &str) -> Outcome<String> {
    std::env::var(name).map_err(|error| format!("{name}: {error}"))
}
