//! A modern client of bytes: it says exactly what a test wants said, and shows what came back.

use crate::prelude::*;

use tokio::io::AsyncWriteExt as _;

pub(crate) use crate::raw_http::Response as Stream;

pub(crate) const VERSION: &str = "2026-07-28";
/// Nothing here takes so long unless it hangs.
const PATIENCE: Duration = Duration::from_secs(20);

/// One request, to be changed by a test before it is sent.
#[derive(Clone, Debug)]
pub(crate) struct Wire {
    pub(crate) http: &'static str,
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

/// What came back, whole.
#[derive(Clone, Debug)]
pub(crate) struct Back {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Back {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut all = self.headers.iter();
        let found = all.find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    /// The JSON of the body, or of its last event.
    pub(crate) fn json(&self) -> Value {
        let text = match self.messages().last() {
            Some(last) => last.to_string(),
            None => self.body.clone(),
        };
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The messages of a body of events.
    pub(crate) fn messages(&self) -> Vec<Value> {
        let data = self
            .body
            .lines()
            .filter_map(|line| line.strip_prefix("data: "));
        data.map(|data| serde_json::from_str(data).unwrap())
            .collect()
    }

    /// The status, and the code of the error in the body.
    pub(crate) fn refusal(&self) -> (u16, i64) {
        let code = self.json()["error"]["code"].as_i64().unwrap_or_default();
        (self.status, code)
    }
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
    let name = name.map(|name| ("Mcp-Name".to_owned(), name.to_owned()));
    let body = json!({ "jsonrpc": "2.0", "id": "wire-1", "method": method, "params": params });
    let mut wire = Wire {
        http: "POST",
        path: "/servers/ledger/mcp".to_owned(),
        headers: vec![
            ("Content-Type".to_owned(), "application/json".to_owned()),
            (
                "Accept".to_owned(),
                "application/json, text/event-stream".to_owned(),
            ),
            ("MCP-Protocol-Version".to_owned(), VERSION.to_owned()),
            ("Mcp-Method".to_owned(), method.to_owned()),
        ],
        body: body.to_string(),
    };
    wire.headers.extend(name);
    wire
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
    pub(crate) async fn send(self, world: &World) -> Back {
        self.send_to(world.gateway.address()).await
    }

    /// The same to this address.
    pub(crate) async fn send_to(self, address: SocketAddr) -> Back {
        let reading = async {
            let mut stream = self.begin_at(address).await;
            let body = stream.whole().await;
            Back {
                status: stream.status,
                headers: stream.headers,
                body,
            }
        };
        within(reading).await
    }

    /// Sends it and reads the head of what comes back.
    pub(crate) async fn begin(self, world: &World) -> Stream {
        self.begin_at(world.gateway.address()).await
    }

    /// The same at this address.
    pub(crate) async fn begin_at(self, address: SocketAddr) -> Stream {
        let mut head = format!("{} {} HTTP/1.1\r\n", self.http, self.path);
        let host = address.to_string();
        let length = self.body.len().to_string();
        let more = [("Host", host.as_str()), ("Content-Length", &length)];
        let more = more.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let named = |name: &str| self.headers.iter().any(|(known, _)| known == name);
        for (name, value) in more
            .iter()
            .filter(|(name, _)| !named(name))
            .chain(&self.headers)
        {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("Connection: close\r\n\r\n");
        let mut socket = TcpStream::connect(address).await.unwrap();
        socket.write_all(head.as_bytes()).await.unwrap();
        socket.write_all(self.body.as_bytes()).await.unwrap();
        within(Stream::read(socket)).await
    }
}

async fn within<T>(work: impl Future<Output = T>) -> T {
    let ended = tokio::time::timeout(PATIENCE, work).await;
    ended.expect("this hangs")
}
