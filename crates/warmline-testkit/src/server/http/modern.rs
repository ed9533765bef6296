//! The rules of the modern era over HTTP: everything is said in each request, twice in part.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::exchange::{EraDecision, HttpExchange};
use super::reply::HttpReply;
use crate::server::call::Era;
use crate::server::message::{MessageKind, RpcError, message_kind, response};
use crate::server::methods::is_known_method;
use crate::server::tools::header_params;

const HEADER_MISMATCH: i64 = -32020;

impl HttpExchange<'_> {
    /// A POST that claims to be modern, or that must be.
    pub(crate) fn modern_post(&mut self) -> EraDecision {
        if let Some(refusal) = self.check_content_headers() {
            return refusal.into();
        }
        self.check_legacy_headers();
        match message_kind(self.message) {
            MessageKind::Request => {},
            MessageKind::Notification => {
                self.state
                    .record_violation(format!("{} over modern HTTP", self.info.method));
                return HttpReply::empty(202).into();
            },
            MessageKind::Response | MessageKind::Malformed => {
                self.state.record_violation("the body is not one request");
                return HttpReply::error(400, &Value::Null, -32600, "Invalid Request").into();
            },
        }
        match self.check_modern_request() {
            Some((status, error)) => {
                HttpReply::json(status, &response(&self.info.id, &Err(error))).into()
            },
            None => EraDecision::Execute(Box::new(self.new_call(Era::Modern, None)), Vec::new()),
        }
    }

    /// Headers of the legacy era have no place here. They are ignored, and noted.
    fn check_legacy_headers(&self) {
        for name in ["mcp-session-id", "last-event-id"] {
            if self.request.header(name).is_some() {
                self.state
                    .record_violation(format!("{name} on a modern request"));
            }
        }
    }

    /// Steps 7 to 14 of the order of checks. What a client got wrong is a violation as well.
    fn check_modern_request(&self) -> Option<(u16, RpcError)> {
        if let Some(error) = self.missing_meta_error() {
            self.state.record_violation(error.message.clone());
            return Some((400, error));
        }
        if let Some(error) = self
            .duplicate_header_error()
            .or_else(|| self.version_mismatch_error())
        {
            self.state.record_violation(error.message.clone());
            return Some((400, error));
        }
        let version = self
            .meta_value("protocolVersion")
            .as_str()
            .unwrap_or_default();
        let served = &self.state.personality.modern_versions;
        if !served.iter().any(|one| one == version) {
            let data = json!({"supported": served, "requested": version});
            let error = RpcError::with_data(-32022, "Unsupported protocol version", data);
            return Some((400, error));
        }
        if let Some(error) = self.routing_header_error() {
            self.state.record_violation(error.message.clone());
            return Some((400, error));
        }
        if !is_known_method(Era::Modern, &self.info.method) {
            let error = RpcError::new(-32601, format!("Method not found: {}", self.info.method));
            return Some((404, error));
        }
        let error = self.param_header_error()?;
        self.state.record_violation(error.message.clone());
        Some((400, error))
    }

    fn meta_value(&self, name: &str) -> &Value {
        &self.message["params"]["_meta"][format!("io.modelcontextprotocol/{name}")]
    }

    fn missing_meta_error(&self) -> Option<RpcError> {
        let mut missing = Vec::new();
        if !self.meta_value("protocolVersion").is_string() {
            missing.push("io.modelcontextprotocol/protocolVersion");
        }
        if !self.meta_value("clientCapabilities").is_object() {
            missing.push("io.modelcontextprotocol/clientCapabilities");
        }
        (!missing.is_empty())
            .then(|| RpcError::invalid_params(format!("params._meta lacks {}", missing.join(", "))))
    }

    fn duplicate_header_error(&self) -> Option<RpcError> {
        ["mcp-protocol-version", "mcp-method", "mcp-name"]
            .into_iter()
            .find(|name| self.request.header_count(name) > 1)
            .map(|name| RpcError::new(HEADER_MISMATCH, format!("{name} comes twice")))
    }

    fn version_mismatch_error(&self) -> Option<RpcError> {
        let version = self.meta_value("protocolVersion").as_str();
        let header = self.request.header("mcp-protocol-version");
        (header != version).then(|| {
            RpcError::new(
                HEADER_MISMATCH,
                "MCP-Protocol-Version is not the version in the body",
            )
        })
    }

    fn routing_header_error(&self) -> Option<RpcError> {
        if self.request.header("mcp-method") != Some(self.info.method.as_str()) {
            return Some(RpcError::new(
                HEADER_MISMATCH,
                "Mcp-Method is not the method in the body",
            ));
        }
        let params = &self.message["params"];
        let name = match self.info.method.as_str() {
            "tools/call" | "prompts/get" => params["name"].as_str(),
            "resources/read" => params["uri"].as_str(),
            _ => return None,
        };
        let header = self
            .request
            .header("mcp-name")
            .and_then(decode_header_value);
        (header.as_deref() != name)
            .then(|| RpcError::new(HEADER_MISMATCH, "Mcp-Name is not the name in the body"))
    }

    fn param_header_error(&self) -> Option<RpcError> {
        if self.info.method != "tools/call" {
            return None;
        }
        let tool = self.info.tool.as_deref().unwrap_or_default();
        header_params(tool).iter().find_map(|(header, path)| {
            let argument = path
                .iter()
                .try_fold(&self.message["params"]["arguments"], |value, key| {
                    value.get(key)
                });
            let sent_as = format!("mcp-param-{}", header.to_ascii_lowercase());
            let twice = self.request.header_count(&sent_as) > 1;
            let sent = self.request.header(&sent_as);
            let fits = match (header_text(argument), sent) {
                (None, None) => true,
                (Some(wanted), Some(sent)) => {
                    decode_header_value(sent).is_some_and(|sent| sent == wanted)
                },
                _ => false,
            };
            (!fits || twice).then(|| {
                RpcError::new(
                    HEADER_MISMATCH,
                    format!("Mcp-Param-{header} is not the argument"),
                )
            })
        })
    }
}

/// The text of an argument as a header shows it; none when it is absent or null.
fn header_text(argument: Option<&Value>) -> Option<String> {
    match argument? {
        Value::String(text) => Some(text.clone()),
        Value::Null => None,
        other @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
            Some(other.to_string())
        },
    }
}

/// Reads a header value, also in its base64 form.
fn decode_header_value(value: &str) -> Option<String> {
    let Some(coded) = value
        .strip_prefix("=?base64?")
        .and_then(|rest| rest.strip_suffix("?="))
    else {
        return Some(value.to_owned());
    };
    String::from_utf8(STANDARD.decode(coded).ok()?).ok()
}
