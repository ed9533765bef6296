//! A client over HTTP that keeps the bytes of what it hears, and what it says in each era.

use crate::prelude::*;
use serde::Deserialize;
use serde_json::value::RawValue;
use warmline_core::message::params::Params;
use warmline_core::protocol::headers::mcp_name;

use crate::raw_http::send;

/// A client at a URL.
pub(crate) struct Client {
    url: String,
    era: Era,
    session: Option<String>,
}

/// What a message holds, in the bytes it came in.
#[derive(Deserialize)]
struct Answer<'a> {
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
}

/// A message that is sent in an era.
pub(crate) fn message(era: Era, id: Option<u32>, method: &str, mut params: Value) -> Value {
    if era == Era::Modern {
        let name = |last: &str| format!("io.modelcontextprotocol/{last}");
        params["_meta"][name("protocolVersion")] = json!("2026-07-28");
        params["_meta"][name("clientInfo")] = json!({"name": "test", "version": "1"});
        params["_meta"][name("clientCapabilities")] = json!({});
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

    /// All that is said until a request is answered, without what frames it.
    pub(crate) fn heard(&mut self, method: &str, params: Value) -> Vec<String> {
        let said = self.post(Some(1), method, params);
        let held = said.iter().map(|message| {
            let answer: Answer<'_> = serde_json::from_str(message).unwrap();
            let held = answer.result.or(answer.error).or(answer.params);
            held.map(|raw| raw.get().to_owned()).unwrap_or_default()
        });
        held.collect()
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
            let params = Params::parse(Bytes::from(params.to_string())).unwrap();
            if let Some(name) = mcp_name(method, &params) {
                headers.push(header("Mcp-Name", name.to_str().unwrap()));
            }
        } else if let Some(session) = &self.session {
            headers.push(header("Mcp-Session-Id", session));
            headers.push(header("MCP-Protocol-Version", "2025-11-25"));
        }
        let message = message(self.era, id, method, params).to_string();
        let mut reply = send(&self.url, "POST", &headers, message.as_bytes());
        let is_answered = reply.status < 300 || self.era == Era::Modern;
        assert!(is_answered, "{method}: HTTP status {}", reply.status);
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
