//! Replies that are wrong in themselves: the same on HTTP and stdio.

use serde_json::{Value, json};

use crate::faults::fault::{Fault, ReplyCorruption};

/// What is written in place of a good response: one or more messages as bytes.
pub(crate) fn reply_messages(fault: Option<&Fault>, response: &Value) -> Vec<Vec<u8>> {
    match fault {
        Some(Fault::CorruptReply(spoil)) => corrupted_messages(spoil, response),
        Some(Fault::GiantReply(size)) => {
            let content = json!([{"type": "text", "text": "x".repeat(*size)}]);
            let mut giant = response.clone();
            giant["result"] = json!({"content": content});
            vec![to_bytes(&giant)]
        },
        _ => vec![to_bytes(response)],
    }
}

fn corrupted_messages(spoil: &ReplyCorruption, response: &Value) -> Vec<Vec<u8>> {
    let good = to_bytes(response);
    let id = &response["id"];
    match spoil {
        ReplyCorruption::Id(other) => vec![with_id(response, other.clone())],
        ReplyCorruption::IdAsString => vec![with_id(response, json!(id.to_string()))],
        ReplyCorruption::FractionalId => {
            let half = id.as_f64().unwrap_or_default() + 0.5;
            vec![with_id(response, json!(half))]
        },
        ReplyCorruption::NoId => vec![to_bytes(&without_member(response, "id"))],
        // Done where the calls in flight are known.
        ReplyCorruption::OtherCallId => vec![good],
        ReplyCorruption::Duplicate => vec![good.clone(), good],
        ReplyCorruption::UnknownIdFirst => vec![with_id(response, json!(987_654_321)), good],
        ReplyCorruption::NextIdFirst => {
            let next = id.as_i64().unwrap_or_default() + 1;
            vec![with_id(response, json!(next)), good]
        },
        ReplyCorruption::ResultAndError => {
            let both = with_member(
                response,
                "error",
                json!({"code": -32603, "message": "and an error"}),
            );
            vec![to_bytes(&both)]
        },
        ReplyCorruption::DuplicateMember => {
            let mut text = good;
            text.truncate(text.len().saturating_sub(1));
            text.extend(format!(r#","id":{id}}}"#).into_bytes());
            vec![text]
        },
        ReplyCorruption::Truncated => vec![good.get(..good.len() / 2).unwrap_or_default().to_vec()],
        ReplyCorruption::InvalidUtf8 => {
            let mut text = to_bytes(&with_member(response, "result", json!({"content": "HERE"})));
            if let Some(place) = crate::server::http::find_bytes(&text, b"HERE") {
                text.splice(place..place + 4, [0xff, 0xfe, 0xc0, 0x80]);
            }
            vec![text]
        },
        ReplyCorruption::LoneSurrogate => {
            let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":"\ud800"}}}}"#);
            vec![text.into_bytes()]
        },
        ReplyCorruption::Batch => vec![to_bytes(&json!([response]))],
        ReplyCorruption::GarbageFirst(garbage) => vec![garbage.clone().into_bytes(), good],
        ReplyCorruption::Depth(depth) => {
            let nested = format!("{}{}", "[".repeat(*depth), "]".repeat(*depth));
            let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":{nested}}}}}"#);
            vec![text.into_bytes()]
        },
        ReplyCorruption::ResultType(word) => {
            let mut strange = response.clone();
            strange["result"]["resultType"] = json!(word);
            vec![to_bytes(&strange)]
        },
    }
}

fn to_bytes(message: &Value) -> Vec<u8> {
    message.to_string().into_bytes()
}

/// The response under another id.
fn with_id(response: &Value, id: Value) -> Vec<u8> {
    to_bytes(&with_member(response, "id", id))
}

fn with_member(response: &Value, name: &str, value: Value) -> Value {
    let mut changed = response.clone();
    changed[name] = value;
    changed
}

fn without_member(response: &Value, name: &str) -> Value {
    let mut changed = response.clone();
    if let Some(members) = changed.as_object_mut() {
        members.remove(name);
    }
    changed
}
