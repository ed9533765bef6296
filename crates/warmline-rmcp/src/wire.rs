//! Messages between the SDK's types and raw JSON.
//!
//! The SDK's types know the methods of the protocol; what they do not know they carry as custom
//! messages. So nothing is dropped here, and nothing is understood twice.

use bytes::Bytes;
use rmcp::model::{ErrorCode, JsonRpcError, JsonRpcMessage, RequestId};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::{ErrorData, RoleClient};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use warmline::core::protocol::params::Params;

/// A message to the client.
pub(crate) type Incoming = RxJsonRpcMessage<RoleClient>;
/// A message of the client.
pub(crate) type Outgoing = TxJsonRpcMessage<RoleClient>;

/// A request or a notification of the client.
#[derive(Debug)]
pub(crate) struct Spoken {
    pub(crate) method: String,
    pub(crate) params: Params,
}

#[derive(Deserialize)]
struct Envelope<'a> {
    method: String,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
}

/// What a request or a notification says.
pub(crate) fn spoken(message: &Outgoing) -> Result<Spoken, serde_json::Error> {
    let text = serde_json::to_string(message)?;
    let envelope: Envelope<'_> = serde_json::from_str(&text)?;
    let params = match envelope.params.map(RawValue::get) {
        None | Some("null") => Params::empty(),
        Some(raw) => Params::parse(Bytes::copy_from_slice(raw.as_bytes()))
            .map_err(serde::de::Error::custom)?,
    };
    Ok(Spoken {
        method: envelope.method,
        params,
    })
}

/// The raw JSON of anything of the SDK.
pub(crate) fn raw(value: &impl Serialize) -> Result<Bytes, serde_json::Error> {
    serde_json::to_vec(value).map(Bytes::from)
}

/// The answer to a request: a raw result. One that is none is told as an error.
pub(crate) fn result(id: &RequestId, result: &[u8]) -> Incoming {
    let parsed = serde_json::from_slice::<&RawValue>(result)
        .and_then(|result| assembled(Some(id), &[("result", result)]));
    parsed.unwrap_or_else(|error| {
        let what = format!("the server's result is not one of the protocol: {error}");
        failure(id, ErrorData::new(ErrorCode::INTERNAL_ERROR, what, None))
    })
}

/// The answer to a request: an error.
pub(crate) fn failure(id: &RequestId, error: ErrorData) -> Incoming {
    JsonRpcMessage::Error(JsonRpcError::new(Some(id.clone()), error))
}

/// A notification of the server; none if it is not one.
pub(crate) fn notification(method: &str, params: &[u8]) -> Option<Incoming> {
    request_like(None, method, params)
}

/// A question of the server under an id of ours; none if it is not one.
pub(crate) fn question(id: &RequestId, method: &str, params: &[u8]) -> Option<Incoming> {
    request_like(Some(id), method, params)
}

fn request_like(id: Option<&RequestId>, method: &str, params: &[u8]) -> Option<Incoming> {
    let method = serde_json::value::to_raw_value(method).ok()?;
    let params: &RawValue = serde_json::from_slice(params).ok()?;
    assembled(id, &[("method", &method), ("params", params)]).ok()
}

fn assembled(
    id: Option<&RequestId>,
    members: &[(&str, &RawValue)],
) -> Result<Incoming, serde_json::Error> {
    let mut text = String::from(r#"{"jsonrpc":"2.0""#);
    if let Some(id) = id {
        text.push_str(r#","id":"#);
        text.push_str(&serde_json::to_string(id)?);
    }
    for (name, value) in members {
        text.push_str(&format!(r#","{name}":{}"#, value.get()));
    }
    text.push('}');
    serde_json::from_str(&text)
}
