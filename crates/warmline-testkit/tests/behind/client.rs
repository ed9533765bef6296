//! A client over HTTP that keeps the bytes of what it hears, and what it says in each era.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use warmline::core::era::Era;

use super::wire::send;

/// A client at a URL.
pub(crate) struct Client {
    url: String,
    era: Era,
    session: Option<String>,
}

/// A result, in the bytes it came in.
#[derive(Deserialize)]
struct Answer<'a> {
    #[serde(borrow)]
    result: Option<&'a RawValue>,
}

/// A message that is sent in an era.
pub(crate) fn message(era: Era, id: Option<u32>, method: &str, mut params: Value) -> Value {
    if era == Era::Modern {
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        });
    }
    let mut message = json!({"jsonrpc": "2.0", "method": method, "params": params});
    if let Some(id) = id {
        message["id"] = json!(id);
    }
    message
}

/// What a legacy client says first.
pub(crate) fn hello() -> Value {
    let client = json!({"name": "test", "version": "1"});
    json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client})
}

/// The result in a message, as it stands there; none if the message is none.
pub(crate) fn result(message: &str) -> Option<String> {
    let answer: Answer<'_> = serde_json::from_str(message).ok()?;
    answer.result.map(|result| result.get().to_owned())
}

impl Client {
    /// Begins to speak in an era.
    pub(crate) fn begin(url: &str, era: Era) -> Self {
        let mut client = Self {
            url: url.to_owned(),
            era,
            session: None,
        };
        if era == Era::Legacy {
            client.request("initialize", hello());
            client.post(None, "notifications/initialized", json!({}));
        }
        client
    }

    /// The result of a request.
    pub(crate) fn request(&mut self, method: &str, params: Value) -> String {
        let said = self.post(Some(1), method, params);
        let found = said.iter().find_map(|message| result(message));
        found.unwrap_or_else(|| panic!("{method} at {}: {said:?}", self.url))
    }

    fn post(&mut self, id: Option<u32>, method: &str, params: Value) -> Vec<String> {
        let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let mut headers = vec![
            header("Content-Type", "application/json"),
            header("Accept", "application/json, text/event-stream"),
        ];
        if self.era == Era::Modern {
            headers.push(header("MCP-Protocol-Version", "2026-07-28"));
            headers.push(header("Mcp-Method", method));
        } else if let Some(session) = &self.session {
            headers.push(header("Mcp-Session-Id", session));
            headers.push(header("MCP-Protocol-Version", "2025-11-25"));
        }
        let message = message(self.era, id, method, params).to_string();
        let mut reply = send(&self.url, "POST", &headers, message.as_bytes());
        assert!(reply.status < 300, "{method}: HTTP status {}", reply.status);
        if let Some(session) = reply.header("mcp-session-id") {
            self.session = Some(session.to_owned());
        }
        let mut said = Vec::new();
        while let Some(message) = reply.message() {
            said.push(String::from_utf8(message).unwrap());
        }
        said
    }
}
