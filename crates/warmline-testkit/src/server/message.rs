//! JSON-RPC messages as plain JSON values, and the errors a server answers with.

use serde_json::{Value, json};

/// A JSON-RPC error before it has an id.
#[derive(Clone, Debug)]
pub(crate) struct RpcError {
    pub(crate) code: i64,
    pub(crate) message: String,
    pub(crate) data: Option<Value>,
}

/// What a request came to.
pub(crate) type RpcResult = Result<Value, RpcError>;

impl RpcError {
    pub(crate) fn new(code: i64, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            data: None,
        }
    }

    pub(crate) fn with_data(code: i64, message: impl Into<String>, data: Value) -> Self {
        Self {
            code,
            message: message.into(),
            data: Some(data),
        }
    }

    pub(crate) fn invalid_params(message: impl Into<String>) -> Self {
        Self::new(-32602, message)
    }

    pub(crate) fn to_value(&self) -> Value {
        let mut error = json!({"code": self.code, "message": self.message});
        if let Some(data) = &self.data {
            error["data"] = data.clone();
        }
        error
    }
}

/// The response to the request with this id.
pub(crate) fn response(id: &Value, outcome: &RpcResult) -> Value {
    match outcome {
        Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
        Err(error) => json!({"jsonrpc": "2.0", "id": id, "error": error.to_value()}),
    }
}

/// A notification.
pub(crate) fn notification(method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "method": method, "params": params})
}

/// A request of the server.
pub(crate) fn request(id: &Value, method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

/// What kind of message a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MessageKind {
    Request,
    Notification,
    Response,
    /// Anything else: no object, no version, an array.
    Malformed,
}

/// Reads the kind off the members, as the specification defines it.
pub(crate) fn message_kind(message: &Value) -> MessageKind {
    let Some(members) = message.as_object() else {
        return MessageKind::Malformed;
    };
    if members.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
        return MessageKind::Malformed;
    }
    match (members.get("method"), members.get("id")) {
        (Some(Value::String(_)), Some(Value::Number(_) | Value::String(_))) => MessageKind::Request,
        (Some(Value::String(_)), None) => MessageKind::Notification,
        (None, Some(_)) if members.contains_key("result") || members.contains_key("error") => {
            MessageKind::Response
        },
        _ => MessageKind::Malformed,
    }
}
