//! Replies that are wrong in themselves: the same on HTTP and stdio.

use serde_json::{Value, json};

use crate::fault::{Fault, Spoil};

/// What is written in place of a good response: one or more messages as bytes.
pub(crate) fn texts(fault: Option<&Fault>, response: &Value) -> Vec<Vec<u8>> {
    match fault {
        Some(Fault::Spoil(spoil)) => spoilt(spoil, response),
        Some(Fault::Giant(size)) => {
            let content = json!([{"type": "text", "text": "x".repeat(*size)}]);
            let mut giant = response.clone();
            giant["result"] = json!({"content": content});
            vec![bytes(&giant)]
        },
        _ => vec![bytes(response)],
    }
}

fn spoilt(spoil: &Spoil, response: &Value) -> Vec<Vec<u8>> {
    let good = bytes(response);
    let id = &response["id"];
    match spoil {
        Spoil::Id(other) => vec![bytes(&with(response, "id", other.clone()))],
        Spoil::StringTwin => vec![bytes(&with(response, "id", json!(id.to_string())))],
        Spoil::FloatTwin => {
            let half = id.as_f64().unwrap_or_default() + 0.5;
            vec![bytes(&with(response, "id", json!(half)))]
        },
        Spoil::NoId => vec![bytes(&without(response, "id"))],
        // Done where the calls in flight are known.
        Spoil::OtherCall => vec![good],
        Spoil::Twice => vec![good.clone(), good],
        Spoil::StrangerFirst => {
            vec![bytes(&with(response, "id", json!(987_654_321))), good]
        },
        Spoil::NextFirst => {
            let next = id.as_i64().unwrap_or_default() + 1;
            vec![bytes(&with(response, "id", json!(next))), good]
        },
        Spoil::ResultAndError => {
            let both = with(
                response,
                "error",
                json!({"code": -32603, "message": "and an error"}),
            );
            vec![bytes(&both)]
        },
        Spoil::DuplicateMember => {
            let mut text = good;
            text.truncate(text.len().saturating_sub(1));
            text.extend(format!(r#","id":{id}}}"#).into_bytes());
            vec![text]
        },
        Spoil::Truncated => vec![good.get(..good.len() / 2).unwrap_or_default().to_vec()],
        Spoil::InvalidUtf8 => {
            let mut text = bytes(&with(response, "result", json!({"content": "HERE"})));
            if let Some(place) = crate::http::find(&text, b"HERE") {
                text.splice(place..place + 4, [0xff, 0xfe, 0xc0, 0x80]);
            }
            vec![text]
        },
        Spoil::LoneSurrogate => {
            let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":"\ud800"}}}}"#);
            vec![text.into_bytes()]
        },
        Spoil::Batch => vec![bytes(&json!([response]))],
        Spoil::GarbageFirst(garbage) => vec![garbage.clone().into_bytes(), good],
        Spoil::Depth(depth) => {
            let nested = format!("{}{}", "[".repeat(*depth), "]".repeat(*depth));
            let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":{nested}}}}}"#);
            vec![text.into_bytes()]
        },
        Spoil::ResultType(word) => {
            let mut strange = response.clone();
            strange["result"]["resultType"] = json!(word);
            vec![bytes(&strange)]
        },
    }
}

fn bytes(message: &Value) -> Vec<u8> {
    message.to_string().into_bytes()
}

fn with(response: &Value, name: &str, value: Value) -> Value {
    let mut changed = response.clone();
    changed[name] = value;
    changed
}

fn without(response: &Value, name: &str) -> Value {
    let mut changed = response.clone();
    if let Some(members) = changed.as_object_mut() {
        members.remove(name);
    }
    changed
}
