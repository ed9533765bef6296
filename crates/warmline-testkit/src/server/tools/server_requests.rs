//! Tools that ask: by a request of the server (legacy), or by `input_required` (modern).
//!
//! The modern `requestState` is a string that is awkward to carry on purpose. It must come back
//! byte for byte, with the same arguments, and is good for one round only.

use serde_json::{Value, json};

use super::{error_result, structured_result};
use crate::server::call::{Call, Era};
use crate::server::message::{RpcError, RpcResult};
use crate::server::state::InputRound;

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestTool {
    Form,
    Url,
    Sampling,
    Roots,
    /// Nothing: the modern answer has a `requestState` and no questions.
    StateOnly,
}

impl RequestTool {
    pub(super) fn from_tool_name(tool: &str) -> Option<Self> {
        match tool {
            "ask_form" => Some(Self::Form),
            "ask_url" => Some(Self::Url),
            "ask_sampling" => Some(Self::Sampling),
            "ask_roots" => Some(Self::Roots),
            "ask_again" => Some(Self::StateOnly),
            _ => None,
        }
    }

    fn request_for_round(self, round: u64) -> (&'static str, Value) {
        match self {
            Self::Form => (
                "elicitation/create",
                json!({
                    "mode": "form",
                    "message": format!("Round {round}: what is your name?"),
                    "requestedSchema": {"type": "object", "required": ["name"], "properties": {
                        "name": {"type": "string", "title": "Name"},
                        "age": {"type": "integer", "minimum": 0},
                        "colour": {"type": "string", "enum": ["red", "green"]},
                        "sure": {"type": "boolean", "default": true},
                    }},
                }),
            ),
            Self::Url => (
                "elicitation/create",
                json!({
                    "mode": "url",
                    "elicitationId": format!("page-{round}"),
                    "url": "https://example.org/confirm?code=1",
                    "message": format!("Round {round}: please confirm on this page"),
                }),
            ),
            Self::Sampling => (
                "sampling/createMessage",
                json!({
                    "messages": [{"role": "user", "content": {"type": "text", "text": format!("round {round}")}}],
                    "maxTokens": 10,
                }),
            ),
            Self::Roots | Self::StateOnly => ("roots/list", json!({})),
        }
    }

    /// What the client must have declared, if it has not.
    fn missing_capabilities(self, declared: &Value) -> Option<Value> {
        let elicitation = &declared["elicitation"];
        let (has, needed) = match self {
            // An empty object means forms.
            Self::Form => (
                elicitation
                    .as_object()
                    .is_some_and(|modes| modes.is_empty() || modes.contains_key("form")),
                json!({"elicitation": {"form": {}}}),
            ),
            Self::Url => (
                elicitation.get("url").is_some(),
                json!({"elicitation": {"url": {}}}),
            ),
            Self::Sampling => (declared["sampling"].is_object(), json!({"sampling": {}})),
            Self::Roots => (declared["roots"].is_object(), json!({"roots": {}})),
            Self::StateOnly => (true, json!({})),
        };
        (!has).then_some(needed)
    }
}

pub(super) async fn call_request_tool(call: &Call, kind: RequestTool) -> RpcResult {
    if let Some(needed) = kind.missing_capabilities(&call.client_capabilities()) {
        return match call.era {
            Era::Modern => Err(missing_capability_error(&needed)),
            Era::Legacy => {
                call.record_begin();
                call.record_commit();
                Ok(error_result("the client cannot be asked this"))
            },
        };
    }
    match call.era {
        Era::Legacy => request_during_call(call, kind).await,
        Era::Modern => request_in_rounds(call, kind),
    }
}

/// The modern error for a request that needs more than its client declared.
pub(crate) fn missing_capability_error(needed: &Value) -> RpcError {
    let data = json!({"requiredCapabilities": needed});
    RpcError::with_data(-32021, "Missing required client capability", data)
}

fn round_count(call: &Call) -> u64 {
    call.params["arguments"]["rounds"]
        .as_u64()
        .unwrap_or(1)
        .clamp(1, 1000)
}

async fn request_during_call(call: &Call, kind: RequestTool) -> RpcResult {
    call.record_begin();
    if call.session.is_none() && kind != RequestTool::StateOnly {
        call.record_commit();
        return Ok(error_result("without a session nobody can be asked"));
    }
    let mut answers = Vec::new();
    for round in 1..=round_count(call) {
        if kind == RequestTool::StateOnly {
            break;
        }
        let (method, mut params) = kind.request_for_round(round);
        if kind == RequestTool::Roots {
            params = json!({});
        }
        let reply = call.send_server_request(method, &params).await?;
        answers.push(
            reply
                .get("result")
                .or_else(|| reply.get("error"))
                .cloned()
                .unwrap_or_default(),
        );
    }
    call.record_commit();
    Ok(structured_result(json!({"answers": answers})))
}

fn request_in_rounds(call: &Call, kind: RequestTool) -> RpcResult {
    let so_far = match call.params["requestState"].as_str() {
        None => InputRound {
            tool: call.params["name"].as_str().unwrap_or_default().to_owned(),
            number: 0,
            arguments: call.params["arguments"].clone(),
            replies: Vec::new(),
        },
        Some(state) => take_round(call, kind, state)?,
    };
    if so_far.number < round_count(call) {
        return Ok(next_input_required(call, kind, so_far));
    }
    call.record_begin();
    call.record_commit();
    Ok(structured_result(json!({"answers": so_far.replies})))
}

/// Takes up the round this state stands for; each can be used once.
fn take_round(call: &Call, kind: RequestTool, state: &str) -> Result<InputRound, RpcError> {
    let round = call.state.memory().input_rounds.remove(state);
    let Some(mut round) = round else {
        call.state.record_violation(format!(
            "requestState {state:?} was never issued, or used before"
        ));
        return Err(RpcError::invalid_params("Invalid requestState"));
    };
    if call.params["name"] != round.tool.as_str() || call.params["arguments"] != round.arguments {
        call.state
            .record_violation("a round came back with another tool or other arguments");
        return Err(RpcError::invalid_params(
            "requestState belongs to another request",
        ));
    }
    let key = format!("question-{}", round.number);
    match call.params["inputResponses"].get(&key) {
        Some(answer) => round.replies.push(answer.clone()),
        None if kind == RequestTool::StateOnly => {},
        // A missing answer is asked for again.
        None => round.number -= 1,
    }
    Ok(round)
}

fn next_input_required(call: &Call, kind: RequestTool, mut round: InputRound) -> Value {
    round.number += 1;
    // Quotes, backslashes, blanks, a tab and letters beyond ASCII: all must survive.
    let state = format!(
        "état \"{}\" \\ / \t{:032x} ==",
        round.number,
        fastrand::u128(..)
    );
    let mut result = json!({"resultType": "input_required", "requestState": state});
    if kind != RequestTool::StateOnly {
        let (method, mut params) = kind.request_for_round(round.number);
        let key = format!("question-{}", round.number);
        if let Some(members) = params.as_object_mut() {
            // Known to 2025-11-25 only.
            members.remove("elicitationId");
        }
        result["inputRequests"] = json!({key: {"method": method, "params": params}});
    }
    call.state.memory().input_rounds.insert(state, round);
    result
}
