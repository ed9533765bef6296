//! Protected resource metadata (RFC 9728): tells clients where they get tokens.

use http::request::Parts;
use http::{HeaderValue, Method, Response};
use serde_json::json;

use crate::auth::AuthError;
use crate::endpoint::{Endpoint, parse_endpoint};
use crate::response::{self, ResponseBody};

const WELL_KNOWN_PATH: &str = "/.well-known/oauth-protected-resource";

/// What clients learn about authorization.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProtectedResource {
    /// The gateway's URL as clients know it, without a path: `https://mcp.example.com`.
    pub url: String,
    /// The issuers whose tokens the gateway accepts.
    pub authorization_servers: Vec<String>,
    /// The scopes that clients should ask for.
    pub scopes: Vec<String>,
}

impl ProtectedResource {
    /// The response to a request for the metadata; `None` for another path.
    pub(crate) fn metadata_response(&self, head: &Parts) -> Option<Response<ResponseBody>> {
        let endpoint = head.uri.path().strip_prefix(WELL_KNOWN_PATH)?;
        let is_ours = endpoint.is_empty()
            || matches!(
                parse_endpoint(endpoint),
                Some(Endpoint::Mcp(_) | Endpoint::Sse(_))
            );
        if !is_ours {
            return None;
        }
        if head.method != Method::GET {
            return Some(response::method_not_allowed("GET"));
        }
        let mut metadata = json!({
            "resource": format!("{}{endpoint}", self.base_url()),
            "authorization_servers": self.authorization_servers,
            "bearer_methods_supported": ["header"],
        });
        if !self.scopes.is_empty() {
            metadata["scopes_supported"] = json!(self.scopes);
        }
        Some(response::ok_json(metadata.to_string()))
    }

    fn base_url(&self) -> &str {
        self.url.trim_end_matches('/')
    }
}

pub(crate) fn bearer_challenge(
    resource: Option<&ProtectedResource>,
    path: &str,
    error: AuthError,
) -> HeaderValue {
    let mut parameters = Vec::new();
    if error == AuthError::Unknown {
        parameters.push("error=\"invalid_token\"".to_owned());
    }
    if let Some(resource) = resource {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte);
        let path = if path.bytes().all(plain) { path } else { "" };
        let base = resource.base_url();
        parameters.push(format!(
            "resource_metadata=\"{base}{WELL_KNOWN_PATH}{path}\""
        ));
    }
    let challenge = format!("Bearer {}", parameters.join(", "));
    HeaderValue::try_from(challenge.trim_end()).unwrap_or(HeaderValue::from_static("Bearer"))
}
