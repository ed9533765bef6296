//! Where clients learn who gives out tokens for us (RFC 9728).
//!
//! Asked by: [`door`](crate::door), for the well-known path, and for the header of a 401.

use http::request::Parts;
use http::{HeaderValue, Method, Response};
use serde_json::json;

use crate::body::Body;
use crate::path::{self, Place};
use crate::reply;
use crate::who::TurnedAway;

/// The path under which it is found.
const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";

/// What clients are told of who lets them in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    /// Our own URL as clients know it, without a path: `https://mcp.example.com`.
    pub url: String,
    /// The issuers whose tokens count here.
    pub authorization_servers: Vec<String>,
    /// The scopes that are worth asking for.
    pub scopes: Vec<String>,
}

impl Resource {
    /// The answer to a request for it; none where the request is for something else.
    pub(super) fn answer(&self, head: &Parts) -> Option<Response<Body>> {
        let of = head.uri.path().strip_prefix(WELL_KNOWN)?;
        let is_ours =
            of.is_empty() || matches!(path::place(of), Some(Place::Mcp(_) | Place::Sse(_)));
        if !is_ours {
            return None;
        }
        if head.method != Method::GET {
            return Some(reply::wrong_method("GET"));
        }
        let mut said = json!({
            "resource": format!("{}{of}", self.base()),
            "authorization_servers": self.authorization_servers,
            "bearer_methods_supported": ["header"],
        });
        if let (false, Some(said)) = (self.scopes.is_empty(), said.as_object_mut()) {
            said.insert("scopes_supported".to_owned(), json!(self.scopes));
        }
        Some(reply::answer(said.to_string()))
    }

    fn base(&self) -> &str {
        self.url.trim_end_matches('/')
    }
}

/// What a 401 says of how to come in.
pub(super) fn challenge(
    resource: Option<&Resource>,
    path: &str,
    turned_away: TurnedAway,
) -> HeaderValue {
    let mut said = Vec::new();
    if turned_away == TurnedAway::Unknown {
        said.push("error=\"invalid_token\"".to_owned());
    }
    if let Some(resource) = resource {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte);
        let path = if path.bytes().all(plain) { path } else { "" };
        let base = resource.base();
        said.push(format!("resource_metadata=\"{base}{WELL_KNOWN}{path}\""));
    }
    let said = format!("Bearer {}", said.join(", "));
    HeaderValue::try_from(said.trim_end()).unwrap_or(HeaderValue::from_static("Bearer"))
}
