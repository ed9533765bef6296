//! A client of a gateway.

use serde_json::{Value, json};

use crate::home::{Response, http};

/// Somebody who speaks to a gateway, with a token where it asks for one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Client<'c> {
    pub(crate) gateway: &'c str,
    pub(crate) token: Option<&'c str>,
}

impl Client<'_> {
    pub(crate) fn post(self, path: &str, headers: &[(&str, &str)], body: &Value) -> Response {
        let bearer = self.token.map(|token| format!("Bearer {token}"));
        let mut all = headers.to_vec();
        all.extend(
            bearer
                .iter()
                .map(|bearer| ("Authorization", bearer.as_str())),
        );
        let url = format!("{}{path}", self.gateway);
        http(&url, "POST", &all, &body.to_string())
    }

    /// Opens a client session.
    pub(crate) fn initialize(self, path: &str, meta: &Value) -> Response {
        self.post(path, &[], &hello(meta))
    }

    /// The id of a new client session.
    pub(crate) fn session(self, path: &str) -> String {
        let response = self.initialize(path, &json!({}));
        let id = response.header("mcp-session-id");
        id.unwrap_or_else(|| panic!("{}\n{}", response.head, response.body))
            .to_owned()
    }

    /// Asks for something in a client session.
    pub(crate) fn ask(self, path: &str, session: &str, method: &str, params: &Value) -> Response {
        self.post(
            path,
            &[("Mcp-Session-Id", session)],
            &request(method, params),
        )
    }
}

pub(crate) fn hello(meta: &Value) -> Value {
    let who = json!({"name": "promises", "version": "1"});
    json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": who, "_meta": meta}})
}

pub(crate) fn request(method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
}
