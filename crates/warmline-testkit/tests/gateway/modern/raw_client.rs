//! A modern client of bytes: it says exactly what a test wants said, and shows what came back.

use crate::prelude::*;

pub(crate) use crate::raw_client::Reply;
use crate::raw_client::send;
pub(crate) use crate::raw_http::Response as Stream;
use crate::raw_http::{JSON, begin, text};

pub(crate) const VERSION: &str = "2026-07-28";

/// One request, to be changed by a test before it is sent.
#[derive(Clone, Debug)]
pub(crate) struct Wire {
    pub(crate) http: &'static str,
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

/// A request of this method that is right in everything.
pub(crate) fn request(method: &str, params: Value) -> Wire {
    let mut params = params;
    let meta = &mut params["_meta"];
    meta["io.modelcontextprotocol/protocolVersion"] = json!(VERSION);
    meta["io.modelcontextprotocol/clientInfo"] = json!({ "name": "wire", "version": "1" });
    if meta["io.modelcontextprotocol/clientCapabilities"].is_null() {
        meta["io.modelcontextprotocol/clientCapabilities"] = json!({});
    }
    let name = match method {
        "tools/call" | "prompts/get" => params["name"].as_str(),
        "resources/read" => params["uri"].as_str(),
        "tasks/get" | "tasks/update" | "tasks/cancel" => params["taskId"].as_str(),
        _ => None,
    };
    let mut headers = JSON.to_vec();
    headers.extend([("MCP-Protocol-Version", VERSION), ("Mcp-Method", method)]);
    headers.extend(name.map(|name| ("Mcp-Name", name)));
    let headers = headers.into_iter();
    let body = json!({ "jsonrpc": "2.0", "id": "wire-1", "method": method, "params": params });
    Wire {
        http: "POST",
        path: "/servers/ledger/mcp".to_owned(),
        headers: headers
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect(),
        body: body.to_string(),
    }
}

/// A call of a tool that is right in everything.
pub(crate) fn call(tool: &str, arguments: Value) -> Wire {
    request(
        "tools/call",
        json!({ "name": tool, "arguments": arguments }),
    )
}

impl Wire {
    pub(crate) fn at(mut self, path: &str) -> Self {
        path.clone_into(&mut self.path);
        self
    }

    /// One more header, whatever stands there already.
    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn without(mut self, name: &str) -> Self {
        self.headers
            .retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        self
    }

    /// The header with this value and no other.
    pub(crate) fn set(self, name: &str, value: &str) -> Self {
        self.without(name).with(name, value)
    }

    pub(crate) fn body(mut self, body: &str) -> Self {
        body.clone_into(&mut self.body);
        self
    }

    /// The body with a change made to it.
    pub(crate) fn changed(mut self, change: impl FnOnce(&mut Value)) -> Self {
        let mut body = serde_json::from_str(&self.body).unwrap();
        change(&mut body);
        self.body = body.to_string();
        self
    }

    pub(crate) fn http(mut self, method: &'static str) -> Self {
        self.http = method;
        self
    }

    /// Sends it and reads what comes back to its end.
    pub(crate) async fn send(self, world: &World) -> Reply {
        self.send_to(world.gateway.address()).await
    }

    /// The same to this address.
    pub(crate) async fn send_to(self, address: SocketAddr) -> Reply {
        send(address, &self.text()).await
    }

    /// Sends it and reads the head of what comes back.
    pub(crate) async fn begin(self, world: &World) -> Stream {
        self.begin_at(world.gateway.address()).await
    }

    /// The same at this address.
    pub(crate) async fn begin_at(self, address: SocketAddr) -> Stream {
        begin(address, &self.text()).await
    }

    fn text(&self) -> String {
        let headers = self.headers.iter();
        let headers: Vec<_> = headers
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        text(self.http, &self.path, &headers, &self.body)
    }
}
