//! The rules of the modern era over HTTP: everything is said in each request, twice in part.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::reply::Reply;
use super::serve::{Answer, Exchange};
use crate::answer::is_known;
use crate::call::Era;
use crate::message::{Kind, RpcError, kind, response};
use crate::tools::header_params;

const HEADER_MISMATCH: i64 = -32020;

impl Exchange<'_> {
    /// A POST that claims to be modern, or that must be.
    pub(crate) fn modern_post(&mut self) -> Answer {
        if let Some(refusal) = self.content_refused() {
            return refusal.into();
        }
        self.check_leftovers();
        match kind(self.message) {
            Kind::Request => {},
            Kind::Notification => {
                self.state
                    .violation(format!("{} over modern HTTP", self.facts.method));
                return Reply::empty(202).into();
            },
            Kind::Response | Kind::Malformed => {
                self.state.violation("the body is not one request");
                return Reply::error(400, &Value::Null, -32600, "Invalid Request").into();
            },
        }
        match self.modern_refused() {
            Some((status, error)) => {
                Reply::json(status, &response(&self.facts.id, &Err(error))).into()
            },
            None => Answer::Run(Box::new(self.call(Era::Modern, None)), Vec::new()),
        }
    }

    /// Headers of the legacy era have no place here. They are ignored, and noted.
    fn check_leftovers(&self) {
        for name in ["mcp-session-id", "last-event-id"] {
            if self.request.header(name).is_some() {
                self.state.violation(format!("{name} on a modern request"));
            }
        }
    }

    /// Steps 7 to 14 of the order of checks. What a client got wrong is a violation as well.
    fn modern_refused(&self) -> Option<(u16, RpcError)> {
        if let Some(error) = self.meta_refused() {
            self.state.violation(error.message.clone());
            return Some((400, error));
        }
        if let Some(error) = self.doubled().or_else(|| self.version_mismatch()) {
            self.state.violation(error.message.clone());
            return Some((400, error));
        }
        let version = self.meta("protocolVersion").as_str().unwrap_or_default();
        let served = &self.state.personality.modern_versions;
        if !served.iter().any(|one| one == version) {
            let data = json!({"supported": served, "requested": version});
            let error = RpcError::with_data(-32022, "Unsupported protocol version", data);
            return Some((400, error));
        }
        if let Some(error) = self.routing_mismatch() {
            self.state.violation(error.message.clone());
            return Some((400, error));
        }
        if !is_known(Era::Modern, &self.facts.method) {
            let error = RpcError::new(-32601, format!("Method not found: {}", self.facts.method));
            return Some((404, error));
        }
        let error = self.param_mismatch()?;
        self.state.violation(error.message.clone());
        Some((400, error))
    }

    fn meta(&self, name: &str) -> &Value {
        &self.message["params"]["_meta"][format!("io.modelcontextprotocol/{name}")]
    }

    fn meta_refused(&self) -> Option<RpcError> {
        let mut missing = Vec::new();
        if !self.meta("protocolVersion").is_string() {
            missing.push("io.modelcontextprotocol/protocolVersion");
        }
        if !self.meta("clientCapabilities").is_object() {
            missing.push("io.modelcontextprotocol/clientCapabilities");
        }
        (!missing.is_empty())
            .then(|| RpcError::invalid_params(format!("params._meta lacks {}", missing.join(", "))))
    }

    fn doubled(&self) -> Option<RpcError> {
        ["mcp-protocol-version", "mcp-method", "mcp-name"]
            .into_iter()
            .find(|name| self.request.count(name) > 1)
            .map(|name| RpcError::new(HEADER_MISMATCH, format!("{name} comes twice")))
    }

    fn version_mismatch(&self) -> Option<RpcError> {
        let version = self.meta("protocolVersion").as_str();
        let header = self.request.header("mcp-protocol-version");
        (header != version).then(|| {
            RpcError::new(
                HEADER_MISMATCH,
                "MCP-Protocol-Version is not the version in the body",
            )
        })
    }

    fn routing_mismatch(&self) -> Option<RpcError> {
        if self.request.header("mcp-method") != Some(self.facts.method.as_str()) {
            return Some(RpcError::new(
                HEADER_MISMATCH,
                "Mcp-Method is not the method in the body",
            ));
        }
        let params = &self.message["params"];
        let name = match self.facts.method.as_str() {
            "tools/call" | "prompts/get" => params["name"].as_str(),
            "resources/read" => params["uri"].as_str(),
            _ => return None,
        };
        let header = self.request.header("mcp-name").and_then(decoded);
        (header.as_deref() != name)
            .then(|| RpcError::new(HEADER_MISMATCH, "Mcp-Name is not the name in the body"))
    }

    fn param_mismatch(&self) -> Option<RpcError> {
        if self.facts.method != "tools/call" {
            return None;
        }
        let tool = self.facts.tool.as_deref().unwrap_or_default();
        header_params(tool).iter().find_map(|(header, path)| {
            let argument = path
                .iter()
                .try_fold(&self.message["params"]["arguments"], |value, key| {
                    value.get(key)
                });
            let sent_as = format!("mcp-param-{}", header.to_ascii_lowercase());
            let twice = self.request.count(&sent_as) > 1;
            let sent = self.request.header(&sent_as);
            let fits = match (as_header(argument), sent) {
                (None, None) => true,
                (Some(wanted), Some(sent)) => decoded(sent).is_some_and(|sent| sent == wanted),
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
fn as_header(argument: Option<&Value>) -> Option<String> {
    match argument? {
        Value::String(text) => Some(text.clone()),
        Value::Null => None,
        other @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
            Some(other.to_string())
        },
    }
}

/// Reads a header value, also in its base64 form.
fn decoded(value: &str) -> Option<String> {
    let Some(coded) = value
        .strip_prefix("=?base64?")
        .and_then(|rest| rest.strip_suffix("?="))
    else {
        return Some(value.to_owned());
    };
    String::from_utf8(STANDARD.decode(coded).ok()?).ok()
}
