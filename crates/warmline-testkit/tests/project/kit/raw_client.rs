//! A client that knows nothing: it writes bytes and reads bytes.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::{Value, json};
use warmline_testkit::LedgerServer;

/// What came back.
#[derive(Debug, Default)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    head: String,
    body: Vec<u8>,
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> Option<String> {
        self.head.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            let is_it = key.eq_ignore_ascii_case(name);
            is_it.then(|| value.trim().to_owned())
        })
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

/// A connection.
pub(crate) struct Client(BufReader<TcpStream>);

impl Client {
    pub(crate) fn to(address: SocketAddr) -> Self {
        let socket = TcpStream::connect(address).unwrap();
        let patience = Some(Duration::from_secs(10));
        socket.set_read_timeout(patience).unwrap();
        Self(BufReader::new(socket))
    }

    pub(crate) fn send(&mut self, request: &str, headers: &[(&str, &str)], body: &str) -> Reply {
        let mut head = format!("{request} HTTP/1.1\r\nHost: here\r\n");
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        head += &format!("Content-Length: {}\r\n\r\n{body}", body.len());
        self.0.get_mut().write_all(head.as_bytes()).unwrap();
        self.receive()
    }

    fn receive(&mut self) -> Reply {
        let mut reply = Reply::default();
        while !reply.head.ends_with("\r\n\r\n") {
            let read = self.0.read_line(&mut reply.head).unwrap();
            assert!(read > 0, "it ended in its head: {}", reply.head);
        }
        reply.status = reply.head.split(' ').nth(1).unwrap().parse().unwrap();
        let is_chunked = reply.header("transfer-encoding").is_some();
        loop {
            let size = if is_chunked {
                let mut size = String::new();
                self.0.read_line(&mut size).unwrap();
                u64::from_str_radix(size.trim(), 16).unwrap()
            } else {
                let length = reply.header("content-length");
                length.map_or(0, |text| text.parse().unwrap())
            };
            let piece = self.0.by_ref().take(size);
            { piece }.read_to_end(&mut reply.body).unwrap();
            if is_chunked {
                self.0.read_line(&mut String::new()).unwrap();
            }
            if !is_chunked || size == 0 {
                return reply;
            }
        }
    }

    pub(crate) fn post(&mut self, headers: &[(&str, &str)], body: &Value) -> Reply {
        let mut all = vec![
            ("Content-Type", "application/json"),
            ("Accept", "application/json, text/event-stream"),
        ];
        all.extend(headers);
        self.send("POST /mcp", &all, &body.to_string())
    }
}

/// A legacy session, opened as the specification asks for.
pub(crate) struct Session {
    client: Client,
    pub(crate) id: Option<String>,
    next: u64,
}

impl Session {
    pub(crate) fn open(server: &LedgerServer) -> Self {
        let mut client = Client::to(server.address());
        let reply = client.post(&[], &initialize());
        assert_eq!(reply.status, 200, "{}", reply.text());
        let mut session = Self {
            client,
            id: reply.header("mcp-session-id"),
            next: 1,
        };
        let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        assert_eq!(session.say(&initialized).status, 202);
        session
    }

    pub(crate) fn say(&mut self, message: &Value) -> Reply {
        let mut headers = vec![("MCP-Protocol-Version", "2025-11-25")];
        headers.extend(self.id.as_deref().map(|id| ("Mcp-Session-Id", id)));
        self.client.post(&headers, message)
    }

    pub(crate) fn request(&mut self, method: &str, params: Value) -> Reply {
        self.next += 1;
        let id = self.next;
        self.say(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
    }

    pub(crate) fn call(&mut self, tool: &str, arguments: Value) -> Reply {
        self.request("tools/call", json!({"name": tool, "arguments": arguments}))
    }
}

pub(crate) fn initialize() -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": {"name": "kit", "version": "0"},
    }})
}

/// A modern call of a tool with all it must carry, and these headers.
pub(crate) fn call_modern(
    client: &mut Client,
    id: u64,
    mut params: Value,
    more: &[(&str, &str)],
) -> Reply {
    let name = params["name"].as_str().unwrap().to_owned();
    params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!("2026-07-28");
    if params["_meta"]["io.modelcontextprotocol/clientCapabilities"].is_null() {
        params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({});
    }
    let mut headers = vec![
        ("MCP-Protocol-Version", "2026-07-28"),
        ("Mcp-Method", "tools/call"),
        ("Mcp-Name", &name),
    ];
    headers.extend(more);
    let body = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params});
    client.post(&headers, &body)
}
