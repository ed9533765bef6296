//! Messages between the SDK's types and raw JSON.
//!
//! The SDK carries methods that it does not know as custom messages, so nothing is dropped here.

use bytes::Bytes;
use rmcp::model::{ErrorCode, JsonRpcError, JsonRpcMessage, RequestId};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::{ErrorData, RoleClient};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use warmline_core::message::params::Params;

pub(crate) type MessageToClient = RxJsonRpcMessage<RoleClient>;
pub(crate) type MessageFromClient = TxJsonRpcMessage<RoleClient>;

/// A request or a notification of the client.
#[derive(Debug)]
pub(crate) struct ClientMessage {
    pub(crate) method: String,
    pub(crate) params: Params,
}

#[derive(Deserialize)]
struct RawEnvelope<'a> {
    method: String,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
}

pub(crate) fn parse_message(
    message: &MessageFromClient,
) -> Result<ClientMessage, serde_json::Error> {
    let text = serde_json::to_string(message)?;
    let envelope: RawEnvelope<'_> = serde_json::from_str(&text)?;
    let params = match envelope.params.map(RawValue::get) {
        None | Some("null") => Params::empty(),
        Some(raw) => Params::parse(Bytes::copy_from_slice(raw.as_bytes()))
            .map_err(serde::de::Error::custom)?,
    };
    Ok(ClientMessage {
        method: envelope.method,
        params,
    })
}

pub(crate) fn to_raw_json(value: &impl Serialize) -> Result<Bytes, serde_json::Error> {
    serde_json::to_vec(value).map(Bytes::from)
}

/// A response with a raw result; with an error if the result is malformed.
pub(crate) fn result_message(id: &RequestId, result: &[u8]) -> MessageToClient {
    let parsed = serde_json::from_slice::<&RawValue>(result)
        .and_then(|result| assemble_message(Some(id), &[("result", result)]));
    parsed.unwrap_or_else(|error| {
        let what = format!("the server's result is malformed: {error}");
        error_message(id, ErrorData::new(ErrorCode::INTERNAL_ERROR, what, None))
    })
}

pub(crate) fn error_message(id: &RequestId, error: ErrorData) -> MessageToClient {
    JsonRpcMessage::Error(JsonRpcError::new(Some(id.clone()), error))
}

/// A notification of the server; none if it is malformed.
pub(crate) fn notification_message(method: &str, params: &[u8]) -> Option<MessageToClient> {
    method_message(None, method, params)
}

/// The same, or a server request under an id of ours.
pub(crate) fn method_message(
    id: Option<&RequestId>,
    method: &str,
    params: &[u8],
) -> Option<MessageToClient> {
    let method = serde_json::value::to_raw_value(method).ok()?;
    let params: &RawValue = serde_json::from_slice(params).ok()?;
    assemble_message(id, &[("method", &method), ("params", params)]).ok()
}

fn assemble_message(
    id: Option<&RequestId>,
    members: &[(&str, &RawValue)],
) -> Result<MessageToClient, serde_json::Error> {
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
